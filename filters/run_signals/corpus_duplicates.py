"""Near duplicates among all traces of a run, as a side table.

The partitions' files hold a digest and a signature of every text; `filters.matching.near_duplicates` groups the
texts. This module maps texts to traces. The preferred trace of a group is complete, correct and has the smallest id,
so the order of traces does not matter. Traces without words are in no group. Traces of several groups with one
template (`filters.text.values_and_names`) have the same words with other values: they are marked, and are no
duplicates. Nothing is dropped here.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.integrity import digested_path, is_whole
from distill.artifacts.layout import part_path
from distill.errors import StaleError, require_rows
from distill.word_tables import counted
from filters.matching.near_duplicates import LshIndex as Texts
from filters.run_signals.shared_keys import Shared
from filters.signals.base import NOT_APPLICABLE, OK
from filters.signals.schema import CORPUS
from filters.tables import run_signal_tables
from filters.tables.id_columns import Ids, digest_array, ids_of, order_of, text_array
from filters.tables.signal_database import Tables, connect
from filters.tables.trace_index import PlannedTraces
from filters.text.minhash import NO_WORDS, Digests, Scheme, Signatures, jaccard, shingle_texts
from filters.text.shingles import Hashes
from filters.text.words import comparable_text

_BATCH = 4096
_ROW_GROUP = 8192
_MADE_BY = "made_by"
_KEY = pa.field("id", pa.string())
# The words of both sides, so that a similarity is not computed again in a run that has grown.
_WORDS = [pa.field("words", pa.binary(16)), pa.field("preferred_words", pa.binary(16))]
_SCHEMA = pa.schema([_KEY, *CORPUS, *_WORDS])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Every trace in the order of its id, with the digests and hashes of its words.

    Of traces with the same words the one with the most names, then the first one, represents all.
    """

    ids: Ids
    words: Digests
    representative: NDArray[np.uint32]
    """The row of the trace that represents its words."""
    names: Hashes
    templates: Hashes
    by_file: NDArray[np.int64]
    """The traces in the order of the files, then of their rows."""
    starts: NDArray[np.int64]
    """Where the traces of each file begin in this order, and where the last ones end."""


