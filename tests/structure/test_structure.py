"""The promises of the architecture: layers, light imports, the wheel's contents, the command line's start-up time."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("distill", "teacher", "filters", "student")
HEAVY = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "obstore", "ray", "vllm")


def may_be_heavy() -> set[str]:
    """Modules that exist for the heavy packages and may import them at the top: the linter's list."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    found: set[str] = set()
    for pattern, rules in lint["per-file-ignores"].items():
        folder, _, names = pattern.removesuffix(".py").rpartition("/")
        if "TID253" in rules and folder.split("/")[0] in PACKAGES:
            each = (
                [path.stem for path in (ROOT / folder).glob("*.py")] if names == "*" else names.strip("{}").split(",")
            )
            found |= {f"{folder.replace('/', '.')}.{name}" for name in each}
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


MODULES = dict(modules())
HEAVY_MODULES = may_be_heavy()
LIGHT = [name for name in MODULES if name not in HEAVY_MODULES and not name.endswith("__main__")]


def imported(path: Path) -> set[str]:
    """Every module that importing a file imports, dotted; `from a import b` counts as a.b, for b may be a module."""
    found: set[str] = set()
    for node in _top_level(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements run on import: not those inside functions, nor under TYPE_CHECKING."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _top_level(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef | ast.For):
            for part in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)


def test_layers_hold() -> None:
    """The contracts of pyproject.toml, as `make lint` checks them."""
    done = subprocess.run([Path(sys.executable).with_name("lint-imports")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_the_contract_of_the_answer_judge_names_all_that_is_not_the_floor() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floor = {"answers", "errors", "types", "rationale", "redact", "lazy_exports", "question_options", "word_tables"}
    forbidden = {
        name
        for contract in contracts
        if contract["type"] == "forbidden" and contract["source_modules"] == ["distill.answers"]
        for name in contract["forbidden_modules"]
    }
    entries = {
        path.stem for path in (ROOT / "distill").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    others = {f"distill.{name}" for name in entries - floor if not name.startswith("__")}
    assert forbidden == others | {"teacher", "filters", "student"}


def test_heavy_packages_are_imported_only_inside_functions() -> None:
    found = {name: imported(MODULES[name]) for name in LIGHT}
    assert not {name: items for name, items in found.items() if {item.split(".")[0] for item in items} & {*HEAVY}}


BLOCKED = """
import importlib, sys
heavy = sys.argv[1].split(",")
for package in heavy:
    sys.modules[package] = None
for name in sys.argv[2].split(","):
    try:
        importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"{name}: {error}")
"""


def test_every_light_module_imports_without_the_heavy_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, ",".join(HEAVY), ",".join(LIGHT)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def test_teacher_and_student_load_heavy_packages_and_one_module_each_loads_obstore_and_ray() -> None:
    remote = "distill.object_store.remote_store"
    cluster = "distill.placement.ray_cluster"
    assert {name.split(".")[0] for name in HEAVY_MODULES - {remote, cluster}} == {"teacher", "student"}
    for package, only in (("obstore", remote), ("ray", cluster)):
        loads = re.compile(rf"^\s*(import|from) {package}\b", re.MULTILINE)
        assert [name for name, path in MODULES.items() if loads.search(path.read_text(encoding="utf-8"))] == [only]


def narrows(test: ast.expr) -> bool:
    """Whether a condition tells mypy a type: `x is (not) None`, isinstance, or several of them."""
    if isinstance(test, ast.BoolOp):
        return all(map(narrows, test.values))
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.Is | ast.IsNot) and ast.unparse(test.comparators[0]) == "None"
    return isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"


def test_an_assert_only_tells_mypy_a_type_because_python_o_removes_it() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert) and (node.msg is not None or not narrows(node.test))
    ]
    assert not found, "raise an error in its place, such as distill.errors.require_rows"


FACES = {"distill", "distill/answers", "distill/data", "distill/recipe"}
"""Packages with public names of their own; every other package file is empty."""


def test_package_files_are_empty() -> None:
    found = [path for name in PACKAGES for path in (ROOT / name).rglob("__init__.py")]
    assert {path.parent.name for path in found} >= set(PACKAGES)
    assert {path.parent.relative_to(ROOT).as_posix() for path in found if path.stat().st_size} == FACES


