"""The size of a stage before it starts: rows, tokens, patches and steps, estimated from a sample of its rows.

Where the data is not there yet, or has to be downloaded, the most that the recipe allows takes its place. Prices
nothing (student/models/flops.py, student/training/cost/memory.py).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.artifacts.layout import by_number
from distill.artifacts.manifest import Manifest
from distill.data import formats, sources
from distill.data.gold_answers import RowError
from distill.data.images.image_cells import open_arrow
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, is_traces
from distill.word_tables import counted
from student.data import rows as stage_rows

if TYPE_CHECKING:
    from student.data.encode import Examples
    from student.models.flops import Cost

SAMPLED_ROWS = 512
_REPLAYED_ROWS = 64
"""Of each replayed source: their mean length is weighted by their share, which is small."""
_SAMPLED_IMAGES = 32
_PROMPT_TOKENS = 256
"""Most tokens of a question with the marks of its turn, assumed where no row is there yet."""
_PACKED_SHARE = 0.97
"""Share of a token budget that packed rows fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A stage's own rows; amounts are means over the rows of its steps, replayed ones included."""

    rows: int | None
    """Own rows to train on, those that validation keeps out not among them; None: nothing says how many there are."""
    own_tokens: float
    """Mean over the own rows."""
    tokens: float
    squared_length: float
    response_tokens: float
    patches: float
    squared_patches: float
    basis: str
    """Explanation of the amounts for a reader."""
    is_bound: bool
    """Whether rows and tokens are the most there can be."""

    def flops(self, cost: "Cost", tokens: float) -> float:
        """FLOPs of training on these numbers of tokens."""
        of_row = cost.flops(
            tokens=self.tokens,
            squared_lengths=self.squared_length,
            response_tokens=self.response_tokens,
            patches=self.patches,
            squared_patches=self.squared_patches,
        )
        return of_row * tokens / self.tokens

    def patches_per_token(self) -> float:
        return self.patches / self.tokens


@dataclass(frozen=True, slots=True)
class Schedule:
    """Optimisation steps of a stage, and the tokens they train on."""

    steps: int
    tokens: float


def schedule(stage: Stage, load: Load) -> Schedule | None:
    """The length of a stage in steps, within a few steps of the trainer's plan; None if it is not known."""
    if stage.batch_tokens is not None:
        tokens_a_step = _PACKED_SHARE * stage.batch_tokens
    else:
        tokens_a_step = stage.batch_size * stage.group_rows * load.tokens
    if load.rows is None:
        if stage.max_tokens is not None:
            return Schedule(max(1, round(stage.max_tokens / tokens_a_step)), stage.max_tokens)
        return None if stage.max_steps is None else Schedule(stage.max_steps, stage.max_steps * tokens_a_step)
    epoch = load.rows * load.own_tokens / (1 - sum(stage.replay.values()))
    # The last step of an epoch has the remaining rows.
    epoch_steps = max(1, math.ceil(epoch / tokens_a_step - 1e-9))
    if stage.max_tokens is not None:
        return Schedule(max(1, round(stage.max_tokens / epoch * epoch_steps)), stage.max_tokens)
    steps = stage.max_steps or max(1, round(epoch_steps * stage.epochs))
    return Schedule(steps, steps / epoch_steps * epoch)


