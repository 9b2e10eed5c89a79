"""What the summary of a run says of its stages."""

from pathlib import Path

import pytest

from distill.artifacts.files import write_json
from distill.artifacts.journal import write_jsonl
from distill.artifacts.layout import METRICS, PROGRESS, RECIPE
from distill.artifacts.manifest import Manifest
from distill.commands.stages import copy_shipped
from distill.commands.status import (
    ablation,
    evaluation,
    funnel,
    log_state,
    read_progress,
    run_status,
    running,
    training,
)
from distill.errors import RecipeError, StaleError
from distill.recipe.loading import load
from distill.view.student_facts import Students
from student.evaluation.students import evaluated_students


def test_the_summary_of_training_ends_in_what_each_stage_says_of_itself(tmp_path: Path) -> None:
    counts = {"rows": 30, "held_out": 6}
    Manifest(stage="train align", fingerprint="f", fields={}, counts=counts).write(tmp_path / "train" / "align")
    assert "diagnosis" not in training(tmp_path)
    said = [{"name": "few_steps", "kind": "fault", "text": "The stage makes 4 steps (certain). Change max_steps."}]
    write_json(tmp_path / "train" / "align" / "diagnosis.json", {"diagnosis": said})
    last = training(tmp_path).splitlines()[-1]
    assert last == "diagnosis of train align: The stage makes 4 steps (certain). Change max_steps."


def test_the_funnel_names_a_rule_as_the_recipe_does(tmp_path: Path) -> None:
    counts = {"selected": 3, "not_selected": 4, "rule.exact_duplicate": 2}
    Manifest(stage="filter", fingerprint="f", fields={}, counts=counts).write(tmp_path / "filter")
    shown = funnel(tmp_path)
    assert "filter: rule.exact_duplicate" in shown and "filter: not selected" in shown


def test_a_damaged_file_of_another_stage_does_not_end_a_finished_one(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "metrics.json").touch()
    log_state(tmp_path, "filter")


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b"null", b'{"line": "generate"}'])
def test_a_damaged_note_of_progress_is_no_progress(tmp_path: Path, note: bytes) -> None:
    (tmp_path / PROGRESS).write_bytes(note)
    assert read_progress(tmp_path) is None and running(tmp_path) == ""


def test_a_note_of_progress_has_its_age(tmp_path: Path) -> None:
    (tmp_path / PROGRESS).write_bytes(b'{"line": "generate: 1/2", "pid": 7}')
    assert running(tmp_path) == "generate: 1/2 (0 s ago, process 7)"


def test_a_next_step_names_the_run_that_was_looked_at(tmp_path: Path) -> None:
    recipe = load("tiny")
    with pytest.raises(StaleError, match=f"`distill train .*tiny.toml --run '{tmp_path}/a run'` first"):
        evaluated_students(recipe, tmp_path / "a run")


def test_a_shipped_recipe_is_not_copied_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "new.toml"):
        with pytest.raises(RecipeError, match="file is a file; nothing was copied"):
            copy_shipped("tiny", place)


def test_seconds_are_those_of_the_last_command_only_where_it_is_said(tmp_path: Path) -> None:
    for stage in ("generate", "filter", "train", "eval"):
        Manifest(stage=stage, fingerprint="f", fields={}, seconds=27).write(tmp_path / stage)
    Manifest(stage="train align", fingerprint="f", fields={}, seconds=27).write(tmp_path / "train" / "align")
    (tmp_path / "recipe.toml").touch()
    lines = run_status(tmp_path).splitlines()
    seconds = {line.split()[0]: "last command" in line for line in lines if "27 s" in line}
    assert seconds == {"generate": True, "filter": True, "train": False, "eval": False, "align": False}
    assert "last command took" not in "".join(lines)


def test_the_step_of_a_student_that_is_not_the_last_one_is_named(tmp_path: Path) -> None:
    counts = {"steps": 60, "kept_step": 40}
    Manifest(stage="train align", fingerprint="f", fields={}, counts=counts).write(tmp_path / "train" / "align")
    assert "60, kept 40" in training(tmp_path)


