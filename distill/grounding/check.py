"""Finds numbers and labels of a rationale that have no support: not in the chart's table, and not by one step of
arithmetic.

A number with a label ("blue: 8", "the blue bar reaches 8", "45 in 2015") must be the value of this label in the
table. A number that is called an extreme ("the highest is 9") must be the extreme. Written arithmetic must come out,
from numbers that were read. A result in words ("adding them gives 14", "3 higher") must be what that step gives on
what the sentence, the question or the reading so far names. Any other number is supported by the table, the question
or what was derived before. Limits ("more than 40"), axis marks, enumerations and spelled-out numbers are not judged.
A wrong number is reported where it first appears, not in what is computed from it. Knows English.
"""

import re
import sys
from collections.abc import Sequence
from typing import Final

from distill.grounding.charts.chart_table import ChartTable
from distill.grounding.charts.derivation import MOST_IN_SENTENCE, NO_QUESTION, KnownNumbers, QuestionFacts
from distill.grounding.charts.ignored_numbers import (
    counts_people_or_time,
    find_axis_words,
    is_count,
    is_enumerated,
    is_ignored,
)
from distill.grounding.charts.labels import lower_case, read_items
from distill.grounding.charts.number_labels import NamedLabels
from distill.grounding.charts.number_links import find_joiner, label_follows, points_ahead
from distill.grounding.charts.operations import (
    ANY,
    COMPARED,
    announced_steps,
    comparison_holds,
    read_comparison,
    steps_for_label,
)
from distill.grounding.charts.written_arithmetic import Role, find_roles
from distill.grounding.findings import GroundingResult, Reason, Unsupported
from distill.grounding.numbers_in_text import (
    EXTREMES,
    Item,
    Lead,
    find_last_break,
    other_notations,
    plain_text,
    read_lead,
)

_CONTEXT: Final = 60
_MOST_IN_A_ROW: Final = 40
"""Numbers of one row that are remembered."""
_MOST_WORDS: Final = 300
"""Characters of a sentence before a number that may announce it."""


def check_rationale(
    text: str,
    table: ChartTable,
    question: QuestionFacts = NO_QUESTION,
    tolerance: float = 0.0,
    max_items: int = sys.maxsize,
) -> GroundingResult:
    """What of a rationale its chart's table and question do not support; at most `max_items` items are listed."""
    text = plain_text(text)
    items = read_items(text, table, question.words)
    if items is None:
        return GroundingResult(checked=0, complete=False)
    return RationaleCheck(text, items, table, question, tolerance, max_items).run()


