"""What a rationale has to work with at any point: what its question gives, what it read and what it derived.

Says whether a number follows from that in one step. What a number is said of is `distill.grounding.check`'s question.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from distill.grounding.chart_table import ChartTable
from distill.grounding.labels import labels
from distill.grounding.numbers_in_text import EXTREMES, Item, last_break, numbers, plain, written_numbers
from distill.grounding.operations import announced, any_close, results


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a question and the words around it give a rationale to work with."""

    numbers: frozenset[float] = frozenset()
    values: tuple[float, ...] = ()
    """Of the labels that the question names, in its order, where a label has one value."""
    steps: frozenset[str] = frozenset()
    """The arithmetic that it asks for."""
    words: frozenset[str] = frozenset()
    counting: bool = False
    """Whether it asks how many."""


NOTHING_ASKED = Asked()
_NEAR: Final = 64
"""Operands of one sentence that are remembered."""
_COUNTING = re.compile(
    r"\bhow (?:many|often)\b(?! (?:units?|points?|percent\w*|times|more|fewer|less|dollars|people|millions?)\b)"
)
_EVERYTHING = re.compile(
    r"\b(?:all|every|each|entire|whole|overall|range|highest|largest|maximum|tallest|column|row)\b"
)


def asked(question: str, table: ChartTable, around: str = "") -> Asked:
    """What a question and the words around it (options, title) give; once a sample, not once a trace."""
    text, given, steps, words, counting = _question(question)
    _, more_given, _, more_words, _ = _question(around)
    given, words = given | more_given, words | more_words
    found = labels(text, text.lower(), table, words, written_numbers(text))
    named = [table.under[item.label] for item in found if item.known]
    values = tuple(under[0] for under in named if len(under) == 1)
    return Asked(numbers=given, values=values, steps=steps, words=words, counting=counting)


@lru_cache(maxsize=1 << 10)
def _question(text: str) -> tuple[str, frozenset[float], frozenset[str], frozenset[str], bool]:
    text = plain(text)
    lower = text.lower()
    items = numbers(text, written_numbers(text))
    found = frozenset(reading for item in items if item.number for reading, _ in item.number.readings)
    return text, found, announced(lower), frozenset(re.findall(r"[^\W_]+", lower)), bool(_COUNTING.search(lower))


class Values:
    """Numbers in the order in which they came; whether one came is known at once."""

    __slots__ = ("_known", "_order")

    def __init__(self) -> None:
        self._order: list[float] = []
        self._known: set[float] = set()

    def append(self, value: float) -> None:
        self._order.append(value)
        self._known.add(value)

    def extend(self, values: Iterable[float]) -> None:
        for value in values:
            self.append(value)

    def last(self, count: int) -> list[float]:
        return self._order[-count:]

    def __contains__(self, value: float) -> bool:
        return value in self._known

    def __len__(self) -> int:
        return len(self._order)


