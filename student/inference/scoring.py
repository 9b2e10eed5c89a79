"""Replies of a student, scored as the filter judges traces, and the first metrics over them.

A prediction is a plain mapping, so it can be journaled. This module scores single replies; metrics over many are in
student/evaluation/metrics.py. Does not generate (student/inference/generation.py).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from distill.answers.consistency import ASIDE, compare_conclusion, find_conclusion
from distill.answers.numbers.quantities import read_single_quantity
from distill.answers.verdicts import is_numeric, judge
from distill.grounding.charts.derivation import read_chart
from distill.grounding.check import check_rationale
from distill.grounding.findings import GroundingResult
from distill.grounding.transcript import is_misread
from distill.rationale import SplitText, Style, opened_by_prompts, split
from distill.stats import intervals
from distill.types import Sample
from student.inference.error_causes import error_cause
from student.inference.reply_metrics import BUILT_IN, Prediction, aggregate, metric_values

BY_STYLE = "rationale_tokens_by_style"
FEW = 20
"""Most unsupported values of a rationale that are written out; all are counted."""

_BLANK_LINE = "\n\n"
_UNFINISHED = "unfinished_rationale"
"""In a reply: all of its text is rationale."""
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")


def score_reply(
    sample: Sample,
    reply: Mapping[str, Any],
    *,
    plain: bool,
    relative_tolerance: float,
    table: str | None = None,
    reading_tolerance: float = 0.0,
) -> Prediction:
    """Parse a reply (the fields of generation.Reply) and score it against its question and gold answer.

    `plain`: the rationale is everything before the last blank line, as with filter.rationale = "plain". `table` and
    `reading_tolerance` are filter.grounding's: where the table behind a chart is, how exactly it is to be read.

    `unsupported`: values of the rationale without support in image or question, among the `checked_values` that could
    be judged. `consistent`: whether the answer is what the rationale concludes (distill.answers.consistency). The
    values of the metrics come last. None: it cannot be decided.
    """
    style: Style = "plain" if plain else "think"
    parts = SplitText(reply["text"].strip(), "", "open") if reply.get(_UNFINISHED) else split(reply["text"], style)
    counted = {name: value for name, value in reply.items() if name not in (BY_STYLE, _UNFINISHED)}
    if reply.get(BY_STYLE):  # kept replies may have been counted with another setting
        counted["rationale_tokens"] = reply[BY_STYLE][style]
    rationale, answer = parts.rationale, parts.answer.strip()
    verdict = judge(
        answer,
        sample.answers,
        sample.answer_type,
        relative_tolerance=relative_tolerance,
        options=sample.options,
        question=sample.question,
    )
    grounded = _grounded(sample, rationale, table, reading_tolerance)
    consistent = _consistent(sample, rationale, answer)
    well_formed = parts.well_formed and not reply["truncated"]
    prediction = {
        "sample_id": sample.id,
        "domain": sample.domain,
        "difficulty": sample.meta.get("difficulty"),
        "question": sample.question,
        "gold": list(sample.answers),
        "answer_type": verdict.answer_type,
        **counted,
        "reasoning": rationale,
        "answer": answer,
        "well_formed": well_formed,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "relative_error": verdict.relative_error,
        "consistent": consistent,
        "checked_values": None if grounded is None else grounded.checked,
        "unsupported_values": None if grounded is None else grounded.count,
        "unsupported": None if grounded is None else [item.value for item in grounded.unsupported],
        "error_cause": error_cause(
            verdict=verdict.verdict,
            well_formed=well_formed,
            rationale=rationale,
            consistent=consistent,
            unsupported_reasons=None if grounded is None else {item.reason for item in grounded.unsupported},
            misread=is_misread(rationale, sample.meta),
        ),
    }
    return prediction | metric_values(BUILT_IN, sample, prediction)


def with_unfinished_rationales(replies: Mapping[str, dict[str, Any]], style: Style) -> dict[str, dict[str, Any]]:
    """The replies of one student, by question: those that are cut within their rationale have no answer.

    Such a reply may not show it: a server's reply lacks the thinking tag that the prompt opens, and in plain style
    the blank line has not come. The student's other replies show whether the prompt opened the block: most replies
    close a block that they do not open.
    """
    texts = [reply["text"] for reply in replies.values() if "text" in reply and not reply["truncated"]]
    if style == "think":
        have_rationales = bool(opened_by_prompts(texts))
    else:
        have_rationales = 2 * sum(_BLANK_LINE in text for text in texts) > len(texts)
    if not have_rationales:
        return dict(replies)

    def is_unfinished(reply: Mapping[str, Any]) -> bool:
        text = reply.get("text", "")
        shown = _BLANK_LINE in text if style == "plain" else split(text).state != "none"
        return bool(reply.get("truncated") and text.strip() and not shown)

    def unfinished(reply: dict[str, Any]) -> dict[str, Any]:
        by_style = {BY_STYLE: {**reply[BY_STYLE], style: reply["tokens"]}} if reply.get(BY_STYLE) else {}
        return {**reply, "rationale_tokens": reply["tokens"], **by_style, _UNFINISHED: True}

    return {name: unfinished(reply) if is_unfinished(reply) else reply for name, reply in replies.items()}


def _consistent(sample: Sample, rationale: str, answer: str) -> bool | None:
    """Whether the answer is what the rationale concludes; None where that is left open.

    `conclusion` is cautious, because it accuses: a conclusion with the answer's number near it stays open. For a rate
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
    chart = read_chart(sample, key) if reasoning else None
    if chart is None:
        return None
    result = check_rationale(reasoning, *chart, tolerance, FEW)
    return result if result.checked else None


def summarize_predictions(predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Accuracy with its interval, form and length of at least one reply. Undecided is not correct, and counted.

    Lengths are means over the replies whose tokens are counted (some servers don't), None where there is none.
    """
    n = len(predictions)
    right = sum(prediction["verdict"] == "correct" for prediction in predictions)
    return {
        "n": n,
        "n_correct": right,
        "n_undecided": sum(prediction["verdict"] == "undecided" for prediction in predictions),
        "accuracy": right / n,
        "ci95": intervals.wilson(right, n),
        **{metric.name: aggregate(metric, predictions)[metric.name] for metric in BUILT_IN if metric.while_training},
    }
