"""`distill ablate`: train and measure every arm of an ablation once a seed, sharing what arms have in common.

The run directory of an arm is a whole run: its recipe, traces, dataset, students and evaluation. Traces come from the
run itself; datasets, stages and evaluations made from the same settings are made once and linked
(distill/artifacts/stage_cache.py). After an interruption the same command goes on where it stopped.
distill/ablation/arms.py says what arms change; distill/ablation/results.py compares them.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distill import packages
from distill.ablation import results
from distill.ablation.arm_job import EMBEDDED, ArmSteps, Job, made_otherwise, place, run_job, seed_folders
from distill.ablation.arm_result import ArmResult, outcome
from distill.ablation.arms import arm, changes, needed, possible, stage_under_study, untimed
from distill.ablation.costs import measured_folder
from distill.ablation.drafts import Impossible
from distill.ablation.failures import note_failure, noted_failures, own_failure, reasons
from distill.ablation.power import keep_statement, seed_names
from distill.artifacts.files import atomic_path, locked, write_text
from distill.artifacts.layout import ABLATE, ARMS, POWER, RECIPE, SHARED, model_folder
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.errors import (
    ArmsFailed,
    DataError,
    DataOverlap,
    DistillError,
    NothingKept,
    RecipeError,
    StaleError,
    TooFewRows,
)
from distill.jobs import JobPool
from distill.local_paths import run_command
from distill.machine import gpu_memory
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import REFERENCE, Study
from distill.recipe.sections.stages import lineage
from distill.teacher_fits import Fits, fit_values
from distill.trace_records.human_labels import FILE as LABELS_FILE
from distill.types import Progress, ProgressCallback, unwatched
from distill.word_tables import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedArms:
    """The arms and seeds that a command names; default: the arms and seeds of the recipe."""

    arms: Sequence[str] = ()
    study: str | None = None
    """The arms of this study, in the place of `arms`."""
    seeds: Sequence[int] = ()

    def seeds_of(self, recipe: Recipe) -> tuple[int, ...]:
        """The seeds to train with, each once."""
        return tuple(dict.fromkeys(self.seeds or recipe.ablate.seeds))


def ablate(
    recipe: Recipe,
    run: Path,
    asked: AskedArms = AskedArms(),
    *,
    jobs: int = 1,
    fresh: bool = False,
    steps: ArmSteps = EMBEDDED,
    on_progress: ProgressCallback = unwatched,
) -> Path:
    """Run the arms; the folder with results and report.

    `jobs` arms are trained at a time, each by a process of its own. `fresh` sets earlier results aside.
    `steps.compare` looks at arms that change the data; one whose data leak is left out, with the reason. An arm that
    fails does not end the others: ArmsFailed is raised when they are finished and the results are written. Raises
    RecipeError for arms that there aren't, and what the reference failed with where it failed with every seed.
    """
    names, skipped = chosen(recipe, asked)
    folder = run / ABLATE
    with locked(folder):
        if fresh:
            _set_aside(folder)
        packages.require("distill ablate", *packages.TRAIN)  # before teachers are paid
        _generate(recipe, run, on_progress)
        _keep_labels(run)
        numbers = asked.seeds_of(recipe)
        if recipe.ablate.studies:
            keep_statement(recipe, folder, chosen(recipe, AskedArms())[0], numbers)
        left_out, failed = _Work(recipe, run, steps, on_progress).run_arms(names, numbers, jobs)
        _write_results(recipe, run, names, numbers, skipped | left_out, on_progress)
    if failed:
        listed = "; ".join(f"{job.arm}, seed {job.seed}" for job in failed)
        raise ArmsFailed(
            f"{counted(len(failed), 'training')} of {len(names) * len(numbers)} failed ({listed}); the reasons are "
            f"in the results. The same command{' without --fresh' if fresh else ''} tries only "
            f"{'it' if len(failed) == 1 else 'these'} again"
        )
    return folder


def report_finished(
    recipe: Recipe, run: Path, asked: AskedArms = AskedArms(), *, on_progress: ProgressCallback = unwatched
) -> Path:
    """The folder with results and report of the finished arms; trains nothing. Raises what `ablate` raises."""
    names, skipped = chosen(recipe, asked)
    folder = run / ABLATE
    with locked(folder):
        _write_results(recipe, run, names, asked.seeds_of(recipe), skipped, on_progress)
    return folder


def _write_results(
    recipe: Recipe,
    run: Path,
    names: Sequence[str],
    seeds: Sequence[int],
    skipped: Mapping[str, str],
    on_progress: ProgressCallback,
) -> None:
    """Write results and report of `names` and of the arms of studies, with the recipe's seeds and `seeds`."""
    folder, shown = run / ABLATE, {*recipe.ablate.seeds, *seeds}
    finished = finished_arms(recipe, run, names)
    others = sorted({seed for by_seed in finished.values() for seed in by_seed} - shown)
    skipped = dict(skipped) | {
        f"seed {seed}": f"finished, but not in ablate.seeds; --seed {seed} shows it too" for seed in others
    }
    of_shown = {
        name: kept
        for name, by_seed in finished.items()
        if (kept := {seed: result for seed, result in by_seed.items() if seed in shown})
    }
    result, outdated = _current(recipe, run, of_shown)
    if REFERENCE not in result:
        why = outdated.get(REFERENCE, "no seed is finished")
        raise StaleError(f"{folder}: {REFERENCE}: {why}; run {run_command('ablate', recipe.path, run)} first")
    for name in [name for name in result if not result[name].keys() & result[REFERENCE].keys()]:
        outdated[name] = f"{REFERENCE} is not finished with {seed_names(sorted(result.pop(name)))}; run it first"
    fits: Fits | DataError | None
    try:
        fits = teacher_fits(recipe, run, result, on_progress)
    except DataError as error:  # belongs to the studies that ask for them
        fits = error
    failed = {
        name: reasons(noted)
        for name, by_seed in noted_failures(run, [*names, *_studied(recipe)]).items()
        if (noted := {seed: by_seed[seed] for seed in by_seed.keys() & shown - result.get(name, {}).keys()})
    }
    left_out = dict(skipped) | {name: why for name, why in outdated.items() if name not in {*skipped, *failed}}
    results.write(recipe, folder, result, left_out, fits, failed=failed)


