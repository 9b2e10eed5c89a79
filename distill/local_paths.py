"""Paths of this machine, and addresses of stores (s3://, gs://, hf://, file://) where such a path is meant.

Python's path library takes such an address for a local folder named `s3:`, and a run would write into it for weeks.
So these addresses are refused before anything is read or written.
"""

import os
import re
from pathlib import Path

from distill.errors import RecipeError

STORE_SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
"""Addresses of object stores that can hold a run."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_COLLAPSED = re.compile(r"(s3a?|gs|gcs|hf|file|https?|az|abfss?|adl|r2|hdfs|s?ftp|ssh|memory):/")
"""What pathlib leaves of an address."""
_INSTEAD = {
    "file": "write the path itself, without file://",
    "hf": "for data and models write the hub name OWNER/NAME",
    "http": "download it first and give the path of the copy",
}

_STORE_RUNS = (
    "Only `distill generate`, `filter`, `train`, `eval` and `run` take the address of a store, as --run, "
    "and `distill pull` copies such a run to a folder; of anything else copy or mount the store and give the path of "
    "the copy"
)


def refuse_address(value: str | Path) -> None:
    """Raises RecipeError for an address."""
    if problem := address_problem(str(value)):
        raise RecipeError(problem)


def address_problem(value: str) -> str:
    """What is wrong with an address that stands for a path, and what to do; empty for a path or a hub name."""
    match = _ADDRESS.match(value) or _COLLAPSED.match(value)
    if not match:
        return ""
    scheme = match[1].lower()
    instead = _INSTEAD.get(scheme.removesuffix("s") if scheme == "https" else scheme)
    return (
        f"{value}: an address ({scheme}) where a folder or file of this machine is needed; nothing was created. "
        f"{instead or _STORE_RUNS}"
    )


def real_path(path: Path) -> Path:
    """An absolute path without links; where links go round, the path as it is (`Path.resolve` raises there)."""
    return Path(os.path.realpath(path))
