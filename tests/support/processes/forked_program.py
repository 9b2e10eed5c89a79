"""A program that stands for Python and whose work is done by a fork: both sides of the socket between them.

`forked` has the process that is forked. The program passes on what it was called with and its open files, then
signals. The fork's exit status is its own. A program that is killed takes the fork with it, though not in the same
moment, and nothing that the fork has started. What the fork starts with `sys.executable` is a fork, too.
"""

import atexit
import contextlib
import fcntl
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

_PROGRAM = """\
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
ignored = [int(each) for each in signals if signal.getsignal(each) is signal.SIG_IGN]
for each in signals:
    if each not in ignored:
        signal.signal(each, lambda number, frame: server.send(bytes([number])))
files = [int(name) for name in os.listdir("/proc/self/fd") if int(name) != server.fileno()]
files = [file for file in files if os.path.exists(f"/proc/self/fd/{{file}}")]
call = dict(interpreter=sys.argv[0], program=sys.argv[1:], environment=dict(os.environ), folder=os.getcwd())
call |= dict(files=files, ignored=ignored)
socket.send_fds(server, [json.dumps(call).encode() + b"\\n"], files)
status = int(server.makefile().readline() or -signal.SIGKILL)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""
_MOST_FILES = 64


def write(address: str) -> Path:
    """The program that connects to the process at this address, called python3."""
    program = Path(f"{address}-program") / "python3"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        made = program.with_name(str(os.getpid()))
        # Without site packages it starts in a hundredth of a second.
        made.write_text(f"#!{sys.executable} -SE\n{_PROGRAM.format(address=address)}")
        made.chmod(0o755)
        made.rename(program)
    return program


def read_call(client: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A call with the open files that came with it; None when the other side has gone."""
    text, files = b"", []
    while not text.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(client, 1 << 20, _MOST_FILES)
        if not part:
            return None
        text += part
        files += more
    return json.loads(text), files


def run(call: dict[str, Any], files: list[int], client: socket.socket) -> NoReturn:
    """Run a called program in a child, pass signals on to it and its exit status back."""
    child = os.fork()
    if not child:
        _become(call, files)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([ended, client], [], [])
        if ended in ready:
            break
        numbers = client.recv(16) or bytes([signal.SIGKILL])
        for number in numbers:
            os.kill(child, number)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        client.sendall(f"{status}\n".encode())
    os._exit(0)


def renew_threads() -> None:
    """Let torch make its pool of threads now, after each fork: two threads that find none end in an assertion."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(torch.get_num_threads())


def _become(call: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the called program: its files, folder, environment, and nothing of this process but what it has loaded."""
    os.setsid()
    renew_threads()
    _take(files, call["files"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if number in call["ignored"] else signal.SIG_DFL)
    if signal.SIGINT not in call["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.executable = call["interpreter"]
    multiprocessing.set_executable(sys.executable)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    status = _status_of(call["program"])
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream and stream.flush()
    os._exit(status)


def _take(files: list[int], numbers: list[int]) -> None:
    """Have these open files under these numbers, and no others."""
    above = max(numbers, default=2) + 1
    kept = [fcntl.fcntl(file, fcntl.F_DUPFD, above) for file in files]
    os.closerange(0, above)
    for file, number in zip(kept, numbers, strict=True):
        os.dup2(file, number)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    os.closerange(above, highest + 1)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        # As Python opens them: lines of errors at once.
        how: dict[str, Any] = {"mode": "w", "errors": "backslashreplace", "buffering": 1} if number == 2 else {}
        how = how or {"mode": "w" if number else "r"}
        stream = open(number, closefd=False, **how) if number in numbers else None  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _status_of(words: list[str]) -> int:
    """The exit status of `python WORDS`."""
    try:
        _execute(words)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 255
        print(error.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _execute(words: list[str]) -> None:
    while words[0] in ("-u", "-B"):
        if words[0] == "-u":
            sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        words = words[1:]
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        sys.modules.pop(rest[0], None)  # as in a process that has not loaded it
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        assert not kind.startswith("-"), f"this stand-in for Python does not know {kind}"
        sys.argv = words
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")
