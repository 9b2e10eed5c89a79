"""The tools of the tool teacher: what it reads in a picture, what it sees there, and how it words its arithmetic.

It gets a picture and a question, as a student does, and nothing of how the picture was drawn. What its tools misread
goes into its rationale as it comes. It knows no other questions than those of this world.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rapidfuzz import fuzz
from scipy import ndimage
from sources import KINDS, PLURAL, Thing

ROWS = ("top", "middle", "bottom")
_ENLARGED = 2
"""OCR finds single digits of 14 pixels only in an enlarged picture."""
_SETTINGS = {
    "Global.log_level": "error",
    "Global.use_cls": False,  # it takes short words for ones that stand on their head
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
}


@dataclass(frozen=True, kw_only=True)
class Word:
    """A text that OCR has found; centre and left edge in pixels."""

    text: str
    x: float
    y: float
    left: float


class Reader:
    """RapidOCR, its models from its wheel."""

    def __init__(self) -> None:
        from rapidocr import RapidOCR

        self._ocr = RapidOCR(params=_SETTINGS)

    def __call__(self, image: Image.Image) -> list[Word]:
        large = image.resize([length * _ENLARGED for length in image.size], Image.Resampling.BICUBIC)
        result = self._ocr(np.asarray(large)[:, :, ::-1])
        words = []
        for box, text in zip(result.boxes if result.boxes is not None else (), result.txts or (), strict=True):
            x, y = np.asarray(box).mean(0) / _ENLARGED
            words.append(Word(text=str(text).strip(), x=x, y=y, left=np.asarray(box)[:, 0].min() / _ENLARGED))
        return sorted(words, key=lambda word: (word.y, word.x))


class Eye:
    """Tells kinds of things apart by EfficientNet-Lite2 and a linear layer that was fitted to the train pictures."""

    def __init__(self, features: Callable[[list[Image.Image]], np.ndarray], known: list[tuple[Thing, Image.Image]]):
        self._features = features
        self._names = list(KINDS)
        inputs = np.hstack([features([image for _, image in known]), np.ones((len(known), 1))])
        targets = np.array([[thing.kind == name for name in self._names] for thing, _ in known], dtype=float)
        # A strong ridge: few pictures a kind.
        self._weights = np.linalg.solve(inputs.T @ inputs + 0.1 * np.eye(inputs.shape[1]), inputs.T @ targets)

    def __call__(self, image: Image.Image) -> list[tuple[str, float]]:
        """Kind and height of the middle, 0 to 1, of each thing on a plain ground, from the top left on."""
        boxes = find_things(image)
        if not boxes:
            return []
        features = self._features([image.crop(box) for box in boxes])
        scores = np.hstack([features, np.ones((len(boxes), 1))]) @ self._weights
        kinds = [self._names[index] for index in scores.argmax(1)]
        return [(kind, (box[1] + box[3]) / 2 / image.height) for kind, box in zip(kinds, boxes, strict=True)]


def find_things(image: Image.Image) -> list[tuple[int, int, int, int]]:
    """Boxes of what differs from the ground's colour, row by row."""
    pixels = np.asarray(image.convert("RGB")).astype(int)
    ground = np.median(np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]), axis=0)
    mask = ndimage.binary_dilation(np.abs(pixels - ground).max(-1) > 10, iterations=3)
    labels, _ = ndimage.label(mask)
    boxes = []
    for rows, columns in ndimage.find_objects(labels):
        if (rows.stop - rows.start) * (columns.stop - columns.start) > 500:
            boxes.append((columns.start, rows.start, columns.stop, rows.stop))
    return sorted(boxes, key=lambda box: (int((box[1] + box[3]) / 2 * len(ROWS) / image.height), box[0]))


def pairs(words: list[Word]) -> list[tuple[str, str]]:
    """Labels with what stands at their right, or above them where labels form the last line; the heading left out."""
    body = words[1:]
    last = [word for word in body if body and abs(word.y - max(other.y for other in body)) < 6]
    if len(last) >= 3:
        values = [word for word in body if word not in last]
        near = ((label, min(values, key=lambda word: abs(word.x - label.x), default=None)) for label in last)
        found = [(label, value) for label, value in near if value and abs(value.x - label.x) < 20]
        return [(label.text, value.text) for label, value in sorted(found, key=lambda pair: pair[0].x)]
    lines: list[list[Word]] = []
    for word in body:
        if lines and abs(word.y - lines[-1][0].y) < 9:
            lines[-1].append(word)
        else:
            lines.append([word])
    ordered = [sorted(line, key=lambda word: word.left) for line in lines]
    return [(line[0].text, line[-1].text) for line in ordered if len(line) > 1]