def test_a_share_of_one_reply_is_not_shown_as_one_of_all(tmp_path: Path) -> None:
    arm = {"n": 90, "accuracy": 0.0, "ci95": [0.0, 0.04], "domains": {}, "hallucination_rate": 1.0}
    arms = {"untouched": arm | {"hallucination_rate_n": 60}, "reason": arm | {"hallucination_rate_n": 1}}
    write_json(tmp_path / "eval" / "metrics.json", {"arms": arms, "deltas": {}})
    assert "note: hallucinated % is a share of few replies: 1 of reason" in evaluation(tmp_path).splitlines()


def test_rows_without_a_domain_have_a_name_in_the_table(tmp_path: Path) -> None:
    domains = {"": {"accuracy": 0.5}, "charts": {"accuracy": 0.25}}
    arm = {"n": 90, "accuracy": 0.0, "ci95": [0.0, 0.04], "domains": domains}
    write_json(tmp_path / "eval" / "metrics.json", {"arms": {"reason": arm}, "deltas": {}})
    head = next(line for line in evaluation(tmp_path).splitlines() if line.startswith("accuracy %"))
    assert head.split() == ["accuracy", "%", "(none)", "charts"]


def test_stages_are_told_in_the_order_of_the_recipe_also_of_a_copied_run(tmp_path: Path) -> None:
    names = ("reason", "own", "prefer")
    (tmp_path / RECIPE).write_text("".join(f'[[stages]]\nname = "{name}"\n' for name in names), encoding="utf-8")
    for name in (*reversed(names), "former"):  # a copy has other times, and seconds are too coarse for short stages
        Manifest(stage=f"train {name}", fingerprint="f", fields={}).write(tmp_path / "train" / name)
        said = [{"name": "learned", "kind": "good", "text": "It learned."}]
        write_json(tmp_path / "train" / name / "diagnosis.json", {"diagnosis": said})
        write_jsonl(tmp_path / "train" / name / METRICS, [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}])
    lines = training(tmp_path).splitlines()
    told = [line.split()[3].strip(":") for line in lines if line.startswith("diagnosis")]
    curves = [curve["title"].partition(":")[0] for curve in Students(tmp_path).overview()["curves"]]
    rows = [line.split()[0] for line in lines[2:6]]
    assert told == curves == rows == [*names, "former"]


def test_why_arms_are_left_out_is_a_line_for_each_of_them(tmp_path: Path) -> None:
    arm = {"accuracy": 0.5, "ci95": [0.4, 0.6], "cost": {"train_tokens": 1, "train_seconds": 1}}
    arms = {"distilled": arm | {"seeds": {"0": {}}, "effect": None}}
    skipped = {"logprobs": "none stored", "rounds_1": "no time is left to train; " * 9}
    write_json(tmp_path / "results.json", {"reference": "distilled", "arms": arms, "studies": {}, "skipped": skipped})
    assert ablation(tmp_path).splitlines()[-2:] == [f"left out: {name}: {why}" for name, why in skipped.items()]


def test_differences_over_fewer_seeds_than_the_accuracies_are_told(tmp_path: Path) -> None:
    arm = {"accuracy": 0.5, "ci95": [0.4, 0.6], "cost": {"train_tokens": 1, "train_seconds": 1}}
    effect = {"delta": 0.1, "ci95": [0.0, 0.2]}
    for seeds, told in ((["0", "1"], 0), (["0"], 1)):
        arms = {
            "distilled": arm | {"seeds": {"0": {}, "1": {}}, "effect": None},
            "random": arm | {"seeds": {key: {} for key in seeds}, "effect": effect},
        }
        results = {"reference": "distilled", "arms": arms, "studies": {}, "skipped": {}}
        write_json(tmp_path / "results.json", results)
        assert ablation(tmp_path).count("is over the seeds that both have") == told
