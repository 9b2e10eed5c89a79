"""Arithmetic in words: sentences of a canonical text that state a sum, a difference, a share or a similar result.

Each pattern has the words by which it is found, the pattern, in which N is a number, and what its numbers must
satisfy. Knows English. A sentence without a word for the operation is not read.
"""

# ruff: noqa: E501
# A phrase broken over lines cannot be read as a phrase.

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from statistics import mean, median
from typing import Any, Final

from distill.grounding.arithmetic.canonical_text import MARK, Number, is_year, place_of
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.quick_patterns import compile_quick, longest_literal
from distill.grounding.arithmetic.reading_effort import ReadingEffort
from distill.word_tables import word_set

_EQ: Final = (
    r"(?>(?:,? (?:which |that |this |we |you |i |it |one |they )?(?:is|are|equals?|makes?|gives?|yields?|leaves?|comes? to|totals?|gets?"
    r"|amounts? to|was|were|get|to get|results? in|have|has|obtain|add up to|becomes?|=)|:|,)"
    r"(?: (?:about|roughly|approximately|around|exactly|only|just|the|a|total|of|equal|to|again|left|is|therefore|thus|ie|:|=))*[ :*]*-?)"
)
# Without choices to come back to: a list is read in one way.
_LIST: Final = r"N(?>(?>\)?(?: [a-z()/'-]+){0,4}?(?:, and |, | and | plus | & )(?:[a-z()'-]+ ){0,4}?\(?N)){1,11}+\)?"
_GAP: Final = r"[^N.!?;\n]{0,60}?"
_WIDE: Final = r"[^N!?\n]{0,60}?"
_UP: Final = "increase|rise|growth|gain|jump|climb|surge|hike"
_DOWN: Final = "decrease|drop|decline|fall|loss|reduction|cut|dip|discount"
_MORE: Final = "more|greater|larger|higher|bigger|longer|taller|heavier|older|warmer"
_LESS: Final = "less|fewer|smaller|lower|shorter|lighter|younger|colder"

Values = list[float]


@dataclass(frozen=True)
class Pattern:
    clues: str
    """Words of which a sentence must hold one."""
    written: str
    comes_to: Callable[[Values], float]
    """Computes the correct result from the other numbers."""
    stated: int = -1
    """Which number is the result."""
    percents: bool = False
    """Its first number is a percentage of the second."""
    needs: tuple[str, ...] = ()
    """Texts of which a sentence must hold one, for a pattern whose words are common."""
    parts: tuple[str, ...] = ()
    """Each match of the pattern holds one of these texts; set where they select better than its longest literal."""

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Texts of which each match holds one: a sentence without them is not searched, but counts as read."""
        return self.parts or (longest_literal(self.written),)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled where it is first searched for: most are not in most runs."""
        return compile_quick(self.written)


def _change(v: Values) -> float:
    return abs(v[1] - v[0])


def _percent_change(v: Values) -> float:
    return 100 * abs(v[1] - v[0]) / abs(v[0])


def _doubled(v: Values) -> float:
    """The next of numbers that double; no number where one before is not the double of its own."""
    return 2 * v[-1] if all(then == 2 * now for now, then in pairwise(v)) else math.nan


