"""How many traces of a teacher a finished generate stage holds, by its manifest alone."""

from distill.artifacts.manifest import Manifest
from distill.types import Outcome


def traces_of_teacher(generated: Manifest, teacher: str, *, replaced: bool = False) -> int:
    """Replies of a teacher that a finished stage ended with; with `replaced` also those that later ones replaced."""
    names = [f"{teacher}.{outcome}" for outcome in Outcome if outcome != Outcome.ERROR]
    return sum(generated.counts.get(name, 0) for name in [*names, *([f"{teacher}.repeated"] if replaced else [])])
