"""The settings that the run notes of a training stage, for a recipe that differs from them in nothing that decides.

Such a stage keeps its noted settings word for word: so its fingerprint, and those of the stages that start from it,
stay as an earlier command or version wrote them. It may have another name by now; then its folder is renamed.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from distill.artifacts.layout import SETTINGS
from distill.artifacts.manifest import MANIFEST, Manifest, canonical, flatten, read_noted
from distill.errors import DataError
from distill.recipe.effects import affecting, recipe_keys
from distill.recipe.sections.data import DataSource
from distill.recipe.sections.stages import Stage
from distill.types import Progress, ProgressCallback

_UNREAD: Final = tuple(f".{key.path}" for key in recipe_keys(DataSource) if "train" in key.spares)
_OVERRIDDEN: Final = {key.path: key.overridden_by for key in recipe_keys(Stage) if key.overridden_by}


def settings_of_stage(stage: Stage) -> dict[str, Any]:
    """The settings of a stage that change its student; of validation the rows held out, and all where it decides."""
    fields = flatten(affecting(stage, "train"), "stage")
    settings = stage.validation
    if settings is not None and settings.decides:
        fields |= flatten(affecting(settings, "train"), "stage.validation")
    elif settings is not None and settings.hold_out:
        fields["stage.validation.hold_out"] = settings.hold_out
    return fields


def decisive(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stage without those that decide nothing: keys that others override, columns that no training
    reads, and the name of the start, whose fingerprint is there."""
    overridden = {
        f"stage.{name}"
        for name, others in _OVERRIDDEN.items()
        if any(fields.get(f"stage.{other}") is not None for other in others)
    }
    return {
        name: value
        for name, value in fields.items()
        if name not in overridden and name != "start" and not (name.startswith("data.") and name.endswith(_UNREAD))
    }


def as_noted(run: Path, stage: Stage, names: Collection[str], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the run notes of a stage where that decides the same as `fields`, else `fields`.

    `names` are those of all stages of the recipe: a folder of another name may hold this stage.
    """
    folder = run / "train" / stage.name
    others = _other_folders(run, names) if stage.rollouts is None and not folder.exists() else ()
    wanted = canonical(decisive(fields))
    noted = (found for each in (folder, *others) if (found := _noted(each)) is not None)
    return next((each for each in noted if canonical(decisive(each)) == wanted), fields)


def rename_stages(
    run: Path, stages: Mapping[str, Mapping[str, Any]], names: Collection[str], on_progress: ProgressCallback
) -> None:
    """Give the folders of renamed stages their new names. `stages` are the fields by name, from `as_noted`."""
    for name, fields in stages.items():
        folder = run / "train" / name
        if folder.exists():
            continue
        for before in _other_folders(run, names):
            if (noted := _noted(before)) is not None and canonical(noted) == canonical(fields):
                (run / "train" / MANIFEST).unlink(missing_ok=True)  # it names the folder
                before.rename(folder)
                if (made := Manifest.read(folder)) is not None:
                    replace(made, stage=f"train {name}").write(folder)
                facts = {"now": f"stage {before.name!r} has the same settings and is renamed"}
                on_progress(Progress(stage=f"train {name}", done=1, total=1, unit="stages", facts=facts))
                break


def _other_folders(run: Path, names: Collection[str]) -> Iterator[Path]:
    """The folders of stages that the recipe does not have."""
    yield from sorted(each for each in (run / "train").glob("*/") if each.name not in names)


def _noted(folder: Path) -> Mapping[str, Any] | None:
    """The settings of a stage that is finished or begun; None without a readable note."""
    try:
        made = Manifest.read(folder)
    except DataError:  # where it is needed, the message names it
        return None
    return made.fields if made is not None else read_noted(folder / SETTINGS)
