"""`distill plan --diff`: which results another recipe makes stale, by key and by stage, as text.

Reads recipes and manifests, and models and data whose path differs.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.artifacts.layout import ABLATE, ARMS, ROUNDS, ROUNDS_RESULTS
from distill.artifacts.manifest import Manifest
from distill.damaged_runs import damage_named
from distill.planning.finished_traces import traces_of_teacher
from distill.planning.outdated import other_versions, outdated_text
from distill.planning.planned_questions import are_images_elsewhere, read_again
from distill.planning.redo import KeyChange, Redo, compare_recipes
from distill.recipe.effects import path_parts
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import lineage
from distill.recipe.sections.teachers import Teacher
from distill.reports.text_table import table, time_span
from distill.word_tables import counted
from teacher.engines.provenance import changed_files

_WIDTH = 30
_NEW_REPLIES = ("eval.arms", "eval.students", "eval.without_image")
"""Keys that only add replies, or leave some out."""
_SAME_REPLIES = ("filter.", "eval.metrics")
"""Keys that judge or measure the same replies in another way."""


def redo_fields(before: Recipe, now: Recipe, run: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """What `redo_text` says, as plain values for JSON."""
    with damage_named(run):
        redo = compare_recipes(before, now, run)
    return {
        "before": str(before.path),
        "recipe": str(now.path),
        "run": str(run),
        "keys": [
            {
                "key": change.path,
                "before": change.before,
                "now": change.now,
                "makes_stale": sorted(change.targets),
                "moved": change.moved,
            }
            for change in redo.changes
        ],
        "stages": [
            dict(zip(("stage", "state", "then", "how_much"), row, strict=True)) for row in _stages(redo, now, run)
        ],
        "warnings": _warned(before, now, run),
        "commands": list(_commands(redo, now, run, overrides)),
    }


def redo_text(before: Recipe, now: Recipe, run: Path, overrides: Sequence[str] = ()) -> str:
    """The keys that differ, and what each stage of `run`, made with `before`, does again when `now` replaces it.

    `overrides` are the values of --set, which the printed commands repeat.
    """
    with damage_named(run):
        redo = compare_recipes(before, now, run)
    head = f"from {before.path}\nto   {now.path}\nrun  {run}"
    earlier = "\n".join(_warned(before, now, run))
    if not redo.changes and not are_images_elsewhere(now, run):
        return f"{head}\n\nno key differs" + (
            f"\n\n{earlier}" if earlier else "; every finished stage stays as it is"
        )
    rows = [(change.path, _short(change.before), _short(change.now), _effect(change)) for change in redo.changes]
    keys = table(("key", "from", "to", "makes stale"), rows, left=True) if rows else "no key differs"
    stages = table(("stage", "now", "then", "how much"), _stages(redo, now, run), left=True)
    commands = "\n".join(f"  {command}" for command in _commands(redo, now, run, overrides))
    done = f"commands for this; finished work is not repeated:\n{commands}" if commands else ""
    return "\n\n".join(block for block in (head, keys, stages, earlier, done) if block)


def _warned(before: Recipe, now: Recipe, run: Path) -> list[str]:
    """What else makes work again, or stops a stage: one text or several lines each."""
    warned = (outdated_text(run, before), *other_versions(run), _changed_servers(now, run), *read_again(now, run))
    return [text for text in warned if text]


def _changed_servers(recipe: Recipe, run: Path) -> str:
    """A line for each teacher whose server has other files now: `generate` then refuses the run."""
    lines = []
    for teacher in recipe.teachers:
        folder = run / "generate" / teacher.name
        if changed := changed_files(folder, teacher, recipe.path.parent):
            lines.append(
                f"warning: {', '.join(changed)} of teachers.{teacher.name}.server has other content than when the "
                "traces were made: `distill generate` and `distill run` refuse this run until it is set back, or "
                f"until {folder} is moved away to ask the teacher again"
            )
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = "-" if value is None else " ".join(str(value).split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _effect(change: KeyChange) -> str:
    if change.targets:
        return ", ".join(sorted(target.replace(":", " ") for target in change.targets))
    if change.moved:
        return "nothing: the content is the same"
    return f"nothing: {change.key.because}" if change.key.because else "nothing: no result here depends on it"


def _stages(redo: Redo, now: Recipe, run: Path) -> Iterator[tuple[str, str, str, str]]:
    """Stage, state, what happens to the stage, and the amount of work."""
    generated, filtered, evaluated = (Manifest.read(run / stage) for stage in ("generate", "filter", "eval"))
    if "generate" not in redo.causes and are_images_elsewhere(now, run):
        yield _row("generate", generated, True, "notes where the images are now; asks nothing")
    else:
        yield _row("generate", generated, "generate" in redo.causes, _asked(redo, now, generated))
    card_only = "card" in redo.causes and "filter" not in redo.causes
    measured = "writes card and exports again" if card_only else _measured(redo, filtered)
    yield _row("filter", filtered, "filter" in redo.causes or card_only, measured)
    for stage in now.stages:
        target, manifest = f"train:{stage.name}", _finished_stage(redo, run, stage.name)
        row = _row(f"train {stage.name}", manifest, target in redo.causes, _trained(manifest))
        yield _perhaps(row, "the dataset changes") if _may_stay(redo, target) else row
    if now.evaluates or evaluated is not None:
        row = _row("eval", evaluated, "eval" in redo.causes, _evaluated(redo, evaluated))
        yield _perhaps(row, "a student changes") if _may_stay(redo, "eval") else row
    if "rounds" in redo.causes:
        begun = "finished" if (run / ROUNDS / ROUNDS_RESULTS).is_file() else "not finished"
        yield "rounds", begun, "run again", "as far as the changes reach them"
    ablated = Manifest.read(run / ABLATE)
    if ablated is not None and _reaches_arms(redo):
        yield "ablate", "finished", "may run again", "arms that the changes reach, once ablate/arms is moved away"
    elif "ablate" in redo.causes:
        yield _row("ablate", ablated, True, _arms_made(redo, run))


def _finished_stage(redo: Redo, run: Path, name: str) -> Manifest | None:
    """The manifest of a training stage; of one that has another name now and stays, from its folder as it is."""
    before = redo.earlier_names("stages").get(name) if f"train:{name}" not in redo.causes else None
    made = Manifest.read(run / "train" / name)
    return made if made is not None or before is None else Manifest.read(run / "train" / before)


def _reaches_arms(redo: Redo) -> bool:
    """Whether changes may have made finished arms of an ablation stale, which are made from the whole recipe."""
    is_asked_otherwise = "eval" in redo.causes and not _keeps_replies(redo)
    return is_asked_otherwise or any(
        each in ("generate", "filter") or each.startswith("train:") for each in redo.causes
    )


def _arms_made(redo: Redo, run: Path) -> str:
    """What an ablation makes again after changes of its section alone, and what is moved away for that."""
    own = (re.match(r"ablate\.own\.([^.]+)\.(?:set|change)", change.path) for change in redo.changes)
    changed = dict.fromkeys(found[1] for found in own if found is not None)
    stale = [name for name in changed if (run / ABLATE / ARMS / name).is_dir()]
    made = ", ".join(f"{name} once {ABLATE}/{ARMS}/{name} is moved away" for name in stale)
    return f"writes the results again; {f'makes {made}; other ' if made else ''}finished arms stay"


def _row(name: str, manifest: Manifest | None, stale: bool, how_much: str) -> tuple[str, str, str, str]:
    if manifest is None:
        return name, "not finished", "runs", ""
    return (name, "finished", "runs again", how_much) if stale else (name, "finished", "stays", "")


def _may_stay(redo: Redo, target: str) -> bool:
    """Whether a stale result is that only where the filter, decided again, gives another dataset."""
    return _are_conditional(redo, redo.causes.get(target, ()))


def _are_conditional(redo: Redo, causes: Sequence[str]) -> bool:
    trained = {"train": [name for name in redo.causes if name.startswith("train:")]}
    each_cause = [each for cause in causes for each in trained.get(cause, [cause])]
    return bool(each_cause) and all(
        cause == "filter" or (cause.startswith("train:") and _may_stay(redo, cause)) for cause in each_cause
    )


def _perhaps(row: tuple[str, str, str, str], condition: str) -> tuple[str, str, str, str]:
    """The row of a stage that runs again on a condition alone."""
    name, state, then, how_much = row
    return (name, state, "may run again", f"if {condition}: {how_much}") if then == "runs again" else row


def _asked(redo: Redo, now: Recipe, manifest: Manifest | None) -> str:
    """How many traces are asked again, by teacher."""
    names_before = redo.earlier_names("teachers")
    counts = dict.fromkeys((each.name for each in now.teachers), 0)
    if manifest is not None:
        counts = {name: traces_of_teacher(manifest, names_before.get(name, name)) for name in counts}
    again = [name for name in counts if name in {*redo.parts("traces"), *redo.parts("engine")}]
    parts = [_asked_again(redo, each, counts[each.name]) for each in now.teachers if each.name in again]
    read = [path_parts(change.path, change.key)[:2] for change in redo.changes if "generate" in change.targets]
    if ("data", ASKED) in read:
        parts.append("reads the questions again, asks the new ones")
    kept = sum(count for name, count in counts.items() if name not in again)
    whose = " of the other teachers" if again else ""
    return "; ".join([*parts, f"keeps {counted(kept, 'trace')}{whose}"] if kept else parts)


def _asked_again(redo: Redo, teacher: Teacher, count: int) -> str:
    if not count:
        return f"asks {teacher.name}"
    traces = f"{counted(count, 'trace')} of {teacher.name} again"
    # What a prompt of own code gives is known only when it is called with each question.
    causes = {path for part in ("traces", "engine") for path in redo.causes.get(f"{part}:{teacher.name}", ())}
    by_text = teacher.prompt_from_outside and causes == {f"teachers.{teacher.name}.prompt"}
    return f"asks those of {traces} whose prompt differs" if by_text else f"asks {traces}"


def _measured(redo: Redo, manifest: Manifest | None) -> str:
    """Which signals are measured again; decisions and dataset always are made again."""
    traces = manifest.counts.get("input", 0) if manifest is not None else 0
    parts = ["measures new traces"] if "generate" in redo.causes else []
    if stale := sorted(redo.parts("signals")):
        parts.append(f"measures {', '.join(stale)} of {counted(traces, 'trace')} again")
    return "; ".join([*parts, f"decides {counted(traces, 'trace')} again"])


def _trained(manifest: Manifest | None) -> str:
    if manifest is None:
        return ""
    steps, tokens = manifest.counts.get("steps", 0), manifest.tokens.get("trained", 0)
    return f"{counted(steps, 'step')}, {counted(tokens, 'token')}, {time_span(manifest.seconds)} last time"


def _evaluated(redo: Redo, manifest: Manifest | None) -> str:
    causes = redo.causes.get("eval", [])
    if manifest is None or not causes:
        return ""
    count = manifest.counts.get("predictions", 0) + manifest.counts.get("predictions_without_image", 0)
    others = [cause for cause in causes if not cause.startswith(_SAME_REPLIES)]
    if not others:
        measures = all(cause == "eval.metrics" for cause in causes)
        return f"{'measures' if measures else 'judges'} {counted(count, 'reply', 'replies')} again, asks none"
    if len(others) < len(causes) and _are_conditional(redo, others):
        return f"judges {counted(count, 'reply', 'replies')} again; if a student changes: asks for them again"
    if _keeps_replies(redo):
        return f"keeps {counted(count, 'reply', 'replies')}, asks only for new ones"
    return f"asks for {counted(count, 'reply', 'replies')} again; {time_span(manifest.seconds)} last time"


def _commands(redo: Redo, now: Recipe, run: Path, overrides: Sequence[str]) -> Iterator[str]:
    """The commands that redo what is stale and finished, in order; unfinished stages need no --fresh."""
    at = shlex.join([str(now.path), "--run", str(run), *(part for each in overrides for part in ("--set", each))])
    for name in redo.parts("engine"):
        yield shlex.join(["mv", f"{run}/generate/{name}", f"{run}/generate.{name}.previous"])
    if "generate" not in redo.causes and are_images_elsewhere(now, run):
        yield f"distill generate {at}"
    for stage in ("generate", "filter"):
        if stage in redo.causes and Manifest.read(run / stage) is not None:
            yield f"distill {stage} {at} --fresh"
    if "card" in redo.causes and "filter" not in redo.causes:
        yield f"distill filter {at}"
    missing = {each.name for each in now.stages if _finished_stage(redo, run, each.name) is None}
    renamed = {*redo.earlier_names("stages")} - missing - {*redo.parts("train")}
    redone = [name for name in redo.parts("train") if name not in missing]
    if any(_may_stay(redo, f"train:{name}") for name in redone):
        yield f"distill run {at} --redo-stale"  # --fresh would train on the same rows again
        return
    begun = [name for name in redone if not {*_stages_before(now, name)} & {*redone}]
    for name in begun:
        yield from (f"distill train {at} --stage {each}" for each in _stages_before(now, name) if each in missing)
        missing -= {*_stages_before(now, name)}
        yield f"distill train {at} --stage {name} --fresh"  # this sets aside what starts from it, too
    is_asked_again = "eval" in redo.causes and Manifest.read(run / "eval") is not None
    # eval asks finished students alone, and train renames their folders
    if len(redone) > len(begun) or renamed or (missing and is_asked_again):
        yield f"distill train {at}"
    if is_asked_again:
        yield f"distill eval {at}" if _keeps_replies(redo) else f"distill eval {at} --fresh"
    if "rounds" in redo.causes and (run / ROUNDS).is_dir():
        yield f"distill run {at} --redo-stale"


def _stages_before(recipe: Recipe, name: str) -> list[str]:
    """The stages that a stage descends from."""
    return [each.name for each in lineage(recipe.stages, name)[:-1]]


def _keeps_replies(redo: Redo) -> bool:
    """Whether the replies of an evaluation stay: they are judged again, or arms come or go."""
    is_kept = all(cause.startswith((*_SAME_REPLIES, *_NEW_REPLIES)) for cause in redo.causes["eval"])
    earlier = redo.earlier_names("stages")
    return is_kept and not any(_is_another_student(change, earlier) for change in redo.changes)


def _is_another_student(change: KeyChange, earlier: Mapping[str, str]) -> bool:
    """Whether an arm, or a student from elsewhere, that was evaluated is another one now."""
    before, now = change.before, change.now
    if change.path == "eval.arms":
        arms = {arm: earlier.get(stage, stage) for arm, stage in (now or {}).items()}
        return any(arm in (before or {}) and before[arm] != stage for arm, stage in arms.items())
    return change.path.startswith("eval.students.") and None not in (before, now)
