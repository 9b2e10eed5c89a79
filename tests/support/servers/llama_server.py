"""llama.cpp's server out of the package xllamacpp, under the options of `llama-server` that the toolkit uses.

Run as a program it is a llama-server; `command()` makes the text for DISTILL_LLAMA_SERVER.
"""

import argparse
import importlib.util
import os
import shlex
import signal
import sys


def why_not() -> str:
    """Why no llama.cpp can be started here; empty when one can."""
    if importlib.util.find_spec("gguf") is None:
        return "no package gguf"
    if os.environ.get("DISTILL_LLAMA_SERVER") or importlib.util.find_spec("xllamacpp"):
        return ""
    return "no llama.cpp: neither the package xllamacpp nor DISTILL_LLAMA_SERVER"


def command() -> str:
    """A value for DISTILL_LLAMA_SERVER."""
    return os.environ.get("DISTILL_LLAMA_SERVER") or shlex.join([sys.executable, __file__])


def main() -> None:
    import xllamacpp

    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--mmproj", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--ctx-size", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path, params.mmproj.path = given.model, given.mmproj
    params.hostnames = [given.host]
    params.port, params.n_ctx, params.n_parallel = given.port, given.ctx_size, given.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    params.warmup = False
    server = xllamacpp.Server(params)
    print(f"listening at {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
