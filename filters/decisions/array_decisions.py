"""What a policy makes of the traces of a run, as arrays: the decisions of `filters.decisions.decide`.

The order of a question's traces and the groups of copies are made once for a run. A policy changes them only where
another copy takes the place of a preferred one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distill.recipe.sections.filter import Select
from filters.decisions import decide
from filters.decisions.copies import KINDS, CopyKind
from filters.decisions.copy_groups import CopyGroups, copy_conditions, copy_groups, original_hash
from filters.decisions.quotas import target_counts
from filters.decisions.rules import Condition
from filters.decisions.trace_arrays import Flags, Numbers, Replaced, TraceArrays
from filters.signals.schema import SIDE
from filters.tables.signal_database import identifier

_LAST = np.iinfo(np.int64).max
_SIGN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayDecisions:
    """Flags of all traces, in the order of their ids."""

    dropped: Mapping[str, Flags]
    """By rule, or other reason."""
    kept: Flags
    teacher_best: Flags
    """Within the limit of a teacher, of those that are kept."""
    best: Flags
    """Within the limit of a question as well."""
    selected: Flags
    beyond: Mapping[str, int]
    """Traces that a limit of the whole dataset leaves out, by the limit's name."""


@dataclass(slots=True)
class PolicyArrays:
    """Decides by one policy after another on the same traces."""

    traces: TraceArrays
    _groups: dict[str, CopyGroups] = field(default_factory=dict)
    _orders: dict[tuple[str, ...], "_Order"] = field(default_factory=dict)

    def decide(
        self, conditions: Sequence[Condition], select: Select, seed: int, others: Mapping[str, Flags]
    ) -> ArrayDecisions:
        """Decide on every trace; `others`: traces that are dropped for another reason than a rule, by its name.

        Raises duckdb.Error for a condition that fails on the values, DataError for shares that cannot be met.
        """
        chosen: dict[str, Flags] = {}
        read = {entry.removeprefix("-").lower() for entry in select.order}
        read.update(column for condition in conditions for column in condition.columns)
        self._read_together(conditions, select, read)
        order = self._order(select.order)  # it is sorted while the copies are chosen
        later = {column for kind in KINDS for column in kind.preferred}
        for kind in KINDS:
            if read & kind.preferred.keys():
                rules = [each for each in conditions if not later.intersection(each.columns)]
                passing = ~self._any([*others.values(), *self._dropped(rules, chosen).values()])
                taken = self._choose(kind, passing)
                chosen |= {kind.name: taken} if taken is not None else {}
            later -= kind.preferred.keys()
        dropped = {**self._dropped(conditions, chosen), **others}
        kept = ~self._any(dropped.values())
        places = order.places(chosen)
        teacher_best, best = self._ranked(select, kept, places)
        selected, beyond = best, dict[str, int]()
        if decide.mixed(select):
            selected, beyond = self._placed(conditions, select, seed, best, chosen)
        return ArrayDecisions(
            dropped=dropped, kept=kept, teacher_best=teacher_best, best=best, selected=selected, beyond=beyond
        )

    def _read_together(self, conditions: Iterable[Condition], select: Select, read: Set[str]) -> None:
        """Compute what this policy needs with one query for all that read the same tables."""
        flags: dict[str, Iterable[str]] = {decide.drops(each): each.columns for each in conditions}
        values: dict[str, Iterable[str]] = {}
        for kind in KINDS:
            if kind.name not in self._groups and read & kind.preferred.keys():
                flags |= copy_conditions(self.traces, kind)
                values |= original_hash(kind)
        if select.order not in self._orders:
            order = (entry.removeprefix("-").lower() for entry in select.order)
            values |= {identifier(name): [name] for name in order if not self.traces.is_text(name)}
        self.traces.compute(flags, values)

    def _any(self, flags: Iterable[Flags]) -> Flags:
        found = np.zeros(self.traces.count, np.bool_)
        for each in flags:
            found |= each
        return found

    def _choose(self, kind: CopyKind, passing: Flags) -> Flags | None:
        """The copies that take the place of their preferred one; None if there is none."""
        if kind.name not in self._groups:
            self._groups[kind.name] = copy_groups(self.traces, kind)
        trace = self._groups[kind.name].choose(passing)
        if not len(trace):
            return None
        if kind.key == "sample_id":
            of_question = np.zeros(len(self.traces.questions), np.bool_)
            of_question[self.traces.question[trace]] = True
            taken: Flags = of_question[self.traces.question]
            return taken
        taken = np.zeros(self.traces.count, np.bool_)
        taken[trace] = True
        return taken

    def _dropped(self, conditions: Iterable[Condition], chosen: Mapping[str, Flags]) -> dict[str, Flags]:
        """Whether each rule drops a trace, where the chosen copies repeat nothing."""
        dropped = {}
        for each in conditions:
            sql, columns = decide.drops(each), each.columns
            flags = self.traces.flags({sql: columns})[sql]
            for replaced, where in _variants(columns, chosen):
                flags[where] = self.traces.flags({sql: columns}, replaced)[sql][where]
            dropped[each.name] = flags
        return dropped

    def _order(self, entries: tuple[str, ...]) -> "_Order":
        if entries not in self._orders:
            self._orders = {entries: _Order.of(self.traces, entries)}
        return self._orders[entries]

    def _ranked(self, select: Select, kept: Flags, places: Numbers) -> tuple[Flags, Flags]:
        """The kept traces within the limit of a teacher, and of those the ones within the limit of a question."""
        teacher_best = kept
        if select.per_teacher is not None:
            # The limit of a teacher comes first: the next best trace of another teacher gets a place that it frees.
            teachers = np.unique([teacher for teacher, *_ in self.traces.groups], return_inverse=True)[1]
            among = self.traces.question.astype(np.int64) * len(teachers) + teachers[self.traces.group]
            by_teacher = places[np.argsort(among[places], kind="stable")]
            teacher_best = _first(by_teacher, among, kept, select.per_teacher)
        if select.per_question is None:
            return teacher_best, teacher_best
        return teacher_best, _first(places, self.traces.question, teacher_best, select.per_question)

    def _placed(
        self, conditions: Sequence[Condition], select: Select, seed: int, best: Flags, chosen: Mapping[str, Flags]
    ) -> tuple[Flags, dict[str, int]]:
        """The traces within the limits of the whole dataset, and the number of traces that each limit leaves out."""
        kind, names = self._kinds(conditions, select, chosen)
        by = f"row_number() OVER (ORDER BY md5('{seed} ' || id), id)"
        among = np.flatnonzero(best)
        among = among[np.lexsort((self.traces.values(by, ["id"], ordered=False)[among], kind[among]))]
        codes, start, counts = np.unique(kind[among], return_index=True, return_counts=True)
        count_of = {names[code]: int(count) for code, count in zip(codes, counts, strict=True)}
        quota_of = target_counts(count_of, select.mix, select.limit)
        selected, beyond = np.zeros(len(best), np.bool_), dict[str, int]()
        for code, first, count in zip(codes, start, counts, strict=True):
            quota = quota_of[names[code]]
            selected[among[first : first + min(count, quota)]] = True
            if count > quota:
                ((limit,),) = self.traces.database.execute(
                    f"SELECT {decide.limit_of_dataset(select)} FROM (SELECT ?::VARCHAR[] AS kind, ? AS quota)",
                    [list(names[code]), quota],
                ).fetchall()
                beyond[limit] = beyond.get(limit, 0) + int(count) - quota
        return selected, beyond

    def _kinds(
        self, conditions: Sequence[Condition], select: Select, chosen: Mapping[str, Flags]
    ) -> tuple[NDArray[np.uint64], dict[Any, tuple[str, ...]]]:
        """A code for the kind of each trace in the mixes, and the values of each code."""
        known = [*self.traces.local, *(name for _, schema in SIDE.values() for name in schema.names)]
        text = " ".join(mix.by for mix in select.mix).lower()
        read = [name for name in known if name.lower() in text]
        # An expression of a mix needs to work on kept traces only. Those that rules on copies drop have one as well.
        copied = {column for kind in KINDS for column in kind.preferred}
        guards = [each for each in conditions if not copied.intersection(each.columns)]
        columns = [*read, *(column for each in guards for column in each.columns)]
        kind = f"CASE WHEN NOT ({decide.dropped(guards)}) THEN {decide.kind_of(select)} END"
        codes = self.traces.values(f"hash({kind})", columns).copy()
        variants = [(frozenset[str](), None), *_variants(read, chosen)]
        names: dict[Any, tuple[str, ...]] = {}
        for replaced, where in variants:
            if where is not None:
                codes[where] = self.traces.values(f"hash({kind})", columns, replaced)[where]
            rows = self.traces.database.execute(
                f"SELECT DISTINCT hash({kind}) AS code, {kind} AS kind FROM {self.traces.source(columns, replaced)}"
            ).fetchall()
            names |= {np.uint64(code): tuple(values) for code, values in rows if values is not None}
        return codes, names


