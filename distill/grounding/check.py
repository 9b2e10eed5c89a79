"""Which numbers and labels of a rationale neither the chart's table nor one step of arithmetic supports.

A number that is said of a label ("blue: 8", "the blue bar reaches 8", "45 in 2015") must stand under that label; one
said of an extreme ("the highest is 9") must be one. Written arithmetic must come out, from numbers that were read.
A result in words ("adding them gives 14", "3 higher") must be what that step gives on what the sentence, the question
or the reading so far names. Any other number is supported by the table, the question or what was derived before.
Limits ("more than 40"), axis marks, enumerations and spelled-out numbers are not judged. A wrong number is reported
where it first appears, not in what is computed from it. Knows English.
"""

import re
import sys
from collections.abc import Sequence
from typing import Final, Literal

from distill.grounding.chart_table import ChartTable
from distill.grounding.derivation import NOTHING_ASKED, Asked, Reckoning
from distill.grounding.findings import GroundingResult, Reason, Unsupported
from distill.grounding.ignored_numbers import axis_words, counts, enumerated, of_others, passed_over
from distill.grounding.labels import lower_case, read_items
from distill.grounding.number_links import follows, joined, of_these, points_ahead, points_back
from distill.grounding.numbers_in_text import EXTREMES, Item, Lead, last_break, lead, plain
from distill.grounding.operations import ANY, COMPARED, announced, announced_for, comparison, holds
from distill.grounding.written_arithmetic import Role, expressions

_CONTEXT: Final = 60
_MOST_IN_A_ROW: Final = 40
"""Labels or numbers of one row that are remembered."""
_MOST_WORDS: Final = 300
"""Characters of a sentence before a number that may announce it."""


def ground(
    text: str, table: ChartTable, question: Asked = NOTHING_ASKED, tolerance: float = 0.0, most: int = sys.maxsize
) -> GroundingResult:
    """What of a rationale is unsupported by its chart's table and its question; `most` of it is written out."""
    text = plain(text)
    items = read_items(text, table, question.words)
    if items is None:
        return GroundingResult(checked=0, complete=False)
    return _RationaleCheck(text, items, table, question, tolerance, most).run()


