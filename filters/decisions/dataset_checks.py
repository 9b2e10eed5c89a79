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
from typing import TYPE_CHECKING, Any

import duckdb

from distill.recipe.sections.filter import SPOKEN_FOR, Select
from distill.reports.findings import is_above, is_below
from distill.stats.intervals import wilson
from distill.types import Sample, Trace
from distill.word_tables import counted
from filters.decisions.limits import MIX, Limit
from filters.decisions.limits import measure as measure_limits
from filters.tables.trace_index import PlannedTraces
from filters.tables.workers import SERIAL, Workers
from filters.text.words import with_marks

if TYPE_CHECKING:
    from distill.answers.consistency import Conclusion

SAMPLE = 2000
_BATCH = 100
"""Traces whose conclusions a process compares at once; each takes the answer judge about a millisecond."""

WRONG_LIMIT = 0.05
CONTRADICTED_LIMIT = 0.05
UNGROUNDED_LIMIT = 0.3
"""Good teachers sometimes misread a bar; most rationales must be supported."""
CONTESTED_LIMIT = 0.15
"""Where two answers are each wrong in 7 of 100 cases, about this share of questions has no majority."""
TEMPLATED_NOTE = 0.1
"""From this share on, a note counts rationales with the words of another one and other values. It is no fault."""
UNDECIDED_LIMIT = 0.1
"""The judge leaves about one in ten right answers undecided."""
RELATED_LIMIT = 0.65
"""Rationales mixed up at random give 0.5; those of the tiny world give 1.00."""

