"""What a run in an object store takes on many machines: units, objects, bytes, requests, hours and money.

What a sample takes is measured on a finished small run. Without one, traces and tokens are the most that the recipe
allows, and bytes and hours are not known. Prices come from the recipe (`teachers.price`, `store.price`); without a
price the cost is not known. The plan counts the requests of teacher/store_run.py and filters/store_run.py without
failures.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import SAMPLES, SIGNALS, dataset_file_rows
from distill.artifacts.manifest import Manifest
from distill.errors import RecipeError
from distill.planning import image_packing
from distill.planning.finished_traces import traces_of_teacher
from distill.planning.image_packing import StoredImages
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.teachers import Teacher
from distill.reports.text_table import byte_size, table, time_span
from distill.trace_records.token_counts import output_tokens
from distill.trace_records.trace_lines import trace_fault
from distill.types import Outcome
from distill.units.agent_record import BEATS
from distill.units.commits import compress
from distill.units.partitions import range_count
from distill.word_tables import counted
from filters.run_signals.shared_keys import MOST_BUCKETS
from teacher.estimate import attempt_growth, summarize_journals
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.store.trace_journal import trace_parts

_RUN_OBJECTS, _RUN_WRITES, _RUN_READS = 20, 87, 33
"""Estimated objects and requests of a whole run: plan, manifests, files of the filter, begin and end of an agent."""
_COMPRESSED = 8 << 20
"""Bytes of a journal that are compressed to estimate the size of all traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherLoad:
    """What a teacher does for one sample, in the mean. Bytes count compressed traces."""

    teacher: str
    traces: float
    output_tokens: float | None
    prompt_tokens: float | None = None
    bytes: float | None = None
    tokens_per_s: float | None = None
    """Tokens a second of one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLoad:
    """What one sample takes, in the mean. None means "not known"."""

    teachers: tuple[TeacherLoad, ...]
    sample_bytes: float | None = None
    signal_bytes: float | None = None
    filter_bytes: float | None = None
    """Bytes of all files of a finished filter stage."""
    filter_s: float | None = None
    """Seconds of `filter` on one machine."""
    images: StoredImages | None = None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """A run of many machines. None means "not known"; `filter_hours`: at least and at most."""

    engine: str
    agents: int
    samples: int
    units: int
    basis: str
    traces: float
    output_tokens: float | None
    objects: int
    store_bytes: float | None
    unit_s: float | None
    generate_hours: float | None
    filter_hours: tuple[float, float] | None
    writes: float | None
    """PUT and LIST requests, which stores charge alike."""
    reads: float | None
    costs: dict[str, float | None] = field(default_factory=dict)
    """Costs by kind; `storage` is for a month."""


def plan_scale(recipe: Recipe, run: Path, *, engine: str, samples: int | None, agents: int | None) -> ScalePlan:
    """The plan of a recipe's generate and filter stages, by what a finished `run` of it took.

    `samples` None: the number of samples of the source. Raises RecipeError where their number is unknown.
    """
    if not recipe.teachers:
        raise RecipeError(f"{recipe.path}: distill plan --engine needs [[teachers]]: it plans generate and filter")
    count, machines = samples or _samples(recipe), agents or recipe.engine.agents
    load = measured_load(recipe, run) or _largest_load(recipe)
    rounds = group_teachers(recipe.teachers, batches_apart=True)
    partitions = range_count(count, recipe.engine.unit_rows)
    by_round = _generate_hours(load, rounds, count, machines)
    hours = sum(by_round) if by_round is not None else None
    filter_hours = None
    if load.filter_s is not None:
        alone = load.filter_s * count / 3600
        filter_hours = alone / machines, alone
    store_bytes = _bytes(load, count)
    traces = count * sum(each.traces for each in load.teachers)
    tables = range_count(math.ceil(traces), recipe.filter.partition_rows)
    files = math.ceil(traces / dataset_file_rows(math.ceil(traces)))
    requests = _requests(recipe, partitions, rounds, machines, hours, files, tables)
    shards = 0
    if load.images is not None:
        shards, packing = image_packing.count_requests(load.images, count, partitions, len(rounds))
        requests = (requests[0] + packing[0], requests[1] + packing[1]) if requests and packing else None
    outputs = [each.output_tokens for each in load.teachers]
    return ScalePlan(
        engine=engine,
        agents=machines,
        samples=count,
        units=partitions * len(rounds),
        basis=load.basis,
        traces=traces,
        output_tokens=None if None in outputs else count * sum(filter(None, outputs)),
        objects=_objects(recipe, partitions, len(rounds), tables) + shards,
        store_bytes=store_bytes,
        unit_s=None if hours is None else _unit_seconds(hours, machines, partitions, rounds),
        generate_hours=hours,
        filter_hours=filter_hours,
        writes=requests[0] if requests else None,
        reads=requests[1] if requests else None,
        costs=_costs(recipe, load, count, _server_hours(rounds, by_round, machines), requests, store_bytes),
    )


def _samples(recipe: Recipe) -> int:
    from student.training.cost.workload import questions

    count = questions(recipe, ASKED) if ASKED in recipe.data else None
    if not count:
        why = "is not here" if count is None else "holds no question that can be read"
        raise RecipeError(f"{recipe.path}: the source of [data.questions] {why}; give --samples N")
    return count


def measured_load(recipe: Recipe, run: Path) -> SampleLoad | None:
    """What a sample of a finished run took; None where generate is not finished there."""
    generated = Manifest.read(run / "generate")
    if generated is None or not generated.counts.get("samples"):
        return None
    count = generated.counts["samples"]
    unasked = [each.name for each in recipe.teachers if f"teachers.{each.name}.model" not in generated.fields]
    teachers = tuple(
        _largest_teacher(recipe, each)
        if each.name in unasked
        else _measured_teacher(run / "generate" / each.name, each.name, generated)
        for each in recipe.teachers
    )
    filtered, folder = Manifest.read(run / "filter"), run / "filter"
    size = (run / "generate" / SAMPLES).stat().st_size / count
    images = image_packing.measure_load(recipe, run / "generate" / SAMPLES, count)
    basis = f"the {counted(count, 'sample')} of {run}"
    if unasked:
        basis += f"; of {', '.join(unasked)}, which it did not ask, by the maximum that the recipe allows"
    load = SampleLoad(teachers=teachers, sample_bytes=size, images=images, basis=basis)
    if filtered is None:
        return load
    return replace(
        load,
        signal_bytes=_folder_bytes(folder / SIGNALS) / count,
        filter_bytes=_folder_bytes(folder) / count,
        # If signals were reused, its seconds cover only the other signals.
        filter_s=None if filtered.counts.get("reused") else filtered.seconds / count,
    )


def _measured_teacher(folder: Path, name: str, generated: Manifest) -> TeacherLoad:
    summary = summarize_journals(folder)
    parts = trace_parts(folder)
    records = [each for part in parts for each in read_jsonl(part, check=trace_fault, on_damage=lambda _: None)]
    replies = [each for each in records if each["outcome"] != Outcome.ERROR]
    counted = [count for each in replies if (count := output_tokens(each["usage"], each["outcome"])) is not None]
    prompt = sum(each["usage"]["prompt"] for each in replies)
    head = b"".join(_heads(parts))
    share = len(compress(head)) / len(head) if head else 0.0
    # The journals keep traces that are no longer wanted, of an earlier prompt say.
    wanted = traces_of_teacher(generated, name, replaced=True)
    traces = min(wanted, len(replies)) / generated.counts["samples"]
    each = traces / max(1, len(replies))
    return TeacherLoad(
        teacher=name,
        traces=traces,
        # Replies of servers that count no tokens are assumed to be as long as the others.
        output_tokens=fmean(counted) * traces if counted else None if replies else 0.0,
        prompt_tokens=prompt * each if prompt or not replies else None,
        bytes=share * summary.bytes * each,
        tokens_per_s=summary.tokens_per_s or None,
    )


def _heads(parts: list[Path]) -> Iterator[bytes]:
    left = _COMPRESSED
    for part in parts:
        with part.open("rb") as file:
            data = file.read(left)
        left -= len(data)
        yield data


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _largest_load(recipe: Recipe) -> SampleLoad:
    """The most that the recipe allows."""
    return SampleLoad(
        teachers=tuple(_largest_teacher(recipe, each) for each in recipe.teachers),
        images=image_packing.largest_load(recipe),
        basis="the maximum that the recipe allows; a finished small run gives better figures",
    )


def _largest_teacher(recipe: Recipe, teacher: Teacher) -> TeacherLoad:
    attempts, share = attempt_growth(recipe.generate.outcomes)
    traces = recipe.most_traces(teacher)
    return TeacherLoad(
        teacher=teacher.name, traces=traces * attempts, output_tokens=traces * teacher.sampling.max_tokens * share
    )


def _generate_hours(
    load: SampleLoad, rounds: Sequence[Sequence[Teacher]], samples: int, agents: int
) -> list[float] | None:
    """Hours of each round: the hours of its slowest teacher, because the teachers of a round work at the same
    time."""
    hours: dict[str, float] = {}
    for each in load.teachers:
        if each.output_tokens is None or (each.output_tokens and each.tokens_per_s is None):
            return None
        hours[each.teacher] = samples * each.output_tokens / (each.tokens_per_s or 1.0) / agents / 3600
    return [max(hours[teacher.name] for teacher in teachers) for teachers in rounds]


def _unit_seconds(hours: float, agents: int, partitions: int, rounds: Sequence[Sequence[Teacher]]) -> float:
    """What a unit takes an agent."""
    return hours * 3600 * agents / (partitions * len(rounds))


def _server_hours(
    rounds: Sequence[Sequence[Teacher]], by_round: Sequence[float] | None, agents: int
) -> dict[str, float]:
    """Hours for which the servers of each teacher are paid on all machines: they are up in its own round."""
    return {
        teacher.name: hours * agents
        for teachers, hours in zip(rounds, by_round or (), strict=False)
        for teacher in teachers
    }


def _bytes(load: SampleLoad, samples: int) -> float | None:
    """Bytes in the store when generate and filter are finished, for units that are large enough to compress well."""
    traces = [each.bytes for each in load.teachers]
    parts = [load.sample_bytes, load.signal_bytes, load.filter_bytes, *traces]
    if load.images is not None:
        parts.append(None if load.images.bytes is None else load.images.images * load.images.bytes)
    known = [part for part in parts if part is not None]
    # The samples are there by unit, and as one file of the run.
    return samples * (sum(known) + (load.sample_bytes or 0.0)) if len(known) == len(parts) else None


def _objects(recipe: Recipe, partitions: int, rounds: int, tables: int) -> int:
    """Objects that stay: of each partition samples, commits of all rounds, signals, and traces with engines.

    Of each file of signals the file, its digest, keys of its texts, and commits.
    """
    return _RUN_OBJECTS + partitions * (7 + rounds + 2 * len(recipe.teachers)) + 3 * tables


def _requests(
    recipe: Recipe,
    partitions: int,
    rounds: Sequence[Sequence[Teacher]],
    agents: int,
    hours: float | None,
    files: int,
    tables: int,
) -> tuple[float, float] | None:
    """Requests that write or list, and those that read, of generate and filter; None without a time."""
    if hours is None:
        return None
    teachers, turns = len(recipe.teachers), len(rounds)
    looks = _unit_seconds(hours, agents, partitions, rounds) / recipe.engine.seal_s
    beats = agents * hours * 3600 * BEATS / recipe.engine.lease_s
    # Samples; of each round claim, attempt, commit; segments, traces with their engines.
    puts = 1 + 3 * turns + teachers * (looks + 2)
    # Claims, left-overs, claims that end, segments at every look; segments of others at the start.
    lists = turns * (4 + looks) + teachers
    filter_puts, filter_lists = 7, 4
    # Of a file of signals, of its decisions and of a bucket of keys: claim, attempt, what is made, commit; and the
    # lists of a claim.
    table_requests, buckets = 28, min(tables, MOST_BUCKETS)
    # Of the dataset: the table of a partition, claim, rows, pieces, commit; a file has as many.
    dataset_puts, dataset_lists, file_reads = 5, 4, 6
    # Of each round the commit before, after and at the end, samples, what earlier rounds have committed; then traces
    # and engines, by the agent that collects them.
    earlier = sum(1 + len(each) for number in range(turns) for each in rounds[:number])
    reads = 4 * turns + earlier + 2 * teachers
    filter_reads = 4 + turns + 2 * teachers + 5 + 2 * teachers
    dataset_reads = 8 + turns + 2 * teachers + files  # with the signals of the partition, and their commit
    writes = partitions * (puts + lists + filter_puts + filter_lists)
    writes += (partitions + files) * (dataset_puts + dataset_lists) + tables * table_requests
    # Every agent reads the commits and pieces of every partition; every file has a piece of each, and so have its
    # decisions.
    table_reads = partitions * (1 + 2 * agents + 2 * tables) + tables * (buckets + 18)
    reads = partitions * (reads + filter_reads + dataset_reads) + files * file_reads + table_reads
    return _RUN_WRITES + writes + beats, _RUN_READS + reads


def _costs(
    recipe: Recipe,
    load: SampleLoad,
    samples: int,
    server_hours: Mapping[str, float],
    requests: tuple[float, float] | None,
    store_bytes: float | None,
) -> dict[str, float | None]:
    """What is paid; None for what has no price or is not known."""
    price = recipe.store.price
    costs: dict[str, float | None] = {"teachers": 0.0, "requests": None, "storage": None}
    for teacher, each in zip(recipe.teachers, load.teachers, strict=True):
        cost = None
        if teacher.price.hour or teacher.price.input or teacher.price.output:
            known = (teacher.name in server_hours or not teacher.price.hour) and (
                (each.prompt_tokens is not None or not teacher.price.input)
                and (each.output_tokens is not None or not teacher.price.output)
            )
            if known:
                cost = samples * teacher.token_cost(each.prompt_tokens or 0.0, each.output_tokens or 0.0)
                cost += teacher.price.hour * server_hours.get(teacher.name, 0.0)
        before = costs["teachers"]
        costs["teachers"] = None if cost is None or before is None else before + cost
    if requests is not None and (price.writes or price.reads):
        costs["requests"] = (requests[0] * price.writes + requests[1] * price.reads) / 1000
    if store_bytes is not None and price.gb_month:
        costs["storage"] = store_bytes / 1e9 * price.gb_month
    return costs


def scale_text(plan: ScalePlan, recipe: Recipe) -> str:
    what = "jobs of a Slurm array" if plan.engine == "slurm" else "tasks of a Ray cluster"
    bound, parts = "" if plan.unit_s is not None else "<= ", range_count(plan.samples, recipe.engine.unit_rows)
    rows = [
        ("agents", f"{plan.agents:,} {what}"),
        ("samples", f"{plan.samples:,}"),
        ("units", f"{plan.units:,} of about {counted(-(-plan.samples // parts), 'sample')}"),
        ("units of an agent", f"{plan.units / plan.agents:,.1f}"),
        ("traces", f"{bound}{plan.traces:,.0f}"),
        ("output tokens", _known(plan.output_tokens, lambda value: f"{bound}{value:,.0f}")),
        ("objects in the store", f"about {plan.objects:,}"),
        ("bytes in the store", _known(plan.store_bytes, byte_size)),
        ("a unit takes an agent", _known(plan.unit_s, lambda value: f"{value:,.0f} s")),
        ("generate", _known(plan.generate_hours, lambda hours: time_span(3600 * hours))),
        ("filter", _filter_text(plan)),
        ("requests that write or list", _known(plan.writes, lambda value: f"{value:,.0f}")),
        ("requests that read", _known(plan.reads, lambda value: f"{value:,.0f}")),
        *((f"cost of {name}", _known(cost, lambda value: f"{value:,.2f}")) for name, cost in plan.costs.items()),
    ]
    notes = [f"by {plan.basis}"]
    if plan.units < 16 * plan.agents:
        rows_of_16 = plan.samples // (16 * plan.agents)
        change = f"engine.unit_rows = {rows_of_16:,} gives" if rows_of_16 else "--agents with fewer machines gives"
        notes.append(
            f"{change} at least 16 units per agent; with fewer units, some agents end much earlier than others"
        )
    if None in plan.costs.values():
        notes.append(
            "not known: set the prices in teachers.price and store.price; a finished small run gives the amounts"
        )
    notes.append("hours: at the rate of the run on one machine, for each agent; the cost of storage is for a month")
    return "\n".join([table(("what", "amount"), rows), *notes])


def _known(value: float | None, text: Any) -> str:
    return "not known" if value is None else str(text(value))


def _filter_text(plan: ScalePlan) -> str:
    if plan.filter_hours is None:
        return "not known"
    least, most = (time_span(3600 * hours) for hours in plan.filter_hours)
    return least if least == most else f"{least} to {most}: agents share the signals, and one agent does the rest"
