"""Damaged files of the generate stage: the run goes on, what was lost is asked again, and nothing else."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers import stub_server
from students import tiny_models
from worlds.generate_world import asked_of

from distill.artifacts.damaged_lines import side_file
from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import seal
from distill.artifacts.manifest import Manifest
from distill.errors import CircuitOpen, DataError, StorageError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import Progress
from filters.tables.trace_index import index
from teacher.generate import generate

ROWS, SAMPLES = 20, 2


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


class World:
    """A finished generate stage."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.run, self.url = folder, folder / "run", url
        tiny_models.make_image(folder / "0.png", 0, size=16)
        rows = ({"image": "0.png", "question": f"How many? {number}", "answer": "7"} for number in range(ROWS))
        (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))

    @property
    def part(self) -> Path:
        return self.run / "generate" / "stub" / "part-00000.jsonl"

    def recipe(self) -> Recipe:
        path = self.folder / "recipe.toml"
        path.write_text(
            '[generate]\npatience_s = 1.0\n[data.questions]\nsource = "rows.jsonl"\nimages_root = "."\n'
            f'[[teachers]]\nname = "stub"\nmodel = "stub"\nbackend = "vllm"\n'
            f'base_url = "{self.url}"\nsamples = {SAMPLES}\ntimeout_s = 5.0\n'
        )
        return load(path)

    def generate(self, **options: Any) -> Manifest:
        return generate(self.recipe(), self.run, **options)

    def records(self) -> dict[str, dict[str, Any]]:
        return {record["id"]: record for record in read_jsonl(self.part)}

    def unfinish(self) -> None:
        (self.run / "generate" / "manifest.json").unlink()


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    made = World(tmp_path, url)
    made.generate()
    return made


def without(line: bytes, name: str) -> bytes:
    return orjson.dumps({key: value for key, value in orjson.loads(line).items() if key != name}) + b"\n"


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda line: line[:40] + bytes([line[40] ^ 1]) + line[41:], True),
        (lambda line: line[:100] + b"\0" * 60 + line[160:], True),
        (lambda line: line[:100] + line[160:], True),
        (lambda line: line[:100] + b"noise" + line[100:], True),
        (lambda line: line[: len(line) // 2], True),
        (lambda line: without(line, "text"), True),
        (lambda line: without(line, "crc"), True),
        (lambda line: b"\n", True),
        (lambda line: b"", True),
        (lambda line: line + line, False),
        (lambda line: line[:-1] + b"\r\n", False),
        (lambda line: b"\xef\xbb\xbf" + line, False),
        (lambda line: line[:-1], False),
    ],
    ids=[
        *("bit", "zeros", "removed", "inserted", "cut", "no text", "no checksum", "empty", "gone"),
        *("doubled", "crlf", "order mark", "no line break"),
    ],
)
@pytest.mark.parametrize("at", [0, 7])
def test_a_damaged_line_costs_exactly_its_trace(
    world: World, change: Callable[[bytes], bytes], lost: bool, at: int
) -> None:
    before, lines = world.records(), world.part.read_bytes().splitlines(keepends=True)
    victim = orjson.loads(lines[at])["id"]
    lines[at] = change(lines[at])
    world.part.write_bytes(b"".join(lines))
    world.unfinish()
    asked = asked_of(world.url)
    manifest = world.generate()
    assert asked_of(world.url) - asked == int(lost)
    after = world.records()
    assert after.keys() == before.keys()
    assert {key for key in after if after[key] != before[key]} == ({victim} if lost else set())
    seen = list(read_jsonl(side_file(world.part)))
    assert sum(piece["reason"] != "blank" for piece in seen) == manifest.counts.get("damaged_lines", 0)
    if lost and lines[at].strip():
        assert manifest.counts["damaged_lines"] == 1
    assert world.generate() == manifest


def test_a_source_that_was_moved_with_its_images_and_its_run_is_not_waited_for(world: World) -> None:
    asked = asked_of(world.url)
    moved = world.folder.with_name("moved")
    world.folder.rename(moved)
    after = World(moved, world.url)
    assert after.generate().counts["complete"] == ROWS * SAMPLES
    assert asked_of(world.url) == asked


