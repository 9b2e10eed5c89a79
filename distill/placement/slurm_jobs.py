"""Commands as Slurm jobs. Slurm starts them again; what is done is in the store alone."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from distill.artifacts.files import write_text
from distill.errors import DistillError, InputError
from distill.local_paths import as_argument

# A node's name need not resolve: only Slurm is sure to know the address. Ports from 32,768 on are those that Linux
# gives to outgoing connections: one of them may be taken. After the loss of a node the other processes end with an
# error: srun waits until Slurm has noticed the loss and queues the job again.
_LAUNCH = r"""node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
host=$(scontrol --oneliner show node "$node" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
srun --kill-on-bad-exit=0 \
    {python} -m torch.distributed.run --nnodes {nodes} --nproc-per-node {processes} --rdzv-backend c10d \
    --rdzv-endpoint "$host:$((20000 + SLURM_JOB_ID % 12000))" --rdzv-id "$SLURM_JOB_ID" -m -- {command}{first}"""

# The number of a whole array is also that of one of its elements: an element names itself in two parts. Slurm queues
# a job again after a lost node, but not at its time limit. Each signal ends `wait`, and `kill -0` asks whether the
# command works: it saves its work meanwhile. Without the trap of TERM the shell would end, and Slurm would kill it.
_SCRIPT = r"""#!/bin/sh
{head}job="${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}"
{redirection}trap 'scontrol requeue "$job"' USR1
trap : TERM
{command} &
wait $!; code=$?
while kill -0 $! 2> /dev/null; do wait $!; code=$?; done
exit $code
"""
_OPTIONS = ("--requeue", "--signal=B:USR1@60", "--open-mode=append")
"""Slurm sends the signal 60 to 120 s before the time limit; a job that begins again keeps its log."""


def submit_array(
    command: Sequence[str], folder: Path, *, name: str, elements: int, options: Mapping[str, str]
) -> str:
    """Submit an array whose elements each run the same command. Returns the job's number.

    An element that is lost, or comes near its time limit, begins again and joins the run.

    Raises InputError for an option that the file sets itself, DistillError where sbatch is missing or refuses.
    """
    ours = [f"--job-name={name}", f"--array=0-{elements - 1}"]
    return _submit(folder / "array.sh", ours, shlex.join(command), options)


def submit_training(
    command: Sequence[str], folder: Path, *, name: str, nodes: int, options: Mapping[str, str], fresh: bool = False
) -> str:
    """Submit a job in which torchrun runs a module with its arguments on all nodes; the rest as `submit_array`.

    A node has a process for each GPU if an option asks for GPUs, and one process if none does. `fresh`: the first
    start of the job gets --fresh.
    """
    ours = [f"--job-name={name}", f"--nodes={nodes}", "--ntasks-per-node=1"]
    gpus = any("gpu" in f"{option}={value}" for option, value in options.items())
    text = _LAUNCH.format(
        python=shlex.quote(sys.executable),
        nodes=nodes,
        processes="gpu" if gpus else 1,
        command=shlex.join(command),
        first=' $([ "${SLURM_RESTART_COUNT:-0}" = 0 ] && echo --fresh)' if fresh else "",
    )
    return _submit(folder / "train.sh", ours, text, options)


def _submit(file: Path, ours: Sequence[str], command: str, options: Mapping[str, str]) -> str:
    log, redirection = _log(file.parent, "%A_%a" if file.name == "array.sh" else "%j")
    ours = [*ours, *_OPTIONS, log]
    if taken := sorted(options.keys() & {line.removeprefix("--").partition("=")[0] for line in ours}):
        raise InputError(f"engine.slurm.{taken[0]}: the toolkit sets it; remove it from [engine.slurm]")
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [*ours, *(f"--{option}={value}" for option, value in options.items())]
    head = "".join(f"#SBATCH {shlex.quote(line)}\n" for line in lines)
    script = _SCRIPT.format(head=head, redirection=redirection, command=command)
    write_text(file, script)
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise DistillError(
            f"sbatch is not on this machine; on a machine that has it, run: sbatch {as_argument(file)}"
        )
    # Not the file: another process may have written its own there meanwhile.
    done = subprocess.run([sbatch, "--parsable"], input=script, capture_output=True, text=True)
    if done.returncode:
        raise DistillError(f"sbatch {file} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]


def _log(folder: Path, name: str) -> tuple[str, str]:
    """The option that names the log of a job, and a line of its script.

    Slurm takes % and \\ in the name of a folder for its own signs and has no way to write both: there the script
    itself writes the log, which then lacks the messages of Slurm.
    """
    if not {"%", "\\"} & set(str(folder)):
        return f"--output={folder}/{name}.log", ""
    return f"--output={os.devnull}", f'exec >> {shlex.quote(str(folder))}/"$job.log" 2>&1\n'
