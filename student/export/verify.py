"""Checks that an exported student is the trained one, and that a server of it replies as transformers does.

First weights and logits: export against run, run against what the stage started from, merged against adapter. Then
greedy replies, token by token. Does not start a server: the caller passes a function that asks one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from peft import PeftModel
from transformers import PreTrainedModel, ProcessorMixin

from distill.artifacts import layout
from distill.artifacts.files import write_json
from distill.artifacts.layout import model_folder
from distill.artifacts.manifest import versions
from distill.data import reader
from distill.errors import DataError, DistillError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, start_of
from distill.types import Progress, ProgressCallback, Sample, unwatched
from student.data.encode import Encoder
from student.data.images import ImageStore
from student.export import convert
from student.export.reply_comparison import ComparedStudent, Tokens
from student.inference.generation import Prompter
from student.models import siq_vl, start_model
from student.models.inputs import end_ids

REPORT = "verify.json"
RELOADED_LIMIT = 1e-5
"""Largest difference of logits between the export and the student of the run, both in float32."""
MERGED_LIMIT = 1e-4
"""Largest difference of logits between the merged student and its start with the adapter, both in float32."""
ROUNDED_LIMIT = 0.05
"""The same for weights merged in bfloat16, as a share of the largest logit: merging rounds each to 8 bits."""
IDENTICAL_SHARE = 0.99
"""Share of equal replies under which a float32 export fails."""

_PROBES = 8
_KEPT_LOGITS = 8
_LOOKED_AT = 4096
_SHOWN = 3
_OF_LIBRARY = ("transformers_version", "_from_model_config")
"""Keys of a generation config that say how it was written."""


class VerifiedServer(Protocol):
    """A server of a checkpoint while it lives."""

    @property
    def engine(self) -> str:
        """Its name and version."""

    @property
    def ask(self) -> Callable[[Sequence[Sample]], Sequence[Tokens]]:
        """Greedy replies, in the order of the questions."""


Serve = Callable[..., AbstractContextManager[VerifiedServer]]
"""serve(checkpoint, arguments=..., max_new_tokens=..., max_pixels=...); the arguments are vLLM's options by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCheck:
    """One measured value and its upper bound. Without a value it could not be measured; `note` says why."""

    name: str
    value: float | None
    limit: float | None
    passed: bool
    note: str = ""


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

    `prompts` is how many questions, with pictures where the recipe has some, are asked. Raises DistillError when
    something is not as it should be; what was measured until then is in the report.
    """
    source, samples = questions(recipe, prompts)
    report: dict[str, Any] = {
        "passed": False,
        "stage": stage,
        "form": convert.form_of(out),
        "dtype": convert.dtype_of(out),
        "source": source,
        "prompts": len(samples),
        "with_images": sum(bool(sample.images) for sample in samples),
        "versions": versions("torch", "transformers", "peft"),
    }

    def on_done(activity: str, done: int) -> None:
        on_progress(Progress(stage=f"verify {activity}", done=done, total=len(samples), unit="prompts"))

    try:
        checks = weights(recipe, run, out, stage, samples[:_PROBES])
        report["checks"] = [asdict(check) for check in checks]
        require_passed(out, checks)
        student = ComparedStudent(recipe, out, samples, source)
        expected = student.replies(lambda done: on_done("transformers", done))
        arguments = {
            **convert.server_arguments(out),
            "dtype": report["dtype"],
            "max-model-len": student.longest + recipe.eval.max_new_tokens,
            "limit-mm-per-prompt": {"image": max(len(sample.images) for sample in samples)},
        }
        limits = {"max_new_tokens": recipe.eval.max_new_tokens, "max_pixels": student.max_pixels}
        with serve(out, arguments=arguments, **limits) as server:
            report["server"] = {"engine": server.engine, "arguments": arguments}
            served = server.ask(samples)
        on_done("vllm", len(samples))
        replies = student.compare(expected, served)
        report["replies"] = replies
        limit = IDENTICAL_SHARE if report["dtype"] == "float32" else None
        checks = reply_checks(replies, limit, why_none="in half precision ties fall either way")
        report["checks"] += [asdict(check) for check in checks]
        require_passed(out, checks, replies["differences"])
        report["passed"] = True
    finally:
        write_json(out / REPORT, report)
    return report


def questions(recipe: Recipe, count: int) -> tuple[str, list[Sample]]:
    """Up to `count` questions spread over the evaluation's source, else the first source that has any; its name.

    Questions with pictures are taken where a source has some. Raises DataError when there are none at all.
    """
    others = [name for name in recipe.data if name != recipe.eval.data]
    source, pool = "", list[Sample]()
    for name in [recipe.eval.data] * (recipe.eval.data in recipe.data) + others:
        result = list(islice(_readable(recipe, name), _LOOKED_AT))
        pictured = [sample for sample in result if sample.images]
        if pictured or (result and not pool):
            source, pool = name, pictured or result
        if pictured:
            break
    if not pool:
        raise DataError(f"{recipe.path}: no source of the recipe can be read, so there is nothing to ask")
    step = max(1.0, len(pool) / count)
    return source, [pool[int(index * step)] for index in range(min(count, len(pool)))]


def _readable(recipe: Recipe, name: str) -> Iterator[Sample]:
    try:
        yield from reader.samples(recipe, name)
    except DataError:
        return


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
    """A checkpoint in float32, whatever it lies in: weights are compared here, not arithmetic."""
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
    return ExportCheck(name="weights", value=0.0, limit=0.0, passed=True, note=f"{len(expected)} tensors")


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
    prompter = Prompter(Encoder(processor, end_ids(model)), ImageStore(processor, torch.float32), max_pixels)
    (batch,) = prompter.batches(samples, len(samples))
    return prompter.inputs(model, samples, batch)


@torch.inference_mode()
def _logits(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Of the last positions of each prompt, which see all of it: (prompts, positions, vocabulary)."""
    result: torch.Tensor = model(**inputs, logits_to_keep=_KEPT_LOGITS, use_cache=False).logits
    return result.float()


