"""Limits marks of reading direction to the text that holds them, and shows control characters as signs.

A trace may hold an unclosed "right-to-left override" (U+202E), which would turn all words that follow it on a page.
Pages pass every text through `isolated`; a terminal gets escapes instead (`distill.commands.progress`).
"""

_EMBEDDINGS = frozenset("\u202a\u202b\u202d\u202e")
_ISOLATES = frozenset("\u2066\u2067\u2068")
_END_OF_EMBEDDING, _END_OF_ISOLATE = "\u202c", "\u2069"
_FIRST_STRONG_ISOLATE = "\u2068"
_MARKS = _EMBEDDINGS | _ISOLATES | {_END_OF_EMBEDDING, _END_OF_ISOLATE}

_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"} | {0x7F: "\u2421"}
_CONTROLS |= dict.fromkeys(range(0x80, 0xA0), "\ufffd")


def without_controls(text: str) -> str:
    """The same text with a visible sign for each control character: a terminal may show the file."""
    return text if text.isprintable() else text.replace("\r\n", "\n").translate(_CONTROLS)


def isolated(text: str) -> str:
    """The text; if it has such marks, with all of them closed and isolated from the text around it."""
    if _MARKS.isdisjoint(text):
        return text
    return "\n".join(line if _MARKS.isdisjoint(line) else _closed(line) for line in text.split("\n"))


def _closed(line: str) -> str:
    """One line; a line break ends every mark. Ends without a beginning are left out."""
    kept: list[str] = []
    open_marks: list[str] = []
    for character in line:
        if character in _EMBEDDINGS:
            open_marks.append(_END_OF_EMBEDDING)
        elif character in _ISOLATES:
            open_marks.append(_END_OF_ISOLATE)
        elif character == _END_OF_EMBEDDING:
            if open_marks[-1:] != [character]:
                continue
            open_marks.pop()
        elif character == _END_OF_ISOLATE:
            if character not in open_marks:
                continue
            while open_marks.pop() != character:
                pass
        kept.append(character)
    return "".join([_FIRST_STRONG_ISOLATE, *kept, *reversed(open_marks), _END_OF_ISOLATE])
