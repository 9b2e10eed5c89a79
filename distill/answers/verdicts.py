"""Decides whether a prediction states the gold answer, with three verdicts: correct, wrong, undecided.

The verdict is undecided if the two texts are not enough (50% or 0.5? 3:30 in which half of the day?); do not count it
as wrong. The type of the gold answer selects the comparison; a type that is not given is inferred and recorded. A
numeric answer has a relative error, so callers can choose the tolerance.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, reduce
from typing import Final

from distill.answers import choices, lists, math_worker, taken_back, user_types
from distill.answers.answer_types import infer_type as infer_type
from distill.answers.argument_texts import Text, checked_tolerance, gold_texts, option_texts, text_of, type_text
from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.conclusions import conclusions
from distill.answers.dates.dates_and_times import compare_dates, compare_time_ranges, compare_times, is_near_a_date
from distill.answers.declined import compare_declined, declines
from distill.answers.final_answer import MAX_CHARACTERS, FinalAnswer, final_answer
from distill.answers.number_answers import GoldAnswer, compare_factorial, compare_number
from distill.answers.numbers.asked_units import with_asked_unit
from distill.answers.numbers.expressions import readings
from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.quantities import read_single_quantity
from distill.answers.numbers.ratios import compare_ratios, compare_shares
from distill.answers.numbers.solution_sets import compare_intervals, compare_limits
from distill.answers.texts import text_answers
from distill.answers.texts.answer_sentences import stated_parts
from distill.answers.texts.asked_roles import is_about_another
from distill.answers.texts.yes_or_no import is_polar
from distill.answers.year_answers import compare_year
from distill.errors import DataError
from distill.question_options import read_options

_LONGEST_EXPRESSIONS: Final = 400
_FEW_WORDS: Final = 3  # with more a text may say an option in other words


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reason (a snake_case constant) and the answer type that was used."""

    verdict: str
    relative_error: float | None
    reason: str
    answer_type: str


def judge(
    prediction: Text,
    gold: Text | Iterable[Text | None] | None,
    answer_type: str | None = None,
    *,
    relative_tolerance: float = 0.0,
    options: Iterable[Text] | None = None,
    question: str = "",
) -> Judgement:
    """Compare a prediction with the accepted gold answers.

    `gold` may hold several accepted answers, of which one must agree; if the question asks for as many things, they
    are one list. `answer_type` is one of number, year, percent, money, time, ratio, choice, list, date, text, else
    inferred from the first gold answer. Numbers, percents and money within `relative_tolerance` of the gold are
    correct. `options` are the texts of choices A, B, C ...; without them, the options in the question's text count.
    `question` gives the unit of a bare number ("in million dollars"), and the words that a sentence only repeats.
    Numbers and dates count as their texts, None as no gold answer. DataError: an argument of another type.
    """
    said, asked, golds = text_of("prediction", prediction), text_of("question", question), gold_texts(gold)
    tolerance, offered, kind = checked_tolerance(relative_tolerance), option_texts(options), type_text(answer_type)
    if asked and (in_text := read_options(asked)).texts:
        offered = offered or in_text.texts
        if in_text.numbered and offered == in_text.texts and kind in (None, "choice"):
            said, *golds = (choices.with_letter(text, offered) for text in (said, *golds))
    if kind in (None, *TYPES) and (whole := lists.whole_list(golds, asked)) is not None:
        golds, kind = [whole], "list"
    return _judge(said, golds, kind, tolerance, offered, ask_worker=True, question=asked)


def equivalent(a: Text, b: Text, answer_type: str | None = None, *, options: Iterable[Text] | None = None) -> bool:
    """Whether two answers surely mean the same; cheap and symmetric, for clustering the answers of traces.

    With the `options` of a choice, a letter and the text of its option are the same answer.
    """
    a, b, options = text_of("a", a), text_of("b", b), option_texts(options)
    if a == b:
        return True
    if options and answer_type in (None, "choice"):
        offered = tuple(map(normalise, options[: len(choices.LETTERS)]))
        letters_a, letters_b = (
            choices.find_chosen_letters(normalise(final_answer(text).text), offered) for text in (a, b)
        )
        if len(letters_a) == len(letters_b) == 1:
            return letters_a == letters_b
    forward = _judge(a, b, answer_type, 0.0, None, ask_worker=False)
    holds_backwards = forward.answer_type in _ALIKE_BACKWARDS.get(forward.reason, ()) and not stated_parts(b)
    if holds_backwards and (answer_type is not None or infer_type(a) == forward.answer_type):
        return False
    return forward.verdict == "correct" or _judge(b, a, answer_type, 0.0, None, ask_worker=False).verdict == "correct"


