"""Does a prediction state the gold answer? Three verdicts: correct, wrong, undecided.

Undecided is for what the two texts leave open (50% or 0.5? 3:30 in which half of the day?), and is never to be
counted as wrong. A judgement is by the type of the gold answer; types that are not given are inferred and recorded.
Only a numeric answer has a relative error, so that tolerance stays a policy. Reference metrics, which have no third
verdict, are in `distill.answers.reference_metrics` and can be imported from here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from distill.answers import choices, lists, math_worker, own_types, text_answers
from distill.answers.answer_sentences import bold_part, stated_parts
from distill.answers.answer_types import infer_type as infer_type
from distill.answers.answer_types import items
from distill.answers.compare import CompareResult, correct, undecided, wrong
from distill.answers.declined import declines
from distill.answers.final_answer import MAX_CHARACTERS, FinalAnswer, final_answer
from distill.answers.normalize import normalise
from distill.answers.number_answers import GoldAnswer, factorial_of_gold, number, year_of
from distill.answers.numbers import single
from distill.answers.reference_metrics import anls as anls
from distill.answers.reference_metrics import exact_match as exact_match
from distill.answers.reference_metrics import relaxed_accuracy as relaxed_accuracy
from distill.answers.reference_metrics import rouge_l as rouge_l
from distill.answers.solution_sets import compare_intervals
from distill.answers.times import compare_dates, compare_ratios, compare_time_ranges, compare_times
from distill.errors import DataError

_LONGEST_EXPRESSIONS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reason (a snake_case constant) and the answer type it was reached by."""

    verdict: str
    relative_error: float | None
    reason: str
    answer_type: str


def judge(
    prediction: str,
    gold: str | Sequence[str],
    answer_type: str | None = None,
    *,
    relative_tolerance: float = 0.0,
    options: Sequence[str] | None = None,
) -> Judgement:
    """Compare a prediction with the accepted gold answers.

    `gold` may be several accepted answers: one that agrees is enough. `answer_type` is one of number, year,
    percent, money, time, ratio, choice, list, date, text, else inferred from the first gold answer. Numbers, percents
    and money within `relative_tolerance` of the gold are correct. `options` are the texts of choices A, B, C ...
    """
    return _judge(prediction, gold, answer_type, relative_tolerance, options, ask_worker=True)


def equivalent(a: str, b: str, answer_type: str | None = None, *, options: Sequence[str] | None = None) -> bool:
    """Whether two answers surely mean the same; cheap and symmetric, for clustering the answers of traces.

    With the `options` of a choice, a letter and the text of its option are the same answer.
    """
    if a == b:
        return True
    if options and answer_type in (None, "choice"):
        offered = tuple(normalise(option) for option in options)
        ours, theirs = (choices.chosen_letters(normalise(final_answer(text).text), offered) for text in (a, b))
        if len(ours) == len(theirs) == 1:
            return ours == theirs
    forth = _judge(a, b, answer_type, 0.0, None, ask_worker=False)
    holds_backwards = forth.answer_type in _ALIKE_BACKWARDS.get(forth.reason, ()) and not stated_parts(b)
    if holds_backwards and (answer_type is not None or infer_type(a) == forth.answer_type):
        return False
    return forth.verdict == "correct" or _judge(b, a, answer_type, 0.0, None, ask_worker=False).verdict == "correct"


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
) -> Judgement:
    golds = [text for text in ([gold] if isinstance(gold, str) else gold) if text.strip()]
    if not golds:
        return Judgement(
            verdict="undecided", relative_error=None, reason="no_gold", answer_type=answer_type or "text"
        )
    if answer_type is not None and answer_type not in TYPES and own_types.find(answer_type) is None:
        raise DataError(
            f"answer type {answer_type!r} is not known; known: {', '.join(TYPES)}; one from outside is "
            "known where the recipe that names it is used"
        )
    best: Judgement | None = None
    offered = tuple(options or ())
    kind = answer_type or _inferred(golds[0], offered)
    if kind == "text" and offered:
        kind = _inferred(golds[0], offered) if len(golds[0].strip("().: ")) > 1 else kind
        kind = "choice" if kind == "choice" else "text"
    for text in golds:
        goal = _gold(text, kind, answer_type is not None, tolerance, offered)
        finding = _compare(prediction, goal, ask_worker=ask_worker) if prediction != text else _same_text(goal)
        judged = Judgement(
            verdict=finding.verdict, relative_error=finding.relative_error, reason=finding.reason, answer_type=kind
        )
        if judged.verdict == "correct":
            return judged
        best = judged if best is None else _better(best, judged)
    assert best is not None
    return best


@lru_cache(maxsize=8192)
def _inferred(gold: str, options: tuple[str, ...]) -> str:
    """The type a gold answer looks like; a choice when it is one of the options, or the letter of one."""
    if options:
        letter = choices.letter_of(normalise(final_answer(gold).text), tuple(map(normalise, options)))
        if letter is not None and choices.LETTERS.index(letter) < len(options):
            return "choice"
    return infer_type(gold)


