"""Finds outdated stages of a run: finished stages whose traces, dataset, student, settings or version differ from the
present ones.

Reads manifests, labels, that recipe, and some of the images that a stage noted. What a changed recipe makes stale is
another question (distill.planning.redo).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from distill.artifacts.integrity import is_student, learned_from, traces_digest
from distill.artifacts.layout import IMAGES, RECIPE, stage_folders
from distill.artifacts.manifest import Manifest, changes, flatten
from distill.errors import DataError, RecipeError
from distill.recipe.effects import affecting
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import SIGNAL_NAMES
from distill.trace_records.human_labels import read_labels
from distill.word_tables import counted
from student.training.noted_fields import decisive

_TRACES = "generate.outputs"
_ARM = "eval.arms."
_SIGNALS = "filter.signals"
_LABELS = "extractors.human.labels"
_LOOKED_IMAGES = 64
"""Images of a stage that are compared: a folder that was written again is found, and a command answers at once."""
_OTHERWISE_COMPARED = (_SIGNALS, "stage.validation.")


def outdated(run: Path, recipe: Recipe | None = None) -> dict[str, str]:
    """For each outdated stage: its name, the reason, and the command that makes it again; `recipe`: the recipe of the
    run."""
    recipe = recipe or _recipe_of(run)
    generated, filtered = Manifest.read(run / "generate"), Manifest.read(run / "filter")
    found = _with_other_images(run, recipe) | _set_otherwise(run, recipe) if recipe else {}
    if generated and filtered and not _decided_on(filtered, generated):
        found["filter"] = "the traces changed since it finished; `distill filter` decides again"
    elif filtered and _are_labels_others(run, filtered):
        found["filter"] = "labels were given or changed since it finished; `distill filter` decides again"
    for folder in sorted(run.glob("train/*/")):
        trained = Manifest.read(folder)
        if trained and filtered and not learned_from(trained, filtered):
            found[f"train {folder.name}"] = (
                "it was trained on an earlier dataset, not on the one in filter; `distill train --stage "
                f"{folder.name} --fresh` trains it again, and `distill run --redo-stale` makes all stages again "
                "that need it"
            )
    if (measured := Manifest.read(run / "eval")) and (stages := list(_trained_again(run, measured))):
        found["eval"] = (
            f"it asked an earlier student of {', '.join(stages)} not the one in train; `distill eval --fresh` asks "
            "the new one"
        )
    return found


def _recipe_of(run: Path) -> Recipe | None:
    """The recipe in a run; None where it cannot be read: the command that needs it reports the fault."""
    try:
        return load(run / RECIPE)
    except RecipeError:
        return None


def _with_other_images(run: Path, recipe: Recipe) -> dict[str, str]:
    """Stages of training and evaluation whose images were replaced, as far as a quick look shows."""
    folders = [
        folder
        for folder in (*stage_folders(run), run / "eval")
        if (folder / IMAGES).is_file() and Manifest.read(folder) is not None
    ]
    if not folders:
        return {}
    from distill.data.source_images import command_again, compare_images

    found = {}
    for folder in folders:
        name = f"train {folder.name}" if folder.parent.name == "train" else folder.name
        for source, compared in compare_images(recipe, folder, looked=_LOOKED_IMAGES).items():
            if compared.changed:
                found[name] = (
                    f"{len(compared.changed)} of {counted(compared.noted, 'image')} of [data.{source}] that were "
                    f"looked at were replaced since, such as {compared.changed[0]}; `{command_again(folder)}` makes "
                    "it again"
                )
    return found


def _set_otherwise(run: Path, recipe: Recipe) -> dict[str, str]:
    """Stages of filter and train whose settings differ from the recipe, because a later command got a changed
    recipe."""
    found = {}
    if (filtered := Manifest.read(run / "filter")) and (
        other := _other_settings(filtered, "filter", affecting(recipe.filter, "filter"))
    ):
        found["filter"] = f"{other}; `distill filter --fresh` decides again"
    for stage in recipe.stages:
        trained = Manifest.read(run / "train" / stage.name)
        if trained and (other := _other_settings(trained, "stage", affecting(stage, "train"))):
            found[f"train {stage.name}"] = f"{other}; `distill train --stage {stage.name} --fresh` trains it again"
    return found


def _other_settings(manifest: Manifest, section: str, settings: Mapping[str, Any]) -> str:
    """The settings of a section that a finished stage was made with and the recipe has otherwise."""
    now = flatten({section: settings})
    before = {key: value for key, value in manifest.fields.items() if key.startswith(f"{section}.")}
    # Of validation the manifest holds what decides about the student.
    other = [key for key in changes(before, now) if before and not key.startswith(_OTHERWISE_COMPARED)]
    if not changes(*({key: fields.get(key) for key in other} for fields in map(decisive, (before, now)))):
        other = []
    if _SIGNALS in before and _comparable(before[_SIGNALS]) != _comparable(now[_SIGNALS]):
        other.append(_SIGNALS)
    return f"the recipe in the run has another {', '.join(other)} now, or another version made it" if other else ""


def _comparable(signals: Iterable[str]) -> tuple[list[str], int]:
    """The project's signals, and how many others: a manifest names those as their code does."""
    names = list(signals)
    known = [name for name in names if name in SIGNAL_NAMES]
    return known, len(names) - len(known)


