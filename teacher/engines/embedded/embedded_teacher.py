"""The embedded engine: a teacher in this process, through transformers.

Made for small models and for machines without a server. Questions are answered in batches, and the samples of one
question share the computation of its prompt. Finished rows leave the batch, so short answers do not wait for long
ones. Every sample draws its random numbers from its own seed, so the batch does not change them. Does not do what a
server does better: tensor parallelism, paged attention, models larger than one device.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors import SafetensorError
from transformers import AutoModelForImageTextToText, AutoProcessor

from distill.chat_templates import with_fixed_date
from distill.data.images import image_files
from distill.errors import ImageError, ModelError, first_line
from distill.machine import gpu_memory, hub
from distill.rationale import opened_thinking, thinking_end
from distill.recipe.sections.generate import Generate
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef
from distill.word_tables import counted
from teacher.engines.connect import Done
from teacher.engines.embedded import given_texts
from teacher.engines.embedded.decoding import Batch, BatchRow
from teacher.engines.image_folders import Folders
from teacher.engines.outage import Say
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.prompts import Prompt, messages
from teacher.messages.request import Request


@dataclass(slots=True)
class _Question:
    """One prompt with the requests that share it."""

    text: str
    refs: tuple[ImageRef, ...]
    requests: list[Request]
    pictures: list[Image.Image] = field(default_factory=list)
    """Decoded when the question's batch is, never for a whole window."""


