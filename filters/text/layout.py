"""A text without its layout: the same words and values become the same characters.

Removed are markdown marks, numbers and letters of lists that count up from the first, HTML tags, LaTeX's wrappers and
thousands separators. Unified are the capitals of headings, full-width and other compatibility forms, the quotes and
dashes of Unicode, apostrophes, and English contractions ("isn't" is "is not"). Case stays, because
`filters.text.values_and_names` reads names from it. The remaining punctuation separates words there and is no word.
"""

import re
import unicodedata

from filters.text.words import composed, spaced

_LIST_NUMBER = re.compile(
    r"\n\.?[ \t]*[*#_(]{0,4}[ \t]?(?:(?:[Ss](?:tep|TEP) )?(\d{1,3}|[a-h]|[ivx]{1,4})[.):][*_)]{0,3}(?=\s)"
    r"|[Ss](?:tep|TEP) (\d{1,3})[*_]{0,3}(?=[ \t]*\n))"
)
_LETTERS, _ROMAN = "abcdefgh", ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_HEADING = re.compile(r"\n[ \t]*#{1,6} [^\n]*")
_LINE_MARK = re.compile(r"\n[ \t]*[>+]+(?= )")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,60}>")
# Matches only at the first dash of a run; otherwise the time would grow with the square of the run's length.
_ARROW = re.compile(r"(?<![-=])[-=]++>")
_LATEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed|left|right|displaystyle|quad|[,;!:])(?![a-z])")
_SIGNS = {
    **{"times": "×", "cdot": "×", "ast": "×", "div": "÷", "pm": "±", "circ": "°", "degree": "°", "sqrt": "√"},
    **{"le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "infty": "∞", "pi": "π"},
    **dict.fromkeys(("bullet", "approx", "to", "Rightarrow", "rightarrow", "implies", "therefore"), " "),
    **{"angle": "angle", "triangle": "triangle"},
}
"""Commands of LaTeX and what they stand for."""
_SIGN = re.compile(rf"\\({'|'.join(sorted(_SIGNS, key=len, reverse=True))})(?![A-Za-z])")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]{1,40})\}\{([^{}]{1,40})\}")
_SINGLE_QUOTES = re.compile(r"'(?<!\w')([^'\n]{1,60})'(?!\w)")
# "isn`t"; elsewhere it marks code.
_BACKTICK = re.compile(r"(?<=[A-Za-z])`(?=[A-Za-z])")
_SHORT_ENDING = re.compile(r"(t|re|ve|ll|s)(?![A-Za-z])", re.IGNORECASE)
_LAST_WORD = re.compile(r"[A-Za-z]*$")
_FULL = {"ca": "can", "wo": "will", "sha": "shall", "re": " are", "ve": " have", "ll": " will"}
_BEFORE_IS = frozenset(["he", "she", "it", "that", "there", "what", "here", "who"])
"""After other words "'s" may be a possessive."""
_CANNOT = re.compile(r"(?<![A-Za-z])(can)not(?![A-Za-z])", re.IGNORECASE)
_THOUSANDS = re.compile(r",(?<=\d,)(?=\d\d\d(?!\d))")
_THIN_SPACE = re.compile(r"(?<=\d)[\u2009\u202f](?=\d{3}(?!\d))")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f](?:.{0,3}[^\x00-\x7f])*", re.DOTALL)
_NO_SHARP = re.compile(r"(?<![A-Za-z])#|#(?=[\w#])")
"""Not that of C# and F#."""
_DOUBLE_QUOTES = "«»“”„‟〝〞〟「」『』《》〈〉＂"
_ACCIDENTALS = {"♯": "#", "♭": "b"}
_OPERATORS = "×÷±≤≥≠√∞+<>"
_LONGEST_FORM = 6
"""In characters. Two Arabic signs have longer ones, 8 and 18: a text of them would grow as many times."""
_APOSTROPHES = "‘’‚‛‹›′ʼ´`＇"


class _Plain(dict[int, str]):
    """The replacement of each character, computed when it is first read."""

    def __missing__(self, code: int) -> str:
        self[code] = replacement = chr(code) if code < 128 else _plain(chr(code))
        return replacement


