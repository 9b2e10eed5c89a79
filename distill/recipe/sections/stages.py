"""The `[[stages]]` section of a recipe: how the student is trained, stage by stage.

Part of the recipe models: distill/recipe/recipe.py checks what refers to what.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Name, Section, Share, key, train_key
from distill.recipe.sections.eval import BASE
from distill.recipe.sections.filter import PAIRS
from distill.recipe.sections.rollouts import ROLLOUTS, Rollouts
from distill.recipe.sections.validation import Validation

AUTO: Literal["auto"] = "auto"
PASS_TOKENS = 8192
"""Tokens in memory at once, where neither the recipe nor a GPU's memory gives another number."""
TRACES = "traces"
"""A stage's data where it is the filtered dataset, or with ":ARM" an arm of it."""
_OF_TRACES = ("teachers", "no_think", "distill", "visual")
"""Keys of a stage about traces that teachers wrote."""
MOST_STEPS, MOST_EPOCHS = 10_000_000, 100_000
"""Each epoch is planned before the first step, to know how many steps the schedule of the learning rate has."""


class Lora(Section):
    """Adapters of the language model, trained in place of its weights."""

    rank: int = train_key(16, "Rank of the adapters.", ge=1, usual=(4, 512))
    alpha: int = train_key(32, "The adapters' output is scaled by alpha / rank.", ge=1, usual=(4, 1024))
    dropout: float = train_key(0.05, "Dropout of the adapters' input.", ge=0, lt=1, usual=(0, 0.3))
    rslora: bool = train_key(False, "Scale by alpha / sqrt(rank) instead of alpha / rank.")
    dora: bool = train_key(False, "Learn the length of each weight row apart from its direction; slower.")
    quantize: Literal["nf4"] | None = train_key(
        None,
        "Hold the language model's adapted weights in 4 bits while the stage trains (QLoRA; the extra qlora). The "
        "saved student has plain weights: the 4-bit values plus the trained adapters.",
    )


class SpanWeights(Section):
    """The weight of a token by its part of the response."""

    rationale: float = train_key(1.0, "Weight of the tokens of the rationale.", ge=0, usual=(0.1, 10))
    answer: float = train_key(1.0, "Weight of the tokens of the answer.", ge=0, usual=(0.1, 20))
    format: float = train_key(
        1.0, "Weight of the tags, the blank lines and the end of the turn.", ge=0, usual=(0.1, 10)
    )

    @model_validator(mode="after")
    def _count(self) -> Self:
        if not (self.rationale or self.answer or self.format):
            raise ValueError("rationale, answer and format all weigh 0, so nothing would be learned; raise one")
        return self


class Loss(SpanWeights):
    """The weights of a stage's tokens in its loss."""

    normalise: Literal["tokens", "spans"] = train_key(
        "tokens",
        "tokens: every token has the same weight. spans: every part of a row has the same weight, so that long "
        "rationales do not outweigh answers. With spans, the rationale has a third of the loss or less, and "
        "accuracy fell in the only measured case (docs/train.md, Loss).",
    )
    final: SpanWeights | None = key(
        None, "Weights at the last step, reached in equal parts from those at the first step; default: constant."
    )
    sample_weights: bool = train_key(True, "Use the dataset's `weight` of each row.", usual=(True,))


class Distill(Section):
    """Learning the teachers' distributions of tokens (`logprobs` under [[teachers]]) beside their text."""

    weight: Share = train_key(
        0.5,
        "Weight of the divergence from the teacher; the likelihood of the text has the rest. A token without a "
        "distribution has the likelihood only.",
        usual=(0.05, 1),
    )
    top_k: int = train_key(
        20, "Number of likeliest tokens used of each stored distribution; all other tokens count as one.", ge=1, le=20
    )


class Visual(Section):
    """More weight for the tokens that need the image: a teacher scores each trace with and without it."""

    teacher: Name | None = train_key(
        None,
        "The teacher that scores the traces; default: the teacher that wrote the trace. Its backend must be able "
        "to score texts (embedded, vllm).",
    )
    strength: float = train_key(
        0.5,
        "A token's weight is in proportion to 1 + strength * gain; the gain is the log-probability (in nats) that "
        "the image adds. The mean weight of a trace is 1.",
        ge=0,
        usual=(0.05, 10),
    )
    least: Share = train_key(0.25, "Smallest weight of a token.")
    most: float = train_key(4.0, "Largest weight of a token.", ge=1, usual=(1, 20))


