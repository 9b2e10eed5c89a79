"""Agents as the elements of an array of Slurm jobs. Slurm starts them again; what is done is in the store alone."""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from distill.artifacts.files import write_text
from distill.errors import DistillError, InputError

_OURS = ("array", "requeue", "output", "job-name")


def submit_array(
    command: Sequence[str], folder: Path, *, name: str, elements: int, options: Mapping[str, str]
) -> str:
    """Write the file of an array whose elements each run the same command, and submit it. Returns the job's number.

    Raises InputError for an option that the file sets itself, DistillError where sbatch is missing or refuses.
    """
    if taken := [option for option in options if option in _OURS]:
        raise InputError(f"engine.slurm.{taken[0]}: the toolkit sets it; remove it from [engine.slurm]")
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"--{option}={value}" for option, value in options.items()]
    # An element that is stopped or lost begins again and joins the run.
    ours = [f"--job-name={name}", f"--array=0-{elements - 1}", "--requeue", f"--output={folder}/%A_%a.log"]
    file = folder / "array.sh"
    head = "".join(f"#SBATCH {line}\n" for line in (*ours, *lines))
    write_text(file, f"#!/bin/sh\n{head}exec {shlex.join(command)}\n")
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise DistillError(f"sbatch is not on this machine; on a machine that has it, run: sbatch {file}")
    done = subprocess.run([sbatch, "--parsable", str(file)], capture_output=True, text=True)
    if done.returncode:
        raise DistillError(f"sbatch {file} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]
