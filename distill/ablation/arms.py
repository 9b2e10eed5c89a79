"""Ready arms of an ablation: each is a recipe's values with one thing changed.

An arm is found by its name, such as `answers_only`, `teacher_NAME` or `traces_4`. Trains nothing
(distill/ablation/runner.py).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from distill.ablation import methods
from distill.ablation.drafts import Arm, Budget, Draft, Impossible, number, part_of
from distill.artifacts.manifest import flatten
from distill.errors import RecipeError
from distill.extensions import ARMS, FAILURES, call, call_fault, describe, load
from distill.recipe.loading import derived_recipe, given_values, put
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import EQUAL_SECONDS, REFERENCE
from distill.recipe.sections.eval import BASE
from distill.recipe.sections.stages import Stage, is_traces, lineage
from distill.word_tables import counted

STUDENT = "student"
"""Name of the measured student in the run of each arm; as all have the same, equal students are asked once."""
REPLAYED_SHARE = 0.2
TRACES = (1, 2, 4, 8)


def stage_under_study(recipe: Recipe) -> str:
    """The stage that arms change. Raises RecipeError for a recipe without a stage that learns rationales."""
    names, chosen = [stage.name for stage in recipe.stages], recipe.ablate.stage
    if chosen is not None and chosen not in names:
        raise RecipeError(f"{recipe.path}: ablate.stage = {chosen!r}; stages: {', '.join(names)}")
    able = [
        each.name for each in recipe.stages if is_traces(each) and each.target == "rationale" and not each.rollouts
    ]
    if chosen is None and not able:
        raise RecipeError(f'{recipe.path}: no [[stages]] block learns rationales (data = "traces"); nothing to study')
    chosen = chosen or able[-1]
    if any(each.rollouts for each in lineage(recipe.stages, chosen)):
        raise RecipeError(f"{recipe.path}: ablate.stage = {chosen!r}: arms make no rollouts; name an earlier stage")
    return chosen


def untimed(name: str) -> str:
    """The name of the arm that another one is made from; of one at equal seconds, that without the limit."""
    return name.removesuffix(EQUAL_SECONDS)


def arm(recipe: Recipe, name: str, *, seed: int, budget: Budget | None = None) -> Arm:
    """The arm of that name with its training seed. Without the reference's `budget` steps are the recipe's own.

    Raises Impossible with the reason where the recipe cannot have it, RecipeError for an unknown name.
    """
    if name == untimed(name):
        return _arm(recipe, name, seed, budget, 1.0)
    if untimed(name) in ("untouched", "before", REFERENCE):
        raise Impossible(f"{name}: {untimed(name)} trains nothing that could take as long as {REFERENCE}")
    share = 1.0 if budget is None else budget.share
    made = _arm(recipe, untimed(name), seed, budget, share)
    return replace(made, about=f"{made.about}; in the seconds of {REFERENCE}")


def _arm(recipe: Recipe, name: str, seed: int, budget: Budget | None, share: float) -> Arm:
    """An arm that trains a share of its length."""
    studied = stage_under_study(recipe)
    values = given_values(recipe, without=("ablate", "rounds"))
    stage_names = {stage.name for stage in lineage(recipe.stages, studied)}
    values["stages"] = [stage for stage in values["stages"] if stage["name"] in stage_names]
    draft = Draft(recipe=recipe, values=values, stage=studied, budget=budget)
    measured = studied
    if name in recipe.ablate.own:
        own = recipe.ablate.own[name]
        with _said_of(f"ablate.own.{name}.set"):
            for key, value in own.set.items():
                put(values, key, value)
        changed = [_changed_by(own.change, recipe, values, name)] if own.change is not None else []
        about = own.about or ", ".join([*(f"{key} = {value}" for key, value in own.set.items()), *changed])
    elif name in ("untouched", "before"):
        measured, about = _unchanged(draft, name)
        at = next((index for index, stage in enumerate(values["stages"]) if stage["name"] == measured), -1)
        values["stages"] = values["stages"][: at + 1]
    else:
        about = _change(name)(draft)
        measured = values["stages"][-1]["name"]
    if measured == studied and name != REFERENCE:
        draft.settle_length()
    if share != 1:
        at = values["stages"].index(draft.studied)
        values["stages"][at:] = [part_of(stage, share) for stage in values["stages"][at:]]
    values["seed"] = seed
    values["eval"] = {**values.get("eval", {}), "arms": {STUDENT: measured}, "students": {}, "gallery": 0}
    made = derived_recipe(recipe, values, f"arm {name}")
    return Arm(about=about, recipe=made, stage=measured, rounds=draft.rounds)


@contextmanager
def _said_of(where: str) -> Iterator[None]:
    """Say where a key stands that no recipe has; `put` speaks of `--set`."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{where}: {str(error).removeprefix('--set ')}; correct it") from error


