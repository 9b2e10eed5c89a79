"""What `distill plan --json` prints: the plan of a training as plain values. The text: distill/planning/plan.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.machine import hardware
from distill.machine.hardware import Gpu
from distill.planning.plan import chosen_gpu
from distill.planning.stage_plans import StagePlan, plans
from distill.planning.stage_times import on_card
from distill.recipe.recipe import Recipe


def plan_fields(recipe: Recipe, run: Path, *, gpu: str | None = None, price: float | None = None) -> dict[str, Any]:
    """The plan for one card by name, the card that is here, or a few usual ones. Raises as `training_plan` does.

    Null means "not known". Hours are the fewest possible and the expected ones; costs are hours times `price`.
    """
    chosen = chosen_gpu(recipe, gpu)
    _, stage_plans = plans(recipe, run)
    cards = [chosen] if chosen else [hardware.find_gpu(name) for name in hardware.USUAL]
    parts = {row.part: row.parameters for row in stage_plans[0].parts if row.part != "adapters"}
    return {
        "recipe": recipe.name,
        "student": {"parameters": sum(parts.values()), "parts": parts, "dtype": stage_plans[0].dtype},
        "stages": [_stage(planned) for planned in stage_plans],
        "cards": [_card(stage_plans, card, price) for card in cards],
        "card_is_chosen": chosen is not None,
    }


def _stage(planned: StagePlan) -> dict[str, Any]:
    load, scheduled = planned.load, planned.schedule
    return {
        "stage": planned.stage.name,
        "trained_parameters": sum(row.trainable for row in planned.parts),
        "rows": load.rows,
        "tokens_per_row": load.own_tokens,
        "estimated_from": load.basis,
        "is_upper_bound": load.is_bound,
        "steps": scheduled.steps if scheduled else None,
        "tokens": scheduled.tokens if scheduled else None,
        "flops": planned.flops if scheduled else None,
        "memory_bytes": planned.bytes(checkpointing=False),
        "memory_bytes_checkpointed": planned.bytes(checkpointing=True),
        "checkpoint_bytes": planned.memory.checkpoint,
        "measured_tokens_per_s": planned.tokens_per_s,
    }


def _card(stage_plans: Sequence[StagePlan], card: Gpu, price: float | None) -> dict[str, Any]:
    stages = [
        {
            "stage": planned.stage.name,
            "fits": gpu_fit.fits,
            "checkpointing": gpu_fit.checkpointing,
            "most_micro_batch_tokens": gpu_fit.most_tokens,
            "hours": list(time.hours) if time else None,
            "cost": [each * price for each in time.hours] if time and price is not None else None,
        }
        for planned, gpu_fit, time in on_card(stage_plans, card)
    ]
    return {"name": card.name, "memory_gib": card.memory_gib, "stages": stages}
