"""Jobs side by side: results by name, progress, cards, and an end with the command that began them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distill.errors import DataError, DistillError
from distill.jobs import JobPool
from distill.types import Progress, ProgressCallback


def square(number: int, on_progress: ProgressCallback) -> int:
    on_progress(Progress(stage=f"square {number}", done=1, total=1, unit="numbers"))
    return number * number


def card(folder: Path, jobs: int, on_progress: ProgressCallback) -> str:
    """The card of this process, once `jobs` processes have one."""
    device = os.environ["CUDA_VISIBLE_DEVICES"]
    (folder / device).touch()
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < jobs and time.monotonic() < deadline:
        time.sleep(0.01)
    return device


def refuse(on_progress: ProgressCallback) -> None:
    raise DataError("nothing to read")


def die(on_progress: ProgressCallback) -> None:
    os._exit(9)


def kill_self(folder: Path, on_progress: ProgressCallback) -> None:
    """A job that the system ends because memory is full, once the other one works."""
    _wait((folder / "working").exists)
    os.kill(os.getpid(), signal.SIGKILL)


def outlive(folder: Path, on_progress: ProgressCallback) -> int:
    """A job that ends after another process was killed."""
    (folder / "working").touch()
    _wait((folder / "killed").exists)
    return os.getpid()


class Unsendable(Exception):
    """An error that cannot be made again from its arguments, which pickle does."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


def fail_unsendably(on_progress: ProgressCallback) -> None:
    raise Unsendable("a fault", "a library")


def sleep(folder: Path, on_progress: ProgressCallback) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(600)


def write_on_signal(folder: Path, on_progress: ProgressCallback) -> None:
    """A job that needs a moment to end, as a stage that writes a checkpoint does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    (folder / str(os.getpid())).touch()
    try:
        time.sleep(600)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(0.2)
        (folder / f"saved-{os.getpid()}").touch()


def outlast_signal(folder: Path, on_progress: ProgressCallback) -> None:
    """A job that ends by itself after the signal, as a stage does that was asked to stop in its last step."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    (folder / "ready").touch()
    deadline = time.monotonic() + 60
    while not asked and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    (folder / "ended").touch()


REPORTS = 2000
"""More than a pipe holds."""


