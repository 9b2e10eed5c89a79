"""An ablation of the tiny world: arms share what they have in common, resume, and land in one table."""

import runpy
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from processes.command_line import documented_keys
from typer.testing import CliRunner
from worlds.ablation_recipe import RECIPE, TINY
from worlds.run_fixtures import short_report

from distill.ablation import arm_job, arms, runner
from distill.ablation import results as effects
from distill.ablation.runner import AskedArms, Job, ablate, place, report_finished
from distill.artifacts.files import write_text
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import RESULTS
from distill.artifacts.manifest import Manifest
from distill.artifacts.stage_cache import Shared
from distill.cli import app
from distill.commands.stages import ablate_recipe
from distill.errors import DataError, NothingKept, RecipeError, StaleError
from distill.python_api import verbs
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.trace_records.human_labels import LabelJournal
from distill.types import unwatched
from filters.report import page
from student.training import stage as stages

ROOT = Path(__file__).parents[3]
ARMS = ("distilled", "untouched", "random", "merged")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A recipe beside its run, with every arm of it."""
    folder = tmp_path_factory.mktemp("ablation")
    (folder / "mine.toml").write_text(RECIPE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write", short_report)  # of the filter of each arm
        ablate(loading.load(folder / "mine.toml"), folder / "run")
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "a", symlinks=True))


def load(folder: Path) -> Recipe:
    return loading.load(folder / "mine.toml")


def results(folder: Path) -> dict[str, Any]:
    return orjson.loads((folder / "run" / "ablate" / RESULTS).read_bytes())


def test_every_arm_lands_in_one_table_with_effect_and_cost(finished: Path) -> None:
    found = results(finished)
    assert list(found["arms"]) == list(ARMS)
    assert found["n"] == 9 and found["seeds"] == [0, 1]
    for name in ARMS[1:]:
        assert found["arms"][name]["effect"]["ci95"][0] <= found["arms"][name]["effect"]["delta"]
        assert list(found["arms"][name]["seeds"]) == ["0", "1"]
    assert found["arms"]["untouched"]["cost"]["train_tokens"] == 0
    staged, merged = (found["arms"][name]["cost"] for name in ("distilled", "merged"))
    assert staged["traces"] == merged["traces"] > 0  # replayed rows are not traces
    assert 0.6 < merged["trace_tokens"] / staged["trace_tokens"] < 1.6  # equal exposure, but for whole rows and steps
    assert merged["trace_tokens"] < 0.9 * merged["train_tokens"]
    assert found["studies"]["choice"]["claims"][0]["verdict"] in (effects.HOLDS, effects.FAILS, effects.UNDECIDED)
    assert found["arms"]["distilled"]["metrics"]["format_rate"] >= 0


def test_an_arm_that_learns_from_the_test_set_is_left_out_with_the_reason(here: Path) -> None:
    text = (here / "mine.toml").read_text()
    text = text.replace('arms = ["untouched", "random", "merged", "nothing"]', 'arms = ["untouched", "cheats"]')
    cheats = '[ablate.own.cheats]\nabout = "x"\nset = { "stages.align.data" = "test" }\n[ablate.studies'
    (here / "mine.toml").write_text(text.replace("[ablate.studies", cheats, 1))
    ablate_recipe(load(here), here / "run", AskedArms(seeds=[0]), jobs=1, fresh=False)
    assert "training data is in the evaluation data" in results(here)["skipped"]["cheats"]
    assert "cheats" not in results(here)["arms"]


def test_the_results_keep_what_was_stated_before_the_runs(here: Path) -> None:
    (stated,) = results(here)["power"]
    assert (stated["claims"], stated["seeds"], stated["sd_from"]) == (1, [0, 1], "assumed")
    assert stated["work"]["seconds"] is None
    command = ["ablate", str(here / "mine.toml"), "--run", str(here / "run")]
    shown = CliRunner().invoke(app, [*command, "--plan"])
    assert shown.exit_code == 0, shown.output
    assert "arms measured before" in shown.output  # now with figures of these runs
    assert results(here)["power"] == [stated]
    for option, about in (("--plan", "ablate --plan"), ("--report", "ablate")):
        shown = CliRunner().invoke(app, [*command, option, "--json"])
        assert shown.exit_code == 0, shown.output
        assert {*orjson.loads(shown.stdout)} <= documented_keys(about)
    assert orjson.loads(shown.stdout)["results"] == results(here)
    assert CliRunner().invoke(app, [*command, "--plan", "--report"]).exit_code != 0
    twice, once = (CliRunner().invoke(app, [*command, "--plan", *["--seed", "3"] * count]) for count in (2, 1))
    assert once.exit_code == 0 and twice.output == once.output  # a seed that is named twice is trained once


def test_an_arm_without_anything_to_learn_is_left_out_with_its_reason(finished: Path) -> None:
    assert "no trace" in results(finished)["skipped"]["nothing"]


def test_traces_are_made_once_and_the_same_for_every_seed(finished: Path) -> None:
    run = finished / "run"
    found = {place(run, name, seed).joinpath("generate").resolve() for name in ARMS for seed in (0, 1)}
    assert found == {(run / "generate").resolve()}


def test_stages_made_from_the_same_settings_are_made_once(finished: Path) -> None:
    run = finished / "run"

    def stage(name: str, seed: int, which: str) -> Path:
        return place(run, name, seed).joinpath("train", which).resolve()

    assert stage("distilled", 0, "align") == stage("random", 0, "align")
    assert stage("distilled", 0, "align") != stage("distilled", 1, "align")
    assert stage("distilled", 0, "reason") != stage("random", 0, "reason")
    assert (
        place(run, "distilled", 0).joinpath("filter").resolve()
        == place(run, "random", 0).joinpath("filter").resolve()
    )


def test_arms_train_as_many_steps_as_the_reference(finished: Path) -> None:
    run = finished / "run"

    def steps(name: str, seed: int) -> int:
        manifest = Manifest.read(place(run, name, seed) / "train" / "reason")
        assert manifest is not None
        return manifest.counts["steps"]

    for seed in (0, 1):
        assert steps("random", seed) == steps("distilled", seed)
        assert steps("merged", seed) == steps("distilled", seed) + 2


def test_an_arm_is_a_whole_run_that_other_commands_open(finished: Path) -> None:
    arm = place(finished / "run", "random", 0)
    shown = CliRunner().invoke(app, ["status", str(arm)])
    assert shown.exit_code == 0, shown.output
    assert "generate" in shown.output and "reason" in shown.output
    trace = next(read_jsonl(next((arm / "generate" / "reader").glob("*.jsonl"))))["id"]
    assert trace in CliRunner().invoke(app, ["explain", str(arm), trace]).output


def test_the_same_command_again_does_nothing_again(here: Path) -> None:
    run = here / "run"
    before = {path: path.stat().st_mtime_ns for path in (run / "ablate" / "shared").rglob("*") if path.is_file()}
    ablate(load(here), run)
    after = {path: path.stat().st_mtime_ns for path in (run / "ablate" / "shared").rglob("*") if path.is_file()}
    assert before == after


def test_a_lost_arm_is_made_again_and_the_others_are_not(here: Path) -> None:
    run = here / "run"
    before = results(here)
    lost = place(run, "random", 1)
    trained = (lost / "train" / "reason").resolve()
    shutil.rmtree(lost)
    shutil.rmtree(trained)
    kept = (place(run, "distilled", 1) / "train" / "reason" / "manifest.json").stat().st_mtime_ns
    ablate(
        load(here), run, AskedArms(arms=["random"], seeds=[1]), jobs=2
    )  # two jobs, one after the other: one process
    assert (place(run, "distilled", 1) / "train" / "reason" / "manifest.json").stat().st_mtime_ns == kept
    assert results(here)["arms"]["random"]["accuracy"] == before["arms"]["random"]["accuracy"]


def test_a_report_of_what_is_finished_trains_nothing(here: Path) -> None:
    run = here / "run"
    shutil.rmtree(place(run, "random", 1))
    (run / "ablate" / RESULTS).unlink()
    report_finished(load(here), run)
    assert list(results(here)["arms"]["random"]["seeds"]) == ["0"]
    assert not place(run, "random", 1).exists()


def test_a_seed_that_the_recipe_no_longer_names_leaves_the_table_and_comes_back_with_it(here: Path) -> None:
    run, before = here / "run", results(here)
    mine = load(here).model_copy(update={"ablate": load(here).ablate.model_copy(update={"seeds": (0,)})})
    report_finished(mine, run)
    found = results(here)
    assert found["seeds"] == [0] and list(found["arms"]["random"]["seeds"]) == ["0"]
    assert found["skipped"]["seed 1"] == "finished, but not in ablate.seeds; --seed 1 shows it too"
    report_finished(mine, run, AskedArms(seeds=[1]))
    assert results(here)["arms"] == before["arms"]


def test_an_arm_made_with_other_settings_is_left_out_with_what_differs(here: Path) -> None:
    run = here / "run"
    stage = place(run, "random", 0) / "train" / "reason"
    manifest = Manifest.read(stage)
    assert manifest is not None
    replace(manifest, fields={**manifest.fields, "stage.learning_rate": 0.5}).write(stage)
    report_finished(load(here), run)
    assert list(results(here)["arms"]["random"]["seeds"]) == ["1"]
    why = results(here)["skipped"]["random"]
    assert why.startswith("seed 0: made with other settings than the recipe has now (stage.learning_rate: 0.5 ->")
    assert f"move {run}/ablate/arms/random away" in why
    recipe = (here / "mine.toml").read_text()
    for before, now, differs in (
        ("max_new_tokens = 6", "max_new_tokens = 7", r"max_new_tokens: 6 -> 7"),
        ("per_question = 1", "per_question = 2", r"filter.select.per_question: 1 -> 2"),
    ):
        (here / "mine.toml").write_text(recipe.replace(before, now))
        with pytest.raises(StaleError, match=f"distilled: made with other settings .*{differs}"):
            report_finished(load(here), run)


def test_an_arm_without_a_seed_of_the_reference_is_left_out_with_the_reason(here: Path) -> None:
    run = here / "run"
    place(run, "distilled", 1).rename(place(run, "distilled", 1).with_name("seed-1.old"))  # as a message proposes
    shutil.rmtree(place(run, "random", 0))
    report_finished(load(here), run)
    assert list(results(here)["arms"]["distilled"]["seeds"]) == ["0"] and "random" not in results(here)["arms"]
    assert results(here)["skipped"]["random"].startswith("distilled is not finished with seed 1")


def test_arms_whose_training_data_are_not_there_any_more_stay_in_the_report(here: Path) -> None:
    text = (here / "mine.toml").read_text().replace(f"{TINY}/data/captions.parquet", "/gone/captions.parquet")
    (here / "mine.toml").write_text(text)
    report_finished(load(here), here / "run")
    assert list(results(here)["arms"]) == list(ARMS) and "random" not in results(here)["skipped"]


def test_seeds_that_fail_are_named_and_no_seed_is_run_twice(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Job] = []

    def fails(recipe: Recipe, run: Path, job: Job, *_: object) -> None:
        done.append(job)
        if job == Job("random", 1):
            raise NothingKept("no trace is left")

    monkeypatch.setattr(runner, "run_job", fails)
    ablate(load(here), here / "run", AskedArms(arms=["random"], seeds=[0, 1, 1]))
    assert done == [Job(name, seed) for name in ("distilled", "random") for seed in (0, 1)]
    assert results(here)["skipped"]["random"] == "seed 1: no trace is left"


def test_what_the_run_itself_has_trained_is_not_trained_again(here: Path) -> None:
    mine, run = load(here), here / "run"
    trained = place(run, "distilled", 0)
    shutil.copytree(trained / "filter", run / "filter")
    shutil.copytree(trained / "train", run / "train")
    seconds = Manifest.read(run / "train" / "reason")
    ablate(mine, run, AskedArms(arms=["distilled"], seeds=[0]), fresh=True)
    again = Manifest.read(place(run, "distilled", 0) / "train" / "reason")
    assert again == seconds
    measured = Manifest.read(place(run, "distilled", 0) / "filter")
    assert measured is not None and measured.counts["measured"] == 0


def test_arms_of_a_changed_recipe_are_asked_by_its_engine_once_they_are_moved_away_and_trained_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    @contextmanager
    def serve(checkpoint: Path, **limits: Any) -> Iterator[SimpleNamespace]:
        def ask(samples: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
            asked.append(len(samples))
            return [([], [1]) for _ in samples]

        yield SimpleNamespace(ask=ask)

    monkeypatch.setattr(verbs, "_serve", lambda recipe: serve)
    path = here / "mine.toml"
    path.write_text(path.read_text().replace("[eval]\n", '[eval]\nengine = "vllm"\n'))
    command = partial(ablate_recipe, load(here), here / "run", AskedArms(arms=["untouched"], seeds=[0]))
    arms_folder = here / "run" / "ablate" / "arms"
    with pytest.raises(StaleError, match=f"eval.engine: 'embedded' -> 'vllm'(?s:.)*move {arms_folder} away"):
        command(jobs=1, fresh=False)
    arms_folder.rename(here / "arms.before")
    monkeypatch.setattr(stages, "run", pytest.fail)
    command(jobs=1, fresh=False)
    assert asked and {*results(here)["arms"]} == {"distilled", "untouched"}


def test_fresh_sets_the_arms_aside(here: Path) -> None:
    run = here / "run"
    ablate(load(here), run, AskedArms(arms=["untouched"], seeds=[0]), fresh=True)
    assert (run / "ablate" / "previous" / "arms" / "random" / "seed-1" / "train" / "reason" / "model").is_dir()
    assert not place(run, "random", 0).exists()


def test_fresh_that_was_stopped_and_is_given_again_keeps_the_finished_arms(tmp_path: Path) -> None:
    ablation = tmp_path / "ablate"
    finished = ablation / "previous" / "arms" / "distilled" / "seed-0" / "eval" / "manifest.json"
    write_text(finished, "{}")
    for name in ("arms/distilled/seed-0/train/align/settings.json", "shared/train-a/manifest.json", "power.json"):
        write_text(ablation / name, "{}")
    runner._set_aside(ablation)
    assert finished.is_file() and [path.name for path in ablation.iterdir()] == ["previous"]


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE, encoding="utf-8")
    with pytest.raises(StaleError, match=r"distilled: no seed is finished; run `distill ablate"):
        report_finished(load(tmp_path), tmp_path / "run")


def test_an_unknown_arm_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE, encoding="utf-8")
    with pytest.raises(RecipeError, match="no arm 'cheaper'"):
        ablate(load(tmp_path), tmp_path / "run", AskedArms(arms=["cheaper"]))
    with pytest.raises(RecipeError, match=r"--study size.*its studies: choice"):
        ablate(load(tmp_path), tmp_path / "run", AskedArms(study="size"))
    assert not (tmp_path / "run").exists()


def test_the_reference_failing_ends_the_command(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(recipe: Recipe, run: Path, job: Job, *_: object) -> None:
        raise DataError(f"{job.arm} has nothing to learn")

    monkeypatch.setattr(runner, "run_job", fails)
    with pytest.raises(DataError, match="distilled has nothing"):
        ablate(load(here), here / "run")


def test_the_command_prints_arms_claims_and_what_was_left_out(here: Path) -> None:
    shown = CliRunner().invoke(app, ["ablate", str(here / "mine.toml"), "--run", str(here / "run"), "--report"])
    assert shown.exit_code == 0, shown.output
    for text in ("untouched", "over distilled, points", "Chosen traces teach more", "report.html"):
        assert text in shown.output
    page = (here / "run" / "ablate" / "report.html").read_text(encoding="utf-8")
    assert "Does choosing help?" in page


@pytest.fixture(scope="module")
def outcomes() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "evaluate" / "study_outcomes.py")))


def test_kept_outcomes_give_the_same_table_as_the_run(
    finished: Path, outcomes: SimpleNamespace, tmp_path: Path
) -> None:
    recipe, run, kept = load(finished), finished / "run", tmp_path / "kept"
    outcomes.keep.__globals__["REPLIES"] = 4  # fewer than the questions
    written = outcomes.keep(recipe, run, kept)
    assert "distilled, seed 1" in written and outcomes.keep(recipe, run, kept) == []
    outcomes.write_results(recipe, tmp_path / "again", kept)
    again = orjson.loads((tmp_path / "again" / "ablate" / RESULTS).read_bytes())
    own = results(finished)
    studied = {name: own["arms"][name] for name in ("distilled", "random")}  # only arms of studies are kept
    assert again["arms"] == studied | {"random": again["arms"]["random"]}
    assert again["studies"]["choice"]["claims"][0]["better"] == "distilled"
    assert again["arms"]["random"]["effect"]["by_seed"] == own["arms"]["random"]["effect"]["by_seed"]
    assert (tmp_path / "again" / "ablate" / "report.html").is_file()


def test_arms_of_other_traces_are_not_kept_beside_those_of_a_seed(
    finished: Path, outcomes: SimpleNamespace, tmp_path: Path
) -> None:
    recipe, kept = load(finished), tmp_path / "kept"
    outcomes.keep(recipe, finished / "run", kept)
    path = kept / "seed-0" / "random.json"
    values = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps(values | {"identity": values["identity"] | {"traces": "others"}}))
    with pytest.raises(SystemExit, match="of other traces"):
        outcomes.keep(recipe, finished / "run", kept)


def test_the_dataset_of_an_arm_follows_the_labels_of_people(finished: Path, tmp_path: Path) -> None:
    rule = 'signals = ["answer", "human"]\nrules = [{ name = "human", drop = "human_verdict = \'wrong\'" }]\n'
    path, run = tmp_path / "mine.toml", tmp_path / "run"
    path.write_text(RECIPE.replace("[filter.select]", f"[filter]\n{rule}[filter.select]"), encoding="utf-8")
    shutil.copytree(finished / "run/generate", run / "generate")
    recipe, shared = loading.load(path), Shared(run / "ablate/shared")

    def traces(name: str) -> set[str]:
        """What the reference's first stage of traces would learn from, with the labels that are there now."""
        planned, folder = arms.arm(recipe, "distilled", seed=0), run / "ablate/arms" / name
        runner._keep_labels(run)
        arm_job._link_traces(recipe, planned.recipe, run, folder, unwatched)
        arm_job._filter(planned.recipe, run, folder, shared, unwatched)
        files = sorted((folder / "filter/dataset/train").glob("*.parquet"))
        return {trace for file in files for trace in pq.read_table(file)["trace_id"].to_pylist()}

    unlabelled = traces("first")
    wrong = sorted(unlabelled)[:3]
    with closing(LabelJournal(run)) as journal:
        for trace in wrong:
            journal.add({"trace": trace, "label": "wrong"})
    assert not traces("second") & {*wrong}
    assert not traces("first") & {*wrong}  # the arm has a new dataset
    shutil.rmtree(run / "labels")
    assert traces("third") == unlabelled
