"""The traces of one teacher on disk: `generate/<teacher>/part-*.jsonl`, one record a trace.

Parts only grow while a run is open. Before a run appends, records that must go (errors to be asked again, doubled
ids) or change (parsed by an older parser or in another mode) are rewritten part by part, each one atomically.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts import Journal, atomic_path, read_jsonl
from distill.recipe import Teacher
from distill.types import Outcome, Trace, Usage
from teacher.completion import ROW_FAULTS, Completion, Served
from teacher.identity import Model, Request
from teacher.parse import VERSION, Parsed, parse

PART_RECORDS = 50_000
"""A part that holds so many records is closed for good, so that later stages have units to work on."""


@dataclass(slots=True)
class Ledger:
    """What the journals of one teacher hold. Counts cover the wanted traces only."""

    wanted: set[bytes]
    done: set[bytes] = field(default_factory=set)
    """Ids, as bytes, of all finished traces on disk (any outcome but error), wanted or not."""
    errors: dict[bytes, bool] = field(default_factory=dict)
    """Ids that only have an error, and whether that may be gone when they are asked again."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Outcomes of finished traces; errors are counted by `errors`."""
    tokens: Counter[str] = field(default_factory=Counter)
    engines: dict[str, str] = field(default_factory=dict)
    """Versions of the engines that answered, by name."""
    records: dict[Path, int] = field(default_factory=dict)
    """Records a part."""
    spoilt: set[Path] = field(default_factory=set)
    """Parts with doubled ids, or parsed otherwise than the recipe says now."""
    with_errors: set[Path] = field(default_factory=set)

    @property
    def missing(self) -> int:
        """Wanted traces that are not finished, errors among them."""
        return len(self.wanted) - sum(1 for key in self.wanted if key in self.done)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one record that is on disk."""
        key = bytes.fromhex(record["id"])
        if record["outcome"] == Outcome.ERROR:
            self.errors[key] = not record["error"].startswith(ROW_FAULTS)
            return
        self.done.add(key)
        if key in self.wanted:
            self.outcomes[record["outcome"]] += 1
            self.tokens.update(record["usage"])
            self.engines[record["engine"]["name"]] = record["engine"]["version"]
            if record["outcome"] != Outcome.COMPLETE:
                self.tokens["wasted"] += record["usage"]["reasoning"] + record["usage"]["answer"]


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.jsonl"))


def scan(folder: Path, teacher: Teacher, wanted: set[bytes]) -> Ledger:
    """Read every part once, changing nothing. Of several finished records with one id the first counts."""
    ledger = Ledger(wanted=wanted)
    for part in parts(folder):
        ledger.records[part] = 0
        for record in read_jsonl(part):
            ledger.records[part] += 1
            if record["outcome"] == Outcome.ERROR:
                ledger.with_errors.add(part)
            elif bytes.fromhex(record["id"]) in ledger.done:
                ledger.spoilt.add(part)
                continue
            elif _outdated(record, teacher):
                ledger.spoilt.add(part)
                record = _parsed_again(record, teacher)
            ledger.add(record)
    ledger.errors = {key: passing for key, passing in ledger.errors.items() if key in wanted - ledger.done}
    return ledger


def clean(ledger: Ledger, teacher: Teacher, *, drop_errors: bool) -> None:
    """Rewrite the spoilt parts, and with `drop_errors` those that hold errors about to be asked again."""
    chosen = ledger.spoilt | ledger.with_errors if drop_errors else ledger.spoilt
    seen: set[bytes] = set()
    for part in ledger.records:
        if part not in chosen:
            if chosen:
                seen.update(bytes.fromhex(record["id"]) for record in read_jsonl(part))
            continue
        kept = 0
        with atomic_path(part) as temporary, temporary.open("wb") as file:
            for record in read_jsonl(part):
                key, error = bytes.fromhex(record["id"]), record["outcome"] == Outcome.ERROR
                if (error and drop_errors) or (not error and key in seen):
                    continue
                if not error:
                    seen.add(key)
                    record = _parsed_again(record, teacher)
                kept += 1
                file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS))
        ledger.records[part] = kept
    ledger.spoilt.clear()
    if drop_errors:
        ledger.with_errors.clear()
        ledger.errors.clear()


def _outdated(record: Mapping[str, Any], teacher: Teacher) -> bool:
    params = record["params"]
    return (params.get("reasoning"), params.get("parser")) != (teacher.reasoning, VERSION)


def _parsed_again(record: Mapping[str, Any], teacher: Teacher) -> dict[str, Any]:
    changed = dict(record)
    if not _outdated(record, teacher):
        return changed
    parsed = parse(record["text"], mode=teacher.reasoning, finish_reason=record["finish_reason"])
    usage = record["usage"]
    total = usage["reasoning"] + usage["answer"]
    changed |= {
        "reasoning": parsed.reasoning,
        "answer": parsed.answer,
        "outcome": str(parsed.outcome),
        "usage": usage | _divided(total, None, parsed),
        "params": {**record["params"], "reasoning": teacher.reasoning, "parser": VERSION},
    }
    return changed


def trace(teacher: Teacher, model: Model, served: Served, request: Request, completion: Completion) -> Trace:
    """The record of one finished request."""
    if completion.error:
        parsed = Parsed(reasoning="", answer="", outcome=Outcome.ERROR)
    else:
        parsed = parse(completion.text, mode=teacher.reasoning, finish_reason=completion.finish_reason)
    return Trace(
        id=request.id,
        sample_id=request.sample.id,
        teacher=teacher.name,
        k=request.k,
        seed=request.seed,
        reasoning=parsed.reasoning,
        answer=parsed.answer,
        text=completion.text,
        outcome=str(parsed.outcome),
        finish_reason=completion.finish_reason,
        usage=Usage(
            prompt=completion.prompt_tokens,
            image=completion.image_tokens,
            **_divided(completion.completion_tokens, completion.reasoning_tokens, parsed),
        ),
        params={
            **teacher.sampling.model_dump(mode="json"),
            "chat_template_kwargs": dict(teacher.chat_template_kwargs),
            "reasoning": teacher.reasoning,
            "parser": VERSION,
        },
        model=model.name,
        revision=model.revision,
        engine=dict(served.engine),
        prompt_sha=request.prompt_sha,
        latency_s=round(completion.latency_s, 4),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        error=completion.error,
    )


def _divided(total: int, reasoning_tokens: int | None, parsed: Parsed) -> dict[str, int]:
    """Completion tokens as reasoning and answer; by their lengths in characters when the engine does not say."""
    if reasoning_tokens is None:
        characters = len(parsed.reasoning) + len(parsed.answer)
        reasoning_tokens = round(total * len(parsed.reasoning) / characters) if characters else 0
    reasoning = min(total, reasoning_tokens)
    return {"reasoning": reasoning, "answer": total - reasoning}


class TraceJournal:
    """Appends the traces of one teacher; whole lines, fsynced in groups. The run's lock makes it the only writer."""

    def __init__(self, folder: Path, ledger: Ledger, *, flush_interval_s: float) -> None:
        self._folder = folder
        self._ledger = ledger
        self._flush_interval_s = flush_interval_s
        self._journal: Journal | None = None
        self._part = max(ledger.records, default=folder / "part-00000.jsonl")

    def append(self, finished: Trace) -> None:
        """Write one trace. It is durable within the flush interval if `flush` is called that often."""
        if bytes.fromhex(finished.id) in self._ledger.done:
            raise AssertionError(f"trace {finished.id} of teacher {finished.teacher} was generated twice")
        record = asdict(finished)
        self._open().append(record)
        self._ledger.records[self._part] = self._ledger.records.get(self._part, 0) + 1
        self._ledger.add(record)

    def _open(self) -> Journal:
        if self._ledger.records.get(self._part, 0) >= PART_RECORDS:
            self.close()
            self._part = self._folder / f"part-{int(self._part.stem.removeprefix('part-')) + 1:05d}.jsonl"
        if self._journal is None:
            self._journal = Journal(self._part, flush_interval_s=self._flush_interval_s)
        return self._journal

    def flush(self) -> None:
        if self._journal is not None:
            self._journal.flush()

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
