"""The traces of one teacher on disk: `generate/<teacher>/part-*.jsonl`, one record a trace.

Parts only grow while a run is open. Before a run appends, damaged lines are moved aside. Then each part is rewritten
atomically: without errors that are asked again and without repeated ids, and with records parsed again if an older
parser or another mode made them.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from distill import redact
from distill.artifacts import json_lines
from distill.artifacts.damaged_lines import record_damaged
from distill.artifacts.journal import Journal, read_jsonl_at, write_jsonl
from distill.artifacts.json_lines import Damaged
from distill.artifacts.layout import part_number, part_path, part_paths
from distill.recipe.sections.sampling import Sampling, omitted_keys
from distill.recipe.sections.teachers import Teacher
from distill.trace_records.logprobs import encode
from distill.trace_records.trace_lines import trace_fault
from distill.types import Outcome
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.parse import VERSION, ParsedCompletion, parse
from teacher.messages.request import Model, Request
from teacher.store.trace_index import TraceIndex

PART_RECORDS = 50_000
"""A part with so many records gets no further ones, so that later stages have units to work on."""


def trace_parts(folder: Path) -> list[Path]:
    return part_paths(folder, ".jsonl")


def read_index(folder: Path, teacher: Teacher) -> TraceIndex:
    """Read every part, changing nothing, or what came after the snapshot of an earlier run.

    Of several finished records with one id the first counts.
    """
    index = TraceIndex(folder, parsed_as=(str(teacher.reasoning), VERSION))
    covered = index.load()
    for part in trace_parts(folder):
        _index_part(index, part, teacher, covered.get(part, 0))
    index.errors = {key: passing for key, passing in index.failed.items() if key.hex() not in index}
    index.failed.clear()
    return index


def _index_part(index: TraceIndex, part: Path, teacher: Teacher, start_at: int) -> None:
    index.records.setdefault(part, 0)
    index.ends[part] = part.stat().st_size
    if index.ends[part] == start_at:
        return

    def on_damage(_: Damaged) -> None:
        index.damaged.add(part)

    for start, record in read_jsonl_at(part, check=trace_fault, on_damage=on_damage, begin=start_at):
        index.records[part] += 1
        if record["outcome"] != Outcome.ERROR:
            if record["id"] in index:
                index.stale.add(part)
                continue
            if _outdated(record, teacher):
                index.stale.add(part)
                record = _reparsed(record, teacher)
        index.add(record, part_number(part), start)


def rewrite_parts(index: TraceIndex, teacher: Teacher, *, drop_errors: bool) -> None:
    """Rewrite the stale parts, and with `drop_errors` those that hold errors about to be asked again.

    Damaged lines go to the part's side file first.
    """
    to_rewrite = index.stale | index.damaged | (index.with_errors if drop_errors else set())
    last = max(index.records, default=None)
    if drop_errors and last is not None and json_lines.is_plain(last):
        # A Journal adds checksums to a file without them before it appends, and the records move.
        to_rewrite |= {last}
    if not to_rewrite:
        return
    for part in sorted(to_rewrite):
        if part in index.damaged:
            record_damaged(
                part, (piece for piece in json_lines.scan(part, trace_fault) if isinstance(piece, Damaged))
            )
        write_jsonl(part, _kept_records(index, part, teacher, drop_errors=drop_errors))
    index.replace_with(read_index(index.folder, teacher))


def _kept_records(index: TraceIndex, part: Path, teacher: Teacher, *, drop_errors: bool) -> Iterator[dict[str, Any]]:
    """The records of a part that stay, as they are to be: errors, and of finished traces those that count."""
    for start, record in read_jsonl_at(part, check=trace_fault, on_damage=lambda _: None):
        if record["outcome"] == Outcome.ERROR:
            if not drop_errors:
                yield record
        elif index.lies_at(record["id"], part_number(part), start):
            yield _reparsed(record, teacher)


def _outdated(record: Mapping[str, Any], teacher: Teacher) -> bool:
    params = record["params"]
    return (params.get("reasoning"), params.get("parser")) != (teacher.reasoning, VERSION)


def _reparsed(record: Mapping[str, Any], teacher: Teacher) -> dict[str, Any]:
    changed = dict(record)
    if not _outdated(record, teacher):
        return changed
    parsed = parse(record["text"], mode=teacher.reasoning, finish_reason=record["finish_reason"])
    usage = record["usage"]
    if (parsed.reasoning, parsed.answer) != (record["reasoning"], record["answer"]):
        # Where the parts are the same, the engine may have counted them.
        usage = usage | _split_tokens(usage["reasoning"] + usage["answer"], None, parsed)
    changed |= {
        "reasoning": parsed.reasoning,
        "answer": parsed.answer,
        "outcome": str(parsed.outcome),
        "usage": usage,
        "params": {**record["params"], "reasoning": teacher.reasoning, "parser": VERSION},
    }
    return changed


class TraceForm:
    """The fields that all traces of one teacher share."""

    def __init__(self, teacher: Teacher, model: Model, served: EngineInfo) -> None:
        self.teacher = teacher
        self._served = served
        self.fixed = {
            "teacher": teacher.name,
            "model": model.name,
            "revision": model.revision,
            "hinted": teacher.hinted,
        }
        self.engine = lru_cache(maxsize=1)(self._engine_of)
        """The engine of an attempt that this model has answered, by its name for the server."""
        self._known: tuple[Sampling | None, Any] = (None, None)

    def _engine_of(self, model: str) -> dict[str, str]:
        return {**self._served.engine, "model": redact.exact(model) or self._served.model}

    def params(self, sampling: Sampling) -> Any:
        """The settings of an attempt as JSON text."""
        if self._known[0] is not sampling:
            left_out = omitted_keys(self.teacher.omit)
            values = {
                **{key: value for key, value in sampling.model_dump(mode="json").items() if key not in left_out},
                "chat_template_kwargs": dict(self.teacher.chat_template_kwargs),
                "mm_processor_kwargs": dict(self.teacher.mm_processor_kwargs),
                "reasoning": self.teacher.reasoning,
                "parser": VERSION,
            }
            more = {"omit": list(self.teacher.omit), "extra_body": dict(self.teacher.extra_body)}
            values |= {name: value for name, value in more.items() if value}
            self._known = (sampling, orjson.Fragment(redact.dumps(values, orjson.OPT_SORT_KEYS)))
        return self._known[1]


@lru_cache(maxsize=1)
def _time_text(milliseconds: int) -> str:
    """A time as text, which several traces of one millisecond share."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def make_trace(form: TraceForm, request: Request, completion: Completion) -> dict[str, Any]:
    """The record of one finished request, a `distill.types.Trace` as plain values.

    What a server repeats of our secrets is masked before it is parsed. A dataclass in between would cost a tenth of
    the time of a request.
    """
    text, error = redact.exact(completion.text), completion.error
    if error:
        error = redact.message(error)
        parsed = ParsedCompletion(reasoning="", answer="", outcome=Outcome.ERROR)
    else:
        parsed = parse(text, mode=form.teacher.reasoning, finish_reason=completion.finish_reason)
    record = {
        **form.fixed,
        "id": request.id,
        "sample_id": request.sample.id,
        "k": request.k,
        "seed": request.seed,
        "reasoning": parsed.reasoning,
        "answer": parsed.answer,
        "text": text,
        "outcome": str(parsed.outcome),
        "finish_reason": completion.finish_reason,
        "usage": {
            "prompt": completion.prompt_tokens,
            "image": completion.image_tokens,
            **_split_tokens(completion.completion_tokens, completion.reasoning_tokens, parsed),
        },
        "params": form.params(request.sampling),
        "engine": form.engine(completion.model),
        "prompt_sha": request.prompt_sha,
        "latency_s": round(completion.latency_s, 4),
        "created": _time_text(time.time_ns() // 1_000_000),
        "attempt": request.attempt,
        "draft": request.draft,
        "error": error,
    }
    _add_rare(record, completion)
    return record


def _add_rare(record: dict[str, Any], completion: Completion) -> None:
    """Add the fields that a record has only where they say something: most engines never fill them."""
    if completion.cached_tokens is not None:
        record["usage"]["cached"] = completion.cached_tokens
    if completion.stop_reason:
        record["stop_reason"] = completion.stop_reason
    if completion.notes:
        record["notes"] = tuple(map(redact.exact, completion.notes))
    if choice := completion.choice:
        record |= {"seed": choice["seed"], "choice": {"index": choice["index"], "of": choice["of"]}}
    if completion.token_ids is not None and completion.token_logprobs is not None:
        record["logprobs"] = encode(completion.token_ids, completion.token_logprobs)


def _split_tokens(total: int, reasoning_tokens: int | None, parsed: ParsedCompletion) -> dict[str, int]:
    """Completion tokens as reasoning and answer; by their lengths in characters when the engine does not say."""
    if reasoning_tokens is None:
        characters = len(parsed.reasoning) + len(parsed.answer)
        reasoning_tokens = round(total * len(parsed.reasoning) / characters) if characters else 0
    reasoning = min(total, reasoning_tokens)
    return {"reasoning": reasoning, "answer": total - reasoning}


class TraceJournal:
    """Appends the traces of one teacher; whole lines, fsynced in groups. The run's lock makes it the only writer.

    A separate thread does the fsyncs. So a finished trace waits at most for the flush interval, even during a busy
    event loop or a long step of an embedded model, and a slow disk delays nothing else.
    """

    def __init__(
        self,
        index: TraceIndex,
        *,
        flush_interval_s: float,
        soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`soon` is `call_soon` of an event loop: the traces of one step of the loop are then written together.
        Without it each trace is written at once."""
        self._index = index
        self._soon = soon
        self._is_called = False
        index.before_read = self._write_held
        self._flush_interval_s = flush_interval_s
        self._journal: Journal | None = None
        self._part = max(index.records, default=part_path(index.folder, 0, ".jsonl"))
        self._number = part_number(self._part)
        self._count = index.records.get(self._part, 0)
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._failure: OSError | None = None
        """What kept a trace from the disk: `append` and `close` raise it, in the thread of the engines."""
        self._flusher = threading.Thread(target=self._keep_flushing, name="flush", daemon=True)
        self._flusher.start()

    def append(self, record: Mapping[str, Any]) -> None:
        """Write the record of one trace. It is durable within the flush interval."""
        if self._failure is not None:
            raise self._failure
        if record["id"] in self._index:
            raise AssertionError(f"trace {record['id']} of teacher {record['teacher']} was generated twice")
        self.take_over(record)

    def take_over(self, record: Mapping[str, Any]) -> None:
        """Write the record of a trace, also of one that another agent has made."""
        journal = self._open()
        start = journal.append(record, hold=self._soon is not None)
        self._count += 1
        self._index.records[self._part] = self._count
        self._index.ends[self._part] = journal.end
        self._index.add(record, self._number, start)
        if self._soon is not None and not self._is_called:
            self._is_called = True
            self._soon(self._write_held)

    def _write_held(self) -> None:
        """Write the lines of this moment together: one system call instead of one for each trace."""
        self._is_called = False
        try:
            if self._journal is not None:
                self._journal.write_held()
        except OSError as error:
            self._failure = error

    def _open(self) -> Journal:
        if self._count >= PART_RECORDS:
            self._close_part()
            self._index.save()
            self._number += 1
            self._part = part_path(self._index.folder, self._number, ".jsonl")
            self._count = 0
        if self._journal is None:
            self._journal = Journal(self._part, flush_interval_s=self._flush_interval_s)
            self._index.extend(self._part, self._journal.end)
        return self._journal

    def _close_part(self) -> None:
        with self._changing:
            if self._journal is not None:
                self._journal.close()
                self._journal = None

    def _keep_flushing(self) -> None:
        while not self._closed.wait(self._flush_interval_s / 4):
            with self._changing:
                try:
                    self.flush()
                except OSError as error:
                    self._failure = error
                    return

    def flush(self) -> None:
        """Make every trace durable now."""
        if self._journal is not None:
            self._journal.flush()

    def close(self) -> None:
        self._write_held()
        self._closed.set()
        self._flusher.join()
        self._close_part()
        if self._failure is not None:
            raise self._failure
