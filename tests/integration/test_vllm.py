"""The embedded engine and a real vLLM server, asked the same through the same recipe."""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
import tiny_models
import vllm_server

from distill.artifacts.journal import read_jsonl
from distill.recipe.loading import load, recipes_folder
from filters.apply import apply
from student.train import train
from teacher.generate import generate

PROMPTS = 200
SHIPPED = sorted((recipes_folder() / "tiny" / "teachers").glob("*/config.json"))

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(vllm_server.why_not()), reason=vllm_server.why_not() or "-"),
]


def records(run: Path) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for part in run.glob("generate/*/part-*.jsonl") for record in read_jsonl(part)}


def write_recipe(path: Path, model: Path, **settings: Any) -> Path:
    teacher = {"name": "random", "model": str(model), **settings}
    sampling = {"temperature": 0.0, "max_tokens": 48}
    lines = ["[data.questions]", 'source = "rows.jsonl"', "[[teachers]]"]
    lines += [f"{key} = {orjson.dumps(value).decode()}" for key, value in teacher.items()]
    lines += ["[teachers.sampling]", *(f"{key} = {value}" for key, value in sampling.items())]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with sharp choices, and questions about random pictures."""
    folder = tmp_path_factory.mktemp("world")
    tiny_models.build(folder / "model", spread=0.3, end_weight=1.3)
    rows = []
    for index in range(PROMPTS):
        tiny_models.picture(folder / f"{index}.png", index)
        rows.append({"image": f"{index}.png", "question": f"How many red circles? {index % 7}", "answer": "1"})
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return folder


def agreement(first: dict[str, dict[str, Any]], second: dict[str, dict[str, Any]]) -> tuple[float, float]:
    """Shares of equal answers and of equal texts."""
    assert first.keys() == second.keys()
    answers = sum(first[key]["answer"] == second[key]["answer"] for key in first)
    texts = sum(first[key]["text"] == second[key]["text"] for key in first)
    return answers / len(first), texts / len(first)


def test_a_random_model_answers_the_same_over_http_as_embedded(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded = load(write_recipe(world / "embedded.toml", world / "model", backend="embedded"))
    generate(embedded, world / "embedded")
    with vllm_server.serve(world / "model") as url:
        served = load(write_recipe(world / "served.toml", world / "model", backend="vllm", base_url=url))
        manifest = generate(served, world / "served")
        seeded = served.model_copy(
            update={
                "teachers": tuple(
                    teacher.model_copy(
                        update={"sampling": teacher.sampling.model_copy(update={"temperature": 1.0, "top_p": 0.9})}
                    )
                    for teacher in served.teachers
                )
            }
        )
        generate(seeded, world / "seeded", limit=40)
        generate(seeded, world / "seeded again", limit=40)
    here, there = records(world / "embedded"), records(world / "served")
    answers, texts = agreement(here, there)
    with capsys.disabled():
        print(f"\nrandom model: equal answers {answers:.1%}, equal texts {texts:.1%} of {len(here)} prompts")
    assert len(here) == PROMPTS
    assert answers >= 0.99 and texts >= 0.99
    assert len({record["text"] for record in here.values()}) > PROMPTS / 2
    assert {record["finish_reason"] for record in here.values()} == {"stop", "length"}
    assert manifest.versions["vllm"]
    for key, record in here.items():
        if record["text"] == there[key]["text"]:
            assert record["finish_reason"] == there[key]["finish_reason"]
            assert record["usage"]["prompt"] == there[key]["usage"]["prompt"]
            total = record["usage"]["reasoning"] + record["usage"]["answer"]
            assert total == there[key]["usage"]["reasoning"] + there[key]["usage"]["answer"]
    first, again = records(world / "seeded"), records(world / "seeded again")
    assert agreement(first, again)[1] >= 0.95


@pytest.mark.parametrize("folder", [path.parent for path in SHIPPED], ids=lambda folder: folder.name)
def test_a_shipped_teacher_answers_the_same_over_http_as_embedded_and_a_student_learns_from_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load("tiny-studies")
    (teacher,) = [who for who in recipe.teachers if Path(recipe.local_or_hub(who.model)) == folder.resolve()]
    greedy = {"sampling": teacher.sampling.model_copy(update={"temperature": 0.0}), "samples": 1}
    one = recipe.model_copy(update={"teachers": (teacher.model_copy(update=greedy),)})
    generate(one, tmp_path / "embedded", limit=PROMPTS)
    with vllm_server.serve(folder) as url:
        remote = {**greedy, "backend": "vllm", "base_url": url}
        served = recipe.model_copy(update={"teachers": (teacher.model_copy(update=remote),)})
        generate(served, tmp_path / "served", limit=PROMPTS)
    here, there = records(tmp_path / "embedded"), records(tmp_path / "served")
    answers, texts = agreement(here, there)
    outcomes = Counter(record["outcome"] for record in there.values())
    with capsys.disabled():
        print(f"\n{folder.name}: equal answers {answers:.1%}, equal texts {texts:.1%} of {len(here)}; {outcomes}")
    assert len(here) == PROMPTS
    assert answers >= 0.99
    assert outcomes["complete"] >= 0.9 * PROMPTS
    assert apply(served, tmp_path / "served").counts["selected"] >= 0.7 * PROMPTS
    (reason,) = [stage for stage in recipe.stages if stage.name == "reason"]
    lesson = served.model_copy(update={"stages": (reason.model_copy(update={"max_steps": 4, "log_every_steps": 1}),)})
    train(lesson, tmp_path / "served")
    losses = [line["loss"] for line in read_jsonl(tmp_path / "served" / "train" / "reason" / "metrics.jsonl")]
    assert len(losses) == 4 and losses[-1] < losses[0]
