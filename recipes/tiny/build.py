"""Build the tiny world from fixed seeds: its data, base checkpoints, four teachers and card.

    python recipes/tiny/build.py                 everything, about 40 minutes on two CPU cores
    python recipes/tiny/build.py data card       only these parts

Needs the development set-up (`make setup`). Results lie beside this file; `results.json` keeps what was measured.
"""

import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import world
from PIL import Image
from pretrain import build_decoder, build_tower
from questions import ask, caption, perceive, read_in_order
from teach import TEACHERS, build_teacher, greedy, ground

from student.models.siq_vl import load

HERE = Path(__file__).resolve().parent
SEED = 20261120
# Rows a domain.
CAPTIONS, INSTRUCT, QUESTIONS, VALIDATION, TEST, HELD_OUT = 800, 2000, 1000, 100, 300, 1200
# Rows of readings, of the domains in which a student has to pick what the question names.
READINGS = {"charts": 3000, "digits": 1500}
TEACHER_STEPS = {"structured": 900, "analyst": 800, "reader": 800, "generalist": 1000}


def build_data() -> dict[str, Any]:
    """Write data/*.parquet. No two files share a picture; digits of different splits share no original either."""
    rng = np.random.default_rng(SEED)
    seen: set[str] = set()
    counts = {}
    for name, rows_of, split, make in (
        ("test", dict.fromkeys(world.DOMAINS, TEST), "test", _several_steps),
        ("validation", dict.fromkeys(world.DOMAINS, VALIDATION), "validation", _several_steps),
        ("questions", dict.fromkeys(world.DOMAINS, QUESTIONS), "train", _several_steps),
        ("instruct", dict.fromkeys(world.DOMAINS, INSTRUCT), "train", _one_step_or_direct),
        ("captions", dict.fromkeys(world.DOMAINS, CAPTIONS), "train", _caption),
        ("readings", READINGS, "train", _reading),
        ("held_out", dict.fromkeys(world.DOMAINS, HELD_OUT), "test", _several_steps),
    ):
        rows = list(_rows(rng, rows_of, split, make, seen))
        write_parquet(HERE / "data" / f"{name}.parquet", rows)
        counts[name] = len(rows)
    return counts


Maker = Callable[[world.Picture, np.random.Generator], dict[str, Any]]


def _rows(
    rng: np.random.Generator, rows_of: Mapping[str, int], split: str, make: Maker, seen: set[str]
) -> Iterator[dict[str, Any]]:
    """Rows of every domain in turn, until each has as many as `rows_of` says."""
    for index in range(max(rows_of.values())):
        for domain in (name for name, rows in rows_of.items() if index < rows):
            picture = world.imagine(domain, rng, split)
            while picture.key in seen:
                picture = world.imagine(domain, rng, split)
            seen.add(picture.key)
            image = {"bytes": png(world.paint(picture, rng)), "path": None}
            yield {"image": image, "domain": domain, **make(picture, rng)}


def _several_steps(image: world.Picture, rng: np.random.Generator) -> dict[str, Any]:
    question = ask(image, rng)
    meta = {"kind": question.kind, "terms": question.terms, **image.content}
    return as_row(question.text, question.answer, "number", meta)


def _one_step_or_direct(image: world.Picture, rng: np.random.Generator) -> dict[str, Any]:
    """Two thirds perception, one third several-step questions answered at once, as VQA mixes do."""
    if rng.random() < 1 / 3:
        return _several_steps(image, rng)
    text, answer = perceive(image, rng)
    return as_row(text, answer, "number" if answer.isdigit() else "text", image.content)


def _caption(image: world.Picture, _: np.random.Generator) -> dict[str, Any]:
    return as_row("Describe the image.", caption(image), "text", image.content)


def _reading(image: world.Picture, rng: np.random.Generator) -> dict[str, Any]:
    question, answer = read_in_order(image, rng)
    return as_row(question, answer, "text", image.content)


def as_row(question: str, answer: str, answer_type: str, meta: dict[str, Any]) -> dict[str, Any]:
    return {"question": question, "answer": answer, "answer_type": answer_type, "meta": json.dumps(meta)}


