"""What a change of a recipe makes stale: which keys differ, and which traces, signals and stages depend on them.

Reads the two recipes and what their keys say (distill.recipe.base.key). Where a path of a model or of data differs,
what lies there is compared, or what the run noted of it (distill.planning.moved_content).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distill.planning.edited_code import Noted, is_edited
from distill.planning.moved_content import is_moved, noted_content
from distill.recipe.effects import RecipeKey, key_values, path_parts
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import Stage, is_traces, sources_of, start_of
from student.training.noted_fields import decisive, settings_of_stage
from teacher.engines.vllm.vllm_options import server_answer_options

OLD_CODE, EDITED_CODE = "the file as it was", "the file, edited or deleted"
OLD_ROWS, NEW_ROWS = "the content as it was", "other content"
JUDGE, STUDENT, CONTAMINATION = "judge", "student", "contamination"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """A key with other values in the two recipes; None where a recipe does not have it."""

    path: str
    key: RecipeKey
    before: Any
    now: Any
    targets: frozenset[str] = frozenset()
    """The stages, or parts such as traces:TEACHER, signals:FAMILY or train:STAGE, that it makes stale."""
    moved: bool = False
    """The value is a path, and the same content lies there: nothing is stale."""


@dataclass(frozen=True, slots=True)
class Redo:
    """A result that has to be made again, and the changes that cause it."""

    changes: tuple[KeyChange, ...]
    causes: Mapping[str, list[str]] = field(default_factory=dict)
    """Target to the paths of the keys that make it stale, or to the target that it starts from."""

    def parts(self, stage: str) -> list[str]:
        """The stale parts of a stage, such as the teachers of `traces`."""
        return [target.partition(":")[2] for target in self.causes if target.startswith(f"{stage}:")]

    def earlier_names(self, section: str) -> dict[str, str]:
        """The earlier names of the teachers or stages that only have another name now."""
        pattern = re.compile(rf"{section}\..+\.name")
        named = (change for change in self.changes if pattern.fullmatch(change.path))
        return {change.now: change.before for change in named if None not in (change.before, change.now)}


def compare_recipes(before: Recipe, now: Recipe, run: Path | None = None) -> Redo:
    """The results to make again when `run`, made with the recipe `before`, is continued with `now`."""
    changes = tuple(_changes(before, now, run))
    causes: dict[str, list[str]] = defaultdict(list)
    for change in changes:
        for target in sorted(change.targets):
            causes[target].append(change.path)
    _follow(causes, now)
    return Redo(changes, dict(causes))


def _changes(before: Recipe, now: Recipe, run: Path | None) -> Iterator[KeyChange]:
    stages = renamed_stages(before, now)
    names = _renamed_teachers(before, now) | _paths("stages", before.resolved()["stages"], stages)
    old = {names.get(path, path): (key, value) for path, key, value in _values(before, stages)}
    new = {path: (key, value) for path, key, value in _values(now, {})}
    for path in dict.fromkeys([*old, *new]):
        key = (new.get(path) or old[path])[0]
        was, is_now = (entries[path][1] if path in entries else None for entries in (old, new))
        edited = run is not None and was == is_now and is_edited(path, is_now, run)
        noted = noted_content(path, now, is_now, run) if run is not None and was == is_now else Noted()
        if was != is_now or edited or noted.other:
            moved = was != is_now and is_moved(path, (before, was), (now, is_now), run)
            overridden = all(_is_overridden(path, key, entries) for entries in (old, new))
            effects = () if moved or overridden else key.affects
            targets = frozenset(
                target
                for effect in effects
                for target in _targets(effect, path_parts(path, key), before, now)
                if _stage_of(target) not in noted.same and target.partition(":")[0] not in key.spares
            )
            of_code = edited or path.endswith((".format", ".answer_type"))
            same_value = (OLD_CODE, EDITED_CODE) if of_code else (OLD_ROWS, NEW_ROWS)
            named = same_value if was == is_now else (was, is_now)
            yield KeyChange(path=path, key=key, before=named[0], now=named[1], targets=targets, moved=moved)


def _stage_of(target: str) -> str:
    """The stage that makes a result, such as generate for traces:TEACHER."""
    kind = target.partition(":")[0]
    return {"traces": "generate", "engine": "generate", "signals": "filter"}.get(kind, target)


def _is_overridden(path: str, key: RecipeKey, entries: Mapping[str, tuple[RecipeKey, Any]]) -> bool:
    """Whether keys beside a key decide alone in a recipe."""
    beside = (f"{path.rpartition('.')[0]}.{name}" for name in key.overridden_by)
    return any(entries[each][1] is not None for each in beside if each in entries)


def _values(recipe: Recipe, names: Mapping[str, str]) -> Iterator[tuple[str, RecipeKey, Any]]:
    """The keys of a recipe with what they come to: a stage's `start` is the stage that it starts from.

    `names` are other names of stages; an arm has the name that the recipe gives.
    """
    starts = {f"stages.{stage.name}.start": start_of(recipe.stages, stage) for stage in recipe.stages}
    named = starts | {"rounds.stage": recipe.rounds.stage, "ablate.stage": recipe.ablate.stage}
    come_to = {path: names.get(stage, stage) if stage else stage for path, stage in named.items()}
    for path, key, value in key_values(Recipe, recipe.resolved()):
        yield path, key, come_to.get(path, value)


def _renamed_teachers(before: Recipe, now: Recipe) -> dict[str, str]:
    """Paths of teachers that only have another name now, to their paths now: their traces are found by their ids."""
    # Resolved, because the copy of a recipe in its run lies in another folder and has absolute paths.
    old, new = ({each["name"]: each for each in recipe.resolved()["teachers"]} for recipe in (before, now))
    names = {
        name_before: name_now
        for name_before in old
        for name_now in new
        if name_before not in new and name_now not in old and old[name_before] | {"name": name_now} == new[name_now]
    }
    return _paths("teachers", list(old.values()), names)


def renamed_stages(before: Recipe, now: Recipe) -> dict[str, str]:
    """Old to new names of the stages that only have another name now: `train` renames their folders."""
    old, new = ({stage.name for stage in recipe.stages} for recipe in (before, now))
    names: dict[str, str] = {}
    for stage in before.stages:
        start = start_of(before.stages, stage)
        wanted = decisive(settings_of_stage(stage)), names.get(start, start) if start else None
        for other in now.stages if stage.name not in new and stage.rollouts is None else ():
            found = decisive(settings_of_stage(other)), start_of(now.stages, other)
            if other.name not in {*old, *names.values()} and found == wanted:
                names[stage.name] = other.name
                break
    return names


def _paths(section: str, items: list[dict[str, Any]], names: Mapping[str, str]) -> dict[str, str]:
    """The paths of all keys of renamed items, to their paths now."""
    renamed = [item for item in items if item["name"] in names]
    return {
        path: path.replace(f".{item['name']}.", f".{names[item['name']]}.", 1)
        for item in renamed
        for path, _, _ in key_values(Recipe, {section: [item]})
    }


def _targets(effect: str, parts: tuple[str, ...], before: Recipe, now: Recipe) -> Iterator[str]:
    """The results that a key with this effect makes stale, without results that both recipes lack."""
    root, item = (*parts, "")[:2]
    both, path = (before, now), ".".join(parts)
    if effect == "source":
        yield from _readers(item, both, is_folder=parts[-1] == "images_root")
    elif effect == "traces":
        yield from (f"traces:{teacher.name}" for teacher in now.teachers if root == "seed" or teacher.name == item)
    elif effect == "generate" and (path != _TOLERANCE or any(_compares_while_asking(recipe) for recipe in both)):
        yield "generate"
    elif effect == "engine" and len({*_engines(before, item), *_engines(now, item)}) > 1:
        yield f"engine:{item}"
    elif effect == "signals":
        yield from _signals(parts, both)
    elif effect == "filter" and root in ("filter", "seed"):
        yield "filter"
    elif effect == "train":
        yield from (f"train:{stage.name}" for stage in now.stages if _trained_with(parts, stage, both))
    elif effect in ("card", "eval", "ablate") or (effect == "rounds" and any(each.rounds.count for each in both)):
        yield effect


_TOLERANCE = "filter.answer.relative_tolerance"
_COMPARING = (JUDGE, "agreement", "duplicates")
"""Signals besides `answer` that compare answers with the tolerance."""


def _compares_while_asking(recipe: Recipe) -> bool:
    """Whether answers are compared while teachers are asked."""
    return any(teacher.until or teacher.when == "unsure" for teacher in recipe.teachers)


def _readers(name: str, both: tuple[Recipe, Recipe], *, is_folder: bool) -> Iterator[str]:
    """The results that read a source; with `is_folder` those that compare the bytes of its images."""
    if name == ASKED:
        yield "generate"
    stages = {stage.name for stage in both[1].stages}
    for recipe in both:
        if name in _test_sets(recipe):
            yield from (f"signals:{CONTAMINATION}", "filter")
        reading = (stage.name for stage in recipe.stages if name in _sources(stage, rows_only=is_folder))
        yield from (f"train:{stage}" for stage in reading if stage in stages)
        if name == recipe.eval.data:
            yield "eval"
        if recipe.rounds.count and name in (recipe.rounds.questions, recipe.rounds.validation) and name != ASKED:
            yield "rounds"


def _test_sets(recipe: Recipe) -> tuple[str, ...]:
    """The sources that traces are searched for."""
    settings = recipe.filter
    if CONTAMINATION not in settings.signals:
        return ()
    named = settings.contamination.sources
    return (recipe.eval.data,) if named is None else named


def _sources(stage: Stage, *, rows_only: bool) -> set[str | None]:
    """The sources that decide the weights of a stage: its rows, and the questions of a validation that decides."""
    asked = stage.validation
    questions = () if rows_only or asked is None or asked.decides != "accuracy" else (asked.data,)
    return {*sources_of(stage), *questions}


def _engines(recipe: Recipe, name: str) -> Iterator[str]:
    """The options of the server of a teacher that change its answers; none where the run starts no such server."""
    for teacher in recipe.teachers:
        if teacher.name == name and teacher.managed:
            yield repr(server_answer_options(teacher.server))


def _signals(key_parts: tuple[str, ...], both: tuple[Recipe, Recipe]) -> Iterator[str]:
    """The measured signals that a key changes."""
    root, *parts = key_parts
    path = ".".join(key_parts)
    before, now = both
    measured: set[str] = {*now.filter.signals}
    families: set[str] = set()
    if path == "filter.signals":
        known = {before.whole_name(name) for name in before.filter.signals}  # the copy in a run has whole paths
        families = {name for name in measured if now.whole_name(name) not in known}
    elif path == "filter.rationale" or (root == STUDENT and any(_fits_student(recipe) for recipe in both)):
        families = {STUDENT}
    elif root == "filter":
        families = {parts[0], *(_COMPARING if path == _TOLERANCE else ())}
    elif root == "eval" and any(recipe.filter.contamination.sources is None for recipe in both):
        families = {CONTAMINATION}
    elif root == "teachers" and any(recipe.filter.judge.teacher == parts[0] for recipe in both):
        families = {JUDGE}
    yield from (f"signals:{family}" for family in families & measured)
    if families & measured:
        yield "filter"


def _fits_student(recipe: Recipe) -> bool:
    """Whether traces are compared with the student of the recipe."""
    return STUDENT in recipe.filter.signals and recipe.filter.student.checkpoint is None


def _trained_with(key_parts: tuple[str, ...], stage: Stage, both: tuple[Recipe, Recipe]) -> bool:
    """Whether a key decides what a stage learns, in one of the recipes."""
    root, *parts = key_parts
    if root in ("student", "seed"):
        return True
    same = [each.validation for recipe in both for each in recipe.stages if each.name == stage.name]
    deciding_ones = [each for each in same if each is not None and each.decides]
    if root == "filter":
        return any(each.metric == "accuracy" and each.data is not None for each in deciding_ones)
    if parts[0] != stage.name:
        return False
    return parts[1] != "validation" or parts[2] == "hold_out" or bool(deciding_ones)


def _follow(causes: dict[str, list[str]], now: Recipe) -> None:
    """Add what starts from something stale."""
    asked = [target for target in causes if target.partition(":")[0] in ("generate", "traces", "engine")]
    if asked:
        causes.setdefault("generate", []).extend(target for target in asked if target != "generate")
        causes["filter"].append("generate")
    for stage in now.stages:
        start = start_of(now.stages, stage)
        if is_traces(stage) and "filter" in causes:
            causes[f"train:{stage.name}"].append("filter")
        if f"train:{start}" in causes:
            causes[f"train:{stage.name}"].append(f"train:{start}")
    if any(target.startswith("train:") for target in causes):
        causes["eval"].append("train")
        if now.rounds.count:
            causes["rounds"].append("train")
