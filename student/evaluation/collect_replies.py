"""Collect the replies of the students of an evaluation, with and without images, in a journal.

Replies are journaled verbatim under the key of their student, so scoring again asks nothing, and an interrupted
evaluation resumes. Does not score (student/inference/scoring.py) and starts no server: the caller passes a function
that does.
"""

import gc
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.journal import Journal
from distill.artifacts.manifest import fingerprint
from distill.errors import ModelError, RecipeError
from distill.machine.gpu_memory import FittingBatches
from distill.rationale import STYLES, Style, split
from distill.recipe.recipe import Recipe
from distill.types import Progress, ProgressCallback, Sample
from student.evaluation import students
from student.evaluation.students import EvaluatedStudent
from student.models.inputs import end_ids
from student.training.session import Session

if TYPE_CHECKING:
    from student.inference import generation

REPLIES = "replies.jsonl"
NO_IMAGE = "without images"
UNASKED = "image_token_in_text"
"""Why a student cannot be asked a question: the question holds the student's image placeholder."""
_EXPORT = ".export"
_CHUNK = 128
"""So many questions are sent to a server at once; then their replies are flushed to disk."""

Reply = dict[str, Any]
"""The fields of generation.Reply, and `seconds`: of its batch's wall clock an equal part, from a server its own."""


class ServedExport(Protocol):
    """A server of a checkpoint while it lives, as student/export/verify.py has it."""

    @property
    def ask(self) -> Callable[[Sequence[Sample]], Sequence[tuple[Sequence[int], Sequence[int]]]]:
        """Token ids of prompts and greedy replies, in the order of the questions."""


class RemoteServer(Protocol):
    """A server managed elsewhere that passed its health check."""

    @property
    def ask(self) -> Callable[[Sequence[Sample], Callable[[Sample, Any], None]], None]:
        """Tells every greedy answer: text, tokens and reasoning_tokens (None: not counted), truncated, seconds."""