def png(image: Image.Image) -> bytes:
    """A palette PNG of well under a kilobyte; the pictures have few colours."""
    buffer = io.BytesIO()
    image.quantize(64, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    """A file that datasets opens with its images decoded; every column but the image is text."""
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    texts = (
        "question",
        "answer",
        "answer_type",
        "domain",
        "meta",
        *(["difficulty"] if "difficulty" in rows[0] else []),
    )
    features = {"image": {"_type": "Image"}, **{name: {"dtype": "string", "_type": "Value"} for name in texts}}
    schema = pa.schema(
        [("image", image), *((name, pa.string()) for name in texts)],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def build_teachers(*names: str) -> dict[str, Any]:
    """Train the named teachers (default: all) and measure them on the whole test set."""
    measured = {}
    for number, (name, domains) in enumerate(TEACHERS.items()):
        if names and name not in names:
            continue
        started = time.monotonic()
        folder = HERE / "teachers" / name
        steps = TEACHER_STEPS[name]
        result = build_teacher(folder, HERE / "tower", HERE / "decoder", domains, seed=SEED + number, steps=steps)
        minutes = (time.monotonic() - started) / 60
        measured[name] = {**result, "steps": steps, "minutes": minutes, "accuracy": accuracy(folder)}
        print(name, measured[name], flush=True)
    return measured


def accuracy(folder: Path, limit: int | None = None) -> dict[str, float]:
    """Share of exact greedy answers by domain on the test questions, weights loaded in float32."""
    model, processor = load(str(folder), dtype="float32")
    rows = pq.read_table(HERE / "data" / "test.parquet").to_pylist()[:limit]
    images = [np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")) for row in rows]
    texts = greedy(model, processor, images, [row["question"] for row in rows])
    shares = {}
    for domain in world.DOMAINS:
        right = [
            text.rpartition("</think>")[2].strip() == row["answer"]
            for text, row in zip(texts, rows, strict=True)
            if row["domain"] == domain
        ]
        shares[domain] = round(float(np.mean(right)), 4) if right else 0.0
    return shares


def write_card() -> None:
    """README.md from what was measured."""
    results = json.loads((HERE / "results.json").read_text())
    sizes = {
        name: sum(file.stat().st_size for file in (HERE / name).rglob("*") if file.is_file())
        for name in ("data", "tower", "decoder", *(f"teachers/{teacher}" for teacher in TEACHERS))
    }
    teachers = ""
    for name, domains in TEACHERS.items():
        shares = results["teachers"][name]["accuracy"]
        percents = " | ".join(f"{100 * shares[domain]:.1f}" for domain in world.DOMAINS)
        teachers += f"| {name} | {', '.join(domains)} | {percents} |\n"
    parts = "\n".join(f"| {name} | {size / 1e6:.2f} | {_minutes(results, name)} |" for name, size in sizes.items())
    seen = ", ".join(f"{domain} {100 * share:.1f} %" for domain, share in results["tower"]["named_rightly"].items())
    counts = ", ".join(f"{name} {count:,}" for name, count in results["data"]["rows"].items())
    text = (HERE / "card.md").read_text()
    for key, value in {
        "TEACHERS": teachers.rstrip(),
        "PARTS": parts,
        "SEEN": seen,
        "COUNTS": counts,
        "SEED": str(SEED),
    }.items():
        text = text.replace(f"@{key}@", value)
    (HERE / "README.md").write_text(text)


def _minutes(results: dict[str, Any], name: str) -> str:
    if name.startswith("teachers/"):
        return f"{results['teachers'][name.partition('/')[2]]['minutes']:.1f}"
    parts = ("decoder", "ground", "ground again") if name == "decoder" else (name,)
    return f"{sum(results[part]['minutes'] for part in parts):.1f}"


def main(parts: list[str]) -> None:
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "data": lambda: {"rows": build_data()},
        "tower": lambda: {"named_rightly": build_tower(HERE / "tower", seed=SEED)},
        "decoder": lambda: build_decoder(HERE / "decoder", seed=SEED),
        # A second projector: what the first taught the decoder must not depend on it.
        "ground": lambda: ground(HERE / "tower", HERE / "decoder", seed=SEED),
        "ground again": lambda: ground(HERE / "tower", HERE / "decoder", seed=SEED + 1),
        "teachers": build_teachers,
    }
    file = HERE / "results.json"
    for part in parts or [*steps, "card"]:
        if part == "card":
            write_card()
            continue
        name, _, choice = part.partition("/")  # teachers/reader builds one teacher
        started = time.monotonic()
        measured = build_teachers(choice) if choice else steps[name]()
        # Read again: parts may be built side by side.
        results = json.loads(file.read_text()) if file.exists() else {}
        if name == "teachers":
            results.setdefault(name, {}).update(measured)
        else:
            results[name] = {**measured, "minutes": (time.monotonic() - started) / 60}
        file.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
        print(name, results[name], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
