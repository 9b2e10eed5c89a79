"""One place names the files of a run directory."""

import ast
from collections import defaultdict
from pathlib import Path

from distill.artifacts import layout

ROOT = Path(__file__).resolve().parents[3]


def file_names() -> set[str]:
    values = {value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)}
    return {value for value in values if "." in value.strip(".")}


def test_parts_are_numbered_and_found_again_in_their_order(tmp_path: Path) -> None:
    made = [layout.part_path(tmp_path / "a", number, ".jsonl") for number in (2, 0, 10, 100_000, 99_999)]
    assert made[0].name == "part-00002.jsonl"
    for path in made:
        path.parent.mkdir(exist_ok=True)
        path.touch()
        path.with_suffix(".jsonl.damaged").touch()
    assert [layout.part_number(path) for path in layout.part_paths(tmp_path / "a", ".jsonl")] == [
        *(0, 2, 10, 99_999, 100_000)
    ]
    assert layout.part_paths(tmp_path, ".jsonl", below="*") == layout.part_paths(tmp_path / "a", ".jsonl")


def test_a_stage_trains_on_the_dataset_or_on_the_rows_of_an_arm_and_leaves_its_student(tmp_path: Path) -> None:
    assert layout.train_data_folder(tmp_path) == tmp_path / "filter" / "dataset" / "train"
    assert layout.train_data_folder(tmp_path, "random") == tmp_path / "filter" / "arms" / "random" / "train"
    assert layout.model_folder(tmp_path, "reason") == tmp_path / "train" / "reason" / "model"


def test_no_other_module_writes_the_name_of_such_a_file() -> None:
    names, written = file_names(), defaultdict(set)
    for package in ("distill", "teacher", "filters", "student"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and node.value in names and path.name != "layout.py":
                    written[node.value].add(path.relative_to(ROOT).as_posix())
    # Recipes in memory and in a new folder of a user have this name too, and test sets hold samples of their own.
    written[layout.RECIPE] -= {
        "distill/recipe/recipe.py",
        "distill/recipe/loading.py",
        "distill/commands/init.py",
    }
    written[layout.SAMPLES].discard("filters/matching/test_sets.py")
    written[layout.PAGES].discard("distill/view/server.py")  # its own page
    assert not {name: paths for name, paths in written.items() if paths}
