"""What a running `generate` reports: traces of the present plan alone, and no rate from what was there before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import stub_server
from worlds.generate_world import World

from distill.commands import progress as shown
from distill.types import Progress
from teacher import progress as reports


class _Stopped(Exception):
    """The end of a run in its middle."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    world = World(tmp_path)
    world.add_rows(10)
    world.add_teacher(url, samples=2)
    return world


@pytest.fixture(autouse=True)
def every_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_REPORT_INTERVAL_S", 0.0)


def _stop_at(world: World, done: int) -> None:
    def stop(progress: Progress) -> None:
        if progress.done >= done:
            raise _Stopped

    with pytest.raises(_Stopped):
        world.generate(on_progress=stop)


def test_traces_of_a_changed_prompt_are_not_counted_as_done(world: World) -> None:
    world.generate()
    world.teachers[0]["prompt"] = "Think. {question}"
    seen: list[Progress] = []
    world.generate(fresh=True, on_progress=seen.append)
    known = [progress for progress in seen if progress.total]
    assert (known[0].done, known[0].total, known[0].resumed) == (0, 20, 0)
    assert {progress.total for progress in known} == {20}
    assert [progress.done for progress in known] == sorted(progress.done for progress in known)


def test_a_resumed_run_counts_the_traces_that_stand_and_expects_what_is_left(world: World) -> None:
    world.head = '[generate.outcomes]\nattempts = 2\nempty_answer = "resample"'
    for row in world.rows:
        row["question"] += " fault=empty"  # every trace is asked for twice
    world.teachers[0] |= {"max_in_flight": 2, "start_in_flight": 2}
    _stop_at(world, 15)
    there = sum(record["attempt"] == 1 for record in world.records())
    seen: list[Progress] = []
    manifest = world.generate(on_progress=seen.append)
    *running, last = seen
    asked = [progress for progress in running if progress.done > progress.resumed]
    assert there >= 15 and asked[0].done == there + 1 and asked[0].resumed == there
    assert {(progress.total, progress.facts["empty_answer"]) for progress in asked} == {
        (20, done) for done in range(there + 1, 21)
    }
    assert manifest.counts["repeated"] == 20 and (last.done, last.total) == (20, 20)


def test_a_run_with_one_more_question_begins_with_what_the_last_one_collected(world: World) -> None:
    world.generate()
    world.add_rows(1)
    seen: list[Progress] = []
    world.generate(on_progress=seen.append)
    known = [progress for progress in seen if progress.total]
    assert (known[0].done, known[0].total, known[0].resumed) == (20, 22, 20)
    assert (known[-1].done, known[-1].total) == (22, 22)


def test_the_rate_and_the_time_left_leave_out_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: now[0])
    first = Progress(stage="generate", done=0, total=1000, unit="traces")
    clock = shown._Clock(first)
    assert shown._line(first, clock) == "generate: 0/1,000 traces", "no rate is known yet"
    now[0] += 10
    report = Progress(stage="generate", done=520, total=1000, unit="traces", resumed=500)
    assert "2.0/s, ETA 4:00" in shown._line(report, clock)
    slow = Progress(stage="train", done=501, total=1000, unit="steps", resumed=500)
    assert "0.1/s" in shown._line(slow, clock)
    now[0] += 20
    assert "0.033/s" in shown._line(slow, clock), "a step in 30 seconds is not 0.0 a second"


def test_before_a_total_is_known_no_number_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with shown.watch() as on_progress:
        reports.announce(on_progress, "reads the text of images: 5 read")
    assert capsys.readouterr().err == "generate: now reads the text of images: 5 read\n"


def test_an_agent_tells_how_many_of_its_traces_the_plan_counts(world: World) -> None:
    progress = reports.GenerateProgress(lambda _: None, done=0, total=20, outcomes={})
    teacher = world.recipe().teachers[0]
    record = {"usage": {"prompt": 1, "reasoning": 1, "answer": 1}, "outcome": "complete"}
    progress.count(teacher, record, stands=False)
    progress.count(teacher, record)
    progress.count(teacher.model_copy(update={"after": "stub"}), record)
    assert (progress.facts()["traces"], progress.facts()["planned"]) == (2, 1)
    assert progress.facts()["tokens"] == 6, "those of the replaced attempt count"
    progress.begin_round()
    assert (progress.facts()["traces"], progress.facts()["planned"]) == (0, 0)
