"""Rebuilds the request that a trace came from, and sends it once more.

The record, the samples and the recipe hold everything that a request depends on. If the rebuilt request has another
id than the trace, the recipe has changed, and the error says what differs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.artifacts.json_lines import records_holding
from distill.artifacts.layout import PLAN, SAMPLES
from distill.data import reader, sample_files
from distill.errors import DataError, RecipeError, StaleError, TeacherError
from distill.machine import event_loop
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.sampling import Sampling
from distill.trace_records.trace_lines import trace_fault
from distill.types import Sample
from teacher.engines.connect import EngineSettings, connect, engine_of, engine_settings, getter
from teacher.messages.completion import Completion
from teacher.messages.request import Author, Request, model_of
from teacher.scheduling.sampling_policy import draft_text
from teacher.store.trace_journal import trace_parts


def replay(recipe: Recipe, run: Path, trace_id: str, *, resend: bool = False) -> dict[str, Any]:
    """The request behind a trace, given by its id or the beginning of it; with `resend` the answer of today, too.

    Images are inside the body, also if the run sent them by path. So the body can be sent from any machine, for
    example with `distill generate RECIPE --replay ID | jq .body | curl -H 'content-type: application/json' -d @-
    URL`. The key is named, not shown, and need not be set. Raises DataError for an unknown id, StaleError when the
    recipe has changed since, TeacherError when a server does not answer.
    """
    folder = run / "generate"
    record = _find_record(recipe, folder, trace_id)
    teacher = next((teacher for teacher in recipe.teachers if teacher.name == record["teacher"]), None)
    if teacher is None:
        raise RecipeError(f"{recipe.path}: no teacher '{record['teacher']}', which wrote trace {record['id']}")
    model = model_of(recipe, teacher)
    author = Author(teacher=teacher, model=model, seed=recipe.seed)
    request = _rebuild_request(recipe, folder, record, author)
    if choice := record.get("choice"):
        # The request that asked for the other choices, too.
        first = request.k - choice["index"]
        asked, *others = (author.attempt_at(request, k) for k in range(first, first + choice["of"]))
        request = replace(asked, siblings=tuple(others))
    settings = engine_settings(recipe, teacher, model, folder / teacher.name, max_failure_share=1.0)
    if resend:
        direct = replace(settings, teacher=teacher.direct)
        shown, answer = event_loop.run(_send(direct, request, record["id"]))
    else:
        name = record["engine"].get("model", teacher.served_model or teacher.model)
        shown, answer = event_loop.run(engine_of(settings).describe(request, model=name)), None
    if answer is None:
        return shown
    if answer.error:
        raise TeacherError(f"teacher '{teacher.name}': {answer.error}")
    return {"request": shown, "stored": record["text"], "answer": answer.text, "equal": answer.text == record["text"]}


def _find_record(recipe: Recipe, folder: Path, trace_id: str) -> dict[str, Any]:
    """The record of a finished trace; attempts that were replaced are found, too.

    Of a teacher that was renamed, whose traces lie in two folders, it is the one with the name of today.
    """
    prefix = trace_id.strip().lower()
    names, planned = {teacher.name for teacher in recipe.teachers}, _planned_teachers(folder, prefix)
    records: dict[str, dict[str, Any]] = {}

    def rank(record: Mapping[str, Any]) -> tuple[bool, bool, bool]:
        name = record["teacher"]
        return name == planned.get(record["id"]), name in names, not record["error"]

    for part in (part for teacher in sorted(folder.glob("*/")) for part in trace_parts(teacher)):
        for record in records_holding(part, f'"id":"{prefix}'.encode(), trace_fault):
            if not record["id"].startswith(prefix):
                continue
            if record["id"] not in records or rank(record) > rank(records[record["id"]]):
                records[record["id"]] = record
    if len(records) == 1 and prefix:
        return next(iter(records.values()))
    if not records:
        raise DataError(f"{folder}: no trace has an id that begins with {trace_id!r}; ids are in */part-*.jsonl")
    raise DataError(f"{folder}: {len(records)} traces begin with {trace_id!r}: {', '.join(list(records)[:5])} ...")


def _planned_teachers(folder: Path, prefix: str) -> dict[str, str]:
    """The teachers of the final traces whose ids begin so."""
    if not (folder / PLAN).is_file():
        return {}
    table = pq.read_table(folder / PLAN, columns=["id", "teacher"])
    chosen = table.filter(pc.starts_with(table["id"], prefix))
    return dict(zip(*(column.to_pylist() for column in chosen.columns), strict=True))


def _find_sample(recipe: Recipe, folder: Path, sample_id: str) -> Sample:
    """A sample of the plan; one that the plan no longer has is looked for in the source."""
    planned = folder / SAMPLES
    sample = next(sample_files.read_samples(planned, {sample_id}), None) if planned.is_file() else None
    rows = reader.read(recipe, ASKED) if sample is None else ()
    sample = sample or next((item for item in rows if isinstance(item, Sample) and item.id == sample_id), None)
    if sample is None:
        raise StaleError(
            f"{folder}: neither the plan nor [data.{ASKED}] has sample {sample_id} any more; its question or its "
            "images have changed"
        )
    return sample


def _rebuild_request(recipe: Recipe, folder: Path, record: Mapping[str, Any], author: Author) -> Request:
    sampling = Sampling.model_validate(
        {key: value for key, value in record["params"].items() if key in Sampling.model_fields}, strict=False
    )
    sample = _find_sample(recipe, folder, record["sample_id"])
    text = draft_text(_find_record(recipe, folder, record["draft"])) if record["draft"] else ""
    first = author.first_attempt(sample, record["k"], draft=record["draft"], draft_text=text)
    for request in _attempts(author, first, sampling, record["attempt"]):
        if request.id == record["id"]:
            return request
    raise StaleError(
        f"trace {record['id']} cannot be asked again in the same way; these have changed since then: "
        f"{', '.join(_changes(recipe, record, author, sample, first))}"
    )


def _attempts(author: Author, first: Request, sampling: Sampling, attempt: int) -> Iterator[Request]:
    """The possible requests of attempt number `attempt`: attempts before it may have asked for a new seed."""
    request = author.next_attempt(first, sampling, reseed=False)
    for _ in range(attempt + 1):
        yield request
        request = author.next_attempt(request, sampling, reseed=True)


def _changes(
    recipe: Recipe, record: Mapping[str, Any], author: Author, sample: Sample, request: Request
) -> list[str]:
    teacher, params = author.teacher, record["params"]
    pairs = {
        "the model": (record["model"], author.model.name),
        "the model's revision": (record["revision"], author.model.revision),
        "the prompt or an image": (record["prompt_sha"], request.prompt_sha),
        "chat_template_kwargs": (params["chat_template_kwargs"], dict(teacher.chat_template_kwargs)),
        "mm_processor_kwargs": (params["mm_processor_kwargs"], dict(teacher.mm_processor_kwargs)),
        "extra_body": (params.get("extra_body", {}), dict(teacher.extra_body)),
        "omit": (params.get("omit", []), list(teacher.omit)),
        "logprobs": (record.get("logprobs", {}).get("k", 0), teacher.logprobs),
    }
    changed = [f"{name} ({before!r} -> {now!r})" for name, (before, now) in pairs.items() if before != now]
    return changed or [f"the recipe's seed (it is {recipe.seed} now)"]


async def _send(settings: EngineSettings, request: Request, trace_id: str) -> tuple[dict[str, Any], Completion]:
    """The request as it is sent now, and its answer for a trace."""
    answers: dict[str, Completion] = {}
    async with connect(settings) as engine:
        await engine.answer(getter([request]), lambda each, completion: answers.__setitem__(each.id, completion))
        return await engine.describe(request), answers[trace_id]
