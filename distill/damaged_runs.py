"""Finds the damaged files of a run and the work that is lost with each.

Reads every journal and compares every file of a finished stage with its manifest, by digest. Changes nothing:
setting damaged files aside is for `distill repair`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from distill.artifacts import layout
from distill.artifacts.files import Output, file_sha256
from distill.artifacts.integrity import CHANGED, MISSING, changed, digested, is_whole
from distill.artifacts.json_lines import BLANK, Check, Damaged, no_check, scan
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.errors import DataError, DistillError
from distill.local_paths import as_argument
from distill.run_log import LOG, OLDER
from distill.trace_records.trace_lines import trace_fault
from distill.word_tables import counted

_SKIPPED = (layout.CHECKPOINTS, layout.CACHE, "previous")
_RECORDS = (
    *(layout.METRICS, layout.VALIDATION, layout.VALIDATION_PAGE, layout.PARTS),
    *(layout.COVERAGE, layout.WEIGHTS, layout.IMAGES),
)
"""What a stage of training notes of itself; nothing is made from it."""
_SHOWN = 5
_UNREAD = (ValueError, FileNotFoundError, LookupError, TypeError, AttributeError)
"""What reading a damaged file raises: Arrow's and orjson's errors are ValueErrors; a file of JSON that holds another
kind of value than was written raises one of the last three. DuckDB's errors have a base of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One damaged file. `stage` is the folder whose manifest no longer holds, None where it only has to be noted."""

    path: Path
    what: str
    cost: str
    lines: bool = False
    """Whether only some lines are damaged, and the others stay."""
    stage: Path | None = None


@dataclass(slots=True)
class Seen:
    """How much was compared."""

    files: int = 0
    lines: int = 0
    bytes: int = 0
    records: dict[Path, int] = field(default_factory=dict)
    """Whole lines, by file."""


@contextmanager
def damage_named(run: Path) -> Iterator[None]:
    """Reads files of a run. What fails because files are damaged becomes a DataError that names them.

    Readers of Parquet and JSON raise errors of their own kinds, which name no file, or not the one to repair. An
    error of another kind, and one in a run without damage, passes.
    """
    try:
        yield
    except DistillError:
        raise
    except Exception as error:
        unread = isinstance(error, _UNREAD) or type(error).__module__ == "_duckdb"
        found = list(faults(run, Seen())) if unread else []
        if not found:
            raise
        count = f"{len(found):,} damaged {'file' if len(found) == 1 else 'files'}"
        first = f"{found[0].path.relative_to(run)}: {found[0].what}"
        said = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{run}: {count}, such as {first} ({said:.200}); `distill repair {as_argument(run)}` "
            "lists them and the lost work"
        ) from error


def faults(run: Path, seen: Seen) -> Iterator[Fault]:
    """The damaged files of a run, in the order of its folders; `seen` counts what was compared."""
    manifests: dict[Path, Manifest] = {}
    damaged = set()
    for path in _files(run, MANIFEST):
        try:
            manifest = Manifest.read(path.parent)
        except DataError:
            damaged.add(path)
            yield Fault(path=path, what=_UNREADABLE, cost=_FINISHED_AGAIN, stage=path.parent)
            continue
        if manifest is not None:
            manifests[path.parent] = manifest
    for path in _files(run, "*.jsonl"):
        if path.parent == run and path.name in (LOG, OLDER):
            continue
        stage = _stage_of(path, run)
        fault = _lines_fault(path, stage, manifests.get(stage), seen)
        if fault is not None:
            damaged.add(path)
            yield fault
    for folder, manifest in manifests.items():
        rest = {name: output for name, output in manifest.outputs.items() if folder / name not in damaged}
        seen.files += len(rest)
        seen.bytes += sum(output.bytes for output in rest.values())
        for name, reason in changed(folder, rest.items(), digests=True).items():
            noted = _is_record(manifest, name)
            cost = _cost(manifest, name, rest[name], seen.records.get(folder / name, 0))
            # Undamaged lines stay, also in a damaged file.
            lines = folder / name in seen.records and not noted
            yield Fault(path=folder / name, what=reason, cost=cost, lines=lines, stage=None if noted else folder)
    stated = {folder / name for folder, manifest in manifests.items() for name in manifest.outputs}
    for path in digested(run):
        if path not in stated and not is_whole(path) and not _is_skipped(path, run):
            reason = CHANGED if path.is_file() else MISSING
            yield Fault(path=path, what=reason, cost="its rows are measured again", stage=_stage_of(path, run))
    if run / "generate" not in manifests:
        yield from _plan_faults(run / "generate")


