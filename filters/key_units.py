"""Texts that share a key with another text of a run in a store, found by all agents.

    filter/tables/<fingerprint>/*   beside the digest of each file of signals: the keys of its texts, by buckets
    filter/keys/<fingerprint>/*     attempts and commits: of each bucket, the texts that share a key of it

The agent that decides compares only these texts (filters/run_signals/corpus_duplicates.py).
"""

from dataclasses import dataclass

from distill.machine.thread_map import thread_map
from distill.units.agent_record import AgentRecord
from distill.units.commits import Attempt, Unit, read_file
from distill.units.stored_run import finished_commit
from filters.run_signals.shared_keys import Shared, find_shared, read_shared
from filters.signal_tables import SignalTables
from filters.unit_rounds import work_together

KEY_UNITS = "filter/keys"
"""Units of all filters are below it, by the fingerprint of what their texts depend on."""
_SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUnits:
    """The buckets of keys, as one agent works on them."""

    tables: SignalTables

    @property
    def units(self) -> list[Unit]:
        work = f"{KEY_UNITS}/{self.tables.work.rpartition('/')[2]}"
        return [Unit(round=0, partition=f"{number:05d}", work=work) for number in range(self.tables.buckets)]

    def find(self, agent: AgentRecord) -> None:
        """Let this process work on buckets until all are committed. Raises DistillError where units are set aside."""
        work_together(agent, self.units, self._commit, self.tables.signals.recipe)

    def read(self) -> Shared | None:
        """The texts that share a key; None where near duplicates are not looked for."""
        if not self.tables.buckets:
            return None
        store = self.tables.store
        return read_shared(
            thread_map(lambda unit: read_file(store, unit, finished_commit(store, unit), _SHARED), self.units)
        )

    def _commit(self, unit: Unit) -> None:
        attempt = Attempt(store=self.tables.store, unit=unit)
        attempt.put_file(_SHARED, find_shared(self.tables.read_keys(int(unit.partition))))
        attempt.commit({})
