"""What the journals of one teacher hold: which traces are finished, how they ended, and where each record lies.

Memory holds ids, outcomes, token counts and positions, packed to some 190 bytes a trace; texts are read back from
disk when a policy needs one.
"""

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from distill.artifacts.files import Output, describe
from distill.artifacts.json_lines import record_at
from distill.artifacts.layout import part_path
from distill.errors import StorageError
from distill.types import Outcome
from teacher.messages.completion import ROW_FAULTS
from teacher.scheduling.sampling_policy import TraceStatus

_OUTCOMES = tuple(str(outcome) for outcome in Outcome)
USAGE = ("prompt", "image", "reasoning", "answer")
_ENTRY = struct.Struct("<BHQIIII")
"""Outcome, number of the part, position of the line in it, token counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One finished trace."""

    outcome: str
    part: int
    start: int
    usage: Mapping[str, int]


@dataclass(slots=True)
class TraceIndex:
    """What the journals in `folder` hold."""

    folder: Path
    errors: dict[bytes, bool] = field(default_factory=dict)
    """Ids that only have a proven error from an earlier run, and whether it may be gone when they are asked again."""
    failed: dict[bytes, bool] = field(default_factory=dict)
    """The same for errors of this run; they are not asked again in it."""
    engines: dict[str, str] = field(default_factory=dict)
    """Versions of the engines that answered, by name."""
    odd: int = 0
    """Records of answers with numbers that cannot be true."""
    records: dict[Path, int] = field(default_factory=dict)
    """Records a part."""
    ends: dict[Path, int] = field(default_factory=dict)
    """Bytes a part, as it was read and appended to."""
    damaged: set[Path] = field(default_factory=set)
    """Parts with lines that are no traces."""
    stale: set[Path] = field(default_factory=set)
    """Parts with duplicate ids, or written by another parser version or mode."""
    with_errors: set[Path] = field(default_factory=set)
    before_read: Callable[[], None] = lambda: None
    """Writes the lines that a journal still holds."""
    _done: dict[bytes, bytes] = field(default_factory=dict)
    _files: dict[int, IO[bytes]] = field(default_factory=dict)

    def __contains__(self, trace_id: str) -> bool:
        """Whether a trace is finished (any outcome but error)."""
        return bytes.fromhex(trace_id) in self._done

    def add(self, record: Mapping[str, Any], part: int, start: int) -> None:
        """Count one record on disk, in a part, its line starting at byte `start`. Errors count as of this run."""
        key = bytes.fromhex(record["id"])
        self.odd += bool(record.get("notes"))
        if record["outcome"] == Outcome.ERROR:
            # What is not proven may have been an outage: it counts as never asked.
            if record.get("proven"):
                self.failed[key] = not record.get("error", "").startswith(ROW_FAULTS)
            return
        usage = record["usage"]
        code = _OUTCOMES.index(record["outcome"])
        self._done[key] = _ENTRY.pack(code, part, start, *(usage[name] for name in USAGE))
        self.engines[record["engine"]["name"]] = record["engine"]["version"]

    def outcomes(self) -> Counter[str]:
        """How the finished traces ended, those included that the recipe no longer wants."""
        return Counter(_OUTCOMES[packed[0]] for packed in self._done.values())

    def replace_with(self, other: "TraceIndex") -> None:
        """Take over what another index of the same folder holds: the parts have been rewritten."""
        self.close()
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def entry(self, trace_id: str) -> Entry | None:
        packed = self._done.get(bytes.fromhex(trace_id))
        if packed is None:
            return None
        code, part, start, *usage = _ENTRY.unpack(packed)
        return Entry(outcome=_OUTCOMES[code], part=part, start=start, usage=dict(zip(USAGE, usage, strict=True)))

    def usage(self, trace_id: str) -> Sequence[int] | None:
        """The token counts of a finished trace, in the order of USAGE; None when it is not finished."""
        packed = self._done.get(bytes.fromhex(trace_id))
        return None if packed is None else _ENTRY.unpack(packed)[-len(USAGE) :]

    def status_of(self, trace_id: str) -> TraceStatus | None:
        """A finished trace, or an error of this run; what failed in an earlier run counts as never asked."""
        key = bytes.fromhex(trace_id)
        packed = self._done.get(key)
        if packed is not None:
            return TraceStatus(outcome=_OUTCOMES[packed[0]], record=lambda: self.read(trace_id))
        return _FAILED if key in self.failed else None

    def status_or_failure(self, trace_id: str) -> TraceStatus | None:
        """The same with the errors of earlier runs, for telling what there is rather than what to ask."""
        return self.status_of(trace_id) or (_FAILED if bytes.fromhex(trace_id) in self.errors else None)

    def failure(self, trace_id: str) -> bool | None:
        """Whether a failed trace may pass another time; None when it has not failed."""
        key = bytes.fromhex(trace_id)
        return self.failed.get(key, self.errors.get(key))

    def read(self, trace_id: str) -> dict[str, Any]:
        """The record of a finished trace."""
        self.before_read()
        entry = self.entry(trace_id)
        assert entry is not None, f"no trace {trace_id} in {self.folder}"
        if entry.part not in self._files:
            self._files[entry.part] = part_path(self.folder, entry.part, ".jsonl").open("rb")
        record = record_at(self._files[entry.part], entry.start)
        if record is None:
            raise StorageError(
                f"{self._files[entry.part].name}: the trace {trace_id}, which began at byte {entry.start:,}, can no "
                "longer be read; find out what changed the file, then run the same command again, which asks for it"
            )
        return record

    def outputs(self) -> dict[str, Output]:
        """The parts as a manifest states them. StorageError when one is not what was read and written."""
        outputs: dict[str, Output] = {}
        for part, records in self.records.items():
            output = describe(part, records) if part.is_file() else None
            if output is None or output.bytes != self.ends[part]:
                size = "is gone" if output is None else f"has {output.bytes:,} bytes"
                raise StorageError(
                    f"{part}: the file {size} and should have {self.ends[part]:,}; something else changed it. Run "
                    "the same command again, which asks for what was lost"
                )
            outputs[part.name] = output
        return outputs

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


_FAILED = TraceStatus(outcome=str(Outcome.ERROR), record=dict)
