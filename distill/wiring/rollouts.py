"""The replies that a training stage with `rollouts` learns from: made by its start student, scored by a teacher.

RUN/rollouts/STAGE/replies/DIGEST/   an evaluation each: the student answers the training questions once
RUN/rollouts/STAGE/train/            the rows of the stage: questions, images, replies; questions without a reply
RUN/score/TEACHER-DIGEST.jsonl       the teacher's scores, as for stages with `visual`

The digest covers everything that changes the replies, also the student's weights, so a stage never uses replies of
another student. Every part resumes: replies and scores are journaled, and the rows are written again from the
replies.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.artifacts.layout import PREDICTIONS, model_folder, rollouts_folder
from distill.data import reader
from distill.data.tables.rows_with_images import IMAGE_CELLS, cells_of_images, write_rows
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import Stage, start_of
from distill.recipe.student_evaluation import student_evaluation_recipe
from distill.trace_records import scores
from distill.types import Progress, ProgressCallback, Sample
from distill.word_tables import counted
from student.data.scored_rollouts import LEFT_OUT, NO_GOLD, UNASKED

if TYPE_CHECKING:
    from teacher.score import GivenText

_SCHEMA = pa.schema(
    [
        ("images", IMAGE_CELLS),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("answer", pa.string()),
        ("rationale", pa.string()),
        ("sample_id", pa.string()),
        ("trace_id", pa.string()),
    ]
)


def prepare_rollouts(
    recipe: Recipe, run: Path, stage: Stage, evaluate: Callable[[Recipe, Path], Any], on_progress: ProgressCallback
) -> None:
    """Make and score the replies that a stage learns from, as far as they are missing.

    `evaluate` asks the student; the stage that it starts from is finished. Raises DataError where no reply can be
    scored, and what `evaluate` and `generate` raise.
    """
    from student.evaluate import identity

    assert stage.rollouts is not None
    place, folders = rollouts_folder(run, stage.name), list[Path]()
    for attempt in range(stage.rollouts.attempts):
        asking = answering(recipe, run, stage, attempt)
        folders.append(place / "replies" / identity(asking, run)[:16])
        evaluate(asking, folders[-1])
    asked = answering(recipe, run, stage, 0)
    _write_rows(asked, folders, place / "train" / "part-00000.parquet")
    _note_left_out(asked, folders, place / "train", stage, on_progress)
    _score(recipe, run, stage, lambda: _texts(asked, folders), on_progress)


def answering(recipe: Recipe, run: Path, stage: Stage, attempt: int) -> Recipe:
    """The recipe of an evaluation: the start student of a stage answers the training questions once."""
    settings, start = stage.rollouts, start_of(recipe.stages, stage)
    assert settings is not None and start is not None
    return student_evaluation_recipe(
        recipe,
        model_folder(run, start),
        ASKED,
        f"the student before stage {stage.name} answers [data.{ASKED}]",
        # No settings of [eval]: they may change without a change of the training data.
        evaluation={"temperature": settings.temperature, "max_new_tokens": settings.max_new_tokens},
        attempt=attempt,
        answered=settings.answered,
        without=("rounds", "ablate", "report_to"),
    )


def _replies(asked: Recipe, folders: Sequence[Path]) -> Iterator[tuple[str, Sample, dict[str, Any]]]:
    """The id of every reply, its question and its prediction, in the order of the questions."""
    by_question: dict[str, list[dict[str, Any]]] = {}
    for folder in folders:
        for line in read_jsonl(folder / "eval" / PREDICTIONS):
            kept = {key: line[key] for key in ("text", "answer", "reasoning")}
            by_question.setdefault(line["sample_id"], []).append(kept)
    for sample in reader.samples(asked, ASKED):
        for reply in by_question.get(sample.id, ()):
            # The digest of the text: equal replies to a question share a score.
            yield hashlib.sha256(f"{sample.id}\0{reply['text']}".encode()).hexdigest()[:32], sample, reply


def _write_rows(asked: Recipe, folders: Sequence[Path], path: Path) -> None:
    rows = (
        {
            "images": cells_of_images(sample.images),
            "messages": [
                {"role": "user", "content": sample.question},
                {"role": "assistant", "content": reply["text"]},
            ],
            "answer": reply["answer"],
            "rationale": reply["reasoning"],
            "sample_id": sample.id,
            "trace_id": identity,
        }
        for identity, sample, reply in _replies(asked, folders)
    )
    write_rows(path, _SCHEMA, rows)


def _note_left_out(
    asked: Recipe, folders: Sequence[Path], rows: Path, stage: Stage, on_progress: ProgressCallback
) -> None:
    """Write down, count and report the questions that the stage does not learn from, because no reply is there."""
    replied = {line["sample_id"] for folder in folders for line in read_jsonl(folder / "eval" / PREDICTIONS)}
    left_out = [
        {"sample_id": sample.id, "question": sample.question, "reason": UNASKED if sample.answers else NO_GOLD}
        for sample in reader.samples(asked, ASKED)
        if sample.id not in replied
    ]
    write_jsonl(rows / LEFT_OUT, left_out)
    total, counts = len(replied) + len(left_out), Counter(str(line["reason"]) for line in left_out)
    facts = dict(sorted(counts.items())) | ({"listed in": str(rows / LEFT_OUT)} if left_out else {})
    on_progress(
        Progress(stage=f"rollouts {stage.name}", done=len(replied), total=total, unit="questions", facts=facts)
    )


def _texts(asked: Recipe, folders: Sequence[Path]) -> "Iterator[GivenText]":
    from teacher.score import GivenText

    seen: set[str] = set()
    for identity, sample, reply in _replies(asked, folders):
        if identity not in seen:
            seen.add(identity)
            yield GivenText(trace=identity, sample=sample, text=reply["text"])


def _score(recipe: Recipe, run: Path, stage: Stage, texts: Any, on_progress: ProgressCallback) -> None:
    """Have the teacher score the replies that have no score yet."""
    from teacher.score import reporting, score_texts

    assert stage.rollouts is not None
    name = stage.rollouts.teacher
    teacher = next(each for each in recipe.teachers if each.name == name)
    total = sum(1 for _ in texts())
    failed = score_texts(
        recipe,
        teacher,
        texts(),
        run / scores.FOLDER,
        top_k=stage.rollouts.top_k,
        views=(scores.WITH_IMAGE,),
        on_done=reporting(on_progress, name, total, "replies"),
    )
    if sum(failed.values()) >= total:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(failed.items()))
        raise DataError(
            f"stage '{stage.name}': none of the {counted(total, 'reply', 'replies')} of the student before it could "
            f"be scored ({reasons or 'it gave none'}); look at {rollouts_folder(run, stage.name)}, and correct the "
            "teacher"
        )
