"""Near duplicates among all traces of a run, as a side table: which trace says what another one says, anywhere.

The measuring stage leaves a digest and a signature of every text; `filters.matching.near_duplicates` groups the
texts. Here traces are put in the place of texts: of a group the preferred trace is complete, correct, and has the
smallest id, so no order matters. Traces without words are in no group. Traces of several groups with one template
(`filters.text.compared_forms`) say the same words with other values: they are marked, and are no duplicates.
Nothing is dropped here.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.integrity import digested_path, is_whole
from distill.artifacts.layout import part_path
from distill.errors import StaleError
from filters.matching.near_duplicates import LshIndex as Texts
from filters.signals.base import NOT_APPLICABLE, OK
from filters.signals.schema import CORPUS
from filters.tables.signal_database import Tables, connect
from filters.tables.trace_index import Ids, PlannedTraces
from filters.text.minhash import Digests, Scheme, Signatures, jaccard, shingle_texts, sign
from filters.text.shingles import Hashes
from filters.text.words import comparable_text

_BATCH = 4096
_ROW_GROUP = 8192
_KEY = pa.field("id", pa.string())
# The words of both sides, so that a similarity is not computed again in a run that has grown.
_WORDS = [pa.field("words", pa.binary(16)), pa.field("preferred_words", pa.binary(16))]
_SCHEMA = pa.schema([_KEY, *CORPUS, *_WORDS])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Every trace in the order of its id, and what was measured of its words.

    Of traces with the same words the one that says most of names, then the first one, stands for all.
    """

    ids: Ids
    words: Digests
    stands: NDArray[np.int64]
    """The row of that one."""
    names: Hashes
    templates: Hashes


def write(index: PlannedTraces, signals: tuple[Path, ...], folder: Path, scheme: Scheme, threshold: float) -> Path:
    """Write the side table of all measured traces below `folder`, where the index of their texts lives too."""
    path = part_path(folder, 0, ".parquet")
    for left in folder.rglob(".*.tmp"):  # by a run that was killed
        left.unlink()
    measured = _measured(signals)
    ids, words = measured.ids, measured.words
    texts = _grouped(index, signals, measured, folder / "index", scheme, threshold)
    groups = _groups(texts, words)
    preferred = _preferred(signals, ids, groups)
    duplicates = np.flatnonzero((preferred >= 0) & (preferred != np.arange(len(ids))))
    similar = np.full(len(ids), np.nan)
    similar[duplicates] = _similarities(index, ids, words, duplicates, preferred[duplicates], path, scheme)
    sizes = np.bincount(groups[groups >= 0], minlength=1)[groups]
    apart = groups < 0
    shared, varied = _templates(measured.templates, groups)
    of = np.where(np.isnan(similar), -1, preferred)
    with digested_path(path) as temporary, pq.ParquetWriter(temporary, _SCHEMA, compression="zstd") as writer:
        for start in range(0, len(ids), _ROW_GROUP):
            rows = slice(start, start + _ROW_GROUP)
            other, silent, alone = of[rows], apart[rows], of[rows] < 0
            columns = [
                pa.array(_text(ids[rows]), pa.string()),
                pa.array(np.where(silent, NOT_APPLICABLE, OK), pa.string()),
                pa.array(~alone, pa.bool_(), mask=silent),
                pa.array(_text(ids[other]), pa.string(), mask=alone),
                pa.array(similar[rows], pa.float64(), mask=np.isnan(similar[rows])),
                pa.array(sizes[rows], pa.int64(), mask=silent),
                pa.array(varied[rows], pa.bool_(), mask=silent),
                pa.array(shared[rows], pa.int64(), mask=silent),
                pa.array(_bytes(words[rows]), pa.binary(16)),
                pa.array(_bytes(words[other]), pa.binary(16), mask=alone),
            ]
            writer.write_table(pa.table(columns, schema=_SCHEMA))
    return path


def _measured(signals: tuple[Path, ...]) -> _Measured:
    ids, words = [np.empty(0, "S1")], [np.empty(0, "S16")]
    names, templates = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for path in signals:
        columns = pq.read_table(path, columns=["id", "words", "names", "template"])
        ids.append(np.array(columns["id"].to_pylist(), np.bytes_))
        words.append(np.array(columns["words"].to_pylist(), "S16"))
        names.append(columns["names"].to_numpy())
        templates.append(columns["template"].to_numpy())
    order = np.argsort(np.concatenate(ids))
    own = np.concatenate(words)[order]
    said_of_names = np.concatenate(names)[order]
    by_words = np.lexsort((np.arange(len(own)), np.iinfo(np.uint64).max - said_of_names, own))
    _, places, of = np.unique(own[by_words], return_index=True, return_inverse=True)
    stands = np.empty(len(own), np.int64)
    stands[by_words] = by_words[places][of]
    return _Measured(
        ids=np.concatenate(ids)[order],
        words=own,
        stands=stands,
        names=said_of_names[stands],
        templates=np.concatenate(templates)[order][stands],
    )


def _grouped(
    index: PlannedTraces,
    signals: tuple[Path, ...],
    measured: _Measured,
    folder: Path,
    scheme: Scheme,
    threshold: float,
) -> Texts:
    """The index of exactly the texts that the traces have now."""
    live, places = np.unique(measured.words, return_index=True)
    silent = live == sign([""], scheme).digests[0]
    live, firsts = live[~silent], measured.stands[places[~silent]]
    names = measured.names[firsts]
    try:
        texts = Texts.open(folder, scheme, threshold)
    except StaleError:  # signatures of another scheme and pairs of another threshold cannot be used
        shutil.rmtree(folder)
        texts = Texts.open(folder, scheme, threshold)

    def place_of(digests: Digests) -> NDArray[np.int64]:
        return np.minimum(np.searchsorted(live, digests), len(live) - 1)

    def read(rows: Sequence[int]) -> list[str]:
        found = texts.digests_of(np.array(rows, np.int64))
        return _read(index, measured.ids[firsts[place_of(found)]])

    if len(texts):
        kept = np.isin(texts.digests, live)
        # A text of which a new trace says more names is another one.
        kept[kept] = names[place_of(texts.digests[kept])] == texts.names[kept]
        texts.keep(kept, read)
    new = np.setdiff1d(live, texts.digests)
    digests = np.concatenate([np.empty(0, "S16"), *(found for found, _ in _first(signals, new))])
    texts.add(digests, names[place_of(digests)], (signatures for _, signatures in _first(signals, new)), read)
    return texts