def of_stage(recipe: Recipe, run: Path, stage: Stage, outline: Any, processor: Any, cost: "Cost") -> Load:
    """The load of a stage for the outline of a student. Raises the errors of reading the data, if the data exists."""
    total = _rows(recipe, run, stage)
    if processor is None or not _there(recipe, run, stage):
        return _most(recipe, stage, total, outline, cost)
    # Replayed rows have a share of the tokens, however many they are, and a length of their own.
    alone = stage.model_copy(update={"replay": {}})
    own = _sampled(recipe, run, alone, outline, processor, rows=SAMPLED_ROWS)
    if not len(own.examples):
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(own.dropped.items()))
        raise DataError(
            f"stage '{stage.name}': none of the first {counted(own.read, 'row')} of data = {stage.data!r} can be "
            f"trained on ({reasons}); max_length is {counted(stage.max_length, 'token')}, image tokens included"
        )
    complete = own.read < SAMPLED_ROWS or total is None
    parts = [(1 - sum(stage.replay.values()), own)]
    for name, share in stage.replay.items():
        if sources.is_there(recipe, name):
            of_source = alone.model_copy(update={"data": name, "limit": None})
            parts.append((share, _sampled(recipe, run, of_source, outline, processor, rows=_REPLAYED_ROWS)))
    max_pixels = stage_rows.max_pixels(recipe, stage)
    amounts = [(share, part.amounts(max_pixels, cost)) for share, part in parts if len(part.examples)]
    # The share is a share of tokens, so long rows are few.
    weights = [share / tokens for share, (tokens, *_) in amounts]
    means = [
        sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
        for values in zip(*(of_part for _, of_part in amounts), strict=True)
    ]
    return Load(
        rows=_trained(stage, own, None if complete else total),
        own_tokens=amounts[0][1][0],
        **dict(zip(_AMOUNTS, means, strict=True)),
        basis="all rows" if complete else f"the first {counted(own.read, 'row')}",
        is_bound=False,
    )


_AMOUNTS = ("tokens", "squared_length", "response_tokens", "patches", "squared_patches")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampled:
    """The first rows of a source, encoded."""

    examples: "Examples"
    read: int
    dropped: Counter[str]
    store: Any

    def amounts(self, max_pixels: int, cost: "Cost") -> tuple[float, ...]:
        """Means over the rows, in the order of `_AMOUNTS`."""
        columns = self.examples.columns
        lengths = columns.lengths.tolist()
        squares = [length * length for length in lengths]
        patches = _patches(self.examples, self.store, max_pixels, cost)
        return _mean(lengths), _mean(squares), float(columns.responses.mean()), *patches


def _sampled(recipe: Recipe, run: Path, stage: Stage, outline: Any, processor: Any, *, rows: int) -> _Sampled:
    """At most so many rows."""
    from student.data.encode import SHRINK, Encoder, RowLimits, encode
    from student.data.images import ImageStore

    dropped: Counter[str] = Counter()
    store = ImageStore(processor, outline.dtype, memory_bytes=1 << 28)
    sample = list(islice(stage_rows.read(recipe, run, stage, dropped), rows))
    examples = encode(
        sample,
        Encoder.of(outline, processor),
        store,
        RowLimits(
            stage.max_length,
            stage_rows.max_pixels(recipe, stage),
            stage.too_long if stage.too_long == SHRINK else "drop",
        ),
        dropped=dropped,
    )
    return _Sampled(examples=examples, read=len(sample), dropped=dropped, store=store)


def _trained(stage: Stage, own: _Sampled, total: int | None) -> int:
    """Own rows that are trained on, of `total` in the data (None: the sample is all of them)."""
    from student.validation.measure import split_held_out

    amount = stage.validation.hold_out if stage.validation is not None else 0
    if total is None:
        return len(split_held_out(own.examples, stage)[0])
    usable = round(len(own.examples) / (len(own.examples) + own.dropped.total()) * total)
    return usable - (round(amount * usable) if isinstance(amount, float) else min(amount, usable))


def _patches(examples: "Examples", store: Any, max_pixels: int, cost: "Cost") -> tuple[float, float]:
    """Mean patches a row, and mean sum of their squares, by the first few images."""
    counts, squares = [], []
    images = int(examples.columns.images.sum())
    for ref in islice((ref for example in examples.rows for ref in example.row.images), _SAMPLED_IMAGES):
        count, square = cost.patches(store.features(ref, max_pixels))
        counts.append(count)
        squares.append(square)
    each = images / len(examples)
    return each * _mean(counts), each * _mean(squares)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _there(recipe: Recipe, run: Path, stage: Stage) -> bool:
    """Whether a stage's rows can be read without running or downloading anything."""
    if is_traces(stage):
        return Manifest.read(run / "filter") is not None and bool(_trace_files(run, stage))
    return sources.is_there(recipe, stage.data)


