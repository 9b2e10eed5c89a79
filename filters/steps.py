"""In how many steps a rationale goes, and how often it turns back ("Wait, let me recheck").

Steps are what the writer marked: numbered steps, else list items, else paragraphs, else sentences; which of them is
said, because counts of different kinds do not compare. A turn back is a phrase by which the writer doubts or redoes
what stands before it; "wait" as a noun or "actually" inside a sentence is none. Whether a step is right, and whether
turning back helped, is not looked at.
"""

# ruff: noqa: E501
# A phrase broken over lines cannot be read as a phrase.

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa

from distill.recipe import Recipe
from distill.types import Sample, Trace
from filters.columns import NOT_APPLICABLE, OK, family
from filters.text import has_east_asian
from filters.vocabulary import vocabulary

_NUMBERED: Final = re.compile(
    r"(?:[#*_]{1,6} ?)?(?:(?:step|schritt|étape|etape|paso|passo|passaggio|stap|krok|шаг|bước|adım|langkah) ?#?(\d{1,3})\b"
    r"|第 ?(\d{1,2}|[一二三四五六七八九十]{1,3}) ?步|步骤 ?(\d{1,2}|[一二三四五六七八九十]{1,3})|(\d{1,2})[.)](?=\s|\*))",
    re.IGNORECASE,
)
_INLINE: Final = re.compile(r"step (\d{1,2})(?= ?[:.)—–-]|,)", re.IGNORECASE)
_NEAR: Final = 30
"""Characters between two phrases of one turn."""
_ITEM: Final = ("- ", "* ", "• ", "+ ", "– ", "· ")
_STOPS: Final = (". ", ".\n", "? ", "?\n", "! ", "!\n", "。", "？", "！", "।")

