"""What checks know: sources that were read in part, a run that was begun, names of the hub."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from huggingface_hub import constants
from PIL import Image

from distill.artifacts.manifest import Manifest, flatten
from distill.checks import context, filtering, hub, machine, settings, sources, student, teachers
from distill.checks.recipe_checks import RecipeCheck, check_recipe
from distill.checks.results import CheckResult
from distill.commands.whole_run import require_fit
from distill.errors import RecipeError, StaleError
from distill.recipe.loading import load
from filters import apply

TEACHER = {"name": "structured", "backend": "embedded", "model": "teacher"}
STAGES = ("train/align", "train/reason")


@pytest.fixture(autouse=True)
def _without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreached(self: hub.HubNames, *_: object) -> None:
        self._no_network = "no network"

    monkeypatch.setattr(hub.HubNames, "_asked", unreached)


def write(folder: Path, rows: dict[str, list[dict[str, Any]]], **values: Any) -> Path:
    """A recipe about questions without images, and its sources."""
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    data = {name: {"source": f"{name}.jsonl", "columns": {"image": ""}} for name in rows}
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps({"data": data, "teachers": [TEACHER], **values}))
    return path


def results(path: Path, *checks: RecipeCheck, state: str = "problem", seconds: float = 45.0) -> list[CheckResult]:
    named = [("checked", check) for check in checks]
    report = check_recipe(load(path), path.parent / "run", checks=named, seconds=seconds)
    return [result for result in report.results if result.state == state]


def finish(run: Path, *stages: str) -> None:
    for stage in stages:
        (run / stage).mkdir(parents=True)
        (run / stage / "manifest.json").write_text("{}")


def questions(count: int) -> list[dict[str, Any]]:
    return [{"question": f"Number {number}?", "domain": "scenes"} for number in range(count)]


STUDENT = {"model": "owner/elsewhere"}
ALIGN = {"name": "align", "data": "captions", "train": ["projector"], "max_steps": 1}
REASON = {"name": "reason", "data": "traces", "train": ["language"], "max_steps": 1}


def test_what_a_part_of_a_source_lacks_is_a_warning_that_says_how_much_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "_LEAST_SECONDS", 0.0)
    last = {"question": "The last?", "domain": "charts", "answer": "1", "meta": {"caption": "Red."}}
    rows = [*questions(40), last]
    cued = {**TEACHER, "prompt": "{question} {cues}", "cues": "caption"}
    path = write(
        tmp_path,
        {"questions": rows, "captions": rows},
        teachers=[cued, {**TEACHER, "name": "charts", "domains": ["charts"]}],
        student=STUDENT,
        stages=[ALIGN],
    )
    checks = (sources.check_coverage, sources.check_cues, sources.check_golds, sources.check_stage_rows)
    assert results(path, *checks, seconds=0.0) == []
    warned = {each.key: each.message for each in results(path, *checks, state="warning", seconds=0.0)}
    assert warned.keys() >= {"teachers.charts.domains", "teachers.structured.cues", "data.captions.columns.answer"}
    assert "rows after the first " in warned["stages.align.train"]


def test_gold_answers_of_another_type_than_stated_are_a_warning_before_they_are_judged(tmp_path: Path) -> None:
    rows = [{"question": f"Number {n}?", "answer": str(n + 100), "answer_type": "date"} for n in range(30)]
    path = write(tmp_path, {"questions": rows}, teachers=[TEACHER])
    (warned,) = results(path, sources.check_gold_faults, state="warning")
    assert (
        warned.key == "data.questions.answer_type"
        and "30 of 30 gold answers of the type 'date' (100 %)" in warned.message
    )
    some = [{**row, "answer_type": "date" if n < 15 else "number"} for n, row in enumerate(rows)]
    path = write(tmp_path, {"questions": some}, teachers=[TEACHER])
    assert not results(path, sources.check_gold_faults, state="warning")  # 15 are too few to tell


def test_questions_that_name_their_answers_are_a_warning(tmp_path: Path) -> None:
    rows = [{"question": f"What is it? It is {n}.", "answer": str(n)} for n in range(30)]
    path = write(tmp_path, {"questions": rows}, teachers=[TEACHER])
    (warned,) = results(path, sources.check_gold_faults, state="warning")
    assert warned.key == "data.questions.columns.question" and "contain their gold answer" in warned.message


def test_a_column_with_two_roles_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, {"questions": questions(30)}, teachers=[TEACHER])
    path.write_text(path.read_text().replace('image = ""', 'image = ""\nquestion = "domain"'))
    warned, *_ = results(path, sources.source_check("questions"), state="warning")
    assert warned.key == "data.questions.columns" and "'domain' has two roles" in warned.message


def test_images_of_one_colour_are_a_warning(tmp_path: Path) -> None:
    rows = [{"question": f"Number {n}?", "image": f"{n}.png"} for n in range(40)]
    path = write(tmp_path, {"questions": rows}, teachers=[TEACHER])
    path.write_text(path.read_text().replace('image = ""', 'image = "image"'))
    for n in range(40):
        shade = np.random.default_rng(n).integers(205, 208, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(shade).save(tmp_path / f"{n}.png")
    (warned,) = results(path, sources.check_images_show_something, state="warning")
    assert "40 of 40 images are of one colour" in warned.message
    for n in range(20):
        Image.effect_noise((9, 9), 90).save(tmp_path / f"{n}.png")
    assert not results(path, sources.check_images_show_something, state="warning")


def test_an_evaluation_of_few_questions_is_a_warning(tmp_path: Path) -> None:
    learn = {"name": "reason", "data": "traces", "train": ["language"], "max_steps": 1}
    parts: dict[str, Any] = {"teachers": [TEACHER], "student": STUDENT, "stages": [learn], "eval": {"data": "test"}}
    tested = [{**row, "answer": "1"} for row in questions(100)]
    path = write(tmp_path, {"questions": questions(30), "test": tested[:40]}, **parts)
    (warned,) = results(path, sources.check_tested_rows, state="warning")
    assert warned.key == "data.test" and "40 questions" in warned.message and "interval [35, 65]" in warned.message
    path = write(tmp_path, {"questions": questions(30), "test": tested}, **parts)
    assert not results(path, sources.check_tested_rows, state="warning")


def test_a_domain_of_the_evaluation_that_no_stage_learns_is_a_warning(tmp_path: Path) -> None:
    charts = [{"question": f"Bar {n}?", "domain": "charts", "answer": "1"} for n in range(25)]
    learn = {"name": "reason", "data": "traces", "train": ["language"], "max_steps": 1}
    parts: dict[str, Any] = {"teachers": [TEACHER], "student": STUDENT, "stages": [learn], "eval": {"data": "test"}}
    path = write(tmp_path, {"questions": questions(30), "test": [*charts, *questions(30)]}, **parts)
    (warned,) = results(path, sources.check_domains, state="warning")
    assert "25 of 55 rows are of the domain 'charts'" in warned.message
    path = write(tmp_path, {"questions": [*charts, *questions(30)], "test": charts}, **parts)
    assert not results(path, sources.check_domains, state="warning")


def test_an_evaluation_in_another_language_is_a_warning(tmp_path: Path) -> None:
    english = [{"question": f"How many red circles are there in picture {n}?", "answer": "1"} for n in range(20)]
    german = [{"question": f"Wie viele rote Kreise gibt es auf dem Bild {n}?", "answer": "1"} for n in range(20)]
    learn = {"name": "reason", "data": "traces", "train": ["language"], "max_steps": 1}
    for test, count in ((german, 1), (english[:9], 0)):
        sources_of = {"questions": english, "test": test}
        path = write(tmp_path, sources_of, student=STUDENT, stages=[learn], eval={"data": "test"})
        assert len(results(path, sources.check_languages, state="warning")) == count


def test_a_stage_of_little_else_than_replayed_rows_is_a_warning(tmp_path: Path) -> None:
    stage = {**REASON, "replay": {"captions": 0.9}}
    rows = [{"question": "What?", "answer": "1"}] * 2
    path = write(tmp_path, {"questions": rows, "captions": rows}, student=STUDENT, stages=[stage])
    warned = {each.key: each for each in results(path, settings.check_usual_values, state="warning")}
    assert "0.9" in warned["stages.reason.replay"].message
    assert warned["stages.reason.replay"].mend.startswith("keep the value if you chose it on purpose; the key sets: ")


def test_questions_in_another_spelling_are_a_warning_before_they_are_paid_twice(tmp_path: Path) -> None:
    rows = [{"question": spelt} for n in range(10) for spelt in (f"What is {n}?", f"WHAT IS  {n}")]
    path = write(tmp_path, {"questions": rows}, teachers=[TEACHER])
    (warned,) = results(path, sources.source_check("questions"), state="warning")
    assert warned.message.startswith("10 of 20 questions repeat an earlier one about the same images")


def test_cues_of_the_last_rows_count(tmp_path: Path) -> None:
    rows = [*questions(600), {"question": "The last?", "meta": {"caption": "Red."}}]
    cued = {**TEACHER, "prompt": "{question} {cues}", "cues": "caption"}
    path = write(tmp_path, {"questions": rows}, teachers=[cued])
    assert results(path, sources.check_cues) == []
    (warned,) = results(path, sources.check_cues, state="warning")
    assert "600 of 601 rows have none" in warned.message


def test_a_name_of_the_hub_that_two_keys_have_is_mended_at_each(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    path = write(
        tmp_path,
        {"questions": questions(2)},
        teachers=[{**TEACHER, "model": "none/there"}],
        student={"vision": "none/there", "language": "none/there", "pixel_shuffle": 2},
    )
    found = results(path, teachers.check_what_teachers_need, student.check_checkpoints)
    assert [each.key for each in found] == ["teachers.structured.model", "student.vision", "student.language"]
    assert all(each.mend.startswith(f"correct {each.key}:") for each in found)


def test_offline_is_what_the_client_of_the_hub_takes_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"questions": questions(2)}, student=STUDENT)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert results(path, student.check_checkpoints) == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (found,) = results(path, student.check_checkpoints)
    assert "HF_HUB_OFFLINE" in found.message


def test_a_run_behind_a_link_that_leads_nowhere_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path, {"questions": questions(2)})
    (tmp_path / "run").symlink_to("nowhere")
    (found,) = results(path, machine.check_run_directory, machine.check_disk)
    assert "a link that leads to no folder" in found.message


def test_a_resumed_run_needs_room_for_what_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"questions": questions(2)}, student=STUDENT, stages=[REASON])
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: usage._replace(free=1000))
    monkeypatch.setattr(machine, "_unseen", lambda count: pytest.fail("its traces are there"))
    finish(tmp_path / "run", "filter", "train/reason")
    _generated(tmp_path / "run", 2, limit=0)
    (found,) = results(path, machine.check_disk, state="ok")
    assert found.message.startswith("about 0 MB for students and checkpoints, about 0 MB for images")


def _generated(run: Path, samples: int, *, limit: int) -> None:
    Manifest(
        **{"stage": "generate", "fingerprint": "", "fields": {}, "outputs": {}},
        **{"inputs": {"limit": str(limit)}, "counts": {"samples": samples}},
    ).write(run / "generate")


def test_questions_that_a_limit_left_out_need_room_for_their_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, {"questions": questions(200)}, student=STUDENT, stages=[REASON])
    monkeypatch.setattr(machine, "byte_size", lambda size: f"{size:.0f} bytes")

    def room() -> int:
        (found,) = results(path, machine.check_disk, state="ok")
        return int(found.message.partition("at most ")[2].split()[0])

    everything = room()
    _generated(tmp_path / "run", 50, limit=50)
    assert room() == round(everything * 0.75) > 0
    _generated(tmp_path / "run", 200, limit=0)
    assert room() == 0


def test_teachers_that_are_asked_in_rounds_are_looked_at_after_generate(tmp_path: Path) -> None:
    (tmp_path / "teacher").mkdir()
    finish(tmp_path / "run", "generate")
    path = write(tmp_path, {"questions": questions(2)}, student=STUDENT, stages=[REASON])
    assert results(path, teachers.check_what_teachers_need) == []
    path = write(tmp_path, {"questions": questions(2)}, student=STUDENT, stages=[REASON], rounds={"count": 1})
    (found,) = results(path, teachers.check_what_teachers_need)
    assert "config.json" in found.message


def test_with_stale_stages_made_again_their_sources_are_looked_at(tmp_path: Path) -> None:
    rows = {name: questions(2) for name in ("questions", "captions")}
    path = write(tmp_path, rows, student=STUDENT, stages=[ALIGN, REASON])
    finish(tmp_path / "run", "generate", "filter", *STAGES, "eval")
    (tmp_path / "captions.jsonl").unlink()
    require_fit(load(path), tmp_path / "run")
    with pytest.raises(RecipeError, match=r"data\.captions"):
        require_fit(load(path), tmp_path / "run", redo_stale=True)


def test_a_filter_of_another_policy_is_stale(tmp_path: Path) -> None:
    path = write(tmp_path, {"questions": questions(2)})
    run, fields = tmp_path / "run", flatten(apply._policy(load(path)))
    (run / "filter").mkdir(parents=True)
    Manifest(stage="filter", fingerprint="", fields={**fields, "extractors.x.version": 1}).write(run / "filter")
    apply.require_same_policy(load(path), run)
    with pytest.raises(StaleError, match=r"filter\.select\.per_question: None -> 1"):
        apply.require_same_policy(load(path, {"filter.select.per_question": "1"}), run)


def test_rules_about_tables_are_doubted_for_the_questions_that_were_looked_at(tmp_path: Path) -> None:
    rule = {"name": "misread", "drop": "unsupported_values > 0"}
    path = write(tmp_path, {"questions": questions(600)}, filter={"signals": ["grounding"], "rules": [rule]})
    (found, *_) = [
        each for each in results(path, filtering.check_rules, state="warning") if each.key == "filter.rules.misread"
    ]
    assert "none of the first 512 questions" in found.message
