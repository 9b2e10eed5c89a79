"""Commands before a run: check and plan a recipe, write a first recipe, split data into training and test rows."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from distill.command_line import completion
from distill.command_line.options import (
    JsonOption,
    OptionalRecipe,
    RecipeArgument,
    RunOption,
    SetOption,
    local_path,
    open_other,
    open_recipe,
)
from distill.commands.progress import result_alone, show, show_json, watch
from distill.errors import RecipeError

if TYPE_CHECKING:
    from distill.recipe.recipe import Recipe

ColumnOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=COLUMN", help="As in [data.NAME.columns], e.g. image=photo; image= may be repeated."),
]


def plan(
    recipe: OptionalRecipe = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.gpus,
            help="Plan for this GPU, such as L40S [default: the GPU of this machine, or common ones].",
        ),
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0, metavar="AMOUNT", help="Price of one GPU for one hour, in any currency.")
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Print which work is done again if RECIPE replaces OTHER, a run directory or the recipe of "
            "a run. Without RECIPE, compare OTHER with a copy of it that has the values of --set.",
        ),
    ] = None,
    engine: Annotated[
        Literal["ray", "slurm"] | None,
        typer.Option(
            help="Plan generate and filter of a run in an object store: units, objects, bytes, requests, hours, "
            "money. It measures the cost of a sample on a finished small run in --run."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=("With --engine: number of samples [default: all of the source].")),
    ] = None,
    agents: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --engine: machines [default: engine.agents].")
    ] = None,
    gain: Annotated[
        bool,
        typer.Option(
            "--gain",
            help=(
                "Predict from the traces in --run how many points the rationales of each teacher gain over answers "
                "alone. It needs about 200 filtered traces of each teacher, and loads the student."
            ),
        ),
    ] = False,
    run: RunOption = None,
    json_: JsonOption = False,
    overrides: SetOption = None,
) -> None:
    """Estimate tokens, memory, hours and cost of training.

    It loads no weights. With --diff it shows what a change makes stale, with --gain whether distillation will help.

    With --engine it estimates what generate and filter take on many machines. Prices come from the recipe, such as
    --set store.price.reads=0.0004.

    With --diff it shows which keys differ, what each one makes stale, which stages stay finished, which run again,
    and how much work that is. It reads recipes and manifests, and it reads models and data if their paths differ.
    """
    if price is not None and not isfinite(price):
        raise RecipeError(f"--price {price:g}: give an amount, such as 2.5")
    if gain and (gpu is not None or engine or diff is not None or price is not None):
        raise RecipeError("--gain prints only the expected gain; leave out --gpu, --price, --diff and --engine")
    if diff is not None:
        if gpu is not None or engine or samples or agents or price is not None:
            raise RecipeError(
                "--diff only compares two recipes; leave out --gpu, --price, --engine, --samples and --agents"
            )
        from distill.planning.redo_text import redo_fields, redo_text

        with result_alone():
            before, folder = open_other(diff, run)
            now, _ = open_recipe(recipe or str(before.path), folder, overrides)
            compared = (redo_fields if json_ else redo_text)(before, now, folder, overrides or ())
        (show_json if json_ else show)(compared)
        return
    from distill.planning.plan import training_plan

    if recipe is None:
        raise RecipeError("distill plan needs a RECIPE: a TOML file, or the name of a shipped recipe")
    chosen = open_recipe(recipe, run, overrides)
    if engine:
        if gpu is not None or price is not None:
            raise RecipeError(
                "--gpu and --price are for the plan of training: leave them out. --engine plans generate and filter, "
                "by the rate of the run in --run and by the prices in the recipe (teachers.price, store.price)"
            )
        from distill.planning.scale_plan import plan_scale, scale_text

        with result_alone():
            planned = plan_scale(*chosen, engine=engine, samples=samples, agents=agents)
        (show_json(asdict(planned)) if json_ else show(scale_text(planned, chosen[0])))
        return
    if samples or agents:
        raise RecipeError("--samples and --agents need --engine ray or --engine slurm")
    if gain:
        _show_gain(*chosen, as_json=json_)
    elif json_:
        from distill.planning.plan_fields import plan_fields

        with result_alone():
            fields = plan_fields(*chosen, gpu=gpu, price=price)
        show_json(fields)
    else:
        with result_alone():
            text = training_plan(*chosen, gpu=gpu, price=price)
        show(text)


def _show_gain(recipe: "Recipe", run: Path, *, as_json: bool) -> None:
    """Measure the teachers of a run, with progress on stderr, and print their expected gains."""
    from distill.planning.gain import expected_gain
    from distill.planning.gain_text import gain_fields, gain_text

    with result_alone(), watch() as on_progress:
        expected = expected_gain(recipe, run, on_progress=on_progress)
    if as_json:
        show_json(gain_fields(expected))
    else:
        show(gain_text(expected))


def check(
    recipe: RecipeArgument,
    run: RunOption = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.gpus,
            help="Check memory for this GPU [default: the GPU of this machine].",
        ),
    ] = None,
    json_: JsonOption = False,
    overrides: SetOption = None,
) -> None:
    """Check everything that the whole run needs, before it starts.

    Takes less than a minute, and needs no GPU.

    Reads every source of every stage, checks checkpoints, packages, keys, servers, rules, disk and memory, and
    loads no weights. Problems come first, each with the recipe key and what to do; if there is one, the exit code
    is 2.
    """
    from distill.checks.recipe_checks import check_recipe

    with result_alone():
        report = check_recipe(*open_recipe(recipe, run, overrides), gpu=gpu)
        text = report.as_text()
    (show_json(report.as_fields()) if json_ else show(text))
    if report.problems:
        raise typer.Exit(2)


def split(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A table (JSONL, JSON, CSV, Parquet, tar), a folder, or a recipe.")
    ],
    out: Annotated[
        Path, typer.Option("--out", parser=local_path, metavar="DIR", help="Folder for the train and test files.")
    ],
    test: Annotated[float, typer.Option(metavar="SHARE", help="Share of the rows in the test file.")] = 0.1,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the split; another seed selects other images.")] = 0,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="The source of a recipe to split [default: questions].")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="As in [data.NAME], for a table.")] = None,
    images_root: Annotated[str | None, typer.Option(metavar="DIR", help="As in [data.NAME], for a table.")] = None,
    column: ColumnOption = None,
) -> None:
    """Split questions into training and test rows that share no image.

    Rows with the same image stay together, also if it was saved again or resized. The same rows and seed give the
    same split, in any order. The summary counts rows, images and rows that cannot be used.
    """
    from distill.commands.split import source_of, split_source

    recipe, name = source_of(
        source, name=data, settings={"format": form, "images_root": images_root}, columns=column or []
    )
    show(split_source(recipe, out, name=name, test=test, seed=seed))


def init(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="A folder of images, a table (CSV, JSONL, ...), or hub:OWNER/NAME."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", parser=local_path, metavar="DIR", help="The folder to write [default: NAME-distill]."),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A hub name, a folder, or URL#MODEL for a model on a running server."),
    ] = None,
    student: Annotated[str | None, typer.Option(metavar="MODEL", help="A hub name or a folder.")] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=completion.gpus, help="Choose models for this GPU, such as L4."),
    ] = None,
    memory: Annotated[
        float | None, typer.Option(min=1, metavar="GIB", help="Choose models for a GPU with this much memory.")
    ] = None,
    column: ColumnOption = None,
    question: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Ask this about every image of a folder; repeatable.")
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Use this many images of a folder without a table, chosen at random; 0 means all [default: 5000].",
        ),
    ] = None,
    test: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the rows in the test file [default: 0.1, and up to a third of a small table, for 100 test "
            "rows].",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the split.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the files of an earlier init.")] = False,
) -> None:
    """Write a first recipe for your own images and this machine's GPU.

    Guesses what the columns hold, splits the rows by image, and chooses a teacher and a student that fit the GPU.
    """
    from distill.commands.init import init_recipe
    from distill.commands.init_sources import HUB, FirstSettings
    from distill.commands.split import column_pairs

    is_terminal = sys.stdin.isatty()
    if source is None:
        if not is_terminal:
            raise RecipeError("distill init needs a SOURCE: a folder of images, a table, or hub:OWNER/NAME")
        source = typer.prompt("Folder of images, or table of questions", err=True)

    def ask_column(role: str, names: Sequence[str]) -> str:
        while (name := typer.prompt(f"Which column holds the {role}? ({', '.join(names)})", err=True)) not in names:
            pass
        return str(name)

    settings = FirstSettings(
        columns=column_pairs(column or []),
        questions=question or (),
        most_images=images,
        test=test,
        seed=seed,
        teacher=teacher,
        student=student,
        gpu=gpu,
        memory_gib=memory,
        force=force,
        ask=ask_column if is_terminal else None,
    )
    name = source.removeprefix(HUB).partition(":")[0] if source.startswith(HUB) else str(Path(source).resolve())
    show(init_recipe(source, out or Path(f"{Path(name).stem}-distill"), settings))
