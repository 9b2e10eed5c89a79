"""A number with its noun, as messages, summaries, reports and pages print it."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, in the singular for one; `plural` where it takes no s, or brings its verb with it."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
