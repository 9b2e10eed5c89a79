"""Draw docs/pocket.png: images of the pocket world with questions and the students' replies, right and wrong ones.

    python benchmarks/project/pocket_images.py runs/pocket/run

Takes the first two right and the first two wrong replies of the distilled student that have steps. Shows charts,
receipts and notices only: they are drawn from free tables and plain words. The other images of that world are GPL-2
and never become part of this project.
"""

import argparse
import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from distill.artifacts.layout import PREDICTIONS
from distill.data import reader
from distill.data.images import image_files
from distill.recipe.loading import load

OUT = Path(__file__).resolve().parents[2] / "docs" / "pocket.png"
FREE = ("charts", "pages")
CARD, WITH_IMAGE, MARGIN = 300, 240, 14
TEXT, LINE = 14, 20
INK, RIGHT, WRONG, FRAME = (30, 30, 30), (20, 110, 50), (170, 40, 30), (200, 200, 200)
Line = tuple[str, tuple[int, int, int]]


def chosen(lines: list[dict[str, Any]]) -> list[str]:
    """Ids of the questions to show."""
    steps = [
        line
        for line in lines
        if line["arm"] == "distilled" and line["domain"] in FREE and line["difficulty"] in ("compute", "compare")
    ]
    right = [line["sample_id"] for line in steps if line["verdict"] == "correct"]
    wrong = [line["sample_id"] for line in steps if line["verdict"] != "correct"]
    return right[:2] + wrong[:2]


def said(replies: Mapping[str, Mapping[str, Any]]) -> Iterator[Line]:
    """Question and replies, cut into lines that fit a card."""
    distilled, control = replies["distilled"], replies["answers_only"]
    yield from ((text, INK) for text in textwrap.wrap(distilled["question"], 40))
    yield "", INK
    yield from ((text, INK) for text in textwrap.wrap(" ".join((distilled["reasoning"] or "").split()), 40))
    for name, reply in (("distilled", distilled), ("answers only", control)):
        good = reply["verdict"] == "correct"
        verdict = "right" if good else f"wrong, it is {reply['gold'][0]}"
        yield f"{name}: {(reply['answer'] or 'nothing')[:12]} ({verdict})", RIGHT if good else WRONG


def page(run: Path) -> Image.Image:
    """The cards side by side."""
    recipe = load(str(run / "ablate" / "arms" / "distilled" / "seed-0" / "recipe.toml"))
    by_id = {sample.id: sample for sample in reader.samples(recipe, recipe.eval.data)}
    lines = [
        {**json.loads(line), "arm": arm}
        for arm in ("distilled", "answers_only")
        for line in (run / "ablate" / "arms" / arm / "seed-0" / "eval" / PREDICTIONS).read_text("utf-8").splitlines()
    ]
    cards = []
    for sample_id in chosen(lines):
        image = image_files.load(by_id[sample_id].images[0], max_pixels=1_000_000).convert("RGB")
        cards.append((image, list(said({line["arm"]: line for line in lines if line["sample_id"] == sample_id}))))
    height = WITH_IMAGE + 3 * MARGIN + LINE * max(len(texts) for _, texts in cards)
    sheet = Image.new("RGB", (CARD * len(cards), height), (255, 255, 255))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(TEXT)
    for index, (image, texts) in enumerate(cards):
        left = CARD * index + (CARD - WITH_IMAGE) // 2
        sheet.paste(image.resize((WITH_IMAGE, WITH_IMAGE)), (left, MARGIN))
        pen.rectangle((left - 1, MARGIN - 1, left + WITH_IMAGE, MARGIN + WITH_IMAGE), outline=FRAME)
        for number, (text, ink) in enumerate(texts):
            pen.text((CARD * index + MARGIN, WITH_IMAGE + 2 * MARGIN + LINE * number), text, fill=ink, font=font)
    return sheet


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory of distill ablate of recipe pocket")
    page(parser.parse_args().run).save(OUT)
    print(OUT)
