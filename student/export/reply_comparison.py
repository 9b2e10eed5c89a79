"""Greedy replies of an exported student in transformers, and how much the replies of a server differ from them.

Does not decide which difference is too large (student/export/verify.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rapidfuzz.distance import Prefix

from distill.recipe.recipe import Recipe
from distill.types import Sample
from student.data.encode import Encoder
from student.data.images import ImageStore
from student.export import convert
from student.inference import generation
from student.models import siq_vl

Tokens = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt, image tokens included, and of the reply to it, the end of the turn included."""
_BATCH = 16
_RECORDED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyDifference:
    """Where the replies to one question part. `margin` is how much likelier, in logits, transformers finds its own
    token there; near zero it is a tie that rounding decides."""

    sample_id: str
    question: str
    position: int
    transformers: str
    server: str
    margin: float


class ComparedStudent:
    """A checkpoint in transformers, in its own dtype if none is given, with the questions it is asked."""

    def __init__(
        self, recipe: Recipe, out: Path, samples: Sequence[Sample], source: str, *, dtype: str | None = None
    ) -> None:
        assert recipe.student is not None
        dtype = dtype or convert.dtype_of(out)
        self._model, processor = siq_vl.load(
            str(out), dtype=dtype, trust_remote_code=recipe.student.trust_remote_code
        )
        self._model.eval()
        self.samples = samples
        self._max_new_tokens = recipe.eval.max_new_tokens
        self.max_pixels = recipe.data[source].max_pixels
        encoder, store = Encoder.of(self._model, processor), ImageStore(processor, getattr(torch, dtype))
        self._prompter = generation.Prompter(encoder, store, self.max_pixels)
        self._batches = list(self._prompter.batches(samples, _BATCH))
        self.prompts = {prompt_index: ids for batch in self._batches for prompt_index, ids in batch}
        self.longest = max(map(len, self.prompts.values()))

    def replies(self, on_done: Callable[[int], None]) -> dict[int, list[int]]:
        """Greedy replies by the question's place."""
        self._model.to("cuda" if torch.cuda.is_available() else "cpu")
        result: dict[int, list[int]] = {}
        for batch in self._batches:
            ids = generation.reply_ids(
                self._model, self._prompter, self.samples, batch, max_new_tokens=self._max_new_tokens
            )
            result |= {prompt_index: reply for (prompt_index, _), reply in zip(batch, ids, strict=True)}
            on_done(len(result))
        self._model.to("cpu")  # the server needs the GPU
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return result

    def compare(self, expected: Mapping[int, list[int]], served: Sequence[Tokens]) -> dict[str, Any]:
        """Shares over questions and tokens, and the first differences."""
        same_prompts = identical = prefix = tokens = agreeing = token_count = 0
        differences: list[ReplyDifference] = []
        for index, mine in sorted(expected.items()):
            prompt_ids, served_ids = map(list, served[index])
            logits = self._following(index, served_ids)
            same_prompts += prompt_ids == self.prompts[index]
            agreeing += int((logits.argmax(-1) == torch.tensor(served_ids)).sum())
            token_count += len(served_ids)
            shared = Prefix.similarity(mine, served_ids)
            prefix += shared
            tokens += max(len(mine), len(served_ids))
            identical += mine == served_ids
            if mine != served_ids:
                differences.append(self._difference(index, shared, mine, served_ids, logits))
        count = len(expected)
        return {
            "compared": count,
            "same_prompts": same_prompts,
            "identical": identical,
            "identical_share": identical / count,
            # Equal replies to all questions prove little.
            "different_replies": len({tuple(reply) for reply in expected.values()}),
            "shared_prefix_share": prefix / tokens,
            "top1_agreement": agreeing / token_count if token_count else 0.0,
            "tokens": token_count,
            "differences": [asdict(difference) for difference in differences[:_RECORDED]],
        }

    @torch.inference_mode()
    def _following(self, index: int, ids: Sequence[int]) -> torch.Tensor:
        """Logits of transformers at every token of a reply, given the reply so far; (tokens, vocabulary)."""
        inputs = self._prompter.inputs(self._model, self.samples, [(index, [*self.prompts[index], *ids])])
        result = self._model(**inputs, logits_to_keep=len(ids) + 1, use_cache=False).logits[0]
        return torch.as_tensor(result[:-1].float())

    def _difference(
        self, index: int, shared: int, mine: Sequence[int], served_ids: Sequence[int], logits: torch.Tensor
    ) -> ReplyDifference:
        both = [reply[shared : shared + 1] for reply in (mine, served_ids)]
        margin = float("nan")
        if all(both):
            margin = float(logits[shared, both[0][0]] - logits[shared, both[1][0]])
        shown = [self._prompter.encoder.tokenizer.decode(ids) if ids else "(end)" for ids in both]
        return ReplyDifference(
            sample_id=self.samples[index].id,
            question=self.samples[index].question,
            position=shared,
            transformers=shown[0],
            server=shown[1],
            margin=margin,
        )
