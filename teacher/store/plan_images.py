"""Whether the images of a plan are there, and are those that it was made from."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.layout import PLAN_STATE, SAMPLES
from distill.artifacts.manifest import fingerprint
from distill.data.images.file_statuses import file_statuses
from distill.local_paths import is_store_address

_PATHS_AT_ONCE = 1 << 16
_STATE_KEYS = frozenset({"made_from", "files", "rows", "source", "extends", "routed"})
_MADE_FROM = frozenset({"settings", "content", "limit", "root", "images", "unreadable"})


def images_state(path: Path) -> str:
    """Digest over size and time of change of every file that the planned samples' images lie in.

    Of objects of a store it is over size and ETag, by one listing.
    """
    try:
        names = _image_paths(path)
        statuses = file_statuses(names)
        return fingerprint({name: [*statuses.get(name, ())] for name in names})
    except (OSError, pa.ArrowException, KeyError):
        return ""  # no plan, or a damaged one: it is made again


def _image_paths(path: Path) -> list[str]:
    paths: set[str] = set()
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=_PATHS_AT_ONCE, columns=["images.list.element.path"]):
            images: Any = batch["images"]
            paths.update(images.values.field("path").to_pylist())
    return sorted(paths)


def read_state(folder: Path) -> dict[str, Any] | None:
    """The content of `plan.json`; None if the file is missing or incomplete."""
    try:
        state: dict[str, Any] = orjson.loads((folder / PLAN_STATE).read_bytes())
        whole = state.keys() >= _STATE_KEYS and state["made_from"].keys() >= _MADE_FROM and SAMPLES in state["files"]
    except (OSError, orjson.JSONDecodeError, AttributeError, TypeError):
        return None
    return state if whole else None


def unreadable_folders(folder: Path, inputs: Mapping[str, Any]) -> list[str]:
    """Folders of images of the plan in place that cannot be read now, though source and place are the same."""
    state = read_state(folder)
    if state is None or any(state["made_from"][key] != inputs[key] for key in ("content", "root")):
        return []
    try:
        names = [name for name in _image_paths(folder / SAMPLES) if not is_store_address(name)]
        there = file_statuses(names)
        missing = {str(Path(name).parent) for name in names if name not in there}
    except (OSError, pa.ArrowException, KeyError):
        return []
    return sorted(name for name in missing if not _has_entries(name))


def _has_entries(folder: str) -> bool:
    """Whether a folder can be listed and holds something."""
    with suppress(OSError), os.scandir(folder) as entries:
        return any(entries)
    return False
