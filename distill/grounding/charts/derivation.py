"""The numbers that a rationale knows at any point: from its question, read from the chart, or derived.

Decides whether a number follows from them in one step. `distill.grounding.check` finds the label of a number.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from distill.grounding.charts.chart_table import ChartTable, find_table
from distill.grounding.charts.labels import find_labels
from distill.grounding.charts.operations import announced_steps, is_any_close, step_results
from distill.grounding.numbers_in_text import Item, find_last_break, find_numbers, plain_text, read_numbers
from distill.types import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFacts:
    """The numbers, values and words of a question and the text around it."""

    numbers: frozenset[float] = frozenset()
    values: tuple[float, ...] = ()
    """The values of the labels that the question names, in its order, for labels with one value."""
    steps: frozenset[str] = frozenset()
    """The arithmetic that it asks for."""
    words: frozenset[str] = frozenset()
    counting: bool = False
    """Whether it asks how many."""


NO_QUESTION = QuestionFacts()
MOST_IN_SENTENCE: Final = 64
"""Operands of one sentence that are remembered."""
_COUNTING = re.compile(
    r"\bhow (?:many|often)\b(?! (?:units?|points?|percent\w*|times|more|fewer|less|dollars|people|millions?)\b)"
)
_EVERYTHING = re.compile(
    r"\b(?:all|every|each|entire|whole|overall|range|highest|largest|maximum|tallest|column|row)\b"
)


def read_chart(sample: Sample, key: str | None = None) -> tuple[ChartTable, QuestionFacts] | None:
    """The table in a sample's meta (`find_table`) and the facts of its question; None without a table."""
    table = find_table(sample.meta, key) if sample.meta else None
    if table is None:
        return None
    titles = [text for name in ("title", "caption", "subtitle") if isinstance(text := sample.meta.get(name), str)]
    return table, read_question(sample.question, table, " ; ".join([*sample.options, *titles]))


def read_question(question: str, table: ChartTable, around: str = "") -> QuestionFacts:
    """The facts of a question and of the words around it (options, title); called once per sample, not per trace."""
    text, given_numbers, steps, words, counting = _question_parts(question)
    _, more_given, _, more_words, _ = _question_parts(around)
    given_numbers, words = given_numbers | more_given, words | more_words
    items = find_labels(text, text.lower(), table, words, find_numbers(text))
    label_values = [table.under[item.label] for item in items if item.in_table]
    values = tuple(under[0] for under in label_values if len(under) == 1)
    return QuestionFacts(numbers=given_numbers, values=values, steps=steps, words=words, counting=counting)


@lru_cache(maxsize=1 << 10)
def _question_parts(text: str) -> tuple[str, frozenset[float], frozenset[str], frozenset[str], bool]:
    text = plain_text(text)
    lower = text.lower()
    items = read_numbers(text, find_numbers(text))
    readings = frozenset(reading for item in items if item.number for reading, _ in item.number.readings)
    return (
        text,
        readings,
        announced_steps(lower),
        frozenset(re.findall(r"[^\W_]+", lower)),
        bool(_COUNTING.search(lower)),
    )


class OrderedNumbers:
    """Numbers in order of appearance, with membership in constant time."""

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


