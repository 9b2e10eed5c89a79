"""Arguments and options that several commands share, and how they choose a recipe and a run directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distill import redact
from distill.artifacts.layout import RECIPE
from distill.command_line import completion
from distill.errors import RecipeError
from distill.local_paths import STORE_SCHEMES, address_problem, given_path
from student.distributed import processes

if TYPE_CHECKING:
    from distill.recipe.recipe import Recipe


def local_path(value: str | Path) -> Path:
    """A path of this machine; a default value passes here as well."""
    if not str(value):  # as an unset variable of a shell gives it; Path("") would be the folder of the terminal
        raise typer.BadParameter("the path is empty")
    if problem := address_problem(str(value)):
        raise typer.BadParameter(redact.message(problem))
    return given_path(value)


def run_place(value: str) -> Path | str:
    """A path of this machine, or the address of a store as it is."""
    return value if value.partition("://")[0] in (*STORE_SCHEMES, "file") and "://" in value else local_path(value)


RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        autocompletion=completion.recipes,
        help="A TOML file, or the name of a shipped recipe.",
    ),
]
OptionalRecipe = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE",
        autocompletion=completion.recipes,
        help="A TOML file, or the name of a shipped recipe.",
    ),
]
RunArgument = Annotated[Path, typer.Argument(parser=local_path, metavar="RUN", help="A run directory.")]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", parser=local_path, metavar="DIR", help="Run directory [default: runs/<recipe name>]."),
]
PlaceOption = Annotated[
    Any,
    typer.Option(
        "--run",
        parser=run_place,
        metavar="DIR|ADDRESS",
        help="Run directory [default: runs/<recipe name>], or the address of a run in an object store, such as "
        "s3://bucket/run.",
    ),
]
FreshOption = Annotated[
    bool,
    typer.Option("--fresh", help="Make the result of this command again; parts that are still valid are reused."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StageJobsOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Train this number of stages at the same time. Each stage has its own process, its share of the cores, "
        "and its own GPU if there are several. A stage waits for the stage that it starts from.",
    ),
]
StudentJobsOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Ask this number of students at the same time. Each student has its own process, its share of the "
        "cores, and its own GPU if there are several.",
    ),
]
WholeJobsOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Train this number of stages at the same time, as with `distill train --jobs`; then ask this number of "
        "students at the same time. A process that no stage needs asks the students that are trained.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        autocompletion=completion.keys,
        help="Override one recipe value, e.g. filter.select.per_question=2.",
    ),
]


def open_recipe(
    name: str,
    run: Path | None,
    overrides: list[str] | None,
    *,
    several: bool = False,
    students: list[str] | None = None,
) -> "tuple[Recipe, Path]":
    """The recipe and its run directory, for a command that takes `several` processes or not."""
    from distill.recipe.loading import load
    from distill.recipe.sections.eval import student_values

    if not several:
        processes.require_one()
    pairs = student_values(students or [])
    for text in overrides or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise RecipeError(f"--set {text}: write KEY=VALUE, e.g. --set filter.select.per_question=2")
        pairs[key.strip()] = value.strip()
    recipe = load(name, pairs)
    return recipe, run or Path("runs") / recipe.name


def open_other(name: str, run: Path | None) -> "tuple[Recipe, Path]":
    """The recipe that a run was made with, and the run: of a run directory, or of a recipe and its usual run."""
    from distill.recipe.loading import load

    copy = Path(name) / RECIPE
    recipe = load(copy if copy.is_file() else name)
    return recipe, run or (Path(name) if copy.is_file() else Path("runs") / recipe.name)
