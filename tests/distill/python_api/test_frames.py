"""Tables of a run: every trace once with its question, signals beside decisions, students paired by question."""

import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest
from worlds.run_fixtures import generate_folder, recipe, small_world, trace

import distill
from distill.artifacts.journal import write_jsonl
from distill.artifacts.manifest import Manifest
from distill.commands.status import run_status
from distill.damaged_runs import damage_named
from distill.errors import DataError, StaleError
from filters.apply import apply


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    samples, traces = small_world(folder / "pictures")
    extra = [trace(samples[0], "9", teacher="structured", k=99)]
    generate_folder(folder / "run", samples, traces, extra=extra)
    apply(recipe(folder), folder / "run")
    return folder / "run"


def test_traces_have_their_question_and_gold_answers(run: Path) -> None:
    table = distill.traces(run).to_pylist()
    assert len(table) == 24 and len({row["id"] for row in table}) == 24, "what the plan does not name is no trace"
    row = next(row for row in table if row["question"].startswith("Question 3") and row["reasoning"][:6] == "I look")
    assert row["golds"] == ["3"] and row["answer"] == "3"
    assert (row["prompt_tokens"], row["image_tokens"], row["reasoning_tokens"], row["answer_tokens"]) == (
        10,
        4,
        12,
        1,
    )
    assert row["hinted"] is False and row["latency_s"] == 0.1


