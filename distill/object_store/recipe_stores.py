"""The stores of a recipe's sources and images.

A process and all that it starts share one setting: the folder of this machine in which objects are kept that were
fetched, and the options of `[store]`. It is in the environment, because workers begin in several ways. No secret is
in it.

    <folder>/tables/<scheme>/<bucket>/<key>   tables of sources (distill/data/tables/stored_tables.py)
    <folder>/images/<ab>/<sha256>             images, by their content (distill/data/images/stored_images.py)
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from distill.errors import RecipeError
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store

if TYPE_CHECKING:
    from distill.recipe.recipe import Recipe

_SETTING = "DISTILL_STORED_FILES"
_FOLDER = "files"


def open_run_store(recipe: "Recipe", address: str) -> ObjectStore:
    return open_store(address, config=recipe.store.client_options())


def scratch_root(recipe: "Recipe") -> Path:
    """The folder of this machine for temporary files. Raises RecipeError for one of another user."""
    root = recipe.local(recipe.engine.scratch) if recipe.engine.scratch else None
    root = root or _default_root()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and root.stat().st_uid != os.getuid():
        raise RecipeError(f"{root}: belongs to another user; set engine.scratch to a folder of your own")
    return root


@contextmanager
def files_in(scratch: Path, recipe: "Recipe") -> Iterator[None]:
    """Keep what is fetched inside the block in a folder that this process holds.

    It is removed at the end; where an error or a kill ends the block, the next process that holds `scratch` has it.
    """
    before = os.environ.get(_SETTING)
    _set(scratch / _FOLDER, recipe.store.client_options(), held=True)
    try:
        yield
        shutil.rmtree(scratch / _FOLDER, ignore_errors=True)
    finally:
        if before is None:
            del os.environ[_SETTING]
        else:
            os.environ[_SETTING] = before


def prepare_stores(recipe: "Recipe") -> None:
    """Let this process and its children open the stores of the recipe.

    Fetched files go to the scratch folder of the recipe, unless the process has its own folder.
    """
    if not _setting().get("held"):
        _set(scratch_root(recipe) / _FOLDER, recipe.store.client_options(), held=False)


def files_folder() -> Path:
    """The folder in which fetched objects are kept."""
    return Path(_setting()["folder"])


def open_address(address: str, *, patient: bool = True) -> tuple[ObjectStore, str]:
    """The store of an address, and the key in it. Without patience a store that is away is given up in seconds."""
    parts = urlsplit(address)
    bucket = f"{parts.scheme}://{parts.netloc}"
    # A connection does not survive a fork.
    store = _opened(bucket, orjson.dumps(_setting()["options"]), patient, os.getpid())
    return store, address.removeprefix(bucket).strip("/")


@lru_cache(maxsize=32)
def _opened(bucket: str, options: bytes, patient: bool, process: int) -> ObjectStore:
    return open_store(bucket, config=orjson.loads(options), read_only=True, patient=patient)


def _set(folder: Path, options: Mapping[str, Any], *, held: bool) -> None:
    setting = {"folder": str(folder), "options": dict(options), "held": held}
    os.environ[_SETTING] = orjson.dumps(setting).decode()


def _setting() -> dict[str, Any]:
    if _SETTING in os.environ:
        return dict(orjson.loads(os.environ[_SETTING]))
    return {"folder": str(_default_root() / _FOLDER), "options": {}}


def _default_root() -> Path:
    """A folder for this user alone: the temporary folder of Windows belongs to one."""
    return Path(tempfile.gettempdir()) / f"distill-{os.getuid() if hasattr(os, 'getuid') else 'files'}"
