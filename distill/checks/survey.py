"""What a data source holds, found in a bounded time: usable rows, gold answers, images, domains.

Rows are read by the function that the stages use. After the time for full decoding, the survey only checks that the
images of further rows exist, and decodes every fiftieth. After the whole time, it leaves the rest of the source
unread.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from distill.data import reader, sources
from distill.data.images import image_files
from distill.data.images.image_cells import RANGES
from distill.errors import ImageError
from distill.recipe.recipe import Recipe
from distill.types import BadRow, ImageRef, Sample
from distill.word_tables import counted
from filters.run_signals import question_duplicates

KEPT = 512
"""Samples that are kept for further checks."""
_DECODING_SHARE = 0.6
_DECODED_AFTERWARDS = 50
"""When the time for decoding is over, one of this number of rows is still decoded."""
_SIZED = 200
_SHOWN = 3


@dataclass(slots=True, kw_only=True)
class Survey:
    """A source as far as it was read."""

    name: str
    samples: int = 0
    golds: int = 0
    """Samples with a gold answer."""
    without_gold: str = ""
    """The first question without one."""
    pictured: int = 0
    """Samples with images."""
    most_images: int = 0
    """Largest number of images of one sample."""
    images: int = 0
    """Images of all samples."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Rows that cannot be used."""
    first_bad: list[BadRow] = field(default_factory=list)
    domains: Counter[str] = field(default_factory=Counter)
    answer_types: Counter[str] = field(default_factory=Counter)
    kept: list[Sample] = field(default_factory=list)
    decoded: bool = True
    """Whether every image was decoded."""
    whole: bool = True
    """Whether every row was read."""
    image_bytes: float = 0.0
    """Mean size of an image's file."""
    asked_again: int = 0
    """Samples that ask what an earlier one asks of the same images, but for case, layout and closing punctuation."""
    _asked: set[bytes] = field(default_factory=set)

    @property
    def bad(self) -> int:
        return self.reasons.total() - self.reasons["duplicate_row"]

    @property
    def extent(self) -> str:
        """The questions that were read."""
        if self.whole:
            return counted(self.samples, "question")
        return "the first question" if self.samples == 1 else f"the first {counted(self.samples, 'question')}"

    def of_rows(self, rows: int) -> str:
        """This many of the rows that were read are meant: `of 20 rows`, or `of the first 20 rows`."""
        return f"of {'' if self.whole else 'the first '}{counted(rows, 'row')}"

    def describe(self) -> str:
        parts = [self.extent, f"{self.golds:,} with a gold answer", f"{self.pictured:,} with images"]
        if copies := self.reasons["duplicate_row"]:
            parts.append(f"{counted(copies, 'further row')} the same as another")
        if not self.decoded:
            parts.append("some images decoded; for the others only the existence of the file was checked")
        return ", ".join(parts)

    def count(self, sample: Sample) -> None:
        self.samples += 1
        self.golds += bool(sample.answers)
        if not sample.answers and not self.without_gold:
            self.without_gold = sample.question[:80]
        self.pictured += bool(sample.images)
        self.images += len(sample.images)
        self.most_images = max(self.most_images, len(sample.images))
        self.domains[sample.domain] += 1
        self.answer_types[sample.answer_type or ""] += 1
        images = "".join(ref.sha256 for ref in sample.images).encode()
        asked = hashlib.blake2b(question_duplicates.key(sample) + images, digest_size=16).digest()
        self.asked_again += asked in self._asked
        self._asked.add(asked)
        if len(self.kept) < KEPT:
            self.kept.append(sample)


def survey(
    recipe: Recipe, name: str, *, seconds: float, visit: Callable[[Sample], object] = lambda sample: None
) -> Survey:
    """Read a source that is on this disk for about `seconds` at most; call `visit` with every sample.

    Raises DataError as reading it in a stage would, for what was read.
    """
    result = Survey(name=name)
    started = time.monotonic()

    def decode(number: int) -> bool:
        if time.monotonic() - started < seconds * _DECODING_SHARE or number % _DECODED_AFTERWARDS == 0:
            return True
        result.decoded = False
        return False

    for item in reader.read(recipe, name, decode=decode):
        if isinstance(item, Sample):
            result.count(item)
            visit(item)
        else:
            result.reasons[item.reason] += 1
            if len(result.first_bad) < _SHOWN and item.reason != "duplicate_row":
                result.first_bad.append(item)
        if time.monotonic() - started > seconds:
            result.whole = False
            break
    if result.whole or not result.samples:  # the rows that were not read may be better
        reader.require_enough(sources.settings(recipe, name), name, result.samples, result.reasons, result.first_bad)
    result.image_bytes = _mean_bytes(result)
    return result


def _mean_bytes(survey: Survey) -> float:
    """Mean size of an image as its file, its range of a file or its cell of a table holds it, by the first ones."""
    refs = (ref for sample in survey.kept for ref in sample.images)
    sizes = list(islice((size for size in map(_bytes_of, refs) if size), _SIZED))
    return sum(sizes) / len(sizes) if sizes else 0.0


def _bytes_of(ref: ImageRef) -> int:
    """The size of one encoded image; 0 where it is not known, as of one in a store that was only looked for."""
    if ref.column in RANGES:
        return ref.index
    file = image_files.own_file(ref)
    try:
        return file.stat().st_size if file is not None else len(image_files.read_bytes(ref))
    except (OSError, ImageError):
        return 0