def write(
    index: PlannedTraces,
    signals: tuple[Path, ...],
    folder: Path,
    scheme: Scheme,
    threshold: float,
    shared: Shared | None = None,
) -> Path:
    """Write the side table of all measured traces below `folder`, which also holds the index of their texts.

    `signals` are the files of the partitions of the index. With `shared`, only these texts share a key with another
    one, and the index holds no other.
    """
    path = part_path(folder, 0, ".parquet")
    schema = _SCHEMA.with_metadata({_MADE_BY: orjson.dumps(scheme.as_fields()).decode()})
    for leftover in folder.rglob(".*.tmp"):  # by a run that was killed
        leftover.unlink()
    measured = _read_measured(index, signals)
    ids, words = measured.ids, measured.words
    texts = _update_text_index(index, signals, measured, folder / "index", scheme, threshold, shared)
    groups = _groups(texts, measured)
    preferred = _preferred_traces(signals, ids, groups)
    duplicates = np.flatnonzero((preferred >= 0) & (preferred != np.arange(len(ids))))
    jaccard_values = np.full(len(ids), np.nan)
    jaccard_values[duplicates] = _similarities(index, measured, duplicates, preferred[duplicates], path, scheme)
    sizes = np.bincount(groups[groups >= 0], minlength=1)[groups]
    has_no_words = groups < 0
    template_sizes, has_other_values = _templates(measured.templates, groups)
    duplicate_of = np.where(np.isnan(jaccard_values), -1, preferred)
    with digested_path(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for start in range(0, len(ids), _ROW_GROUP):
            rows = slice(start, start + _ROW_GROUP)
            preferred_rows, is_wordless, is_alone = duplicate_of[rows], has_no_words[rows], duplicate_of[rows] < 0
            columns = [
                text_array(ids[rows]),
                pa.array(np.where(is_wordless, NOT_APPLICABLE, OK), pa.string()),
                pa.array(~is_alone, pa.bool_(), mask=is_wordless),
                pc.if_else(is_alone, None, text_array(ids[preferred_rows])),
                pa.array(jaccard_values[rows], pa.float64(), mask=np.isnan(jaccard_values[rows])),
                pa.array(sizes[rows], pa.int64(), mask=is_wordless),
                pa.array(has_other_values[rows], pa.bool_(), mask=is_wordless),
                pa.array(template_sizes[rows], pa.int64(), mask=is_wordless),
                digest_array(words[rows]),
                pc.if_else(is_alone, None, digest_array(words[preferred_rows])),
            ]
            writer.write_table(pa.table(columns, schema=schema))
    return path


def _read_measured(index: PlannedTraces, signals: tuple[Path, ...]) -> _Measured:
    # A planned trace is measured when a journal holds it, so the ids are known, in their order; those of a
    # partition are the rows of its file.
    is_live = index.journal >= 0
    ids, partition = (index.ids, index.partition) if is_live.all() else (index.ids[is_live], index.partition[is_live])
    by_file = np.argsort(partition, kind="stable")
    starts = np.searchsorted(partition[by_file], np.arange(len(signals) + 1))
    words, names, templates = np.empty(len(ids), "S16"), np.empty(len(ids), np.uint64), np.empty(len(ids), np.uint64)
    for path, start, end in zip(signals, starts[:-1], starts[1:], strict=True):
        columns = pq.read_table(path, columns=["words", "names", "template"])
        require_rows(
            len(columns) == end - start, f"{path}: signals of {counted(len(columns), 'trace')} of {end - start:,}"
        )
        rows = by_file[start:end]
        words[rows] = ids_of(columns["words"])
        names[rows] = columns["names"].to_numpy()
        templates[rows] = columns["template"].to_numpy()
    # By words, then the most names, then the order of the ids: the first of each run stands for all of it.
    by_names = np.argsort(~names, kind="stable")
    order = by_names[order_of(words[by_names])].astype(np.uint32)
    is_first = np.ones(len(ids), bool)
    is_first[1:] = words[order[1:]] != words[order[:-1]]
    firsts = np.flatnonzero(is_first)
    representative = np.empty(len(ids), np.uint32)
    representative[order] = np.repeat(order[firsts], np.diff(firsts, append=len(ids)))
    return _Measured(
        ids=ids,
        words=words,
        representative=representative,
        names=names[representative],
        templates=templates[representative],
        by_file=by_file,
        starts=starts,
    )


def _update_text_index(
    index: PlannedTraces,
    signals: tuple[Path, ...],
    measured: _Measured,
    folder: Path,
    scheme: Scheme,
    threshold: float,
    shared: Shared | None,
) -> Texts:
    """The index of exactly the texts that the traces have now, or of those that share a key."""
    is_text = (measured.representative == np.arange(len(measured.representative))) & _has_words(measured)
    if shared is not None:
        files, rows = shared
        is_shared = np.zeros(len(is_text), bool)
        is_shared[measured.representative[measured.by_file[measured.starts[files] + rows]]] = True
        is_text &= is_shared
    representatives = np.flatnonzero(is_text).astype(np.uint32)
    representatives = representatives[order_of(measured.words[representatives])]
    current_digests, names = measured.words[representatives], measured.names[representatives]
    try:
        texts = Texts.open(folder, scheme, threshold)
    except StaleError:  # signatures of another scheme and pairs of another threshold cannot be used
        shutil.rmtree(folder)
        texts = Texts.open(folder, scheme, threshold)

    def position_of(digests: Digests) -> NDArray[np.int64]:
        return np.minimum(np.searchsorted(current_digests, digests), len(current_digests) - 1)

    def read(rows: Sequence[int]) -> list[str]:
        text_digests = texts.digests_of(np.array(rows, np.int64))
        return _read(index, measured.ids[representatives[position_of(text_digests)]])

    if len(texts):
        is_kept = np.isin(texts.digests, current_digests)
        # With more names from a new trace a text counts as another text.
        is_kept[is_kept] = names[position_of(texts.digests[is_kept])] == texts.names[is_kept]
        texts.keep(is_kept, read)
    new_digests = np.setdiff1d(current_digests, texts.digests) if len(texts) else current_digests
    places = _first_places(measured, representatives[position_of(new_digests)])
    digests = measured.words[measured.by_file[places]]
    texts.add(digests, names[position_of(digests)], _read_signatures(signals, measured.starts, places), read)
    return texts


def _has_words(measured: _Measured) -> NDArray[np.bool_]:
    has_words: NDArray[np.bool_] = measured.words != NO_WORDS
    return has_words


def _first_places(measured: _Measured, representatives: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The first position of each of these texts in the order of the files, sorted."""
    is_wanted = np.zeros(len(measured.ids), bool)
    is_wanted[representatives] = True
    of_places = measured.representative[measured.by_file]
    places = np.flatnonzero(is_wanted[of_places])
    return np.sort(places[np.unique(of_places[places], return_index=True)[1]])


def _read_signatures(
    signals: tuple[Path, ...], starts: NDArray[np.int64], places: NDArray[np.int64]
) -> Iterator[Signatures]:
    """The signatures at these sorted places; parts of files without such places are not read."""
    borders = np.searchsorted(places, starts)
    for path, file_start, first, last in zip(signals, starts, borders[:-1], borders[1:], strict=False):
        if first == last:
            continue
        with pq.ParquetFile(path) as file:
            start = int(file_start)
            for number in range(file.num_row_groups):
                end = start + file.metadata.row_group(number).num_rows
                rows = places[first:last]
                rows = rows[(rows >= start) & (rows < end)] - start
                if len(rows):
                    column = file.read_row_group(number, columns=["signature"])["signature"].take(pa.array(rows))
                    yield ids_of(column).view(np.uint32).reshape(len(rows), -1)
                start = end


def _groups(texts: Texts, measured: _Measured) -> NDArray[np.int64]:
    """For each trace the number of its group; -1 where it has no words."""
    # A text that is not in the index is alone in its group.
    groups = np.where(_has_words(measured), len(texts) + measured.representative.astype(np.int64), -1)
    digests = texts.digests
    if not len(digests):
        return groups
    order = order_of(digests)
    positions = np.minimum(np.searchsorted(digests[order], measured.words), len(digests) - 1)
    rows = order[positions]
    return np.where(digests[rows] == measured.words, texts.components()[rows], groups)


def _templates(templates: Hashes, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For each trace how many have its template, and whether they are of several groups."""
    shared, varied = np.ones(len(groups), np.int64), np.zeros(len(groups), bool)
    rows = np.flatnonzero((templates != 0) & (groups >= 0))
    _, group_indexes, counts = np.unique(templates[rows], return_inverse=True, return_counts=True)
    lowest_group, highest_group = np.full(len(counts), np.iinfo(np.int64).max), np.full(len(counts), -1)
    np.minimum.at(lowest_group, group_indexes, groups[rows])
    np.maximum.at(highest_group, group_indexes, groups[rows])
    shared[rows], varied[rows] = counts[group_indexes], (lowest_group < highest_group)[group_indexes]
    return shared, varied


def _preferred_traces(signals: tuple[Path, ...], ids: Ids, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each trace of a group of several the row of the preferred one; -1 for all others."""
    result = np.full(len(ids), -1, np.int64)
    rows = np.flatnonzero((groups >= 0) & (np.bincount(groups[groups >= 0], minlength=1)[groups] > 1))
    database = connect(Tables(signals=signals))
    database.register("members", pa.table({"id": text_array(ids[rows]), "row": rows, "component": groups[rows]}))
    best_rows = database.execute(
        """SELECT "row", first_value("row") OVER (
            PARTITION BY component
            ORDER BY outcome <> 'complete', answer_verdict IS DISTINCT FROM 'correct', members.id
        ) AS best FROM members JOIN signals USING (id)"""
    ).fetchnumpy()
    result[best_rows["row"]] = best_rows["best"]
    return result


def _similarities(
    index: PlannedTraces,
    measured: _Measured,
    duplicates: NDArray[np.int64],
    preferred: NDArray[np.int64],
    path: Path,
    scheme: Scheme,
) -> NDArray[np.float64]:
    saved = _known_similarities(path, scheme)
    result = np.ones(len(duplicates))
    pairs = zip(_bytes(measured.words[duplicates]), _bytes(measured.words[preferred]), strict=True)
    open_pairs = []
    for pair, (duplicate_words, preferred_words) in enumerate(pairs):
        if duplicate_words != preferred_words:
            if (duplicate_words, preferred_words) in saved:
                result[pair] = saved[duplicate_words, preferred_words]
            else:
                open_pairs.append(pair)
    # By preferred trace, so that its text is cut once for all its duplicates.
    open_pairs.sort(key=lambda pair: (preferred[pair], duplicates[pair]))
    for start in range(0, len(open_pairs), _BATCH):
        chunk = open_pairs[start : start + _BATCH]
        rows = np.unique(np.concatenate([duplicates[chunk], preferred[chunk]]))
        shingled_texts = dict(
            zip(rows.tolist(), shingle_texts(_read(index, measured.ids[rows]), scheme.shingle), strict=True)
        )
        for pair in chunk:
            left, right = shingled_texts[int(duplicates[pair])], shingled_texts[int(preferred[pair])]
            result[pair] = jaccard(left.shingles, right.shingles)
    return result


def _known_similarities(path: Path, scheme: Scheme) -> dict[tuple[bytes, bytes], float]:
    """Similarities by the words of both sides, from the last table of this folder if it cut texts in the same way."""
    if (
        not is_whole(path)
        or run_signal_tables.metadata(path).get(_MADE_BY) != orjson.dumps(scheme.as_fields()).decode()
    ):
        return {}
    table = pq.read_table(path, columns=["words", "preferred_words", "corpus_jaccard"])
    columns = table.filter(pc.is_valid(table["corpus_jaccard"])).to_pydict()
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