def _are_labels_others(run: Path, filtered: Manifest) -> bool:
    """Whether the labels of a run are not those that a filter stage with the signal `human` decided on."""
    if (noted := filtered.fields.get(_LABELS)) is None:
        return False
    from filters.run_signals import human_verdicts

    try:
        return bool(human_verdicts.identity(read_labels(run))["labels"] != noted)
    except DataError:  # a line that was edited: `filter` names it
        return True


def _trained_again(run: Path, measured: Manifest) -> Iterator[str]:
    """The stages that were trained again since their students were evaluated."""
    arms = {key.removeprefix(_ARM): stage for key, stage in measured.fields.items() if key.startswith(_ARM)}
    for arm, stage in arms.items():
        trained = Manifest.read(run / "train" / stage)
        if trained is not None and not is_student(measured, arm, trained):
            yield stage


def _decided_on(filtered: Manifest, generated: Manifest) -> bool:
    """Whether a filter stage read the traces that are there now."""
    return filtered.fields.get(_TRACES, "") in ("", traces_digest(generated))


def outdated_text(run: Path, recipe: Recipe | None = None) -> str:
    """One line for each such stage; empty without any."""
    return "\n".join(f"warning: {stage} is outdated: {why}" for stage, why in outdated(run, recipe).items())


def other_versions(run: Path) -> Iterator[str]:
    """One line for each stage that another version made, which reads or measures in another way."""
    from teacher.messages import parse

    generated, filtered = (Manifest.read(run / stage) for stage in ("generate", "filter"))
    if generated and generated.fields.get("parser", parse.VERSION) != parse.VERSION:
        yield _remade(
            "generate", "parsed the replies; --fresh parses them again and asks for no existing trace again"
        )
    versions = re.findall(r"extractors\.(\w+)\.version", "\n".join(filtered.fields)) if filtered else []
    if filtered and versions and (other := sorted(_measured_otherwise(filtered, versions))):
        yield _remade("filter", f"measured {', '.join(other)}; it measures these again")


def _measured_otherwise(filtered: Manifest, names: list[str]) -> Iterator[str]:
    from filters.signals.registry import FAMILIES

    for name in names:
        if name in FAMILIES and filtered.fields[f"extractors.{name}.version"] != FAMILIES[name].version:
            yield name


def _remade(stage: str, how: str) -> str:
    return f"warning: {stage} is stale (`distill {stage} --fresh` makes it again): another version {how}"
