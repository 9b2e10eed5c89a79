"""How far a run is, from its store alone: units, agents that work or are lost, what failed; and of a local run."""

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from servers.store_in_memory import MemoryStore
from typer.testing import CliRunner

from distill import cli
from distill.artifacts.manifest import Manifest, canonical
from distill.command_line import results
from distill.commands.progress import watch
from distill.errors import StaleError
from distill.object_store.interface import ObjectStore
from distill.object_store.local_store import LocalStore
from distill.run_log import recording
from distill.types import Progress
from distill.units.agent_record import AgentRecord, joined
from distill.units.commits import Attempt, Unit, committed_units
from distill.units.run_state import PLAN_KEY, RunState, read_run_state
from distill.units.unit_queue import UnitQueue

UNITS = [Unit(round=0, partition=f"{number:02x}") for number in range(4)]


def begin(store: ObjectStore) -> None:
    """A run of four units of 10 samples each, two traces a sample; one is committed, one claimed."""
    plan = {"partitions": {unit.partition: 10 for unit in UNITS}, "traces": 80}
    store.put(PLAN_KEY, canonical(plan | {"rounds": [{"teachers": ["stub"], "traces": 80}]}))
    made = {"traces": 30, "seconds": 10.0, "in_flight": 4, "outcomes": {"complete": 29, "error": 1}}
    facts = {"host": "node-1", "pid": 7, "lease_s": 60.0, "since": "2026-01-01T00:00:00+00:00"}
    agent = AgentRecord(store=store, facts=facts, live=lambda: {**made, "units": queue.at_work})
    queue = UnitQueue(agent, UNITS, retries=5)
    done = queue.draw()
    assert done is not None and queue.draw() is not None
    Attempt(store=store, unit=done).commit({})
    queue.done(done)
    agent.beat()


def test_a_state_counts_units_and_traces_and_tells_living_agents_from_lost_ones() -> None:
    store = MemoryStore()
    store.clock = lambda: time.time() - 100
    begin(store)
    store.clock = time.time
    lost = read_run_state(store)
    assert [agent["works"] for agent in lost.agents] == [False] and lost.eta_s is None
    begin(store)
    state = read_run_state(store)
    assert (state.units, state.traces, state.total_traces) == (4, 40, 80), "two runs of the helper commit a unit each"
    assert state.done + state.claimed + state.waiting == 4 and state.claimed > 0
    assert sorted(agent["works"] for agent in state.agents) == [False, True]
    assert state.traces_per_s == 3.0 and state.eta_s == pytest.approx(40 / 3)


def test_the_longest_time_left_counts_the_traces_of_the_plan_alone() -> None:
    """It has no traces of a teacher that comes after another one: the time was half the true one."""
    store = MemoryStore()
    begin(store)
    facts = {"host": "node-1", "pid": 8, "lease_s": 60.0, "traces": 60, "planned": 20, "seconds": 10.0}
    store.delete(stored.key for stored in store.list_objects("agents"))
    AgentRecord(store=store, facts=facts).beat()
    state = read_run_state(store)
    assert state.traces_per_s == 6.0 and state.eta_s == (80 - state.traces) / 2.0


def test_signs_are_as_old_as_the_clock_of_the_store_says() -> None:
    store = MemoryStore()
    for wrong_s in (-3600.0, 3600.0):
        store.clock = lambda wrong_s=wrong_s: time.time() + wrong_s
        begin(store)
    assert sorted(agent["works"] for agent in read_run_state(store).agents) == [False, True]
    store.clock = lambda: time.time() - 3600.0
    assert [agent["works"] for agent in read_run_state(store).agents] == [True, True]


def test_a_lost_agent_is_shown_until_others_have_finished_its_work(tmp_path: Path) -> None:
    store = MemoryStore()
    store.clock = lambda: time.time() - 100
    begin(store)
    store.clock = time.time
    (lost,) = read_run_state(store).agents
    with joined(store, tmp_path) as agent:
        agent._joining_until_s = 0.0  # it has been here for some time
        queue = UnitQueue(agent, set(UNITS) - set(committed_units(store)), retries=5)
        while (unit := queue.draw()) is not None:
            shown = {each["name"]: each["works"] for each in read_run_state(store).agents}
            if f"0/{unit.partition}" in lost["units"]:
                assert shown == {lost["name"]: False, agent.name: True}, "its unit is taken over and not finished"
            Attempt(store=store, unit=unit).commit({})
            queue.done(unit)
            queue._next_look_s = 0.0
        assert [each["name"] for each in read_run_state(store).agents] == [agent.name]
    assert not store.list_objects("agents"), "the last one removes what it left"


