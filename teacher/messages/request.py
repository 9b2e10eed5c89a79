"""Names of traces and seeds, derived from content.

A trace id covers everything that decides the record of an attempt: the sample and its image bytes, the model and its
revision, the rendered prompt, every active sampling value, the arguments of chat template and image processor, the
number of log-probabilities, the seed and k. It does not cover the position of a row, the name of a teacher, or its
backend: the same request to the same model over HTTP or in process is the same attempt, and a run may resume with the
other backend. Engine and version are recorded on each trace instead. The dtype of an embedded model counts where it
is not the default; options of a server that change its answers are compared by `teacher.engines.provenance`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from distill.artifacts.files import directory_sha256
from distill.artifacts.manifest import canonical
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.sampling import Sampling, omitted_keys
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from teacher.messages.prompts import Prompt, prompt, prompt_sha


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Which weights answer. A local directory is known by its contents, a hub name by name and revision."""

    name: str
    revision: str
    local: bool

    @property
    def key(self) -> str:
        return self.revision if self.local else f"{self.name}@{self.revision}"


@dataclass(slots=True, kw_only=True)
class Request:
    """A wanted trace: one attempt of a teacher at a sample."""

    id: str
    sample: Sample
    k: int
    attempt: int = 0
    """How many attempts at this k went before it."""
    reseeds: int = 0
    """How many of those called for a new seed."""
    seed: int
    sampling: Sampling
    """The values in force for this attempt."""
    prompt: Prompt
    prompt_sha: str
    draft: str = ""
    """Id of the trace that the prompt shows, for a teacher that works on drafts."""
    given: str | None = None
    """A text to score: the engine writes none, and the completion has the log-probabilities of this one."""
    siblings: tuple["Request", ...] = ()
    """Other first attempts at the same prompt that are asked for together with this one."""

    @property
    def parts(self) -> tuple["Request", ...]:
        """This request and its siblings, each for itself."""
        return (replace(self, siblings=()), *self.siblings) if self.siblings else (self,)


def model_of(recipe: Recipe, teacher: Teacher) -> Model:
    """The identity of a teacher's model, from the recipe and the disk alone: no server has to be up."""
    path = Path(recipe.local_or_hub(teacher.model))
    if path.is_dir():
        return Model(name=teacher.model, revision=directory_sha256(path), local=True)
    return Model(name=teacher.model, revision=teacher.revision or "", local=False)


def precision_key(teacher: Teacher) -> dict[str, str]:
    """The dtype in which this process computes a teacher's answers; nothing at the default, and for a server."""
    default = Teacher.model_fields["dtype"].default
    return {"dtype": teacher.dtype} if teacher.capabilities.in_process and teacher.dtype != default else {}


class _Asked(NamedTuple):
    """What a request asks about: a sample, the draft to work on ("": none), and their prompt with its digest."""

    sample: Sample
    draft: str
    prompt: Prompt
    sha: str


def _asked_by(request: Request) -> _Asked:
    return _Asked(request.sample, request.draft, request.prompt, request.prompt_sha)