def _variants(columns: Iterable[str], chosen: Mapping[str, Flags]) -> Iterator[tuple[Replaced, Flags]]:
    """The kinds of copies among the chosen traces, as far as these columns show, and the traces of each kind."""
    read = {column.lower() for column in columns}
    kinds = [kind.name for kind in KINDS if kind.name in chosen and read & kind.preferred.keys()]
    if not kinds:
        return
    state = np.zeros(len(chosen[kinds[0]]), np.uint8)
    for place, name in enumerate(kinds):
        state |= chosen[name].view(np.uint8) << np.uint8(place)
    for bits in range(1, 1 << len(kinds)):
        if (where := state == bits).any():
            yield frozenset(name for place, name in enumerate(kinds) if bits >> place & 1), where


def _first(places: Numbers, among: NDArray[Any], taken: Flags, limit: int) -> Flags:
    """The first `limit` traces of each code in `among` of those that are taken; `places` has them code by code."""
    places = places[taken[places]]
    code = among[places]
    begins = np.append(True, code[1:] != code[:-1]) if len(code) else np.zeros(0, np.bool_)
    start = np.flatnonzero(begins)
    rank = np.arange(len(places)) - np.repeat(start, np.diff(np.append(start, len(places))))
    found = np.zeros(len(taken), np.bool_)
    found[places[rank < limit]] = True
    return found


