"""Commands that run stages: generate, filter, train, eval, all of them, and ablations."""

from typing import TYPE_CHECKING, Annotated

import typer

from distill.command_line import completion
from distill.command_line.options import (
    FreshOption,
    JsonOption,
    PlaceOption,
    RecipeArgument,
    RunOption,
    SetOption,
    StageJobsOption,
    StudentJobsOption,
    WholeJobsOption,
    open_recipe,
)
from distill.commands.progress import result_alone, show, show_json, show_result
from distill.errors import ArmsFailed, RecipeError

if TYPE_CHECKING:
    from distill.recipe.recipe import Recipe


EngineOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        autocompletion=completion.engines,
        help="Where the agents of a run in an object store work: local, slurm or ray [default: engine.kind].",
    ),
]


def generate(
    recipe: RecipeArgument,
    run: PlaceOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask at most this many samples.")] = None,
    fresh: FreshOption = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check everything without asking a teacher, and estimate tokens, time and cost."
        ),
    ] = False,
    probe: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --check: first ask N questions, and keep their traces."),
    ] = None,
    replay: Annotated[
        str | None, typer.Option(metavar="ID", help="Print the request that a trace came from, as JSON.")
    ] = None,
    resend: Annotated[
        bool, typer.Option("--resend", help="With --replay: send the request again, and compare the replies.")
    ] = False,
    engine: EngineOption = None,
    overrides: SetOption = None,
) -> None:
    """Generate reasoning traces with the teachers."""
    from distill.commands.stages import check_generate, generate_stage

    if resend and not replay:
        raise RecipeError("--resend needs --replay ID, the trace whose request is sent again")
    if replay and (check or fresh or limit):
        raise RecipeError("--replay prints one request; leave --check, --fresh and --limit out")
    if probe and not check:
        raise RecipeError("--probe needs --check, which estimates a run from the questions asked")
    if isinstance(run, str):
        from distill.commands.store_runs import generate_stage_in_store

        if replay or check or fresh:
            raise RecipeError(
                f"{run}: --check, --replay and --fresh work on a run directory; `distill pull` brings one here"
            )
        opened = _open_with_engine(recipe, overrides, engine)
        show_result(lambda: generate_stage_in_store(opened, run, overrides or (), limit=limit))
        return
    _refuse_engine(engine)
    chosen = open_recipe(recipe, run, overrides)
    if replay:
        from teacher.replay import replay as replay_request

        with result_alone():
            request = replay_request(*chosen, replay, resend=resend)
        show_json(request)
    elif check:
        show_result(lambda: check_generate(*chosen, limit=limit, fresh=fresh, probe=probe or 0))
    else:
        show_result(lambda: generate_stage(*chosen, limit=limit, fresh=fresh))


def _open_with_engine(
    recipe: str, overrides: list[str] | None, engine: str | None, *, several: bool = False
) -> "Recipe":
    chosen = [*(overrides or ()), *([f"engine.kind={engine}"] if engine else [])]
    return open_recipe(recipe, None, chosen, several=several)[0]


def _refuse_engine(engine: str | None, nodes: int | None = None) -> None:
    if engine or nodes:
        option = "--engine" if engine else "--nodes"
        raise RecipeError(f"{option} needs --run ADDRESS: several machines share a run in an object store")


def _require_cluster(recipe: "Recipe", engine: str | None, nodes: int | None) -> None:
    """Raise RecipeError where --engine or --nodes is given without the other one that it needs."""
    kind = recipe.engine.kind
    if nodes and kind == "local":
        raise RecipeError(
            f"--nodes {nodes} needs --engine ray or --engine slurm; to start the processes yourself, use torchrun"
        )
    if engine and kind != "local" and recipe.engine.nodes is None:
        raise RecipeError(f"--engine {engine}: add --nodes N, the number of machines that train together")


def filter_(
    recipe: RecipeArgument,
    run: PlaceOption = None,
    fresh: FreshOption = False,
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            autocompletion=completion.recipes,
            help="Measure nothing and write nothing. Show what the [filter] section of another recipe would keep and "
            "select. --set then overrides values of that recipe.",
        ),
    ] = None,
    engine: EngineOption = None,
    overrides: SetOption = None,
) -> None:
    """Measure traces, apply rules, select, and write the dataset."""
    from distill.commands.stages import compare_policies, filter_stage

    if isinstance(run, str):
        from distill.commands.store_runs import filter_stage_in_store

        if what_if:
            raise RecipeError(f"{run}: --what-if works on a run directory; `distill pull` brings one here")
        opened = _open_with_engine(recipe, overrides, engine)
        show_result(lambda: filter_stage_in_store(opened, run, overrides or (), fresh=fresh))
        return
    _refuse_engine(engine)
    if what_if:
        if fresh:
            raise RecipeError("--what-if writes nothing; leave --fresh out")
        alternative, _ = open_recipe(what_if, run, overrides)
        show_result(lambda: compare_policies(*open_recipe(recipe, run, None), alternative))
    else:
        show_result(lambda: filter_stage(*open_recipe(recipe, run, overrides), fresh=fresh))