_CHANGE: Final = rf"\bfrom -?N{_GAP} to -?N{_GAP},? ?(?:ie,? |means |which is |that is |that's |so |for )?(?:an? |the )?(?:[a-z]+ )?"
PATTERNS: Final = (
    Pattern("sum total", rf"\b(?:sum|total) of {_LIST}{_EQ}N", sum),
    Pattern("sum total", rf"\b(?:sum|total) of (?:the )?(?:[a-z]+ )?N [a-z]+ \({_LIST}{_EQ}N", lambda v: sum(v[1:])),
    Pattern("product", rf"\bproduct of {_LIST}{_EQ}N", math.prod),
    Pattern("difference", rf"\bdifference (?:of|between|from) N (?:and|to) N{_EQ}N", _change),
    Pattern("average mean", rf"\b(?:average|mean) of {_LIST}{_EQ}N", mean),
    Pattern("median", rf"\bmedian of {_LIST}{_EQ}N", median),
    Pattern("sum", rf"\bN is the (?:sum|total) of {_LIST}(?! ?[-+*/^])", sum, 0),
    Pattern("product", rf"\bN is the product of {_LIST}(?! ?[-+*/^])", math.prod, 0),
    Pattern("difference", r"\bN is the difference (?:of|between) N and N", _change, 0),
    Pattern("average mean", rf"\bN is the (?:average|mean) of {_LIST}(?! ?[-+*/^])", mean, 0),
    Pattern("adding add add:", rf"\b(?:adding|add) (?:up )?{_LIST}{_EQ}N", sum),
    Pattern("adding add summing totaling totalling sum total", rf"\b(?:adding|add|summing|totall?ing|sum|total)(?: up| of)? (?:the |all |these )?(?:[a-z]+ ){{1,4}}"
       rf"\({_LIST}{_EQ}N", sum),
    Pattern("adding add", rf"\b(?:adding|add) N(?: [a-z]+)? (?:to|onto) N(?: [a-z]+)?{_EQ}N", sum),
    Pattern("add sum make total", rf"\b{_LIST}(?: together)? (?:add up to|sum(?: up)? to|make up|total) N", sum,
       needs=("add up to N", "sum to N", "sum up to N", "make up N", "total N")),
    Pattern("together altogether combined", rf"\b(?:together|altogether|combined)\b[^N.!?;]{{0,40}}{_LIST}{_GAP}(?:cost|costs|make up|make|are|is"
       r"|weigh|come to|total|have|hold|give) (?:about )?N", sum),
    Pattern("together altogether all overall total", rf"\b{_LIST}[^N.!?;,]{{0,30}}, (?:so |or |making |which makes |that makes |that's )?"
       r"(?:a total of )?N (?:[a-z]+ )?(?:altogether|in all|in total|overall|together)", sum,
       needs=("together", "in all", "in total", "overall")),
    Pattern("together summed added", rf"\b{_LIST}[^N.!?]{{0,30}}\b(?:together|summed up|added up|added|summed)\b,? "
       r"(?:that is |that's |that makes |this gives |this makes |they make |makes? |gives? |you end up with |we get |we have |=)N", sum),
    Pattern("total numbers totals counts", rf"\bwith {_LIST}[^N.!?;]{{0,40}}(?:numbers|totals|counts|there (?:is|are) a total of|there are in total"
       r"|the total is|the sum is) N", sum),
    Pattern("count counted see", r"\b(?:count|counted|see) (?:the )?N ([a-z]+)[^N.!?;]{0,25} and (?:the )?N[^N.!?;]{0,25}, "
       r"(?:hence|so|thus|therefore|that makes|making) N \1", sum),
    Pattern("subtracting subtract deducting removing deduct", rf"\b(?:subtract(?:ing)?|deduct(?:ing)?|remov(?:e|ing)) N{_GAP} from N{_GAP}{_EQ}N",
       lambda v: v[1] - v[0]),
    Pattern("away", rf"\btak(?:e|ing) N(?: [a-z]+)? away from N{_GAP}(?:{_EQ}|, )N", lambda v: v[1] - v[0]),
    Pattern("drop remove subtract", r"\btake N,? (?:and )?(?:drop|remove|subtract) N[^N.!?;]{0,20}N", lambda v: v[0] - v[1]),
    Pattern("to", rf"\bto (?:get|go|come) from N{_GAP} to N{_GAP}(?:needs?|takes?)(?: another)? N(?! ?%)", _change, needs=(" from N",)),
    Pattern("pass elapse passed", r"\bfrom N to N, N (?:[a-z]+ )(?:pass|elapse|passed|go by|have passed)", _change),
    Pattern("years", r"\bfrom N to N(?: is| it's|,? that is|,? which is| equals| makes| =|, ie) (?:only |just |exactly |(?:a |the )?[a-z]+ of )?N years\b"
       r"(?![^!?\n]{0,60}\b(?:inclu[a-z]+|count[a-z]*|both|ends?|calendar|school)\b)", _change, needs=("from N to N",)),
    Pattern("after later", rf"\bN years after N{_GAP}(?:is|brings us to|gives|comes|was|makes) N", lambda v: v[1] + v[0]),
    Pattern("before earlier", rf"\bN years before N{_GAP}(?:is|brings us to|gives|was|makes) N", lambda v: v[1] - v[0]),
    Pattern(f"{_UP}|{_DOWN}".replace("|", " "), _CHANGE + rf"(?:{_UP}|{_DOWN}) (?:of|by) (?:about )?N(?! (?:times|percentage))",
       _change),
    Pattern(f"{_UP}|{_DOWN}".replace("|", " "), rf"\bfrom -?N{_GAP} to -?N{_GAP},? ?(?:ie,? )?(?:an? )?N (?:{_UP}|{_DOWN})\b", _change),
    Pattern("up down", rf"\b(?:rose|fell|grew|went|climbed|dropped|jumped|declined|increased|decreased|moved)[a-z ]{{0,30}} from -?N{_GAP} to -?N(?: [a-z]+)?,? (?:which is |ie,? |so )?(?:up|down) (?:by )?(?:about )?N(?! (?:times|percentage|from|since|than|compared))", _change, needs=("from N",)),
    Pattern(f"{_UP}|{_DOWN}".replace("|", " "), rf"\b(?:{_UP}|{_DOWN}) from -?N{_GAP} to -?N(?: [a-z]+)? (?:is|was|equals|amounts to|=) (?:about )?N(?! (?:times|percentage))", _change),
    Pattern("exceeds exceed", r"\bN[^N.!?;]{0,30}exceeds?[^N.!?;]{0,40}N[^N.!?;]{0,15} by N", lambda v: v[0] - v[1]),
    Pattern(_MORE.replace("|", " "), rf"\bN is N(?: [a-z]+)? (?:{_MORE}) than N(?! ?[-+*/^])", lambda v: v[1] + v[0], 0,
       needs=("N is N",)),
    Pattern(_LESS.replace("|", " "), rf"\bN is N(?: [a-z]+)? (?:{_LESS}) than N(?! ?[-+*/^])", lambda v: v[1] - v[0], 0,
       needs=("N is N",)),
    Pattern("times", r"\bN is N times (?:as (?:much|many|large|high|big|long) as )?N(?! ?[-+*/^])", math.prod, 0),
    Pattern("more", rf"\bN more than N{_EQ}N", sum, needs=("N more than N",)),
    Pattern("less fewer", rf"\bN (?:less|fewer) than N{_EQ}N", lambda v: v[1] - v[0]),
    Pattern("gave lost sold spent used ate away", rf"\b(?:had|has|have|starts with|started with) N{_WIDE}(?:gave(?: away)?|gives(?: away)?|lost|loses|sold"
       rf"|sells|spent|spends|used|uses|ate|eats) N{_WIDE}(?:leaves?|left with|remain|remains|has|have|keeps) N(?! more)",
       lambda v: v[0] - v[1]),
    Pattern("more", rf"\b(?:had|has|have|starts? with|started with) N{_WIDE}(?:getting|gets|got|buying|buys|bought|receiving|receives|received"
       r"|finding|finds|found|winning|wins|won|adding|adds|added) N more[^N!?\n]{0,40}?(?:owns?|has|have|holds|had|makes) N", sum, needs=(" N more",)),
    Pattern("other rest remaining others", r"\bout of N[^N!?\n]{0,30}N[^N!?\n]{0,30}the (?:other|remaining|rest|others)(?: of)?[^N!?\n]{0,12}N",
       lambda v: v[0] - v[1]),
    Pattern("note bill", rf"\bN (?:note|bill)\b{_GAP}N{_GAP}(?:leaves|change|gives){_GAP}N", lambda v: v[0] - v[1]),
    Pattern("each", r"\bN [a-z]+ (?:at|for) N each[^N.!?;]{0,20}(?:costs?|come to|comes to|make|total|is|are) N", math.prod),
    Pattern("per", r"\bper [a-z]+ N(?: [a-z]+)?, N [a-z]+ ?(?:=|→|->|≈|:) ?N", math.prod),
    Pattern("every each", r"\b(?:every|each) [a-z]+ (?:has|holds|contains|needs) N ([a-z]+)[^N.!?;]{0,25} N [a-z]+[:,;] "
       r"(?:that's|that is|that makes|so|makes|making) N \1", math.prod),
    Pattern("hours h", r"\bN (?:km/h|mph|m/s|kph)[^N.!?;]{0,15}N (?:hours?|h|seconds?|s)\b[^N.!?;]{0,20}(?:cover|covers|is|are|gives?|makes?|=) N",
       math.prod),
    Pattern("more fewer less", r"\b([a-z]+) [a-z]+ N(?: [a-z]+)?,? (?:and |while )?([a-z]+) (?:[a-z]+ )?N\b[^N]{0,12}\b\1 (?:therefore |thus |hence |so )?"
       r"(?:[a-z]+ )?N (?:more|fewer|less)(?: [a-z]+)? than \2\b", _change, needs=(" than ",),
       parts=("N more", "N fewer", "N less")),
    Pattern("twice double", r"\bN(?:, (?:and )?N){2,9}[^N.;]{0,20}\beach (?:[a-z]+ )?is (?:twice|double) the (?:one before|last|previous)", _doubled),
    Pattern("times", r"\bN[^N.!?;]{0,40} and N times that\b[^N.!?;(]{0,30}\(N\)", math.prod),
    Pattern("of", r"\bN [a-z]+ of N ([a-z]+), (?:so |or |ie )?N \1", math.prod),
    Pattern("c choose", r"\b(?:c\(N, ?N\)|N choose N) ?(?:=|is|gives|equals) N", lambda v: math.comb(*map(int, v)) if max(v) < 100 else 0),
    Pattern("diameter", r"\bradius (?:is|of|=) N[^N.!?;]{0,20}diameter (?:is|of|=) N(?! ?[-+*/^(])", lambda v: 2 * v[0]),
    Pattern("radius", r"\bdiameter (?:is|of|=) N[^N.!?;]{0,20}radius (?:is|of|=) N(?! ?[-+*/^(])", lambda v: v[0] / 2),
    Pattern("shared divided split distributed", r"\bN(?: [a-z]+)?[;,]? (?:are |is )?(?:shared|divided|split|distributed)(?: equally| evenly)? (?:among|between|by) "
       r"N[^N.!?;]{0,30}\beach(?: one| person| of them)? (?:gets|receives|has|takes|pays|owes) N", lambda v: v[0] / v[1]),
    Pattern("split shared divided", r"\bN (?:split|shared|divided) N ways(?: equally| evenly)?,? (?:is|makes|gives|comes to|=) N", lambda v: v[0] / v[1], needs=("N ways",)),
    Pattern("hours h", r"\bN (?:km|miles|metres|meters|m) at N (?:km/h|mph|m/s|kph)[^N.!?;]{0,12}(?:takes?|is|=) N (?:hours?|h|seconds?|s)\b", lambda v: v[0] / v[1]),
    Pattern("multiplying multiply", rf"\bmultiply(?:ing)? N(?: [a-z]+)? (?:by|and|with|times) N(?: [a-z]+)?{_EQ}N", math.prod),
    Pattern("dividing divide", rf"\bdivid(?:e|ing) N(?: [a-z]+)? by N(?: [a-z]+)?{_EQ}N(?! [a-z ]{{0,6}}remainder)", lambda v: v[0] / v[1]),
    Pattern("remainder", r"\bN divided by N is N,? (?:with )?(?:a )?(?:remainder|rest)(?: of)? N", lambda v: v[0] - v[1] * v[2]),
    Pattern("off discount", r"\bN off,? (?:(?:of )?(?:the|a|an) )?N (?:[a-z ]{0,30} )?(?:costs?|is|sells for|comes to) N", lambda v: v[1] * (1 - v[0] / 100),
       percents=True),
    Pattern("adding add tax tip", r"\badd(?:ing)? (?:a )?N (?:[a-z]+ )?(?:tax|tip|interest|vat|fee) to N(?: [a-z]+)? (?:gives|makes|is|yields|equals) N",
       lambda v: v[1] * (1 + v[0] / 100), percents=True),
    Pattern("more higher greater", rf"\bN (?:more|higher|greater) than N{_EQ}N", lambda v: v[1] * (1 + v[0] / 100), percents=True),
    Pattern("less lower fewer", rf"\bN (?:less|lower|fewer) than N{_EQ}N", lambda v: v[1] * (1 - v[0] / 100), percents=True),
    Pattern("discount tip tax share", r"\bN (?:discount|tip|tax|share|vat) (?:on|of) N(?: [a-z]+)? (?:is|are|equals|comes to|gives|=) N",
       lambda v: v[1] * v[0] / 100, percents=True),
    Pattern("of", r"\bN is N of N(?! ?[-+*/^%])", lambda v: v[0] * v[1] / 100, 0, percents=True, needs=("N is N of N",)),
    Pattern("times", r"\bN times N to (?:get|give|obtain|reach) N", math.prod),
    Pattern("each", r"\bN [a-z]+ (?:with|of|holding|containing) N [a-z]+ each,?(?: [a-z]+)? (?:makes?|gives?|is|are|have|has|holds?|totals?) N", math.prod),
    Pattern("left remain remains", r"\bremov(?:e|ed|ing) N(?: [a-z]+)? (?:of|from) (?:the |these |those )?N{_GAP} N (?:[a-z]+ )?(?:are |is )?(?:left|remain)\b".replace("{_GAP}", _GAP),
       lambda v: v[1] - v[0]),
    Pattern("mod modulo", r"(?<![-+*/^] )\bN mod(?:ulo)? N (?:=|is|equals|gives) N", lambda v: v[0] % v[1]),
    Pattern("remainder r", r"(?<![-+*/^] )\bN ?/ ?N = N,? (?:remainder|r) N", lambda v: v[0] - v[1] * v[2]),
    Pattern("celsius", r"\bN celsius[ ,]*(?:is|are|=|corresponds to|equals|same)[ a-z]{0,10}N fahrenheit", lambda v: 32 + 1.8 * v[0]),
    Pattern("fahrenheit", r"\bN fahrenheit[ ,]*(?:is|are|=|corresponds to|equals|same)[ a-z]{0,10}N celsius", lambda v: (v[0] - 32) / 1.8),
)  # fmt: skip
_COMPARED: Final = tuple(
    (compile_quick(rf"(?<![-+*/^=(] )(?<![-+*/^=(\w]){written}"), sign, more)
    for written, sign, more in (
        (rf"N (?:is|are) (?:{_MORE}) than N(?! ?[-+*/^:]|[a-z])", "than N", True),
        (rf"N (?:is|are) (?:{_LESS}) than N(?! ?[-+*/^:]|[a-z])", "than N", False),
        (r"N ?> ?(?=N(?! ?[-+*/^(:]|[a-z]))", ">", True),
        (r"N ?< ?(?=N(?! ?[-+*/^(:]|[a-z]))", "<", False),
    )
)
_GOES_ON: Final = re.compile(r"(?: [a-z/]+)? ?[-+*/^] ?[N(√]")
_THINGS: Final = (
    "bar|year|group|row|column|option|number|model|day|month|step|class|question|figure|series|category|level"
    "|quarter|rank|line"
)
_LABELLED: Final = re.compile(rf"\b(?:for|in|of|{_THINGS}) $")
_NAMES: Final = re.compile(rf"\b(?:{_THINGS}) N")
_OVERRULED: Final = re.compile(
    r"\?|\b(?:wrong|mistake|incorrect|misread|false|(?:is|are|was|does|do|can) not|isn't|aren't|wasn't|doesn't|would|were to|instead"
    r"|suppose|whether|unless|oops)\b"
)
_EQUATION: Final = re.compile(
    r"(?<![-+*/^] )(?<![-+*/^\w])(N ?)?([a-z])(?![a-z])(?: ?([-+]) ?N)? ?= ?N(?! ?[-+*/^(]|[a-z])[^N.!?;=]{0,60}?\b\2 ?= ?(-)?N(?! ?[-+*/^(])"
)
_RATIO: Final = re.compile(
    r"N:N[^N.!?;]{0,30}(?:simplif\w+ to|reduces? to|is the same as|equals|=|same|, or) N:N(?!:)"
)
_CLOCK: Final = compile_quick(
    r"\bfrom N:N(?: [ap]m)? to N:N(?: [ap]m)?(?: is| takes| are| lasts|,| =)(?: about)? N (minutes?|min|hours?)\b"
    r"(?!,? (?:and )?N m)"
)
_TAKES: Final = compile_quick(
    r"\b(?:at|from) N:N\b[^N.!?;]{0,40}\bN:N\b[^N.!?;]{0,40}\b(?:takes|took|lasts|lasted|is|for) (?:about )?N (?:hours?|h)(?: and|,)? N min"
)
_ARRIVAL: Final = compile_quick(
    r"\bat N:N\b[^N.!?;]{0,30}N (minutes?|min|hours?|h)\b[^N.!?;]{0,40}\b(?:at|until|by) N:N(?! ?[-+])"
)
_SHIFT: Final = compile_quick(r"\bN:N ([-+]) (?:N (minutes?|min|hours?|h)\b|N:N) ?= ?N:N(?!:)")
_SCALED: Final = compile_quick(r"\bN:N,? (?:scaled|multiplied)(?: up)? by N (?:is|gives|becomes|=) N:N(?!:)")
_CLUES: Final[Mapping[str, tuple[int, ...]]] = {
    clue: tuple(place for place, one in enumerate(PATTERNS) if clue in one.clues.split())
    for clue in {clue for one in PATTERNS for clue in one.clues.split()}
}
_CLUE_WORDS: Final = frozenset(_CLUES)
_OVERRULING: Final = word_set(
    "wrong mistake incorrect misread false not t would were instead suppose whether unless oops"
)
"""Words of which a sentence without a question mark must hold one to be overruled; "t" ends "isn't"."""
WORDED_WORDS: Final = _CLUE_WORDS | _OVERRULING
"""All words that are asked for."""


