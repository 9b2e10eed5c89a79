"""The verbs of `import distill` in a program with threads."""

import inspect
import threading
from pathlib import Path

from worlds.run_fixtures import RECIPE, generate_folder, small_world

import distill
from distill.recipe.recipe import Recipe
from distill.types import Progress


def filtered_world(folder: Path) -> tuple[Recipe, Path]:
    samples, traces = small_world(folder / "images")
    run = generate_folder(folder / "run", samples, traces).parent
    (folder / "recipe.toml").write_text(f"{RECIPE}\n[filter]\nrules = []\nworkers = 1\n")
    return distill.load(folder / "recipe.toml"), run


def test_a_verb_in_a_second_thread_waits_for_the_first(tmp_path: Path) -> None:
    """Two threads that load models at the same time gave each other's settings to torch."""
    worlds = [filtered_world(tmp_path / name) for name in ("one", "two")]
    begun, told = threading.Event(), list[str]()

    def first(progress: Progress) -> None:
        begun.set()
        other.join(0.5)  # it must not end before this one
        told.append("first")

    def second() -> None:
        begun.wait(60)
        distill.filter(*worlds[1], on_progress=lambda progress: told.append("second"))

    other = threading.Thread(target=second)
    other.start()
    distill.filter(*worlds[0], on_progress=first)
    other.join(60)
    assert {*told} == {"first", "second"} and told == sorted(told)


def test_a_verb_inside_of_a_verb_does_not_wait_for_itself(tmp_path: Path) -> None:
    (one, two) = [filtered_world(tmp_path / name) for name in ("one", "two")]
    distill.filter(*one, on_progress=lambda progress: distill.filter(*two) and None)
    assert distill.dataset(two[1]).num_rows == distill.dataset(one[1]).num_rows > 0


def test_help_shows_the_arguments_of_a_verb() -> None:
    assert [*inspect.signature(distill.filter).parameters] == ["recipe", "run", "fresh", "on_progress"]