def _trace_files(run: Path, stage: Stage) -> list[Path]:
    return sorted(stage_rows.data_folder(run, stage).glob("*.parquet"), key=by_number)


def _rows(recipe: Recipe, run: Path, stage: Stage) -> int | None:
    """Rows of a stage's own data before any is dropped; the most there can be where it is not there yet."""
    if not is_traces(stage):
        result = questions(recipe, stage.data)
    elif _there(recipe, run, stage):
        import pyarrow.parquet as pq

        result = sum(pq.ParquetFile(file).metadata.num_rows for file in _trace_files(run, stage))
    else:
        question_count = questions(recipe, "questions") if "questions" in recipe.data else None
        # Every teacher may be asked about every question, and selection keeps so many of the answers.
        samples = sum(map(recipe.most_traces, recipe.teachers))
        each = samples if recipe.filter.select.per_question is None else recipe.filter.select.per_question
        result = None if question_count is None else question_count * min(each, samples or each)
        if stage.preference is not None and question_count is not None:
            result = question_count * stage.group_rows
        if stage.rollouts is not None and question_count is not None:
            result = min(question_count, stage.rollouts.answered or question_count) * stage.rollouts.attempts
    limits = [count for count in (result, stage.limit and stage.limit * stage.group_rows) if count is not None]
    return min(limits, default=None)


def questions(recipe: Recipe, name: str) -> int | None:
    """The number of questions of a source, from the counts of its files and its first rows; None if only a download
    would show it."""
    source = recipe.data[name]
    if not sources.is_there(recipe, name):
        return source.limit
    table = sources.locate(recipe, name)
    held = []
    for row in islice(sources.rows(table), SAMPLED_ROWS):
        if isinstance(row, sources.SourceRow):
            try:
                held.append(len(formats.parse(row.values, source).questions))
            except RowError:
                held.append(0)
    return min(round(_mean(held) * _table_rows(table)), source.limit or math.inf)  # type: ignore[return-value]


def _table_rows(table: sources.SourceTable) -> int:
    import pyarrow.parquet as pq

    table.fetch()
    if table.kind == "parquet":
        return sum(pq.ParquetFile(file).metadata.num_rows for file in table.files)
    if table.kind == "arrow":
        return sum(open_arrow(str(file)).num_rows for file in table.files)
    return sum(1 for _ in sources.rows(table))


def _most(recipe: Recipe, stage: Stage, total: int | None, outline: Any, cost: "Cost") -> Load:
    """One image and as long a text as a row may have: a teacher's cap for traces, else the stage's `max_length`."""
    image_side = getattr(outline.config.vision_config, "image_size", None)
    image_side = image_side if isinstance(image_side, int) or image_side is None else image_side[0]
    # Towers of variable size split an image by its size; the estimate assumes images of 512 x 512 pixels.
    each = ((image_side or 512) // cost.patch_side) ** 2 + cost.class_tokens
    image_tokens = each / cost.patches_per_token
    if is_traces(stage):
        response = max((teacher.sampling.max_tokens for teacher in recipe.teachers), default=stage.max_length)
        tokens = min(stage.max_length, image_tokens + _PROMPT_TOKENS + response)
    else:
        tokens, response = stage.max_length, stage.max_length
    return Load(
        rows=total,
        own_tokens=tokens,
        tokens=tokens,
        squared_length=tokens * tokens,
        response_tokens=min(response, max(1.0, tokens - image_tokens)),
        patches=each,
        squared_patches=each * each,
        basis="the maximum that the recipe allows",
        is_bound=True,
    )
