"""The command line: choose a recipe, call one verb, print. Everything else lives in recipes and stages.

Data goes to stdout, progress to stderr. Heavy packages are imported inside the verbs only.
"""

import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from distill import packages, redact
from distill.commands.progress import hide_secrets, say, show
from distill.errors import DistillError, RecipeError
from distill.local_paths import address_problem
from student.distributed import processes

if TYPE_CHECKING:
    from distill.recipe.recipe import Recipe


INTERRUPTED = "distill: interrupted; run the same command again to resume"


class Commands(TyperGroup):
    """An expected error is one plain message and its exit code; anything else keeps its traceback."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except DistillError as error:
            self._end(ctx, error)
        except ImportError as error:
            plain = packages.explained(error, f"distill {ctx.invoked_subcommand}")
            if plain is None:
                raise
            self._end(ctx, plain)
        except KeyboardInterrupt:
            if processes.speaks():
                say(INTERRUPTED)
            ctx.exit(130)

    def _end(self, ctx: typer.Context, error: DistillError) -> NoReturn:
        if not processes.speaks():
            processes.hold_back()
        say(f"distill: {error}")
        ctx.exit(error.exit_code)


def _path(value: str) -> Path:
    """A path of this machine."""
    if problem := address_problem(value):
        raise typer.BadParameter(redact.message(problem))
    return Path(value)


app = typer.Typer(
    name="distill",
    cls=Commands,
    rich_markup_mode=None,
    help="Offline chain-of-thought distillation of small vision-language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
recipes_app = typer.Typer(rich_markup_mode=None, help="List or copy shipped recipes.")
app.add_typer(recipes_app, name="recipes")

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A TOML file, or the name of a shipped recipe.")
]
RunArgument = Annotated[Path, typer.Argument(parser=_path, metavar="RUN", help="A run directory.")]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", parser=_path, metavar="DIR", help="Run directory [default: runs/<recipe name>]."),
]
FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Start this stage over (what is still valid by content is reused).")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one recipe value, e.g. filter.select.per_question=2."),
]


@app.command()
def generate(
    recipe: RecipeArgument,
    run: RunOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask about this many samples only.")] = None,
    fresh: FreshOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read and check everything, ask nothing, and estimate what a run takes.")
    ] = False,
    probe: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --check: first ask about N questions, and keep that.")
    ] = None,
    replay: Annotated[
        str | None, typer.Option(metavar="ID", help="Print the request that a trace came from, as JSON.")
    ] = None,
    resend: Annotated[bool, typer.Option("--resend", help="With --replay: send it again and compare.")] = False,
    overrides: SetOption = None,
) -> None:
    """Let the teachers write reasoning traces."""
    from distill.commands.stages import check_generate, generate_stage, replay_request

    if resend and not replay:
        raise RecipeError("--resend needs --replay ID, the trace whose request is sent again")
    if probe and not check:
        raise RecipeError("--probe needs --check, which estimates a run from the questions asked")
    chosen = _open(recipe, run, overrides)
    if replay:
        show(replay_request(*chosen, replay, resend=resend))
    elif check:
        show(check_generate(*chosen, limit=limit, fresh=fresh, probe=probe or 0))
    else:
        show(generate_stage(*chosen, limit=limit, fresh=fresh))


@app.command("filter")
def filter_(
    recipe: RecipeArgument,
    run: RunOption = None,
    fresh: FreshOption = False,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Measure and write nothing: compare with what the [filter] section of another recipe would keep and "
            "select. With --set, that recipe's values are overridden.",
        ),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Measure every trace, decide, and write the dataset."""
    from distill.commands.stages import compare_policies, filter_stage

    if what_if:
        other, _ = _open(what_if, run, overrides)
        show(compare_policies(*_open(recipe, run, None), other))
    else:
        show(filter_stage(*_open(recipe, run, overrides), fresh=fresh))


@app.command()
def train(
    recipe: RecipeArgument,
    run: RunOption = None,
    stage: Annotated[str | None, typer.Option(metavar="NAME", help="Train this stage only.")] = None,
    fresh: FreshOption = False,
    overrides: SetOption = None,
) -> None:
    """Train the student, stage by stage."""
    from distill.commands.stages import train_stage

    show(train_stage(*_open(recipe, run, overrides, several=True), stage=stage, fresh=fresh))