_ALIKE_BACKWARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "other_words": ("text",),
    "other_value": ("number", "percent", "money"),
    "other_choice": ("choice",),
    "other_year": ("year",),
}
"""Refusals that hold in either direction, by the type of both answers."""


def _judge(
    prediction: str,
    gold: str | Sequence[str],
    answer_type: str | None,
    tolerance: float,
    options: Sequence[str] | None,
    *,
    ask_worker: bool,
    question: str = "",
) -> Judgement:
    golds = [text for text in ([gold] if isinstance(gold, str) else gold) if text.strip()]
    if not golds:
        return _judgement(undecided("no_gold"), answer_type or "text")
    if answer_type is not None:
        known_type(answer_type)
    offered = tuple(options or ())[: len(choices.LETTERS)]
    kind = answer_type or choices.infer_type_among(golds[0], offered)
    if kind == "text" and offered:
        kind = choices.infer_type_among(golds[0], offered) if len(golds[0].strip("().: ")) > 1 else kind
        kind = "choice" if kind == "choice" else "text"
    judgements: list[Judgement] = []
    for text in golds:
        goal = _read_gold(text, kind, answer_type is not None, tolerance, offered, question)
        finding = _compare(prediction, goal, ask_worker=ask_worker) if prediction != text else _same_text(goal)
        judgements.append(_judgement(finding, kind))
        if finding.verdict == "correct":
            return judgements[-1]
    return reduce(_better_judgement, judgements)


def _judgement(finding: CompareResult, answer_type: str) -> Judgement:
    return Judgement(
        verdict=finding.verdict,
        relative_error=finding.relative_error,
        reason=finding.reason,
        answer_type=answer_type,
    )


def _better_judgement(left: Judgement, right: Judgement) -> Judgement:
    if left.verdict != right.verdict:
        return left if left.verdict == "undecided" else right
    errors = (error if (error := item.relative_error) is not None else float("inf") for item in (left, right))
    return left if next(errors) <= next(errors) else right


@lru_cache(maxsize=8192)
def _read_gold(
    text: str, kind: str, declared: bool, tolerance: float, options: tuple[str, ...], question: str
) -> GoldAnswer:
    final = final_answer(text)
    text = _normalise_bounded(final.text)
    quantity = read_single_quantity(text)
    return GoldAnswer(
        text=text,
        answer_type=kind,
        declared=declared,
        quantity=quantity,
        asked=with_asked_unit(quantity, question) if kind in ("number", "money") else None,
        question=question,
        tolerance=Decimal(repr(float(tolerance))),
        options=tuple(_normalise_bounded(final_answer(option).text) for option in options),
        cut=final.cut,
    )


def _compare(prediction: str, gold: GoldAnswer, *, ask_worker: bool) -> CompareResult:
    if not prediction.strip():
        return wrong("empty_prediction")
    result = undecided("too_long") if gold.cut else _compare_said(prediction, gold, ask_worker=ask_worker)
    if (rest := taken_back.after_correction(prediction)) is not None:
        after = _compare_said(rest, gold, ask_worker=False) if rest else undecided("taken_back")
        result = taken_back.with_correction(result, after, rest)
    return result


def _compare_said(prediction: str, gold: GoldAnswer, *, ask_worker: bool) -> CompareResult:
    final = final_answer(prediction)
    doubt = taken_back.reason_to_doubt(final.text, gold, numeric=is_numeric(gold.answer_type))
    result = taken_back.with_doubt(_compare_final(final, gold, ask_worker=ask_worker), doubt)
    is_open = result.verdict != "correct" and result.reason not in _OF_THE_WHOLE and not declines(final.text)
    if is_open and known_type(gold.answer_type).worded:
        result = taken_back.with_doubt(_compare_stated_parts(final, gold) or result, doubt)
    if is_open and result.verdict != "correct":
        result = _compare_conclusion(final, gold) or result
    if result.verdict != "correct" and (text_answers.looks_mathematical(gold.text) or _SIGN.search(gold.text)):
        result = taken_back.with_doubt(_compare_readings(final, gold, ask_worker=ask_worker) or result, doubt)
    # What is left out may take back what agrees.
    return undecided("too_long") if final.cut and result.verdict == "correct" else result


