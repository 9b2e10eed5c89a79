"""What can be known before a run: every row, image and setting checked, and what the run will take.

No server, GPU or torch is needed. The plan that reading the source gives is kept for the run that follows, unless a
finished stage would suffer. Estimates come from traces that are there already, such as those of a first look with
`--limit`; without any there are only upper bounds.
"""

import math
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from os import environ
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import orjson

from distill import data
from distill.artifacts import MANIFEST, locked, read_jsonl_at
from distill.errors import ModelError, RecipeError
from distill.recipe import Recipe, Teacher
from distill.status import table
from distill.types import Outcome
from teacher import plan as planning
from teacher.journals import parts

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_CI95 = 1.96


@dataclass(slots=True)
class _Written:
    """What the traces of one teacher that are there took."""

    prompt_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    bytes: int = 0
    first: float = math.inf
    last: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        seconds = self.last - self.first
        return sum(self.output_tokens) / seconds if seconds > 0 else 0.0


def preflight(recipe: Recipe, run: Path, *, limit: int | None = None) -> str:
    """Check everything that a run of `generate` depends on but its servers; the findings as text.

    Raises what `generate` would raise: RecipeError, DataError, ModelError.
    """
    models = planning.check(recipe)
    for teacher in recipe.teachers:
        _check_key(teacher)
        _check_model(recipe, teacher)
    folder = run / "generate"
    with locked(run):
        pending, routed = planning.prepare(recipe, folder, limit=limit)
        found = _read(pending, routed)
        if (folder / MANIFEST).exists():
            shutil.rmtree(pending)
        else:
            now = planning.state(recipe, folder, planning.settings(recipe, models), limit)
            planning.adopt(pending, folder, now, routed)
    return "\n\n".join([_rows(found), _teachers(recipe, found, folder)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What reading the source gave."""

    samples: int
    images: int
    quarantined: Counter[str]
    routed: dict[str, int]


def _read(pending: Path, routed: dict[str, int]) -> _Found:
    images: set[str] = set()
    samples = 0
    for sample in data.read_samples(pending / planning.SAMPLES):
        samples += 1
        images.update(ref.sha256 for ref in sample.images)
    return _Found(samples=samples, images=len(images), quarantined=planning.quarantined(pending), routed=routed)


def _check_key(teacher: Teacher) -> None:
    if teacher.api_key_env and not environ.get(teacher.api_key_env):
        raise RecipeError(
            f"teachers.{teacher.name}: api_key_env names {teacher.api_key_env}, which is not set; export it first"
        )


def _check_model(recipe: Recipe, teacher: Teacher) -> None:
    """Raises ModelError for a local checkpoint that no engine could load; hub names are not looked up."""
    folder = Path(recipe.local_or_hub(teacher.model))
    if not folder.is_dir():
        if teacher.backend == "embedded" and teacher.model.startswith((".", "/", "~")):
            raise ModelError(f"teacher '{teacher.name}': no directory {folder}; correct teachers.model")
        return
    configured = folder / "tokenizer_config.json"
    template = any((folder / name).is_file() for name in _TEMPLATES) or (
        configured.is_file() and "chat_template" in orjson.loads(configured.read_bytes())
    )
    for there, what in (
        ((folder / "config.json").is_file(), "config.json"),
        (any(folder.glob("*.safetensors")), "*.safetensors"),
        (any((folder / name).is_file() for name in _TOKENIZERS), "tokenizer.json"),
        (template, "chat_template.jinja"),
    ):
        if not there:
            raise ModelError(f"teacher '{teacher.name}': {folder} has no {what}; it is not a whole checkpoint")


def _rows(found: _Found) -> str:
    rows = [("usable questions", f"{found.samples:,}"), ("different images", f"{found.images:,}")]
    rows += [(f"set aside: {reason}", f"{count:,}") for reason, count in found.quarantined.most_common()]
    return table(("source", "count"), rows)


def _teachers(recipe: Recipe, found: _Found, folder: Path) -> str:
    rows, notes = [], []
    seconds = cost = 0.0
    for teacher in recipe.teachers:
        questions = found.routed[teacher.name]
        written = _written(folder / teacher.name)
        done = len(written.output_tokens)
        most = questions * teacher.samples
        left = max(0, most - done)
        if done:
            output, spread = _mean(written.output_tokens)
            prompt, _ = _mean(written.prompt_tokens)
            taken_s = left * output / written.tokens_per_s if written.tokens_per_s else math.nan
            tokens = f"{_short(left * output)} +- {_short(left * spread)}"
            disk = f"{left * written.bytes / done / 1e6:,.1f} MB"
        else:
            output, prompt, taken_s = float(teacher.sampling.max_tokens), 0.0, math.nan
            tokens, disk = f"<= {_short(left * output)}", "?"
            notes.append(f"{teacher.name}: no traces yet; `--limit 200` without --check writes some to estimate from")
        if teacher.after:
            notes.append(f"{teacher.name}: how much it gets depends on {teacher.after}'s traces; this is the most")
        if teacher.until:
            notes.append(f"{teacher.name}: `until` may do with fewer traces than this")
        price = teacher.price
        spent = left * (price.input * prompt + price.output * output) / 1e6
        spent += price.hour * taken_s / 3600 if price.hour and not math.isnan(taken_s) else 0.0
        seconds, cost = seconds + (0.0 if math.isnan(taken_s) else taken_s), cost + spent
        time = "?" if math.isnan(taken_s) else _duration(taken_s)
        rows.append((teacher.name, f"{questions:,}", f"{most:,}", f"{done:,}", tokens, time, disk, f"{spent:,.2f}"))
    rows.append(("all", "", "", "", "", _duration(seconds), "", f"{cost:,.2f}"))
    head = ("teacher", "questions", "traces at most", "there", "tokens to write", "time", "disk", "cost")
    return "\n".join([table(head, rows), *notes])


def _written(folder: Path) -> _Written:
    found = _Written()
    for part in parts(folder):
        for record, size in _with_sizes(part):
            if record["outcome"] == Outcome.ERROR:
                continue
            usage = record["usage"]
            found.prompt_tokens.append(usage["prompt"])
            found.output_tokens.append(usage["reasoning"] + usage["answer"])
            found.bytes += size
            ended = datetime.fromisoformat(record["created"]).timestamp()
            found.first = min(found.first, ended - record["latency_s"])
            found.last = max(found.last, ended)
    return found


def _with_sizes(part: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The records of a part, each with the bytes it takes."""
    before = None
    for start, record in read_jsonl_at(part):
        if before is not None:
            yield before[1], start - before[0]
        before = start, record
    if before is not None:
        yield before[1], part.stat().st_size - before[0]


def _mean(values: list[int]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval."""
    spread = _CI95 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return mean(values), spread


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:,.3g}{unit}"
    return "?" if math.isnan(value) else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02} h"
