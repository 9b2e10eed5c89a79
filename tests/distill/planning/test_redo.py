"""`distill plan --diff`: what is done again when a run goes on with another recipe."""

import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from PIL import Image
from typer.testing import CliRunner
from worlds.source_rows import note_read_images

from distill.artifacts.files import directory_sha256, write_json
from distill.artifacts.integrity import dataset_digest, weights_digest
from distill.artifacts.json_lines import seal
from distill.artifacts.layout import QUARANTINE, SAMPLES
from distill.artifacts.manifest import Manifest, Output, flatten
from distill.cli import app
from distill.data import reader
from distill.data.sample_files import write_samples
from distill.planning.outdated import outdated
from distill.planning.redo import compare_recipes
from distill.planning.redo_text import redo_text
from distill.recipe.effects import affecting
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from student.train import student_fields
from teacher.engines.vllm.vllm_options import server_files
from teacher.store.question_plan import source_digest

RECIPE = """
seed = 1
[data.questions]
source = "questions.jsonl"
[data.captions]
source = "captions.jsonl"
[data.test]
source = "test.jsonl"
[[teachers]]
name = "small"
model = "owner/small"
samples = 4
[[teachers]]
name = "large"
model = "owner/large"
[student]
model = "owner/student"
[[stages]]
name = "align"
data = "captions"
train = ["projector"]
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
[[stages]]
name = "polish"
data = "captions"
train = ["language"]
[eval]
data = "test"
arms = { distilled = "reason" }
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "mine.toml"
    path.parent.mkdir()
    path.write_text(RECIPE)
    return path


@pytest.fixture
def run(tmp_path: Path, recipe: Path) -> Path:
    """A run of 10,000 samples, of which there are the manifests alone."""
    folder = tmp_path / "work" / "run"
    parts = {
        f"{name}/part-00000.jsonl": Output(sha256="", bytes=1, count=count + 77) for name, count in TRACES.items()
    }
    # Journals keep traces that an earlier prompt left; the counts are those of the last one.
    traces = {f"{name}.complete": count for name, count in TRACES.items()}
    note("generate", folder, outputs=parts, counts={"samples": 10_000, "traces": 50_000, **traces})
    note("filter", folder, counts={"input": 50_000})
    for stage in ("align", "reason", "polish"):
        note("train", folder, stage, counts={"steps": 120}, tokens={"trained": 3_000}, seconds=900.0)
    note("eval", folder, counts={"predictions": 600}, seconds=60.0)
    (folder / "recipe.toml").write_text(load(recipe).to_toml())
    return folder


TRACES = {"small": 40_000, "large": 10_000}


def note(stage: str, run: Path, *below: str, **values: Any) -> None:
    Manifest(**{"stage": stage, "fingerprint": "", "fields": {}, **values}).write(run.joinpath(stage, *below))


def changed(recipe: Path, **values: str) -> Recipe:
    return load(recipe, {key.replace("__", "."): value for key, value in values.items()})


def stages(text: str) -> dict[str, str]:
    """What the table says becomes of each stage."""
    block = next(block for block in text.split("\n\n") if block.startswith("stage "))
    rows = [line.split("  ") for line in block.splitlines()[2:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    return {cell[0]: cell[2] for cell in cells}


def test_the_copy_of_a_recipe_in_its_run_differs_in_nothing(recipe: Path, run: Path) -> None:
    assert "no key differs" in redo_text(load(run / "recipe.toml"), load(recipe), run)


def test_a_server_whose_script_changed_since_the_traces_were_made_is_named(tmp_path: Path) -> None:
    script = tmp_path / "mine" / "teacher.py"
    script.parent.mkdir()
    script.write_text("1")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[teachers]]\nname = "solver"\nmodel = "solver"\nserver.command = ["mine/teacher.py"]\n')
    run, now = tmp_path / "run", load(recipe)
    traces = run / "generate" / "solver"
    traces.mkdir(parents=True)
    (traces / "part-00000.jsonl").write_text("{}\n")
    digests = server_files(now.teachers[0].server, tmp_path)
    write_json(
        traces / "engine.json", {"a": {"command": ["python", str(script)], "environment": {}, "files": digests}}
    )
    assert "warning" not in redo_text(now, now, run)
    script.write_text("2")
    assert "warning: its script of teachers.solver.server has other content than when" in redo_text(now, now, run)


def test_stages_that_were_made_from_earlier_traces_or_an_earlier_dataset_are_named(recipe: Path, run: Path) -> None:
    now = load(recipe)
    assert "every finished stage stays as it is" in redo_text(now, now, run)
    fields = {"generate.outputs": "an earlier digest"}
    filtered = Manifest(stage="filter", fingerprint="now", fields=fields, counts={"input": 50_000})
    filtered.write(run / "filter")
    now_learned = dataset_digest(filtered)
    for stage, dataset in (("align", now_learned), ("reason", "before"), ("polish", now_learned)):
        note("train", run, stage, fields={"data.traces": dataset}, counts={"steps": 120})
    text = redo_text(now, now, run)
    assert "stays as it is" not in text
    assert "filter is outdated: the traces changed" in text
    assert [stage for stage in ("align", "reason", "polish") if f"train {stage} is outdated" in text] == ["reason"]


def test_stages_of_another_version_are_named_where_no_key_differs(recipe: Path, run: Path) -> None:
    now = load(recipe)
    note("generate", run, fields={"parser": 0})
    note("filter", run, fields={"extractors.answer.version": "0"}, counts={"input": 50_000})
    stage = flatten(affecting(now.stages[0], "train"), "stage")
    note("train", run, "align", fields=stage, counts={"steps": 120})
    note("train", run, "reason", fields={"stage.gone": 1}, counts={"steps": 120})
    text = redo_text(now, now, run)
    assert (
        "no key differs\n\nwarning: " in text
        and "warning: generate is stale (`distill generate --fresh`" in text
        and "stays as it is" not in text
    )
    assert "another version measured answer" in text
    assert "train reason is outdated: the recipe in the run has another stage" in text and "stage.gone" in text
    assert "align" not in text


def test_stages_with_other_settings_than_the_recipe_of_a_later_command_are_named(recipe: Path, run: Path) -> None:
    """An evaluation with a changed recipe asks the student that is there, however it was trained."""
    now = load(recipe)
    note("filter", run, fields=flatten({"filter": affecting(now.filter, "filter")}))
    for each in now.stages:
        settings = flatten({"stage": affecting(each, "train"), "stage.validation": {"hold_out": 3}})
        note("train", run, each.name, fields=settings)
    shutil.copy(recipe, run / "recipe.toml")
    assert outdated(run) == {}
    longer = RECIPE.replace('name = "reason"', 'name = "reason"\nmax_steps = 7')
    (run / "recipe.toml").write_text(f'{RECIPE}\n[filter]\nsignals = ["answer", "human", "length"]\n')
    assert "another filter.signals now" in outdated(run)["filter"]
    (run / "recipe.toml").write_text(f"{longer}\n[filter.select]\nper_question = 2\n")
    assert list(outdated(run)) == ["filter", "train reason"]
    assert "another filter.select.per_question now" in outdated(run)["filter"]
    assert "another stage.max_steps now" in outdated(run)["train reason"]
    assert "`distill train --stage reason --fresh`" in outdated(run)["train reason"]
    (run / "recipe.toml").write_text("of = 'another version'")
    assert outdated(run) == {}


def test_an_evaluation_of_a_student_that_was_trained_again_is_outdated(tmp_path: Path) -> None:
    weights = {"model/model.safetensors": Output(sha256="ab", bytes=1)}
    trained = Manifest(stage="train", fingerprint="one", fields={}, outputs=weights)
    trained.write(tmp_path / "train" / "reason")
    fields = {"eval.arms.mine": "reason", "students.mine": "one", "weights.mine": weights_digest(trained)}
    Manifest(stage="eval", fingerprint="e", fields=fields).write(tmp_path / "eval")
    assert outdated(tmp_path) == {}
    replace(trained, outputs={"model/model.safetensors": Output(sha256="cd", bytes=1)}).write(
        tmp_path / "train" / "reason"
    )
    assert "earlier student of reason" in outdated(tmp_path)["eval"]


def test_a_sampling_value_asks_one_teacher_again_and_all_that_follows_but_not_the_stages_before(
    recipe: Path, run: Path
) -> None:
    now = changed(recipe, teachers__small__sampling__temperature="0.1")
    text = redo_text(load(recipe), now, run)
    assert "asks 40,000 traces of small again; keeps 10,000 traces of the other teachers" in text
    assert stages(text) == {
        "generate": "runs again",
        "filter": "runs again",
        "train align": "stays",
        "train reason": "may run again",
        "train polish": "may run again",
        "eval": "may run again",
    }
    assert "if the dataset changes: 120 steps" in text
    assert f"distill run {recipe} --run {run} --redo-stale" in text and "distill train" not in text
    other = redo_text(load(recipe), changed(recipe, stages__align__max_steps="9"), run)
    assert [then for name, then in stages(other).items() if name.startswith("train")] == ["runs again"] * 3
    assert f"distill train {recipe} --run {run} --stage align --fresh" in other
    assert "--stage polish" not in other


def test_an_edited_prompt_of_own_code_asks_only_where_its_text_differs(recipe: Path, run: Path) -> None:
    now = changed(recipe, teachers__small__prompt="mine.py:ask")
    text = redo_text(load(recipe), now, run)
    assert "asks those of 40,000 traces of small again whose prompt differs; keeps 10,000 traces" in text


def test_an_edited_file_of_own_code_is_a_change_and_a_moved_one_is_none(tmp_path: Path, recipe: Path) -> None:
    """Each stage notes the digest of the file."""
    recipe.write_text(
        recipe.read_text().replace("[eval]", '[eval]\nmetrics = ["mine.py:own_short"]')
        + '[filter]\nsignals = ["answer", "mine.py:Hedging"]\n'
    )
    code = recipe.parent / "mine.py"
    code.write_text("first = 1\n")
    run, noted = recipe.parent / "run", f"sha256:{sha256(code.read_bytes()).hexdigest()}"
    note("generate", run)
    note("filter", run, fields={"extractors.hedging.code": noted})
    note("eval", run, fields={"metrics.own_short": noted})
    (run / "recipe.toml").write_text(load(recipe).to_toml())
    before = load(run / "recipe.toml")
    assert "no key differs" in redo_text(before, load(recipe), run)
    more = compare_recipes(before, changed(recipe, filter__signals='["answer", "length", "mine.py:Hedging"]'), run)
    assert more.parts("signals") == ["length"]
    code.write_text("first = 2\n")
    redo = compare_recipes(before, load(recipe), run)
    assert {change.path for change in redo.changes} == {"filter.signals", "eval.metrics"}
    assert {"filter", "eval"} <= {*redo.causes}
    assert "the file, edited or deleted" in redo_text(before, load(recipe), run)
    moved = tmp_path / "moved"
    recipe.parent.rename(moved)
    (moved / "mine.py").write_text("first = 1\n")
    redo = compare_recipes(load(moved / "run/recipe.toml"), load(moved / recipe.name), moved / "run")
    assert not redo.causes and all(change.moved for change in redo.changes)


def test_a_rule_decides_again_and_asks_and_measures_nothing(recipe: Path, run: Path) -> None:
    redo = compare_recipes(load(recipe), changed(recipe, filter__select__per_question="1"))
    assert not redo.parts("traces") and not redo.parts("signals")
    text = redo_text(load(recipe), changed(recipe, filter__select__per_question="1"), run)
    assert stages(text)["generate"] == "stays"
    assert "decides 50,000 traces again" in text and "measures" not in text


def test_a_parameter_of_a_signal_measures_that_signal_where_it_is_measured(recipe: Path, run: Path) -> None:
    before = load(recipe)
    assert compare_recipes(before, changed(recipe, filter__repetition__ngram="5")).parts("signals") == ["repetition"]
    text = redo_text(before, changed(recipe, filter__repetition__ngram="5"), run)
    assert "measures repetition of 50,000 traces again" in text
    unused = changed(recipe, filter__judge__max_tokens="9")
    assert compare_recipes(before, unused).parts("signals") == []


def test_a_stage_that_is_finished_before_the_changed_one_stays(recipe: Path, run: Path) -> None:
    text = redo_text(load(recipe), changed(recipe, stages__polish__epochs="2.0"), run)
    assert [name for name, then in stages(text).items() if then == "runs again"] == ["train polish", "eval"]
    assert "120 steps, 3,000 tokens, 15 min last time" in text


def test_a_key_without_effect_says_why(recipe: Path, run: Path) -> None:
    text = redo_text(load(recipe), changed(recipe, teachers__small__timeout_s="5.0"), run)
    assert "nothing: it changes only how long the run waits" in text
    assert set(stages(text).values()) == {"stays"}


def test_a_renamed_teacher_asks_nothing_again(recipe: Path) -> None:
    redo = compare_recipes(load(recipe), changed(recipe, teachers__small__name='"tiny"'))
    assert [change.path for change in redo.changes] == ["teachers.tiny.name"]
    assert redo.parts("traces") == []


def test_a_teacher_is_renamed_also_for_the_copy_of_a_recipe_in_its_run(recipe: Path, run: Path) -> None:
    before, now = load(run / "recipe.toml"), changed(recipe, teachers__small__name='"tiny"')
    redo = compare_recipes(before, now)
    assert [change.path for change in redo.changes] == ["teachers.tiny.name"]
    assert "keeps 50,000 traces\n" in redo_text(before, now, run)


def test_judging_differently_asks_no_student(recipe: Path, run: Path) -> None:
    now = changed(recipe, filter__grounding__table='"rows"', filter__signals='["answer"]')
    before = changed(recipe, filter__signals='["answer"]', eval__arms="{ start = 'base' }", stages="[]")
    alone = now.model_copy(update={"stages": (), "eval": before.eval})
    assert "judges 600 replies again, asks none" in redo_text(before, alone, run)
    said = redo_text(load(recipe), changed(recipe, eval__metrics='["mine.py:own_short"]'), run)
    assert "measures 600 replies again, asks none" in said and "distill eval" in said and "--fresh" not in said


def test_an_unfinished_stage_runs_in_any_case(recipe: Path, tmp_path: Path) -> None:
    text = redo_text(load(recipe), changed(recipe, seed="2"), tmp_path / "nothing")
    assert set(stages(text).values()) == {"runs"}
    assert "--fresh" not in text


def test_the_command_takes_a_run_directory_or_a_recipe_and_set_values(recipe: Path, run: Path) -> None:
    said = CliRunner().invoke(app, ["plan", "--diff", str(run), "--set", "stages.polish.epochs=2.0"])
    assert said.exit_code == 0, said.output
    assert (
        f"distill train {run / 'recipe.toml'} --run {run} --set stages.polish.epochs=2.0 --stage polish"
        in said.output
    )
    other = recipe.with_name("other.toml")
    other.write_text(RECIPE.replace("seed = 1", "seed = 2"))
    said = CliRunner().invoke(app, ["plan", str(other), "--diff", str(recipe), "--run", str(run)])
    assert said.exit_code == 0, said.output
    assert stages(said.output)["train align"] == "runs again"
    assert CliRunner().invoke(app, ["plan"]).exit_code == 2


READS = """
import sys
from distill.cli import app
try:
    app(sys.argv[1:])
