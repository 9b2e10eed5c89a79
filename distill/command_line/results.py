"""Commands about a run: its state, its damage, one trace, and its exports."""

import shutil
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from distill import run_log
from distill.command_line import completion
from distill.command_line.options import JsonOption, RunArgument, SetOption, local_path, open_recipe, run_place
from distill.commands.progress import result_alone, say, show, show_json
from distill.errors import RecipeError

_WATCH_S = 5.0
StoreOption = Annotated[
    str | None,
    typer.Option("--recipe", metavar="RECIPE", help="A recipe with the [store] settings for this address."),
]


def status(
    run: Annotated[
        Any,
        typer.Argument(parser=run_place, metavar="RUN|ADDRESS", help="A run directory, or a run in an object store."),
    ],
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the state again every 5 seconds, until all started stages are finished."),
    ] = False,
    json_: JsonOption = False,
    recipe: StoreOption = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--open-metrics",
            parser=local_path,
            metavar="FILE",
            help="For a run in a store: also write its numbers to a file in the format of Prometheus.",
        ),
    ] = None,
) -> None:
    """Show the state of every stage and its numbers of traces.

    For a run in a store it also shows progress and agents.
    """
    from distill.commands.store_runs import any_status

    while True:
        state, is_over = any_status(run, recipe, as_json=json_, metrics=metrics)
        (show_json if json_ else show)(state)
        if not watch:
            return
        if is_over:
            say("all started stages are finished, and no command is running: nothing more to watch")
            return
        time.sleep(_WATCH_S)


def pull(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="A finished run in a store, such as s3://bucket/run.")
    ],
    folder: Annotated[Path, typer.Argument(parser=local_path, metavar="DIR", help="A new run directory.")],
    recipe: StoreOption = None,
) -> None:
    """Copy a run from an object store to a folder. All other commands work on the folder."""
    from distill.commands.store_runs import pull_run

    show(pull_run(address, folder, recipe))


def push(
    run: RunArgument,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="A run in a store that is new or not finished, s3://bucket/run.")
    ],
    recipe: Annotated[
        str,
        typer.Option("--recipe", metavar="RECIPE", autocompletion=completion.recipes, help="The recipe of the run."),
    ],
    overrides: SetOption = None,
) -> None:
    """Copy the traces of a run to an object store, to go on there."""
    from distill.commands.store_runs import push_run

    show(push_run(open_recipe(recipe, None, overrides)[0], run, address))


def repair(
    run: RunArgument,
    apply: Annotated[
        bool, typer.Option("--apply", help="Move damaged files aside; the next run makes them again.")
    ] = False,
) -> None:
    """List damaged files of a run and the work that is lost. --apply moves them aside."""
    from distill.commands.repair import repair_run

    with run_log.recording(run, "repair") if apply else nullcontext():
        show(repair_run(run, apply=apply))


def explain(
    run: RunArgument,
    trace_id: Annotated[
        str, typer.Argument(metavar="ID", help="A trace id or its first characters, or a sample id: all its traces.")
    ],
) -> None:
    """Show a trace or a sample: signals, failed rules, duplicates."""
    from distill.commands.explain import explain_trace

    show(explain_trace(run, trace_id))