def report_to_the_end(folder: Path, on_progress: ProgressCallback) -> None:
    """A job that reports its last steps after it was asked to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "began").touch()
    for number in range(REPORTS):
        on_progress(Progress(stage="talkative", done=number, total=REPORTS, unit="steps", facts={"now": "x" * 100}))


def refuse_when_ready(folder: Path, on_progress: ProgressCallback) -> None:
    _wait((folder / "ready").exists)
    raise DataError("nothing to read")


def speak(on_progress: ProgressCallback) -> None:
    print("a user's own code")


def test_what_code_prints_in_a_job_goes_to_stderr(capfd: pytest.CaptureFixture[str]):
    """stdout has the result of the command alone, such as the object of --json."""
    with JobPool(1, lambda _: None) as pool:
        pool.submit("speaks", speak)
        assert all(future.exception() is None for _, future in pool.results())
    printed = capfd.readouterr()
    assert printed.out == "" and "a user's own code" in printed.err


def test_jobs_are_given_back_by_name_and_may_bring_further_ones():
    reports: list[Progress] = []
    with JobPool(2, reports.append) as pool:
        pool.submit("two", square, 2)
        pool.submit("three", square, 3)
        results = {}
        for name, future in pool.results():
            results[name] = future.result()
            if name == "two":
                pool.submit("four", square, 4)
    assert results == {"two": 4, "three": 9, "four": 16}
    assert sorted(report.stage for report in reports) == ["square 2", "square 3", "square 4"]


def test_each_process_has_a_card_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6")
    with JobPool(2, lambda _: None) as pool:
        pool.submit("one", card, tmp_path, 2)
        pool.submit("two", card, tmp_path, 2)
        assert sorted(future.result() for _, future in pool.results()) == ["4", "6"]


def test_an_error_is_the_job_s_own_and_so_is_the_end_of_its_process():
    with JobPool(1, lambda _: None) as pool:
        for job in (refuse, die, fail_unsendably):
            pool.submit(job.__name__, job)
        ended = {name: future.exception() for name, future in pool.results()}
    assert isinstance(ended["refuse"], DataError) and "in refuse" in ended["refuse"].__notes__[0]
    assert isinstance(ended["die"], DistillError) and "ended with exit code 9" in str(ended["die"])
    assert "Unsendable: a fault in a library" in str(ended["fail_unsendably"])


def test_a_killed_job_costs_no_other_job(tmp_path: Path):
    with JobPool(2, lambda _: None) as pool:
        pool.submit("killed", kill_self, tmp_path)
        pool.submit("other", outlive, tmp_path)
        pool.submit("later", square, 3)
        ended = {}
        for name, future in pool.results():
            ended[name] = future
            (tmp_path / name).touch()
    assert [*ended] == ["killed", "other", "later"] or [*ended] == ["killed", "later", "other"]
    assert ended["later"].result() == 9 and ended["other"].result() > 0
    problem = ended["killed"].exception()
    assert isinstance(problem, DistillError)
    assert "was killed by SIGKILL, most likely by the system because memory was full" in str(problem)
    assert "run the same command again to resume, with fewer --jobs" in str(problem)


def test_each_job_has_a_process_of_its_own(tmp_path: Path):
    (tmp_path / "killed").touch()
    with JobPool(1, lambda _: None) as pool:
        for name in "ab":
            pool.submit(name, outlive, tmp_path)
        assert len({future.result() for _, future in pool.results()}) == 2


def test_a_job_that_outlasts_the_error_of_another_does_not_keep_the_command(tmp_path: Path):
    with pytest.raises(DataError, match="nothing to read"), JobPool(2, lambda _: None) as pool:
        pool.submit("long", outlast_signal, tmp_path)
        pool.submit("refused", refuse_when_ready, tmp_path)
        for _, future in pool.results():
            future.result()
    assert (tmp_path / "ended").exists()


COMMAND = """
from pathlib import Path
from test_jobs import sleep, write_on_signal
from distill.jobs import JobPool
if __name__ == "__main__":
    with JobPool(2, lambda _: None) as pool:
        pool.submit("one", sleep, Path("."))
        pool.submit("two", write_on_signal, Path("."))
        list(pool.results())
"""


@pytest.mark.parametrize("name", ["KILL", "INT"])
def test_jobs_end_with_the_command_that_began_them(tmp_path: Path, name: str):
    (tmp_path / "command.py").write_text(COMMAND)
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    command = subprocess.Popen(
        [sys.executable, "command.py"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        _wait(lambda: len(_jobs(tmp_path)) == 2)
        subprocess.run(["kill", f"-{name}", str(command.pid)], check=True)
        command.wait(60)
        _wait(lambda: not any(Path(f"/proc/{job}").exists() for job in _jobs(tmp_path)))
        assert len(list(tmp_path.glob("saved-*"))) == 1
    finally:
        command.kill()


TALKATIVE = """
from pathlib import Path
from test_jobs import report_to_the_end
from distill.jobs import JobPool
if __name__ == "__main__":
    reports = []
    try:
        with JobPool(1, reports.append) as pool:
            pool.submit("talkative", report_to_the_end, Path("."))
            while not Path("began").exists():
                pass
            raise LookupError
    except LookupError:
        print(len(reports))
"""


def test_a_job_that_reports_while_the_command_ends_does_not_keep_it(tmp_path: Path):
    (tmp_path / "command.py").write_text(TALKATIVE)
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    command = [sys.executable, "command.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, timeout=100, check=True
    )
    assert int(done.stdout) == REPORTS


def _jobs(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.isdigit()]


def _wait(reached) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