Serve = Callable[..., AbstractContextManager[ServedExport]]
"""serve(checkpoint, arguments=..., max_new_tokens=..., max_pixels=...); the arguments are vLLM's options by name."""
Connect = Callable[..., AbstractContextManager[RemoteServer]]
"""connect(name, student, max_new_tokens=..., max_pixels=...); raises ModelError for an unhealthy server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """Questions asked in the same way."""

    samples: Sequence[Sample]
    without_image: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The questions that one student has not been asked yet, by round."""

    evaluated: EvaluatedStudent
    missing: Sequence[tuple[QuestionSet, frozenset[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Functions that ask served students; None where the caller has none."""

    vllm: Callable[[], Serve] | None = None
    """Called once, before anything is asked, when the recipe has students served for the evaluation."""
    connect: Connect | None = None


Key = tuple[str, bool, str]
"""A student's key, whether the images were left out, and the question's id."""


class OnReplies(Protocol):
    """Gets the replies to some questions, and what else the progress line is to say."""

    def __call__(self, question_set: QuestionSet, replies: Sequence[tuple[Sample, Reply]], **facts: str) -> None: ...


def question_sets(recipe: Recipe, samples: Sequence[Sample]) -> list[QuestionSet]:
    """The questions as they are, and, where the recipe wants it, those with images without their images."""
    result = [QuestionSet(samples=samples, without_image=False)]
    blind = [replace(sample, images=()) for sample in samples if sample.images]
    if recipe.eval.without_image and blind:
        result.append(QuestionSet(samples=blind, without_image=True))
    return result


def read_replies(folder: Path, evaluated_students: Iterable[EvaluatedStudent] = ()) -> dict[Key, Reply]:
    """Every reply in the journal, whose damaged lines are set aside.

    Replies that one of these students gave with other weights are left out. One with `unasked` stands for a question
    that its student cannot be asked.
    """
    weights = {evaluated.key: evaluated.weights for evaluated in evaluated_students}
    result = {}
    for line in recovered(folder / REPLIES, _reply_fault):
        key = (line.pop("student"), line.pop("without_image"), line.pop("sample_id"))
        asked = line.pop("weights", None)  # earlier versions noted none
        if asked is None or asked == weights.get(key[0], asked):
            result[key] = line
    return result


def _reply_fault(line: Mapping[str, Any]) -> str:
    missing = [name for name in ("student", "without_image", "sample_id") if name not in line]
    if "unasked" not in line:
        missing += [name for name in ("text", "tokens", "rationale_tokens", "truncated") if name not in line]
    return f"it has no {missing[0]}" if missing else ""


def find_unfinished(
    evaluated_students: Mapping[str, EvaluatedStudent],
    question_sets: Sequence[QuestionSet],
    known: Mapping[Key, Reply],
) -> list[Work]:
    """What is still to be asked, in the order of arms; equal students are asked once."""
    work: dict[str, Work] = {}
    for evaluated in evaluated_students.values():
        missing = []
        for each in question_sets:
            ids = (sample.id for sample in each.samples)
            missing.append((each, frozenset(i for i in ids if (evaluated.key, each.without_image, i) not in known)))
        if any(ids for _, ids in missing) and evaluated.key not in work:
            work[evaluated.key] = Work(evaluated=evaluated, missing=missing)
    return list(work.values())


def collect_replies(
    recipe: Recipe,
    folder: Path,
    work: Sequence[Work],
    engines: Engines,
    begin: Callable[[], None],
    on_progress: ProgressCallback,
) -> None:
    """Complete the journal.

    Raises for students that cannot work before `begin` is called and the first question asked.
    """
    served = recipe.eval.engine == "vllm"
    limits = {"max_new_tokens": recipe.eval.max_new_tokens, "max_pixels": recipe.data[recipe.eval.data].max_pixels}
    with ExitStack() as stack:
        servers = {
            each.evaluated.arm: stack.enter_context(_connection(each.evaluated, engines, limits))
            for each in work
            if each.evaluated.server is not None
        }
        for each in work:
            students.require_loadable(recipe, each.evaluated)
        local_work = [each for each in work if each.evaluated.server is None]
        serve = _require_vllm(recipe, engines)() if served and local_work else None
        begin()
        journal = stack.enter_context(Journal(folder / REPLIES))
        session = Session()
        for each in work:
            on_replies = _recorder(each, journal, on_progress)
            if each.evaluated.server is not None:
                _ask_remote(servers[each.evaluated.arm], each, on_replies, recipe.filter.rationale)
            elif serve is not None:
                _ask_exported(recipe, folder, each, serve, limits, on_replies)
            else:
                _ask_embedded(recipe, each, session, on_replies)


def _connection(
    evaluated: EvaluatedStudent, engines: Engines, limits: Mapping[str, int]
) -> AbstractContextManager[RemoteServer]:
    if engines.connect is None:
        raise RecipeError(
            f"eval.students.{evaluated.arm} is served, and nothing here asks servers; use `distill eval`"
        )
    return engines.connect(evaluated.arm, evaluated.server, **limits)


def _require_vllm(recipe: Recipe, engines: Engines) -> Callable[[], Serve]:
    if engines.vllm is None:
        raise RecipeError(
            f'{recipe.path}: eval.engine = "vllm", and nothing here starts servers; use `distill eval`, or "embedded"'
        )
    return engines.vllm


def _recorder(work: Work, journal: Journal, on_progress: ProgressCallback) -> OnReplies:
    """A function that journals replies and reports progress."""
    done = {each.without_image: len(each.samples) - len(ids) for each, ids in work.missing}
    notices: dict[str, str] = {}

    def on_replies(question_set: QuestionSet, replies: Sequence[tuple[Sample, Reply]], **facts: str) -> None:
        notices.update(facts)
        for sample, reply in replies:
            key = {"student": work.evaluated.key, "without_image": question_set.without_image, "sample_id": sample.id}
            # A stage that is trained again with the same settings keeps its key.
            weights = {"weights": work.evaluated.weights} if work.evaluated.weights else {}
            journal.append({**key, **weights, **reply})
        done[question_set.without_image] += len(replies)
        stage = f"eval {work.evaluated.arm}{f' {NO_IMAGE}' if question_set.without_image else ''}"
        total = len(question_set.samples)
        if replies or facts:
            counts = {"done": done[question_set.without_image], "total": total}
            on_progress(Progress(stage=stage, **counts, unit="questions", facts=notices))

    return on_replies


def _ask_embedded(recipe: Recipe, work: Work, session: Session, on_replies: OnReplies) -> None:
    """Ask in this process, batch by batch. Batches don't depend on what is missing, so neither do replies."""
    import torch

    from student.inference import generation
    from student.models.library_output import hide_library_output

    gc.collect()  # the student before may still be there, and a GPU has no room for two
    with hide_library_output():
        student, processor = students.load_student(recipe, work.evaluated)
        student.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    prompter = _prompter(recipe, work.evaluated, session, student, processor)
    fitting = FittingBatches(lambda text: on_replies(question_set, (), now=text))

    def ask(asked: QuestionSet, part: "generation.Batch") -> list["generation.Reply"]:
        most, draw = recipe.eval.max_new_tokens, _draw(recipe, asked, part)
        return generation.generate_replies(student, prompter, asked.samples, part, max_new_tokens=most, draw=draw)

    for question_set, batch, missing in _batches(recipe, work, prompter, on_replies):
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


def _batches(
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


def _prompter(
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
    return Prompter(Encoder(processor, end_ids(student)), store, max_pixels, recipe.filter.rationale)


def _ask_exported(
    recipe: Recipe, folder: Path, work: Work, serve: Serve, limits: Mapping[str, int], on_replies: OnReplies
) -> None:
    """Export the student below `folder`, have it served while it is asked, and remove the export."""
    from student.export import convert
    from student.inference import generation
    from student.models.library_output import hide_library_output

    path = folder / _EXPORT
    shutil.rmtree(path, ignore_errors=True)
    with hide_library_output():
        student, processor = students.load_student(recipe, work.evaluated)
    prompter = _prompter(recipe, work.evaluated, Session(), student, processor)
    chunks: list[tuple[QuestionSet, list[Sample]]] = []
    longest = 0
    for question_set, batch, missing in _batches(recipe, work, prompter, on_replies):
        samples = [question_set.samples[at] for at, _ in batch if question_set.samples[at].id in missing]
        longest = max(longest, *(len(ids) for _, ids in batch))
        if chunks and chunks[-1][0] is question_set and len(chunks[-1][1]) + len(samples) <= _CHUNK:
            chunks[-1][1].extend(samples)
        else:
            chunks.append((question_set, samples))
    if not chunks:  # this student cannot be asked what is missing
        return
    arguments = {
        "dtype": str(student.dtype).removeprefix("torch."),
        "max-model-len": longest + recipe.eval.max_new_tokens,
        "limit-mm-per-prompt": {"image": max(len(sample.images) for _, samples in chunks for sample in samples)},
    }
    try:
        with hide_library_output():
            convert.save(_to_vllm_native(work.evaluated, student), processor, path)
        del student
        gc.collect()
        with serve(path, arguments={**convert.server_arguments(path), **arguments}, **limits) as server:
            for question_set, samples in chunks:
                started = time.perf_counter()
                answers = server.ask(samples)
                seconds = (time.perf_counter() - started) / len(samples)
                replies = [generation.parse_reply(ids, prompter, prompt) for prompt, ids in answers]
                on_replies(
                    question_set,
                    [
                        (sample, {**asdict(reply), "seconds": seconds})
                        for sample, reply in zip(samples, replies, strict=True)
                    ],
                )
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _to_vllm_native(evaluated: EvaluatedStudent, student: Any) -> Any:
    from student.export import convert

    try:
        return convert.to_vllm_native(student)
    except ModelError as error:
        raise ModelError(f'arm {evaluated.arm}: {error}; set eval.engine = "embedded"') from None


def _ask_remote(server: RemoteServer, work: Work, on_replies: OnReplies, style: Style) -> None:
    """Ask a served student, whose tokenizer is not known: the server counts the tokens."""
    for question_set, missing in work.missing:

        def on_answer(sample: Sample, answer: Any, question_set: QuestionSet = question_set) -> None:
            on_replies(question_set, [(sample, _reply_of_server(answer, style))])

        server.ask([sample for sample in question_set.samples if sample.id in missing], on_answer)


def _reply_of_server(answer: Any, style: Style) -> Reply:
    """A server's answer as a reply. Tokens of the rationale that it does not count go by the share of the text."""
    counted: dict[Style, int | None] = dict.fromkeys(STYLES, answer.reasoning_tokens)
    if answer.reasoning_tokens is None and answer.tokens is not None:
        text = answer.text.strip()
        for each in STYLES:
            counted[each] = round(answer.tokens * len(split(text, each).rationale) / len(text)) if text else 0
    return {
        "text": answer.text,
        "tokens": answer.tokens,
        "rationale_tokens": counted[style],
        "rationale_tokens_by_style": counted,
        "truncated": answer.truncated,
        "seconds": answer.seconds,
    }
