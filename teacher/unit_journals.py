"""The journals of a unit of a run in a store: sealed while an agent works on it, committed at its end.

What earlier attempts have sealed is put into the journals first, so an agent asks only for what is missing.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from distill.artifacts.files import atomic_path
from distill.artifacts.layout import ENGINES, part_path
from distill.units.commits import Attempt, compress
from distill.units.stored_run import traces_file
from teacher.store.trace_journal import trace_parts
from teacher.unit_exchange import UnitExchange

SHARED_S = 5.0
"""Between two looks while several agents work on a unit, at most: what they draw in this time may be asked twice."""


def write_sealed(attempt: Attempt, folder: Path) -> None:
    """What earlier attempts have sealed as the first part of a journal, and an empty part for the new traces.

    Of several records with one id the journal keeps the first.
    """
    with atomic_path(part_path(folder, 0, ".jsonl")) as temporary, temporary.open("wb") as file:
        file.writelines(attempt.sealed(folder.name))
    part_path(folder, 1, ".jsonl").touch()


def seal_left_over(attempt: Attempt, folder: Path, streams: Sequence[str]) -> None:
    """Seal the lines in the folder of an attempt that has ended here which the store does not have."""
    for stream in streams:
        written = (part.read_bytes().splitlines(keepends=True) for part in trace_parts(folder / stream)[1:])
        seal_missing(attempt, stream, (line for lines in written for line in lines if line.endswith(b"\n")))


def seal_missing(attempt: Attempt, stream: str, lines: Iterable[bytes]) -> None:
    """Seal the given whole lines of a stream, without lines that an earlier attempt has sealed."""
    known = {line for data in attempt.sealed(stream) for line in data.splitlines(keepends=True)}
    if left := [line for line in lines if line not in known]:
        attempt.seal(stream, b"".join(left))


def put_journals(attempt: Attempt, folder: Path, teachers: Sequence[str]) -> Counter[str]:
    """Put the journal of every teacher as one file. Returns the number of lines of each."""
    lines = Counter[str]()
    for name in teachers:
        data = b"".join(part.read_bytes() for part in trace_parts(folder / name))
        lines[name] = data.count(b"\n")
        attempt.put_file(traces_file(name), compress(data), count=lines[name])
        if (engines := folder / name / ENGINES).is_file():
            attempt.put_file(f"{name}/{ENGINES}", engines.read_bytes())
    return lines


class Sealer:
    """Seals the new lines of some journals every few seconds, in a thread of its own.

    Then it looks at what other agents write about the same unit.
    """

    def __init__(
        self, attempt: Attempt, folder: Path, streams: Sequence[str], seal_s: float, exchange: UnitExchange
    ) -> None:
        self._attempt, self._folder, self._streams, self._seal_s = attempt, folder, streams, seal_s
        self.exchange = exchange
        self._ends: Counter[Path] = Counter()
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_sealing, name="seal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. A unit that is finished is committed whole: its last lines need no segment."""
        self._closed.set()
        self._thread.join()
        self.require_sealing()

    def give_up(self) -> None:
        """End the thread, and seal the last lines of a unit that is not finished."""
        self._closed.set()
        self._thread.join()
        self._seal_new_lines()

    def require_sealing(self) -> None:
        """Raise what has ended the sealing: traces that nothing keeps are not worth their price."""
        if self._failure is not None:
            raise self._failure

    def _keep_sealing(self) -> None:
        while not self._closed.wait(min(self._seal_s, SHARED_S) if self.exchange.shared else self._seal_s):
            try:
                self._seal_new_lines()
                self.exchange.look()
            except Exception as error:  # raised by the thread of the engines
                self._failure = error
                return

    def _seal_new_lines(self) -> None:
        for stream in self._streams:
            new = {part: self._new_lines(part) for part in trace_parts(self._folder / stream)[1:]}
            if lines := b"".join(new.values()):
                self._attempt.seal(stream, lines)
                # Not before: what the store did not take is sealed the next time.
                self._ends.update({part: len(data) for part, data in new.items()})

    def _new_lines(self, part: Path) -> bytes:
        """The whole lines of a part that are not sealed."""
        with part.open("rb") as file:
            file.seek(self._ends[part])
            data = file.read()
        return data[: data.rfind(b"\n") + 1]