def _better(one: Judgement, other: Judgement) -> Judgement:
    if one.verdict != other.verdict:
        return one if one.verdict == "undecided" else other
    errors = (error if (error := item.relative_error) is not None else float("inf") for item in (one, other))
    return one if next(errors) <= next(errors) else other


@lru_cache(maxsize=8192)
def _gold(text: str, kind: str, declared: bool, tolerance: float, options: tuple[str, ...]) -> GoldAnswer:
    final = final_answer(text)
    text = _plain(final.text)
    return GoldAnswer(
        text=text,
        answer_type=kind,
        declared=declared,
        quantity=single(text),
        tolerance=Decimal(repr(float(tolerance))),
        options=tuple(_plain(final_answer(option).text) for option in options),
        cut=final.cut,
    )


def _compare(prediction: str, gold: GoldAnswer, *, ask_worker: bool) -> CompareResult:
    if not prediction.strip():
        return wrong("empty_prediction")
    final = final_answer(prediction)
    if gold.cut:
        return undecided("too_long")
    found = _compare_final(final, gold, ask_worker=ask_worker)
    if found.verdict == "correct" and gold.answer_type == "number" and _TWO_SIGNS.search(final.text):
        return found if _TWO_SIGNS.search(gold.text) else undecided("two_signs")
    if found.verdict != "correct" and _is_worded(gold.answer_type) and not declines(final.text):
        found = _in_a_sentence(prediction, final, gold) or found
    # What is left out may take back what agrees.
    return undecided("too_long") if final.cut and found.verdict == "correct" else found


def _compare_final(final: FinalAnswer, gold: GoldAnswer, *, ask_worker: bool) -> CompareResult:
    text = _plain(_NEW_LINE.sub("; ", final.text) if gold.answer_type == "list" else final.text)
    if text == gold.text:
        return _same_text(gold)
    finding = _judge_of(gold.answer_type)(text, gold)
    if declines(text) or declines(gold.text):
        return _declined(finding, text, gold)
    ask_worker = ask_worker and len(final.text) + len(gold.text) <= _LONGEST_EXPRESSIONS
    if ask_worker and finding.verdict != "correct" and finding.relative_error is None and finding.can_be_mathematics:
        voted = math_worker.vote(final.text, gold.text)
        if voted is not None and not (voted.verdict == "wrong" and _in_degrees(gold)):
            return voted
    return finding


_TWO_SIGNS = re.compile(r"=\s*(?:±|\\pm\b)|^\s*(?:±|\\pm\b)")
"""x = ±2 gives two values; 5 ± 0.1 is one with its error."""


def _in_a_sentence(prediction: str, final: FinalAnswer, gold: GoldAnswer) -> CompareResult | None:
    """The gold answer as what a sentence states; what the sentence states instead is judged with all its words."""
    if text_answers.is_polar(gold.text) or len(final.text) <= len(gold.text):
        return None
    bold = bold_part(prediction) if "**" in prediction and not final.marked else None
    for part in (*stated_parts(final.text), *(() if bold is None else (bold,))):
        plain = _plain(final_answer(part).text)
        if plain == gold.text:
            return _same_text(gold)
        if (finding := _judge_of(gold.answer_type)(plain, gold)).verdict == "correct":
            return finding
    return None


def _declined(finding: CompareResult, text: str, gold: GoldAnswer) -> CompareResult:
    """One side says that there is no answer: right if the other does too; what else it mentions is none."""
    if gold.answer_type == "choice":
        refusing = {letter for letter, option in zip(choices.LETTERS, gold.options, strict=False) if declines(option)}
        if finding.verdict == "correct" and not refusing and declines(text):
            return wrong("declined")
        if len(refusing) == 1 and declines(text) and finding.reason == "no_choice_found":
            return (
                correct("same_choice")
                if choices.letter_of(gold.text, gold.options) in refusing
                else wrong("declined")
            )
        return finding
    if declines(text) and declines(gold.text):
        return correct("both_declined")
    if finding.verdict == "correct" and finding.reason not in ("same_words", "same_text"):
        return wrong("declined")
    return finding


def _plain(text: str) -> str:
    """In one notation, and still bounded: one character can be the short form of eighteen."""
    return normalise(text)[:MAX_CHARACTERS]


def _in_degrees(gold: GoldAnswer) -> bool:
    """An expression may be the same angle in radians."""
    return gold.quantity is not None and gold.quantity.unit in ("°", "degree")


_NEW_LINE = re.compile(r"(?<=[^\s,;:])[ \t]*\n\s*")
"""The items of a list may be its lines."""


def _same_text(gold: GoldAnswer) -> CompareResult:
    numeric = gold.answer_type in ("number", "percent", "money") and gold.quantity is not None
    return CompareResult(verdict="correct", reason="same_text", relative_error=0.0 if numeric else None)


# --- times, dates, ratios ---------------------------------------------------------------------------------------


