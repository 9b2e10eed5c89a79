"""The `[[stages]]` section of a recipe: how the student is trained, stage by stage.

Part of the recipe models: distill/recipe/recipe.py checks what refers to what.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Name, Section, Share
from distill.recipe.validation import Validation

AUTO: Literal["auto"] = "auto"
TRACES = "traces"
"""A stage's data where it is the filtered dataset, or with ":ARM" an arm of it."""


class Lora(Section):
    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead of alpha / rank."""
    dora: bool = False
    """Learn the length of each weight row apart from its direction; slower."""
    quantize: Literal["nf4"] | None = None
    """Lay the language model's adapted weights in 4 bits while the stage trains (QLoRA; the extra qlora). The student
    it leaves has plain weights: what the 4 bits stood for, plus what was learned."""


class SpanWeights(Section):
    """What a token counts by its part of the response; format is the tags, blank lines and the end of the turn."""

    rationale: float = Field(default=1.0, ge=0)
    answer: float = Field(default=1.0, ge=0)
    format: float = Field(default=1.0, ge=0)

    @model_validator(mode="after")
    def _count(self) -> Self:
        if not (self.rationale or self.answer or self.format):
            raise ValueError("rationale, answer and format all weigh 0, so nothing would be learned; raise one")
        return self


class Loss(SpanWeights):
    """The weights of a stage's tokens in its loss."""

    normalise: Literal["tokens", "spans"] = "tokens"
    """tokens: every token counts alike. spans: every part of a row does, so long rationales don't drown answers."""
    final: SpanWeights | None = None
    """Weights at the last step, reached in equal parts from those at the first."""
    sample_weights: bool = True
    """Whether the dataset's `weight` of a row counts."""


class Distill(Section):
    """Learning the teachers' distributions of tokens (`logprobs` under [[teachers]]) beside their text."""

    weight: Share = 0.5
    """Of the divergence from the teacher; the likelihood of the text has the rest, and all of it where a token has no
    distribution."""
    top_k: int = Field(default=20, ge=1, le=20)
    """Likeliest tokens used of each stored distribution; all others are one."""


class Stage(Section):
    """One training stage. It starts from the stage before it unless `start` names another."""

    name: Name
    data: str
    """A source by name, "traces" (the filtered dataset), or an arm to compare with: "traces:unfiltered" (every
    complete trace) or "traces:random" (a random part of them with as many tokens as the dataset)."""
    train: tuple[Literal["projector", "language"], ...] = Field(strict=False, min_length=1)
    start: str | None = None
    target: Literal["rationale", "answer"] = "rationale"
    """What the assistant says: rationale and answer, or the answer alone (rows of a source have no rationale)."""
    lora: Lora | None = None
    learning_rate: float = Field(default=2e-5, gt=0)
    epochs: float = Field(default=1.0, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    """Overrides epochs."""
    batch_size: int = Field(default=16, ge=1)
    """Samples an optimisation step, over all micro-batches and processes."""
    batch_tokens: int | None = Field(default=None, ge=1)
    """Overrides batch_size: tokens an optimisation step. Rows are packed best-fit over the whole epoch."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Tokens in memory at once. Changes memory and speed, not what is learned (unless batch_tokens is given)."""
    micro_batch_images: int = Field(default=256, ge=1)
    """Images in memory at once."""
    line_tokens: int = Field(default=2048, ge=1)
    """Width of a packed line where attention has to mask the other rows of a line (student.attention)."""
    order: Literal["shuffle", "data", "length", "difficulty"] = "shuffle"
    """Rows of an epoch at random, as the data has them (filter.select.curriculum), or short or easy ones first."""
    replay: Mapping[Name, Annotated[float, Field(gt=0, lt=1)]] = Field(default_factory=dict)
    """Source to its share of the tokens, such as the data of an earlier stage against forgetting."""
    teachers: Mapping[Name, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Teacher to its weight among the tokens of the traces; default: as many as there are."""
    no_think: Share = 0.0
    """Share of the traces learned without their rationale, asked for by "/no_think": a student with two modes."""
    loss: Loss = Loss()
    distill: Distill | None = None
    max_length: int = Field(default=1024, ge=1)
    """Tokens, image tokens included. A longer row is never cut."""
    too_long: Literal["drop", "shrink_image", "error"] = "drop"
    """What happens to a longer row: it is left out and counted, its images are made smaller, or the stage stops."""
    warmup_share: Share = 0.03
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    gradient_checkpointing: bool | Literal["auto"] = AUTO
    """Compute activations again in the backward pass. auto: where the stage does not fit the GPU otherwise."""
    kernels: Literal["none", "compile", "liger", "hub"] = "none"
    """Faster layers: compiled, of the package liger-kernel, or of the hub (package kernels)."""
    sharding: Literal["none", "fsdp2"] = "none"
    """fsdp2: each of several processes holds a share of the language model and of its optimizer's state."""
    save_every_steps: int = Field(default=200, ge=1)
    log_every_steps: int = Field(default=10, ge=1)
    limit: int | None = Field(default=None, ge=1)
    report_to: tuple[str, ...] = Field(default=(), strict=False)
    validation: Validation | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.lora and "language" not in self.train:
            raise ValueError("lora adapts the language model, which this stage does not train")
        if self.lora and self.lora.quantize and self.sharding != "none":
            raise ValueError(f"lora.quantize = {self.lora.quantize!r}: weights in 4 bits cannot be sharded")
        if self.batch_tokens is not None and self.batch_tokens < self.micro_batch_tokens:
            raise ValueError(
                f"batch_tokens {self.batch_tokens} is less than micro_batch_tokens {self.micro_batch_tokens}"
            )
        if sum(self.replay.values()) >= 1:
            raise ValueError("the shares of replay leave nothing for the stage's own data; their sum must be below 1")
        if not is_traces(self):
            for key in ("teachers", "no_think", "distill"):
                if getattr(self, key):
                    raise ValueError(f"{key} is about traces, which this stage does not learn from")
        if self.distill and self.target == "answer":
            raise ValueError(
                "distill: a teacher's distribution over its answer is one after its rationale; leave it out"
            )
        return self


def is_traces(stage: Stage) -> bool:
    """Whether a stage learns from what the teachers wrote."""
    return stage.data.partition(":")[0] == TRACES


def start_of(stages: Sequence[Stage], stage: Stage) -> str | None:
    """The stage whose model a stage starts from; None: the base student."""
    if stage.start is not None:
        return stage.start
    position = stages.index(stage)
    return stages[position - 1].name if position else None


def lineage(stages: Sequence[Stage], name: str) -> list[Stage]:
    """A stage after those that it descends from."""
    by_name = {stage.name: stage for stage in stages}
    found: list[Stage] = []
    following: str | None = name
    while following is not None:
        found.insert(0, by_name[following])
        following = start_of(stages, by_name[following])
    return found
