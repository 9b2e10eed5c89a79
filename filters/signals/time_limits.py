"""Limits on the time that a family of signals spends on one trace.

The deciding limits are on the text itself (its length, its number of numbers), so they give the same result on every
machine. Each family's time is linear in the length of the text, for the texts of
benchmarks/answers/mutated_answers.py. The clock (`processor_time`) is the last resort against a fault in a family.
Its signal interrupts the main thread only, also inside a regular expression: workers measure in their main thread.
"""

from typing import Final

from distill.types import Trace

MOST_CHARACTERS: Final = 1 << 20
"""A trace with more of them is measured by no family: some 250,000 tokens, beyond what any teacher is asked for."""
MOST_SECONDS: Final = 20.0
"""Limit of processor time for a family and a trace: twenty times the 0.9 s that the slowest measured text of
MOST_CHARACTERS took."""
MOST_WAITING_SECONDS: Final = 300.0
"""Limit of the time that a family waits for one trace, but not for a processor: one from outside may ask a server."""


class TooMuch(Exception):
    """A text holds more than a family looks at."""


def too_long(trace: Trace) -> bool:
    return max(len(trace.text), len(trace.reasoning) + len(trace.answer)) > MOST_CHARACTERS
