"""The eval verb: asks students held-out questions, scores the replies and compares the students.

Every student is asked every question once, greedily, and once more without its images. Replies are journaled verbatim
(student/evaluation/collect_replies.py) and scored afterwards; they can be scored again at any time. Does not draw the
report (student/evaluation/report.py) or decide what is correct (distill.answers).
Programs call `distill.evaluate`: it also compares what was learned with the test data.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.files import describe, locked, write_bytes, write_json
from distill.artifacts.integrity import changed
from distill.artifacts.journal import write_jsonl
from distill.artifacts.layout import DIAGNOSIS, EVAL_METRICS, HEALTH, IMAGES, PREDICTIONS, REPORT, SETTINGS
from distill.artifacts.manifest import (
    MANIFEST,
    Manifest,
    changes,
    differences,
    fingerprint,
    read_noted,
    set_aside,
    versions,
)
from distill.data.source_images import ImagesRead, require_same_images
from distill.diagnosis import odd_images
from distill.diagnosis.row_groups import StepRows, read_rows_left
from distill.errors import DataError, StaleError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, lineage
from distill.reports import findings
from distill.types import Progress, ProgressCallback, Sample, unwatched
from student.evaluation import collect_replies, diagnosis, learned_rows, questions, report, side_by_side, students
from student.evaluation import metrics as eval_metrics
from student.evaluation.collect_replies import REPLIES, Engines
from student.evaluation.questions import Key, QuestionSet, Reply
from student.evaluation.served_students import Connect
from student.evaluation.students import EvaluatedStudent, fields_of_arms
from student.evaluation.user_metrics import own_values, user_metrics
from student.export.check_report import Serve
from student.inference.reply_metrics import Prediction
from student.inference.scoring import score_reply, with_unfinished_rationales

WITHOUT_IMAGE = "predictions_without_image.jsonl"
_STAGE_OF_ARM = "eval.arms."
_ARMS = (_STAGE_OF_ARM, "students.", "weights.")
"""Settings of single arms: one may come or go, and the replies of the others stay."""
_JUDGING = ("filter.", "metrics.")
"""Settings of the judging alone: where they change, the same replies are judged again."""


def evaluate(
    recipe: Recipe,
    run: Path,
    *,
    fresh: bool = False,
    on_progress: ProgressCallback = unwatched,
    jobs: int = 1,
    vllm: Callable[[], Serve] | None = None,
    connect: Connect | None = None,
) -> Manifest:
    """Ask, judge, compare, report.

    `jobs` students are asked at a time, each in a new process with its share of the cores, and its own card if there
    are several. A script that calls this needs `if __name__ == "__main__"`. `vllm` and `connect` ask students that
    are served (collect_replies.Engines). Raises StaleError when an arm's stage is unfinished or settings changed,
    another InputError for a student that cannot be asked, before any is.
    """
    started = time.perf_counter()
    arms = students.evaluated_students(recipe, run)
    folder = run / "eval"
    fields = fields_of_arms(recipe, arms)
    with locked(run):
        students.require_same_training_images(recipe, run, arms.values())
        if fresh:
            set_aside(folder)
        manifest = Manifest.read(folder)
        if manifest is not None:
            _require_same(folder, "was made from", manifest.fields, fields)
            require_same_images(recipe, folder)
            same = manifest.fingerprint == fingerprint(fields)
            is_measured = _settings_counts(recipe).items() <= manifest.counts.items()
            if same and is_measured and not changed(folder, manifest.outputs.items()):
                return manifest
        images = ImagesRead(recipe)
        samples, left_out = questions.read_questions(recipe)
        images.add(recipe.eval.data, [ref for sample in samples for ref in sample.images])
        rounds = questions.question_sets(recipe, samples)
        known = partial(collect_replies.read_replies, folder / REPLIES, arms.values())
        replies = known()
        seconds_of_replies = _embedded_seconds(recipe, arms, replies)
        if manifest is None and replies and (before := read_noted(folder / SETTINGS)) is not None:
            _require_same(folder, "was started with", before, fields)
        begin = partial(_write_settings, folder, fields)
        take_over = partial(side_by_side.take_over, recipe, folder, arms.values(), begin)
        if (seconds_before := take_over()) is not None:
            replies = known()
        sets = learned_rows.sets_of_arms(recipe, run, rounds)
        asked: Mapping[str, Sequence[QuestionSet]] = dict.fromkeys(arms, rounds)
        if manifest is None or questions.find_unfinished(arms, asked, replies):
            asked = sets  # a student that was asked everything is not loaded for its own rows alone
        if work := questions.find_unfinished(arms, asked, replies):
            ask = partial(side_by_side.ask_side_by_side, recipe, run, jobs, on_progress) if jobs > 1 else None
            engines = Engines(vllm=vllm, connect=connect, side_by_side=ask)
            collect_replies.collect_replies(recipe, folder, work, engines, begin, on_progress)
            take_over()
            replies = known()
        judged_rounds = [_score_replies(recipe, arms, each, replies, on_progress) for each in rounds]
        learned = _score_learned(recipe, arms, learned_rows.learned_set(sets), replies)
        images.write(folder)
        written = _write_results(recipe, folder, arms, judged_rounds, learned, samples, left_out)
        seconds = (seconds_before or 0.0) + (manifest.seconds if manifest is not None else seconds_of_replies)
        if work or manifest is None:
            seconds += time.perf_counter() - started
        finished = _manifest(recipe, folder, fields, arms, len(samples), written)
        tokens = _generated_tokens(arms, sets, replies)
        return replace(finished, tokens=tokens, seconds=round(seconds, 3)).write(folder)


def _embedded_seconds(recipe: Recipe, arms: Mapping[str, EvaluatedStudent], replies: Mapping[Key, Reply]) -> float:
    """The seconds of the replies of a stopped evaluation. Replies of a server overlap, so they do not count."""
    if recipe.eval.engine != "embedded":
        return 0.0
    embedded = {evaluated.identity for evaluated in arms.values() if evaluated.server is None}
    return float(sum(reply.get("seconds") or 0.0 for (student, *_), reply in replies.items() if student in embedded))


def identity(recipe: Recipe, run: Path) -> str:
    """Digest of all that an evaluation comes from; raises what `evaluate` does for a student that is not there."""
    return fingerprint({**evaluation_fields(recipe, run), "without_image": recipe.eval.without_image})


def evaluation_fields(recipe: Recipe, run: Path) -> dict[str, Any]:
    """What the manifest of an evaluation of the recipe's students holds; raises as `identity` does."""
    return fields_of_arms(recipe, students.evaluated_students(recipe, run))


