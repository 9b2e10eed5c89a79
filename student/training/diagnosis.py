"""What is wrong or good about a finished training stage: rules that turn its settings and log into findings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.json_lines import requiring
from distill.artifacts.layout import METRICS, MODEL, VALIDATION
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import TRACES, Stage, is_traces, learns_rationales, lineage
from distill.recipe.usual_values import UnusualValue, unusual_values
from distill.reports import unusual_settings
from distill.reports.findings import Certainty, Finding, is_explained, share
from distill.word_tables import counted
from student.models import checkpoint_faults
from student.models.checkpoint_faults import CheckpointFault

FEW_STEPS: Final = 20
"""Fewer steps than this teach no student a format."""
STILL_FALLING: Final = 0.05
"""Share by which the loss fell from the third quarter of a stage to the last."""
ROSE: Final = 1.15
UNCHANGED: Final = 0.85
"""The loss at the end over the loss at the start: above, the weights are worse than before; below, it learned."""
UNFORMED: Final = 0.3
"""Nats a token of think tags and the end of a turn: they are always the same, so a trained student has near 0."""
LEARNED: Final = 0.85
"""Share of tokens for which the right one is the likeliest: from here on a loss may stand still."""
OVERFITTED: Final = 1.1
LEFT_OUT: Final = 0.1
INFLATED: Final = 1.02
"""Mean length of the right replies over that of the wrong ones: above, the student may learn to write more."""
FALLEN: Final = 0.1
"""Share of the margin by which the reward of right replies falls: a smaller fall may be chance."""
EPOCHS: Final = 20
"""A student that has seen each row more often than this has memorised the rows."""
STOPPED: Final = 0.5
"""A stage that early stopping ended before this share of its steps and of an epoch has not learned its rows."""
GUESSED: Final = 4.5
KNOWS_NOTHING: Final = 0.1
"""Loss and share of right tokens at the first step of a student that guesses."""
_DROPPED: Final = "dropped_"
_MOVED: Final = (1e-3, 30)
"""Usual range of the learning rate times the number of steps: from 50 steps at 2e-5 to 10,000 at 3e-3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """The figures that the rules read."""

    recipe: Recipe
    stage: Stage
    counts: Mapping[str, int]
    """Counts of the stage's manifest."""
    log: Sequence[Mapping[str, Any]]
    measured: Sequence[Mapping[str, Any]]
    """Measurements while it trained."""
    checkpoint: Sequence[CheckpointFault] = ()
    """Faults of the student's checkpoint."""


def read_facts(recipe: Recipe, stage: Stage, folder: Path, counts: Mapping[str, int]) -> StageFacts:
    log, measured = (list(recovered(folder / name, requiring("step"))) for name in (METRICS, VALIDATION))
    # The tower is frozen, so the trained student has the tower of its start.
    faults = list(checkpoint_faults.find(folder / MODEL)) if (folder / MODEL).is_dir() else []
    return StageFacts(recipe=recipe, stage=stage, counts=counts, log=log, measured=measured, checkpoint=faults)


def diagnose(facts: StageFacts) -> list[Finding]:
    """All findings: what settings make impossible, then what the loss shows."""
    of_loss = _loss if facts.stage.preference is None else _preference
    learning = [*_stopped(facts)] or [*of_loss(facts)]
    faults = [
        *_settings(facts),
        *_checkpoint(facts),
        *_random_weights(facts),
        *_left_out(facts),
        *_passes(facts),
        *learning,
        *_overfitting(facts),
    ]
    unusual = [*_unusual(facts, is_bad=bool(faults) and not is_explained(faults))]
    if any(finding.certainty == "likely" for finding in unusual):
        # What the loss shows may follow from the setting.
        faults = [replace(fault, certainty="likely") if fault in learning else fault for fault in faults]
    faults = [*unusual, *faults]
    if faults or not facts.log:
        return faults
    if facts.stage.preference is not None:
        return [_preferred(facts.log)]
    first, _, mean = _quarters(facts.log)
    last, change = facts.log[-1], "fell" if mean < first else "went"
    return [
        Finding(
            name="learned",
            kind="good",
            problem=f"The loss {change} from {first:.2f} to {mean:.2f} in {counted(last['step'], 'step')} "
            f"({last['epoch']:.1f} epochs), and the most likely token is right in {100 * last['token_accuracy']:.0f} "
            "%",
        )
    ]


