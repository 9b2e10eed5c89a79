"""Index of one teacher's journals: which traces are finished, how they ended, and where each record lies.

Memory holds ids, outcomes, token counts and positions, some 40 bytes a trace; texts are read back from disk when a
policy needs one. A snapshot beside the journals (`.index`) holds the same, with the digest of the covered beginning
of each part, so that the next run reads only the later lines.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from distill.artifacts.compact_map import CompactMap
from distill.artifacts.files import Output
from distill.artifacts.json_lines import record_at
from distill.artifacts.layout import part_number, part_path
from distill.artifacts.snapshot import PrefixDigest, read_snapshot, write_snapshot
from distill.errors import StorageError
from distill.trace_records.trace_lines import USAGE
from distill.types import Outcome
from teacher.messages.completion import ROW_FAULTS
from teacher.scheduling.sampling_policy import TraceStatus

OUTCOMES = tuple(str(outcome) for outcome in Outcome)
_ENTRY = struct.Struct("<BIQIIII")
"""Outcome, number of the part, position of the line in it, token counts."""
_usage_of = itemgetter(*USAGE)
_SNAPSHOT = ".index"
_SNAPSHOT_VERSION = 2

Prefix = tuple[int, int, str]
"""Number of a part, and size and digest of its beginning."""


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
    """Ids that only have an error from an earlier run, and whether it may be gone when they are asked again."""
    failed: dict[bytes, bool] = field(default_factory=dict)
    """Ids with an error of this run, which are not asked again in it, and whether asking another time may help."""
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
    parsed_as: Sequence[Any] = ()
    """The teacher's mode and the version of the parser, as all records have them that are not in `stale` parts."""
    before_read: Callable[[], None] = lambda: None
    """Writes the lines that a journal still holds."""
    _done: CompactMap = field(default_factory=lambda: CompactMap(_ENTRY.size))
    _saved: list[Prefix] = field(default_factory=list)
    """What the snapshot covers."""
    _digests: dict[Path, PrefixDigest] = field(default_factory=dict)
    _files: dict[int, IO[bytes]] = field(default_factory=dict)

    def __contains__(self, trace_id: str) -> bool:
        """Whether a trace is finished (any outcome but error)."""
        return bytes.fromhex(trace_id) in self._done

    def add(self, record: Mapping[str, Any], part: int, start: int) -> None:
        """Count one record on disk, in a part, its line starting at byte `start`. Errors count as of this run."""
        key = bytes.fromhex(record["id"])
        if "notes" in record:
            self.odd += bool(record["notes"])
        if record["outcome"] == Outcome.ERROR:
            self.with_errors.add(part_path(self.folder, part, ".jsonl"))
            self.failed[key] = not record["error"].startswith(ROW_FAULTS)
            return
        usage = record["usage"]
        code = OUTCOMES.index(record["outcome"])
        self._done[key] = _ENTRY.pack(code, part, start, *_usage_of(usage))
        self.engines[record["engine"]["name"]] = record["engine"]["version"]

    def settle_errors(self) -> None:
        """Treat the errors of earlier runs as errors of this run: they are not asked again."""
        self.failed, self.errors = self.errors | self.failed, {}

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
        return Entry(outcome=OUTCOMES[code], part=part, start=start, usage=dict(zip(USAGE, usage, strict=True)))

    def lies_at(self, trace_id: str, part: int, start: int) -> bool:
        """Whether this record is the one that counts of a finished trace."""
        entry = self.entry(trace_id)
        return entry is not None and (entry.part, entry.start) == (part, start)

    def usage(self, trace_id: str) -> Sequence[int] | None:
        """The token counts of a finished trace, in the order of USAGE; None when it is not finished."""
        packed = self._done.get(bytes.fromhex(trace_id))
        return None if packed is None else _ENTRY.unpack(packed)[-len(USAGE) :]

    def status_of(self, trace_id: str) -> TraceStatus | None:
        """A finished trace, or an error of this run; what failed in an earlier run counts as never asked."""
        key = bytes.fromhex(trace_id)
        packed = self._done.get(key)
        if packed is not None:
            return TraceStatus(outcome=OUTCOMES[packed[0]], record=lambda: self.read(trace_id))
        return _FAILED if key in self.failed else None

    def status_or_failure(self, trace_id: str) -> TraceStatus | None:
        """As `status_of`, with the errors of earlier runs: for the state of the stage, not for what to ask."""
        return self.status_of(trace_id) or (_FAILED if bytes.fromhex(trace_id) in self.errors else None)

    def failure(self, trace_id: str) -> bool | None:
        """Whether a failed trace may pass another time; None when it has not failed."""
        key = bytes.fromhex(trace_id)
        return self.failed.get(key, self.errors.get(key))

    def read(self, trace_id: str) -> dict[str, Any]:
        """The record of a finished trace."""
        self.before_read()
        entry = self.entry(trace_id)
        assert entry is not None
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
        return {
            part.name: Output(sha256=self._digest(part), bytes=self.ends[part], count=records)
            for part, records in self.records.items()
        }

    def _digest(self, part: Path) -> str:
        """The digest of what was read and written of a part. StorageError when it has another size now."""
        size = part.stat().st_size if part.is_file() else None
        digest = self._prefix_digest(part, self.ends[part]) if size == self.ends[part] else ""
        if not digest:
            state = "is gone" if size is None else f"has {size:,} bytes"
            raise StorageError(
                f"{part}: the file {state} and should have {self.ends[part]:,}; another program changed it. Run the "
                "same command again; it asks for the lost traces again"
            )
        return digest

    def extend(self, part: Path, end: int) -> None:
        """A part is opened and has this size; a torn last line may have been cut off."""
        if self.ends.get(part) != end:
            self._digests.pop(part, None)
        self.ends[part] = end

    def _prefix_digest(self, part: Path, end: int) -> str:
        return self._digests.setdefault(part, PrefixDigest()).of(part, end)

    def prefixes(self) -> list[Prefix]:
        """The parts that hold something, as they were read and written. StorageError when one is not."""
        return [(part_number(part), self.ends[part], self._digest(part)) for part in self.records if self.ends[part]]

    def begins_with(self, prefixes: Sequence[Sequence[Any]]) -> bool:
        """Whether the parts begin with what `prefixes` said of them at another time."""
        return all(
            self._prefix_digest(part_path(self.folder, number, ".jsonl"), end) == digest
            for number, end, digest in prefixes
        )

    def save(self) -> None:
        """Write the snapshot, if all that the parts hold is in the index and as it is to be."""
        prefixes = self.prefixes()
        whole = self.parsed_as and not (self.damaged or self.stale)
        pieces = self._done.pieces() if whole and prefixes != self._saved else None
        if pieces is None:
            return
        errors = {**self.errors, **self.failed}
        header = {
            "version": _SNAPSHOT_VERSION,
            "parsed_as": self.parsed_as,
            "parts": prefixes,
            "records": [records for part, records in self.records.items() if self.ends[part]],
            "with_errors": [part_number(part) for part in self.with_errors],
            "errors": {key.hex(): passing for key, passing in errors.items()},
            "engines": self.engines,
            "odd": self.odd,
        }
        write_snapshot(self.folder / _SNAPSHOT, header, pieces)
        self._saved = prefixes

    def load(self) -> dict[Path, int]:
        """Take over the snapshot if the parts still begin with the covered bytes; returns the number of covered bytes
        of each part."""
        snapshot = read_snapshot(self.folder / _SNAPSHOT)
        if snapshot is None:
            return {}
        header, pieces = snapshot
        if header.get("version") != _SNAPSHOT_VERSION or header["parsed_as"] != list(self.parsed_as):
            return {}
        if not self.begins_with(header["parts"]):
            return {}
        covered = {part_path(self.folder, number, ".jsonl"): end for number, end, _ in header["parts"]}
        self.records.update(zip(covered, header["records"], strict=True))
        self.with_errors.update(part_path(self.folder, number, ".jsonl") for number in header["with_errors"])
        self.failed.update((bytes.fromhex(key), passing) for key, passing in header["errors"].items())
        self.engines.update(header["engines"])
        self.odd = header["odd"]
        self._saved = [(number, end, digest) for number, end, digest in header["parts"]]
        self._done = CompactMap.load(_ENTRY.size, pieces)
        return covered

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


_FAILED = TraceStatus(outcome=str(Outcome.ERROR), record=dict)
