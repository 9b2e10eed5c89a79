import errno
import hashlib
import os
import random
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from faults.killed import die_in_turn
from worlds.run_fixtures import generate_folder, recipe, sample, small_world, trace

from distill.artifacts.files import locked
from distill.artifacts.journal import write_jsonl
from distill.artifacts.manifest import Manifest
from distill.commands.explain import explain_trace
from distill.errors import BusyError, DataError, RecipeError, StaleError
from distill.recipe.loading import load
from distill.recipe.sections.filter import DEFAULT_RULES, DEFAULT_SIGNALS
from filters.apply import apply
from filters.signals import registry
from filters.signals.families.repetition import Repetition
from filters.tables import fork_server, measure, workers
from filters.what_if import what_if

RESULTS = ("decisions.parquet", "report.html", "dataset/README.md", "dataset/train/part-00000.parquet")


def digests(run, *, signals=True):
    """What the stage left, by name."""
    folder = run / "filter"
    names = [*RESULTS, *(f"signals/{path.name}" for path in (folder / "signals").glob("*") if signals)]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def decisions(run):
    return {row["id"]: row for row in pq.read_table(run / "filter/decisions.parquet").to_pylist()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with images, samples, traces and a run that is filtered as the defaults say; never written to."""
    folder = tmp_path_factory.mktemp("made")
    samples, traces = small_world(folder / "pictures")
    generate_folder(folder / "run", samples, traces)
    seen = []
    manifest = apply(recipe(folder), folder / "run", on_progress=seen.append)
    return folder, samples, traces, manifest, seen


@pytest.fixture
def world(made, tmp_path):
    """The same samples and traces, with a folder for one test."""
    return tmp_path, *made[1:3]


@pytest.fixture
def filtered(made, tmp_path):
    """A copy of the run."""
    return Path(shutil.copytree(made[0] / "run", tmp_path / "run"))


def run_of(world, name="run", *, shuffle=None, extra=()):
    tmp_path, samples, traces = world
    samples, traces = list(samples), list(traces)
    if shuffle is not None:
        random.Random(shuffle).shuffle(samples)
        random.Random(shuffle + 1).shuffle(traces)
    generate_folder(tmp_path / name, samples, traces, extra=extra)
    return tmp_path / name


def test_every_trace_is_measured_decided_and_counted(made):
    run, manifest, seen = made[0] / "run", *made[3:]
    assert manifest.counts == {
        "input": 24,
        "missing": 0,
        "complete": 18,
        "correct": 12,
        "kept": 6,
        "dropped": 18,
        "selected": 6,
        **{f"rule.{rule.name}": 0 for rule in DEFAULT_RULES},
        "rule.incomplete": 6,
        "rule.wrong_answer": 6,
        "rule.bad_format": 6,
        "rule.repetition": 6,
        "rule.exact_duplicate": 6,
        "selected.templated": 6,  # one text over six questions, each with its own number
        "measured": 24,
        "reused": 0,
    }
    found = decisions(run)
    assert found.keys() == {item.id for item in made[2]}
    assert (seen[0].stage, seen[0].done, seen[0].total) == ("filter", 0, 24), "before the first partition"
    assert (seen[-1].stage, seen[-1].done, seen[-1].total) == ("filter", 24, 24)
    assert Manifest.read(run / "filter") == manifest
    assert {"decisions.parquet", "dataset/train/part-00000.parquet", "signals/part-00000.parquet"} <= set(
        manifest.outputs
    )


def test_the_signal_table_names_its_extractors_and_has_a_state_of_each(made):
    run = made[0] / "run"
    table = pq.read_table(run / "filter/signals/part-00000.parquet")
    assert table.schema.names == measure.file_columns(()).names
    extractors = orjson.loads(table.schema.metadata[b"extractors"])
    assert extractors["repetition"] == {"version": Repetition.version, "ngram": 4}
    assert set(extractors) == set(registry.FAMILIES) & set(DEFAULT_SIGNALS)
    assert table["id"].to_pylist() == sorted(item.id for item in made[2])
    for name in extractors:
        assert table[f"{name}_state"].null_count == 0


def test_signals_that_were_not_asked_for_are_null(world):
    run = run_of(world)
    apply(recipe(world[0], '[filter]\nsignals = ["length", "format"]\n'), run)
    table = pq.read_table(run / "filter/signals/part-00000.parquet")
    assert table["answer_state"].null_count == table["repetition_ngram"].null_count == 24
    assert table["format_state"].null_count == 0
    assert "answer_verdict" in (run / "filter/report.html").read_text().split("not measured: ")[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_order_of_the_input_and_workers_do_not_change_a_byte(world, workers):
    settings = "[filter]\npartition_rows = 5\n"
    apply(recipe(world[0], settings), run_of(world))
    run = run_of(world, f"shuffled{workers}", shuffle=workers)
    apply(recipe(world[0], f"{settings}workers = {workers}\n"), run)
    assert digests(run) == digests(world[0] / "run")
    assert len(list((run / "filter/signals").glob("*.parquet"))) == 8


@pytest.mark.usefixtures("short_report")
def test_without_a_number_of_workers_there_is_one_for_each_core_that_has_enough_to_do(world, monkeypatch):
    apply(recipe(world[0], "[filter]\npartition_rows = 5\nworkers = 1\n"), run_of(world))
    prepare, started = workers.Workers._preparation, set()

    def counted(self):
        started.add(self.count)
        return prepare(self)

    monkeypatch.setattr(workers.Workers, "_preparation", counted)
    monkeypatch.setattr(fork_server, "available_cores", lambda: 2)
    apply(recipe(world[0], "[filter]\npartition_rows = 5\n"), run_of(world, "few"))
    assert not started, "24 traces are measured before a process has started"
    monkeypatch.setattr(fork_server, "_TRACES_A_PROCESS", 4)
    apply(recipe(world[0], "[filter]\npartition_rows = 5\n"), run_of(world, "many"))
    assert started == {2}
    assert digests(world[0] / "few") == digests(world[0] / "many") == digests(world[0] / "run")


@pytest.mark.usefixtures("short_report")
def test_the_number_of_partitions_changes_no_decision_and_no_row(world):
    for rows in (3, 1000):
        apply(recipe(world[0], f"[filter]\npartition_rows = {rows}\n"), run_of(world, f"run{rows}"))
    one, many = (digests(world[0] / name, signals=False) for name in ("run3", "run1000"))
    assert one == many
    tables = []
    for name in ("run3", "run1000"):
        files = sorted((world[0] / name / "filter/signals").glob("*.parquet"))
        tables.append(
            sorted((row for path in files for row in pq.read_table(path).to_pylist()), key=lambda row: row["id"])
        )
    assert tables[0] == tables[1]


def test_a_finished_stage_is_returned_without_work(world, filtered, monkeypatch):
    run, first = filtered, Manifest.read(filtered / "filter")
    monkeypatch.setattr(registry, "rows", lambda *_: pytest.fail("a trace was measured again"))
    assert apply(recipe(world[0]), run) == first
    assert apply(recipe(world[0], "[filter]\nworkers = 2\npartition_rows = 3\n"), run) == first


def test_other_settings_are_refused_naming_them_and_the_way_on(world, filtered):
    run = filtered
    with pytest.raises(StaleError) as caught:
        apply(recipe(world[0], "[filter.select]\nper_question = 1\n"), run)
    assert "filter.select.per_question: None -> 1" in str(caught.value)
    assert "--fresh" in str(caught.value)


@pytest.mark.usefixtures("short_report")
def test_more_traces_are_filtered_without_being_asked_and_the_last_result_is_kept(world):
    tmp_path, samples, traces = world
    asked = {sample.id for sample in samples[:3]}
    run = run_of((tmp_path, samples[:3], [trace for trace in traces if trace.sample_id in asked]))
    first = apply(recipe(tmp_path), run)
    run_of(world)
    second = apply(recipe(tmp_path), run)
    assert (first.counts["input"], second.counts["input"]) == (12, 24)
    assert Manifest.read(run / "filter.previous") == first
    with pytest.raises(StaleError):
        run_of((tmp_path, samples[:3], [trace for trace in traces if trace.sample_id in asked]))
        apply(recipe(tmp_path, "[filter.select]\nper_question = 1\n"), run)


@pytest.mark.usefixtures("short_report")
def test_a_new_policy_measures_nothing_again(world, filtered, monkeypatch):
    run = filtered
    before = digests(run)
    monkeypatch.setattr(registry, "rows", lambda *_: pytest.fail("a trace was measured again"))
    manifest = apply(recipe(world[0], "[filter]\nrules = []\n"), run, fresh=True)
    assert (manifest.counts["measured"], manifest.counts["reused"], manifest.counts["kept"]) == (0, 24, 24)
    previous = hashlib.sha256((run / "filter.previous/decisions.parquet").read_bytes()).hexdigest()
    assert previous == before["decisions.parquet"] != digests(run)["decisions.parquet"]


@pytest.mark.parametrize(("owner", "name", "at"), [(os, "link", 1), (Path, "rename", 2)])
def test_a_start_that_is_interrupted_loses_no_measured_signal(world, filtered, monkeypatch, owner, name, at):
    do, calls = getattr(owner, name), []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == at:
            raise KeyboardInterrupt
        return do(*arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(owner, name, interrupted)
        apply(recipe(world[0]), filtered, fresh=True)
    manifest = apply(recipe(world[0]), filtered, fresh=True)
    assert (manifest.counts["measured"], manifest.counts["reused"]) == (0, 24)
    assert not (filtered / ".filter.following").exists()


@pytest.mark.usefixtures("short_report")
def test_a_changed_parameter_of_a_signal_measures_again(world, filtered):
    run = filtered
    manifest = apply(recipe(world[0], "[filter.repetition]\nngram = 2\n"), run, fresh=True)
    assert (manifest.counts["measured"], manifest.counts["reused"]) == (24, 0)


@pytest.mark.usefixtures("short_report")
def test_only_the_partition_with_a_changed_trace_is_measured_again(world):
    settings = recipe(world[0], "[filter]\npartition_rows = 5\n")
    apply(settings, run_of(world))
    tmp_path, samples, traces = world
    changed = [replace(item, reasoning="Something else entirely.") if item is traces[0] else item for item in traces]
    generate_folder(tmp_path / "run", samples, changed)
    manifest = apply(settings, tmp_path / "run", fresh=True)
    assert 0 < manifest.counts["measured"] < 24
    fresh = tmp_path / "other"
    generate_folder(fresh, samples, changed)
    apply(settings, fresh)
    assert digests(fresh) == digests(tmp_path / "run")


def test_when_a_trace_was_made_changes_no_byte(made, tmp_path):
    folder, samples, traces, *_ = made
    later = [replace(item, created="2030-01-01T00:00:00+00:00", latency_s=9.0) for item in traces]
    generate_folder(tmp_path / "later", samples, later)
    apply(load(folder / "recipe.toml"), tmp_path / "later")
    assert digests(tmp_path / "later") == digests(folder / "run")


def test_traces_outside_the_plan_and_second_records_of_an_id_are_not_counted(made, world):
    traces = world[2]
    stray = trace(world[1][0], "99", k=77)
    again = replace(traces[0], answer="wrong now")
    run = run_of(world, extra=[stray, again])
    with (run / "generate/brief/part-00001.jsonl").open("ab") as file:
        file.write(orjson.dumps(asdict(trace(world[1][0], k=5, teacher="brief")))[:50])  # torn by a crash
    apply(load(made[0] / "recipe.toml"), run)
    assert digests(run) == digests(made[0] / "run")


def test_traces_of_a_renamed_teacher_have_its_name_of_today(made, tmp_path):
    folder, samples, traces, _, _ = made
    generate = generate_folder(tmp_path / "run", samples, traces)
    former = [asdict(replace(item, teacher="a-former-name")) for item in traces]
    (generate / "a-former-name").mkdir()
    write_jsonl(generate / "a-former-name" / "part-00000.jsonl", former)
    apply(recipe(folder), tmp_path / "run")
    assert digests(tmp_path / "run") == digests(folder / "run")
    teachers = pq.read_table(tmp_path / "run/filter/dataset/train/part-00000.parquet", columns=["teacher"])
    assert "a-former-name" not in teachers["teacher"].to_pylist()


@pytest.mark.usefixtures("short_report")
def test_an_error_counts_only_where_no_attempt_succeeded(tmp_path):
    asked = sample("How many?", "4")
    good, bad = trace(asked, k=0), trace(asked, k=1)
    failed = [
        replace(item, outcome="error", reasoning="", answer="", text="", error="timeout") for item in (good, bad)
    ]
    generate_folder(tmp_path / "run", [asked], [good, failed[1]])
    generate_folder(tmp_path / "errors_first", [asked], [failed[0], failed[1]], extra=[good])
    for name in ("run", "errors_first"):
        manifest = apply(recipe(tmp_path), tmp_path / name)
        assert (manifest.counts["input"], manifest.counts["kept"]) == (2, 1)
    assert digests(tmp_path / "run") == digests(tmp_path / "errors_first")


@pytest.mark.usefixtures("short_report")
def test_a_planned_trace_that_no_journal_holds_is_counted_as_missing(world):
    run = run_of(world)
    (run / "generate/brief/part-00000.jsonl").unlink()
    manifest = apply(recipe(world[0]), run)
    assert (manifest.counts["input"], manifest.counts["missing"]) == (21, 3)


@pytest.mark.usefixtures("short_report")
def test_a_signal_that_fails_on_one_trace_is_its_state_and_nothing_else(world, monkeypatch):
    real = Repetition._row

    def row(self, trace, *words):
        if "I guess" in trace.reasoning:
            raise ZeroDivisionError("strange text")
        return real(self, trace, *words)

    monkeypatch.setattr(Repetition, "_row", row)
    run = run_of(world)
    manifest = apply(recipe(world[0]), run)
    assert manifest.counts["error.repetition"] == 6
    table = pq.read_table(run / "filter/signals/part-00000.parquet").to_pylist()
    failed = [item for item in table if item["repetition_state"] == "error"]
    assert len(failed) == 6 and all(item["repetition_ngram"] is None for item in failed)
    assert orjson.loads(failed[0]["signal_errors"]) == {"repetition": "ZeroDivisionError: strange text"}
    assert all(item["format_state"] == "ok" for item in failed)


def test_a_run_without_traces_names_no_rule(tmp_path):
    samples, _ = small_world(tmp_path / "pictures")
    generate_folder(tmp_path / "run", samples, [])
    with pytest.raises(DataError, match="there are no traces to filter; run `distill generate`"):
        apply(recipe(tmp_path), tmp_path / "run")


def test_nothing_kept_is_an_error_that_shows_the_rules(world):
    run = run_of(world)
    text = '[[filter.rules]]\nname = "everything"\ndrop = "k >= 0"\n'
    with pytest.raises(DataError) as caught:
        apply(recipe(world[0], text), run)
    assert "no trace of 24 is kept (18 complete, 12 correct)" in str(caught.value)
    assert "everything: 24 (k >= 0)" in str(caught.value)
    assert Manifest.read(run / "filter") is None
    assert len(decisions(run)) == 24


def test_a_wrong_rule_is_reported_before_anything_is_read(tmp_path):
    with pytest.raises(RecipeError, match="no column 'rationale_token'"):
        apply(recipe(tmp_path, '[[filter.rules]]\nname = "r"\ndrop = "rationale_token > 5"\n'), tmp_path / "nowhere")


def test_traces_must_be_generated_first(tmp_path):
    with pytest.raises(StaleError, match=r"run `distill generate .*` first"):
        apply(recipe(tmp_path), tmp_path / "run")


def test_one_process_at_a_time_works_on_a_run(world):
    run = run_of(world)
    with locked(run), pytest.raises(BusyError):
        apply(recipe(world[0]), run)


SLOW = """
import time
from filters.apply import apply
from filters.tables import measure
real = measure.measure_partition
def slow(task):
    time.sleep(0.05)
    return real(task)
def work(recipe, run, delay_s):
    measure.measure_partition = slow
    threading.Timer(float(delay_s), die).start()
    apply(load(recipe), Path(run))
    time.sleep(60)
"""


def test_killed_at_any_moment_the_same_command_ends_with_the_same_bytes(world):
    tmp_path = world[0]
    settings = recipe(tmp_path, "[filter]\npartition_rows = 2\n")
    apply(settings, run_of(world))
    run = run_of(world, "killed")
    die_in_turn(SLOW, *((settings.path, run, delay_s) for delay_s in (0.1, 0.4, 0.7, 1.0)))
    apply(settings, run)
    assert digests(run) == digests(tmp_path / "run")
    assert not list((run / "filter").rglob("*.tmp"))


def test_filtering_needs_no_torch(world):
    run = run_of(world)
    script = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'datasets', 'trl', 'peft'): sys.modules[name] = None\n"
        f"from distill.recipe import load\nfrom filters.apply import apply\nfrom pathlib import Path\n"
        f"apply(load({str(recipe(world[0]).path)!r}), Path({str(run)!r}))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(measure.__file__).parents[2])
    assert Manifest.read(run / "filter") is not None


def test_a_run_killed_before_it_noted_the_digest_of_a_file_notes_it_later(world):
    run = run_of(world)
    apply(recipe(world[0]), run)
    note = run / "filter/signals/.part-00000.parquet.digest"
    before = note.read_text()
    note.unlink()
    (run / "filter/manifest.json").unlink()
    assert apply(recipe(world[0]), run).counts["measured"] == 0
    assert note.read_text() == before


@pytest.mark.parametrize("place", ["teacher=big/answer_verdict=wrong", "run[1]", "run*"])
def test_the_name_of_a_folder_decides_nothing(made, tmp_path, place):
    """A reader of Parquet takes `teacher=big` for a column, and `[1]` for a pattern."""
    folder, *_ = made
    run = tmp_path / place / "run"
    shutil.copytree(folder / "run/generate", run / "generate")
    for sibling in ("run1", "run2"):
        shutil.copytree(folder / "run", tmp_path / sibling / "run")
    apply(recipe(folder), run)
    assert decisions(run) == decisions(folder / "run")
    assert what_if(recipe(folder), run) == what_if(recipe(folder), folder / "run")
    name = next(iter(decisions(run)))
    assert explain_trace(run, name) == explain_trace(folder / "run", name)


@pytest.mark.usefixtures("short_report")
def test_a_file_system_without_hard_links_keeps_measured_signals_too(world, filtered, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as exFAT and some network drives do

    monkeypatch.setattr(os, "link", refuse)
    again = apply(recipe(world[0]), filtered, fresh=True)
    assert (again.counts["measured"], again.counts["reused"]) == (0, 24)
    assert (filtered / "filter.previous/signals/part-00000.parquet").is_file()


@pytest.mark.usefixtures("short_report")
def test_counts_that_another_program_adds_to_the_usage_of_a_trace_are_no_error(world):
    run = run_of(world)
    for path in run.glob("generate/*/*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"usage":{', b'"usage":{"written_by":3,'))
    assert apply(recipe(world[0]), run).counts["selected"] == 6
