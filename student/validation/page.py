"""The page of a stage in training: its metrics over time, and the newest replies, failures first.

Rewritten at every measurement (student/validation/early_stopping.py) as one self-contained file. Measures and judges
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill.artifacts.files import write_text
from distill.artifacts.layout import VALIDATION_PAGE
from distill.reports import html
from distill.types import Sample

_SIDE, _PICTURES = 256, 4
"""Pictures are shown small, and only the first few of a question: the page is opened often."""
_RATIONALE_CHARACTERS = 4000
_ROWS = 40
"""Most rows of the table; the curves show every measurement."""
_WORST_FIRST = ("wrong", "undecided", "correct")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """One figure over the steps: points in a box of 100 by 40, from `low` to `high`."""

    name: str
    newest: str
    line: str
    band: str
    """Outline of the interval; empty where there is none."""
    best: float | None
    """Where the best measurement lies, of the width in percent."""
    low: float
    high: float
    first_step: int
    last_step: int


class SamplesPage:
    """The page of one stage. Remembers pictures between calls, so that each is made ready once."""

    def __init__(self, title: str, samples: Sequence[Sample], *, gallery: int, max_pixels: int) -> None:
        self._title = title
        self._samples = {sample.id: sample for sample in samples}
        self._gallery = gallery
        self._max_pixels = max_pixels
        self._pictures: dict[str, list[html.PageImage]] = {}

    def write(self, path: Path, lines: Sequence[Mapping[str, Any]], predictions: Sequence[Mapping[str, Any]]) -> None:
        """`lines` are all measurements of the stage, the newest last; `predictions` are the newest replies."""
        newest = lines[-1]
        page = html.render(
            VALIDATION_PAGE,
            kicker="distill train",
            title=self._title,
            lead=f"Measured after step {newest['step']:,}; {len(lines):,} measurements so far. Every time the same "
            "questions are asked, greedily and once.",
            footer=["Intervals are Wilson's at 95 %. Undecided answers count as not correct."],
            figures=_tiles(newest),
            curves=[curve for curve in (_accuracy(lines), _loss(lines)) if curve is not None],
            rows=list(reversed(lines[-_ROWS:])),
            asked=newest["n"] > 0,
            measured_loss=newest["response_tokens"] > 0,
            gallery=[self._card(prediction) for prediction in shown(predictions, self._gallery)],
        )
        write_text(path, page)

    def _card(self, prediction: Mapping[str, Any]) -> dict[str, Any]:
        name = prediction["sample_id"]
        if name not in self._pictures:
            sample = self._samples[name]
            few = replace(sample, images=sample.images[:_PICTURES])
            self._pictures[name] = html.pictures(few, max_pixels=self._max_pixels, side=_SIDE)
        tags = [prediction["domain"], "cut off" if prediction["truncated"] else ""]
        if not prediction["truncated"] and not prediction["well_formed"]:
            tags.append("malformed")
        return {
            "pictures": self._pictures[name],
            "question": prediction["question"],
            "gold": " or ".join(prediction["gold"]),
            "tags": [tag for tag in tags if tag],
            "arms": [
                {
                    "name": "student",
                    "answer": prediction["answer"],
                    "verdict": prediction["verdict"],
                    "rationale": prediction["reasoning"][:_RATIONALE_CHARACTERS],
                }
            ],
        }


def shown(predictions: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """Wrong answers first, then undecided ones, then correct ones; else in the order of the questions."""
    return sorted(predictions, key=lambda prediction: _WORST_FIRST.index(prediction["verdict"]))[:count]


def _tiles(newest: Mapping[str, Any]) -> list[tuple[str, str]]:
    tiles = []
    if newest["n"]:
        low, high = newest["ci95"]
        tiles = [
            (f"accuracy [{100 * low:.1f}, {100 * high:.1f}]", f"{100 * newest['accuracy']:.1f} %"),
            ("well formed", f"{100 * newest['format_rate']:.1f} %"),
            ("cut off", f"{100 * newest['truncation_rate']:.1f} %"),
            ("undecided", f"{100 * newest['undecided_rate']:.1f} %"),
            ("tokens a rationale", f"{newest['mean_rationale_tokens']:.1f}"),
        ]
    if newest["response_tokens"]:
        tiles.append(("loss of rows kept out", _number(newest["loss"])))
    return [*tiles, ("of the time for measuring", f"{100 * newest['time_share']:.1f} %")]


def _number(loss: float | None) -> str:
    return "not a number" if loss is None else f"{loss:.4f}"


def _accuracy(lines: Sequence[Mapping[str, Any]]) -> LearningCurve | None:
    points = [(line["step"], line["accuracy"]) for line in lines if line["accuracy"] is not None]
    if not points:
        return None
    bands = [(line["step"], *line["ci95"]) for line in lines if line["accuracy"] is not None]
    return _curve("accuracy", f"{100 * points[-1][1]:.1f} %", points, bands, 0.0, 1.0, lines)


def _loss(lines: Sequence[Mapping[str, Any]]) -> LearningCurve | None:
    points = [(line["step"], line["loss"]) for line in lines if line["loss"] is not None]
    if not points:
        return None
    return _curve("loss", _number(lines[-1]["loss"]), points, [], 0.0, max(loss for _, loss in points) or 1.0, lines)


def _curve(
    name: str,
    newest: str,
    points: Sequence[tuple[int, float]],
    bands: Sequence[tuple[int, float, float]],
    low: float,
    high: float,
    lines: Sequence[Mapping[str, Any]],
) -> LearningCurve:
    first, last = points[0][0], points[-1][0]
    best = next((line["step"] for line in reversed(lines) if line["best"]), None)

    def across(step: int) -> float:
        return 100 * (step - first) / ((last - first) or 1)

    def point(step: int, value: float) -> str:
        return f"{across(step):.2f},{40 - 40 * (value - low) / (high - low):.2f}"

    upper = [point(step, top) for step, _, top in bands]
    lower = [point(step, bottom) for step, bottom, _ in reversed(bands)]
    return LearningCurve(
        name=name,
        newest=newest,
        line=" ".join(point(step, value) for step, value in points),
        band=" ".join(upper + lower),
        best=None if best is None else across(best),
        low=low,
        high=high,
        first_step=first,
        last_step=last,
    )
