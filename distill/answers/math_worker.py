"""A symbolic second opinion on mathematical answers, in a process that can be killed.

SymPy may run for hours on a hostile expression and cannot be interrupted from a thread. So math-verify runs in a
worker process, which starts at the first question and ends with its parent. A question that takes too much processor
time ends the worker and leaves the answer undecided; an unreadable expression is no vote. Time by the clock decides
nothing: a busy machine gives the same verdicts. A worker that cannot start is an error, and no verdict.
"""

import atexit
import math
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Final

import orjson

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.errors import DistillError

VOTE_TIMEOUT_S: Final = 3.0
"""Limit of processor time for one question."""
_STOPPED_AFTER_S: Final = 300.0
"""Limit by the clock: a worker without an answer after this time is stopped or gets no processor."""
_MEMORY_BYTES: Final = 2 << 30
_LOOK_S: Final = 0.1
_PROGRAM: Final = "import sys; sys.path[:] = {path}; from distill.answers.math_worker import main; main()"
"""It finds the modules that this process finds, and none in the working folder, such as a user's `random.py`."""
_NOT_STARTED: Final = (
    "answers with mathematics cannot be compared: {python} does not start the process for it ({why}); what was "
    "written before stays valid: remove the cause (a limit of memory or processes?), then run the same command again"
)


def vote_on_expressions(prediction: str, gold: str, *, timeout_s: float = VOTE_TIMEOUT_S) -> CompareResult | None:
    """The verdict of math-verify on two expressions; None if it cannot read one of them."""
    match _worker.ask([_as_latex(prediction), _as_latex(gold)], timeout_s):
        case "equal":
            return correct("same_expression")
        case "different":
            return wrong("other_expression")
        case "unreadable":
            return None
        case "unsure":
            return undecided("unclear_expression")
        case _:
            return undecided("expression_took_too_long")


_ROOT = re.compile(
    r"(?:√|(?<![a-zA-Z\\])sqrt)\s?(?:(\d+(?:\.\d+)?|[a-zA-Z])|\(([^()]*)\)|\{([^{}]*)\})", re.IGNORECASE
)
_LATEX_SIGNS: Final = {"**": "^", "π": "\\pi ", "×": "\\cdot ", "·": "\\cdot ", "÷": "/", "−": "-", "∞": "\\infty "}


def _as_latex(text: str) -> str:
    """Typed signs as LaTeX, which math-verify reads: it takes 2√3 for 2."""
    for sign, latex in _LATEX_SIGNS.items():
        text = text.replace(sign, latex)
    return _ROOT.sub(lambda root: f"\\sqrt{{{root[1] or root[2] or root[3] or ''}}}", text)


class _Worker:
    """One worker process of this process; started again after a kill."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget process and lock in a forked child: they belong to the parent, and the parent's threads do not exist
        in the child."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = queue.SimpleQueue[bytes]()

    def ask(self, question: list[str], timeout_s: float) -> str | None:
        with self._lock:
            try:
                line = self._reply(orjson.dumps([timeout_s, *question]) + b"\n", timeout_s + _STOPPED_AFTER_S)
            except BaseException:
                self.stop()  # the next question must not get this answer, nor what the worker says at its start
                raise
            if line is None:
                self.stop()
                return None
            return str(orjson.loads(line))

    def _reply(self, question: bytes, timeout_s: float) -> bytes | None:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(question)
            process.stdin.flush()
        except OSError:
            return None
        return self._line(timeout_s)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM.format(path=ascii(sys.path))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines = queue.SimpleQueue()
        # In a thread, because Windows waits for no pipe with a time limit.
        threading.Thread(target=_listen, args=(self._process.stdout, self._lines), daemon=True).start()
        if self._line(_STOPPED_AFTER_S) is None:
            self._process.kill()
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            why = said or f"exit code {self._process.wait()}"
            raise DistillError(_NOT_STARTED.format(python=sys.executable, why=why))
        return self._process

    def _line(self, timeout_s: float) -> bytes | None:
        """One line of the worker's output, or None when it is late or gone."""
        try:
            return self._lines.get(timeout=timeout_s) or None
        except queue.Empty:
            return None

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stderr)):
            with suppress(OSError):  # a question may be left in it
                pipe.close()


def _listen(pipe: IO[bytes], lines: "queue.SimpleQueue[bytes]") -> None:
    """Pass on whole lines until the worker ends, and then an empty one."""
    with pipe:
        for line in pipe:
            if line.endswith(b"\n"):
                lines.put(line)
    lines.put(b"")


