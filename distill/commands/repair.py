"""`distill repair`: lists the damaged files of a run with their cost, and sets them aside.

With `apply` damaged lines and files go to `<name>.damaged` beside their place, and a manifest that no longer holds is
removed; the stages themselves then make again what is lost. Asks and measures nothing.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from distill.artifacts.damaged_lines import SUFFIX, mend, record_damaged, side_file
from distill.artifacts.files import LOCK, describe, lock_file, locked, run_holder
from distill.artifacts.integrity import digest_note, require_run
from distill.artifacts.json_lines import Damaged, scan
from distill.artifacts.layout import RECIPE
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.damaged_runs import Fault, Seen, faults, line_check
from distill.errors import StorageError
from distill.local_paths import as_argument
from distill.reports.text_table import byte_size
from distill.word_tables import counted


def repair_run(run: Path, *, apply: bool = False) -> str:
    """The damaged files of a run and their cost, as text; `apply` sets it aside. Raises DataError."""
    require_run(run)
    with locked(run) if apply else _held_to_read(run):
        seen = Seen()
        found = list(faults(run, seen))
        if not found:
            return (
                f"{run}: nothing is damaged: {counted(seen.lines, 'line')} and {counted(seen.files, 'file')} of "
                f"finished stages ({byte_size(seen.bytes)}) are as they were written"
            )
        if apply:
            _set_aside(found)
    count = f"{len(found):,} damaged {'file' if len(found) == 1 else 'files'}"
    listed = [f"  {fault.path.relative_to(run)}: {fault.what}; {fault.cost}" for fault in found]
    shown, recipe = as_argument(run), as_argument(run / RECIPE)
    end = (
        f"set aside as *{SUFFIX}; now `distill run {recipe} --run {shown}` makes again what is lost"
        if apply
        else f"nothing was changed; `distill repair {shown} --apply` sets the damaged files aside as *{SUFFIX}"
    )
    return "\n".join([f"{run}: {count}", *listed, end])


@contextmanager
def _held_to_read(run: Path) -> Iterator[None]:
    """Lock the run, also one that this process cannot write, such as an archive, if it has a lock file."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(run))
        except StorageError:
            with suppress(OSError):
                file = held.enter_context((run / LOCK).open("rb"))
                lock_file(file, run, holder=run_holder(run))
        yield


def _set_aside(found: list[Fault]) -> None:
    for fault in found:
        if fault.lines:
            check = line_check(fault.path)
            record_damaged(fault.path, (piece for piece in scan(fault.path, check) if isinstance(piece, Damaged)))
            mend(fault.path, check)
        else:
            digest_note(fault.path).unlink(missing_ok=True)
            if fault.path.is_file():
                fault.path.replace(side_file(fault.path))
    for folder in {fault.stage for fault in found if fault.stage is not None}:
        for stale in (folder, folder.parent):
            if stale == folder or stale.name == "train":
                (stale / MANIFEST).unlink(missing_ok=True)
    for fault in found:
        if fault.stage is None:
            _note(fault.path)


def _note(path: Path) -> None:
    """State a record of training in its stage's manifest as it now is, or no longer."""
    manifest = Manifest.read(path.parent)
    if manifest is None or path.name not in manifest.outputs:
        return
    outputs = {name: output for name, output in manifest.outputs.items() if name != path.name}
    if path.is_file():
        outputs[path.name] = describe(path, manifest.outputs[path.name].count)
    replace(manifest, outputs=outputs).write(path.parent)
    (path.parent.parent / MANIFEST).unlink(missing_ok=True)
