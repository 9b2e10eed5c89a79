"""Checks of tokens: rows that fit, replies within the student's positions, teachers with the student's vocabulary."""

from collections.abc import Iterator
from pathlib import Path

from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, not_checked, problem, warning
from distill.checks.student import can_be_outlined, encoder_of
from distill.errors import DistillError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import Stage, is_traces
from distill.types import Sample
from distill.word_tables import counted
from student.data.rows import TrainingRow

_FEW_FIT = 0.5
_LONG = 1.5
_SAME_TOKENS = 0.9
"""Share of a teacher's vocabulary that a student must have to count as the same; it may have more tokens."""
_PROBED = 64
"""The number of questions that are tokenised for the student."""


def check_traces_fit(context: CheckContext) -> Iterator[CheckResult]:
    """Check that questions with images leave room for a rationale within max_length of the stages that learn
    traces."""
    stages = [stage for stage in context.recipe.stages if is_traces(stage) and stage.too_long != "shrink_image"]
    survey = context.readable(ASKED)
    if not stages or survey is None or not can_be_outlined(context):
        return
    try:
        if context.planner.processor is None:
            return
        lengths = _prompt_lengths(context, survey.kept[:_PROBED])
    except DistillError:
        return  # said of the student
    for stage in stages:
        yield from _room(context.recipe, stage, lengths)
    yield from _contexts(context)


def _prompt_lengths(context: CheckContext, samples: list[Sample]) -> list[int]:
    """Tokens of questions with an empty response, image tokens included."""
    from student.data.encode import RowLimits, encode
    from student.data.images import ImageStore

    rows = [TrainingRow(id=each.id, images=each.images, question=each.question, response="?") for each in samples]
    store = ImageStore(context.planner.processor, context.planner.outline.dtype, memory_bytes=1 << 28)
    limits = RowLimits(max_length=1 << 30, max_pixels=context.recipe.max_pixels)
    return encode(rows, encoder_of(context), store, limits).lengths


def _room(recipe: Recipe, stage: Stage, lengths: list[int]) -> Iterator[CheckResult]:
    key = f"stages.{stage.name}.max_length"
    fitting = sum(length < stage.max_length for length in lengths)
    if lengths and fitting <= _FEW_FIT * len(lengths):
        message = (
            f"{stage.max_length} tokens, and {len(lengths) - fitting} of the first {len(lengths)} questions are "
            f"longer with their images alone (up to {max(lengths):,})"
        )
        mend = f"raise {key} to more than {counted(max(lengths), 'token')}, the rationale included"
        yield problem(key, message, mend) if not fitting else warning(key, message, mend)
        return
    longest = max((teacher.sampling.max_tokens for teacher in recipe.teachers), default=0)
    needed = max(lengths, default=0) + longest
    cut = stage.target == "rationale" and stage.too_long == "drop"
    if lengths and cut and needed > _LONG * stage.max_length:
        yield warning(
            key,
            f"{counted(stage.max_length, 'token')}, and teachers may write {longest:,} beside a question of up to "
            f"{max(lengths):,}; longer rows are left out",
            f"raise {key}, or lower max_tokens of the teachers",
        )


def _contexts(context: CheckContext) -> Iterator[CheckResult]:
    """Rows and replies within the positions that the student knows."""
    longest = getattr(context.planner.outline.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(longest, int):
        return
    max_lengths = {f"stages.{stage.name}.max_length": stage.max_length for stage in context.recipe.stages}
    max_lengths["eval.max_new_tokens"] = context.recipe.eval.max_new_tokens
    for key, tokens in max_lengths.items():
        if tokens > longest:
            message = f"{counted(tokens, 'token')}, and the student knows positions up to {longest:,}"
            yield warning(key, message, f"lower {key}")


def check_shared_tokens(context: CheckContext) -> Iterator[CheckResult]:
    """Stages that learn distributions need teachers with the student's tokens."""
    stages = [stage for stage in context.recipe.stages if stage.divergence is not None]
    scorers = {stage.rollouts.teacher for stage in stages if stage.rollouts is not None}
    if not stages or not can_be_outlined(context):
        return
    from transformers import AutoTokenizer

    mine = context.planner.processor.tokenizer.get_vocab()
    for teacher in context.recipe.teachers:
        folder = Path(context.recipe.local_or_hub(teacher.model))
        if not teacher.logprobs and teacher.name not in scorers:
            continue
        section = "distill" if stages[0].rollouts is None else "rollouts"
        key = f"stages.{stages[0].name}.{section}"
        if not folder.is_dir():
            yield not_checked(key, f"{teacher.model} is not on this machine, so its tokenizer is not known")
            continue
        teacher_vocabulary = AutoTokenizer.from_pretrained(folder).get_vocab()
        shared = sum(mine.get(token) == number for token, number in teacher_vocabulary.items())
        if shared < _SAME_TOKENS * len(teacher_vocabulary):
            yield problem(
                key,
                f"teacher '{teacher.name}' has other tokens than the student: {shared:,} of "
                f"{len(teacher_vocabulary):,} are the same",
                f"use a teacher and a student of one model family, or train without [stages.{section}]",
            )
