"""Asks a server for the model that it serves, its version, and its load."""

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from distill import redact
from distill.artifacts.files import directory_sha256
from distill.errors import TeacherError
from distill.recipe.sections.teachers import Teacher
from teacher.engines.http.chat_protocol import ResponseReader, excerpt, parse_json
from teacher.engines.http.connections import CONNECTION_ERRORS, fetch
from teacher.engines.http.replicas import Replica
from teacher.engines.http.response_parser import HttpResponse
from teacher.engines.outage import Failure
from teacher.messages.completion import EngineInfo
from teacher.messages.request import Model

OTHER_MODEL = "other_model"
"""The reason of a failure: another model has answered."""
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0"})
CHECK_TIMEOUT_S = 15.0
_POLL_S = (0.25, 2.0)
"""How often a server's queue is looked at: while the limit changes, and later. A look takes the server's CPU, too."""
_MAX_BYTES = 1 << 22
_MAX_REQUESTS = 1e7
_PLACE_CHARACTERS = 200
_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def parse_queue(metrics: str) -> tuple[float, float] | None:
    """Requests that a vLLM server works on and those that wait, from its metrics; None when it does not say."""
    sums: dict[str, float] = {}
    for line in metrics.splitlines():
        if line.startswith(_GAUGES):
            name, _, value = line.partition("{")[0].partition(" ")
            try:
                number = float(value or line.rpartition(" ")[2])
            except ValueError:
                return None
            sums[name] = sums.get(name, 0.0) + number
    running, waiting = (sums.get(name, -1.0) for name in _GAUGES)
    sane = all(math.isfinite(value) and 0 <= value <= _MAX_REQUESTS for value in (running, waiting))
    return (running, waiting) if sane else None


async def follow_queue(headers: Mapping[str, str], replica: Replica, changed: Callable[[], None]) -> None:
    """Pass the length of a server's queue to its concurrency limit, as long as the server shows it."""
    url = f"{replica.url.removesuffix('/v1')}/metrics"
    proxy = proxy_of(url)
    pause_s, longest_s = _POLL_S
    was_shown = False
    while True:
        await asyncio.sleep(pause_s)
        try:
            page = await fetch(url, headers, proxy=proxy, max_bytes=_MAX_BYTES, limit_s=CHECK_TIMEOUT_S)
            lengths = parse_queue(page.body.decode(errors="replace")) if page.status == 200 else None
        except CONNECTION_ERRORS:
            continue
        if lengths is None:
            if not was_shown and page.status in (200, 404):
                return  # it never will; one that is starting again, or too busy to say, may
            continue
        was_shown = True
        limit_before = replica.concurrency.limit
        replica.concurrency.observe_queue(*lengths, replica.in_flight, time.monotonic())
        pause_s = _POLL_S[0] if replica.concurrency.limit != limit_before else min(1.25 * pause_s, longest_s)
        changed()


def is_http_url(url: str) -> bool:
    """Whether an HTTP client can use an address."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def proxy_of(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for an address; this machine needs none.

    Raises TeacherError for a proxy that cannot be used: waiting does not cure it.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in LOCAL_HOSTS or host.startswith("127.") or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    name = parts.scheme if proxies.get(parts.scheme) else "all"
    proxy = proxies.get(name)
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not is_http_url(proxy):
        raise TeacherError(
            f"{name.upper()}_PROXY = {redact.url(proxy)!r} is no HTTP proxy (http://HOST:PORT), so {redact.url(url)} "
            "cannot be asked; correct it, or name the server's host in NO_PROXY"
        )
    return proxy


async def server_info(
    headers: Mapping[str, str], teacher: Teacher, model: Model, url: str, where: str = ""
) -> EngineInfo:
    """What a server is. Raises Failure when it does not say it now, TeacherError when it serves another model.

    `where` is the recipe's key of what is asked as a teacher is.
    """
    start = (
        f"start its server (vllm serve {teacher.model}), {'' if where else 'leave base_url out to have it started, '}"
    )
    where = where or f"teachers.{teacher.name}"
    address = f"{url}/models"
    try:
        page = await fetch(address, headers, proxy=proxy_of(address), max_bytes=_MAX_BYTES, limit_s=CHECK_TIMEOUT_S)
    except CONNECTION_ERRORS as error:
        problem = f"no answer from {url} ({str(error) or type(error).__name__})"
        raise Failure("connection", f"{where}: {problem}; {start}or correct base_url") from None
    status, payload = page.status, page.body
    # 403: the key may ask but not list models (OpenAI's restricted keys); the first request shows whether it works.
    if status in (401, 407):
        raise Failure(
            "refused_key",
            f"{where}: {url} refuses the key (HTTP {status}: {excerpt(payload)}); "
            f"set {where}.api_key_env to the name of the environment variable that holds it",
        )
    if status == 404 and not url.endswith("/v1"):
        raise TeacherError(f"{where}.base_url = {url!r} has no list of models (HTTP 404); it usually ends in /v1")
    if moved := moved_to(page):
        problem = f"{address} has moved{moved}"
        if status in (301, 308):
            raise TeacherError(f"{where}.base_url: {problem}; set base_url to where the server is now")
        raise Failure("server_error", f"{where}: {problem}; a proxy or a log-in page answers instead of the server")
    if status >= 500 or status in (402, 408, 425, 429):
        raise Failure("server_error", f"{where}: {url} answers HTTP {status}: {excerpt(payload)}")
    listed = parse_json(payload)
    if status == 200 and not isinstance(listed, dict | list):
        problem = f"{address} is not a list of models; it begins with {excerpt(payload)[:80]!r}"
        if not url.endswith("/v1"):
            raise TeacherError(f"{where}.base_url = {url!r}: {problem}; it usually ends in /v1")
        raise Failure("server_error", f"{where}: {problem}; a proxy or a log-in page answers instead of the server")
    cards = listed.get("data") if isinstance(listed, dict) else None
    cards = cards if isinstance(cards, list) else []
    name = find_served_name(teacher, model, url, cards, where)
    known = await server_version(headers, url)
    engine = {"name": "vllm" if known else teacher.backend, "version": redact.cut(str(known or ""), 100)}
    card = next((card for card in cards if isinstance(card, dict) and card.get("id") == name), {})
    max_model_len = ResponseReader().count("max_model_len", card.get("max_model_len"))
    require_room(teacher, url, max_model_len)
    return EngineInfo(model=name, engine=engine, facts={"max_model_len": max_model_len}, listed=bool(card))


def moved_to(page: HttpResponse) -> str:
    """Where a redirect leads, for a message; empty for another answer."""
    if page.status // 100 != 3:
        return ""
    place = redact.url(page.headers.get("location", ""))[:_PLACE_CHARACTERS]
    return f" (HTTP {page.status}{f' to {place}' if place else ''})"


async def server_version(headers: Mapping[str, str], url: str) -> Any:
    """The version that a vLLM server reports; None for another server, which may lack this endpoint."""
    address = f"{url.removesuffix('/v1')}/version"
    with suppress(*CONNECTION_ERRORS):
        page = await fetch(address, headers, proxy=proxy_of(address), max_bytes=_MAX_BYTES, limit_s=CHECK_TIMEOUT_S)
        answer = parse_json(page.body)
        return answer.get("version") if isinstance(answer, dict) else None
    return None


def find_served_name(teacher: Teacher, model: Model, url: str, cards: list[Any], where: str) -> str:
    """The name under which a server serves the teacher's model. Raises TeacherError when it serves another."""
    served = {str(card["id"]): card.get("root") for card in cards if isinstance(card, dict) and "id" in card}
    expected = teacher.served_model or model.name
    if not served or expected in served:
        return expected
    for name in served:
        if name.lower() == expected.lower():
            return name
    listing = ", ".join(served)
    if teacher.served_model:
        if expected != teacher.model and not teacher.capabilities.knows_sampling:
            return expected  # Azure lists the models that can be deployed, not the deployments
        raise TeacherError(
            f"{where}: {url} does not serve {expected!r}; it serves: {listing}; correct the name of the model, or "
            "start the right server"
        )
    for name, root in served.items():
        if _same_checkpoint(root, model):
            return name
    only = next(iter(served))
    if len(served) == 1 and served[only] in (None, only) and not _is_other_hub_model(teacher, model, only):
        return only
    if any(same_model(expected, name) for name in served):
        return expected  # hosted APIs list dated names, and take those without a date, too
    raise TeacherError(
        f"{where}: {url} serves {listing}, not model = {model.name!r}; start the right server, or set served_model "
        "if it is the same model under another name"
    )


