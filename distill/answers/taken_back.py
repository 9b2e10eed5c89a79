"""What takes an answer back: a correction after it, a denial or a doubt around it, an assumption before it."""

import re
from typing import Final

from distill.answers.compare_result import CompareResult, undecided
from distill.answers.final_answer import MAX_CHARACTERS
from distill.answers.number_answers import GoldAnswer
from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.quantities import read_quantities
from distill.answers.texts.yes_or_no import is_polar
from distill.answers.words.word_classes import sets_apart
from distill.rationale import thinking_end

_CORRECTS_TEXT: Final = (
    r"wait|hmm+|hold on|actually|oops|sorry|correction|scratch that|on second thoughts?|no,(?=\s)"
    r"|let me (?:re-?\w+|double|check|verify|look)|i (?:made|see) (?:a|my) (?:mistake|error)|i mis\w+"
    r"|moment|warte|halt|attend(?:s|ez)|espera|un momento|aspetta|等等|等一下|不对|待って"
)
_CORRECTS = re.compile(
    r"(?:[.…!?;,:)\"”*]\s{0,4}|\s[–—-]{1,2}\s|\n\s{0,4})(?:(?:no|but|oh|ah|nein|non|não),?\s)?(?<![^\W\d_])"
    rf"(?:{_CORRECTS_TEXT})(?![^\W_])|\b(?:first|initially|at a glance|one might)\b[^.!?\n]{{0,80}}?[,;]?\sbut\s"
    r"(?=(?:it|this|that|there|the (?:\w+ )?\w+) (?:is|was|are|were|turns)\b|(?:it|that|there)['’]s\b|in fact\b|\d)",
    re.IGNORECASE,
)
"""How a writer begins to correct what stands before: 6. Wait, that's the other bar. I first saw 6, but it is 7."""
_FILLER = re.compile(
    r"(?:[\s,.:;!…–—-]|(?:no|nein|non|não)\b|(?:that|this|it)(?:'s|’s| is| was)? (?:not (?:right|correct)|wrong"
    r"|incorrect)\b)*",
    re.IGNORECASE,
)
_CONFIRMS = re.compile(r"\b(?:yes|yep|indeed|correct|right|match(?:es)?|confirm(?:s|ed)?|stands?)\b", re.IGNORECASE)
_STATES_ANOTHER: Final = frozenset(
    f"other_{kind}" for kind in ("value", "year", "date", "time", "times", "ratio", "choice", "items", "number")
) | {"opposite"}
_TWO_SIGNS = re.compile(r"=\s*(?:±|\\pm\b)|^\s*(?:±|\\pm\b)")
"""x = ±2 gives two values; 5 ± 0.1 is one with its error."""
_DENIES_A_CONCLUSION = re.compile(
    r"\.\s+(?:so|thus|hence|therefore)\b(?=[^.]*(?:\b(?:not|no|never|nobody|none|cannot)\b|n['’]t\b))[^.\d]*\.?$",
    re.IGNORECASE,
)
"""A conclusion without a number that denies what is asked: So you can't park here."""
_DISPUTES = re.compile(
    r"\b(?:doubt(?:s|ed|ful)?|disagree[sd]?|den(?:y|ies|ied)|false|untrue|incorrect(?:ly)?|wrong(?:ly)?|mistak(?:e|en)"
    r"|mis(?:read|labell?ed|printed|counted)|[Hh]ardly|[Bb]arely|[Ff]ar from|unlikely|not true|excluded|ruled out)\b"
)
_DEADLINE = re.compile(r"\bn(?:o|ot) later than\b", re.IGNORECASE)
CONTRASTED_TYPES: Final = frozenset({"ratio", "date", "time", "list"})
"""Types whose comparisons read a text for values, and not for the words around them."""
_DENIED_PART = re.compile(
    r"(?<=[\w%\])])(?:,?\s\((?:and )?(?:not|nicht|no|pas|non|não)\s[^()]*\)|,?\s(?:and )?(?:not|rather than"
    r"|instead of|nicht|statt)\s(?:(?!\b(?:but|sondern)\b)[^;.]|[;.](?!\s|$))*(?=[;.]?$|[;.]\s))",
    re.IGNORECASE,
)


def after_correction(prediction: str) -> str | None:
    """What a writer says after the last correction of a text, perhaps nothing; None if nothing is corrected."""
    start = thinking_end(prediction)
    tail = prediction[max(start, len(prediction) - MAX_CHARACTERS) :]
    corrections = list(_CORRECTS.finditer(tail))
    if not corrections or not any(map(str.isalnum, tail[: corrections[-1].start()])):
        return None
    filler = _FILLER.match(tail, corrections[-1].end())
    return tail[filler.end() if filler else 0 :].strip()


