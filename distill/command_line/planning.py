"""Commands before a run: what it needs, what it takes, and data split into training and test."""

from pathlib import Path
from typing import Annotated

import typer

from distill.command_line.options import OptionalRecipe, RecipeArgument, RunOption, SetOption, open_other, open_recipe
from distill.commands.progress import show
from distill.errors import RecipeError


def plan(
    recipe: OptionalRecipe = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Plan for this GPU, such as L40S [default: the GPU of this machine, or common ones]."
        ),
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0, metavar="AMOUNT", help="Price of one GPU for one hour, in any currency.")
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Print what is done again if RECIPE replaces OTHER: a run directory, or the recipe that a run was "
            "made with. Without RECIPE: OTHER itself with the values of --set.",
        ),
    ] = None,
    run: RunOption = None,
    overrides: SetOption = None,
) -> None:
    """Estimate tokens, FLOPs, memory, hours and cost of training, without weights; or what a change makes stale.

    With --diff: which keys differ, what each makes stale, and for every stage whether it stays finished or runs
    again, and how much that is. Reads recipes and manifests only.
    """
    if diff is not None:
        from distill.planning.redo_text import redo_text

        before, folder = open_other(diff, run)
        now, _ = open_recipe(recipe or str(before.path), folder, overrides)
        show(redo_text(before, now, folder, overrides or ()))
        return
    from distill.planning.plan import training_plan

    if recipe is None:
        raise RecipeError("distill plan needs a RECIPE: a TOML file, or the name of a shipped recipe")
    show(training_plan(*open_recipe(recipe, run, overrides), gpu=gpu, price=price))


def check(
    recipe: RecipeArgument,
    run: RunOption = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check memory for this GPU [default: the GPU of this machine].")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overrides: SetOption = None,
) -> None:
    """Check everything that the whole run needs, in under a minute, without a GPU.

    Reads every source of every stage, checks checkpoints, packages, keys, servers, rules, disk and memory, and
    loads no weights. Problems come first, each with the recipe key and what to do; if there is one, the exit code
    is 2.
    """
    from distill.commands.stages import check_run

    text, is_fit = check_run(*open_recipe(recipe, run, overrides), gpu=gpu, as_json=json_)
    show(text)
    if not is_fit:
        raise typer.Exit(2)


def split(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A table (JSONL, JSON, CSV, Parquet), a folder, or a recipe.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the train and test files.")],
    test: Annotated[float, typer.Option(metavar="SHARE", help="Share of the rows in the test file.")] = 0.1,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the split; another seed selects other images.")] = 0,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="The source of a recipe to split [default: questions].")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="As in [data.NAME], for a table.")] = None,
    images_root: Annotated[str | None, typer.Option(metavar="DIR", help="As in [data.NAME], for a table.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="KEY=COLUMN", help="As in [data.NAME.columns], e.g. image=picture.")
    ] = None,
) -> None:
    """Split questions into training and test rows that share no image.

    Rows with the same image stay together, also if it was saved again or resized. The same rows and seed give the
    same split, in any order. The summary counts rows, images and rows that cannot be used.
    """
    from distill.commands.split import source_of, split_source

    recipe, name = source_of(
        source, name=data, settings={"format": form, "images_root": images_root}, columns=column or []
    )
    typer.echo(split_source(recipe, out, name=name, test=test, seed=seed))