def find_worded_claims(
    sentence: str, words: frozenset[str], numbers: Sequence[Number], offset: int, effort: ReadingEffort
) -> Iterator[ArithmeticClaim]:
    """The claims of a sentence of these words; its first number has the index `offset`."""
    if ("?" in sentence or not words.isdisjoint(_OVERRULING)) and _OVERRULED.search(sentence):
        return
    for pattern in _patterns_of(words & _CLUE_WORDS):
        if pattern.needs and not _holds_any(sentence, pattern.needs):
            continue
        effort.characters -= len(sentence)
        if not _holds_any(sentence, pattern.literals):
            continue
        for match in pattern.pattern.finditer(sentence):
            if _GOES_ON.match(sentence, match.end()):
                continue  # "3 pens at 2.20 each are 3 * 2.20": the result is an expression
            stated_numbers, first = _numbers_of_match(match, numbers, offset)
            claim = _judge_match(pattern, match, stated_numbers, first)
            if claim is not None:
                yield claim
    if "than N" in sentence or "<" in sentence or ">" in sentence:
        yield from _comparisons(sentence, numbers, offset)
    if sentence.count("=") > 1:
        yield from _solutions(sentence, numbers, offset)
    if "N:N" in sentence:
        yield from _colons(sentence, numbers, offset)


