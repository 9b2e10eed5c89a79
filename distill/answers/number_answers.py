"""Whether a prediction states the number, percentage or amount of money of the gold answer.

`distill.answers.numbers.compare_quantities` judges one stated quantity; this module decides which number of a text is
the answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import factorial
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.numbers.asked_units import asks_percent
from distill.answers.numbers.compare_quantities import compare_quantities
from distill.answers.numbers.pick_number import (
    explain_undecided_numbers,
    has_repeated_numbers,
    is_another_result,
    lists_candidates,
    numbers_in_words,
    pick_asked_number,
    pick_concluding_number,
    pick_counted_number,
    pick_part_of_total,
    pick_part_or_change,
    pick_stated_number,
    with_ordinals,
)
from distill.answers.numbers.quantities import Quantity, read_quantities, read_single_quantity
from distill.answers.numbers.ratios import (
    compare_ratio_or_angle,
    compare_ratios,
    compare_shares,
    compare_worded_share,
)
from distill.answers.numbers.repeated_numbers import without_context
from distill.answers.numbers.units import unit_factor
from distill.answers.texts import text_answers
from distill.answers.texts.turned_relations import turns_around
from distill.answers.words.word_classes import COLOURS, affirms, sets_apart

_MOST_NUMBERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldAnswer:
    text: str
    answer_type: str
    declared: bool
    quantity: Quantity | None
    tolerance: Decimal
    options: tuple[str, ...]
    asked: Quantity | None = None
    """The quantity with the unit that the question asks for, where that adds something."""
    question: str = ""
    cut: bool = False
    """The gold answer is too long to judge by; `text` is only a part of it."""


_POINTS = re.compile(r"\bpercentage points?\b", re.IGNORECASE)
_SHORT_POINTS = re.compile(r"(?<=\d)\s?(?:%\s?|percent |percent-)?(?:pp|p\.p\.|points?)(?!\w)", re.IGNORECASE)


def compare_number(text: str, gold: GoldAnswer) -> CompareResult:
    if gold.quantity is None:
        return text_answers.compare_texts(text, gold.text)
    if _POINTS.search(gold.text):
        text = _SHORT_POINTS.sub(" percentage points", text)
    if (unit_factor(gold.quantity.unit) or ("",))[0] == "duration":
        text = _ONE_AND_MORE.sub("1 " if any(map(str.isdigit, text)) else "one ", text)
        text = _HOURS_AND_MINUTES.sub(lambda time: f"{time[1]} hours {time[2] or time[3]} minutes", text)
    if gold.quantity.currency == "GBP":
        text = _POUNDS.sub("sterling", text)
    if (shared := compare_shares(text, gold.text)) is not None and shared.verdict == "correct":
        return shared
    if (found := compare_worded_share(text, gold.quantity)) is not None:
        return found
    if (found := compare_ratio_or_angle(text, gold.quantity, gold.question)) is not None:
        return found
    if (named := _NUMBERED.fullmatch(text)) is not None:
        text = named["number"] or named["decorated"]
    for one, other in ((gold.text, text), (text, gold.text)):
        if _MINUS.match(other) and (booked := _BOOKED.fullmatch(one)) is not None:
            amounts = [read_single_quantity(part) for part in (booked[1], _MINUS.sub("", other))]
            same = None not in amounts and len({(item.value, item.currency) for item in amounts if item}) == 1
            return correct("equal") if same else wrong("other_value")
    only_number = read_single_quantity(text)
    if only_number is not None:
        return _compare_one_number(only_number, gold, text)
    if gold.question and (none := _NO_SUCH.match(text)) and none["thing"].lower() in gold.question.lower():
        return correct("none_there") if gold.quantity.value == 0 else undecided("none_there")
    figures = read_quantities(text)
    stated = with_ordinals(figures, text) if gold.quantity.unit == "th" else figures
    if len(stated) > _MOST_NUMBERS:
        return undecided("several_numbers")
    result = _compare_numbers(without_context(stated, text, gold.quantity, gold.question), text, gold)
    if result.verdict == "correct" and len(stated) > len(figures) and _BESIDE.search(text):
        return undecided("beside_another")
    in_words = () if result.verdict == "undecided" else numbers_in_words(figures, text)
    return _compare_with_words(result, figures, in_words, text, gold) if in_words else result


def _compare_with_words(
    result: CompareResult, figures: Sequence[Quantity], in_words: Sequence[Quantity], text: str, gold: GoldAnswer
) -> CompareResult:
    """The finding on the numbers in figures of a text that has others in words: seven of the 12 people are seated."""
    assert gold.quantity is not None
    stated = pick_part_of_total(text, sorted((*figures, *in_words), key=lambda quantity: quantity.start))
    if stated is not None and stated in in_words:
        in_context = _compare_one_number(stated, gold, text)
        return in_context if result.verdict == "wrong" or in_context.verdict == "wrong" else result
    is_named = result.verdict == "wrong" and any(quantity.value == gold.quantity.value for quantity in in_words)
    return undecided("several_numbers") if is_named else result


def _compare_numbers(numbers: tuple[Quantity, ...], text: str, gold: GoldAnswer) -> CompareResult:
    stated_number = pick_stated_number(text, numbers)
    if stated_number is not None and not is_another_result(text, stated_number, gold.question):
        return _compare_one_number(stated_number, gold, text)
    if not numbers:
        return _compare_without_number(text, gold)
    concluding = (
        pick_counted_number(text)
        or pick_concluding_number(text, numbers, gold.question)
        or pick_asked_number(text, numbers, gold.question)
        or pick_part_or_change(text, numbers, gold.question)
    )
    if concluding is not None and (result := _compare_one_number(concluding, gold, text)).verdict == "correct":
        return result
    if all(quantity.negated for quantity in numbers):
        return undecided("negated")
    numbers = tuple(quantity for quantity in numbers if not quantity.negated)
    findings: dict[tuple[Decimal, bool], CompareResult] = {}
    for quantity in numbers:
        finding = _compare_one_number(quantity, gold, text)
        if (quantity.bound or quantity.label) and finding.verdict != "wrong":
            finding = undecided("stated_as_limit" if quantity.bound else "may_be_a_name")
        findings.setdefault((quantity.value, quantity.percent), finding)
    if len(findings) == 1:
        if (factored := _compare_factorial_sign(text, gold)) is not None:
            return factored
        if text_answers.looks_mathematical(text):
            return undecided("expression", can_be_mathematics=True)
        finding = next(iter(findings.values()))
        return (
            undecided("several_numbers")
            if finding.verdict == "correct" and has_repeated_numbers(text, numbers)
            else finding
        )
    return _compare_several_numbers(numbers, findings, gold, text)


_FIGURES = re.compile(r"\d[\d.,]*")
_NUMBERED = re.compile(
    r"(?:(?:the |on )?(?:page|p\.|no\.?|nr\.?|number|ext\.?|extension|x|size|track|gate|platform|room|#) ?)"
    r"(?P<number>\d[\d.,]*)(?: of \d+)?|- ?(?P<decorated>\d+) ?-",
    re.IGNORECASE,
)
"""A number with the name of what it numbers: page 4 of 12, - 17 -, x3342."""
_BOOKED = re.compile(r"\(([$€£]?\d[\d.,]{2,})\)")
"""A negative number of a table."""
_MINUS = re.compile(r"(?:-|minus |negative )\s?", re.IGNORECASE)
_HOURS_AND_MINUTES = re.compile(
    r"\b(\d{1,3})(?::([0-5]\d)\s?(?:hours?|hrs?|h)|\s?h\s?([0-5]\d)(?:\s?min(?:utes?)?)?)\b", re.IGNORECASE
)
"""3:20 hours, a duration."""
_BESIDE = re.compile(
    r"\b(?:ahead|after|before|behind|between|beyond|every|near|next|outside|past|least|lowest|smallest|worst|days?"
    r"|\d+ seconds?)\b",
    re.IGNORECASE,
)
"""Words with which an ordinal hardly says what is asked: one place behind the tenth, the second lowest."""
_POUNDS = re.compile(r"\bpounds?\b", re.IGNORECASE)
_ONE_AND_MORE = re.compile(r"\b(?:an?|one) (?=(?:year|month|week|day|hour|minute) and (?!an?\b))", re.IGNORECASE)
"""An hour and thirty minutes."""
_FOOD_CALORIES: Final = frozenset({"cal", "calorie", "kcal", "kilocalorie"})
"""A calorie of food is a kilocalorie."""

_NONE = re.compile(
    r"(?:there (?:is|are|was|were) )?(?:in |at )?"
    r"(?:none|no|there (?:is|are|was|were)(?:n['’]t| not) any)\b(?! of (?:the above|these))",
    re.IGNORECASE,
)

_NO_SUCH = re.compile(r"(?:there (?:is|are) )?no (?P<thing>[a-z]{3,}),", re.IGNORECASE)
"""No buses, one truck."""
_ONE = re.compile(r"(?:there (?:is|was) )?(?:only |just |exactly )?(?:a|one) (?:single|lone)\b", re.IGNORECASE)


def _compare_without_number(text: str, gold: GoldAnswer) -> CompareResult:
    digits = re.findall(r"\d", text)
    if digits and digits == re.findall(r"\d", gold.text):
        return undecided("unreadable_number")
    result = text_answers.without_number(text)
    assert gold.quantity is not None
    counted = gold.question and _COUNTS.search(gold.question) and not gold.quantity.percent
    if counted and _NONE.match(text) and affirms(_NONE.sub("", text)):
        return correct("none_there") if gold.quantity.value == 0 else wrong("none_there")
    if counted and _ONE.match(text) and affirms(text):
        return correct("equal") if gold.quantity.value == 1 else wrong("other_value")
    if result.reason == "none_there":
        return correct("none_there") if gold.quantity.value == 0 else wrong("none_there")
    return result


def compare_factorial(text: str, gold: GoldAnswer) -> CompareResult | None:
    """3628800 for a gold of 10!; None when the gold is no factorial."""
    match = re.fullmatch(r"(\d\d?)!", gold.text)
    number = read_single_quantity(text)
    if match is None or number is None:
        return None
    if number.value == factorial(int(match[1])):
        return correct("same_factorial")
    return undecided("factorial_or_emphasis") if number.value == int(match[1]) else wrong("other_value")


def _compare_factorial_sign(text: str, gold: GoldAnswer) -> CompareResult | None:
    """5! is 120, but it may be 5 with emphasis."""
    match = re.fullmatch(r"(\d\d?)!", text)
    if match is None:
        return None
    assert gold.quantity is not None
    if gold.quantity.value == factorial(int(match[1])):
        return correct("same_factorial")
    return correct("equal") if gold.quantity.value == int(match[1]) else wrong("other_value")


def _compare_several_numbers(
    numbers: Sequence[Quantity], findings: Mapping[tuple[Decimal, bool], CompareResult], gold: GoldAnswer, text: str
) -> CompareResult:
    """Several numbers: the one with the gold's unit if it is the only one, else the question stays open."""
    assert gold.quantity is not None
    sign = (gold.quantity.percent, gold.quantity.currency, gold.quantity.unit)
    if any(sign):
        alike = {
            (quantity.value, quantity.percent)
            for quantity in numbers
            if (quantity.percent, quantity.currency, quantity.unit) == sign and not quantity.bound
        }
        if len(alike) == 1 and not (sets_apart(text.replace("(or ", "(")) or "→" in text or lists_candidates(text)):
            return findings[alike.pop()]
    mathematical = text_answers.looks_mathematical(text)
    open_reasons = {finding.reason for finding in findings.values() if finding.verdict != "wrong"}
    if open_reasons <= {"ambiguous_separator", "rounded"}:
        if re.findall(r"\d", text) == re.findall(r"\d", gold.text) or _is_same_ratio(text, gold):
            return undecided("unreadable_number")
        open_still = explain_undecided_numbers(text, numbers, gold.quantity.value)
        if open_still is not None:
            return replace(open_still, can_be_mathematics=mathematical)
        return wrong("none_of_several_numbers", can_be_mathematics=mathematical)
    return undecided("several_numbers", can_be_mathematics=mathematical)


