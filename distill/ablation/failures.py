"""Arms that fail: which errors end one arm and which the whole ablation, and the note that a failed arm leaves.

The note lies in the run directory of the arm. It is deleted when the arm starts again (distill/ablation/arm_job.py).
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from distill.ablation.arm_job import Job, place, seed_folders
from distill.ablation.power import seed_names
from distill.artifacts.files import write_json
from distill.artifacts.layout import ABLATE, ARMS, FAILED
from distill.errors import BusyError, CircuitOpen, DistillError, StorageError
from distill.machine import gpu_memory
from distill.recipe.sections.ablate import REFERENCE

_ENDING = (CircuitOpen, StorageError, BusyError)
"""What other arms would meet too: a teacher that is away, a full disk, another command on the same run."""

log = logging.getLogger(__name__)


def own_failure(run: Path, job: Job, error: BaseException) -> DistillError | None:
    """An error as the failure of this arm alone; None where it ends the ablation: an outage, an interrupt, a bug."""
    failure = gpu_memory.explained(error) if gpu_memory.is_out_of_memory(error) else error
    if not isinstance(failure, DistillError) or isinstance(failure, _ENDING):
        return None
    if failure.has_remedy:  # its command is not the one that makes an arm
        return type(failure)(failure.problem, _remedy(run, job))
    # The frames of a failed training hold its tensors, which the next arm needs the memory of.
    failure.__cause__ = failure.__context__ = None
    return failure.with_traceback(None)


def _remedy(run: Path, job: Job) -> str:
    """How an arm is made with other settings."""
    arms_folder = run / ABLATE / ARMS
    if job.arm == REFERENCE:
        return (
            f"move {arms_folder} away, and run the same command again; it makes what the change reaches, and links "
            "the rest (--fresh makes all arms again)"
        )
    return f"move {arms_folder / job.arm} away, and run the same command again; it makes this arm again"


def note_failure(run: Path, job: Job, failure: DistillError) -> None:
    """Leave a note in the run directory of a failed arm, and a line in the log of the run."""
    write_json(place(run, job.arm, job.seed) / FAILED, {"kind": type(failure).__name__, "reason": str(failure)})
    log.info("arm %s, seed %d failed: %s", job.arm, job.seed, failure, extra={"level": "warning"})


def noted_failures(run: Path, names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Why arms failed, by the seeds that failed: what the last command that tried them has noted."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        for seed, folder in seed_folders(run / ABLATE / ARMS / name).items():
            if (folder / FAILED).is_file():
                found.setdefault(name, {})[seed] = str(orjson.loads((folder / FAILED).read_bytes())["reason"])
    return found


def reasons(by_seed: Mapping[int, str], seeds: int = 0) -> str:
    """One text for the seeds of an arm; a reason that holds for all `seeds` does not name them."""
    grouped = {reason: [seed for seed in by_seed if by_seed[seed] == reason] for reason in by_seed.values()}
    return "; ".join(
        reason if len(of_reason) == seeds else f"{seed_names(sorted(of_reason))}: {reason}"
        for reason, of_reason in grouped.items()
    )
