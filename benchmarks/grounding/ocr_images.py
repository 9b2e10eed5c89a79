"""Pictures with text, and what a rationale says of them, for `benchmarks/grounding/ocr.py`: a set kept apart.

Written before the signal `ocr` was built, and not changed after it was first measured: other fonts, layouts, words
and sentences than those of the pocket world. A faulty rationale has one misreading, which is carried through its
arithmetic as a reader would carry it. The fonts are DejaVu's where the system has them, else Pillow's own.
"""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as count_up
from typing import Any

from ocr_words import CITIES, FACES, FIELDS, FONTS, GOODS, HUES, INKS, PAPERS, PEOPLE, SIGNS, STORES, STREETS
from PIL import Image, ImageDraw, ImageFilter, ImageFont


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    layout: str
    png: bytes
    rows: dict[str, str]
    """Labels and the values beside them, as they stand in the image."""
    before: str = ""
    after: str = ""
    """What stands around every value: a currency, a unit."""
    lines: tuple[str, ...] = ()
    """Texts that a sentence may quote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A rationale about an image."""

    picture: Picture
    question: str
    text: str
    fault: str
    """Empty where it is right; else number, other_row or name."""


# --- images -------------------------------------------------------------------------------------------------------


class Sheet:
    """An image that is being drawn."""

    def __init__(self, rng: random.Random, width: int, height: int) -> None:
        self.rng, self.image = rng, Image.new("RGB", (width, height), rng.choice(PAPERS))
        self.pen, self.ink, self.face = ImageDraw.Draw(self.image), rng.choice(INKS), rng.choice(FACES)

    def font(self, size: int) -> Any:
        path = FONTS / f"{self.face}.ttf"
        return ImageFont.truetype(str(path), size) if path.exists() else ImageFont.load_default(size)

    def write(self, x: float, y: float, text: str, size: int, anchor: str = "lm", fill: Any = None) -> None:
        self.pen.text((x, y), text, font=self.font(size), anchor=anchor, fill=fill or self.ink)

    def png(self) -> bytes:
        """The encoded image, one in two after what cameras and web pages do to one."""
        image, rng = self.image, self.rng
        if rng.random() < 0.25:
            image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.7)))
        if rng.random() < 0.2:
            image = image.rotate(rng.uniform(-1.5, 1.5), Image.Resampling.BICUBIC, fillcolor=image.getpixel((0, 0)))
        buffer = io.BytesIO()
        if rng.random() < 0.5:
            image.save(buffer, "JPEG", quality=rng.randint(45, 90))
        else:
            image.save(buffer, "PNG")
        return buffer.getvalue()


def number_text(rng: random.Random, kind: str) -> str:
    if kind == "decimal":
        return f"{rng.uniform(1, 99):.1f}"
    if kind == "money":
        return f"{rng.uniform(0.6, 48):.2f}"
    if kind == "thousands":
        return f"{rng.randint(1_000, 98_000):,}"
    return str(rng.randint(11, 989) if kind == "hundreds" else rng.randint(2, 99))


def distinct(rng: random.Random, count: int, kind: str) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        text = number_text(rng, kind)
        if text not in found:
            found.append(text)
    return found


def columns(rng: random.Random) -> Picture:
    """Upright bars, the values above them, the names below."""
    names = rng.sample(CITIES, rng.randint(3, 6))
    rows = dict(
        zip(names, distinct(rng, len(names), rng.choice(["hundreds", "decimal", "small", "thousands"])), strict=True)
    )
    sheet = Sheet(rng, 90 * len(names) + 40, rng.randint(260, 360))
    size, base = rng.randint(13, 18), sheet.image.height - 40
    title = rng.choice(["Visitors per day", "Rainfall in May", "New homes", "Parcels sent"])
    sheet.write(sheet.image.width / 2, 18, title, size + 2, "mm")
    top = max(float(value.replace(",", "")) for value in rows.values())
    for at, (name, value) in enumerate(rows.items()):
        x, height = 60 + 90 * at, (base - 80) * float(value.replace(",", "")) / top
        sheet.pen.rectangle((x - 22, base - height, x + 22, base), fill=HUES[at % len(HUES)])
        sheet.write(x, base - height - 12, value, size, "mm")
        sheet.write(x, base + 16, name, size, "mm")
    return Picture(layout="columns", png=sheet.png(), rows=rows, lines=(title,))


