"""The kinds of tables, by the endings of their files' names, and tables of lines that are compressed."""

import io
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

PACKED_LINES = "packed_jsonl"
SHARDS = "tar"
"""Tar files whose members are rows and their images (distill/data/tables/tar_shards.py)."""
_CODECS = {".gz": "gzip", ".zst": "zstd"}
KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    **{f"{ending}{codec}": PACKED_LINES for codec in _CODECS for ending in (".jsonl", ".ndjson")},
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".tar": SHARDS,
}


def suffix_of(path: Path) -> str:
    """The ending of a file's name in lower case; of a compressed file with the one before it, as in .jsonl.gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes and suffixes[-1] in _CODECS else suffixes[-1:])


def open_lines(path: Path) -> BinaryIO:
    """The bytes of a table of lines, decompressed. Reading a cut or damaged one raises OSError."""
    codec = _CODECS.get(path.suffix.lower())
    return path.open("rb") if codec is None else io.BufferedReader(pa.input_stream(str(path), compression=codec))
