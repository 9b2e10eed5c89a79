"""Commands on runs in an object store."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from distill import packages, redact
from distill.artifacts.files import locked, write_text
from distill.artifacts.manifest import Manifest
from distill.commands.progress import duration, watch
from distill.commands.status import FUNNEL, damage, funnel, is_over, run_status, status_fields
from distill.damaged_runs import damage_named
from distill.errors import InputError, StaleError
from distill.local_paths import as_argument
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import endpoint_named, open_store
from distill.object_store.recipe_stores import open_run_store
from distill.python_api import verbs
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.scale import StoreSettings
from distill.reports.text_table import table
from distill.types import Progress, ProgressCallback, unwatched
from distill.units.run_state import RunState, read_run_state
from distill.units.stored_run import finished_plan, own_scratch, pull_generate
from distill.units.stored_stage import pull_stage
from distill.units.unfinished_stage import pull_newest
from distill.word_tables import counted

_PULLED_FROM = ".pulled_from"
"""The address of a run that a folder does not have in whole yet."""


def generate_stage_in_store(recipe: Recipe, address: str, overrides: Sequence[str], *, limit: int | None) -> str:
    """Let the teachers answer, here, by Slurm jobs or on Ray; plan, traces and manifest go to the store."""
    from teacher.store_run import generate_in_store

    if recipe.engine.kind == "slurm":
        return _submit_agents(recipe, "generate", address, overrides, ["--limit", str(limit)] if limit else [])
    if recipe.engine.kind == "ray":
        _keep_agents(recipe, "generate", address, partial(_answer_here, recipe, address, limit))
        # Finished in the store: joining it here asks nothing, and shows the result.
    with own_scratch(recipe, address) as scratch, watch() as on_progress:
        run = scratch / "run"
        compared = verbs.compare_asked(recipe, run)
        manifest = generate_in_store(recipe, address, scratch, limit=limit, on_progress=on_progress)
        blocks = [funnel(run), damage(run), _errors_kept(recipe, manifest, address)]
        blocks += [compared.summary()] if compared is not None else []
    return "\n\n".join(block for block in blocks if block) + f"\ntraces: {address}"


def store_command(verb: str, recipe: Recipe, address: str, *arguments: str) -> str:
    """A command on a run in a store, as a message shows it; settings of the store are in the recipe."""
    settings = ("--recipe", as_argument(recipe.path)) if recipe.store != StoreSettings() else ()
    return " ".join(("distill", verb, as_argument(address), *arguments, *settings))


def _errors_kept(recipe: Recipe, manifest: Manifest, address: str) -> str:
    """How errors are asked again, which the units of a store keep; empty without any."""
    if not (count := manifest.counts["errors_to_ask_again"]):
        return ""
    return (
        f"{counted(count, 'trace')} ended in an error, and this command does not ask them again: "
        f"{store_command('pull', recipe, address, 'DIR')}, then distill generate RECIPE --run DIR"
    )


def filter_stage_in_store(recipe: Recipe, address: str, overrides: Sequence[str], *, fresh: bool) -> str:
    """Filter, here, by Slurm jobs or on Ray; signals, decisions, dataset and report go to the store."""
    if recipe.engine.kind == "slurm":
        return _submit_agents(recipe, "filter", address, overrides, ["--fresh"] if fresh else [])
    if recipe.engine.kind == "ray":
        _keep_agents(recipe, "filter", address, partial(_filter_here, recipe, address, fresh=fresh))
        # As for generate: it is finished, and this shows the result.
    with watch() as on_progress:
        manifest = _filter_here(recipe, address, fresh=fresh, on_progress=on_progress)
    counts = table(("filter", "traces"), [(name, f"{manifest.counts[name]:,}") for name in FUNNEL["filter"]])
    return f"{counts}\ndataset: {address}; {store_command('pull', recipe, address, 'DIR')}"


def _submit_agents(recipe: Recipe, verb: str, address: str, overrides: Sequence[str], options: Sequence[str]) -> str:
    """Submit an array of Slurm jobs that each run this command with the local engine."""
    from distill.placement.slurm_jobs import submit_array

    command = [sys.executable, "-m", *local_command(recipe, verb, address, overrides), *options]
    folder, agents = slurm_folder(recipe), recipe.engine.agents
    job = submit_array(command, folder, name=f"distill-{recipe.name}", elements=agents, options=recipe.engine.slurm)
    return f"job {job}: {counted(agents, 'agent')}; logs: {folder}\nstate: {store_command('status', recipe, address)}"


def local_command(recipe: Recipe, verb: str, address: str, overrides: Sequence[str]) -> list[str]:
    """The command of a verb on a run in a store, for a process on any machine that sees the recipe."""
    open_store(
        address, config=recipe.store.client_options(), read_only=True
    )  # refuses here what each job would refuse
    command = ["distill", verb, str(recipe.path.resolve()), "--run", address, "--engine", "local"]
    return [*command, *(part for text in overrides for part in ("--set", text))]


def slurm_folder(recipe: Recipe) -> Path:
    """Where the files and logs of Slurm jobs lie."""
    return Path("runs").resolve() / recipe.name / "slurm"


def _keep_agents(recipe: Recipe, verb: str, address: str, work: Callable[[], object]) -> None:
    """Let agents of a Ray cluster do the work of a verb, and show the run's progress, until it is finished."""
    packages.require('engine.kind = "ray"', "ray")
    from distill.placement.ray_cluster import keep_agents

    store, engine = open_run_store(recipe, address), recipe.engine
    with watch() as on_progress:
        keep_agents(
            partial(_work_as_agent, work),
            agents=engine.agents,
            restarts=engine.restarts,
            resources=engine.ray,
            follow=lambda: _follow(verb, store, on_progress),
        )


