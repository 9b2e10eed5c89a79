"""Checks of teachers: settings, keys, checkpoints, programs, and the servers that are to be there already."""

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from distill import packages
from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, fine, not_checked, problem, warning
from distill.checks.student import require_checkpoint
from distill.errors import DistillError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.teachers import Teacher
from distill.word_tables import counted
from teacher import checks
from teacher.engines.connect import ClientSettings
from teacher.engines.http.chat_protocol import api_key, excerpt, parse_json, request_headers, sampling_body
from teacher.engines.http.connections import CONNECTION_ERRORS, fetch
from teacher.engines.http.http_client import ChatClient
from teacher.engines.http.response_parser import HttpResponse
from teacher.engines.http.server_info import CHECK_TIMEOUT_S, proxy_of
from teacher.engines.vllm.vllm_options import is_script
from teacher.messages.prompts import PLACEHOLDERS
from teacher.messages.request import Model
from teacher.store.question_plan import require_different

_CONNECT_S = 2.0
_MAX_BYTES = 1 << 20
_IMAGE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAALElEQVR4nO3MoQEAAAjDMOByTueIGUTqm97KmvAHAAAAAAAAAAAA"
    "AAAA8B44QHQBALYvz+QAAAAASUVORK5CYII="
)
"""A grey square of 64 pixels a side."""
ANSWER_S = 6.0
"""How long a server may take to say what it is and to answer the questions of one check."""
_QUANTIZE = "quantization"
_STORED = ("awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors")
"""Kinds that need weights stored in them; others, such as fp8, vLLM makes while it loads."""


def check_settings(context: CheckContext) -> Iterator[CheckResult]:
    """Checks that the settings of each teacher fit together."""
    problems = list(checks.settings_problems(context.recipe))
    for error in problems:
        key = next((_key(teacher) for teacher in context.recipe.teachers if _names(str(error), teacher)), "teachers")
        yield problem(key, str(error), f"correct {key}")
    if not problems:
        # By place and not by content: digests of large checkpoints take minutes.
        require_different(
            context.recipe, {teacher.name: _model(context.recipe, teacher) for teacher in teachers_left(context)}
        )
    for teacher in teachers_left(context):
        yield from _budget(teacher)
        for word in checks.unknown_braces(teacher.prompt, PLACEHOLDERS):
            yield warning(
                f"{_key(teacher)}.prompt",
                f"{{{word}}} is no placeholder and is sent as it stands (known: {', '.join(PLACEHOLDERS)})",
                "correct the prompt, or ignore this if the braces are intended",
            )


def teachers_left(context: CheckContext) -> tuple[Teacher, ...]:
    """The teachers that will still be asked. Once their traces are there: for judgements, scores and rounds."""
    recipe = context.recipe
    if not context.is_done("generate"):
        return recipe.teachers
    asked = {recipe.filter.judge.teacher} if "judge" in recipe.filter.signals else set()
    for stage in recipe.stages:
        if not context.is_done(f"train/{stage.name}"):
            asked |= {part.teacher for part in (stage.visual, stage.rollouts) if part is not None}
    names = [teacher.name for teacher in recipe.teachers]
    if context.has_rounds_left:
        asked |= {*(recipe.rounds.teachers or names)}
    return tuple(teacher for teacher in recipe.teachers if not asked.isdisjoint((teacher.name, None)))


def _names(message: str, teacher: Teacher) -> bool:
    return f"'{teacher.name}'" in message or f"teachers.{teacher.name}." in message


def _key(teacher: Teacher) -> str:
    return f"teachers.{teacher.name}"


def _model(recipe: Recipe, teacher: Teacher) -> Model:
    return Model(name=recipe.local_or_hub(teacher.model), revision=teacher.revision or "", local=False)


def _budget(teacher: Teacher) -> Iterator[CheckResult]:
    sampling = teacher.sampling
    if sampling.thinking_budget is not None and sampling.thinking_budget >= sampling.max_tokens:
        yield warning(
            f"{_key(teacher)}.sampling.thinking_budget",
            f"{sampling.thinking_budget} leaves nothing of max_tokens = {sampling.max_tokens} for the answer",
            "raise max_tokens, or lower thinking_budget",
        )


def check_what_teachers_need(context: CheckContext) -> Iterator[CheckResult]:
    """Keys, checkpoints and programs: all that is lacking, not only the first."""
    for teacher in teachers_left(context):
        key = _key(teacher)
        problems = list(checks.teacher_problems(context.recipe, teacher))
        for error in problems:
            yield problem(key, str(error), f"correct [[teachers]] {teacher.name}, or install what it needs")
        local = Path(context.recipe.local_or_hub(teacher.model))
        if local.is_dir():
            if teacher.managed:
                yield from _options_of(teacher, local)
            if not problems:
                yield from _checkpoint(teacher, local)
        elif teacher.capabilities.in_process or (teacher.managed and not is_script(teacher.server)):
            yield context.hub.look(f"{key}.model", teacher.model, "model", teacher.revision)