def _is_same_ratio(text: str, gold: GoldAnswer) -> bool:
    """1:4 for a gold of 1/4."""
    finding = compare_ratios(text, gold.text)
    return finding is not None and finding.verdict == "correct"


def _compare_one_number(predicted: Quantity, gold: GoldAnswer, text: str) -> CompareResult:
    """One number against the gold one, in the context of the question."""
    assert gold.quantity is not None
    rate = predicted.unit.removeprefix("per ")
    if rate != predicted.unit and not gold.quantity.unit and rate in gold.question.lower():
        predicted = replace(predicted, unit="", written_unit="")
    if {predicted.unit, gold.quantity.unit} <= _FOOD_CALORIES and "calorie" in gold.question.lower():
        predicted = replace(predicted, unit=gold.quantity.unit)
    result = _compare_in_context(predicted, gold, text)
    if gold.question and abs(predicted.value) == abs(gold.quantity.value) and _FALLS.search(text):
        if result.reason in ("sign_in_words", "other_value") and not _FALLS.search(gold.question):
            return correct("sign_in_words")  # shrank by 7.3%, for -7.3
        if result.verdict == "correct" and predicted.value > 0 and _CHANGES.search(gold.question):
            return result if _FALLS.search(gold.question) else undecided("sign_in_words")
    # A bare 0.5 for "what percentage" may be half a percent.
    may_differ = result.reason == "rounded" or (
        result.reason == "percent_or_share" and asks_percent(gold.question) and not asks_percent(text)
    )
    period = _PERIOD.search(gold.question)
    if result.reason == "amount_or_rate" and period and period[1].lower().replace("dai", "day") != rate[:3]:
        return result  # per day, for the hourly rate
    is_precise = len(predicted.value.as_tuple().digits) >= _SURE_DIGITS or not may_differ
    if gold.question and is_precise and (result.verdict, result.reason) in _SETTLED_BY_A_QUESTION:
        return replace(result, verdict="correct")
    if result.verdict == "correct" and _counts_another_colour(text, gold.question):
        return undecided("other_colour")
    if result.verdict == "correct" and turns_around(text, gold.question):
        return wrong("other_sign", result.relative_error)
    if result.verdict != "wrong" or gold.quantity.unit or gold.quantity.currency or gold.quantity.percent:
        return result
    if (
        gold.asked is None
        and predicted.decimals is None
        and _FIGURES.findall(text[predicted.start : predicted.end]) == [gold.text]
    ):
        # 5.9 billion dollars for 5.9 of a chart in billions
        is_sure = gold.quantity.decimals and gold.question and _SCALE.search(gold.question) is None
        return correct("scale_added") if is_sure else undecided("scale_added")
    is_rounded = predicted.value == round(gold.quantity.value) and abs(predicted.value) >= _SURELY_ROUNDED
    before = text[max(0, predicted.start - _LONGEST_HEDGE) : predicted.start]
    return undecided("rounded") if is_rounded and _HEDGED.search(before) else result


