"""The words, numbers and signs of a question, in one spelling, for the comparison of questions.

Case, layout, punctuation, accents and instructions on the form of the answer are left out.
"""

import re
import unicodedata

from filters.text.synonyms import NUMBERS
from filters.text.words import spaced, with_marks


def _token(word: str) -> re.Pattern[str]:
    return re.compile(
        rf"\d+(?:[.,]\d+)*|{word}|[<>!]=|[-+*/=<>^](?=\s?[\d(])|(?<=\s)[+*/=<>^](?=\s)|[+=<>^](?=[a-z])"
        r"|(?<=\b[a-z])\*(?=[a-z]\b)|(?<=[\d)])!(?=\s*[-+*/=<>^?\d()])|[\u00b1\u2200-\u22ff]"
    )


_TOKEN, _ASCII_TOKEN = _token(with_marks(r"[^\W\d_]")), _token("[a-z]+")
_LONG_FORMS = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "–": "-", "—": "-", "−": "-", "‐": "-", "‑": "-", "×": "*", "÷": "/", "·": "*"}
    | {"≠": "!=", "≤": "<=", "≥": ">=", "∙": "*", "⋅": "*", "∗": "*", "∕": "/"}
)
_THIN_SPACE = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
# Accents, and the points of Hebrew and Arabic, which are seldom written.
_INVISIBLE = re.compile(
    r"[\u00ad\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff\u0300-\u036f"
    r"\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u0652\u0656-\u065f\u0670]"
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SCALED = re.compile(r"(\d+(?:\.\d+)?) ?(thousand|million|billion)\b")
_TENS = re.compile(
    r"\b(twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)[- ]"
    r"(one|two|three|four|five|six|seven|eight|nine)\b"
)
_MONEY = re.compile(r"([$€£])\s?(\d[\d.,]*\d|\d)")
_PLACEHOLDER = re.compile(r"<\|?/?[a-z_]*image[a-z_]*(?:_\d+)?\|?>|\[image\]")
_REQUEST = re.compile(r"(?:^|(?<=[.?!:\n]))\s*(?:please )?(?:answer|respond|reply)\b[^.?!:\n]*(?:[.!:\n]|$)")

_REQUEST_AT_END = re.compile(
    r"\b(?:answer|respond|reply) (?:the question|with|using|in|by|only|briefly|shortly|directly)\b"
    r"[^.?!:\n]*(?:[.!]| \?)?\s*$"
)

# Cyrillic and Greek letters that look like Latin ones, lower case.
_LOOK_ALIKES = str.maketrans("асеорхуіјѕһԁԛԝкмтнвгαεικνορτυχωβ", "aceopxyijshdqwkmthbraeiknoptuxwb")
_MIXED = re.compile(r"[^\W\d_]*[\u0370-\u052f][^\W\d_]*")

_UNITS = {word: int(value) for word, value in NUMBERS.items() if len(value) == 1} | {"one": 1}
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound"}


def tokenize(question: str) -> list[str]:
    """Words, numbers and operators in lower case, with one spelling per number and without look-alike letters."""
    text = question.lower() if question.isascii() else _latin(question)
    if "<" in text or "[" in text:
        text = _PLACEHOLDER.sub(" ", text)
    if "n't" in text:
        text = text.replace("n't", " not")
    if "answer" in text or "respond" in text or "reply" in text:
        text = _REQUEST_AT_END.sub(" ", _REQUEST.sub(" ", text)).strip() or text
    if "$" in text or "€" in text or "£" in text:
        text = _MONEY.sub(lambda match: f"{match[2]} {_CURRENCIES[match[1]]}", text)
    if "%" in text:
        text = text.replace("%", " percent ")
    if "per cent" in text:
        text = text.replace("per cent", "percent")
    if "ty" in text:
        text = _TENS.sub(lambda match: str(int(NUMBERS[match[1]]) + _UNITS[match[2]]), text)
    if "all but" in text:
        text = text.replace("all but", "all except")
    if "illion" in text or "thousand" in text:
        text = _SCALED.sub(lambda match: _plain_number(match[1], int(NUMBERS[match[2]])), text)
    question_tokens = (_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text)
    if not any(token[0].isalnum() for token in question_tokens):
        return text.split()  # of signs alone, such as "△ + □ = ?", each counts
    if "," in text or "." in text:
        return [_plain_number(token) if token[0].isdigit() else token for token in question_tokens]
    return question_tokens


def _latin(question: str) -> str:
    """Lower case without invisible characters; in a Latin text look-alikes of Latin letters become Latin."""
    text = unicodedata.normalize("NFKC", _THIN_SPACE.sub("", question)).translate(_LONG_FORMS).casefold()
    text = unicodedata.normalize("NFC", _INVISIBLE.sub("", unicodedata.normalize("NFD", text)))
    if not text.isascii():
        letters = sum(character.isalpha() for character in text)
        if 2 * sum("a" <= character <= "z" for character in text) > letters:
            text = _MIXED.sub(lambda match: match[0].translate(_LOOK_ALIKES), text)
    return spaced(text)


def _plain_number(token: str, times: int = 1) -> str:
    """One spelling of a number: no separators of thousands, no zeros behind a decimal point."""
    if _THOUSANDS.fullmatch(token):
        token = token.replace(",", "")
    if times != 1:
        whole, _, decimals = token.partition(".")
        token = str(int(whole + decimals) * times // 10 ** len(decimals))
    if token.count(".") == 1 and "," not in token:
        token = token.rstrip("0").rstrip(".")
    return token
