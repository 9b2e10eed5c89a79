"""Answers of several items: which items there are, and whether two lists have the same ones.

Order counts only for pairs and tuples of numbers, such as points. The caller compares two items.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations, pairwise, permutations
from typing import Final

from distill.answers.answer_types import items
from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.numbers.quantities import read_quantities, read_single_quantity
from distill.answers.words.tokens import MONTHS, WEEKDAYS, only_place, tokens
from distill.answers.words.word_classes import affirms

Compare = Callable[[str, str], CompareResult]
"""Judges a stated item by a gold one."""
_SPACED_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?: -?\d+(?:\.\d+)?)+")
OTHER_ORDER: Final = "other_order"
_MOST_COMPARISONS: Final = 1000
"""Most comparisons of one item with another; each takes some 40 microseconds."""
ASKS_FOR_A_POINT = re.compile(r"\b(?:coordinates?|vertex|ordered pair|vector|point)\b", re.IGNORECASE)
BRACKETED = re.compile(r"[\[\](){}]")
LISTED = re.compile(
    r"^(?:both |all )?(?:the )?(?:options|choices|answers|letters|items) (?:are )?|^both |^all (?=\(?[A-Z]\b)"
    r"|(?<=\w) (?:are|were) (?:both |all )?(?:correct|right|true)\.?$",
    re.IGNORECASE,
)
"""The words around a list: Both B and D are correct."""
AND_ALSO = re.compile(r",? (?:as well as|and also|along with|together with|plus) (?=\S)", re.IGNORECASE)
"""Other words for "and" between the items of a list."""
_SPAN = re.compile(r"\d+(?:\.\d+)?\s?(?:-|to)\s?\d+(?:\.\d+)?")


_COUNT: Final = r"(?:top |first |last |other )?(two|three|four|five|six)"
_ASKS_FOR_SEVERAL = re.compile(
    rf"\b(?:which|what) {_COUNT} \w"
    rf"|\b(?:list|name|give|identify|(?:which|what|who) (?:are|were)) (?:the )?(?:names of the )?{_COUNT} "
    r"(?:\w+(?<!ing) ){0,2}?\w+(?<!ing)"
    r"(?:[?.]|$| (?:in|on|of|at|that|which|with|for|from|by|\w+(?:ed|wn|en))\b)",
    re.IGNORECASE,
)
"""Which two drinks are on the menu? What are the three causes listed? But not: What are the two men holding?"""
_COUNTS: Final = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def whole_list(golds: Sequence[str], question: str) -> str | None:
    """Gold answers as one list where the question asks for as many things; None where each is an answer by itself."""
    asked = _ASKS_FOR_SEVERAL.search(question) if len(golds) > 1 else None
    if asked is None or _COUNTS[(asked[1] or asked[2]).lower()] != len(golds):
        return None
    words = [{*tokens(gold)} for gold in golds]
    if any(one <= other for one, other in permutations(words, 2)) or any(len(items(gold)) > 1 for gold in golds):
        return None  # two spellings of one answer, or whole lists
    return "; ".join(golds)


def compare(text: str, gold: str, judge_item: Compare, *, ordered: bool = False, question: str = "") -> CompareResult:
    """A stated list against the gold one; a point is `ordered`, and what the `question` asks for in turn."""
    gold_items, stated_items = items(gold), items(text)
    if _SENTENCES.search(text) and len(stated_items) != len(gold_items):
        stated_items = [part for part in _SENTENCES.split(text) if part]
    if _is_span_of_calendar(text, gold_items):
        return correct("same_items")
    if len(set(stated_items)) * len(set(gold_items)) > _MOST_COMPARISONS:
        return undecided("too_many_items")
    judge_item = cache(judge_item)
    numeric = all(read_single_quantity(item) for item in gold_items)
    if len(stated_items) == 1 < len(gold_items) and numeric:
        if _SPACED_NUMBERS.fullmatch(text):
            stated_items = text.split()
        elif _SPAN.fullmatch(text):
            return undecided("range_or_items")
    in_turn = _asks_in_turn(question, numeric)
    labelled = _same_labelled_numbers(text, gold_items, question) if in_turn and numeric else None
    if labelled is not None:
        return correct("same_items") if labelled else undecided(OTHER_ORDER)
    if len(stated_items) != len(gold_items):
        return _compare_other_lengths(stated_items, gold_items, len(text.split()) <= len(gold.split()), judge_item)
    brackets = (text[:1], gold[:1])
    if numeric and len(gold_items) == 2 and "{" in brackets and {*brackets} & {"(", "["}:
        return undecided("interval_or_pair")
    if numeric and (ordered or (gold[:1] == "(" and gold[-1:] == ")")):
        return _combine_item_results(
            judge_item(stated_item, gold_item)
            for stated_item, gold_item in zip(stated_items, gold_items, strict=True)
        )
    result = _compare_in_any_order(stated_items, gold_items, judge_item)
    if result.verdict != "correct":
        return result
    labelled = None if numeric else _same_labelled_items(text, gold_items, question)
    if labelled is False:
        return undecided(OTHER_ORDER)
    if labelled is None and (in_turn or _IN_ORDER.search(question)):
        pairs = zip(stated_items, gold_items, strict=True)
        if _combine_item_results(judge_item(item, meant) for item, meant in pairs).verdict != "correct":
            return undecided(OTHER_ORDER)
    return result


_SENTENCES = re.compile(r"(?<=[^\W\d_]{2})\.\s+(?=[A-Z])")
_IN_TURN = re.compile(
    r"\brespectively\b|\b(?:which|what|who|how)\b.*\band (?:in )?(?:which|what|who|how)\b", re.IGNORECASE | re.DOTALL
)
_CALENDARS: Final = (tuple(MONTHS), tuple(WEEKDAYS))
_CALENDAR_SPAN = re.compile(
    r"(?:(?:from|between|in) )?(?P<first>[a-z]{3,9})\.?\s?(?:to|through|thru|until|till|and|-|–)\s?"
    r"(?P<last>[a-z]{3,9})\.?",
    re.IGNORECASE,
)


def _asks_in_turn(question: str, numeric: bool) -> bool:
    """Whether a question asks for several things in turn, so that the order of the items matters."""
    return _IN_TURN.search(question) is not None or (numeric and " and " in question)


def _same_labelled_numbers(text: str, gold_items: Sequence[str], question: str) -> bool | None:
    """Whether each name of the question has its gold number: Android 71%, iOS 27%; None without such names."""
    said = [(item.value, item.percent) for item in read_quantities(text) if item.affirmed]
    meant = [(item.value, item.percent) for part in gold_items if (item := read_single_quantity(part)) is not None]
    if len(said) != len(meant) or not affirms(text):
        return None
    asked, words = tokens(question), tokens(text)
    places = [asked.index(word) for word in words if asked.count(word) == words.count(word) == 1 and word.isalpha()]
    values, meant_values = ([value for value, _ in side] for side in (said, meant))
    if len(places) != len(meant):
        return True if values == meant_values and len(places) > len(meant) and places == sorted(places) else None
    return [value for _, value in sorted(zip(places, values, strict=True))] == meant_values


def _same_labelled_items(text: str, gold_items: Sequence[str], question: str) -> bool | None:
    """Whether each word of the question has its gold item: red for high, green for low; None without such words."""
    if " and " not in question or len(gold_items) > _MOST_LABELLED:
        return None
    words, asked = tokens(text[:_LONGEST]), tokens(question[:_LONGEST])
    found = [only_place(tokens(item), words) for item in gold_items]
    items_at = [place for place in found if place is not None]
    of_items = {word for item in gold_items for word in tokens(item)}
    labels = [
        place
        for place, word in enumerate(words)
        if words.count(word) == asked.count(word) == 1 and word.isalpha() and word not in _SMALL | of_items
    ]
    if len(items_at) < len(gold_items) or len(labels) > _MOST_LABELS:
        return None
    meant = [words[place] for place in sorted(items_at)]
    assigned = []
    for chosen in combinations(labels, len(items_at)):
        turns = [place in chosen for place in sorted((*chosen, *items_at))]
        if all(one != other for one, other in pairwise(turns)):
            ranked = sorted(zip(chosen, meant, strict=True), key=lambda pair: asked.index(words[pair[0]]))
            assigned.append([item for _, item in ranked] == [words[place] for place in items_at])
    return any(assigned) if assigned else None


_LONGEST: Final = 400
_MOST_LABELLED: Final = 3
_MOST_LABELS: Final = 8
_SMALL: Final = frozenset({"and", "is", "are", "was", "were", "of", "for", "in", "on", "do", "does", "which", "what"})
_IN_ORDER = re.compile(
    r"\bin (?:\w+ ){0,2}order\b|\border of\b|\brank(?:ed|ing)?\b|\bsequence\b|\bchronological"
    r"|\bfrom (?:the )?[a-z]+ to (?:the )?[a-z]+\b",
    re.IGNORECASE,
)


def _is_span_of_calendar(text: str, gold_items: Sequence[str]) -> bool:
    """June to August for June, July and August."""
    span = _CALENDAR_SPAN.fullmatch(text.strip(" ."))
    if span is None or " and " in text:
        return False
    ends = [span[name].casefold()[:3] for name in ("first", "last")]
    for calendar in _CALENDARS:
        short = [name[:3] for name in calendar]
        if {*ends} <= {*short}:
            first, last = map(short.index, ends)
            return [item.casefold()[:3] for item in gold_items] == short[first : last + 1]
    return False


_JOINED = re.compile(r",|/| (?:and|or|&) ")


def compare_parts(text: str, gold: str) -> CompareResult | None:
    """Compare parts in any order, also where they are no plain list: women 48%, men 52%; x < 2 or x > 5."""
    if not _JOINED.search(gold) or text[:1] in "([{" or gold[:1] in "([{":
        return None
    if " or " in gold:
        if " or " not in text:
            return None
        text, gold = text.replace(" or ", ", "), gold.replace(" or ", ", ")
    parts, gold_parts = (sorted(map(tokens, items(answer))) for answer in (text, gold))
    same = len(gold_parts) > 1 and all(gold_parts) and parts == gold_parts and text != gold
    return correct("same_items") if same else None


def _compare_in_any_order(
    stated_items: Sequence[str], gold_items: Sequence[str], judge_item: Compare
) -> CompareResult:
    findings: list[CompareResult] = []
    remaining = list(gold_items)
    for item in stated_items:
        judged = [(judge_item(item, gold_item), gold_item) for gold_item in remaining]
        for verdict in ("correct", "undecided", "wrong"):
            chosen = next((pair for pair in judged if pair[0].verdict == verdict), None)
            if chosen is not None:
                findings.append(chosen[0])
                remaining.remove(chosen[1])
                break
    return _combine_item_results(findings)


def _compare_other_lengths(
    stated_items: Sequence[str], gold_items: Sequence[str], is_short: bool, judge_item: Compare
) -> CompareResult:
    """Surely wrong if no item agrees, if items are missing, or if added items are surely wrong."""
    verdicts = [
        {judge_item(stated_item, gold_item).verdict for gold_item in gold_items} for stated_item in stated_items
    ]
    if all(item_verdicts == {"wrong"} for item_verdicts in verdicts):
        return wrong("other_items")
    if len(stated_items) < len(gold_items):
        is_short = is_short and all("correct" in item_verdicts for item_verdicts in verdicts)
        return wrong("other_length") if is_short else undecided("other_length")
    plain = all(len(item.split()) <= 3 for item in stated_items) and all(
        "undecided" not in item_verdicts for item_verdicts in verdicts
    )
    added = plain and sum("correct" in item_verdicts for item_verdicts in verdicts) == len(gold_items)
    return wrong("other_length") if added else undecided("other_length")


def _combine_item_results(findings: Iterable[CompareResult]) -> CompareResult:
    verdicts = {finding.verdict for finding in findings}
    if verdicts == {"correct"}:
        return correct("same_items")
    return wrong("other_items") if "wrong" in verdicts else undecided("items_left_open")
