"""The numbers of a rationale, and the words that tie each number to the item before it.

Works on the text between neighbouring numbers and labels; such pieces repeat often, so results are cached. Reads
English. `distill.grounding.check` decides whether a statement is true.
"""

import re
import sys
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.quantities import read_quantities
from distill.word_tables import word_set

_SIGNS: Final = tuple(zip("−–—‐‑’∙⋅", "-----'··", strict=True))
_LATEX: Final = (
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"(\1) / (\2)"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|boxed|operatorname)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:times|cdot)\b"), "×"),
    (re.compile(r"\\div\b"), "÷"),
    (re.compile(r"\\approx\b"), "≈"),
    (re.compile(r"\\(?:(?:long)?(?:right|Right)arrow|to|implies)\b"), "→"),
    (re.compile(r"\\(?:left|right)\b|\\[,!;: ]"), ""),
    (re.compile(r"\\([$%&#_])"), r"\1"),
    (re.compile(r"\\[()\[\]]"), " "),
)


def plain_text(text: str) -> str:
    """The text with one kind of dash and apostrophe and simple LaTeX written out."""
    if not text.isascii():
        for sign, usual in _SIGNS:
            text = text.replace(sign, usual)
    if "\\" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    return text


# --- numbers ------------------------------------------------------------------------------------------------------

# Digit groups are taken whole; a point or comma at the end of a sentence is none of the number's. Ranges are found
# in half the time of \d; the second is full width.
_NUMBER = re.compile(
    r"""[0-9\uff10-\uff19]\d*(?:[.,'\u00a0\u202f\u2009]\d+)*
    (?:\s?%|\s(?:percent|per\scent|pct)\b|\s?(?:[kKMB]|bn|mn)\b|\s(?:thousand|million|billion|trillion)\b)?""",
    re.VERBOSE,
)
_GROUPED = re.compile(r"\d{1,3}(?:[,'\u00a0\u202f\u2009]\d{3})+(?:\.\d+)?")
_SEPARATORS: Final = ",'\u00a0\u202f\u2009"
_PLAIN_NUMBER = re.compile(r"\d+(?:\.\d+)?")
ROUNDING_LIMIT: Final = 0.05
"""Relative distance that rounding to a whole number may make, and that is allowed to what is "about" a number."""


class Literal(NamedTuple):
    """A number as written. `readings` are (value, half a unit of its last place), the usual one first."""

    value: float
    readings: tuple[tuple[float, float], ...]
    percent: bool
    integer: bool
    """Written with digits and separators only."""
    ranges: tuple[tuple[float, float], ...]
    """The sizes that it can stand for, whichever reading is meant."""
    hedged_ranges: tuple[tuple[float, float], ...]
    """Ranges that are given as "about"."""


@lru_cache(maxsize=1 << 15)
def read_literal(text: str) -> Literal:
    match = re.match(r"[\d.,'\u00a0\u202f\u2009]*", text)
    digits_only = match[0] if match else text
    number = re.sub(r"[^\d.]", "", digits_only).rstrip(".")
    value = float(number)
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    readings = [(value, half)]
    percent = text.endswith(("%", "percent", "per cent", "pct"))
    if text != digits_only and not percent:
        quantities = read_quantities(normalise(text))
        scale = float(quantities[0].value) / value if quantities and value else 1.0
        readings.insert(0, (value * scale, half * scale))
    else:
        # A chart's axis may count in thousands or millions.
        readings += [
            (value / scale, half / scale) for scale in (1e3, 1e6, 1e9) if value >= scale and not value % scale
        ]
    return Literal(
        value=readings[0][0],
        readings=tuple(readings),
        percent=percent,
        integer=text == digits_only and "." not in number,
        ranges=_ranges(readings, percent, False),
        hedged_ranges=_ranges(readings, percent, True),
    )


def _ranges(readings: list[tuple[float, float]], percent: bool, hedged: bool) -> tuple[tuple[float, float], ...]:
    """What numbers as written are rounded from: to whole numbers only where that changes little."""
    ranges = []
    for value, half in readings:
        low, high = value - half * 1.0001, value + half * 1.0001
        near = value / (1 + ROUNDING_LIMIT), value / (1 - ROUNDING_LIMIT)
        if hedged:
            low, high = min(low, near[0]), max(high, near[1])
        if percent:
            ranges.append((low / 100, high / 100))
        if half >= 0.5 and not hedged:
            low, high = max(low, near[0]), min(high, near[1])
        ranges.append((low, high))
    return tuple(ranges)


