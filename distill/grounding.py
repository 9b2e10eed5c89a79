"""Which numbers and labels of a rationale neither the chart's table nor one step of arithmetic supports.

A number that is said of a label ("blue: 8", "the blue bar reaches 8", "45 in 2015") must stand under that label; one
said of an extreme ("the highest is 9") must be one. Stated arithmetic must come out, from supported numbers. Any
other number is supported by the table, the question, an enumeration ("Row 1", "4 bars"), by what was derived before,
or by one step that the words announce ("the difference is 3"). Limits ("more than 40"), axis marks and spelled-out
numbers are not judged. Knows English; a rationale in another language is judged by its signs and labels alone.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final, Literal

from distill.charts import COLOURS, DAYS, MONTHS, QUARTERS, Table
from distill.statements import (
    Item,
    Lead,
    breaks,
    evaluate,
    follows,
    joined,
    lead,
    numbers,
    operator,
    plain,
)
from distill.statements import Literal as Number

Reason = Literal["reading", "label", "value", "arithmetic", "derived"]
"""reading: the table says otherwise for this label or extreme. label: the table has no such label. value: from
nowhere. arithmetic: does not come out. derived: comes out, but from a number that is unsupported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    value: str
    """The number as written, with its label where it is said of one."""
    reason: Reason
    expected: tuple[float, ...] = ()
    """What the table says instead, where it says anything."""
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounding:
    stated: int
    """Numbers and unknown labels that were judged."""
    unsupported: tuple[Unsupported, ...] = ()


HEDGED_TOLERANCE: Final = 0.05
"""Relative distance allowed to a number given as "about"."""
_ROUNDING_LIMIT: Final = 0.1
_CONTEXT: Final = 60


def stated_numbers(text: str) -> frozenset[float]:
    """Every number in a text, in each of its readings: what a question or an option gives."""
    return frozenset(reading for item in numbers(plain(text)) if item.number for reading, _ in item.number.readings)


def ground(text: str, table: Table, given: Collection[float] = (), tolerance: float = 0.0) -> Grounding:
    """What a rationale states and what of it is unsupported. `given` are the numbers of question and options."""
    return _Check(plain(text), table, given, tolerance).run()


