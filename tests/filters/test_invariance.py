"""The filter stage gives the same bytes whatever the order, the partitions, the workers and the kills."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, make_image, recipe, sample, trace

from distill.artifacts.manifest import Manifest
from filters.apply import apply
from filters.dataset import writer
from filters.decisions import dataset_checks
from filters.tables import journal_pieces
from filters.tables.signal_database import Tables

RULES = """
[[filter.rules]]
name = "incomplete"
drop = "outcome <> 'complete'"
[[filter.rules]]
name = "wrong_answer"
drop = "answer_verdict = 'wrong'"
[[filter.rules]]
name = "repetition"
drop = "repetition_ngram > 0.6"
[[filter.rules]]
name = "long"
drop = "rationale_tokens > 45"
[[filter.rules]]
name = "near_duplicate"
drop = "corpus_duplicate and corpus_jaccard > 0.85"
[[filter.rules]]
name = "hard"
drop = "pass_rate < 0.3 and domain = 'charts'"
[filter.select]
per_question = 1
"""
ROOT = Path(__file__).resolve().parents[2]
WORDS = ("apple", "pear", "plum", "cherry", "lemon", "quince", "fig", "left", "right", "top", "under", "counted")


def settings(folder, **filtering):
    folder = folder / "named"  # the recipe's name, which the pages show, is that of its folder
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{name} = {value}\n" for name, value in filtering.items())
    return recipe(folder, f"[filter]\n{lines}{RULES}")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Some 150 traces: right, wrong, cut, looping, failed; texts that others repeat exactly, nearly, or not."""
    folder = tmp_path_factory.mktemp("invariance")
    chance = random.Random(0)
    samples, traces, failed = [], [], []
    said = ["I see nothing."]
    for number in range(32):
        domain = ("scenes", "charts", "")[number % 3]
        images = [make_image(folder / "pictures", number % 5)]
        asked = sample(f"Question {number}: how many?", str(number), images=images, domain=domain)
        samples.append(asked)
        for k in range(chance.randint(3, 6)):
            text = " ".join(chance.choices(WORDS, k=chance.randint(20, 60)))
            text = chance.choice([text, text, text, chance.choice(said), f"{chance.choice(said)} and more"])
            said.append(text)
            made = trace(
                asked,
                str(number + (chance.random() < 0.25)),
                text,
                k=k,
                teacher=("structured", "brief", "third")[k % 3],
            )
            if chance.random() < 0.15:
                made = replace(made, answer="", reasoning="so again " * 40, outcome="truncated_thinking")
            if chance.random() < 0.1:
                failed.append(replace(made, reasoning="", answer="", text="", outcome="error", error="timeout"))
            traces.append(made)
    lost = failed.pop()
    traces = [lost if item.id == lost.id else item for item in traces]
    run = generate_folder(folder / "run", samples, traces, extra=failed).parent
    apply(settings(folder), run)
    return run, samples, traces, failed


def scattered(world, folder, seed):
    """The same traces in other files, in another order; plan and samples, too."""
    _, samples, traces, failed = world
    chance = random.Random(seed)
    run = folder / f"scattered{seed}"
    mixed = {name: chance.sample(items, len(items)) for name, items in (("samples", samples), ("traces", traces))}
    generate = generate_folder(run, mixed["samples"], mixed["traces"])
    for teacher in {item.teacher for item in traces}:
        for part in (generate / teacher).glob("part-*.jsonl"):
            part.unlink()
        lines = [asdict(item) for item in [*traces, *failed] if item.teacher == teacher]
        chance.shuffle(lines)
        for line in lines:
            with (generate / teacher / f"part-{chance.randrange(4):05d}.jsonl").open("ab") as file:
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    return run


def linked(world, folder):
    """A run of the same generate stage."""
    run = folder / "run"
    run.mkdir()
    (run / "generate").symlink_to(world[0] / "generate")
    return run


def results(run, *, signals=True):
    """Digests of what the stage leaves for others, by name."""
    names = [name for name in Manifest.read(run / "filter").outputs if signals or not name.startswith("signals/")]
    assert {"decisions.parquet", "corpus/part-00000.parquet", "dataset/train/part-00000.parquet"} <= set(names)
    return {name: hashlib.sha256((run / "filter" / name).read_bytes()).hexdigest() for name in names}


def signals_of(run):
    """All partitions as one table in the order of the ids."""
    tables = [pq.read_table(path) for path in Tables.of(run / "filter").signals]
    return pa.concat_tables([table.replace_schema_metadata(None) for table in tables]).sort_by("id")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shuffled_files_and_lines_give_the_same_bytes(world, tmp_path, seed):
    run = scattered(world, tmp_path, seed)
    apply(settings(tmp_path), run)
    assert results(run) == results(world[0])


@pytest.mark.parametrize(("partitions", "rows", "workers"), [(4, 38, 1), (64, 3, 1), (64, 3, 2), (4, 38, 2)])
def test_partitions_and_workers_change_no_row_and_no_byte_of_the_results(world, tmp_path, partitions, rows, workers):
    run = linked(world, tmp_path)
    apply(settings(tmp_path, partition_rows=rows, workers=workers), run)
    assert len(Tables.of(run / "filter").signals) == partitions
    assert results(run, signals=False) == results(world[0], signals=False)
    assert signals_of(run).equals(signals_of(world[0]))


