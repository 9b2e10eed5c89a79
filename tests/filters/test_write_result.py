"""The memory of the result's steps: their databases have a thread a worker, and what a step freed goes back."""

from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, recipe, small_world

from distill.artifacts.layout import DECISIONS
from distill.artifacts.manifest import MANIFEST
from filters import apply, write_result
from filters.dataset import ablation_sets, card_facts, writer
from filters.decisions import dataset_checks, decide, funnel
from filters.report import page
from filters.tables.signal_database import ranges

STEPS = (
    (decide, "decide"),
    (writer, "write"),
    (funnel, "measure"),
    (ablation_sets, "write"),
    (card_facts, "facts"),
    (page, "write"),
)


@pytest.fixture
def run(tmp_path):
    generate_folder(tmp_path / "run", *small_world(tmp_path / "pictures"))
    return tmp_path / "run"


def test_databases_of_the_result_have_a_thread_for_each_worker(run, monkeypatch):
    connect, threads_of_databases = decide.connect, []

    def counted(*arguments, threads=None, **named):
        threads_of_databases.append(threads)
        return connect(*arguments, threads=threads, **named)

    monkeypatch.setattr(decide, "connect", counted)
    apply.apply(recipe(run.parent, "[filter]\nworkers = 1\n"), run)
    assert threads_of_databases == [1, 1], "of the decisions, and one that all later steps share"


def test_freed_memory_goes_back_between_each_two_steps(run, monkeypatch):
    done = []

    def noted(function, name):
        def call(*arguments, **named):
            done.append(name)
            return function(*arguments, **named)

        return call

    for module, name in STEPS:
        monkeypatch.setattr(module, name, noted(getattr(module, name), f"{module.__name__}.{name}"))
    monkeypatch.setattr(write_result, "give_back_memory", lambda: done.append("gone back"))
    apply.apply(recipe(run.parent, "[filter]\nworkers = 1\n"), run)
    steps = [f"{module.__name__}.{name}" for module, name in STEPS]
    assert [name for name in done if name != "gone back"] == steps
    assert all("gone back" in done[done.index(first) : done.index(second)] for first, second in pairwise(steps))


def test_results_do_not_depend_on_how_many_traces_are_counted_or_sorted_at_once(run, monkeypatch):
    made = recipe(run.parent, "[filter]\nworkers = 1\n")

    def files(at_once, pieces):
        parts = partial(ranges, at_once=at_once)
        for module in (decide, ablation_sets, card_facts):
            monkeypatch.setattr(module, "ranges", parts)
        monkeypatch.setattr(decide, "_PIECES", pieces)
        apply.apply(made, run, fresh=True)
        paths = [path for path in (run / "filter").rglob("*") if path.is_file() and path.name != MANIFEST]
        return {path.relative_to(run): path.read_bytes() for path in paths}, pq.read_table(run / "filter" / DECISIONS)

    (whole, decisions), (parts, same), (pieces, _) = files(10_000, 2), files(5, 1), files(5, 2)
    assert decisions.equals(same) and len(decisions) > 10
    assert pieces == parts, "the row groups of decisions, too"
    name = Path("filter") / DECISIONS
    assert whole | {name: b""} == parts | {name: b""}


def test_rows_are_written_and_checked_before_the_decisions_are_counted(run, monkeypatch):
    """Other machines wait until they can write rows, and processes of this one check while this one counts."""
    order = []
    start, check, measure = writer.LocalDataset.start, dataset_checks.measure, funnel.measure
    monkeypatch.setattr(writer.LocalDataset, "start", lambda *arguments: (order.append("rows"), start(*arguments))[1])
    monkeypatch.setattr(dataset_checks, "measure", lambda *arguments: (order.append("checks"), check(*arguments))[1])
    monkeypatch.setattr(funnel, "measure", lambda *arguments: (order.append("counts"), measure(*arguments))[1])
    apply.apply(recipe(run.parent, "[filter]\nworkers = 1\n"), run)
    assert order == ["rows", "checks", "counts"]