def _options_of(teacher: Teacher, folder: Path) -> Iterator[CheckResult]:
    """Options of a server that do not fit its checkpoint: vLLM reports them only at its start."""
    try:
        config = orjson.loads((folder / "config.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return  # the check of the checkpoint reports it
    key = f"{_key(teacher)}.server.arguments"
    size, quantization = (
        checks.server_argument(teacher.server, name) for name in ("tensor-parallel-size", _QUANTIZE)
    )
    heads = (config.get("text_config") or config).get("num_attention_heads")
    if isinstance(size, int) and isinstance(heads, int) and size > 0 and heads % size:
        fitting = [each for each in (1, 2, 4, 8) if not heads % each]
        yield problem(
            f"{key}.tensor-parallel-size",
            f"{size} does not divide the {counted(heads, 'attention head')} of {teacher.model}",
            f"choose one of {', '.join(map(str, fitting))}",
        )
    if quantization in _STORED and "quantization_config" not in config:
        yield problem(
            f"{key}.{_QUANTIZE}",
            f"{quantization!r}, and config.json of {teacher.model} has no quantization_config, so its weights are "
            "stored in another form",
            f"leave {_QUANTIZE} out, or name the quantized checkpoint",
        )


def _checkpoint(teacher: Teacher, folder: Path) -> Iterator[CheckResult]:
    if not teacher.capabilities.in_process:
        yield fine(f"{_key(teacher)}.model", f"{folder} has the files of a checkpoint")
        return
    if packages.missing(*packages.TRAIN):
        return  # said of the extra
    try:
        require_checkpoint(folder, trust_remote_code=teacher.trust_remote_code)
    except DistillError as error:
        yield problem(
            f"{_key(teacher)}.model", str(error), "replace the checkpoint, or copy what is missing from the original"
        )
        return
    yield fine(f"{_key(teacher)}.model", f"{folder} is a whole checkpoint with its processor")


def check_servers(context: CheckContext) -> Iterator[CheckResult]:
    """Servers that the recipe names answer, take the key, serve the model and, where they get any, images."""
    survey = context.surveyed(ASKED)
    pictured = survey is not None and survey.pictured > 0
    for teacher in teachers_left(context):
        for url in teacher.urls:
            results: list[CheckResult] = []
            key = f"{_key(teacher)}.base_url"
            yield server_state(key, url, partial(_ask, context, teacher, url, results, pictured=pictured))
            yield from results


def server_state(key: str, url: str, ask: Callable[[], str]) -> CheckResult:
    """The state of a server: `ask` returns the answer of the server, and raises a DistillError if the server cannot
    be used."""
    try:
        checks.require_url(url, key)
    except DistillError as error:
        return problem(key, str(error), f"correct {key}")
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), _CONNECT_S).close()
    except OSError as error:
        return warning(
            key, f"nothing answers at {url} now ({error})", f"start the server before the run, or correct {key}"
        )
    try:
        said = ask()
    except TimeoutError:
        return warning(key, f"{url} accepts connections but does not answer", "wait until the server is up")
    except DistillError as error:
        return problem(key, str(error), f"correct {key}, or start the right server")
    return fine(key, f"{url} {said}")


def _ask(context: CheckContext, teacher: Teacher, url: str, results: list[CheckResult], *, pictured: bool) -> str:
    try:
        api_key(teacher)
    except DistillError:
        return "accepts connections"  # the check of the teacher reports it
    return asyncio.run(_asked(context.recipe, teacher, url, results, pictured))


def teacher_client(recipe: Recipe, teacher: Teacher, url: str) -> ChatClient:
    """A client of one of the teacher's servers."""
    model = _model(recipe, teacher)
    settings = ClientSettings(teacher=teacher, model=model, max_pixels=1, max_failure_share=1.0)
    return ChatClient(settings, urls=(url,))


async def _asked(recipe: Recipe, teacher: Teacher, url: str, results: list[CheckResult], pictured: bool) -> str:
    """What the server says of the model. Other findings are added to `results`.

    Raises TeacherError, and TimeoutError for a silent server.
    """
    client = teacher_client(recipe, teacher, url)
    async with client, asyncio.timeout(ANSWER_S):
        await client.check(patience_s=0.0)
        served = client.info.model
        if served not in (teacher.model, teacher.served_model, recipe.local_or_hub(teacher.model)):
            results.append(
                warning(
                    f"{_key(teacher)}.model",
                    f"{teacher.model}, and {url} serves {served!r}",
                    "start the right server, or set served_model where both are the same model",
                )
            )
        if pictured and not teacher.capabilities.may_charge:
            results += await _takes_images(client, teacher, url)
        elif pictured:
            results.append(
                not_checked(f"{_key(teacher)}.model", "whether it accepts images: this request would cost money")
            )
        if client.info.listed:
            return "answers and serves the model"
        return f"answers, and lists no model {served!r}: the first request shows whether it has it"


