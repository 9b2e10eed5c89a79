"""Whether a source's pictures are still those that a stage was made from.

A stage's fingerprint covers a source's table; its pictures may be millions of files. The first ones are noted in the
manifest's inputs.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from distill.artifacts.layout import PICTURES
from distill.artifacts.manifest import fingerprint
from distill.data import reader, sources
from distill.errors import StaleError
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Sample

_LOOKED_AT = 8
"""Rows of a source whose pictures are compared."""


def pictures_digest(recipe: Recipe, name: str) -> str:
    """Digest of the pictures of a source's first rows: it tells another folder of pictures from the one used before.

    `data.source_fields` cannot: it digests tables and no pictures. Empty where that is not known: for a hub name, for
    rows without pictures, and where one of them cannot be read now.
    """
    if not sources.is_there(recipe, name):
        return ""
    first = list(islice(reader.read(recipe, name), _LOOKED_AT))
    if any(isinstance(row, BadRow) for row in first):
        return ""
    digests = [ref.sha256 for row in first if isinstance(row, Sample) for ref in row.images]
    return fingerprint({"pictures": digests}) if digests else ""


def require_same_pictures(recipe: Recipe, names: Iterable[str], before: Mapping[str, str], where: str) -> None:
    """Raises StaleError when a source has other pictures than those noted in a manifest's inputs."""
    for key, digest in pictures_of(recipe, names).items():
        if digest and before.get(key, digest) != digest:
            name = key.removeprefix(PICTURES)
            raise StaleError(
                f"{where} was made from other images of [data.{name}]: its images_root "
                f"({recipe.data[name].images_root or 'the folder of its source'}) now leads to different ones",
                "undo the change, or make the stage again with --fresh",
            )


def pictures_of(recipe: Recipe, names: Iterable[str]) -> dict[str, str]:
    """The digests of sources' pictures as a manifest's inputs."""
    return {f"{PICTURES}{name}": digest for name in names if (digest := pictures_digest(recipe, name))}
