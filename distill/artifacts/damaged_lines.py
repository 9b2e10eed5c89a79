"""Damaged lines: they are moved to a file beside their own, with their position and the reason, and counted.

`part-00000.jsonl.damaged` holds what was set aside of `part-00000.jsonl`, one JSON object a damaged piece: `line`,
`start` (the byte it was at), `reason`, and its bytes as `text`, or as `base64` where they are no text. The module
that owns the file finds out which records are lost and makes them again.
"""

import base64
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distill.artifacts.journal import Journal, read_jsonl, write_jsonl
from distill.artifacts.json_lines import BLANK, Check, Damaged, Record, no_check

SUFFIX = ".damaged"


def side_file(path: Path) -> Path:
    """Where the damaged lines of a file are kept."""
    return path.with_name(f"{path.name}{SUFFIX}")


def recovered(path: Path, check: Check = no_check) -> Iterator[Record]:
    """The records of a file of the caller's own. When all are read, damaged lines are set aside and leave the file.

    Only for the holder of the run's lock, and while no Journal of the file is open.
    """
    damaged: list[Damaged] = []
    yield from read_jsonl(path, check=check, on_damage=damaged.append)
    if damaged:
        record_damaged(path, damaged)
        mend(path, check)


def record_damaged(path: Path, damaged: Iterable[Damaged]) -> None:
    """Add damaged lines of `path` to its side file; those that a killed process has added are not added again."""
    target = side_file(path)
    recorded = {_identity(record) for record in read_jsonl(target, on_damage=lambda _: None)}
    with Journal(target) as journal:
        for piece in damaged:
            record = {"line": piece.line, "start": piece.start, "reason": piece.reason, **_shown(piece.data)}
            if _identity(record) not in recorded:
                journal.append({**record, "found": datetime.now(UTC).isoformat(timespec="seconds")})


def mend(path: Path, check: Check = no_check) -> None:
    """Rewrite a file without what is damaged in it."""
    write_jsonl(path, read_jsonl(path, check=check, on_damage=lambda _: None))


def count_damaged(folder: Path) -> dict[Path, int]:
    """The number of damaged lines in the side files below a folder, by file; blank lines do not count.

    `distill repair` sets aside whole files under such names, too: those are no lists of lines.
    """
    counts = {
        path: sum(record.get("reason", BLANK) != BLANK for record in read_jsonl(path, on_damage=lambda _: None))
        for path in sorted(folder.rglob(f"*.jsonl{SUFFIX}"))
    }
    return {path: count for path, count in counts.items() if count}


def _shown(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _identity(record: Record) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("start", "reason", "text", "base64"))