def grid(rng: random.Random) -> Picture:
    """A table with lines and two columns of values; a question is about the first of them."""
    names = rng.sample(PEOPLE, rng.randint(3, 5))
    heads = rng.sample(["Points", "Matches", "Goals", "Hours", "Sales"], 2)
    kind = rng.choice(["small", "hundreds"])
    first, second = distinct(rng, len(names), kind), distinct(rng, len(names), kind)
    sheet = Sheet(rng, 470, 44 * (len(names) + 1) + 20)
    size = rng.randint(14, 17)
    for line in range(len(names) + 2):
        sheet.pen.line((10, 10 + 44 * line, 460, 10 + 44 * line), fill=(130, 130, 130))
    for x in (10, 230, 345, 460):
        sheet.pen.line((x, 10, x, 10 + 44 * (len(names) + 1)), fill=(130, 130, 130))
    for x, head in zip((230, 345), heads, strict=True):
        sheet.write(x + 57, 32, head, size, "mm")
    for at, name in enumerate(names):
        y = 76 + 44 * at
        sheet.write(20, y, name, size)
        sheet.write(287, y, first[at], size, "mm")
        sheet.write(402, y, second[at], size, "mm")
    return Picture(layout="grid", png=sheet.png(), rows=dict(zip(names, first, strict=True)), lines=(heads[0],))


def receipt(rng: random.Random) -> Picture:
    """A till receipt with prices in a currency, a date and a total."""
    names = rng.sample(GOODS, rng.randint(3, 6))
    sign = rng.choice(["$", "", "EUR ", "£"])
    rows = dict(zip(names, distinct(rng, len(names), "money"), strict=True))
    store, street = rng.choice(STORES), rng.choice(STREETS)
    sheet = Sheet(rng, 340, 30 * len(names) + 170)
    size = rng.randint(13, 17)
    sheet.write(170, 20, store, size + 4, "mm")
    sheet.write(170, 44, f"{rng.randint(2, 99)} {street}", size, "mm")
    sheet.write(
        170,
        68,
        f"{rng.randint(1, 28):02}/0{rng.randint(1, 9)}/2025 {rng.randint(9, 20)}:{rng.randint(10, 59)}",
        size,
        "mm",
    )
    for at, (name, value) in enumerate(rows.items()):
        sheet.write(16, 100 + 30 * at, name, size)
        sheet.write(324, 100 + 30 * at, f"{sign}{value}", size, "rm")
    total = sum(float(value) for value in rows.values())
    sheet.write(16, 112 + 30 * len(names), "TOTAL", size + 1)
    sheet.write(324, 112 + 30 * len(names), f"{sign}{total:.2f}", size + 1, "rm")
    return Picture(layout="receipt", png=sheet.png(), rows=rows, before=sign, lines=(store, street))


def legend(rng: random.Random) -> Picture:
    """A ring with a legend of shares."""
    names = rng.sample(FIELDS, rng.randint(3, 5))
    rows = dict(zip(names, distinct(rng, len(names), rng.choice(["small", "decimal"])), strict=True))
    sheet = Sheet(rng, 440, 250)
    size, start = rng.randint(13, 18), 0.0
    total = sum(map(float, rows.values()))
    title = rng.choice(["Household budget", "Where the money goes", "Spending by field"])
    sheet.write(220, 18, title, size + 3, "mm")
    for at, (name, value) in enumerate(rows.items()):
        sweep = 360 * float(value) / total
        sheet.pen.pieslice((20, 50, 200, 230), start, start + sweep, fill=HUES[at])
        start += sweep
        sheet.pen.rectangle((230, 62 + 34 * at, 246, 78 + 34 * at), fill=HUES[at])
        sheet.write(256, 70 + 34 * at, f"{name} {value}%", size)
    return Picture(layout="legend", png=sheet.png(), rows=rows, after="%", lines=(title,))