@dataclass(frozen=True, slots=True)
class _Work:
    """What the arms of an ablation are run with."""

    recipe: Recipe
    run: Path
    steps: ArmSteps
    on_progress: ProgressCallback

    def run_arms(
        self, names: Sequence[str], seeds: Sequence[int], processes: int
    ) -> tuple[dict[str, str], list[Job]]:
        """Run every arm with every seed; the arms that are left out, with reasons, and the jobs that failed.

        Raises what the reference failed with where it failed with every seed: there is nothing to compare then.
        """
        # The reference of a seed goes first: the others train as many steps as it did.
        first = [Job(REFERENCE, seed) for seed in seeds]
        # Seed by seed, so that arms of a study that is stopped have the same seeds.
        others = [Job(name, seed) for seed in seeds for name in names if name != REFERENCE]
        left_out: dict[str, dict[int, str]] = {}
        failed: list[Job] = []
        for done, (job, problem) in enumerate(self._run_jobs(first, others, processes), start=1):
            ended = ""
            if problem is not None and _is_left_out(job, problem):
                left_out.setdefault(job.arm, {})[job.seed] = str(problem)
            elif problem is not None:
                failed.append(job)
                note_failure(self.run, job, problem)
                ended = " failed"
                if set(first) <= set(failed):
                    raise problem
            facts = {"last": f"{job.arm}, seed {job.seed}{ended}"}
            total = len(first) + len(others)
            self.on_progress(Progress(stage="ablate", done=done, total=total, unit="arms", facts=facts))
        return {name: reasons(by_seed, len(seeds)) for name, by_seed in left_out.items()}, failed

    def _run_jobs(
        self, first: Sequence[Job], others: Sequence[Job], processes: int
    ) -> Iterator[tuple[Job, DistillError | None]]:
        """Run jobs, several at a time; yields each job when it ends, with its error if it failed."""
        if processes == 1:
            for job in (*first, *others):
                problem = None
                try:
                    run_job(self.recipe, self.run, job, self.steps, self.on_progress)
                except Exception as error:
                    problem = own_failure(self.run, job, error)
                    if problem is None:
                        raise
                if problem is not None:
                    gpu_memory.free_unused()
                yield job, problem
            return
        with JobPool(processes, self.on_progress) as pool:
            for job in first:
                pool.submit(job, run_job, self.recipe, self.run, job, self.steps)
            for name, future in pool.results():
                assert isinstance(name, Job)
                ended_with = future.exception()
                problem = None if ended_with is None else own_failure(self.run, name, ended_with)
                if ended_with is not None and problem is None:
                    raise ended_with
                yield name, problem
                for following in others:
                    if (needed(following.arm), following.seed) == (name.arm, name.seed):
                        pool.submit(following, run_job, self.recipe, self.run, following, self.steps)


def _is_left_out(job: Job, problem: DistillError) -> bool:
    """Whether an arm that is not the reference has nothing to learn from, or may not learn from it."""
    return job.arm != REFERENCE and isinstance(problem, Impossible | NothingKept | TooFewRows | DataOverlap)


