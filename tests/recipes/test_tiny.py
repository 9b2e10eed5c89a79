"""The tiny world keeps its promises: disjoint splits, gold answers that follow from the content, able teachers."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from listed.recipe_scripts import TINY, scripts_loaded
from PIL import Image

from distill.data import reader
from distill.recipe import loading

FILES = ("questions", "instruct", "captions", "readings", "validation", "test", "held_out")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    with scripts_loaded(TINY, "world", "questions", "pretrain", "teach", "build") as modules:
        yield modules


def rows(name: str) -> list[dict[str, Any]]:
    return [
        {**row, "meta": json.loads(row["meta"])}
        for row in pq.read_table(TINY / "data" / f"{name}.parquet").to_pylist()
    ]


def content(row: dict[str, Any]) -> str:
    shown = {key: value for key, value in row["meta"].items() if key not in ("kind", "terms")}
    return json.dumps([row["domain"], shown], sort_keys=True)


def test_no_two_rows_share_a_image() -> None:
    seen = [content(row) for name in FILES for row in rows(name)]
    assert len(seen) == len(set(seen))


def test_digits_of_different_splits_come_from_different_originals() -> None:
    originals = {
        name: {index for row in rows(name) if row["domain"] == "digits" for index in row["meta"]["originals"]}
        for name in FILES
    }
    train = originals["questions"] | originals["instruct"] | originals["captions"] | originals["readings"]
    assert not train & originals["test"]
    assert not train & originals["validation"]
    assert not originals["validation"] & originals["test"]
    assert not (train | originals["validation"]) & originals["held_out"]


def recomputed(row: dict[str, Any]) -> int:
    """The answer from the picture's content alone, written apart from the code that made it."""
    meta = row["meta"]
    terms, kind = meta["terms"], meta["kind"]
    if row["domain"] == "scenes":
        first, second = (sum(term in cell.split(" ") for cell in meta["cells"]) for term in terms)
        return first + second if kind == "total" else first - second
    if row["domain"] == "charts":
        values = list(meta["bars"].values())
        chosen = [meta["bars"][term] for term in terms]
        return {
            "sum": sum(chosen),
            "difference": chosen[0] - chosen[1] if chosen else 0,
            "range": max(values) - min(values),
            "total": sum(values),
        }[kind]
    digits = meta["digits"]
    row_of = {"top": digits[:3], "bottom": digits[3:]}
    if kind == "row":
        return sum(row_of[terms[0]])
    return max(digits) - min(digits) if kind == "range" else max(digits[:3]) + max(digits[3:])


@pytest.mark.parametrize("name", ["questions", "validation", "test", "held_out"])
def test_gold_answers_follow_from_the_content(name: str) -> None:
    for row in rows(name):
        assert row["answer"] == str(recomputed(row)), row
        assert row["answer_type"] == "number"


def test_readings_give_what_the_question_names_in_its_order() -> None:
    for row in rows("readings"):
        if row["domain"] == "charts":
            order = row["question"].removeprefix("Read the bars ").removesuffix(".").split(", ")
            assert sorted(order) == sorted(row["meta"]["bars"])
            assert row["answer"] == ", ".join(f"{colour} {row['meta']['bars'][colour]}" for colour in order)
        else:
            digits = [str(digit) for digit in row["meta"]["digits"]]
            top, bottom = " ".join(digits[:3]), " ".join(digits[3:])
            first = row["question"].split()[2]
            assert row["answer"] == (f"{top} / {bottom}" if first == "top" else f"{bottom} / {top}")
    orders = {row["question"] for row in rows("readings")}
    assert len(orders) > 100


def test_guessing_the_commonest_answer_is_weak() -> None:
    answers = [row["answer"] for row in rows("test")]
    assert max(answers.count(answer) for answer in set(answers)) < 0.2 * len(answers)


def test_the_toolkit_reads_every_file_of_the_recipe_without_a_bad_row() -> None:
    tiny = loading.load("tiny")
    domains = {"scenes", "charts", "digits"}
    for name, count, shown in (
        ("questions", 3000, domains),
        ("captions", 2400, domains),
        ("instruct", 6000, domains),
        ("readings", 4500, {"charts", "digits"}),
        ("test", 900, domains),
    ):
        read = list(reader.read(tiny, name))
        assert len([row for row in read if hasattr(row, "question")]) == count, name
        assert {row.domain for row in read} == shown
    held_out = list(reader.samples(loading.load("tiny-studies"), "test"))
    assert Counter(sample.domain for sample in held_out) == dict.fromkeys(domains, 1200)


def test_checkpoints_stay_within_thirteen_megabytes_and_hold_no_pickle() -> None:
    files = [file for part in ("tower", "decoder", "teachers") for file in (TINY / part).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 13_000_000
    assert {file.suffix for file in files} <= {".safetensors", ".json", ".jinja", ".txt"}


def test_drawing_the_world_is_deterministic(scripts: dict[str, ModuleType]) -> None:
    world = scripts["world"]

    def draw() -> tuple[str, bytes]:
        rng = np.random.default_rng(7)
        images = [world.imagine(domain, rng) for domain in world.DOMAINS]
        return "".join(image.key for image in images), b"".join(world.paint(image, rng).tobytes() for image in images)

    assert draw() == draw()


def test_the_rationale_of_every_style_ends_in_the_gold_answer(scripts: dict[str, ModuleType]) -> None:
    world, questions = scripts["world"], scripts["questions"]
    rng = np.random.default_rng(3)
    for domain in world.DOMAINS:
        for _ in range(50):
            image = world.imagine(domain, rng)
            question = questions.ask(image, rng)
            reasoning = questions.rationale(image, question, rng)
            assert reasoning.rstrip(".").endswith(f" {question.answer}")


@pytest.mark.parametrize(
    ("teacher", "domain"), [("structured", "scenes"), ("analyst", "charts"), ("reader", "digits")]
)
def test_a_teacher_is_right_on_ninety_per_cent_of_its_own_domain_and_weaker_elsewhere(
    scripts: dict[str, ModuleType], teacher: str, domain: str
) -> None:
    shares = scripts["build"].accuracy(TINY / "teachers" / teacher, limit=300)
    assert shares[domain] >= 0.9, shares
    assert all(share < shares[domain] - 0.3 for other, share in shares.items() if other != domain), shares


def test_the_card_states_the_measured_accuracies() -> None:
    card = (TINY / "README.md").read_text()
    measured = json.loads((TINY / "results.json").read_text())["teachers"]
    for teacher in ("structured", "analyst", "reader"):
        for share in measured[teacher]["accuracy"].values():
            assert f"{100 * share:.1f}" in card


def test_images_are_96_pixels_square() -> None:
    for row in rows("validation"):
        assert Image.open(io.BytesIO(row["image"]["bytes"])).size == (96, 96)
