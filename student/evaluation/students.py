"""Finds the student of each arm of an evaluation: the student of a stage, the student before any stage, or another
checkpoint or server.

Computes its identity, rejects a student that cannot work before any question is asked, and loads it. Does not ask
questions (student/evaluation/collect_replies.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson

from distill import redact
from distill.artifacts.files import directory_sha256
from distill.artifacts.integrity import weights_digest
from distill.artifacts.layout import ADAPTER, MODEL, model_folder
from distill.artifacts.manifest import fingerprint, flatten, require
from distill.data import reader
from distill.data.source_images import require_same_images
from distill.errors import ModelError, RecipeError
from distill.local_paths import from_home, run_command
from distill.machine import hub
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.eval import BASE, AnyStudent
from distill.recipe.sections.stages import lineage
from distill.word_tables import counted
from student.data import rows
from student.evaluation.user_metrics import metric_codes
from student.train import student_fields
from student.training.checkpoints.saved_model import require_saved

SERVED_NOTE = (
    "Known only by its address and the name of its model. The toolkit cannot check which weights the server has, "
    "or whether they changed."
)
_ADAPTER_FILE, _ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_ADAPTER_PREFIX = "base_model.model."
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedStudent:
    """The student of one arm."""

    arm: str
    origin: str
    """Name of its stage, "base", or the model's name in the recipe."""
    key: str
    """Digest of the student's content; of a stage's student, of its settings."""
    weights: str = ""
    """Digest of the weights of a stage: other devices give other weights, also with equal settings."""
    facts: Mapping[str, Any]
    """Facts about it, for metrics.json."""
    model: str | None = None
    """Folder or hub name as transformers takes it; None: put together from the recipe's parts, or served."""
    revision: str | None = None
    adapter: Path | None = None
    server: AnyStudent | None = None
    """The server that it is asked at, if it is served elsewhere."""
    foreign: bool = False
    """Whether its processor may be another than that of the recipe's student."""

    @property
    def identity(self) -> tuple[str, str]:
        """Key and weights: students that are equal in both are asked once."""
        return self.key, self.weights


def arms_of(recipe: Recipe) -> dict[str, str]:
    """Arm to stage, to "base", or to the model of a student from elsewhere.

    Arms taught with rationales come last, so that `later-earlier` reads as their gain. Raises RecipeError when there
    is no student at all.
    """
    by_name = {stage.name: stage for stage in recipe.stages}
    arms = dict(recipe.eval.arms) or {name: name for name in list(by_name)[1:] or list(by_name)}
    others = {arm: student.model for arm, student in recipe.eval.students.items()}
    if not arms and not others:
        raise RecipeError(
            f"{recipe.path}: evaluation needs students: the [[stages]] that made them, or [eval.students.NAME] "
            "(distill eval --student NAME=MODEL)"
        )
    clash = sorted(set(arms) & set(others))
    if clash:
        raise RecipeError(
            f"{recipe.path}: eval.students.{clash[0]}: an arm has this name already; choose another name"
        )

    def taught(arm: str) -> bool:
        stage = by_name.get(arms[arm])
        return stage is not None and rows.has_rationales(recipe, stage)

    ordered = (
        {arm: arms[arm] for arm in arms if not taught(arm)} | others | {arm: arms[arm] for arm in arms if taught(arm)}
    )
    _require_distinct_differences(recipe, list(ordered))
    return ordered


def _require_distinct_differences(recipe: Recipe, arms: Sequence[str]) -> None:
    """Raise RecipeError where two pairs of arms have one name `later-earlier`: a result would replace the other."""
    pairs: dict[str, tuple[str, str]] = {}
    for earlier, later in combinations(arms, 2):
        first = pairs.setdefault(f"{later}-{earlier}", (later, earlier))
        if first != (later, earlier):
            raise RecipeError(
                f"{recipe.path}: the difference of the arms {first[0]} and {first[1]} and that of {later} and "
                f"{earlier} would both be named {later}-{earlier}; rename an arm in eval.arms or eval.students"
            )


