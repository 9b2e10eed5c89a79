"""Processes of their own that have the libraries of a run loaded: forks of one process that has run nothing.

Loading torch, transformers and TRL takes seven seconds, most of the time of a process that trains the student of a
test. One process loads them for all workers of pytest, which are its forks, too; without workers, when the first test
asks for it. It has run nothing, so that a fork is as good as a new process. Workers are connected to it by a socket;
it ends when the last of them has ended, however that happens. A test file can have a process of its own that is
forked, with other things `loaded`.

`run` executes a text. `interpreter` is a program in the place of Python for code that starts processes itself.
"""

import contextlib
import gc
import hashlib
import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from filelock import FileLock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this file also runs as a program

from processes import forked_program

ROOT = Path(__file__).resolve().parents[3]
_LIMIT_S = 240.0
_GRACE_S = 15.0


class Ended(NamedTuple):
    codes: list[int]
    """Exit status of each process, by rank; a signal's is negative."""
    stdout: str
    stderr: str


TRAINING = """
import torch
import scipy.stats
import distill.commands.whole_run
import distill.wiring
import filters.apply
import student.evaluate
import student.train
import student.training.loop.trainer
import student.training.stage_run
import student.validation.measure
import teacher.generate
import teacher.engines.http.http_engine
from distill.reports import html
from filters.text import word_lists
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
for name in (pages := html._environment()).list_templates():
    pages.get_template(name)
word_lists._tables()
get_checkpoint_conversion_mapping("llama")
torch.set_num_threads(1)
"""
"""What a run loads, or makes once a process, so that no fork does it again. A text: no tool takes it for unused."""

COLLECTED = """
import os
import sys
import pytest
sys.executable = {python!r}
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not be in a fork
stdout = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
failed = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *{arguments!r}])
os.dup2(stdout, 1)
if failed:
    # pytest leaves a file whose import failed in sys.modules, without its tests: a worker would collect none of them
    # and report no error.
    for name, module in [*sys.modules.items()]:
        if os.path.basename(getattr(module, "__file__", None) or "").startswith("test_"):
            del sys.modules[name]
"""
"""What a worker of pytest has loaded: files of tests, with their libraries. Collecting takes two seconds then."""


def run(code: str, *arguments: object, ranks: int = 1, loaded: str = TRAINING) -> Ended:
    """Execute a text with `sys.argv[1:]` in a fork, or in several that find each other as torchrun's processes do.

    When one of several fails, the others get SIGTERM a second later, and later SIGKILL. `loaded` is what the process
    that is forked executes first.
    """
    with tempfile.NamedTemporaryFile() as stdout, tempfile.NamedTemporaryFile() as stderr:
        call = {"code": code, "arguments": [*map(str, arguments)], "ranks": ranks}
        call |= {"stdout": stdout.name, "stderr": stderr.name}
        with _connect(loaded) as stream:
            stream.write(json.dumps(call) + "\n")
            stream.flush()
            answer = stream.readline()
        assert answer, "the process that is forked has ended"
        said = (Path(each.name).read_text(errors="replace") for each in (stdout, stderr))
        return Ended(json.loads(answer), *said)


def interpreter(loaded: str = TRAINING, python: str | Path = sys.executable) -> Path:
    """A program that is called as Python is; what it runs is a fork of a process of `python` that executed `loaded`.

    To the program that starts it, it and its fork are one process: arguments, environment, folder, open files,
    signals and exit status are passed on. Variables that a library reads while it is imported are those of the suite,
    and signals to a group reach the one process alone.
    """
    return forked_program.write(_address(loaded, str(python)))


_kept: "list[IO[str]]" = []
_started: "list[subprocess.Popen[bytes]]" = []