def test_a_run_that_has_not_begun_says_so_and_who_reads_the_source(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(StaleError, match="no run has started"):
        read_run_state(store)
    with joined(store, tmp_path), pytest.raises(StaleError, match="still reads the source"):
        read_run_state(store)
    with pytest.raises(ValueError), joined(store, tmp_path):
        raise ValueError("the source holds no rows")
    with pytest.raises(StaleError, match=r"no run has started.*\nfailed: .*the source holds no rows"):
        read_run_state(store)


def test_an_agent_that_ends_with_an_error_leaves_the_reason(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(ValueError), joined(store, tmp_path):
        begin(store)
        raise ValueError("the teacher is gone")
    assert [failure["error"] for failure in read_run_state(store).failures] == ["the teacher is gone"]


def test_status_writes_a_file_for_a_monitoring_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(LocalStore(tmp_path / "run"))
    address, file = f"file://{tmp_path / 'run'}", tmp_path / "metrics" / "run.prom"
    file.parent.mkdir()
    done = CliRunner().invoke(cli.app, ["status", address, "--open-metrics", str(file)])
    assert done.exit_code == 0 and "units: 1 of 4" in done.output
    lines = file.read_text().splitlines()
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    run = f'run="{LocalStore(tmp_path / "run").address}"'
    assert values[f'distill_units{{{run},state="committed"}}'] == 1
    assert values[f'distill_units{{{run},state="waiting"}}'] == 2
    assert (
        values[f'distill_traces{{{run},state="open"}}'] == 60 and values[f"distill_traces_per_second{{{run}}}"] == 3
    )
    assert values[f'distill_agents{{{run},state="works"}}'] == 1 and lines[-1] == "# EOF"
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {name.partition("{")[0] for name in values} == named and list(file.parent.iterdir()) == [file]
    folder = CliRunner().invoke(cli.app, ["status", str(tmp_path), "--open-metrics", str(file)])
    assert folder.exit_code == 2 and "give the address of a run in a store" in folder.output
    monkeypatch.chdir(tmp_path)
    for place in (".", str(tmp_path)):
        refused = CliRunner().invoke(cli.app, ["status", address, "--open-metrics", place])
        assert refused.exit_code == 1 and "a folder in the place of a file" in refused.output


def test_status_of_an_address_is_a_table_or_json_and_writes_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "run")
    begin(store)
    before = store.list_objects()
    shown = CliRunner().invoke(cli.app, ["status", f"file://{tmp_path / 'run'}"]).output
    assert "units: 1 of 4 committed, 1 at work, 2 waiting" in shown
    assert "about 20 of 80 committed, 3.0/s, at most 0:20 left" in shown
    assert "node-1 7" in shown and "works" in shown and "error 1" in shown
    as_json = orjson.loads(CliRunner().invoke(cli.app, ["status", f"file://{tmp_path / 'run'}", "--json"]).output)
    assert as_json["waiting"] == 2 and as_json["agents"][0]["units"] and as_json["failures"] == []
    assert store.list_objects() == before
    for hours, error in ((1, "the disk is full"), (2, "the teacher is gone")):
        store.put(f"failures/{hours}.json", canonical({"host": "node-2", "pid": 9, "error": error}))
        os.utime(store.folder / "failures" / f"{hours}.json", times=(0, time.time() - 3600 * hours - 30))
    shown = CliRunner().invoke(cli.app, ["status", f"file://{tmp_path / 'run'}"]).output
    assert re.search(
        r"failed 2:00:\d\d ago: node-2 9: the teacher is gone\nfailed 1:00:\d\d ago: node-2 9: the disk is full",
        shown,
    )


def test_watching_ends_when_all_that_was_begun_is_finished_and_nobody_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, waits = tmp_path, []
    (run / "recipe.toml").write_text("")
    (run / "generate").mkdir()
    steps = [
        lambda: Manifest(stage="generate", fingerprint="", fields={}).write(run / "generate"),
        lambda: (run / "train").mkdir(),  # by the same command, which goes on
        lambda: Manifest(stage="train", fingerprint="", fields={}).write(run / "train"),
    ]
    with ExitStack() as command:
        command.enter_context(recording(run, "run"))

        def work(seconds: float) -> None:
            waits.append(seconds)
            steps.pop(0)() if steps else command.close()

        monkeypatch.setattr(results, "time", SimpleNamespace(sleep=work))
        done = CliRunner().invoke(cli.app, ["status", str(run), "--watch"])
    assert done.exit_code == 0 and len(waits) == 4
    assert "nothing more to watch" in done.stderr and "nothing more" not in done.stdout


@pytest.mark.parametrize(
    ("state", "over"),
    [
        ({"done": 4}, True),
        ({"done": 3}, False),
        ({"done": 4, "agents": ({"works": True},)}, False),
        ({"done": 4, "measured": 1}, False),
        ({"done": 4, "measured": 1, "filtered": {"kept": 1}}, True),
    ],
)
def test_a_run_in_a_store_is_over_when_its_units_and_the_filter_are_done(state: dict[str, Any], over: bool) -> None:
    common = {"partitions": 4, "units": 4, "claimed": 0, "traces": 1, "total_traces": 1, "agents": (), "failures": ()}
    assert RunState(**(common | state)).is_over is over


def test_status_of_a_run_in_a_folder_shows_the_stage_that_runs(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("")
    with watch(tmp_path / "progress.json") as on_progress:
        on_progress(Progress(stage="generate", done=5, total=20, unit="traces"))
        shown = CliRunner().invoke(cli.app, ["status", str(tmp_path)]).output
        assert "generate: 5/20 traces" in shown and f"s ago, process {os.getpid()}" in shown
        fields = orjson.loads(CliRunner().invoke(cli.app, ["status", str(tmp_path), "--json"]).output)
        assert fields["running"]["done"] == 5
    assert "5/20" not in CliRunner().invoke(cli.app, ["status", str(tmp_path)]).output
    (tmp_path / "progress.json").write_text("")  # what a power cut may leave
    assert CliRunner().invoke(cli.app, ["status", str(tmp_path)]).exit_code == 0
