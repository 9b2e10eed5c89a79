"""The report of a verified export: its questions, its checks, and the error of an export that fails.

Does not compare weights (student/export/verify.py, student/export/gguf/verify.py) or replies
(student/export/reply_comparison.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from distill.artifacts.files import write_json
from distill.artifacts.manifest import versions
from distill.data import reader
from distill.errors import DataError, DistillError
from distill.recipe.recipe import Recipe
from distill.types import Sample

if TYPE_CHECKING:
    from student.export.reply_comparison import Tokens

REPORT = "verify.json"
_LOOKED_AT = 4096
_SHOWN = 3


class VerifiedServer(Protocol):
    """A server of a checkpoint while it lives."""

    @property
    def engine(self) -> str:
        """Its name and version."""

    @property
    def ask(self) -> "Callable[[Sequence[Sample]], Sequence[Tokens]]":
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


def questions(recipe: Recipe, count: int) -> tuple[str, list[Sample]]:
    """Up to `count` questions spread over the evaluation's source, else the first source that has any; its name.

    Questions with images are taken where a source has some. Raises DataError when there are none at all.
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


@contextmanager
def reported(
    out: Path, *, stage: str, form: str, dtype: str, asked: tuple[str, Sequence[Sample]], library: str
) -> Iterator[dict[str, Any]]:
    """The report on the export in `out`, which is written to verify.json also when a check fails.

    `asked` is what `questions` gave.
    """
    source, samples = asked
    report: dict[str, Any] = {
        "passed": False,
        "stage": stage,
        "form": form,
        "dtype": dtype,
        "source": source,
        "prompts": len(samples),
        "with_images": sum(bool(sample.images) for sample in samples),
        "versions": versions("torch", "transformers", library),
        "checks": [],
    }
    try:
        yield report
        report["passed"] = True
    finally:
        write_json(out / REPORT, report)


def add_replies(
    out: Path, report: dict[str, Any], replies: Mapping[str, Any], limit: float | None, *, why_none: str
) -> None:
    """Add the comparison of a server's greedy replies and check it: at least the share `limit` is equal.

    Without a limit, for the reason `why_none`, any share passes.
    """
    report["replies"] = replies
    prompts, share = replies["same_prompts"] / replies["compared"], replies["identical_share"]
    note = "" if limit is not None else f"reported only: {why_none}"
    checks = [
        ExportCheck(name="same_prompts", value=prompts, limit=1.0, passed=prompts == 1.0),
        ExportCheck(
            name="identical_replies", value=share, limit=limit, passed=limit is None or share >= limit, note=note
        ),
    ]
    add_checks(out, report, checks, replies["differences"])


_MEANING = {
    "tensors": "a tensor of the file differs from the run's student",
    "weights": "the export does not hold the weights of the run",
    "settings": "the export holds another tokenizer, template or way to end replies than the run",
    "logits": "the export computes other logits than the student of the run",
    "learned": "the merged weights are those that the stage started from",
    "adapter": "the merged student differs from its start model with the adapter",
    "same_prompts": "the server encodes the same questions to other token ids",
    "identical_replies": "the server's greedy replies differ from transformers",
}


def add_checks(
    out: Path, report: dict[str, Any], checks: Sequence[ExportCheck], differences: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Add checks to a report. Raises DistillError naming those that failed, with the first replies that differ."""
    report["checks"] += map(asdict, checks)
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
    lines.append(f"every figure is in {out / REPORT}; do not serve this export before you know the cause")
    raise DistillError("\n".join(lines))
