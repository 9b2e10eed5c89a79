"""How the process of a command ends: after signals, with streams that fail, in a folder that is gone."""

import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from distill.cli import interrupted_text


def checked(load: str, before: str = "") -> tuple[int, str, str]:
    """Exit code and streams of `distill check` whose reading of the recipe is this body of a function.

    A file holds the program, as it does that of a user: Python takes modules apart otherwise for a text.
    """
    script = (
        f"import os, signal, sys, threading, time\n{before}"
        f"def load(*_, **__):\n{load}"
        "sys.argv = ['distill', 'check', 'tiny']\n"
        "import distill.recipe.loading; distill.recipe.loading.load = load\n"
        "from distill.__main__ import main; main()"
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(script)
        command = [sys.executable, "-m", "program"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, timeout=50)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_command_ends_without_taking_modules_apart_and_with_its_own_code(
    number: int, code: int
) -> None:
    """As while torch is imported: it defines classes by `exec`, and takes seconds to be taken apart."""
    ended = checked(
        "    import atexit\n"
        "    atexit.register(print, 'exit function')\n"
        "    threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        f"    exec('os.kill(os.getpid(), {number}); time.sleep(9)')\n",
        before="class Slow:\n    def __del__(self): os.write(1, b'taken apart')\nheld = Slow()\n",
    )
    assert ended == (code, "thread\nexit function\n", "distill: interrupted\n")


def test_a_soft_limit_of_processor_time_ends_a_command_in_order_and_once() -> None:
    """Its signal comes again each second until the limit is raised."""
    ended = checked(
        "    import resource\n"
        "    resource.setrlimit(resource.RLIMIT_CPU, (1000, 2000))\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGXCPU); time.sleep(9)\n"
        "    finally:\n        os.write(1, repr(resource.getrlimit(resource.RLIMIT_CPU)).encode())\n"
    )
    assert ended == (152, "(2000, 2000)", "distill: the limit of processor time (ulimit -t) is reached\n")


def test_a_system_that_gives_few_threads_is_one_message_and_no_wait_for_ever() -> None:
    """Arrow waits for a thread that it cannot start."""
    loaded = "import resource, distill.__main__, distill.cli, distill.recipe.loading\n"
    limited = "os.getuid() or os.setuid(54321)\nresource.setrlimit(resource.RLIMIT_NPROC, (8, 8))\n"
    ended = checked("    print('began')\n", before=loaded + limited)
    assert ended[:2] == (1, "") and "the system gives no more memory or threads (can't start new thread)" in ended[2]
    assert "ulimit -u" in ended[2]


def test_a_signal_that_comes_inside_of_a_destructor_is_not_lost() -> None:
    """As inside of the callbacks that follow each import."""
    ended = checked(
        "    Held()\n    time.sleep(20)\n    os.write(1, b'lost')\n",
        before="class Held:\n    def __del__(self): os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1)\n",
    )
    assert ended == (130, "", "distill: interrupted\n")


def test_a_signal_that_a_module_in_c_turns_into_an_import_error_is_not_lost() -> None:
    script = (
        "import _imp\n"
        "from distill.machine import interrupts\n"
        "def create_dynamic(*_): raise ImportError('initialization failed') from KeyboardInterrupt()\n"
        "interrupts.heed_all()\n"
        "_imp.create_dynamic = create_dynamic\n"
        "try:\n    import duckdb\n"
        "except ImportError:\n    print('lost')\n"
        "except KeyboardInterrupt:\n    print('heard')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "heard\n", done.stderr


def test_an_interrupted_command_names_the_command_that_goes_on() -> None:
    assert interrupted_text(["distill", "train", "mine.toml"]).endswith("run the same command again to resume")
    assert "again, without --fresh, to" in interrupted_text(["distill", "train", "mine.toml", "--fresh"])


def test_a_second_signal_does_not_wait_for_threads() -> None:
    ended = checked(
        "    again = lambda: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGINT), time.sleep(60))\n"
        "    threading.Thread(target=again).start()\n"
        "    raise KeyboardInterrupt\n"
    )
    assert ended == (130, "", "distill: interrupted\n")


def test_an_interrupted_command_waits_for_no_thread_that_does_not_end() -> None:
    """As the import of a user's own file may: `check` and `generate` read rows by threads."""
    ended = checked(
        "    from distill.machine import interrupts, thread_map\n"
        "    interrupts.LAST_S = 0.5\n"
        "    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    list(thread_map.thread_map(time.sleep, [100]))\n"
    )
    assert ended == (130, "", "distill: interrupted\n")


def test_the_list_of_recipes_needs_no_reader_to_its_end() -> None:
    command = f"{shlex.quote(sys.executable)} -m distill recipes | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        *("MemoryError()", 'RuntimeError("can\'t start new thread")', "OSError(12, os.strerror(12))"),
        "BlockingIOError(11, os.strerror(11))",  # of a fork
        "ImportError('libtorch_python.so: failed to map segment from shared object')",
        'RuntimeError("unable to open shared memory object </torch_7_1> in read-write mode: Read-only file system")',
    ],
)
def test_a_limit_of_memory_or_threads_is_one_message(error: str) -> None:
    code, _, stderr = checked(f"    raise {error}\n")
    assert code == 1
    assert re.fullmatch(r"distill: the system gives no more memory or threads \(.+\); .*ulimit -v.*\n", stderr)


