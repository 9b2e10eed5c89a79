"""What one finished arm with one seed left in its run directory: predictions, figures, cost and learning curve."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from distill.ablation.arms import STUDENT
from distill.ablation.costs import learned_ids, measured_folder, training_costs
from distill.ablation.drafts import Arm
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import EVAL_METRICS, METRICS, PREDICTIONS
from distill.artifacts.manifest import Manifest, require
from distill.recipe.sections.eval import BASE
from distill.recipe.sections.stages import is_traces, lineage
from distill.rounds.round_recipes import run_of_round

_CURVE_POINTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm with one seed: its predictions, figures, cost and learning curve."""

    about: str
    changed: Mapping[str, Any]
    folder: Path
    predictions: tuple[Mapping[str, Any], ...]
    """Ordered by sample."""
    figures: Mapping[str, Any]
    cost: Mapping[str, float]
    curve: tuple[tuple[int, float], ...]
    evaluation: str
    """Fingerprint of its evaluation."""


def outcome(planned: Arm, folder: Path, changed: Mapping[str, Any]) -> ArmResult:
    """The figures that a finished arm left in its run directory."""
    measured = measured_folder(planned, folder)
    metrics = orjson.loads((measured / "eval" / EVAL_METRICS).read_bytes())["arms"][STUDENT]
    lines = sorted(read_jsonl(measured / "eval" / PREDICTIONS), key=lambda line: str(line["sample_id"]))
    curve: tuple[tuple[int, float], ...] = ()
    if planned.stage != BASE:
        logs = [(int(log["step"]), float(log["loss"])) for log in _logs(measured / "train" / planned.stage)]
        curve = tuple(logs[:: max(1, len(logs) // _CURVE_POINTS)])
    return ArmResult(
        about=planned.about,
        changed=changed,
        folder=measured,
        predictions=tuple(lines),
        figures=metrics,
        cost=training_costs(planned, folder) | _traces(planned, folder),
        curve=curve,
        evaluation=require(measured, "eval", next_step="run `distill ablate` again").fingerprint,
    )


def _traces(planned: Arm, folder: Path) -> dict[str, float]:
    """How many traces the measured student learned from, and tokens of them (prompt and image included) in training.

    A student may learn traces in several stages, and in rounds: all are added up, a trace of two stages counts once.
    Replies of a student are no traces. An arm that learned from no traces has no such costs.
    """
    if planned.stage not in {stage.name for stage in planned.recipe.stages}:
        return {}
    stages = [
        stage
        for stage in lineage(planned.recipe.stages, planned.stage)
        if is_traces(stage) and stage.rollouts is None
    ]
    learned = [(folder, stage) for stage in stages]
    learned += [(run_of_round(folder, number), stages[-1]) for number in range(1, planned.rounds + 1) if stages]
    costs: Counter[str] = Counter()
    known: set[str] = set()
    for run, stage in learned:
        trained = run / "train" / stage.name
        if (manifest := Manifest.read(trained)) is None:
            continue
        ids = learned_ids(run, stage)
        costs["traces"] += manifest.counts["rows"] - manifest.counts.get("replayed", 0) - len(ids & known)
        known |= ids
        if (logs := _logs(trained)) and (shares := logs[-1]["shares"]):
            replays = sum(share for source, share in shares.items() if source in planned.recipe.data)
            costs["trace_tokens"] += round((1 - replays) * manifest.tokens["trained"])
    return dict(costs)


def _logs(folder: Path) -> list[dict[str, Any]]:
    return list(read_jsonl(folder / METRICS, on_damage=lambda _: None))
