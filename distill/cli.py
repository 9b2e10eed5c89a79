"""The command line: choose a recipe, call one verb, print. Everything else lives in recipes and stages.

Data goes to stdout, progress to stderr. Heavy packages are imported inside the verbs only.
"""

import _thread
import atexit
import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from distill import packages
from distill.command_line import planning, recipes, results, stages
from distill.commands.progress import hide_secrets, open_closed_streams, say, show
from distill.errors import DistillError, StorageError, first_line
from distill.machine import bytecode, gpu_memory, interrupts
from distill.machine.child_process import available_cores, interrupt
from distill.redact import encodable
from distill.reports import text_table
from student.distributed import processes

_code: list[int] = []
"""The exit code of this process, once it is known."""
RESUMED = ("generate", "filter", "train", "eval", "run", "ablate")
"""Commands that keep what they did; the others begin again."""
_NO_ROOM = (
    *("can't start new thread", "not enough memory", "Out of Memory Error"),
    *("shared memory object", "raise your shared memory limit", "failed to map segment"),
)
"""What Python, torch, DuckDB and the loader say in errors of their own kinds where memory or threads are limited."""
_READING_THREADS, _CORE_THREADS, _MOST_THREADS = 8, 12, 256
"""More than Arrow, DuckDB and torch start: some that read files, and a few for each core."""
_NEEDS_ROOM = (
    "the system gives no more memory or threads ({error}); what was written before stays valid: raise the limit "
    "(ulimit -v, ulimit -u, or the limits of the container and its /dev/shm), then run the same command again"
)


def interrupted_text(arguments: Sequence[str]) -> str:
    """The message of an interrupted command that keeps its finished work; with --fresh the command would start
    again."""
    again = ", without --fresh," if "--fresh" in arguments else ""
    return f"distill: {interrupts.reason()}; run the same command again{again} to resume"


class Commands(TyperGroup):
    """An expected error is one plain message and its exit code; anything else keeps its traceback."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            _require_threads()
            with interrupts.unmasked():
                return super().invoke(ctx)
        except DistillError as error:
            self._end(ctx, _of_limit(error) or error)
        except ImportError as error:
            plain = _no_room(error) or packages.explained(error, f"distill {ctx.invoked_subcommand}")
            if plain is None:
                raise
            self._end(ctx, plain)
        except BrokenPipeError:
            raise  # the reader of stdout has seen enough; typer ends the command
        except OSError as error:
            self._end(ctx, _no_room(error) or _refused(error) or _unknown(error))
        except Exception as error:
            is_of_gpu = gpu_memory.is_out_of_memory(error)
            full = gpu_memory.explained(error) if is_of_gpu else _no_room(error) or _refused(error) or _cut(error)
            if full is None:
                raise
            self._end(ctx, full)
        except KeyboardInterrupt:
            interrupts.note()  # the interpreter waits for its threads when it ends
            if processes.speaks():
                resumes = ctx.invoked_subcommand in RESUMED
                say(interrupted_text(sys.argv) if resumes else f"distill: {interrupts.reason()}")
            code = interrupts.exit_code()
            interrupts.heard(signal.SIGINT)  # a later command of this process begins again
            ctx.exit(code)

    def _end(self, ctx: typer.Context, error: DistillError) -> NoReturn:
        if not processes.speaks():
            processes.hold_back()
        say(f"distill: {error}")
        ctx.exit(error.exit_code)


def _require_threads() -> None:
    """Raise RuntimeError where the system refuses the threads of a command: Arrow would wait for its own for ever."""
    go_on = threading.Event()
    try:
        for _ in range(min(_MOST_THREADS, _READING_THREADS + _CORE_THREADS * available_cores())):
            _thread.start_new_thread(go_on.wait, ())
    finally:
        go_on.set()


def _no_room(error: Exception) -> DistillError | None:
    """What to say of an error that a limit of memory or threads made; None for any other error."""
    is_of_system = isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN)
    if not is_of_system and not isinstance(error, MemoryError) and not any(text in str(error) for text in _NO_ROOM):
        return None
    return DistillError(_NEEDS_ROOM.format(error=first_line(error)))


def _of_limit(error: DistillError) -> StorageError | None:
    """What to say of a file that counts as unreadable because this process may open no more; None otherwise."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return _refused(cause)
        cause = cause.__cause__ or cause.__context__
    return None


