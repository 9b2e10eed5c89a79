"""What a run keeps for the next one: it saves work and changes no result."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers import stub_server
from worlds.generate_world import World, asked_of

from distill.artifacts.files import file_sha256
from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import seal
from teacher.scheduling.sampling_policy import TeacherPolicy
from teacher.store import trace_journal

OUTPUTS = ("samples.parquet", "plan.parquet", "quarantine.jsonl")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    world = World(tmp_path)
    world.add_rows(1030)  # more than one row group of samples
    world.add_teacher(url, timeout_s=30.0)
    return world


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The samples whose requests were worked out."""
    seen: list[str] = []
    policy = TeacherPolicy.sample_policy

    def watched(self: TeacherPolicy, sample: Any) -> Any:
        seen.append(sample.question)
        return policy(self, sample)

    monkeypatch.setattr(TeacherPolicy, "sample_policy", watched)
    return seen


@pytest.fixture
def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes at which the records began that were read from journals."""
    seen: list[int] = []
    read = trace_journal.read_jsonl_at

    def watched(*arguments: Any, **options: Any) -> Any:
        for start, record in read(*arguments, **options):
            seen.append(start)
            yield start, record

    monkeypatch.setattr(trace_journal, "read_jsonl_at", watched)
    return seen


def forget(world: World) -> None:
    """Remove what the next run need not read again."""
    for name in (".finals", "stub/.index"):
        (world.run / "generate" / name).unlink()


def digests(world: World) -> dict[str, str]:
    return {name: file_sha256(world.run / "generate" / name) for name in OUTPUTS}


def without_times(manifest: Any) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in ("fields", "counts", "tokens", "outputs", "versions")}


def test_without_its_manifest_a_finished_run_reads_no_record_and_works_out_no_request(
    world: World, looked_at: list[str], lines_read: list[int]
) -> None:
    manifest = world.generate()
    for kept in (True, False):
        before = digests(world)
        (world.run / "generate" / "manifest.json").unlink()
        if not kept:
            forget(world)
        looked_at.clear(), lines_read.clear()
        again = world.generate()
        assert (len(looked_at), len(lines_read)) == ((0, 0) if kept else (1030, 1030))
        assert digests(world) == before and without_times(again) == without_times(manifest)


def test_an_appended_row_costs_its_own_work_and_leaves_the_files_of_a_whole_run(
    world: World, url: str, looked_at: list[str], lines_read: list[int], tmp_path: Path
) -> None:
    world.generate()
    world.add_rows(2)
    world.rows.append(world.rows[0])  # twice the same row
    world.rows.append({**world.rows[1], "answer": "8"})  # and one with another answer
    looked_at.clear(), lines_read.clear()
    before = asked_of(url)
    manifest = world.generate()
    assert asked_of(url) - before == 2
    assert (set(looked_at), lines_read) == ({"How many? 1030", "How many? 1031"}, [])
    assert manifest.counts["quarantined.duplicate_row"] == manifest.counts["quarantined.conflicting_answer"] == 1
    appended = digests(world)
    lines_read.clear()
    world.generate(fresh=True)
    assert digests(world) == appended
    whole = World(tmp_path / "whole")
    whole.folder.mkdir()
    for image in tmp_path.glob("*.png"):
        (whole.folder / image.name).write_bytes(image.read_bytes())
    whole.rows, whole.teachers = world.rows, world.teachers
    whole.generate()
    assert (whole.run / "generate" / "samples.parquet").stat().st_size > 0
    ids = {name: [row["sample_id"] for row in read_plan(each)] for name, each in (("a", world), ("b", whole))}
    assert ids["a"] == ids["b"] and world.planned() == whole.planned()


def read_plan(world: World) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return list(pq.read_table(world.run / "generate" / "plan.parquet").to_pylist())


def test_a_row_that_was_edited_is_planned_again(world: World, url: str, looked_at: list[str]) -> None:
    world.generate()
    world.rows[3] = {**world.rows[3], "answer": "8"}
    world.add_rows(1)
    looked_at.clear()
    before = asked_of(url)
    world.generate()
    assert asked_of(url) - before == 1 and len(set(looked_at)) == 1031
    answers = [row["answers"] for row in samples_of(world)]
    assert answers[3] == ["8"] and answers[4] == ["7"]


def samples_of(world: World) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return list(pq.read_table(world.run / "generate" / "samples.parquet").to_pylist())


def test_an_image_that_changed_is_read_again_even_if_only_a_row_was_appended(world: World, url: str) -> None:
    world.generate()
    image = world.folder / "0.png"
    image.write_bytes((world.folder / "1.png").read_bytes())
    world.add_rows(1)
    world.generate()
    samples = {row["question"]: row["images"][0]["sha256"] for row in samples_of(world)}
    assert samples["How many? 0"] == samples["How many? 1"] == file_sha256(image)


def test_a_trace_that_is_lost_is_asked_again_and_no_other(world: World, url: str) -> None:
    world.generate()
    part = world.run / "generate" / "stub" / "part-00000.jsonl"
    lines = part.read_bytes().splitlines(keepends=True)
    for damage in (
        lines[:500] + lines[501:],
        [*lines[:500], lines[500].replace(b"complete", b"completf"), *lines[501:]],
    ):
        part.write_bytes(b"".join(damage))
        (world.run / "generate" / "manifest.json").unlink(missing_ok=True)
        before = asked_of(url)
        world.generate()
        assert asked_of(url) - before == 1
        assert world.ids() == world.planned()


def test_what_was_appended_after_a_snapshot_counts(world: World, url: str, lines_read: list[int]) -> None:
    world.generate()
    generated = world.run / "generate"
    kept = {name: (generated / name).read_bytes() for name in (".finals", "stub/.index")}
    world.add_rows(2)
    world.generate()
    for name, data in kept.items():  # as if the second run had been killed before its end
        (generated / name).write_bytes(data)
    (generated / "manifest.json").unlink()
    before, files = asked_of(url), digests(world)
    lines_read.clear()
    manifest = world.generate()
    assert asked_of(url) == before and len(lines_read) == 2
    assert digests(world) == files and manifest.counts["traces"] == 1032


@pytest.mark.parametrize("name", [".finals", "stub/.index"])
def test_a_damaged_snapshot_counts_as_none(world: World, url: str, name: str) -> None:
    manifest = world.generate()
    before, files = asked_of(url), digests(world)
    snapshot = world.run / "generate" / name
    whole = snapshot.read_bytes()
    for damaged in (b"", whole[:100], whole[:-1], whole[:-50] + b"\0" + whole[-49:], whole.replace(b'"', b"'", 1)):
        snapshot.write_bytes(damaged)
        (world.run / "generate" / "manifest.json").unlink()
        again = world.generate()
        assert asked_of(url) == before and digests(world) == files
        assert without_times(again) == without_times(manifest)
        assert len(snapshot.read_bytes()) == len(whole)


def test_an_error_that_may_pass_is_asked_again_with_what_is_kept(tmp_path: Path, looked_at: list[str]) -> None:
    world = World(tmp_path)
    world.add_rows(20)
    with stub_server.serve() as url:
        world.add_teacher(url)
        world.generate()
        part = world.run / "generate" / "stub" / "part-00000.jsonl"
        records = list(read_jsonl(part))
        failed = {**records[7], "outcome": "error", "error": "http_500: x"}
        part.write_bytes(b"".join(map(seal, [*records[:7], failed, *records[8:]])))
        (world.run / "generate" / "manifest.json").unlink()
    world.generate()  # the server is away: the error stays
    looked_at.clear()
    with stub_server.serve() as url:
        world.teachers[0]["base_url"] = url
        manifest = world.generate()
        assert asked_of(url) == 1
    assert manifest.counts["complete"] == 20 and "error" not in manifest.counts
    assert len(set(looked_at)) == 1


def test_parts_that_are_full_are_in_the_snapshot_of_a_run_that_was_killed(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch, lines_read: list[int]
) -> None:
    monkeypatch.setattr("teacher.store.trace_journal.PART_RECORDS", 300)
    world.generate()
    generated = world.run / "generate"
    header = orjson.loads((generated / "stub" / ".index").read_bytes().split(b"\n", 1)[0])
    assert header["records"] == [300, 300, 300, 130]
    monkeypatch.setattr("teacher.store.trace_index.TraceIndex.save", lambda self: None)
    (generated / "manifest.json").unlink()
    for number in (3, 2):
        (generated / "stub" / f"part-0000{number}.jsonl").unlink()
    before = asked_of(url)
    world.generate()
    assert asked_of(url) - before == 430 and world.ids() == world.planned()


def test_neither_a_run_nor_its_resume_imports_pandas_and_a_new_run_no_functions_of_arrow(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add_rows(5)
    program = (
        "import sys; from distill.recipe.loading import load; from teacher.generate import generate; "
        "generate(load(sys.argv[1]), sys.argv[2]); "
        "sys.exit(bool({'pandas', sys.argv[3]} & sys.modules.keys()))"
    )
    with stub_server.serve() as url:
        world.add_teacher(url)
        for unwanted in ("pyarrow.compute", "pandas"):
            world.recipe()
            command = [sys.executable, "-c", program, str(world.folder / "recipe.toml"), str(world.run), unwanted]
            assert subprocess.run(command, check=False).returncode == 0
            world.add_rows(1)


def test_a_plan_without_a_key_that_was_added_later_is_made_again(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        world = World(tmp_path)
        world.add_rows(2)
        world.add_teacher(url)
        before = world.generate()
        path = world.run / "generate" / "plan.json"
        plan = orjson.loads(path.read_bytes())
        for key in ("extends", "routed"):
            path.write_bytes(orjson.dumps({name: value for name, value in plan.items() if name != key}))
            assert world.generate().counts == before.counts
            assert orjson.loads(path.read_bytes()) == plan