_FALLS = re.compile(
    r"\b(?:f[ae]ll(?:s|en|ing)?|drop(?:s|ped)?|declin(?:es?|ed|ing)|decreas(?:es?|ed|ing)|shr[aiu]nk|lost|loss|down"
    r"|reduc(?:ed|tion))\b|下降|减少|降低",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\b(?:chang(?:e|ed|es)|grow(?:th|s)?|grew|increas(?:e|ed)|rise|rose|gain(?:ed)?)\b|增长", re.IGNORECASE
)


def _counts_another_colour(text: str, question: str) -> bool:
    asked = COLOURS & {*text_answers.tokens(question)}
    said = COLOURS & {*text_answers.tokens(text)} if asked else set()
    return bool(said) and not said & asked


_SETTLED_BY_A_QUESTION: Final = frozenset(
    ("undecided", reason) for reason in ("rounded", "rank_or_amount", "amount_or_rate", "percent_or_share")
)
"""What two bare answers leave open, but not a question with the same digits: 3 and third, 62.5% and 0.625."""
_SURE_DIGITS: Final = 3
_PERIOD = re.compile(r"\b(hou(?=r)|dai(?=ly)|day|wee(?=k)|mon(?=th)|yea(?=r))", re.IGNORECASE)
_SCALE = re.compile(r"hundred|thousand|illion", re.IGNORECASE)
_HEDGED = re.compile(
    r"(?:\b(?:about|around|roughly|approximately|nearly|almost|some|etwa|rund|environ|unos|circa|около)|约|約|~|≈)\s?$",
    re.IGNORECASE,
)
_LONGEST_HEDGE: Final = 24
_SURELY_ROUNDED: Final = 10


