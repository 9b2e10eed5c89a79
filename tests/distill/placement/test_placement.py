"""Agents in an array of Slurm jobs share a run as agents that are started by hand do."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import stub_server
from typer.testing import CliRunner
from worlds.generate_world import World, asked_of
from worlds.store_worlds import lines_of, small_world

from distill.cli import app
from distill.errors import DistillError
from distill.object_store.open_store import open_store
from distill.placement.slurm_jobs import submit_array
from distill.units.stored_run import pull_generate

_SBATCH = """#!/bin/sh
# Runs the two elements of the array that it is given, in the place of Slurm.
cat > "$SUBMITTED"
SLURM_ARRAY_TASK_ID=0 sh "$SUBMITTED" > /dev/null 2>&1 & first=$!
SLURM_ARRAY_TASK_ID=1 sh "$SUBMITTED" > /dev/null 2>&1 & second=$!
wait $first && wait $second && echo "4711;cluster"
"""


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.1) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    world = small_world(tmp_path, url)
    world.head = (
        '[engine]\nscratch = "scratch"\nunit_rows = 8\nagents = 2\n[engine.slurm]\ntime = "12:00:00"\n[generate]'
    )
    world.recipe()
    return world


def test_the_elements_of_a_slurm_array_share_a_run(
    world: World, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(_SBATCH)
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SUBMITTED", str(tmp_path / "submitted"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.chdir(tmp_path)
    address = f"file://{tmp_path / 'store'}"
    command = [
        "generate",
        "recipe.toml",
        "--run",
        address,
        "--engine",
        "slurm",
        "--set",
        "generate.patience_s=3.0",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and "job 4711: 2 agents" in done.output, done.output
    text = (tmp_path / "submitted").read_text()
    for line in ("--array=0-1", "--requeue", "--time=12:00:00", f"--job-name=distill-{world.recipe().name}"):
        assert f"#SBATCH {line}\n" in text
    assert "--engine local --set generate.patience_s=3.0" in text
    assert asked_of(url) == 90
    pull_generate(open_store(address), tmp_path / "pulled")
    world.generate()
    assert lines_of(world, tmp_path / "pulled") == lines_of(world, world.run)


def test_without_sbatch_the_file_is_written_and_named_and_options_of_the_toolkit_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match=r"on a machine that has it, run: sbatch .*array\.sh"):
        submit_array(["a b", "c"], tmp_path / "slurm", name="n", elements=3, options={})
    assert "\n'a b' c &\n" in (tmp_path / "slurm" / "array.sh").read_text()
    with pytest.raises(Exception, match=r"run: sbatch '.*my runs/slurm/array\.sh'$"):
        submit_array(["c"], tmp_path / "my runs" / "slurm", name="n", elements=3, options={"comment": "a b"})
    text = (tmp_path / "my runs" / "slurm" / "array.sh").read_text()
    assert f"#SBATCH '--output={tmp_path}/my runs/slurm/%A_%a.log'\n#SBATCH '--comment=a b'\n" in text, text
    with pytest.raises(Exception, match=r"engine\.slurm\.array"):
        submit_array(["a"], tmp_path / "slurm", name="n", elements=3, options={"array": "0-9"})


_WORK = """
import signal, sys, time

def save(*_):
    time.sleep(0.5)
    print("saved")
    sys.exit(3)

signal.signal(signal.SIGTERM, save)
print("works")
while True:
    time.sleep(0.1)
"""


def test_an_element_near_its_time_limit_is_queued_again_by_its_own_number_and_saves_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work.py").write_text(_WORK)
    command = [sys.executable, "-u", str(tmp_path / "work.py")]
    with monkeypatch.context() as patch, pytest.raises(DistillError):
        patch.setenv("PATH", str(tmp_path))
        submit_array(command, tmp_path, name="n", elements=2, options={})
    # As Slurm does it: it asks all processes of the job to end.
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@"\nkill -TERM 0\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    numbers = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    script = ["sh", str(tmp_path / "array.sh")]
    with subprocess.Popen(
        script, env=os.environ | numbers, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None and job.stdout.readline() == "works\n"
        job.send_signal(signal.SIGUSR1)
        assert job.stdout.read() == "requeue 7_1\nsaved\n" and job.wait() == 3


def test_a_folder_whose_name_slurm_would_change_has_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for number, name in enumerate(("50%j", "a\\b")):
        with pytest.raises(DistillError):
            submit_array(["echo", "hello"], tmp_path / name, name="n", elements=2, options={})
        numbers = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(number)}
        subprocess.run(["/bin/sh", str(tmp_path / name / "array.sh")], env=numbers, check=True)
        assert (tmp_path / name / f"7_{number}.log").read_text() == "hello\n"
        assert "--output=/dev/null\n" in (tmp_path / name / "array.sh").read_text()


def test_what_is_submitted_is_the_text_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another process submits its own script from the same folder at the same time.
    (tmp_path / "sbatch").write_text(
        '#!/bin/sh\necho other > "$FOLDER/array.sh"\ncat "${2:-/dev/stdin}" > "$FOLDER/read"\n'
    )
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    submit_array(["echo", "mine"], tmp_path, name="n", elements=2, options={})
    assert "echo mine &\n" in (tmp_path / "read").read_text()


def test_a_wrong_address_is_refused_before_jobs_are_submitted(world: World, tmp_path: Path) -> None:
    command = ["generate", str(world.folder / "recipe.toml"), "--engine", "slurm", "--run", f"file://{tmp_path}/a#b"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2 and "comes after # or ?" in done.output, done.output


def test_an_engine_of_several_machines_needs_a_run_in_a_store(world: World) -> None:
    done = CliRunner().invoke(app, ["generate", str(world.folder / "recipe.toml"), "--engine", "slurm"])
    assert done.exit_code == 2 and "--engine needs --run ADDRESS" in done.output