except SystemExit:
    pass
opened = {"torch", "transformers", "datasets", "pyarrow", "duckdb", "numpy", "PIL"} & sys.modules.keys()
print(sorted(opened))
"""


def test_comparing_loads_nothing_that_reads_data_or_models(recipe: Path, run: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", READS, "plan", str(recipe), "--diff", str(run), "--set", "seed=2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "stage" in said.stdout
    assert said.stdout.splitlines()[-1] == "[]"


def test_an_option_of_a_server_is_the_same_wherever_the_recipe_says_it(recipe: Path) -> None:
    server = RECIPE.replace('"owner/small"\n', '"owner/small"\nserver = { SERVER }\n')

    def with_server(text: str) -> Recipe:
        recipe.write_text(server.replace("SERVER", f'command = ["no-vllm", "serve"], {text}'))
        return load(recipe)

    listed = with_server("arguments = { mm-processor-kwargs = { num_crops = 4 } }")
    spelled = with_server("""extra = ["--mm-processor-kwargs", '{"num_crops":4}']""")
    other = with_server("arguments = { mm-processor-kwargs = { num_crops = 5 } }")
    assert not compare_recipes(listed, spelled).causes
    assert "engine:small" in compare_recipes(listed, other).causes


def test_models_and_data_that_only_moved_make_nothing_stale_even_where_the_old_place_is_gone(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "old" / "small").mkdir(parents=True)
    (base / "old" / "small" / "config.json").write_text("{}")
    (base / "old" / "rows.jsonl").write_text('{"question": "How many?", "answer": "4"}\n')
    text = RECIPE.replace("owner/small", "old/small").replace("owner/student", "old/small")
    (base / "mine.toml").write_text(text.replace('"questions.jsonl"', '"old/rows.jsonl"'))
    before = load(base / "mine.toml")
    run = base / "run"
    student = student_fields(before)
    fields = {"teachers.small.model": directory_sha256(base / "old" / "small")}
    Manifest(stage="generate", fingerprint="", fields=fields, inputs={"questions": source_digest(before)}).write(
        run / "generate"
    )
    Manifest(stage="train", fingerprint="", fields=student).write(run / "train" / "align")
    (base / "mine.toml").write_text((base / "mine.toml").read_text().replace('"old/', '"new/'))
    now = load(base / "mine.toml")
    shutil.copytree(base / "old", base / "new")
    assert len(compare_recipes(before, now).changes) == 3
    assert not compare_recipes(before, now).causes
    shutil.rmtree(base / "old")
    assert compare_recipes(before, now).parts("traces") == ["small"]  # without a run nothing says what it was
    assert not compare_recipes(before, now, run).causes
    assert redo_text(before, now, run).count("nothing: the content is the same") == 3
    assert "no key differs" in redo_text(now, now, run)
    (base / "new" / "rows.jsonl").write_text('{"question": "How many now?", "answer": "4"}\n')
    assert compare_recipes(now, now, run).causes["generate"] == ["data.questions.source"]
    assert "data.questions.source  the content as it was  other content" in redo_text(now, now, run)
    (base / "new" / "small" / "config.json").write_text("{ }")
    (base / "new" / "rows.jsonl").write_text('{"question": "How many?", "answer": "5"}\n')
    causes = compare_recipes(before, now, run).causes
    assert {"generate", "traces:small", "train:align", "filter"} <= {*causes}


@pytest.fixture
def pictured(tmp_path: Path) -> Path:
    """The recipe with a dozen images a source, in one folder; a second folder holds the same, a third has others."""
    for shade, folder in enumerate(("old", "new", "others")):
        (tmp_path / folder).mkdir()
        for number in range(12):
            Image.new("RGB", (8, 8), (shade // 2, number, 7)).save(tmp_path / folder / f"{number}.png")
    for name in ("questions", "captions", "test"):
        rows = [orjson.dumps({"question": f"{name} {n}?", "answer": "4", "image": f"{n}.png"}) for n in range(12)]
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(rows))
    (tmp_path / "mine.toml").write_text(RECIPE)
    return tmp_path / "mine.toml"


def with_images(recipe: Path, folder: str) -> Recipe:
    return load(recipe, {f"data.{name}.images_root": folder for name in ("questions", "captions", "test")})


def note_images(run: Path, recipe: Recipe) -> None:
    """What the finished stages of a run know of its images."""
    samples = list(reader.samples(recipe))
    write_samples(run / "generate" / SAMPLES, samples[1:])
    (run / "generate" / QUARANTINE).write_bytes(seal({"sample_id": samples[0].id, "reason": "no_teacher"}))
    note("generate", run)
    note("train", run, "align")
    note_read_images(run / "train" / "align", recipe, "captions")
    note("eval", run)
    note_read_images(run / "eval", recipe, "test")


def test_the_same_images_in_another_folder_make_nothing_stale_even_where_the_old_folder_is_gone(
    pictured: Path,
) -> None:
    before, run = with_images(pictured, "old"), pictured.parent / "run"
    note_images(run, before)
    now = with_images(pictured, "new")
    assert len(compare_recipes(before, now).changes) == 3 and not compare_recipes(before, now).causes
    assert redo_text(before, now, run).count("nothing: the content is the same") == 3
    assert {"generate", "train:align", "eval"} <= {*compare_recipes(before, with_images(pictured, "others")).causes}
    shutil.rmtree(pictured.parent / "old")
    assert not compare_recipes(before, now, run).causes
    assert {"generate", "train:align", "eval"} <= {*compare_recipes(before, now).causes}, "nothing says what it was"
    (pictured.parent / "new" / "3.png").unlink()  # a row that generate sets aside
    assert {"generate", "train:align", "eval"} <= {*compare_recipes(before, now, run).causes}


def test_all_images_of_a_source_are_compared(pictured: Path) -> None:
    before, now = with_images(pictured, "old"), with_images(pictured, "new")
    Image.new("RGB", (8, 8), (9, 9, 9)).save(pictured.parent / "new" / "11.png")
    changes = {change.path: change.moved for change in compare_recipes(before, now).changes}
    moved = {name: changes[f"data.{name}.images_root"] for name in ("questions", "captions", "test")}
    assert moved == {"questions": False, "captions": False, "test": False}


def test_names_with_dots_are_whole_names(recipe: Path) -> None:
    names = {"small": "qwen3.5-0.8b", "polish": "polish.2", "captions": "captions.v1"}
    text = RECIPE
    for name, dotted in names.items():
        text = text.replace(f'"{name}"', f'"{dotted}"').replace(f"[data.{name}]", f'[data."{dotted}"]')
    recipe.write_text(text)
    before = load(recipe)
    now = load(
        recipe,
        {
            "teachers.qwen3.5-0.8b.model": "owner/other",
            "stages.polish.2.epochs": "2.0",
            "data.captions.v1.split": "x",
            "data.captions.v1.columns.answer": "y",
        },
    )
    causes = compare_recipes(before, now).causes
    assert causes["traces:qwen3.5-0.8b"] == ["teachers.qwen3.5-0.8b.model"]
    of_source = {"data.captions.v1.split", "data.captions.v1.columns.answer"}
    assert {*causes["train:polish.2"]} >= {*of_source, "stages.polish.2.epochs"}
    assert {*causes["train:align"]} == of_source


def test_a_source_whose_name_begins_with_questions_is_another_one(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(
        RECIPE.replace("[data.captions]", '[data."questions.more"]').replace("captions", "questions.more")
    )
    now = load(recipe, {"data.questions.more.limit": "3", "teachers.small.samples": "2"})
    assert "reads the questions again" not in redo_text(load(recipe), now, tmp_path)


def test_no_source_is_a_test_set_where_the_recipe_names_none(recipe: Path) -> None:
    none = {"filter.contamination.sources": "[]"}
    causes = compare_recipes(load(recipe, none), load(recipe, {**none, "data.test.domain": "x"})).causes
    assert "signals:contamination" not in causes and "eval" in causes


def test_an_evaluation_that_the_recipe_does_not_ask_for_is_no_stage_to_run(recipe: Path, tmp_path: Path) -> None:
    text = RECIPE.partition("[eval]")[0].replace('[data.test]\nsource = "test.jsonl"\n', "")
    recipe.write_text(text)
    now = load(recipe, {"teachers.small.samples": "2"})
    assert "eval" not in stages(redo_text(load(recipe), now, tmp_path / "none"))