_worker = _Worker()
atexit.register(_worker.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_worker.forget)


def main() -> None:
    """The worker: a limit and two expressions a line in, one JSON word a line out, until the input ends."""
    limit_time = _limits()
    from math_verify import parse, verify

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # nothing reads it after the start
    out = sys.stdout.buffer
    out.write(b'"ready"\n')
    out.flush()
    for line in sys.stdin.buffer:
        limit_s, prediction, gold = orjson.loads(line)
        limit_time(limit_s)
        try:
            word = _compare(prediction, gold, parse, verify)
        except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, AttributeError, MemoryError):
            word = "unreadable"
        limit_time(0)
        out.write(orjson.dumps(word) + b"\n")
        out.flush()


def _limits() -> Callable[[float], object]:
    """Limit the memory of this process; what limits its processor time from a call on, where 0 is no limit."""
    if os.name == "nt":
        return _Watchdog().limit
    import resource
    import signal

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY_BYTES if most == resource.RLIM_INFINITY else min(most, _MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process, also inside of a long calculation in C
    return lambda seconds: signal.setitimer(signal.ITIMER_PROF, seconds)


class _Watchdog:
    """Ends the process after so much processor time, but not inside of a calculation in C: threads take turns."""

    def __init__(self) -> None:
        self._end_s = math.inf
        threading.Thread(target=self._watch, daemon=True).start()

    def limit(self, seconds: float) -> None:
        self._end_s = time.process_time() + seconds if seconds else math.inf

    def _watch(self) -> None:
        while time.process_time() < self._end_s:
            time.sleep(_LOOK_S)
        os._exit(1)


def _compare(prediction: str, gold: str, parse: Any, verify: Any) -> str:
    from sympy import Basic  # type: ignore[import-untyped]
    from sympy.core.relational import Equality, Relational  # type: ignore[import-untyped]

    def read(text: str) -> Any:
        wrapped = text if "$" in text or "\\(" in text else f"${text}$"
        expressions = parse(wrapped, parsing_timeout=None)
        return expressions if expressions and isinstance(expressions[0], Basic) else None

    predicted, expected = read(prediction), read(gold)
    if predicted is None or expected is None:
        return "unreadable"
    if all(isinstance(item[0], Relational) and not item[0].free_symbols for item in (predicted, expected)):
        # verify calls any two statements about numbers equal that are of one form.
        orders = (predicted[0].args, predicted[0].args[::-1] if isinstance(predicted[0], Equality) else ())
        is_same = any(
            sides and all(bool(left.equals(right)) for left, right in zip(sides, expected[0].args, strict=True))
            for sides in orders
        )
        return "equal" if is_same and predicted[0].func == expected[0].func else "unsure"
    # verify is not symmetric: only an agreement in both directions counts, and so does only a double refusal.
    votes = {
        bool(verify(expected, predicted, timeout_seconds=None)),
        bool(verify(predicted, expected, timeout_seconds=None)),
    }
    if votes == {True}:
        return "equal"
    same_symbols = predicted[0].free_symbols == expected[0].free_symbols
    return (
        "different"
        if votes == {False} and same_symbols and not _nearly_equal(predicted[0], expected[0])
        else "equal"
        if _is_rounded(prediction, predicted[0], expected[0]) or _is_rounded(gold, expected[0], predicted[0])
        else "unsure"
    )


_DECIMAL = re.compile(r"[^\d]*?(-?\d+\.\d+)\W*")


def _is_rounded(text: str, decimal: Any, exact: Any) -> bool:
    """Whether a text is a decimal of at least three digits that rounds an exact constant: 1.732 and √3."""
    match = _DECIMAL.fullmatch(text)
    if match is None or not decimal.is_number or not exact.is_number or exact.is_Float or exact.is_Integer:
        return False
    places = len(match[1].partition(".")[2])
    enough = len(match[1].lstrip("-0.").replace(".", "")) >= 3
    return enough and abs(complex(decimal) - complex(exact)) <= 0.5000001 * 10**-places


def _nearly_equal(predicted: Any, expected: Any) -> bool:
    """Whether two constants differ by no more than a rounding to three digits."""
    if predicted.free_symbols or not (predicted.is_number and expected.is_number):
        return False
    return bool(abs(complex(predicted) - complex(expected)) <= 0.005 * abs(complex(expected)))


if __name__ == "__main__":
    main()