@pytest.mark.parametrize("name", [face.replace("/", ".") for face in sorted(FACES)])
def test_every_public_name_of_a_package_is_there(name: str) -> None:
    package = importlib.import_module(name)
    assert [each for each in package.__all__ if not hasattr(package, each)] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names inside a freshly built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel: list[str]) -> None:
    top = {name.split("/")[0] for name in wheel}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)
    assert {path.relative_to(ROOT).as_posix() for path in MODULES.values()} <= set(wheel)
    assert not [name for name in wheel if "__pycache__" in name or "tests/" in name]


def test_the_wheel_carries_the_recipes_and_the_data_that_modules_open(wheel: list[str]) -> None:
    folder = ROOT / "recipes"
    shipped = [*folder.glob("*.toml"), *folder.glob("*/*.py")]
    recipes = {f"distill/_recipes/{path.relative_to(folder).as_posix()}" for path in shipped}
    assert recipes <= set(wheel)
    assert "distill/py.typed" in wheel
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                assert path.relative_to(ROOT).as_posix() in wheel


CONSOLE_SCRIPT = Path(sys.executable).with_name("distill")


@pytest.mark.timing
def test_help_answers_in_a_quarter_of_a_second_and_loads_nothing_heavy() -> None:
    seconds = []
    for _ in range(10):
        before = os.times()
        subprocess.run([CONSOLE_SCRIPT, "--help"], check=True, capture_output=True)
        after = os.times()
        # Of the processor, for on a busy machine the clock measures the other programs.
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    program = "import sys; sys.argv[1:] = ['--help']\nfrom distill.cli import main\n" + (
        f"try: main()\nexcept SystemExit: pass\nprint(sorted(set({HEAVY!r}) & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"
    assert min(seconds) < 0.25, f"{min(seconds):.3f} s"


def test_what_a_check_of_a_recipe_asks_of_a_stage_and_of_the_libraries_loads_no_trainer() -> None:
    program = (
        "import sys\nfrom distill.recipe.sections.stages import Stage\nfrom student.training.loop import sft_config\n"
        "sft_config.require(Stage(name='reason', data='traces', train=['language']))\n"
        f"print(sorted(set({HEAVY!r}) & sys.modules.keys()))\n"
        "from student.models.library_output import hide_library_output\n"
        "with hide_library_output(): print({'datasets', 'trl'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "set()"]


def test_only_modules_that_compare_training_data_with_test_data_call_what_is_below_the_verbs() -> None:
    below = {"teacher.generate": "generate", "student.train": "train", "student.evaluate": "evaluate"}
    callers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "distill").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and below.get(node.module or "") in {alias.name for alias in node.names}
    }
    # The job of an arm gets the comparison from its caller.
    assert callers == {
        "distill/python_api/verbs.py",
        "distill/ablation/arm_job.py",
        "distill/ablation/runner.py",
    }


def test_make_reads_its_file_and_knows_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (targets,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    done = subprocess.run(["make", "--dry-run", *targets.split()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def sources(*folders: str) -> dict[str, ast.Module]:
    """Our Python files in these folders, by path."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_shares_are_written_with_a_space_before_the_percent_sign() -> None:
    tight = re.compile(r"\{[^{}]*:,?\.\d%\}")
    written = {
        path: found
        for path in sources(*PACKAGES)
        if (found := tight.findall((ROOT / path).read_text(encoding="utf-8")))
    }
    assert not written, 'write f"{100 * share:.0f} %"'


def test_no_file_has_more_than_400_lines_and_no_function_more_than_80() -> None:
    long_files = {
        path: lines
        for path in sources(*PACKAGES, "benchmarks")
        if (lines := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long_files, "split them"
    long_functions = {
        f"{path}:{node.name}": lines
        for path, tree in sources(*PACKAGES, "benchmarks").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        # Of the body: parameters of a command of typer are its options with their help.
        and (lines := node.end_lineno - node.body[0].lineno + 1) > 80
    }
    assert not long_functions, "split them"


def test_no_folder_has_more_than_20_modules() -> None:
    modules = Counter(
        str(Path(path).parent) for path in sources(*PACKAGES, "tests/support") if not path.endswith("__init__.py")
    )
    assert not {folder: number for folder, number in modules.items() if number > 20}, "give a part of them a folder"


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in sources(*PACKAGES, "benchmarks").items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    # Scripts of benchmarks stand alone.
    assert not {name: found for name, found in twice.items() if not all(path.startswith("bench") for path in found)}
