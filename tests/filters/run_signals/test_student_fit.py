"""The side table of student fit: every value is measured once, whatever happens in between."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from worlds import run_fixtures as fixtures

from distill.artifacts.integrity import digest_note
from distill.errors import DistillError
from distill.types import Sample, Trace
from filters.run_signals import student_fit
from filters.signals import schema
from filters.tables.run_signal_tables import Item

IDENTITY = {"checkpoint": "c0ffee"}


class Student:
    """Measures by counting letters, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.calls = 0

    def __call__(self, pairs: list[tuple[Sample, Trace]]) -> list[dict[str, Any]]:
        self.calls += 1
        self.asked += [trace.id for _, trace in pairs]
        return [
            {"reason": "too_long"}
            if "endless" in trace.reasoning
            else {
                "nll": len(trace.reasoning) / 3,
                "rank_surprisal": 2.0,
                "ifd": 0.5,
                "blind_gap": 0.25 if sample.images else None,
                "answer_nll": 1.0,
                "tokens": len(trace.reasoning),
            }
            for sample, trace in pairs
        ]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student_fit, "PART_ROWS", 10)
    monkeypatch.setattr(student_fit, "CHUNK_ROWS", 4)


def items(questions: int = 12, traces: int = 3) -> list[Item]:
    samples = sorted((fixtures.sample(f"Question {number}?") for number in range(questions)), key=lambda one: one.id)
    return [
        (one.id, asked, one)
        for asked in samples
        for k in range(traces)
        for one in [fixtures.trace(asked, reasoning="word " * (k + 1), teacher=("brief", "long")[k % 2], k=k)]
    ]


def content(paths: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in paths]


def rows(paths: list[Path]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for path in paths for row in pq.read_table(path).to_pylist()}


def run(found: list[Item], folder: Path, **options: Any) -> tuple[list[Path], Student]:
    student = Student()
    return student_fit.measure(found, folder, student, **{"identity": IDENTITY, **options}), student


def test_what_is_no_number_is_no_value(tmp_path: Path) -> None:
    def overflowing(pairs: list[tuple[Sample, Trace]]) -> list[dict[str, Any]]:
        return [values | {"ifd": float("nan")} for values in Student()(pairs)]

    (path,) = student_fit.measure(items(2), tmp_path, overflowing, identity=IDENTITY)
    rows = pq.read_table(path).to_pylist()
    assert {(row["student_state"], row["student_reason"]) for row in rows} == {("undecidable", "not_finite")}
    assert {row["student_ifd"] for row in rows} == {None}


def test_every_trace_has_one_row_with_its_values_or_the_reason_why_not(tmp_path: Path) -> None:
    found = items(4)
    name, asked, trace = found[0]
    found[0] = (name, asked, replace(trace, outcome="error", error="timeout"))
    found[1] = (found[1][0], asked, replace(found[1][2], reasoning="", answer=" "))
    found[2] = (found[2][0], asked, replace(found[2][2], reasoning="endless"))
    paths, student = run(found, tmp_path)
    table = rows(paths)
    assert list(pq.read_schema(paths[0]).names) == ["id", *schema.STUDENT.names]
    assert pq.read_schema(paths[0]).metadata[b"fingerprint"]
    assert set(table) == {one for one, _, _ in found} and len(student.asked) == len(found) - 2
    assert [table[found[place][0]]["student_state"] for place in range(4)] == [
        "not_applicable",
        "not_applicable",
        "undecidable",
        "ok",
    ]
    assert table[found[2][0]]["student_reason"] == "too_long"
    good = table[found[3][0]]
    assert good["student_nll"] == round(len(found[3][2].reasoning) / 3, 6) and good["student_blind_gap"] is None


def test_a_second_run_measures_nothing_and_changes_no_byte(tmp_path: Path) -> None:
    before, _ = run(items(), tmp_path)
    bytes_before = content(before)
    heard: list[tuple[int, bool]] = []
    after, student = run(items(), tmp_path, on_done=lambda count, reused: heard.append((count, reused)))
    assert student.calls == 0 and after == before and content(after) == bytes_before
    assert sum(count for count, _ in heard) == 36 and all(reused for _, reused in heard)


def test_the_files_do_not_depend_on_the_order_of_a_samples_traces(tmp_path: Path) -> None:
    mixed = items()
    random.Random(0).shuffle(mixed)
    mixed.sort(key=lambda item: item[1].id)
    assert mixed != items()
    assert content(run(mixed, tmp_path / "a")[0]) == content(run(items(), tmp_path / "b")[0])


def test_samples_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DistillError, match="out of order"):
        run(items()[::-1], tmp_path)


def test_new_traces_are_measured_alone_and_the_table_is_that_of_one_run(tmp_path: Path) -> None:
    everything = items()
    late = {item[1].id for item in everything[::7]}
    run([item for item in everything if item[1].id not in late], tmp_path / "grown")
    paths, student = run(everything, tmp_path / "grown")
    assert sorted(student.asked) == sorted(name for name, asked, _ in everything if asked.id in late)
    assert content(paths) == content(run(everything, tmp_path / "once")[0])
    assert set((tmp_path / "grown").iterdir()) == {*paths, *map(digest_note, paths)}


def test_fewer_traces_leave_no_file_behind(tmp_path: Path) -> None:
    run(items(), tmp_path)
    paths, student = run(items()[:12], tmp_path)
    assert student.calls == 0 and set(tmp_path.iterdir()) == {*paths, *map(digest_note, paths)}
    assert set(rows(paths)) == {name for name, _, _ in items()[:12]}


