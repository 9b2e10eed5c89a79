"""Replies of a student, judged as the filter judges traces, and the first figures over them.

One prediction is one plain mapping, so that it can be journaled. What is said of a single reply is measured here;
figures over many are in student/evaluation/metrics.py. Does not generate (student/inference/generation.py).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from distill.answers.consistency import ASIDE, compare_conclusion, find_conclusion
from distill.answers.numbers import read_single_quantity
from distill.answers.reference_metrics import anls, exact_match, relaxed_accuracy, rouge_l, vqa_accuracy
from distill.answers.verdicts import is_numeric, judge
from distill.data.gold_answers import VOTES
from distill.grounding.chart_table import find_table
from distill.grounding.check import check_rationale
from distill.grounding.derivation import read_question
from distill.grounding.findings import GroundingResult
from distill.rationale import split
from distill.stats import intervals
from distill.types import Sample
from student.inference.error_causes import error_cause

Prediction = dict[str, Any]
REFERENCES = ("rationale", "rationales", "cot", "solution")
"""Keys of a sample's meta that may hold a reference rationale, or a list of them."""
FEW = 20
"""So many unsupported values of a rationale are written out; all are counted."""

_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")


def judged(
    sample: Sample,
    reply: Mapping[str, Any],
    *,
    plain: bool,
    relative_tolerance: float,
    table: str | None = None,
    reading_tolerance: float = 0.0,
) -> Prediction:
    """A reply (the fields of generation.Reply) taken apart, with its question, its gold answer and what it is worth.

    `plain`: the rationale is everything before the last blank line, as with filter.rationale = "plain". `table` and
    `reading_tolerance` are filter.grounding's: where the table behind a chart is, how exactly it is to be read.

    `exact`, `relaxed` (ChartQA's 5 %), `anls` (DocVQA's) and `vqa_accuracy` (where annotators voted) are the
    reference metrics of the answer as it stands. `rouge_l` compares the whole reply with the gold answers,
    `rationale_rouge_l` the rationale with the sample's own. `unsupported` are values of the rationale that neither
    picture nor question support, among `checked_values` that could be judged. `consistent`: whether the answer is
    what the rationale concludes (distill.answers.consistency). None: there is nothing to say this by.
    """
    parts = split(reply["text"], "plain" if plain else "think")
    rationale, answer = parts.rationale, parts.answer.strip()
    verdict = judge(
        answer,
        sample.answers,
        sample.answer_type,
        relative_tolerance=relative_tolerance,
        options=sample.options,
    )
    values = _grounded(sample, rationale, table, reading_tolerance)
    consistent = _consistent(sample, rationale, answer)
    well_formed = parts.well_formed and not reply["truncated"]
    references, votes = _references(sample), sample.meta.get(VOTES)
    return {
        "sample_id": sample.id,
        "domain": sample.domain,
        "difficulty": sample.meta.get("difficulty"),
        "question": sample.question,
        "gold": list(sample.answers),
        "answer_type": verdict.answer_type,
        **reply,
        "reasoning": rationale,
        "answer": answer,
        "well_formed": well_formed,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "relative_error": verdict.relative_error,
        "exact": bool(exact_match(answer, sample.answers)),
        "relaxed": any(relaxed_accuracy(answer, gold) for gold in sample.answers),
        "anls": anls(answer, sample.answers),
        "vqa_accuracy": vqa_accuracy(answer, votes) if votes else None,
        "rouge_l": rouge_l(f"{rationale} {answer}", sample.answers),
        "rationale_rouge_l": rouge_l(rationale, references) if references and rationale else None,
        "consistent": consistent,
        "checked_values": None if values is None else values.checked,
        "unsupported_values": None if values is None else values.count,
        "unsupported": None if values is None else [item.value for item in values.unsupported],
        "error_cause": error_cause(
            verdict=verdict.verdict,
            well_formed=well_formed,
            rationale=rationale,
            consistent=consistent,
            unsupported_reasons=None if values is None else {item.reason for item in values.unsupported},
        ),
    }


def _consistent(sample: Sample, rationale: str, answer: str) -> bool | None:
    """Whether the answer is what the rationale concludes; None where that is left open.

    `conclusion` is cautious, as it accuses: it leaves open what has the answer's number somewhere near. For a rate
    that is one-sided, so the right side of a last equation also decides: after "8 - 1 = 7" the answer 1 is another.
    """
    if not rationale:
        return None
    results = compare_conclusion(rationale, answer, sample.answer_type, sample.options)
    if results is not None:
        return results == "agrees"
    last = find_conclusion(rationale)
    if last is None or last.marked or not answer or ASIDE.search(last.text):
        return None
    result = last.text.rpartition("=")[2].strip(" .") if "=" in last.text else ""
    if read_single_quantity(result) is None or set(_DIGITS.findall(result)) & set(_DIGITS.findall(answer)):
        return None
    meant = judge(result, answer, sample.answer_type, options=sample.options)
    return False if meant.verdict == "wrong" and is_numeric(meant.answer_type) else None


def _grounded(sample: Sample, reasoning: str, key: str | None, tolerance: float) -> GroundingResult | None:
    """What of a rationale its chart supports; None without a table, a rationale, or a value that could be judged."""
    table = find_table(sample.meta, key) if reasoning and sample.meta else None
    if table is None:
        return None
    titles = [text for name in ("title", "caption", "subtitle") if isinstance(text := sample.meta.get(name), str)]
    question = read_question(sample.question, table, " ; ".join([*sample.options, *titles]))
    result = check_rationale(reasoning, table, question, tolerance, FEW)
    return result if result.checked else None


def _references(sample: Sample) -> list[str]:
    """The sample's own rationales, where its source has them."""
    for name in REFERENCES:
        value = sample.meta.get(name)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        if result := [text for text in texts if isinstance(text, str) and text.strip()]:
            return result
    return []


def summary(predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Accuracy with its interval, form and length of at least one reply. Undecided is not correct, and counted.

    Lengths are means over the replies whose tokens are counted (some servers don't), None where there is none.
    """
    n = len(predictions)
    right = sum(line["verdict"] == "correct" for line in predictions)
    return {
        "n": n,
        "n_correct": right,
        "n_undecided": sum(line["verdict"] == "undecided" for line in predictions),
        "accuracy": right / n,
        "ci95": intervals.wilson(right, n),
        "mean_rationale_tokens": _mean([line["rationale_tokens"] for line in predictions]),
        "mean_tokens": _mean([line["tokens"] for line in predictions]),
        "format_rate": sum(line["well_formed"] for line in predictions) / n,
        "truncation_rate": sum(line["truncated"] for line in predictions) / n,
    }


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if known else None
