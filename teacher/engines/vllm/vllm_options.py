"""The options of a vLLM server: which there are, how a recipe's values become arguments, which change its answers.

The options are asked from the vLLM that will be started (vllm_probe.py, run by its interpreter); its answer is kept
in the user's cache folder by interpreter and version. If no vLLM answers, the options are not checked here; the
server refuses unknown options at its start. Whether a value suits is the server's to say.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from distill import redact
from distill.artifacts.files import file_sha256, storage_errors, write_json
from distill.errors import RecipeError
from distill.local_paths import from_home
from distill.recipe.messages import did_you_mean
from distill.recipe.sections.managed_server import Server
from teacher.engines.http.chat_protocol import parse_json

_SET_BY_RUN = {
    "model": "`model` of the teacher",
    "model-tag": "`model` of the teacher",
    "host": "the run: the server listens on 127.0.0.1 only",
    "port": "the run, which chooses a free port",
    "uds": "the run, which uses a port",
    "headless": "the run, which needs the API",
    "served-model-name": "`served_model` of the teacher",
    "revision": "`revision` of the teacher",
}

_SPEED = re.compile(
    # HTTP and files
    r"allow-credentials|allowed-.*|api-key|api-server-count|ssl-.*|uvicorn-.*|h11-.*|root-path|middleware|grpc.*|hf-token"
    r"|download-dir|ignore-patterns|load-format|safetensors-load-strategy|use-tqdm-on-load|trust-remote-code"
    # logs and measurements
    r"|(en|dis)able-log-.*|(en|dis)able-uvicorn-access-log|disable-access-log-.*|log-.*|logging-config|max-log-len"
    r"|otlp-.*|collect-detailed-traces|profiler-config|.*-metrics|show-hidden-metrics-.*|disable-fastapi-docs"
    # several GPUs and machines
    r"|(tensor|pipeline|data|expert)-parallel-.*|tp|pp|dp|nnodes|node-rank|master-(addr|port)|distributed-.*"
    r"|enable-expert-parallel|disable-custom-all-reduce|max-parallel-loading-workers|numa-.*|device-ids|mm-encoder-tp-mode"
    # memory and scheduling
    r"|gpu-memory-utilization|max-model-len|max-num-.*|max-(cpu-)?loras|max-lora-rank|block-size|swap-space|cpu-offload-.*"
    r"|kv-offloading-.*|kv-cache-memory-bytes|num-gpu-blocks-override|(en|dis)able-(prefix-caching|chunked-prefill)"
    r"|async-scheduling|scheduling-policy|long-prefill-.*|stream-interval|limit-mm-per-prompt|mm-processor-cache-.*"
    r"|mm-shm-.*|skip-mm-profiling|enable-sleep-mode|renderer-num-workers|max-logprobs"
    # how the same numbers are computed
    r"|enforce-eager|cudagraph-.*|max-cudagraph-.*|compilation-config|optimization-level|attention-backend|mm-encoder-attn-backend"
)
"""Options that may differ between two starts: they change speed, memory and logs.

Every other option changes, or may change, the answer to a request (weights, numbers, the prompt).
"""

_PLACES = re.compile(
    r"PATH|HOME|PWD|USER|SHELL|LANG|TZ|TERM|LC_.*|XDG_.*|TMP(DIR)?|TEMP|LD_(LIBRARY_PATH|PRELOAD)|.*_(PATH|HOME|DIR|ROOT|FOLDER)"
    r"|(CUDA|NVIDIA|HIP|ROCR|ZE)_(VISIBLE_DEVICES|DEVICE_ORDER|AFFINITY_MASK|DRIVER_CAPABILITIES)|.*_NUM_THREADS|NCCL_.*|GLOO_.*|RAY_.*"
    r"|(ALL|HTTPS?|NO|FTP)_PROXY|.*_(PORT|HOST|HOST_IP|ADDRESS|IFNAME)|.*(CACHE|TIMEOUT|LOG|LOGGING|LOGS|VERBOSITY|VERBOSE|PROGRESS|USAGE"
    r"|TELEMETRY|TRACK|OFFLINE|PROFILER?|TRACE)(_.*|S)?|HF_HUB_.*|HF_ENDPOINT|PYTHON(UNBUFFERED|DONTWRITEBYTECODE|FAULTHANDLER)"
)
"""Variables of a server's environment that set its place, its logs and its waiting times.

