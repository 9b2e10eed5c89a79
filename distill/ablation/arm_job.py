"""One arm of an ablation with one seed: its dataset, its stages, its rounds and its evaluation.

The run directory of an arm is a whole run. What arms have in common is made once and linked
(distill/artifacts/stage_cache.py). After an interruption the same job goes on where it stopped.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from distill.ablation.arms import arm, stage_under_study, untimed
from distill.ablation.costs import measured_folder, seconds
from distill.ablation.drafts import Arm, Budget, Impossible
from distill.ablation.shared_traces import traces_run
from distill.artifacts.files import write_json, write_text
from distill.artifacts.layout import ABLATE, ARMS, FAILED, RECIPE, SHARED, by_number
from distill.artifacts.manifest import Manifest, differences, fingerprint, flatten
from distill.artifacts.stage_cache import Shared, make_link
from distill.data import reader
from distill.data.sources import is_there
from distill.errors import DistillError
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import EQUAL_SECONDS, REFERENCE
from distill.recipe.sections.stages import Stage, is_traces, sources_of
from distill.rounds.make_round import RoundSteps, make_round
from distill.trace_records.human_labels import FILE as LABELS_FILE
from distill.trace_records.human_labels import read_labels
from distill.trackers import tracked
from distill.types import Progress, ProgressCallback, unwatched

SECONDS = "seconds.json"
"""In the run directory of an arm at equal seconds: what it may train, and the seconds that this follows from."""


def uncompared(recipe: Recipe, run: Path) -> None:
    """The data of an arm are not compared."""


def evaluate_embedded(recipe: Recipe, run: Path, *, on_progress: ProgressCallback) -> Manifest:
    """An evaluation whose students all answer in this process; RecipeError for others."""
    from student.evaluate import evaluate

    return evaluate(recipe, run, on_progress=on_progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSteps:
    """What an arm is made with that is not known here."""

    compare: Callable[[Recipe, Path], object] = uncompared
    """Raises DataError where training data of a recipe stand in its evaluation data."""
    evaluate: Callable[..., Manifest] = evaluate_embedded
    """Asks students, also those that are served; takes what `evaluate_embedded` takes."""


EMBEDDED = ArmSteps()
"""Steps that compare nothing and ask embedded students alone."""


@dataclass(frozen=True, slots=True)
class Job:
    """One arm trained with one seed."""

    arm: str
    seed: int


def place(run: Path, name: str, seed: int) -> Path:
    """The run directory of an arm."""
    return run / ABLATE / ARMS / name / f"seed-{seed}"


def seed_folders(arm_folder: Path) -> dict[int, Path]:
    """The run directories of an arm by seed; copies beside them, such as seed-0.old, do not belong to the arm."""
    folders = sorted(arm_folder.glob("seed-*"), key=by_number)
    return {int(text): path for path in folders if (text := path.name.removeprefix("seed-")).isdecimal()}


def run_job(
    recipe: Recipe, run: Path, job: Job, steps: ArmSteps = EMBEDDED, on_progress: ProgressCallback = unwatched
) -> None:
    """Filter, train and measure one arm, or find that it is done."""
    from filters.dataset.ablation_sets import materialise_stages
    from student.evaluate import identity

    def watched(progress: Progress) -> None:
        on_progress(replace(progress, stage=f"{job.arm} {job.seed}: {progress.stage}"))

    planned = arm(recipe, job.arm, seed=job.seed, budget=_budget(recipe, run, job))
    folder = place(run, job.arm, job.seed)
    shared = Shared(run / ABLATE / SHARED)
    write_text(folder / RECIPE, planned.recipe.to_toml())
    (folder / FAILED).unlink(missing_ok=True)
    if _data_of(planned.recipe) != _data_of(recipe):
        steps.compare(planned.recipe, folder)
    _link_traces(recipe, planned.recipe, run, folder, watched)
    stages = planned.recipe.stages
    if any(is_traces(stage) for stage in stages):
        _filter(planned.recipe, run, folder, shared, watched)
        materialise_stages(planned.recipe, folder)
    if stages:
        _train(planned.recipe, run, folder, shared, partial(steps.evaluate, on_progress=watched), watched)
    if planned.rounds:
        _make_rounds(planned, folder, steps, watched)
        return
    key = f"eval-{identity(planned.recipe, folder)[:16]}"
    shared.link(key, folder / "eval")
    with tracked(planned.recipe, folder, "eval", watched) as report:
        steps.evaluate(planned.recipe, folder, on_progress=report)
    shared.keep(key, folder / "eval")


def made_otherwise(recipe: Recipe, run: Path, job: Job) -> str:
    """Why a finished arm is not what the recipe says now, with the settings that differ; empty where it is.

    No message for an arm whose data or weights are not there any more: its settings alone cannot be compared.
    """
    from student.evaluate import evaluation_fields
    from student.train import stage_fields

    folder = place(run, job.arm, job.seed)
    try:
        planned = arm(recipe, job.arm, seed=job.seed, budget=_budget(recipe, run, job))
        read = {name for stage in planned.recipe.stages for name in sources_of(stage)}
        if not all(is_there(planned.recipe, name) for name in read):
            return ""
        made = stage_fields(planned.recipe, folder) if planned.recipe.stages else {}
        parts = {Path("train", name): fields for name, fields in made.items()}
        parts[Path("filter")] = flatten(_filter_settings(planned.recipe), "filter")
        if not planned.rounds:  # the evaluation of the last round has a recipe of its own
            parts[Path("eval")] = evaluation_fields(planned.recipe, folder)
        manifests = {part: Manifest.read(folder / part) for part in parts}
    except DistillError:
        return ""
    lines = [differences(_of_part(part, each), parts[part]) for part, each in manifests.items() if each is not None]
    changed = "; ".join(line.strip() for text in lines for line in text.splitlines())
    if not changed and _has_other_traces(recipe, planned.recipe, run, folder):
        changed = "those of its teachers"
    return changed and f"made with other settings than the recipe has now ({changed})"


def _filter_settings(recipe: Recipe) -> dict[str, Any]:
    """What rules and signals are made with; the manifest names signals of the user's own otherwise."""
    return {name: value for name, value in affecting(recipe.filter, "filter").items() if name != "signals"}