def _changed_by(value: str, recipe: Recipe, values: dict[str, Any], name: str) -> str:
    """Let user code change a recipe's values; returns its description of the change. Raises RecipeError."""

    def lacking(loaded: Any) -> str:
        if not callable(loaded):
            return f"an arm is a function of a recipe's values and the recipe, this is {type(loaded).__name__}"
        return call_fault(loaded, "values", "recipe")

    key = f"ablate.own.{name}.change"
    change = load(ARMS, value, key, recipe.path.parent, lacking).loaded
    try:
        with _said_of(f"{key} = {value!r}"):
            about = call(change, values, recipe)
    except RecipeError:
        raise
    except FAILURES as error:
        raise RecipeError(f"{key} = {value!r} failed: {describe(error)}; correct the function") from error
    if not isinstance(about, str):
        raise RecipeError(
            f"{key} = {value!r} returned {about!r:.60}; it must return a text that describes the change"
        )
    return about


def needed(name: str) -> str | None:
    """The arm that must be finished with the same seed before this one: its length comes from there."""
    if name == REFERENCE:
        return None
    return REFERENCE if name == untimed(name) else untimed(name)


def changes(recipe: Recipe, changed: Recipe) -> dict[str, Any]:
    """The values of an arm that differ from the recipe's, by dotted key; seed and evaluation aside."""
    left_out = {"seed", "eval", "ablate"}
    added = {stage.name for stage in changed.stages} - {stage.name for stage in recipe.stages}
    before, after = (
        flatten({**each.model_dump(mode="json", exclude=left_out), "stages": _by_name(each.stages, added)})
        for each in (recipe, changed)
    )
    different = {key: value for key, value in after.items() if before.get(key, _ABSENT) != value}
    different.pop("stages", None)  # an arm without any has nothing to say of them
    return different


_ABSENT = object()


def _by_name(stages: Sequence[Stage], added: Collection[str]) -> dict[str, Any]:
    """The values of stages; of those that an arm adds only the given ones."""
    return {stage.name: stage.model_dump(mode="json", exclude_unset=stage.name in added) for stage in stages}


def possible(recipe: Recipe) -> tuple[list[str], dict[str, str]]:
    """Names of the arms that this recipe can have, and why it cannot have the other ready ones.

    Raises RecipeError for an arm of the recipe's own that cannot be made: its user waits for it.
    """
    result, skipped = [], {}
    for name in _names(recipe):
        try:
            arm(recipe, name, seed=recipe.seed)
        except RecipeError as error:
            if name in recipe.ablate.own:
                raise
            skipped[name] = str(error)
        else:
            result.append(name)
    return result, skipped


def _names(recipe: Recipe) -> Iterator[str]:
    yield from (*_ready(), *recipe.ablate.own)
    yield from (f"teacher_{teacher.name}" for teacher in recipe.teachers)
    yield from (f"traces_{count}" for count in TRACES)
    yield from (f"without_{stage.name}" for stage in lineage(recipe.stages, stage_under_study(recipe))[:-1])


def _ready() -> tuple[str, ...]:
    """Arms of every recipe whose names have no part to fill in, the reference first."""
    return tuple(dict.fromkeys((REFERENCE, "untouched", "before", *_PLAIN)))


_Change = Callable[[Draft], str]


