"""The verb with adaptive sampling, policies by outcome and several teachers, against the stub server."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
import tomli_w
from PIL import Image, ImageDraw, ImageFont
from servers import stub_server
from students import tiny_models

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.data.sample_files import read_samples
from distill.errors import CircuitOpen, RecipeError, StaleError
from distill.recipe.loading import load
from teacher.generate import generate


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(model="any") as url:
        yield url


class World:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.rows: list[dict[str, Any]] = []
        self.outcomes: dict[str, Any] = {}

    def rows_about(self, count: int, text: str = "How many?", **values: Any) -> None:
        for _ in range(count):
            name = f"{len(self.rows) % 3}.png"
            if not (self.folder / name).exists():
                tiny_models.make_image(self.folder / name, len(self.rows) % 3, size=16)
            self.rows.append({"image": name, "question": f"{text} {len(self.rows)}", **values})

    def generate(self, run: str, *teachers: dict[str, Any]) -> tuple[Manifest, list[dict[str, Any]]]:
        (self.folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in self.rows))
        recipe = {
            "data": {"questions": {"source": "rows.jsonl"}},
            "generate": {"outcomes": self.outcomes, "patience_s": 2.0},
            "teachers": [{"model": "any", "base_url": self.url, **teacher} for teacher in teachers],
        }
        path = self.folder / f"{run}.toml"
        path.write_text(tomli_w.dumps(recipe))
        manifest = generate(load(path), self.folder / run)
        parts = sorted((self.folder / run).glob("generate/*/part-*.jsonl"))
        return manifest, [record for part in parts for record in read_jsonl(part)]

    def planned(self, run: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.folder / run / "generate" / "plan.parquet").to_pylist()
        return rows


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    return World(tmp_path, url)


def test_adaptive_sampling_asks_until_the_gold_answer_came_and_reuses_fixed_traces(world: World) -> None:
    world.rows_about(12)
    _, fixed = world.generate("fixed", {"name": "t", "samples": 6})
    second = {record["sample_id"]: record["answer"] for record in fixed if record["k"] == 1}
    by_question = {row["question"]: row for row in world.rows}
    for sample in pq.read_table(world.folder / "fixed/generate/samples.parquet").to_pylist():
        by_question[sample["question"]]["answer"] = second[sample["id"]]
    manifest, adaptive = world.generate("adaptive", {"name": "t", "samples": 6, "until": {"correct": 1}})
    assert {record["k"] for record in adaptive} <= {0, 1}
    assert manifest.counts["traces"] == len(adaptive) <= 24
    assert {record["id"] for record in adaptive} < {record["id"] for record in fixed}
    assert {record["sample_id"] for record in adaptive if record["answer"] == second[record["sample_id"]]} == set(
        second
    )


def test_a_loop_is_asked_again_with_another_seed_and_the_last_attempt_counts(world: World) -> None:
    world.rows_about(3)
    world.rows_about(2, "fault=empty")
    world.outcomes = {"empty_answer": "resample", "attempts": 3}
    manifest, records = world.generate("run", {"name": "t"})
    tried = [record for record in records if record["outcome"] == "empty_answer"]
    assert Counter(record["attempt"] for record in tried) == {0: 2, 1: 2, 2: 2}
    assert len({record["seed"] for record in tried}) == 6
    assert manifest.counts["repeated"] == 4 and manifest.counts["traces"] == 5
    assert {row["attempt"] for row in world.planned("run")} == {0, 2}


def test_a_dropped_outcome_stays_in_the_journal_and_out_of_the_plan(world: World) -> None:
    world.rows_about(2)
    world.rows_about(1, "fault=empty")
    world.outcomes = {"empty_answer": "drop"}
    manifest, records = world.generate("run", {"name": "t"})
    assert len(records) == 3 and len(world.planned("run")) == manifest.counts["traces"] == 2
    assert manifest.counts["dropped"] == 1


def test_a_large_teacher_answers_where_the_small_one_was_unsure_and_one_for_failures_rests(world: World) -> None:
    world.rows_about(5)
    world.rows_about(1, "fault=400")
    manifest, records = world.generate(
        "run",
        {"name": "small", "samples": 3},
        {"name": "large", "prompt": "Carefully: {question}", "after": "small", "when": "unsure"},
        {"name": "spare", "prompt": "Again: {question}", "after": "small", "when": "failed"},
    )
    # The stub's answers are all different, so the small teacher is never sure.
    assert Counter(record["teacher"] for record in records) == {"small": 18, "large": 6, "spare": 1}
    assert manifest.counts["small.error"] == 3 and manifest.counts["large.complete"] == 5


def test_an_editor_works_on_every_draft_and_names_it(world: World) -> None:
    world.rows_about(4)
    _, records = world.generate(
        "run",
        {"name": "writer", "samples": 2},
        {"name": "editor", "prompt": "{question}\nDraft: {draft}", "after": "writer"},
    )
    writers = {record["id"]: record for record in records if record["teacher"] == "writer"}
    edited = [record for record in records if record["teacher"] == "editor"]
    assert len(edited) == 8 and {record["draft"] for record in edited} == set(writers)
    assert all(record["sample_id"] == writers[record["draft"]]["sample_id"] for record in edited)


def test_a_run_whose_second_server_was_down_goes_on_where_it_was(world: World) -> None:
    world.rows_about(4)
    writer = {"name": "writer"}
    editor = {"name": "editor", "prompt": "{question} {draft}", "after": "writer"}
    with pytest.raises(CircuitOpen, match="4 traces are finished and kept"):
        world.generate("run", writer, {**editor, "base_url": "http://127.0.0.1:9/v1"})
    _, records = world.generate("run", writer, editor)
    assert Counter(record["teacher"] for record in records) == {"writer": 4, "editor": 4}


def test_a_hinted_teacher_sees_the_answer_is_marked_and_skips_questions_without_one(world: World) -> None:
    world.rows_about(3, answer="42")
    world.rows_about(2)
    manifest, records = world.generate(
        "run", {"name": "t", "prompt": "{question} It is {answer}. Why?", "hinted": True}
    )
    assert len(records) == 3 and all(record["hinted"] for record in records)
    assert manifest.counts["hinted"] == 3 and manifest.counts["quarantined.no_teacher"] == 2
    assert all(row["hinted"] for row in world.planned("run"))


def test_cues_from_the_rows_are_shown_and_other_cues_are_other_traces(world: World) -> None:
    world.rows_about(2, meta={"caption": "a red wall", "note": "a blue door"})
    teacher = {"name": "t", "prompt": "{question} Seen: {cues}."}
    _, records = world.generate("run", {**teacher, "cues": "caption"})
    assert len(records) == 2 and not any(record["hinted"] for record in records)
    _, plain = world.generate("plain", {"name": "t", "prompt": "{question} Seen: a red wall."})
    assert {record["id"] for record in records} == {record["id"] for record in plain}
    _, other = world.generate("other", {**teacher, "cues": "note"})
    assert not {record["id"] for record in other} & {record["id"] for record in records}
    # In the same run directory the traces of the other cues are stale.
    with pytest.raises(StaleError, match="cues"):
        world.generate("run", {**teacher, "cues": "note"})


def test_text_that_ocr_reads_is_shown_where_the_recipe_asks_for_it(world: World) -> None:
    pytest.importorskip("rapidocr")
    image = Image.new("RGB", (240, 80), "white")
    ImageDraw.Draw(image).text((20, 25), "EXIT 14", fill="black", font=ImageFont.load_default(26))
    image.save(world.folder / "sign.png")
    world.rows_about(1, image="sign.png")
    world.rows_about(1, image="sign.png", meta={"ocr": "OWN TEXT"})
    teacher = {"name": "t", "prompt": "{question} Text: {cues}."}
    _, records = world.generate("run", {**teacher, "cues": "ocr"})
    samples = list(read_samples(world.folder / "run" / "generate" / "samples.parquet"))
    assert sorted(sample.meta["ocr"] for sample in samples) == ["EXIT 14", "OWN TEXT"]
    _, plain = world.generate("plain", {"name": "t", "prompt": "{question} Text: EXIT 14."})
    assert len({record["id"] for record in records} & {record["id"] for record in plain}) == 1


def test_difficulty_modality_and_fallback_route_rows(world: World) -> None:
    world.rows_about(2, difficulty="easy")
    world.rows_about(3, difficulty="hard")
    world.rows_about(1)
    _, records = world.generate(
        "run",
        {"name": "easy", "difficulty": ["easy"]},
        {"name": "hard", "difficulty": ["hard"], "modality": "image"},
        {"name": "rest", "prompt": "Well? {question}", "fallback": True},
    )
    assert Counter(record["teacher"] for record in records) == {"easy": 2, "hard": 3, "rest": 1}


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ({"prompt": "{question} {answer}"}, "hinted = true"),
        ({"prompt": "{question} {draft}"}, "`after` must name the teacher"),
        ({"when": "unsure"}, "needs `after`"),
        ({"after": "nobody"}, "'nobody' is not known"),
        ({"until": {}}, "until needs correct"),
        ({"difficulty": ["hrad"]}, "did you mean 'hard'"),
        ({"modality": "text"}, "no sample of .* is for it"),
        ({"backend": "embedded", "mm_processor_kwargs": {"a": 1}}, "base_url|backend 'vllm'"),
    ],
)
def test_what_cannot_mean_anything_is_refused_before_anything_is_asked(
    world: World, teacher: dict[str, Any], message: str
) -> None:
    world.rows_about(1, difficulty="hard")
    with pytest.raises(RecipeError, match=message):
        world.generate("run", {"name": "t", **teacher})


ASK = """
def ask(sample):
    return f"{sample.question} It is one of {len(sample.answers)}."