def _of_part(part: Path, made: Manifest) -> Mapping[str, Any]:
    """The recorded settings of a part that are compared: for a filter the settings of the recipe, for other parts
    all."""
    if part != Path("filter"):
        return made.fields
    return {key: value for key, value in made.fields.items() if key.startswith("filter.") and key != "filter.signals"}


def _has_other_traces(recipe: Recipe, changed: Recipe, run: Path, folder: Path) -> bool:
    """Whether an arm is linked to traces of other settings than it has now; its teachers may be gone."""
    link = folder / "generate"
    try:
        own = traces_run(recipe, _seeded(recipe, changed), run, run / ABLATE / SHARED)
    except DistillError:
        return False
    return link.is_symlink() and link.resolve() != (own / "generate").resolve()


def _seeded(recipe: Recipe, changed: Recipe) -> Recipe:
    """An arm's recipe with the seed of the traces, which never depend on the seed of a training."""
    return changed.model_copy(update={"seed": recipe.seed})


def _data_of(recipe: Recipe) -> tuple[Any, ...]:
    """The data that a recipe trains and evaluates on."""
    stages = [
        (stage.data, set(stage.replay), stage.validation.data if stage.validation else None)
        for stage in recipe.stages
    ]
    return recipe.data, recipe.eval.data, recipe.filter.contamination.sources, stages


def _trained(run: Path) -> dict[str, Path]:
    """The trained stages of the run, by fingerprint."""
    stages = [path.parent for path in (run / "train").glob("*/manifest.json")]
    return {manifest.fingerprint: stage for stage in stages if (manifest := Manifest.read(stage)) is not None}