def ask(
    place: Annotated[
        str, typer.Argument(metavar="RUN|MODEL", help="A run directory; or a model: its folder or its hub name.")
    ],
    image: Annotated[Path, typer.Argument(parser=local_path, metavar="IMAGE", help="An image file.")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A question about the image.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHICH",
            autocompletion=completion.models,
            help="Ask only this kind of model: before, after or teacher; repeatable [default: all].",
        ),
    ] = None,
    student: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Also ask this student: a folder, a hub name, or URL#MODEL; repeatable."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Ask a run's students and teachers one question about an image.

    The student answers before and after training. If you give a model instead of a run, only this model answers.
    """
    from distill.commands.ask import KINDS, ReplyListener
    from distill.commands.ask import ask as ask_models
    from distill.commands.live_replies import LiveReplies, PrintedReplies

    unknown = [name for name in model or () if name not in KINDS]
    if unknown:
        raise RecipeError(f"--model {unknown[0]}: choose among {', '.join(KINDS)}")
    listener = ReplyListener()
    if not json_:
        listener = LiveReplies(shutil.get_terminal_size().columns) if sys.stdout.isatty() else PrintedReplies()
    with result_alone() if json_ else nullcontext():
        replies = ask_models(place, image, question, kinds=model or KINDS, students=student or (), listener=listener)
    if json_:
        show_json({"image": str(image), "question": question, "replies": [reply.as_fields() for reply in replies]})
    else:
        for reply in replies:
            if reply.not_asked:
                say(reply)


def view(
    run: RunArgument,
    other: Annotated[
        Path | None,
        typer.Argument(parser=local_path, metavar="OTHER", help="Another run, to compare the students of both."),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            parser=local_path, metavar="FILE", help=("The recipe into which a button of the page writes the rules.")
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 chooses a free port.")] = 0,
) -> None:
    """Show the traces of a run in a browser, to read and label them. Only this machine can open the page."""
    from distill.view.server import view_run

    view_run(run, other, recipe=recipe, port=port, on_start=lambda lines: show(f"{lines}\nstop with Ctrl-C"))


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(parser=local_path, metavar="DIR", help="A new folder.")],
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.stages,
            help="Export the student of this stage [default: the last one that learned rationales].",
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Write the student for transformers, not in the form that vLLM serves natively."
        ),
    ] = False,
    both: Annotated[bool, typer.Option("--both", help="Write both forms, to DIR/native and DIR/plain.")] = False,
    gguf: Annotated[
        Literal["f32", "f16", "q8_0"] | None,
        typer.Option(
            "--gguf",
            metavar="TYPE",
            help="Write model.gguf and mmproj.gguf for llama.cpp instead, with weights of this type: "
            "f32, f16 or q8_0. SiQ-VL students only.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help=(
                "Then compare the export with the run's student: weights, logits, and greedy replies in vLLM and "
                "transformers. With --gguf: weights, and greedy replies in llama.cpp and transformers. An existing "
                "export is compared and not written again."
            ),
        ),
    ] = False,
    prompts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --verify: number of questions [default: 64].")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT",
            autocompletion=completion.dataset_formats,
            help="Export the dataset for other trainers instead: llava, llama-factory, ms-swift or "
            "webdataset; or the pairs of a preference stage: trl-pairs, llama-factory-pairs or ms-swift-pairs; "
            "repeatable.",
        ),
    ] = None,
    lmms_eval: Annotated[
        list[str] | None,
        typer.Option(
            "--lmms-eval",
            metavar="SOURCE",
            autocompletion=completion.sources,
            help="Export the questions of a source as a task of lmms-eval instead; it uses the judge of "
            "`distill eval`; repeatable.",
        ),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help=(
                "Then upload the folder with its card to this repository of the Hugging Face hub; a new repository "
                "is private. An existing export is uploaded and not written again."
            ),
        ),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: a new repository is public.")] = False,
) -> None:
    """Export the trained student, the dataset, or tasks for lmms-eval.

    The student is merged and ready to serve.
    """
    from distill.artifacts.integrity import require_run
    from distill.commands.push import push_folder, require_pushable
    from distill.commands.stages import export_dataset, export_gguf, export_student, export_tasks

    if public and push is None:
        raise RecipeError("--public needs --push OWNER/NAME, the repository that is public")
    if prompts is not None and not verify:
        raise RecipeError("--prompts needs --verify, which asks these questions")
    if plain and both:
        raise RecipeError("--plain and --both: --both writes the plain form too; leave --plain out")
    if gguf and (plain or both or dataset or lmms_eval):
        raise RecipeError("--gguf writes another form: leave --plain, --both, --dataset and --lmms-eval out")
    of_student = {"--stage": stage, "--plain": plain, "--both": both, "--verify": verify}
    if (dataset or lmms_eval) and (given := [option for option, value in of_student.items() if value]):
        raise RecipeError(f"{', '.join(given)}: for an export of the student only; leave it out")
    if dataset and lmms_eval:
        raise RecipeError("--dataset and --lmms-eval write different things: one folder, and one command, for each")
    if push is not None:
        if both or lmms_eval:
            raise RecipeError("--push uploads one student or one dataset; leave --both and --lmms-eval out")
        require_pushable(push)
    require_run(run)
    asked = (prompts or 64) if verify else None
    reuse = verify or push is not None
    with run_log.recording(run, "export"):
        if lmms_eval:
            show(export_tasks(run, lmms_eval, out))
        elif dataset:
            if push is None or not out.exists():
                show(export_dataset(run, dataset, out))
        elif gguf:
            show(export_gguf(run, out, stage, weight_type=gguf, prompts=asked, reuse=reuse))
        else:
            forms = ("native", "plain") if both else ("plain",) if plain else ("native",)
            show(export_student(run, out, stage, forms=forms, prompts=asked, reuse=reuse))
        if push is not None:
            show(f"pushed: {push_folder(out, push, kind='dataset' if dataset else 'model', public=public)}")
