"""The final answer in what a model says: boxed, after a cue such as "the answer is", or the text itself.

Works on text only and decides nothing: `distill.answers.verdicts` judges what is found here. Every text of a model
enters the judge here, so this module also limits it: one pass over a text of any length, no surrogate halves, and an
answer of at most `MAX_CHARACTERS`. From a longer text it takes the part that states the answer.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import orjson

from distill.rationale import thinking_end

MAX_CHARACTERS: Final = 2_000
"""Longest final answer; a longer text is no answer, and comparisons need not be fast on it."""

# Each part begins with its sign, which is then searched for quickly.
_MARKS = re.compile(r"\*(?<![\w*]\*)\*{0,2}(?=\S)|\*(?<=\S\*)\*{0,2}(?![\w*])|__+|`+")
_STRUCK = re.compile(r"~~[^~\n]+~~")
_LINE_MARKS = re.compile(r"^[^\S\n]{0,3}#{1,3}\s|^[^\S\n]*>\s", re.MULTILINE)
# Words before "answer" ("so my final") need not be matched: only where the cue ends matters.
_CUE = re.compile(
    r"""(?:^|(?<=[\s.,;:!?("'*]))
    (?:answer|(?:correct|right|best)\s+(?:option|choice)|(?:result|solution)(?=\s*(?:is|:|=)))
    (?:\s+(?:to\s+(?:this|the|that)\s+question|option|choice|here))?
    \s*(?:(?:is|are|was|would\s+be|should\s+be|must\s+be|will\s+be)(?:\s+(?:therefore|thus|simply|clearly|option|choice))?
      \s*:?(?=\W|\w)|[:=]|\n)""",
    re.IGNORECASE | re.VERBOSE,
)
_CUE_WORDS: Final = "answer|correct|right|best|result|solution"
_CUE_BEGINS, _CUE_BEGINS_ANYHOW = re.compile(_CUE_WORDS), re.compile(_CUE_WORDS, re.IGNORECASE)
_REMARK = re.compile(r"\n[ \t]*(?:explanation|reason(?:ing)?|rationale|justification|note)\s*:", re.IGNORECASE)
_MATHS_DELIMITED = re.compile(r"\$\$?([^$]+)\$\$?")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalAnswer:
    """The words of the answer, and whether the model marked them as such."""

    text: str
    marked: bool
    cut: bool = False
    """Whether the answer itself was too long, and is not all here."""
    emphasised: str = ""
    """The only bold words of the last paragraph."""


def final_answer(text: str) -> FinalAnswer:
    """The part of a response that states its answer."""
    return _remembered(text) if len(text) <= _SHORT else _remembered_long(text)


_SHORT = 60
"""Short answers come again and again. A long one is asked for by each signal that reads it."""


def _found(text: str) -> FinalAnswer:
    if not text.isascii() and _SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    marked = False
    text = text[thinking_end(text) :]
    if "<answer>" in text:
        text, marked = text.rpartition("<answer>")[2].partition("</answer>")[0], True
    boxed = _boxed(text)
    if boxed is not None:
        return _limited(boxed, marked=True)
    if "####" in text:
        text, marked = text.rpartition("####")[2].strip().partition("\n")[0], True
    if "#" in text or ">" in text:
        text = _LINE_MARKS.sub("", text)
    if "~~" in text:
        text = _STRUCK.sub(" ", text)
    if (value := _in_json(text)) is not None:
        return _limited(value, marked=True)
    emphasised = _emphasised(text) if "**" in text else ""
    if "*" in text or "`" in text or "_" in text:
        text = _MARKS.sub("", text)
    if "\n" in text:
        text = _REMARK.split(text, maxsplit=1)[0].rstrip() or text
    lowered = text.lower()
    foreign = _FOREIGN_CUE.search(text) if any(word in lowered for word in _FOREIGN_ANSWERS) else None
    if foreign is not None and (rest := text[foreign.end() : foreign.end() + 2 * MAX_CHARACTERS].strip()):
        return _limited(first_sentence(rest.partition("\n")[0]).rstrip("。").removesuffix("です"), marked=True)
    if any(word in lowered for word in ("answer", "result", "solution", "option", "choice")):
        # The last cue counts; none begins within another one.
        for begin in reversed(_cue_beginnings(text, lowered)):
            cue = _CUE.match(text, begin)
            denied = _DENIED_CUE.search(text, max(0, begin - _LOOKED_BACK), begin) if cue else None
            if cue and denied is None and (rest := text[cue.end() : cue.end() + 2 * MAX_CHARACTERS].strip()):
                return _limited(first_sentence(rest.partition("\n")[0]), marked=True)
    return replace(_limited(text, marked=marked), emphasised=undelimited(emphasised))


_remembered, _remembered_long = lru_cache(maxsize=8192)(_found), lru_cache(maxsize=64)(_found)
_LOOKED_BACK: Final = 60
_DENIED_CUE = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bfalse|\buntrue|\bdoubt\w*|\bunlikely|\bif|\bwhether|\bunsure)\b[^.!?\n,;:]*$",
    re.IGNORECASE,
)
"""I doubt that the answer is 5."""


def _cue_beginnings(text: str, lowered: str) -> list[int]:
    """Where a cue may begin. In lower case the search is several times as fast."""
    if len(lowered) == len(text) and "ſ" not in text:
        return [word.start() for word in _CUE_BEGINS.finditer(lowered)]
    return [word.start() for word in _CUE_BEGINS_ANYHOW.finditer(text)]


_FOREIGN_ANSWERS_TEXT: Final = (
    "réponse respuesta antwort risposta resposta antwoord ответ 정답 답: 답： 答案 答え 正解 解答 الجواب الإجابة उत्तर"
)
_FOREIGN_ANSWERS: Final = tuple(_FOREIGN_ANSWERS_TEXT.split())
_FOREIGN_CUE = re.compile(
    r"\b(?:la réponse (?:correcte |finale )?est|la respuesta (?:correcta |final )?es"
    r"|die (?:richtige )?antwort (?:ist|lautet)"
    r"|la risposta (?:corretta )?è|a resposta (?:correta )?é|het antwoord is)\s*:?"
    r"|(?:正确)?答案\s*(?:是|为|：|:)\s*[：:]?|(?:答え|正解|解答|정답|답)(?:は|은)?\s*[：:]|(?:答え|正解|解答)は|(?<!\w)(?:réponse|respuesta|antwort|risposta|resposta|antwoord|ответ)(?:\s[^\W\d]+)?\s*[：:]|(?:الجواب|الإجابة)\s*(?:هو|هي|:)"
    r"|(?:सही )?उत्तर\s*(?:है\s*:?|:|(?=\s[^\s।]{1,20}\sहै))",
    re.IGNORECASE,
)
_JSON_ANSWER = re.compile(
    r'\s*\{?\s*"(?:final_)?answer"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s",{}\[\]]+)\s*,?\s*\}?', re.IGNORECASE
)


def _in_json(text: str) -> str | None:
    """The answer of the JSON object with which a text ends: {"answer": "Lisbon"}; the object if it names none."""
    text = text.rstrip().removesuffix("```").rstrip()
    start = text.rfind("{", max(0, len(text) - MAX_CHARACTERS)) if text.endswith("}") else -1
    try:
        members: dict[str, Any] = orjson.loads(text[start:] if start >= 0 else "")
    except orjson.JSONDecodeError:
        match = _JSON_ANSWER.fullmatch(text) if '"' in text[:20] else None
        return None if match is None else match[1].strip('"')
    named = [value for name, value in members.items() if name.casefold() in _ANSWER_NAMES]
    if not named:
        return orjson.dumps(members).decode() if members else None
    items = named[-1] if isinstance(named[-1], list) else named[-1:]
    unit = members.get("unit")
    words = ", ".join(item if isinstance(item, str) else orjson.dumps(item).decode() for item in items)
    return f"{words} {unit}" if isinstance(unit, str) and words[-1:].isdigit() else words


_ANSWER_NAMES: Final = frozenset({"answer", "final_answer", "final answer", "result", "solution"})


def _emphasised(text: str) -> str:
    """The bold words of the last paragraph, if there is one such place."""
    bold = _BOLD.findall(text, text.rfind("\n\n") + 1)
    return bold[0].strip() if len(bold) == 1 else ""


_BOLD = re.compile(r"\*\*([^*\n]{1,120})\*\*")


def _limited(text: str, *, marked: bool) -> FinalAnswer:
    """An answer of a length that can be judged: of a long text without marks its last line, else its end."""
    text = text.strip()
    if not marked and len(text) > MAX_CHARACTERS:
        text = text.rpartition("\n")[2]
    cut = len(text) > MAX_CHARACTERS
    if cut:
        text = text[:MAX_CHARACTERS] if marked else text[-MAX_CHARACTERS:]
    return FinalAnswer(text=undelimited(text), marked=marked, cut=cut)


def _boxed(text: str) -> str | None:
    r"""The inside of the last \boxed{...} or \fbox{...}."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    if either := _EITHER_BOX.search(text, max(0, start - MAX_CHARACTERS)):
        return f"{either[1]} or {either[2]}"
    opening = text.find("{", start)
    if opening < 0:
        words = text[start:].split(maxsplit=1)
        return words[1].split("$")[0] if len(words) > 1 else None
    depth = 0
    for brace in _BRACE.finditer(text, opening):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[opening + 1 : brace.start()]
    return None


_BRACE = re.compile("[{}]")
_EITHER_BOX = re.compile(r"\\boxed\{([^{}]{1,200})\}\$?,? or \$?\\boxed\{([^{}]{1,200})\}")


def first_sentence(line: str) -> str:
    """A line up to the end of its first sentence; points in numbers and in short abbreviations end nothing."""
    for match in re.finditer(r"[.!?;](?=\s)", line):
        word = line[max(0, match.start() - 5) : match.start()].split(" ")[-1]
        goes_on = "." in word and line[match.end() + 1 : match.end() + 2].islower()  # U.S. dollars
        if match[0] != "." or not 1 < len(word) <= 3 or not (word.isalpha() or goes_on):
            return line[: match.start()]
    return line


def undelimited(text: str) -> str:
    """Text without the quotes, math delimiters and closing punctuation around it."""
    text = _unquoted(text.strip())
    if not text.isascii():
        text = _POLITE_END.sub("", text) or text
    delimited = _MATHS_DELIMITED.fullmatch(text)
    if delimited is not None and (inside := delimited[1].strip()):
        text = inside
    if text.endswith((".", "!", ";", ",", ":")) and not text.endswith("..") and not _FACTORIAL.search(text):
        text = text[:-1].rstrip()
    return _unquoted(text)


_POLITE_END = re.compile(r"(?:(?<=\w)(?:です|でした))?。?$")
"""How a Japanese sentence ends after its answer."""
_QUOTES = "\"'“”‘’"
_FACTORIAL = re.compile(r"\d!$")


def _unquoted(text: str) -> str:
    """Text without its quotes; the signs of a year ('98) and of feet and inches (6'2") stay."""
    if not text or (text[0] not in _QUOTES and text[-1] not in _QUOTES):
        return text
    if text[0] not in _QUOTES and text[:-1].count(text[-1]) == 1 and text[-1] == '"':
        return text  # the sign reads "Exit"
    inside = text.strip(_QUOTES)
    if text[0] not in _QUOTES and inside[-1:].isdigit():
        return text
    if text[-1] not in _QUOTES and inside[:2].isdigit() and len(inside) == 2:
        return text
    return inside.strip()