def require_same_name(teacher: Teacher, url: str, name: str, others: str) -> None:
    """Raise TeacherError for a server that serves the model under another name than the teacher's other servers."""
    if name != others:
        raise TeacherError(
            f"teachers.{teacher.name}.base_url: {url} serves the model as {name!r}, another of its servers as "
            f"{others!r}, and a request has one name; start all with the same --served-model-name"
        )


def require_room(teacher: Teacher, url: str, context_length: object) -> None:
    """Raise TeacherError for a server whose longest context has no room for a prompt beside `max_tokens`."""
    max_tokens = teacher.sampling.max_tokens
    if isinstance(context_length, int) and max_tokens >= context_length:
        raise TeacherError(
            f"{url} takes {context_length} tokens, prompt included: teachers.{teacher.name}.sampling.max_tokens = "
            f"{max_tokens} leaves no room for a prompt; lower max_tokens, or start the server with a larger "
            "max-model-len"
        )


def _is_other_hub_model(teacher: Teacher, model: Model, served: str) -> bool:
    """Whether a server names a model of the hub that is not the teacher's; other names are names of its own."""
    names = (model.name, served)
    return (
        not (model.local or teacher.allow_other_model)
        and all(map(_HUB_NAME.fullmatch, names))
        and not same_model(*names)
    )


def _same_checkpoint(root: object, model: Model) -> bool:
    if not isinstance(root, str):
        return False
    if not model.local:
        return root == model.name
    return Path(root).is_dir() and model.revision == directory_sha256(Path(root).resolve())


_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_DATED = re.compile(r"[-@:](latest|\d{3,4}|\d{4}-?\d\d-?\d\d)")
"""How hosted APIs name the version of the model that they were asked for."""
_LATEST = re.compile(r"[-@:]latest\Z")


def same_model(asked: str, answered: str) -> bool:
    """Whether the model that a server names in an answer is the requested one; True where the server names none."""
    if not answered or answered == asked:
        return True
    first, second = asked.lower(), answered.lower()
    first = _LATEST.sub("", first) if not _LATEST.search(second) else first
    if min(first.count("/"), second.count("/")) == 0 or "/" in (first[0], second[0]):
        first, second = first.rpartition("/")[2], second.rpartition("/")[2]
    if second == first or second == first.partition(":")[0]:  # suffixes such as ":free" say how a model is served
        return True
    return bool(second.startswith(first) and _DATED.fullmatch(second, len(first)))


def other_model(teacher: Teacher, asked: str, answered: str) -> str:
    """What is wrong with an answer of another model than the one that was asked; empty when nothing is."""
    if teacher.allow_other_model or same_model(asked, answered) or same_model(teacher.model, answered):
        return ""
    return (
        f"model {answered!r} has answered instead of {asked!r}; start the right server, correct served_model of "
        f"teacher '{teacher.name}', or set its allow_other_model = true if this model is intended"
    )
