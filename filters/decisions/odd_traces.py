"""What is odd about traces, for results that no rule of the diagnosis explains: answers against gold answers, kept
traces against dropped ones, and columns that say nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import duckdb

from distill.diagnosis import odd_rows, usual_figures
from distill.diagnosis.answer_relations import Pair
from distill.diagnosis.row_features import Features, form, of_question
from distill.diagnosis.row_groups import MOST_ROWS, groups_of
from distill.diagnosis.usual_figures import TextRow
from distill.recipe.sections.data import ASKED
from distill.reports.findings import FEWEST, Finding, is_above, share
from distill.types import Sample, Trace
from filters.tables.trace_index import PlannedTraces

LOOKED_AT: Final = MOST_ROWS
_FEW_TEXTS: Final = 0.03
_UNSEEN: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTrace:
    sample: Sample
    trace: Trace
    verdict: str | None
    is_kept: bool
    is_selected: bool = True
    rules: tuple[str, ...] = ()
    """The rules that drop it."""


def judged_traces(database: duckdb.DuckDBPyConnection, traces: PlannedTraces) -> list[JudgedTrace]:
    """The first traces by id: ids are hashes, so this is a random sample."""
    rows = database.execute(_JUDGED, [LOOKED_AT]).fetchall()
    written = list(traces.traces([row[0] for row in rows]))
    samples = traces.samples_of(trace.sample_id for trace in written)
    return [
        JudgedTrace(
            sample=samples[trace.sample_id],
            trace=trace,
            verdict=verdict,
            is_kept=kept,
            is_selected=selected,
            rules=tuple(rules or ()),
        )
        for trace, (_, verdict, kept, selected, rules) in zip(written, rows, strict=True)
    ]


_JUDGED: Final = """
    SELECT id, answer_verdict, kept, selected, list_transform(reasons, lambda reason: reason.rule)
    FROM local JOIN decisions USING (id) ORDER BY id LIMIT ?"""


def odd_figures(judged: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """Figures of questions and complete traces out of their usual range, and replies that look at no image."""
    complete = [each for each in judged if each.trace.outcome == "complete"]
    rows = [_row(each) for each in complete]
    asked = {each.sample.id: row for each, row in zip(complete, rows, strict=True)}
    yield from usual_figures.of_questions([*asked.values()], f"data.{ASKED}")
    yield from usual_figures.of_traces(rows, "[[teachers]]: their prompts, or how their text is read")
    yield from odd_rows.of_same_replies(
        [
            (f"{each.trace.teacher} {each.trace.k} {each.sample.question}", row.gold, each.trace.text)
            for each, row in zip(complete, rows, strict=True)
            if row.gold
        ],
        "the teachers",
    )


def _row(each: JudgedTrace) -> TextRow:
    return replace(TextRow.of_question(each.sample), rationale=each.trace.reasoning, answer=each.trace.answer)


def odd_results(judged: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """What is odd about answers, gold answers and dropped traces: of a result that is bad."""
    complete = [each for each in judged if each.trace.outcome == "complete" and each.sample.answers]
    yield from _no_image_tokens(complete)
    golds = f"data.{ASKED}"
    groups: dict[tuple[str, ...], list[JudgedTrace]] = {("all teachers",): complete}
    for each in complete:
        groups.setdefault((each.trace.teacher, each.sample.domain), []).append(each)
    told = set[str]()
    for (who, *_), of_group in groups.items():
        first = {(each.sample.id, each.trace.teacher): each for each in reversed(of_group)}.values()
        pairs = [_pair(each) for each in sorted(first, key=_place)]
        for finding in odd_rows.of_answers(pairs, who, golds):
            if finding.name not in told:
                told.add(finding.name)
                yield finding
    yield from _poor_questions(complete)
    yield from _in_common(judged)


def _pair(each: JudgedTrace) -> Pair:
    return Pair(
        answer=each.trace.answer,
        gold=each.sample.answers[0],
        is_right=each.verdict == "correct",
        groups=groups_of(each.sample, each.trace.teacher),
    )


def _place(each: JudgedTrace) -> tuple[str, int]:
    image = each.sample.images[0] if each.sample.images else None
    return (image.path, image.row) if image is not None else ("", 0)


def _no_image_tokens(complete: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """Prompts without image tokens for questions with images."""
    shown = [each.trace.usage for each in complete if each.sample.images]
    unseen = sum(usage.prompt > 0 and not usage.image for usage in shown)
    if is_above(unseen, len(shown), _UNSEEN):
        yield Finding(
            name="images_unseen",
            problem=f"{share(unseen, len(shown), 'prompts about images')} have no image tokens: the images do not "
            "reach the teachers, or their server does not count them",
            certainty="possible",
            change="[[teachers]]: images, and the model and server; `distill check` asks a server about a grey image",
        )


def _poor_questions(complete: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """Questions of very few different texts, about many images, with many different gold answers."""
    asked = {each.sample.id: each.sample for each in complete}.values()
    texts = {sample.question for sample in asked}
    golds = {sample.answers[0] for sample in asked}
    if len(asked) >= 2 * FEWEST and len(texts) < min(len(golds), _FEW_TEXTS * len(asked)):
        example = min(texts)
        yield Finding(
            name="questions_alike",
            problem=f"{len(asked):,} questions with {len(golds):,} different gold answers have {len(texts):,} "
            f"different texts, such as {example[:60]!r}",
            certainty="possible",
            change=f"data.{ASKED}.columns.question: the column that says what is asked",
        )


def _in_common(judged: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """What dropped traces have in common that kept ones do not have."""
    kept, dropped = ([_features(each) for each in judged if each.is_kept is wanted] for wanted in (True, False))
    yield from odd_rows.differing(
        kept,
        dropped,
        "The dropped traces differ from the kept ones in ",
        name="dropped_in_common",
        change="their teacher or their rows; `distill explain` shows the rules that drop a trace",
    )


def _features(each: JudgedTrace) -> Features:
    sample, trace = each.sample, each.trace
    return {
        "the outcome": trace.outcome,
        "the teacher": trace.teacher,
        "the domain": sample.domain,
        "the end of the text": trace.stop_reason or trace.finish_reason,
        "the words of the rationale": float(len(trace.reasoning.split())),
        "the form of the answer": form(trace.answer),
        "the form of the gold answer": form(sample.answers[0]) if sample.answers else "nothing",
        "the images of the question": str(len(sample.images)),
        **of_question(sample.question),
    }