def _compare_final(final: FinalAnswer, gold: GoldAnswer, *, ask_worker: bool) -> CompareResult:
    text = _normalise_bounded(_NEW_LINE.sub("; ", final.text) if gold.answer_type == "list" else final.text)
    text = _ENUMERATED.sub("", text) if gold.answer_type == "text" and not gold.text[:1].isdigit() else text
    if text == gold.text:
        return _same_text(gold)
    stated = taken_back.without_denied(text) if gold.answer_type in taken_back.CONTRASTED_TYPES else text
    result = known_type(gold.answer_type).judge(stated, gold)
    if declines(text) or declines(gold.text):
        return compare_declined(result, text, gold)
    ask_worker = ask_worker and len(final.text) + len(gold.text) <= _LONGEST_EXPRESSIONS
    if ask_worker and result.verdict != "correct" and result.relative_error is None and result.can_be_mathematics:
        voted = math_worker.vote_on_expressions(final.text, gold.text)
        in_degrees = gold.quantity is not None and gold.quantity.unit in ("°", "degree")  # may be stated in radians
        if voted is not None and not (voted.verdict == "wrong" and in_degrees):
            return voted
    return result


_OF_THE_WHOLE: Final = frozenset({text_answers.ROLES_TURNED, lists.OTHER_ORDER})
"""Findings that a part of a sentence would hide: who acts, and which item belongs to which thing asked for."""


def _compare_stated_parts(final: FinalAnswer, gold: GoldAnswer) -> CompareResult | None:
    """The gold answer as what a sentence states; None if no stated part equals it."""
    if is_polar(gold.text) or len(final.text) <= len(gold.text):
        return None
    if is_about_another(final.text, gold.text, gold.question):
        return None
    affirmed = taken_back.without_denied(final.text)
    for part in filter(None, (*stated_parts(final.text), affirmed, *stated_parts(affirmed))):
        normalised_part = _normalise_bounded(final_answer(part).text)
        if (result := known_type(gold.answer_type).judge(normalised_part, gold)).verdict == "correct":
            return result
    return None


_SIGN = re.compile("[<>≤≥=]")
_ENUMERATED = re.compile(r"^\d{1,2}[.)] (?=[^\W\d_]{2})")
"""1. Call to order."""


_OF_WORDS: Final = frozenset({"text", "list", "choice"})


def _compare_conclusion(final: FinalAnswer, gold: GoldAnswer) -> CompareResult | None:
    """The gold answer as what a chain of thought concludes."""
    if final.marked or final.cut:
        return None
    of_words = gold.answer_type in _OF_WORDS
    for part in conclusions(final.text, gold.question, final.emphasised, of_words=of_words):
        said = final_answer(part)
        result = _compare_final(said, gold, ask_worker=False)
        if result.verdict != "correct" and result.reason not in _OF_THE_WHOLE:
            result = (known_type(gold.answer_type).worded and _compare_stated_parts(said, gold)) or result
        if result.verdict == "correct":
            doubt = taken_back.reason_to_doubt(said.text, gold, numeric=is_numeric(gold.answer_type))
            return taken_back.with_doubt(result, doubt)
        if gold.answer_type == "text" and text_answers.concludes(said.text, gold.text, gold.question):
            return correct("concluded")
    return None


def _compare_readings(final: FinalAnswer, gold: GoldAnswer, *, ask_worker: bool) -> CompareResult | None:
    """The gold expression as what the text states in words, with a unit, or as the last side of an equation."""
    for reading in dict.fromkeys(readings(final.text, gold.text, with_units=gold.quantity is not None)):
        result = _compare_final(FinalAnswer(text=reading, marked=True), gold, ask_worker=ask_worker)
        if result.verdict == "correct":
            return result
    return None


def _normalise_bounded(text: str) -> str:
    """In one notation and of bounded length: NFKC can expand one character to eighteen."""
    return normalise(text)[:MAX_CHARACTERS]


_NEW_LINE = re.compile(r"(?<=[^\s,;:])[ \t]*\n\s*")
"""The items of a list may be its lines."""


def _same_text(gold: GoldAnswer) -> CompareResult:
    numeric = gold.answer_type in ("number", "percent", "money") and gold.quantity is not None
    return correct("same_text", 0.0 if numeric else None)


def _compare_time(text: str, gold: GoldAnswer) -> CompareResult:
    return compare_times(text, gold.text, gold.declared) or _compare_text(text, gold)


def _compare_ratio(text: str, gold: GoldAnswer) -> CompareResult:
    compare = compare_number if gold.quantity else _compare_text
    return compare_ratios(text, gold.text) or compare(text, gold)


