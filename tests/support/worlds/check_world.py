"""A whole recipe with small real files on which a check finds nothing, to plant faults into."""

import json
from pathlib import Path
from typing import Any

import tomli_w
from students import tiny_models
from worlds import student_worlds as worlds

QUESTIONS, CAPTIONS, TESTS = 40, 12, 12


def build(folder: Path) -> Path:
    """Checkpoints, images, sources and `recipe.toml` below `folder`, which is given back."""
    worlds.parts(folder)
    pixels = json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    (folder / "vision" / "preprocessor_config.json").write_text(pixels)
    tiny_models.build(folder / "teacher", layers=1)
    for number in range(QUESTIONS + CAPTIONS + TESTS):
        worlds.make_image(folder / "images" / f"{number}.png", number)
    write(folder / "questions.jsonl", [question(number) for number in range(QUESTIONS)])
    first = QUESTIONS
    captions = [
        {"image": f"{first + number}.png", "question": "Describe it.", "answer": f"Four squares, number {number}."}
        for number in range(CAPTIONS)
    ]
    write(folder / "captions.jsonl", captions)
    first += CAPTIONS
    write(folder / "test.jsonl", [question(first + number) for number in range(TESTS)])
    save(folder, values())
    return folder


def question(number: int) -> dict[str, Any]:
    return {
        "image": f"{number}.png",
        "question": f"Picture {number}: how many red squares?",
        "answer": str(number % 5),
        "domain": ("scenes", "charts")[number % 2],
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def values() -> dict[str, Any]:
    """The recipe."""
    lora = {"rank": 4, "alpha": 8}
    return {
        "data": {
            name: {"source": f"{name}.jsonl", "images_root": "images"} for name in ("questions", "captions", "test")
        },
        "teachers": [
            {
                "name": "structured",
                "backend": "embedded",
                "model": "teacher",
                "samples": 2,
                "sampling": {"max_tokens": 128},
            }
        ],
        "filter": {
            "signals": ["answer", "format", "repetition", "length", "duplicates", "agreement", "contamination"],
            "rules": [{"name": "wrong_answer", "drop": "answer_verdict = 'wrong'"}],
            "select": {"per_question": 2},
            "card": {
                "license": "cc-by-4.0",
                "sources": {"questions": "cc-by-4.0"},
                "teachers": {"structured": "apache-2.0"},
            },
        },
        "student": {"vision": "vision", "language": "language", "pixel_shuffle": 2, "dtype": "float32"},
        "stages": [
            {"name": "align", "data": "captions", "train": ["projector"], **_SMALL},
            {"name": "instruct", "data": "questions", "train": ["projector", "language"], "lora": lora, **_SMALL},
            {"name": "reason", "data": "traces", "train": ["language"], "lora": lora, **_SMALL},
        ],
        "eval": {"data": "test", "max_new_tokens": 64},
    }


_SMALL = {"max_steps": 20, "batch_size": 4, "micro_batch_tokens": 512}


def save(folder: Path, recipe: dict[str, Any]) -> Path:
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(recipe), encoding="utf-8")
    return path
