"""Answers that are the same words written otherwise: shortened, with figures, without accents, as a formula, foreign.

Two Main St. and 2 Main Street, III and 3, Dept of Roads, CAFFÈ and caffe, CO2, an international telephone number. It
finds only that two answers are the same, never that they differ, except for names of countries.
"""

import re
from collections.abc import Sequence
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided
from distill.answers.numbers.number_words import ORDINAL_NAME, TENS, ordinal_value, spelled
from distill.answers.words.place_names import STATES, compare_places
from distill.answers.words.spelling import without_accents
from distill.word_tables import longest_first, read_table

_TABLE: Final = read_table(__file__)
SHORT: Final = frozenset(tuple(pair.split("=")) for pair in _TABLE["short"].split())
_SAME_THING: Final = frozenset(
    frozenset(pair.strip().split("=")) for pair in " ".join(_TABLE["same_thing"].split()).split(";")
)
_FEWEST_LETTERS: Final = 4


def same_things(gold: str) -> tuple[str, ...]:
    """Other names of what a gold answer names; short ones are not here: they may be words of other languages."""
    bare = re.sub(r"^(?:the|an?) ", "", gold.casefold())
    names = {name for pair in _SAME_THING if bare in pair for name in pair - {bare}}
    if bare in ("female", "male", "females", "males"):
        return ()  # the woman holds the baby, for the sex of the baby
    return tuple(sorted(name for name in names if len(name) >= _FEWEST_LETTERS))


_ORDINAL = re.compile(rf"{ORDINAL_NAME}|\b(?P<digits>\d+)\s?(?:st|nd|rd|th)\b", re.IGNORECASE)
FOREIGN_ORDINALS: Final = {
    name: value for value, names in enumerate(_TABLE["ordinals"].split(), start=1) for name in names.split("|")
}
_FOREIGN_ORDINAL = re.compile(rf"\b({longest_first(FOREIGN_ORDINALS)})\b|\b(\d+)(?:er|ère|re|e|ème|eme|o|a|\.)(?=\s)")
_ROMANS: Final = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_DECADES: Final = {word[:-1] + "ies": value for word, value in TENS.items()}
_UMLAUTS: Final = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "å": "aa", "ø": "oe", "æ": "ae", "œ": "oe"}
)
_PHONE = re.compile(
    r"(?:(?:tel|phone|fax|call)\w*\W*)?(?P<plus>\+\d{1,3}[\s.-]?)?(?P<rest>[(\d][\d\s().-]{5,18}\d)", re.IGNORECASE
)
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?P<rest>[\w.-]+\.[a-z]{2,}(?:/[\w./-]*?)?)/?", re.IGNORECASE)

_TWO: Final = 2
_MOST_INITIALS: Final = 6
_SHORT_NAME = re.compile(r"(?:[A-Z]\.?\s?){1,7}[A-Z]\.?|[A-Z]\s?&\s?[A-Z]")
_JOINING: Final = frozenset({"of", "and", "the", "for", "in", "on", "de", "la"})
_FULL: Final = {
    short: full
    for short, full in sorted(SHORT)
    if re.fullmatch(r"\w+day|january|february|march|april|june|july|august|september|october|november|december", full)
}
_DAY_OR_MONTH = re.compile(rf"\b({longest_first(_FULL)})\b\.?")


def compare_spellings(
    text: str, gold: str, words: Sequence[str], gold_words: Sequence[str], question: str = ""
) -> CompareResult | None:
    """Whether two answers are one in other spellings; None where that is not sure.

    `words` and `gold_words` are the words of the two answers.
    """
    joined, gold_joined = " ".join(words), " ".join(gold_words)
    both_texts = frozenset((text.casefold(), gold.casefold()))
    if frozenset((joined, gold_joined)) in _SAME_THING or both_texts in _SAME_THING:
        return correct("same_thing")
    if (country_result := compare_places(text, gold)) is not None:
        return country_result
    if _same_phone_or_address(text, gold):
        return correct("same_number_or_address")
    if (
        STATES.get(text) == gold
        or STATES.get(gold) == text
        or _state_in_full(text) == _state_in_full(gold)
        or _same_code(text, gold)
    ):
        return correct("same_words_shortened")
    if (shortened := _compare_shortened(words, gold_words)) is not None:
        return shortened
    in_figures, gold_in_figures = _words_in_figures(text), _words_in_figures(gold)
    if (
        in_figures == gold_in_figures
        or _compare_shortened(in_figures, gold_in_figures) is not None
        or _same_years(text, gold)
        or _same_but_roman_number(text, gold)
        or _same_roman(text, gold)
    ):
        return correct("same_words_in_figures")
    for name, short in ((text, gold), (gold, text)):
        short = short.removeprefix("the ").removeprefix("The ")
        letters = re.sub("[.& ]", "", short)
        is_lower = short.isascii() and short.isalpha() and _TWO < len(short) <= _MOST_INITIALS
        letters = short.upper() if is_lower else letters
        if (_SHORT_NAME.fullmatch(short) or is_lower) and letters == _initials(name):
            sure = (len(letters) > _TWO or "&" in short) and not re.search(rf"\b{re.escape(short)}\b", question)
            return correct("acronym") if sure else undecided("may_be_the_acronym")
    return _compare_without_accents(text, gold) or _compare_without_accents(joined, gold_joined)


