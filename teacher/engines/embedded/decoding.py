"""The decoding loop of the embedded engine: one batch, from its prompts to the end of its last row.

Runs inside transformers' `generate`, which prepares inputs for every kind of model. Rows draw from their own seeds,
leave the batch when they have ended, and write into a cache with room to grow. Does not know prompts or teachers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig, GenerationMixin
from transformers.cache_utils import DynamicLayer

from distill.recipe.sections.sampling import Sampling
from teacher.messages.request import Request

_KEPT_SHARE = 0.8
"""Ended rows leave the batch when fewer than this share of its rows goes on."""
_LONGEST_SILENCE_STEPS = 32
"""Steps after which ended rows are reported in any case."""
_ROOM_TOKENS = 64
_CARRIED = ("attention_mask", "position_ids", "token_type_ids", "mm_token_type_ids")
_CACHE = (
    "cache" if "cache" in signature(GenerationMixin.prepare_inputs_for_generation).parameters else "past_key_values"
)
"""The name that models give to their cache; transformers 5.24 changed it."""


@dataclass(slots=True)
class BatchRow:
    """One sequence being written."""

    request: Request
    prompt_tokens: int
    image_tokens: int
    prefix: str
    """The part of the answer that the chat template already wrote (an opening thinking tag)."""
    max_tokens: int
    """Tokens that it may have, by the recipe and the room behind its own prompt."""
    tokens: list[int] = field(default_factory=list)
    closed: bool = False
    """Whether the model ended the turn itself; its end token is counted, but not kept."""
    likely: list[tuple[list[int], list[float]]] = field(default_factory=list)
    """For every token, the end token included: ids of it and of the likeliest ones; log-probabilities."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """The rows to write, and how. `run` writes them."""

    rows: list[BatchRow]
    origin: torch.Tensor
    """The prompt that each row goes on from."""
    mask: torch.Tensor
    """Which tokens of the prompts are no padding."""
    sampling: Sampling
    ends: frozenset[int]
    logprobs: int = 0
    """How many of the likeliest tokens are noted at every step."""
    stopped: Callable[[BatchRow], bool]
    ended: Callable[[BatchRow, str], None]
    pulse: Callable[[], None]

    @property
    def _max_tokens(self) -> int:
        return max(row.max_tokens for row in self.rows)

    def run(self, model: Any, inputs: Mapping[str, torch.Tensor], *, pad: int) -> None:
        """Write every row; call `ended` for each, at most some steps after its last token."""
        config = GenerationConfig(max_new_tokens=self._max_tokens, do_sample=False, pad_token_id=pad)
        # transformers takes what a call leaves open from a checkpoint's own settings, such as a number of beams.
        own, model.generation_config = model.generation_config, GenerationConfig()
        try:
            with torch.inference_mode():
                empty = {_CACHE: _cache(model.config)}
                model.generate(**inputs, **empty, generation_config=config, custom_generate=self._write)
        finally:
            model.generation_config = own

    def _write(
        self,
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> torch.Tensor:
        """Called by transformers with everything prepared. Prompts are computed once, then copied to their rows."""
        outputs = model._prefill(input_ids, generation_config, model_kwargs)
        state = model._update_model_kwargs_for_generation(outputs, model_kwargs)
        state = {key: value for key, value in state.items() if key in _CARRIED or not torch.is_tensor(value)}
        sampler = Sampler(self.sampling, self.rows, self._max_tokens, outputs.logits.shape[-1])
        sampler.see(input_ids[self.origin], self.mask[self.origin])
        logits = outputs.logits[:, -1].float()[self.origin]
        _select(state, self.origin)
        rows, finish, silent = self.rows, [""] * len(self.rows), 0
        while True:
            tokens = sampler.pick(logits)
            if self.logprobs:
                self._note_logprobs(rows, logits, tokens, finish)
            self._append(rows, tokens.tolist(), finish)
            going = [position for position, reason in enumerate(finish) if not reason]
            silent += 1
            if len(going) < _KEPT_SHARE * len(rows) or silent >= _LONGEST_SILENCE_STEPS:
                silent = 0
                for row, reason in zip(rows, finish, strict=True):
                    if reason:
                        self.ended(row, reason)
                self.pulse()
                if not going:
                    return input_ids
                if len(going) < len(rows):
                    index = torch.tensor(going, device=tokens.device)
                    rows, finish, tokens = [rows[position] for position in going], [""] * len(going), tokens[index]
                    sampler.select(index)
                    _select(state, index)
            sampler.see(tokens[:, None])
            inputs = model.prepare_inputs_for_generation(tokens[:, None], next_sequence_length=1, **state)
            outputs = model(**inputs, return_dict=True)
            state = model._update_model_kwargs_for_generation(outputs, state)
            logits = outputs.logits[:, -1].float()

    def _note_logprobs(
        self, rows: list[BatchRow], logits: torch.Tensor, tokens: torch.Tensor, finish: list[str]
    ) -> None:
        """Note the log-probabilities of a step: of the model as it is, before temperature, penalties and cuts."""
        values = logits.log_softmax(dim=-1)
        best, ids = values.topk(self.logprobs, dim=-1)
        ids = torch.cat([tokens[:, None], ids], dim=1)
        values_of_ids = torch.cat([values.gather(1, tokens[:, None]), best], dim=1)
        for row, reason, names, numbers in zip(rows, finish, ids.tolist(), values_of_ids.tolist(), strict=True):
            if not reason:
                row.likely.append((names, numbers))

    def _append(self, rows: list[BatchRow], tokens: list[int], finish: list[str]) -> None:
        """Give every unfinished row its next token, and note why rows end."""
        for position, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            if finish[position]:
                continue
            if token in self.ends:
                row.closed, finish[position] = True, "stop"
                continue
            row.tokens.append(token)
            if self.sampling.stop and self.stopped(row):
                finish[position] = "stop"
            elif len(row.tokens) >= row.max_tokens:
                finish[position] = "length"


class Sampler:
    """Chooses tokens as vLLM does: penalty, temperature, min_p, top_k, top_p, then one draw a row.

    Sampling inverts the cumulative distribution at a number from the row's own generator. So a row's tokens depend
    only on its logits and its seed, not on the other rows of the batch.
    """

    def __init__(self, sampling: Sampling, rows: Sequence[BatchRow], max_new_tokens: int, vocabulary: int) -> None:
        self._sampling = sampling
        self._step = 0
        self._seen: torch.Tensor | None = None
        self._vocabulary = vocabulary
        self._draws = torch.empty(0)
        if sampling.temperature > 0:
            draws = [
                torch.rand(
                    max_new_tokens, generator=torch.Generator().manual_seed(row.request.seed), dtype=torch.float64
                )
                for row in rows
            ]
            self._draws = torch.stack(draws)

    def see(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Remember tokens of every row for the repetition penalty; prompts count, padding does not."""
        if self._sampling.repetition_penalty == 1:
            return
        if self._seen is None:
            self._seen = torch.zeros(len(tokens), self._vocabulary, dtype=torch.bool, device=tokens.device)
        counted = torch.ones_like(tokens) if mask is None else mask
        self._seen |= torch.zeros_like(self._seen, dtype=counted.dtype).scatter_add_(1, tokens, counted) > 0

    def select(self, index: torch.Tensor) -> None:
        if len(self._draws):
            self._draws = self._draws[index.to(self._draws.device)]
        if self._seen is not None:
            self._seen = self._seen[index]

    def pick(self, logits: torch.Tensor) -> torch.Tensor:
        """The next token of every row; `logits` is rows x vocabulary, float32."""
        sampling = self._sampling
        if self._seen is not None:
            penalty = sampling.repetition_penalty
            logits = torch.where(self._seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
        if sampling.temperature == 0:
            return logits.argmax(dim=-1)
        shares = (logits / sampling.temperature).softmax(dim=-1)
        if sampling.min_p:
            shares = shares.masked_fill(shares < sampling.min_p * shares.amax(dim=-1, keepdim=True), 0)
        if sampling.top_k or sampling.top_p < 1:
            shares = _nucleus(shares, sampling.top_k, sampling.top_p)
        reached = shares.double().cumsum(dim=-1)
        draw = self._draws[:, self._step, None].to(logits.device) * reached[:, -1:]
        self._step += 1
        # The first token whose cumulative share exceeds the draw; one without a share is never first.
        tokens = (reached <= draw).sum(dim=-1)
        return torch.minimum(tokens, (reached < reached[:, -1:]).sum(dim=-1))


def _nucleus(shares: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Probabilities after top-k and then top-p: all others are 0."""
    ordered, order = shares.sort(dim=-1, descending=True, stable=True)
    if top_k:
        ordered[:, top_k:] = 0
    if top_p < 1:
        before = ordered.cumsum(dim=-1) - ordered
        ordered = ordered.masked_fill(before >= top_p * ordered.sum(dim=-1, keepdim=True), 0)
    return torch.zeros_like(shares).scatter_(-1, order, ordered)


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A cache layer with room to grow. Concatenating copies the whole cache at every token: two thirds of a step."""

    _room_keys: torch.Tensor | None = None
    _room_values: torch.Tensor | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        self._room_keys = _with_room(self._room_keys, key_states, start, end)
        self._room_values = _with_room(self._room_values, value_states, start, end)
        return self._view(end)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self._room_keys is not None and self._room_values is not None:
            end = self.get_seq_length()
            self._room_keys, self._room_values = self._room_keys[indices], self._room_values[indices]
            self._view(end)

    def _view(self, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        assert self._room_keys is not None and self._room_values is not None
        self.keys, self.values = self._room_keys[..., :end, :], self._room_values[..., :end, :]
        return self.keys, self.values


def _with_room(room: torch.Tensor | None, states: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """`states` written at `start`, into `room` or, when they don't fit, into a larger copy of it."""
    if room is None or room.shape[-2] < end:
        larger = states.new_empty((*states.shape[:-2], end + max(_ROOM_TOKENS, end // 4), states.shape[-1]))
        if room is not None:
            larger[..., :start, :] = room[..., :start, :]
        room = larger
    room[..., start:end, :] = states
    return room


def _cache(config: Any) -> DynamicCache:
    """An empty cache of the model's kind, its plain layers replaced by roomy ones."""
    cache = DynamicCache(config=config)
    cache.layers = [_RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def _select(state: dict[str, Any], index: torch.Tensor) -> None:
    """Keep (or repeat) the given rows in everything that decoding carries along."""
    state[_CACHE].batch_select_indices(index)
    for key in _CARRIED:
        if state.get(key) is not None:
            # Models with several position axes put them before the batch.
            rows_at = state[key].dim() - 2
            state[key] = state[key].index_select(rows_at, index)
