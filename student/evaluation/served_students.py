"""Asks students that a server has: an export that vLLM serves for the evaluation, or a server managed elsewhere.

Starts no server: the caller passes a function that does. Does not journal replies
(student/evaluation/collect_replies.py).
"""

import gc
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from distill.errors import ModelError
from distill.rationale import STYLES, Style, split
from distill.recipe.recipe import Recipe
from distill.types import Sample
from student.evaluation import students
from student.evaluation.embedded_students import batches_to_ask, make_prompter
from student.evaluation.questions import OnReplies, QuestionSet, Reply, Work
from student.evaluation.students import EvaluatedStudent
from student.export.check_report import Serve
from student.training.stage import Session

_EXPORT = ".export"
_CHUNK = 128
"""So many questions are sent to a server at once; then their replies are flushed to disk."""


class RemoteServer(Protocol):
    """A server managed elsewhere that passed its health check."""

    @property
    def ask(self) -> Callable[[Sequence[Sample], Callable[[Sample, Any], None]], None]:
        """Reports every greedy answer: text, tokens and reasoning_tokens (None: not counted), truncated, seconds."""


Connect = Callable[..., AbstractContextManager[RemoteServer]]
"""connect(name, student, max_new_tokens=..., max_pixels=...); raises ModelError for an unhealthy server."""


def ask_exported(
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
    prompter = make_prompter(recipe, work.evaluated, Session(), student, processor)
    chunks: list[tuple[QuestionSet, list[Sample]]] = []
    longest = 0
    for question_set, batch, missing in batches_to_ask(recipe, work, prompter, on_replies):
        samples = [question_set.samples[at] for at, _ in batch if question_set.samples[at].id in missing]
        longest = max(longest, *(len(ids) for _, ids in batch))
        if chunks and chunks[-1][0] is question_set and len(chunks[-1][1]) + len(samples) <= _CHUNK:
            chunks[-1][1].extend(samples)
        else:
            chunks.append((question_set, samples))
    if not chunks:  # the missing questions cannot be asked, because this student has no server
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


def ask_remote(server: RemoteServer, work: Work, on_replies: OnReplies, style: Style) -> None:
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