def _compare_in_context(predicted: Quantity, gold: GoldAnswer, text: str) -> CompareResult:
    assert gold.quantity is not None
    if gold.asked is not None and (result := _compare_with_asked(predicted, gold.asked, gold, text)) is not None:
        return result
    if gold.text[:1] == "0" and gold.text.isdigit() and len(gold.text) > 1 and not text.startswith("0"):
        if text[predicted.start : predicted.start + len(gold.text)] == gold.text:
            return correct("same_digits")
        return undecided("leading_zeros")  # 007 is a name
    measured = gold.question and gold.asked is None and not _COUNTS.search(gold.question)
    kind = gold.answer_type if gold.declared or measured or gold.answer_type != "number" else ""
    return compare_quantities(predicted, gold.quantity, kind, gold.tolerance, text)


_COUNTS = re.compile(
    r"\b(?:how many|number of|wie ?viele|combien|cu[aá]nt[oa]s|quant[ieoa]s?)\b|多少|几|сколько", re.IGNORECASE
)


def _compare_with_asked(predicted: Quantity, asked: Quantity, gold: GoldAnswer, text: str) -> CompareResult | None:
    """Against what the question asks for; None where only the bare number can be compared."""
    assert gold.quantity is not None
    if asked.percent and predicted.percent:
        predicted = replace(predicted, unit="")
    if asked.unit in _FOOD_CALORIES and predicted.unit in _FOOD_CALORIES:
        predicted = replace(predicted, unit=asked.unit)
    result = compare_quantities(predicted, asked, "", gold.tolerance, text)
    if result.verdict == "correct":
        return result
    has_scale = _SCALE.search(text[predicted.start : predicted.end]) is not None
    if has_scale and predicted.value == gold.quantity.value != asked.value:
        return undecided("other_scale")  # 8.4 thousand for 8400 of "in thousands"
    both_known = asked.unit and unit_factor(predicted.unit) is not None
    return result if both_known or (asked.percent and predicted.percent) else None