def board(rng: random.Random) -> Picture:
    """A departure board: light letters on dark ground."""
    names = rng.sample(CITIES, rng.randint(3, 5))
    rows = dict(zip(names, distinct(rng, len(names), "small"), strict=True))
    sheet = Sheet(rng, 420, 40 * len(names) + 70)
    sheet.pen.rectangle((0, 0, *sheet.image.size), fill=(25, 30, 45))
    size, light = rng.randint(15, 19), rng.choice([(240, 240, 240), (250, 210, 80)])
    sheet.write(20, 26, "Departures", size + 4, fill=light)
    sheet.write(400, 26, "Platform", size, "rm", fill=light)
    for at, (name, value) in enumerate(rows.items()):
        y = 70 + 40 * at
        sheet.write(20, y, f"{rng.randint(6, 22):02}:{rng.randint(10, 59)}", size, fill=light)
        sheet.write(130, y, name, size, fill=light)
        sheet.write(380, y, value, size, "rm", fill=light)
    return Picture(layout="board", png=sheet.png(), rows=rows, lines=("Departures",))


def sign(rng: random.Random) -> Picture:
    """A sign in a street with a few lines."""
    word, street, far = rng.choice(SIGNS), rng.choice(STREETS), number_text(rng, rng.choice(["small", "hundreds"]))
    sheet = Sheet(rng, rng.randint(320, 420), rng.randint(220, 300))
    for _ in range(60):
        x, y = rng.randrange(sheet.image.width), rng.randrange(sheet.image.height)
        sheet.pen.ellipse((x, y, x + 50, y + 30), fill=tuple(rng.randint(90, 190) for _ in range(3)))
    middle, hue = sheet.image.width / 2, rng.choice([(20, 90, 60), (30, 50, 120), (120, 30, 30), (60, 60, 60)])
    sheet.pen.rectangle((30, 40, sheet.image.width - 30, 190), fill=hue)
    light, size = (245, 245, 245), rng.randint(20, 26)
    sheet.write(middle, 74, word.upper() if rng.random() < 0.5 else word, size, "mm", fill=light)
    sheet.write(middle, 116, street, size - 3, "mm", fill=light)
    sheet.write(middle, 158, f"{far} m", size, "mm", fill=light)
    return Picture(layout="sign", png=sheet.png(), rows={word: far}, after=" m", lines=(word, street))


def curve(rng: random.Random) -> Picture:
    """A line without printed values: what it reaches can be read by eye only."""
    names = rng.sample(CITIES, 4)
    rows = {name: str(rng.randint(4, 96)) for name in names}
    sheet = Sheet(rng, 440, 300)
    for tick in range(0, 101, 20):
        sheet.write(34, 250 - 2 * tick, str(tick), 13, "rm")
        sheet.pen.line((40, 250 - 2 * tick, 430, 250 - 2 * tick), fill=(200, 200, 200))
    places = [(90 + 95 * at, 250 - 2 * int(value)) for at, value in enumerate(rows.values())]
    sheet.pen.line(places, fill=HUES[0], width=3)
    for (x, _), name in zip(places, names, strict=True):
        sheet.write(x, 270, name, 14, "mm")
    return Picture(layout="curve", png=sheet.png(), rows=rows)


