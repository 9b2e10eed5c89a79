"""Signals that need a model, as functions that the filter can call without importing models.

Only the signals of the recipe are prepared. A model is loaded, or a server is asked, when the first trace needs it,
so a run with all values loads nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill import packages
from distill.artifacts.files import directory_sha256
from distill.errors import RecipeError
from distill.rationale import join
from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace

if TYPE_CHECKING:
    from filters.tables.run_signal_tables import Done, Item, ModelSignal

STUDENT, JUDGE = "student", "judge"


def measurers(recipe: Recipe, run: Path) -> "dict[str, ModelSignal]":
    """The measurers of the families that the recipe asks for, by name. Raises RecipeError for what cannot be done."""
    makers = {STUDENT: student_fit, JUDGE: _judge}
    return {
        name: make(recipe, run / "filter" / name) for name, make in makers.items() if name in recipe.filter.signals
    }


def student_fit(recipe: Recipe, folder: Path) -> "ModelSignal":
    """How well traces fit the student that filter.student names; the values are kept in `folder`."""
    from filters.run_signals import student_fit as fit
    from filters.signals import schema
    from filters.tables.run_signal_tables import ModelSignal

    packages.require(f"filter.signals = {STUDENT!r}", *packages.TRAIN)
    settings = recipe.filter.student
    name, revision = untuned_student(recipe)
    path = recipe.local_or_hub(name)
    identity = {
        "checkpoint": directory_sha256(Path(path)) if Path(path).is_dir() else f"{name}@{revision or ''}",
        "dtype": settings.dtype,
        "max_length": settings.max_length,
        "rationale": recipe.filter.rationale,
    }

    def measure(items: "Iterable[Item]", on_done: "Done") -> list[Path]:
        return fit.measure(
            items,
            folder,
            _lazy_fit(recipe, path, revision),
            identity=identity,
            per_teacher=settings.per_teacher,
            on_done=on_done,
        )

    return ModelSignal(
        columns=schema.STUDENT, identity=identity | {"per_teacher": settings.per_teacher}, measure=measure
    )


def untuned_student(recipe: Recipe) -> tuple[str, str | None]:
    """Directory or hub name of the untuned student, and its revision."""
    if recipe.filter.student.checkpoint is not None:
        return recipe.filter.student.checkpoint, None
    if recipe.student is None:
        raise RecipeError(
            f"{recipe.path}: filter.signals asks for student, but there is no [student]; name one, or a "
            "checkpoint in filter.student.checkpoint"
        )
    if recipe.student.model is None:
        raise RecipeError(
            f"{recipe.path}: filter.signals asks for student, but the parts of [student] were never trained on "
            "images together, so its likelihoods have no meaning; train its first stages and name their result "
            f'as in filter.student.checkpoint = "runs/{recipe.name}/train/STAGE/model"'
        )
    return recipe.student.model, recipe.student.revision


def _lazy_fit(
    recipe: Recipe, checkpoint: str, revision: str | None
) -> Callable[[list[tuple[Sample, Trace]]], list[dict[str, Any]]]:
    """A function that loads the student with the first traces it is given."""
    settings = recipe.filter.student

    @cache
    def load_student() -> Callable[[Sequence[Any]], list[dict[str, Any]]]:
        from student.inference import likelihood

        return likelihood.load(
            checkpoint,
            dtype=settings.dtype,
            revision=revision,
            trust_remote_code=recipe.trusts_student_code,
            batch_tokens=settings.batch_tokens,
            max_length=settings.max_length,
            max_pixels=recipe.max_pixels,
        )

    def measure_batch(pairs: list[tuple[Sample, Trace]]) -> list[dict[str, Any]]:
        from student.data.rows import TrainingRow
        from student.inference.likelihood import ScoredRow

        rows = []
        for sample, trace in pairs:
            # The training text, but with the teacher's spelling of the answer, even if the dataset has the gold
            # spelling.
            before = join(trace.reasoning.strip(), "", recipe.filter.rationale)
            row = TrainingRow(
                id=trace.id, images=sample.images, question=sample.question, response=before + trace.answer.strip()
            )
            rows.append(ScoredRow(row=row, answer_at=len(before)))
        return load_student()(rows)

    return measure_batch


_OF_SERVERS = ("extra_body", "extra_headers", "omit")
"""Keys of a teacher that change what a server answers; recipes that do not set them do not contain them."""


def _judge(recipe: Recipe, folder: Path) -> "ModelSignal":
    from filters.run_signals import teacher_judge
    from filters.signals import schema
    from filters.tables.run_signal_tables import ModelSignal
    from teacher.ask import AskedQuestion, find_teacher, open_teacher
    from teacher.messages.request import model_of, precision_key

    settings = recipe.filter.judge
    if settings.teacher is None:
        raise RecipeError(f"{recipe.path}: filter.signals asks for judge; name a teacher in filter.judge.teacher")
    name = settings.teacher
    teacher = find_teacher(recipe, name)
    identity = {
        "model": model_of(recipe, teacher).key,
        "system": teacher.system,
        "prompt": settings.prompt,
        "max_tokens": settings.max_tokens,
        "chat_template_kwargs": dict(teacher.chat_template_kwargs),
        **precision_key(teacher),
        **{name: value for name in _OF_SERVERS if (value := teacher.model_dump(mode="json")[name])},
    }
    tolerance = recipe.filter.answer.relative_tolerance

    def measure(items: "Iterable[Item]", on_done: "Done") -> list[Path]:
        with open_teacher(recipe, name, folder, max_tokens=settings.max_tokens) as ask:
            return teacher_judge.measure(
                items,
                folder,
                lambda texts: ask([AskedQuestion(text=text) for text in texts]),
                prompt=settings.prompt,
                identity=identity,
                relative_tolerance=tolerance,
                on_done=on_done,
            )

    return ModelSignal(columns=schema.JUDGE, identity=identity | {"relative_tolerance": tolerance}, measure=measure)
