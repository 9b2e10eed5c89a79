"""Asks a student in this process, batch by batch. Does not journal replies (collect_replies.py)."""

import gc
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from distill.artifacts.manifest import fingerprint
from distill.machine.gpu_memory import FittingBatches
from distill.recipe.recipe import Recipe
from student.evaluation import students
from student.evaluation.questions import OnReplies, QuestionSet, Work
from student.evaluation.students import EvaluatedStudent
from student.training.stage import Session

if TYPE_CHECKING:
    from student.inference import generation

UNASKED = "image_token_in_text"
"""Why a student cannot be asked a question: the question holds the student's image placeholder."""


def ask_embedded(recipe: Recipe, work: Work, session: Session, on_replies: OnReplies) -> None:
    """Ask in this process, batch by batch. Batches do not depend on missing replies, so replies do not depend on
    interruptions."""
    import torch

    from student.inference import generation
    from student.models.library_output import hide_library_output

    gc.collect()  # the student before may still be there, and a GPU has no room for two
    with hide_library_output():
        student, processor = students.load_student(recipe, work.evaluated)
        student.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    prompter = make_prompter(recipe, work.evaluated, session, student, processor)
    fitting = FittingBatches(lambda text: on_replies(question_set, (), now=text))

    def ask(asked: QuestionSet, part: "generation.Batch") -> list["generation.Reply"]:
        most, draw = recipe.eval.max_new_tokens, _draw(recipe, asked, part)
        return generation.generate_replies(student, prompter, asked.samples, part, max_new_tokens=most, draw=draw)

    for question_set, batch, missing in batches_to_ask(recipe, work, prompter, on_replies):
        started = time.perf_counter()
        with hide_library_output():
            replies = fitting.run(batch, partial(ask, question_set))
        seconds = (time.perf_counter() - started) / len(batch)
        on_replies(
            question_set,
            [
                (question_set.samples[index], {**asdict(reply), "seconds": seconds})
                for (index, _), reply in zip(batch, replies, strict=True)
                if question_set.samples[index].id in missing
            ],
        )


def _draw(recipe: Recipe, question_set: QuestionSet, batch: "generation.Batch") -> "generation.Draw | None":
    """How the replies to a batch are drawn: from its questions and the recipe's seed; None: greedily."""
    from student.inference.generation import Draw

    if not recipe.eval.temperature:
        return None
    source = {"seed": recipe.seed, "ids": [question_set.samples[index].id for index, _ in batch]}
    seed = int(fingerprint(source | {"without_image": question_set.without_image})[:8], 16)
    return Draw(temperature=recipe.eval.temperature, seed=seed)


def batches_to_ask(
    recipe: Recipe, work: Work, prompter: "generation.Prompter", on_replies: OnReplies
) -> Iterator[tuple[QuestionSet, list[tuple[int, list[int]]], frozenset[str]]]:
    """The batches that hold something missing, with what is missing of their round.

    Questions that this student cannot be asked are recorded as such at the end of the round.
    """
    for question_set, missing in work.missing:
        if not missing:
            continue
        asked_ids: set[str] = set()
        for batch in prompter.batches(question_set.samples, recipe.eval.batch_size):
            ids = {question_set.samples[index].id for index, _ in batch}
            asked_ids |= ids
            if ids & missing:
                yield question_set, batch, missing
        on_replies(
            question_set,
            [
                (sample, {"unasked": UNASKED})
                for sample in question_set.samples
                if sample.id in missing and sample.id not in asked_ids
            ],
        )


def make_prompter(
    recipe: Recipe, evaluated: EvaluatedStudent, session: Session, student: Any, processor: Any
) -> "generation.Prompter":
    """The recipe's own students share resized images, for their processors are the same."""
    from student.data.encode import Encoder
    from student.data.images import ImageStore
    from student.inference.generation import Prompter

    store = None if evaluated.foreign else session.store
    store = store or ImageStore(processor, student.dtype)
    if not evaluated.foreign:
        session.store = store
    max_pixels = recipe.data[recipe.eval.data].max_pixels
    return Prompter(Encoder.of(student, processor), store, max_pixels, recipe.filter.rationale)
