"""Commands about a run: its state, its damage, one trace, and what leaves it."""

from pathlib import Path
from typing import Annotated

import typer

from distill.command_line.options import RunArgument, local_path
from distill.commands.progress import show
from distill.errors import RecipeError


def status(run: RunArgument) -> None:
    """Show the funnel and the state of every stage."""
    from distill.commands.status import run_status

    show(run_status(run))


def pull(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="A finished run in a store, s3://bucket/run.")],
    folder: Annotated[Path, typer.Argument(parser=local_path, metavar="DIR", help="A new run directory.")],
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="RECIPE", help="A recipe whose [store] says where it is.")
    ] = None,
) -> None:
    """Bring a run from an object store to a folder, where all other commands work on it."""
    from distill.commands.store_runs import pull_run

    show(pull_run(address, folder, recipe))


def repair(
    run: RunArgument,
    apply: Annotated[
        bool, typer.Option("--apply", help="Move damaged files aside; the next run makes them again.")
    ] = False,
) -> None:
    """List damaged files of a run and what they cost; --apply moves them aside."""
    from distill.commands.repair import repair_run

    show(repair_run(run, apply=apply))


def explain(
    run: RunArgument,
    trace_id: Annotated[str, typer.Argument(metavar="ID", help="A trace id, or its first characters.")],
) -> None:
    """Show everything about one trace: signals, rules that failed, duplicates."""
    from distill.commands.explain import explain_trace

    show(explain_trace(run, trace_id))


def view(
    run: RunArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
) -> None:
    """Look at the traces of a run in a browser, and label them: a page of this machine only."""
    from distill.view.server import view_run

    view_run(run, port=port, on_start=lambda address: show(f"{address}\nstop with Ctrl-C"))


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(parser=local_path, metavar="DIR", help="A new folder.")],
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Export the student of this stage [default: the last one that learned rationales]."
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Write the form of transformers, not the form that vLLM serves natively.")
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
    prompts: Annotated[int, typer.Option(min=1, metavar="N", help="With --verify: number of questions.")] = 64,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT",
            help="Export the dataset for other trainers instead: llava, llama-factory, ms-swift or "
            "webdataset; repeatable.",
        ),
    ] = None,
    lmms_eval: Annotated[
        list[str] | None,
        typer.Option(
            "--lmms-eval",
            metavar="SOURCE",
            help="Export the questions of a source as a task of lmms-eval instead, scored as `distill eval` "
            "judges; repeatable.",
        ),
    ] = None,
) -> None:
    """Export the trained student, merged and ready to serve; or the dataset; or tasks for lmms-eval."""
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