class KnownNumbers:
    """The known numbers, extended as a rationale is read from left to right."""

    __slots__ = ("derived", "question", "readings", "row", "sentence", "stated", "table", "tolerance")

    def __init__(self, table: ChartTable, question: QuestionFacts, tolerance: float) -> None:
        self.table, self.question, self.tolerance = table, question, tolerance
        self.readings: dict[str, float] = {}
        """Values as the rationale reads them, by label."""
        self.stated = OrderedNumbers()
        """Every supported number so far."""
        self.derived = OrderedNumbers()
        self.row: list[float] = []
        """Numbers without labels in a row ("8, 6, 3 and 9")."""
        self.sentence: list[tuple[str, float]] = []
        """(label or nothing, value) of each operand that this sentence names."""

    def values_of(self, label: str) -> tuple[float, ...]:
        """The value of a label with a single value: as the rationale read it, else from the table."""
        if label in self.readings:
            return (self.readings[label],)
        values = self.table.under[label]
        return values if len(values) == 1 else ()

    def is_close(self, item: Item, values: Iterable[float], hedged: bool) -> bool:
        return is_any_close(item, values, self.tolerance, hedged)

    def is_among(self, item: Item, values: Collection[float], hedged: bool) -> bool:
        """Whether a number is one of a few values; most are written as they are."""
        return item.value in values or is_any_close(item, values, self.tolerance, hedged)

    def add_derived(self, value: float) -> None:
        self.derived.append(value)
        self.sentence = [("", value)]

    def is_known(self, item: Item, hedged: bool) -> bool:
        """A value of the table, or a number that the question gave or that came before."""
        if item.value in self.table.numerals or self.came_before(item, hedged):
            return True
        return self.is_close(item, self.table.numerals, hedged)

    def came_before(self, item: Item, hedged: bool) -> bool:
        """Whether the question gave a number, or the rationale stated or derived it before."""
        value = item.value
        if value in self.question.numbers or value in self.derived or value in self.stated:
            return True
        if not self.derived and not self.question.numbers:
            return False
        return self.is_close(item, (*self.derived.last(8), *self.question.numbers), hedged)

    def known_operands(self) -> list[float]:
        """The operands of arithmetic without labels, after bars were read."""
        return [
            *self.readings.values(),
            *(value for _, value in self.sentence[-MOST_IN_SENTENCE:]),
            *self.question.values,
        ]

    def is_extreme(self, item: Item) -> bool:
        """Whether it is the highest or lowest value."""
        return self.is_close(item, (max(self.table.values), min(self.table.values)), False)

    def fits(self, value: float, row: Sequence[float]) -> bool:
        """Whether a row of values uses one no more often than the table holds it."""
        held = self.table.values.count(value)
        return not held or row.count(value) <= held

    def continues_count(self, item: Item, gap: str, text: str) -> bool:
        """Whether a number is one of 1, 2, 3 and so on: gridlines that are counted up to a value."""
        value = item.value
        if value == 1 and text.startswith(", 2", item.end):
            self.row = [1.0]
            return True
        if not self.row or value != self.row[-1] + 1 or "," not in gap or find_last_break(gap) >= 0:
            return False
        if self.row != [1.0] and (len(self.row) < 2 or self.row[-2] != self.row[-1] - 1):
            return False
        self.row.append(value)
        return True

    def can_reach(
        self, item: Item, steps: frozenset[str], chain: Sequence[Item], everything: bool, hedged: bool
    ) -> bool:
        """Whether one of the steps gives a number, on any operands that the words can mean."""
        for operands in self._operand_lists(chain, everything):
            if len(operands) > 1:
                if self.is_close(item, step_results(steps, operands), hedged):
                    return True
            elif "mean" in steps and self.is_close(item, [operands[0] / n for n in self.table.counts if n], hedged):
                return True
        return False

    def _operand_lists(self, chain: Sequence[Item], everything: bool) -> Iterable[Sequence[float]]:
        if len(chain) > 1:
            yield [value for label in chain for value in self.values_of(label.label)]
            return
        sentence_operands = self._named()
        readings = list(self.readings.values())
        question_values = self.question.values
        if len(sentence_operands) > 1:
            yield sentence_operands
            if len(sentence_operands) > 2:
                yield sentence_operands[-2:]
        if self.derived:
            (last,) = self.derived.last(1)
            if sentence_operands:
                yield [last, sentence_operands[-1]]
            yield from (self.derived.last(2), [last])
            if readings:
                yield [last, readings[-1]]
            if len(question_values) == 1:
                yield [last, *question_values]
        if len(question_values) > 1:
            yield question_values
        if len(readings) > 1:
            yield readings
            if len(readings) == 3:
                yield readings[-2:]
        elif len(self.stated) > 1:
            yield self.stated.last(2)
        if len(self.stated) > 2 and not readings:
            yield self.stated.last(24)
        if everything:
            yield from (*self.table.lines, self.table.values)

    def _named(self) -> list[float]:
        """The operands of this sentence; a label and its number count once."""
        operands: dict[str, float] = {}
        for index, (label, value) in enumerate(self.sentence[-24:]):
            operands[label or str(index)] = self.readings.get(label, value) if label else value
        return list(operands.values())

    def wants_everything(self, sentence: str) -> bool:
        """Whether a step may be on whole rows, columns or the table: not where the question names the bars."""
        return len(self.question.values) < 2 or _EVERYTHING.search(sentence) is not None

    def can_reach_nearby(self, item: Item, speaks: bool, hedged: bool) -> bool:
        """Whether one step on nearby numbers gives a number that no word announces."""
        near: set[float] = {
            *(value for _, value in self.sentence[-4:-1]),
            *self.derived.last(2),
            *self.stated.last(2),
        }
        given_numbers = [value for value in self.question.numbers if value < 1e4][:4]
        second_operands = {*near, *given_numbers} if speaks else given_numbers
        if item.number is not None and item.number.percent:
            near.add(100.0)
        reached = [
            value
            for second in second_operands
            for first in near
            for value in (first + second, first - second, first * second, first / second if second else 0.0)
        ]
        return self.is_close(item, reached, hedged)
