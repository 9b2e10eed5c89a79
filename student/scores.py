"""Shares and paired differences with their uncertainty.

Intervals hold at 95 %. Closed forms, so the same counts give the same numbers everywhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Accuracy of one arm minus that of another on the same questions."""

    delta: float
    ci95: tuple[float, float]
    p: float
    """Exact two-sided McNemar test."""
    n: int
    only_first: int
    """Questions that only the first arm answers correctly."""
    only_second: int


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Wilson's score interval of a share (Wilson 1927)."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = share + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n * n))
    scale = 1 + Z95**2 / n
    low, high = (centre - spread) / scale, (centre + spread) / scale
    # Rounding must not push the ends of an extreme share past it.
    return (0.0 if successes == 0 else max(0.0, low)), (1.0 if successes == n else min(1.0, high))


def paired(first: Sequence[bool], second: Sequence[bool]) -> Delta:
    """The difference of two arms over the same questions, in the same order.

    The interval is the adjusted Wald interval of Bonett and Price (2012): it holds its level for small counts of
    disagreement, where the plain one is too narrow, and is defined when the arms agree everywhere.
    """
    from scipy.stats import binomtest

    if len(first) != len(second) or not first:
        raise ValueError(f"paired arms need the same questions, got {len(first)} and {len(second)}")
    n = len(first)
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    gain, loss = (only_first + 1) / (n + 2), (only_second + 1) / (n + 2)
    spread = Z95 * math.sqrt((gain + loss - (gain - loss) ** 2) / (n + 2))
    disagreements = only_first + only_second
    return Delta(
        delta=(only_first - only_second) / n,
        ci95=(max(-1.0, gain - loss - spread), min(1.0, gain - loss + spread)),
        p=float(binomtest(only_first, disagreements).pvalue) if disagreements else 1.0,
        n=n,
        only_first=only_first,
        only_second=only_second,
    )