class Item(NamedTuple):
    """A number or a label and its place. `label` is empty for numbers; `in_table`: the table has this label."""

    start: int
    end: int
    number: Literal | None
    negative: bool = False
    label: str = ""
    in_table: bool = True
    value: float = 0.0
    """A number with its sign."""


def find_numbers(text: str, max_numbers: int = sys.maxsize) -> list[tuple[int, int]]:
    """Start and end of the first `max_numbers` numbers in a text, with their units."""
    return [match.span() for match in islice(_NUMBER.finditer(text), max_numbers)]


def count_separators(text: str, spans: list[tuple[int, int]]) -> int:
    """The number of signs at these spans that may separate numbers in a row ("8,6")."""
    present = [sign for sign in _SEPARATORS if sign in text]
    return sum(text.count(sign, start, end) for sign in present for start, end in spans)


def read_numbers(text: str, spans: list[tuple[int, int]]) -> list[Item]:
    """The quantities at these spans, without parts of words (H2O, Q3, 3rd), dates, times and versions."""
    items = []
    # At the edges a parenthesis and spaces stand for nothing; with them, each look is at one stretch.
    padded = f"(((({text}  "
    for start, end in spans:
        written, after = text[start:end], padded[end + 4]
        is_plain = written.isdigit() and written.isascii() and padded[start + 3] == " "
        if is_plain and after != ":" and not after.isalnum():
            # Most numbers, of which `_read_stretch` says the same.
            number = read_literal(written)
            items.append(Item(start, end, number, False, "", True, number.value))
            continue
        for offset, length, number, negative, value in _read_stretch(padded[start : end + 6]):
            items.append(Item(start + offset, start + offset + length, number, negative, "", True, value))
    return items


@lru_cache(maxsize=1 << 15)
def _read_stretch(stretch: str) -> tuple[tuple[int, int, Literal, bool, float], ...]:
    """(offset, length, number, negative, value) of what is written between four characters and two."""
    before, written, after = stretch[:4], stretch[4:-2], stretch[-2:]
    last, earlier = before[-1], before[-2]
    if last.isalnum() or last in "_#" or (last == ":" and earlier.isalnum()):
        return ()
    if last == "." and earlier.isalnum():
        return ()
    if (after[0].isalnum() and after[0] not in "x×") or (after[0] == ":" and after[1].isdigit()):
        return ()
    offset = -1 if last == "." else 0
    digits = written.rstrip("%abcdefghijklmnopqrstuvwxyzKMB ")
    if ("," in digits or "'" in digits or not digits.isascii()) and not _GROUPED.fullmatch(digits):
        # "8,6": two numbers that stand in a row.
        row = [(match.start(), len(match[0]), read_literal(match[0])) for match in _PLAIN_NUMBER.finditer(written)]
        return tuple((at, length, number, False, number.value) for at, length, number in row)
    if digits.count(".") - offset > 1:
        return ()
    # A sign belongs to the number where nothing stands before it that could be subtracted from.
    head = before[: len(before) + offset].rstrip("$€£")
    negative = head.endswith("-") and (head[-2:-1] in "(:=," or (head[-2:-1] == " " and head[-3:-2] in "(:=,"))
    number = read_literal("." * -offset + written)
    return ((offset, len(written) - offset, number, negative, -number.value if negative else number.value),)


_STRETCH = re.compile(r"\d+(?:[.,' \u00a0\u202f\u2009]\d+)+")
_MOST_OF_STRETCH: Final = 32
"""Characters before and after a number among which the rest of its digits is looked for."""


def other_notations(text: str, start: int, end: int) -> tuple[float, ...]:
    """What the digits around a place are in notations that `read_numbers` does not take for granted.

    "3,50" and "1.234,5" have a decimal comma; "25,00,000", "2.500.000" and "2 500 000" have separated groups. In
    English text they may also be a row of numbers, so they excuse a number and support none.
    """
    first = max(0, start - _MOST_OF_STRETCH)
    for match in _STRETCH.finditer(text, first, end + _MOST_OF_STRETCH):
        if match.start() <= start and end <= match.end():
            return _notations(match[0])
    return ()