_UNREADABLE = f"it cannot be read, or {CHANGED}"
_FINISHED_AGAIN = "the stage is finished again from what is there"


def _files(run: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(run.rglob(pattern)):
        if path.is_file() and not _is_skipped(path, run):
            yield path


def _is_skipped(path: Path, run: Path) -> bool:
    """Whether a file is in a folder of the run that repair does not touch."""
    folders = path.relative_to(run).parts[:-1]
    return any(folder in _SKIPPED or folder.endswith(".previous") for folder in folders)


def _stage_of(path: Path, run: Path) -> Path:
    """The folder of the stage that a file belongs to: the nearest one with a manifest, or the first below the run."""
    folders = [folder for folder in path.parents if folder != run and folder.is_relative_to(run)]
    return next((folder for folder in folders if (folder / MANIFEST).is_file()), folders[-1] if folders else run)


def _lines_fault(path: Path, stage: Path, manifest: Manifest | None, seen: Seen) -> Fault | None:
    damaged: list[Damaged] = []
    for line in scan(path, line_check(path)):
        if isinstance(line, Damaged):
            damaged.append(line)
        else:
            seen.lines += 1
            seen.records[path] = seen.records.get(path, 0) + 1
    costly = [piece for piece in damaged if piece.reason != BLANK]
    if not damaged:
        return None
    reasons = Counter(piece.reason for piece in damaged)
    numbers = ", ".join(f"{piece.line:,}" for piece in damaged[:_SHOWN]) + (", ..." if len(damaged) > _SHOWN else "")
    reason = f"{len(damaged):,} damaged {'line' if len(damaged) == 1 else 'lines'} ({numbers}: {'; '.join(reasons)})"
    noted = path.name in _RECORDS
    owned = manifest is not None and path.relative_to(stage).as_posix() in manifest.outputs and not noted
    return Fault(
        path=path, what=reason, cost=_line_cost(path, len(costly)), lines=True, stage=stage if owned else None
    )


def line_check(path: Path) -> Check:
    """The check of a line of this file, in addition to its checksum."""
    return trace_fault if path.parent.parent.name == "generate" else no_check


def _line_cost(path: Path, count: int) -> str:
    if not count:
        return "no record is lost"
    if path.parent.parent.name == "generate":
        return f"the next run asks for at most {counted(count, 'trace')} again"
    if path.name == "replies.jsonl":
        return f"the next run asks at most {counted(count, 'question')} again"
    if path.name in _RECORDS:
        return "these lines of a record are lost, and nothing is made from it"
    return "what they held is made again"


def _is_record(manifest: Manifest, name: str) -> bool:
    return manifest.stage.startswith("train ") and name in _RECORDS


def _cost(manifest: Manifest, name: str, output: Output, records: int) -> str:
    """What the damage to an output of a finished stage costs; `records` are whole in it."""
    if manifest.stage == "generate" and "/part-" in name:
        return f"the next run asks for {counted(max(0, (output.count or 0) - records), 'trace')} again"
    if manifest.stage.startswith("train "):
        if _is_record(manifest, name):
            return "nothing is made from it"
        steps = manifest.counts.get("steps", 0)
        return f"the stage is trained again: {counted(steps, 'step')}, which took {manifest.seconds:,.0f} s"
    if manifest.stage == "filter" and "/part-" in name and not name.startswith("dataset/"):
        return f"the next run measures {counted(output.count or 0, 'row')} again"
    if name == "replies.jsonl":
        return f"the next run asks at most {counted(manifest.counts.get('predictions', 0), 'question')} again"
    return "it is made again from what is there"


def _plan_faults(folder: Path) -> Iterator[Fault]:
    """Damage to the plan of an unfinished generate stage, which notes its digests itself."""
    noted = folder / layout.PLAN_STATE
    try:
        files: Mapping[str, str] = orjson.loads(noted.read_bytes())["files"]
    except FileNotFoundError:
        return
    except (orjson.JSONDecodeError, KeyError, TypeError):
        yield Fault(
            path=folder / layout.PLAN_STATE, what="it cannot be read", cost="the source is read again", stage=folder
        )
        return
    for name, digest in files.items():
        if not (folder / name).is_file() or file_sha256(folder / name) != digest:
            reason = CHANGED if (folder / name).is_file() else MISSING
            yield Fault(path=folder / name, what=reason, cost="the source is read again", stage=folder)