def test_any_number_of_workers_writes_the_same_bytes_from_many_pieces_into_many_files(world, tmp_path, monkeypatch):
    monkeypatch.setattr(journal_pieces, "_PIECE_BYTES", 5_000)
    monkeypatch.setattr(writer, "dataset_file_rows", lambda rows: 7)
    monkeypatch.setattr(dataset_checks, "_BATCH", 9)
    made = []
    for workers in (1, 2, 3):
        (tmp_path / f"{workers}").mkdir()
        run = linked(world, tmp_path / f"{workers}")
        apply(settings(tmp_path, partition_rows=38, workers=workers), run)
        made.append(results(run))
    assert made[0] == made[1] == made[2]
    files = [name for name in made[0] if name.startswith("dataset/train/")]
    assert files == [f"dataset/train/part-{number:05d}.parquet" for number in range(len(files))] and len(files) > 3
    rows = [row for name in files for row in pq.read_table(run / "filter" / name).to_pylist()]
    assert rows == pq.read_table(world[0] / "filter/dataset/train/part-00000.parquet").to_pylist()


def test_how_many_rows_are_sorted_at_once_changes_no_byte(world, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_SORTED_ROWS", 10)
    run = linked(world, tmp_path)
    apply(settings(tmp_path), run)
    assert results(run) == results(world[0])


def test_every_trace_is_kept_or_dropped_with_exactly_the_rules_that_fail(world):
    run, _, traces, _ = world
    tables = Tables.of(run / "filter")
    files = {"signals": list(map(str, tables.signals)), "corpus": list(map(str, tables.side["corpus"]))}
    sources = " LEFT JOIN ".join(f"read_parquet({paths}) AS {name}" for name, paths in files.items())
    table = duckdb.sql(f"FROM {sources} USING (id)")
    failing = {item.id: set() for item in traces}
    rules = settings(run.parent).filter.rules
    for rule in rules:
        found = table.filter(f"({rule.drop})").select("id").fetchall()
        assert found, f"no trace of this world fails {rule.name}"
        for (name,) in found:
            failing[name].add(rule.name)
    decisions = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    assert [row["id"] for row in decisions] == sorted(failing)
    for row in decisions:
        reasons = {reason["rule"] for reason in row["reasons"]}
        assert row["kept"] == (not failing[row["id"]])
        assert reasons == failing[row["id"]] if not row["kept"] else reasons <= {"not_selected"}
        assert row["selected"] == (row["kept"] and not reasons)
    counts = Manifest.read(run / "filter").counts
    assert counts["kept"] + counts["dropped"] == counts["input"] == len(traces)
    assert 0 < counts["selected"] < counts["kept"] < counts["input"]
    assert {rule.name: counts[f"rule.{rule.name}"] for rule in rules} == {
        rule.name: sum(rule.name in found for found in failing.values()) for rule in rules
    }


def test_the_reasons_carry_the_values_that_the_rules_read(world):
    measured = {row["id"]: row for row in signals_of(world[0]).to_pylist()}
    decisions = pq.read_table(world[0] / "filter/decisions.parquet").to_pylist()
    seen = set()
    for row in decisions:
        for reason in row["reasons"]:
            for name, value in orjson.loads(reason["values"]).items():
                if name in measured[row["id"]]:
                    assert value == measured[row["id"]][name]
                    seen.add(name)
    assert seen >= {"outcome", "answer_verdict", "repetition_ngram", "rationale_tokens", "pass_rate", "domain"}


def size_of(folder):
    """Files and bytes below a folder, while others write there."""
    sizes = []
    for parent, _, names in os.walk(folder):  # a folder that goes meanwhile is passed over
        for name in names:
            with suppress(FileNotFoundError):
                sizes.append((Path(parent) / name).stat().st_size)
    return len(sizes), sum(sizes)


def test_killed_at_random_moments_and_resumed_it_ends_with_the_same_bytes(world, tmp_path):
    run = linked(world, tmp_path)
    path = settings(tmp_path, partition_rows=3).path
    chance = random.Random(time.time_ns())
    command = [sys.executable, "-m", "distill", "filter", str(path), "--run", str(run)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    killed = 0
    (run / "filter").mkdir()
    (run / "filter/.decisions.parquet.1.tmp").write_bytes(b"left by a run that was killed while it decided")
    for _ in range(3):
        before = size_of(run)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        ) as child:
            while child.poll() is None and size_of(run) == before:
                time.sleep(0.002)
            with suppress(subprocess.TimeoutExpired):
                child.wait(chance.uniform(0, 0.6))
            child.kill()
        killed += child.returncode == -signal.SIGKILL
    assert killed, "the stage ended before it could be killed"
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
    assert results(run, signals=False) == results(world[0], signals=False)
    assert signals_of(run).equals(signals_of(world[0]))
    assert not list((run / "filter").rglob(".*.tmp"))