Every other variable may change the answers: one of the user's own script, or of vLLM's arithmetic.
"""

_PROBE = Path(__file__).with_name("vllm_probe.py")
_PROBE_TIMEOUT_S = 300.0
_DIGEST = 12
_FIND_VERSION = """\
from importlib.util import find_spec
from pathlib import Path
print(Path(find_spec("vllm").submodule_search_locations[0], "_version.py").read_text())
"""


@dataclass(frozen=True, slots=True)
class VllmOptions:
    version: str = ""
    """Empty where no vLLM could be asked."""
    by_name: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Each option by name without dashes: its kind and its spelling."""

    def find(self, option: str) -> tuple[str, str] | None:
        return self.by_name.get(option.partition(".")[0])


def interpreter(server: Server) -> Path | None:
    """The Python that runs a server's command; None where it is not found."""
    if not (found := shutil.which(server.command[0], path=server.environment.get("PATH"))):
        return None
    program = Path(found)
    python = program if program.name.startswith("python") else program.with_name("python")
    return python if python.is_file() else None


def installed_options(server: Server) -> VllmOptions:
    """The options of the vLLM that a server's command starts; vLLM is asked only for a server with arguments."""
    python = interpreter(server) if server.arguments and is_vllm(server) else None
    return _read_options(str(python), tuple(sorted(server.environment.items()))) if python else VllmOptions()


