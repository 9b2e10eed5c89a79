"""Features of questions, answers, replies and images, by name: what two groups of rows are compared by.

Each is a number, a category or None where the row has none. Reads the first letters of a text alone, so that a row
takes some microseconds; images are decoded by `of_image`.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Final

import numpy as np

from distill.data.images.image_files import load
from distill.errors import ImageError
from distill.question_options import read_options
from distill.rationale import split
from distill.types import ImageRef

Features = Mapping[str, float | str | None]

_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"[-+−]?[$€£]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LETTERS: Final = 40
_FEW_WORDS: Final = 4
_FREQUENT: Final = 2
_YES_NO: Final = ("yes", "no", "true", "false")


def words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """Words that several of the texts have."""
    counted = Counter(word for text in texts for word in set(words(text)))
    return frozenset(word for word, count in counted.items() if count >= _FREQUENT)


def of_question(question: str, known: Collection[str] = ()) -> Features:
    """Of the text of a question; `known` are the words of other questions."""
    spoken = words(question)
    last = question.rstrip()[-1:]
    return {
        "the number of words of the question": float(len(spoken)),
        "the share of the question's words that are known": (
            sum(word in known for word in spoken) / len(spoken) if known and spoken else None
        ),
        "the script of the question": script(question),
        "the end of the question": last if last and not last.isalnum() else "a letter",
        "options in the question": "some" if read_options(question).texts else "none",
    }


def of_answer(answer: str) -> Features:
    number = number_of(answer)
    return {
        "the form of the answer": form(answer),
        "the length of the answer in characters": float(len(answer.strip())),
        "the value of the answer": number,
    }


def of_reply(reply: str) -> Features:
    """Of a whole reply, with the block in which it thinks."""
    told = split(reply)
    return {
        "the think block": told.state,
        "the number of words of the reply": float(len(words(reply))),
        "the script of the reply": script(told.rationale or told.answer),
        "the form of what the reply ends with": form(told.answer),
    }


def of_image(ref: ImageRef, *, max_pixels: int) -> Features:
    """Of the pixels of an image; empty where it cannot be read."""
    try:
        image = load(ref, max_pixels=max_pixels)
    except ImageError:
        return {}
    width, height = image.size
    image.thumbnail((64, 64))
    pixels = np.asarray(image, dtype=np.float32).reshape(-1, 3)
    grey = pixels.mean(axis=1)
    return {
        "the width of the image": float(width),
        "the height of the image": float(height),
        "the width of the image over its height": width / height,
        "the brightness of the image": float(grey.mean()),
        "the contrast of the image": float(grey.std()),
        "the colourfulness of the image": float((pixels.max(axis=1) - pixels.min(axis=1)).mean()),
    }


def number_of(text: str) -> float | None:
    """The value of a text that is one number, perhaps with a percent sign or a currency."""
    plain = text.strip().rstrip("%. ")
    if not _NUMBER.fullmatch(plain):
        return None
    try:
        return float(re.sub(r"[,$€£+]", "", plain).replace("−", "-"))
    except ValueError:
        return None


def form(text: str) -> str:
    """What an answer looks like."""
    plain = text.strip()
    if not plain:
        return "nothing"
    if number_of(plain) is not None:
        return "a number"
    spoken = words(plain)
    if plain.strip("().").casefold() in _YES_NO:
        return "yes or no"
    if len(plain.strip("(). ")) == 1:
        return "a letter"
    if any(word[:1].isdigit() for word in spoken) and len(spoken) <= 2:
        return "a number with a unit"
    if len(spoken) <= 1:
        return "a word"
    return "a few words" if len(spoken) <= _FEW_WORDS else "a sentence"


def script(text: str) -> str | None:
    """The script of most of the first letters, such as LATIN."""
    letters = [character for character in text[: 4 * _LETTERS] if character.isalpha()][:_LETTERS]
    if not letters:
        return None
    return Counter(map(_script_of, letters)).most_common(1)[0][0]


@cache
def _script_of(letter: str) -> str:
    return unicodedata.name(letter, "OTHER").split()[0]
