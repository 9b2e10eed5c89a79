"""The body of a chat request as it is sent; what all requests of a teacher have in common is written once."""

import orjson

from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from teacher.engines.http.chat_protocol import sampling_body
from teacher.engines.http.given_texts import scoring_body
from teacher.engines.image_parts import ImageParts
from teacher.messages.prompts import messages
from teacher.messages.request import Request


class RequestBodies:
    """Makes the bodies of one teacher's requests."""

    def __init__(self, teacher: Teacher, images: ImageParts) -> None:
        self._teacher = teacher
        self._images = images
        self._known: tuple[Sampling | None, str, bytes] = (None, "", b"")

    async def body(self, request: Request, model: str, *, inside: bool = False) -> bytes:
        """The body of a request to `model`; with `inside` its images are in it. Raises UnreadableError."""
        part = self._images.inside if inside else self._images.part
        parts = [await part(ref) for ref in request.prompt.images]
        if request.given is not None:
            return orjson.dumps(scoring_body(self._teacher, request.given, messages(request.prompt, parts), model))
        chat = orjson.dumps(messages(request.prompt, parts))
        settings = self._settings(request.sampling, model)[1:]
        if request.siblings:
            settings = b'"n":%d,%b' % (len(request.parts), settings)
        if "seed" in self._teacher.omit:
            return b'{"messages":%b,%b' % (chat, settings)
        return b'{"messages":%b,"seed":%d,%b' % (chat, request.seed, settings)

    def _settings(self, sampling: Sampling, model: str) -> bytes:
        """The model and the sampling values as JSON text."""
        known_sampling, known_model, settings = self._known
        if known_sampling is not sampling or known_model != model:
            settings = orjson.dumps({"model": model, **sampling_body(self._teacher, sampling)})
            self._known = (sampling, model, settings)
        return settings
