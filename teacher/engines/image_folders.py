"""Whether an image cannot be read because of the image, or because of the folder or table that it lies in.

Controls are images of the same folder that could be read before, or, where none is known, other files of that kind
there. If they cannot be read either, the folder is missing: a disk that is not mounted, a network file system that
does not answer.
"""

import os
import time
from collections import OrderedDict
from functools import partial
from itertools import islice
from pathlib import Path

from distill.data.bounded_reads import bounded
from distill.data.images import image_files
from distill.errors import ImageError
from distill.local_paths import is_store_address
from distill.types import ImageRef
from teacher.engines.outage import Dependency, Failure, Say

_FOLDERS = 4096
_CONTROLS = 3
_LISTED = 50
_PROOF_S = 1.0
"""An image is at fault when it cannot be read for so long while others can: files may be replaced one by one."""
_PROOF_EXPIRES_S = 60.0
_RETRY_S = (0.25, 10.0)
"""Between two looks at a folder that is away: at first, and later."""


class UnreadableError(Exception):
    """One image of a request that cannot be read now."""

    def __init__(self, ref: ImageRef, error: ImageError) -> None:
        super().__init__(f"image: {error.reason}: {error}")
        self.ref = ref
        self.error = error


class Folders:
    """The folders and tables that images lie in. Its methods may be called from threads."""

    def __init__(self, *, patience_s: float, say: Say = lambda _: None) -> None:
        self._patience_s = patience_s
        self._say = say
        self._known: OrderedDict[str, tuple[ImageRef, ...]] = OrderedDict()
        self._away: dict[str, Dependency] = {}
        self._failing_since: OrderedDict[ImageRef, float] = OrderedDict()

    def read(self, ref: ImageRef) -> bytes:
        """The bytes of an image. Raises ImageError."""
        data = image_files.read_bytes(ref)
        name = _container(ref)
        known = self._known.get(name, ())
        if ref not in known:
            # Replaced, not changed: another thread may be reading it.
            self._known[name] = (ref, *known[: _CONTROLS - 1])
            if len(self._known) > _FOLDERS:
                self._known.popitem(last=False)
        return data

    def retry_wait_s(self, ref: ImageRef, error: ImageError) -> float:
        """Seconds until an image is read again because its folder is away; 0 when only the image is at fault.

        Raises CircuitOpen when the folder has been away for too long.
        """
        name = _container(ref)
        controls = [control for control in self._known.get(name, ()) if control != ref]
        if any(map(_readable, controls)) or (not controls and _has_neighbour(ref)):
            self._away.pop(name, None)
            return _RETRY_S[0] if _readable(ref) else self._proof_wait_s(ref)
        folder = self._away.get(name)
        if folder is None:
            folder = self._away[name] = Dependency(f"the images in {name}")
        folder.failed(name, Failure("image", f"{error.reason}: {error}"))
        folder.wait(self._patience_s, self._say, idle=True)
        return min(folder.pause_s(*_RETRY_S), max(_RETRY_S[0], self._patience_s / 4))

    def _proof_wait_s(self, ref: ImageRef) -> float:
        """Seconds until an image that alone cannot be read is looked at once more; 0 when that has been done."""
        now = time.monotonic()
        since = self._failing_since.get(ref)
        if since is not None and _PROOF_S <= now - since < _PROOF_EXPIRES_S:
            return 0.0
        if since is None or now - since >= _PROOF_EXPIRES_S:
            since = self._failing_since[ref] = now
            self._failing_since.move_to_end(ref)
            if len(self._failing_since) > _FOLDERS:
                self._failing_since.popitem(last=False)
        return max(since + _PROOF_S - now, 0.01)

    def wait(self, ref: ImageRef, error: ImageError) -> bool:
        """Wait until an image is to be read again; False when only the image is at fault. Raises CircuitOpen."""
        seconds = self.retry_wait_s(ref, error)
        time.sleep(seconds)
        return seconds > 0


def _container(ref: ImageRef) -> str:
    return ref.path if ref.column else str(Path(ref.path).parent)


def _readable(ref: ImageRef) -> bool:
    try:
        image_files.read_bytes(ref)
    except ImageError:
        return False
    return True


def _has_neighbour(ref: ImageRef) -> bool:
    """Whether another file of its kind in the same folder can be read.

    Every request waits for a store that is away. So if an image is missing in a store, others can be read.
    """
    if is_store_address(ref.path):
        return True
    if ref.column:
        return False
    path_of_image = Path(ref.path)
    try:
        names = bounded(partial(_list_paths, path_of_image.parent))
    except OSError:
        return False
    others = (
        path for path in map(Path, names) if path.suffix == path_of_image.suffix and path.name != path_of_image.name
    )
    return any(map(_has_bytes, others))


def _list_paths(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.path for entry in islice(entries, _LISTED)]


def _has_bytes(path: Path) -> bool:
    try:
        return bool(image_files.read_file(path))
    except ImageError:
        return False
