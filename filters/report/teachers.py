"""Comparison of the teachers for the recipe's student: cost, kept traces, and fit.

Fit is compared by question: a teacher's value for a question is the mean over its kept traces of it, so a question
with many traces counts once. Intervals of medians use order statistics: they assume no distribution and are
deterministic.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from distill.reports import html
from distill.word_tables import counted
from filters.report.table import TableFacts

FIT = "student_rank_surprisal"
"""What ranks teachers for a student (arXiv 2601.14249); low fits."""
_SURE_QUESTIONS = 20
"""Fewer shared questions do not carry a comparison."""
_Z = 1.96
_FEWEST = 6
"""The smallest and the largest of fewer values hold the median in less than 95 % of cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianInterval:
    """A median with its 95 % interval, over `count` questions; of fewer than _FEWEST the interval is infinite."""

    middle: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherTable:
    """`rows` are (measure, note, one text a teacher)."""

    teachers: list[str]
    rows: list[tuple[str, str, list[str]]]
    verdict: str
    fits: dict[str, MedianInterval]


def compare(facts: TableFacts, tokens: Mapping[str, int], unit: str) -> TeacherTable:
    """`tokens`: the token counts of a generate stage's manifest."""
    teachers = [name for (name,) in facts.rows("SELECT DISTINCT teacher FROM page ORDER BY 1")]
    counts: dict[str, dict[str, int]] = {
        name: dict(zip(_COUNTS, row, strict=True))
        for name, *row in facts.rows(
            f"""SELECT teacher, count(*), count(*) FILTER (outcome = 'complete'),
                {
                "count(answer_verdict) FILTER (outcome = 'complete'), "
                "count(*) FILTER (outcome = 'complete' AND answer_verdict = 'correct')"
                if facts.has("answer_verdict")
                else "0, 0"
            },
                count(*) FILTER (kept), count(*) FILTER (selected), count(DISTINCT hash(sample_id)),
                count(*) FILTER (outcome <> 'error')
            FROM page GROUP BY 1"""
        )
    }
    fits = _fits(facts, teachers)
    rows: list[tuple[str, str, list[str]]] = []

    def add(label: str, note: str, value: Callable[[str], str]) -> None:
        rows.append((label, note, [value(name) for name in teachers]))

    add("questions asked", "", lambda name: f"{counts[name]['questions']:,}")
    add("traces", "", lambda name: f"{counts[name]['traces']:,}")
    add("complete", "of all traces", lambda name: _share(counts[name]["complete"], counts[name]["traces"]))
    if any(values["judged"] for values in counts.values()):
        add(
            "correct",
            "of complete traces with a verdict",
            lambda name: _share(counts[name]["correct"], counts[name]["judged"]),
        )
    add("kept", "of all traces", lambda name: _share(counts[name]["kept"], counts[name]["traces"]))
    add("selected", "for the dataset", lambda name: f"{counts[name]['selected']:,}")
    for label, note, column, sql, digits in _MEASURES:
        if facts.has(column):
            values = dict(facts.rows(f"SELECT teacher, {sql} FROM page GROUP BY 1"))
            rows.append((label.format(unit=unit), note, [_number(values.get(name), digits) for name in teachers]))
    if fits:
        add(
            "rank over surprisal, kept",
            "median by question (95 % interval); lower fits the student better",
            lambda name: _interval(fits.get(name)),
        )
    if any(f"{name}.output" in tokens for name in teachers):
        for label, note, share in (
            ("teacher tokens a trace", "those of replaced attempts included", "answered"),
            ("teacher tokens for a kept trace", "those of replaced attempts and dropped traces included", "kept"),
        ):
            costs = [_mean(tokens.get(f"{name}.output"), counts[name][share]) for name in teachers]
            rows.append((label, note, [_number(cost, 1) for cost in costs]))
    return TeacherTable(teachers=teachers, rows=rows, verdict=_verdict(facts, teachers, fits), fits=fits)


_COUNTS = ("traces", "complete", "judged", "correct", "kept", "selected", "questions", "answered")
_MEASURES = (
    ("mean rationale, {unit}", "kept traces", "rationale_tokens", "favg(rationale_tokens) FILTER (kept)", 1),
    (
        "traces with unsupported values",
        "of rationales with values or labels that a chart's table can judge",
        "unsupported_values",
        "favg((unsupported_values > 0)::INTEGER) FILTER (grounding_checked > 0)",
        "percent",
    ),
    ("agree with themselves", "mean self-consistency", "self_consistency", "favg(self_consistency)", "percent"),
    (
        "near duplicates in the run",
        "traces that repeat another one",
        "corpus_duplicate",
        "favg(CASE WHEN corpus_duplicate THEN 1.0 WHEN NOT corpus_duplicate THEN 0.0 END)",
        "percent",
    ),
    ("student's surprisal, kept", "median, nats a token", "student_nll", "median(student_nll) FILTER (kept)", 2),
    ("student's IFD, kept", "median; high is hard to follow", "student_ifd", "median(student_ifd) FILTER (kept)", 2),
    (
        "how much the image helps the student",
        "median blind gap of kept traces, nats a token",
        "student_blind_gap",
        "median(student_blind_gap) FILTER (kept)",
        2,
    ),
)
"""Label, note, the column that must be measured, SQL over a teacher's rows, digits or percent."""


