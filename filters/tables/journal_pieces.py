"""The journals of a generate stage in pieces of whole lines, and what the index of traces needs of each record.

A piece is read without the others, so that processes share the journals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.artifacts.journal import read_jsonl_at
from distill.artifacts.json_lines import is_plain
from distill.data.sample_files import content_number, sample_content
from distill.trace_records.trace_lines import trace_fault
from distill.types import Outcome, Sample, Trace

_OF_TRACE = ("id", "sample_id", "teacher", "k", "reasoning", "answer", "text", "outcome", "finish_reason")
"""What signals can depend on; when a trace was made is not part of it."""

_PIECE_BYTES = 8_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """The model and engine that produced traces, as the traces record them."""

    teacher: str
    model: str
    revision: str
    engine: str
    hinted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPiece:
    """Whole lines of a journal."""

    number: int
    path: Path
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRecords:
    """What the index needs of the records in a piece, in their order."""

    piece: JournalPiece
    ids: list[str]
    starts: list[int]
    digests: list[int]
    failed: list[bool]
    makers: list[Maker]


def pieces(journals: Sequence[Path]) -> Iterator[JournalPiece]:
    """The journals in pieces of whole lines. Without checksums, damage can be judged only from the whole file."""
    for number, path in enumerate(journals):
        size = path.stat().st_size
        begin = 0
        while begin < size:
            end = size if is_plain(path) else _line_after(path, begin + _PIECE_BYTES)
            yield JournalPiece(number=number, path=path, begin=begin, end=end)
            begin = end


def _line_after(path: Path, place: int) -> int:
    """Where the first line begins that does not begin before this byte."""
    with path.open("rb") as file:
        file.seek(place - 1)
        file.readline()
        return file.tell()


def read_piece(piece: JournalPiece) -> PieceRecords:
    """Raises DataError where a line is damaged."""
    makers: dict[Maker, Maker] = {}
    found = PieceRecords(piece=piece, ids=[], starts=[], digests=[], failed=[], makers=[])
    for start, record in read_jsonl_at(piece.path, check=trace_fault, begin=piece.begin, end=piece.end):
        maker = _maker(record)
        found.ids.append(record["id"])
        found.starts.append(start)
        found.digests.append(content(record))
        found.failed.append(record["outcome"] == Outcome.ERROR)
        found.makers.append(makers.setdefault(maker, maker))
    return found


def content(item: Sample | Trace | dict[str, Any]) -> int:
    """A number of 128 bits for all that signals can depend on in a sample, a trace or a trace's record.

    The numbers of several are added up, so that their order does not matter.
    """
    if isinstance(item, Sample):
        return sample_content(item)
    return content_number({name: item[name] if isinstance(item, dict) else getattr(item, name) for name in _OF_TRACE})


def _maker(record: dict[str, Any]) -> Maker:
    engine = record["engine"]
    return Maker(
        teacher=record["teacher"],
        model=record["model"],
        revision=record["revision"],
        engine=" ".join(str(engine[key]) for key in ("name", "version") if engine[key]),
        hinted=record["hinted"],
    )
