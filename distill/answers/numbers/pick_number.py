"""Chooses the answer among several numbers in a prediction, if its words show it.

Cautious: None is better than a wrong number, since the verdict then stays open.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations, pairwise
from typing import Final

from distill.answers.compare_result import CompareResult, undecided
from distill.answers.numbers.number_words import ORDINAL_NAME, ordinal_value
from distill.answers.numbers.quantities import Quantity, read_context, read_quantities, read_single_quantity

_CONCLUDES = re.compile(
    r"(?:=|\bi\.e\.,?|\b(?:so|thus|hence|therefore|equals?|makes?|making|leaves|leaving|gives?|giving|totals?|totall?ing|gets?|altogether|but)\b"
    r"(?:\s[^\W\d]+){0,4}|\b(?:difference|sum|total|average|increase|decrease|rise|drop|gain|loss) of"
    r"(?:\s[^\W\d]+)?"
    r"|\b(?:ergibt|macht|beträgt|insgesamt|somit|donc|égale?|igual a|resulta|entonces|por (?:lo )?tanto)"
    r"(?:\s[^\W\d]+){0,2}"
    r"|等于|等於|得到|得出|一共有?|共有?|总共有?|總共有?|合計(?:で|は)?)\s*$",
    re.IGNORECASE,
)
_BEFORE_NUMBER: Final = r"(?: (?:about|around|approximately|exactly|roughly))?\s*$"
_STATES = re.compile(rf"\b(?:is|was){_BEFORE_NUMBER}", re.IGNORECASE)
_IS = re.compile(rf"\b(?:is|was|are|were){_BEFORE_NUMBER}", re.IGNORECASE)
_SECOND_THING = re.compile(
    rf"\s(?:and|while|whereas|but)\s(?P<thing>[^,;.:]{{1,60}}?)\s(?:is|was){_BEFORE_NUMBER}", re.IGNORECASE
)
_RESULT_OR_IT = re.compile(
    r"\b(?:answer|result|total|sum|difference|product|quotient|number|value|count|rest|remainder|average|mean|median|it|this"
    r"|that|there|which|what|the (?:second|other|last|first|next)|so|thus|hence|therefore|then)\b",
    re.IGNORECASE,
)
_COMPARES = re.compile(r"\b(?:than|times|more|less|fewer|of)\b", re.IGNORECASE)
_OF_ALL = re.compile(r"\bof (?:the|all|these|those)\s*$", re.IGNORECASE)
_BEFORE_REASON = re.compile(r"([^.;]{1,80}?),? (?:because|since|as there)\b", re.IGNORECASE)
_BEFORE_REMARK = re.compile(r"([^.;(]{1,80}?) \([^()]*\)\.?$")
_OTHER_CHOICE = re.compile(
    r"\((?:or|maybe|perhaps|possibly|alternatively|could be|might be)(?: maybe| even)? (?P<number>-?\d+(?:\.\d+)?)\)",
    re.IGNORECASE,
)
_JOINTS: Final = ("and", "to", "-")
_LOOKED_BACK: Final = 60


def pick_stated_number(text: str, numbers: Sequence[Quantity]) -> Quantity | None:
    """The quantity that the words name as the result; None when they leave it open."""
    if (other := _OTHER_CHOICE.search(text)) and all(
        float(other["number"]) not in (quantity.value, 100 * quantity.value) for quantity in numbers[:1]
    ):
        return None  # 17 (or 18)
    # The right side of an equation, or the number before a remark in parentheses.
    for part in (text.rsplit("=", 1)[1] if "=" in text else "", text.split(" (", 1)[0] if text.endswith(")") else ""):
        quantity = read_single_quantity(part.strip(" .")) if part else None
        if quantity is not None:
            return quantity
    reasoned = _BEFORE_REASON.match(text) or _BEFORE_REMARK.match(text)
    if reasoned is not None:
        early = [quantity for quantity in numbers if quantity.start < reasoned.end(1)]
        if len(early) == 1 and early[0].affirmed:
            return early[0]  # 9 remain, because 6 of the 15 are taken
    if len(numbers) < 2 or not all(quantity.affirmed for quantity in numbers):
        return None
    first, second, last = numbers[0], numbers[1], numbers[-1]
    if len(numbers) == 2 and _OF_ALL.search(_text_before(text, second)):
        return first  # 4 of the 10 bars
    if ":" in text[first.end : second.start] and first.value == sum(quantity.value for quantity in numbers[1:]):
        return first  # 9 birds: 4 here and 5 there
    if _COMPARES.search(text, last.end):
        return None
    before = _text_before(text, last)
    if _is_of_another_thing(before):
        return None
    if _is_concluded(text, last) and not any(
        _is_concluded(text, item) for item in numbers if (item.value, item.percent) != (last.value, last.percent)
    ):
        return last
    if _STATES.search(before) and not any(_IS.search(_text_before(text, item)) for item in numbers[:-1]):
        return last
    return None


def _is_of_another_thing(before: str) -> bool:
    """Whether a number belongs to a second thing, after one that has its own: Germany comes third, and Spain is."""
    second = _SECOND_THING.search(before)
    if second is None or _RESULT_OR_IT.search(second["thing"]):
        return False
    return not read_quantities(second["thing"])  # the sum of 13 and 14 is


def _is_concluded(text: str, quantity: Quantity) -> bool:
    """Whether the words before a quantity say that it is a result. They end with a word or an equality sign."""
    before = _text_before(text, quantity).rstrip()
    return (before[-1:].isalnum() or before[-1:] in tuple("=.,_")) and _CONCLUDES.search(before) is not None


_SENTENCE_END = re.compile(r"[.!?]\s+(?=[A-Z])")
_SUBORDINATE = re.compile(
    r"(?:since|because|as|given that|knowing that) [^.;]{1,120}?, (?=(?:the|it|there|we|this|that|he|she|they) )",
    re.IGNORECASE,
)
_WITH_VALUE = re.compile(
    r"\b(?:with|at|has|have|had|reach(?:es|ed)|shows) an? (?:\w+ )?(?:value|total|share|count|score) of\s*$",
    re.IGNORECASE,
)
_NAMES_RESULT = re.compile(
    r"\b(?:difference|sum|total|average|mean|median|middle|range|ratio|result|number|value|count|largest|smallest"
    r"|highest|lowest|greatest|most|least|maximum|minimum|longest|shortest|tallest|remain(?:s|ing)?|left|so|thus"
    r"|hence|therefore)\b",
    re.IGNORECASE,
)
_RESULTS: Final = (
    (
        re.compile(
            r"(?:^|[.,;:–—]\s)(?:so )?(?:(?:in )?total|together|altogether|in all|an? (?:total|sum) of)\b"
            r"[^.,;\d]{0,20}$",
            re.IGNORECASE,
        ),
        re.compile(r"\b(?:total|sum|and|all|together|altogether|combined|between)\b", re.IGNORECASE),
    ),
    (
        re.compile(r"\ban? (?:gap|difference) of\b[^.,;\d]{0,20}$", re.IGNORECASE),
        re.compile(
            r"\b(?:difference|gap|more|fewer|less|higher|lower|range|much|chang\w*|increase\w*|decrease\w*|grow\w*|r[io]se|drop\w*|f[ae]ll)\b",
            re.IGNORECASE,
        ),
    ),
)
"""What names a result that a question asks for: together they cost $11.70, a gap of 38 points."""


def is_another_result(text: str, quantity: Quantity, question: str) -> bool:
    """Whether a quantity is called a difference and the question asks for none."""
    said, asked = _RESULTS[-1]
    return bool(question) and said.search(_text_before(text, quantity)) is not None and not asked.search(question)


_OPEN = re.compile(r"\b(?:or|not|but|maybe|perhaps)\b|n['’]t\b", re.IGNORECASE)
_REMARK_AFTER = re.compile(r",? (?:which (?:is|was|are) [^\d.]*|as well|too)\.?$", re.IGNORECASE)


def pick_concluding_number(text: str, numbers: Sequence[Quantity], question: str) -> Quantity | None:
    """The only number of a last sentence that names a result, or of a main clause after its reason; a last total."""
    if not 1 < len(numbers) <= _MOST_IN_A_RATIONALE:
        return None
    total = numbers[-1]
    is_last = len(text[total.end :].split()) <= 1 and total.affirmed and not total.label
    if is_last and not _OPEN.search(text):
        before = _text_before(text, total)
        if any(said.search(before) and asked.search(question) for said, asked in _RESULTS):
            return total
    start = max((match.end() for match in _SENTENCE_END.finditer(text)), default=0)
    reason = _SUBORDINATE.match(text, start)
    start = start if reason is None else reason.end()
    if not start or _NAMES_RESULT.search(text, start) is None:
        return None
    last = [quantity for quantity in numbers if quantity.start >= start]
    if len(last) != 1 or not last[0].affirmed or last[0].label:
        return None
    after = _REMARK_AFTER.sub("", text[last[0].end :]).strip(" .")
    before = _text_before(text, last[0])
    is_stated = any(pattern.search(before) is not None for pattern in (_STATES, _CONCLUDES, _WITH_VALUE))
    return last[0] if is_stated and not after else None


def with_ordinals(numbers: tuple[Quantity, ...], text: str) -> tuple[Quantity, ...]:
    """The numbers of a text and its ordinals in words, in their order: tenth and 24 of "tenth out of 24"."""
    ordinals = (
        Quantity(
            value=Decimal(ordinal_value(match)),
            unit="th",
            start=match.start(),
            end=match.end(),
            **read_context(text, match.start(), match.end()),
        )
        for match in _RANK.finditer(text)
    )
    return tuple(sorted((*numbers, *ordinals), key=lambda quantity: quantity.start))


_RANK = re.compile(
    rf"(?<!\bat )(?<!\bone )(?<!\btwo )(?<!\ba ){ORDINAL_NAME}(?![ -](?:to|from|before|last|half)\b|-|,? of all\b)",
    re.IGNORECASE,
)
"""Not "second to last", "third from the end", "one third", "at first"."""


def numbers_in_words(figures: Sequence[Quantity], text: str) -> tuple[Quantity, ...]:
    """The numbers in words of a text that has others in figures: seven of "seven of the 12 people"."""
    if not figures or not any(map(str.isdigit, text)):
        return ()
    around = _FIGURES.sub(lambda figure: "#" * len(figure[0]), text)
    known = {quantity.value for quantity in figures}
    read = read_quantities(around)
    return tuple(item for item in read if item.value not in known and item.value == int(item.value) > 1)


_FIGURES = re.compile(r"\d[\d.,]*")


def pick_part_of_total(text: str, numbers: Sequence[Quantity]) -> Quantity | None:
    """The first of two numbers that are a part and its total: four out of 10 doctors."""
    if len(numbers) != _PART_AND_TOTAL or not numbers[0].affirmed:
        return None
    return numbers[0] if _OUT_OF.fullmatch(text[numbers[0].end : numbers[1].start]) else None


_CLAUSE = re.compile(r"[,;:.!?]\s+|[，。；、]|\s(?:and|but|while|whereas|und|aber|et|mais|y|pero)\s|\s[–—]\s")


def pick_asked_number(text: str, numbers: Sequence[Quantity], question: str) -> Quantity | None:
    """The only number of the one clause with nearly all words of the question: 7 red balls and 5 green ones."""
    if not question or not 1 < len(numbers) <= _MOST_IN_A_RATIONALE or max(len(text), len(question)) > _LONGEST_LIST:
        return None
    if _OPEN.search(text.replace("but", "")):
        return None
    asked = {word for word in _LETTERS.findall(question.casefold()) if word not in _SMALL}
    ends = [0, *(match.end() for match in _CLAUSE.finditer(text)), len(text)]
    shared: list[tuple[int, list[Quantity]]] = []
    for start, end in pairwise(ends):
        said = {*_LETTERS.findall(text[start:end].casefold())}
        inside = [quantity for quantity in numbers if start <= quantity.start < end]
        shared.append((len(said & asked), inside))
    most = max(count for count, _ in shared)
    best = [inside for count, inside in shared if count == most]
    if not asked or 4 * most < 3 * len(asked) or len(best) != 1 or len(best[0]) != 1:
        return None
    picked = best[0][0]
    return picked if picked.affirmed and not picked.label else None


def pick_part_or_change(text: str, numbers: Sequence[Quantity], question: str) -> Quantity | None:
    """The number before the total that it is a part of, 14 of 36; the change that is asked for: by 9 points."""
    if not question or not 1 < len(numbers) <= _MOST_IN_A_RATIONALE or _OPEN.search(text):
        return None
    if not _ASKS_FOR_A_SHARE.search(question) and (part := pick_part_of_total(text, numbers)) is not None:
        return part
    changes = [quantity for quantity in numbers if _BY.search(_text_before(text, quantity))]
    asked = _RESULTS[-1][1]
    return changes[0] if len(changes) == 1 and asked.search(question) else None


_ASKS_FOR_A_SHARE = re.compile(r"percent|%|\b(?:share|fraction|proportion|ratio)\b", re.IGNORECASE)
_PART_AND_TOTAL: Final = 2
_OUT_OF = re.compile(r"\s(?:out )?of (?:(?:the|all|these|those) )*", re.IGNORECASE)
_BY = re.compile(r"\bby (?:about |around |roughly |approximately |some )?$", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_SMALL_TEXT: Final = "how many much what which is are was were the of in there do does did has have wie viel viele"
_SMALL: Final = frozenset(_SMALL_TEXT.split())


def pick_counted_number(text: str) -> Quantity | None:
    """The number before the list of the things that it counts: three years: 2009, 2010 and 2012."""
    head, colon, rest = text.partition(":")
    if not colon or not head or len(text) > _LONGEST_LIST:
        return None
    counted = read_quantities(head)
    listed = [part for part in _BETWEEN_ITEMS.split(rest) if part.strip(" .")]
    same = len(counted) == 1 and counted[0].value in (len(listed), sum(item.value for item in read_quantities(rest)))
    return counted[0] if same and len(listed) > 1 and counted[0].affirmed else None


_BETWEEN_ITEMS = re.compile(r"[,;、]|\s\d+[.)]\s|\b(?:and|und|et|y|e)\b|^\s*\d+[.)]\s")
_LONGEST_LIST: Final = 300
_MOST_IN_A_RATIONALE: Final = 40


def _text_before(text: str, quantity: Quantity) -> str:
    return text[max(0, quantity.start - _LOOKED_BACK) : quantity.start]


def explain_undecided_numbers(text: str, numbers: Sequence[Quantity], gold: Decimal) -> CompareResult | None:
    """Undecided if other numbers may still imply the gold value: a range around it, or numbers with this sum."""
    values = [quantity.value for quantity in numbers]
    if len(numbers) == 2 and min(values) < gold < max(abs(value) for value in values):
        between = text[numbers[0].end : numbers[1].start].strip()
        opened = text[: numbers[0].start].rstrip().lower().endswith(("between", "from"))
        if (between in _JOINTS and opened) or between in _JOINTS[1:] or (not between and numbers[1].value < 0):
            return undecided("within_a_range")
    if len(values) <= 4 and (
        sum(values) == gold
        or any(gold in (left + right, abs(left - right)) for left, right in combinations(values, 2))
    ):
        return undecided("may_follow")
    return None


def has_repeated_numbers(text: str, numbers: Sequence[Quantity]) -> bool:
    """Whether equal numbers count different things (7 apples and 7 pears) or are next to each other (7 7)."""
    if len(numbers) < 2:
        return False
    units = {quantity.unit for quantity in numbers}
    return ("" not in units and len(units) > 1) or not text[numbers[0].end : numbers[1].start].strip()


_CANDIDATE = re.compile(
    r"(?:^|[;,.\n|]\s*|\s)\(?(?:(?P<letter>[A-H])"
    r"|(?:option|choice|candidate|guess|possibility|reading|answer) (?P<name>[A-H1-9]))\s?(?:[):]|is\b)",
    re.IGNORECASE,
)


def lists_candidates(text: str) -> bool:
    """Whether a text gives candidates under letters or numbers and leaves open which is its answer: A: 7; B: 72 F."""
    marks = {(match["letter"] or match["name"]).casefold() for match in _CANDIDATE.finditer(text)}
    return len(marks) > 1
