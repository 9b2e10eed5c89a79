"""Answers of a student to many questions, greedy or sampled, in batches of like length.

Works with any image-text-to-text model. Does not judge answers (student/evaluate.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel, ProcessorMixin, TextStreamer

from distill import live_text
from distill.rationale import split
from distill.types import Sample
from student.data.encode import Encoder, expand
from student.data.images import ImageStore
from student.models.inputs import type_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A student's reply to one question. `tokens` include the end of the turn."""

    text: str
    tokens: int
    rationale_tokens: int
    truncated: bool


def question_batches(
    encoder: Encoder, store: ImageStore, samples: Sequence[Sample], *, batch_size: int, max_pixels: int
) -> Iterator[list[tuple[int, list[int]]]]:
    """Places of the samples with their token ids, grouped by length; the grouping depends on the samples only.

    A sample whose question holds the image placeholder itself cannot be asked and is left out.
    """
    asked = encoder.prompts([(sample.question, len(sample.images)) for sample in samples])
    prompts = []
    for index, (sample, ids) in enumerate(zip(samples, asked, strict=True)):
        full = expand(ids, encoder.image_id, [store.expansion(ref, max_pixels) for ref in sample.images])
        if full is not None:
            prompts.append((index, full))
    prompts.sort(key=lambda prompt: (len(prompt[1]), prompt[0]))
    for start in range(0, len(prompts), batch_size):
        yield prompts[start : start + batch_size]


def prompt_inputs(
    model: PreTrainedModel,
    encoder: Encoder,
    store: ImageStore,
    samples: Sequence[Sample],
    batch: Sequence[tuple[int, list[int]]],
    *,
    max_pixels: int,
) -> dict[str, torch.Tensor]:
    """The inputs of `model` for one of `batches`: prompts padded on the left, and the inputs of their images."""
    pad = encoder.pad_id
    width = max(len(ids) for _, ids in batch)
    inputs = {
        "input_ids": torch.tensor([[pad] * (width - len(ids)) + ids for _, ids in batch]),
        "attention_mask": torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for _, ids in batch]),
    }
    if (name := type_name(model)) is not None:
        inputs[name] = (inputs["input_ids"] == encoder.image_id).to(torch.int64)
    pictures = [store.features(ref, max_pixels) for index, _ in batch for ref in samples[index].images]
    return inputs | store.join(pictures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How replies are drawn instead of greedily; the same seed and batch give the same replies on one machine."""

    temperature: float
    seed: int


@torch.inference_mode()
def reply_ids(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    encoder: Encoder,
    store: ImageStore,
    samples: Sequence[Sample],
    batch: Sequence[tuple[int, list[int]]],
    *,
    max_new_tokens: int,
    max_pixels: int,
    draw: Draw | None = None,
) -> list[list[int]]:
    """Token ids of the replies to one of `batches`, in its order, the end of the turn included; greedy without
    `draw`."""
    inputs = prompt_inputs(model, encoder, store, samples, batch, max_pixels=max_pixels)
    # Stated in full: a checkpoint's own generation settings (penalties, sampling) must not leak into a comparison.
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
    streamer = _Streamer(processor.tokenizer, encoder, listener) if listener and len(batch) == 1 else None
    with torch.random.fork_rng(enabled=draw is not None):
        if draw is not None:
            torch.manual_seed(draw.seed)
        generated = model.generate(
            **{name: value.to(model.device) for name, value in inputs.items()},
            generation_config=decoding,
            streamer=streamer,
        )
    result = generated[:, inputs["input_ids"].shape[1] :].tolist()
    return [ids[: _end(ids, encoder) + 1] for ids in result]


class _Streamer(TextStreamer):  # type: ignore[misc]
    """Tells a listener whole words of one reply as they come, without the end of the turn."""

    def __init__(self, tokenizer: Any, encoder: Encoder, listener: live_text.Listener) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=False)
        self._encoder, self._listener = encoder, listener
        listener.begin()

    def put(self, value: torch.Tensor) -> None:
        if value.numel() != 1 or value.item() not in self._encoder.end_ids:
            super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self._listener.write(text)


def generate_replies(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    encoder: Encoder,
    store: ImageStore,
    samples: Sequence[Sample],
    batch: Sequence[tuple[int, list[int]]],
    *,
    max_new_tokens: int,
    max_pixels: int,
    draw: Draw | None = None,
) -> list[Reply]:
    """Replies to one of `batches`, in its order; greedy without `draw`."""
    result = reply_ids(
        model,
        processor,
        encoder,
        store,
        samples,
        batch,
        max_new_tokens=max_new_tokens,
        max_pixels=max_pixels,
        draw=draw,
    )
    return [parse_reply(ids, encoder, processor.tokenizer) for ids in result]


def _end(ids: Sequence[int], encoder: Encoder) -> int:
    """The place of the first token that ends the turn; the length where there is none."""
    return next((index for index, token in enumerate(ids) if token in encoder.end_ids), len(ids))


def parse_reply(ids: Sequence[int], encoder: Encoder, tokenizer: object) -> Reply:
    """The reply that token ids are, the end of the turn included where it came."""
    reply_ids = ids[: _end(ids, encoder)]
    # Special tokens stay visible: think tags may be special, and a stray one is a finding.
    text: str = tokenizer.decode(reply_ids, skip_special_tokens=False)  # type: ignore[attr-defined]
    reasoning = split(text).rationale
    rationale = len(tokenizer(reasoning, add_special_tokens=False)["input_ids"]) if reasoning else 0  # type: ignore[operator]
    return Reply(text=text, tokens=len(ids), rationale_tokens=rationale, truncated=len(reply_ids) == len(ids))
