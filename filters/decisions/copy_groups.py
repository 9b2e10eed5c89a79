"""Groups of copies as arrays: for each policy, the copies that take the place of a preferred one which is dropped.

The groups, and the order of preference within them, depend on no policy: they are made once for a run. The choice
follows `filters.decisions.copies`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from filters.decisions.copies import CopyKind
from filters.decisions.trace_arrays import Flags, Numbers, TraceArrays

_Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CopyGroups:
    """Traces of groups, group by group, in the order of preference."""

    trace: Numbers
    group: Numbers
    original: Flags
    """Whether a trace is the one that the others of its group repeat, or of the question that they repeat."""

    def choose(self, passing: Flags) -> Numbers:
        """The first trace of each group that passes, where it is not the original."""
        places = np.flatnonzero(passing[self.trace])
        group = self.group[places]
        first = places[np.append(True, group[1:] != group[:-1])] if len(places) else places
        return self.trace[first[~self.original[first]]]


def copy_groups(traces: TraceArrays, kind: CopyKind) -> CopyGroups:
    """The groups of one kind of copies in a run."""
    of_questions = kind.key == "sample_id"
    is_copy, (named_hash,) = _is_copy(kind), original_hash(kind)
    copies = np.flatnonzero(traces.flags(is_copy)[next(iter(is_copy))])
    hashes = np.asarray(traces.values(named_hash, [kind.original]))[copies]
    unit = traces.question if of_questions else np.arange(traces.count)  # what is a copy: a question, or a trace
    named = _codes_of(hashes, traces.questions) if of_questions else _codes_of(hashes, *traces.ids)
    # A trace with the same words as one that repeats the preferred trace names that one.
    named_by = np.full(max(traces.count, int(named.max(initial=0)) + 1), -1)
    named_by[unit[copies]] = named
    group = np.where(named_by[named] >= 0, named_by[named], named)
    is_original = np.zeros(len(named_by), np.bool_)
    is_original[group] = True
    originals = np.flatnonzero(is_original[unit])
    trace, group = np.concatenate([copies, originals]), np.concatenate([group, unit[originals]])
    original = unit[trace] == group
    place = np.lexsort((_tie(traces, trace) if of_questions else trace, *_worse(traces, trace), ~original, group))
    return CopyGroups(trace[place], group[place], original[place])


def _is_copy(kind: CopyKind) -> dict[str, list[str]]:
    return {f"coalesce({kind.is_copy}, false)": [kind.original, *kind.preferred]}


def original_hash(kind: CopyKind) -> dict[str, list[str]]:
    """SQL of the hash of what a copy repeats, and the columns that it reads."""
    return {f"hash({kind.original})": [kind.original]}


def copy_conditions(traces: TraceArrays, kind: CopyKind) -> dict[str, list[str]]:
    """SQL of all conditions that groups of these copies are made from, and the columns that each reads."""
    return _is_copy(kind) | _good(traces)


def _codes_of(hashes: _Hashes, known: _Hashes, code: Numbers | None = None) -> Numbers:
    """The codes of hashes, by the known ones in order; those that are not there get the numbers after them.

    `code` is of each known hash, and its place if none is given.
    """
    # Each hash once, in order: a search of a million in a random order takes ten times the time.
    different, place = np.unique(hashes, return_inverse=True)
    found = np.minimum(np.searchsorted(known, different), len(known) - 1)
    strange = known[found] != different
    codes: Numbers = found if code is None else code[found]
    codes[strange] = np.arange(len(known), len(known) + np.count_nonzero(strange))
    return codes[place]


def _worse(traces: TraceArrays, trace: Numbers) -> tuple[Flags, ...]:
    """Whether a trace is not correct, and whether it is not complete."""
    return tuple(~flags[trace] for flags in reversed(list(traces.flags(_good(traces)).values())))


def _good(traces: TraceArrays) -> dict[str, list[str]]:
    """SQL of whether a trace is complete, and correct where answers were judged."""
    conditions = {"coalesce(outcome = 'complete', false)": ["outcome"]}
    if "answer_verdict" in traces.local:
        conditions["coalesce(answer_verdict = 'correct', false)"] = ["answer_verdict"]
    return conditions


def _tie(traces: TraceArrays, trace: Numbers) -> Numbers:
    """The place of each trace's question among the questions of groups, in the order of their ids."""
    rows = traces.database.execute("""
        WITH copies AS (FROM side_question WHERE question_duplicate_of IS NOT NULL)
        SELECT hash(question) AS hashed, row_number() OVER (ORDER BY question) - 1 AS place FROM (
            SELECT sample_id AS question FROM copies UNION SELECT question_duplicate_of FROM copies)
        ORDER BY hashed""").fetchnumpy()
    return _codes_of(traces.questions[traces.question[trace]], rows["hashed"], rows["place"])