def _budget(recipe: Recipe, run: Path, job: Job) -> Budget | None:
    """Steps and tokens of the reference with the same seed, and what an arm may train in its seconds.

    Raises Impossible where the reference or the arm without the limit is not finished, or where that arm asks more
    beside its training than the reference takes in all.
    """
    if job.arm == REFERENCE:
        return None
    reference = place(run, REFERENCE, job.seed)
    trained = {
        stage.name: manifest
        for stage in recipe.stages
        if (manifest := Manifest.read(reference / "train" / stage.name)) is not None
    }
    if stage_under_study(recipe) not in trained:
        raise Impossible(f"{REFERENCE}, seed {job.seed}, is not finished, and its length is not known")
    budget = Budget(
        steps={name: manifest.counts["steps"] for name, manifest in trained.items()},
        tokens={name: manifest.tokens["trained"] for name, manifest in trained.items()},
    )
    if (free := untimed(job.arm)) == job.arm:
        return budget
    return replace(budget, share=_share_in_seconds(recipe, run, Job(free, job.seed), budget))


def _share_in_seconds(recipe: Recipe, run: Path, free: Job, budget: Budget) -> float:
    """The share of an arm's length that it trains in the seconds of the reference; noted once: seconds vary."""
    path = place(run, f"{free.arm}{EQUAL_SECONDS}", free.seed) / SECONDS
    folder, studied = place(run, free.arm, free.seed), stage_under_study(recipe)
    planned = arm(recipe, free.arm, seed=free.seed, budget=budget)
    measured = Manifest.read(measured_folder(planned, folder) / "eval")
    if measured is None:
        raise Impossible(f"{free.arm}, seed {free.seed}, is not finished, and its seconds are not known")
    if path.is_file() and (noted := orjson.loads(path.read_bytes()))["of"] == measured.fingerprint:
        return float(noted["share"])
    reference = seconds(arm(recipe, REFERENCE, seed=free.seed), place(run, REFERENCE, free.seed), studied)
    own = seconds(planned, folder, studied)
    left = reference.total - own.before - own.method
    if left <= 0:
        raise Impossible(
            f"{free.arm} asks its student and teachers for {own.method:,.0f} s, and {REFERENCE} takes only "
            f"{reference.total:,.0f} s in all; there is no time left to train"
        )
    share = left / own.training
    write_json(path, {"of": measured.fingerprint, "share": share, "reference": asdict(reference), "arm": asdict(own)})
    return share


def _train(
    recipe: Recipe,
    run: Path,
    folder: Path,
    shared: Shared,
    ask: Callable[[Recipe, Path], Any],
    on_progress: ProgressCallback,
) -> None:
    """Train the stages of an arm, those that another arm has trained left out."""
    from distill.wiring.rollouts import prepare_rollouts
    from distill.wiring.scored_traces import note_scorers, reuse_scores, score_stages
    from student.train import stage_fields, train

    note_scorers(recipe, folder)
    made = {name: fingerprint(fields) for name, fields in stage_fields(recipe, folder).items()}
    # A stage of rollouts stays where its replies are.
    keys = {stage.name: f"train-{made[stage.name][:16]}" for stage in recipe.stages if stage.rollouts is None}
    trained_stages = _trained(run)
    for name, key in keys.items():
        if made[name] in trained_stages:
            shared.copy(key, trained_stages[made[name]])
        shared.link(key, folder / "train" / name)
    reuse_scores(run, folder)
    score_stages(recipe, folder, on_progress=on_progress)
    reuse_scores(folder, run)

    def before(stage: Stage) -> None:
        if stage.rollouts is not None:
            prepare_rollouts(recipe, folder, stage, ask, on_progress)

    train(recipe, folder, before=before, on_progress=on_progress)
    for name, key in keys.items():
        shared.keep(key, folder / "train" / name)


