"""Arms that fail: the others go on, table, page and log name the failure, and the same command tries it again."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner
from worlds.ablation_recipe import RECIPE
from worlds.run_fixtures import short_report

from distill.ablation import runner
from distill.ablation.runner import AskedArms, Job, ablate, place
from distill.artifacts.layout import FAILED, RESULTS
from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.errors import ArmsFailed, BusyError, CircuitOpen, DataError, DistillError, NothingKept, StorageError
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from filters.report import page

WILD = "1e30"
FAILING = RECIPE[: RECIPE.index("[ablate]")].replace("limit = 24", "limit = 12") + (
    f"""
[ablate]
seeds = [0]
arms = ["untouched", "wild", "before"]
gallery = 2
[ablate.own.wild]
set = {{ "stages.reason.learning_rate" = {WILD} }}
[ablate.studies.rates]
question = "Which rate?"
arms = ["distilled", "untouched", "wild"]
claims = [
    {{ text = "Training helps", better = "distilled", than = "untouched" }},
    {{ text = "A rate can be too high", better = "distilled", than = "wild" }},
]
"""
)


def command(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["ablate", str(folder / "mine.toml"), "--run", str(folder / "run"), *options])


def results(folder: Path) -> dict[str, Any]:
    return orjson.loads((folder / "run" / "ablate" / RESULTS).read_bytes())


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> tuple[Path, Result]:
    """A recipe beside its run, of which one arm failed while two were trained at a time."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "mine.toml").write_text(FAILING, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write", short_report)
        return folder, command(folder, "--jobs", "2")


@pytest.fixture
def here(failed: tuple[Path, Result], tmp_path: Path) -> Path:
    return Path(shutil.copytree(failed[0], tmp_path / "a", symlinks=True))


def test_an_arm_that_fails_is_told_everywhere_and_the_others_are_finished(failed: tuple[Path, Result]) -> None:
    folder, said = failed
    found = results(folder)
    assert said.exit_code == 1, said.output
    assert "1 training of 4 failed (wild, seed 0)" in said.stderr
    assert "the loss is nan" in said.stdout and "before" in said.stdout
    assert {*found["arms"]} == {"distilled", "untouched", "before"} and found["skipped"] == {}
    assert found["failed"]["wild"].startswith("seed 0: the loss is nan")
    assert f"move {folder}/run/ablate/arms/wild away" in found["failed"]["wild"]
    assert "distill train" not in found["failed"]["wild"]  # which would train the stage of the run itself
    text = (folder / "run" / "ablate" / "report.html").read_text(encoding="utf-8")
    assert "arms that failed" in text and "the loss is nan" in text
    manifest = Manifest.read(folder / "run" / "ablate")
    assert manifest is not None and manifest.counts["failed_arms"] == 1


def test_a_claim_about_a_failed_arm_is_not_tested_and_the_others_are(failed: tuple[Path, Result]) -> None:
    folder, said = failed
    study = results(folder)["studies"]["rates"]
    assert [claim["better"] + claim["than"] for claim in study["claims"]] == ["distilleduntouched"]
    assert [(claim["text"], claim["why"]) for claim in study["untested"]] == [
        ("A rate can be too high", "wild failed")
    ]
    assert "not tested: wild failed" in " ".join(said.stdout.split())
    assert "not tested" in (folder / "run" / "ablate" / "report.html").read_text(encoding="utf-8")


def test_the_report_of_a_failed_arm_keeps_the_reason(here: Path) -> None:
    said = command(here, "--report", "--json")
    assert said.exit_code == 0, said.output
    assert "the loss is nan" in orjson.loads(said.stdout)["results"]["failed"]["wild"]


def test_the_same_command_tries_the_failed_arm_alone_and_takes_it_up_once_it_is_mended(here: Path) -> None:
    shared = here / "run" / "ablate" / "shared"
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*") if path.is_file()}
    said = command(here, "--json")
    assert said.exit_code == 1 and {*orjson.loads(said.stdout)["results"]["failed"]} == {"wild"}
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*") if path.is_file()} == before
    (here / "mine.toml").write_text(FAILING.replace(WILD, "1e-4"), encoding="utf-8")
    shutil.rmtree(here / "run" / "ablate" / "arms" / "wild")
    said = command(here)
    assert said.exit_code == 0, said.output
    assert results(here)["failed"] == {} and "wild" in results(here)["arms"]
    assert not (place(here / "run", "wild", 0) / FAILED).exists()
    (here / "mine.toml").write_text(FAILING.replace(WILD, "2e-4"), encoding="utf-8")
    said = command(here)  # an arm that is stale ends no other one
    assert said.exit_code == 1, said.output
    assert f"move {here}/run/ablate/arms/wild away" in results(here)["failed"]["wild"]
    assert {*results(here)["arms"]} == {"distilled", "untouched", "before"}