def test_a_file_that_a_limit_of_open_files_keeps_closed_is_not_called_damaged() -> None:
    code, _, stderr = checked(
        "    try:\n        raise OSError(24, os.strerror(24), 'rows.jsonl')\n"
        "    except OSError as error:\n        raise DataError('rows.jsonl: damaged; make it again') from None\n",
        before="from distill.errors import DataError\n",
    )
    assert code == 1
    assert re.fullmatch(r"distill: rows.jsonl: Too many open files; .*raise the limit .*\(ulimit -n\).*\n", stderr)


def test_a_signal_before_the_command_is_read_has_its_own_code() -> None:
    script = (
        "import os, signal, sys; sys.argv = ['distill', '--version']\nfrom distill import cli\n"
        "cli.hide_secrets = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "from distill.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "")


@pytest.mark.parametrize("asked", ["--version", "--help", "export --help"])
def test_what_cannot_be_written_to_stdout_is_one_message(asked: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "distill", *asked.split()], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1 and re.fullmatch(rb"distill: stdout cannot be written .*\n", done.stderr)


def test_a_command_in_a_folder_that_was_deleted_says_so(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); "
        "sys.argv = ['distill', 'check', 'tiny']; from distill.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and done.stderr.startswith("distill: the current folder was deleted"), done.stderr


@pytest.mark.parametrize("place", ["the command", "a verb", "a check"])
def test_a_signal_that_ends_a_query_of_duckdb_is_no_error_of_the_program(tmp_path: Path, place: str) -> None:
    """DuckDB raises RuntimeError where a handler of signals raises KeyboardInterrupt."""
    inside = {
        "the command": "import distill.recipe.loading as place; place.load = query",
        "a verb": "import distill.commands.stages as place\n"
        "place.check_generate = place.logged('generate')(lambda recipe, run, **_: query())",
        "a check": "import distill.checks.recipe_checks as place\n"
        "place.check_generate = lambda recipe, run, **_: place._results('key', lambda _: query(), "
        "place.CheckContext(recipe, run, gpu_name=None, seconds=9))\n"
        "import distill.commands.stages as stages; stages.check_generate = place.check_generate",
    }
    script = (
        "import os, signal, sys, threading, duckdb\n"
        "def query(*_, **__):\n"
        "    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "    while True: duckdb.sql('SELECT sum(sin(range)) FROM range(20000000)').fetchall()\n"
        "sys.argv = ['distill', 'generate', 'tiny', '--check', '--run', 'run']\n"
        f"{inside[place]}\n"
        "from distill.__main__ import main; main()"
    )
    (tmp_path / "run/generate").mkdir(parents=True)
    (tmp_path / "run/recipe.toml").touch()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=100
    )
    assert (done.returncode, done.stdout) == (143, "") and "distill: interrupted" in done.stderr, done.stderr
    assert "Error" not in done.stderr
    if place == "a verb":
        assert '"exit_code":143' in (tmp_path / "run/log.jsonl").read_text()
