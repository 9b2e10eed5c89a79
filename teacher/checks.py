"""Checks whether the teachers of a recipe can be asked: recipe, disk and environment, without a request to a server.

It finds all problems, not only the first. The question plan checks whether a teacher gets rows.
"""

import difflib
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from distill import packages
from distill.data.images.lfs_pointers import explain_pointers
from distill.errors import InputError, ModelError, RecipeError, input_errors
from distill.recipe.messages import did_you_mean
from distill.recipe.recipe import Recipe
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.teachers import Teacher
from teacher.engines.connect import engine_class
from teacher.engines.http.chat_protocol import request_headers, sampling_body
from teacher.engines.http.server_info import is_http_url
from teacher.engines.vllm.vllm_options import check_arguments, is_vllm
from teacher.messages.prompts import PLACEHOLDERS, prompt_key

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_SIZES = {"k": 1000, "m": 1_000_000, "K": 1024, "M": 1 << 20}
"""Suffixes that vLLM understands in numbers of tokens."""


def settings_problems(recipe: Recipe) -> Iterator[InputError]:
    """Reasons why the teachers cannot be asked with the settings of the recipe."""
    if not recipe.teachers:
        yield RecipeError(f"{recipe.path}: no [[teachers]]; generate needs at least one (name, model, backend)")
    for teacher in recipe.teachers:
        yield from input_errors(
            partial(_check_prompt, teacher),
            partial(_check_engine, recipe, teacher),
            partial(_check_context, teacher),
            partial(_check_urls, teacher),
        )


def teacher_problems(recipe: Recipe, teacher: Teacher) -> Iterator[InputError]:
    """What a teacher needs on this machine and what is missing: key, checkpoint, program of its server."""
    yield from input_errors(
        partial(request_headers, teacher),
        partial(_check_model, recipe, teacher),
        lambda: engine_class(teacher).check_program(recipe, teacher),
    )


def _check_prompt(teacher: Teacher) -> None:
    if teacher.prompt_from_outside:
        prompt_key(teacher)
        return
    require_placeholders(teacher.prompt, PLACEHOLDERS, f"teachers.{teacher.name}.prompt")


def require_placeholders(prompt: str, known: tuple[str, ...], where: str) -> None:
    """Raises RecipeError for what looks like a misspelt placeholder; other braces are the prompt's own."""
    for word in re.findall(r"{(\w+)}", prompt):
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
        if near and word not in known:
            raise RecipeError(f"{where}: {{{word}}} is unknown; did you mean {{{near[0]}}}?")


def unknown_braces(prompt: str, known: tuple[str, ...]) -> list[str]:
    """Single words in braces that are no placeholders; they are sent unchanged."""
    return [word for word in re.findall(r"(?<![\w{\\]){([A-Za-z_]\w*)}(?!})", prompt) if word not in known]


def _check_engine(recipe: Recipe, teacher: Teacher) -> None:
    if teacher.managed:
        check_arguments(teacher.server, f"{recipe.path}: teachers.{teacher.name}.server")
    backend = teacher.capabilities
    if backend.speaks_http:
        sampling_body(teacher, teacher.sampling)
    packages.require(f"teacher '{teacher.name}' with backend {teacher.backend!r}", *backend.packages)
    if not backend.keeps_thinking_budget and "budget" in recipe.generate.outcomes.policies:
        raise RecipeError(
            f"{recipe.path}: generate.outcomes asks for a thinking budget, which teacher '{teacher.name}' with "
            f"backend {teacher.backend!r} cannot keep; use resample or raise_cap"
        )


def _check_context(teacher: Teacher) -> None:
    """Raises RecipeError where a server that the run starts would refuse every request for its length."""
    max_tokens = teacher.sampling.max_tokens
    length = context_length(teacher)
    if teacher.managed and is_vllm(teacher.server) and length is not None and max_tokens >= length:
        raise RecipeError(
            f"teachers.{teacher.name}.sampling.max_tokens = {max_tokens} leaves no room for a prompt in "
            f"server.arguments.max-model-len = {length}; raise max-model-len, or lower max_tokens"
        )


def context_length(teacher: Teacher) -> int | None:
    """Tokens of prompt and reply together, as the recipe gives them to a server that the run starts."""
    return _parse_tokens(server_argument(teacher.server, "max-model-len"))


def server_argument(server: Server, option: str) -> Any:
    """The value of a server's option, however it is spelled; None where it is not given."""
    values = (value for name, value in server.arguments.items() if name.strip("- ").replace("_", "-") == option)
    return next(values, None)


def _parse_tokens(value: Any) -> int | None:
    """A number of tokens as vLLM reads it, such as 8192 or "8k"; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value > 0 else None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmKM]?)", value.strip()) if isinstance(value, str) else None
    return int(float(match[1]) * _SIZES.get(match[2], 1)) if match else None


def _check_urls(teacher: Teacher) -> None:
    for url in teacher.urls:
        require_url(url, f"teachers.{teacher.name}.base_url")


def require_url(url: str, where: str) -> None:
    """Raises RecipeError for an address that no HTTP client can use."""
    if not is_http_url(url):
        raise RecipeError(f"{where} = {url!r} is no address of a server; write it as http://127.0.0.1:8000/v1")
    base, endpoint, _ = url.partition("/chat/completions")
    if endpoint:
        raise RecipeError(f"{where} = {url!r} is the address of an endpoint; leave the end of it out: {base}")


def _check_model(recipe: Recipe, teacher: Teacher) -> None:
    """Raises ModelError for a local checkpoint that no engine could load.

    Names of models of the hub and of hosted APIs are not looked up.
    """
    folder = Path(recipe.local_or_hub(teacher.model))
    if folder.is_dir():
        _check_checkpoint(teacher, folder)
    elif not folder.exists() and not teacher.capabilities.may_charge and not _HUB_NAME.fullmatch(teacher.model):
        local = recipe.local(teacher.model)
        suggestion = did_you_mean(local.name, [path.name for path in local.parent.glob("*/")])
        raise ModelError(
            f"teacher '{teacher.name}': model = {teacher.model!r} is neither a hub name nor a directory ({local} "
            f"does not exist{suggestion}); correct teachers.model"
        )
    elif folder.is_file():
        raise ModelError(
            f"teacher '{teacher.name}': model = {teacher.model!r} is a file; give the folder of a checkpoint"
        )


def _check_checkpoint(teacher: Teacher, folder: Path) -> None:
    if unfetched := explain_pointers(folder):
        raise ModelError(f"teacher '{teacher.name}': {unfetched}")
    # A server may get its template and its tokenizer from elsewhere.
    in_process = teacher.capabilities.in_process
    for present, file_name in (
        ((folder / "config.json").is_file(), "config.json"),
        (not in_process or any(folder.glob("*.safetensors")), "*.safetensors"),
        (not in_process or any((folder / name).is_file() for name in _TOKENIZERS), "tokenizer.json"),
        (not in_process or _has_template(folder), "chat_template.jinja"),
    ):
        if not present:
            raise ModelError(f"teacher '{teacher.name}': {folder} has no {file_name}; it is not a whole checkpoint")


def _has_template(folder: Path) -> bool:
    configured = folder / "tokenizer_config.json"
    try:
        return any((folder / name).is_file() for name in _TEMPLATES) or (
            configured.is_file() and "chat_template" in orjson.loads(configured.read_bytes())
        )
    except (OSError, orjson.JSONDecodeError) as error:
        raise ModelError(f"{configured}: cannot be read: {error}; copy the checkpoint again") from None