class Author:
    """A teacher, the model it is, and the run's seed: all that its requests depend on besides the sample."""

    def __init__(self, *, teacher: Teacher, model: Model, seed: int) -> None:
        self.teacher, self.model, self.seed = teacher, model, seed
        settings = affecting(teacher, "traces") | precision_key(teacher) | {"model": model.key}
        self._settings = {name: orjson.Fragment(canonical(value)) for name, value in settings.items()}
        """The teacher's settings that every id covers, as JSON text."""
        self._last_asked: _Asked | None = None
        """A sample's requests come together."""
        self._last_sampling: tuple[Sampling | None, orjson.Fragment] = (None, orjson.Fragment(b""))

    def first_attempt(self, sample: Sample, k: int, *, draft: str = "", draft_text: str = "") -> Request:
        """The first attempt at `k`; for a teacher that works on drafts, on the trace `draft`, saying `draft_text`."""
        return self._named(self._asked(sample, draft, draft_text), k, self.teacher.sampling)

    def next_attempt(self, before: Request, sampling: Sampling, *, reseed: bool) -> Request:
        """The attempt after `before`: with these sampling values, and with a new seed or the same."""
        return self._named(
            _asked_by(before), before.k, sampling, attempt=before.attempt + 1, reseeds=before.reseeds + reseed
        )

    def attempt_at(self, request: Request, k: int) -> Request:
        """The first attempt at another trace of the same prompt."""
        return self._named(_asked_by(request), k, self.teacher.sampling)

    def _asked(self, sample: Sample, draft: str, draft_text: str) -> _Asked:
        """The prompt with its digest, worked out once for all the traces asked of it."""
        known = self._last_asked
        if known is not None and known.sample.id == sample.id and known.draft == draft:
            return known._replace(sample=sample)
        made = prompt(self.teacher, sample, draft_text)
        self._last_asked = asked = _Asked(sample, draft, made, prompt_sha(made))
        return asked

    def _sampling_text(self, sampling: Sampling) -> orjson.Fragment:
        """The sampling values in force as JSON text."""
        if self._last_sampling[0] is not sampling:
            left_out = omitted_keys(self.teacher.omit)
            values = {name: value for name, value in affecting(sampling, "traces").items() if name not in left_out}
            self._last_sampling = (sampling, orjson.Fragment(canonical(values)))
        return self._last_sampling[1]

    def _named(self, asked: _Asked, k: int, sampling: Sampling, *, attempt: int = 0, reseeds: int = 0) -> Request:
        """The request with its seed and its id."""
        # All settings of one model share their seeds, so two temperatures are compared under the same seeds.
        source = {"sample": asked.sample.id, "model": self.model.key, "seed": self.seed, "k": k}
        if reseeds:
            source["reseeds"] = reseeds
        seed = int.from_bytes(_digest("seed", source)[:4], "big") >> 1
        content = {
            **self._settings,
            "sample": asked.sample.id,
            "images": [image.sha256 for image in asked.sample.images],
            "prompt": asked.sha,
            "sampling": self._sampling_text(sampling),
            "seed": seed,
            "k": k,
        }
        return Request(
            id=_digest("trace", content).hex()[:20],
            sample=asked.sample,
            k=k,
            attempt=attempt,
            reseeds=reseeds,
            seed=seed,
            sampling=sampling,
            prompt=asked.prompt,
            prompt_sha=asked.sha,
            draft=asked.draft,
        )


def join_choices(requests: Sequence[Request], choices: int) -> list[Request]:
    """The same requests, in their order; `choices` first attempts at one prompt become one if none is missing."""
    if choices < 2:
        return list(requests)
    joined: list[Request] = []
    position = 0
    while position < len(requests):
        first, *others = group = requests[position : position + choices]
        together = len(group) == choices and first.k % choices == 0
        for offset, each in enumerate(group):
            together = together and (each.k, each.attempt) == (first.k + offset, 0)
            together = together and (each.sample.id, each.draft) == (first.sample.id, first.draft)
        joined.append(replace(first, siblings=tuple(others)) if together else first)
        position += len(group) if together else 1
    return joined


def requests(recipe: Recipe, teacher: Teacher, model: Model, sample: Sample) -> list[Request]:
    """The first attempts of one teacher at one sample, k = 0, 1, ..."""
    author = Author(teacher=teacher, model=model, seed=recipe.seed)
    return [author.first_attempt(sample, k) for k in range(teacher.samples)]


def single_request(
    teacher: Teacher, sample: Sample, asked: Prompt, *, id: str = "", seed: int = 0, given: str | None = None
) -> Request:
    """A request outside the plan of a run, with the sampling of its teacher."""
    return Request(
        id=id,
        sample=sample,
        k=0,
        seed=seed,
        sampling=teacher.sampling,
        prompt=asked,
        prompt_sha=prompt_sha(asked),
        given=given,
    )


def plain_request(teacher: Teacher) -> Request:
    """A question that any server can answer, asked as the teacher's own: to find out whether its server answers."""
    sample = Sample(id="control", images=(), question="Answer with the word yes.")
    return single_request(teacher, sample, Prompt(system=teacher.system, images=(), text=sample.question))


def _digest(kind: str, content: dict[str, Any]) -> bytes:
    return hashlib.sha256(b"%b\0%b" % (kind.encode(), canonical(content))).digest()
