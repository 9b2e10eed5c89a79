"""The body of a chat request as it is sent; what all requests of a teacher have in common is written once."""

from collections.abc import Iterator, Sequence

import orjson

from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from teacher.engines.http.chat_protocol import sampling_body
from teacher.engines.http.given_texts import scoring_body
from teacher.engines.image_parts import ImageParts
from teacher.messages.prompts import Prompt, messages
from teacher.messages.request import Request

Body = Sequence[bytes]
"""The pieces of a body. They are joined when they are sent: an image may have megabytes."""


class RequestBodies:
    """Makes the bodies of one teacher's requests."""

    def __init__(self, teacher: Teacher, images: ImageParts) -> None:
        self._teacher = teacher
        self._images = images
        self._known: tuple[Sampling | None, str, bytes] = (None, "", b"")

    async def body(self, request: Request, model: str, *, inside: bool = False) -> Body:
        """The body of a request to `model`; with `inside` its images are in it. Raises UnreadableError."""
        part = self._images.inside if inside else self._images.part
        parts = [await part(ref) for ref in request.prompt.images]
        if request.given is not None:
            chat = messages(request.prompt, list(map(orjson.Fragment, parts)))
            return [orjson.dumps(scoring_body(self._teacher, request.given, chat, model))]
        pieces = [b'{"messages":', *_chat(request.prompt, parts)]
        if "seed" not in self._teacher.omit:
            pieces.append(b',"seed":%d' % request.seed)
        if request.siblings:
            pieces.append(b',"n":%d' % len(request.parts))
        pieces += (b",", self._settings(request.sampling, model)[1:])
        return pieces

    def _settings(self, sampling: Sampling, model: str) -> bytes:
        """The model and the sampling values as JSON text."""
        known_sampling, known_model, settings = self._known
        if known_sampling is not sampling or known_model != model:
            settings = orjson.dumps({"model": model, **sampling_body(self._teacher, sampling)})
            self._known = (sampling, model, settings)
        return settings


def _chat(prompt: Prompt, image_parts: Sequence[bytes]) -> Iterator[bytes]:
    """The pieces of `messages` as JSON text."""
    yield b"["
    if prompt.system:
        yield b'{"role":"system","content":[{"type":"text","text":%b}]},' % orjson.dumps(prompt.system)
    yield b'{"role":"user","content":['
    for part in image_parts:
        yield part
        yield b","
    yield b'{"type":"text","text":%b}]}]' % orjson.dumps(prompt.text)