class Preference(Section):
    """Learning to prefer the right trace of a pair to the wrong one (DPO), with `data = "traces:pairs"`."""

    beta: float = train_key(
        0.1,
        "How close the student stays to its start; a smaller value lets it move further away.",
        gt=0,
        usual=(0.01, 1),
    )
    sft: float = train_key(
        1.0,
        "Weight of the likelihood of the right traces beside the preference; at 0, right traces may become less "
        "likely, too.",
        ge=0,
        usual=(0, 10),
    )


class Stage(Section):
    """One training stage. It starts from the stage before it unless `start` names another."""

    name: Name = key(
        ..., "Name of the stage, and of its folder.", because="its folder is renamed; only rollouts are trained again"
    )
    data: str = train_key(
        ...,
        'A source by name, "traces" (the filtered dataset), or an arm to compare with: "traces:unfiltered" (every '
        'complete trace) or "traces:random" (a random part of them with as many tokens as the dataset). '
        '"traces:pairs": a right and a wrong trace of each question, for a stage with `preference`. '
        '"traces:rollouts": the replies of the student that it starts from, for a stage with `rollouts`.',
    )
    train: tuple[Literal["projector", "language"], ...] = train_key(
        ..., "The parts that are trained; the vision tower is always frozen.", strict=False, min_length=1
    )
    start: str | None = train_key(
        None,
        'The stage whose student it starts from, or "base" for the untrained student; default: the stage before it, '
        "else the untrained student.",
        compared_by="the fingerprint of that stage",
    )
    target: Literal["rationale", "answer"] = train_key(
        "rationale",
        "What the student learns to write: rationale and answer, or the answer alone (rows of a source have no "
        "rationale).",
    )
    lora: Lora | None = key(None, "Train adapters of the language model; default: its weights.")
    learning_rate: float = train_key(2e-5, "Largest learning rate of the schedule.", gt=0, usual=(1e-6, 5e-3))
    epochs: float = train_key(
        1.0,
        "How often each row is trained.",
        overridden_by="max_steps max_tokens",
        gt=0,
        le=MOST_EPOCHS,
        usual=(0.2, 20),
    )
    max_steps: int | None = train_key(
        None, "Number of steps; overrides epochs.", overridden_by="max_tokens", ge=1, le=MOST_STEPS, usual=(20, None)
    )
    max_tokens: int | None = train_key(
        None,
        "Number of tokens to train on, image tokens included, to the nearest step; overrides epochs and max_steps.",
        omit_default="train",
        ge=1,
        usual=(50_000, None),
    )
    batch_size: int = train_key(
        16,
        "Samples of an optimisation step, over all micro-batches and processes; pairs where `preference` is set.",
        overridden_by="batch_tokens",
        ge=1,
        usual=(4, 4096),
    )
    batch_tokens: int | None = train_key(
        None,
        "Tokens of an optimisation step; overrides batch_size. Rows are packed best-fit over the whole epoch.",
        ge=1,
        usual=(1024, None),
    )
    micro_batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = train_key(
        AUTO,
        "Tokens in memory at once. It changes memory and speed, not what is learned (unless batch_tokens is given). "
        "auto: 8,192; on a GPU up to 32,768, as its free memory allows, unless batch_tokens is given (parts.json).",
    )
    micro_batch_images: int = train_key(256, "Images in memory at once.", ge=1)
    line_tokens: int = train_key(
        2048, "Width of a packed line where attention has to mask the other rows of a line (student.attention).", ge=1
    )
    order: Literal["shuffle", "data", "length", "difficulty"] = train_key(
        "shuffle",
        "Order of the rows of an epoch. shuffle: random. data: as the dataset has them (filter.select.curriculum). "
        "length: short ones first. difficulty: easy ones first.",
    )
    replay: Mapping[Name, Annotated[float, Field(gt=0, lt=1)]] = train_key(
        {}, "Further sources and their shares of the tokens, such as the data of an earlier stage against forgetting."
    )
    teachers: Mapping[Name, Annotated[float, Field(gt=0)]] = train_key(
        {}, "Teachers and their weights among the tokens of the traces; default: all traces as they are."
    )
    no_think: Share = train_key(
        0.0,
        'Share of the traces learned without their rationale, with "/no_think" after the question: two '
        "modes of one student.",
        usual=(0, 0.3),
    )
    loss: Loss = key(Loss(), "The weights of tokens in the loss.")
    distill: Distill | None = key(
        None, "Learn the teachers' distributions of tokens beside their text; default: the text alone."
    )
    preference: Preference | None = key(
        None, "Prefer right traces to wrong traces; default: learn only from right traces.", omit_default="train"
    )
    visual: Visual | None = key(
        None,
        "Give tokens of traces more weight if the image makes them more likely; default: equal weights.",
        omit_default="train",
    )
    rollouts: Rollouts | None = key(
        None,
        "Learn a teacher's distributions of tokens over the student's own replies; default: learn from traces.",
        omit_default="train",
    )
    max_length: int = train_key(
        1024,
        "Largest length of a row in tokens, image tokens included. A longer row is never cut.",
        ge=1,
        usual=(128, None),
    )
    too_long: Literal["drop", "shrink_image", "error"] = train_key(
        "drop",
        "What happens to a longer row. drop: it is left out and counted. shrink_image: its images are made smaller. "
        "error: the stage stops.",
    )
    warmup_share: Share = train_key(0.03, "Share of the steps in which the learning rate rises.", usual=(0, 0.2))
    schedule: Literal["cosine", "linear", "constant"] = train_key(
        "cosine", "How the learning rate falls after the warm-up."
    )
    weight_decay: float = train_key(0.0, "Weight decay of AdamW.", ge=0, usual=(0, 0.2))
    max_grad_norm: float = train_key(1.0, "Gradients are scaled down to this norm.", gt=0, usual=(0.1, 10))
    gradient_checkpointing: bool | Literal["auto"] = train_key(
        AUTO,
        "Compute activations again in the backward pass: less memory, more time. auto: where the stage does not fit "
        "the GPU otherwise.",
    )
    kernels: Literal["none", "compile", "liger", "hub", "auto"] = train_key(
        "none",
        "Faster layers: compiled, of the package liger-kernel, or of the hub (package kernels). auto: three steps of "
        "none, compile and liger are timed at the start, and the fastest is kept (parts.json).",
    )
    sharding: Literal["none", "fsdp2"] = key(
        "none",
        "fsdp2: each process holds a share of the language model and of its optimizer state.",
        because="it changes only where weights are held; sums differ by rounding, and a run may go on with other "
        "processes",
    )
    save_every_steps: int = key(
        200, "Steps between two checkpoints.", because="it changes only how much an interruption costs", ge=1
    )
    log_every_steps: int = key(
        10, "Steps between two lines of metrics.jsonl.", because="it changes only how much is logged", ge=1
    )
    limit: int | None = train_key(
        None,
        "Use only this number of rows of the stage's own data, from its start; default: all.",
        ge=1,
        usual=(100, None),
    )
    report_to: tuple[str, ...] = key(
        (),
        "Trackers that get the metrics of this stage: trackio, wandb, tensorboard; default: report_to of the recipe.",
        because="it changes only who else gets the metrics",
        strict=False,
    )
    validation: Validation | None = key(
        None,
        ("Measurements of the student during training; default: none."),
        compared_by="the keys that change what is learned",
    )

    @property
    def pass_tokens(self) -> int:
        """Tokens in memory at once, before a GPU with room for more is known."""
        asked = self.micro_batch_tokens
        return min(PASS_TOKENS, self.batch_tokens or PASS_TOKENS) if asked == AUTO else asked

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.lora and "language" not in self.train:
            raise ValueError("lora adapts the language model, which this stage does not train")
        if self.lora and self.lora.quantize and self.sharding != "none":
            raise ValueError(f"lora.quantize = {self.lora.quantize!r}: weights in 4 bits cannot be sharded")
        if self.batch_tokens is not None and self.batch_tokens < self.pass_tokens:
            raise ValueError(f"batch_tokens {self.batch_tokens} is less than micro_batch_tokens {self.pass_tokens}")
        if sum(self.replay.values()) >= 1:
            raise ValueError("the shares of replay leave nothing for the stage's own data; their sum must be below 1")
        if self.data in self.replay:
            raise ValueError(f"replay.{self.data} is the stage's own data, which it learns anyway; leave it out")
        of_traces = next((name for name in _OF_TRACES if getattr(self, name)), None)
        if of_traces and not is_traces(self):
            raise ValueError(f"{of_traces} needs a stage that learns from traces, but this stage does not")
        if self.distill and self.target == "answer":
            raise ValueError(
                'distill: a teacher\'s answer follows its rationale, but this stage has target = "answer"; remove '
                "distill"
            )
        if self.visual and self.target == "answer":
            raise ValueError(
                'visual gives weights to the tokens of a rationale, but this stage has target = "answer"; remove '
                "visual"
            )
        for name, arm in (("preference", PAIRS), ("rollouts", ROLLOUTS)):
            if (getattr(self, name) is not None) != (self.data == f"{TRACES}:{arm}"):
                raise ValueError(
                    f'{name} needs data = "{TRACES}:{arm}" and that data needs {name}, but data is {self.data!r}; '
                    "set both or none"
                )
        if self.preference is not None:
            self._require_plain_pairs("replay" if self.replay else of_traces)
        if self.rollouts is not None and of_traces:
            raise ValueError(f"{of_traces} is about traces of teachers; rollouts are the student's own; remove it")
        if self.rollouts is not None and self.target == "answer":
            raise ValueError('rollouts are learned whole; leave out target = "answer"')
        if self.rollouts is not None and self.validation is not None and self.validation.decides == "loss":
            raise ValueError(
                "rollouts: the start student has the smallest loss on its own replies, so the loss cannot select "
                "the best weights; set validation.metric to accuracy, or leave out patience and keep"
            )
        return self

    def _require_plain_pairs(self, of_rows: str | None) -> None:
        if of_rows:
            raise ValueError(f"{of_rows} changes single rows, but preference learns from pairs; leave one out")
        if self.target == "answer":
            raise ValueError('preference compares traces; leave out target = "answer"')
        if self.too_long == "shrink_image":
            raise ValueError("preference: both traces of a pair need the same image; set too_long to drop or error")
        if self.validation is not None and (self.validation.hold_out or self.validation.metric == "loss"):
            raise ValueError(
                "preference: validation cannot measure the loss of pairs; leave out hold_out, and set metric to "
                "accuracy"
            )

    @property
    def divergence(self) -> Distill | None:
        """The settings of the divergence from stored distributions; rollouts have weight 1 and no other loss."""
        return self.distill if self.rollouts is None else Distill(weight=1.0, top_k=self.rollouts.top_k)

    @property
    def group_rows(self) -> int:
        """How many rows are learned together: the two of a pair, else one."""
        return 1 if self.preference is None else 2