def _connect(loaded: str) -> IO[str]:
    """A connection of its own, so that threads can have processes side by side."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(_address(loaded))
        return client.makefile("rw")


@cache
def _address(loaded: str, python: str = sys.executable) -> str:
    """The socket of the process that has executed this. It is started if no worker has done so, and held."""
    suite = os.environ.setdefault("SUITE_OF_TESTS", str(os.getpid()))  # workers inherit it
    name = hashlib.sha256(f"{suite}\n{python}\n{loaded}".encode()).hexdigest()[:16]
    address = f"{tempfile.gettempdir()}/forked-{name}"
    with FileLock(f"{address}.lock"), socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            _start(address, loaded, python)
            client.connect(address)
        _kept.append(client.makefile("rw"))
    return address


def _start(address: str, loaded: str, python: str) -> None:
    """Start the process. Its socket is there before it loads anything, so that workers can connect at once."""
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        command = [python, __file__, loaded, str(listener.fileno())]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, cwd=ROOT, env=environment, pass_fds=[listener.fileno()]
        )
    _started.append(started)


def end() -> None:
    """Leave the processes that are forked, if there are any."""
    _address.cache_clear()
    while _kept:
        _kept.pop().close()


def _serve(loaded: str, listener: socket.socket) -> None:
    os.dup2(2, 1)
    exec(compile(loaded, "<loaded>", "exec"), {"__name__": "__main__"})
    gc.collect()
    gc.freeze()  # no fork looks at these again
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select(timeout=1.0):
                if key.fileobj is listener:
                    client = listener.accept()[0]
                    ready.register(client, selectors.EVENT_READ)
                    continue
                client = key.fileobj
                if call := forked_program.read_call(client):
                    _answer(*call, client)
                if not call or "program" in call[0]:  # what a program sends next is for its fork
                    ready.unregister(client)
                    client.close()
                if len(ready.get_map()) == 1:
                    for path in (listener.getsockname(), f"{listener.getsockname()}.lock"):
                        Path(path).unlink(missing_ok=True)
                    return
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(call: dict[str, Any], files: list[int], client: socket.socket) -> None:
    """Make the processes of a call in a fork, so that other workers need not wait for them."""
    if os.fork():
        for file in files:
            os.close(file)
        return
    if "program" in call:
        forked_program.run(call, files, client)
    port = _free_port()
    children = [_fork(call, rank, port) for rank in range(int(str(call["ranks"])))]
    client.sendall(json.dumps(_wait(children)).encode() + b"\n")
    os._exit(0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _fork(call: dict[str, object], rank: int, port: int) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        forked_program.renew_threads()
        _enter(call, rank, port)
        exec(compile(str(call["code"]), "<forked>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _enter(call: dict[str, object], rank: int, port: int) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(str(call[name]), os.O_WRONLY | os.O_APPEND), stream)
    sys.argv = ["forked", *call["arguments"]]  # type: ignore[misc]
    if (ranks := int(str(call["ranks"]))) > 1:
        os.environ |= {
            **{name: str(rank) for name in ("RANK", "LOCAL_RANK")},
            **{name: str(ranks) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")},
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }


def _wait(children: list[int]) -> list[int]:
    codes: dict[int, int] = {}
    kill_at, end_at = time.monotonic() + _LIMIT_S, math.inf
    while len(codes) < len(children):
        for child in children:
            if child not in codes and (status := os.waitpid(child, os.WNOHANG))[0]:
                codes[child] = os.waitstatus_to_exitcode(status[1])
                if codes[child] and end_at == math.inf:
                    end_at, kill_at = time.monotonic() + 1, time.monotonic() + _GRACE_S
        running = [child for child in children if child not in codes]
        if time.monotonic() > kill_at:
            _signal(running, signal.SIGKILL)
        elif time.monotonic() > end_at:
            _signal(running, signal.SIGTERM)
            end_at = kill_at
        time.sleep(0.02)
    _signal(children, signal.SIGKILL)  # what they have started
    return [codes[child] for child in children]


def _signal(children: list[int], number: int) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)


if __name__ == "__main__":
    _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
    os._exit(0)