def _work_as_agent(work: Callable[[], object]) -> None:
    """What a process of another machine does; its result is in the store."""
    redact.know_environment()
    work()


def _answer_here(recipe: Recipe, address: str, limit: int | None) -> None:
    from teacher.store_run import generate_in_store

    with own_scratch(recipe, address) as scratch:
        generate_in_store(recipe, address, scratch, limit=limit)


def _filter_here(recipe: Recipe, address: str, *, fresh: bool, on_progress: ProgressCallback = unwatched) -> Manifest:
    from distill.wiring.model_signals import measurers
    from filters.store_run import filter_in_store

    with own_scratch(recipe, address) as scratch:
        models = measurers(recipe, scratch / "run")
        return filter_in_store(recipe, address, scratch, fresh=fresh, measurers=models, on_progress=on_progress)


def _follow(verb: str, store: ObjectStore, on_progress: ProgressCallback) -> None:
    try:
        state = read_run_state(store)
    except StaleError:  # the source is still read
        return
    agents = sum(bool(agent["works"]) for agent in state.agents)
    if verb == "filter":
        report = Progress(stage="filter: signals", done=state.measured, total=state.partitions, unit="units")
        if state.written[1]:
            report = Progress(stage="filter: dataset", done=state.written[0], total=state.written[1], unit="units")
    else:
        report = Progress(stage="generate", done=state.traces, total=state.total_traces, unit="traces")
        report = replace(report, facts={"units": f"{state.done:,} of {state.units:,}"})
    on_progress(replace(report, facts={**report.facts, "agents": agents}))


def any_status(
    run: Path | str, recipe: str | None, *, as_json: bool, metrics: Path | None = None
) -> tuple[str | dict[str, Any], bool]:
    """The state of a run in a folder or a store, as text or as plain values for JSON, and whether the whole run is
    over.

    The state of a run in a store is also written to the file `metrics`, for a monitoring system.
    """
    if isinstance(run, str):
        return _store_status(run, recipe, as_json=as_json, metrics=metrics)
    if metrics is not None:
        raise InputError(f"--open-metrics {metrics}: {run} is a folder; give the address of a run in a store")
    with damage_named(run):
        return (status_fields(run) if as_json else run_status(run)), is_over(run)


def _store_status(
    address: str, recipe: str | None, *, as_json: bool, metrics: Path | None
) -> tuple[str | dict[str, Any], bool]:
    options = load(recipe).store.client_options() if recipe else None
    with endpoint_named(address, options):
        store = open_store(address, config=options, read_only=True)
        state = read_run_state(store)
    if metrics is not None:
        write_text(metrics, _metrics_text(state, store.address))
    if as_json:
        return state.as_fields(), state.is_over
    eta = f", at most {duration(state.eta_s)} left" if state.eta_s and state.done < state.units else ""
    lines = [
        f"units: {state.done:,} of {state.units:,} committed, {state.claimed:,} at work, {state.waiting:,} waiting",
        f"traces: about {state.traces:,} of {state.total_traces:,} committed, {state.traces_per_s:.1f}/s{eta}",
        *_stage_lines(state),
    ]
    rows = [
        (
            f"{agent['host']} {agent['pid']}",
            "works" if agent["works"] else "lost",
            f"{agent['silent_s']:,.0f} s ago",
            _work_of(agent),
            f"{agent['traces']:,}",
            f"{agent['traces'] / max(agent['seconds'], 1e-9):.1f}",
            str(agent.get("in_flight", 0)),
            ", ".join(f"{name} {count:,}" for name, count in agent.get("outcomes", {}).items() if name != "complete"),
        )
        for agent in state.agents
    ]
    if rows:
        head = ("agent", "state", "last sign", "units", "traces", "/s", "in flight", "not complete")
        lines += ["", table(head, rows)]
    lines += [
        f"failed {duration(each['silent_s'])} ago: {each['host']} {each['pid']}: {each['error']}"
        for each in sorted(state.failures, key=lambda each: -float(each["silent_s"]))
    ]
    return "\n".join(lines), state.is_over