def train(
    recipe: RecipeArgument,
    run: PlaceOption = None,
    stage: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=completion.stages, help="Train this stage only."),
    ] = None,
    jobs: StageJobsOption = 1,
    fresh: FreshOption = False,
    engine: EngineOption = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With engine slurm or ray: machines that train one student together [default: engine.nodes].",
        ),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Train the student, stage by stage."""
    from distill.commands.stages import train_stage

    if isinstance(run, str):
        from distill.commands.store_stages import train_stage_in_store

        chosen = [*(overrides or ()), *([f"engine.nodes={nodes}"] if nodes else [])]
        opened = _open_with_engine(recipe, chosen, engine, several=True)
        _require_cluster(opened, engine, nodes)
        show_result(lambda: train_stage_in_store(opened, run, overrides or (), stage=stage, jobs=jobs, fresh=fresh))
        return
    _refuse_engine(engine, nodes)
    show_result(
        lambda: train_stage(*open_recipe(recipe, run, overrides, several=True), stage=stage, jobs=jobs, fresh=fresh)
    )


def eval_(
    recipe: RecipeArgument,
    run: PlaceOption = None,
    fresh: FreshOption = False,
    students: Annotated[
        list[str] | None,
        typer.Option(
            "--student",
            metavar="NAME=WHAT",
            help="Also evaluate this student, as with [eval.students.NAME]: a folder (checkpoint, export, PEFT "
            "adapter), a hub name, or URL#MODEL for a model on a running server, e.g. "
            "big=http://127.0.0.1:8000/v1#Qwen3-VL-8B; repeatable.",
        ),
    ] = None,
    jobs: StudentJobsOption = 1,
    json_: JsonOption = False,
    overrides: SetOption = None,
) -> None:
    """Evaluate students on held-out questions."""
    from distill.commands.stages import eval_stage
    from distill.commands.status import evaluation_fields

    with result_alone():
        if isinstance(run, str):
            from distill.commands.store_stages import eval_stage_in_store

            opened, _ = open_recipe(recipe, None, overrides, students=students)
            text, fields = eval_stage_in_store(opened, run, fresh=fresh, jobs=jobs)
        else:
            opened, folder = open_recipe(recipe, run, overrides, students=students)
            text, fields = eval_stage(opened, folder, fresh=fresh, jobs=jobs), evaluation_fields(folder)
    if json_:
        show_json(fields)
    else:
        show(text)


def run(
    recipe: RecipeArgument,
    run: PlaceOption = None,
    jobs: WholeJobsOption = 1,
    redo_stale: Annotated[
        bool,
        typer.Option(
            "--redo-stale",
            help="Make every stale stage again. A stage is stale if other settings or an older version made it. "
            "Valid traces and signals are reused; the last result of a stage stays in <stage>.previous.",
        ),
    ] = False,
    engine: EngineOption = None,
    overrides: SetOption = None,
) -> None:
    """Run all four stages and the rounds of the recipe, or resume."""
    from distill.commands.whole_run import all_stages

    if isinstance(run, str):
        from distill.commands.store_stages import all_stages_in_store

        if redo_stale:
            raise RecipeError(f"{run}: --redo-stale works on a run directory; here each stage takes --fresh")
        show_result(
            lambda: all_stages_in_store(_open_with_engine(recipe, overrides, engine), run, overrides or (), jobs=jobs)
        )
        return
    _refuse_engine(engine)
    show_result(lambda: all_stages(*open_recipe(recipe, run, overrides), jobs=jobs, redo_stale=redo_stale))


def ablate(
    recipe: RecipeArgument,
    run: RunOption = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", autocompletion=completion.arms, help="Run this arm only; repeatable."),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=completion.studies, help="Run the arms of this study only."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Train with this seed only; repeatable.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Train this number of arms at the same time. Each arm has its own process, and its own GPU if there "
            "are several.",
        ),
    ] = 1,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing: show the table and write the report of finished arms.")
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Run nothing: print the smallest difference that these arms, seeds and questions can show with a "
            "probability of 80 %, and their cost.",
        ),
    ] = False,
    fresh: FreshOption = False,
    json_: JsonOption = False,
    overrides: SetOption = None,
) -> None:
    """Train and compare variants of the recipe with one change each."""
    from distill.ablation.power import statement_text
    from distill.ablation.runner import AskedArms
    from distill.commands.stages import ablate_recipe, ablation_text, plan_ablation, report_ablation
    from distill.commands.status import ablation_fields

    failed: ArmsFailed | None = None
    if report + fresh + plan > 1:
        raise RecipeError(
            "choose one of --plan (before the runs), --report (show finished arms) and --fresh (make all arms again)"
        )
    if arm and study:
        raise RecipeError("--arm and --study both choose arms; give one of them")
    opened, folder = open_recipe(recipe, run, overrides)
    asked = AskedArms(arms=arm or (), study=study, seeds=seed or ())
    with result_alone():
        if plan:
            fields = plan_ablation(opened, folder, asked)
            text = statement_text(fields)
        else:
            if report:
                text = report_ablation(opened, folder, asked)
            else:
                try:
                    text = ablate_recipe(opened, folder, asked, jobs=jobs, fresh=fresh)
                except ArmsFailed as error:  # the results of the others are written
                    failed, text = error, ablation_text(folder, asked)
            fields = ablation_fields(folder)
    if json_:
        show_json(fields)
    else:
        show(text)
    if failed is not None:
        raise failed
