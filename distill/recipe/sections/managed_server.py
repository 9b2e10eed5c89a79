"""`[teachers.server]`: how a run starts vLLM itself."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from distill.recipe.base import Section, key

engine_key = partial(key, affects="engine")


class Server(Section):
    """How vLLM is started for a `vllm` teacher without base_url, and for a `vllm_offline` teacher."""

    command: tuple[str, ...] = engine_key(
        ("vllm", "serve"),
        "Program and first arguments, of any environment; the model, host, port and `arguments` are appended. A "
        "path counts from the recipe's folder; a Python script (.py) runs in the Python of distill. Only options "
        "that change replies make traces stale.",
        strict=False,
        min_length=1,
    )
    environment: Mapping[str, str] = engine_key(
        {},
        "Environment variables of the server. The run stores a digest of the value of each variable, except for "
        "secrets and variables that only say where the server runs, such as CUDA_VISIBLE_DEVICES and HF_HOME; "
        "those make nothing stale.",
    )
    arguments: Mapping[str, Any] = engine_key(
        {},
        "vLLM's options by name: `max-model-len = 8192`; true gives a bare flag, tables and lists become JSON. "
        "Only options that change replies, such as quantization, make traces stale.",
    )
    extra: tuple[str, ...] = engine_key(
        (),
        "Arguments that are passed on without a check. Only options that change replies make traces stale.",
        strict=False,
    )
    gpus: tuple[str, ...] = key(
        (),
        'CUDA_VISIBLE_DEVICES of each replica, such as ["0", "1"] or ["0,1"]; default: one replica that sees all '
        "GPUs.",
        because="it says where the server runs",
        strict=False,
    )
    start_timeout_s: float = key(
        1800.0,
        "Longest time in seconds until a started server answers.",
        because="it changes only how long the run waits",
        gt=0,
    )
    restarts: int = key(
        5,
        "Number of crashes in one run after which a server is given up.",
        because="it changes only how often a crashed server is started again",
        ge=0,
    )
