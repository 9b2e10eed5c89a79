"""`distill ask`: one question about one image, to a run's student before and after training and to its teachers.

Students are asked as in `distill eval`, teachers as in the signal `judge`; all decode greedily. Nothing is kept.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from distill.artifacts.layout import RECIPE
from distill.data.images import image_files
from distill.errors import DataError, DistillError, ImageError
from distill.local_paths import from_home
from distill.python_api import verbs
from distill.rationale import Style, split
from distill.recipe.loading import derived_recipe, load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import DataSource
from distill.recipe.sections.eval import BASE, student_values
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample, unwatched

BEFORE, AFTER, TEACHER = "before", "after", "teacher"
KINDS = (BEFORE, AFTER, TEACHER)
_SOURCE = "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What one model replied, or why it was not asked."""

    name: str
    model: str
    text: str = ""
    seconds: float = 0.0
    tokens: int | None = None
    truncated: bool = False
    style: Style = "think"
    """How the model separates its rationale from its answer."""
    not_asked: str = ""

    def as_fields(self) -> dict[str, Any]:
        """The reply as plain values, for JSON."""
        parts = split(self.text, self.style)
        return {
            "name": self.name,
            "model": self.model,
            "rationale": parts.rationale,
            "answer": parts.answer.strip(),
            "text": self.text,
            "tokens": self.tokens,
            "truncated": self.truncated,
            "seconds": round(self.seconds, 2),
            "not_asked": self.not_asked,
        }

    def __str__(self) -> str:
        if self.not_asked:
            return f"== {self.name} ({self.model}): not asked\n{self.not_asked}"
        return f"== {self.title}\n{self.body}"

    @property
    def title(self) -> str:
        return f"{self.name} ({self.model}, {self.seconds:.1f} s)"

    @property
    def body(self) -> str:
        """Rationale and answer, without think tags."""
        parts = split(self.text, self.style)
        rationale = [parts.rationale, ""] if parts.rationale else []
        end = ["(cut off: the reply reached the token limit of the recipe)"] if self.truncated else []
        return "\n".join([*rationale, parts.answer.strip(), *end])


class ReplyListener:
    """Hears the models of one question, which are asked one after the other. This one shows nothing."""

    def begin(self, models: int) -> AbstractContextManager[None]:
        """Called with the number of models; they are asked in its block."""
        return nullcontext()

    def hear(self, name: str, model: str) -> AbstractContextManager[None]:
        """Called with the name and the kind of a model, which is asked in its block (distill/live_text.py)."""
        return nullcontext()

    def replied(self, reply: ModelReply) -> None:
        """Called with each reply as soon as it is there; not for a model that could not be asked."""


def ask(
    place: str, image: Path, question: str, *, kinds: Sequence[str], students: Sequence[str], listener: ReplyListener
) -> list[ModelReply]:
    """The replies of the models of a run, or of one model by its folder or hub name.

    `students` are further ones: folders, hub names, or URL#MODEL. A model that cannot be asked says why in its reply.
    Raises DataError or ImageError for an image that cannot be read, and DataError where no model could be asked.
    """
    if not question.strip():
        raise DataError("the question has no visible character")
    recipe, run = _recipe(place, image, students)
    try:
        data = image_files.read_file(image)
        image_files.check(data, max_pixels=recipe.data[_SOURCE].max_pixels)
    except ImageError as error:
        message = str(error)
        raise ImageError(error.reason, message if str(image) in message else f"{image}: {message}") from None
    ref = ImageRef(sha256=image_files.sha256(data), path=str(image.resolve()))
    sample = Sample(id=hashlib.sha256(question.encode()).hexdigest()[:20], images=(ref,), question=question)
    replies = []
    works = list(_asked(recipe, run, kinds))
    with listener.begin(len(works)):
        for name, model, work in works:
            with listener.hear(name, model):
                reply = work(sample)
            replies.append(reply)
            if not reply.not_asked:
                listener.replied(reply)
    if all(reply.not_asked for reply in replies):
        reasons = "".join(f"\n  {reply.name}: {reply.not_asked}" for reply in replies)
        raise DataError(f"{place}: no model could be asked{reasons or '; choose another --model'}")
    return replies