# --- rationales -----------------------------------------------------------------------------------------------------

Reply = tuple[str, str]
"""Rationale and answer."""
UNKNOWN = "unknown"


def number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def named(found: list[tuple[str, str]], name: str) -> str | None:
    """What belongs to the label that is most like a name."""
    best = max(found, key=lambda pair: fuzz.ratio(pair[0].lower(), name.lower()), default=None)
    return best[1] if best and fuzz.ratio(best[0].lower(), name.lower()) >= 75 else None


def of_words(found: list[tuple[str, str]], question: str) -> Reply:
    """Say what was read of what is asked for, then compute."""
    if question.startswith("What is the highest"):
        values = [value for _, text in found if (value := number(text)) is not None]
        if not values:
            return "There is no number.", UNKNOWN
        high, low = max(values), min(values)
        read = f"The values are {', '.join(map(str, values))}."
        return f"{read} The highest is {high}, the lowest is {low}. {high} - {low} = {high - low}.", str(high - low)
    if match := re.fullmatch(r"How much higher is (.+) than (.+)\?", question):
        return _computed(found, [match[1], match[2]], "-")
    if match := re.fullmatch(r"What do (.+) cost together\?", question):
        return _computed(found, re.split(", | and ", match[1]), "+")
    match = re.fullmatch(r"What (?:is the value of|stands beside) (.+)\?", question)
    value = named(found, match[1]) if match else None
    if match is None or value is None:
        return "I do not find what is asked for.", UNKNOWN
    return f"{match[1]} is {value}.", value


def _computed(found: list[tuple[str, str]], names: list[str], sign: str) -> Reply:
    """Read the number of each name, then add or subtract one after another."""
    numbers = [number(named(found, name) or "") for name in names]
    values = [value for value in numbers if value is not None]
    if len(values) < len(names):
        return "I do not find all numbers.", UNKNOWN
    said = [", ".join(f"{name} is {value}" for name, value in zip(names, values, strict=True)) + "."]
    result = values[0]
    for value in values[1:]:
        after = result + value if sign == "+" else result - value
        said.append(f"{result} {sign} {value} = {after}.")
        result = after
    return " ".join(said), str(result)


def of_things(seen: list[tuple[str, float]], question: str) -> Reply:
    """Name every thing row by row, then count."""
    kinds = [kind for kind, _ in seen]
    if len(kinds) == 1 and question.startswith("Is this"):
        return f"I see one thing. It is of the kind {kinds[0]}.", kinds[0]
    rows: dict[str, list[str]] = {}
    for kind, height in seen:
        rows.setdefault(ROWS[min(2, int(height * len(ROWS)))], []).append(kind)
    read = "I see " + "; ".join(f"{row} row: {', '.join(found)}" for row, found in rows.items()) + "."
    asked = [kind for plural, kind in _KIND_OF.items() if re.search(rf"\b{plural}\b", question)]
    asked.sort(key=lambda kind: question.index(PLURAL[kind]))
    if question.startswith("How many more") and len(asked) == 2:
        many, few = (kinds.count(kind) for kind in asked)
        counts = f"{PLURAL[asked[0]]}: {many}, {PLURAL[asked[1]]}: {few}."
        return f"{read} {counts} {many} - {few} = {many - few}.", str(many - few)
    if question.startswith("How many") and len(asked) == 1:
        return f"{read} {PLURAL[asked[0]]}: {kinds.count(asked[0])}.", str(kinds.count(asked[0]))
    return f"{read} I do not know how to answer this.", kinds[0] if question.startswith("Is this") else UNKNOWN


_KIND_OF = {plural: kind for kind, plural in PLURAL.items()}


class Teacher:
    """Chooses the tool by the question, and answers."""

    def __init__(self, reader: Callable[[Image.Image], list[Word]], eye: Callable[[Image.Image], Any]) -> None:
        self._reader, self._eye = reader, eye

    def __call__(self, image: Image.Image, question: str) -> Reply:
        if question.startswith("Is this") or question.endswith("in the picture?"):
            seen = self._eye(image)
            return of_things(seen, question) if seen else ("I see nothing.", UNKNOWN)
        return of_words(pairs(self._reader(image)), question)


def load(packages: Path) -> Teacher:
    """The teacher with its tools, from what setup.py has fetched."""
    import drawing
    import world
    from lite import Lite, libraries

    libraries()
    known = [thing for found in world.load("train", packages).things.values() for thing in found]
    cuts = []
    for thing in known:
        cut = drawing.cut_out(thing)
        ground = Image.new("RGB", cut.size, (255, 255, 255))
        ground.paste(cut, (0, 0), cut)
        cuts.append((thing, ground))
    return Teacher(Reader(), Eye(Lite().features, cuts))