@app.command("eval")
def eval_(
    recipe: RecipeArgument,
    run: RunOption = None,
    fresh: FreshOption = False,
    students: Annotated[
        list[str] | None,
        typer.Option(
            "--student",
            metavar="NAME=WHAT",
            help="Measure this student too, as [eval.students.NAME] would: a folder (checkpoint, export, PEFT "
            "adapter), a hub name, or URL#MODEL for one that a server has, e.g. "
            "big=http://127.0.0.1:8000/v1#Qwen3-VL-8B; may be given repeatedly.",
        ),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Measure the students on held-out questions."""
    from distill.commands.stages import eval_stage

    show(eval_stage(*_open(recipe, run, overrides, students=students), fresh=fresh))


@app.command()
def run(recipe: RecipeArgument, run: RunOption = None, overrides: SetOption = None) -> None:
    """Run all four stages in order, resuming."""
    from distill.commands.stages import all_stages

    show(all_stages(*_open(recipe, run, overrides)))


@app.command()
def ablate(
    recipe: RecipeArgument,
    run: RunOption = None,
    arm: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run this arm only; may be given repeatedly.")
    ] = None,
    study: Annotated[str | None, typer.Option(metavar="NAME", help="Run the arms of this study only.")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Train with this seed only; may be given repeatedly.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Train so many arms at a time, each in a process.")] = 1,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing: table and report of what is finished.")
    ] = False,
    fresh: FreshOption = False,
    overrides: SetOption = None,
) -> None:
    """Train again with one thing changed, and compare."""
    from distill.commands.stages import ablate_recipe

    if report and fresh:
        raise RecipeError("--report and --fresh: --report shows what is finished, --fresh sets it aside")
    chosen = _open(recipe, run, overrides)
    show(ablate_recipe(*chosen, arms=arm or (), study=study, seeds=seed or (), jobs=jobs, report=report, fresh=fresh))


@app.command()
def plan(
    recipe: RecipeArgument,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Plan for this card, such as L40S [default: the one here, or usual ones]."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0, metavar="AMOUNT", help="Of an hour of one card, in any currency.")
    ] = None,
    run: RunOption = None,
    overrides: SetOption = None,
) -> None:
    """Foretell what training takes: tokens, FLOPs, memory, hours and cost. Loads no weights."""
    from distill.planning.plan import plan as foretell

    show(foretell(*_open(recipe, run, overrides), gpu=gpu, price=price))


@app.command()
def check(
    recipe: RecipeArgument,
    run: RunOption = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Hold the stages against this card [default: the one here].")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overrides: SetOption = None,
) -> None:
    """Check everything that the whole run will need, in under a minute, without a GPU.

    Reads every source of every stage, looks at checkpoints, packages, keys, servers, rules, disk and memory, and
    loads no weights. Problems come first, each with the recipe's key and what to do; with any, the exit code is 2.
    """
    from distill.commands.stages import check_run

    text, is_fit = check_run(*_open(recipe, run, overrides), gpu=gpu, as_json=json_)
    show(text)
    if not is_fit:
        raise typer.Exit(2)


@app.command()
def split(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A table (JSONL, JSON, CSV, Parquet), a folder, or a recipe.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the train and test files.")],
    test: Annotated[float, typer.Option(metavar="SHARE", help="Share of the rows in the test file.")] = 0.1,
    seed: Annotated[int, typer.Option(metavar="N", help="Another seed chooses other pictures.")] = 0,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="The source of a recipe to split [default: questions].")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="As in [data.NAME], for a table.")] = None,
    images_root: Annotated[str | None, typer.Option(metavar="DIR", help="As in [data.NAME], for a table.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="KEY=COLUMN", help="As in [data.NAME.columns], e.g. image=picture.")
    ] = None,
) -> None:
    """Split questions into training and test rows that share no picture.

    Rows about the same picture stay together, also where it was saved or resized again. The same rows and seed give
    the same split, whatever their order; the summary counts rows and pictures and what could not be used.
    """
    from distill.commands.split import source_of
    from distill.commands.split import split as split_source

    recipe, name = source_of(
        source, name=data, settings={"format": form, "images_root": images_root}, columns=column or []
    )
    typer.echo(split_source(recipe, out, name=name, test=test, seed=seed))


@app.command()
def status(run: RunArgument) -> None:
    """Show the funnel and the state of every stage."""
    from distill.commands.status import status as read_status

    show(read_status(run))


@app.command()
def repair(
    run: RunArgument,
    apply: Annotated[bool, typer.Option("--apply", help="Set it aside; the stages make it again.")] = False,
) -> None:
    """Say which files of a run are damaged and what that costs; with --apply set them aside."""
    from distill.commands.repair import repair as repair_run

    show(repair_run(run, apply=apply))


@app.command()
def explain(
    run: RunArgument,
    trace_id: Annotated[str, typer.Argument(metavar="ID", help="A trace id, or its first characters.")],
) -> None:
    """Show everything known of one trace."""
    from distill.commands.explain import explain as explain_trace

    show(explain_trace(run, trace_id))


@app.command()
def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(parser=_path, metavar="DIR", help="A new folder.")],
    stage: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The student of this stage [default: the last that learned rationales]."),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="As transformers trained it, not in the form that vLLM serves natively.")
    ] = False,
    both: Annotated[bool, typer.Option("--both", help="Write both forms, to DIR/native and DIR/plain.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Then prove it: same weights and logits as the run's student, and in a real vLLM the same greedy "
            "replies as in transformers. An export that is there already is proven as it is.",
        ),
    ] = False,
    prompts: Annotated[int, typer.Option(min=1, metavar="N", help="With --verify: so many questions.")] = 64,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT",
            help="Instead of the student write the dataset for other trainers: llava, llama-factory, ms-swift or "
            "webdataset; may be given repeatedly.",
        ),
    ] = None,
    lmms_eval: Annotated[
        list[str] | None,
        typer.Option(
            "--lmms-eval",
            metavar="SOURCE",
            help="Instead of the student write a source's questions as a task of lmms-eval, judged as `distill eval` "
            "judges; may be given repeatedly.",
        ),
    ] = None,
) -> None:
    """Write the trained student, merged and ready to be served; or the dataset; or questions for lmms-eval."""
    from distill.commands.stages import export_dataset, export_student, export_tasks

    if plain and both:
        raise RecipeError("--plain and --both: --both writes the plain form too; leave --plain out")
    if dataset and lmms_eval:
        raise RecipeError("--dataset and --lmms-eval write different things: one folder, and one command, for each")
    if dataset or lmms_eval:
        show(export_dataset(run, dataset, out) if dataset else export_tasks(run, lmms_eval or [], out))
        return
    forms = ("native", "plain") if both else ("plain",) if plain else ("native",)
    show(export_student(run, out, stage, forms=forms, prompts=prompts if verify else None))


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """List the shipped recipes."""
    if context.invoked_subcommand is None:
        from distill.recipe.loading import shipped

        for name, path in shipped().items():
            purpose = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            show(f"{name:<24} {purpose}")


@recipes_app.command("copy")
def copy_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped recipe.")],
    destination: Annotated[Path, typer.Argument(parser=_path, metavar="DEST", help="Folder or file.")] = Path(),
) -> None:
    """Copy a shipped recipe, with its assets, to edit it."""
    from distill.commands.stages import copy_shipped

    show(copy_shipped(name, destination))


@recipes_app.command("schema")
def print_schema() -> None:
    """Print the JSON schema of a recipe, for editors."""
    import json

    from distill.recipe.loading import schema

    show(json.dumps(schema(), indent=2))


def _open(
    name: str,
    run: Path | None,
    overrides: list[str] | None,
    *,
    several: bool = False,
    students: list[str] | None = None,
) -> "tuple[Recipe, Path]":
    """The recipe and its run directory, for a command that takes `several` processes or not."""
    from distill.recipe.eval import student_values
    from distill.recipe.loading import load

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


def _interrupt(_signal: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now: an event loop ends its requests in order first."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def main() -> None:
    """The `distill` command."""
    # A scheduler's SIGTERM ends a run as cleanly as Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's job in the background. Blocked has the same effect, and event loops still see an end coming.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hide_secrets()
    # Threads of torch that wait by spinning stand in each other's way on a busy machine: 83 s against 9 s for the
    # same traces on two cores with two other processes. Read when torch is loaded, so it is set here.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if processes.count() > 1:
        processes.end_on_signals(INTERRUPTED)
        if not processes.is_main():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    try:
        app()
    except Exception:
        say(traceback.format_exc())
        sys.exit(1)
