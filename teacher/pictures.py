"""How images reach a server: by path where it may read them, else inside the request; each prepared once.

A server on this machine may be allowed to read files (`vllm serve --allowed-local-media-path`). Whether one that the
run did not start may is found out by the first answers. Only files that need no conversion go by path. What is sent
inside a request has no EXIF or other metadata: whose server it is, a tunnel hides, so no server gets them.
vLLM also gets a name for each image, so that it need not digest the pixels again for every question about it.
"""

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from distill import images
from distill.artifacts import canonical
from distill.recipe import Teacher
from distill.types import ImageRef

_CACHE_BYTES = 64 << 20
_ENTRY_BYTES = 8 << 10
"""What an entry takes beside its URL, about; paths alone are short, and so are the errors of broken images."""
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_REFUSAL = "allowed-local-media-path"
"""vLLM's error names this option when it may not read a file."""


class Pictures:
    """The content parts of images, ready to be put into a body."""

    def __init__(self, teacher: Teacher, *, max_pixels: int, local_media: bool, urls: tuple[str, ...]) -> None:
        nearby = all(urlsplit(url).hostname in _LOCAL_HOSTS for url in urls)
        self.by_path = teacher.images == "file" or (
            teacher.images == "auto" and teacher.backend == "vllm" and (local_media or nearby)
        )
        self._sure = teacher.images == "file" or local_media
        self._named = teacher.backend == "vllm"
        self._settings = canonical(dict(teacher.mm_processor_kwargs))
        self._max_pixels = max_pixels
        self._ready: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()
        self._weights: dict[str, int] = {}
        self._bytes = 0

    async def part(self, ref: ImageRef) -> Mapping[str, Any]:
        """The content part of one image. Raises ImageError."""
        url = await self._url(ref)
        part: dict[str, Any] = {"type": "image_url", "image_url": {"url": orjson.Fragment(url)}}
        if self._named:
            part["uuid"] = hashlib.sha256(ref.sha256.encode() + self._settings).hexdigest()[:32]
        return part

    def may_not_read(self, body: bytes, message: str, *, refused: bool) -> bool:
        """A server did not answer a request. Whether to ask again with the images inside: it cannot read the files.

        vLLM tells 400 or 500 and the reason; once that was said, nothing goes by path any more.
        """
        if self._sure or b'"file://' not in body:
            return False
        if _REFUSAL in message and self.by_path:
            self.by_path = False
            self._ready.clear()
            self._weights.clear()
            self._bytes = 0
        return refused or _REFUSAL in message

    async def _url(self, ref: ImageRef) -> bytes:
        task = self._ready.get(ref.sha256)
        if task is None:
            task = self._ready[ref.sha256] = asyncio.create_task(asyncio.to_thread(self._prepare, ref, self.by_path))
            task.add_done_callback(partial(self._weigh, ref.sha256))
        else:
            self._ready.move_to_end(ref.sha256)
        return await asyncio.shield(task)

    async def inside(self, ref: ImageRef) -> Mapping[str, Any]:
        """The content part of one image with its bytes inside, whatever the server may read."""
        if not self.by_path:
            return await self.part(ref)
        url = await asyncio.to_thread(self._prepare, ref, False)
        return {"type": "image_url", "image_url": {"url": orjson.Fragment(url)}}

    def _prepare(self, ref: ImageRef, by_path: bool) -> bytes:
        """The URL of an image as JSON text."""
        original = images.read_bytes(ref)
        if by_path and not ref.column and images.is_portable(original, max_pixels=self._max_pixels):
            return orjson.dumps(Path(ref.path).resolve().as_uri())
        data, mime = images.portable(original, max_pixels=self._max_pixels)
        return b'"data:%s;base64,%s"' % (mime.encode(), base64.b64encode(data))

    def _weigh(self, name: str, task: asyncio.Task[bytes]) -> None:
        if self._ready.get(name) is not task:
            return
        failed = task.cancelled() or task.exception() is not None
        self._weights[name] = _ENTRY_BYTES + (0 if failed else len(task.result()))
        self._bytes += self._weights[name]
        while self._bytes > _CACHE_BYTES and len(self._ready) > 1:
            oldest = next(iter(self._ready))
            if oldest not in self._weights:
                return  # not ready yet
            del self._ready[oldest]
            self._bytes -= self._weights.pop(oldest)