def _learns_traces(stage: Stage) -> bool:
    """Whether a stage learns from what teachers wrote or scored."""
    return is_traces(stage) or stage.preference is not None or stage.rollouts is not None


def _key(facts: StageFacts, name: str) -> str:
    return f"stages.{facts.stage.name}.{name}"


def _length_key(stage: Stage) -> str:
    """The key that says how long a stage is."""
    return next((name for name in ("max_tokens", "max_steps") if getattr(stage, name)), "epochs")


def _settings(facts: StageFacts) -> Iterator[Finding]:
    """Settings under which no data can teach the student."""
    student, stage = facts.recipe.student, facts.stage
    before = lineage(facts.recipe.stages, stage.name)
    if student is not None and student.vision and not any("projector" in each.train for each in before):
        yield Finding(
            name="projector_frozen",
            problem="The projector between tower and language model has random weights, and no stage trains it: "
            "the student cannot see",
            change=f'{_key(facts, "train")}: add "projector", or start from a stage that trains it',
        )
    if learns_rationales(stage) and not any("language" in each.train for each in before):
        yield Finding(
            name="language_frozen",
            problem="No stage trains the language model, which writes the rationales: the student does not learn to "
            "reason",
            change=f'{_key(facts, "train")}: add "language"',
        )
    if facts.recipe.teachers and not any(map(_learns_traces, facts.recipe.stages)):
        yield Finding(
            name="no_traces_learned",
            problem="The recipe has teachers, and no stage learns from their traces",
            change=f'{_key(facts, "data")}, now "{stage.data}": "{TRACES}"',
        )


def _unusual(facts: StageFacts, *, is_bad: bool) -> Iterator[Finding]:
    """Settings out of their usual range."""
    before = lineage(facts.recipe.stages, facts.stage.name)
    parts = (f"stages.{stage.name}" for stage in before)
    settings = unusual_values(facts.recipe, "student", f"data.{facts.stage.data}", *parts)
    moved = _updates(facts) if is_bad else ()
    yield from unusual_settings.findings_of([*settings, *moved], is_bad=is_bad)


def _updates(facts: StageFacts) -> Iterator[UnusualValue]:
    """How far all steps together can move the weights; a stage of few steps has its own finding."""
    if facts.log and facts.log[-1]["step"] > FEW_STEPS:
        moved = UnusualValue(
            path=_key(facts, "learning_rate"),
            name="stages.*.learning_rate",
            value=facts.stage.learning_rate * facts.log[-1]["step"],
            usual=_MOVED,
            about=f"The learning rate, {facts.stage.learning_rate:g}, times the number of steps, "
            f"{facts.log[-1]['step']:,}",
        )
        if moved.times > 1:
            yield moved


def _checkpoint(facts: StageFacts) -> Iterator[Finding]:
    for fault in facts.checkpoint:
        yield Finding(
            name=fault.name,
            problem=fault.problem,
            change=f"[student]: {fault.change}",
            certainty="likely",
        )


def _random_weights(facts: StageFacts) -> Iterator[Finding]:
    """A student whose language model has random weights at its first step."""
    if not facts.log or facts.stage.preference is not None:
        return
    first = facts.log[0]
    if first["loss"] is not None and first["loss"] > GUESSED and first["token_accuracy"] < KNOWS_NOTHING:
        yield Finding(
            name="random_weights",
            problem=f"The stage starts at a loss of {first['loss']:.2f}, with the right token likeliest in "
            f"{100 * first['token_accuracy']:.0f} %: the language model has random weights or belongs to another "
            "tokenizer",
            certainty="likely",
            change="[student]: a checkpoint whose language model is trained; `distill check` compares its weights",
        )


def _left_out(facts: StageFacts) -> Iterator[Finding]:
    dropped = {name.removeprefix(_DROPPED): n for name, n in facts.counts.items() if name.startswith(_DROPPED)}
    rows = facts.counts.get("rows", 0) + facts.counts.get("held_out", 0)
    if (left_out := sum(dropped.values())) > (rows + left_out) * LEFT_OUT:
        reasons = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(dropped.items()))
        yield Finding(
            name="rows_left_out",
            problem=f"The stage cannot use {share(left_out, rows + left_out, 'rows')}: {reasons}",
            change=f"{_key(facts, 'max_length')}, now {counted(facts.stage.max_length, 'token')}: raise it"
            if 2 * dropped.get("too_long", 0) > left_out
            else "",
        )


