"""What is odd about traces, for results that no rule of the diagnosis explains: answers against gold answers, kept
traces against dropped ones, and columns that say nothing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import duckdb

from distill.diagnosis import odd_rows, usual_figures
from distill.diagnosis.answer_relations import Pair
from distill.diagnosis.row_features import Features, form, of_question
from distill.diagnosis.row_groups import MOST_ROWS, groups_of
from distill.diagnosis.usual_figures import TextRow
from distill.recipe.sections.data import ASKED
from distill.reports.findings import FEWEST, Certainty, Finding, is_above, share
from distill.types import Sample, Trace
from distill.word_tables import counted
from filters.tables.trace_index import PlannedTraces

LOOKED_AT: Final = MOST_ROWS
_FEW_TEXTS: Final = 0.03
_UNSEEN: Final = 0.5
_IMAGE_TOKENS: Final = 8
"""An image of fewer tokens shows no more than its colours."""
_GOING_ON: Final = 0.2
_START: Final = 0.25
"""Part of an answer in which it says what it is, before it goes on."""


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
    yield from _going_on(judged)
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


def _going_on(judged: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """Replies that give their answer, and then continue to the token limit."""
    cut = [each for each in judged if each.trace.outcome.startswith("truncated")]
    beyond = [each for each in cut if _has_answered(each)]
    if 2 * len(beyond) > len(cut) and is_above(len(beyond), len(judged), _GOING_ON):
        names = ", ".join(sorted({each.trace.teacher for each in beyond}))
        yield Finding(
            name="replies_go_on",
            problem=f"{share(len(beyond), len(judged), f'traces of {names}')} give their answer and then continue to "
            f"the token limit, such as {beyond[0].trace.answer[:60]!r}: the server does not end a turn",
            change=f"teachers.{beyond[0].trace.teacher}.sampling.stop, or the end tokens in the server's "
            "generation_config.json and chat template; no larger max_tokens",
        )


def _has_answered(each: JudgedTrace) -> bool:
    answer = each.trace.answer.casefold()
    begun = answer[: int(len(answer) * _START)]
    return any(re.search(rf"(?<!\w){re.escape(gold.casefold())}(?!\w)", begun) for gold in each.sample.answers)


def _row(each: JudgedTrace) -> TextRow:
    return replace(TextRow.of_question(each.sample), rationale=each.trace.reasoning, answer=each.trace.answer)


def odd_results(judged: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """What is odd about answers, gold answers and dropped traces: of a result that is bad."""
    complete = [each for each in judged if each.trace.outcome == "complete" and each.sample.answers]
    yield from _image_tokens(complete)
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
        question=each.sample.question,
        text=each.trace.text,
    )


def _place(each: JudgedTrace) -> tuple[str, int]:
    image = each.sample.images[0] if each.sample.images else None
    return (image.path, image.row) if image is not None else ("", 0)


def _image_tokens(complete: Sequence[JudgedTrace]) -> Iterator[Finding]:
    """Prompts with no image tokens, or very few, for questions with images."""
    shown = [each for each in complete if each.sample.images]
    tokens = [each.trace.usage.image / len(each.sample.images) for each in shown if each.trace.usage.prompt]
    few = [number for number in tokens if number < _IMAGE_TOKENS]
    if not is_above(len(few), len(shown), _UNSEEN):
        return
    certainty: Certainty
    if middle := median(few):
        name, certainty = "images_coarse", "likely"
        why = f"{middle:.3g} image tokens an image, and {_IMAGE_TOKENS} or more are usual: teachers see small images"
        change = f"teachers.{shown[0].trace.teacher}.mm_processor_kwargs or its server: a larger max_pixels"
    else:
        name, certainty = "images_unseen", "possible"
        why = "no image tokens: the images do not reach the teachers, or their server does not count them"
        change = "[[teachers]]: images, and the model and server; `distill check` asks a server about a grey image"
    yield Finding(
        name=name,
        problem=f"{share(len(few), len(shown), 'prompts about images')} have {why}",
        certainty=certainty,
        change=change,
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
            problem=f"{counted(len(asked), 'question')} with {len(golds):,} different gold answers have "
            f"{len(texts):,} "
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
