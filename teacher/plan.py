"""Which traces are wanted: the readable samples, the rows set aside, and one row a wanted trace.

Leaves `samples.parquet`, `quarantine.jsonl`, `plan.parquet` and, last, `plan.json`: what the plan was made from.
While that is unchanged a rerun takes the plan as it is and does not read the source again.
"""

import difflib
import os
import shutil
from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill import data
from distill.artifacts import Output, atomic_path, describe, fingerprint, flatten, write_json
from distill.errors import DataError, RecipeError
from distill.recipe import Recipe, Teacher
from distill.types import BadRow, Sample
from teacher import parse
from teacher.client import sampling_body
from teacher.identity import Model, Request, model_of, requests, sampling_key
from teacher.route import NO_TEACHER, covered, covers, route

SOURCE = "questions"
SAMPLES, QUARANTINE, PLAN, STATE = "samples.parquet", "quarantine.jsonl", "plan.parquet", "plan.json"
_FILES = (SAMPLES, QUARANTINE, PLAN)
_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "sample_id": pa.string(),
    "teacher": pa.string(),
    "k": pa.int32(),
}
_SCHEMA = pa.schema(_COLUMNS)
_ROW_GROUP = 8192
_LIMIT_POOL = 20_000
"""`limit` chooses among at least so many samples from the start of the source; a larger source is not read on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The wanted traces of a run, by teacher, and the counts of what was planned."""

    folder: Path
    wanted: Mapping[str, set[bytes]]
    samples: int
    quarantined: Counter[str]


def check(recipe: Recipe) -> dict[str, Model]:
    """The model of every teacher. Raises RecipeError for teachers that cannot be asked as the recipe says."""
    if not recipe.teachers:
        raise RecipeError(f"{recipe.path}: no [[teachers]]; generate needs at least one (name, model, backend)")
    for teacher in recipe.teachers:
        if teacher.backend == "vllm" and not teacher.base_url:
            raise RecipeError(
                f"teachers.{teacher.name}: backend 'vllm' has no base_url and starting a server is not supported "
                f'yet; run `vllm serve {teacher.model}` and set base_url = "http://127.0.0.1:8000/v1"'
            )
        if teacher.backend == "openai":
            sampling_body(teacher)
    models = {teacher.name: model_of(recipe, teacher) for teacher in recipe.teachers}
    for one, other in combinations(recipe.teachers, 2):
        overlap = not one.domains or not other.domains or set(one.domains) & set(other.domains)
        if overlap and _asking(one, models[one.name]) == _asking(other, models[other.name]):
            raise RecipeError(
                f"teachers {one.name} and {other.name} are the same model asked in the same way about the same "
                "domains; their traces would be the same ones: keep one of them and raise its samples"
            )
    return models


def settings(recipe: Recipe, models: Mapping[str, Model]) -> dict[str, Any]:
    """The flattened settings that decide what a finished stage holds, apart from the rows of the source."""
    source = {key: value for key, value in data.source_fields(recipe, SOURCE).items() if key != "content"}
    teachers = [_settings(teacher, models[teacher.name]) for teacher in recipe.teachers]
    return flatten({"seed": recipe.seed, "data": {SOURCE: source}, "teachers": teachers, "parser": parse.VERSION})


def _settings(teacher: Teacher, model: Model) -> dict[str, Any]:
    """What decides a teacher's traces, which samples it gets, and how its text is read."""
    values = teacher.model_dump(mode="json")
    kept = {key: values[key] for key in ("name", "domains", "weight", "samples", "reasoning")}
    return kept | _asking(teacher, model)


def _asking(teacher: Teacher, model: Model) -> dict[str, Any]:
    """What decides the text of an attempt."""
    return {
        "model": model.key,
        "system": teacher.system,
        "prompt": teacher.prompt,
        "sampling": sampling_key(teacher.sampling),
        "chat_template_kwargs": dict(teacher.chat_template_kwargs),
    }


def content(recipe: Recipe) -> str:
    """Digest of the source's own files; empty for a hub name, which does not change under a run."""
    return str(data.source_fields(recipe, SOURCE).get("content", ""))