def _passes(facts: StageFacts) -> Iterator[Finding]:
    """Own rows that are seen too often, or hardly at all."""
    epochs = facts.log[-1]["epoch"] if facts.log else 0.0
    own = facts.counts.get("rows", 0) - facts.counts.get("replayed", 0)
    if epochs > EPOCHS:
        limit = facts.stage.limit
        key = _key(facts, "limit" if limit else _length_key(facts.stage))
        yield Finding(
            name="few_rows",
            problem=f"The stage sees each of its {counted(own, 'own row')} {epochs:.0f} times: it memorises them",
            certainty="likely",
            change=f"{key}, now {limit:,}: leave it out" if limit else f"{key}: train shorter, or on more rows",
        )


def _stopped(facts: StageFacts) -> Iterator[Finding]:
    """Early stopping that came too early."""
    validation, last = facts.stage.validation, facts.log[-1] if facts.log else {}
    if validation is None or validation.patience is None or not last:
        return
    if last["step"] < STOPPED * last["steps"] and last["epoch"] < STOPPED:
        yield Finding(
            name="stopped_early",
            problem=f"Early stopping ended the stage after {last['step']:,} of {counted(last['steps'], 'step')}, "
            f"{last['epoch']:.2f} epochs",
            certainty="likely",
            change=f"{_key(facts, 'validation.patience')}, now {validation.patience}: raise it, and measure more "
            "questions, like those that the stage learns, less often",
        )