def _settings_counts(recipe: Recipe) -> dict[str, int]:
    """Settings of metrics and report that are not in the fields of a manifest."""
    return {
        "gallery": recipe.eval.gallery,
        "measures": eval_metrics.MEASURES,
        "without_image": int(recipe.eval.without_image),
    }


def _require_same(folder: Path, verb: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise StaleError naming what changed, unless it is an arm that came or went, or about judging alone."""
    changed = [
        key
        for key in changes(before, now)
        if not key.startswith(_JUDGING)
        and not (key.startswith(_ARMS) and (key in before) != (key in now))
        and not _is_renamed(key, before, now)
    ]
    if changed:
        old, new = ({key: fields[key] for key in changed if key in fields} for fields in (before, now))
        raise StaleError(
            f"{folder} {verb} other settings:\n{differences(old, new)}",
            "undo the change, or evaluate again: `distill eval --fresh`",
        )


def _is_renamed(key: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a setting names the stage of an arm, whose student is the same."""
    student = f"students.{key.removeprefix(_STAGE_OF_ARM)}"
    return key.startswith(_STAGE_OF_ARM) and before.get(student) == now.get(student)


def _write_settings(folder: Path, fields: Mapping[str, Any]) -> None:
    """Write the settings of the replies to come; from here on the stage is unfinished."""
    write_json(folder / SETTINGS, fields)
    (folder / MANIFEST).unlink(missing_ok=True)


def _score_replies(
    recipe: Recipe,
    arms: Mapping[str, EvaluatedStudent],
    question_set: QuestionSet,
    replies: Mapping[Key, Reply],
    on_progress: ProgressCallback,
) -> dict[str, list[Prediction]]:
    """The judged replies of each arm to the questions that every arm could be asked, in the same order."""
    by_arm = {
        arm: {
            sample.id: replies[evaluated.identity, question_set.without_image, sample.id]
            for sample in question_set.samples
        }
        for arm, evaluated in arms.items()
    }
    common = [
        sample
        for sample in question_set.samples
        if not any("unasked" in of_arm[sample.id] for of_arm in by_arm.values())
    ]
    if not common:
        raise DataError(
            f"[data.{recipe.eval.data}]: no question can be asked to every student; each question contains the "
            "image placeholder of a student"
        )
    judged = {arm: _judged(recipe, arm, common, of_arm) for arm, of_arm in by_arm.items()}
    if own := user_metrics(recipe):
        name = f"eval: metrics of your own{' without images' if question_set.without_image else ''}"
        pairs = [pair for of_arm in judged.values() for pair in zip(common, of_arm, strict=True)]
        for done, (sample, prediction) in enumerate(pairs):
            on_progress(Progress(stage=name, done=done, total=len(pairs), unit="replies"))  # one may take seconds
            prediction.update(own_values(own, sample, prediction))
        on_progress(Progress(stage=name, done=len(pairs), total=len(pairs), unit="replies"))
    return judged


def _judged(recipe: Recipe, arm: str, samples: Sequence[Sample], replies: Mapping[str, Reply]) -> list[Prediction]:
    """The replies of one student, by question, compared with the gold answers."""
    style = recipe.filter.rationale
    replies = with_unfinished_rationales(replies, style)
    judge = partial(
        score_reply,
        plain=style == "plain",
        relative_tolerance=recipe.filter.answer.relative_tolerance,
        table=recipe.filter.grounding.table,
        reading_tolerance=recipe.filter.grounding.relative_tolerance,
    )
    return [{"arm": arm, **judge(sample, replies[sample.id])} for sample in samples]


def _score_learned(
    recipe: Recipe, arms: Mapping[str, EvaluatedStudent], learned: QuestionSet | None, replies: Mapping[Key, Reply]
) -> list[Prediction]:
    """The judged replies of the diagnosed student to rows that it learned, against the answers that it learned."""
    if learned is None:
        return []
    arm, _ = learned_rows.diagnosed_arm(recipe)
    keys = {sample.id: (arms[arm].identity, False, sample.id) for sample in learned.samples}
    known = {name: replies[key] for name, key in keys.items() if "unasked" not in replies.get(key, {"unasked": ""})}
    return _judged(recipe, arm, [sample for sample in learned.samples if sample.id in known], known)


def _diagnose(
    recipe: Recipe,
    run: Path,
    metrics: Mapping[str, Any],
    replies: Mapping[str, Sequence[Prediction]],
    learned_replies: Sequence[Prediction],
    samples: Sequence[Sample],
) -> list[findings.Finding]:
    """The findings about the last arm that a stage trained; about the last arm where no stage trained one."""
    arms = metrics["arms"]
    arm, stage = learned_rows.diagnosed_arm(recipe)
    learned = None
    if stage is not None and (trained := Manifest.read(run / "train" / stage.name)) is not None:
        own = trained.counts["rows"] - trained.counts.get("replayed", 0)
        own_tokens = trained.tokens.get("own_response")  # earlier versions did not count them
        learned = own_tokens / own if own_tokens is not None else None
    before = list(arms)[: list(arms).index(arm)]
    images = [ref for sample in samples for ref in sample.images]
    return diagnosis.diagnose(
        diagnosis.StudentFacts(
            recipe=recipe,
            arm=arm,
            metrics=arms[arm],
            deltas={name: metrics["deltas"][f"{arm}-{name}"] for name in before},
            replies=replies[arm],
            learned_tokens=learned,
            learned=lambda: learned_rows.read_rows(recipe, run, stage),
            learned_replies=learned_replies,
            tokens_right=learned_rows.last_line(run, stage).get("token_accuracy") if stage is not None else None,
            asked=samples,
            others={name: replies[name] for name in before},
            rows_left=read_rows_left(run / "filter" / HEALTH),
            trained=_trained_rows(recipe, run, stage),
            odd_images=odd_images.find(images, max_pixels=recipe.data[recipe.eval.data].max_pixels),
        )
    )


def _trained_rows(recipe: Recipe, run: Path, stage: Stage | None) -> list[StepRows]:
    """The traces that a stage and those before it have trained."""
    before = lineage(recipe.stages, stage.name) if stage is not None else ()
    return [rows for each in before for rows in read_rows_left(run / "train" / each.name / DIAGNOSIS)]


def _write_results(
    recipe: Recipe,
    folder: Path,
    arms: Mapping[str, EvaluatedStudent],
    rounds: Sequence[Mapping[str, Sequence[Prediction]]],
    learned: Sequence[Prediction],
    samples: Sequence[Sample],
    left_out: Mapping[str, int],
) -> dict[str, list[Prediction]]:
    """Write predictions, metrics and report. Returns the predictions by the name of their file."""
    lines, *blind = rounds
    metrics = eval_metrics.compute_metrics(
        lines,
        seed=recipe.seed,
        facts={arm: evaluated.facts for arm, evaluated in arms.items()},
        without_image=blind[0] if blind else None,
        own=user_metrics(recipe),
    )
    if left_out:
        metrics["left_out"] = dict(sorted(left_out.items()))
    if learned:
        right = sum(reply["verdict"] == "correct" for reply in learned)
        metrics["learned_rows"] = {"arm": learned[0]["arm"], "n": len(learned), "accuracy": right / len(learned)}
    metrics["diagnosis"] = findings.chosen(_diagnose(recipe, folder.parent, metrics, lines, learned, samples))
    (folder / WITHOUT_IMAGE).unlink(missing_ok=True)
    written = {
        name: [line for of_arm in each.values() for line in of_arm]
        for name, each in zip((PREDICTIONS, WITHOUT_IMAGE), rounds, strict=False)
    }
    for name, predictions in written.items():
        write_jsonl(folder / name, predictions)
    # In the order of the arms, not of the alphabet: the file is read by people too.
    write_bytes(folder / EVAL_METRICS, orjson.dumps(metrics, option=orjson.OPT_INDENT_2) + b"\n")
    report.write_report(recipe, folder / REPORT, metrics, written[PREDICTIONS], samples)
    return written


def _manifest(
    recipe: Recipe,
    folder: Path,
    fields: Mapping[str, Any],
    arms: Mapping[str, EvaluatedStudent],
    asked: int,
    written: Mapping[str, Sequence[Prediction]],
) -> Manifest:
    """The manifest of the predictions in the files `written`, of `asked` questions; without tokens and seconds."""
    questions = len(written[PREDICTIONS]) // len(arms)
    images = [IMAGES] if (folder / IMAGES).is_file() else []
    return Manifest(
        stage="eval",
        fingerprint=fingerprint(fields),
        fields=fields,
        inputs={arm: evaluated.key for arm, evaluated in arms.items()},
        outputs={
            **{name: describe(folder / name, len(predictions)) for name, predictions in written.items()},
            **{name: describe(folder / name) for name in (REPLIES, EVAL_METRICS, REPORT, *images)},
        },
        counts={
            "arms": len(arms),
            "questions": questions,
            "unasked": asked - questions,
            "predictions": len(written[PREDICTIONS]),
            "predictions_without_image": len(written.get(WITHOUT_IMAGE, ())),
            **_settings_counts(recipe),
        },
        versions=versions("torch", "transformers"),
    )


def _generated_tokens(
    arms: Mapping[str, EvaluatedStudent], sets: Mapping[str, Sequence[QuestionSet]], replies: Mapping[Key, Reply]
) -> dict[str, int]:
    """Tokens of all replies, those to learned rows included; nothing where none is counted, as of some servers."""
    asked = {
        (arms[arm].identity, each.without_image, sample.id)
        for arm, of_arm in sets.items()
        for each in of_arm
        for sample in each.samples
    }
    counted = [tokens for key in asked if (tokens := replies.get(key, {}).get("tokens")) is not None]
    return {"generated": sum(counted)} if counted else {}
