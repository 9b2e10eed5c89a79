"""`distill train --engine slurm --nodes N` submits a job whose machines train together."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import forked
from typer.testing import CliRunner
from worlds import student_worlds

from distill.cli import app
from distill.errors import DistillError
from distill.object_store.local_store import LocalStore
from distill.placement.slurm_jobs import submit_training
from distill.units.stored_stage import push_stage, stage_counts

_SLURM = {
    "sbatch": """cat > "$SUBMITTED"
SLURM_JOB_ID=$$ SLURM_JOB_NODELIST='cot-node[1-2]' sh "$SUBMITTED" > "$SUBMITTED.log" 2>&1 && echo 4712
""",
    "scontrol": """case "$*" in
"show hostnames cot-node[1-2]") printf 'cot-node1\\ncot-node2\\n' ;;
"--oneliner show node cot-node1") echo 'NodeName=cot-node1 Gres=(null) NodeAddr=127.0.0.1 NodeHostName=h Port=9' ;;
*) echo "Invalid argument: $*" >&2; exit 1 ;;
esac
""",
    "srun": """[ "$1" = --kill-on-bad-exit=0 ] && shift
"$@" & first=$!
"$@" & second=$!
wait $first && wait $second
""",
}
"""Programs that run the commands of a job on two machines that are this one, in the place of Slurm's.

`scontrol` prints what that of Slurm 22.05 prints; no resolver knows the names of the nodes.
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_machines_of_a_slurm_job_train_together(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in _SLURM.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(forked.interpreter()))  # what the job starts
    monkeypatch.setenv("SUBMITTED", str(tmp_path / "submitted"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    more = '[engine]\nscratch = "scratch"\nnodes = 2\n[engine.slurm]\ntime = "12:00:00"\n'
    recipe, store = student_worlds.recipe(place, student_worlds.stage("reason", steps=2), more=more), place / "store"
    push_stage(LocalStore(store), "filter", place / "run" / "filter")
    command = ["train", str(recipe.path), "--run", f"file://{store}", "--engine", "slurm", "--fresh"]
    done = CliRunner().invoke(app, command)
    log = (tmp_path / "submitted.log").read_text()
    assert done.exit_code == 0 and "job 4712: 2 nodes" in done.output, (done.output, log)
    text = (tmp_path / "submitted").read_text()
    for line in ("--nodes=2", "--ntasks-per-node=1", "--requeue", "--time=12:00:00"):
        assert f"#SBATCH {line}\n" in text
    assert stage_counts(LocalStore(store), "train") == {"stages": 1, "steps": 2}
    assert len(list((place / "scratch").glob("*/run/filter"))) == 2, "each machine had a folder of its own"


def test_a_job_has_a_process_for_each_gpu_and_starts_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for options, processes, fresh in (({"gres": "gpu:8"}, "gpu", True), ({"mem": "64G"}, "1", False)):
        with pytest.raises(Exception, match=r"run: sbatch .*train\.sh"):
            submit_training(["a b", "c"], tmp_path, name="n", nodes=3, options=options, fresh=fresh)
        text = (tmp_path / "train.sh").read_text()
        assert f"--nnodes 3 --nproc-per-node {processes} " in text and " -m -- 'a b' c" in text
        assert ('[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && echo --fresh' in text) == fresh
    with pytest.raises(Exception, match=r"engine\.slurm\.nodes"):
        submit_training(["a"], tmp_path, name="n", nodes=3, options={"nodes": "9"})


def test_the_port_of_a_job_is_none_that_an_outgoing_connection_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(DistillError):
            submit_training(["a"], tmp_path, name="n", nodes=2, options={})
    (port,) = re.findall(r"\$\(\(.+?\)\)", (tmp_path / "train.sh").read_text())
    command = f"for SLURM_JOB_ID in 4712 11999 12768 19999 39999 98765432; do echo {port}; done"
    said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    ports = [int(line) for line in said.split()]
    assert len(set(ports)) == 6 and min(ports) > 1024 and max(ports) < 32_768, ports


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--nodes", "2"], "--nodes 2 needs --engine ray or --engine slurm"),
        (["--engine", "ray"], "--engine ray: add --nodes N"),
        (["--engine", "ray", "--nodes", "2", "--jobs", "2"], "--jobs 2: machines that train together"),
    ],
)
def test_training_on_machines_without_a_word_about_them_is_refused(
    place: Path, options: list[str], problem: str
) -> None:
    recipe = student_worlds.recipe(place, student_worlds.stage("reason", steps=2))
    done = CliRunner().invoke(app, ["train", str(recipe.path), "--run", f"file://{place / 'store'}", *options])
    assert done.exit_code == 2 and problem in done.output, done.output
    done = CliRunner().invoke(app, ["train", str(recipe.path), "--nodes", "2"])
    assert done.exit_code == 2 and "--nodes needs --run ADDRESS" in done.output
