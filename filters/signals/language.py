"""In which script and language a rationale is written, and whether it leaves those of its question.

A teacher that turns to Chinese in mid-rationale is the case this is for. Names and labels do not make a text mixed:
what stands in quotes, code or formulas, or also in the question, its gold answers or the chart's table, is not
counted. The language is a guess by stop words; it says `und` rather than guess wrong. Within one script a change of
language is seen by whole sentences only. Whether the answer is in the right language is not looked at.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal

import orjson
import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, UNDECIDABLE, family
from filters.text.scripts import latin_alone, latin_letters, script_of, scripts
from filters.text.stop_words import COUNTED, LANGUAGES, STOP_WORDS
from filters.text.vocabulary import vocabulary, words_sought

UNKNOWN: Final = "und"

_LEAST_LETTERS: Final = 6
"""A text with fewer letters has no script of its own: "6 + 8 = 14 cm"."""
_GLANCE: Final = 100
"""Characters among which a text with a script of its own has letters enough."""
_LEAST_SHARE: Final = 0.01
_CLEAR_SHARE: Final = 0.9
_LEAST_STOP_WORDS: Final = 3
# Japanese, Korean and so on have a script of their own; a text in Han characters alone is Chinese.
_BY_SCRIPT: Final = {"han": "zh", "japanese": "ja", "hangul": "ko", "thai": "th", "hebrew": "he", "greek": "el"}

# Every alternative begins with a sign, by which the search finds its place.
_QUOTED: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"  # code
    r"|\$\$.*?\$\$|\\\[.*?\\\]|\\\(.*?\\\)|\$[^$\n]{1,200}\$"  # formulas
    r"|\"[^\"\n]{1,80}\"|“[^”\n]{1,80}”|„[^“”\n]{1,80}[“”]|«[^»\n]{1,80}»|‘[^’\n]{1,80}’(?!\w)|'(?<!\w')[^'\n]{1,80}'(?!\w)"
    r"|「[^」\n]{1,80}」|『[^』\n]{1,80}』|《[^》\n]{1,80}》|【[^】\n]{1,80}】",
    re.DOTALL,
)
_OTHER_WORDS: Final = re.compile(r"[^\W\d_a-zA-Z]+")
# Every language writes units, names and abbreviations in Latin letters: only a phrase of them is another language.
_LATIN: Final = r"[A-Za-z\u00c0-\u024f'’-]"
_LATIN_PHRASE: Final = re.compile(rf"(?<!{_LATIN}){_LATIN}++(?:[ ,]++{_LATIN}++){{2,}}")
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]*")
_STOP_WORDS: Final = frozenset(STOP_WORDS)
_LACKED: Final = {
    spoken: frozenset(word for word, places in STOP_WORDS.items() if place not in places)
    for place, spoken in enumerate(LANGUAGES)
}
"""The stop words that a language does not have, by language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    name: ClassVar[str] = "language"
    version: ClassVar[str] = "2"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family(
        "language",
        language_scripts=(
            "text",
            "the rationale's scripts that hold at least 1 % of its letters, the dominant one first",
        ),
        language_mix=(
            "number",
            "share of the rationale's letters outside the dominant script of it and its question, or in sentences of "
            "another language of that script",
        ),
        language_switch_at=("number", "where such a passage begins, as a share of the rationale's characters"),
        language_switch=("flag", "the rationale is mainly written in another script than the question"),
        language=("text", "language of the rationale by its stop words, or und"),
        language_differs=("flag", "the rationale is surely in another language than the question"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Language":
        return cls()

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        known = lru_cache(maxsize=1)(lambda: labels(sample))
        return [self._row(sample, trace.reasoning, known) for trace in traces]

    def _row(self, sample: Sample, text: str, known: Callable[[], str]) -> dict[str, Any]:
        if not text.strip():
            return {"language_state": NOT_APPLICABLE}
        asked = _question(sample.question)
        own = _of_latin(text) if asked.scripts.keys() <= {"latin"} else _scripts(text)
        letters = own.total()
        if letters < _LEAST_LETTERS:
            return {"language_state": UNDECIDABLE}
        written = main_script(own)
        dominant = written if asked.scripts.keys() <= {written} else main_script(own + asked.scripts)
        spoken = language(text, written)
        share, place = 0.0, None
        if own[dominant] < letters:
            share, place = mix(text, dominant, known())
        main_language = asked.language if spoken == UNKNOWN else spoken
        if not share and main_language != UNKNOWN and written == dominant:
            share, place = foreign_sentences(text, written, main_language)
        certain = asked.language != UNKNOWN and spoken != UNKNOWN
        return {
            "language_state": OK,
            "language_scripts": _listed(own, letters),
            "language_mix": share,
            "language_switch_at": None if place is None else place / len(text),
            "language_switch": asked.script != written if asked.script else None,
            "language": spoken,
            "language_differs": spoken != asked.language if asked.script and certain else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    scripts: Counter[str]
    script: str
    """Empty for a question of too few letters."""
    language: str


def _of_latin(text: str) -> Counter[str]:
    """The scripts of a text beside a Latin question: where it is Latin alone, it matters only that it has letters."""
    letters = latin_letters(text[:_GLANCE])
    return Counter(latin=letters) if letters >= _LEAST_LETTERS and latin_alone(text) else _scripts(text)


def _scripts(text: str) -> Counter[str]:
    """The scripts of a text; of what is not quoted, where quotes could tip the balance."""
    found = scripts(text)
    clear = len(found) < 2 or max(found.values()) >= _CLEAR_SHARE * found.total()
    return found if clear else scripts(_QUOTED.sub(" ", text))


def main_script(found: Counter[str]) -> str:
    return _ranked(found)[0] if found else ""


def _ranked(found: Counter[str]) -> list[str]:
    return sorted(found, key=lambda script: (-found[script], script)) if len(found) > 1 else list(found)


def _listed(found: Counter[str], letters: int) -> str:
    return "+".join(script for script in _ranked(found) if found[script] >= _LEAST_SHARE * letters)


def mix(text: str, dominant: str, known: str) -> tuple[float, int | None]:
    """Share of the letters outside the dominant script, and where they begin.

    What is quoted and words found in `known` are left out.
    """
    bare = _QUOTED.sub(_blank, text)
    if not (bare.isascii() or known.isascii()):
        words = set(_OTHER_WORDS.findall(bare))
        named = {word for word in words if script_of(word[0]) != dominant and word in known}
        if named:
            bare = _OTHER_WORDS.sub(lambda match: _blank(match) if match[0] in named else match[0], bare)
    inside = scripts(bare)
    here = inside.pop(dominant, 0)
    phrases: list[re.Match[str]] = []
    if dominant != "latin" and "latin" in inside:
        phrases = list(_LATIN_PHRASE.finditer(bare))
        inside["latin"] = scripts(" ".join(phrase[0] for phrase in phrases))["latin"]
    if dominant == "japanese":
        # A heading without kana is still Japanese.
        here += inside.pop("han", 0)
    outside = inside.total()
    if not outside:
        return 0.0, None
    places = [phrase.start() for phrase in phrases[:1]]
    own = {dominant, "latin", *(("han", "kana") if dominant == "japanese" else ())}
    foreign = (letter for letter in set(bare) if letter > "\x7f" and (script_of(letter) or dominant) not in own)
    places += map(bare.find, foreign)
    return outside / (here + outside), min(places, default=None)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def foreign_sentences(text: str, script: str, spoken: str) -> tuple[float, int | None]:
    """Share of the characters in sentences that are surely of another language, and where the first one begins."""
    if script in _BY_SCRIPT or spoken not in LANGUAGES or not _another(text, spoken):
        return 0.0, None
    outside, first = 0, None
    for match in _SENTENCE.finditer(_QUOTED.sub(_blank, text)):
        if _guess(words_sought(match[0])) not in (UNKNOWN, spoken):
            outside += len(match[0].strip())
            first = match.start() if first is None else first
    return outside / len(text.strip()), first


def _another(text: str, spoken: str) -> bool:
    """Whether a text has enough stop words that its language lacks for a sentence in another."""
    others = vocabulary(text) & _LACKED[spoken]
    return len(others) >= _LEAST_STOP_WORDS and max(_hits(others)) >= _LEAST_STOP_WORDS


def labels(sample: Sample) -> str:
    """Where a foreign word may come from: the question, its gold answers, its options and its chart's table."""
    texts = [sample.question, *sample.answers]
    if sample.meta:
        texts.append(orjson.dumps(dict(sample.meta), default=str, option=orjson.OPT_NON_STR_KEYS).decode())
    return "\n".join(texts)


@lru_cache(maxsize=256)
def _question(text: str) -> _Asked:
    found = _scripts(text)
    script = main_script(found)
    return _Asked(
        scripts=found, script=script if found.total() >= _LEAST_LETTERS else "", language=language(text, script)
    )


def language(text: str, script: str) -> str:
    """The language whose stop words a text uses by far the most, or the only one of its script; else und."""
    return _BY_SCRIPT.get(script) or _guess(vocabulary(text))


def _guess(words: frozenset[bytes]) -> str:
    hits = _hits(words & _STOP_WORDS)
    second, best = sorted(hits)[-2:]
    # Related languages share their short words, so the lead must be clear.
    clear = best >= max(_LEAST_STOP_WORDS, 1.4 * second, second + 2)
    return LANGUAGES[hits.index(best)] if clear else UNKNOWN


def _hits(words: frozenset[bytes]) -> bytes:
    """How many of these stop words each language has."""
    return sum(map(COUNTED.__getitem__, words)).to_bytes(len(LANGUAGES), "little")
