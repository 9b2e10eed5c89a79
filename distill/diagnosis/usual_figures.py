"""Figures of rows that have a usual range, as settings have. A figure outside of its range is a finding, for any
cause."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from distill.diagnosis.row_features import form, script, words
from distill.recipe.usual_values import usual_text
from distill.reports.findings import FEWEST, Certainty, Finding, is_above, share
from distill.types import Sample
from distill.word_tables import counted

ODD_CHARACTERS: Final = re.compile(
    r"\ufffd|Ã[\x80-\xbf©¨¼¶¤]|â€|&(?:nbsp|amp|lt|gt|quot|#\d+);|</?(?:br|p|div|span|b|i|td|tr)\s*/?>|\\u[0-9a-f]{4}"
    r"|<\|[a-z_]{2,30}\|>|<(?:start|end)_of_turn>|\[/?INST\]"
)
_MISSING: Final = frozenset(
    ["nan", "NaN", "NAN", "None", "null", "NULL", "Null", "N/A", "n/a", "#N/A", "<NA>", "NaT", "undefined"]
)
"""As programs write it; "none" in small letters is an answer."""
_BY_TEXT: Final = 0.8
_FEW_GOLDS: Final = 5
"""Questions with so few different answers, such as yes and no, may agree for all images."""
_UNSAID: Final = ("yes or no", "a letter")
"""Forms of answers that a rationale need not contain."""
_CUT: Final = re.compile(r"(?:[,;(–-]|\b(?:and|or|but|the|a|an|of|to|is|are|was|with|in|on|at|that|which))\s*$")
_FIRST_WORDS: Final = 6
_CONCLUDING: Final = frozenset(["answer", "result", "conclusion", "option", "therefore"])
_NO_STOP: Final = re.compile(r"[^\W\d_]\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """One question with its gold answer and what was written to it (empty texts for what there is not)."""

    question: str
    gold: str
    images: tuple[str, ...]
    """Digests."""
    rationale: str = ""
    answer: str = ""

    @classmethod
    def of_question(cls, sample: Sample) -> "TextRow":
        images = tuple(image.sha256 for image in sample.images)
        return cls(question=sample.question, gold=sample.answers[0] if sample.answers else "", images=images)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """A share of the rows that should not be large."""

    name: str
    most: float
    what: str
    about: str
    is_odd: Callable[[TextRow], bool | None]
    """None: not known for this row."""
    certainty: Certainty = "possible"


_OF_QUESTIONS: Final = (
    _Share(
        name="question_characters",
        most=0.05,
        what="questions or gold answers",
        about="have broken characters, or marks of a page or of turns, such as �, &nbsp; or <|im_end|>",
        is_odd=lambda row: ODD_CHARACTERS.search(f"{row.question} {row.gold}") is not None,
    ),
    _Share(
        name="question_short",
        most=0.3,
        what="questions",
        about="are one word",
        is_odd=lambda row: len(words(row.question)) <= 1 and not _is_spaceless(row.question),
    ),
    _Share(
        name="gold_long",
        most=0.3,
        what="gold answers",
        about="have more than 60 words: they are explanations and not answers",
        is_odd=lambda row: len(row.gold.split()) > 60 if row.gold else None,
    ),
    _Share(
        name="gold_missing",
        most=0.02,
        what="gold answers",
        about="are the mark of a missing value, such as nan or None: a join found no answer",
        is_odd=lambda row: row.gold.strip() in _MISSING if row.gold else None,
        certainty="likely",
    ),
)
_OF_TRACES: Final = (
    _Share(
        name="rationale_characters",
        most=0.05,
        what="replies",
        about="have broken characters, or marks of a page or of turns, such as �, &nbsp; or <|im_end|>",
        is_odd=lambda row: ODD_CHARACTERS.search(f"{row.rationale} {row.answer}") is not None,
    ),
    _Share(
        name="rationale_short",
        most=0.3,
        what="rationales",
        about="have fewer than four words",
        is_odd=lambda row: len(row.rationale.split()) < 4 and not _is_spaceless(row.rationale),
    ),
    _Share(
        name="rationale_script",
        most=0.3,
        what="rationales",
        about="are in another script than their question",
        is_odd=lambda row: _other_script(row.question, row.rationale),
    ),
    _Share(
        name="rationale_cut",
        most=0.3,
        what="rationales",
        about="end within a sentence",
        is_odd=lambda row: _CUT.search(row.rationale) is not None if row.rationale else None,
        certainty="likely",
    ),
    _Share(
        name="rationale_unended",
        most=0.6,
        what="rationales",
        about="end with a letter and no full stop: they may be cut",
        is_odd=lambda row: (
            _NO_STOP.search(row.rationale) is not None if row.rationale and not _is_spaceless(row.rationale) else None
        ),
    ),
    _Share(
        name="rationale_without_answer",
        most=0.7,
        what="rationales",
        about="do not contain the answer that follows them: they are cut, or do not explain the answer",
        is_odd=lambda row: (
            row.answer.casefold() not in row.rationale.casefold()
            if row.rationale and 0 < len(row.answer.split()) <= 3 and form(row.answer) not in _UNSAID
            else None
        ),
    ),
    _Share(
        name="rationale_answer_first",
        most=0.5,
        what="rationales",
        about="begin with the answer and explain it afterwards: the student learns to guess first",
        is_odd=lambda row: _begins_with_answer(row.rationale, row.answer),
    ),
    _Share(
        name="rationale_is_question",
        most=0.3,
        what="rationales",
        about="begin with the text of their question",
        is_odd=lambda row: (
            row.rationale.casefold().startswith(row.question.casefold()[:200])
            if row.rationale and row.question
            else None
        ),
    ),
)


def of_questions(rows: Sequence[TextRow], change: str) -> Iterator[Finding]:
    """Figures of questions, each asked once, and their gold answers that are out of their usual range."""
    yield from _shares(rows, _OF_QUESTIONS, f"{change}: its rows, or the columns that its texts come from")
    yield from _golds_by_text(rows, change)
    images = Counter(image for row in rows for image in set(row.images))
    if images and len(rows) >= 2 * FEWEST:
        image, count = images.most_common(1)[0]
        golds = len({row.gold for row in rows if image in row.images})
        if is_above(count, len(rows), 0.3) and golds > 3:
            yield Finding(
                name="one_image",
                problem=f"{count:,} of {counted(len(rows), 'question')}, with {golds:,} different gold answers, "
                "show the same image",
                certainty="likely",
                change=f"{change}: its image column; the image may be a placeholder for images that could not be "
                "loaded",
            )


def _golds_by_text(rows: Sequence[TextRow], change: str) -> Iterator[Finding]:
    """Questions whose gold answer is the same for all their images, so it depends only on the text."""
    golds: dict[str, list[TextRow]] = {}
    for row in rows:
        if row.gold:
            golds.setdefault(row.question, []).append(row)
    repeated = [group for group in golds.values() if len({row.images for row in group}) > 1]
    constant = sum(len({row.gold for row in group}) == 1 for group in repeated)
    different = {group[0].gold for group in repeated}
    if is_above(constant, len(repeated), _BY_TEXT) and len(different) > _FEW_GOLDS:
        group = max(repeated, key=len)
        yield Finding(
            name="gold_by_text",
            problem=f"{share(constant, len(repeated), 'questions about several images')} have one gold answer for "
            f"all of them, such as {group[0].gold[:40]!r} for the {counted(len(group), 'image')} of "
            f"{group[0].question[-60:]!r}: the gold answers may be joined by the text of the question alone",
            certainty="likely",
            change=f"{change}: its columns of image and answer; join them by image and question",
        )


def of_traces(rows: Sequence[TextRow], change: str) -> Iterator[Finding]:
    """Figures of traces that are out of their usual range."""
    yield from _shares(rows, _OF_TRACES, change)
    told = Counter(row.rationale for row in rows if row.rationale)
    repeated = sum(count for text, count in told.items() if count > 1)
    is_many = told.total() >= 5 * FEWEST  # a small world has few different texts
    if is_many and is_above(repeated, told.total(), 0.7) and len(told) < 0.3 * told.total():
        text = told.most_common(1)[0][0]
        yield Finding(
            name="rationales_alike",
            problem=f"{told.total():,} rationales have {len(told):,} different texts, such as {text[:60]!r}",
            certainty="possible",
            change=change,
        )
    lengths = [len(row.rationale.split()) for row in rows if row.rationale]
    if len(lengths) >= FEWEST and (middle := median(lengths)) > 4000:
        yield Finding(
            name="rationale_length",
            problem=f"Rationales have {counted(round(middle), 'word')} in the median, and "
            f"{usual_text((4, 4000))} is usual",
            certainty="possible",
            change=change,
        )


def _shares(rows: Sequence[TextRow], figures: Sequence[_Share], change: str) -> Iterator[Finding]:
    for figure in figures:
        known = [(row, odd) for row in rows if (odd := figure.is_odd(row)) is not None]
        odd_rows = [row for row, odd in known if odd]
        if is_above(len(odd_rows), len(known), figure.most):
            yield Finding(
                name=figure.name,
                problem=f"{share(len(odd_rows), len(known), figure.what)} {figure.about}, and up to "
                f"{100 * figure.most:.0f} % is usual",
                certainty=figure.certainty,
                change=change,
            )


def _begins_with_answer(rationale: str, answer: str) -> bool | None:
    """Whether the first words are the answer, or conclude with it; None where there are too few words to tell."""
    told, said = words(rationale), words(answer)
    if not said or len(told) <= 2 * _FIRST_WORDS or form(answer) in _UNSAID:
        return None
    begun = told[:_FIRST_WORDS]
    places = [place for place in range(len(begun)) if begun[place : place + len(said)] == said]
    return bool(places) and (places[0] == 0 or bool(_CONCLUDING & {*begun[: places[0]]}))


def _is_spaceless(text: str) -> bool:
    """Whether it is in a script that does not part words by spaces."""
    return script(text) in ("CJK", "HIRAGANA", "KATAKANA", "THAI")


def _other_script(question: str, rationale: str) -> bool | None:
    asked, told = script(question), script(rationale)
    return None if asked is None or told is None else asked != told