def with_correction(result: CompareResult, corrected: CompareResult, rest: str) -> CompareResult:
    """The finding on a whole text, and the one on what follows its last correction."""
    if corrected.verdict == "correct" or (corrected.verdict == "wrong" and corrected.reason in _STATES_ANOTHER):
        return corrected
    if result.verdict == "correct":
        return result if _CONFIRMS.search(rest) and not _DISPUTES.search(rest) else undecided("taken_back")
    return corrected if rest and corrected.verdict == "undecided" else result


def without_denied(text: str) -> str:
    """A text without the parts that it only denies: "2:3" for "2:3, not 3:2"."""
    return _DENIED_PART.sub("", text)


def with_doubt(result: CompareResult, doubt: str | None) -> CompareResult:
    """The finding, but undecided where an answer that is correct has a reason to doubt it."""
    return undecided(doubt) if doubt is not None and result.verdict == "correct" else result


def reason_to_doubt(text: str, gold: GoldAnswer, *, numeric: bool) -> str | None:
    """The reason to doubt an answer that agrees with the gold; None without one."""
    if gold.answer_type == "number" and _TWO_SIGNS.search(text) and not _TWO_SIGNS.search(gold.text):
        return "two_signs"
    if numeric and _DENIES_A_CONCLUSION.search(text):
        return "taken_back"
    if numeric and gold.question and _is_said_of_another_case(text, gold):
        return "another_case"
    return "disputed" if gold.answer_type != "choice" and not is_polar(gold.text) and _disputes(text, gold) else None


def _is_said_of_another_case(text: str, gold: GoldAnswer) -> bool:
    """Whether each sentence with the gold number is about another time than its question, or about what is not so."""
    assumes, years = _ASKS_WHAT_WOULD_BE.search(gold.question), {*_YEAR.findall(gold.question)}
    if (assumes or not _ASSUMES.search(text)) and not (_OTHER_YEAR.search(text) or (years and _YEAR.search(text))):
        return False
    stating = [part for part in _SENTENCE_END.split(text) if _states_value(part, gold)]
    return bool(stating) and all(
        (not assumes and _ASSUMES.search(part))
        or (_OTHER_YEAR.search(part) and not _OTHER_YEAR.search(gold.question))
        or (years and (said := {*_YEAR.findall(part)} - {gold.text}) and not said & years)
        for part in stating
    )


def _states_value(sentence: str, gold: GoldAnswer) -> bool:
    values = () if gold.quantity is None else (gold.quantity.value, *gold.quantity.others)
    return any(quantity.value in values for quantity in read_quantities(normalise(sentence)))


_ASSUMES = re.compile(
    r"\bwould\b[^.!?]*\b(?:if|unless)\b|\b(?:if|unless)\b[^.!?]*\bwould\b"
    r"|\b(?:wäre|würde)\w*\b[^.!?]*\b(?:wenn|falls)\b|\b(?:wenn|falls)\b[^.!?]*\b(?:wäre|würde)"
    r"|\bserait\b[^.!?]*\bsi\b|\bsi\b[^.!?]*\bserait\b|\bsería\b[^.!?]*\bsi\b|\bsi\b[^.!?]*\bsería\b",
    re.IGNORECASE,
)
"""What would be so in a case that is not: it would be 5 if the fee were included."""
_ASKS_WHAT_WOULD_BE = re.compile(r"\b(?:would|if|unless|wäre|würden?|wenn|falls|serait|sería|si)\b", re.IGNORECASE)
_YEAR = re.compile(r"(?<![\d.,$€£])(?:19|20)\d\d(?![\d%]|[.,]\d)")
_OTHER_YEAR = re.compile(
    r"\b(?:the|in the) (?:year|month|week|day) (?:before|after|earlier)|\bthe (?:previous|following|next|preceding)"
    r" (?:year|month|week|day)|\blast (?:year|month|week)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?。])\s+|\n+")


def _disputes(text: str, gold: GoldAnswer) -> bool:
    known = f"{gold.text} {gold.question} or".casefold()
    if any(word.casefold() not in known for word in _DISPUTES.findall(text)):
        return True
    if gold.answer_type not in CONTRASTED_TYPES:
        return False
    return sets_apart(_DEADLINE.sub("by", without_denied(text)), known)