def _work_of(agent: Mapping[str, Any]) -> str:
    """The units of an agent, or how far its stage is."""
    if (progress := agent.get("progress")) is not None:
        return f"{progress['stage']} {progress['done']:,} of {progress['total']:,} {progress['unit']}"
    return " ".join(agent.get("units", ()))


def _stage_lines(state: RunState) -> list[str]:
    counts = state.filtered.items()
    lines = (
        [f"filter: signals of {state.measured:,} of {counted(state.partitions, 'partition')}"]
        if state.measured
        else []
    )
    done, units = state.written
    lines += [f"filter: dataset, {done:,} of {counted(units, 'unit')} of this round are written"] if units else []
    told = ", ".join(f"{name} {count:,}" for name, count in counts if name in FUNNEL["filter"])
    finished = [("filter", told)] if told else []
    if state.trained:
        finished.append(("train", f"stages {state.trained['stages']:,}, steps {state.trained['steps']:,}"))
    if state.evaluated:
        finished.append(("eval", f"arms {state.evaluated['arms']:,}, questions {state.evaluated['questions']:,}"))
    return [*lines, *(f"{stage}: finished; {counted}" for stage, counted in finished)]


def push_run(recipe: Recipe, folder: Path, address: str) -> str:
    """Begin a run in a store with the traces that a run in a folder has."""
    from teacher.pushed_traces import push_traces

    with own_scratch(recipe, address) as scratch, watch() as on_progress:
        pushed = push_traces(recipe, folder, address, scratch, on_progress=on_progress)
    lines = [f"{name}: {counted(count, 'trace is', 'traces are')} not asked again" for name, count in pushed.items()]
    return "\n".join([*lines, f"distill generate RECIPE --run {as_argument(address)} asks for the others"])


def pull_run(address: str, folder: Path, recipe: str | None) -> str:
    """Bring a finished run to a new folder, or to one that an interrupted pull of it has begun."""
    from distill.reports.html import write_links

    options = load(recipe).store.client_options() if recipe else None
    with endpoint_named(address, options):  # a refused call creates no folder
        finished_plan(open_store(address, config=options, read_only=True))
    store = open_store(address, config=options, read_only=True, patient=True)
    begun = folder / _PULLED_FROM
    if folder.exists() and not folder.is_dir():
        raise StaleError(f"{folder}: a file stands there; give a new folder")
    if folder.exists() and any(folder.iterdir()) and not (begun.is_file() and begun.read_text() == store.address):
        raise StaleError(f"{folder}: not empty; give a new folder")
    with locked(folder):
        write_text(begun, store.address)
        generated = pull_generate(store, folder)
        filtered = pull_stage(store, "filter", folder / "filter")
        for stage in ("train", "eval"):
            pull_newest(store, stage, folder / stage)
        write_links(folder)
        begun.unlink()
    there = f"{folder}: {counted(generated.counts['traces'], 'trace')}"
    if filtered is None:
        return f"{there}; distill filter RECIPE --run {as_argument(folder)}"
    there += f", {filtered.counts['selected']:,} selected"
    if Manifest.read(folder / "train") is None:
        return f"{there}; distill train RECIPE --run {as_argument(folder)}"
    if Manifest.read(folder / "eval") is None:
        return f"{there}, all stages trained; distill eval RECIPE --run {as_argument(folder)}"
    return f"{there}, trained and evaluated; distill status {as_argument(folder)}"


def _metrics_text(state: RunState, address: str) -> str:
    """Gauges of units, traces and agents for a monitoring system, in the text format of Prometheus and OpenMetrics.

    They are labelled with the address of the run; traces are about those committed.
    """
    agents = [bool(agent["works"]) for agent in state.agents]
    gauges: Sequence[tuple[str, str, Sequence[tuple[str, float]]]] = (
        (
            "distill_units",
            "Units of generate by state.",
            (("committed", state.done), ("claimed", state.claimed), ("waiting", state.waiting)),
        ),
        ("distill_units_measured", "Units whose signals are committed.", (("", state.measured),)),
        (
            "distill_traces",
            "Traces of generate.",
            (("committed", state.traces), ("open", state.total_traces - state.traces)),
        ),
        ("distill_traces_per_second", "Traces a second of all agents that work.", (("", state.traces_per_s),)),
        ("distill_agents", "Agents by state.", (("works", sum(agents)), ("lost", len(agents) - sum(agents)))),
        ("distill_agents_failed", "Agents that ended with an error.", (("", len(state.failures)),)),
    )
    lines = []
    for name, told, values in gauges:
        lines += [f"# HELP {name} {told}", f"# TYPE {name} gauge"]
        for label, value in values:
            labels = f'run="{_escaped(address)}"' + (f',state="{label}"' if label else "")
            number = f"{value:g}" if isinstance(value, float) else value
            lines.append(f"{name}{{{labels}}} {number}")
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
