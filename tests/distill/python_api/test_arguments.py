"""Arguments of the wrong kind to the functions for programs: a message that names them, and nothing is written."""

from pathlib import Path
from typing import Any

import pytest

import distill
from distill.errors import DataError, InputError, RecipeError
from distill.recipe.recipe import Recipe

VERBS = ("generate", "filter", "train", "evaluate")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", [*VERBS, "traces", "signals", "dataset", "compare"])
@pytest.mark.parametrize("run", [None, 3, b"run", ["run"], ""])
def test_a_run_that_is_no_path_is_named(tmp_path: Path, name: str, run: Any) -> None:
    arguments = (Recipe(), run) if name in VERBS else (run,)
    with pytest.raises(InputError, match=r"run = .* give the path of a run directory"):
        getattr(distill, name)(*arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("recipe", [None, "tiny", {}])
def test_a_recipe_that_is_none_is_named(tmp_path: Path, name: str, recipe: Any) -> None:
    with pytest.raises(RecipeError, match=r"recipe = .* as distill.load\(PATH_OR_NAME\) returns"):
        getattr(distill, name)(recipe, "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", VERBS)
def test_the_address_of_a_store_is_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecipeError, match="an address"):
        getattr(distill, name)(Recipe(), "s3://bucket/run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "3"])
def test_a_count_is_a_whole_number_from_one(count: Any) -> None:
    with pytest.raises(InputError, match=r"limit = .* give a whole number from 1"):
        distill.generate(Recipe(), "run", limit=count)
    with pytest.raises(InputError, match=r"jobs = .* give a whole number from 1"):
        distill.train(Recipe(), "run", jobs=count)


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("called", [3, "print", lambda: None, lambda done, total: None])
def test_a_callback_that_takes_no_progress_is_named(tmp_path: Path, name: str, called: Any) -> None:
    with pytest.raises(InputError, match=r"on_progress = .* give a function of one distill.types.Progress"):
        getattr(distill, name)(Recipe(), "run", on_progress=called)
    assert not list(tmp_path.iterdir())


def test_no_run_at_all_is_no_empty_table() -> None:
    with pytest.raises(DataError, match="no run is given"):
        distill.compare()


@pytest.mark.parametrize("name", [None, 3, b"tiny", ["tiny"], "", "x" * 300])
def test_a_recipe_argument_that_is_no_path_is_named(name: Any) -> None:
    with pytest.raises(RecipeError, match=r"give a TOML file or a shipped name|File name too long; correct the path"):
        distill.load(name)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (3, "overrides = 3: give a mapping"),
        (["seed=1"], "overrides = .* give a mapping"),
        ({1: "seed"}, "overrides: 1 is no dotted key"),
        ({"seed": {1}}, r"seed = \{1\} \(set\): give a value that TOML can hold"),
        ({"data.questions.source": object()}, r"data.questions.source = <object .* \(object\): give a value"),
    ],
)
def test_an_override_of_another_kind_is_named(overrides: Any, message: str) -> None:
    Path("recipe.toml").write_text("")
    with pytest.raises(RecipeError, match=message):
        distill.load("recipe.toml", overrides)


def test_an_override_may_be_a_path() -> None:
    Path("recipe.toml").write_text("")
    recipe = distill.load("recipe.toml", {"data.questions.source": Path("rows.csv")})  # type: ignore[dict-item]
    assert recipe.data["questions"].source == "rows.csv"


def test_a_launcher_that_cannot_shard_a_student_is_refused_as_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(InputError, match="the launcher asks for DeepSpeed"):
        distill.train(Recipe(), "run")
    assert not list(tmp_path.iterdir())