def _quarters(log: Sequence[Mapping[str, Any]]) -> list[float]:
    """The loss of the first log line (a high learning rate raises the next ones), of the third quarter, and of the
    last quarter."""
    losses = [line["loss"] if line["loss"] is not None else math.nan for line in log]
    quarter = max(1, len(losses) // 4)
    parts = losses[:1], losses[-2 * quarter : -quarter] or losses, losses[-quarter:]
    return [sum(part) / len(part) for part in parts]


def _loss(facts: StageFacts) -> Iterator[Finding]:
    """A loss that rose, stayed the same, or still fell at the end of the stage."""
    if not facts.log:
        return
    first, third, last = _quarters(facts.log)
    newest = facts.log[-1]
    worst = max((line["loss"] for line in facts.log if line["loss"] is not None), default=math.nan)
    steps, epoch = newest["step"], newest["epoch"]
    if not math.isfinite(first + last):
        lost = next(line["step"] for line in facts.log if line["loss"] is None or not math.isfinite(line["loss"]))
        yield _rate(
            facts, "high", f"The loss is not a number at step {lost:,}: the weights are destroyed", 0.1, "certain"
        )
        return
    if last > ROSE * first or (worst > 2 * first and last > first * UNCHANGED):
        yield _rate(
            facts,
            "high",
            f"The loss rose from {first:.2f} to {worst:.2f}, and ended at {last:.2f}: the training "
            "destroys what the student had learned",
            0.1,
            "certain" if worst > 2 * first else "likely",
        )
        return
    fell = "hardly fell" if last < first else "did not fall"
    learning = last > first * UNCHANGED and newest["token_accuracy"] < LEARNED
    if steps < FEW_STEPS or (epoch < 1 and last < third * (1 - STILL_FALLING) and newest["token_accuracy"] < LEARNED):
        # Epochs are those of the stage's own rows; replayed rows come beside them.
        replayed = facts.counts.get("replayed", 0)
        rows = f"{facts.counts.get('rows', 0) - replayed:,} {'own ' if replayed else ''}rows"
        # Steps differ in their rows, and so does their loss, also of a student that learns nothing.
        course = "still falls" if last < first * UNCHANGED else "has hardly changed"
        yield Finding(
            name="few_steps",
            problem=f"The stage makes {counted(steps, 'step')}, {epoch:.2f} epochs of its {rows}, and its "
            f"loss {course} "
            f"({first:.2f} to {last:.2f})",
            certainty="certain" if steps < FEW_STEPS else "likely",
            change=f"{_key(facts, _length_key(facts.stage))}: train longer",
        )
    elif learning:
        yield _rate(
            facts,
            "low",
            f"The loss {fell} in {counted(steps, 'step')} ({first:.2f} to {last:.2f}), and the "
            f"most likely token is right in only {100 * newest['token_accuracy']:.0f} %",
            10,
        )
    else:
        yield from _form(facts)


def _form(facts: StageFacts) -> Iterator[Finding]:
    """Think tags and the end of a turn, which are the same in every row, are not learned."""
    losses = [loss for line in facts.log if (loss := line.get("losses", {}).get("format")) is not None]
    if not losses or not facts.stage.loss.format or losses[-1] < UNFORMED:
        return
    problem = (
        f"The think tags and the end of a turn still cost {losses[-1]:.2f} nats a token ({losses[0]:.2f} at first)"
    )
    if losses[-1] > losses[0] * UNCHANGED:
        yield _rate(facts, "low", f"{problem}: the student did not learn the form of a reply", 10)
    else:
        yield Finding(
            name="chat_template",
            problem=f"{problem}, although they are the same in every row: their text is no token of the tokenizer, "
            "or the stage is too short",
            certainty="likely",
            change="[student] model: its chat_template must end a turn with the end token of its tokenizer",
        )


def _rate(facts: StageFacts, name: str, problem: str, factor: float, certainty: Certainty = "likely") -> Finding:
    """A finding whose remedy is another learning rate: the one of the stage, multiplied with `factor`."""
    rate = facts.stage.learning_rate
    change = f"{_key(facts, 'learning_rate')}, now {rate:g}: try {rate * factor:g}"
    return Finding(name=f"learning_rate_{name}", problem=problem, certainty=certainty, change=change)


def _preference(facts: StageFacts) -> Iterator[Finding]:
    """Pairs that teach length, a margin that did not grow, right replies that became less likely."""
    right, wrong = (facts.counts.get(name, 0) for name in ("right_tokens", "wrong_tokens"))
    if right > INFLATED * wrong:
        yield Finding(
            name="length_inflation",
            problem=f"The right replies of the pairs are {100 * (right / max(1, wrong) - 1):.0f} % longer than the "
            f"wrong ones ({right:,} and {counted(wrong, 'token')}): the student may learn to write more instead of "
            "right",
            certainty="likely",
            change="teachers whose right and wrong traces are equally long, or a larger stages.*.preference.sft",
        )
    if not facts.log:
        return
    last = facts.log[-1]["extra"]
    if last["reward_margin"] <= 0:
        yield Finding(
            name="margin_collapse",
            problem=f"The right reply is ahead in {100 * last['reward_accuracy']:.0f} % of the pairs, with a mean "
            f"margin of {last['reward_margin']:.3f}: the stage did not learn which is right",
            change=f"{_key(facts, 'learning_rate')}, now {facts.stage.learning_rate:g}: train longer or set another",
        )
    elif last["reward_right"] < -FALLEN * last["reward_margin"]:
        yield Finding(
            name="right_replies_less_likely",
            problem="The right replies became less likely too (mean reward "
            f"{last['reward_right']:.2f}); the wrong ones only fell further",
            change=f"{_key(facts, 'preference.sft')}: raise it, or lower the learning rate",
        )


def _preferred(log: Sequence[Mapping[str, Any]]) -> Finding:
    last = log[-1]["extra"]
    return Finding(
        name="learned",
        kind="good",
        problem=f"The right reply of a pair is ahead in {100 * last['reward_accuracy']:.0f} % of the pairs after "
        f"{counted(log[-1]['step'], 'step')}, with a mean margin of {last['reward_margin']:.2f}",
    )


def _overfitting(facts: StageFacts) -> Iterator[Finding]:
    """The loss of rows kept out rises again."""
    losses = [(line["step"], line["loss"]) for line in facts.measured if line.get("loss") is not None]
    if len(losses) < 3:
        return
    step, best = min(losses, key=lambda pair: pair[1])
    if losses[-1][1] > OVERFITTED * best:
        yield Finding(
            name="overfitting",
            problem=f"The loss of the rows kept out is lowest at step {step:,} ({best:.3f}) and ends at "
            f"{losses[-1][1]:.3f}: the student memorises its rows",
            certainty="likely",
            change=f"{_key(facts, _length_key(facts.stage))}: train less, or add rows; validation.patience ends it "
            "by itself",
        )