def _change(name: str) -> _Change:
    if name in _PLAIN:
        return _PLAIN[name]
    kind, _, rest = name.partition("_")
    if kind in _NAMED and rest:
        return lambda draft: _NAMED[kind](draft, rest)
    names = [*_ready(), *(f"{each}_…" for each in _NAMED)]
    raise RecipeError(
        f"ablate: there is no arm {name!r}; built-in arms: {', '.join(names)}; or define [ablate.own.{name}]"
    )


def _unchanged(draft: Draft, name: str) -> tuple[str, str]:
    if name == "untouched":
        return BASE, "the student before any training"
    before = draft.before()
    if before is None:
        raise Impossible(f"before: {draft.stage} is the first stage; see untouched")
    return before, f"the student of {before}, before it learned to reason"


def _answers_only(draft: Draft) -> str:
    draft.studied["target"] = "answer"
    for key in ("distill", "no_think", "visual"):
        draft.studied.pop(key, None)
    return "the same questions and steps, the answer alone as target"


def _traces_of(name: str, about: str) -> _Change:
    def change(draft: Draft) -> str:
        if not is_traces(draft.model):
            raise Impossible(f"{name}: {draft.stage} does not learn from traces")
        draft.studied["data"] = f"traces:{name}"
        return about

    return change


def _ordered(order: list[str], about: str) -> _Change:
    def change(draft: Draft) -> str:
        select = draft.values.setdefault("filter", {}).setdefault("select", {})
        select["order"] = order
        select.setdefault("per_question", 1)
        return about

    return change


def _merged(draft: Draft) -> str:
    """One stage over the data of all: as many rows, and of each source the reference's share of the tokens.

    So it sees as many tokens of traces as the reference, with any replay and steps of any size.
    """
    if len(draft.line) < 2:
        raise Impossible("merged: there is only one stage")
    if any(stage.data not in draft.recipe.data for stage in draft.line[:-1]):
        raise Impossible("merged: an earlier stage learns from traces too, which cannot be replayed")
    studied = draft.studied
    studied["train"] = sorted({part for stage in draft.line for part in stage.train}, reverse=True)
    studied.pop("start", None)
    if draft.budget is not None:
        studied["replay"] = _merged_shares(draft.line, draft.budget.tokens)
        studied["max_steps"] = _merged_steps(draft.line, draft.budget)
    draft.values["stages"] = [studied]
    names = ", ".join(stage.name for stage in draft.line)
    return f"{names} at once: as many tokens of traces and of every other source, everything trained"


def _merged_shares(line: Sequence[Stage], tokens: Mapping[str, int]) -> dict[str, float]:
    """The share of every source, except the data of the last stage, in the tokens of these stages."""
    shares: dict[str, float] = {}
    for stage in line:
        of_stage = {stage.data: 1 - sum(stage.replay.values()), **stage.replay}
        for source, share in of_stage.items():
            shares[source] = shares.get(source, 0.0) + share * tokens[stage.name] / sum(tokens.values())
    shares.pop(line[-1].data)
    return shares


def _merged_steps(line: Sequence[Stage], budget: Budget) -> int:
    """Steps of the last stage's size that hold as many rows, or tokens, as the steps of all stages."""
    if batch_tokens := line[-1].batch_tokens:
        return max(1, round(sum(budget.tokens.values()) / batch_tokens))
    if any(stage.batch_tokens for stage in line):  # rows of these steps are not known
        return sum(budget.steps.values())
    return max(1, round(sum(budget.steps[stage.name] * stage.batch_size for stage in line) / line[-1].batch_size))


def _projector(draft: Draft) -> str:
    train = list(draft.model.train)
    if "projector" in train:
        draft.studied["train"] = [part for part in train if part != "projector"]
        return f"the projector frozen in {draft.stage}"
    draft.studied["train"] = ["projector", *train]
    return f"the projector trained in {draft.stage} too"