def _refused(error: Exception) -> StorageError | None:
    """What a disk refuses, also where a library raises an error of its own for it; None for any other error."""
    from distill.artifacts.files import TAKEN, refusal, taken

    place = error.filename if isinstance(error, OSError) else None
    if isinstance(error, OSError) and error.errno in TAKEN:
        return taken(error.filename)
    if (refused := refusal(error)) is None:
        return None
    what, remedy = refused
    said = f"{place}: {what}" if place else first_line(error)
    return StorageError(f"{said}; what was written before stays valid: {remedy} and run the same command again")


def _cut(error: Exception) -> StorageError | None:
    """What to say of a module that was cut short when Python compiled it; None for any other error."""
    path = bytecode.remove_cut_module(error)
    return StorageError(bytecode.REMOVED.format(path=path)) if path else None


def _unknown(error: OSError) -> StorageError:
    """Any other error of the operating system, with the place in the code that asked for it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return StorageError(
        f"{error} ({type(error).__name__}, {frame.filename}:{frame.lineno}); what was written before stays valid: "
        "repair it, then run the same command again"
    )


def _require_folder() -> None:
    """Paths of recipes and runs start from the current folder, and libraries of torch do not load without one."""
    try:
        Path.cwd()
    except FileNotFoundError:
        say("distill: the current folder was deleted or moved; go to one that exists (cd), and run the command again")
        sys.exit(2)


def _require_text(arguments: Sequence[str]) -> None:
    """No file of a run and no request can hold bytes that are no text, so no argument may."""
    for argument in arguments:
        if encodable(argument) != argument:
            say(f"distill: the argument {argument!r} is not valid UTF-8; write it, or name the file, in UTF-8")
            sys.exit(2)


app = typer.Typer(
    name="distill",
    cls=Commands,
    rich_markup_mode=None,
    help="Offline chain-of-thought distillation of small vision-language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        show(f"distill {version('cot-distill')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program as a whole."""


_COMMANDS: Sequence[tuple[str, Callable[..., None]]] = (
    ("init", planning.init),
    ("generate", stages.generate),
    ("filter", stages.filter_),
    ("train", stages.train),
    ("eval", stages.eval_),
    ("run", stages.run),
    ("ablate", stages.ablate),
    ("plan", planning.plan),
    ("check", planning.check),
    ("split", planning.split),
    ("status", results.status),
    ("pull", results.pull),
    ("push", results.push),
    ("repair", results.repair),
    ("explain", results.explain),
    ("ask", results.ask),
    ("view", results.view),
    ("export", results.export),
)
for name, command in _COMMANDS:
    app.command(name)(command)
app.add_typer(recipes.app, name="recipes")
for known in (*app.registered_commands, *recipes.app.registered_commands):
    assert known.callback is not None
    known.help = bytecode.docstring(known.callback)


def _prepare_process() -> None:
    """Streams, signals, secrets and threads, before the first command."""
    open_closed_streams()
    # A scheduler's SIGTERM, and the end of a terminal, end a run as cleanly as Ctrl-C does.
    signal.signal(signal.SIGTERM, interrupt)
    if hasattr(signal, "SIGXCPU"):
        signal.signal(signal.SIGXCPU, interrupt)  # ulimit -S -t
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        signal.signal(signal.SIGHUP, interrupt)
    if hasattr(signal, "pthread_sigmask") and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's job in the background. Blocked has the same effect, and event loops still see an end coming.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hide_secrets()
    text_table.fit_terminal()
    # Torch threads that spin while they wait slow each other down on a busy machine: 83 s against 9 s for the same
    # traces on two cores with two other processes. Read when torch is loaded, so it is set here.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if processes.count() > 1:
        processes.end_on_signals(interrupted_text(sys.argv))
        if not processes.is_main():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def main() -> None:
    """The `distill` command."""
    atexit.register(_leave)  # first, so that it is called last
    code = 1
    try:
        _prepare_process()
        _require_text(sys.argv[1:])
        _require_folder()
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:  # while the arguments are read, or a second one
        code = interrupts.exit_code()
    except DistillError as error:  # of an option of the program as a whole
        say(f"distill: {error}")
        code = error.exit_code
    except ImportError:
        raise  # the caller names the missing parts of the installation
    except Exception:
        say(traceback.format_exc())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(code))  # another signal does not wait for threads
    if interrupts.is_noted():  # one of them may never end
        last = threading.Timer(interrupts.left_s(), os._exit, (code,))
        last.daemon = True
        last.start()
    _code.append(code)
    sys.exit(code)


def _leave() -> None:
    """The last function at exit: end without taking modules apart, which takes seconds while torch is imported.

    Threads have ended then, and all files are closed or flushed. A KeyboardInterrupt inside of `exec` would also
    replace the exit code by the end by a signal.
    """
    if _code:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(_code[0])