_STATE = re.compile(r"(?<=[A-Za-z])(?:, ?| )([A-Z]{2})(?=$|,? \d{5}\b)")
_CODE = re.compile(r"[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+){0,4}")
_INSIDE_A_CODE = re.compile(r"(?<=[a-z]) (?=[a-z0-9])|(?<=\d) (?=[a-z])")
_CODE_LENGTHS: Final = range(5, 16)


def _state_in_full(text: str) -> str:
    """Columbus, OH with the name of the state; a code counts after a place only."""
    text = _STATE.sub(lambda code: f", {STATES.get(code[1], code[1])}", text)
    return re.sub(r"[\s,]+", " ", text).casefold()


def _same_code(text: str, gold: str) -> bool:
    """7HKT 204 and 7hkt204: one code with other spaces; those between two digits count, as every hyphen does."""
    if not (_CODE.fullmatch(text) and _CODE.fullmatch(gold)):
        return False
    code, gold_code = (_INSIDE_A_CODE.sub("", answer.casefold()) for answer in (text, gold))
    mixed = sum(sign.isdigit() for sign in code) >= 2 and sum(sign.isalpha() for sign in code) >= 2
    return code == gold_code and mixed and len(code) in _CODE_LENGTHS


def _same_phone_or_address(text: str, gold: str) -> bool:
    match, gold_match = _PHONE.fullmatch(text), _PHONE.fullmatch(gold)
    if match is not None and gold_match is not None:
        digits = [re.sub(r"\D", "", matched["rest"]) for matched in (match, gold_match)]
        codes = {re.sub(r"\D", "", matched["plus"] or "") for matched in (match, gold_match)} - {""}
        return len(digits[0]) >= 7 and len(codes) < 2 and digits[0].lstrip("0") == digits[1].lstrip("0")
    match, gold_match = _ADDRESS.fullmatch(text), _ADDRESS.fullmatch(gold)
    return (
        match is not None
        and gold_match is not None
        and match["rest"].casefold().strip("/") == gold_match["rest"].casefold().strip("/")
    )


def _compare_shortened(words: Sequence[str], gold_words: Sequence[str]) -> CompareResult | None:
    """Words of which some are written short on one side."""
    if len(words) != len(gold_words):
        return None
    pairs = [(word, gold_word) for word, gold_word in zip(words, gold_words, strict=True) if word != gold_word]
    if len(words) > 1 and all({pair, pair[::-1]} & SHORT or _same_street(*pair) for pair in pairs):
        return correct("same_words_shortened")
    return None


def _same_street(left: str, right: str) -> bool:
    """Bahnhofstr. and Bahnhofstraße."""
    short, long = sorted((left, right), key=len)
    return len(short) > 5 and short.endswith("str") and long == short + "asse"


def _words_in_figures(text: str) -> tuple[str, ...]:
    """The words in lower case, with numbers, ordinals and decades in figures."""
    text = _ORDINAL.sub(_ordinal, text)
    for start, end, value in reversed([(start, end, value) for value, start, end in spelled(text)]):
        text = f"{text[:start]} {value.normalize():f} {text[end:]}"
    text = re.sub(r"(?<=\d)x\b", " times", text.casefold())
    text = _FOREIGN_ORDINAL.sub(lambda word: f"{FOREIGN_ORDINALS[word[1]]}th" if word[1] else f"{word[2]}th", text)
    text = _DAY_OR_MONTH.sub(lambda word: _FULL[word[1]], text)
    text = re.sub(r"(?<=\w)(?:\s(?:through|thru|until|till|to)\s|\s?-\s?)(?=\w)", " ", text)
    text = re.sub(r"\b(\d+) ?\(\1\)", r"\1", text)  # ten (10) days
    text = re.sub(r"\$\s?(\d[\d.,]*)", r"\1 dollars", text)
    text = re.sub(r"\bv\.?\s?p\b\.?", "vice president", text)
    for pattern, words_of_it in _DOSES:
        text = pattern.sub(words_of_it, text)
    text = re.sub(r"\bwearing\b", "in", text)
    text = re.sub(r"\b(?:a|per|every) day\b", "daily", text)
    text = re.sub(r"\bq([1-4])\b", r"\1th quarter", text)
    text = re.sub(r"\bquarter of (?=\d)", "quarter ", text).replace("&", " and ")
    for word, replacement in (("once", "1 times"), ("twice", "2 times"), ("thrice", "3 times")):
        text = re.sub(rf"\b{word}\b", replacement, text)
    text = re.sub(r"\b(?:the )?(?:19)?(\d0)'?s\b", r"\1s", text)
    for word, decade in _DECADES.items():
        text = re.sub(rf"\b{word}\b", f"{decade}s", text)
    words = re.findall(r"[^\W_]+(?:['][^\W_]+)*|[^\w\s.,;:'\"!?()-]|(?<!\S)-(?=\S)", text)
    return tuple(word for word in words if word not in ("the", "a", "an"))