@lru_cache(maxsize=1 << 12)
def _notations(stretch: str) -> tuple[float, ...]:
    groups, marks = re.split(r"\D", stretch), re.findall(r"\D", stretch)
    digits = "".join(groups)
    readings = []
    if all(2 <= len(group) <= 3 for group in groups[1:-1]) and len(groups[-1]) == 3 and len(set(marks)) == 1:
        readings.append(float(digits))
    if marks[-1] in ".," and marks[-1] not in marks[:-1] and all(len(group) == 3 for group in groups[1:-1]):
        readings.append(float(f"{digits[: -len(groups[-1])]}.{groups[-1]}"))
    return tuple(readings)


# --- what ties a number to what stands before it --------------------------------------------------------------------

TOKEN = re.compile(r"[a-z][a-z'-]*|\*\*+|\n|\S")
PLAIN, HEDGE, LIMIT, BLOCK, MOVE, REACH, TO, HIGH, LOW, CUE = range(10)
_RANKS: Final = word_set("second third fourth fifth next than nd rd th minus - + plus from")
_HIGHEST: Final = "highest largest biggest greatest maximum max tallest peak high"
_LOWEST: Final = "lowest smallest minimum min shortest low fewest"
EXTREMES: Final = word_set(f"{_HIGHEST} {_LOWEST}") - {"max", "min"}
_CUES: Final = {
    "sum": "sum sums total totals totalling totaling together altogether combined overall adding summing",
    "difference": "difference differences gap leaves leaving margin exceeds exceed subtracting range",
    "mean": "average averages mean median",
    "ratio": "ratio quotient proportion dividing",
    "product": "product multiplying",
    "result": "gives give giving makes make making yields yield get gets obtain answer result results equals means",
}
_CUE_OF: Final = {word: cue for cue, words in _CUES.items() for word in words.split()}


def _classes() -> dict[str, int]:
    words = {
        PLAIN: """is are was were be been being has have had having shows show showed shown showing reads read reading
            reaches reach reached reaching equal stands stood standing sits sat sitting at of as the a an its it
            which that with only just exactly precisely also still now then recorded recording records record
            registered registers posted reported accounts accounted accounting for represents represented representing
            comprises comprised contributes contributed holds held got value values height
            count number figure level bar bars column columns slice slices segment wedge sector line portion category
            share percentage percent rate score measured measures with seems appears looks like be both each
            respectively lies lay on ** : = ( [ , - | " ' ` > → $ € £ 's year in chart graph see saw labeled
            labelled marked given listed where here we one would
            ending starting ends ended started began begins hits hit hitting remained remains stayed stays averaged
            totaled totalled numbered numbering earned sold collected scored produced generated per
            touches mark gridline top edge""",
        HEDGE: "about approximately approx around roughly nearly almost ~ ≈ circa near estimated slightly some",
        LIMIT: """than over under above below between least most within exceed past beyond not
            n't isn't wasn't never without < ≤ ≥ until ranging ranges runs""",
        MOVE: """rose fell increased decreased dropped grew climbed declined went rises falls drops grows climbs
            jumped jumps declines increases decreases rising falling dropping growing climbing peaked peaks peaking
            bottomed down changed shifted moved surged plunged slipped soared increasing decreasing declining jumping
            changing moving""",
        REACH: """goes going up comes came amounts amounted corresponds corresponding corresponded close extends
            stretches""",
        TO: "to from",
        HIGH: _HIGHEST,
        LOW: _LOWEST,
        BLOCK: """more less fewer higher lower larger smaller greater taller shorter bigger longer by times plus minus
            and but while whereas or if when because since compared versus vs half twice double triple increase
            decrease rise drop decline growth change add subtract divided multiplied among amongst across other others
            another all any none next second third fourth fifth second-highest second-lowest second-largest
            second-smallest 2nd 3rd ahead behind every rank ranks ranked place
            position st nd rd th . ! ? ; + * / × ÷ · ^ { } step steps row""",
        CUE: " ".join(_CUE_OF),
    }
    table: dict[str, int] = {"\n": BLOCK}
    for kind, listed in words.items():
        for word in listed.split():
            table.setdefault(word, kind)
    return table