def _time(text: str, gold: GoldAnswer) -> CompareResult:
    return compare_times(text, gold.text, gold.declared) or _text(text, gold)


def _ratio(text: str, gold: GoldAnswer) -> CompareResult:
    return compare_ratios(text, gold.text) or (number(text, gold) if gold.quantity else _text(text, gold))


def _date(text: str, gold: GoldAnswer) -> CompareResult:
    finding = compare_dates(text, gold.text) or _text(text, gold)
    if finding.verdict == "correct" and _NEAR_A_DATE.search(text) and not _NEAR_A_DATE.search(gold.text):
        return undecided("near_the_date")
    return finding


_NEAR_A_DATE = re.compile(r"\b(?:before|after|since|until|till|prior to) (?:the )?(?:[A-Z]|\d)")


# --- choices and lists ------------------------------------------------------------------------------------------


def _choice(text: str, gold: GoldAnswer) -> CompareResult:
    letter = choices.letter_of(gold.text, gold.options)
    if letter is None:
        return _text(text, gold)
    said = choices.chosen_letters(text, gold.options)
    if len(said) == 1:
        return correct("same_choice") if letter in said else wrong("other_choice")
    if not said:
        named = len(gold.text.strip("().: ")) > 1
        return _text(text, gold) if named else undecided("no_choice_found")
    if letter in said or _covers(gold.options, letter):
        return undecided("several_choices")
    return wrong("other_choice")


def _covers(options: Sequence[str], letter: str) -> bool:
    """Whether an option is about the others: all of the above."""
    index = choices.LETTERS.index(letter)
    return index < len(options) and options[index].lower().startswith(("all", "both", "any", "none", "neither"))


def _list(text: str, gold: GoldAnswer) -> CompareResult:
    text = _LISTED.sub("", text)
    return compare_intervals(text, gold.text) or lists.compare(
        text, gold.text, lambda said, meant: _item(said, meant, gold)
    )


_LISTED = re.compile(
    r"^(?:both |all )?(?:the )?(?:options|choices|answers|letters|items) (?:are )?|^(?:both|all) (?=\(?[A-Z]\b)"
    r"|(?<=\w) (?:are|were) (?:both |all )?(?:correct|right|true)\.?$",
    re.IGNORECASE,
)
"""The words around a list: Both B and D are correct."""


def _item(said: str, meant: str, gold: GoldAnswer) -> CompareResult:
    kind = infer_type(meant)
    if kind in ("list", "choice"):
        kind = "text"
    item = _gold(meant, kind, False, float(gold.tolerance), ())
    return correct("same_text") if said == item.text else _judge_of(kind)(said, item)


def _text(text: str, gold: GoldAnswer) -> CompareResult:
    if gold.answer_type == "text" and infer_type(gold.text) == infer_type(text) == "date":
        return _date(text, gold)
    return (
        factorial_of_gold(text, gold)
        or _same_parts(text, gold)
        or compare_intervals(text, gold.text)
        or compare_time_ranges(text, gold.text)
        or text_answers.compare(text, gold.text)
    )


def _same_parts(text: str, gold: GoldAnswer) -> CompareResult | None:
    """The same items in another order, also where they are no plain list: women 48%, men 52%."""
    if "," not in gold.text or text[:1] in "([{" or gold.text[:1] in "([{":
        return None
    said, meant = (sorted(map(text_answers.tokens, items(side))) for side in (text, gold.text))
    return correct("same_items") if len(meant) > 1 and all(meant) and said == meant and text != gold.text else None


@dataclass(frozen=True, slots=True)
class AnswerType:
    """How answers of a type are compared."""

    judge: Callable[[str, GoldAnswer], CompareResult]
    numeric: bool = False
    """Whether an answer is one number, so that another number contradicts it."""
    worded: bool = False
    """Whether the answer is found in a sentence by its words; the others find their number by themselves."""


TYPES: Final[Mapping[str, AnswerType]] = {
    "number": AnswerType(number, numeric=True),
    "percent": AnswerType(number, numeric=True),
    "money": AnswerType(number, numeric=True),
    "year": AnswerType(year_of, numeric=True),
    "time": AnswerType(_time, worded=True),
    "ratio": AnswerType(_ratio),
    "date": AnswerType(_date, worded=True),
    "choice": AnswerType(_choice),
    "list": AnswerType(_list, worded=True),
    "text": AnswerType(_text, worded=True),
}
"""Every answer type: `infer_type` says which one a gold answer looks like."""
ANSWER_TYPES: Final = tuple(TYPES)


def is_numeric(answer_type: str) -> bool:
    """Whether an answer of this type is one number."""
    own = own_types.find(answer_type)
    return own.numeric if own is not None else answer_type in TYPES and TYPES[answer_type].numeric


def _judge_of(answer_type: str) -> Callable[[str, GoldAnswer], CompareResult]:
    own = own_types.find(answer_type)
    return own.compare if own is not None else TYPES[answer_type].judge


def _is_worded(answer_type: str) -> bool:
    return answer_type in TYPES and TYPES[answer_type].worded
