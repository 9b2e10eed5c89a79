"""Encodes each row once as token ids: chat template, tokens, image placeholders as the processor would write them.

The chat template renders a row's text, which is tokenised once. Then the ids that the processor writes for an image
of this size replace each image placeholder. The loss covers the assistant's turn including its end-of-turn token.
Rows that are too long are left out and counted, never cut.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
from jinja2 import TemplateError
from transformers import ProcessorMixin
from transformers.utils.chat_template_utils import render_jinja_template

from distill.chat_templates import with_fixed_date
from distill.errors import DataError, ImageError, ModelError
from distill.types import ImageRef, Sample
from distill.word_tables import counted
from student.data import images as student_images
from student.data.encoded_rows import Example, MappedRows, RowColumns, columns_of
from student.data.images import ImageStore, image_token
from student.data.responses import kinds_of, learned_text
from student.data.rows import TrainingRow, smaller
from student.models import inputs

TOO_LONG = "too_long"
SHRINK = "shrink_image"
IMAGE_TOKEN_IN_TEXT = "image_token_in_text"
END_TOKEN_IN_TEXT = "end_token_in_text"
"""A response that holds the text that ends a turn (`</s>` in HTML): the rest of it could not be learned."""
_BATCH_ROWS = 512
_DIVISORS = (2, 4, 8, 16)
"""Divisors of the sides of an image; a page smaller than a sixteenth cannot be read."""
_VERIFIED = 4
"""Rows or prompts of each number of images of which an encoder compares its ids with those of the processor."""
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


class Encoder:
    """Renders and tokenises conversations for one student."""

    def __init__(
        self,
        processor: ProcessorMixin,
        end_ids: Iterable[int],
        *,
        image_id: int | None = None,
        type_name: str | None = None,
    ) -> None:
        """`image_id`: the token that the model replaces by images; None: the one by which conversations ask.

        `type_name`: the input of token types, for models that take one.
        """
        self._processor = processor
        self.tokenizer = processor.tokenizer
        self.placeholder_id = int(self.tokenizer.convert_tokens_to_ids(image_token(processor)))
        self.image_id = self.placeholder_id if image_id is None else image_id
        self._type_name = type_name
        self._around = student_images.text_around(processor)
        if self.tokenizer.eos_token_id is None:
            raise ModelError("the student's tokenizer has no end-of-turn token (eos_token)")
        self.pad_id = inputs.pad_id(processor)
        self.end_ids = frozenset((*end_ids, int(self.tokenizer.eos_token_id)))
        self.end_texts = {token: str(self.tokenizer.decode([token])) for token in self.end_ids}
        template = getattr(processor, "chat_template", None) or getattr(self.tokenizer, "chat_template", None)
        if not isinstance(template, str):
            raise ModelError("the student's processor has no chat template; use an instruction-tuned checkpoint")
        self._template = with_fixed_date(template)
        self._marks_assistant = _GENERATION.search(template) is not None
        self._verified: Counter[int] = Counter()

    @classmethod
    def of(cls, model: Any, processor: ProcessorMixin) -> "Encoder":
        """The encoder of a model with its processor."""
        ends, image_id = inputs.end_ids(model), inputs.image_id(model)
        return cls(processor, ends, image_id=image_id, type_name=inputs.type_name(model))

    def prompts(self, asked: Sequence[tuple[str, int]]) -> list[list[int]]:
        """Token ids of (question, number of images) up to where the assistant begins; placeholders not expanded."""
        texts, _ = self._render([_turns(question, images) for question, images in asked], ask=True)
        ids: list[list[int]] = self._tokenize([self._spaced(text, len(text))[0] for text in texts])["input_ids"]
        return ids

    def expand(self, ids: Sequence[int], expansions: Sequence[Sequence[int]]) -> list[int] | None:
        """Token ids with the n-th image in the n-th place; None where the text itself holds the token of an image."""
        if self.image_id != self.placeholder_id and self.image_id in ids:
            return None
        return expand(ids, self.placeholder_id, expansions)

    def _spaced(self, text: str, end: int) -> tuple[str, int]:
        """The text with what the processor writes around images before the character `end`, and where that is then.

        Such text (blank lines around an image of Gemma 3) forms tokens with the text beside it.
        """
        before, after = self._around
        placeholder = image_token(self._processor)
        head = text[:end].replace(placeholder, f"{before}{placeholder}{after}") if before or after else text[:end]
        return head + text[end:], len(head)

    def opening(self) -> int:
        """How many tokens at the end of a prompt open the assistant's turn; at least one."""
        turns = [_turns("?", 0)]
        (asked,), _ = self._render(turns, ask=True)
        (without_prompt,), _ = self._render(turns, ask=False)
        added = asked[len(without_prompt) :] if asked.startswith(without_prompt) else ""
        return max(1, len(self.tokenizer(added, add_special_tokens=False)["input_ids"]))

    def _learned(self, rows: Sequence[TrainingRow]) -> tuple[list[str], list[tuple[int, int]]]:
        """The text of each row, and the characters of its response."""
        turns = [_turns(row.question, len(row.images), row.response) for row in rows]
        heads, _ = self._render([turn[:-1] for turn in turns], ask=True)
        texts, blocks = self._render(turns, ask=False, mark=self._marks_assistant)
        marked = [block[-1] if block else None for block in blocks] if self._marks_assistant else [None] * len(rows)
        learned = [learned_text(*each) for each in zip(heads, texts, rows, marked, strict=True)]
        return [text for text, _ in learned], [span for _, span in learned]

    def conversations(self, rows: Sequence[TrainingRow]) -> list[tuple[list[int], int, np.ndarray]]:
        """Token ids of each row, placeholders not expanded, where its response begins, and its tokens' kinds."""
        texts, spans = [], []
        for text, (start, end) in zip(*self._learned(rows), strict=True):
            spaced, begin = self._spaced(text, start)
            texts.append(spaced)
            spans.append((begin, begin + end - start))
        encoded = self._tokenize(texts, return_offsets_mapping=True)
        return [
            self._cut(ids, offsets, span, row, text)
            for ids, offsets, span, row, text in zip(
                encoded["input_ids"], encoded["offset_mapping"], spans, rows, texts, strict=True
            )
        ]

    def _cut(
        self, ids: list[int], offsets: list[tuple[int, int]], span: tuple[int, int], row: TrainingRow, text: str
    ) -> tuple[list[int], int, np.ndarray]:
        """The row up to its end-of-turn token, which is added where the template writes none."""
        inside = [index for index, (start, end) in enumerate(offsets) if span[0] <= start < end <= span[1]]
        if not inside:
            raise DataError(
                f"row {row.id}: no token of its response counts in the loss, because the chat template marks no token"
            )
        first, end = inside[0], inside[-1] + 1
        closing = next((index for index in inside if ids[index] in self.end_ids), None)
        if closing is not None:
            end = closing + 1
        elif end < len(ids) and ids[end] in self.end_ids:
            end += 1
        else:
            ids, offsets = [*ids[:end], int(self.tokenizer.eos_token_id)], [*offsets[:end], (span[1], span[1])]
            end += 1
        return ids[:end], first, kinds_of(offsets[first:end], text, span[0], row)

    def verify_row(self, row: TrainingRow, ids: Sequence[int], max_pixels: int) -> None:
        """Check the first rows with images: their ids are what the processor itself makes of text and images."""
        if row.images and self._verified[len(row.images)] < _VERIFIED:
            self._verify(f"row {row.id}", self._learned([row])[0], row.images, ids, max_pixels)

    def verify_prompt(self, sample: Sample, ids: Sequence[int], max_pixels: int) -> None:
        """Check the first prompts with images, as `verify_row` does with rows."""
        if sample.images and self._verified[len(sample.images)] < _VERIFIED:
            texts, _ = self._render([_turns(sample.question, len(sample.images))], ask=True)
            self._verify(f"question {sample.id}", texts, sample.images, ids, max_pixels)

    def _verify(
        self, name: str, texts: list[str], images: Sequence[ImageRef], ids: Sequence[int], max_pixels: int
    ) -> None:
        self._verified[len(images)] += 1
        loaded = [student_images.load(ref, max_pixels=max_pixels) for ref in images]
        encoded = self._tokenize(texts, self._processor, images=[loaded], return_tensors="pt")
        expected = encoded["input_ids"][0].tolist()
        known = len(ids) - (ids[-1] not in expected[len(ids) - 1 :])
        if list(ids[:known]) != expected[:known]:
            raise ModelError(
                f"{name}: {type(self._processor).__name__} writes other tokens for an image if the text around it or "
                "the number of images changes, which is not supported"
            )
        types = encoded.get(self._type_name) if self._type_name else None
        if types is not None and [bool(kind) for kind in types[0, :known]] != [
            t == self.image_id for t in ids[:known]
        ]:
            raise ModelError(
                f"{name}: {type(self._processor).__name__} marks other tokens than those of images in "
                f"{self._type_name}, which is not supported"
            )

    def _render(
        self, turns: list[list[dict[str, Any]]], *, ask: bool, mark: bool = False
    ) -> tuple[list[str], list[list[tuple[int, int]]]]:
        try:
            texts, spans = render_jinja_template(
                turns,
                chat_template=self._template,
                add_generation_prompt=ask,
                return_assistant_tokens_mask=mark,
                **self.tokenizer.special_tokens_map,
            )
        except (TemplateError, TypeError) as error:
            raise ModelError(
                f"the student's chat template refuses a question: {error}; use another checkpoint"
            ) from error
        return texts, spans

    def _tokenize(self, texts: list[str], by: Any = None, **options: Any) -> Any:
        """What the tokenizer, or the processor, makes of rendered texts, which may begin with its first token."""
        begin = self.tokenizer.bos_token
        doubled = begin is not None and bool(texts) and texts[0].startswith(begin)
        return (by or self.tokenizer)(text=texts, add_special_tokens=not doubled, **options)


