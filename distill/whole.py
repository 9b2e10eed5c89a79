"""Whether the files of a finished stage are what its manifest says: there, of the same size, of the same digest.

Sizes cost nothing and are compared at every start; digests where the bytes are about to be used, and by
`distill repair`.
"""

from collections.abc import Iterable
from pathlib import Path

from distill.artifacts import Manifest, Output, file_sha256
from distill.errors import DataError

MISSING = "it is missing"


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
            faults[name] = "its bytes are not those that were written"
    return faults


def require_whole(
    folder: Path, manifest: Manifest, *, below: tuple[str, ...] = (), digests: bool = False, remedy: str
) -> None:
    """DataError naming the files of a finished stage that changed; with `below`, of these folders alone."""
    outputs = [(name, output) for name, output in manifest.outputs.items() if not below or name.startswith(below)]
    if faults := changed(folder, outputs, digests=digests):
        listed = "\n".join(f"  {folder / name}: {fault}" for name, fault in faults.items())
        raise DataError(f"{folder}: finished files were damaged:\n{listed}\n{remedy}")