def is_traces(stage: Stage) -> bool:
    """Whether a stage learns from what the teachers wrote."""
    return stage.data.partition(":")[0] == TRACES


def sources_of(stage: Stage) -> list[str]:
    """The sources of a recipe that a stage learns from, besides traces."""
    return [*(() if is_traces(stage) else (stage.data,)), *stage.replay]


def learns_rationales(stage: Stage) -> bool:
    """Whether a stage learns to say what the teachers wrote: traces with their rationales, no pairs, no rollouts."""
    plain = stage.preference is None and stage.rollouts is None
    return is_traces(stage) and stage.target == "rationale" and plain


def teachers_before(stages: Sequence[Stage], stage: Stage, teachers: Sequence[str]) -> set[str]:
    """The teachers whose traces the student has learned from before this stage; `teachers`: all names of the
    recipe."""
    earlier = [each for each in lineage(stages, stage.name)[:-1] if learns_rationales(each)]
    return {name for each in earlier for name in (each.teachers or teachers)}


def start_of(stages: Sequence[Stage], stage: Stage) -> str | None:
    """The stage whose model a stage starts from; None: the untrained student."""
    if stage.start is not None:
        return None if stage.start == BASE else stage.start
    position = stages.index(stage)
    return stages[position - 1].name if position else None


def lineage(stages: Sequence[Stage], name: str) -> list[Stage]:
    """A stage after those that it descends from."""
    by_name = {stage.name: stage for stage in stages}
    ancestors: list[Stage] = []
    following: str | None = name
    while following is not None:
        ancestors.insert(0, by_name[following])
        following = start_of(stages, by_name[following])
    return ancestors
