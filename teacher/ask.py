"""Asks a teacher of the recipe single questions outside the plan of a run: texts in, answers out.

Uses the same engines as `generate`, so servers are started, limited and retried in the same way. Writes nothing; the
caller keeps the answers.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from distill.errors import RecipeError
from distill.machine import event_loop
from distill.rationale import TAGS, thinking_end
from distill.recipe.recipe import Recipe
from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.engines.connect import Engine, EngineSettings, connect, engine_settings, getter
from teacher.messages.completion import Completion
from teacher.messages.prompts import Prompt, prompt_sha
from teacher.messages.request import Request, model_of, single_request


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """One prompt as the teacher gets it; its system text comes from the recipe."""

    text: str
    images: tuple[ImageRef, ...] = ()


Ask = Callable[[Sequence[AskedQuestion]], list[str]]
"""Answers without their thinking, in the order of the questions; an empty one where there is none."""


def find_teacher(recipe: Recipe, name: str) -> Teacher:
    """The teacher of this name. Raises RecipeError."""
    teacher = next((each for each in recipe.teachers if each.name == name), None)
    if teacher is None:
        known = ", ".join(teacher.name for teacher in recipe.teachers) or "none"
        raise RecipeError(f"{recipe.path}: there is no teacher {name!r}; known: {known}")
    return teacher


@contextmanager
def open_teacher(
    recipe: Recipe,
    name: str,
    folder: Path,
    *,
    max_tokens: int,
    on_completion: Callable[[Completion], None] = lambda _: None,
) -> Iterator[Ask]:
    """A function that asks this teacher, greedily. The log of its server is in `folder`.

    `on_completion` gets each reply as the engine has it, and each error.

    The teacher is loaded, or its server attached to or started, with the first question, and let go at the end.
    Raises what `generate` raises for teachers that are not there or fail.
    """
    teacher = find_teacher(recipe, name).direct
    teacher = teacher.model_copy(
        update={
            "sampling": Sampling(
                temperature=0.0,
                max_tokens=max_tokens,
                stop=teacher.sampling.stop,
                stop_repetition=teacher.sampling.stop_repetition,
            ),
            "logprobs": 0,
        }
    )
    # Images may come from any source of the recipe.
    settings = engine_settings(recipe, teacher, model_of(recipe, teacher), folder, max_pixels=recipe.max_pixels)
    engine: Engine | None = None
    answers: dict[str, str] = {}

    def done(request: Request, completion: Completion) -> None:
        on_completion(completion)
        if not completion.error:
            answers[request.id] = answer_text(completion.text, tagged=teacher.reasoning == "tags")

    async def answer(requests: Sequence[Request]) -> None:
        nonlocal engine
        if engine is None:
            engine = await stack.enter_async_context(connect(settings))
        await engine.answer(getter(requests), done)

    def ask(questions: Sequence[AskedQuestion]) -> list[str]:
        requests = _requests(settings, questions)
        answers.clear()
        if requests:
            runner.run(answer(requests))
        return [answers.get(request.id, "") for request in requests]

    # The loop of the engine runs during calls only.
    with event_loop.Runner() as runner:
        stack = AsyncExitStack()
        try:
            yield ask
        finally:
            runner.run(stack.aclose())


def answer_text(text: str, *, tagged: bool = False) -> str:
    """The text without its thinking; empty when the thinking never ends.

    `tagged`: the chat template opens the thinking, so a text without a closing tag is all thinking. Other than in a
    trace, nothing is cut out of the rest: the caller decides how to read an answer.
    """
    if end := thinking_end(text):
        return text[end:].strip()
    if tagged or text.lstrip().startswith(tuple(opening for opening, _ in TAGS)):
        return ""
    return text.strip()


def _requests(settings: EngineSettings, questions: Sequence[AskedQuestion]) -> list[Request]:
    teacher, key, run_seed = settings.teacher, settings.model.key, settings.recipe.seed
    requests = []
    for index, question in enumerate(questions):
        prompt = Prompt(system=teacher.system, images=question.images, text=question.text)
        digest = hashlib.sha256(f"ask\0{key}\0{run_seed}\0{prompt_sha(prompt)}".encode()).digest()
        sample = Sample(id=digest.hex()[:20], images=question.images, question=question.text)
        seed = int.from_bytes(digest[:4], "big") >> 1
        requests.append(single_request(teacher, sample, prompt, id=f"{index}", seed=seed))
    return requests