# Each phrase begins with a word by which it is found; `_STARTS` says which of them count only where a sentence begins.
_TURNS: Final = {
    "wait": r"wait(?: a (?:minute|moment|second|sec)\b)?(?:[,.!…—–]|-{1,2} | ?\.\.\.| (?:no|that|but|actually|i|let|maybe|is|the|it|if|there|what)\b)",
    "hold": r"hold on\b(?! to| the)",
    "actually": r"actually,? (?:no\b|wait\b|let me\b|that(?:'s| is) (?:not|wrong)\b|i (?:was|made|mis)|it(?:'s| is)\b|the\b|there\b|looking\b)"
    r"|actually,",
    "hmm": r"hmm?m?\b",
    "oops": r"oops\b",
    "no": r"no, (?:that(?:'s| is)|wait|it(?:'s| is) not|i (?:was|mis|made)|actually|scratch)\b",
    "let": r"let(?: me|'s| us) (?:just |quickly |carefully )?(?:re-?(?:check|examine|count|read|calculate|consider|think|verify|evaluate|do|assess|compute|visit)|double-?check"
    r"|triple-?check|check (?:again|that again|this again|once more)|look (?:again|more closely|closer|at (?:it|this|that|the [a-z]+) again)"
    r"|start over|try again|correct (?:that|this|myself)|go back|backtrack|count again|verify (?:again|this again|once more))\b",
    "need": r"i (?:need|have) to (?:re-?(?:check|examine|count|read|calculate|consider|think|do)|double-?check|correct|go back)\b",
    "should": r"i should (?:re-?(?:check|examine|count|read|calculate|consider|think)|double-?check)\b",
    "thought": r"on second thoughts?\b",
    "scratch": r"scratch that\b",
    "strike": r"strike that\b",
    "mistake": r"(?:i (?:made|have made|see) (?:a|my|an) |my |that was (?:a|my) )mistake\b",
    "error": r"i (?:made|have made) an error\b",
    "misread": r"i(?: have|'ve)? misread\b",
    "miscounted": r"i(?: have|'ve)? miscounted\b",
    "wrong": r"(?:i was|that(?:'s| is| was)|this is|that can't be|must be|i got (?:that|it)) wrong\b(?! (?:bar|one|column|row|side))",
    "right": r"th(?:at|is)(?: can't be| cannot be|(?:'s| is) not| doesn't (?:look|seem)| isn't) (?:quite )?right\b(?! (?:of|next|before|after|side))",
    "correction": r"correction:",
    "moment": r"moment(?: mal)?[,.!…—–]",
    "warte": r"warte(?: mal)?[,.!…—–]",
    "attends": r"attend(?:s|ez)[,.!…—–]",
    "espera": r"esper[ae][,.!…—–]",
    "aspetta": r"aspetta[,.!…—–]",
    "wacht": r"wacht(?: even)?[,.!…—–]",
    "подожди": r"подожди(?:те)?[,.!…—–]",
    "погоди": r"погоди(?:те)?[,.!…—–]",
    "стоп": r"стоп[,.!…—–]",
    "noch": r"noch (?:ein)?mal (?:nach(?:rechnen|zählen|prüfen|sehen)|überprüfen|prüfen|genauer)",
    "vérifions": r"vérifions (?:à nouveau|encore)",
    "realidad": r"en realidad,",
    "na": r"na verdade,",
    "realtà": r"in realtà,",
    "fait": r"en fait,",
}  # fmt: skip
_BEGINNERS: Final = """
    wait actually hmm oops no moment warte attends espera aspetta wacht подожди погоди стоп realidad na realtà fait
"""
_STARTS: Final = frozenset(_BEGINNERS.split())
# What may stand between the beginning of a sentence and the phrase.
_LEADS: Final = frozenset(
    [
        "oh",
        "but",
        "no",
        "hmm",
        "hm",
        "ok",
        "okay",
        "so",
        "well",
        "and",
        "ah",
        "uh",
        "um",
        "yes",
        "wait",
        "nein",
        "aber",
        "mais",
        "pero",
        "ma",
        "но",
    ]
)
_SOFT: Final = " \"“”'*_(,"
_BREAKS: Final = ".!?:;…。\n—–"
_OTHER_WRITING: Final = re.compile(
    "等等[，,。！!…]|等一下|等会儿|不对[，,。！!]|(?:让我|我)?再(?:检查|确认|看|数|算|核对)一(?:下|遍|次)|重新(?:检查|计算|数|审视|看)"
    "|待って|もう一度(?:確認|数え|見)|いや、|잠깐[,.]|다시 (?:확인|세어|계산)|아니[,.] "
)
_COMPILED: Final = {word.encode(): (re.compile(pattern), word in _STARTS) for word, pattern in _TURNS.items()}
# Words that are in the text wherever the phrase is, where the key itself need not be.
_ALSO: Final = {
    b"hm": b"hmm", b"hmmm": b"hmm", b"let's": b"let", b"have": b"need", b"thoughts": b"thought", b"espere": b"espera",
    b"attendez": b"attends", b"wait\xe2\x80\xa6": b"wait", b"no\xe2\x80\x94": b"no",
    b"\xd0\xbf\xd0\xbe\xd0\xb4\xd0\xbe\xd0\xb6\xd0\xb4\xd0\xb8\xd1\x82\xd0\xb5": "подожди".encode(),
}  # fmt: skip
_CLUES: Final = frozenset([*_COMPILED, *_ALSO])


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    name: ClassVar[str] = "steps"
    version: ClassVar[str] = "1"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family(
        "steps",
        steps=("count", "steps of the rationale, in the unit that steps_kind names"),
        steps_kind=("text", "what was counted: numbered steps, list items, paragraphs or sentences"),
        backtracks=("count", "how often the rationale doubts or redoes what it said before"),
        backtrack_phrase=("text", "the first words that do so, in lower case"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Steps":
        return cls()

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        return [self._row(trace.reasoning) for trace in traces]

    def _row(self, text: str) -> dict[str, Any]:
        if not text.strip():
            return {"steps_state": NOT_APPLICABLE}
        count, kind = steps(text)
        turns = backtracks(text)
        return {
            "steps_state": OK,
            "steps": count,
            "steps_kind": kind,
            "backtracks": len(turns),
            "backtrack_phrase": turns[0] if turns else None,
        }


def steps(text: str) -> tuple[int, str]:
    """How many steps a rationale has, and of which kind."""
    text = text.strip()
    lines = [line for line in map(str.lstrip, text.split("\n")) if line] if "\n" in text else []
    if lines:
        numbered = _in_order(
            next(filter(None, found.groups())) for line in lines if (found := _NUMBERED.match(line)) is not None
        )
        if numbered:
            return numbered, "numbered"
        items = sum(line.startswith(_ITEM) for line in lines)
        if items > 1:
            return items, "items"
    if "tep 2" in text:
        numbered = _in_order(dict.fromkeys(_INLINE.findall(text)))
        if numbered:
            return numbered, "numbered"
    if "\n\n" in text:
        paragraphs = sum(bool(part.strip()) for part in text.split("\n\n"))
        if paragraphs > 1:
            return paragraphs, "paragraphs"
    return max(1, sum(map(text.count, _STOPS)) + text.endswith((".", "?", "!"))), "sentences"


def _in_order(numbers: Iterable[str]) -> int:
    """How many numbers there are, if two that follow each other count up; else 0: "12." may be a value."""
    found = list(numbers)
    if not any(_follows(one, other) for one, other in pairwise(found)):
        return 0
    return len(found)


def _follows(one: str, other: str) -> bool:
    if one.isascii() and other.isascii():
        return int(other) == int(one) + 1
    return one != other and not one.isascii() and not other.isascii()


def backtracks(text: str) -> list[str]:
    """The phrases that turn back, in their order."""
    clues = _CLUES & vocabulary(text)
    unspaced = tuple(_OTHER_WRITING.finditer(text)) if has_east_asian(text) else ()
    if not clues and not unspaced:
        return []
    lowered = text.lower().replace("’", "'")
    found = [(match.start(), match.end()) for match in unspaced]
    for clue in {_ALSO.get(clue, clue) for clue in clues}:
        pattern, starts = _COMPILED[clue]
        for match in pattern.finditer(lowered):
            place = match.start()
            if starts and not _begins(lowered, place):
                continue
            if place and lowered[place].isalnum() and lowered[place - 1].isalnum():
                continue
            found.append((place, match.end()))
    found.sort()
    phrases: list[str] = []
    end = -_NEAR - 1
    # "Wait, no, let me recheck" is one turn: what follows within a few words belongs to it.
    for start, stop in found:
        if start > end + _NEAR:
            phrases.append(lowered[start:stop].strip(" ,.!…—–-"))
        end = max(end, stop)
    return phrases


def _begins(text: str, place: int) -> bool:
    """Whether a sentence begins here, or a word or two before, such as "oh no, wait"."""
    before = text[max(0, place - 40) : place]
    if before.endswith("- "):
        return True
    for _ in range(3):
        bare = before.rstrip(_SOFT)
        if not bare or bare[-1] in _BREAKS or before.endswith("("):
            return True
        word = bare.split()[-1]
        if word not in _LEADS:
            return False
        before = bare[: -len(word)]
    return False
