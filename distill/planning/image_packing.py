"""Images of a store in the plan of a run on many machines: the shards that it packs them into, and their requests."""

import tarfile
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import fmean

from distill.data.images import image_files
from distill.data.sample_files import read_samples
from distill.local_paths import is_store_address
from distill.object_store.recipe_stores import prepare_stores
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.units import image_shards

_PART_BYTES = 8 << 20
"""Size of a part of an upload."""
_LISTED = 1000
"""Objects that one request lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImages:
    """The images of a sample that lie in a store, in the mean: a run in a store packs them (image_shards)."""

    images: float
    """Different ones; an image with several questions counts once."""
    bytes: float | None
    """Mean size of an image."""
    objects: bool
    """Whether each one is an object, which is asked for by its name."""


def measure_load(recipe: Recipe, samples: Path, count: int) -> StoredImages | None:
    """The images of a run that lie in a store. Their bytes come from images that this machine keeps."""
    refs = image_shards.stored_refs(read_samples(samples)).values()
    if not refs:
        return None
    prepare_stores(recipe)
    kept = [image_files.own_file(ref) for ref in refs]
    sizes = [file.stat().st_size for file in kept if file is not None and file.is_file()]
    return StoredImages(
        images=len(refs) / count, bytes=fmean(sizes) if sizes else None, objects=not any(ref.column for ref in refs)
    )


def largest_load(recipe: Recipe) -> StoredImages | None:
    """The most without a run: an image for each question. Their bytes are not known."""
    source = recipe.data.get(ASKED)
    if source is None or not is_store_address(source.images_root or source.source):
        return None
    return StoredImages(images=1.0, bytes=None, objects=False)


def count_requests(
    images: StoredImages, samples: int, partitions: int, rounds: int
) -> tuple[int, tuple[float, float] | None]:
    """Shards of images in a run, and the requests for them that write or list, and that read: None without bytes."""
    per_partition = images.images * samples / partitions
    # Of a tar: the head of a member, and its bytes in whole blocks.
    size = tarfile.BLOCKSIZE * (1 + ceil((images.bytes or 0.0) / tarfile.BLOCKSIZE))
    shards = max(1, ceil(per_partition / ceil(image_shards.SHARD_BYTES / size)))
    if images.bytes is None:
        return partitions * shards, None
    shard_bytes = per_partition * size / shards
    parts, ranges = ceil(shard_bytes / _PART_BYTES), ceil(shard_bytes / image_shards.READ_BYTES)
    # A unit lists and reads the shards of its partition, so does filter, which reads all once more at its end.
    lists = (rounds + 1) * partitions + ceil(partitions * shards / _LISTED)
    writes = partitions * shards * (parts + 2 if parts > 1 else 1) + lists
    asked = images.images * samples if images.objects else 0.0
    return partitions * shards, (writes, asked + (rounds + 2) * partitions * shards * ranges)
