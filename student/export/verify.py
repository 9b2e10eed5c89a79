"""Checks that an exported student is the trained one, and that a server of it replies as transformers does.

First weights and logits: export against run, run against what the stage started from, merged against adapter. Then
greedy replies, token by token. Does not start a server: the caller passes a function that asks one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel, ProcessorMixin

from distill.artifacts import layout
from distill.artifacts.layout import model_folder
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, start_of
from distill.types import Progress, ProgressCallback, Sample, unwatched
from distill.word_tables import counted
from student.data.encode import Encoder
from student.data.images import ImageStore
from student.export import convert
from student.export.check_report import ExportCheck, Serve, add_checks, add_replies, questions, reported
from student.export.reply_comparison import ComparedStudent
from student.inference.generation import Prompter
from student.models import siq_vl, start_model
from student.models.library_output import hide_library_output

RELOADED_LIMIT = 1e-5
"""Largest difference of logits between the export and the student of the run, both in float32."""
MERGED_LIMIT = 1e-4
"""Largest difference of logits between the merged student and its start with the adapter, both in float32."""
ROUNDED_LIMIT = 0.05
"""As MERGED_LIMIT, for weights merged in bfloat16 and as a share of the largest logit: merging rounds each to 8 bits.
"""
IDENTICAL_SHARE = 0.99
"""Share of equal replies under which a float32 export fails."""

_PROBES = 8
_KEPT_LOGITS = 8
_OF_LIBRARY = ("transformers_version", "_from_model_config")
"""Keys of a generation config that say how it was written."""


@hide_library_output()
def verify(
    recipe: Recipe,
    run: Path,
    out: Path,
    serve: Serve,
    *,
    stage: str,
    prompts: int,
    on_progress: ProgressCallback = unwatched,
) -> dict[str, Any]:
    """Compare the export in `out` with the run, then with the replies of a server; the report, also in verify.json.

    `prompts` is how many questions, with images where the recipe has some, are asked. Raises DistillError when
    something is not as it should be; what was measured until then is in the report.
    """
    source, samples = questions(recipe, prompts)
    form, dtype = convert.form_of(out), convert.dtype_of(out)

    def on_done(activity: str, done: int) -> None:
        on_progress(Progress(stage=f"verify {activity}", done=done, total=len(samples), unit="prompts"))

    with reported(out, stage=stage, form=form, dtype=dtype, asked=(source, samples), library="peft") as report:
        add_checks(out, report, weights(recipe, run, out, stage, samples[:_PROBES]))
        student = ComparedStudent(recipe, out, samples, source)
        expected = student.replies(lambda done: on_done("transformers", done))
        arguments = {
            **convert.server_arguments(out),
            "dtype": dtype,
            "max-model-len": student.longest + recipe.eval.max_new_tokens,
            "limit-mm-per-prompt": {"image": max(len(sample.images) for sample in samples)},
        }
        limits = {"max_new_tokens": recipe.eval.max_new_tokens, "max_pixels": student.max_pixels}
        with serve(out, arguments=arguments, **limits) as server:
            report["server"] = {"engine": server.engine, "arguments": arguments}
            served = server.ask(samples)
        on_done("vllm", len(samples))
        limit = IDENTICAL_SHARE if dtype == "float32" else None
        replies = student.compare(expected, served)
        add_replies(out, report, replies, limit, why_none="in half precision, ties can be decided in both ways")
    return report


def weights(recipe: Recipe, run: Path, out: Path, stage: str, samples: Sequence[Sample]) -> list[ExportCheck]:
    """Export against run, run against the stage's start, and merged against adapter where there is one."""
    trained, (settings,) = model_folder(run, stage), [result for result in recipe.stages if result.name == stage]
    merged, processor = _load(recipe, trained)
    inputs = _probe(merged, processor, samples, recipe.max_pixels)
    logits = _logits(merged, inputs)
    exported, own_processor = _load(recipe, out)
    checks = [_same_weights(merged, exported), _within("logits", logits, _logits(exported, inputs), RELOADED_LIMIT)]
    own_inputs = _probe(exported, own_processor, samples, recipe.max_pixels)
    checks.append(
        _same_settings(_settings(merged, processor, inputs), _settings(exported, own_processor, own_inputs))
    )
    del merged, exported
    return [*checks, *_learned(recipe, run, settings, inputs, logits, convert.dtype_of(trained))]


