"""Data sets of the Hugging Face hub as sources: the datasets library downloads and caches them."""

import re
from pathlib import Path

from distill import packages
from distill.data.tables.table_kinds import KINDS, suffix_of
from distill.errors import DataError, first_line
from distill.machine import hub
from distill.recipe.sections.data import DataSource

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def is_hub_name(source: DataSource) -> bool:
    """Whether a source that is not on this disk has the form of a hub name."""
    return bool(_HUB_NAME.fullmatch(source.source)) and suffix_of(Path(source.source)) not in KINDS


def check_hub(source: DataSource, path: Path, where: str) -> None:
    """Raise DataError or MissingExtra, without any network, where a hub name cannot be read as the recipe says."""
    packages.require(f"{where}: {path} does not exist, so it would be a hub name; reading the hub", "datasets")
    if "[" in source.split:
        raise DataError(f"{where}: split = {source.split!r}: slices are not read; use limit")


def dataset_files(source: DataSource, path: Path, where: str, hint: str) -> list[Path]:
    """The Arrow files of a data set of the hub, from the local cache where the hub is not reached.

    Raises DataError; `hint` is about `path`, where the source would lie on this disk.
    """
    check_hub(source, path, where)
    import datasets

    unreached = ""
    try:
        with hub.cache_if_unreached(source.source, "dataset") as unreached:
            dataset = datasets.load_dataset(source.source, source.subset, split=source.split)
            files = [Path(item["filename"]) for item in dataset.cache_files]
    except (OSError, ValueError, RuntimeError) as error:
        reason = first_line(error)
        if unreached:
            raise DataError(
                f"{where}: the hub cannot be reached ({unreached}; HF_HUB_OFFLINE=1 reads only the cache), and its "
                f"local cache does not help: {reason}; {path} does not exist{hint}; name a file or folder, or "
                "download it where there is a network"
            ) from None
        raise DataError(
            f"{where}: no readable data set of the hub: {reason}; {path} does not exist{hint}; "
            "check the name, subset, split and the network"
        ) from None
    if not files:
        raise DataError(f"{where}: the datasets library kept no cache files; unset HF_DATASETS_IN_MEMORY_MAX_SIZE")
    return files