class RationaleCheck:
    """One rationale against one table, read from left to right.

    `distill.ocr.claims` overrides `report`, to ask how sure what OCR read in the image is.
    """

    __slots__ = (
        "_speaks_of_extremes", "axis_words", "compares", "count", "expressions", "groups", "items", "known", "labels",
        "lower", "max_items", "problems", "sentence_start", "supported", "table", "text",
    )  # fmt: skip

    def __init__(
        self,
        text: str,
        items: list[Item],
        table: ChartTable,
        question: QuestionFacts,
        tolerance: float,
        max_items: int,
    ) -> None:
        self.text, self.items, self.table = text, items, table
        self.lower = lower_case(text)
        self.expressions = find_roles(text, self.items)
        self.known = KnownNumbers(table, question, tolerance)
        self.axis_words = find_axis_words(self.lower)
        self.compares = any(map(text.__contains__, COMPARED))
        self._speaks_of_extremes: bool | None = None
        self.max_items, self.count = max_items, 0
        self.problems: list[Unsupported] = []
        self.supported: list[tuple[int, int]] = []
        self.sentence_start = 0
        self.labels = NamedLabels(text, self.lower, items, table)
        self.groups: dict[tuple[float, ...], list[float]] = {}
        """The values of the labels that operands stand for ("A and B make 8 + 6")."""

    def run(self) -> GroundingResult:
        checked = end = 0
        text, known = self.text, self.known
        for index, item in enumerate(self.items):
            start, after, number = item[:3]
            gap = text[end:start]
            broken = find_last_break(gap) if start > end + 1 else -1
            if broken >= 0:
                known.sentence = []
                self.sentence_start = end + broken
            if number is None:
                checked += self._label(item, gap, broken >= 0) is not None
            else:
                verdict = self._number(index, item, gap)
                checked += verdict is not None
                if verdict:
                    self.supported.append((start, after))
                if verdict is not False or start in self.expressions:
                    known.stated.append(number.value)
                self.labels.chain = []
            end = after
        return GroundingResult(
            checked=checked, unsupported=tuple(self.problems), count=self.count, supported=tuple(self.supported)
        )

    # --- labels ---------------------------------------------------------------------------------------------------

    def _label(self, item: Item, gap: str, broken: bool) -> bool | None:
        """The verdict on a strange label; None for one of the table."""
        if not item.in_table:
            self.labels.chain = []
            return self.report(item, "label")
        axis = self.table.axis[item.label]
        if axis == 0 and len(self.table.under[item.label]) == 1 and (extreme := read_lead(gap).extreme):
            # Called the tallest or the shortest, with or without a number.
            extreme_value = max(self.table.values) if extreme == "high" else min(self.table.values)
            if extreme_value not in self.table.under[item.label]:
                self.report(item, "reading", f"{extreme}est", (extreme_value,))
        self.labels.add(item, gap, broken)
        for value in self.known.values_of(item.label):
            self.known.sentence.append((item.label, value))
        return None

    # --- one number -----------------------------------------------------------------------------------------------

    def _number(self, index: int, item: Item, gap: str) -> bool | None:
        """True or False for supported or not, None for what is not judged."""
        if self.in_other_notation(item):
            return None
        role = self.expressions.get(item.start)
        how = read_lead(gap)
        if role is not None and role.result:
            return self._outcome(item, role, how.hedged)
        if role is None and self.known.continues_count(item, gap, self.lower):
            return None
        tail = read_comparison(self.lower, item.end)
        ahead = self.labels.known_label(index + 1)
        label = self.labels.anchor(index, gap, how, tail, ahead, operand=role is not None)
        if label is not None:
            return self._reading(index, item, label, how)
        if role is not None:
            return self._operand(item, role)
        if self.compares and (gap[-2:].strip() in COMPARED or self.text[item.end : item.end + 2].strip() in COMPARED):
            if index and not comparison_holds(gap.strip(), self.items[index - 1], item):
                return self.report(item, "arithmetic")
            return self._operand(item, _COMPARISON)
        if gap[:1] == ")" and len(self.labels.chain) == 1 and read_lead(gap[1:]).tie and not tail:
            before = self.items[index - 2] if index > 1 else item
            inside = before.number is not None and self.text[before.end : self.labels.chain[0].start].strip() == "("
            if not inside or is_enumerated(self.lower, before):
                return self._reading(index, item, self.labels.chain[0], how)  # "bar 2 (red) has height 4"
            how = how._replace(cue="result")  # "plus 4 (red) is 10"
        if how.extreme and len(self.labels.chain) == 1 and gap.lstrip()[:3] in ("is ", "was", "has"):
            return self._reading(index, item, self.labels.chain[0], how)  # "red is the lowest, at 4"
        if is_ignored(self.lower, item, self.sentence_start, self.axis_words, self.table):
            return None
        if is_count(self.lower, item, self.table):
            return True
        if ahead is not None and points_ahead(self.text[item.end : ahead.start]):
            self.known.sentence += [(ahead.label, value) for value in self.known.values_of(ahead.label)]
        if tail or how.cue or (len(self.labels.chain) > 1 and how.tie and not _ANOTHER.match(self.lower, item.end)):
            verdict = self._result(item, how, tail)
            if verdict is not None:
                return verdict
        if how.limited:
            return None
        if how.extreme and self.table.lines and not _ANOTHER.match(self.lower, item.end):
            return self._extreme(item, how)
        if self.labels.focus and self.labels.is_of_focus(gap):
            return self._reading(index, item, next(reversed(self.labels.focus.values())), how)
        return self._unattached(item, gap, how)

    def _unattached(self, item: Item, gap: str, how: Lead) -> bool | None:
        """A number without a label: the table, the question or a derivation must give it."""
        number, value, known = item.number, item.value, self.known
        assert number is not None
        in_row = bool(known.row) and (find_joiner(gap) in (",", "and", "&") or not gap.strip(" /|"))
        known.row = [*known.row[-_MOST_IN_A_ROW:], value] if in_row else [value]
        known.sentence.append(("", value))
        if in_row and not known.fits(value, known.row):
            return self.report(item, "value")
        if known.is_known(item, how.hedged):
            return True
        if not in_row:
            words = self._words(item)
            if number.integer and known.question.counting and value <= max(self.table.counts):
                return True
            steps = announced_steps(words) or (ANY if "=" in gap else frozenset())
            if number.percent:
                steps |= {"ratio", "change"}
            if known.can_reach_nearby(item, bool(steps), how.hedged) or (
                steps and known.can_reach(item, steps, self.labels.chain, known.wants_everything(words), how.hedged)
            ):
                known.derived.append(value)
                return True
        return self.report(item, "value")

    def _words(self, item: Item) -> str:
        return self.lower[max(self.sentence_start, item.start - _MOST_WORDS) : item.end + 40]

    def _reading(self, index: int, item: Item, label: Item, how: Lead) -> bool | None:
        """A number that belongs to a label."""
        after = self.labels.known_label(index + 1)
        if after is not None and (after is label or not label_follows(self.text[item.end : after.start])):
            after = None
        allowed = self.labels.values_under(label.label, after)
        value, known = item.value, self.known
        if known.is_among(item, allowed, how.hedged):
            if len(self.table.under[label.label]) == 1:
                known.readings.setdefault(label.label, value)
            else:
                known.sentence.append((label.label, value))
            return True
        strict = how.tie == "tight" or label.start > item.start
        if how.limited or (not strict and value in known.question.numbers and value not in self.table.numerals):
            return None
        if not strict and counts_people_or_time(self.lower, item.end):
            return None
        # "The total for Norway is 90", "the share of blue: 40 %", "blue becomes 10" after 8 + 2 = 10.
        steps = (
            steps_for_label(self.lower[max(self.sentence_start, label.start - 40) : label.start])
            if label.start < item.start
            else frozenset()
        )
        if steps and known.can_reach(item, steps, self.labels.chain, known.wants_everything(self._words(item)), True):
            known.derived.append(value)
            return True
        if not strict and label.label in known.readings and value in known.derived:
            return True
        if len(self.table.under[label.label]) == 1:
            # What follows is computed from the rationale's own reading.
            known.readings[label.label] = value
            known.sentence = [
                (name, value if name == label.label else earlier)
                for name, earlier in known.sentence[-MOST_IN_SENTENCE:]
            ]
        return self.report(item, "reading", label.label, allowed)

    def _outcome(self, item: Item, role: Role, hedged: bool) -> bool | None:
        """The result of written arithmetic."""
        if role.outcome:
            if not self.known.is_among(item, role.outcome, hedged):
                return self.report(item, "arithmetic", expected=role.outcome)
        elif not self.known.is_known(item, hedged):
            return self.report(item, "value")
        self.known.derived.extend(role.outcome)
        self.known.add_derived(item.value)
        return True

    def _operand(self, item: Item, role: Role) -> bool | None:
        """An operand of written arithmetic: read before, given, derived, or what the question asks about."""
        assert item.number is not None
        table, known, value = self.table, self.known, item.number.value
        if value == 100 or (role.scales and (value in _CONSTANTS or value in table.counts)):
            return True
        if role.scales and role.operands[0] in known.derived:
            return True
        if len(self.labels.chain) == len(role.operands) and (
            group := [number for name in self.labels.chain for number in known.values_of(name.label)]
        ):
            self.groups[role.operands] = group
        if role.operands in self.groups:
            allowed = self.groups[role.operands]
            once = role.operands.count(value) <= max(1, allowed.count(value))
            return (once and known.is_among(item, allowed, False)) or self.report(item, "reading", expected=allowed)
        if value in known.question.numbers or is_count(self.lower, item, table):
            return True
        if role.summand and len(role.operands) > 2 and not known.fits(value, role.operands):
            return value in known.derived or self.report(item, "value")
        pair = len(role.operands) == 2
        if pair and (known.readings or len(known.question.values) == 2):
            operands = known.known_operands()
            # Two bars that were not named before may be operands; one such bar beside a named one is a slip.
            fresh = all(number in table.numerals and number not in operands for number in role.operands)
            supported = (
                fresh or known.is_among(item, operands, False) or (known.is_extreme(item) and self._names_extremes())
            )
        else:
            supported = known.is_among(item, table.numerals, False)
        return supported or known.came_before(item, False) or self.report(item, "value")

    def _names_extremes(self) -> bool:
        """Whether the question or the rationale mentions the highest or lowest; the text is searched once."""
        if self._speaks_of_extremes is None:
            named = not EXTREMES.isdisjoint(self.known.question.words)
            self._speaks_of_extremes = named or any(word in self.lower for word in EXTREMES)
        return self._speaks_of_extremes

    def _extreme(self, item: Item, how: Lead) -> bool | None:
        pick = max if how.extreme == "high" else min
        allowed = {pick(line) for line in self.table.lines} | {pick(self.table.values)}
        self.known.sentence.append(("", item.value))
        if self.known.is_among(item, allowed, how.hedged):
            return True
        return self.report(item, "reading", f"{how.extreme}est", tuple(allowed))

    # --- results in words -----------------------------------------------------------------------------------------

    def _result(self, item: Item, how: Lead, tail: str) -> bool | None:
        """A number that words announce as a result; None if they may mean something else."""
        number, known, value = item.number, self.known, item.value
        assert number is not None
        if number.integer and known.question.counting and value <= max(self.table.counts):
            return True
        if len(self.labels.chain) > 1 and all(
            known.is_close(item, known.values_of(label.label), how.hedged) for label in self.labels.chain
        ):
            return True  # "both are 5"
        announced_step = tail or ("" if how.cue == "result" else how.cue)
        steps = frozenset([announced_step]) if announced_step else frozenset()
        words = self._words(item)
        if not steps or number.percent:
            steps = steps | announced_steps(words) or known.question.steps or ANY
        if number.percent:
            steps |= {"ratio", "difference", "change"}
        if known.can_reach(item, steps, self.labels.chain, known.wants_everything(words), how.hedged):
            known.add_derived(value)
            return True
        if value in known.derived or value in known.question.numbers:
            return True
        if how.limited:
            return None
        if how.cue == "result":
            # "So the answer is 8", where a value is asked for and no step; "which gives 12.5", as read before.
            question = known.question
            last = next(reversed(self.labels.focus.values()), None)
            if not announced_step and last is not None and known.readings.get(last.label) == value:
                return True
            if len(question.values) == 1 and known.is_close(item, question.values, how.hedged):
                return True
            if not question.values and not question.steps and known.is_known(item, how.hedged):
                return True
        return self.report(item, "result")

    def in_other_notation(self, item: Item) -> bool:
        """Whether a number is a part of one of the table's that is written as in other languages."""
        text, start, end = self.text, item.start, item.end
        if not (text[end + 1 : end + 2].isdigit() or (start > 1 and text[start - 2].isdigit())):
            return False
        readings = other_notations(self.text, item.start, item.end)
        return any(reading in self.table.numerals or -reading in self.table.numerals for reading in readings)

    def report(self, item: Item, reason: Reason, label: str = "", expected: Sequence[float] = ()) -> bool | None:
        """The verdict on an item without support: False, and it is counted."""
        self.count += 1
        if self.count > self.max_items:
            return False
        written = self.text[item.start : item.end]
        start, end = max(0, item.start - _CONTEXT // 2), item.end + _CONTEXT // 2
        self.problems.append(
            Unsupported(
                value=f"{label} {'-' * item.negative}{written}".strip(),
                reason=reason,
                expected=tuple(expected)[:4],
                context=" ".join(self.text[start:end].split()),
            )
        )
        return False


_CONSTANTS: Final = frozenset([2.0, 1000.0])
"""Constants of arithmetic besides 100: for means of two, and units."""
_COMPARISON: Final = Role(False, operands=(0.0, 0.0))
_ANOTHER = re.compile(r"\s*(?:and|,|&)\s*\d")