def _turns(question: str, images: int, response: str | None = None) -> list[dict[str, Any]]:
    asked = [*({"type": "image"} for _ in range(images)), {"type": "text", "text": question}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    if response is not None:
        turns.append({"role": "assistant", "content": [{"type": "text", "text": response}]})
    return turns


def expand(ids: Sequence[int], placeholder_id: int, expansions: Sequence[Sequence[int]]) -> list[int] | None:
    """Token ids with the n-th placeholder replaced by the n-th expansion; None when their numbers differ."""
    pieces: list[int] = []
    waiting = iter(expansions)
    used = 0
    for token in ids:
        if token != placeholder_id:
            pieces.append(token)
            continue
        expansion = next(waiting, None)
        if expansion is None:
            return None
        pieces.extend(expansion)
        used += 1
    return pieces if used == len(expansions) else None


@dataclass(slots=True)
class Examples:
    """All rows of a stage that can be trained on, and why the others can't."""

    rows: Sequence[Example] = ()
    """In memory, or mapped from disk (student/data/encoded_rows.py)."""
    dropped: Counter[str] = field(default_factory=Counter)
    shrunk: int = 0
    """Rows whose images were made smaller to fit."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> RowColumns:
        """What a plan needs to know of every row; for rows in memory every call computes it again."""
        return columns_of(self.rows)

    @property
    def lengths(self) -> list[int]:
        lengths: list[int] = self.columns.lengths.tolist()
        return lengths

    def take(self, indexes: Sequence[int]) -> "Examples":
        """Some of the rows; what was dropped stays with the whole."""
        rows = self.rows
        return Examples(rows.take(indexes) if isinstance(rows, MappedRows) else [rows[index] for index in indexes])

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the plan of a stage: which rows there are, and how long they are."""
        columns, digest = self.columns, hashlib.sha256("\0".join(self.sample_ids).encode())
        for values in (columns.lengths, columns.responses, columns.images):
            digest.update(np.asarray(values, "<i8").tobytes())
        return digest.hexdigest()

    def image_share(self, image_id: int) -> float:
        """Share of the tokens that are image tokens."""
        rows = self.rows
        if isinstance(rows, MappedRows):
            count = rows.count_token(image_id)
        else:
            count = sum(int(np.count_nonzero(example.ids == image_id)) for example in rows)
        return count / max(1, int(self.columns.lengths.sum()))

    @property
    def sample_ids(self) -> list[str]:
        """The question of every row."""
        rows = self.rows
        return rows.sample_ids() if isinstance(rows, MappedRows) else [example.row.sample_id for example in rows]


@dataclass(frozen=True, slots=True)
class RowLimits:
    """How large a row may be, and what happens to a longer one."""

    max_length: int
    """Tokens, those of images included."""
    max_pixels: int
    """Of one image; a larger one is made smaller."""
    too_long: str = "drop"
    """"drop"; "shrink_image": images are made smaller first; or "error": a DataError."""


def encode(
    rows: Iterable[TrainingRow],
    encoder: Encoder,
    store: ImageStore,
    limits: RowLimits,
    *,
    dropped: Counter[str] | None = None,
    into: Callable[[Iterable[Example]], Sequence[Example]] = list,
) -> Examples:
    """Rows as token ids. Rows with an unreadable image, and rows that are too long, are left out and counted.

    `dropped` counts them; `into` keeps the rows as they come.
    """
    examples = Examples(dropped=dropped if dropped is not None else Counter())
    examples.rows = into(_encoded(rows, encoder, store, limits, examples))
    return examples


def _encoded(
    rows: Iterable[TrainingRow], encoder: Encoder, store: ImageStore, limits: RowLimits, counts: Examples
) -> Iterator[Example]:
    waiting, max_length, max_pixels = iter(rows), limits.max_length, limits.max_pixels
    while batch := list(islice(waiting, _BATCH_ROWS)):
        store.prepare((ref for row in batch for ref in row.images), max_pixels)
        for row, (ids, begin, kinds) in zip(batch, encoder.conversations(batch), strict=True):
            if encoder.end_texts[ids[-1]] in row.response.rstrip()[:-1]:
                counts.dropped[END_TOKEN_IN_TEXT] += 1
                continue
            try:
                expansions = [store.expansion(ref, max_pixels) for ref in row.images]
            except ImageError as error:
                counts.dropped[error.reason] += 1
                continue
            full = encoder.expand(ids, expansions)
            if full is None:
                counts.dropped[IMAGE_TOKEN_IN_TEXT] += 1
                continue
            if len(full) > max_length and limits.too_long == SHRINK and row.images:
                row, full = _shrunk(row, ids, full, encoder, store, limits)
                counts.shrunk += len(full) <= max_length
            if len(full) > max_length:
                if limits.too_long == "error":
                    raise DataError(
                        f"row {row.id} has {counted(len(full), 'token')}, {len(full) - len(ids):,} more than its "
                        f"text for its images, and max_length is {max_length:,}; raise it, or set too_long to drop "
                        "or shrink_image"
                    )
                counts.dropped[TOO_LONG] += 1
                continue
            encoder.verify_row(row, full, max_pixels)
            encoded = np.asarray(full, dtype=np.int32)
            yield Example(row=row, ids=encoded, begin=begin + len(full) - len(ids), kinds=kinds)


def _shrunk(
    row: TrainingRow, ids: Sequence[int], full: list[int], encoder: Encoder, store: ImageStore, limits: RowLimits
) -> tuple[TrainingRow, list[int]]:
    """The row with the largest images of a half, a quarter, ... of their sides that make it fit, if any do."""
    for divisor in _DIVISORS:
        refs = tuple(smaller(ref, divisor) for ref in row.images)
        try:
            expansions = [store.expansion(ref, limits.max_pixels) for ref in refs]
        except ImageError:  # rounded to whole pixels, a narrow image is too narrow
            continue
        shorter = encoder.expand(ids, expansions)
        if shorter is not None and len(shorter) <= limits.max_length:
            return replace(row, images=refs), shorter
    return row, full