class _RationaleCheck:
    """One rationale against one table, read from left to right."""

    __slots__ = (
        "axis_words", "chain", "compares", "count", "expressions", "focus", "groups", "items", "lower", "most",
        "paired", "problems", "reckoning", "sentence_start", "speaks_of_extremes", "table", "text",
    )  # fmt: skip

    def __init__(
        self, text: str, items: list[Item], table: ChartTable, question: Asked, tolerance: float, most: int
    ) -> None:
        self.text, self.items, self.table = text, items, table
        self.lower = lower_case(text)
        self.expressions = expressions(text, self.items)
        self.reckoning = Reckoning(table, question, tolerance)
        self.axis_words = axis_words(self.lower)
        self.compares = any(sign in text for sign in COMPARED)
        self.speaks_of_extremes = any(word in self.lower for word in EXTREMES)
        self.most, self.count = most, 0
        self.problems: list[Unsupported] = []
        self.sentence_start = 0
        self.focus: dict[int, Item] = {}
        """The last label of each axis in this sentence or the one before."""
        self.chain: list[Item] = []
        """The labels directly before, in one row ("A and B")."""
        self.paired: dict[int, Item] = {}
        self.groups: dict[tuple[float, ...], list[float]] = {}
        """The values of the labels that operands stand for ("A and B make 8 + 6")."""

    def run(self) -> GroundingResult:
        checked = end = 0
        text, reckoning = self.text, self.reckoning
        for place, item in enumerate(self.items):
            start, after, number = item[:3]
            gap = text[end:start]
            broken = last_break(gap) if start > end + 1 else -1
            if broken >= 0:
                reckoning.sentence = []
                self.sentence_start = end + broken
            if number is None:
                checked += not item.known
                self._label(item, gap, broken >= 0)
            else:
                verdict = self._number(place, item, gap)
                checked += verdict is not None
                if verdict is not False or place in self.expressions:
                    reckoning.said.append(number.value)
                self.chain = []
            end = after
        return GroundingResult(checked=checked, unsupported=tuple(self.problems), count=self.count)

    # --- labels ---------------------------------------------------------------------------------------------------

    def _label(self, item: Item, gap: str, broken: bool) -> None:
        if not item.known:
            self._report(item, "label")
            self.chain = []
            return
        axis = self.table.axis[item.label]
        if axis == 0 and len(self.table.under[item.label]) == 1 and (extreme := lead(gap).extreme):
            # Called the tallest or the shortest, with or without a number.
            most = max(self.table.values) if extreme == "high" else min(self.table.values)
            if most not in self.table.under[item.label]:
                self._report(item, "reading", f"{extreme}est", (most,))
        follows_on = self.chain and self.table.axis[self.chain[-1].label] == axis and not broken and joined(gap)
        self.chain = [*self.chain[-_MOST_IN_A_ROW:], item] if follows_on else [item]
        if broken:
            self.focus = {}
        self.focus[axis] = item
        for value in self.reckoning.of(item.label):
            self.reckoning.sentence.append((item.label, value))

    def _under(self, label: str, after: Item | None) -> tuple[float, ...]:
        """The values under a label and under that of the other axis that is named with it."""
        allowed = self.table.under[label]
        other = after or self.focus.get(1 - self.table.axis[label])
        if len(allowed) > 1 and other is not None and self.table.axis[other.label] != self.table.axis[label]:
            kept = set(self.table.under[other.label])
            return tuple(value for value in allowed if value in kept) or allowed
        return allowed

    # --- one number -----------------------------------------------------------------------------------------------

    def _number(self, place: int, item: Item, gap: str) -> bool | None:
        """True or False for supported or not, None for what is not judged."""
        role = self.expressions.get(place)
        how = lead(gap)
        if role is not None and role.result:
            return self._outcome(item, role, how.hedged)
        if role is None and self.reckoning.counts_up(item, gap, self.lower):
            return None
        tail = comparison(self.lower[item.end : item.end + 32])
        ahead = self._known_label(place + 1)
        label = self._anchor(place, item, gap, how, tail, ahead, operand=role is not None)
        if label is not None:
            return self._reading(place, item, label, how)
        if role is not None:
            return self._operand(item, role)
        if self.compares and (gap[-2:].strip() in COMPARED or self.text[item.end : item.end + 2].strip() in COMPARED):
            if place and not holds(gap.strip(), self.items[place - 1], item):
                return self._report(item, "arithmetic")
            return self._operand(item, _COMPARISON)
        if gap[:1] == ")" and len(self.chain) == 1 and lead(gap[1:]).tie and not tail:
            before = self.items[place - 2] if place > 1 else item
            inside = before.number is not None and self.text[before.end : self.chain[0].start].strip() == "("
            if not inside or enumerated(self.lower, before):
                return self._reading(place, item, self.chain[0], how)  # "bar 2 (red) has height 4"
            how = how._replace(cue="result")  # "plus 4 (red) is 10"
        if how.extreme and len(self.chain) == 1 and gap.lstrip()[:3] in ("is ", "was", "has"):
            return self._reading(place, item, self.chain[0], how)  # "red is the lowest, at 4"
        if passed_over(self.lower, item, self.sentence_start, self.axis_words, self.table):
            return None
        if counts(self.lower, item, self.table):
            return True
        if ahead is not None and points_ahead(self.text[item.end : ahead.start]):
            self.reckoning.sentence += [(ahead.label, one) for one in self.reckoning.of(ahead.label)]
        if tail or how.cue or (len(self.chain) > 1 and how.tie and not _ANOTHER.match(self.lower, item.end)):
            verdict = self._result(item, how, tail)
            if verdict is not None:
                return verdict
        if how.limited:
            return None
        if how.extreme and self.table.lines and not _ANOTHER.match(self.lower, item.end):
            return self._extreme(item, how)
        if self.focus and self._of_focus(item, gap):
            return self._reading(place, item, next(reversed(self.focus.values())), how)
        return self._unattached(item, gap, how)

    def _unattached(self, item: Item, gap: str, how: Lead) -> bool:
        """A number that is said of nothing: it must be known from somewhere."""
        number, value, known = item.number, item.value, self.reckoning
        assert number is not None
        in_row = bool(known.row) and (joined(gap) in (",", "and", "&") or not gap.strip(" /|"))
        known.row = [*known.row[-_MOST_IN_A_ROW:], value] if in_row else [value]
        known.sentence.append(("", value))
        if in_row and not known.fits(value, known.row):
            return self._report(item, "value")
        if known.member(item, how.hedged):
            return True
        if not in_row:
            words = self._words(item)
            if number.integer and known.asked.counting and value <= max(self.table.counts):
                return True
            steps = announced(words) or (ANY if "=" in gap else frozenset())
            if number.percent:
                steps |= {"ratio", "change"}
            if known.steps_near(item, bool(steps), how.hedged) or (
                steps and known.reaches(item, steps, self.chain, known.wants_everything(words), how.hedged)
            ):
                known.derived.append(value)
                return True
        return self._report(item, "value")

    def _words(self, item: Item) -> str:
        return self.lower[max(self.sentence_start, item.start - _MOST_WORDS) : item.end + 40]

    def _anchor(
        self, place: int, item: Item, gap: str, how: Lead, tail: str, after: Item | None, operand: bool
    ) -> Item | None:
        """The label that a number is said of; `after` is the one that follows it."""
        if place in self.paired:
            return self.paired.pop(place)
        if after is not None and self.text[item.end : after.start].strip(" %*") in ("(", "["):
            return None if enumerated(self.lower, item) else after
        in_list = after is not None and gap.strip(" *") in _LISTED and follows(self.text[item.end : after.start])
        if self.chain and how.tie and not tail and not in_list:
            if operand and not (how.tie == "tight" and gap.strip(" *") in ("", "(", "[", "=", "|")):
                return None
            if len(self.chain) == 1:
                return self.chain[0]
            return self.paired.pop(place) if self._pair(place) else None
        if len(self.chain) > 1 and of_these(gap) and self._pair(place):
            return self.paired.pop(place)
        if operand or tail or after is None or len(after.label) == 1:
            return None
        beyond = self.items[place + 2] if place + 2 < len(self.items) else None
        alone = beyond is None or beyond.number is not None or not joined(self.text[after.end : beyond.start])
        return after if alone and not how.cue and follows(self.text[item.end : after.start]) else None

    def _known_label(self, place: int) -> Item | None:
        item = self.items[place] if place < len(self.items) else None
        return item if item is not None and item.number is None and item.known else None

    def _pair(self, place: int) -> bool:
        """Pair the numbers from here on with the labels in the row before them, if there are as many."""
        run = [place]
        while len(run) <= len(self.chain) and run[-1] + 1 < len(self.items):
            one, other = self.items[run[-1]], self.items[run[-1] + 1]
            if other.number is None or joined(self.text[one.end : other.start]) not in ("and", ",", "&"):
                break
            run.append(run[-1] + 1)
        if len(run) != len(self.chain):
            return False
        self.paired.update(zip(run, self.chain, strict=True))
        return True

    def _reading(self, place: int, item: Item, label: Item, how: Lead) -> bool | None:
        """A number said of a label."""
        after = self._known_label(place + 1)
        if after is not None and (after is label or not follows(self.text[item.end : after.start])):
            after = None
        allowed = self._under(label.label, after)
        value, known = item.value, self.reckoning
        if known.among(item, allowed, how.hedged):
            if len(self.table.under[label.label]) == 1:
                known.read.setdefault(label.label, value)
            else:
                known.sentence.append((label.label, value))
            return True
        strict = how.tie == "tight" or label.start > item.start
        if how.limited or (not strict and value in known.asked.numbers and value not in self.table.numerals):
            return None
        if not strict and of_others(self.lower, item.end):
            return None
        # "The total for Norway is 90", "the share of blue: 40 %", "blue becomes 10" after 8 + 2 = 10.
        steps = (
            announced_for(self.lower[max(self.sentence_start, label.start - 40) : label.start])
            if label.start < item.start
            else frozenset()
        )
        if steps and known.reaches(item, steps, self.chain, known.wants_everything(self._words(item)), True):
            known.derived.append(value)
            return True
        if not strict and label.label in known.read and value in known.derived:
            return True
        if len(self.table.under[label.label]) == 1:
            # What follows is computed from the rationale's own reading.
            known.read[label.label] = value
            known.sentence = [(name, value if name == label.label else was) for name, was in known.sentence]
        return self._report(item, "reading", label.label, allowed)

    def _outcome(self, item: Item, role: Role, hedged: bool) -> bool:
        """The result of written arithmetic."""
        if role.outcome:
            if not self.reckoning.among(item, role.outcome, hedged):
                return self._report(item, "arithmetic", expected=role.outcome)
        elif not self.reckoning.member(item, hedged):
            return self._report(item, "value")
        self.reckoning.derived.extend(role.outcome)
        self.reckoning.derive(item.value)
        return True

    def _operand(self, item: Item, role: Role) -> bool:
        """An operand of written arithmetic: read before, given, derived, or what the question asks about."""
        assert item.number is not None
        table, known, value = self.table, self.reckoning, item.number.value
        if value == 100 or (role.scales and (value in _CONSTANTS or value in table.counts)):
            return True
        if role.scales and role.operands[0] in known.derived:
            return True
        if len(self.chain) == len(role.operands) and (
            group := [one for name in self.chain for one in known.of(name.label)]
        ):
            self.groups[role.operands] = group
        if role.operands in self.groups:
            allowed = self.groups[role.operands]
            once = role.operands.count(value) <= max(1, allowed.count(value))
            return (once and known.among(item, allowed, False)) or self._report(item, "reading", expected=allowed)
        if value in known.asked.numbers or counts(self.lower, item, table):
            return True
        if role.summand and len(role.operands) > 2 and not known.fits(value, role.operands):
            return value in known.derived or self._report(item, "value")
        pair = len(role.operands) == 2
        if pair and (known.read or len(known.asked.values) == 2):
            named = known.operands()
            # Two bars that were not spoken of before may be; one of them beside one that was is a slip.
            fresh = all(one in table.numerals and one not in named for one in role.operands)
            supported = fresh or known.among(item, named, False) or known.extreme(item, self.speaks_of_extremes)
        else:
            supported = known.among(item, table.numerals, False)
        return supported or known.earlier(item, False) or self._report(item, "value")

    def _extreme(self, item: Item, how: Lead) -> bool:
        pick = max if how.extreme == "high" else min
        allowed = {pick(line) for line in self.table.lines} | {pick(self.table.values)}
        self.reckoning.sentence.append(("", item.value))
        if self.reckoning.among(item, allowed, how.hedged):
            return True
        return self._report(item, "reading", f"{how.extreme}est", tuple(allowed))

    # --- results in words -----------------------------------------------------------------------------------------

    def _result(self, item: Item, how: Lead, tail: str) -> bool | None:
        """A number that words announce as a result; None where they may mean something else."""
        number, known, value = item.number, self.reckoning, item.value
        assert number is not None
        if number.integer and known.asked.counting and value <= max(self.table.counts):
            return True
        if len(self.chain) > 1 and all(known.close(item, known.of(one.label), how.hedged) for one in self.chain):
            return True  # "both are 5"
        named = tail or ("" if how.cue == "result" else how.cue)
        steps = frozenset([named]) if named else frozenset()
        words = self._words(item)
        if not steps or number.percent:
            steps = steps | announced(words) or known.asked.steps or ANY
        if number.percent:
            steps |= {"ratio", "difference", "change"}
        if known.reaches(item, steps, self.chain, known.wants_everything(words), how.hedged):
            known.derive(value)
            return True
        if value in known.derived or value in known.asked.numbers:
            return True
        if how.limited:
            return None
        if how.cue == "result":
            # "So the answer is 8", where a value is asked for and no step; "which gives 12.5", as read before.
            asked = known.asked
            last = next(reversed(self.focus.values()), None)
            if not named and last is not None and known.read.get(last.label) == value:
                return True
            if len(asked.values) == 1 and known.close(item, asked.values, how.hedged):
                return True
            if not asked.values and not asked.steps and known.member(item, how.hedged):
                return True
        return self._report(item, "result")

    def _of_focus(self, item: Item, gap: str) -> bool:
        """Whether a number without a label is read off the bar that was spoken of last ("its value is 8")."""
        if len(self.focus) > 1 or len(self.chain) > 1:
            return False
        return points_back(gap[max(0, last_break(gap), len(gap) - 60) :])

    def _report(self, item: Item, reason: Reason, label: str = "", expected: Sequence[float] = ()) -> Literal[False]:
        self.count += 1
        if self.count > self.most:
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


_LISTED: Final = (",", ";", "and", ", and", "&")
_CONSTANTS: Final = frozenset([2.0, 1000.0])
"""What arithmetic brings along besides 100: means of two, units."""
_COMPARISON: Final = Role(False, operands=(0.0, 0.0))
_ANOTHER = re.compile(r"\s*(?:and|,|&)\s*\d")
