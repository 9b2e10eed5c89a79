"""How well a trace fits the student that is to learn it: likelihood, rank-surprisal ratio, IFD, use of the image.

Every trace takes two forward passes. The first has the trace as in training, with its images. The second has a batch
of two rows: the same text without images, and the response without its question. Only positions that predict a token
of the response are projected onto the vocabulary, a few at a time, so no tensor of batch x length x vocabulary ever
exists. Decides nothing and writes nothing (filters/run_signals/student_fit.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, ProcessorMixin
from transformers.utils import logging as transformers_logging

from distill.errors import DataError
from distill.machine.gpu_memory import FittingBatches
from student.data.collate import Collator, InputForm, Layout, row_bounds, spatial_positions
from student.data.encode import Encoder, Examples, RowLimits, encode
from student.data.encoded_rows import Example
from student.data.images import ImageStore
from student.data.rows import TrainingRow
from student.loss.training_loss import capped_head, require_plain_head
from student.models import attention, siq_vl
from student.models.inputs import type_name

RANK_CLIP = 100
"""Largest rank that counts: the clip of the rank-surprisal ratio (Yang et al. 2026, arXiv 2601.14249)."""
_LINE_TOKENS = 4096
_LOGITS = 1 << 24
"""Entries of the largest tensor over the vocabulary: 64 MiB of float32."""
_LEAST_SURPRISAL = 1e-6
"""Lower bound in nats per token; keeps the ratio finite for a memorised text."""
_NO_RESPONSE = "no_response"

Scores = tuple[np.ndarray, np.ndarray]
"""Surprisal in nats and rank of every token of one response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """A row as it would be trained on. `answer_at`: the character of its response at which the answer begins."""

    row: TrainingRow
    answer_at: int


@dataclass(slots=True)
class _RowTokens:
    """One row while it is scored: the places of its tokens in the two passes, then their scores."""

    index: int
    answer: slice
    blind: int | None = None
    alone: int = 0


