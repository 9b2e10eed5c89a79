"""The labelled pairs of the answer judge, for tests and benchmarks (docs/answers.md has their columns)."""

import hashlib
from pathlib import Path
from typing import Any

import orjson

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "data" / "answers" / "pairs"
"""One file a source, in the order in which they were written."""


def _data(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path]))


def read_pairs(path: Path = FOLDER) -> list[dict[str, Any]]:
    """Every pair of a file, or of the files of a folder in the order of their names."""
    return [orjson.loads(line) for line in _data(path).splitlines()]


def pairs_version(path: Path = FOLDER) -> str:
    """The first 12 digits of the SHA-256 of all files one after the other."""
    return hashlib.sha256(_data(path)).hexdigest()[:12]