WORD_CLASS: Final = _classes()
_TIGHT: Final = frozenset([":", "=", "(", "[", "|", "**", "-", "→", ">", "$", "€", "£", '"', "'", "`", "≈", "~"])


class Lead(NamedTuple):
    """How the words before a number tie it to the item before them."""

    tie: str
    """tight ("blue: 8"), verbal ("blue is 8"), weak ("blue sold 8", words we do not know) or empty: not tied."""
    extreme: str
    """high or low where the words are "the highest value is"."""
    cue: str
    """The step that the words announce ("their sum is"), `result` for one that they do not name."""
    hedged: bool
    limited: bool
    """Stated as a limit ("more than") or denied."""


_SHORT, _LONG = 40, 200
"""Stretches of text, in characters."""


def read_lead(gap: str) -> Lead:
    """How a piece of text ties the number after it; only its last sentence counts."""
    if len(gap) > _SHORT:
        gap = gap[-100:]
        gap = gap[max(0, gap.rfind("."), gap.rfind(";"), gap.rfind("\n")) :]
    return _read_lead(gap)


@lru_cache(maxsize=1 << 15)
def _read_lead(gap: str) -> Lead:
    tokens = TOKEN.findall(gap.lower())
    hedged = limited = moved = False
    strangers = 0
    tight = True
    cue = ""
    index = len(tokens)
    while index:
        token = tokens[index - 1]
        kind = WORD_CLASS.get(token)
        if kind is None:
            strangers += 1
            if strangers > 2 or not token[0].isalpha():
                break
        elif kind == BLOCK:
            if token == "by" and tokens[index - 2 : index - 1] not in (["divided"], ["multiplied"]):
                cue = "difference"  # "higher by 3"
            break
        elif kind == CUE:
            if _CUE_OF[token] != "result":
                return Lead("", "", _CUE_OF[token], hedged, limited and not strangers)
            cue = "result"
        elif kind in (HIGH, LOW):
            if strangers > 1 or moved:
                break
            return Lead("", _extreme_of(tokens, index, kind), cue, hedged, limited)
        elif kind == HEDGE:
            hedged = True
        elif kind == LIMIT:
            limited = True
        elif kind == TO:
            moved = tokens[index : index + 1] != ["be"]
        elif kind == MOVE:
            if not moved and strangers == 0 and index == len(tokens):
                break  # "rose 15": a change, not a value
            moved = False
        elif kind == REACH:
            moved = False
        tight = tight and token in _TIGHT
        index -= 1
    if index or moved:
        return Lead("", "", cue, hedged, limited)
    return Lead("tight" if tight else "weak" if strangers else "verbal", "", cue, hedged, limited)


def _extreme_of(tokens: list[str], index: int, kind: int) -> str:
    """Whether the word at `index` calls the number an extreme, but not the second highest or a range."""
    before = [word for word in tokens[: index - 1] if word not in ("the", "(", "a")]
    if before and before[-1] in _RANKS:
        return ""
    sentence = before[max((at + 1 for at, word in enumerate(before) if word in (".", ";", "\n")), default=0) :]
    if any(WORD_CLASS.get(word) in (HIGH, LOW) for word in sentence):
        return ""
    direct = tokens[index - 1] not in ("high", "low") or tokens[index:] in ([], ["of"], [":"], ["="], ["is"])
    return ("high" if kind == HIGH else "low") if direct else ""


_SENTENCE = re.compile(
    r"[.!?;\n](?:(?<=\n)|(?<!i\.e\.)(?<!e\.g\.)(?<!vs\.)(?<!fig\.)(?<!Fig\.)(?<!approx\.)(?=\s|$|\*))"
)


def find_last_break(gap: str) -> int:
    """The end of the last complete sentence or line in this text; -1 if there is none."""
    if not ("." in gap or "\n" in gap or ";" in gap or "?" in gap or "!" in gap):
        return -1
    end = -1
    for sign in _SENTENCE.finditer(gap):
        end = sign.end()
    return end
