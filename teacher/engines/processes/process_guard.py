"""A guard process between the client and a server that it started, so that no server outlives the client.

`python process_guard.py PARENT_PID GRACE_S COMMAND...` runs the command in a session of its own and ends with its
exit code (128 + n for signal n). It ends the command and all its child processes in two cases: its standard input or
its parent ends (so it notices the end of the client, kill -9 included), or it gets SIGTERM, SIGINT or SIGHUP. It
sends SIGTERM first, and SIGKILL after GRACE_S. It also ends what the command leaves behind when it ends by itself,
because a half-dead server still holds the memory of its GPU.

What the command prints passes through here: the first line of standard input lists, in hexadecimal, the secrets that
are masked in it (servers print their options).

A process of its own, with the standard library alone: it is there before the server and after the client.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_S = 1.0
_KILL_S = 10.0
_DRAIN_S = 5.0
_CHUNK = 1 << 16
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(parent: int, grace_s: float, command: list[str]) -> int:
    """Run the command until it ends or has to. The exit code is the command's."""
    secrets = _read_secrets(sys.stdin.fileno())
    waker, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    received: list[int] = []
    for number in _ENDING:
        signal.signal(number, lambda number, _: received.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that grandchildren whose parent died are found, and reaped, here
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=False,  # descriptors that the client passed on are for the command; our own are not inherited
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),  # should this very process be killed
        )
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        return 127
    assert child.stdout is not None
    copier = threading.Thread(target=_copy, args=(child.stdout.fileno(), secrets), daemon=True)
    copier.start()
    code = None
    while code is None and not received and os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin.fileno(), waker], [], [], _LOOK_S)
        if sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 1024):
            break
        if waker in ready:
            os.read(waker, 1024)
        code = child.poll()
    _end(child, grace_s)
    code = child.wait()
    copier.join(_DRAIN_S)
    return code if code >= 0 else 128 - code


def _read_secrets(source: int) -> list[bytes]:
    """What the parent says first; nothing when it has gone before that."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(source, _CHUNK)):
        line += piece
    return [bytes.fromhex(word.decode()) for word in line.split()]


def _copy(source: int, secrets: list[bytes]) -> None:
    """Copy the command's output to our own, line by line, without the secrets; read on if the disk is full."""
    kept_back = max(map(len, secrets), default=1)
    held = b""
    while piece := os.read(source, _CHUNK):
        held = _masked(held + piece, secrets)
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        if not end and len(held) > _CHUNK:
            end = len(held) - kept_back
        _write(held[:end])
        held = held[end:]
    _write(held)


def _masked(text: bytes, secrets: list[bytes]) -> bytes:
    for secret in secrets:
        text = text.replace(secret, b"***")
    return text


def _write(text: bytes) -> None:
    with suppress(OSError):
        while text:
            text = text[os.write(sys.stdout.fileno(), text) :]


def _end(child: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """End the command, which ends its own workers; then end the remaining processes, by force after the grace
    period."""
    started = time.monotonic()
    signalled: set[int] = set()
    while time.monotonic() < started + grace_s + _KILL_S:
        ended = child.poll() is not None
        remaining = _orphans(child)
        if ended and not remaining:
            return
        if time.monotonic() > started + grace_s:
            for process in remaining if ended else [child.pid, *remaining]:
                _send(process, signal.SIGKILL)
        else:
            for process in {*remaining} - signalled if ended else {child.pid} - signalled:
                _send(process, signal.SIGTERM)
                signalled.add(process)
        time.sleep(0.05)


def _send(process: int, wish: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, wish)


def _orphans(child: "subprocess.Popen[bytes]") -> list[int]:
    """What the command has started and is still there; the dead among them are reaped."""
    if not Path("/proc/self").exists():
        return _group(child.pid)
    for process in _descendants():
        if process != child.pid:
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
    return [process for process in _descendants() if process != child.pid]


def _group(leader: int) -> list[int]:
    """Where there is no /proc: the command's process group as one, in the notation of kill()."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, 0)
        return [-leader]
    return []


def _descendants() -> list[int]:
    """Every process below this one."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # The name in brackets may itself hold spaces and brackets.
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    processes = [os.getpid()]
    for process in processes:
        processes += [child for child, parent in parents.items() if parent == process]
    return processes[1:]


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the process group alone has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
