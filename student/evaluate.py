"""The eval verb: what the students of several stages answer to held-out questions, judged and compared.

Every arm answers every question once, greedily. Predictions are journaled, so an interrupted evaluation goes on
where it stopped. Does not draw the report (student/report.py) or decide what is correct (distill.answers).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from distill import data
from distill.artifacts import (
    Journal,
    Manifest,
    atomic_path,
    begin,
    canonical,
    describe,
    fingerprint,
    finished,
    flatten,
    locked,
    read_jsonl,
    require,
    set_aside,
    versions,
    write_bytes,
)
from distill.errors import DataError, RecipeError
from distill.recipe import Recipe
from distill.types import Progress, ProgressCallback, Sample, unwatched
from student import figures, report
from student import stage as stages
from student.judging import Prediction, judged
from student.rows import NO_THINK, is_traces
from student.train import model_folder

PREDICTIONS, METRICS, REPORT, SETTINGS = "predictions.jsonl", "metrics.json", "report.html", "settings.json"


def evaluate(
    recipe: Recipe, run: Path, *, fresh: bool = False, on_progress: ProgressCallback = unwatched
) -> Manifest:
    """Answer, judge, compare, report. Raises StaleError when an arm's stage is unfinished or settings changed."""
    begun = time.perf_counter()
    arms = arms_of(recipe)
    first = f"run `distill train {recipe.path}` first"
    trained = {arm: require(run / "train", stage, next_step=first) for arm, stage in arms.items()}
    folder = run / "eval"
    fields = {
        **flatten(recipe.eval.model_dump(mode="json", exclude={"gallery", "arms"}), "eval"),
        **{f"eval.arms.{arm}": arms[arm] for arm in arms},
        **{f"students.{arm}": manifest.fingerprint for arm, manifest in trained.items()},
        **flatten(data.source_fields(recipe, recipe.eval.data), f"data.{recipe.eval.data}"),
        "filter.rationale": recipe.filter.rationale,
        "filter.answer.relative_tolerance": recipe.filter.answer.relative_tolerance,
        "seed": recipe.seed,
    }
    with locked(run):
        if fresh:
            set_aside(folder)
        remedy = "take the change back, or evaluate anew with --fresh"
        manifest = finished(folder, fields, remedy=remedy)
        if manifest is not None and manifest.counts.get("gallery") == recipe.eval.gallery:
            return manifest
        samples = _questions(recipe)
        if manifest is None:
            _answer(recipe, run, arms, fields, samples, on_progress, remedy)
        predictions = _ordered(folder / PREDICTIONS, arms, samples)
        metrics = figures.measure(
            {arm: [line for line in predictions if line["arm"] == arm] for arm in arms},
            seed=recipe.seed,
            facts={arm: _facts(stage, trained[arm]) for arm, stage in arms.items()},
        )
        # In the order of the arms, not of the alphabet: the file is read by people too.
        write_bytes(folder / METRICS, orjson.dumps(metrics, option=orjson.OPT_INDENT_2) + b"\n")
        report.write(recipe, folder / REPORT, metrics, predictions, samples)
        outputs = {name: describe(folder / name) for name in (METRICS, REPORT)}
        (folder / SETTINGS).unlink(missing_ok=True)
        return Manifest(
            stage="eval",
            fingerprint=fingerprint(fields),
            fields=fields,
            inputs={arm: manifest.fingerprint for arm, manifest in trained.items()},
            outputs={PREDICTIONS: describe(folder / PREDICTIONS, len(predictions)), **outputs},
            counts={
                "arms": len(arms),
                "questions": len({prediction["sample_id"] for prediction in predictions}),
                "predictions": len(predictions),
                "gallery": recipe.eval.gallery,
            },
            tokens={"generated": sum(prediction["tokens"] for prediction in predictions)},
            versions=versions("torch", "transformers"),
            seconds=round(time.perf_counter() - begun, 3) if manifest is None else manifest.seconds,
        ).write(folder)


def arms_of(recipe: Recipe) -> dict[str, str]:
    """Arm to stage. Arms taught with rationales come last, so that `later-earlier` reads as their gain."""
    if not recipe.stages:
        raise RecipeError(f"{recipe.path}: evaluation needs the [[stages]] that made the students")
    by_name = {stage.name: stage for stage in recipe.stages}
    arms = dict(recipe.eval.arms) or {name: name for name in list(by_name)[1:] or list(by_name)}

    def taught(arm: str) -> bool:
        stage = by_name[arms[arm]]
        return is_traces(stage) and stage.target == "rationale"

    return {arm: arms[arm] for arm in sorted(arms, key=taught)}