def _share(part: int, whole: int) -> str:
    return html.percent(part / whole) if whole else "–"


def _number(value: float | None, digits: int | str) -> str:
    if value is None:
        return "–"
    return html.percent(value) if digits == "percent" else f"{value:,.{digits}f}"


def _mean(total: int | None, count: int) -> float | None:
    return total / count if total is not None and count else None


def _interval(interval: MedianInterval | None) -> str:
    if interval is None:
        return "–"
    if math.isinf(interval.low):
        return f"{interval.middle:.2f} (too few questions for an interval)"
    return f"{interval.middle:.2f} ({interval.low:.2f} to {interval.high:.2f})"


# --- fit --------------------------------------------------------------------------------------------------------


def _units(facts: TableFacts, teacher: str) -> str:
    """SQL of a teacher's value for each question."""
    column = facts.columns[FIT]
    escaped = teacher.replace("'", "''")
    return f"""SELECT sample_id, favg({column.sql}) AS value FROM page
        WHERE kept AND {column.finite} AND teacher = '{escaped}' GROUP BY 1"""


def _fits(facts: TableFacts, teachers: Sequence[str]) -> dict[str, MedianInterval]:
    if not facts.has(FIT):
        return {}
    intervals = {name: _median(facts, _units(facts, name)) for name in teachers}
    return {name: interval for name, interval in intervals.items() if interval is not None}


def _median(facts: TableFacts, units: str) -> MedianInterval | None:
    """The median of `value` with the interval between the order statistics that 95 % of samples have it between."""
    (count,) = facts.row(f"SELECT count(*) FROM ({units})")
    if not count:
        return None
    low = max(0, math.floor(count / 2 - _Z * math.sqrt(count) / 2) - 1)
    high = min(count - 1, math.ceil(count / 2 + _Z * math.sqrt(count) / 2))
    ranked_sql = f"row_number() OVER (ORDER BY value) - 1 AS place, value FROM ({units})"
    middle, lower, upper = facts.row(
        f"""SELECT median(value), min(value) FILTER (place = {low}), min(value) FILTER (place = {high})
        FROM (SELECT {ranked_sql})"""
    )
    if count < _FEWEST:
        lower, upper = -math.inf, math.inf
    return MedianInterval(middle=middle, low=lower, high=upper, count=count)


def _verdict(facts: TableFacts, teachers: Sequence[str], fits: dict[str, MedianInterval]) -> str:
    """A sentence on which teacher fits this student best, and how certain that is."""
    if not facts.has(FIT):
        return (
            "How well the teachers fit this student was not measured. Add “student” to filter.signals (it needs the "
            "student's weights and the train extra) and filter again; some 200 traces of each teacher are enough "
            "(filter.student.per_teacher = 200)."
        )
    if len(fits) < 2:
        missing = [name for name in teachers if name not in fits]
        if not fits:
            return "Student fit was measured on no kept trace, so the teachers cannot be compared."
        return (
            f"Student fit was measured on kept traces of {next(iter(fits))} "
            f"only{', not of ' + ', '.join(missing) if missing else ''}: there is no other teacher to compare with."
        )
    order = sorted(fits, key=lambda name: (fits[name].middle, name))
    best, second = order[0], order[1]
    opening = (
        f"{best} fits this student best: median rank over surprisal {_interval(fits[best])} on "
        f"{counted(fits[best].count, 'question')}, then {second} with {_interval(fits[second])} on "
        f"{fits[second].count:,}."
    )
    both = f"""SELECT left_side.value - right_side.value AS value FROM ({_units(facts, best)}) AS left_side
        JOIN ({_units(facts, second)}) AS right_side USING (sample_id)"""
    paired = _median(facts, both)
    if paired is not None and paired.count >= _SURE_QUESTIONS:
        lower = replace(paired, middle=-paired.middle, low=-paired.high, high=-paired.low)
        sentence = f" On the {counted(lower.count, 'question')} of both it is lower by {_interval(lower)}"
        if lower.low > 0:
            return f"{opening}{sentence}: the difference is not due to the choice of the questions."
        if lower.high < 0:
            return (
                f"{opening} But on the {paired.count:,} questions of both it is higher by {_interval(paired)}: there "
                f"{second} fits better, and the medians differ because the teachers were asked other questions."
            )
        return f"{opening}{sentence}: the interval contains 0, so it is not certain which of the two fits better."
    first, other = fits[best], fits[second]
    if first.high < other.low:
        certainty = "The intervals do not overlap"
    elif min(first.count, other.count) < _FEWEST:
        certainty = "Too few questions were measured, so it is not certain which of the two fits better"
    else:
        certainty = "The intervals overlap, so it is not certain which of the two fits better"
    return (
        f"{opening} {certainty}; they were asked {'no' if paired is None else 'hardly any'} questions in common, so "
        "a difference may lie in the questions as well as in the teachers."
    )
