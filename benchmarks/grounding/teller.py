"""Reads a chart for `benchmarks/grounding/grounding.py`, with or without a fault, and tells what it reads."""

import random
from collections.abc import Callable

COLOURS = ("red", "blue", "green", "yellow", "purple", "orange")


class Teller:
    """What a rationale says of one chart: every mention of a value, a name and a result passes through here."""

    def __init__(self, values: dict[str, float], rng: random.Random, fault: str, others: tuple[str, ...]) -> None:
        self.true, self.read, self.fault = values, dict(values), fault
        self.names = {label: label for label in values}
        self.rng = rng
        self.mentions = self.results = 0
        self.chosen = rng.randrange(6)
        labels = list(values)
        if fault == "misread":
            label = rng.choice(labels)
            self.read[label] = self.wrong(values[label])
        elif fault == "swap":
            one, two = rng.sample(labels, 2)
            self.read[one], self.read[two] = values[two], values[one]
        elif fault == "label" and others:
            self.names[rng.choice(labels)] = rng.choice(others)

    def wrong(self, value: float) -> float:
        """Another reading of a bar: a line off more often than far off."""
        if isinstance(value, int) and value < 10:
            off = self.rng.choice([-3, -2, -1, -1, 1, 1, 2, 3])
            return value + off if 1 <= value + off <= 9 else value - off
        off = self.rng.choice([-0.5, -0.2, -0.1, 0.1, 0.2, 0.5, 1.0]) * value
        return value + round(off or 1) if isinstance(value, int) else round(value + off, 2)

    def v(self, label: str) -> float:
        """The value as read, for arithmetic."""
        return self.read[label]

    def say(self, label: str) -> str:
        """The value as read, for a mention."""
        value = self.read[label]
        if self.fault == "slip":
            if self.mentions == self.chosen:
                value = self.wrong(value)
            self.mentions += 1
        return written(value)

    def n(self, label: str) -> str:
        return self.names[label]

    def r(self, value: float, last: bool = True) -> float:
        """The result of a step; a wrong one is carried on."""
        if self.fault == ("step" if last else "intermediate") and self.results == 0:
            self.results = 1
            value = self.wrong(value)
        return value


def written(value: float) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))


Phrasing = Callable[[Teller, str, str, list[str]], tuple[str, str]]
"""Given a teller, the two labels of the question and all labels: the question and the rationale."""
