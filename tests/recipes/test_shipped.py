"""The shipped recipes against the data sets they name: rows in each one's published layout, read without network."""

import io
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from distill.commands import stages
from distill.data import reader
from distill.grounding.charts import chart_table
from distill.recipe import loading
from distill.recipe.sections.data import DataSource
from distill.types import Sample
from filters.decisions import rules

RECIPES = {name: loading.load(name) for name in loading.shipped()}
RATINGS = ("relevance", "image_correspondence", "formatting", "visual_dependency")


def make_image(number: int = 0) -> dict[str, Any]:
    """An image cell as the hub stores it."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 0, 0)).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def finevision(subset: str) -> dict[str, Any]:
    return {
        "images": [make_image()],
        "texts": [{"user": "What is shown?\nAnswer briefly.", "assistant": "A cat."}],
        "source": subset,
        **{f"{name}_ratings": [5] for name in RATINGS},
        **{f"{name}_min": 5 for name in RATINGS},
    }


HUB: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "HuggingFaceM4/ChartQA": (
        {"image": make_image(), "query": "How many food items?", "label": ["14"], "human_or_machine": 0},
        "How many food items?",
        ("14",),
    ),
    "lmms-lab/textvqa": (
        {
            "image_id": "003a8ae2ef43b901",
            "question_id": 34602,
            "question": "what is the brand of this camera?",
            "question_tokens": ["what", "is", "the", "brand", "of", "this", "camera"],
            "image": make_image(),
            "image_width": 1024,
            "image_height": 664,
            "answers": ["nous les gosses", "dakota", "clos culombu", "dakota digital", *["dakota"] * 6],
            "image_classes": ["Cassette deck"],
            "set_name": "val",
        },
        "what is the brand of this camera?",
        ("dakota", "nous les gosses", "clos culombu", "dakota digital"),
    ),
    "HuggingFaceM4/A-OKVQA": (
        {
            "image": make_image(),
            "question_id": "22MexNkBPpdZGX6sxbxVBH",
            "question": "What is the man by the bags awaiting?",
            "choices": ["skateboarder", "train", "delivery", "cab"],
            "correct_choice_idx": 3,
            "direct_answers": "['ride', 'bus', 'cab']",
            "difficult_direct_answer": False,
            "rationales": ["A train would not be on the street."],
        },
        "What is the man by the bags awaiting?\nA. skateboarder\nB. train\nC. delivery\nD. cab",
        ("D",),
    ),
    "HuggingFaceM4/A-OKVQA: direct_answers": (
        {
            "image": make_image(),
            "question_id": "22MexNkBPpdZGX6sxbxVBH",
            "question": "What is the man by the bags awaiting?",
            "choices": ["skateboarder", "train", "delivery", "cab"],
            "correct_choice_idx": 3,
            "direct_answers": "['ride', 'ride', 'bus', 'taxi', 'travelling', 'traffic', 'taxi', 'cab', 'cab', 'cab']",
            "difficult_direct_answer": False,
            "rationales": ["A train would not be on the street."],
        },
        "What is the man by the bags awaiting?",
        ("cab", "ride", "taxi", "bus", "travelling", "traffic"),
    ),
    "lmms-lab/DocVQA": (
        {
            "questionId": "49153",
            "question": "What is the \u2018actual\u2019 value per 1000, during the year 1975?",
            "question_types": ["figure/diagram"],
            "image": make_image(),
            "docId": 14465,
            "ucsf_document_id": "pybv0228",
            "ucsf_document_page_no": "81",
            "answers": ["0.28", ".28"],
            "data_split": "val",
        },
        "What is the \u2018actual\u2019 value per 1000, during the year 1975?",
        ("0.28", ".28"),
    ),
    "derek-thomas/ScienceQA": (
        {
            "image": make_image(),
            "question": "Which of these states is farthest north?",
            "choices": ["West Virginia", "Louisiana", "Arizona", "Oklahoma"],
            "answer": 0,
            "hint": "",
            "task": "closed choice",
            "grade": "grade2",
            "subject": "social science",
            "topic": "geography",
            "category": "Geography",
            "skill": "Read a map: cardinal directions",
            "lecture": "Maps have four cardinal directions.",
            "solution": "West Virginia is farthest north.",
        },
        "Which of these states is farthest north?\nA. West Virginia\nB. Louisiana\nC. Arizona\nD. Oklahoma",
        ("A",),
    ),
}
"""One row of each data set (with a column of answers where there are several), and what is to be made of it: the
question and its accepted answers."""


def sources() -> list[tuple[str, str, DataSource]]:
    """Every source of a shipped recipe that lies on the hub."""
    return [
        (name, key, source)
        for name, found in RECIPES.items()
        for key, source in found.data.items()
        if source.source.count("/") == 1 and not found.local(source.source).exists()
        if not Path(source.source).suffix
    ]


def written(path: Path, row: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row]), path)
    return path


@pytest.mark.parametrize(("name", "key", "source"), sources(), ids=lambda value: str(value)[:40])
def test_a_row_of_the_hub_is_read_with_its_question_and_its_answers(
    name: str, key: str, source: DataSource, tmp_path: Path
) -> None:
    if source.source == "HuggingFaceM4/FineVision":
        assert source.subset is not None and source.split == "train"
        row, question, answers = finevision(source.subset), "What is shown?\nAnswer briefly.", ("A cat.",)
    else:
        mapped = f"{source.source}: {source.columns.answer}"
        row, question, answers = HUB[mapped if mapped in HUB else source.source]
    table = written(tmp_path / "rows.parquet", row)
    (sample,) = reader.read(loading.load(name, {f"data.{key}.source": str(table)}), key)
    assert isinstance(sample, Sample), sample
    assert (sample.question, sample.answers, len(sample.images)) == (question, answers, 1)
    assert sample.domain == row.get(source.columns.domain, source.domain)


@pytest.mark.parametrize("name", ["siq-vl-0.5b", "siq-vl-1.5b", "single-gpu-24gb"])
def test_downloaded_subsets_become_one_source_and_every_teacher_gets_its_own(name: str, tmp_path: Path) -> None:
    found = RECIPES[name]
    wanted = re.findall(r'"(\w+)/\*"', found.path.read_text())
    for number, subset in enumerate(wanted):
        row = finevision(subset) | {"images": [make_image(number)]}
        written(tmp_path / "questions" / subset / "train-00000-of-00001.parquet", row)
    (tmp_path / "questions" / ".cache" / "huggingface").mkdir(parents=True)
    here = loading.load(name, {"data.questions.source": str(tmp_path / "questions")})
    domains = {sample.domain for sample in reader.samples(here)}
    assert domains == set(wanted)
    assert sorted(domain for teacher in found.teachers for domain in teacher.domains) == sorted(wanted)


def test_charts_come_with_the_tables_behind_them(tmp_path: Path) -> None:
    script = runpy.run_path(str(loading.recipes_folder() / "charts-only" / "questions.py"))
    dataset = tmp_path / "ChartQA" / "ChartQA Dataset"
    for split in ("train", "test"):
        for folder in ("png", "tables"):
            (dataset / split / folder).mkdir(parents=True)
        (dataset / split / "png" / "10219.png").write_bytes(make_image()["bytes"])
        (dataset / split / "tables" / "10219.csv").write_text("Entity,Values\nOther location,nan\nSchool,83\n")
        for writer, label in (("human", "83"), ("augmented", "1")):
            row = {"imgname": "10219.png", "query": f"What does {writer} ask?", "label": label}
            (dataset / split / f"{split}_{writer}.json").write_text(json.dumps([row]))
    script["main"](dataset)
    overrides = {
        f"data.{key}.source": str(dataset / f"{file}.jsonl") for key, file in (("questions",) * 2, ("test",) * 2)
    }
    here = loading.load("charts-only", overrides)
    for key in ("questions", "test"):
        human, augmented = reader.samples(here, key)
        assert (human.answer, human.domain, human.meta["difficulty"]) == ("83", "charts", "human")
        assert augmented.meta["difficulty"] == "augmented"
        table = chart_table.find_table(human.meta)
        assert table is not None
        assert human.images[0].path is not None


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_rule_and_order_of_a_recipe_is_one_that_the_filter_takes(name: str) -> None:
    assert len(rules.check(RECIPES[name].filter)) == len(RECIPES[name].filter.rules)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_copied_recipe_is_the_shipped_one(name: str, tmp_path: Path) -> None:
    copied = stages.copy_shipped(name, tmp_path)
    assert loading.load(copied).model_dump() == RECIPES[name].model_dump()
    folder = loading.recipes_folder() / name
    assets = {path.relative_to(folder) for path in folder.rglob("*.py")}
    assert assets == {path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*.py")}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_header_says_how_to_run_it_on_what_and_what_to_expect(name: str) -> None:
    header = RECIPES[name].path.read_text().partition("\nseed")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    assert re.search(rf"distill (run|ablate|recipes copy) {re.escape(name)}\b", header)
    assert "Hardware: " in header
    assert re.search(r"measured|log\.md", header)
    if "estimated" in header:
        said = re.search(
            r"([\d.]+) M tokens x ([\d.]+) GFLOP .*/ \(([\d.]+) TFLOP/s x MFU (0\.\d+)\) = ([\d.]+) (min|h) "
            r"at least ",
            header.replace("\n# ", " "),
        )
        assert said is not None
        tokens, flops, rate, share, time = map(float, said.groups()[:5])
        seconds = tokens * 1e6 * flops * 1e9 / (rate * 1e12 * share)
        assert time * {"min": 60, "h": 3600}[said[6]] == pytest.approx(seconds, rel=0.03)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_stands_in_the_table_of_recipes(name: str) -> None:
    assert f"[{name}]({name}.toml)" in (loading.recipes_folder() / "README.md").read_text()
    lines = (loading.recipes_folder().parent / "README.md").read_text().splitlines()
    assert any(f"`{name}`" in line.split("|")[1] for line in lines if line.startswith("|"))