def _replay(draft: Draft) -> str:
    if draft.model.replay:
        draft.studied.pop("replay")
        return "no earlier data replayed"
    before = draft.before()
    sources = [stage.data for stage in draft.recipe.stages if stage.name == before]
    if not sources or sources[0] not in draft.recipe.data:
        raise Impossible(f"replay: {draft.stage} follows no stage whose data could be replayed")
    draft.studied["replay"] = {sources[0]: REPLAYED_SHARE}
    return f"{100 * REPLAYED_SHARE:.0f} % of the tokens from {sources[0]}"


def _logprobs(draft: Draft) -> str:
    if draft.model.distill is not None:
        draft.studied.pop("distill")
        return "tokens alone, the teachers' stored log-probabilities unused"
    if not any(teacher.logprobs for teacher in draft.recipe.teachers):
        raise Impossible("logprobs: no teacher stores log-probabilities; set logprobs under [[teachers]]")
    draft.studied["distill"] = {}
    return "the teachers' stored log-probabilities learned too"


def _teacher(draft: Draft, name: str) -> str:
    names = [teacher.name for teacher in draft.recipe.teachers]
    if name not in names:
        raise Impossible(f"teacher_{name}: the recipe has no such teacher; its teachers: {', '.join(names)}")
    if len(names) == 1:
        raise Impossible(f"teacher_{name}: it is the only teacher")
    rules = [rule.model_dump(mode="json") for rule in draft.recipe.filter.rules]
    only = {"name": "other_teacher", "drop": f"teacher <> '{name}'"}
    draft.values.setdefault("filter", {})["rules"] = [*rules, only]
    draft.studied.pop("teachers", None)
    return f"traces of {name} alone"


def _traces(draft: Draft, count: str) -> str:
    per_question = number(f"traces_{count}", count)
    max_per_question = sum(map(draft.recipe.most_traces, draft.recipe.teachers))
    if per_question > max_per_question:
        raise Impossible(f"traces_{count}: the teachers are asked for {max_per_question} a question at most")
    draft.values.setdefault("filter", {}).setdefault("select", {})["per_question"] = per_question
    return f"up to {per_question} trace{'s' if per_question > 1 else ''} a question"


def _size(draft: Draft, count: str) -> str:
    limit = number(f"size_{count}", count)
    draft.values.setdefault("filter", {}).setdefault("select", {})["limit"] = limit
    return f"{counted(limit, 'trace')} in all"


def _without(draft: Draft, name: str) -> str:
    if name not in [stage.name for stage in draft.line[:-1]]:
        raise Impossible(f"without_{name}: {draft.stage} does not descend from a stage of that name")
    kept = [stage for stage in draft.values["stages"] if stage["name"] != name]
    # One line of stages is left, so each starts from the one before it.
    for stage in kept:
        stage.pop("start", None)
    draft.values["stages"] = kept
    return f"the {name} stage left out"


def _visual(draft: Draft, percent: str) -> str:
    strength = number(f"visual_{percent}", percent) / 100
    if not is_traces(draft.model):
        raise Impossible(f"visual_{percent}: {draft.stage} does not learn from traces")
    draft.studied["visual"] = {**draft.studied.get("visual", {}), "strength": strength}
    return f"more weight for tokens that need the image (strength {strength:g})"


_PLAIN: dict[str, _Change] = {
    REFERENCE: lambda draft: "the recipe as it stands",
    "answers_only": _answers_only,
    "unfiltered": _traces_of("unfiltered", "every complete trace, right or wrong"),
    "random": _traces_of("random", "traces at random, as many tokens as the dataset"),
    "short": _ordered(["rationale_tokens"], "the shortest rationale of each question"),
    "long": _ordered(["-rationale_tokens"], "the longest rationale of each question"),
    "mixed": _ordered([], "one rationale of each question, of any length"),
    "merged": _merged,
    "projector": _projector,
    "replay": _replay,
    "logprobs": _logprobs,
}
_NAMED: dict[str, Callable[[Draft, str], str]] = {
    "teacher": _teacher,
    "traces": _traces,
    "size": _size,
    "without": _without,
    "visual": _visual,
    "rollouts": methods.rollouts,
    "preference": methods.preference,
    "rounds": methods.rounds,
}