def evaluated_students(recipe: Recipe, run: Path) -> dict[str, EvaluatedStudent]:
    """The student of every arm, in the order of `arms_of`.

    Raises StaleError for a stage that is not finished, RecipeError or ModelError for a student that is not there.
    """
    return {arm: evaluated_student(recipe, run, arm, origin) for arm, origin in arms_of(recipe).items()}


def evaluated_student(recipe: Recipe, run: Path, arm: str, origin: str) -> EvaluatedStudent:
    """The student of one arm of `arms_of`; raises what `evaluated_students` raises."""
    if arm in recipe.eval.students:
        return _student_from_elsewhere(recipe, arm, recipe.eval.students[arm])
    if origin == BASE:
        return _base_student(recipe, arm)
    return _student_of_stage(recipe, run, arm, origin)


def fields_of_arms(recipe: Recipe, arms: Mapping[str, EvaluatedStudent]) -> dict[str, Any]:
    """The settings that replies and judging depend on; not `eval.without_image`, which only adds replies.

    A student from elsewhere counts by its content, not by its path.
    """
    return {
        **flatten(affecting(recipe.eval, "eval"), "eval"),
        **{
            f"eval.arms.{arm}": evaluated.origin for arm, evaluated in arms.items() if arm not in recipe.eval.students
        },
        **{f"students.{arm}": evaluated.key for arm, evaluated in arms.items()},
        **{f"weights.{arm}": evaluated.weights for arm, evaluated in arms.items() if evaluated.weights},
        **flatten(reader.source_fields(recipe, recipe.eval.data), f"data.{recipe.eval.data}"),
        **flatten(affecting(recipe.filter, "eval"), "filter"),
        **{f"metrics.{name}": code for name, code in metric_codes(recipe).items()},
        "seed": recipe.seed,
    }


def _student_of_stage(recipe: Recipe, run: Path, arm: str, stage: str) -> EvaluatedStudent:
    manifest = require(run / "train", stage, next_step=f"run {run_command('train', recipe.path, run)} first")
    require_saved(run, stage)
    return EvaluatedStudent(
        arm=arm,
        origin=stage,
        key=manifest.fingerprint,
        weights=weights_digest(manifest),
        facts={
            "stage": stage,
            "train_steps": manifest.counts["steps"],
            "train_tokens": manifest.tokens["trained"],
            "train_seconds": manifest.seconds,
        },
        model=str(model_folder(run, stage)),
    )


def require_same_training_images(recipe: Recipe, run: Path, arms: Iterable[EvaluatedStudent]) -> None:
    """Raises StaleError where a stage of a student, or one that it starts from, was trained on images that are
    others now."""
    origins = {evaluated.origin for evaluated in arms if not evaluated.foreign}
    lines = (lineage(recipe.stages, name) for name in origins - {BASE})
    for name in dict.fromkeys(stage.name for line in lines for stage in line):
        require_same_images(recipe, run / "train" / name)


def _base_student(recipe: Recipe, arm: str) -> EvaluatedStudent:
    if recipe.student is None:
        raise RecipeError(f"{recipe.path}: eval.arms.{arm} = {BASE!r} is the student before any stage; add [student]")
    settings = student_fields(recipe) | {"seed": recipe.seed}
    return EvaluatedStudent(
        arm=arm,
        origin=BASE,
        key=fingerprint(settings),
        facts={"stage": BASE, "train_steps": 0, "train_tokens": 0, "train_seconds": 0.0},
    )