def load(
    checkpoint: str,
    *,
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    batch_tokens: int,
    max_length: int,
    max_pixels: int,
) -> "LikelihoodScorer":
    """The student of a checkpoint on this machine's device; `dtype` None: float32 on a CPU, bfloat16 on a GPU."""
    gpu = torch.cuda.is_available()
    transformers_logging.disable_progress_bar()  # its bar would be taken for the run's
    student, processor = siq_vl.load(
        checkpoint,
        dtype=dtype or ("bfloat16" if gpu else "float32"),
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    student.to("cuda" if gpu else "cpu")  # type: ignore[arg-type]
    return LikelihoodScorer(
        student, processor, batch_tokens=batch_tokens, max_length=max_length, max_pixels=max_pixels
    )


class LikelihoodScorer:
    """Measures rows with one student, which it leaves in eval mode. Raises ModelError for a student it cannot use."""

    def __init__(
        self,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        *,
        batch_tokens: int,
        max_length: int,
        max_pixels: int,
    ) -> None:
        self._model = model.eval()
        self._processor = processor
        self._encoder = Encoder.of(model, processor)
        self._batch_tokens, self._limits = batch_tokens, RowLimits(max_length, max_pixels)
        self._types = type_name(model)
        self._opening = self._encoder.opening()
        padded = attention.why_not_packed(model.config, self._types, attention.of(model))
        self._line_tokens = _LINE_TOKENS if model.device.type == "cuda" and not padded else None
        ids = torch.tensor([self._encoder.prompts([("1 + 1?", 0)])[0]], device=model.device)
        require_plain_head(model, ids, self._types)

    def __call__(self, scored_rows: Sequence[ScoredRow]) -> list[dict[str, Any]]:
        """The values of each row, or the `reason` why it has none, in the rows' order; row ids must be distinct.

        nll, rank_surprisal, answer_nll, ifd, blind_gap (None without an image) and tokens. A likelihood is the mean
        over tokens, in nats; the end of the turn is a token of the response and not of the answer.
        """
        result: dict[str, dict[str, Any]] = {item.row.id: {"reason": _NO_RESPONSE} for item in scored_rows}
        # A store for these rows alone: the next ones have other images, and one that is full computes twice.
        store = ImageStore(self._processor, self._model.dtype)
        rows = [item.row for item in scored_rows if item.row.response]
        with_images = self._encoded(rows, store, result)
        others, known = self._second(with_images, {item.row.id: item for item in scored_rows}, store, result)
        # Keys of both passes at once, so that the two rows of the second cost no more than the one of the first.
        lengths, others_lengths = with_images.lengths, others.lengths
        costs = {
            row_tokens.index: max(
                lengths[row_tokens.index],
                others_lengths[row_tokens.alone]
                + (others_lengths[row_tokens.blind] if row_tokens.blind is not None else 0),
            )
            for row_tokens in known
        }
        known.sort(key=lambda row_tokens: (costs[row_tokens.index], with_images.rows[row_tokens.index].row.id))
        collators = [self._collator(examples, store) for examples in (with_images, others)]
        for batch in _budgeted(known, lambda row_tokens: costs[row_tokens.index], self._batch_tokens):
            first = self._scores(collators[0], with_images, [row_tokens.index for row_tokens in batch])
            indexes = [
                index for row_tokens in batch for index in (row_tokens.blind, row_tokens.alone) if index is not None
            ]
            second = self._scores(collators[1], others, indexes)
            for row_tokens in batch:
                blind = second[row_tokens.blind] if row_tokens.blind is not None else None
                result[with_images.rows[row_tokens.index].row.id] = _values(
                    first[row_tokens.index], blind, second[row_tokens.alone], row_tokens.answer
                )
        return [result[item.row.id] for item in scored_rows]

    def _encoded(self, rows: Sequence[TrainingRow], store: ImageStore, result: dict[str, dict[str, Any]]) -> Examples:
        """The rows that can be measured; the others get their reason, if it is another than `_NO_RESPONSE`."""
        measurable: list[Example] = []
        with suppress(DataError):  # one row that the chat template makes nothing of must not cost its neighbours
            measurable += encode(rows, self._encoder, store, self._limits).rows
        kept = {example.row.id for example in measurable}
        for row in (row for row in rows if row.id not in kept):
            with suppress(DataError):
                single = encode([row], self._encoder, store, self._limits)
                measurable += single.rows
                result[row.id] = {"reason": next(iter(single.dropped), _NO_RESPONSE)}
        return Examples(measurable)

    def _second(
        self,
        with_images: Examples,
        scored_rows: dict[str, ScoredRow],
        store: ImageStore,
        result: dict[str, dict[str, Any]],
    ) -> tuple[Examples, list[_RowTokens]]:
        """The rows of the second pass, and where each row of the first has its own there."""
        items = [scored_rows[example.row.id] for example in with_images.rows]
        others = self._encoded([replace(item.row, images=()) for item in items if item.row.images], store, result)
        second = list(others.rows)
        blind = {example.row.id: index for index, example in enumerate(second)}
        answers = self._answers(items, with_images)
        known = []
        start_id = self._processor.tokenizer.bos_token_id
        for index, (item, answer) in enumerate(zip(items, answers, strict=True)):
            if item.row.images and item.row.id not in blind:
                continue
            example = with_images.rows[index]
            ids, begin = example.ids, example.begin
            opening = min(self._opening, begin)
            head = ids[:1] if begin > opening and ids[0] == start_id else ids[:0]
            second.append(
                replace(
                    example,
                    row=replace(item.row, images=()),
                    ids=np.concatenate([head, ids[begin - opening :]]),
                    begin=len(head) + opening,
                )
            )
            known.append(_RowTokens(index=index, answer=answer, blind=blind.get(item.row.id), alone=len(second) - 1))
        return Examples(second), known

    def _answers(self, items: Sequence[ScoredRow], with_images: Examples) -> list[slice]:
        """Which tokens of each response are its answer."""
        if not items:
            return []
        tokenizer = self._processor.tokenizer
        encoded = tokenizer(
            [item.row.response for item in items], add_special_tokens=False, return_offsets_mapping=True
        )
        spans = []
        for index, item in enumerate(items):
            ids, offsets = encoded["input_ids"][index], encoded["offset_mapping"][index]
            response = with_images.rows[index].ids[with_images.rows[index].begin :]
            if list(response[: len(ids)]) == ids:
                first = next((at for at, (_, end) in enumerate(offsets) if end > item.answer_at), len(ids))
                spans.append(slice(first, len(ids)))
            else:
                # The chat template has trimmed the text: count from the end of the turn instead.
                answer = tokenizer(item.row.response[item.answer_at :].strip(), add_special_tokens=False)["input_ids"]
                spans.append(slice(max(0, len(response) - 1 - len(answer)), len(response) - 1))
        return spans

    def _collator(self, examples: Examples, store: ImageStore) -> Collator:
        return Collator(
            examples,
            store,
            InputForm.of(self._model, self._encoder),
            max_pixels=self._limits.max_pixels,
            line_tokens=self._line_tokens,
            positions=spatial_positions(self._model),
        )

    @torch.inference_mode()
    def _scores(self, collator: Collator, examples: Examples, indexes: Sequence[int]) -> dict[int, Scores]:
        """One forward pass over some rows."""

        def scores(batch: Sequence[int]) -> list[tuple[int, Scores]]:
            layout = collator(batch)
            surprisals, ranks = response_scores(self._model, layout)
            bounds = zip(layout.rows, row_bounds(layout, examples), strict=True)
            return [(index, (surprisals[begin:end], ranks[begin:end])) for index, (begin, end) in bounds]

        return dict(FittingBatches().run(indexes, scores))


def response_scores(model: PreTrainedModel, layout: Layout) -> Scores:
    """Scores of every labelled token of a pass, row by row in the order of `layout.rows`."""
    device = model.device
    # The longest row of a packed line is a plain number.
    inputs = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in layout.inputs.items()
    }
    states = model.base_model(**inputs, use_cache=False).last_hidden_state.flatten(0, 1)
    at, labels = (torch.from_numpy(values).to(device) for values in (layout.at, layout.labels))
    return token_scores(capped_head(model), states[at], labels)