def _questions(recipe: Recipe) -> list[Sample]:
    # A student of two modes is asked for its answers alone in the words that it learned (student/rows.py).
    ending = "" if recipe.eval.think else NO_THINK
    found = (sample for sample in data.samples(recipe, recipe.eval.data) if sample.answers)
    samples = [replace(sample, question=f"{sample.question}{ending}") for sample in found]
    if not samples:
        raise DataError(f"[data.{recipe.eval.data}]: no question has a gold answer; nothing can be judged")
    return samples


def _answer(
    recipe: Recipe,
    run: Path,
    arms: Mapping[str, str],
    fields: Mapping[str, Any],
    samples: Sequence[Sample],
    on_progress: ProgressCallback,
    remedy: str,
) -> None:
    """Complete the journal of predictions."""
    folder = run / "eval"
    # Predictions of an interrupted evaluation must have been made from the same settings.
    begin(folder / SETTINGS, fields, begun=(folder / PREDICTIONS).is_file(), remedy=remedy)
    session = stages.Session()
    with Journal(folder / PREDICTIONS) as journal:
        known = {(line["arm"], line["sample_id"]) for line in read_jsonl(folder / PREDICTIONS)}
        for arm, stage in arms.items():
            missing = {sample.id for sample in samples if (arm, sample.id) not in known}
            done = len(samples) - len(missing)
            if not missing:
                continue
            for found in _arm(recipe, run, stage, samples, missing, session):
                for sample, reply in found:
                    judgement = judged(
                        sample,
                        reply,
                        plain=recipe.filter.rationale == "plain",
                        relative_tolerance=recipe.filter.answer.relative_tolerance,
                    )
                    journal.append({"arm": arm, **judgement})
                done += len(found)
                on_progress(Progress(stage=f"eval {arm}", done=done, total=len(samples), unit="questions"))


def _arm(
    recipe: Recipe, run: Path, stage: str, samples: Sequence[Sample], missing: set[str], session: stages.Session
) -> Iterator[list[tuple[Sample, Prediction]]]:
    """Replies of one student, batch by batch. Batches don't depend on what is missing, so neither do replies."""
    import torch

    from student import generation, model, trainer
    from student.encode import Encoder
    from student.pictures import ImageStore

    assert recipe.student is not None
    settings = recipe.student
    with trainer.quiet():
        student, processor = model.load(
            str(model_folder(run, stage)), dtype=settings.dtype, trust_remote_code=settings.trust_remote_code
        )
        student.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    encoder = Encoder(processor, stages.end_ids(student))
    store = session.store = session.store or ImageStore(processor, getattr(torch, settings.dtype))
    max_pixels = recipe.data[recipe.eval.data].max_pixels
    for batch in generation.batches(
        encoder, store, samples, batch_size=recipe.eval.batch_size, max_pixels=max_pixels
    ):
        wanted = [place for place, _ in batch if samples[place].id in missing]
        if not wanted:
            continue
        with trainer.quiet():
            replies = generation.replies(
                student,
                processor,
                encoder,
                store,
                samples,
                batch,
                max_new_tokens=recipe.eval.max_new_tokens,
                max_pixels=max_pixels,
                type_name=stages.type_name(student),
            )
        found = zip((place for place, _ in batch), replies, strict=True)
        yield [(samples[place], asdict(reply)) for place, reply in found if samples[place].id in missing]


def _ordered(path: Path, arms: Mapping[str, str], samples: Sequence[Sample]) -> list[Prediction]:
    """All predictions in the order of arms and questions, and the file rewritten in that order."""
    place = {sample.id: position for position, sample in enumerate(samples)}
    turn = {arm: position for position, arm in enumerate(arms)}
    predictions = sorted(read_jsonl(path), key=lambda line: (turn[line["arm"]], place[line["sample_id"]]))
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"".join(canonical(line) + b"\n" for line in predictions))
    return predictions


def _facts(stage: str, manifest: Manifest) -> dict[str, Any]:
    """What the figures of an arm say of the stage that made it."""
    return {
        "stage": stage,
        "train_steps": manifest.counts["steps"],
        "train_tokens": manifest.tokens["trained"],
        "train_seconds": manifest.seconds,
    }
