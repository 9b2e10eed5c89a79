"""Runs the tests of a mutant (benchmarks/project/mutants.py): forks of a process that has collected them."""

import ast
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not timing and not vllm")
SPARE_S, TIMES_LONGER, WAITS = 4.0, 5, 4
"""CPU seconds of a mutant: so many more, and so many times those of the unchanged code. Waiting may take four times
as long as computing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    path: Path
    line: int
    before: str
    after: str
    tree: ast.Module
    """The whole module with the change."""


def changed_functions(before: CodeType, after: CodeType) -> list[CodeType] | None:
    """The functions of a module whose code differs; None when what loading the module does differs."""
    own = [[item for item in code.co_consts if not isinstance(item, CodeType)] for code in (before, after)]
    if (before.co_code, before.co_names, repr(own[0])) != (after.co_code, after.co_names, repr(own[1])):
        return None
    functions: list[CodeType] = []
    for old, new in zip(before.co_consts, after.co_consts, strict=True):
        if not isinstance(old, CodeType) or old == new:
            continue
        is_body_of_class = not old.co_flags & 1
        is_function = not is_body_of_class and (old.co_name == "<lambda>" or not old.co_name.startswith("<"))
        inner = [new] if is_function else changed_functions(old, new) if is_body_of_class else None
        if inner is None:
            return None
        functions += inner
    return functions


def key_of(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_qualname}"


class Campaign:
    """A pytest plugin: in place of the tests, one fork for each mutant runs those that reach it.

    It writes for each mutant whether it was killed, or None where only a process that loads the mutant can tell.
    """

    def __init__(self, chosen: list[Mutant], report: Path) -> None:
        self.chosen, self.report = chosen, report
        self.files = {str(mutant.path) for mutant in chosen}
        self.now = "import"
        self.calls: dict[str, set[str]] = {}
        self.times: dict[str, float] = {}

    def pytest_collection(self) -> None:
        quick_failures()
        self._watch()

    def _watch(self) -> None:
        threading.settrace(self._note_call)
        sys.settrace(self._note_call)

    def _note_call(self, frame: FrameType, event: str, argument: object) -> None:
        if (code := frame.f_code).co_filename in self.files:
            self.calls.setdefault(self.now, set()).add(key_of(code))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        # A fixture that several tests share is set up by the first of them only.
        before, self.now = self.now, f"fixture {id(fixturedef)}"
        try:
            return (yield)
        finally:
            self.now = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        if not self.times.get("watched"):
            return (yield)
        # A result that an earlier test left in a cache hides the call.
        for cached in [thing for thing in gc.get_objects() if isinstance(thing, _lru_cache_wrapper)]:
            cached.cache_clear()
        self.now, begun = item.nodeid, time.process_time()
        self._watch()
        try:
            return (yield)
        finally:
            self.times[item.nodeid] = time.process_time() - begun

    def pytest_runtestloop(self, session: Any) -> bool:
        gc.unfreeze()  # the search for live functions does not see what a conftest has frozen
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        notes = self.report.with_suffix(".notes")
        passes, _ = in_fork(lambda: self._baseline(session, notes), 3600.0)
        if not passes:
            return True
        noted = json.loads(notes.read_bytes())
        self.times = noted["times"]
        reached = {name: set(calls) for name, calls in noted["calls"].items()}
        verdicts = [self._verdict(mutant, session, reached) for mutant in self.chosen]
        self.report.write_text(json.dumps({"killed": verdicts, "times": self.times}), encoding="utf-8")
        return True

    def _baseline(self, session: Any, notes: Path) -> bool:
        self.times["watched"] = 1.0
        passes = run_items(session, session.items)
        del self.times["watched"]
        calls = {name: sorted(seen) for name, seen in self.calls.items()}
        for item in session.items:
            fixtures = [fixture for several in item._fixtureinfo.name2fixturedefs.values() for fixture in several]
            for fixture in fixtures:
                calls[item.nodeid] = calls.get(item.nodeid, []) + calls.get(f"fixture {id(fixture)}", [])
        notes.write_text(json.dumps({"times": self.times, "calls": calls}), encoding="utf-8")
        return passes

    def _verdict(self, mutant: Mutant, session: Any, reached: dict[str, set[str]]) -> bool | None:
        before = compile(mutant.path.read_bytes(), str(mutant.path), "exec")
        functions = changed_functions(before, compile(mutant.tree, str(mutant.path), "exec"))
        if functions is None:
            return None
        keys = {key_of(code) for code in functions}
        items = [item for item in session.items if keys & reached.get(item.nodeid, set())]
        items.sort(key=lambda item: self.times[item.nodeid])
        usual_s = sum(self.times[item.nodeid] for item in items)
        with written(mutant):
            passes, _ = in_fork(lambda: exchange(functions) and run_items(session, items), usual_s)
        if passes and keys & reached.get("import", set()):
            return None
        return not passes


def quick_failures() -> None:
    """A failing example is enough: no search for the smallest one."""
    from hypothesis import Phase, settings

    settings.register_profile("quick", derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("quick")


def exchange(functions: list[CodeType]) -> bool:
    """Gives the live functions their new code. A module that is not loaded yet is loaded from the changed file."""
    new = {key_of(code): code for code in functions}
    for live in [thing for thing in gc.get_objects() if isinstance(thing, FunctionType)]:
        if code := new.get(key_of(live.__code__)):
            live.__code__ = code
    return True


def run_items(session: Any, items: list[Any]) -> bool:
    """Whether tests that are collected pass."""
    from _pytest.main import pytest_runtestloop

    session.items = items
    with suppress(session.Failed, session.Interrupted):
        pytest_runtestloop(session)
    return not session.testsfailed


@contextmanager
def written(mutant: Mutant) -> Iterator[None]:
    """The mutant on the disk, for processes that tests start."""
    before = mutant.path.read_bytes()
    mutant.path.write_text(ast.unparse(mutant.tree), encoding="utf-8")
    yield
    mutant.path.write_bytes(before)


def in_fork(body: Callable[[], bool], usual_s: float) -> tuple[bool, bool]:
    """Whether `body` returns true in a fork, and whether it ends within several times its usual CPU seconds."""
    limit_s = SPARE_S + TIMES_LONGER * usual_s
    begun = time.monotonic()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(silent, stream)
            os._exit(0 if body() else 1)
        except BaseException:
            os._exit(2)
    while time.monotonic() - begun < WAITS * limit_s * _crowding():
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end(child)
            return status == 0, os.waitstatus_to_exitcode(status) >= 0
        time.sleep(0.01)
    _end(child)
    os.waitpid(child, 0)
    return False, False


def _crowding() -> float:
    """How many processes want each core: on a busy machine a test without a fault waits so many times longer."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _end(session: int) -> None:
    """What the tests started too."""
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


class Shortest:
    """A pytest plugin: the tests in the order of the seconds that they take."""

    def __init__(self, times: dict[str, float]) -> None:
        self.times = times

    def pytest_collection(self) -> None:
        quick_failures()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.times.get(item.nodeid, 0.0))


def tested(root: Path, tests: list[str], plugin: object) -> bool:
    """Whether pytest ends well in this process."""
    os.chdir(root)
    sys.path[:0] = [str(root)]
    os.environ["PYTHONPATH"] = str(root)
    options = [*OPTIONS, f"--basetemp={root.parent / 'tmp'}"]
    return pytest.main([*options, *tests], plugins=[plugin]) == 0
