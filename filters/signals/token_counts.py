"""Token counts without tokenizing the same words again: pieces of a text whose tokens are known are looked up.

A byte-level BPE first cuts a text by a pattern and never joins tokens across a cut. For the patterns that this module
supports, white space before a word (with newer patterns also the end of a line) is always such a cut. So the pieces
of a text have together as many tokens as the text. With any other tokenizer, or other white space than spaces and
line breaks, the whole text is tokenized. Counts are the same in either way.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

_KEPT = 1 << 17
"""Pieces that are remembered, twice: some 20 MB each time."""

# Splits of GPT-4's kind: marks take the line breaks after them, words may take one character that is no line break.
_MARKS, _LINES = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT_FORMS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINE_PATTERNS = frozenset(
    [
        *(
            rf"{_SHORT_FORMS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_MARKS}|{_LINES}"
            for digits in (r"\p{N}", r"\p{N}{1,3}")
        ),
        rf"{_SHORT_FORMS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}",
    ]
)
_OTHER_SPACE = re.compile(r"[^\S \n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSplit:
    """How to cut a text into pieces that are never joined."""

    pieces: re.Pattern[str]
    """All pieces of any text."""
    regular: re.Pattern[str]
    """A piece with the most common white space."""
    after_lines: bool
    """Whether a run of line breaks belongs to the word before it, or to the one after."""


# The white space before a word goes with it; a run up to a line break goes with the word before.
_AFTER_LINES = TextSplit(
    pieces=re.compile(r"[ ]*[^ \n]+(?:[ \n]*\n)?|[ ]*\n(?:[ \n]*\n)?|[ ]+"),
    regular=re.compile(r" ?\S+\n{0,2}"),
    after_lines=True,
)
_BEFORE_LINES = TextSplit(
    pieces=re.compile(r"[ \n]*[^ \n]+|[ \n]+"), regular=re.compile(r"(?: |\n{0,2})\S+"), after_lines=False
)


def find_text_split(tokenizer: str) -> TextSplit | None:
    """What cuts a text into pieces that a tokenizer (its JSON) never joins; None when that is not known."""
    settings = orjson.loads(tokenizer)
    if (settings.get("model") or {}).get("type") != "BPE" or not _keeps_white_space(settings):
        return None
    split = settings.get("pre_tokenizer") or {}
    parts = split.get("pretokenizers", []) if split.get("type") == "Sequence" else [split]
    kinds = [part.get("type") for part in parts]
    if not parts or kinds[-1] != "ByteLevel" or parts[-1].get("add_prefix_space"):
        return None
    # Cutting at digits, too, makes more pieces, never fewer.
    rest = [part for part in parts[:-1] if part.get("type") != "Digits"]
    if parts[-1].get("use_regex", True):
        return _BEFORE_LINES if not rest else None
    if len(rest) == 1 and kinds[0] == "Split" and len(parts) == 2 and _is_known_split(rest[0]):
        return _AFTER_LINES
    return None


def _is_known_split(part: dict[str, Any]) -> bool:
    return (
        part.get("behavior") == "Isolated"
        and not part.get("invert")
        and part.get("pattern", {}).get("Regex") in _LINE_PATTERNS
    )


def _keeps_white_space(settings: dict[str, Any]) -> bool:
    """Whether nothing before the pattern can join what white space separates."""
    return (settings.get("normalizer") or {"type": "NFC"}).get("type") == "NFC" and not any(
        token.get("lstrip") or token.get("rstrip") or token.get("single_word") or re.search(r"\s", token["content"])
        for token in settings.get("added_tokens") or ()
    )


class _Irregular(Exception):
    """A piece with white space that is not simply a space or a line break or two before a word."""


class _KnownPieces(dict[str, int]):
    """Pieces and their numbers of tokens; one that is not known is counted when it is asked for."""

    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__()
        self.count = count

    def __missing__(self, piece: str) -> int:
        number = self.count(piece)
        if len(self) < _KEPT and len(piece) < 100:
            self[piece] = number
        return number


def cached_counter(split: TextSplit, count: Callable[[str], int]) -> Callable[[str], int]:
    """A function that counts the tokens of a text by its pieces; `count` counts the tokens of any text."""

    def count_marked(piece: str) -> int:
        text = piece[1:] if piece[:1] == "\1" else " " + piece
        if not split.regular.fullmatch(text):
            raise _Irregular
        return count(text)

    count_piece = _KnownPieces(count).__getitem__
    count_marked_piece = _KnownPieces(count_marked).__getitem__
    line_mark, two_lines_mark = ("\n \1", "\n\n \1") if split.after_lines else (" \1\n", " \1\n\n")

    def by_pattern(text: str) -> int:
        return count(text) if _OTHER_SPACE.search(text) else sum(map(count_piece, split.pieces.findall(text)))

    def counted(text: str) -> int:
        if not text or "  " in text or "\1" in text or "\2" in text:
            return by_pattern(text)
        # The common white space is cut by a split at spaces, several times as fast as by a pattern: a piece has one
        # before it, unless it is marked.
        marked = "\1" + text
        if "\n" in marked:
            marked = marked.replace("\n\n", "\2").replace("\n", line_mark).replace("\2", two_lines_mark)
        try:
            return sum(map(count_marked_piece, marked.split(" ")))
        except _Irregular:
            return by_pattern(text)

    return counted