def test_a_changed_text_is_measured_again_and_nothing_else(tmp_path: Path) -> None:
    found = items()
    run(found, tmp_path)
    name, asked, trace = found[5]
    found[5] = (name, asked, replace(trace, reasoning="something else entirely"))
    paths, student = run(found, tmp_path)
    assert student.asked == [name]
    assert rows(paths)[name]["student_tokens"] == len("something else entirely")


def test_another_student_measures_everything_again(tmp_path: Path) -> None:
    run(items(), tmp_path)
    _, student = run(items(), tmp_path, identity={"checkpoint": "decaf"})
    assert len(student.asked) == 36


@pytest.mark.parametrize("calls", [0, 1, 3, 5, 8])
def test_values_that_were_written_are_not_measured_again(calls: int, tmp_path: Path) -> None:
    """The model fails at some call; what earlier calls gave is there."""

    class Killed(Student):
        def __call__(self, pairs: list[tuple[Sample, Trace]]) -> list[dict[str, Any]]:
            if self.calls == calls:
                raise KeyboardInterrupt
            return super().__call__(pairs)

    killed = Killed()
    with pytest.raises(KeyboardInterrupt):
        student_fit.measure(items(), tmp_path / "killed", killed, identity=IDENTITY)
    paths, student = run(items(), tmp_path / "killed")
    assert not set(killed.asked) & set(student.asked) and len(killed.asked) + len(student.asked) == 36
    assert content(paths) == content(run(items(), tmp_path / "whole")[0])


def test_a_run_that_was_killed_before_it_noted_a_digest_goes_on(tmp_path: Path) -> None:
    class Killed(Student):
        def __call__(self, pairs: list[tuple[Sample, Trace]]) -> list[dict[str, Any]]:
            if self.calls == 5:
                raise KeyboardInterrupt
            return super().__call__(pairs)

    with pytest.raises(KeyboardInterrupt):
        student_fit.measure(items(), tmp_path / "killed", Killed(), identity=IDENTITY)
    (written,) = (tmp_path / "killed" / ".next").glob("*.parquet")
    digest_note(written).unlink()
    paths, _ = run(items(), tmp_path / "killed")
    assert content(paths) == content(run(items(), tmp_path / "whole")[0])


KILLED = """
import os, random, signal, sys
from pathlib import Path
folder = Path(sys.argv[1])
sys.path[:0] = [str(folder), str(folder.parents[1] / "support"), str(folder.parents[2])]
import test_student_fit as tests
from filters.run_signals import student_fit as fit
fit.PART_ROWS, fit.CHUNK_ROWS = 10, 4
student, log = tests.Student(), open(sys.argv[3], "a")
def measure(pairs):
    found = student(pairs)
    log.write("".join(f"{trace.id}\\n" for _, trace in pairs)); log.flush()
    return found
def done(rows, reused):
    if not reused and random.random() < 0.3:
        os.kill(os.getpid(), signal.SIGKILL)
fit.measure(tests.items(), Path(sys.argv[2]), measure, identity=tests.IDENTITY, on_done=done)
"""


def test_kill_9_costs_no_chunk_that_was_reported_done(tmp_path: Path) -> None:
    log, kills = tmp_path / "log", 0
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path / "table"), str(log)]
    while (code := subprocess.run(command, check=False).returncode) == -signal.SIGKILL:
        kills += 1
    assert code == os.EX_OK
    measured = log.read_text().split()
    assert len(measured) == len(set(measured)) == 36, f"{kills} kills"
    paths = sorted((tmp_path / "table").glob("*.parquet"))
    assert content(paths) == content(run(items(), tmp_path / "whole")[0])


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    paths, _ = run(items(), tmp_path)
    whole = content(paths)
    paths[1].write_bytes(whole[1][:100])
    after, student = run(items(), tmp_path)
    assert content(after) == whole and 0 < len(student.asked) <= 12


def test_a_few_traces_of_each_teacher_are_the_same_few_in_any_order(tmp_path: Path) -> None:
    mixed = items()
    random.Random(0).shuffle(mixed)
    one, other = run(items(), tmp_path / "a", per_teacher=5)[0], run(mixed, tmp_path / "b", per_teacher=5)[0]
    teachers = {name: trace.teacher for name, _, trace in items()}
    assert sorted(teachers[name] for name in rows(one)) == ["brief"] * 5 + ["long"] * 5
    assert content(one) == content(other)


def test_more_of_each_teacher_keeps_what_was_measured(tmp_path: Path) -> None:
    first = run(items(), tmp_path, per_teacher=5)[1]
    second = run(items(), tmp_path, per_teacher=8)[1]
    assert not set(first.asked) & set(second.asked) and len(second.asked) == 6


def test_a_trace_whose_image_could_not_be_read_is_measured_again(tmp_path: Path) -> None:
    found = items(4)

    def blind(pairs: list[tuple[Sample, Trace]]) -> list[dict[str, Any]]:
        return [
            {"reason": "missing_image"} if trace.id == found[0][0] else values
            for (_, trace), values in zip(pairs, Student()(pairs), strict=True)
        ]

    (path, *_) = student_fit.measure(found, tmp_path, blind, identity=IDENTITY)
    assert rows([path])[found[0][0]]["student_reason"] == "missing_image"
    paths, student = run(found, tmp_path)
    assert student.asked == [found[0][0]] and rows(paths)[found[0][0]]["student_state"] == "ok"
    assert content(paths) == content(run(found, tmp_path / "other")[0])
    assert run(found, tmp_path)[1].calls == 0