def _student_from_elsewhere(recipe: Recipe, arm: str, student: AnyStudent) -> EvaluatedStudent:
    where = f"eval.students.{arm}"
    settings = {name: value for name, value in affecting(student, "eval").items() if value is not None}
    if student.base_url is not None:
        # The password is not part of a server's identity and is not shown.
        settings["base_url"] = redact.url(student.base_url)
        identity = {"base_url": redact.url(student.base_url).rstrip("/"), "model": student.model}
        return EvaluatedStudent(
            arm=arm,
            origin=student.model,
            key=fingerprint(identity),
            facts={
                "source": f"{identity['model']} at {identity['base_url']}",
                "student": settings,
                "note": SERVED_NOTE,
            },
            server=student,
            foreign=True,
        )
    name, folder, adapter_folder = locate(where, recipe, student)
    digests = {
        **({} if folder is None else {"sha256": directory_sha256(folder)}),
        **({} if adapter_folder is None else {"adapter_sha256": directory_sha256(adapter_folder)}),
    }
    identity = {
        **(digests if folder is not None else {"model": f"{name}@{student.revision or ''}", **digests}),
        "dtype": "" if recipe.student is None else recipe.student.dtype,
    }
    return EvaluatedStudent(
        arm=arm,
        origin=student.model,
        key=fingerprint(identity),
        facts={
            "source": " + ".join([student.model, *([student.adapter] if student.adapter else [])]),
            "student": settings | digests,
        },
        model=name if folder is None else str(folder),
        revision=student.revision,
        adapter=adapter_folder,
        foreign=True,
    )


def locate(where: str, recipe: Recipe, student: AnyStudent) -> tuple[str, Path | None, Path | None]:
    """Name, folder (None for the name of a hub) and adapter of a student that is not served. Raises ModelError."""
    name, adapter = recipe.local_or_hub(student.model), student.adapter
    if Path(name).is_dir() and _is_adapter(Path(name)):
        if adapter is not None:
            raise ModelError(f"{where}: model {name} is itself an adapter; name the base model of both adapters")
        adapter, name = name, _base_of_adapter(where, recipe, Path(name))
    return name, _folder(where, name), None if adapter is None else _adapter(where, recipe.local(adapter))


def _folder(where: str, name: str) -> Path | None:
    """The checkpoint that a name means, a trained stage's folder included; None for the name of a hub."""
    path = from_home(name)
    if not path.exists():
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise ModelError(
                f"{where}: there is no folder {name}; correct its model, or name one of a hub: OWNER/NAME"
            )
        return None
    if not path.is_dir():
        raise ModelError(f"{where}: {name} is a file; give the folder of a checkpoint")
    if not (path / "config.json").is_file() and (path / MODEL / "config.json").is_file():
        path = path / MODEL
    lacking = [pattern for pattern in ("config.json", "*.safetensors") if not any(path.glob(pattern))]
    if lacking:
        raise ModelError(
            f"{where}: {path} holds no {' and no '.join(lacking)}, so it is no checkpoint; give a folder that "
            "`distill train` or `distill export` wrote, or save_pretrained"
        )
    return path


def _is_adapter(path: Path) -> bool:
    return (path / _ADAPTER_CONFIG).is_file() and not (path / "config.json").is_file()


def _adapter(where: str, path: Path) -> Path:
    if not (path / _ADAPTER_CONFIG).is_file() and (path / ADAPTER / _ADAPTER_CONFIG).is_file():
        path = path / ADAPTER
    lacking = [name for name in (_ADAPTER_CONFIG, _ADAPTER_FILE) if not (path / name).is_file()]
    if lacking:
        raise ModelError(f"{where}: adapter {path} holds no {' and no '.join(lacking)}, so it is no adapter of PEFT")
    return path


def _base_of_adapter(where: str, recipe: Recipe, adapter: Path) -> str:
    """The model that an adapter says it was trained on."""
    try:
        name = orjson.loads((adapter / _ADAPTER_CONFIG).read_bytes()).get("base_model_name_or_path")
    except (OSError, orjson.JSONDecodeError, AttributeError) as error:
        raise ModelError(f"{where}: {adapter / _ADAPTER_CONFIG} cannot be read: {error}") from None
    if not name:
        raise ModelError(
            f"{where}: the adapter {adapter} does not name its base model; name it: "
            f'{where}.model = "MODEL", {where}.adapter = "{adapter}"'
        )
    return recipe.local_or_hub(str(name))