def _load(recipe: Recipe, folder: Path) -> tuple[PreTrainedModel, ProcessorMixin]:
    """A checkpoint in float32, independent of its stored dtype: this check compares weights, not arithmetic."""
    assert recipe.student is not None
    return siq_vl.load(str(folder), dtype="float32", trust_remote_code=recipe.student.trust_remote_code)


def _same_weights(merged: PreTrainedModel, exported: PreTrainedModel) -> ExportCheck:
    """Every weight of the run bit for bit; weights that only the export has must be zero."""
    expected, result = merged.state_dict(), exported.state_dict()
    for name in sorted(expected.keys() | result.keys()):
        if name not in result:
            return ExportCheck(name="weights", value=None, limit=0.0, passed=False, note=f"{name} is missing")
        value = result[name]
        expected_value = expected.get(name, torch.zeros_like(value))
        if expected_value.shape != value.shape or not torch.equal(expected_value, value):
            far = float((expected_value - value).abs().max()) if expected_value.shape == value.shape else None
            return ExportCheck(name="weights", value=far, limit=0.0, passed=False, note=f"{name} differs")
    return ExportCheck(name="weights", value=0.0, limit=0.0, passed=True, note=f"{counted(len(expected), 'tensor')}")


def _settings(model: PreTrainedModel, processor: ProcessorMixin, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a server reads beside the weights, by its place in the checkpoint."""
    generation = model.generation_config.to_dict() if model.generation_config is not None else {}
    return {
        "chat_template": processor.chat_template,
        "generation_config": {key: value for key, value in generation.items() if key not in _OF_LIBRARY},
        "special tokens": processor.tokenizer.special_tokens_map,
        **{f"{name} of a question": value for name, value in inputs.items() if isinstance(value, torch.Tensor)},
    }


def _same_settings(expected: Mapping[str, Any], result: Mapping[str, Any]) -> ExportCheck:
    """The same questions give the same inputs, and replies begin and end alike."""

    def same(name: str) -> bool:
        first, second = expected.get(name), result.get(name)
        if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
            return torch.equal(first, second)
        return bool(first == second)

    differing = [name for name in {**expected, **result} if not same(name)]
    note = f"{', '.join(differing)} differ{'s' if len(differing) == 1 else ''}" if differing else ""
    return ExportCheck(name="settings", value=None, limit=None, passed=not differing, note=note)


def _learned(
    recipe: Recipe, run: Path, stage: Stage, inputs: Mapping[str, Any], logits: torch.Tensor, dtype: str
) -> list[ExportCheck]:
    """Checks that the student differs from its start, and equals the start with its adapter."""
    before = start_of(recipe.stages, stage)
    start, _ = start_model.load(recipe, None if before is None else model_folder(run, before))
    start = start.float().eval()
    changed = float((logits - _logits(start, inputs)).abs().max())
    note = "" if changed > 0 else f"the student of stage {stage.name} is what the stage started from"
    checks = [ExportCheck(name="learned", value=changed, limit=None, passed=changed > 0, note=note)]
    if stage.lora is None:
        return checks
    if stage.lora.quantize is not None:
        # The adapter was trained on the start model rounded to 4 bits, and no file holds that model.
        return [
            *checks,
            ExportCheck(name="adapter", value=None, limit=None, passed=True, note="not compared: 4-bit base"),
        ]
    adapted = PeftModel.from_pretrained(start, run / "train" / stage.name / layout.ADAPTER).eval()
    limit = MERGED_LIMIT if dtype == "float32" else ROUNDED_LIMIT * float(logits.abs().max())
    return [*checks, _within("adapter", logits, _logits(adapted, inputs), limit)]


def _within(name: str, expected: torch.Tensor, result: torch.Tensor, limit: float) -> ExportCheck:
    far = float((expected - result).abs().max()) if expected.shape == result.shape else float("inf")
    return ExportCheck(name=name, value=far, limit=limit, passed=far <= limit)


def _probe(
    model: PreTrainedModel, processor: ProcessorMixin, samples: Sequence[Sample], max_pixels: int
) -> dict[str, Any]:
    prompter = Prompter(Encoder.of(model, processor), ImageStore(processor, torch.float32), max_pixels)
    (batch,) = prompter.batches(samples, len(samples))
    return prompter.inputs(model, samples, batch)


@torch.inference_mode()
def _logits(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """The logits of the last positions of each prompt: (prompts, positions, vocabulary)."""
    result: torch.Tensor = model(**inputs, logits_to_keep=_KEPT_LOGITS, use_cache=False).logits
    return result.float()
