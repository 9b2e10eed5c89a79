"""Proof that an exported student is the one that was trained, and that a server of it says what transformers says.

First weights and logits: export against run, run against what the stage started from, merged against adapter. Then
greedy replies, token by token. Does not start a server: whoever calls hands in a function that asks one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel, ProcessorMixin

from distill import data
from distill.artifacts import versions, write_json
from distill.errors import DataError, DistillError
from distill.recipe import Recipe, Stage
from distill.types import Progress, ProgressCallback, Sample, unwatched
from student import export, generation
from student import model as models
from student import stage as stages
from student.encode import Encoder
from student.pictures import ImageStore
from student.train import model_folder, start_of

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
_BATCH = 16
_LOOKED_AT = 4096
_SHOWN = 3
_RECORDED = 20


Ask = Callable[[Sequence[Sample]], Sequence[tuple[Sequence[int], Sequence[int]]]]
"""Token ids of the prompts, image tokens included, and of the greedy replies, the end of the turn included."""
Serve = Callable[..., AbstractContextManager[Ask]]
"""serve(checkpoint, arguments=..., max_new_tokens=..., max_pixels=...), the arguments being vLLM's options by name:
asks a server of the checkpoint that lives while the block lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure, and what it may be at most. Without a figure it could not be taken; `note` says why."""

    name: str
    value: float | None
    limit: float | None
    passed: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where the replies to one question part. `margin` is how much likelier, in logits, transformers finds its own
    token there; near zero it is a tie that rounding decides."""

    sample_id: str
    question: str
    position: int
    transformers: str
    server: str
    margin: float


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
    """Compare the export in `out` with the run, then with what a server of it says; the report, also in verify.json.

    `prompts` is how many questions, with pictures where the recipe has some, are asked. Raises DistillError when
    something is not as it should be; what was measured until then is in the report.
    """
    source, samples = questions(recipe, prompts)
    report: dict[str, Any] = {
        "passed": False,
        "stage": stage,
        "form": export.form_of(out),
        "dtype": export.dtype_of(out),
        "source": source,
        "prompts": len(samples),
        "with_images": sum(bool(sample.images) for sample in samples),
        "versions": versions("torch", "transformers", "peft"),
    }

    def told(what: str, done: int) -> None:
        on_progress(Progress(stage=f"verify {what}", done=done, total=len(samples), unit="prompts"))

    try:
        checks = weights(recipe, run, out, stage, samples[:_PROBES])
        report["checks"] = [asdict(check) for check in checks]
        _require(out, checks)
        student = _Student(recipe, out, samples, source)
        expected = student.replies(lambda done: told("transformers", done))
        arguments = {
            **export.server_arguments(out),
            "dtype": report["dtype"],
            "max-model-len": student.longest + recipe.eval.max_new_tokens,
            "limit-mm-per-prompt": {"image": max(len(sample.images) for sample in samples)},
        }
        report["server"] = arguments
        limits = {"max_new_tokens": recipe.eval.max_new_tokens, "max_pixels": student.max_pixels}
        with serve(out, arguments=arguments, **limits) as ask:
            served = ask(samples)
        told("vllm", len(samples))
        replies = student.compare(expected, served)
        report["replies"] = replies
        checks = _reply_checks(replies, exact=report["dtype"] == "float32")
        report["checks"] += [asdict(check) for check in checks]
        _require(out, checks, replies["differences"])
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
        found = list(islice(_readable(recipe, name), _LOOKED_AT))
        pictured = [sample for sample in found if sample.images]
        if pictured or (found and not pool):
            source, pool = name, pictured or found
        if pictured:
            break
    if not pool:
        raise DataError(f"{recipe.path}: no source of the recipe can be read, so there is nothing to ask")
    step = max(1.0, len(pool) / count)
    return source, [pool[int(place * step)] for place in range(min(count, len(pool)))]


def _readable(recipe: Recipe, name: str) -> Iterator[Sample]:
    try:
        yield from data.samples(recipe, name)
    except DataError:
        return


def weights(recipe: Recipe, run: Path, out: Path, stage: str, samples: Sequence[Sample]) -> list[Check]:
    """Export against run, run against the stage's start, and merged against adapter where there is one."""
    trained, (settings,) = model_folder(run, stage), [found for found in recipe.stages if found.name == stage]
    merged, processor = _load(recipe, trained)
    inputs = _probe(merged, processor, samples, _max_pixels(recipe))
    logits = _logits(merged, inputs)
    exported, _ = _load(recipe, out)
    checks = [_same_weights(merged, exported), _within("logits", logits, _logits(exported, inputs), RELOADED_LIMIT)]
    del merged, exported
    return [*checks, *_learned(recipe, run, settings, inputs, logits, export.dtype_of(trained))]


