"""Without the extras: every command works, or ends with the one line that installs what it needs."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import forked
from servers import stub_server
from worlds import student_worlds as worlds

from distill import packages
from distill.errors import MissingExtra

OTHERS = (
    "bitsandbytes",
    "liger_kernel",
    "kernels",
    "vllm",
    "obstore",
    "onnxruntime",
    "rapidocr",
    "ray",
    "torchvision",
)
BLOCKED = f"""
import sys
for package in {(*packages.TRAIN, *OTHERS)}:
    sys.modules[package] = None
from distill.cli import main
"""
LOADED = f"{BLOCKED}import filters.apply, teacher.generate"
"""Once for all commands: most of the time of a short one is spent on loading these."""
TEACHER = '[[teachers]]\nname = "only"\nmodel = "language"\nbackend = "embedded"\n'


def distill(*arguments: str | Path, call: str = "from distill.cli import main; main()") -> forked.Ended:
    return forked.run(call, *arguments, loaded=LOADED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe with every section, its data, a finished filter stage, and folders that look like checkpoints."""
    place = tmp_path_factory.mktemp("base")
    for name, kind in (("vision", "siglip_vision_model"), ("language", "qwen2")):
        (place / name).mkdir()
        (place / name / "config.json").write_text(json.dumps({"model_type": kind}))
        (place / name / "model.safetensors").write_bytes(b"")
    worlds.data(place, questions=6)
    (place / "words.jsonl").write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n")
    more = TEACHER + '[eval]\nallow_overlap = true\narms = { before = "base" }\n'
    more += '[data.words]\nsource = "words.jsonl"\ncolumns = { image = "" }\n[data.far]\nsource = "some/where"\n'
    worlds.recipe(place, worlds.stage("align", "questions"), worlds.stage("reason"), more=more)
    return place


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("generate",), "teacher 'only'"),
        (("generate", "--check"), "teacher 'only'"),
        (("train",), "distill train"),
        (("eval",), "distill eval"),
        (("plan", "--gpu", "L4"), "distill plan"),
        (("run",), "teacher 'only'"),
        (("ablate",), ""),
        (("eval", "--set", "eval.data=far"), "[data.far]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_that_needs_the_train_extra_says_the_line_that_installs_it(
    folder: Path, arguments: tuple[str, ...], what: str, tmp_path: Path
) -> None:
    name, *options = arguments
    shutil.copytree(folder / "run" / "filter", tmp_path / "run" / "filter")
    done = distill(name, folder / "recipe.toml", "--run", tmp_path / "run", *options)
    assert "pip install 'cot-distill[train]'" in done.stderr, done.stderr
    assert what in done.stderr
    assert "Traceback" not in done.stderr
    assert done.codes[0] == 2


def test_ablate_asks_no_teacher_before_what_it_needs_is_there(folder: Path, tmp_path: Path) -> None:
    with stub_server.serve() as url:
        served = ("--set", f"teachers.only.base_url={url}", "--set", "teachers.only.backend=vllm")
        done = distill("ablate", folder / "recipe.toml", "--run", tmp_path / "run", *served)
        assert (done.codes[0], "Traceback" in done.stderr) == (2, False)
        assert "distill ablate needs torch" in done.stderr and "pip install 'cot-distill[train]'" in done.stderr
        assert not [*(tmp_path / "run").glob("generate/only/part-*")]


def test_a_signal_of_the_student_is_refused_before_anything_is_measured(folder: Path, tmp_path: Path) -> None:
    signals = 'filter.signals=["format", "student"]'
    options = ("--set", signals, "--set", "filter.student.checkpoint=language", "--run", tmp_path / "run")
    done = distill("filter", folder / "recipe.toml", *options)
    assert (done.codes[0], "Traceback" in done.stderr) == (2, False)
    assert "filter.signals = 'student' needs torch" in done.stderr
    assert "pip install 'cot-distill[train]'" in done.stderr


def test_an_export_of_the_student_says_the_line_that_installs_what_it_needs(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text((folder / "recipe.toml").read_text())
    done = distill("export", run, "--out", tmp_path / "out")
    assert (done.codes[0], "Traceback" in done.stderr) == (2, False)
    assert "distill export needs torch, which is not installed: pip install 'cot-distill[train]'" in done.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("recipes",), ("recipes", "schema")])
def test_what_needs_no_extra_works_without_one(arguments: tuple[str, ...]) -> None:
    done = distill(*arguments)
    assert (done.codes[0], done.stderr) == (0, "")


def test_filter_status_and_explain_need_no_extra(folder: Path, tmp_path: Path) -> None:
    from worlds import run_fixtures

    samples, traces = run_fixtures.small_world(tmp_path / "pictures")
    run = tmp_path / "run"
    run_fixtures.generate_folder(run, samples, traces)
    (tmp_path / "recipe.toml").write_text(run_fixtures.RECIPE)
    assert distill("filter", tmp_path / "recipe.toml", "--run", run).codes == [0]
    for arguments in (("status", run), ("explain", run, traces[0].id)):
        done = distill(*arguments)
        assert (done.codes[0], "Traceback" in done.stderr) == (0, False), done.stderr