def require_loadable(recipe: Recipe, evaluated: EvaluatedStudent) -> None:
    """Check all that can be checked without weights: that the model is there, and that its adapter fits.

    Raises ModelError or MissingExtra, and DataError for a student of the run that is damaged.
    """
    if evaluated.server is not None:
        return
    if evaluated.model is not None and not evaluated.foreign:
        require_saved(Path(evaluated.model).parents[2], evaluated.origin, digests=True)
    from student.models import siq_vl, start_model

    if evaluated.model is None:
        start_model.outline(recipe)
        return
    outline, _ = siq_vl.outline(
        evaluated.model, revision=evaluated.revision, trust_remote_code=recipe.trusts_student_code
    )
    if evaluated.adapter is not None:
        shapes = {name: tuple(value.shape) for name, value in outline.state_dict().items()}
        _require_adapter_fits(evaluated.model, evaluated.adapter, shapes)


def load_student(recipe: Recipe, evaluated: EvaluatedStudent) -> tuple[Any, Any]:
    """Model and processor of a student that is not served; an adapter is merged, as the stages do."""
    from student.models import lora, siq_vl, start_model

    if not evaluated.foreign:
        return start_model.load(recipe, None if evaluated.model is None else Path(evaluated.model))
    assert evaluated.model is not None
    student, processor = siq_vl.load(
        evaluated.model,
        dtype=_dtype(recipe, evaluated),
        revision=evaluated.revision,
        trust_remote_code=recipe.trusts_student_code,
    )
    if evaluated.adapter is None:
        return student, processor
    from peft import PeftModel

    try:
        return lora.merge(PeftModel.from_pretrained(student, evaluated.adapter)), processor
    except (ValueError, RuntimeError, KeyError, TypeError, OSError) as error:
        raise ModelError(
            f"{evaluated.adapter}: this adapter cannot be loaded onto {evaluated.model}: {error}"
        ) from None


def _dtype(recipe: Recipe, evaluated: EvaluatedStudent) -> str:
    """The dtype of the recipe, the same for all arms; without a [student] the dtype of the checkpoint."""
    if recipe.student is not None:
        return recipe.student.dtype
    from transformers import AutoConfig

    with hub.cache_if_unreached(str(evaluated.model)):
        config = AutoConfig.from_pretrained(evaluated.model, revision=evaluated.revision)
    return str(config.dtype or "float32").removeprefix("torch.")


def _require_adapter_fits(model: str, adapter: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse an adapter whose layers are not the model's: PEFT would only warn, or leave them out."""
    from safetensors import SafetensorError, safe_open

    wrong = []
    try:
        with safe_open(adapter / _ADAPTER_FILE, framework="pt") as file:
            shapes_found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{adapter / _ADAPTER_FILE}: cannot be read: {error}") from None
    for name, shape in shapes_found.items():
        layer, kind, _ = name.removeprefix(_ADAPTER_PREFIX).partition(".lora_")
        # A layer's own weight where it was trained whole, else (out, in) against A's (rank, in) and B's (out, rank).
        expected = shapes.get(layer if not kind else f"{layer}.weight")
        if expected is None:
            wrong.append(f"{layer} is not there")
        elif not kind and expected != shape:
            wrong.append(f"{layer} is {_format_shape(expected)}, the adapter's {_format_shape(shape)}")
        elif ".lora_A." in name and shape[1:] != expected[1:]:
            wrong.append(f"{layer} takes {counted(expected[1], 'value')}, the adapter {shape[1]}")
        elif ".lora_B." in name and shape[0] != expected[0]:
            wrong.append(f"{layer} gives {counted(expected[0], 'value')}, the adapter {shape[0]}")
    if wrong or not shapes_found:
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ModelError(
            f"{adapter}: this adapter does not fit {model}: {'; '.join(wrong[:_SHOWN]) or 'it is empty'}{more}\n"
            "name the model that it was trained on"
        )


def _format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