_WORD = re.compile(with_marks(r"[^\W_]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCheck:
    """One share of the selected traces."""

    name: str
    about: str
    count: int
    checked: int
    """Traces for which this is known."""
    limit: float
    warning: str = ""
    """The text of the warning; empty without one."""

    @property
    def share(self) -> float:
        return self.count / self.checked if self.checked else 0.0

    @property
    def ci95(self) -> tuple[float, float]:
        return wilson(self.count, self.checked)

    @property
    def bound(self) -> str:
        """Its limit in words; a share that may have any value has none."""
        if self.limit == 1:
            return "none"
        return f"{'at least' if self.name == RELATED else 'at most'} {100 * self.limit:.0f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    checks: tuple[DatasetCheck, ...]
    notes: tuple[str, ...] = ()
    """Facts worth knowing that are no fault of the dataset."""
    limits: tuple[Limit, ...] = ()
    """Limits of the selection that left out many traces."""

    @property
    def warnings(self) -> tuple[str, ...]:
        checked = tuple(check.warning for check in self.checks if check.warning)
        # The other limits are numbers of the recipe; the size of a mix is a result.
        return (*checked, *(str(limit) for limit in self.limits if limit.name == MIX))

    def counts(self) -> dict[str, int]:
        """Counts that are not zero, for the manifest."""
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


def measure(
    database: duckdb.DuckDBPyConnection, index: PlannedTraces, select: Select, workers: Workers = SERIAL
) -> Health:
    """The health of what the `decisions` of a database, made with this selection, choose of its `signals`."""
    (row,) = database.execute(_COUNTED).fetchall()
    wrong, judged, ungrounded, grounded, contested, voted = row
    templated = _template_check(database)
    ids = [name for (name,) in database.execute(_SAMPLED).fetchall()]
    traces = list(index.traces(ids))
    samples = index.samples_of(trace.sample_id for trace in traces)
    pairs = [(samples[trace.sample_id], trace) for trace in traces]
    leaked, notes = _leak_check(database)
    undecided, more = _undecided_check(database)
    limits = measure_limits(database, select)
    notes = (*notes, *more, *(str(limit) for limit in limits if limit.name != MIX))
    checks = (
        _upper_check(
            "wrong",
            "answer is wrong by the gold answer",
            (wrong, judged),
            WRONG_LIMIT,
            "{share} of the selected answers that a gold answer decides are wrong ({count}); the student would learn "
            "that. "
            "Drop them with a rule: \"answer_verdict = 'wrong'\"",
        ),
        undecided,
        _upper_check(
            "contested",
            "answer is not the majority answer of the question, and no gold answer decides",
            (contested, voted),
            CONTESTED_LIMIT,
            "{share} of the selected traces without a verdict have an answer that is not the majority answer of "
            'the question ({count}); many of these answers must be wrong. Drop them with a rule: "answer_verdict '
            'IS NULL AND not coalesce(in_majority, false)"',
        ),
        _upper_check(
            "contradicted",
            "rationale concludes something else than its answer",
            _conclusions(pairs, workers),
            CONTRADICTED_LIMIT,
            "{share} of the selected rationales with a conclusion have another one than the answer that follows "
            "({count}); "
            "rationales may have been mixed up between questions. Look at some with `distill explain`; to drop "
            'them add "conclusion" to filter.signals and the rule "conclusion = \'contradicts\'"',
        ),
        _upper_check(
            "ungrounded",
            "rationale states values that the chart's table does not support",
            (ungrounded, grounded),
            UNGROUNDED_LIMIT,
            "{share} of the selected rationales with values that a chart's table can judge state some that it does "
            'not support ({count}); drop them with a rule: "unsupported_values > 0"',
        ),
        _related_check(pairs),
        templated,
        leaked,
    )
    return Health(checks=checks, notes=(*notes, *_template_notes(templated)), limits=limits)


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


def _upper_check(name: str, about: str, of: tuple[int, int], limit: float, warning: str) -> DatasetCheck:
    """A share that should be low."""
    count, checked = of
    warning_text = ""
    if is_above(count, checked, limit):
        warning_text = warning.format(share=f"{100 * count / checked:.0f} %", count=f"{count:,} of {checked:,}")
    return DatasetCheck(name=name, about=about, count=count, checked=checked, limit=limit, warning=warning_text)


def _undecided_check(database: duckdb.DuckDBPyConnection) -> tuple[DatasetCheck, tuple[str, ...]]:
    """Undecided answers: how many are in the dataset, what supports them, and how many were dropped."""
    (row,) = database.execute(
        f"""SELECT count(*) FILTER (selected), count(*) FILTER (selected AND judge_verdict = 'correct'),
            count(*) FILTER (selected AND NOT ({SPOKEN_FOR})), count(*) FILTER (NOT kept), count(*)
        FROM signals JOIN decisions USING (id) WHERE answer_verdict = 'undecided'"""
    ).fetchall()
    ((judged,),) = database.execute(
        "SELECT count(answer_verdict) FROM local JOIN decisions USING (id) WHERE selected"
    ).fetchall()
    chosen, by_judge, unsupported, dropped, total = row
    check = _upper_check(
        "undecided",
        "answer is undecided against the gold answer",
        (chosen, judged),
        UNDECIDED_LIMIT,
        "{share} of the selected answers to questions with a gold answer are undecided against it ({count}); for "
        f"{unsupported:,} of them, neither agreement nor the judge supports the answer. Drop those with the default "
        "rule undecided_answer, or let a teacher judge them (filter.judge)",
    )
    reasons = (
        f"{by_judge:,} by the judge, {chosen - by_judge - unsupported:,} by agreement, {unsupported:,} by neither"
    )
    note = f"of {counted(total, 'answer')} undecided against the gold answer, {chosen:,} in the dataset ({reasons})"
    left_out = total - chosen - dropped
    rest = f", the selection left {left_out:,} out" if left_out else ""
    return check, ((f"{note}, rules dropped {dropped:,}{rest}",) if total else ())


def _conclusions(pairs: Sequence[tuple[Sample, Trace]], workers: Workers = SERIAL) -> tuple[int, int]:
    written = [(trace.reasoning, trace.answer, sample.answer_type, sample.options) for sample, trace in pairs]
    batches = (written[start : start + _BATCH] for start in range(0, len(written), _BATCH))
    verdicts = [verdict for batch in workers.map(_compare_conclusions, batches) for verdict in batch]
    return verdicts.count("contradicts"), len(verdicts) - verdicts.count(None)


def _compare_conclusions(written: Sequence[tuple[str, str, str | None, Sequence[str]]]) -> "list[Conclusion | None]":
    from distill.answers.consistency import compare_conclusion

    return [compare_conclusion(*each) for each in written]


# --- rationales about other questions ---------------------------------------------------------------------------

RELATED = "related"


def _related_check(pairs: Sequence[tuple[Sample, Trace]]) -> DatasetCheck:
    """How often a rationale has more of its own question's words than the next trace's rationale has.

    Rare words count more (by their inverse frequency among the questions). Only questions of one domain are compared,
    and pairs without a difference do not count. So a set with a single question, or with rationales in another
    language than their questions, is not judged.
    """
    question_words = [_words(sample.question) for sample, _ in pairs]
    rationale_words = [_words(trace.reasoning) for _, trace in pairs]
    question_count = Counter(word for words in question_words for word in words)
    by_domain: dict[str, list[int]] = {}
    for index, (sample, _) in enumerate(pairs):
        by_domain.setdefault(sample.domain, []).append(index)
    more_own = decided = 0
    for indexes in by_domain.values():
        for index, other_index in zip(indexes, [*indexes[1:], indexes[0]], strict=True):
            words = question_words[index] - question_words[other_index]
            own_weight, other_weight = (
                # Not `sum`, which depends on the order of a set: equal words would differ in the last digit.
                math.fsum(math.log(len(pairs) / question_count[word]) for word in words & rationale_words[position])
                for position in (index, other_index)
            )
            more_own += own_weight > other_weight
            decided += own_weight != other_weight
    return DatasetCheck(
        name=RELATED,
        about="rationale has more words of its question than the rationale of another trace",
        count=more_own,
        checked=decided,
        limit=RELATED_LIMIT,
        warning=f"the selected rationales do not fit their own questions better than other questions: {more_own:,} "
        f"of {decided:,} have more words of their question than the rationale of another trace, and chance alone "
        "gives one half; rationales may belong to other questions. Look at some with `distill explain`"
        if is_below(more_own, decided, RELATED_LIMIT)
        else "",
    )


def _words(text: str) -> set[str]:
    """Words without their case and their plural."""
    return {word.removesuffix("s") for word in _WORD.findall(text.lower())}


# --- templates --------------------------------------------------------------------------------------------------


def _template_check(database: duckdb.DuckDBPyConnection) -> DatasetCheck:
    """Traces that repeat the words of another trace of the run with other values; unknown without the signal
    `corpus`."""
    ((count, checked),) = database.execute(
        """SELECT count(*) FILTER (varied), count(varied) FROM (
            SELECT corpus_other_values AS varied
            FROM signals JOIN decisions USING (id) WHERE selected
        )"""
    ).fetchall()
    about = "rationale has the same words as another trace, with other numbers or names"
    return _upper_check("templated", about, (count, checked), 1.0, "")


def _template_notes(templated: DatasetCheck) -> tuple[str, ...]:
    if templated.share < TEMPLATED_NOTE:
        return ()
    return (
        f"{templated.count:,} of {templated.checked:,} selected rationales ({100 * templated.share:.0f} %) have the "
        "same words as another trace, with other numbers or names: they follow a template. No rule drops them unless "
        "it names corpus_other_values, corpus_template_size or other_values",
    )


# --- test questions ---------------------------------------------------------------------------------------------


def _leak_check(database: duckdb.DuckDBPyConnection) -> tuple[DatasetCheck, tuple[str, ...]]:
    """Questions that a test set holds with their images: in the dataset, and dropped."""
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
        about="question is in a test set with its image (counted in questions)",
        count=chosen,
        checked=questions,
        limit=0.0,
        warning=f"{counted(chosen, 'question')} of the dataset in {sets} with the images, so a score there would be "
        "too high. Drop them with a rule: \"contamination = 'pair'\""
        if chosen
        else "",
    )
    notes = tuple(
        f"{counted(question_count - count, 'question')} in [data.{source}] with the images, but without a trace in "
        "the dataset; other sources may hold them too"
        for source, question_count, count in rows
        if question_count > count
    )
    return check, (*notes, *_shown_test_images(database))


def _shown_test_images(database: duckdb.DuckDBPyConnection) -> list[str]:
    """Test images in the dataset with other questions than in the test set."""
    rows = database.execute(
        """SELECT contamination_source, count(DISTINCT local.sample_id)
        FROM local JOIN decisions USING (id) WHERE contamination = 'image' AND selected GROUP BY 1 ORDER BY 1"""
    ).fetchall()
    return [
        f"{counted(count, 'question')} of the dataset with an image of [data.{source}] under another question; "
        "training refuses that unless allow_overlap = true is set under [eval]. Split by image (`distill split`), "
        "or drop them with a rule: \"contamination = 'image'\""
        for source, count in rows
    ]