def _recipe(place: str, image: Path, students: Sequence[str]) -> tuple[Recipe, Path]:
    """The recipe of a run, or one of a single model; its evaluation is this question alone."""
    run = from_home(place)
    is_run = (run / RECIPE).is_file()
    if run.is_dir() and not is_run and not (run / "config.json").is_file() and not any(run.glob("*/config.json")):
        raise DataError(f"{run}: neither a run (it holds no {RECIPE}) nor a model (it holds no config.json)")
    recipe = load(run / RECIPE) if is_run else Recipe()
    named = [f"student{number or ''}={value}" for number, value in enumerate(students)]
    values: dict[str, dict[str, str]] = {}
    for key, value in student_values(named if is_run else [f"model={place}", *named]).items():
        _, _, name, field = key.split(".")
        values.setdefault(name, {})[field] = orjson.loads(value)
    settings = {"data": _SOURCE, "students": values, "without_image": False}
    derived = derived_recipe(Recipe(), {"eval": settings}, "the question")
    limits = {"max_new_tokens": recipe.eval.max_new_tokens, "engine": "embedded", "think": recipe.eval.think}
    update = {
        "data": {**recipe.data, _SOURCE: DataSource(source=str(image.resolve()))},
        "eval": derived.eval.model_copy(update=limits),
    }
    return recipe.model_copy(update=update), run


Work = Callable[[Sample], ModelReply]


def _asked(recipe: Recipe, run: Path, kinds: Sequence[str]) -> Iterator[tuple[str, str, Work]]:
    """Name and description of each model that may answer, and the function that asks it."""
    students = {BEFORE: "the untrained student", AFTER: "the trained student"} if recipe.student is not None else {}
    asked = {name: model for name, model in students.items() if name in kinds}
    for name, model in (asked | {name: each.model for name, each in recipe.eval.students.items()}).items():
        yield name, model, partial(_student, recipe, run, name, model)
    for teacher in recipe.teachers if TEACHER in kinds else ():
        yield teacher.name, teacher.model, partial(_teacher, recipe, teacher)


def _student(recipe: Recipe, run: Path, name: str, model: str, sample: Sample) -> ModelReply:
    from student.evaluation import collect_replies, questions, students

    others, stage = recipe.eval.students, BASE
    try:
        if name == AFTER:
            from student.export.convert import choose_stage

            stage = choose_stage(recipe, run)
            model = f"stage {stage}"
        asked: dict[str, Any] = {"arms": {name: stage}, "students": {}}
        if name in others:
            asked = {"arms": {}, "students": {name: others[name]}}
        stages = recipe.stages if asked["arms"] else ()  # without arms, stages would be asked
        one = recipe.model_copy(update={"stages": stages, "eval": recipe.eval.model_copy(update=asked)})
        evaluated = students.evaluated_students(one, run)
        own = replace(sample, question=f"{sample.question}{recipe.eval.ending}")
        questioned = {name: [questions.QuestionSet(samples=[own], without_image=False)]}
        work = questions.find_unfinished(evaluated, questioned, {})
        with TemporaryDirectory() as folder:
            engines = collect_replies.Engines(connect=verbs.connect)
            collect_replies.collect_replies(one, Path(folder), work, engines, lambda: None, unwatched)
            (found,) = collect_replies.read_replies(Path(folder) / collect_replies.REPLIES).values()
    except DistillError as error:
        return ModelReply(name=name, model=model, not_asked=str(error))
    if "unasked" in found:
        return ModelReply(name=name, model=model, not_asked=str(found["unasked"]))
    return ModelReply(
        name=name,
        model=model,
        text=found["text"],
        seconds=found["seconds"],
        tokens=found["tokens"],
        truncated=found["truncated"],
        style=recipe.filter.rationale,
    )


def _teacher(recipe: Recipe, teacher: Teacher, sample: Sample) -> ModelReply:
    from teacher.ask import AskedQuestion, open_teacher
    from teacher.messages.completion import Completion
    from teacher.messages.prompts import prompt

    if teacher.managed:
        why = "only a run starts its server; start the server yourself and set teachers.NAME.base_url"
        return ModelReply(name=teacher.name, model=teacher.model, not_asked=why)
    sent = recipe.model_copy(update={"teachers": (teacher.model_copy(update={"images": "base64"}),)})
    sent = sent.model_copy(update={"generate": recipe.generate.model_copy(update={"patience_s": 0.0})})
    limit, completions = teacher.sampling.max_tokens, list[Completion]()
    started = time.perf_counter()
    try:
        with (
            TemporaryDirectory() as folder,
            open_teacher(
                sent, teacher.name, Path(folder), max_tokens=limit, on_completion=completions.append
            ) as asking,
        ):
            asking([AskedQuestion(text=prompt(teacher, sample).text, images=sample.images)])
    except DistillError as error:
        return ModelReply(name=teacher.name, model=teacher.model, not_asked=str(error))
    (found,) = completions
    return ModelReply(
        name=teacher.name,
        model=teacher.model,
        text=found.text,
        seconds=time.perf_counter() - started,
        tokens=found.completion_tokens or None,
        truncated=found.finish_reason == "length",
        not_asked="" if found.text else found.error or "no answer",
    )