def _load(recipe: Recipe, folder: Path) -> tuple[PreTrainedModel, ProcessorMixin]:
    """A checkpoint in float32, whatever it lies in: weights are compared here, not arithmetic."""
    assert recipe.student is not None
    return models.load(str(folder), dtype="float32", trust_remote_code=recipe.student.trust_remote_code)


def _same_weights(merged: PreTrainedModel, exported: PreTrainedModel) -> Check:
    """Every weight of the run bit for bit; weights that only the export has must be zero."""
    expected, found = merged.state_dict(), exported.state_dict()
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return Check(name="weights", value=None, limit=0.0, passed=False, note=f"{name} is missing")
        value = found[name]
        wanted = expected.get(name, torch.zeros_like(value))
        if wanted.shape != value.shape or not torch.equal(wanted, value):
            far = float((wanted - value).abs().max()) if wanted.shape == value.shape else None
            return Check(name="weights", value=far, limit=0.0, passed=False, note=f"{name} differs")
    return Check(name="weights", value=0.0, limit=0.0, passed=True, note=f"{len(expected)} tensors")


def _learned(
    recipe: Recipe, run: Path, stage: Stage, inputs: Mapping[str, Any], logits: torch.Tensor, dtype: str
) -> list[Check]:
    """That the student is not what its stage started from, and is what the adapter makes of that."""
    before = start_of(recipe, stage)
    start, _ = stages._load(recipe, None if before is None else model_folder(run, before))
    start = start.float().eval()
    changed = float((logits - _logits(start, inputs)).abs().max())
    note = "" if changed > 0 else f"the student of stage {stage.name} is what the stage started from"
    checks = [Check(name="learned", value=changed, limit=None, passed=changed > 0, note=note)]
    if stage.lora is None:
        return checks
    if stage.lora.quantize is not None:
        # What the adapter was trained on is the start as rounded to 4 bits, and that is nowhere to be read.
        return [*checks, Check(name="adapter", value=None, limit=None, passed=True, note="not compared: 4-bit base")]
    adapted = PeftModel.from_pretrained(start, run / "train" / stage.name / stages.ADAPTER).eval()
    limit = MERGED_LIMIT if dtype == "float32" else ROUNDED_LIMIT * float(logits.abs().max())
    return [*checks, _within("adapter", logits, _logits(adapted, inputs), limit)]


def _within(name: str, expected: torch.Tensor, found: torch.Tensor, limit: float) -> Check:
    far = float((expected - found).abs().max()) if expected.shape == found.shape else float("inf")
    return Check(name=name, value=far, limit=limit, passed=far <= limit)


def _probe(
    model: PreTrainedModel, processor: ProcessorMixin, samples: Sequence[Sample], max_pixels: int
) -> dict[str, Any]:
    encoder, store = Encoder(processor, stages.end_ids(model)), ImageStore(processor, torch.float32)
    (batch,) = generation.batches(encoder, store, samples, batch_size=len(samples), max_pixels=max_pixels)
    return generation.prompt_inputs(
        processor, encoder, store, samples, batch, max_pixels=max_pixels, type_name=stages.type_name(model)
    )