def _holds_any(sentence: str, texts: tuple[str, ...]) -> bool:
    for text in texts:  # noqa: SIM110 - a generator would take twice as long
        if text in sentence:
            return True
    return False


@lru_cache(maxsize=1 << 12)
def _patterns_of(clues: frozenset[str]) -> tuple[Pattern, ...]:
    """The patterns that are found by one of these words, in their order."""
    return tuple(PATTERNS[index] for index in sorted({index for clue in clues for index in _CLUES[clue]}))


def _numbers_of_match(match: re.Match[str], numbers: Sequence[Number], offset: int) -> tuple[list[Number], int]:
    first = place_of(match, offset)
    return list(numbers[first : first + match[0].count(MARK)]), first


def _signed_values(match: re.Match[str], numbers: list[Number]) -> Values:
    """The numbers with the minus signs that stand directly before them ("from -9 to 3")."""
    text, values, position = match[0], [], -1
    for number in numbers:
        position = text.index(MARK, position + 1)
        minus = position > 0 and text[position - 1] == "-" and text[position - 2 : position - 1] in ("", " ", "(")
        values.append(-number.value if minus else number.value)
    return values


def _judge_match(pattern: Pattern, match: re.Match[str], numbers: list[Number], first: int) -> ArithmeticClaim | None:
    result = numbers[pattern.stated]
    values = _signed_values(match, numbers)
    stated = values.pop(pattern.stated)
    operands = numbers[1:] if pattern.stated == 0 else numbers[:-1]
    comes_to = pattern.comes_to
    shares = [number.percent for number in operands]
    if pattern.comes_to is _change and result.percent and not all(shares):
        comes_to = _percent_change
    elif pattern.percents and not shares[0]:
        return None
    elif pattern.comes_to is sum and shares[0] and not any(shares[1:]):
        return None  # "adding 10% tax to 100": said in another pattern
    elif pattern.comes_to is not _change and any(shares) != result.percent and not (pattern.percents and any(shares)):
        return None
    try:
        expected = comes_to(values)
    except ZeroDivisionError:
        return None
    hedged = re.search(r"\b(?:about|roughly|approximately|around|nearly|almost)\b|≈", match[0][-40:]) is not None
    right = stands_for(stated, result.unit, expected, hedged)
    if pattern.comes_to is _change and result.percent and any(shares) and not right:
        # A change of percentages may be stated in points or relative to the first.
        changes = (_change(values), _percent_change(values) if values[0] else math.nan)
        right = any(stands_for(stated, result.unit, change, hedged) for change in changes)
    if not right and (_NAMES.search(match[0]) or ("year" not in match[0] and any(map(is_year, operands)))):
        return None  # "2017 exceeds 2014 by 40" speaks of bars
    return ArithmeticClaim(first, first + len(numbers) - 1, right, expected, (pattern.written, *values))


