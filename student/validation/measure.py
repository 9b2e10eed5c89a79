"""Measures a student while it trains: greedy answers to a few fixed questions, and the loss of held-out rows.

A measurement leaves no trace in the training: modes, attributes and hooks of modules and random states are put back.
In a run of several processes one measures and the others wait, unless each holds a share of the layers. What is
measured may stop a stage and choose its weights (student/validation/early_stopping.py). Does not draw the page
(student/validation/page.py).
"""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from distill.errors import DataError, ImageError, TooFewRows
from distill.machine.gpu_memory import FittingBatches
from distill.recipe.sections.stages import Stage
from distill.recipe.sections.validation import Validation
from distill.types import Sample
from distill.word_tables import counted
from student.data.collate import Layout
from student.data.encode import IMAGE_TOKEN_IN_TEXT, TOO_LONG, Examples
from student.inference.generation import Batch, Prompter, generate_replies
from student.inference.likelihood import response_scores
from student.inference.reply_metrics import Prediction
from student.inference.scoring import score_reply, summarize_predictions, with_unfinished_rationales
from student.models import attention
from student.models.freeze import plain_model


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationMetrics:
    """One measurement. What was not measured is None. Undecided answers count as not correct."""

    step: int
    steps: int
    n: int = 0
    """Questions asked."""
    n_correct: int | None = None
    n_undecided: int | None = None
    accuracy: float | None = None
    ci95: tuple[float, float] | None = None
    format_rate: float | None = None
    truncation_rate: float | None = None
    undecided_rate: float | None = None
    mean_rationale_tokens: float | None = None
    mean_tokens: float | None = None
    loss: float | None = None
    """Mean negative log-likelihood in nats of the response tokens of the rows kept out."""
    token_accuracy: float | None = None
    response_tokens: int = 0
    """Over which the loss is a mean."""
    seconds: float = 0.0
    time_share: float = 0.0
    """The share of the time in the training loop that validation has taken so far."""
    best: bool = False
    """Whether the metric is better than in every measurement before."""

    def scalars(self) -> dict[str, float]:
        """What a tracker can draw."""
        values = {name: value for name, value in asdict(self).items() if isinstance(value, int | float)}
        low, high = self.ci95 or (None, None)
        return values | ({"ci95_low": low, "ci95_high": high} if low is not None and high is not None else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """A fixed slice of a source, ready to be asked. `dropped` counts, by reason, those that could not be."""

    samples: Sequence[Sample]
    batches: Sequence[Batch]
    prompter: Prompter
    max_new_tokens: int
    plain: bool
    relative_tolerance: float
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Rows that are not trained on, as numbers in batches, and what makes inputs of a batch."""

    batches: Sequence[Sequence[int]]
    collate: Callable[[Sequence[int]], Layout]


def rank_question(name: str) -> bytes:
    """The sort key of a question when questions are chosen: a hash, so the order looks random and is always the same.

    One order for asked questions and held-out rows: where both come from one source, the asked questions are among
    the held-out ones.
    """
    return hashlib.sha256(f"validation\0{name}".encode()).digest()


def choose_held_out(names: Sequence[str], amount: int | float) -> list[int]:
    """Indexes of the rows to keep out of training: at least `amount` rows, or that share of the names.

    `names[i]` is the question of row i; all rows of a question go together, in any order of the rows. New data
    changes the held-out rows little: a share keeps its rows and adds some; a fixed number exchanges a few.
    """
    if isinstance(amount, float):
        limit = int(amount * 2**256)
        return [index for index, name in enumerate(names) if int.from_bytes(rank_question(name)) < limit]
    rows = Counter(names)
    chosen: set[str] = set()
    for name in sorted(rows, key=rank_question):
        if amount <= 0:
            break
        chosen.add(name)
        amount -= rows[name]
    return [index for index, name in enumerate(names) if name in chosen]


def split_held_out(examples: Examples, stage: Stage) -> tuple[Examples, Examples]:
    """The rows to train on, and those that validation keeps out. Raises TooFewRows when one of them is empty.

    Replayed rows are all trained on: the loss is about the stage's own data.
    """
    amount = stage.validation.hold_out if stage.validation is not None else 0
    if not amount:
        return examples, Examples()
    own = [index for index, source in enumerate(examples.columns.sources) if source == stage.data]
    sample_ids = examples.sample_ids
    chosen = {own[index] for index in choose_held_out([sample_ids[index] for index in own], amount)}
    kept = examples.take(sorted(chosen))
    rest = examples.take([index for index in range(len(examples)) if index not in chosen])
    if not len(kept):
        raise TooFewRows(
            f"stage '{stage.name}': validation.hold_out = {amount} of {counted(len(own), 'row')} is none; raise it"
        )
    if len(kept) == len(own):
        raise TooFewRows(
            f"stage '{stage.name}': validation.hold_out = {amount} keeps out all {counted(len(own), 'row')}; lower it"
        )
    rest.dropped = examples.dropped
    return rest, kept


def batch_rows(examples: Examples, stage: Stage) -> list[list[int]]:
    """Row numbers in batches within the micro-batch limits of the stage, padded; short rows first."""
    lengths, images = examples.lengths, examples.columns.images
    batches: list[list[int]] = []
    held = 0
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        held += int(images[index])
        size = len(batches[-1]) + 1 if batches else 1
        if size > 1 and size * lengths[index] <= stage.pass_tokens and held <= stage.micro_batch_images:
            batches[-1].append(index)
        else:
            batches.append([index])
            held = int(images[index])
    return batches


def choose_questions(
    samples: Iterable[Sample],
    settings: Validation,
    prompter: Prompter,
    *,
    max_length: int,
    plain: bool,
    relative_tolerance: float,
) -> Questions:
    """Questions with a gold answer that fit into `max_length` tokens, the first ones in the order of `rank_question`.

    Raises DataError when none is left.
    """
    dropped: Counter[str] = Counter()
    chosen: list[Sample] = []
    for sample in sorted(
        (sample for sample in samples if sample.answers), key=lambda sample: rank_question(sample.id)
    ):
        if len(chosen) == settings.questions:
            break
        try:
            alone = list(prompter.batches([sample], 1))
        except ImageError as error:
            dropped[error.reason] += 1
            continue
        if not alone:
            dropped[IMAGE_TOKEN_IN_TEXT] += 1
        elif len(alone[0][0][1]) > max_length:
            dropped[TOO_LONG] += 1
        else:
            chosen.append(sample)
    if not chosen:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(dropped.items())) or "none has an answer"
        raise DataError(f"validation.data = {settings.data!r}: no question can be asked ({reasons})")
    return Questions(
        samples=chosen,
        batches=list(prompter.batches(chosen, settings.batch_size)),
        prompter=prompter,
        max_new_tokens=settings.max_new_tokens,
        plain=plain,
        relative_tolerance=relative_tolerance,
        dropped=dropped,
    )


def measure(
    model: nn.Module,
    questions: Questions | None,
    held: HeldOut | None,
    *,
    step: int,
    steps: int,
    within: AbstractContextManager[None] | None = None,
) -> tuple[ValidationMetrics, list[Prediction]]:
    """The student's replies, and the likelihood of the reference responses; the model is left unchanged.

    All questions are asked inside `within`, which may interrupt them.
    """
    started = time.perf_counter()
    with undisturbed(model), within or nullcontext():
        plain = plain_model(model)
        predictions = ask_questions(plain, questions) if questions is not None else []
        losses = held_out_loss(plain, held) if held is not None else {}
    result: dict[str, Any] = summarize_predictions(predictions) if predictions else {}
    if predictions:
        result["undecided_rate"] = result["n_undecided"] / result["n"]
    return ValidationMetrics(
        step=step, steps=steps, **result, **losses, seconds=time.perf_counter() - started
    ), predictions


def ask_questions(model: PreTrainedModel, questions: Questions) -> list[Prediction]:
    """A judged reply to every question, in the order of the questions."""
    asked: dict[str, dict[str, Any]] = {}
    fitting = FittingBatches()
    ask = partial(
        generate_replies, model, questions.prompter, questions.samples, max_new_tokens=questions.max_new_tokens
    )
    for batch in questions.batches:
        with _attending(model, "sdpa"):
            replies = fitting.run(batch, ask)
        for (index, _), reply in zip(batch, replies, strict=True):
            asked[questions.samples[index].id] = asdict(reply)
    asked = with_unfinished_rationales(asked, "plain" if questions.plain else "think")
    return [
        score_reply(sample, asked[sample.id], plain=questions.plain, relative_tolerance=questions.relative_tolerance)
        for sample in questions.samples
        if sample.id in asked
    ]


@contextmanager
def _attending(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Another attention inside: that for packed lines knows nothing of prompts padded on the left."""
    before = attention.of(model)
    attention.use(model, name)
    try:
        yield
    finally:
        attention.use(model, before)


@torch.inference_mode()
def held_out_loss(model: PreTrainedModel, held: HeldOut) -> dict[str, Any]:
    """Mean over all response tokens of the rows kept out, each token counted once."""
    surprisal, right, tokens = 0.0, 0, 0
    for batch in held.batches:
        passes = FittingBatches().run(batch, lambda rows: [response_scores(model, held.collate(rows))])
        for surprisals, ranks in passes:
            surprisal += float(surprisals.sum())
            right += int((ranks == 1).sum())
            tokens += len(surprisals)
    return {"loss": surprisal / tokens, "token_accuracy": right / tokens, "response_tokens": tokens}


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards modes, attributes, buffers, hooks and random states are restored.

    Layers run as they are written: compiling them again for every length of a cache would cost more than it saves.
    """
    before = [(module, _attributes(module)) for module in model.modules()]
    python, arrays = random.getstate(), np.random.get_state()
    device = next(model.parameters()).device
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            model.eval()
            for module, _ in before:
                module._compiled_call_impl = None
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        for module, (attributes, contents) in before:
            # Generation leaves things behind for its next call, such as Qwen-VL's offsets of positions.
            vars(module).clear()
            vars(module).update(attributes)
            for name, content in contents.items():
                attributes[name].clear()
                attributes[name].update(content)


def _attributes(module: nn.Module) -> tuple[dict[str, Any], dict[str, dict[Any, Any]]]:
    """What a module holds by name; and copies of what is a mapping itself, such as its buffers and hooks.

    Parameters are not copied: a model that is spread over processes exchanges them on every pass.
    """
    attributes = dict(vars(module))
    mappings = {name: value for name, value in attributes.items() if isinstance(value, dict)}
    return attributes, {name: dict(value) for name, value in mappings.items() if name != "_parameters"}
