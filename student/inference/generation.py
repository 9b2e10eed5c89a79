"""Replies of a student to many questions, greedy or sampled, in batches of similar length.

Works with any image-text-to-text model. Does not judge answers (student/evaluate.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import GenerationConfig, PreTrainedModel, TextStreamer

from distill import live_text
from distill.rationale import STYLES, Style, opened_thinking, split
from distill.types import Sample
from student.data.encode import Encoder
from student.data.images import ImageStore
from student.models.inputs import type_name

_PROMPT_END = 16
"""Tokens at the end of a prompt among which an opening thinking tag is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A student's reply to one question. `tokens` include the end of the turn."""

    text: str
    """With the opening thinking tag where the prompt ends with it, as in a trace."""
    tokens: int
    rationale_tokens: int
    rationale_tokens_by_style: Mapping[Style, int]
    """The same for each setting of filter.rationale: replies are kept, and the setting may change."""
    truncated: bool


Batch = Sequence[tuple[int, list[int]]]
"""Indexes of samples with the token ids of their prompts."""


@dataclass(frozen=True, slots=True)
class Prompter:
    """Makes a student's inputs of questions and their images."""

    encoder: Encoder
    store: ImageStore
    max_pixels: int
    style: Style = "think"
    """How the student separates its rationale from its answer."""

    def batches(self, samples: Sequence[Sample], batch_size: int) -> Iterator[list[tuple[int, list[int]]]]:
        """Indexes of the samples with their token ids, grouped by length; the grouping depends on the samples only.

        A sample whose question holds the image placeholder itself cannot be asked and is left out.
        """
        asked = self.encoder.prompts([(sample.question, len(sample.images)) for sample in samples])
        prompts = []
        for index, (sample, ids) in enumerate(zip(samples, asked, strict=True)):
            images = [self.store.expansion(ref, self.max_pixels) for ref in sample.images]
            full = self.encoder.expand(ids, images)
            if full is not None:
                self.encoder.verify_prompt(sample, full, self.max_pixels)
                prompts.append((index, full))
        prompts.sort(key=lambda prompt: (len(prompt[1]), prompt[0]))
        for start in range(0, len(prompts), batch_size):
            yield prompts[start : start + batch_size]

    def inputs(self, model: PreTrainedModel, samples: Sequence[Sample], batch: Batch) -> dict[str, torch.Tensor]:
        """The inputs of `model` for one of `batches`: prompts padded on the left, and the inputs of their images."""
        pad = self.encoder.pad_id
        width = max(len(ids) for _, ids in batch)
        inputs = {
            "input_ids": torch.tensor([[pad] * (width - len(ids)) + ids for _, ids in batch]),
            "attention_mask": torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for _, ids in batch]),
        }
        if (name := type_name(model)) is not None:
            inputs[name] = (inputs["input_ids"] == self.encoder.image_id).to(torch.int64)
        refs = (ref for index, _ in batch for ref in samples[index].images)
        return inputs | self.store.join([self.store.features(ref, self.max_pixels) for ref in refs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How replies are drawn instead of greedily; the same seed and batch give the same replies on one machine."""

    temperature: float
    seed: int


@torch.inference_mode()
def reply_ids(
    model: PreTrainedModel,
    prompter: Prompter,
    samples: Sequence[Sample],
    batch: Batch,
    *,
    max_new_tokens: int,
    draw: Draw | None = None,
) -> list[list[int]]:
    """Token ids of the replies to a batch, in its order, the end of the turn included; greedy without `draw`."""
    encoder, inputs = prompter.encoder, prompter.inputs(model, samples, batch)
    decoding = GenerationConfig(
        do_sample=draw is not None,
        num_beams=1,
        temperature=1.0 if draw is None else draw.temperature,
        top_p=1.0,
        top_k=50 if draw is None else 0,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        max_new_tokens=max_new_tokens,
        eos_token_id=sorted(encoder.end_ids),
        pad_token_id=encoder.pad_id,
        use_cache=True,
    )
    listener = live_text.current()
    streamer = _Streamer(encoder, listener) if listener and len(batch) == 1 else None
    with torch.random.fork_rng(enabled=draw is not None), _no_own_settings(model):
        if draw is not None:
            torch.manual_seed(draw.seed)
        generated = model.generate(
            **{name: value.to(model.device) for name, value in inputs.items()},
            generation_config=decoding,
            streamer=streamer,
        )
    result = generated[:, inputs["input_ids"].shape[1] :].tolist()
    return [ids[: _end(ids, encoder) + 1] for ids in result]


@contextmanager
def _no_own_settings(model: PreTrainedModel) -> Iterator[None]:
    """In this block a checkpoint's own generation settings (penalties, suppressed tokens, min_p) do not count.

    transformers would use them for arguments that a call leaves out, and they must not change a comparison.
    """
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model  # below adapters
    own, plain.generation_config = plain.generation_config, GenerationConfig()
    try:
        yield
    finally:
        plain.generation_config = own


class _Streamer(TextStreamer):  # type: ignore[misc]
    """Sends whole words of one reply to a listener as they come, without the end of the turn."""

    def __init__(self, encoder: Encoder, listener: live_text.Listener) -> None:
        super().__init__(encoder.tokenizer, skip_prompt=True, skip_special_tokens=False)
        self._encoder, self._listener = encoder, listener
        listener.begin()

    def put(self, value: torch.Tensor) -> None:
        if value.numel() != 1 or value.item() not in self._encoder.end_ids:
            super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self._listener.write(text)


def generate_replies(
    model: PreTrainedModel,
    prompter: Prompter,
    samples: Sequence[Sample],
    batch: Batch,
    *,
    max_new_tokens: int,
    draw: Draw | None = None,
) -> list[Reply]:
    """Replies to a batch, in its order; greedy without `draw`."""
    result = reply_ids(model, prompter, samples, batch, max_new_tokens=max_new_tokens, draw=draw)
    return [parse_reply(ids, prompter, prompt) for (_, prompt), ids in zip(batch, result, strict=True)]


def _end(ids: Sequence[int], encoder: Encoder) -> int:
    """The place of the first token that ends the turn; the length where there is none."""
    return next((index for index, token in enumerate(ids) if token in encoder.end_ids), len(ids))


def parse_reply(ids: Sequence[int], prompter: Prompter, prompt: Sequence[int]) -> Reply:
    """The reply of these token ids (with the end of the turn, if it was generated) to a `prompt` of token ids."""
    encoder = prompter.encoder
    reply_ids = ids[: _end(ids, encoder)]
    # Special tokens stay visible: think tags may be special, and a stray one is a finding.
    text: str = encoder.tokenizer.decode(reply_ids, skip_special_tokens=False)
    # Without the tag, thinking that is cut off would pass for an answer.
    opened = opened_thinking(encoder.tokenizer.decode(list(prompt[-_PROMPT_END:]), skip_special_tokens=False))
    if opened and not text.lstrip().startswith(opened.strip()):
        text = opened + text
    counted = {style: _count(split(text, style).rationale, encoder) for style in STYLES}
    return Reply(
        text=text,
        tokens=len(ids),
        rationale_tokens=counted[prompter.style],
        rationale_tokens_by_style=counted,
        truncated=len(reply_ids) == len(ids),
    )


def _count(text: str, encoder: Encoder) -> int:
    return len(encoder.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else 0