def _compare_date(text: str, gold: GoldAnswer) -> CompareResult:
    finding = compare_dates(text, gold.text, gold.question) or _compare_text(text, gold)
    if finding.verdict != "correct":
        return finding
    if is_near_a_date(text) and not is_near_a_date(gold.text):
        return undecided("near_the_date")
    return undecided("about_another") if is_about_another(text, gold.text, gold.question) else finding


def _compare_choice(text: str, gold: GoldAnswer) -> CompareResult:
    letter = choices.find_gold_letter(gold.text, gold.options)
    if letter is None:
        return _compare_text(text, gold)
    chosen = choices.find_chosen_letters(text, gold.options)
    if len(chosen) == 1:
        return correct("same_choice") if letter in chosen else wrong("other_choice")
    if not chosen:
        is_letter = len(gold.text.strip("().: ")) <= 1
        result = undecided("no_choice_found") if is_letter else _compare_text(text, gold)
        is_other_option = len(text.split()) <= _FEW_WORDS or not gold.options
        return result if result.reason != "other_words" or is_other_option else undecided("no_choice_found")
    if letter in chosen or choices.covers_others(gold.options, letter):
        return undecided("several_choices")
    return wrong("other_choice")


def _compare_list(text: str, gold: GoldAnswer) -> CompareResult:
    plain = lists.BRACKETED.search(text + gold.text) is None
    text, plain = lists.LISTED.sub("", lists.AND_ALSO.sub(" and ", text)), plain and not gold.declared
    if plain and text_answers.compare_texts(text.replace(";", ","), gold.text, gold.question).verdict == "correct":
        return correct("same_words")
    return compare_intervals(text, gold.text) or lists.compare(
        text,
        gold.text,
        lambda stated, gold_item: _compare_item(stated, gold_item, gold),
        ordered=lists.ASKS_FOR_A_POINT.search(gold.question) is not None,
        question=gold.question,
    )


def _compare_item(stated: str, gold_item: str, gold: GoldAnswer) -> CompareResult:
    kind = infer_type(gold_item)
    if kind in ("list", "choice"):
        kind = "text"
    item = _read_gold(gold_item, kind, False, float(gold.tolerance), (), gold.question)
    return correct("same_text") if stated == item.text else known_type(kind).judge(stated, item)


def _compare_text(text: str, gold: GoldAnswer) -> CompareResult:
    if gold.answer_type == "text" and infer_type(gold.text) == infer_type(text) == "date":
        return _compare_date(text, gold)
    return (
        compare_factorial(text, gold)
        or compare_shares(text, gold.text)
        or lists.compare_parts(text, gold.text)
        or compare_intervals(text, gold.text)
        or compare_limits(text, gold.text)
        or compare_time_ranges(text, gold.text)
        or text_answers.compare_texts(text, gold.text, gold.question)
    )


@dataclass(frozen=True, slots=True)
class AnswerType:
    """How answers of a type are compared."""

    judge: Callable[[str, GoldAnswer], CompareResult]
    numeric: bool = False
    """Whether an answer of this type is one number, which another number contradicts."""
    worded: bool = False
    """Whether the answer is found in a sentence by its words; the others find their number by themselves."""


TYPES: Final[Mapping[str, AnswerType]] = {
    "number": AnswerType(compare_number, numeric=True),
    "percent": AnswerType(compare_number, numeric=True),
    "money": AnswerType(compare_number, numeric=True),
    "year": AnswerType(compare_year, numeric=True),
    "time": AnswerType(_compare_time, worded=True),
    "ratio": AnswerType(_compare_ratio),
    "date": AnswerType(_compare_date, worded=True),
    "choice": AnswerType(_compare_choice),
    "list": AnswerType(_compare_list, worded=True),
    "text": AnswerType(_compare_text, worded=True),
}
"""Every answer type: `infer_type` says which one a gold answer looks like."""


def known_type(name: str) -> AnswerType:
    """One of `TYPES`, or a user's type. Raises DataError for a name that this process does not know."""
    if (own := user_types.find(name)) is not None:
        return AnswerType(own.compare, numeric=own.numeric)
    if name not in TYPES:
        raise DataError(
            f"answer type {name!r} is not known; known: {', '.join(TYPES)}; one from outside is "
            "known where the recipe that names it is used"
        )
    return TYPES[name]


def is_numeric(answer_type: str) -> bool:
    """Whether an answer of this type is one number."""
    return known_type(answer_type).numeric