def nothing(sample):
    return ""

def half(sample):
    return sample.question + "\\ud83d"

def ends(sample):
    raise SystemExit(2)

def some(sample):
    sample.meta["seen"] = True
    if "zeros" in sample.question:
        raise KeyError("zero")
    return sample.question
"""


def test_a_prompt_from_a_file_beside_the_recipe_asks_what_its_function_returns(world: World) -> None:
    world.rows_about(2, answer="4")
    (world.folder / "mine.py").write_text(ASK)
    _, plain = world.generate("plain", {"name": "t", "prompt": "{question} It is one of 0."})
    done, own = world.generate("own", {"name": "t", "prompt": "mine.py:ask"})
    assert {record["id"] for record in own} == {record["id"] for record in plain}, "the gold answer is not shown"
    assert done.fields["teachers.t.prompt"].startswith("sha256:")
    _, hinted = world.generate("hinted", {"name": "t", "prompt": "mine.py:ask", "hinted": True})
    assert not {record["prompt_sha"] for record in hinted} & {record["prompt_sha"] for record in own}


def test_a_question_on_which_an_own_prompt_fails_is_set_aside_with_its_reason(world: World) -> None:
    world.rows_about(10, "How many?", answer="4")
    world.rows_about(2, "How many zeros?", answer="4")
    (world.folder / "mine.py").write_text(ASK)
    done, records = world.generate("run", {"name": "t", "prompt": "mine.py:some"})
    assert done.counts["traces"] == len(records) == 10
    lines = [
        orjson.loads(line) for line in (world.folder / "run/generate/quarantine.jsonl").read_bytes().splitlines()
    ]
    assert [(line["reason"], line["detail"].partition(": ")[2]) for line in lines] == [
        ("prompt_failed", "KeyError: 'zero' (mine.py, line 17)")
    ] * 2
    samples = pq.read_table(world.folder / "run/generate/samples.parquet").to_pylist()
    assert len(samples) == 10 and "seen" not in str(samples)
    world.rows_about(1, "How many zeros?", answer="4")
    message = (
        r"^3 of 13 questions have no prompt, more than .*max_bad_share = 0.*; the first: teachers\.t\.prompt = .*zero"
    )
    with pytest.raises(RecipeError, match=message):
        world.generate("other", {"name": "t", "prompt": "mine.py:some"})


def test_a_cell_of_a_notebook_lets_the_teachers_answer(world: World) -> None:
    """Jupyter runs cells below an event loop."""

    async def cell() -> int:
        return world.generate("run", {"name": "t"})[0].counts["complete"]

    world.rows_about(2)
    assert asyncio.run(cell()) == 2


def test_a_prompt_whose_function_returns_no_text_stops_before_anything_is_asked(world: World) -> None:
    world.rows_about(1)
    (world.folder / "mine.py").write_text(ASK)
    with pytest.raises(RecipeError, match="must return the text to ask"):
        world.generate("run", {"name": "t", "prompt": "mine.py:nothing"})
    with pytest.raises(RecipeError, match=r"failed on sample .*: SystemExit: 2"):
        world.generate("run", {"name": "t", "prompt": "mine.py:ends"})
    done, _ = world.generate("half", {"name": "t", "prompt": "mine.py:half"})
    assert done.counts["complete"] == 1
    with pytest.raises(RecipeError, match="defines no nobody"):
        world.generate("other", {"name": "t", "prompt": "mine.py:nobody"})