class _Check:
    """One rationale against one table, read from left to right."""

    __slots__ = (
        "chains", "derived", "given", "items", "lower", "numbers", "problems", "roles", "supported", "table", "text",
        "tolerance",
    )  # fmt: skip

    def __init__(self, text: str, table: Table, given: Collection[float], tolerance: float) -> None:
        self.text = text
        self.lower = text.lower() if len(text.lower()) == len(text) else text
        self.table = table
        self.given = given
        self.tolerance = tolerance
        anchors = _anchors(text, self.lower, table)
        spans = [(anchor.start, anchor.end) for anchor in anchors]
        found = [item for item in numbers(text) if not _inside(item.start, spans)]
        self.items = sorted([*anchors, *found]) if anchors else found
        self.problems: list[Unsupported] = []
        self.derived: set[float] = set()
        self.supported: dict[int, bool] = {}
        """By the start of a number: whether it is supported."""
        self.roles: dict[int, _Role] = {}

    def run(self) -> Grounding:
        items, text = self.items, self.text
        self.roles = self._expressions([item for item in items if item.number])
        self.chains = self._chains()
        stated = 0
        for place, item in enumerate(items):
            if item.number is None:
                if not item.known and self._claims(place):
                    stated += 1
                    self._report(item, "label")
                continue
            before = items[place - 1] if place else None
            gap = text[before.end if before else max(0, item.start - 80) : item.start]
            how = lead(gap[-100:])
            verdict = self._judge(place, item, before, gap, how)
            if verdict is not None:
                stated += 1
            self.supported[item.start] = verdict is not False
        return Grounding(stated=stated, unsupported=tuple(self.problems))

    # --- structure ------------------------------------------------------------------------------------------------

    def _expressions(self, found: list[Item]) -> dict[int, "_Role"]:
        """The part each number plays in stated arithmetic."""
        roles: dict[int, _Role] = {}
        run: list[Item] = []
        signs: list[str] = []
        for item in found:
            gap = self.text[run[-1].end : item.start] if run else ""
            sign = (
                operator(gap.rstrip("$€£").removesuffix("-") if item.negative else gap) if 0 < len(gap) <= 80 else ""
            )
            if sign:
                signs.append(sign)
            else:
                _roles(run, signs, roles)
                run, signs = [], []
            run.append(item)
        _roles(run, signs, roles)
        return roles

    def _chains(self) -> list[list[int]]:
        """For each item, the labels that stand in one row with it and end with it ("A and B")."""
        chains: list[list[int]] = []
        for place, item in enumerate(self.items):
            chain = [place]
            if place and item.number is None:
                before = self.items[place - 1]
                if (
                    before.number is None
                    and self._axis(before) == self._axis(item)
                    and joined(self.text[before.end : item.start])
                ):
                    chain = [*chains[-1], place]
            chains.append(chain)
        return chains

    def _axis(self, anchor: Item) -> int:
        return self.table.axis.get(anchor.label, 0)

    def _claims(self, place: int) -> bool:
        """Whether an unknown label is used as one: a number is said of it, or it is called a bar."""
        item = self.items[place]
        if _IS_PART.match(self.lower, item.end):
            return True
        if place + 1 < len(self.items):
            after = self.items[place + 1]
            gap = self.text[item.end : after.start]
            return after.number is not None and not breaks(gap) and lead(gap).tie in ("tight", "verbal")
        return False

    # --- one number -----------------------------------------------------------------------------------------------

    def _judge(self, place: int, item: Item, before: Item | None, gap: str, how: Lead) -> bool | None:
        """True or False for supported or not, None for what is not judged."""
        number = item.number
        assert number is not None
        role = self.roles.get(item.start)
        if role is not None and role.result:
            return self._result(item, role, how)
        allowed, label, tight = self._allowed(place, item, before, how, operand=role is not None)
        if allowed is not None:
            if self._any(item, allowed, how.hedged):
                return True
            if how.limited:
                return None
            if not tight and (self._compares(item) or self._announced(place, item, how)):
                return True
            if tight and self._compares(item):
                return self._announced(place, item, how) or None
            self._report(item, "reading", label, allowed)
            return False
        if self._member(item, how.hedged):
            return True
        if how.limited or (role is None and self._unjudged(place, item, before, gap)):
            return None
        if role is not None:
            if role.constant(number) or self._counts(item):
                return True
        elif self._counts(item) or self._announced(place, item, how):
            return True
        self._report(item, "value")
        return False

    def _result(self, item: Item, role: "_Role", how: Lead) -> bool:
        """The result of stated arithmetic."""
        outcome = role.outcome()
        if outcome is None:
            if self._member(item, how.hedged):
                return True
            self._report(item, "value")
            return False
        if not any(self._close(item, value, True if how.hedged else role.inexact) for value in outcome):
            self._report(item, "arithmetic", expected=outcome)
            return False
        if all(self.supported.get(start, True) for start in role.sources):
            self.derived.update(reading for reading, _ in item.number.readings)  # type: ignore[union-attr]
            self.derived.update(outcome)
            return True
        if self._member(item, how.hedged):
            return True
        self._report(item, "derived")
        return False

    def _allowed(
        self, place: int, item: Item, before: Item | None, how: Lead, *, operand: bool
    ) -> tuple[tuple[float, ...] | None, str, bool]:
        """The values that the words around a number leave it, the label they name, and whether they name it tightly.

        No values (None) where the number is not said of a label or an extreme.
        """
        table = self.table
        allowed: tuple[float, ...] | None = None
        label, tight = "", False
        anchor = before if before is not None and before.number is None and before.known else None
        if anchor is not None and how.tie:
            chain = self.chains[place - 1]
            tight = how.tie == "tight"
            if (len(anchor.label) == 1 and not tight) or (
                operand and not (tight and self.text[anchor.end : item.start].strip() in ("", "(", "["))
            ):
                anchor = None
            elif len(chain) > 1:
                anchor = self._paired(place, chain)
            if anchor is not None:
                label, allowed = anchor.label, table.under[anchor.label]
                if place > 1 and self.items[place - 2].number is None and anchor is before:
                    allowed = self._crossed(allowed, anchor, self.items[place - 2], place - 1)
        elif how.extreme and not operand and table.lines and not _ANOTHER.match(self.lower, item.end):
            pick = max if how.extreme == "high" else min
            return tuple({pick(line) for line in table.lines} | {pick(table.values)}), f"{how.extreme}est", False
        if place + 1 < len(self.items):
            after = self.items[place + 1]
            if after.number is None and after.known and len(after.label) > 1:
                between = self.text[item.end : after.start]
                bracket = between.strip() == "("
                alone = place + 2 >= len(self.items) or len(self.chains[place + 2]) == 1
                if follows(between) and (bracket or not operand) and alone:
                    if allowed is None:
                        # "the total of 45 for Apple" is no reading.
                        if bracket or not _AGGREGATE.search(self.lower, max(0, item.start - 40), item.start):
                            return table.under[after.label], after.label, bracket
                    elif table.axis[after.label] != table.axis[label]:
                        allowed = self._both(allowed, table.under[after.label])
        return allowed, label, tight

    def _paired(self, place: int, chain: list[int]) -> Item | None:
        """The label of a number in "A and B are 8 and 6"; None unless there are as many numbers as labels."""
        run = 1
        while place + run < len(self.items) and run <= len(chain):
            gap = self.text[self.items[place + run - 1].end : self.items[place + run].start]
            if self.items[place + run].number is None or not joined(gap) or joined(gap) not in ("and", ",", "&"):
                break
            run += 1
        if run != len(chain) or any(not self.items[one].known for one in chain):
            return None
        return self.items[chain[0]]

    def _crossed(self, allowed: tuple[float, ...], anchor: Item, other: Item, place: int) -> tuple[float, ...]:
        """The values under two labels, one of a row and one of a column, where both are named together."""
        if not other.known or self._axis(other) == self._axis(anchor):
            return allowed
        if breaks(self.text[other.end : anchor.start]) or len(self.chains[place - 1]) > 1:
            return allowed
        return self._both(allowed, self.table.under[other.label])

    @staticmethod
    def _both(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
        kept = set(other)
        return tuple(value for value in one if value in kept) or one

    # --- support --------------------------------------------------------------------------------------------------

    def _close(self, item: Item, value: float, hedged: bool) -> bool:
        """Whether a number as written can stand for a value: its rounding, its scale, its percent sign."""
        number = item.number
        assert number is not None
        slack = max(self.tolerance, HEDGED_TOLERANCE if hedged else 0.0) * abs(value) + 1e-9
        for reading, half in number.readings:
            stated = -reading if item.negative else reading
            if _near(stated, value, half, slack) or (
                value < 0 and not item.negative and _near(reading, -value, half, slack)
            ):
                return True
            if number.percent and _near(stated / 100, value, half / 100, slack):
                return True
            if (
                not number.percent
                and 0 < reading < 1
                and half < 0.1
                and _near(stated * 100, value, half * 100, slack)
            ):
                return True
        return False

    def _any(self, item: Item, values: Iterable[float], hedged: bool) -> bool:
        return any(self._close(item, value, hedged) for value in values)

    def _member(self, item: Item, hedged: bool) -> bool:
        number = item.number
        assert number is not None
        known = self.table.numerals
        if not item.negative and (
            number.value in known or number.value in self.given or number.value in self.derived
        ):
            return True
        return self._any(item, known, hedged) or self._any(item, (*self.given, *self.derived), hedged)

    def _unjudged(self, place: int, item: Item, before: Item | None, gap: str) -> bool:
        """Enumerations, axis marks, list numbers, ranges and years that a table without years says nothing of."""
        number = item.number
        assert number is not None
        if number.integer and _ENUMERATED.search(self.lower, max(0, item.start - 24), item.start):
            return True
        line = self.lower.rfind("\n", 0, item.start) + 1
        if not self.text[line : item.start].strip(" *#-(") and self.text[item.end : item.end + 1] in (".", ")", ":"):
            return True
        if (
            number.integer
            and not self.table.years
            and 1500 <= number.value < 2100
            and "," not in self.text[item.start : item.end]
        ):
            return True
        if number.percent and number.value == 100:
            return True
        sentence = self.lower[self._sentence(item.start) : item.end + 40]
        if _AXIS.search(sentence):
            return True
        if before is not None and before.number is not None and not self.supported.get(before.start, True):
            return False
        return (
            "between" in sentence[:-40]
            or bool(_RANGE.match(self.lower, item.end))
            or _RANGE_END.search(gap) is not None
        )

    def _counts(self, item: Item) -> bool:
        """Whether a small number counts bars, rows, values or labels, or is how often something was done."""
        number = item.number
        assert number is not None
        if not number.integer or item.negative or number.value > max(12, *self.table.counts):
            return False
        after = _NEXT_WORD.match(self.lower, item.end)
        if _COUNTED_BEFORE.search(self.lower, max(0, item.start - 24), item.start):
            return True
        if after is None:
            return False
        word = after[1]
        if word in _COUNTED:
            return True
        # "6 countries": a plural that is no unit of measure.
        return number.value in self.table.counts and word.endswith("s") and word not in _MEASURES

    def _compares(self, item: Item) -> bool:
        """Whether a number is a distance or a factor, not a value: "5 more", "2 times"."""
        return _COMPARATIVE.match(self.lower, item.end) is not None

    def _sentence(self, place: int) -> int:
        start = max(self.lower.rfind(mark, 0, place) for mark in (". ", "\n", "! ", "? ", "; "))
        return start + 1

    def _announced(self, place: int, item: Item, how: Lead) -> bool:
        """Whether the words around a number announce one step of arithmetic that gives it."""
        start = self._sentence(item.start)
        window = self.lower[start : item.end + 60]
        steps = _steps(window)
        if not steps:
            return False
        percent = item.number is not None and item.number.percent
        operands = self._operands(start, place)
        named = sum(self.items[one].number is None for one in range(place) if self.items[one].start >= start)
        if (
            len(operands) > 1
            and (named > 1 or "conclude" not in steps)
            and self._reached(item, operands, steps, how.hedged)
        ):
            self._derive(item)
            return True
        if named == 2 and len(operands) == 2 and not percent and "conclude" not in steps:
            return False
        pool = self._pool(place)
        if self._reached(item, pool, steps, how.hedged):
            self._derive(item)
            return True
        return False

    def _derive(self, item: Item) -> None:
        assert item.number is not None
        self.derived.update(reading for reading, _ in item.number.readings[:1])

    def _operands(self, start: int, place: int) -> list[float]:
        """The values named in this sentence before a number: of labels with one value, and numbers themselves."""
        found: list[float] = []
        previous: Item | None = None
        for other in self.items[:place]:
            if other.start >= start:
                if other.number is not None:
                    # "blue (8)" names one value, not two.
                    if not (
                        previous is not None
                        and previous.number is None
                        and found
                        and self._close(other, found[-1], True)
                    ):
                        found.append(other.number.value)
                elif other.known and len(self.table.under[other.label]) == 1:
                    found += self.table.under[other.label]
                elif other.known and previous is not None and previous.number is None and previous.known:
                    both = self._both(self.table.under[other.label], self.table.under[previous.label])
                    if len(both) == 1:
                        found += both
            previous = other
        return found

    def _pool(self, place: int) -> list[float]:
        """What a step may start from: all values of a small table or those named so far, totals, what was derived."""
        table = self.table
        pool = set(self.derived) | set(self.given)
        for other in self.items[:place]:
            if other.number is not None:
                if self.supported.get(other.start):
                    pool.add(other.number.value)
            elif other.known:
                pool.update(table.under[other.label])
                if other.label.isdigit():
                    pool.add(float(other.label))
        if len(table.values) <= 24:
            pool.update(table.values)
        for line in (*table.lines, table.values):
            pool |= {max(line), min(line), sum(line)}
        return sorted(pool)[:200]

    def _reached(self, item: Item, pool: Sequence[float], steps: frozenset[str], hedged: bool) -> bool:
        number = item.number
        assert number is not None
        every = "conclude" in steps
        values: list[float] = []
        lines = [line for line in (*self.table.lines, self.table.values, tuple(pool)) if len(line) > 1]
        if every or "sum" in steps:
            values += [sum(line) for line in lines]
            values += [one + other for one, other in combinations(pool, 2)]
        if every or "mean" in steps:
            values += [sum(line) / len(line) for line in lines]
            values += [one / count for one in pool for count in self.table.counts if count]
            values += [sorted(line)[len(line) // 2] for line in lines]
            values += [(one + other) / 2 for one, other in combinations(pool, 2)]
        if every or "difference" in steps:
            values += [abs(one - other) for one, other in combinations(pool, 2)]
        if every or "ratio" in steps or number.percent:
            values += [one / other for one in pool for other in pool if other and one is not other]
        if "product" in steps:
            values += [one * other for one, other in combinations(pool, 2)]
            values += [one * factor for one in pool for factor in (2, 3, 4, 0.5, 10, 100)]
        if number.percent:
            values += [(one - other) / other for one in pool for other in pool if other]
            values += [100 - one for one in pool]
        return self._any(item, values, hedged)

    def _report(self, item: Item, reason: Reason, label: str = "", expected: Sequence[float] = ()) -> None:
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


def _near(stated: float, value: float, half: float, slack: float) -> bool:
    distance = abs(stated - value)
    return distance <= slack or (distance <= half * 1.0001 and distance <= _ROUNDING_LIMIT * abs(value))


# --- labels ---------------------------------------------------------------------------------------------------------

_CLASS_WORDS: Final = {
    kind: re.compile(rf"\b(?:{'|'.join(sorted(kind, key=len, reverse=True))})\b")
    for kind in (COLOURS, MONTHS, DAYS, QUARTERS)
}
_IS_PART = re.compile(r" (?:bar|column|slice|segment|wedge|sector|line)s?\b")
_THE_BAR = re.compile(r"\bthe ((?:[a-z][\w'&.-]* ){1,3})(?:bar|column|slice|segment|wedge|sector|category|portion)\b")
_ENTRY = re.compile(
    r"(?:^|[\n,;(])[ \t]*(?:[-*•]|\d+[.)])?[ \t]*\**([A-Z][A-Za-z&'.-]*(?: [A-Za-z&'.-]+){0,3}?)\**[ \t]*[:=][ \t]*\**[$€£]?-?\d"
)
_GENERIC: Final = frozenset(
    [
        "highest",
        "lowest",
        "largest",
        "smallest",
        "biggest",
        "tallest",
        "shortest",
        "greatest",
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "last",
        "next",
        "previous",
        "other",
        "another",
        "same",
        "different",
        "left",
        "right",
        "leftmost",
        "rightmost",
        "middle",
        "top",
        "bottom",
        "final",
        "total",
        "sum",
        "average",
        "mean",
        "median",
        "difference",
        "ratio",
        "result",
        "answer",
        "maximum",
        "minimum",
        "max",
        "min",
        "value",
        "values",
        "count",
        "number",
        "percentage",
        "percent",
        "share",
        "share",
        "remaining",
        "rest",
        "whole",
        "entire",
        "each",
        "every",
        "both",
        "all",
        "only",
        "one",
        "two",
        "three",
        "four",
        "single",
        "corresponding",
        "respective",
        "given",
        "target",
        "step",
        "row",
        "column",
        "bar",
        "category",
        "chart",
        "graph",
        "figure",
        "table",
        "axis",
        "x",
        "y",
        "year",
        "years",
        "month",
        "legend",
        "title",
        "label",
        "labels",
        "key",
        "unit",
        "units",
        "scale",
        "calculation",
        "therefore",
        "thus",
        "so",
        "hence",
        "then",
        "note",
        "add",
        "subtract",
        "divide",
        "multiply",
        "numerator",
        "denominator",
        "increase",
        "decrease",
        "change",
        "growth",
        "gap",
        "range",
        "combined",
        "together",
        "overall",
        "given",
        "data",
        "read",
        "reading",
        "check",
        "verify",
        "option",
        "choice",
        "question",
        "final",
        "adding",
        "sub",
        "part",
        "parts",
        "peak",
        "high",
        "low",
        "start",
        "end",
        "old",
        "new",
        "initial",
        "current",
        "amount",
        "sales",
        "revenue",
        "price",
        "population",
        "rate",
        "score",
        "stacked",
        "grouped",
        "colored",
        "coloured",
        "blue's",
        "long",
        "short",
        "big",
        "small",
        "tall",
        "light",
        "dark",
        "horizontal",
        "vertical",
        "main",
        "for",
        "in",
        "and",
        "of",
        "is",
        "at",
        "the",
        "a",
        "an",
        "difference's",
        "above",
        "below",
        "said",
        "relevant",
        "required",
        "desired",
        "longest",
    ]
)


def _inside(place: int, spans: list[tuple[int, int]]) -> bool:
    at = bisect_left(spans, (place + 1, 0)) - 1
    return at >= 0 and spans[at][1] > place


def _anchors(text: str, lower: str, table: Table) -> list[Item]:
    """Where the text names a label of the table, or something that stands where a label would and is none."""
    found: list[tuple[int, int, str, bool]] = []
    for label in table.under:
        place = lower.find(label)
        while place >= 0:
            end = place + len(label)
            if (
                not (
                    place
                    and (
                        lower[place - 1].isalnum()
                        or (lower[place - 1] in ".,$" and label.isdigit() and lower[place - 1 : place] != ",")
                    )
                )
                and not (
                    end < len(lower)
                    and (
                        lower[end].isalnum()
                        or (label.isdigit() and lower[end] in ".," and lower[end + 1 : end + 2].isdigit())
                    )
                )
                and (len(label) > 1 or text[place].isupper() or not label.isalpha())
            ):
                found.append((place, -end, label, True))
            place = lower.find(label, end)
    for kind in table.kinds:
        for match in _CLASS_WORDS[kind].finditer(lower):
            word = match[0]
            if not _known_word(word, kind, table.words) and (
                kind in (COLOURS, QUARTERS) or text[match.start()].isupper()
            ):
                found.append((match.start(), -match.end(), word, False))
    if table.under and not table.years:
        if "the " in lower:
            for match in _THE_BAR.finditer(lower):
                if _foreign(match[1], table.words):
                    found.append((match.start(1), -match.end(), match[1].strip(), False))
        if len(table.under) > 1:
            for match in _ENTRY.finditer(text):
                if _foreign(match[1].lower(), table.words):
                    found.append((match.start(1), -match.end(1), match[1].lower(), False))
    found.sort()
    kept: list[Item] = []
    end = -1
    for start, minus_end, label, known in found:
        if start >= end:
            end = -minus_end
            kept.append(Item(start, end, None, False, label, known))
    return kept


def _known_word(word: str, kind: frozenset[str], words: frozenset[str]) -> bool:
    if word in words or (word == "grey" and "gray" in words) or (word == "gray" and "grey" in words):
        return True
    return kind in (MONTHS, DAYS) and any(other[:3] == word[:3] for other in words & kind)


def _foreign(phrase: str, words: frozenset[str]) -> bool:
    """Whether a phrase could be a label and shares no word with any label, nor the beginning of one."""
    parts = re.findall(r"[^\W_]+", phrase)
    return bool(parts) and not any(
        part in _GENERIC or part in COLOURS or part in words or part.isdigit()
        or (len(part) > 2 and any(word.startswith(part) or (part.startswith(word) and len(word) > 2) for word in words))
        for part in parts
    )  # fmt: skip


# --- words ----------------------------------------------------------------------------------------------------------

_AGGREGATE = re.compile(
    r"\b(?:total|sum|difference|average|mean|combined|gap|ratio|increase|decrease|rise|drop|change)\b"
)
_ANOTHER = re.compile(r"\s*(?:and|,|&)\s*\d")
_ENUMERATED = re.compile(
    r"\b(?:row|step|steps|column|figure|fig\.?|chart|table|option|question|part|line|number|no\.|point|item|page|"
    r"section|phase|example|case|stage|bar|group|series|panel|plot|image|quarter|week|day|month|q|top|bottom|first|"
    r"last|next|all|choice|rank|level)\s*(?:\(|#)?$|#\s*$"
)
_NEXT_WORD = re.compile(
    r"[\s-]*(?:of the |of these |different |separate |distinct |main |other |colou?red |\w+ed )?\**([a-z]+)"
)
_COUNTED: Final = frozenset(
    [
        "bar",
        "bars",
        "column",
        "columns",
        "row",
        "rows",
        "value",
        "values",
        "number",
        "numbers",
        "slice",
        "slices",
        "segment",
        "segments",
        "line",
        "lines",
        "category",
        "categories",
        "item",
        "items",
        "label",
        "labels",
        "entry",
        "entries",
        "group",
        "groups",
        "series",
        "step",
        "steps",
        "time",
        "part",
        "parts",
        "section",
        "sections",
        "year",
        "years",
        "month",
        "months",
        "quarter",
        "quarters",
        "country",
        "countries",
        "company",
        "companies",
        "thing",
        "things",
        "one",
        "ones",
        "data",
        "points",
        "options",
        "bar's",
        "largest",
        "smallest",
        "highest",
        "lowest",
        "colours",
        "colors",
        "cases",
        "of",
        "digits",
    ]
)
_COUNTED_BEFORE = re.compile(
    r"\b(?:all|these|those|the (?:top|first|last|other|remaining|next)|top|first|last|divid\w+ by|count(?: is| of|:)?)\s*$"
)
_MEASURES: Final = frozenset(
    [
        "units",
        "points",
        "dollars",
        "percents",
        "euros",
        "pounds",
        "people",
        "persons",
        "hours",
        "minutes",
        "seconds",
        "days",
        "degrees",
        "tons",
        "tonnes",
        "thousands",
        "millions",
        "billions",
        "kilometers",
        "kilometres",
        "meters",
        "metres",
        "miles",
        "kgs",
        "users",
        "sales",
        "votes",
        "students",
        "workers",
        "times",
    ]
)
_AXIS = re.compile(r"\b(?:axis|axes|scale|gridlines?|ticks?|tick marks?|intervals?|increments?|spans|legend)\b")
_RANGE = re.compile(r"\s?(?:-|to)\s?\$?\d")
_RANGE_END = re.compile(r"^\s?(?:-|to)\s?\$?$")
_COMPARATIVE = re.compile(
    r"[\s-]*(?:%|percent(?:age)?)?[\s-]*(?:\w+ )?(?:points? |units? )?(?:more|less|fewer|higher|lower|greater|larger|smaller|"
    r"taller|shorter|bigger|longer|above|below|times|x\b|as (?:many|much|high|large)|apart|ahead|behind|difference|"
    r"increase|decrease|growth|drop|decline|gap|rise|fold|of the (?:total|whole|sum)|of all|percentage points?)"
)
_STEPS: Final = {
    "sum": re.compile(r"\b(?:sum|sums|total|totals|totalling|totaling|combined|together|altogether|add|adds|added|adding|overall|plus|in all|cumulative|aggregate)\b"),
    "difference": re.compile(
        r"\b(?:difference|differ|differs|gap|more|less|fewer|higher|lower|larger|smaller|greater|taller|shorter|bigger|"
        r"longer|exceed\w*|increas\w*|decreas\w*|ris\w+|rose|drop\w*|fall\w*|fell|grew|grow\w*|declin\w*|change\w*|minus|"
        r"subtract\w*|range|spread|margin|lead\w*|ahead|behind|outpac\w+|gain\w*|lost|loss|surplus|deficit|remain\w*|left|by|jump\w*)\b"
    ),
    "mean": re.compile(r"\b(?:average\w*|mean|median|midpoint|half)\b"),
    "ratio": re.compile(r"\b(?:ratio|times|fold|twice|double\w*|triple\w*|half|per|quotient|divid\w+|percent\w*|share|proportion|fraction|factor)\b|\dx\b|%"),
    "product": re.compile(r"\b(?:product|times|multipl\w+|twice|double\w*|triple\w*)\b"),
    "conclude": re.compile(r"\b(?:answer|result|therefore|thus|hence|so|conclu\w+|final\w*|gives?|obtain\w*|yields?)\b"),
}  # fmt: skip


@lru_cache(maxsize=1 << 12)
def _steps(window: str) -> frozenset[str]:
    """Which arithmetic the words of a sentence announce."""
    return frozenset(step for step, words in _STEPS.items() if words.search(window))


# --- stated arithmetic ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Role:
    """A number's part in stated arithmetic: an operand, or the result of the sides before it."""

    result: bool
    sides: tuple[float | None, ...] = ()
    """Values the result may equal: of the side before it and of the first side."""
    sources: tuple[int, ...] = ()
    """Where the numbers start that the result comes from."""
    inexact: bool = False

    def outcome(self) -> tuple[float, ...] | None:
        return tuple(side for side in self.sides if side is not None) or None

    @staticmethod
    def constant(number: Number) -> bool:
        """A number that arithmetic brings along: 100 for percentages, 2 for a mean, whole counts of things."""
        return number.value in (100.0, 2.0, 1.0, 0.0, 1000.0)


def _roles(run: list[Item], signs: list[str], roles: dict[int, _Role]) -> None:
    """Split a run of numbers at its equals signs: sides with operators give the values, later numbers are results."""
    if not signs or (not any("=" in sign for sign in signs) and not any(sign.strip("()") for sign in signs)):
        return
    sides: list[tuple[list[Item], list[str]]] = [([run[0]], [])]
    for sign, item in zip(signs, run[1:], strict=True):
        if "=" in sign:
            sides[-1][1].append(sign.split("=")[0])
            sides.append(([item], []))
        else:
            sides[-1][1].append(sign)
            sides[-1][0].append(item)
    if all(len(members) == 1 for members, _ in sides):
        return
    if len(sides) == 1:
        # No result: a range ("40 - 50") or a sum left open; its numbers stand for themselves.
        if len(signs) > 1 or signs[0] != "-":
            roles.update((item.start, _Role(False)) for item in run)
        return
    values = [_value(members, inner) for members, inner in sides]
    first = next(place for place, (members, _) in enumerate(sides) if len(members) > 1)
    for place, (members, _) in enumerate(sides):
        if len(members) > 1 or place < first:
            if place >= first:
                roles.update((item.start, _Role(False)) for item in members)
            # "8 + 6 = 14 + 2 = 16" runs on: the side begins with the result of the one before.
            if (
                place > first
                and values[place - 1] is not None
                and abs(members[0].number.value - (values[place - 1] or 0)) < 1e-6
            ):  # type: ignore[union-attr]
                roles[members[0].start] = _Role(True, (values[place - 1],), _starts(sides[place - 1][0]))
            continue
        roles[members[0].start] = _Role(
            True,
            (values[place - 1], values[first]),
            _starts(sides[first][0] if len(sides[place - 1][0]) == 1 else sides[place - 1][0]),
        )


def _starts(members: list[Item]) -> tuple[int, ...]:
    return tuple(item.start for item in members)


def _value(members: list[Item], inner: list[str]) -> float | None:
    operands = [(-1 if item.negative else 1) * item.number.value for item in members if item.number]
    if len(members) == 1:
        return operands[0]
    return evaluate(operands, inner[: len(members) - 1])  # what is left is a parenthesis before the equals sign
