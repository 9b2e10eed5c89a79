"""Sends images to a server: by path where it may read them, else inside the request. Each image is prepared once.

A server on this machine may be allowed to read files (`vllm serve --allowed-local-media-path`). One request shows
whether a server that the run did not start may do so; until it is answered, other requests have their images inside.
Only files that need no conversion are sent by path. Images inside a request have no EXIF or other metadata, because
the owner of the server is not known. vLLM also gets a name for each image, so it does not hash the pixels again for
every question about the image. Images of the next requests are prepared while those before them are on their way. An
image whose file has changed since it was read is read again: no answer is about other bytes than its trace says.
"""

import asyncio
import base64
import hashlib
import math
import os
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from distill.artifacts.manifest import canonical
from distill.data.bounded_reads import bounded
from distill.data.images import image_files
from distill.errors import ImageError
from distill.local_paths import is_store_address
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef
from teacher.engines.connect import Upcoming
from teacher.engines.http.server_info import LOCAL_HOSTS
from teacher.engines.image_folders import Folders, UnreadableError

_CACHE_BYTES = 64 << 20
_ENTRY_BYTES = 8 << 10
"""What an entry takes beside its URL, about; paths alone are short."""
_AHEAD, _AHEAD_EACH = 256, 32
"""The images of the next 256 requests are prepared ahead, after every 32 requests: when this process is busy, a
thread needs the time of some 50 requests."""
_AHEAD_BYTES = _CACHE_BYTES // 4
_LOOK_AGAIN_S = 0.25
"""A file that was read is looked at again so often at most: whether it has changed."""
_STATE_LIMIT_S = 5.0
"""Files whose status did not come within this time count as changed: they are read again."""
_FILE = b'"file://'
"""The form of an image by path in a body."""
_REFUSAL = "allowed-local-media-path"
"""vLLM's error names this option when it may not read a file."""


