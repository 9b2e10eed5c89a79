"""The model card of an exported student: description, measured results, and how to run it.

The text is a template (templates/model_card.md). Every figure is from `eval/metrics.json`, the dataset and the
manifests of the run; what was not measured is stated as not measured. Licences are the recipe's word.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import orjson
import pyarrow.dataset as ds
import tomli_w

from distill import redact
from distill.artifacts.files import write_text
from distill.artifacts.integrity import is_student, learned_from
from distill.artifacts.layout import EVAL_METRICS
from distill.artifacts.manifest import Manifest, require, versions
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, is_traces, lineage
from distill.reports import metric_table
from distill.reports.markdown import environment
from distill.reports.metric_table import interval, probability
from distill.reports.plots import percent
from student.data.rows import data_folder, has_rationales
from student.inference.reply_metrics import columns, shown_metrics

CARD = "README.md"
_REPLAY = "stage.replay."
_PRIVATE = {"api_key_env", "base_url", "engine", "environment", "extra_headers", "server", "store"}
"""Keys of a recipe about the machine of the run, not about the student."""


def write_model_card(
    recipe: Recipe,
    run: Path,
    folder: Path,
    stage: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    gguf: Mapping[str, Any] | None = None,
) -> None:
    """Write README.md of the student that `stage` left, exported to `folder`.

    `arguments`: vLLM's options for it; `gguf`: facts about its GGUF files, if it is these.
    """
    arguments = arguments or {}
    assert recipe.student is not None
    parts = {
        part: recipe.public_name(name)
        for part in ("model", "vision", "language")
        if (name := getattr(recipe.student, part))
    }
    stages = lineage(recipe.stages, stage)
    from_traces = any(is_traces(each) for each in stages)
    trained = require(run / "train", stage, next_step="run `distill train` first")
    text = (
        environment("student.export")
        .get_template("model_card.md")
        .render(
            header=_header(recipe, list(parts.values()), "gguf" if gguf else "transformers"),
            name=recipe.name,
            stage=stage,
            parts=[f"{role} `{name}`" for role, name in parts.items()],
            parameters=trained.counts["parameters"],
            results=_results(recipe, run, stage, trained),
            max_new_tokens=recipe.eval.max_new_tokens,
            stages=[_stage_row(run, each) for each in stages],
            teachers=_teachers(recipe, run, stages) if from_traces else [],
            hinted=from_traces and any(teacher.hinted for teacher in recipe.teachers),
            reasons=any(has_rationales(recipe, each) for each in stages),
            think=recipe.filter.rationale == "think",
            arguments=shell_options(arguments),
            remote_code="trust-remote-code" in arguments,
            gguf=gguf,
            card=recipe.student.card,
            made_with=", ".join(f"{name} {version}" for name, version in versions("torch", "transformers").items()),
            settings=tomli_w.dumps(_public(redact.settings(recipe.model_dump(mode="json", exclude_defaults=True)))),
        )
    )
    write_text(folder / CARD, text)


def shell_options(arguments: Mapping[str, Any]) -> str:
    """Options of vLLM as a shell takes them; a table as JSON."""
    texts = {
        name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in arguments.items()
    }
    return " ".join(
        f"--{name}" if arguments[name] is True else f"--{name} {shlex.quote(text)}" for name, text in texts.items()
    )


def _header(recipe: Recipe, base_models: list[str], library: str) -> str:
    """The YAML front matter; base models are named where they are names of the hub."""
    from huggingface_hub import ModelCardData  # takes 0.1 s to import

    assert recipe.student is not None
    card = recipe.student.card
    other = card.license == "other"
    data = ModelCardData(
        base_model=[name for name in base_models if "/" in name] or None,
        language=list(recipe.filter.card.language) or None,
        library_name=library,
        license=card.license,
        license_name=card.license_name or "unknown" if other else None,
        license_link=card.license_link if other else None,
        model_name=recipe.name,
        pipeline_tag="image-text-to-text",
        tags=["distillation", "chain-of-thought"],
    )
    text: str = data.to_yaml()
    return text


def _results(recipe: Recipe, run: Path, stage: str, trained: Manifest) -> dict[str, Any] | None:
    """What the evaluation of the run says of the student that is there now; None where it has not asked it."""
    measured = Manifest.read(run / "eval")
    if measured is None:
        return None
    metrics = orjson.loads((run / "eval" / EVAL_METRICS).read_bytes())
    arms = metrics["arms"]
    arm = next((name for name, facts in arms.items() if facts.get("stage") == stage), None)
    if arm is None or not is_student(measured, arm, trained):
        return None
    shown = metric_table.table(arms, columns("headline", shown_metrics(metrics)))
    accuracy = {name: f"{percent(facts['accuracy'])} {interval(facts['ci95'])}" for name, facts in arms.items()}
    return {
        "arm": arm,
        "questions": measured.fields.get("eval.data", recipe.eval.data),
        "max_new_tokens": measured.fields.get("eval.max_new_tokens", recipe.eval.max_new_tokens),
        "temperature": measured.fields.get("eval.temperature", 0),
        "n": arms[arm]["n"],
        "accuracy": accuracy[arm],
        "columns": {measure.label: measure.note for measure in shown.measures if measure.note},
        "head": ["student", "accuracy %", *(measure.label for measure in shown.measures)],
        "rows": [
            [name, accuracy[name], *(f"{cell.text} {cell.interval}".strip() for cell in cells)]
            for name, cells in shown.rows.items()
        ],
        "differences": [
            [
                name,
                f"{percent(delta['delta'], signed=True)} {interval(delta['ci95'], signed=True)}",
                probability(delta["p"]),
            ]
            for name, delta in metrics["deltas"].items()
            if name in {f"{arm}-{other}" for other in arms} | {f"{other}-{arm}" for other in arms}
        ],
        "domains": [
            [name, f"{percent(part['accuracy'])} {interval(part['ci95'])}", part["n"]]
            for name, part in arms[arm]["domains"].items()
        ],
        "limited_by": arms[arm].get("limited_by"),
    }


def _stage_row(run: Path, stage: Stage) -> list[str]:
    manifest = require(run / "train", stage.name, next_step="run `distill train` first")
    # What it was trained with: the recipe may have changed since.
    data, target, train, rate = (
        manifest.fields.get(f"stage.{key}", getattr(stage, key))
        for key in ("data", "target", "train", "learning_rate")
    )
    replayed = "".join(
        f", {100 * share:g} % {name.removeprefix(_REPLAY)}"
        for name, share in sorted(manifest.fields.items())
        if name.startswith(_REPLAY)
    )
    return [
        stage.name,
        (f"{data} ({target})" if is_traces(stage) else data) + replayed,
        ", ".join(train),
        _steps(manifest),
        f"{manifest.tokens['trained']:,}",
        f"{rate:g}",
    ]


def _steps(manifest: Manifest) -> str:
    """The steps that a stage made, and the one after which its student was saved, if that is another."""
    kept = manifest.counts.get("kept_step")
    return f"{manifest.counts['steps']:,}" + (f" (student of step {kept:,})" if kept is not None else "")


def _teachers(recipe: Recipe, run: Path, stages: Sequence[Stage]) -> list[list[str]]:
    """Teachers of the dataset of the last stage with traces: model, revision, number of examples (unknown if the
    dataset was made again later), licence of their output."""
    stage = [each for each in stages if is_traces(each)][-1]
    folder = data_folder(run, stage)
    examples = ds.dataset(folder, format="parquet") if folder.is_dir() else None
    if examples is None or "teacher" not in examples.schema.names:  # a dataset made by hand
        return []
    counts = Counter(examples.to_table(columns=["teacher"])["teacher"].to_pylist())
    trained, filtered = (Manifest.read(run / each) for each in (f"train/{stage.name}", "filter"))
    is_outdated = trained is not None and filtered is not None and not learned_from(trained, filtered)
    licences = recipe.filter.card.teachers
    return [
        [
            teacher.name,
            recipe.public_name(teacher.model),
            teacher.revision or "",
            "not known: the dataset was made again" if is_outdated else f"{counts[teacher.name]:,}",
            licences.get(teacher.name, "not stated"),
        ]
        for teacher in recipe.teachers
        if counts[teacher.name] and (not stage.teachers or teacher.name in stage.teachers)
    ]


def _public(value: Any) -> Any:
    """The settings of a recipe without places of this machine: of a whole path the last part alone."""
    if isinstance(value, Mapping):
        return {key: _public(inner) for key, inner in value.items() if key not in _PRIVATE and inner is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_public(inner) for inner in value]
    if isinstance(value, str) and PurePath(value).is_absolute() and "/" in value[1:]:
        return PurePath(value).name
    return value
