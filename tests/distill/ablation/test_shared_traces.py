"""Arms that change what decides the traces have traces of their own, one folder for all that want the same ones."""

from pathlib import Path

import pytest

from distill.ablation.arm_job import _link_traces
from distill.ablation.shared_traces import traces_key, traces_run
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.types import unwatched

RECIPE = """
[data.questions]
source = "questions.jsonl"
columns.image = ""
[[teachers]]
name = "a"
model = "org/a"
server.command = ["vllm", "serve"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    for name in ("questions.jsonl", "others.jsonl"):
        (tmp_path / name).write_text('{"question": "How many?"}\n')
    return tmp_path


def load(folder: Path, **changes: object) -> Recipe:
    return loading.load(folder / "recipe.toml", {name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize(
    "changes",
    [
        {"teachers__a__price__input": 2.0},
        {"teachers__a__server__gpus": ["1"]},
        {"teachers__a__server__arguments": {"gpu-memory-utilization": 0.5}},
    ],
)
def test_a_key_that_decides_no_trace_needs_no_traces_of_its_own(folder: Path, changes: dict[str, object]) -> None:
    assert traces_run(load(folder), load(folder, **changes), folder / "run", folder / "shared") == folder / "run"


@pytest.mark.parametrize(
    "changes",
    [
        {"teachers__a__sampling__temperature": 0.1},
        {"teachers__a__server__arguments": {"quantization": "fp8"}},
        {"data__questions__source": "others.jsonl"},
    ],
)
def test_a_key_that_decides_traces_leads_to_a_folder_of_its_own(folder: Path, changes: dict[str, object]) -> None:
    recipe, run, shared = load(folder), folder / "run", folder / "shared"
    own = traces_run(recipe, load(folder, **changes), run, shared)
    assert own.parent == shared and own.name == f"run-{traces_key(load(folder, **changes))[:16]}"
    with_a_price = load(folder, **changes, teachers__a__price__input=2.0)
    assert traces_run(recipe, with_a_price, run, shared) == own


def test_an_arm_whose_settings_of_traces_change_is_linked_to_the_traces_of_now(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(recipe: Recipe, run: Path, **_: object) -> None:
        (run / "generate").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr("teacher.generate.generate", generate)
    recipe, run, link = load(folder), folder / "run", folder / "arm" / "generate"
    generate(recipe, run)
    seen = []
    for changes in ({"teachers__a__sampling__temperature": 0.1}, {"teachers__a__sampling__temperature": 0.2}, {}):
        _link_traces(recipe, load(folder, **changes), run, folder / "arm", unwatched)
        seen.append(link.resolve().parent)
    assert len({*seen}) == 3 and seen[-1] == run.resolve()
