"""Arms that spend a part of the training on another method: scored rollouts, preference, rounds.

The stage under study keeps the rest, so an arm is as long as the reference: in tokens where the stage has
`max_tokens`, else in steps.
"""

from typing import Any

from distill.ablation.drafts import Draft, Impossible, number, part_of
from distill.errors import RecipeError
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.filter import PAIRS
from distill.recipe.sections.rollouts import ROLLOUTS
from distill.recipe.sections.stages import TRACES, Stage, learns_rationales
from distill.recipe.sections.teachers import Teacher

_OF_TRACES = ("teachers", "no_think", "distill", "visual", "target", "limit", "validation")
"""Settings of a stage that say nothing about a stage of rollouts or pairs."""
_RATE = 0.1
"""Learning rate of preference, as a share of that of the stage under study."""


def rollouts(draft: Draft, percent: str) -> str:
    """The last part of the stage under study learns a teacher's distributions over the student's own replies."""
    share = _share(f"rollouts_{percent}", percent)
    _require_rationales(draft, f"rollouts_{percent}")
    teacher = _scorer(draft, f"rollouts_{percent}")
    last = _append(draft, ROLLOUTS, share)
    last["rollouts"] = {"teacher": teacher, "max_new_tokens": draft.recipe.eval.max_new_tokens}
    return f"the last {100 * share:.0f} % of {draft.stage} learns the student's own replies, as {teacher} scores them"


def preference(draft: Draft, percent: str) -> str:
    """The last part of the stage under study learns from pairs of a right and a wrong trace."""
    share = _share(f"preference_{percent}", percent)
    _require_rationales(draft, f"preference_{percent}")
    last = _append(draft, PAIRS, share)
    for key in ("replay", "too_long"):
        last.pop(key, None)
    last["preference"] = {}
    # As usual with preference; at the rate of the stage itself students forget what they have learned.
    last["learning_rate"] = _RATE * last.get("learning_rate", Stage.model_fields["learning_rate"].default)
    return f"the last {100 * share:.0f} % of {draft.stage} learns to prefer right traces to wrong ones"


def rounds(draft: Draft, count: str) -> str:
    """A shorter round 0, then rounds; `[rounds]` of the recipe says how, and no verdict ends them."""
    made = number(f"rounds_{count}", count)
    _require_rationales(draft, f"rounds_{count}")
    settings, recipe = draft.recipe.rounds, draft.recipe
    if not recipe.teachers:
        raise Impossible(f"rounds_{count}: the recipe has no [[teachers]], and rounds ask them")
    if settings.questions not in recipe.data or settings.questions == recipe.eval.data:
        raise Impossible(
            f"rounds_{count}: rounds.questions = {settings.questions!r} names no source beside the test set; "
            "name the source whose questions the student answers"
        )
    draft.settle_length()
    share = 1 / (1 + made * settings.steps_share)
    _replace(draft, part_of(draft.studied, share))
    given = recipe.rounds.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    draft.values["rounds"] = {**given, "count": 0, "stage": draft.stage}
    draft.rounds = made
    source = "" if settings.questions == ASKED else f" of [data.{settings.questions}]"
    return f"the first {100 * share:.0f} % of {draft.stage}, then {made} rounds on the student's failures{source}"


def _share(name: str, percent: str) -> float:
    share = number(name, percent) / 100
    if share >= 1:
        raise RecipeError(f"ablate: {name} leaves nothing of the stage under study; name a share below 100 percent")
    return share


def _require_rationales(draft: Draft, name: str) -> None:
    if not learns_rationales(draft.model):
        raise Impossible(f"{name}: {draft.stage} does not learn rationales of traces")


def _append(draft: Draft, name: str, share: float) -> dict[str, Any]:
    """Split the stage under study; its last part is the values of a new stage over `traces:NAME`."""
    draft.settle_length()
    studied = draft.studied
    if name in [stage["name"] for stage in draft.values["stages"]]:
        raise Impossible(f"{name}: the recipe has a stage of that name; give it another")
    last = {key: value for key, value in part_of(studied, share).items() if key not in _OF_TRACES}
    last |= {"name": name, "data": f"{TRACES}:{name}", "start": draft.stage}
    _replace(draft, part_of(studied, 1 - share))
    draft.values["stages"].append(last)
    return last


def _replace(draft: Draft, values: dict[str, Any]) -> None:
    stages = draft.values["stages"]
    stages[stages.index(draft.studied)] = values


def _scorer(draft: Draft, name: str) -> str:
    """The teacher that scores the replies: one of all domains first, and only one that the student learns from."""
    able = [teacher for teacher in draft.recipe.teachers if _can_score(teacher)]
    learned = [each for each in able if not draft.model.teachers or each.name in draft.model.teachers]
    if not learned:
        raise Impossible(f"{name}: no teacher that {draft.stage} learns from can score texts (embedded, vllm)")
    return next((each for each in learned if not each.domains), learned[0]).name


def _can_score(teacher: Teacher) -> bool:
    sees_more = teacher.hinted or teacher.after or teacher.cues is not None
    return teacher.direct.capabilities.scores_texts and not sees_more
