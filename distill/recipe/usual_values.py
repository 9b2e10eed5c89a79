"""Settings out of their usual range: each key names its range where it is declared (`distill.recipe.base.key`).

A range is no limit: a recipe may leave it. All shipped recipes and all defaults are inside.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from distill.recipe.effects import key_values
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage
from distill.recipe.sections.teachers import Teacher

_ADAPTER_SCALE = (0.5, 8)
_REPLAYED = (0, 0.5)
_DRAWN = (0.2, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusualValue:
    """One setting, or a figure that several settings give together."""

    path: str
    """The key of the recipe to change, such as stages.reason.weight_decay."""
    name: str
    """The same for all recipes, such as stages.*.weight_decay."""
    value: Any
    usual: tuple[Any, ...]
    about: str
    """What the figure is, as a sentence without its full stop."""
    is_share: bool = False
    """Whether what is left of 1 counts too: a share of 0.97 leaves a sixteenth of what 0.5 leaves."""

    @property
    def times(self) -> float:
        """How far it is out of its range, as a factor: 1 inside, infinite for 0 and for an unusual choice."""
        if not is_range(self.usual):
            return 1.0 if self.value in self.usual else math.inf
        low, high = self.usual
        if low <= self.value and (high is None or self.value <= high):
            return 1.0
        above, below = (low, self.value) if self.value < low else (self.value, high)
        times = float(above / below) if below > 0 else math.inf
        if self.is_share and self.value > high:
            left = 1 - self.value
            times = max(times, (1 - high) / left if left > 0 else math.inf)
        return times

    @property
    def text(self) -> str:
        return f"{self.path} is {_plain(self.value)}, and {usual_text(self.usual)} is usual"


def is_range(usual: tuple[Any, ...]) -> bool:
    """Whether it is the two ends of a range; the upper one may be None."""
    return len(usual) == 2 and isinstance(usual[0], int | float) and not isinstance(usual[0], bool)


def usual_text(usual: tuple[Any, ...]) -> str:
    """A range or a list of values in words."""
    if is_range(usual):
        low, high = usual
        return f"{_plain(low)} or more" if high is None else f"{_plain(low)} to {_plain(high)}"
    return " or ".join(map(_plain, usual))


def _plain(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (
            str(value).lower() if isinstance(value, bool) else "not set" if value in ((), [], None) else repr(value)
        )
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def unusual_values(recipe: Recipe, *parts: str) -> list[UnusualValue]:
    """What is out of its usual range below the named parts of a recipe, such as `eval`; the most extreme first."""
    found = [each for each in (*_keys(recipe), *_combined(recipe)) if each.times > 1 and _is_below(each.path, parts)]
    return sorted(found, key=lambda each: -each.times)


def _is_below(path: str, parts: Iterable[str]) -> bool:
    return any(f"{path}.".startswith(f"{part}.") for part in parts)


def _keys(recipe: Recipe) -> Iterator[UnusualValue]:
    for path, key, value in key_values(Recipe, recipe.model_dump()):
        if key.usual and value is not None:
            about = re.split(r"[.;] ", key.field.description or "")[0].rstrip(".")
            yield UnusualValue(path=path, name=key.path, value=value, usual=key.usual, about=about)


def _combined(recipe: Recipe) -> Iterator[UnusualValue]:
    """Figures that several keys give together."""
    for stage in recipe.stages:
        # A source of traces, such as those of earlier rounds, is learned like the traces of the stage.
        replayed = [share for name, share in stage.replay.items() if recipe.data[name].format != "traces"]
        yield from _of_stage(stage, f"stages.{stage.name}", sum(replayed))
    for teacher in recipe.teachers:
        yield from _of_teacher(teacher, f"teachers.{teacher.name}")


def _of_stage(stage: Stage, path: str, replayed: float) -> Iterator[UnusualValue]:
    if (lora := stage.lora) is not None:
        yield UnusualValue(
            path=f"{path}.lora.alpha",
            name="stages.*.lora.alpha",
            value=lora.alpha / (math.sqrt(lora.rank) if lora.rslora else lora.rank),
            usual=_ADAPTER_SCALE,
            about=f"The output of the adapters is scaled by alpha, {lora.alpha}, over the rank, {lora.rank}",
        )
    if replayed:
        yield UnusualValue(
            path=f"{path}.replay",
            name="stages.*.replay",
            value=replayed,
            usual=_REPLAYED,
            about="The share of the tokens that replayed sources have, in all",
            is_share=True,
        )


def _of_teacher(teacher: Teacher, path: str) -> Iterator[UnusualValue]:
    if teacher.samples > 1 and "temperature" not in teacher.omit:
        yield UnusualValue(
            path=f"{path}.sampling.temperature",
            name="teachers.*.sampling.temperature",
            value=teacher.sampling.temperature,
            usual=_DRAWN,
            about=f"The temperature at which the {teacher.samples} traces of a question are drawn",
        )