def test_a_tenth_of_the_lines_damaged_costs_exactly_these_traces(world: World) -> None:
    chance = random.Random(3)
    before, lines = world.records(), world.part.read_bytes().splitlines(keepends=True)
    victims = chance.sample(range(len(lines)), len(lines) // 10)
    ids = {orjson.loads(lines[at])["id"] for at in victims}
    for at in victims:
        place = chance.randrange(len(lines[at]) - 1)
        lines[at] = lines[at][:place] + bytes([lines[at][place] ^ 0x80]) + lines[at][place + 1 :]
    world.part.write_bytes(b"".join(lines))
    world.unfinish()
    assert world.generate().counts["damaged_lines"] == len(ids)
    after = world.records()
    assert after.keys() == before.keys() and {key for key in after if after[key] != before[key]} == ids


def test_a_journal_without_checksums_goes_on_and_gets_them(world: World) -> None:
    lines = [orjson.loads(line) for line in world.part.read_bytes().splitlines()]
    for line in lines:
        del line["crc"]
    lines[3]["usage"]["prompt"] = -1
    lines[5].pop("engine")
    world.part.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines[:-1]))
    world.unfinish()
    asked = asked_of(world.url)
    manifest = world.generate()
    assert asked_of(world.url) - asked == 3 and manifest.counts["damaged_lines"] == 2
    assert all(b'"crc":"' in line for line in world.part.read_bytes().splitlines())
    assert len(world.records()) == ROWS * SAMPLES


@pytest.mark.parametrize("fate", ["deleted", "shortened"])
def test_a_finished_stage_that_lost_a_part_asks_for_what_was_in_it(world: World, fate: str) -> None:
    before = world.records()
    if fate == "deleted":
        world.part.unlink()
    else:
        lines = world.part.read_bytes().splitlines(keepends=True)
        world.part.write_bytes(b"".join(lines[:-5]))
    asked = asked_of(world.url)
    world.generate()
    assert asked_of(world.url) - asked == (len(before) if fate == "deleted" else 5)
    assert world.records().keys() == before.keys()


def test_a_damaged_finished_stage_without_its_server_claims_nothing(world: World) -> None:
    world.part.write_bytes(world.part.read_bytes()[:-30])
    world.url = "http://127.0.0.1:9/v1"
    with pytest.raises(CircuitOpen):
        world.generate()
    assert Manifest.read(world.run / "generate") is None


@pytest.mark.parametrize(
    "name", ["samples.parquet", "quarantine.jsonl", "plan.json", "plan.parquet", "stub/engine.json"]
)
@pytest.mark.parametrize("fate", ["deleted", "cut", "zeros"])
def test_a_damaged_plan_is_made_again_and_asks_for_nothing(world: World, name: str, fate: str) -> None:
    before, path = world.records(), world.run / "generate" / name
    data = path.read_bytes() if path.is_file() else b""
    if fate == "deleted":
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(data[: len(data) // 2] if fate == "cut" else b"\0" * max(1, len(data)))
    world.unfinish()
    asked = asked_of(world.url)
    manifest = world.generate()
    assert asked_of(world.url) == asked and world.records() == before
    assert manifest.counts["traces"] == len(before)
    assert list(read_jsonl(world.run / "generate" / "quarantine.jsonl")) == []


@pytest.mark.parametrize("fate", ["deleted", "shortened"])
def test_a_journal_taken_away_during_a_run_stops_it_and_the_next_run_asks_again(world: World, fate: str) -> None:
    (world.folder / "rows.jsonl").write_bytes(
        (world.folder / "rows.jsonl").read_bytes().replace(b"How many?", b"How few?")
    )
    took: list[int] = []

    def take(progress: Progress) -> None:
        if not took and world.part.stat().st_size > 60_000:
            took.append(progress.done)
            if fate == "deleted":
                world.part.unlink()
            else:
                world.part.write_bytes(world.part.read_bytes()[:1000])

    with pytest.raises(StorageError, match=r"part-00000.jsonl: .*(deleted|should have)"):
        world.generate(fresh=True, on_progress=take)
    assert took and Manifest.read(world.run / "generate") is None
    manifest = world.generate()
    assert manifest.counts["traces"] == ROWS * SAMPLES


def test_a_filter_that_meets_damaged_traces_says_how_to_get_them_again(world: World) -> None:
    data = bytearray(world.part.read_bytes())
    data[50] ^= 4
    world.part.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"part-00000.jsonl:1: this line is damaged: .* `distill repair"):
        index(world.run / "generate", world.folder / "samples", 100)


def test_a_trace_that_lacks_a_field_is_damaged_although_its_checksum_holds(world: World) -> None:
    first, *rest = world.part.read_bytes().splitlines(keepends=True)
    record = orjson.loads(first)
    world.part.write_bytes(seal({"id": record["id"], "outcome": "complete"}) + b"".join(rest))
    world.unfinish()
    assert world.generate().counts["damaged_lines"] == 1
    assert [piece["reason"] for piece in read_jsonl(side_file(world.part))] == ["it has no sample_id"]