def test_the_traces_of_a_renamed_teacher_have_its_name_of_today(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    before = distill.traces(run)
    for part in (copy / "generate").glob("*/part-*.jsonl"):
        records = [orjson.loads(line) | {"teacher": "a-former-name"} for line in part.read_bytes().splitlines()]
        former = copy / "generate" / "a-former-name" / f"part-{len(list(copy.glob('generate/a-*/*'))):05}.jsonl"
        former.parent.mkdir(exist_ok=True)
        former.write_bytes(
            b"".join(orjson.dumps({k: v for k, v in each.items() if k != "crc"}) + b"\n" for each in records)
        )
    assert distill.traces(copy).to_pylist() == before.to_pylist()


def test_a_verb_leaves_the_recipe_with_which_commands_open_the_run(tmp_path: Path) -> None:
    samples, traces = small_world(tmp_path / "pictures", questions=1)
    generate_folder(tmp_path / "run", samples, traces)
    chosen = recipe(tmp_path)
    distill.filter(chosen, tmp_path / "run")
    assert distill.load(tmp_path / "run" / "recipe.toml").filter == chosen.filter
    assert "filter" in run_status(tmp_path / "run")


def test_of_a_run_on_its_way_the_traces_so_far_are_told_and_an_error_that_was_mended_is_none(tmp_path: Path) -> None:
    samples, traces = small_world(tmp_path / "pictures", questions=1)
    failed = replace(traces[0], outcome="error", answer="", finish_reason="error")
    folder = generate_folder(tmp_path / "run", samples, traces[:1])
    (folder / "plan.parquet").unlink()
    part = folder / "structured" / "part-00000.jsonl"
    part.write_bytes(b"".join(orjson.dumps(asdict(item)) + b"\n" for item in (failed, replace(failed, id="aa"))))
    told = {row["id"]: row["outcome"] for row in distill.traces(tmp_path / "run").to_pylist()}
    assert told == {traces[0].id: "complete", "aa": "error"}


@pytest.mark.parametrize("name", ["decisions.parquet", "signals/part-00000.parquet", "corpus/part-00000.parquet"])
def test_a_damaged_file_of_a_run_is_named_and_never_read_as_rows_that_are_not_there(
    run: Path, tmp_path: Path, name: str
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    file = copy / "filter" / name
    whole = file.read_bytes()
    file.write_bytes(b"\xff" * len(whole))
    with pytest.raises(DataError, match=f"1 damaged file, such as filter/{name}: .*`distill repair"):
        distill.signals(copy)
    file.write_bytes(whole[:100])
    with pytest.raises(DataError, match=rf"filter/{name}: it has 100 bytes(.|\n)*`distill repair"):
        distill.signals(copy)
    file.unlink()
    for read in (distill.signals, distill.dataset):
        with pytest.raises(DataError, match=f"filter/{name}: it is missing"):
            read(copy)


def test_an_error_in_a_run_without_damage_keeps_its_kind(run: Path) -> None:
    with pytest.raises(ValueError, match=r"^of its own$"), damage_named(run):
        raise ValueError("of its own")


def test_signals_stand_beside_what_became_of_the_trace(run: Path) -> None:
    table = distill.signals(run)
    assert table.num_rows == 24 and {"answer_verdict", "outcome", "language"} <= set(table.column_names)
    by_id = {row["id"]: row for row in table.to_pylist()}
    wrong = [row for row in by_id.values() if row["answer_verdict"] == "wrong"]
    assert wrong and all("wrong_answer" in row["rules"] and not row["kept"] for row in wrong)
    examples = distill.dataset(run)
    assert sorted(examples["trace_id"]) == sorted(key for key, row in by_id.items() if row["selected"])


def evaluated(run: Path, **verdicts: str) -> Path:
    """A run whose arms answered questions 0, 1, 2 ... right (r) or wrong (w); '-' was not asked."""
    lines = [
        {"arm": arm, "sample_id": f"q{number}", "verdict": {"r": "correct", "w": "wrong"}[verdict]}
        for arm, all_verdicts in verdicts.items()
        for number, verdict in enumerate(all_verdicts)
        if verdict != "-"
    ]
    (run / "eval").mkdir(parents=True)
    write_jsonl(run / "eval" / "predictions.jsonl", lines)
    Manifest(stage="eval", fingerprint="e", fields={}).write(run / "eval")
    return run


def test_students_of_a_run_are_paired_by_question(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "one", before="wwwwwwwwwr", after="rrrrrrrrrw")
    (row,) = distill.compare(run).to_pylist()
    assert (row["later"], row["earlier"], row["questions"]) == ("after", "before", 10)
    assert row["difference"] == pytest.approx(0.8) and row["accuracy_later"] == pytest.approx(0.9)
    assert row["low"] < 0.8 < row["high"] <= 1 and row["p"] == pytest.approx(22 / 1024)


def test_students_of_two_runs_are_compared_on_the_questions_of_both(tmp_path: Path) -> None:
    runs = [evaluated(tmp_path / "one", after="rrw-"), evaluated(tmp_path / "two", after="-rrr")]
    (row,) = distill.compare(*runs).to_pylist()
    assert (row["later"], row["earlier"], row["questions"]) == ("two:after", "one:after", 2)
    assert (row["accuracy_later"], row["accuracy_earlier"]) == (1.0, 0.5)


def test_two_runs_of_one_name_are_told_apart_and_one_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    runs = [
        evaluated(tmp_path / folder / "tiny", after=verdicts) for folder, verdicts in (("a", "rrww"), ("b", "wwww"))
    ]
    (row,) = distill.compare(*runs).to_pylist()
    assert (row["earlier"], row["later"]) == tuple(f"{run}:after" for run in runs)
    assert (row["accuracy_earlier"], row["accuracy_later"]) == (0.5, 0.0)
    with pytest.raises(DataError, match="given twice"):
        distill.compare(runs[0], tmp_path / "a" / "." / "tiny")


def test_what_is_not_there_is_named_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="run `distill generate` first"):
        distill.traces(tmp_path)
    for call, verb in ((distill.signals, "filter"), (distill.dataset, "filter"), (distill.compare, "eval")):
        with pytest.raises(StaleError, match=f"run `distill {verb}` first"):
            call(tmp_path)


@pytest.mark.parametrize("read", [distill.signals, distill.dataset, distill.compare, distill.traces])
def test_a_mistyped_path_is_no_unfinished_stage(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):  # a folder without a stage is another case
        with pytest.raises(DataError, match=f"{name}: (there is no such folder|no run directory)"):
            read(tmp_path / name)


def test_the_ten_public_names_are_functions_whatever_was_imported() -> None:
    import distill.data.reader
    import distill.trace_records.trace_lines

    assert len(distill.__all__) == 10
    assert set(distill.__all__) <= set(dir(distill))
    assert all(callable(getattr(distill, name)) for name in distill.__all__)


@pytest.mark.parametrize("content", ["[]", "null", "3", "{}", '{"warnings": 3}'])
def test_json_of_another_kind_than_was_written_is_a_damaged_file(run: Path, tmp_path: Path, content: str) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "filter" / "health.json").write_text(content)
    named = pytest.raises(DataError, match=r"1 damaged file, such as filter/health\.json: .*distill repair")
    with named, damage_named(copy):
        [str(text) for text in orjson.loads((copy / "filter" / "health.json").read_bytes())["warnings"]]
    (copy / "filter" / "health.json").write_bytes((run / "filter" / "health.json").read_bytes())
    with pytest.raises(KeyError), damage_named(copy):  # a fault of the code in a run without damage
        raise KeyError("x")