def _plain(character: str) -> str:
    if character in _DOUBLE_QUOTES:
        return '"'
    if character in _APOSTROPHES:
        return "'"
    if character in _ACCIDENTALS:
        return _ACCIDENTALS[character]
    wide = unicodedata.normalize("NFKC", character)
    if len(wide) <= _LONGEST_FORM and wide != character and wide != unicodedata.normalize("NFC", character):
        replacement = "".join("/" if part == "\u2044" else _CHARACTERS[ord(part)] for part in wide)
        # So that 10² is not 102, and 2½ not 21/2.
        return f" {replacement}" if character.isnumeric() and not character.isdecimal() else replacement
    kind = unicodedata.category(character)
    if kind == "Nd":
        return str(unicodedata.digit(character))
    if kind == "Pd" or character == "−":
        return "-"
    if kind[0] in "ZP" or kind in ("Cc", "So", "Sk"):
        return "." if character in "。।؟።" else f" {character} " if character == "°" else " "
    if kind == "Cf":
        return ""
    if kind[0] == "S":
        return f" {character} " if kind == "Sc" or character in _OPERATORS else " "
    # Small letters must be as long in UTF-8 as capitals: `filters.text.values_and_names` compares them byte by
    # byte.
    small = character.lower()
    if len(small.encode("utf-8", "surrogatepass")) != len(character.encode("utf-8", "surrogatepass")):
        return small
    return {"ß": "ss", "ς": "σ"}.get(character, character)


_CHARACTERS = _Plain()


def without_layout(text: str) -> str:
    """A text in its own case without layout."""
    if not text.isascii():
        text = _without_forms(text)
    # The test for a character is very cheap, and most texts have few of these marks.
    if "\n" in text or "\r" in text or text[:5].lower() == "step " or not text[:1].isalpha():
        text = _without_line_marks("\n" + text)
    if "#" in text:
        text = _NO_SHARP.sub(" ", text)
    if "`" in text:
        text = _BACKTICK.sub("'", text).replace("`", "")
    if "\\" in text:
        text = _LATEX.sub(" ", _FRACTION.sub(r" \1/\2 ", _SIGN.sub(lambda match: f" {_SIGNS[match[1]]} ", text)))
    if ">" in text:
        text = _ARROW.sub(" ", _TAG.sub(" ", text))
    if "," in text:
        text = _THOUSANDS.sub("", text)
    if "'" in text:
        text = _SINGLE_QUOTES.sub(lambda match: f'"{match[1]}"', _without_contractions(text)).replace("'", "")
    if "annot" in text or "ANNOT" in text:
        text = _CANNOT.sub(r"\1 not", text)
    return text


def _without_contractions(text: str) -> str:
    pieces = text.split("'")
    result = pieces[:1]
    for piece in pieces[1:]:
        before = result[-1]
        short = _SHORT_ENDING.match(piece)
        full = _without_contraction(before, short[1].lower()) if short and before[-1:].isalpha() else None
        if short is None or full is None:
            result.append(piece)
        else:
            result[-1] = full + piece[short.end() :]
    return "'".join(result)


def _without_contraction(before: str, ending: str) -> str | None:
    """The text before an apostrophe with the full form of the ending after it; None where nothing is shortened."""
    if ending == "t":
        word = _LAST_WORD.findall(before[-20:-1])[0]
        stem = before[: len(before) - 1 - len(word)]
        return f"{stem}{_FULL.get(word.lower(), word)} not" if before[-1] in "nN" and word else None
    if ending == "s":
        return f"{before} is" if _LAST_WORD.findall(before[-20:])[0].lower() in _BEFORE_IS else None
    return before + _FULL[ending]


def _without_forms(text: str) -> str:
    """A text in which Unicode's many forms of one character are one."""
    if "\u202f" in text or "\u2009" in text:
        text = _THIN_SPACE.sub("", text)
    text = _BEYOND_ASCII.sub(lambda match: match.group().translate(_CHARACTERS), composed(text))
    return spaced(text)


def _without_line_marks(text: str) -> str:
    text = text.replace("\r", "\n")
    if "#" in text:
        text = _HEADING.sub(lambda match: f"\n.{match.group().lower()}.", text)
    if ">" in text or "+" in text:
        text = _LINE_MARK.sub("\n", text)
    last = 0

    def unnumbered(match: re.Match[str]) -> str:
        nonlocal last
        places = _places(match[1] or match[2])
        # A number that a line break put at the beginning of a line does not continue the list.
        number = next((place for place in (last + 1, 1) if place in places), None)
        if number is None:
            return match.group()
        last = number
        return "\n"

    return _LIST_NUMBER.sub(unnumbered, text)


def _places(number: str) -> set[int]:
    """The possible values of a list number: "i" is the ninth letter and the first Roman number."""
    if number.isdecimal():
        return {int(number)}
    return {marks.index(number) + 1 for marks in (_LETTERS, _ROMAN) if number in marks}
