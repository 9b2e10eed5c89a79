"""Partitions: the ranges of samples by which many machines share a run.

A sample belongs to a range of the digest of its first image (of its id, where it has no image). So all questions
about an image, and all copies of a question, are in one partition. New rows of a source move no other row. If the
number of partitions doubles, each partition is split in two. The plan of a run holds these numbers; no later stage
computes them again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distill.types import Sample

ROWS = 10_000
"""Samples of a partition, about: some ten minutes of a host."""
_HISTOGRAM_BITS = 20
_CUT_BEYOND = 4
"""A range of so many times the wanted samples has an image with very many questions; it is cut by sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """`2 ** bits` ranges of keys. `cuts`: into `2 ** n` parts by sample id, the ranges of these names."""

    bits: int
    cuts: Mapping[str, int] = field(default_factory=dict)

    def partition_of(self, sample: Sample) -> str:
        """The name of the partition that a sample belongs to."""
        name = self._name(_key(sample) >> (32 - self.bits))
        if name not in self.cuts:
            return name
        return f"{name}-{int(sample.id[8:16], 16) >> (32 - self.cuts[name]):x}"

    def names(self) -> list[str]:
        """Every partition, whether it holds samples or not."""
        ranges = (self._name(number) for number in range(1 << self.bits))
        return [each for name in ranges for each in self._parts(name)]

    def _name(self, number: int) -> str:
        return f"{number:0{max(2, -(-self.bits // 4))}x}"

    def _parts(self, name: str) -> list[str]:
        return [f"{name}-{part:x}" for part in range(1 << self.cuts[name])] if name in self.cuts else [name]


def key_histogram(samples: Iterable[Sample]) -> NDArray[np.int64]:
    """Samples by the first 20 bits of their key. Histograms of the files of a source add up."""
    counts = np.zeros(1 << _HISTOGRAM_BITS, dtype=np.int64)
    for sample in samples:
        counts[_key(sample) >> (32 - _HISTOGRAM_BITS)] += 1
    return counts


def plan_partitions(histogram: NDArray[np.int64], rows: int = ROWS) -> Partitions:
    """Partitions of about `rows` samples each."""
    bits = min(_power(int(histogram.sum()), rows), _HISTOGRAM_BITS)
    plain = Partitions(bits=bits)
    counts = histogram.reshape(1 << bits, -1).sum(axis=1)
    large = np.flatnonzero(counts > _CUT_BEYOND * rows)
    return Partitions(
        bits=bits, cuts={plain._name(number): _power(int(counts[number]), rows) for number in large.tolist()}
    )


def range_count(samples: int, rows: int) -> int:
    """Number of partitions for this number of samples, if no image has very many questions."""
    return 1 << min(_power(samples, rows), _HISTOGRAM_BITS)


def _power(count: int, rows: int) -> int:
    """The smallest n for which `2 ** n` partitions of equal size have at most `rows` each."""
    return max(0, -(-count // rows) - 1).bit_length()


def _key(sample: Sample) -> int:
    return int((sample.images[0].sha256 if sample.images else sample.id)[:8], 16)