def _comparisons(sentence: str, numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    for pattern, sign, more in _COMPARED:
        if sign not in sentence:
            continue
        for match in pattern.finditer(sentence):
            if _LABELLED.search(sentence, max(0, match.start() - 12), match.start()):
                continue
            first = place_of(match, offset)
            left, right = numbers[first], numbers[first + 1]
            if is_year(left) or is_year(right):
                continue
            holds = left.value > right.value if more else left.value < right.value
            yield ArithmeticClaim(first, first + 1, holds, None, (more, left.value, right.value))


def _solutions(sentence: str, numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    """An equation with one unknown and its stated value."""
    for match in _EQUATION.finditer(sentence):
        if not (match[1] or match[3]):
            continue  # "x = 7 or x = -7"
        unknown_numbers, first = _numbers_of_match(match, numbers, offset)
        values = [number.value for number in unknown_numbers]
        factor = values.pop(0) if match[1] else 1.0
        shift = values.pop(0) * (-1 if match[3] == "-" else 1) if match[3] else 0.0
        total, solution = values
        if factor:
            expected = (total - shift) / factor
            right = stands_for(-solution if match[4] else solution, unknown_numbers[-1].unit, expected, False)
            yield ArithmeticClaim(
                first, first + len(unknown_numbers) - 1, right, expected, ("solution", factor, shift, total)
            )


def _colons(sentence: str, numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    """Ratios that are simplified, and times of the day."""
    for name, pattern, read in _WITH_COLONS:
        for match in pattern.finditer(sentence):
            own, first = _numbers_of_match(match, numbers, offset)
            right, expected, *key = read(match, *(number.value for number in own))
            if name != "ratio" or "ratio" in sentence or "simplif" in match[0] or "reduce" in match[0]:
                yield ArithmeticClaim(first, first + len(own) - 1, right, expected, (name, *key))


def _minutes(unit: str) -> int:
    """The minutes of an hour or a minute."""
    return 60 if unit.startswith("h") else 1


def _passed(a: float, b: float, c: float, d: float) -> float:
    """The minutes from a:b to c:d, on a clock of twelve hours."""
    return (c * 60 + d - a * 60 - b) % 720


def _shift(match: re.Match[str], a: float, b: float, *others: float) -> tuple[Any, ...]:
    *shift, c, d = others
    minutes = shift[0] * (60 if len(shift) > 1 else _minutes(match[2])) + sum(shift[1:])
    minutes = minutes if match[1] == "+" else -minutes
    return (minutes - _passed(a, b, c, d)) % 720 == 0, None, a, b, minutes


_WITH_COLONS: Final[tuple[tuple[str, re.Pattern[str], Callable[..., tuple[Any, ...]]], ...]] = (
    ("ratio", _RATIO, lambda _, a, b, c, d: (a * d == b * c, None, a, b)),
    ("clock", _CLOCK, lambda match, a, b, c, d, lasts: (
        lasts * _minutes(match[1]) % 720 == _passed(a, b, c, d), _passed(a, b, c, d), a, b, c, d)),
    ("takes", _TAKES, lambda _, a, b, c, d, h, m: ((h * 60 + m) % 720 == _passed(a, b, c, d), None, a, b, c, d)),
    ("shift", _SHIFT, _shift),
    ("scaled", _SCALED, lambda _, a, b, factor, c, d: ((c, d) == (a * factor, b * factor), None, a, b, factor)),
    ("arrival", _ARRIVAL, lambda match, a, b, takes, c, d: (
        (takes * _minutes(match[1]) - _passed(a, b, c, d)) % 720 == 0, None, a, b, takes)),
)  # fmt: skip
"""Whether a claim of a pattern is right, what should stand there if that is one number, and what is computed."""