class Reckoning:
    """Grows as a rationale is read from left to right."""

    __slots__ = ("asked", "derived", "read", "row", "said", "sentence", "table", "tolerance")

    def __init__(self, table: ChartTable, question: Asked, tolerance: float) -> None:
        self.table, self.asked, self.tolerance = table, question, tolerance
        self.read: dict[str, float] = {}
        """Values as the rationale reads them, by label."""
        self.said = Values()
        """Every number so far that stood for itself."""
        self.derived = Values()
        self.row: list[float] = []
        """Numbers without labels in a row ("8, 6, 3 and 9")."""
        self.sentence: list[tuple[str, float]] = []
        """(label or nothing, value) of each operand that this sentence names."""

    def of(self, label: str) -> tuple[float, ...]:
        """The one value of a label, where it has one: as it was read, or as the table has it."""
        if label in self.read:
            return (self.read[label],)
        values = self.table.under[label]
        return values if len(values) == 1 else ()

    def close(self, item: Item, values: Iterable[float], hedged: bool) -> bool:
        return any_close(item, values, self.tolerance, hedged)

    def among(self, item: Item, values: Collection[float], hedged: bool) -> bool:
        """Whether a number is one of a few values; most are written as they are."""
        return item.value in values or any_close(item, values, self.tolerance, hedged)

    def derive(self, value: float) -> None:
        self.derived.append(value)
        self.sentence = [("", value)]

    def member(self, item: Item, hedged: bool) -> bool:
        """A value of the table, or a number that the question gave or that came before."""
        if item.value in self.table.numerals or self.earlier(item, hedged):
            return True
        return self.close(item, self.table.numerals, hedged)

    def earlier(self, item: Item, hedged: bool) -> bool:
        """Given by the question, or said or derived before."""
        value = item.value
        if value in self.asked.numbers or value in self.derived or value in self.said:
            return True
        if not self.derived and not self.asked.numbers:
            return False
        return self.close(item, (*self.derived.last(8), *self.asked.numbers), hedged)

    def operands(self) -> list[float]:
        """What arithmetic without labels may work with, once bars were read."""
        return [*self.read.values(), *(value for _, value in self.sentence[-_NEAR:]), *self.asked.values]

    def extreme(self, item: Item, spoken_of: bool) -> bool:
        """The highest or lowest value, where the question or the rationale speaks of it."""
        if not self.close(item, (max(self.table.values), min(self.table.values)), False):
            return False
        return spoken_of or not EXTREMES.isdisjoint(self.asked.words)

    def fits(self, value: float, row: Sequence[float]) -> bool:
        """Whether a row of values uses one no more often than the table holds it."""
        held = self.table.values.count(value)
        return not held or row.count(value) <= held

    def counts_up(self, item: Item, gap: str, text: str) -> bool:
        """Whether a number is one of 1, 2, 3 and so on: gridlines that are counted up to a value."""
        value = item.value
        if value == 1 and text.startswith(", 2", item.end):
            self.row = [1.0]
            return True
        if not self.row or value != self.row[-1] + 1 or "," not in gap or last_break(gap) >= 0:
            return False
        if self.row != [1.0] and (len(self.row) < 2 or self.row[-2] != self.row[-1] - 1):
            return False
        self.row.append(value)
        return True

    def reaches(
        self, item: Item, steps: frozenset[str], chain: Sequence[Item], everything: bool, hedged: bool
    ) -> bool:
        """Whether one of the steps gives a number, on any operands that the words can mean."""
        for operands in self._operand_lists(chain, everything):
            if len(operands) > 1:
                if self.close(item, results(steps, operands), hedged):
                    return True
            elif "mean" in steps and self.close(item, [operands[0] / n for n in self.table.counts if n], hedged):
                return True
        return False

    def _operand_lists(self, chain: Sequence[Item], everything: bool) -> Iterable[Sequence[float]]:
        if len(chain) > 1:
            yield [value for one in chain for value in self.of(one.label)]
            return
        named = self._named()
        readings = list(self.read.values())
        given = self.asked.values
        if len(named) > 1:
            yield named
            if len(named) > 2:
                yield named[-2:]
        if self.derived:
            (last,) = self.derived.last(1)
            if named:
                yield [last, named[-1]]
            yield from (self.derived.last(2), [last])
            if readings:
                yield [last, readings[-1]]
            if len(given) == 1:
                yield [last, *given]
        if len(given) > 1:
            yield given
        if len(readings) > 1:
            yield readings
            if len(readings) == 3:
                yield readings[-2:]
        elif len(self.said) > 1:
            yield self.said.last(2)
        if len(self.said) > 2 and not readings:
            yield self.said.last(24)
        if everything:
            yield from (*self.table.lines, self.table.values)

    def _named(self) -> list[float]:
        """The operands of this sentence; a label and the number said of it are one."""
        found: dict[str, float] = {}
        for place, (label, value) in enumerate(self.sentence[-24:]):
            found[label or str(place)] = self.read.get(label, value) if label else value
        return list(found.values())

    def wants_everything(self, sentence: str) -> bool:
        """Whether a step may be on whole rows, columns or the table: not where the question names the bars."""
        return len(self.asked.values) < 2 or _EVERYTHING.search(sentence) is not None

    def steps_near(self, item: Item, speaks: bool, hedged: bool) -> bool:
        """Whether one step on what is near gives a number that nothing announces."""
        near: set[float] = {*(value for _, value in self.sentence[-4:-1]), *self.derived.last(2), *self.said.last(2)}
        given = [value for value in self.asked.numbers if value < 1e4][:4]
        others = {*near, *given} if speaks else given
        if item.number is not None and item.number.percent:
            near.add(100.0)
        reached = [
            value
            for other in others
            for one in near
            for value in (one + other, one - other, one * other, one / other if other else 0.0)
        ]
        return self.close(item, reached, hedged)
