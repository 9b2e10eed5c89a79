"""Checks the files of a finished stage against its manifest: each file must exist with the same size and digest.

Every start compares sizes, which costs nothing. Before a stage uses the bytes, and in `distill repair`, digests are
compared.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distill.artifacts.files import Output, atomic_path, file_sha256, write_text
from distill.artifacts.layout import ARM_DATASETS, DATASET, DECISIONS, QUARANTINE, RECIPE, SAMPLES, SIGNALS
from distill.artifacts.manifest import Manifest, fingerprint, require
from distill.errors import DataError
from distill.local_paths import as_argument

MISSING = "it is missing"
CHANGED = "its content was changed after it was written"
_NOTE = ".digest"


def require_run(run: Path) -> None:
    """Raise DataError for a folder that is no run directory."""
    if not (run / RECIPE).is_file():
        raise DataError(
            f"{run}: not a run directory (it has no {RECIPE}); give the directory that `distill run` printed"
        )


def changed(folder: Path, outputs: Iterable[tuple[str, Output]], *, digests: bool = False) -> dict[str, str]:
    """What is wrong, by the name of the file; empty when all is as written."""
    faults = {}
    for name, output in outputs:
        path = folder / name
        if not path.is_file():
            faults[name] = MISSING
        elif (size := path.stat().st_size) != output.bytes:
            faults[name] = f"it has {size:,} bytes, and {output.bytes:,} were written"
        elif digests and file_sha256(path) != output.sha256:
            faults[name] = CHANGED
    return faults


def require_whole(folder: Path, manifest: Manifest, *, below: str = "", digests: bool = False, remedy: str) -> None:
    """DataError naming the files of a finished stage that changed; with `below`, in this folder alone."""
    outputs = [(name, output) for name, output in manifest.outputs.items() if name.startswith(below)]
    if faults := changed(folder, outputs, digests=digests):
        listed = "\n".join(f"  {folder / name}: {fault}" for name, fault in faults.items())
        raise DataError(f"{folder}: finished files were damaged:\n{listed}\n{remedy}")


def require_finished(run: Path, stage: str, *, next_step: str) -> Manifest:
    """The manifest of a finished stage whose files all have the size that it states.

    Raises StaleError with the next step if the stage is not finished, and DataError with the names of damaged files.
    A missing file counts as damaged, because its rows would be missing without an error.
    """
    manifest = require(run, stage, next_step=next_step)
    require_whole(run / stage, manifest, remedy=f"`distill repair {as_argument(run)}` shows how much work is lost")
    return manifest


@contextmanager
def digested_path(path: Path) -> Iterator[Path]:
    """`atomic_path` for a file that a later run takes over: its digest is noted beside it, in `.<name>.digest`."""
    with atomic_path(path) as temporary:
        yield temporary
    write_text(digest_note(path), file_sha256(path))


def note_digest(path: Path) -> None:
    """Note the digest of a file that has none, because its run was killed before the note."""
    if not digest_note(path).exists():
        write_text(digest_note(path), file_sha256(path))


def digest_note(path: Path) -> Path:
    return path.with_name(f".{path.name}{_NOTE}")


def is_whole(path: Path) -> bool:
    """Whether a file has the digest that was noted beside it. A run may be killed before the note."""
    try:
        return digest_note(path).read_text(encoding="ascii") == file_sha256(path)
    except FileNotFoundError:
        return path.is_file()


def digested(folder: Path) -> Iterator[Path]:
    """The files below a folder whose digests are noted."""
    for note in sorted(folder.rglob(f".*{_NOTE}")):
        yield note.with_name(note.name.removeprefix(".").removesuffix(_NOTE))


def traces_digest(generated: Manifest) -> str:
    """Digest of the questions and traces of a finished generate stage. A run that is moved keeps it.

    Rows set aside are no part of it: their reasons name paths.
    """
    digests = {path: output.sha256 for path, output in generated.outputs.items() if path != QUARANTINE}
    return fingerprint({**digests, SAMPLES: generated.inputs.get(SAMPLES)})


def dataset_digest(filtered: Manifest, arm: str = "") -> str:
    """Digest of what a training stage reads of a finished filter stage.

    It covers the rows and not the settings, so a filter that runs again and selects the same rows makes no training
    stale. The rows of an arm are written later, from lists, decisions and signals.
    """
    read = (f"{ARM_DATASETS}/", f"{SIGNALS}/", DECISIONS) if arm else (f"{DATASET}/train/",)
    return fingerprint({path: output.sha256 for path, output in filtered.outputs.items() if path.startswith(read)})


def learned_from(trained: Manifest, filtered: Manifest) -> bool:
    """Whether a finished stage learned from this dataset, or from no traces."""
    datasets = {key.partition(":"): value for key, value in trained.fields.items()}
    return all(
        digest == dataset_digest(filtered, arm)
        for (source, _, arm), digest in datasets.items()
        if source == "data.traces"
    )


def weights_digest(trained: Manifest) -> str:
    """Digest of the weights that a stage left."""
    return fingerprint({name: file.sha256 for name, file in trained.outputs.items() if name.endswith(".safetensors")})


def is_student(measured: Manifest, arm: str, trained: Manifest) -> bool:
    """Whether an arm of an evaluation is the student that this stage left, and not one of another training."""
    weights = weights_digest(trained)
    return (
        measured.fields.get(f"students.{arm}") == trained.fingerprint
        and measured.fields.get(f"weights.{arm}", weights) == weights
    )