def _make_rounds(planned: Arm, folder: Path, steps: ArmSteps, on_progress: ProgressCallback) -> None:
    """The rounds of an arm after its round 0; the student of the last one is evaluated."""
    from distill.wiring.model_signals import measurers
    from distill.wiring.scored_traces import note_scorers, score_stages
    from filters.apply import apply
    from student.train import train
    from teacher.generate import generate

    ask = partial(steps.evaluate, on_progress=on_progress)

    def generate_round(recipe: Recipe, run: Path) -> None:
        write_text(run / RECIPE, recipe.to_toml())
        generate(recipe, run, on_progress=on_progress)

    def train_round(recipe: Recipe, run: Path) -> None:
        steps.compare(recipe, run)
        note_scorers(recipe, run)
        score_stages(recipe, run, on_progress=on_progress)
        train(recipe, run, on_progress=on_progress)
        if run == measured_folder(planned, folder):
            ask(recipe, run)

    round_steps = RoundSteps(
        ask=ask,
        generate=generate_round,
        filter_traces=lambda recipe, run: apply(
            recipe, run, measurers=measurers(recipe, run), on_progress=on_progress
        ),
        train=train_round,
    )
    for number in range(1, planned.rounds + 1):
        made = make_round(planned.recipe, folder, number, round_steps)
        if made.ended:
            raise Impossible(made.ended)


def _link_traces(recipe: Recipe, changed: Recipe, run: Path, folder: Path, on_progress: ProgressCallback) -> None:
    """The traces of the run; an arm that changes what teachers do has traces of its own."""
    from teacher.generate import generate

    changed = _seeded(recipe, changed)
    own = traces_run(recipe, changed, run, run / ABLATE / SHARED)
    if own != run:
        generate(changed, own, on_progress=on_progress)
    link = folder / "generate"
    if not link.exists() or (link.is_symlink() and link.resolve() != (own / "generate").resolve()):
        make_link(own / "generate", link)


def _filter(recipe: Recipe, run: Path, folder: Path, shared: Shared, on_progress: ProgressCallback) -> None:
    """The dataset of an arm: an existing one, or a new one that reuses the signals of another arm or of the run."""
    from distill.wiring.model_signals import measurers
    from filters.apply import apply

    generated = Manifest.read(folder / "generate")
    assert generated is not None
    traces = generated.fingerprint[:12]
    settings = {
        "filter": affecting(recipe.filter, "filter") | affecting(recipe.filter, "card"),
        "data": {name: reader.source_fields(recipe, name) for name in (recipe.eval.data,) if name in recipe.data},
        "seed": recipe.seed,
        **_labels(recipe, run, folder),
    }
    key = f"filter-{traces}-{fingerprint(settings)[:16]}"
    target = folder / "filter"
    previous = folder / "filter.previous"
    for left in (target, previous):  # links to what an interrupted command began with
        if left.is_symlink():
            left.unlink()
    begun = False
    if not shared.link(key, target) and not target.exists():
        similar = sorted(shared.folder.glob(f"filter-{traces}-*"))
        begun = any(shared.link(similar_stage.name, target) for similar_stage in similar)
        own = Manifest.read(run / "filter")
        if not begun and own is not None and own.inputs.get("generate") == generated.fingerprint:
            make_link(run / "filter", target)
            begun = True
    apply(recipe, folder, fresh=begun, measurers=measurers(recipe, folder), on_progress=on_progress)
    if previous.is_symlink():
        previous.unlink()
    shared.keep(key, target)


def _labels(recipe: Recipe, run: Path, folder: Path) -> dict[str, str]:
    """Give an arm the labels that people gave traces, where its filter reads them; what identifies them."""
    from filters.run_signals import human_verdicts

    if "human" not in recipe.filter.signals or not (labels := read_labels(run / ABLATE)):
        return {}
    make_link((run / ABLATE / LABELS_FILE).parent, (folder / LABELS_FILE).parent)
    return human_verdicts.identity(labels)