_DOSES: Final = (
    (re.compile(r"\bb\.?i\.?d\b\.?"), "2 times daily"),
    (re.compile(r"\bt\.?i\.?d\b\.?"), "3 times daily"),
    (re.compile(r"\bq\.?i\.?d\b\.?"), "4 times daily"),
    (re.compile(r"\bfl\.? ?oz\b\.?"), "fluid ounces"),
)
"""Abbreviations of prescriptions and labels."""
_YEARS = re.compile(r"(?:from )?((?:1[5-9]|20)\d\d)\s?(?:-|/|to|until)\s?((?:1[5-9]|20)?\d\d)")


def _same_years(text: str, gold: str) -> bool:
    """2010-14 and 2010-2014."""
    match, gold_match = _YEARS.fullmatch(text), _YEARS.fullmatch(gold)
    if match is None or gold_match is None:
        return False
    return match[1] == gold_match[1] and (match[1][:2] + match[2])[-4:] == (gold_match[1][:2] + gold_match[2])[-4:]


def _ordinal(match: re.Match[str]) -> str:
    return f"{match['digits'] or ordinal_value(match)}th"


def _same_but_roman_number(text: str, gold: str) -> bool:
    """Rocky Harbour III and Rocky Harbour 3, Henry the Eighth aside."""
    words, gold_words = text.split(), gold.split()
    if (
        len(words) != len(gold_words)
        or len(words) < 2
        or [word.casefold() for word in words[:-1]] != [w.casefold() for w in gold_words[:-1]]
    ):
        return False
    return any(
        a.isdecimal() and len(a) < 3 and int(a) < 40 and _roman(int(a)) == b.upper() and (b.isupper() or len(b) > 1)
        for a, b in _both_orders(words[-1], gold_words[-1])
    )


_ROMAN = re.compile(r"(?=[MDCLXVI]{2})M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_NUMBERED = re.compile(r"(?:(?:quadrant|chapter|part|volume|type|phase|level|year) )?(\d{1,4})", re.IGNORECASE)


def _same_roman(text: str, gold: str) -> bool:
    """III and 3, MCMLXXIV and 1974."""
    return any(
        _ROMAN.fullmatch(a) is not None
        and (number := _NUMBERED.fullmatch(b)) is not None
        and _roman(int(number[1])) == a
        for a, b in _both_orders(text, gold)
    )


def _both_orders(left: str, right: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (left, right), (right, left)


def _roman(value: int) -> str:
    written = ""
    for size, letters in _ROMANS:
        count, value = divmod(value, size)
        written += letters * count
    return written


def with_one_name(text: str, gold: str) -> str:
    """A text with the gold name alone where it has a name and its initials: UN for "United Nations (UN)"."""
    bare = re.sub(r"^(?:the|an?) ", "", gold.casefold())
    for both in _IN_PARENTHESES.finditer(text) if len(text) <= _LONGEST_WITH_INITIALS else ():
        words, inside = both["before"].split(" "), both["inside"]
        for count in range(1, min(len(words), _MOST_WORDS_OF_A_NAME) + 1):
            names = (" ".join(words[-count:]), inside)
            if bare in map(str.casefold, names) and any(_initials(a) == _letters(b) for a, b in _both_orders(*names)):
                return f"{' '.join((*words[:-count], gold))}{text[both.end() :]}"
    return text


_IN_PARENTHESES = re.compile(r"(?P<before>[^()]+) \((?P<inside>[^()]{2,60})\)")
_LONGEST_WITH_INITIALS: Final = 400
_MOST_WORDS_OF_A_NAME: Final = 8
_CAPITALS = re.compile(r"[A-Z]\.?(?:[ &]*[A-Z]\.?){1,6}")


def _letters(short: str) -> str:
    return re.sub("[.& ]", "", short) if _CAPITALS.fullmatch(short) else "-"


def _initials(name: str) -> str:
    words = re.findall(r"[^\W\d_]+", name)
    return "".join(word[0].upper() for word in words if word.lower() not in _JOINING)


_SURE_LETTERS: Final = 5


def _compare_without_accents(text: str, gold: str) -> CompareResult | None:
    """One side wholly without accents: sure for several words, open for one (naive, resume, año)."""
    if text.isascii() == gold.isascii():
        return None
    accented, plain = (text, gold) if gold.isascii() else (gold, text)
    spelt_out = accented.casefold().translate(_UMLAUTS)
    if without_accents(spelt_out) == plain.casefold() and len(spelt_out) > len(accented):
        return correct("same_letters")
    if without_accents(accented.casefold()) != plain.casefold():
        return None
    long = len(plain) >= _SURE_LETTERS
    return correct("same_without_accents") if long else undecided("accents_differ")