def token_scores(
    head: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor, targets: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Surprisal (nats) and rank (1: the likeliest) of each target under the hidden state that predicts it.

    Tokens as likely as the target do not count against its rank.
    """
    surprisals, ranks = [], []
    step = max(1, _LOGITS // max(1, _width(head, hidden)))
    for start in range(0, len(targets), step):
        logits = head(hidden[start : start + step]).float()
        own = logits.gather(1, targets[start : start + step, None])
        surprisals.append(torch.logsumexp(logits, 1) - own[:, 0])
        ranks.append((logits > own).sum(1) + 1)
    if not surprisals:
        return np.zeros(0), np.zeros(0, np.int64)
    return torch.cat(surprisals).double().cpu().numpy(), torch.cat(ranks).cpu().numpy()


def _width(head: Any, hidden: torch.Tensor) -> int:
    return int(getattr(head, "out_features", 0)) or int(head(hidden[:1]).shape[-1])


def _values(with_images: Scores, blind: Scores | None, alone: Scores, answer: slice) -> dict[str, Any]:
    surprisal, rank = with_images
    nll, without = float(surprisal.mean()), float(alone[0].mean())
    of_answer = surprisal[answer]
    # Ratio of sums: every token counts by its surprisal, which is how the paper keeps it stable.
    total = max(float(surprisal.sum()), _LEAST_SURPRISAL * len(surprisal))
    return {
        "nll": nll,
        "rank_surprisal": float(np.minimum(rank, RANK_CLIP).sum()) / total,
        "ifd": nll / max(without, _LEAST_SURPRISAL),
        "blind_gap": float(blind[0].mean()) - nll if blind is not None else None,
        "answer_nll": float(of_answer.mean()) if len(of_answer) else None,
        "tokens": len(surprisal),
    }


def _budgeted(
    items: Sequence[_RowTokens], cost: Callable[[_RowTokens], int], budget: int
) -> Iterator[list[_RowTokens]]:
    """Items in ascending order of cost, cut into batches whose padded size stays within the budget."""
    batch: list[_RowTokens] = []
    for item in items:
        if batch and (len(batch) + 1) * cost(item) > budget:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
