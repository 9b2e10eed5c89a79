"""Answers of several items: which items there are, and whether two lists have the same ones.

Order counts only for pairs and tuples of numbers, such as points. How two items compare is the caller's.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from distill.answers.answer_types import items
from distill.answers.compare import CompareResult, correct, undecided, wrong
from distill.answers.numbers import single

Compare = Callable[[str, str], CompareResult]
"""Judges a stated item by a gold one."""
_SPACED_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?: -?\d+(?:\.\d+)?)+")
_SPAN = re.compile(r"\d+(?:\.\d+)?\s?(?:-|to)\s?\d+(?:\.\d+)?")


def compare(text: str, gold: str, judge_item: Compare) -> CompareResult:
    """A stated list against the gold one."""
    meant, said = items(gold), items(text)
    numeric = all(single(item) for item in meant)
    if len(said) == 1 < len(meant) and numeric:
        if _SPACED_NUMBERS.fullmatch(text):
            said = text.split()
        elif _SPAN.fullmatch(text):
            return undecided("range_or_items")
    if len(said) != len(meant):
        return _of_other_lengths(said, meant, len(text.split()) <= len(gold.split()), judge_item)
    brackets = (text[:1], gold[:1])
    if numeric and len(meant) == 2 and sorted(brackets) == ["(", "["]:
        in_order = _all(judge_item(one, other) for one, other in zip(said, meant, strict=True))
        return undecided("interval_or_pair") if in_order.verdict == "correct" else in_order
    if numeric and gold[:1] == "(" and gold[-1:] == ")":
        return _all(judge_item(one, other) for one, other in zip(said, meant, strict=True))
    return _in_any_order(said, meant, judge_item)


def _in_any_order(said: Sequence[str], meant: Sequence[str], judge_item: Compare) -> CompareResult:
    findings: list[CompareResult] = []
    left = list(meant)
    for one in said:
        judged = [(judge_item(one, other), other) for other in left]
        for verdict in ("correct", "undecided", "wrong"):
            chosen = next((pair for pair in judged if pair[0].verdict == verdict), None)
            if chosen is not None:
                findings.append(chosen[0])
                left.remove(chosen[1])
                break
    return _all(findings)


def _of_other_lengths(
    said: Sequence[str], meant: Sequence[str], is_short: bool, judge_item: Compare
) -> CompareResult:
    """Surely wrong when nothing agrees, when items are missing, or when items are added that are surely none."""
    verdicts = [{judge_item(one, other).verdict for other in meant} for one in said]
    if all(found == {"wrong"} for found in verdicts):
        return wrong("other_items")
    if len(said) < len(meant):
        return wrong("other_length") if is_short else undecided("other_length")
    plain = all(len(item.split()) <= 3 for item in said) and all("undecided" not in found for found in verdicts)
    added = plain and sum("correct" in found for found in verdicts) == len(meant)
    return wrong("other_length") if added else undecided("other_length")


def _all(findings: Iterable[CompareResult]) -> CompareResult:
    verdicts = {finding.verdict for finding in findings}
    if verdicts == {"correct"}:
        return correct("same_items")
    return wrong("other_items") if "wrong" in verdicts else undecided("items_left_open")