def shapes(rng: random.Random) -> Picture:
    """Discs, and no text."""
    sheet = Sheet(rng, 240, 240)
    count = rng.randint(2, 8)
    for at in range(count):
        x, y = 40 + 70 * (at % 3), 40 + 70 * (at // 3)
        sheet.pen.ellipse((x - 22, y - 22, x + 22, y + 22), fill=rng.choice(HUES))
    return Picture(layout="shapes", png=sheet.png(), rows={"discs": str(count)})


PRINTED: tuple[Callable[[random.Random], Picture], ...] = (columns, grid, receipt, legend, board, sign)
UNPRINTED: tuple[Callable[[random.Random], Picture], ...] = (curve, shapes)


# --- rationales -----------------------------------------------------------------------------------------------------


class Reader:
    """What a rationale says of an image: its readings, one of them misread."""

    def __init__(self, image: Picture, rng: random.Random, asked: list[str], fault: str) -> None:
        self.picture, self.rng = image, rng
        self.read, self.lines = dict(image.rows), list(image.lines)
        rng = random.Random(f"{rng.random()} {fault}")  # the fault changes nothing else of the text
        wrong = rng.choice(asked)
        if fault == "number":
            self.read[wrong] = misread(image.rows[wrong], set(image.rows.values()), rng)
        elif fault == "other_row":
            self.read[wrong] = rng.choice([value for name, value in image.rows.items() if name != wrong])
        elif fault == "name":
            pool = next(
                pool for pool in (SIGNS, STREETS, STORES, CITIES, GOODS, PEOPLE, FIELDS) if self.lines[0] in pool
            )
            self.lines[0] = rng.choice([word for word in pool if word not in self.lines])

    def v(self, name: str) -> str:
        """A value as it is written, with its currency or unit where the writer gives one."""
        return f"{self.picture.before}{self.read[name]}{self.picture.after}"

    def n(self, name: str) -> float:
        return float(self.read[name].replace(",", ""))

    def result(self, value: float) -> str:
        places = max((len(text.partition(".")[2]) for text in self.read.values()), default=0)
        grouped = any("," in text for text in self.read.values())
        text = f"{value:,.{places}f}" if grouped else f"{value:.{places}f}"
        return f"{self.picture.before}{text}{self.picture.after}"


def misread(text: str, taken: set[str], rng: random.Random) -> str:
    """Another number as an eye might take it: one digit changed, two swapped, one lost."""
    while True:
        digits = [at for at, letter in enumerate(text) if letter.isdigit()]
        at, kind, letters = rng.choice(digits), rng.random(), list(text)
        if kind < 0.7:
            letters[at] = rng.choice("0123456789")
        elif kind < 0.85 and len(digits) > 1:
            one, two = rng.sample(digits, 2)
            letters[one], letters[two] = letters[two], letters[one]
        elif len(digits) > 2 and "," not in text:
            del letters[at]
        wrong = "".join(letters)
        if wrong not in taken and wrong[0] not in "0.," and float(wrong.replace(",", "")) > 0:
            return wrong


Told = tuple[str, str]
"""Question and rationale."""


def of_one(r: Reader, asked: list[str]) -> Told:
    (a,) = asked
    question = r.rng.choice([f"What is the figure for {a}?", f"How much does it say for {a}?"])
    return question, r.rng.choice([
        f"Looking for {a} in the picture, I find {r.v(a)} next to it.",
        f"The entry {a} comes with the number {r.v(a)}. That is what the question wants.",
        f"1. Locate {a}.\n2. The number that goes with it is {r.v(a)}.\n3. Nothing has to be computed.",
        f"{a}: {r.v(a)}",
        f"It is printed right there: {a} has {r.v(a)}, so the answer must be {r.v(a)}.",
    ])  # fmt: skip


def of_two(r: Reader, asked: list[str]) -> Told:
    a, b = asked
    a, b = (a, b) if r.n(a) >= r.n(b) else (b, a)
    gap = r.result(r.n(a) - r.n(b))
    question = r.rng.choice([f"By how much do {a} and {b} differ?", f"What separates {a} from {b}?"])
    return question, r.rng.choice([
        f"For {a} I read {r.v(a)}; for {b} I read {r.v(b)}. The gap between them is {gap}.",
        f"{a} stands at {r.v(a)} and {b} at {r.v(b)}. Subtracting the second from the first leaves {gap}.",
        f"- {a}: {r.v(a)}\n- {b}: {r.v(b)}\n- {r.v(a)} - {r.v(b)} = {gap}",
        f"The larger is {a} with {r.v(a)}. {b} shows only {r.v(b)}. Therefore they are {gap} apart.",
        f"{r.v(a)} ({a}) minus {r.v(b)} ({b}) gives {gap}.",
    ])  # fmt: skip


def of_some(r: Reader, asked: list[str]) -> Told:
    total = r.result(sum(map(r.n, asked)))
    listed = ", ".join(f"{name} {r.v(name)}" for name in asked)
    question = f"What do {', '.join(asked[:-1])} and {asked[-1]} come to together?"
    return question, r.rng.choice([
        f"The picture gives {listed}. Added up: {' + '.join(map(r.v, asked))} = {total}.",
        f"I add the entries one by one: {listed}. In total that is {total}.",
        "\n".join([*(f"* {name} -> {r.v(name)}" for name in asked), f"The sum is {total}."]),
        f"{' + '.join(f'{r.v(name)} ({name})' for name in asked)} = {total}, which is the sum.",
    ])  # fmt: skip


def of_all(r: Reader, asked: list[str]) -> Told:
    names = list(r.picture.rows)
    ranked = sorted(names, key=r.n)
    low, high = ranked[0], ranked[-1]
    question = "How far apart are the largest and the smallest number?"
    gap = r.result(r.n(high) - r.n(low))
    return question, r.rng.choice([
        f"All numbers: {', '.join(map(r.v, names))}. "
        f"The largest is {r.v(high)} and the smallest {r.v(low)}, so {gap}.",
        f"{high} is on top with {r.v(high)}, {low} comes last with {r.v(low)}. "
        f"The range is {r.v(high)} - {r.v(low)} = {gap}.",
        f"Going through the list: {'; '.join(f'{name} has {r.v(name)}' for name in names)}. "
        f"The range comes to {gap}.",
    ])  # fmt: skip


def of_text(r: Reader, asked: list[str]) -> Told:
    line, more = r.lines[0], r.lines[-1]
    name = next(iter(r.picture.rows))
    return "What does the picture say?", r.rng.choice([
        f'The words "{line}" can be read in the picture.',
        f'At the top it says "{line}". The number {r.v(name)} stands in it too.',
        f"The heading reads '{line}', which is what is asked for.",
        f'I can make out the text "{line}" and also "{more}".',
    ])  # fmt: skip


def said(image: Picture, fault: str, seed: str) -> Said:
    """One rationale about an image; the same seed tells the same thing without and with its fault."""
    rng = random.Random(seed)
    kinds = [of_one, of_two, of_some, of_all] if len(image.rows) > 2 else [of_one]
    pooled = any(image.lines[0] in pool for pool in (SIGNS, STORES)) if image.lines else False
    if fault == "name" or (not fault and pooled and rng.random() < 0.3):
        kinds = [of_text]
    kind = rng.choice(kinds)
    counts = {of_one: 1, of_two: 2, of_some: min(3, len(image.rows)), of_all: len(image.rows), of_text: 1}
    asked = rng.sample(list(image.rows), counts[kind])
    question, text = kind(Reader(image, rng, asked, fault), asked)
    return Said(picture=image, question=question, text=text, fault=fault)


def make(count: int, seed: int) -> list[tuple[Picture, list[Said]]]:
    """So many images, a sixth of them without printed values; each with a right rationale, and with a faulty one
    where its text could have been misread."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        if number % 6 == 5:
            image = UNPRINTED[number // 6 % 2](rng)
            made.append((image, [said(image, "", f"{seed} {number}")]))
            continue
        image = rng.choice(PRINTED)(rng)
        faults = ["number", "number", "number"]
        if len(image.rows) > 2:
            faults.append("other_row")
        if image.layout in ("sign", "receipt"):
            faults.append("name")
        fault = rng.choice(faults)
        pairs = (
            (said(image, "", own), said(image, fault, own))
            for own in (f"{seed} {number} {again}" for again in count_up())
        )
        made.append((image, list(next(pair for pair in pairs if pair[0].text != pair[1].text))))
    return made
