"""Check of the context of vLLM servers: system text, question, image tokens and max_tokens together.

A server refuses a longer request, but only after the run has started. For a server that the run starts, the processor
of the checkpoint counts the tokens; a server that is up counts them itself, in requests for one token.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from distill import packages
from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, fine, not_checked, problem, warning
from distill.checks.teachers import ANSWER_S, ask_briefly, prompt_tokens, teacher_client, teachers_left
from distill.data.images import image_files
from distill.errors import DistillError, ImageError
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from distill.word_tables import counted
from teacher import checks
from teacher.engines.http.chat_protocol import excerpt, parse_json
from teacher.engines.http.connections import CONNECTION_ERRORS
from teacher.engines.vllm.vllm_options import is_vllm
from teacher.messages.prompts import image_part, messages, prompt
from teacher.scheduling.routing import route

_SIZED = 96
"""The image sizes of so many questions are read."""
_LARGEST, _SPREAD = 4, 12
"""The processor reads so many questions: those with the largest images, and others from the whole source."""
_PROBES = 3
"""A server counts the tokens of so many questions."""


def check_contexts(context: CheckContext) -> Iterator[CheckResult]:
    """Questions with their images and `max_tokens` fit into the context of the servers."""
    survey = context.readable(ASKED)
    for teacher in teachers_left(context):
        if survey is None or teacher.capabilities.may_charge or teacher.capabilities.in_process:
            continue
        mine = [sample for sample in survey.kept if teacher in route(context.recipe.teachers, sample)]
        limit = context.recipe.max_pixels
        if not mine or "{draft}" in teacher.prompt:
            continue  # drafts are not known yet
        if teacher.urls:
            yield from _asked_of_servers(context, teacher, _chosen(mine, limit, _PROBES - 1, 1), limit)
        elif is_vllm(teacher.server) or not teacher.capabilities.speaks_http:
            yield from _asked_of_processor(context, teacher, _chosen(mine, limit, _LARGEST, _SPREAD), limit)


def _chosen(samples: Sequence[Sample], max_pixels: int, largest: int, spread: int) -> list[Sample]:
    """Questions with the largest images, or the longest texts, and some from everywhere."""
    some = samples[:: max(1, len(samples) // _SIZED)]
    by_size = sorted(some, key=lambda sample: (_pixels(sample, max_pixels), len(sample.question)), reverse=True)
    chosen = {sample.id: sample for sample in by_size[:largest]}
    others = [sample for sample in some if sample.id not in chosen]
    return [*chosen.values(), *others[:: max(1, -(-len(others) // spread))]]


def _pixels(sample: Sample, max_pixels: int) -> int:
    total = 0
    for ref in sample.images:
        try:
            width, height = image_files.size(image_files.read_bytes(ref), max_pixels=max_pixels)
        except ImageError:
            continue  # said of the source
        total += width * height
    return total


def _asked_of_processor(
    context: CheckContext, teacher: Teacher, samples: Sequence[Sample], max_pixels: int
) -> Iterator[CheckResult]:
    key = f"teachers.{teacher.name}.server.arguments.max-model-len"
    path = context.recipe.local_or_hub(teacher.model)
    context_length = checks.context_length(teacher) or _trained_length(Path(path))
    if packages.missing(*packages.TRAIN):
        return  # said of the extra
    from student.models.library_output import hide_library_output
    from student.models.processors import load_processor

    try:
        with hide_library_output():
            processor = load_processor(path, revision=teacher.revision, trust_remote_code=teacher.trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError):
        processor = None
    if processor is None or context_length is None or getattr(processor, "chat_template", None) is None:
        what = "the longest context of" if context_length is None else "processor and chat template of"
        message = f"whether images, question and max_tokens fit: {what} {teacher.model} cannot be read here"
        yield not_checked(key, message, "download the checkpoint first, or try a few questions with --limit")
        return
    lengths = [_length(processor, teacher, sample, max_pixels) for sample in samples]
    yield _verdict(key, teacher, lengths, context_length, f"a context of {counted(context_length, 'token')}")


def _trained_length(folder: Path) -> int | None:
    """What vLLM takes if max-model-len is not given."""
    try:
        config = orjson.loads((folder / "config.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    length = (config.get("text_config") or config).get("max_position_embeddings")
    return length if isinstance(length, int) else None


def _length(processor: Any, teacher: Teacher, sample: Sample, max_pixels: int) -> int:
    """Tokens of the prompt as the server makes it, image tokens included."""
    asked = prompt(teacher, sample)
    text = processor.apply_chat_template(
        messages(asked, [{"type": "image"}] * len(asked.images)),
        add_generation_prompt=True,
        tokenize=False,
        **teacher.chat_template_kwargs,
    )
    images = [image_files.load(ref, max_pixels=max_pixels) for ref in asked.images]
    options = dict(teacher.mm_processor_kwargs) if images else {}
    encoded = processor(text=[text], images=images or None, add_special_tokens=False, **options)
    return len(encoded["input_ids"][0])


def _asked_of_servers(
    context: CheckContext, teacher: Teacher, samples: Sequence[Sample], max_pixels: int
) -> Iterator[CheckResult]:
    key = f"teachers.{teacher.name}.sampling.max_tokens"
    for url in teacher.urls:
        try:
            checks.require_url(url, key)
            result = asyncio.run(_asked(context, key, teacher, url, samples, max_pixels))
        except (DistillError, TimeoutError, *CONNECTION_ERRORS):
            continue  # said of the server
        if result is not None:
            yield result


async def _asked(
    context: CheckContext, key: str, teacher: Teacher, url: str, samples: Sequence[Sample], max_pixels: int
) -> CheckResult | None:
    client = teacher_client(context.recipe, teacher, url)
    async with client, asyncio.timeout(2 * ANSWER_S):
        await client.check(patience_s=0.0)
        context_length = client.info.facts.get("max_model_len")
        if not isinstance(context_length, int):
            return None
        where = f"{url}, which takes {counted(context_length, 'token')}"
        lengths: list[int] = []
        for sample in samples:
            asked = prompt(teacher, sample)
            parts = [
                image_part(*image_files.portable(image_files.read_bytes(ref), max_pixels=max_pixels))
                for ref in asked.images
            ]
            answer = await ask_briefly(client, teacher, url, messages(asked, parts))
            if answer.status in (400, 413, 422):
                message = f"{url} refuses a question of [data.{ASKED}] even for one token: {excerpt(answer.body)}"
                return problem(key, message, "start the server with a larger max-model-len, or make images smaller")
            tokens = prompt_tokens(parse_json(answer.body))
            if tokens is not None:
                lengths.append(tokens)
    return _verdict(key, teacher, lengths, context_length, where) if lengths else None


def _verdict(key: str, teacher: Teacher, lengths: list[int], context_length: int, where: str) -> CheckResult:
    longest, max_tokens = max(lengths), teacher.sampling.max_tokens
    too_long = sum(length + max_tokens > context_length for length in lengths)
    said = f"max_tokens = {max_tokens:,} beside a question of up to {counted(longest, 'token')}, images included"
    if not too_long:
        return fine(key, f"{said}, fits {where}")
    message = (
        f"{said}, does not fit {where}: it refuses {too_long} of the {counted(len(lengths), 'question')} that were "
        "tried"
    )
    mend = (
        f"start the server with max-model-len = {longest + max_tokens:,} or more, lower max_tokens, or make images "
        "smaller (mm_processor_kwargs, such as { max_pixels = 1_000_000 })"
    )
    return problem(key, message, mend) if 2 * too_long > len(lengths) else warning(key, message, mend)
