"""Separates paths of this machine from addresses of stores (s3://, gs://, hf://, file://).

Python's path library takes such an address for a local folder named `s3:`, and a run would write into it for weeks.
So these addresses are refused before anything is read or written.
"""

import os
import re
import shlex
from os import PathLike
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import unquote, urlsplit

from distill.errors import RecipeError

STORE_SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
"""Addresses of object stores that can hold a run."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_COLLAPSED = re.compile(r"(s3a?|gs|gcs|hf|file|https?|az|abfss?|adl|r2|hdfs|s?ftp|ssh|memory):/")
"""What pathlib leaves of an address."""
_INSTEAD = {
    "file": "Write the path itself, without file://",
    "hf": "For data and models write the hub name OWNER/NAME",
    "http": "Download it first and give the path of the copy",
}

_STORE_RUNS = (
    "Only `distill generate`, `filter`, `train`, `eval` and `run` take the address of a store, as --run, "
    "`distill pull` copies such a run to a folder, and a recipe may name one as data.NAME.source and "
    "data.NAME.images_root; of anything else copy or mount the store and give the path of the copy"
)

_OF_STORES = tuple(f"{scheme}://" for scheme in STORE_SCHEMES)


def is_store_address(value: str) -> bool:
    """Whether a value is the address of an object or a folder of a store."""
    return value.startswith(_OF_STORES)


def store_problem(value: str) -> str:
    """What is wrong with an address of a store; empty where nothing is, and for any other value."""
    if not is_store_address(value):
        return ""
    parts = urlsplit(value)
    if not parts.netloc:
        return f"{value}: no bucket is named; an address of a store is {parts.scheme}://bucket/folder"
    # Of Azure the part before the @ is the container.
    if parts.password or parts.query or (parts.username and not parts.scheme.startswith("abfs")):
        return (
            f"{parts.scheme}://{parts.hostname}{parts.path}: credentials do not belong into an address, which is "
            "kept in files and shown in messages; set the variables of your store, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    if not value.isprintable() or {".", ".."} & set(unquote(parts.path).split("/")):
        return f"{value!r}: '.', '..', tabs and line ends are no part of an address; write the name of each folder"
    return ""


def refuse_address(value: str | Path) -> None:
    """Raises RecipeError for an address."""
    if problem := address_problem(str(value)):
        raise RecipeError(problem)


def address_problem(value: str) -> str:
    """The fault of an address in the place of a path, with the next step; empty for a path or a hub name."""
    match = _ADDRESS.match(value) or _COLLAPSED.match(value)
    if not match:
        return ""
    scheme = match[1].lower()
    instead = _INSTEAD.get(scheme.removesuffix("s") if scheme == "https" else scheme)
    if (store := scheme.rstrip("an")) in STORE_SCHEMES and not is_store_address(value):
        instead = f"An address of a store is {store}://bucket/folder, in small letters"
    return (
        f"{value}: an address ({scheme}) where a folder or file of this machine is needed; nothing was created. "
        f"{instead or _STORE_RUNS}"
    )


def as_argument(value: str | Path) -> str:
    """A path or an address as a command that is shown names it: it may hold spaces."""
    return shlex.quote(str(value))


def run_command(verb: str, recipe: Path, run: Path) -> str:
    """The command of a verb on a run, as a message shows it: the run need not lie in its usual place."""
    return f"`distill {verb} {as_argument(recipe)} --run {as_argument(run)}`"


def leads_outside(name: str) -> bool:
    """Whether a name that comes from elsewhere would lead out of the folder that it is meant to lie in."""
    return not name or ".." in PurePosixPath(name).parts or bool(PureWindowsPath(name).anchor)


def from_home(value: str | PathLike[str]) -> Path:
    """A path with `~` as the home folder; `~` of a user whom this machine does not know stays."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        return Path(value)


def given_path(value: str | PathLike[str]) -> Path:
    """The path that a user gives, `~` as the home folder: a shell does not replace it in `--run=~/run`.

    Arrow and DuckDB take `a:b` for an address, and replace a `~` that stays. They get the whole path.
    """
    path = from_home(value)
    return path if path.is_absolute() or not re.match("~|[^/]*:", str(path)) else Path.cwd() / path


def real_path(path: Path) -> Path:
    """An absolute path without links; where links go round, the path as it is (`Path.resolve` raises there)."""
    return Path(os.path.realpath(path))