def _set_aside(folder: Path) -> None:
    """Move arms, their shared parts and the statement of power to `previous`, over older ones; links stay valid.

    If no arm is finished, for example after a command was stopped after --fresh, the arms in `previous` stay.
    """
    previous = folder / "previous"
    is_finished = any((folder / ARMS).glob(f"*/seed-*/eval/{MANIFEST}"))
    if not is_finished and (previous / ARMS).exists():
        previous = folder / ".unfinished"
    shutil.rmtree(previous, ignore_errors=True)
    for name in (ARMS, SHARED, POWER):
        if (folder / name).exists():
            previous.mkdir(exist_ok=True)
            (folder / name).rename(previous / name)
    shutil.rmtree(folder / ".unfinished", ignore_errors=True)


def chosen(recipe: Recipe, asked: AskedArms) -> tuple[list[str], dict[str, str]]:
    """The arms to run, the reference first, and why arms that are ready but not asked for by name are left out."""
    settings = recipe.ablate
    skipped: dict[str, str] = {}
    if asked.study is not None:
        names = list(_study(recipe, asked.study).arms)
    elif asked.arms or settings.arms:
        names = list(asked.arms or settings.arms)
    elif settings.studies:
        names = _studied(recipe)
    else:
        names, skipped = possible(recipe)
    names = list(dict.fromkeys(each for name in [REFERENCE, *names] for each in (untimed(name), name)))
    for name in names:
        arm(recipe, name, seed=recipe.seed)  # raises for what cannot be done, before anything is
    return names, skipped


def _study(recipe: Recipe, name: str) -> Study:
    if name not in recipe.ablate.studies:
        studies = ", ".join(recipe.ablate.studies) or "none"
        raise RecipeError(f"--study {name}: {recipe.path} has no [ablate.studies.{name}]; its studies: {studies}")
    return recipe.ablate.studies[name]


def finished_arms(recipe: Recipe, run: Path, names: Sequence[str] = ()) -> dict[str, dict[int, ArmResult]]:
    """The results of the finished arms among `names` and the recipe's studies: arm to seed to result."""
    every = dict.fromkeys([*names, *_studied(recipe)])
    return {name: result for name in every if (result := _outcomes(recipe, run, name))}


def _studied(recipe: Recipe) -> list[str]:
    """The arms of all studies of a recipe."""
    return [name for study in recipe.ablate.studies.values() for name in study.arms]


def _current(
    recipe: Recipe, run: Path, finished: Mapping[str, Mapping[int, ArmResult]]
) -> tuple[dict[str, dict[int, ArmResult]], dict[str, str]]:
    """The arms that the current recipe would make, and why others are left out."""
    result: dict[str, dict[int, ArmResult]] = {}
    outdated: dict[str, str] = {}
    for name, by_seed in finished.items():
        other = {seed: why for seed in by_seed if (why := made_otherwise(recipe, run, Job(name, seed)))}
        if other:
            folder = run / ABLATE / ARMS / name
            outdated[name] = f"{reasons(other, len(by_seed))}; move {folder} away, and run the arm again"
        if current := {seed: found for seed, found in by_seed.items() if seed not in other}:
            result[name] = current
    return result, outdated


def _generate(recipe: Recipe, run: Path, on_progress: ProgressCallback) -> None:
    from teacher.generate import generate

    if not (run / RECIPE).exists():
        write_text(run / RECIPE, recipe.to_toml())
    generate(recipe, run, on_progress=on_progress)


def _keep_labels(run: Path) -> None:
    """Keep the labels that people gave traces until now: all arms of a command have the same."""
    kept = run / ABLATE / LABELS_FILE
    if (run / LABELS_FILE).is_file():
        with atomic_path(kept) as temporary:
            shutil.copyfile(run / LABELS_FILE, temporary)
    else:
        kept.unlink(missing_ok=True)


def _outcomes(recipe: Recipe, run: Path, name: str) -> dict[int, ArmResult]:
    """The results of one arm, by the seeds that are finished."""
    result = {}
    for seed, folder in seed_folders(run / ABLATE / ARMS / name).items():
        planned = arm(recipe, name, seed=seed)
        if Manifest.read(measured_folder(planned, folder) / "eval") is not None:
            result[seed] = outcome(planned, folder, changes(recipe, planned.recipe))
    return result


def teacher_fits(
    recipe: Recipe,
    run: Path,
    result: Mapping[str, Mapping[int, ArmResult]],
    on_progress: ProgressCallback = unwatched,
) -> Fits | None:
    """How each teacher's traces fit the student before it learns from any; None where no study asks."""
    asked = [study for study in recipe.ablate.studies.values() if study.kind == "teacher_fit"]
    before = lineage(recipe.stages, stage_under_study(recipe))[-2:-1]
    if not before or not any(set(study.arms) <= set(result) for study in asked):
        return None
    reference = place(run, REFERENCE, min(result[REFERENCE]))
    return fit_values(
        recipe,
        reference,
        model_folder(reference, before[0].name),
        folder=run / ABLATE / "fit",
        on_progress=on_progress,
    )
