"""Near-duplicate texts of a whole corpus: a growing index on disk, verified pairs, connected components.

Candidates share a band or a half of their MinHash signatures (`filters.text.minhash`); a pair counts only when the
texts themselves say the same with the same values and names (`filters.text.edits`). The index holds texts, not
traces: a digest of the words, so texts of the same words are one entry. A text is compared only with texts that share
a band. Components do not depend on the order of the texts, and adding texts to an index gives the same result as
indexing all texts at once.

The index of a folder, all numpy arrays without pickle; `index.json` is written last and names what belongs to it:

    segment-00000/  digests.npy and names.npy (n,), signatures.npy (n, width),
                    keys.npy and rows.npy (keys, n) by key
    edges-00000.npy (m, 2): verified pairs, enough of them to connect every component
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from distill.artifacts.files import atomic_path, storage_errors, write_json
from distill.errors import DataError, StaleError, require_rows
from distill.machine.memory import give_back_pages
from distill.word_tables import counted
from filters.matching.connected_rows import ConnectedRows
from filters.text.minhash import (
    Digests,
    Scheme,
    ShingledText,
    Signatures,
    are_near,
    band_keys,
    shingle_texts,
    signature_agreement,
)
from filters.text.shingles import Hashes

Rows = NDArray[np.int64]
Read = Callable[[Sequence[int]], list[str]]
"""The texts of these rows of the index."""

_INDEX = "index.json"
_ARRAYS = ("digests", "names", "signatures", "keys", "rows")
"""The arrays of a segment, one file each."""
_MAX_SEGMENTS = 8
_BUCKET = 64
"""More texts than this under one key are not compared each with each: see `_wide`."""
_NEIGHBOURS = 8
_CHUNK = 16_384
_DOUBT = 4.0
"""A pair is not read when its estimate is more standard deviations below the threshold than this."""
_LEAST_OF_HALVES = 0.2
"""A pair that shares a half is not read when its estimate is below this: one edit leaves more, from 10 words on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Texts that were added together; row numbers continue the numbers of the segment before."""

    name: str
    first: int
    digests: Digests
    names: Hashes
    signatures: Signatures
    keys: Hashes
    rows: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.digests)


@dataclass(slots=True, kw_only=True)
class LshIndex:
    """The near duplicates among the texts of a folder. `counts` holds the work of the last update."""

    folder: Path
    scheme: Scheme
    threshold: float
    segments: list[Segment] = field(default_factory=list)
    edges: NDArray[np.uint32] = field(default_factory=lambda: np.empty((0, 2), np.uint32))
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def open(cls, folder: Path, scheme: Scheme, threshold: float) -> "LshIndex":
        """The index of a folder, empty when there is none. Raises StaleError for another scheme or threshold."""
        index = cls(folder=folder, scheme=scheme, threshold=threshold)
        try:
            saved = orjson.loads((folder / _INDEX).read_bytes())
        except FileNotFoundError:
            return index
        except orjson.JSONDecodeError as error:
            raise DataError(f"{folder / _INDEX}: not valid JSON ({error}); remove {folder} to index again") from None
        if saved["made_by"] != index._made_by():
            raise StaleError(
                f"{folder} was made by {saved['made_by']}, this is {index._made_by()}; signatures of different "
                "schemes cannot be compared: remove the folder to index again"
            )
        for name in saved["segments"]:
            index.segments.append(_load_segment(folder / name, len(index)))
        if saved["edges"]:
            index.edges = np.load(folder / saved["edges"], allow_pickle=False)
        return index

    def __len__(self) -> int:
        return sum(len(segment) for segment in self.segments)

    @property
    def digests(self) -> Digests:
        """Of every text, by row."""
        return _joined([segment.digests for segment in self.segments] or [np.empty(0, "S16")])

    @property
    def names(self) -> Hashes:
        """Of every text, by row."""
        return _joined([segment.names for segment in self.segments] or [np.empty(0, np.uint64)])

    def add(self, digests: Digests, names: Hashes, signatures: Iterator[Signatures], read: Read) -> None:
        """Add texts that are new and distinct, their signatures in pieces of any size, and find their pairs.

        `read` is asked for texts of rows, old and new ones; new rows follow the old ones in the given order.
        """
        if not len(digests):
            return
        segment = self._write(digests, names, signatures)
        before, self.segments = self.segments, [*self.segments, segment]
        pairs, wide = self._pairs(segment, before)
        if before and (wide or len(self.segments) > _MAX_SEGMENTS):
            # A key that became too common is compared as in `_wide`, which needs all its texts together.
            self._join(np.ones(len(self), dtype=bool))
            pairs, wide = self._pairs(self.segments[0], [])
        self._connect(pairs, read)
        self.counts["wide_keys"] = wide
        self._save()

    def keep(self, kept: NDArray[np.bool_], read: Read) -> None:
        """Remove all other texts and find pairs again: removed texts may have connected a component.

        `read` gets the row numbers after the removal.
        """
        if kept.all():
            return
        self._join(kept)
        if self.segments:
            pairs, self.counts["wide_keys"] = self._pairs(self.segments[0], [])
            self._connect(pairs, read)
        self._save()

    def components(self) -> Rows:
        """For each row the smallest row of its component."""
        labels, connected = np.arange(len(self)), self._connected()
        for row in np.unique(self.edges).tolist():
            labels[row] = connected.root(row)
        return labels

    def _pairs(self, new: Segment, before: Sequence[Segment]) -> tuple[NDArray[np.uint64], int]:
        """Candidate pairs of rows, as one number each, and the number of keys that were too common."""
        pairs: list[NDArray[np.uint64]] = []
        wide_keys = 0
        for band in range(self.scheme.keys):
            floor = self._floor(band)
            keys, rows = new.keys[band], new.rows[band].astype(np.int64) + new.first
            matches = [(old, *_find_keys(np.asarray(old.keys[band]), keys)) for old in before]
            starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
            sizes = np.diff(starts, append=len(keys))
            key_counts = sum((counts[starts] for _, _, counts in matches), start=sizes.copy())
            wide_keys += int((key_counts > _BUCKET).sum())
            pairs += [
                self._plausible(left, right, floor) for left, right in _pairs_within_groups(rows, starts, sizes)
            ]
            if not before:
                pairs += [self._plausible(*pair, floor) for pair in self._wide(rows, starts, sizes)]
            for old, firsts, counts in matches:
                left = np.repeat(rows, counts)
                offsets = np.repeat(firsts, counts) + _count_up(counts)
                pairs.append(self._plausible(old.rows[band][offsets].astype(np.int64) + old.first, left, floor))
            give_back_pages(*(array for old in (*before, new) for array in (old.keys, old.rows)))
        return np.unique(np.concatenate(pairs)) if pairs else np.empty(0, np.uint64), wide_keys

    def _wide(self, rows: Rows, starts: Rows, sizes: Rows) -> Iterator[tuple[Rows, Rows]]:
        """Pairs under a key that very many texts share: only neighbours in the order of names and signatures.

        Near duplicates are close together in that order and share other bands too. Otherwise a template of half of
        the corpus would give a million million pairs.
        """
        for start, size in zip(starts[sizes > _BUCKET].tolist(), sizes[sizes > _BUCKET].tolist(), strict=True):
            group = rows[start : start + size]
            order = np.lexsort((self.digests_of(group), *self._signatures(group).T[::-1], self._names(group)))
            sorted_group = group[order]
            for step in range(1, _NEIGHBOURS + 1):
                yield sorted_group[:-step], sorted_group[step:]

    def _floor(self, band: int) -> float:
        """The least agreement of signatures of a pair that is worth reading."""
        if band >= self.scheme.bands:
            return _LEAST_OF_HALVES
        return self.threshold - _DOUBT * sqrt(self.threshold * (1 - self.threshold) / self.scheme.permutations)

    def _plausible(self, rows: Rows, other_rows: Rows, floor: float) -> NDArray[np.uint64]:
        """The pairs that may be similar enough by their signatures."""
        kept_pairs = [np.empty(0, np.uint64)]
        self.counts["candidates"] += len(rows)
        for start in range(0, len(rows), _CHUNK):
            left, right = rows[start : start + _CHUNK], other_rows[start : start + _CHUNK]
            alike = signature_agreement(self._signatures(left), self._signatures(right)) >= floor
            low, high = np.minimum(left, right)[alike], np.maximum(left, right)[alike]
            kept_pairs.append(low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64))
        return np.concatenate(kept_pairs)

    def _connect(self, pairs: NDArray[np.uint64], read: Read) -> None:
        """Read the texts of pairs that are not connected yet, and add similar pairs to the edges."""
        connected = self._connected()
        edges: list[tuple[int, int]] = []
        known: dict[int, ShingledText] = {}
        low_rows, high_rows = (pairs >> np.uint64(32)).tolist(), (pairs & np.uint64(0xFFFFFFFF)).tolist()
        for start in range(0, len(low_rows), _CHUNK // 16):
            chunk = list(
                zip(low_rows[start : start + _CHUNK // 16], high_rows[start : start + _CHUNK // 16], strict=True)
            )
            chunk = [pair for pair in chunk if connected.root(pair[0]) != connected.root(pair[1])]
            needed = sorted({row for pair in chunk for row in pair})
            known = {row: known[row] for row in needed if row in known}
            missing = [row for row in needed if row not in known]
            known |= zip(missing, shingle_texts(read(missing), self.scheme.shingle), strict=True)
            for low, high in chunk:
                if connected.root(low) == connected.root(high):
                    continue
                self.counts["verified"] += 1
                if are_near(known[low], known[high], self.threshold):
                    connected.join(low, high)
                    edges.append((low, high))
        self.counts["edges"] += len(edges)
        self.edges = np.concatenate([self.edges, np.array(edges, np.uint32).reshape(-1, 2)])

    def _connected(self) -> ConnectedRows:
        """The components that the edges make."""
        rows = ConnectedRows(len(self))
        for low, high in self.edges.tolist():
            rows.join(low, high)
        return rows

    def _signatures(self, rows: Rows) -> Signatures:
        parts = [segment.signatures for segment in self.segments]
        found = self._gather(rows, parts)
        give_back_pages(*parts)
        return found

    def _names(self, rows: Rows) -> Hashes:
        return self._gather(rows, [segment.names for segment in self.segments])

    def digests_of(self, rows: Rows) -> Digests:
        return self._gather(rows, [segment.digests for segment in self.segments])

    def _gather(self, rows: Rows, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        if len(parts) == 1:
            return parts[0][rows]
        result = np.empty((len(rows), *parts[0].shape[1:]), parts[0].dtype)
        for segment, part in zip(self.segments, parts, strict=True):
            in_segment = (rows >= segment.first) & (rows < segment.first + len(segment))
            result[in_segment] = part[rows[in_segment] - segment.first]
        return result

    def _join(self, kept: NDArray[np.bool_]) -> None:
        """Join the kept rows of all segments into one segment and drop the edges."""
        digests, names = self.digests[kept], self.names[kept]
        parts = [segment.signatures[kept[segment.first : segment.first + len(segment)]] for segment in self.segments]
        self.edges = np.empty((0, 2), np.uint32)
        self.segments = []
        if len(digests):
            self.segments = [self._write(digests, names, iter(parts))]

    def _write(self, digests: Digests, names: Hashes, signatures: Iterator[Signatures]) -> Segment:
        """A segment on disk. It belongs to the index only when `index.json` names it."""
        number = 1 + max((int(path.name.split("-")[1]) for path in self.folder.glob("segment-*")), default=-1)
        folder = self.folder / f"segment-{number:05d}"
        with storage_errors(folder):
            folder.mkdir(parents=True)
            np.save(folder / "digests.npy", digests, allow_pickle=False)
            np.save(folder / "names.npy", names, allow_pickle=False)
            # Written in place, so that memory holds one band of a large segment.
            stored = _create_mapped(folder / "signatures.npy", np.uint32, (len(digests), self.scheme.width))
            shape = (self.scheme.keys, len(digests))
            keys = _create_mapped(folder / "keys.npy", np.uint64, shape)
            rows = _create_mapped(folder / "rows.npy", np.uint32, shape)
            start = 0
            for piece in signatures:
                stored[start : start + len(piece)] = piece
                keys[:, start : start + len(piece)] = band_keys(piece, self.scheme)
                start += len(piece)
                give_back_pages(stored, keys)
            require_rows(
                start == len(digests), f"{folder}: {counted(start, 'signature')} for {counted(len(digests), 'text')}"
            )
            # By key, then by digest: not by the order in which the texts came.
            by_digest = np.argsort(digests, kind="stable")
            for band in range(self.scheme.keys):
                rows[band] = by_digest[np.argsort(keys[band][by_digest], kind="stable")]
                keys[band] = keys[band][rows[band]]
                give_back_pages(keys, rows)
            for part in (stored, keys, rows):
                part.flush()
        return _load_segment(folder, len(self))

    def _save(self) -> None:
        edges = ""
        if len(self.edges):
            edges = f"edges-{int(self.segments[-1].name.split('-')[1]):05d}.npy"
            with atomic_path(self.folder / edges) as temporary, temporary.open("wb") as file:
                np.save(file, self.edges, allow_pickle=False)
        names = [segment.name for segment in self.segments]
        write_json(self.folder / _INDEX, {"made_by": self._made_by(), "segments": names, "edges": edges})
        for path in self.folder.iterdir():
            if path.is_dir() and path.name not in names:
                shutil.rmtree(path)
            elif path.name.startswith("edges-") and path.name != edges:
                path.unlink()

    def _made_by(self) -> dict[str, Any]:
        return self.scheme.as_fields() | {"threshold": self.threshold}


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays one after the other. Nothing is copied where there is one, which may be mapped from its file."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _create_mapped(path: Path, value_type: type[np.generic], shape: tuple[int, int]) -> "np.memmap[Any, Any]":
    """A new array in a file."""
    mapped: np.memmap[Any, Any] = np.lib.format.open_memmap(path, "w+", value_type, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("rb+") as file:
            # A full disk is then an error here, and not a signal during the work.
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return mapped


def _load_segment(folder: Path, first: int) -> Segment:
    """A segment from its files, mapped into memory and read only where it is needed."""
    try:
        parts = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS}
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: cannot be read ({error}); remove {folder.parent} to index again") from None
    return Segment(name=folder.name, first=first, **parts)


def _find_keys(keys: Hashes, wanted_keys: Hashes) -> tuple[Rows, Rows]:
    """The first position of each wanted key in the sorted `keys`, and its count."""
    firsts = np.searchsorted(keys, wanted_keys, side="left")
    return firsts, np.searchsorted(keys, wanted_keys, side="right") - firsts


def _count_up(counts: Rows) -> Rows:
    """0, 1, ... up to each count, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _pairs_within_groups(rows: Rows, starts: Rows, sizes: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Every pair of rows in each group of at most _BUCKET."""
    for size in np.unique(sizes[(sizes > 1) & (sizes <= _BUCKET)]).tolist():
        groups = rows[starts[sizes == size][:, None] + np.arange(size)]
        left, right = np.triu_indices(size, k=1)
        for start in range(0, len(groups), max(1, _CHUNK // len(left))):
            piece = groups[start : start + max(1, _CHUNK // len(left))]
            yield piece[:, left].ravel(), piece[:, right].ravel()