async def _takes_images(client: ChatClient, teacher: Teacher, url: str) -> list[CheckResult]:
    """A request of one token about a tiny image, to a server that costs nothing a request."""
    key, mend = f"{_key(teacher)}.model", 'serve a model that takes images, or give the teacher modality = "text"'
    text = {"type": "text", "text": "?"}
    try:
        image = {"type": "image_url", "image_url": {"url": _IMAGE}}
        pictured = await ask_briefly(client, teacher, url, [{"role": "user", "content": [image, text]}])
        if pictured.status in (400, 422):
            return [problem(key, f"{url} refuses a request with an image: {excerpt(pictured.body)}", mend)]
        answer = parse_json(pictured.body)
        if pictured.status in (404, 405) or (pictured.status == 200 and not _is_completion(answer)):
            said = f"HTTP {pictured.status}: {excerpt(pictured.body)}"
            message = f"{url}/chat/completions gives no chat completion ({said})"
            return [problem(f"{_key(teacher)}.base_url", message, "correct base_url; it usually ends in /v1")]
        tokens = prompt_tokens(answer)
        if tokens is not None:
            plain = await ask_briefly(client, teacher, url, [{"role": "user", "content": [text]}])
            if prompt_tokens(parse_json(plain.body)) == tokens:
                said = (
                    f"{url} counts {counted(tokens, 'prompt token')} with an image and without: it may leave images "
                    "out"
                )
                return [warning(key, said, mend)]
    except CONNECTION_ERRORS as error:
        what = f"whether it accepts images: no reply to a small image ({str(error) or type(error).__name__})"
        return [not_checked(key, what)]
    return []


async def ask_briefly(client: ChatClient, teacher: Teacher, url: str, chat: Sequence[dict[str, Any]]) -> HttpResponse:
    """The answer to a chat, of one token."""
    body = {"model": client.info.model, "messages": chat, "max_tokens": 1}
    settings = sampling_body(teacher, teacher.sampling)
    body |= {name: settings[name] for name in ("chat_template_kwargs", "mm_processor_kwargs") if name in settings}
    return await fetch(
        f"{url}/chat/completions",
        request_headers(teacher),
        proxy=proxy_of(url),
        max_bytes=_MAX_BYTES,
        limit_s=CHECK_TIMEOUT_S,
        body=orjson.dumps(body),
    )


def _is_completion(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("choices"), list)


def prompt_tokens(answer: Any) -> int | None:
    """The number of tokens that a server counted in a prompt; None if its answer has no count."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else None


def check_requests(context: CheckContext) -> Iterator[CheckResult]:
    """Rows fit into the requests that servers take."""
    survey = context.readable(ASKED)
    for teacher in teachers_left(context):
        limit = checks.server_argument(teacher.server, "limit-mm-per-prompt")
        images = limit.get("image") if isinstance(limit, dict) else None
        if survey is not None and teacher.managed and isinstance(images, int) and survey.most_images > images:
            yield problem(
                f"{_key(teacher)}.server.arguments.limit-mm-per-prompt",
                f"allows {counted(images, 'image')}, and a question of [data.{ASKED}] has {survey.most_images}",
                f"raise it to image = {survey.most_images}",
            )


def check_gpus(context: CheckContext) -> Iterator[CheckResult]:
    """Check that this machine has the GPUs that the recipe gives to servers, and that they are enough for the
    options."""
    managed = [teacher for teacher in teachers_left(context) if teacher.managed]
    gpu_ids = {number.strip() for teacher in managed for group in teacher.server.gpus for number in group.split(",")}
    gpu_count = _gpu_numbers() if managed else None
    for teacher in managed:
        yield from _parallel(teacher, gpu_count)
    if not gpu_ids:
        return
    if gpu_count is None:
        yield not_checked("teachers.server.gpus", "this machine has no nvidia-smi, which lists GPUs")
        return
    lacking = sorted(number for number in gpu_ids if number.isdecimal() and int(number) >= gpu_count)
    if lacking:
        yield problem(
            "teachers.server.gpus",
            f"names GPU {', '.join(lacking)}, and this machine has {gpu_count} (numbers from 0)",
            "correct [teachers.server] gpus",
        )


def _parallel(teacher: Teacher, gpu_count: int | None) -> Iterator[CheckResult]:
    """A server is not asked to spread over more GPUs than each of its replicas has."""
    size = checks.server_argument(teacher.server, "tensor-parallel-size")
    group_sizes = [len(group.split(",")) for group in teacher.server.gpus] or ([gpu_count] if gpu_count else [])
    if isinstance(size, int) and group_sizes and min(group_sizes) < size:
        yield problem(
            f"{_key(teacher)}.server.arguments.tensor-parallel-size",
            f"{size}, and a replica has {min(group_sizes)} GPUs",
            "lower it, or give each replica more GPUs in [teachers.server] gpus",
        )


def _gpu_numbers() -> int | None:
    """How many GPUs the driver lists; None where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=10, check=False)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if not done.returncode else None
