"""Trackers of generate and filter: numbers reach them, secrets and texts do not, and none ends a run."""

import importlib.util
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from servers import stub_server
from worlds import run_fixtures
from worlds.generate_world import World

from distill import redact, trackers
from distill.artifacts.manifest import Manifest
from distill.errors import MissingExtra, RecipeError
from distill.python_api import verbs
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import Progress, unwatched

Calls = list[tuple[Any, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Stand-ins of the three packages; every call of them, with the name of the package first."""
    told: Calls = []

    class Run:
        def __init__(self, package: str) -> None:
            self.package = package

        def log(self, values: dict[str, float], step: int) -> None:
            told.append((self.package, "log", values, step))

        def finish(self) -> None:
            told.append((self.package, "finish"))

    class Writer:
        def __init__(self, folder: str) -> None:
            told.append(("tensorboard", "init", folder))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            told.append(("tensorboard", "log", {name: value}, step))

        def close(self) -> None:
            told.append(("tensorboard", "finish"))

    def started(package: str) -> Callable[..., Run]:
        def init(**options: Any) -> Run:
            told.append((package, "init", options))
            return Run(package)

        return init

    for name in ("wandb", "trackio", "tensorboard", "tensorboard.summary"):
        module = ModuleType(name)
        module.init = started(name)  # type: ignore[attr-defined]
        module.Settings = lambda **options: options  # type: ignore[attr-defined]
        module.Writer = Writer  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("distill.packages.missing", lambda *names: [])
    return told


def values_of(calls: Calls, package: str) -> dict[str, float]:
    return {name: value for call in calls if call[:2] == (package, "log") for name, value in call[2].items()}


def test_generate_sends_its_progress_and_counts_to_every_tracker(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "INTERVAL_S", 0.0)
    monkeypatch.setattr("teacher.progress._REPORT_INTERVAL_S", 0.0)
    redact.know("canary-of-trackers")
    world = World(tmp_path)
    world.add_rows(5)
    with stub_server.serve() as url:
        world.add_teacher(url, model="canary-of-trackers", served_model="stub")
        world.head = 'report_to = ["trackio", "wandb", "tensorboard"]\n' + world.head
        manifest = verbs.generate(world.recipe(), world.run)
    for package in ("trackio", "wandb", "tensorboard"):
        sent = values_of(calls, package)
        assert sent["generate/complete"] == manifest.counts["complete"] == 5
        assert sent["generate/tokens/answer"] == manifest.tokens["answer"] and sent["generate/seconds"] > 0
        assert "generate/total" in sent and "generate/tokens_per_s" in sent
        assert [call for call in calls if call[0] == package][-1] == (package, "finish")
        steps = [call[3] for call in calls if call[:2] == (package, "log")]
        assert steps == sorted(steps)
    (wandb,) = [call[2] for call in calls if call[:2] == ("wandb", "init")]
    assert wandb["settings"]["disable_git"] and not wandb["settings"]["save_code"] and wandb["resume"] == "allow"
    assert wandb["settings"]["console"] == "off" and wandb["settings"]["x_disable_meta"]
    assert wandb["config"] == {"stage": "generate", "seed": 0, "teachers": {"stub": redact.MASK}}
    told = repr(calls)
    assert "canary-of-trackers" not in told and "How many?" not in told


def test_filter_sends_its_counts_and_a_finished_stage_the_same_run(tmp_path: Path, calls: Calls) -> None:
    samples, traces = run_fixtures.small_world(tmp_path / "pictures")
    run_fixtures.generate_folder(tmp_path / "run", samples, traces)
    (tmp_path / "recipe.toml").write_text('report_to = ["wandb"]\n' + run_fixtures.RECIPE)
    recipe = load(tmp_path / "recipe.toml")
    manifest = verbs.filter(recipe, tmp_path / "run")
    sent = values_of(calls, "wandb")
    assert {name: sent[f"filter/{name}"] for name in manifest.counts} == dict(manifest.counts)
    verbs.filter(recipe, tmp_path / "run")
    assert len({call[2]["id"] for call in calls if call[1] == "init"}) == 1


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: Any) -> None:
        raise ConnectionError("https://me:pw@wandb is away")

    monkeypatch.setattr("wandb.init", fail)
    writer = sys.modules["tensorboard.summary"].Writer
    monkeypatch.setattr(writer, "add_scalar", lambda *_: fail())
    (tmp_path / "r.toml").write_text('report_to = ["wandb", "tensorboard", "trackio"]')
    Manifest(stage="filter", fingerprint="x", fields={}, counts={"kept": 3}).write(_made(tmp_path / "run" / "filter"))
    with trackers.tracked(load(tmp_path / "r.toml"), tmp_path / "run", "filter", unwatched) as report:
        report(Progress(stage="filter", done=1, total=2, unit="traces"))
    assert values_of(calls, "trackio")["filter/kept"] == 3
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 2 and all("continues without this tracker" in each for each in warned)
    assert "pw" not in "".join(warned)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_a_missing_tracker_is_one_line_before_anything_is_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add_rows(1)
    world.add_teacher("http://127.0.0.1:1/v1")
    world.head = 'report_to = ["trackio"]\n' + world.head
    if importlib.util.find_spec("trackio"):
        pytest.skip("trackio is installed")
    with pytest.raises(MissingExtra, match=r"trackio, which is not installed: pip install 'cot-distill\[trackio\]'"):
        verbs.generate(world.recipe(), world.run)
    assert not (world.run / "generate").exists()


def test_one_key_names_the_trackers_of_the_stages_too_and_no_result_depends_on_it(tmp_path: Path) -> None:
    text = 'report_to = ["wandb"]\n[[stages]]\nname = "a"\ndata = "traces"\ntrain = ["language"]\n'
    text += '[[stages]]\nname = "b"\ndata = "traces"\ntrain = ["language"]\nreport_to = ["tensorboard"]\n'
    (tmp_path / "r.toml").write_text(text)
    recipe = load(tmp_path / "r.toml")
    assert [stage.report_to for stage in recipe.stages] == [("wandb",), ("tensorboard",)]
    (tmp_path / "r.toml").write_text('report_to = ["wandbb"]')
    with pytest.raises(RecipeError, match="report_to"):
        load(tmp_path / "r.toml")


@pytest.mark.parametrize("package", ["tensorboard", "wandb"])
def test_the_real_package_takes_what_it_is_sent(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "r.toml").write_text(f'report_to = ["{package}"]')
    Manifest(stage="filter", fingerprint="x", fields={}, counts={"kept": 3}).write(_made(tmp_path / "run" / "filter"))
    with trackers.tracked(load(tmp_path / "r.toml"), tmp_path / "run", "filter", unwatched) as report:
        report(Progress(stage="filter", done=1, total=2, unit="traces", facts={"kept_share": 0.5}))
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"filter/kept" in written


def test_the_metrics_of_every_student_reach_the_trackers(tmp_path: Path, calls: Calls) -> None:
    folder = _made(tmp_path / "run" / "eval")
    metrics = {"n": 4, "accuracy": 0.75, "ci95": [0.3, 0.95], "anls": None, "limited_by": "No single cause."}
    (folder / "metrics.json").write_bytes(orjson.dumps({"arms": {"base": metrics, "distilled": metrics}}))
    Manifest(stage="eval", fingerprint="x", fields={}, counts={"questions": 4}).write(folder)
    (tmp_path / "r.toml").write_text('report_to = ["wandb"]')
    with trackers.tracked(load(tmp_path / "r.toml"), tmp_path / "run", "eval", unwatched):
        pass
    assert values_of(calls, "wandb") == {"eval/seconds": 0.0, "eval/questions": 4} | {
        f"eval/{arm}/{name}": value for arm in ("base", "distilled") for name, value in (("n", 4), ("accuracy", 0.75))
    }


def test_eval_reports_to_the_trackers(tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluated(recipe: Recipe, run: Path, **_: Any) -> Manifest:
        manifest = Manifest(stage="eval", fingerprint="x", fields={}, counts={"questions": 4})
        manifest.write(_made(run / "eval"))
        return manifest

    monkeypatch.setattr("student.evaluate.evaluate", evaluated)
    (tmp_path / "r.toml").write_text('report_to = ["wandb"]')
    verbs.evaluate(load(tmp_path / "r.toml"), tmp_path / "run")
    assert values_of(calls, "wandb")["eval/questions"] == 4


def test_the_real_trackio_keeps_the_numbers_of_a_stage_and_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: trackio starts threads and reads its folder when it is loaded."""
    if not importlib.util.find_spec("trackio"):
        pytest.skip("trackio is not installed")
    (tmp_path / "r.toml").write_text('report_to = ["trackio"]')
    Manifest(stage="filter", fingerprint="x", fields={}, counts={"kept": 3}).write(_made(tmp_path / "run" / "filter"))
    program = (
        "import sys; from pathlib import Path\n"
        "from distill import trackers; from distill.recipe.loading import load\n"
        "from distill.types import Progress, unwatched\n"
        "folder = Path(sys.argv[1])\n"
        "with trackers.tracked(load(folder / 'r.toml'), folder / 'run', 'filter', unwatched) as report:\n"
        "    report(Progress(stage='filter', done=1, total=2, unit='traces'))\n"
    )
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("TRACKIO_PROJECT", "mine")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program, tmp_path], check=True, capture_output=True)
    with sqlite3.connect(tmp_path / "trackio" / "mine.db") as database:
        rows = database.execute("SELECT run_name, metrics FROM metrics").fetchall()
    assert len({name for name, _ in rows}) == 1
    assert [orjson.loads(values).get("filter/kept") for _, values in rows].count(3) == 2