def reply_checks(replies: Mapping[str, Any], limit: float | None, *, why_none: str) -> list[ExportCheck]:
    """Checks of a server's greedy replies: at least the share `limit` is equal; None and its reason: any share."""
    prompts = replies["same_prompts"] / replies["compared"]
    share = replies["identical_share"]
    return [
        ExportCheck(name="same_prompts", value=prompts, limit=1.0, passed=prompts == 1.0),
        ExportCheck(
            name="identical_replies",
            value=share,
            limit=limit,
            passed=limit is None or share >= limit,
            note="" if limit is not None else f"reported only: {why_none}",
        ),
    ]


_MEANING = {
    "tensors": "a tensor of the file is not what the run's student gives",
    "weights": "the export does not hold the weights of the run",
    "settings": "the export holds another tokenizer, template or way to end replies than the run",
    "logits": "the export computes other logits than the student of the run",
    "learned": "the merge kept the weights that the stage started from",
    "adapter": "the merged student is not its start with the adapter",
    "same_prompts": "the server makes other token ids of the same questions",
    "identical_replies": "the server's greedy replies are not those of transformers",
}


def require_passed(out: Path, checks: Sequence[ExportCheck], differences: Sequence[Mapping[str, Any]] = ()) -> None:
    """Raise DistillError naming every check that failed, with the first replies that differ."""
    failed = [check for check in checks if not check.passed]
    if not failed:
        return
    lines = [f"{out}: this export is not the trained student:"]
    for check in failed:
        figure = "" if check.value is None else f": {check.value:.6g}"
        limit = "" if check.limit is None else f" (limit {check.limit:g})"
        lines.append(f"  {check.name}: {_MEANING[check.name]}{figure}{limit}{'; ' if check.note else ''}{check.note}")
    lines += [
        f"  {difference['question']!r}, token {difference['position']}: transformers says "
        f"{difference['transformers']!r}, the server {difference['server']!r} (margin {difference['margin']:.3g})"
        for difference in differences[:_SHOWN]
    ]
    lines.append(f"every figure is in {out / REPORT}; don't serve it before this is understood")
    raise DistillError("\n".join(lines))