@torch.inference_mode()
def _logits(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Of the last positions of each prompt, which see all of it: (prompts, positions, vocabulary)."""
    found: torch.Tensor = model(**inputs, logits_to_keep=_KEPT_LOGITS, use_cache=False).logits
    return found.float()


def _max_pixels(recipe: Recipe) -> int:
    return max(source.max_pixels for source in recipe.data.values())


class _Student:
    """The export in transformers, in its own dtype, with the questions it is asked."""

    def __init__(self, recipe: Recipe, out: Path, samples: Sequence[Sample], source: str) -> None:
        assert recipe.student is not None
        dtype = export.dtype_of(out)
        self._model, self._processor = models.load(
            str(out), dtype=dtype, trust_remote_code=recipe.student.trust_remote_code
        )
        self._model.eval()
        self._samples = samples
        self._max_new_tokens = recipe.eval.max_new_tokens
        self.max_pixels = recipe.data[source].max_pixels
        self._encoder = Encoder(self._processor, stages.end_ids(self._model))
        self._store = ImageStore(self._processor, getattr(torch, dtype))
        self._batches = list(
            generation.batches(self._encoder, self._store, samples, batch_size=_BATCH, max_pixels=self.max_pixels)
        )
        self.prompts = {place: ids for batch in self._batches for place, ids in batch}
        self.longest = max(map(len, self.prompts.values()))

    def replies(self, on_done: Callable[[int], None]) -> dict[int, list[int]]:
        """Greedy replies by the question's place."""
        self._model.to("cuda" if torch.cuda.is_available() else "cpu")
        found: dict[int, list[int]] = {}
        for batch in self._batches:
            ids = generation.reply_ids(
                self._model,
                self._processor,
                self._encoder,
                self._store,
                self._samples,
                batch,
                max_new_tokens=self._max_new_tokens,
                max_pixels=self.max_pixels,
                type_name=stages.type_name(self._model),
            )
            found |= {place: reply for (place, _), reply in zip(batch, ids, strict=True)}
            on_done(len(found))
        self._model.to("cpu")  # the server needs the GPU
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return found

    def compare(
        self, expected: Mapping[int, list[int]], served: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> dict[str, Any]:
        """Shares over questions and tokens, and the first differences."""
        same_prompts = identical = prefix = tokens = agreeing = said = 0
        differences: list[Difference] = []
        for place, mine in sorted(expected.items()):
            asked, theirs = map(list, served[place])
            logits = self._following(place, theirs)
            same_prompts += asked == self.prompts[place]
            agreeing += int((logits.argmax(-1) == torch.tensor(theirs)).sum())
            said += len(theirs)
            shared = _shared(mine, theirs)
            prefix += shared
            tokens += max(len(mine), len(theirs))
            identical += mine == theirs
            if mine != theirs:
                differences.append(self._difference(place, shared, mine, theirs, logits))
        count = len(expected)
        return {
            "compared": count,
            "same_prompts": same_prompts,
            "identical": identical,
            "identical_share": identical / count,
            "shared_prefix_share": prefix / tokens,
            "top1_agreement": agreeing / said if said else 0.0,
            "tokens": said,
            "differences": [asdict(difference) for difference in differences[:_RECORDED]],
        }

    @torch.inference_mode()
    def _following(self, place: int, ids: Sequence[int]) -> torch.Tensor:
        """Logits of transformers at every token of a reply, given the reply so far; (tokens, vocabulary)."""
        inputs = generation.prompt_inputs(
            self._processor,
            self._encoder,
            self._store,
            self._samples,
            [(place, [*self.prompts[place], *ids])],
            max_pixels=self.max_pixels,
            type_name=stages.type_name(self._model),
        )
        found = self._model(**inputs, logits_to_keep=len(ids) + 1, use_cache=False).logits[0]
        return torch.as_tensor(found[:-1].float())

    def _difference(
        self, place: int, shared: int, mine: Sequence[int], theirs: Sequence[int], logits: torch.Tensor
    ) -> Difference:
        both = [reply[shared : shared + 1] for reply in (mine, theirs)]
        margin = float("nan")
        if all(both):
            margin = float(logits[shared, both[0][0]] - logits[shared, both[1][0]])
        shown = [self._processor.tokenizer.decode(ids) if ids else "(end)" for ids in both]
        return Difference(
            sample_id=self._samples[place].id,
            question=self._samples[place].question,
            position=shared,
            transformers=shown[0],
            server=shown[1],
            margin=margin,
        )


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix."""
    both = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(both) if one != other), min(len(first), len(second)))


def _reply_checks(replies: Mapping[str, Any], *, exact: bool) -> list[Check]:
    prompts = replies["same_prompts"] / replies["compared"]
    share = replies["identical_share"]
    note = "" if exact else "reported only: in half precision ties fall either way"
    return [
        Check(name="same_prompts", value=prompts, limit=1.0, passed=prompts == 1.0),
        Check(
            name="identical_replies",
            value=share,
            limit=IDENTICAL_SHARE if exact else None,
            passed=not exact or share >= IDENTICAL_SHARE,
            note=note,
        ),
    ]


_MEANING = {
    "weights": "the export does not hold the weights of the run",
    "logits": "the export computes other logits than the student of the run",
    "learned": "the merge kept the weights that the stage started from",
    "adapter": "the merged student is not its start with the adapter",
    "same_prompts": "the server makes other token ids of the same questions",
    "identical_replies": "the server's greedy replies are not those of transformers",
}


def _require(out: Path, checks: Sequence[Check], differences: Sequence[Mapping[str, Any]] = ()) -> None:
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