@cache
def _read_options(python: str, environment: tuple[tuple[str, str], ...]) -> VllmOptions:
    settings = {**os.environ, **dict(environment)}
    version = run_script(python, _FIND_VERSION, settings)
    if not version:
        return VllmOptions()
    key = hashlib.sha256(orjson.dumps([python, version.decode(errors="replace")])).hexdigest()[:16]
    cached = from_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "cot-distill" / f"vllm-{key}.json"
    with suppress(OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return _parse_options(orjson.loads(cached.read_bytes()))
    answer = last_object(run_script(python, _PROBE.read_text(encoding="utf-8"), settings))
    if not answer:
        return VllmOptions()
    if cached.is_absolute():  # else this user has no home folder
        with suppress(OSError):  # without a cache it is asked again the next time
            cached.parent.mkdir(parents=True, exist_ok=True)
            write_json(cached, answer)
    return _parse_options(answer)


def run_script(python: str, script: str, environment: Mapping[str, str]) -> bytes:
    """What a script prints; nothing where it fails."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [python, "-c", script], capture_output=True, env=environment, check=False, timeout=_PROBE_TIMEOUT_S
        )
        return b"" if done.returncode else done.stdout
    return b""


def last_object(output: bytes) -> dict[str, Any]:
    """The JSON object in the last line of an output; an empty one where there is none."""
    answer = parse_json(output.strip().rpartition(b"\n")[2])
    return answer if isinstance(answer, dict) else {}


def _parse_options(answer: Mapping[str, Any]) -> VllmOptions:
    by_name: dict[str, tuple[str, str]] = {}
    for kind, *names in answer["options"]:
        for name in names:
            inverse = kind == "switch" and name == _inverse(names[0])
            by_name[name.lstrip("-")] = ("inverse" if inverse else kind, name)
    return VllmOptions(answer["version"], by_name)


def is_vllm(server: Server) -> bool:
    """Whether a server's command is vLLM's."""
    program = Path(server.command[0]).name
    return program == "vllm" or any(re.match(r"vllm(\.|$)", part) for part in server.command[1:])


def is_script(server: Server) -> bool:
    """Whether a server's command is a Python script: a program of the user's own, whose model may have any name."""
    return server.command[0].endswith(".py")


def check_arguments(server: Server, where: str) -> None:
    """Raises RecipeError for an argument that holds a masked secret or is the run's own."""
    given = [*server.command, *server.extra, *server.environment.values(), *map(str, server.arguments.values())]
    if any(map(redact.is_masked, given)):
        raise RecipeError(
            f"{where}: a secret in it is masked, because this recipe is the copy in a run directory; use the "
            "original recipe, or set the value again"
        )
    for name in server.arguments:
        if owner := _SET_BY_RUN.get(_option_name(name)):
            raise RecipeError(f"{where}.arguments.{name}: is set by {owner}; leave it out here")
    for argument in server.extra:
        option = _option_name(argument.partition("=")[0])
        if argument.startswith("--") and option in _SET_BY_RUN:
            raise RecipeError(f"{where}.extra: {argument} is set by {_SET_BY_RUN[option]}; leave it out here")


def check_options(server: Server, where: str) -> None:
    """Raises RecipeError for an argument that the installed vLLM does not have, or of the wrong kind."""
    options = installed_options(server)
    for name, value in server.arguments.items() if options.version else ():
        option = _option_name(name)
        known = options.find(option)
        if known is None:
            raise RecipeError(
                f"{where}.arguments.{name}: vLLM {options.version} has no option --{option}"
                f"{did_you_mean(option, options.by_name)} (`extra` passes options on unchecked)"
            )
        bare = known[0] in ("flag", "switch", "inverse")
        if known[0] != "optional" and bare != isinstance(value, bool):
            wants = "true or false" if bare else "a value"
            raise RecipeError(f"{where}.arguments.{name} = {value!r}: --{option} takes {wants}")


def render(server: Server) -> list[str]:
    """A server's arguments as a command line has them."""
    options = installed_options(server)
    unknown = "switch" if is_vllm(server) else ""
    arguments: list[str] = []
    for name, value in server.arguments.items():
        option = _option_name(name)
        kind, spelling = options.find(option) or (unknown, f"--{option}")
        _, dot, key = option.partition(".")
        dashed = spelling.partition(".")[0] + dot + key
        if value is True:
            arguments.append(dashed)
        elif value is False:
            arguments += [f"--no-{option}"] if kind == "switch" else [_inverse(dashed)] if kind == "inverse" else []
        elif isinstance(value, list | tuple) and kind == "values":
            arguments += [dashed, *map(_argument_text, value)]
        elif isinstance(value, list | tuple) and kind == "repeated":
            arguments += [part for each in value for part in (dashed, _argument_text(each))]
        else:
            arguments += [dashed, _argument_text(value)]
    return arguments


def server_answer_options(server: Server) -> dict[str, list[str]]:
    """What changes the answers of a recipe's server: options, and the variables of `answer_environment`."""
    command = redact.command([*server.command, *render(server), *server.extra])  # as it is noted
    return answer_options(command) | answer_environment(server)


def answer_environment(server: Server) -> dict[str, list[str]]:
    """The variables that may change what a server answers, as "$NAME", with a digest of each value and no secret."""
    return {
        f"${name}": [hashlib.sha256(str(redact.settings(value)).encode()).hexdigest()[:_DIGEST]]
        for name, value in sorted(server.environment.items())
        if not (_PLACES.fullmatch(name.upper()) or redact.is_secret(name))
    }


def answer_options(command: Sequence[str]) -> dict[str, list[str]]:
    """The options of a command line that change what its server answers, with their values.

    A list is the same as words, as JSON and as a repeated option. `-m MODULE` is Python's, and not the server's.
    """
    options: dict[str, list[str]] = {}
    values: list[str] | None = None
    for part in command:
        if part.startswith("-"):
            name, equals, value = part.partition("=")
            option = _option_name("quantization" if name == "-q" else name)
            base = option.partition(".")[0].removeprefix("no-")
            same = name == "-m" or base in _SET_BY_RUN or _SPEED.fullmatch(base)
            values = None if same else options.setdefault(option, [])
            if values is not None and equals:
                values += _items(value)
        elif values is not None:
            values += _items(part)
    return options


def server_files(server: Server, base: Path) -> dict[str, str]:
    """Digests of the files that change the replies of a recipe's server, by option; the user's own script has the
    option "".

    A path of an option is relative to the working directory, as for the server; the path of a script is relative to
    `base`.
    """
    scripts = [part for part in server.command[:2] if part.endswith(".py")]
    files = {"": base.absolute() / from_home(scripts[0])} if scripts else {}
    for name, values in server_answer_options(server).items():
        files |= {f"--{name} {value}": Path(value) for value in values}
    with storage_errors(base):
        # Not Path.is_file: a value may be too long for a path.
        return {name: file_sha256(path) for name, path in files.items() if os.path.isfile(path)}  # noqa: PTH113


def _items(text: str) -> list[str]:
    with suppress(orjson.JSONDecodeError):
        items = orjson.loads(text)
        if isinstance(items, list):
            return [item if isinstance(item, str) else orjson.dumps(item).decode() for item in items]
    return [text]


def _inverse(spelling: str) -> str:
    """vLLM 0.33 pairs --enable-x with --disable-x; the --no- form of older versions is still understood."""
    for prefix, opposite in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if spelling.startswith(prefix):
            return opposite + spelling.removeprefix(prefix)
    return ""


def _option_name(name: str) -> str:
    """`--max_model_len` and `max-model-len` are one option; what follows a dot is a key of its JSON value."""
    option, dot, rest = name.strip().lstrip("-").partition(".")
    return option.replace("_", "-") + dot + rest


def _argument_text(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return orjson.dumps(value if isinstance(value, Mapping) else list(value)).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