def _first(signals: tuple[Path, ...], wanted: Digests) -> Iterator[tuple[Digests, Signatures]]:
    """Digest and signature of each wanted text where it first occurs, partition by partition."""
    missing = np.ones(len(wanted), dtype=bool)
    for path in signals if len(wanted) else ():
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH, columns=["words", "signature"]):
                found = np.array(batch["words"].to_pylist(), "S16")
                places = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
                fresh = np.flatnonzero((wanted[places] == found) & missing[places])
                fresh = fresh[np.unique(places[fresh], return_index=True)[1]]
                missing[places[fresh]] = False
                if len(fresh):
                    signatures = b"".join(batch["signature"].take(pa.array(fresh)).to_pylist())
                    yield found[fresh], np.frombuffer(signatures, np.uint32).reshape(len(fresh), -1)


def _groups(texts: Texts, words: Digests) -> NDArray[np.int64]:
    """For each trace the number of its group; -1 where it has no words."""
    digests = texts.digests
    if not len(digests):
        return np.full(len(words), -1, np.int64)
    order = np.argsort(digests)
    places = np.minimum(np.searchsorted(digests[order], words), len(digests) - 1)
    rows = order[places]
    return np.where(digests[rows] == words, texts.components()[rows], -1)


def _templates(templates: Hashes, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For each trace how many have its template, and whether they are of several groups."""
    shared, varied = np.ones(len(groups), np.int64), np.zeros(len(groups), bool)
    rows = np.flatnonzero((templates != 0) & (groups >= 0))
    _, of, counts = np.unique(templates[rows], return_inverse=True, return_counts=True)
    low, high = np.full(len(counts), np.iinfo(np.int64).max), np.full(len(counts), -1)
    np.minimum.at(low, of, groups[rows])
    np.maximum.at(high, of, groups[rows])
    shared[rows], varied[rows] = counts[of], (low < high)[of]
    return shared, varied


def _preferred(signals: tuple[Path, ...], ids: Ids, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each trace of a group of several the row of the preferred one; -1 for all others."""
    result = np.full(len(ids), -1, np.int64)
    rows = np.flatnonzero((groups >= 0) & (np.bincount(groups[groups >= 0], minlength=1)[groups] > 1))
    database = connect(Tables(signals=signals))
    database.register(
        "members", pa.table({"id": pa.array(_text(ids[rows]), pa.string()), "row": rows, "component": groups[rows]})
    )
    found = database.execute(
        """SELECT "row", first_value("row") OVER (
            PARTITION BY component
            ORDER BY outcome <> 'complete', answer_verdict IS DISTINCT FROM 'correct', members.id
        ) AS best FROM members JOIN signals USING (id)"""
    ).fetchnumpy()
    result[found["row"]] = found["best"]
    return result


def _similarities(
    index: PlannedTraces,
    ids: Ids,
    words: Digests,
    duplicates: NDArray[np.int64],
    preferred: NDArray[np.int64],
    path: Path,
    scheme: Scheme,
) -> NDArray[np.float64]:
    """The similarity of each duplicate to its preferred trace."""
    known = _known(path)
    result = np.ones(len(duplicates))
    pairs = zip(_bytes(words[duplicates]), _bytes(words[preferred]), strict=True)
    open_pairs = []
    for place, (own, other) in enumerate(pairs):
        if own != other:
            if (own, other) in known:
                result[place] = known[own, other]
            else:
                open_pairs.append(place)
    # By preferred trace, so that its text is cut once for all its duplicates.
    open_pairs.sort(key=lambda place: (preferred[place], duplicates[place]))
    for start in range(0, len(open_pairs), _BATCH):
        chunk = open_pairs[start : start + _BATCH]
        rows = np.unique(np.concatenate([duplicates[chunk], preferred[chunk]]))
        known_cuts = dict(zip(rows.tolist(), shingle_texts(_read(index, ids[rows]), scheme.shingle), strict=True))
        for place in chunk:
            one, other = known_cuts[int(duplicates[place])], known_cuts[int(preferred[place])]
            result[place] = jaccard(one.shingles, other.shingles)
    return result


def _known(path: Path) -> dict[tuple[bytes, bytes], float]:
    """Similarities by the words of both sides, from the last table of this folder."""
    if not is_whole(path):
        return {}
    table = pq.read_table(path, columns=["words", "preferred_words", "corpus_jaccard"])
    columns = table.filter(pa.compute.is_valid(table["corpus_jaccard"])).to_pydict()
    return dict(
        zip(zip(columns["words"], columns["preferred_words"], strict=True), columns["corpus_jaccard"], strict=True)
    )


def _read(index: PlannedTraces, ids: Ids) -> list[str]:
    return [comparable_text(trace) for trace in index.traces(_text(ids))]


def _text(ids: Ids) -> list[str]:
    return [value.decode() for value in ids.tolist()]


def _bytes(digests: Digests) -> list[bytes]:
    # numpy leaves out zero bytes at the end.
    return [value.ljust(16, b"\0") for value in digests.tolist()]
