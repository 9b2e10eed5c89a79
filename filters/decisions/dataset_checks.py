"""Checks of the selected dataset as a whole: shares with limits, shown in the summary of `distill filter`.

A rule applies to one trace. These checks apply to all selected traces, so they also find what no rule drops: wrong
answers, rationales of another question, test questions. A check warns when the 95 % interval (Wilson) of its share
is beyond its limit and at least `FEWEST` traces are known. What was not measured gives no warning. Texts are read for
the first `SAMPLE` traces by id: ids are hashes, so this is a random sample.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from distill.answers.consistency import compare_conclusion
from distill.recipe.filter import SPOKEN_FOR, Select
from distill.stats.intervals import wilson
from distill.types import Sample, Trace
from filters.decisions.limits import MIX, Limit
from filters.decisions.limits import measure as measure_limits
from filters.tables.trace_index import PlannedTraces

SAMPLE = 4000
FEWEST = 20

WRONG_LIMIT = 0.05
CONTRADICTED_LIMIT = 0.05
UNGROUNDED_LIMIT = 0.3
"""Good teachers misread a bar now and then; the typical rationale must hold."""
CONTESTED_LIMIT = 0.15
"""Where each of two answers is wrong in 7 of 100 cases, about so many stand without a majority."""
TEMPLATED_NOTE = 0.1
"""Share of rationales with the words of another one, but other values, from which it is said. It is no fault."""
UNDECIDED_LIMIT = 0.1
"""Of right answers the judge leaves about one in ten undecided."""
RELATED_LIMIT = 0.65
"""Rationales mixed up at random come out at 0.5; those of the tiny world at 1.00."""

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCheck:
    """One share of the selected traces."""

    name: str
    about: str
    count: int
    checked: int
    """Traces of which this is known."""
    ci95: tuple[float, float]
    limit: float
    warning: str = ""
    """What to tell; empty while all is well."""

    @property
    def share(self) -> float:
        return self.count / self.checked if self.checked else 0.0

    @property
    def bound(self) -> str:
        """Its limit in words."""
        return f"{'at least' if self.name == RELATED else 'at most'} {100 * self.limit:.0f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    checks: tuple[DatasetCheck, ...]
    notes: tuple[str, ...] = ()
    """What a person should know although nothing is wrong with the dataset."""
    limits: tuple[Limit, ...] = ()
    """Limits of the selection that left out many traces."""

    @property
    def warnings(self) -> tuple[str, ...]:
        checked = tuple(check.warning for check in self.checks if check.warning)
        # How many a mix takes is nothing that anybody wrote down, as the other limits are.
        return (*checked, *(str(limit) for limit in self.limits if limit.name == MIX))

    def counts(self) -> dict[str, int]:
        """For the manifest: what is not zero."""
        counts = {f"selected.{check.name}": check.count for check in self.checks if check.name != RELATED}
        counts |= {f"left_out.{limit.name}": limit.left_out for limit in self.limits}
        counts["warnings"] = len(self.warnings)
        return {name: count for name, count in counts.items() if count}

    def as_fields(self) -> dict[str, Any]:
        """For health.json."""
        checks = [
            asdict(check) | {"share": round(check.share, 6), "ci95": [round(end, 6) for end in check.ci95]}
            for check in self.checks
        ]
        return {"checks": checks, "warnings": list(self.warnings), "notes": list(self.notes)}


def measure(database: duckdb.DuckDBPyConnection, index: PlannedTraces, select: Select) -> Health:
    """The health of what the `decisions` of a database, made with this selection, choose of its `signals`."""
    (row,) = database.execute(_COUNTED).fetchall()
    wrong, judged, ungrounded, grounded, contested, voted = row
    templated = _templated(database)
    ids = [name for (name,) in database.execute(_SAMPLED).fetchall()]
    traces = list(index.traces(ids))
    samples = index.samples_of(trace.sample_id for trace in traces)
    pairs = [(samples[trace.sample_id], trace) for trace in traces]
    leaked, notes = _leaks(database)
    undecided, more = _undecided(database)
    limits = measure_limits(database, select)
    notes = (*notes, *more, *(str(limit) for limit in limits if limit.name != MIX))
    checks = (
        _beyond(
            "wrong",
            "answer is wrong by the gold answer",
            (wrong, judged),
            WRONG_LIMIT,
            "{share} of the selected traces answer wrongly ({count}); the student would learn that. "
            "Drop them with a rule: \"answer_verdict = 'wrong'\"",
        ),
        undecided,
        _beyond(
            "contested",
            "answer has no majority of the question's answers behind it, where no gold answer decides",
            (contested, voted),
            CONTESTED_LIMIT,
            "{share} of the selected traces without a verdict have no majority of their question's answers behind "
            "them ({count}); many of these answers must be wrong. Drop them with a rule: "
            '"answer_verdict IS NULL AND not coalesce(in_majority, false)"',
        ),
        _beyond(
            "contradicted",
            "rationale concludes something else than its answer",
            _conclusions(pairs),
            CONTRADICTED_LIMIT,
            "{share} of the selected rationales conclude something else than the answer that follows ({count}); "
            "rationales may have been mixed up between questions. Look at some with `distill explain`; to drop them "
            'add "conclusion" to filter.signals and the rule "conclusion = \'contradicts\'"',
        ),
        _beyond(
            "ungrounded",
            "rationale states values that the chart's table does not support",
            (ungrounded, grounded),
            UNGROUNDED_LIMIT,
            "{share} of the selected rationales about charts state values that the chart's table does not support "
            '({count}); drop them with a rule: "unsupported_values > 0"',
        ),
        _related(pairs),
        templated,
        leaked,
    )
    return Health(checks=checks, notes=(*notes, *_of_templates(templated)), limits=limits)


_COUNTED = """
    SELECT count(*) FILTER (answer_verdict = 'wrong'),
        count(*) FILTER (answer_verdict IN ('correct', 'wrong')),
        count(*) FILTER (unsupported_values > 0), count(*) FILTER (grounding_checked > 0),
        count(*) FILTER (voted AND NOT coalesce(in_majority, false)), count(*) FILTER (voted)
    FROM (
        SELECT *, answer_verdict IS NULL AND (self_consistency IS NOT NULL OR teacher_agreement IS NOT NULL) AS voted
        FROM local JOIN decisions USING (id) WHERE selected
    )"""
_SAMPLED = f"SELECT id FROM decisions WHERE selected ORDER BY id LIMIT {SAMPLE}"


def _beyond(name: str, about: str, found: tuple[int, int], limit: float, warning: str) -> DatasetCheck:
    """A share that should be low."""
    count, checked = found
    low, high = wilson(count, checked)
    told = ""
    if low > limit and checked >= FEWEST:
        told = warning.format(share=f"{100 * count / checked:.0f} %", count=f"{count:,} of {checked:,}")
    return DatasetCheck(
        name=name, about=about, count=count, checked=checked, ci95=(low, high), limit=limit, warning=told
    )


def _undecided(database: duckdb.DuckDBPyConnection) -> tuple[DatasetCheck, tuple[str, ...]]:
    """Answers that the gold answer does not decide: in the dataset, what speaks for them there, and dropped."""
    (row,) = database.execute(
        f"""SELECT count(*) FILTER (selected), count(*) FILTER (selected AND judge_verdict = 'correct'),
            count(*) FILTER (selected AND NOT ({SPOKEN_FOR})), count(*) FILTER (NOT kept), count(*)
        FROM signals JOIN decisions USING (id) WHERE answer_verdict = 'undecided'"""
    ).fetchall()
    ((judged,),) = database.execute(
        "SELECT count(answer_verdict) FROM local JOIN decisions USING (id) WHERE selected"
    ).fetchall()
    chosen, by_judge, alone, dropped, found = row
    check = _beyond(
        "undecided",
        "answer is undecided against the gold answer",
        (chosen, judged),
        UNDECIDED_LIMIT,
        "{share} of the selected answers are undecided against the gold answer ({count}); for "
        f"{alone:,} of them neither agreement nor the judge arm speaks. Drop those with the default rule "
        "undecided_answer, or have a teacher judge them (filter.judge)",
    )
    reasons = f"{by_judge:,} by the judge arm, {chosen - by_judge - alone:,} by agreement, {alone:,} by neither"
    note = (
        f"of {found:,} answers that are undecided against the gold answer {chosen:,} are in the dataset ({reasons})"
    )
    return check, ((f"{note}, {dropped:,} were dropped",) if found else ())


def _conclusions(pairs: Sequence[tuple[Sample, Trace]]) -> tuple[int, int]:
    said = [
        compare_conclusion(trace.reasoning, trace.answer, sample.answer_type, sample.options)
        for sample, trace in pairs
    ]
    return said.count("contradicts"), len(said) - said.count(None)


# --- rationales about other questions ---------------------------------------------------------------------------

RELATED = "related"


def _related(pairs: Sequence[tuple[Sample, Trace]]) -> DatasetCheck:
    """How often a rationale has more of its own question's words than the next trace's rationale has.

    Rare words count more (by their inverse frequency among the questions). Questions of one domain are compared, and
    pairs without a difference say nothing, so a set of one question, or of rationales in another language than their
    questions, is not judged.
    """
    asked = [_words(sample.question) for sample, _ in pairs]
    said = [_words(trace.reasoning) for _, trace in pairs]
    spread = Counter(word for words in asked for word in words)
    by_domain: dict[str, list[int]] = {}
    for place, (sample, _) in enumerate(pairs):
        by_domain.setdefault(sample.domain, []).append(place)
    better = decided = 0
    for places in by_domain.values():
        for place, other in zip(places, [*places[1:], places[0]], strict=True):
            words = asked[place] - asked[other]
            own, others = (
                sum(math.log(len(pairs) / spread[word]) for word in words & said[at]) for at in (place, other)
            )
            better += own > others
            decided += own != others
    low, high = wilson(better, decided)
    return DatasetCheck(
        name=RELATED,
        about="rationale has more of its question's words than another one has",
        count=better,
        checked=decided,
        ci95=(low, high),
        limit=RELATED_LIMIT,
        warning=f"the selected rationales are hardly more about their own questions than about others: "
        f"{better:,} of {decided:,} have more of the question's words than another trace's rationale has, and by "
        "chance it would be half; rationales may have been mixed up. Look at some with `distill explain`"
        if decided >= FEWEST and high < RELATED_LIMIT
        else "",
    )


def _words(text: str) -> set[str]:
    """Words without their case and their plural."""
    return {word.removesuffix("s") for word in _WORD.findall(text.lower())}


# --- templates --------------------------------------------------------------------------------------------------


def _templated(database: duckdb.DuckDBPyConnection) -> DatasetCheck:
    """Traces that repeat the words of another one of the run with other values; not known without that signal."""
    ((count, checked),) = database.execute(
        """SELECT count(*) FILTER (varied), count(varied) FROM (
            SELECT corpus_other_values AS varied
            FROM signals JOIN decisions USING (id) WHERE selected
        )"""
    ).fetchall()
    about = "rationale has the same words as another trace, with other numbers or names"
    return _beyond("templated", about, (count, checked), 1.0, "")


def _of_templates(templated: DatasetCheck) -> tuple[str, ...]:
    if templated.share < TEMPLATED_NOTE:
        return ()
    return (
        f"{templated.count:,} of {templated.checked:,} selected rationales ({100 * templated.share:.0f} %) have the "
        "same words as another trace, with other numbers or names: they follow a template. No rule drops them unless "
        "it names corpus_other_values, corpus_template_size or other_values",
    )


# --- test questions ---------------------------------------------------------------------------------------------


def _leaks(database: duckdb.DuckDBPyConnection) -> tuple[DatasetCheck, tuple[str, ...]]:
    """Questions that stand in a test set with their pictures: of the dataset, and dropped ones."""
    rows = database.execute(
        """SELECT contamination_source, count(*), count(*) FILTER (chosen) FROM (
            SELECT contamination_source, local.sample_id, bool_or(selected) AS chosen
            FROM local JOIN decisions USING (id) WHERE contamination = 'pair' GROUP BY 1, 2
        ) GROUP BY 1 ORDER BY 1"""
    ).fetchall()
    ((questions,),) = database.execute(
        """SELECT count(DISTINCT local.sample_id) FROM local JOIN decisions USING (id)
        WHERE selected AND contamination IS NOT NULL"""
    ).fetchall()
    chosen = sum(count for *_, count in rows)
    sets = ", ".join(f"[data.{source}]" for source, *_, count in rows if count)
    check = DatasetCheck(
        name="leaked",
        about="question stands in a test set with its picture",
        count=chosen,
        checked=questions,
        ci95=wilson(chosen, questions),
        limit=0.0,
        warning=f"{chosen:,} questions of the dataset stand in {sets} with their pictures: a score there would be "
        "too high. Drop them with a rule: \"contamination = 'pair'\""
        if chosen
        else "",
    )
    notes = tuple(
        f"{asked - count:,} of the questions stand in [data.{source}] with their pictures; none of their traces is "
        "in the dataset, but other sources may hold them too"
        for source, asked, count in rows
        if asked > count
    )
    return check, (*notes, *_shown(database))


def _shown(database: duckdb.DuckDBPyConnection) -> list[str]:
    """Test pictures in the dataset, under other questions than those of the test set."""
    rows = database.execute(
        """SELECT contamination_source, count(DISTINCT local.sample_id)
        FROM local JOIN decisions USING (id) WHERE contamination = 'image' AND selected GROUP BY 1 ORDER BY 1"""
    ).fetchall()
    return [
        f"{count:,} questions of the dataset show a picture of [data.{source}] under another question; training "
        "refuses that unless allow_overlap = true is set under [eval]. Split by picture (`distill split`), or drop "
        "them with a rule: \"contamination = 'image'\""
        for source, count in rows
    ]
