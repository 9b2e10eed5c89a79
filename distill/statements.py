"""What a rationale states: numbers, the words that tie each to what stands before it, and arithmetic between numbers.

Works on the stretches of text between neighbouring numbers and labels; these repeat so often that each is looked at
once and remembered. Knows English. Whether a statement is true is `distill.grounding`'s question.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from distill.numbers import normalise, quantities

_SIGNS: Final = str.maketrans({"−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "’": "'", "∙": "·", "⋅": "·"})
_LATEX: Final = (
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"(\1) / (\2)"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|boxed|operatorname)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:times|cdot)\b"), "×"),
    (re.compile(r"\\div\b"), "÷"),
    (re.compile(r"\\approx\b"), "≈"),
    (re.compile(r"\\(?:left|right)\b|\\[,!;: ]"), ""),
    (re.compile(r"\\([$%&#_])"), r"\1"),
    (re.compile(r"\\[()\[\]]"), " "),
)


def plain(text: str) -> str:
    """The text with one kind of dash and apostrophe and simple LaTeX written out."""
    if not text.isascii():
        text = text.translate(_SIGNS)
    if "\\" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    return text


# --- numbers ------------------------------------------------------------------------------------------------------

# Not part of a word (H2O, Q3), a date or a time; "3rd" and "80s" are no numbers. Digit groups are taken whole.
_NUMBER = re.compile(
    r"""(?<![\w.#])(?<![A-Za-z]-)(?<!\d:)
    (?:\d{1,3}(?:[,'\u00a0\u202f\u2009]\d{3})+(?:\.\d+)?(?![\d,]*\d) | \d+(?:\.\d+)? | \.\d+)
    (?:\s?%|\s(?:percent|per\scent|pct)\b|\s?(?:[kKMB]|bn|mn)\b|\s(?:thousand|million|billion|trillion)\b)?
    (?![\w:]*\d)(?![A-Za-wyz]|x\w)""",
    re.VERBOSE,
)


class Literal(NamedTuple):
    """A number as written. `readings` are (value, half a unit of its last place), the usual one first."""

    readings: tuple[tuple[float, float], ...]
    percent: bool
    integer: bool
    """Written with digits and separators only."""

    @property
    def value(self) -> float:
        return self.readings[0][0]


@lru_cache(maxsize=1 << 15)
def literal(text: str) -> Literal:
    digits = re.match(r"[\d.,'\u00a0\u202f\u2009]*", text)
    bare = digits[0] if digits else text
    number = re.sub(r"[^\d.]", "", bare).rstrip(".")
    value = float(number)
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    readings = [(value, half)]
    percent = text.endswith(("%", "percent", "per cent", "pct"))
    if text != bare and not percent:
        found = quantities(normalise(text))
        scale = float(found[0].value) / value if found and value else 1.0
        readings.insert(0, (value * scale, half * scale))
    else:
        # A chart's axis may count in thousands or millions.
        readings += [
            (value / scale, half / scale) for scale in (1e3, 1e6, 1e9) if value >= scale and not value % scale
        ]
    return Literal(readings=tuple(readings), percent=percent, integer=text == bare and "." not in number)


class Item(NamedTuple):
    """A number or a label where it stands. `label` is empty for numbers; `known` says whether the table has it."""

    start: int
    end: int
    number: Literal | None
    negative: bool = False
    label: str = ""
    known: bool = True


def numbers(text: str) -> Iterator[Item]:
    for match in _NUMBER.finditer(text):
        start = match.start()
        written = match[0]
        # A sign belongs to the number where nothing stands before it that could be subtracted from.
        before = text[max(0, start - 3) : start].rstrip("$€£")
        negative = (
            before.endswith("-") and (len(before) == 1 or before[-2] in " (:=,$") and not before[:-1].endswith("\n")
        )
        yield Item(start, match.end(), literal(written), negative)


# --- what ties a number to the item before it -----------------------------------------------------------------------

_TOKEN = re.compile(r"[a-z][a-z'-]*|\*\*+|\n|\S")
PLAIN, HEDGE, LIMIT, BLOCK, MOVE, TO, HIGH, LOW = range(8)


def _classes() -> dict[str, int]:
    words = {
        PLAIN: """is are was were be been being has have had having shows show showed shown showing reads read reading
            reaches reach reached reaching equals equal stands stood standing sits sat sitting at of as the a an its it
            which that with only just exactly precisely also still now then recorded recording records records recorded
            registered registers posted reported accounts accounted accounting for represents represented representing
            makes made up making comprises comprised contributes contributed holds held gets got value values height
            count number figure level bar bars column columns slice slices segment wedge sector line portion category
            share percentage percent rate score measured measures corresponds corresponding corresponded amounts
            amounted comes came totals seems appears looks be both each respectively lies lay about ** : = ( [ , - | "
            ' ` > → $ € £ 's year in chart graph see saw labeled labelled marked given listed where here we one would
            ending starting ends ended started began begins hits hit hitting remained remains stayed stays averaged
            totaled totalled numbered numbering earned sold collected scored produced generated recorded per""",
        HEDGE: "about approximately approx around roughly nearly almost ~ ≈ circa close near estimated slightly some",
        LIMIT: """than over under above below between least most within exceeds exceeding exceed past beyond not
            n't isn't wasn't never without < ≤ ≥ until range ranging ranges""",
        MOVE: """rose fell increased decreased dropped grew climbed declined went goes rises falls drops grows climbs
            jumped jumps declines increases decreases rising falling dropping growing climbing peaked peaks peaking
            bottomed up down changed shifted moved surged plunged slipped soared equal equals corresponds amounts amounted comes came close
            increasing decreasing declining jumping changing moving""",
        TO: "to from",
        HIGH: "highest largest biggest greatest maximum max tallest peak high",
        LOW: "lowest smallest minimum min shortest low fewest",
        BLOCK: """more less fewer higher lower larger smaller greater taller shorter bigger longer difference
            differences gap exceed by sum total totals combined together average mean median ratio times plus minus
            and but while whereas or if when because since compared versus vs half twice double triple increase
            decrease rise drop decline growth change add adding subtract subtracting divided multiplied dividing
            multiplying among amongst across other others another all any none next second third fourth fifth second-highest
            second-lowest second-largest second-smallest 2nd 3rd ahead behind every group only-the rank ranks ranked place
            position st nd rd th . ! ? ; \\n + * / × ÷ · ^ { } → step steps row""",
    }
    table: dict[str, int] = {}
    for kind, listed in words.items():
        for word in listed.split():
            table.setdefault(word if word != "\\n" else "\n", kind)
    # Words that take a "to" are tied by it, and stand between label and number without one as well.
    table.update(dict.fromkeys(("up", "down"), MOVE))
    table["total"] = table["totals"] = BLOCK
    table["→"] = PLAIN
    return table


_CLASS: Final = _classes()
_TIGHT: Final = frozenset([":", "=", "(", "[", "|", "**", "-", "→", "$", "€", "£", '"', "'", "`", "≈", "~"])


class Lead(NamedTuple):
    """How the words before a number tie it to the item before them."""

    tie: str
    """tight ("blue: 8"), verbal ("blue is 8"), weak ("blue sold 8", words we do not know) or empty: not tied."""
    extreme: str
    """high or low where the words are "the highest value is"."""
    hedged: bool
    limited: bool
    """Stated as a limit ("more than") or as what it is not."""


@lru_cache(maxsize=1 << 15)
def lead(gap: str) -> Lead:
    tokens = _TOKEN.findall(gap.lower())
    hedged = limited = moved = False
    strangers = 0
    tight = True
    place = len(tokens)
    while place:
        token = tokens[place - 1]
        kind = _CLASS.get(token)
        if kind is None:
            if not token[0].isalpha():
                break
            strangers += 1
            if strangers > 2:
                break
        elif kind == BLOCK:
            break
        elif kind in (HIGH, LOW):
            if strangers > 1 or moved:
                break
            rest = [word for word in tokens[: place - 1] if word not in ("the", "(", "a")]
            joined = rest[-1:] and rest[-1] in (
                "second",
                "third",
                "fourth",
                "fifth",
                "next",
                "than",
                "nd",
                "rd",
                "th",
                "minus",
                "-",
                "+",
                "plus",
                "from",
            )
            other = any(_CLASS.get(word) in (HIGH, LOW) for word in rest) and not any(
                mark in rest for mark in (".", ";", "\n")
            )
            direct = (
                token not in ("high", "low")
                or place == len(tokens)
                or tokens[place:] in (["of"], [":"], ["="], ["is"])
            )
            extreme = "" if joined or other or not direct else ("high" if kind == HIGH else "low")
            return Lead("", extreme, hedged, limited)
        elif kind == HEDGE:
            hedged = True
        elif kind == LIMIT:
            limited = True
        elif kind == TO:
            moved = True
        elif kind == MOVE:
            if not moved and strangers == 0 and place == len(tokens) and token not in ("equals", "equal"):
                break  # "rose 15": a change, not a value
            moved = False
        tight = tight and token in _TIGHT
        place -= 1
    if place or moved:
        return Lead("", "", hedged, limited)
    return Lead("tight" if tight else "weak" if strangers else "verbal", "", hedged, limited)


_BREAK = re.compile(r"[.!?;]\s|[.!?;]$|\n")


@lru_cache(maxsize=1 << 15)
def breaks(gap: str) -> bool:
    """Whether a sentence or a line ends in this stretch."""
    return _BREAK.search(gap) is not None


_JOINERS: Final = frozenset(["and", "&", "plus", "minus", "to", "through", "or", "versus", "vs", "over", "+", "-", "/", "*", "×", "÷", ",", "than", "from"])  # fmt: skip
_JOIN_FILLERS: Final = frozenset(
    [
        "the",
        "a",
        "of",
        "bar",
        "bars",
        "column",
        "columns",
        "slice",
        "slices",
        "segment",
        "line",
        "lines",
        "value",
        "values",
        "'s",
        "in",
        "for",
        "both",
        "year",
        "category",
        "(",
        ")",
        '"',
        "'",
        "**",
        "|",
    ]
)


@lru_cache(maxsize=1 << 15)
def joined(gap: str) -> str:
    """The word or sign by which two labels stand in one row ("A and B", "A + B"); empty when they do not."""
    found = ""
    for token in _TOKEN.findall(gap.lower()):
        if token in _JOINERS:
            found = token if not found or found == "," else found
        elif token not in _JOIN_FILLERS:
            return ""
    return found


_REVERSE = re.compile(r"\s*(?P<word>[a-z]+)?\s*(?:\(|\b(?:for|in|during)\s)\s*(?:the |year |in |for )*(?:\*\*)?")


@lru_cache(maxsize=1 << 15)
def follows(gap: str) -> bool:
    """Whether the label after this stretch says what the number before it is ("45 in 2015", "45 (Apple)")."""
    match = _REVERSE.fullmatch(gap.lower())
    return match is not None and _CLASS.get(match["word"] or "of") in (None, PLAIN)


# --- arithmetic -----------------------------------------------------------------------------------------------------

_OPERATIVE = re.compile(
    r"[-+*/=×÷·≈⇒]|\b(?:plus|minus|times|x|divided|multiplied|is|equals?|gives?|makes?|yields?|get|totals?|to|results?)\b"
)
_NOTE = re.compile(r"\([^()]*[a-z][^()]*\)|\[[^\[\]]*[a-z][^\[\]]*\]")
_OPERATORS: Final = {"+": "+", "plus": "+", "-": "-", "minus": "-", "*": "*", "×": "*", "·": "*", "x": "*", "times": "*",
                     "multiplied": "*", "/": "/", "÷": "/", "divided": "/"}  # fmt: skip
_RESULTS: Final = frozenset(
    [
        "is",
        "equals",
        "equal",
        "gives",
        "give",
        "giving",
        "makes",
        "make",
        "yields",
        "yield",
        "yielding",
        "get",
        "gets",
        "totals",
        "results",
        "comes",
    ]
)
_FILLERS: Final = frozenset(
    [
        ",",
        ":",
        "which",
        "that",
        "we",
        "us",
        "a",
        "an",
        "the",
        "to",
        "total",
        "of",
        "sum",
        "difference",
        "result",
        "so",
        "in",
        "about",
        "approximately",
        "roughly",
        "around",
        "by",
        "**",
        "$",
        "€",
        "£",
        "%",
        "'",
        '"',
        "for",
        "units",
        "out",
        "answer",
        "this",
        "it",
        "from",
    ]
)


@lru_cache(maxsize=1 << 15)
def operator(gap: str) -> str:
    """The operator between two numbers with the parentheses around it, "=" for a result; empty when there is none."""
    gap = gap.lower()
    if not _OPERATIVE.search(gap):
        return ""
    found = ""
    signs = 0
    result = comma = False
    words = 0
    tokens = _TOKEN.findall(_NOTE.sub(" ", gap))
    for place, token in enumerate(tokens):
        if token in "()[]":
            found += "(" if token in "([" else ")"
        elif token in _OPERATORS and not (token == "x" and len(tokens) > 3):
            found += _OPERATORS[token]
            signs += 1
        elif token in ("=", "≈", "⇒", "→", ">"):
            if not found.endswith("="):
                found += "="
                signs += 1
        elif token == "\n":
            if tokens[place + 1 : place + 2] != ["="]:
                return ""
        elif token in _RESULTS:
            result = True
        elif token in _FILLERS:
            comma = comma or token in (",", ":")
        elif token[0].isalpha():
            words += 1
            if words > 3:
                return ""
        else:
            return ""
    if signs == 0:
        return found.replace("(", "") + "=" if result and words <= 1 else ""
    if signs > 1 or result or (comma and "=" not in found) or (comma and words):
        return ""
    return found


def evaluate(operands: Sequence[float], operators: Sequence[str]) -> float | None:
    """The value of operands with the signs between them; parentheses that are missing at the ends are added."""
    tokens: list[float | str] = [operands[0]]
    for sign, operand in zip(operators, operands[1:], strict=True):
        tokens += [*sign, operand]
    depth = lowest = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        lowest = min(lowest, depth)
    tokens = ["("] * -lowest + tokens + [")"] * (depth - lowest)
    try:
        value, place = _sum(tokens, 0)
    except (ZeroDivisionError, IndexError, TypeError, OverflowError):
        return None
    return value if place == len(tokens) else None


def _sum(tokens: list[float | str], place: int) -> tuple[float, int]:
    value, place = _product(tokens, place)
    while place < len(tokens) and tokens[place] in ("+", "-"):
        sign = tokens[place]
        other, place = _product(tokens, place + 1)
        value = value + other if sign == "+" else value - other
    return value, place


def _product(tokens: list[float | str], place: int) -> tuple[float, int]:
    value, place = _atom(tokens, place)
    while place < len(tokens) and tokens[place] in ("*", "/"):
        sign = tokens[place]
        other, place = _atom(tokens, place + 1)
        value = value * other if sign == "*" else value / other
    return value, place


def _atom(tokens: list[float | str], place: int) -> tuple[float, int]:
    token = tokens[place]
    if token == "(":
        value, place = _sum(tokens, place + 1)
        if tokens[place] != ")":
            raise TypeError
        return value, place + 1
    if isinstance(token, str):
        raise TypeError
    return token, place + 1