class ImageParts:
    """The content parts of images, ready to be put into a body."""

    def __init__(
        self,
        teacher: Teacher,
        folders: Folders,
        *,
        max_pixels: int,
        urls: Sequence[str] = (),
        media_root: Path | None = None,
        upcoming: Upcoming = lambda _: (),
    ) -> None:
        """Servers of the run may read files below `media_root`; without it those at `urls` are tried."""
        may_read = teacher.images == "file" or (
            teacher.images == "auto"
            and teacher.capabilities.reads_files
            and (media_root is not None or all(urlsplit(url).hostname in LOCAL_HOSTS for url in urls))
        )
        self._sure = teacher.images == "file" or media_root is not None
        self.reads_paths: bool | None = may_read if self._sure or not may_read else None
        """Whether the server can read paths; None until that is known."""
        self._on_trial = False
        """Whether a request that will show it is in flight."""
        self._paths: dict[str, bytes] = {}
        """The parts of images that may be sent by path, until it is known whether the server reads paths."""
        self._root = media_root and media_root.resolve()
        self._named = teacher.capabilities.reads_files
        self._settings = canonical(dict(teacher.mm_processor_kwargs))
        self._folders = folders
        self._max_pixels = max_pixels
        self._ready: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()
        self._weights: dict[str, int] = {}
        self._files: dict[str, tuple[str, _State]] = {}
        self._look_again: dict[str, float] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        """Looks at files that are on their way, by image."""
        self._bytes = 0
        self._upcoming = upcoming
        self._asked = 0
        self._failing = False
        """Whether the last image could not be read: then none is read before a request needs it."""

    async def part(self, ref: ImageRef) -> bytes:
        """The content part of one image as JSON text. Raises UnreadableError."""
        try:
            part = await self._shared(ref)
        except UnreadableError:
            self._on_trial = False  # this request itself may be the one that shows it, by another of its images
            raise
        if self.reads_paths is None and not self._on_trial and ref.sha256 in self._paths:
            self._on_trial = True
            return self._paths[ref.sha256]
        return part

    async def _shared(self, ref: ImageRef) -> bytes:
        """The part that all requests about an image share."""
        if self._is_due(ref, time.monotonic()):
            await self._look(ref)
        task = self._ready.get(ref.sha256)
        if task is None:
            task = self._start(ref)
        else:
            self._ready.move_to_end(ref.sha256)
        if self._asked % _AHEAD_EACH == 0 and not self._failing:
            self._prepare_ahead()
        self._asked += 1
        return task.result() if task.done() else await asyncio.shield(task)

    def _is_due(self, ref: ImageRef, now: float) -> bool:
        """Whether the file of an image that is ready must be looked at before the image is used."""
        return now >= self._look_again.get(ref.sha256, math.inf)

    async def _look(self, ref: ImageRef) -> None:
        """Look at the file of an image, and at those of the next requests: one call of a thread for all of them."""
        look = self._looks.get(ref.sha256)
        if look is None:
            now = time.monotonic()
            refs = {
                each.sha256: each
                for each in (*self._upcoming(_AHEAD), ref)
                if each.sha256 not in self._looks and self._is_due(each, now)
            }
            look = asyncio.create_task(self._look_at(refs.values()))
            self._looks |= dict.fromkeys(refs, look)
        await asyncio.shield(look)

    async def _look_at(self, refs: Collection[ImageRef]) -> None:
        read = {ref.sha256: self._ready[ref.sha256] for ref in refs}
        try:
            changed = {ref.sha256 for ref in await asyncio.to_thread(self._changed, refs)}
        finally:
            for name in read:
                del self._looks[name]
        for name, task in read.items():
            if self._ready.get(name) is not task:
                continue  # it was read again meanwhile
            if name in changed:
                self._forget(name)
            else:
                self._look_again[name] = time.monotonic() + _LOOK_AGAIN_S

    def _start(self, ref: ImageRef) -> asyncio.Task[bytes]:
        preparing = asyncio.to_thread(self._prepare, ref, bool(self.reads_paths))
        task = self._ready[ref.sha256] = asyncio.create_task(preparing)
        task.add_done_callback(partial(self._weigh, ref.sha256))
        return task

    def _prepare_ahead(self) -> None:
        """Start on the images of the next requests, as many as the cache has room for."""
        room = _AHEAD_BYTES * len(self._weights) // self._bytes if self._weights else _AHEAD_EACH
        for ref in islice(self._upcoming(_AHEAD), room):
            if ref.sha256 not in self._ready:
                self._start(ref)

    def may_not_read(self, body: Sequence[bytes], message: str, *, refused: bool) -> bool:
        """A server did not answer a request. Whether to ask again with the images inside: it cannot read the files.

        vLLM answers 400 or 500 with this reason; after that no image is sent by path.
        """
        if self._sure or not _goes_by_path(body):
            return False
        self._on_trial = False  # unless it shows it, another request will
        if _REFUSAL in message:
            self._learn(reads_paths=False)
        return refused or _REFUSAL in message

    def check_unchanged(self, refs: Iterable[ImageRef], body: Sequence[bytes] = ()) -> None:
        """Learn from an answer to a request with this body whether paths can be read.

        Raises UnreadableError when a server may have read another image than the one that was asked about.
        """
        shown = self.reads_paths is None and _goes_by_path(body)
        if not (self.reads_paths or shown):
            return
        self._on_trial = False
        for ref in self._changed(refs):
            error = ImageError("changed_image", f"{ref.path}: the image changed while a server read it")
            raise UnreadableError(ref, error)
        if shown:
            self._learn(reads_paths=True)

    def _learn(self, *, reads_paths: bool) -> None:
        if bool(self.reads_paths) != reads_paths:
            for name in list(self._weights):
                self._forget(name)
            self._ready.clear()
        self.reads_paths = reads_paths
        self._paths.clear()

    def _changed(self, refs: Iterable[ImageRef]) -> list[ImageRef]:
        """The images whose file is another one than when it was read."""
        known = [(ref, _file(ref), *self._files[ref.sha256]) for ref in refs if ref.sha256 in self._files]
        states = _states({path for _, file, path, _ in known for path in (file, path)})
        return [
            ref
            for ref, file, path, state in known
            if state is not None and (states[path] != state or states[file] is None)
        ]

    async def inside(self, ref: ImageRef) -> bytes:
        """The content part of one image with its bytes inside, also for a server that may read paths."""
        return await (asyncio.to_thread(self._prepare, ref, False) if self.reads_paths else self._shared(ref))

    def _prepare(self, ref: ImageRef, by_path: bool) -> bytes:
        """The content part of an image as JSON text. Raises UnreadableError."""
        try:
            if is_store_address(ref.path):
                self._folders.read(ref)  # which brings it to this machine
            file = _file(ref)
            state = _states([file])[file]
            original = self._folders.read(ref)
            self._files[ref.sha256] = (file, state)
            if (by_path or self.reads_paths is None) and (path := self._path(ref, original)):
                part = self._part(ref, orjson.dumps(path.as_uri()))
                if by_path:
                    return part
                self._paths[ref.sha256] = part
            data, mime = image_files.portable(original, max_pixels=self._max_pixels)
        except ImageError as error:
            raise UnreadableError(ref, error) from None
        return self._part(ref, b'"data:%s;base64,%s"' % (mime.encode(), base64.b64encode(data)))

    def _part(self, ref: ImageRef, url: bytes) -> bytes:
        part = b'{"type":"image_url","image_url":{"url":%b}' % url
        if not self._named:
            return part + b"}"
        name = hashlib.sha256(ref.sha256.encode() + self._settings).hexdigest()[:32]
        return b'%b,"uuid":"%b"}' % (part, name.encode())

    def _path(self, ref: ImageRef, data: bytes) -> Path | None:
        """The file by which an image can go. Raises ImageError."""
        file = image_files.own_file(ref)
        if file is None or not image_files.is_portable(data, max_pixels=self._max_pixels):
            return None
        file = file.resolve()
        return file if self._root is None or file.is_relative_to(self._root) else None

    def _weigh(self, name: str, task: asyncio.Task[bytes]) -> None:
        if self._ready.get(name) is not task:
            return
        self._failing = task.cancelled() or task.exception() is not None
        if self._failing:
            del self._ready[name]  # the next request reads it again
            self._files.pop(name, None)
            return
        self._weights[name] = _ENTRY_BYTES + len(task.result())
        self._bytes += self._weights[name]
        self._look_again[name] = time.monotonic() + _LOOK_AGAIN_S
        while self._bytes > _CACHE_BYTES and len(self._ready) > 1:
            oldest = next(iter(self._ready))
            if oldest not in self._weights:
                return  # not ready yet
            self._forget(oldest)

    def _forget(self, name: str) -> None:
        del self._ready[name]
        self._files.pop(name, None)
        self._paths.pop(name, None)
        self._look_again.pop(name, None)
        self._bytes -= self._weights.pop(name)


def _goes_by_path(body: Sequence[bytes]) -> bool:
    return any(_FILE in piece for piece in body)


def _file(ref: ImageRef) -> str:
    """The file of this machine that an image is in."""
    return str(image_files.own_file(ref) or ref.path)


_State = tuple[int, int, int] | None


def _states(paths: Collection[str]) -> Mapping[str, _State]:
    """What changes with the content of each file: its number, size and time of change; None when it is not there."""
    try:
        return bounded(lambda: {path: _state(path) for path in paths}, _STATE_LIMIT_S)
    except TimeoutError:
        return dict.fromkeys(paths)


def _state(path: str) -> _State:
    try:
        status = os.stat(path)  # noqa: PTH116 (no Path for each of many)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
