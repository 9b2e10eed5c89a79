"""A run over everything that can be wrong: every row ends with its own reason, and every good one with its trace."""

import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from faults import hostile
from faults.hostile import COMPLETE, Case
from servers import stub_server
from worlds.generate_world import asked_of

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.data import reader
from distill.data.sample_files import read_samples
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Progress, Sample
from teacher.generate import generate

GOOD = 40
_CONTROLS = 60
"""Rows that are known to pass may be asked again so often, to find out whose fault it is that others fail."""


class World:
    """A data set of cases and a recipe in a folder, with its run directory."""

    patience_s = 6.0
    """Longer than a request that hangs takes."""

    def __init__(self, folder: Path, cases: Sequence[Case], *, source: str = "rows.jsonl") -> None:
        self.folder, self.run, self.cases = folder, folder / "run", cases
        self.source = source
        if source.endswith(".jsonl"):
            # A byte order mark is the first hostile thing that the reader meets.
            (folder / source).write_bytes(b"\xef\xbb\xbf" + b"".join(case.line + b"\n" for case in cases))

    def recipe(self, url: str, **teacher: Any) -> Recipe:
        settings = {"name": "stub", "model": "stub", "backend": "vllm", "base_url": url, **teacher}
        lines = ["[data.questions]", f'source = "{self.source}"', 'images_root = "images"']
        lines += [f"max_pixels = {hostile.MAX_PIXELS}", "max_bad_share = 1.0", "[generate]"]
        lines += [f"patience_s = {self.patience_s}"]
        lines += ["[[teachers]]"]
        lines += [f"{key} = {orjson.dumps(value).decode()}" for key, value in settings.items()]
        (self.folder / "recipe.toml").write_text("\n".join(lines))
        return load(self.folder / "recipe.toml")

    def records(self) -> list[dict[str, Any]]:
        return [record for part in sorted(self.run.glob("generate/*/part-*.jsonl")) for record in read_jsonl(part)]

    def quarantine(self) -> list[dict[str, Any]]:
        return list(read_jsonl(self.run / "generate" / "quarantine.jsonl"))

    def ends(self) -> dict[str, str]:
        """How each case ended, by its name; a case that left no trace at all is missing."""
        found: dict[str, list[str]] = {}
        for bad in self.quarantine():
            found.setdefault(self.cases[bad["row"] - 1].name, []).append(f"quarantined {bad['reason']}")
        names = {sample.id: sample.meta["case"] for sample in read_samples(self.run / "generate" / "samples.parquet")}
        last: dict[tuple[str, int], dict[str, Any]] = {}
        for record in sorted(self.records(), key=lambda record: record["attempt"]):
            last[record["sample_id"], record["k"]] = record
        for (sample, _), record in last.items():
            error = record["error"].partition(":")[0]
            found.setdefault(names[sample], []).append(f"error {error}" if error else record["outcome"])
        return {name: " and ".join(ends) for name, ends in found.items()}

    def distill(self, *, most_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
        """`distill generate` as a user calls it, if need be on a disk that takes no file larger than this."""

        def limit() -> None:
            if most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

        command = [
            sys.executable,
            "-m",
            "distill",
            "generate",
            str(self.folder / "recipe.toml"),
            "--run",
            str(self.run),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)


def good(count: int) -> list[Case]:
    return [
        Case(name=f"good {n}", line=hostile.written(hostile.row(f"good {n}")), ends=COMPLETE) for n in range(count)
    ]


def mixed(cases: Sequence[Case]) -> list[Case]:
    """Good rows at the start, the hostile ones with a good one after every fourth, and no good one left over."""
    rows = good(GOOD)
    found, rest = rows[:1], rows[1:]
    for number, case in enumerate(cases):
        found.append(case)
        if number % 4 == 3 and rest:
            found.append(rest.pop())
    return found + rest


def plain_failure(done: subprocess.CompletedProcess[str]) -> str:
    """The message of a run that failed as expected: on stderr, from us, no traceback."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr.rstrip().splitlines()[-1]
    assert "distill: " in done.stderr
    return done.stderr[done.stderr.index("distill: ") :]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("hostile")
    return World(folder, mixed([*hostile.corpus(folder), *hostile.behaviours()]))


@pytest.fixture(scope="module")
def first(world: World, url: str) -> Manifest:
    """The manifest of the one run over everything; the tests below look at what it left and run it again."""
    return generate(world.recipe(url, timeout_s=3.0, max_retries=1), world.run)


def test_the_corpus_is_as_large_as_promised_and_names_each_case_once(world: World) -> None:
    names = [case.name for case in world.cases]
    assert len(set(names)) == len(names)
    bad = [case for case in world.cases if case.ends != COMPLETE]
    assert len(bad) >= 50 and len(world.cases) - len(bad) > GOOD


def test_every_case_ends_exactly_as_it_must(world: World, first: Manifest) -> None:
    assert world.ends() == {case.name: case.ends for case in world.cases}


def test_a_reason_comes_with_the_place_and_a_sentence(world: World, first: Manifest) -> None:
    for bad in world.quarantine():
        assert bad["source"].endswith("rows.jsonl") and bad["row"] >= 1, bad
        assert 10 < len(bad["detail"]) <= 503, bad


def test_the_manifest_adds_up(world: World, first: Manifest) -> None:
    ends = Counter(case.ends.replace("quarantined ", "quarantined.").partition(" ")[0] for case in world.cases)
    assert Manifest.read(world.run / "generate") == first
    counts = first.counts
    for name, count in ends.items():
        assert counts[name] == count, name
    bad = sum(count for name, count in ends.items() if name.startswith("quarantined."))
    assert counts["quarantined"] == bad
    assert counts["samples"] == counts["traces"] == len(world.cases) - bad
    assert counts["errors_to_ask_again"] == sum(
        case.ends.startswith("error") and case.ends != "error refused_request" for case in world.cases
    )


def test_a_second_run_asks_again_what_may_pass_and_touches_nothing_else(
    world: World, first: Manifest, url: str
) -> None:
    before, asked = world.records(), asked_of(url)
    quarantine = world.quarantine()
    second = generate(load(world.folder / "recipe.toml"), world.run)
    assert world.ends() == {case.name: case.ends for case in world.cases}
    assert second.counts == first.counts and world.quarantine() == quarantine
    finished = [record for record in before if not record["error"]]
    assert [record for record in world.records() if not record["error"]] == finished
    assert {record["id"] for record in world.records()} == {record["id"] for record in before}
    assert asked_of(url) <= asked + _CONTROLS


def test_a_row_that_is_repaired_is_the_only_one_asked(world: World, first: Manifest, url: str) -> None:
    asked = asked_of(url)
    (world.folder / "images" / "empty.png").write_bytes(hostile.encoded(hostile.noise(31, 17)))
    manifest = generate(load(world.folder / "recipe.toml"), world.run)
    assert world.ends()["no bytes"] == COMPLETE
    assert manifest.counts["quarantined"] == first.counts["quarantined"] - 1
    assert manifest.counts["complete"] == first.counts["complete"] + 1
    assert asked < asked_of(url) <= asked + 1 + _CONTROLS


def test_a_image_that_changes_or_goes_under_a_run_costs_its_own_row(tmp_path: Path, url: str) -> None:
    hostile.corpus(tmp_path)
    changed, gone = tmp_path / "images" / "a.gif", tmp_path / "images" / "a.webp"
    rows = [hostile.row(path.name, image=path.name) for path in (changed, gone)]
    world = World(
        tmp_path,
        [*good(5), *(Case(name=row["image"], line=hostile.written(row), ends="error image") for row in rows)],
    )

    def once_planned(_: Progress) -> None:
        changed.write_bytes(hostile.encoded(hostile.noise(33, 11), "GIF"))
        gone.unlink(missing_ok=True)

    generate(world.recipe(url), world.run, on_progress=once_planned)
    assert world.ends() == {case.name: case.ends for case in world.cases}
    reasons = {record["error"].split(": ")[1] for record in world.records() if record["error"]}
    assert reasons == {"changed_image", "missing_image"}
    generate(world.recipe(url), world.run)
    expected = {case.name: case.ends for case in world.cases}
    assert world.ends() == expected | {changed.name: COMPLETE, gone.name: "quarantined missing_image"}


def test_cells_of_a_parquet_file_end_as_they_must(tmp_path: Path, url: str) -> None:
    hostile.corpus(tmp_path)
    world = World(tmp_path, hostile.parquet(tmp_path), source="rows.parquet")
    generate(world.recipe(url), world.run)
    assert world.ends() == {case.name: case.ends for case in world.cases}
    samples = read_samples(world.run / "generate" / "samples.parquet")
    assert {sample.answers for sample in samples} == {()}


def test_rows_read_or_refused_leave_no_file_open(world: World, url: str) -> None:
    recipe = world.recipe(url)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert len(list(reader.read(recipe))) == len(world.cases)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_open_quotation_mark_in_a_csv_file_costs_its_own_lines_and_no_row_swallows_others(tmp_path: Path) -> None:
    hostile.corpus(tmp_path)
    lines = [
        "image,question",
        "good.png,one?",
        '"good.png"x,two?',
        "good.png,three?",
        'good.png,"four?',
        "good.png,five?",
    ]
    lines += ['good.png,"six?"', "good.png,seven?", 'good.png,"eight?', "good.png,nine?"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    found = list(reader.read(World(tmp_path, [], source="rows.csv").recipe("http://127.0.0.1:9/v1")))
    assert [item.question for item in found if isinstance(item, Sample)] == ["one?", "three?", "seven?"]
    details = [item.detail for item in found if isinstance(item, BadRow)]
    assert [detail.partition(" are ")[0] for detail in details] == ["lines 3 to 3", "lines 5 to 7", "lines 9 to 10"]
    assert all("no CSV row" in detail for detail in details)


@pytest.fixture
def small(tmp_path: Path) -> World:
    """Good rows alone: what fails, fails at once."""
    hostile.corpus(tmp_path)
    world = World(tmp_path, good(120))
    world.patience_s = 2.0
    return world


def ids(run: Path) -> list[str]:
    return sorted(record["id"] for part in run.glob("generate/*/part-*.jsonl") for record in read_jsonl(part))


@pytest.mark.parametrize("most_bytes", [300, 5_000, 40_000])
def test_a_full_disk_pauses_the_run_and_the_same_command_finishes_it(small: World, url: str, most_bytes: int) -> None:
    small.recipe(url)
    stopped = small.distill(most_bytes=most_bytes)
    assert stopped.returncode == 1
    message = plain_failure(stopped)
    assert "cannot write" in message and "run the same command again" in message
    assert Manifest.read(small.run / "generate") is None
    kept = small.records()
    assert bool(kept) == (most_bytes == 40_000)
    generate(load(small.folder / "recipe.toml"), small.run)
    assert small.records()[: len(kept)] == kept
    undisturbed = small.folder / "undisturbed"
    generate(load(small.folder / "recipe.toml"), undisturbed)
    assert ids(small.run) == ids(undisturbed) == sorted(set(ids(small.run)))
    assert len(kept) < len(ids(small.run)) == 120


def test_a_server_of_another_model_is_one_message_and_nothing_is_asked(small: World, url: str) -> None:
    small.recipe(url, model="Qwen/Qwen3-VL-8B-Thinking", served_model="qwen")
    done = small.distill()
    assert done.returncode == 1
    assert "does not serve 'qwen'" in plain_failure(done)
    assert small.records() == []


def test_a_server_that_is_not_there_is_one_message(small: World) -> None:
    small.recipe("http://127.0.0.1:9/v1")
    done = small.distill()
    assert done.returncode == 3
    assert "no answer from http://127.0.0.1:9/v1" in plain_failure(done)


def test_a_server_of_the_run_that_dies_again_and_again_and_may_not_read_files_costs_no_row(small: World) -> None:
    recipe = small.recipe("http://127.0.0.1:9/v1").path
    command = [sys.executable, stub_server.__file__, "--crash-after=60"]
    server = f"[teachers.server]\ncommand = {orjson.dumps(command).decode()}\nrestarts = 50\n"
    lines = [line for line in recipe.read_text().splitlines() if not line.startswith("base_url")]
    recipe.write_text("\n".join([*lines, server]))
    done = small.distill()
    assert done.returncode == 0, done.stderr
    assert small.ends() == {case.name: COMPLETE for case in small.cases}
    assert (small.run / "generate" / "stub" / "server-0.log").read_text().count("=== ") > 1


def test_a_server_that_fails_everything_stops_the_run_with_3_and_a_healthy_one_finishes_it(
    small: World, url: str
) -> None:
    with stub_server.serve(fail_all=500) as broken:
        small.recipe(broken, max_retries=0)
        done = small.distill()
    assert done.returncode == 3
    assert "no request has succeeded for" in plain_failure(done) and "everything fails" in plain_failure(done)
    generate(small.recipe(url), small.run)
    assert len(set(ids(small.run))) == len(ids(small.run)) == 120
    planned = pq.read_table(small.run / "generate" / "plan.parquet")["id"].to_pylist()
    assert ids(small.run) == sorted(planned)