def state(recipe: Recipe, folder: Path, fields: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """What a plan depends on, as it is now."""
    return {
        "settings": fingerprint(fields),
        "content": content(recipe),
        "limit": limit or 0,
        "images": _images_state(folder / SAMPLES),
    }


def current(folder: Path, now: Mapping[str, Any]) -> bool:
    """Whether the plan on disk was made from exactly this. Unreadable rows are always looked at again."""
    try:
        saved = orjson.loads((folder / STATE).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return False
    complete = all((folder / name).is_file() for name in _FILES)
    return complete and saved == {**now, "unreadable": 0}


def _images_state(path: Path) -> str:
    """Digest over size and time of change of every file that the planned samples' images lie in."""
    if not path.is_file():
        return ""
    with pq.ParquetFile(path) as table:
        rows: Any = table.read(columns=["images.list.element.path"])["images"].combine_chunks()
    paths = sorted(rows.flatten().field("path").unique().to_pylist())
    return fingerprint({name: _stat(name) for name in paths})


def _stat(name: str) -> list[int]:
    try:
        status = os.stat(name)  # noqa: PTH116 (a Path for each of a million images costs more than the call)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def prepare(recipe: Recipe, models: Mapping[str, Model], folder: Path, *, limit: int | None) -> Path:
    """Read the source and write a new plan to a folder of its own, which `adopt` puts in place."""
    pending = folder / ".pending"
    shutil.rmtree(pending, ignore_errors=True)
    with (
        atomic_path(pending / QUARANTINE) as quarantine_path,
        quarantine_path.open("wb") as quarantine,
        atomic_path(pending / PLAN) as plan_path,
        pq.ParquetWriter(plan_path, _SCHEMA, compression="zstd") as plan,
    ):
        domains: Counter[str] = Counter()
        found = _routable(recipe, quarantine, domains)
        chosen = found if limit is None else iter(_spread(islice(found, max(_LIMIT_POOL, 4 * limit)), limit))
        data.write_samples(pending / SAMPLES, _planned(recipe, models, chosen, plan))
        _check_domains(recipe, domains)
    return pending


def _routable(recipe: Recipe, quarantine: IO[bytes], domains: Counter[str]) -> Iterator[Sample]:
    """The samples that some teacher covers; every other row goes to the quarantine with its reason."""

    def set_aside(record: dict[str, Any]) -> None:
        quarantine.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def bad(row: BadRow) -> None:
        set_aside(asdict(row))

    for sample in data.samples(recipe, SOURCE, on_bad=bad):
        domains[sample.domain] += 1
        if covered(recipe.teachers, sample.domain):
            yield sample
        else:
            detail = f"no teacher has domain {sample.domain!r}"
            set_aside({"sample_id": sample.id, "reason": NO_TEACHER, "detail": detail})


def _planned(
    recipe: Recipe, models: Mapping[str, Model], samples: Iterator[Sample], plan: pq.ParquetWriter
) -> Iterator[Sample]:
    """Hands the samples on while it writes the traces wanted of them."""
    rows: list[dict[str, Any]] = []
    for sample in samples:
        for teacher in route(recipe.teachers, sample):
            for request in requests(recipe, teacher, models[teacher.name], sample):
                rows.append({"id": request.id, "sample_id": sample.id, "teacher": teacher.name, "k": request.k})
        if len(rows) >= _ROW_GROUP:
            plan.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))
            rows.clear()
        yield sample
    plan.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))


def _spread(samples: Iterable[Sample], limit: int) -> list[Sample]:
    """`limit` samples, domains taking turns, in each domain those with the smallest ids."""
    smallest: dict[str, list[tuple[str, Sample]]] = {}
    for sample in samples:
        kept = smallest.setdefault(sample.domain, [])
        insort(kept, (sample.id, sample), key=lambda item: item[0])
        del kept[limit:]
    turns = deque(deque(sample for _, sample in smallest[domain]) for domain in sorted(smallest))
    chosen: list[Sample] = []
    while turns and len(chosen) < limit:
        domain = turns.popleft()
        chosen.append(domain.popleft())
        if domain:
            turns.append(domain)
    return chosen


def _check_domains(recipe: Recipe, domains: Counter[str]) -> None:
    """Raises RecipeError for a teacher that no sample of the source is for: most likely a misspelt domain."""
    for teacher in recipe.teachers:
        if any(covers(teacher, domain) for domain in domains):
            continue
        near = difflib.get_close_matches(teacher.domains[0], domains, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        found = ", ".join(repr(domain) for domain in sorted(domains))
        raise RecipeError(
            f"teachers.{teacher.name}.domains = {list(teacher.domains)}: no sample has such a domain{hint} "
            f"(domains in [data.{SOURCE}]: {found})"
        )


def adopt(pending: Path, folder: Path, now: Mapping[str, Any]) -> None:
    """Put a new plan in place of the old one. A kill in between leaves no plan.json, so it is made again."""
    (folder / STATE).unlink(missing_ok=True)
    for name in _FILES:
        (pending / name).replace(folder / name)
    pending.rmdir()
    unreadable = sum(count for reason, count in quarantined(folder).items() if reason not in _SETTLED)
    write_json(folder / STATE, {**now, "images": _images_state(folder / SAMPLES), "unreadable": unreadable})


_SETTLED = frozenset({NO_TEACHER, "duplicate_row", "conflicting_answer"})
"""Reasons that only a change of the source or the recipe can cure, and such a change is seen."""


def quarantined(folder: Path) -> Counter[str]:
    """Rows set aside, by reason."""
    with (folder / QUARANTINE).open("rb") as file:
        return Counter(orjson.loads(line)["reason"] for line in file)


def read(folder: Path, teachers: Sequence[Teacher]) -> Plan:
    """The plan in place."""
    wanted: dict[str, set[bytes]] = {teacher.name: set() for teacher in teachers}
    try:
        with pq.ParquetFile(folder / PLAN) as table:
            for batch in table.iter_batches(columns=["id", "teacher"]):
                for row in batch.to_pylist():
                    wanted[row["teacher"]].add(bytes.fromhex(row["id"]))
        with pq.ParquetFile(folder / SAMPLES) as table:
            samples = table.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{folder}: the plan cannot be read ({error}); remove {folder / STATE} and run again"
        ) from None
    return Plan(folder=folder, wanted=wanted, samples=samples, quarantined=quarantined(folder))


def outputs(plan: Plan) -> dict[str, Output]:
    """The files of the plan with their digests and numbers of records."""
    counts = {SAMPLES: plan.samples, QUARANTINE: plan.quarantined.total(), PLAN: sum(map(len, plan.wanted.values()))}
    return {name: describe(plan.folder / name, count) for name, count in counts.items()}


def missing(recipe: Recipe, teacher: Teacher, model: Model, folder: Path, done: set[bytes]) -> Iterator[Request]:
    """The wanted requests of one teacher that are not done, all of one sample together, drawn as they are needed."""
    for sample in data.read_samples(folder / SAMPLES):
        if teacher in route((teacher,), sample):
            for request in requests(recipe, teacher, model, sample):
                if bytes.fromhex(request.id) not in done:
                    yield request