def test_a_changed_teacher_names_the_command_that_asks_it(here: Path) -> None:
    text = FAILING.replace("temperature = 0.5", "temperature = 0.4")
    (here / "mine.toml").write_text(text, encoding="utf-8")
    said = command(here)
    assert said.exit_code == 2 and "`distill generate --fresh`" in said.stderr
    assert "again with --fresh" not in said.stderr


def run_with(here: Path, patch: pytest.MonkeyPatch, fails: dict[Job, BaseException], seeds: list[int]) -> list[Job]:
    """Run the arms with jobs that do nothing but fail; the jobs that were begun."""
    begun: list[Job] = []

    def run_job(recipe: Recipe, run: Path, job: Job, *_: object) -> None:
        begun.append(job)
        if job in fails:
            raise fails[job]

    patch.setattr(runner, "run_job", run_job)
    try:
        ablate(loading.load(here / "mine.toml"), here / "run", AskedArms(arms=["untouched"], seeds=seeds))
    except ArmsFailed:
        return begun
    raise AssertionError("no arm failed")


def test_an_arm_that_does_not_fit_the_memory_of_the_gpu_fails_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place(here / "run", "untouched", 0) / "eval").unlink()
    error = torch.OutOfMemoryError("CUDA out of memory")
    assert run_with(here, monkeypatch, {Job("untouched", 0): error}, [0])[-1] == Job("untouched", 0)
    assert "the GPU's memory does not hold this" in results(here)["failed"]["untouched"]


def end_one_arm(recipe: Recipe, run: Path, job: Job, *_: object, **__: object) -> None:
    """What the system does to the process of an arm when memory is full."""
    if job.arm == "untouched":
        os.kill(os.getpid(), signal.SIGKILL)


def test_an_arm_whose_process_is_killed_fails_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place(here / "run", "untouched", 0) / "eval").unlink()
    monkeypatch.setattr(runner, "run_job", end_one_arm)
    recipe, asked = loading.load(here / "mine.toml"), AskedArms(arms=["untouched", "before"])
    with pytest.raises(ArmsFailed, match=r"1 training of 3 failed \(untouched, seed 0\)"):
        ablate(recipe, here / "run", asked, jobs=2)
    assert "killed by SIGKILL, most likely by the system" in results(here)["failed"]["untouched"]
    assert {*results(here)["arms"]} == {"distilled", "before"}


def test_an_arm_whose_data_cannot_be_read_fails(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place(here / "run", "untouched", 0) / "eval").unlink()
    run_with(here, monkeypatch, {Job("untouched", 0): DataError("t.jsonl: cannot be read")}, [0])
    assert results(here)["failed"]["untouched"] == "seed 0: t.jsonl: cannot be read"
    assert "untouched" not in results(here)["skipped"]


def test_a_study_is_shown_without_an_arm_that_is_left_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place(here / "run", "untouched", 0) / "eval").unlink()
    nothing = {Job("untouched", 0): NothingKept("no trace is left"), Job("before", 0): DistillError("another one")}
    monkeypatch.setattr(runner, "chosen", lambda *_: (["distilled", "untouched", "before"], {}))
    run_with(here, monkeypatch, nothing, [0])
    study = results(here)["studies"]["rates"]
    assert study["arms"] == ["distilled"] and study["claims"] == []
    assert [claim["why"] for claim in study["untested"]] == ["untouched is left out", "wild failed"]


def test_a_seed_whose_reference_fails_costs_this_seed_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = run_with(here, monkeypatch, {Job("distilled", 1): DistillError("the loss is nan")}, [0, 1])
    assert begun == [Job(name, seed) for name in ("distilled", "untouched") for seed in (0, 1)]
    assert results(here)["failed"]["distilled"] == "seed 1: the loss is nan"
    assert results(here)["studies"]["rates"]["claims"]
    with pytest.raises(DistillError, match="the loss is inf"):  # no seed of the reference is left
        run_with(here, monkeypatch, {Job("distilled", 2): DistillError("the loss is inf")}, [2])


@pytest.mark.parametrize(
    "error",
    [
        CircuitOpen("the teacher is away"),
        StorageError("the disk is full"),
        BusyError("another command works here"),
        KeyboardInterrupt(),
        AssertionError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_other_arms_would_meet_too_ends_the_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        run_with(here, monkeypatch, {Job("untouched", 0): error}, [0])
