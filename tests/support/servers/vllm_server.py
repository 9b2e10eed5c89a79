"""A real vLLM server on a CPU, for integration tests: start, wait for health, stop what was started.

The interpreter that has vLLM is named by DISTILL_VLLM_PYTHON; default: .venv-vllm/bin/python in the checkout, which
`make test` sets up. `why_not()` says why there is none, for a test to skip with.
"""

import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from processes import forked

from teacher.engines.processes.ports import reserve_port
from teacher.engines.vllm import export_server

PYTHON = Path(
    os.environ.get("DISTILL_VLLM_PYTHON") or Path(__file__).resolve().parents[3] / ".venv-vllm" / "bin" / "python"
)
START_TIMEOUT_S = 240.0
SITE = (
    export_server.SITE
    + """\
import multiprocessing
get_context = multiprocessing.get_context
multiprocessing.get_context = lambda method=None: get_context("fork" if method == "spawn" else method)
"""
)
"""What vLLM needs on a CPU; and its engine is forked from its server. On a CPU vLLM starts it again, and loading the
libraries a second time takes seven of the 17 CPU seconds of a start."""


_LOADED = f"""{SITE}
import os
os.environ["TORCH_COMPILE_DISABLE"] = "1"
import vllm.entrypoints.openai.api_server
import vllm.entrypoints.openai.run_batch
import vllm.v1.engine.async_llm
import vllm.v1.engine.core
import vllm.v1.executor.uniproc_executor
import vllm.v1.worker.cpu_worker
import vllm.platforms.cpu
import vllm.model_executor.models.registry
import vllm.model_executor.models.transformers
vllm.model_executor.models.registry._run_in_subprocess = lambda inspect: inspect()
vllm.platforms.cpu.GiB_bytes = 1 << 27
"""
"""vLLM inspects a class in a process that loads all libraries again, so that its own process does not touch CUDA yet.
There is none. A function that counts log probabilities is compiled in 8 CPU seconds, although models are not
(`enforce-eager`). A cache of a GiB is filled with zeros in one; an eighth has room for all that tests ask."""


def interpreter() -> Path:
    """The interpreter that has vLLM, its libraries loaded: what it starts is a fork of one process for all tests."""
    return forked.interpreter(_LOADED, PYTHON)


@cache
def why_not() -> str:
    """Why no vLLM can be started here; empty when one can."""
    if not PYTHON.is_file():
        return f"no vLLM environment at {PYTHON} (make setup-vllm makes one, DISTILL_VLLM_PYTHON names another)"
    script = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    if subprocess.run([PYTHON, "-c", script], check=False).returncode:
        return f"{PYTHON} has no vllm package"
    return ""


def use_it(patch: pytest.MonkeyPatch) -> None:
    """Commands that start a vLLM take this one."""
    patch.setenv(export_server.PYTHON, str(interpreter()))
    patch.setattr(export_server, "SITE", SITE)


def marks(*, timeout_s: int) -> list[pytest.MarkDecorator]:
    """The marks of a module whose tests need a vLLM."""
    skip = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
    return [pytest.mark.vllm, pytest.mark.timeout(timeout_s), skip]


@contextmanager
def serve(
    model: Path, *, name: str = "served", max_model_len: int = 512, extra: tuple[str, ...] = ()
) -> Iterator[str]:
    """The base URL of a server of `model`. Its whole process group ends with the block."""
    if why := why_not():
        raise SystemExit(f"this needs a vLLM environment: {why}")
    reserved = reserve_port()
    port = reserved.number
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(SITE)
        log = Path(folder) / "log"
        command = [
            interpreter(),
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            model,
            "--served-model-name",
            name,
        ]
        command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
        # A seeded request whose prompt is split over steps ends vLLM 0.32 on a CPU ("Generator does not use offset").
        command += ["--no-enable-chunked-prefill"]
        command += ["--max-model-len", str(max_model_len), "--limit-mm-per-prompt", '{"image":1}', *extra]
        environment = os.environ | {
            "PYTHONPATH": folder,
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            _wait(process, port, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _stop(process)
            reserved.close()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {process.returncode} while starting:\n{_tail(log)}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"vLLM was not up within {START_TIMEOUT_S:.0f} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and the workers it started: its own process group, nothing else."""
    for wish, patience_s in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        try:
            os.killpg(process.pid, wish)
        except ProcessLookupError:
            break
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