NEEDS = {
    "ask RUN": ("ask", "RUN", "IMAGE", "What?"),
    "ask MODEL": ("ask", "FOLDER/language", "IMAGE", "What?"),
    "check": ("check", "RECIPE"),
    "check --json": ("check", "RECIPE", "--json"),
    "dataset": ("dataset",),
    "export --verify": ("export", "RUN", "--out", "NEW", "--verify"),
    "init hub": ("init", "hub:some/where", "--out", "NEW"),
    "pull": ("pull", "s3://bucket/run", "NEW"),
    "push": ("push", "RUN", "s3://bucket/run", "--recipe", "RECIPE"),
    "split hub": ("split", "some/where", "--out", "NEW"),
    "status of an address": ("status", "s3://bucket/run"),
    "generate into an address": ("generate", "RECIPE", "--run", "s3://bucket/run"),
}
"""Commands of a run whose filter stage is finished, and what they are given."""
WORKS = {
    "ask a server": ("ask", "URL#m", "IMAGE", "What?"),
    "export --dataset": ("export", "RUN", "--out", "NEW", "--dataset", "llava"),
    "filter --what-if": ("filter", "RECIPE", "--run", "RUN", "--what-if", "RECIPE"),
    "init": ("init", "FOLDER/questions.jsonl", "--out", "NEW"),
    "plan --diff": ("plan", "RECIPE", "--diff", "RUN"),
    "recipes copy": ("recipes", "copy", "tiny", "NEW"),
    "recipes reference": ("recipes", "reference"),
    "repair": ("repair", "RUN"),
    "signals": ("signals",),
    "split": ("split", "FOLDER/recipe.toml", "--out", "NEW", "--test", "0.3"),
    "status --json": ("status", "RUN", "--json"),
    "traces": ("traces",),
}
FUNCTIONS = ("dataset", "signals", "traces")
"""Of `import distill`, for notebooks."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, and a run of it with traces and a dataset."""
    from worlds import run_fixtures

    place = tmp_path_factory.mktemp("finished")
    samples, traces = run_fixtures.small_world(place / "pictures")
    run_fixtures.generate_folder(place / "run", samples, traces)
    (place / "recipe.toml").write_text(run_fixtures.RECIPE)
    assert distill("filter", place / "recipe.toml", "--run", place / "run").codes == [0]
    return place


def given(name: str, folder: Path, finished: Path, new: Path, url: str) -> list[str]:
    place = finished
    recipe = place / "recipe.toml" if name in WORKS else folder / "recipe.toml"
    values = {"RUN": place / "run", "RECIPE": recipe, "NEW": new / "new", "IMAGE": place / "pictures" / "00000.png"}
    values |= {"URL#m": f"{url}#m"}
    return [str(values.get(word, word.replace("FOLDER", str(folder)))) for word in (NEEDS | WORKS)[name]]


def called(name: str, run: Path) -> forked.Ended:
    return distill(run, call=f"import distill, sys; print(distill.{name}(sys.argv[1]))")


@pytest.mark.parametrize("name", [*NEEDS, *WORKS])
def test_every_other_command_works_or_says_the_line(name: str, folder: Path, finished: Path, tmp_path: Path) -> None:
    with stub_server.serve(model="m") as url:
        words = given(name, folder, finished, tmp_path, url)
        done = called(name, finished / "run") if name in FUNCTIONS else distill(*words)
    said = done.stdout + done.stderr
    if name in NEEDS:
        assert "pip install 'cot-distill[" in said, said
        assert done.codes[0] != 0
    else:
        assert done.codes[0] == 0, said
    assert name in FUNCTIONS or "Traceback" not in said


def test_no_command_is_left_out() -> None:
    import typer.main

    from distill.cli import app

    tried = {words[0] for words in (NEEDS | WORKS).values()} - {*FUNCTIONS}
    tried |= {"train", "eval", "run", "ablate", "explain"}  # by the tests above
    assert {*typer.main.get_command(app).commands} - tried == {"view"}  # it ends with Ctrl-C; the next test


def test_the_view_needs_no_extra(finished: Path) -> None:
    command = [sys.executable, "-c", f"{BLOCKED}main()", "view", str(finished / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said


def test_packages_of_an_extra_are_named_by_the_extra_and_others_by_themselves() -> None:
    assert packages.install_line("torch", "bitsandbytes", "x") == "pip install 'cot-distill[qlora,train]' x"
    assert packages.install_line("wandb") == "pip install 'cot-distill[wandb]'"
    assert packages.missing("json", "no_such_package") == ["no_such_package"]
    with pytest.raises(MissingExtra, match="no_such_package, which is not installed: pip install no_such_package"):
        packages.require("this test", "no_such_package")
    assert packages.explained(ImportError("x", name="no_such_package"), "this test") is None
