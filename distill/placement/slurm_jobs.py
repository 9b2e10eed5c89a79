"""Commands as Slurm jobs. Slurm starts them again; what is done is in the store alone."""

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
# gives to outgoing connections: one of them may be taken.
_LAUNCH = r"""node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
host=$(scontrol --oneliner show node "$node" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
exec srun {python} -m torch.distributed.run --nnodes {nodes} --nproc-per-node {processes} --rdzv-backend c10d \
    --rdzv-endpoint "$host:$((20000 + SLURM_JOB_ID % 12000))" --rdzv-id "$SLURM_JOB_ID" -m -- {command}{first}
"""


def submit_array(
    command: Sequence[str], folder: Path, *, name: str, elements: int, options: Mapping[str, str]
) -> str:
    """Submit an array whose elements each run the same command. Returns the job's number.

    Raises InputError for an option that the file sets itself, DistillError where sbatch is missing or refuses.
    """
    # An element that is stopped or lost begins again and joins the run.
    ours = [f"--job-name={name}", f"--array=0-{elements - 1}", "--requeue", f"--output={folder}/%A_%a.log"]
    return _submit(folder / "array.sh", ours, f"exec {shlex.join(command)}\n", options)


def submit_training(
    command: Sequence[str], folder: Path, *, name: str, nodes: int, options: Mapping[str, str], fresh: bool = False
) -> str:
    """Submit a job in which torchrun runs a module with its arguments on all nodes; the rest as `submit_array`.

    A node has a process for each GPU if an option asks for GPUs, and one process if none does. `fresh`: the first
    start of the job gets --fresh.
    """
    ours = [f"--job-name={name}", f"--nodes={nodes}", "--ntasks-per-node=1", "--requeue", f"--output={folder}/%j.log"]
    gpus = any("gpu" in f"{option}={value}" for option, value in options.items())
    text = _LAUNCH.format(
        python=shlex.quote(sys.executable),
        nodes=nodes,
        processes="gpu" if gpus else 1,
        command=shlex.join(command),
        first=' $([ "${SLURM_RESTART_COUNT:-0}" = 0 ] && echo --fresh)' if fresh else "",
    )
    return _submit(folder / "train.sh", ours, text, options)


def _submit(file: Path, ours: Sequence[str], commands: str, options: Mapping[str, str]) -> str:
    if taken := sorted(options.keys() & {line.removeprefix("--").partition("=")[0] for line in ours}):
        raise InputError(f"engine.slurm.{taken[0]}: the toolkit sets it; remove it from [engine.slurm]")
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [*ours, *(f"--{option}={value}" for option, value in options.items())]
    head = "".join(f"#SBATCH {shlex.quote(line)}\n" for line in lines)
    write_text(file, f"#!/bin/sh\n{head}{commands}")
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise DistillError(
            f"sbatch is not on this machine; on a machine that has it, run: sbatch {as_argument(file)}"
        )
    done = subprocess.run([sbatch, "--parsable", str(file)], capture_output=True, text=True)
    if done.returncode:
        raise DistillError(f"sbatch {file} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]