@dataclass(frozen=True, slots=True)
class _Order:
    """The traces question by question, in the order of the selection."""

    question: NDArray[np.int32]
    keys: Sequence[Numbers]
    """What each entry of the order compares, smallest first."""
    preferred: Sequence[Mapping[str, int]]
    """By entry: the key of a trace that repeats nothing, by the kind of copies."""
    sorting: Future[Numbers]
    """The traces in this order, while no copy takes the place of another."""

    @classmethod
    def of(cls, traces: TraceArrays, entries: Iterable[str]) -> "_Order":
        keys: list[Numbers] = []
        preferred: list[Mapping[str, int]] = []
        for entry in entries:
            column, down = entry.removeprefix("-").lower(), entry.startswith("-")
            keys.append(_key(traces, column, down))
            plain = {"false": -1 if down else 0, "NULL": _LAST}
            preferred.append({kind.name: plain[kind.preferred[column]] for kind in KINDS if column in kind.preferred})
        pool = ThreadPoolExecutor(1)
        sorting = pool.submit(_sorted, keys, traces.question)
        pool.shutdown(wait=False)
        return cls(traces.question, keys, preferred, sorting)

    def places(self, chosen: Mapping[str, Flags]) -> Numbers:
        """The traces in this order, where the chosen copies repeat nothing.

        Questions without such a copy stay as they are.
        """
        base = self.sorting.result()
        keys, changed = list(self.keys), np.zeros(len(self.question), np.bool_)
        for place, kinds in enumerate(self.preferred):
            for name in kinds.keys() & chosen.keys():
                changed |= chosen[name] & (keys[place] != kinds[name])
                keys[place] = np.where(chosen[name], kinds[name], keys[place])
        if not changed.any():
            return base
        again = np.zeros(int(self.question.max()) + 1, np.bool_)
        again[self.question[changed]] = True
        slots = np.flatnonzero(again[self.question[base]])
        traces = np.sort(base[slots])  # ties go to the smaller id
        order = _sorted([key[traces] for key in keys], self.question[traces])
        places = base.copy()
        places[slots] = traces[order]
        return places


def _sorted(keys: Sequence[Numbers], question: NDArray[np.int32]) -> Numbers:
    """The places question by question, ordered by the first key, then the second and so on, then the place."""
    by: Sequence[NDArray[Any]] = [*reversed(keys), question]
    return np.lexsort(by)


def _key(traces: TraceArrays, column: str, down: bool) -> Numbers:
    """Whole numbers in the order of a column, the last for NULL."""
    name = identifier(column)
    if traces.is_text(column):
        ranks = f"CASE WHEN {name} IS NOT NULL THEN dense_rank() OVER (ORDER BY {name}) END"
        values = traces.values(ranks, [column], ordered=False)
    else:
        values = traces.values(name, [column])
    missing, plain = np.ma.getmaskarray(values), np.ma.getdata(values)
    if plain.dtype.kind == "f":
        # The bits of numbers sort like the numbers; for negative numbers the bits are inverted. NaN is the largest,
        # and -0 is 0.
        bits = np.where(np.isnan(plain), np.nan, plain + 0.0).view(np.int64)
        plain = np.where(bits < 0, ~bits ^ _SIGN, bits)
    key = plain.astype(np.int64)
    return np.where(missing, _LAST, ~key if down else key)