class EmbeddedTeacher:
    """A checkpoint loaded once and asked in batches. Raises ModelError when it cannot be loaded."""

    default_batch = 64
    """Sequences in a batch where the recipe does not say."""

    def __init__(
        self,
        teacher: Teacher,
        path: str,
        *,
        max_pixels: int,
        folders: Folders | None = None,
        say: Say = lambda _: None,
    ) -> None:
        """`folders` knows how long images that are away are waited for; `say` gets a line where memory is full."""
        self.teacher, self._say = teacher, say
        self._size = teacher.max_in_flight or self.default_batch
        self._has_answered = False
        self._max_pixels = max_pixels
        self._folders = folders or Folders(patience_s=Generate().patience_s)
        self.model, self.processor = _load(teacher, path)
        self.tokenizer = getattr(self.processor, "tokenizer", self.processor)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        facts = {"torch": torch.__version__, "dtype": teacher.dtype, "device": self._device.type}
        self.info = EngineInfo(
            model=teacher.model,
            engine={"name": "transformers", "version": transformers.__version__},
            facts=facts if self._device.type == "cpu" else facts | {"gpu": torch.cuda.get_device_name()},
        )
        self.model.to(self._device).eval()
        config = self.model.config
        self._image_token = int(getattr(config, "image_token_id", getattr(config, "image_token_index", -1)))
        self._context = getattr(config.get_text_config(), "max_position_embeddings", None) or 1 << 30
        self._ends = _end_tokens(self.model, self.tokenizer)
        self._pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else min(self._ends)

    def answer(self, requests: Sequence[Request], done: Done, pulse: Callable[[], None]) -> None:
        """Answer some requests; `done` gets each completion as soon as it is finished.

        `pulse` is called a few times a second during a batch; an exception of `pulse` ends the batch.
        """
        for request in requests:
            if request.given is not None:
                done(request, self._score_fitting(request, request.given))
                pulse()
        requests = [request for request in requests if request.given is None]
        # Attempts with other sampling values cannot share a batch.
        for sampling in dict.fromkeys(request.sampling for request in requests):
            questions = self._questions(request for request in requests if request.sampling == sampling)
            questions.sort(key=lambda question: (len(question.refs), len(question.text)))
            for batch in _batches(questions, self._size):
                self._answer_fitting(self._readable(batch, done), done, pulse)

    def _questions(self, requests: Iterable[Request]) -> list[_Question]:
        """The distinct prompts of some requests."""
        questions: dict[str, _Question] = {}
        for request in requests:
            question = questions.get(request.prompt_sha)
            if question is None:
                text = self.render(request.prompt)
                question = questions[request.prompt_sha] = _Question(
                    text=text, refs=request.prompt.images, requests=[]
                )
            question.requests.append(request)
        return list(questions.values())

    def render(self, prompt: Prompt) -> str:
        """The prompt as the model's chat template writes it."""
        chat = messages(prompt, [{"type": "image"}] * len(prompt.images))
        own = self.processor.chat_template
        options = {"chat_template": with_fixed_date(own)} if isinstance(own, str) else {}
        options |= self.teacher.chat_template_kwargs
        return str(self.processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False, **options))

    def _readable(self, questions: Iterable[_Question], done: Done) -> list[_Question]:
        """The questions with their images; one whose image cannot be read is done with an error."""
        readable = []
        for question in questions:
            try:
                question.pictures = [self._image(ref) for ref in question.refs]
            except ImageError as error:
                for request in question.requests:
                    done(request, Completion(error=f"image: {error.reason}: {error}"))
            else:
                readable.append(question)
        return readable

    def _image(self, ref: ImageRef) -> Image.Image:
        """The pixels of an image, once its folder is there. Raises ImageError, CircuitOpen."""
        while True:
            try:
                return image_files.decode(self._folders.read(ref), max_pixels=self._max_pixels)
            except ImageError as error:
                if not self._folders.wait(ref, error):
                    raise

    def _answer_fitting(self, questions: list[_Question], done: Done, pulse: Callable[[], None]) -> None:
        """Answer a batch; if memory does not hold it, the rest of it in halves. Later batches are as small."""
        count = sum(len(question.requests) for question in questions)
        if count > self._size:
            for batch in _batches(questions, self._size):
                self._answer_fitting(batch, done, pulse)
            return
        left = {request.id: request for question in questions for request in question.requests}

        def note(request: Request, completion: Completion) -> None:
            left.pop(request.id)
            self._has_answered = self._has_answered or not completion.error
            done(request, completion)

        try:
            self._answer_batch(questions, note, pulse)
            return
        except RuntimeError as error:
            refused = self._too_large(error, alone=len(left) == 1)
        # Only here is the error gone, and with it the tensors of the batch that failed.
        gpu_memory.free_unused()
        if len(left) == 1:
            done(left.popitem()[1], refused)
            return
        self._size = max(1, count // 2)
        self._say(f"teacher '{self.teacher.name}': out of memory with {count} in a batch: from here on {self._size}")
        for question in questions:
            question.requests = [request for request in question.requests if request.id in left]
        for batch in _batches([question for question in questions if question.requests], max(1, len(left) // 2)):
            self._answer_fitting(batch, done, pulse)

    def _score_fitting(self, request: Request, given: str) -> Completion:
        """As `_score`; an error where memory does not hold this text, but held others."""
        try:
            completion = self._score(request, given)
        except RuntimeError as error:
            completion = self._too_large(error, alone=True)
        self._has_answered = self._has_answered or not completion.error
        return completion

    def _too_large(self, error: RuntimeError, *, alone: bool) -> Completion:
        """The error of a request that memory does not hold `alone`. Raises where none before it was answered."""
        if not gpu_memory.is_out_of_memory(error):
            raise error
        if alone and not self._has_answered:
            raise gpu_memory.explained(error) from None
        return Completion(
            error=f"refused_request: the GPU's memory is too small for this request alone: {first_line(error)}"
        )

    def _answer_batch(self, questions: list[_Question], done: Done, pulse: Callable[[], None]) -> None:
        if not questions:
            return
        started = time.monotonic()
        try:
            inputs = self._encode(questions)
        except (ValueError, IndexError) as error:
            # One prompt that the processor refuses must not cost its neighbours.
            if len(questions) > 1:
                for question in questions:
                    self._answer_batch([question], done, pulse)
                return
            for request in questions[0].requests:
                done(request, Completion(error=f"refused_request: {error}"))
            return
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        if max(lengths) >= self._context:
            fitting = self._refuse_long(questions, lengths, done)
            self._answer_batch(fitting, done, pulse)
            return
        sampling = questions[0].requests[0].sampling
        counts = torch.eq(inputs["input_ids"], self._image_token).sum(dim=1).tolist()
        rows, origin = [], []
        for position, question in enumerate(questions):
            prefix = opened_thinking(question.text)
            for request in question.requests:
                rows.append(
                    BatchRow(
                        request=request,
                        prompt_tokens=lengths[position],
                        image_tokens=counts[position],
                        prefix=prefix,
                        max_tokens=min(sampling.max_tokens, self._context - lengths[position]),
                    )
                )
                origin.append(position)
        Batch(
            rows=rows,
            origin=torch.tensor(origin, device=self._device),
            mask=inputs["attention_mask"],
            sampling=sampling,
            ends=self._ends,
            logprobs=self.teacher.logprobs,
            stopped=self._stopped,
            ended=lambda row, finish: done(row.request, self._completion(row, finish, time.monotonic() - started)),
            pulse=pulse,
        ).run(self.model, inputs, pad=self._pad)

    def _score(self, request: Request, given: str) -> Completion:
        """The log-probabilities of a given text, in one pass over prompt and text."""
        started, prompt = time.monotonic(), self.render(request.prompt)
        # As in a trace, a thinking tag that the prompt opens is the beginning of the text, too.
        opened = opened_thinking(prompt).strip()
        written = given.removeprefix(opened) if opened else given
        question = _Question(text=prompt + written, refs=request.prompt.images, requests=[request])
        try:
            question.pictures = [self._image(ref) for ref in question.refs]
            inputs = self._encode([question])
            ends = given_texts.token_ends(self.tokenizer, prompt, written) + len(given) - len(written)
        except ImageError as error:
            return Completion(error=f"image: {error.reason}: {error}")
        except (ValueError, IndexError) as error:
            return Completion(error=f"refused_request: {error}")
        tokens = inputs["input_ids"].shape[1]
        if tokens > self._context:
            return Completion(error=f"refused_request: {counted(tokens, 'token')} in a context of {self._context}")
        ids, values = given_texts.log_probabilities(self.model, inputs, len(ends), self.teacher.logprobs)
        return Completion(
            text=given,
            finish_reason="scored",
            prompt_tokens=tokens - len(ends),
            image_tokens=int(torch.eq(inputs["input_ids"], self._image_token).sum()),
            completion_tokens=len(ends),
            token_ids=ids,
            token_logprobs=values,
            token_ends=ends,
            latency_s=time.monotonic() - started,
        )

    def _encode(self, questions: Sequence[_Question]) -> dict[str, torch.Tensor]:
        images = [question.pictures for question in questions]
        encoded = self.processor(
            text=[question.text for question in questions],
            images=images if images[0] else None,
            add_special_tokens=False,
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
        floating = self.model.dtype
        return {
            name: value.to(self._device, floating if value.is_floating_point() else None)
            for name, value in encoded.items()
            if isinstance(value, torch.Tensor)
        }

    def _refuse_long(self, questions: list[_Question], lengths: list[int], done: Done) -> list[_Question]:
        """Gives questions without room for an answer their error, and returns the others."""
        fitting = []
        for question, length in zip(questions, lengths, strict=True):
            if length < self._context:
                fitting.append(question)
                continue
            error = f"refused_request: {length} prompt tokens leave no room in a context of {self._context}"
            for request in question.requests:
                done(request, Completion(error=error, prompt_tokens=length))
        return fitting

    def _stopped(self, row: BatchRow) -> bool:
        """Whether one of the recipe's stop strings is in the end of a row."""
        if not self.teacher.sampling.stop:
            return False
        tail = self.tokenizer.decode(row.tokens[-32:], skip_special_tokens=True)
        return any(stop in tail for stop in self.teacher.sampling.stop)

    def _completion(self, row: BatchRow, finish_reason: str, latency_s: float) -> Completion:
        # A character cut in half at the end is no text; servers leave it out, too.
        text = self.tokenizer.decode(row.tokens, skip_special_tokens=True).rstrip("\N{REPLACEMENT CHARACTER}")
        positions = [text.find(stop) for stop in self.teacher.sampling.stop if stop in text]
        if positions:
            text, finish_reason = text[: min(positions)], "stop"
        reasoning_tokens = None
        if thought := thinking_end(text):
            head = self.tokenizer(text[:thought], add_special_tokens=False)["input_ids"]
            reasoning_tokens = min(len(head), len(row.tokens))
        return Completion(
            text=row.prefix + text,
            finish_reason=finish_reason,
            prompt_tokens=row.prompt_tokens,
            image_tokens=row.image_tokens,
            completion_tokens=len(row.tokens) + row.closed,
            reasoning_tokens=reasoning_tokens,
            token_ids=np.array([ids for ids, _ in row.likely], np.int32) if row.likely else None,
            token_logprobs=np.array([values for _, values in row.likely], np.float32) if row.likely else None,
            latency_s=latency_s,
        )


def _batches(questions: Sequence[_Question], size: int) -> Iterator[list[_Question]]:
    """Questions in order, at most `size` requests a batch, all with the same number of images."""
    batch: list[_Question] = []
    room = size
    for question in questions:
        for start in range(0, len(question.requests), size):
            requests = question.requests[start : start + size]
            if batch and (len(requests) > room or len(batch[0].refs) != len(question.refs)):
                yield batch
                batch, room = [], size
            batch.append(replace(question, requests=requests))
            room -= len(requests)
    if batch:
        yield batch


def _load(teacher: Teacher, path: str) -> tuple[Any, Any]:
    # Progress bars and notes about loading would look like messages of the run; errors are raised as exceptions.
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    options = {"revision": teacher.revision, "trust_remote_code": teacher.trust_remote_code}
    unreached = ""
    try:
        with hub.cache_if_unreached(path) as unreached:
            model = AutoModelForImageTextToText.from_pretrained(
                path, dtype=getattr(torch, teacher.dtype), use_safetensors=True, **options
            )
            processor = AutoProcessor.from_pretrained(path, **options)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        if unreached:
            text = hub.unreached_text(path, unreached, first_line(error))
            raise ModelError(f"teacher '{teacher.name}': {text}") from error
        raise ModelError(
            f"teacher '{teacher.name}': {path} cannot be loaded: {hub.load_fault(error)}\n"
            "check teachers.model (a directory beside the recipe, or a hub name that is in the local cache) and that "
            "config.json, *.safetensors and the processor files are there"
        ) from error
    if getattr(processor, "chat_template", None) is None:
        raise ModelError(
            f"teacher '{teacher.name}': {path} has no chat template; add chat_template.jinja to the checkpoint"
        )
    return model, processor


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    configured = model.generation_config.eos_token_id
    ends = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in [*ends, tokenizer.eos_token_id] if token is not None)
