"""The page of a stage in training: its metrics over time, and the newest replies, failures first.

Rewritten at every measurement (student/validation/early_stopping.py) as one self-contained file. Measures and judges
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distill.artifacts.layout import VALIDATION_PAGE
from distill.reports import html, plots
from distill.reports.plots import Series
from distill.types import Sample
from distill.word_tables import counted

_SIDE, _IMAGES = 256, 4
"""Pictures are shown small, and only the first few of a question: the page is opened often."""
_RATIONALE_CHARACTERS = 4000
_ROWS = 40
"""Most rows of the table; the curves show every measurement."""
_BEST = "best so far"
_WORST_FIRST = ("wrong", "undecided", "correct")


class SamplesPage:
    """The page of one stage. Remembers images between calls, so that each is made ready once."""

    def __init__(
        self,
        title: str,
        samples: Sequence[Sample],
        *,
        gallery: int,
        max_pixels: int,
        metric: str,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        """`metric`: what makes a measurement the best; `left_out`: by reason, the questions that could not be asked
        and were replaced by others."""
        self._title, self._metric = title, metric
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted((left_out or {}).items()))
        self._left_out = (
            [f"Questions that could not be asked and were replaced by others: {reasons}."] if reasons else []
        )
        self._samples = {sample.id: sample for sample in samples}
        self._gallery = gallery
        self._max_pixels = max_pixels
        self._images: dict[str, list[html.PageImage]] = {}

    def write(self, path: Path, lines: Sequence[Mapping[str, Any]], predictions: Sequence[Mapping[str, Any]]) -> None:
        """`lines` are all measurements of the stage, the newest last; `predictions` are the newest replies."""
        newest = lines[-1]
        page = html.render(
            VALIDATION_PAGE,
            kicker="distill train",
            title=self._title,
            lead=f"Measured after step {newest['step']:,}; {counted(len(lines), 'measurement')} so far. Every "
            "time the same questions are asked, greedily and once.",
            footer=["Intervals are Wilson's at 95 %. Undecided answers count as not correct.", *self._left_out],
            other_pages=html.other_pages(path, path.parents[2]),
            best=next((line for line in reversed(lines) if line["best"]), None),
            best_by=self._metric,
            figures=_tiles(newest),
            curves=_curves(lines, self._metric),
            rows=list(reversed(lines[-_ROWS:])),
            asked=newest["n"] > 0,
            measured_loss=newest["response_tokens"] > 0,
            gallery=[self._card(prediction) for prediction in shown(predictions, self._gallery)],
        )
        html.write_page(path, path.parents[2], page)

    def _card(self, prediction: Mapping[str, Any]) -> dict[str, Any]:
        name = prediction["sample_id"]
        if name not in self._images:
            sample = self._samples[name]
            few = replace(sample, images=sample.images[:_IMAGES])
            self._images[name] = html.page_images(few, max_pixels=self._max_pixels, side=_SIDE)
        tags = [prediction["domain"], "cut off" if prediction["truncated"] else ""]
        if not prediction["truncated"] and not prediction["well_formed"]:
            tags.append("malformed")
        return {
            "pictures": self._images[name],
            "images": len(self._samples[name].images),
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


def _curves(lines: Sequence[Mapping[str, Any]], metric: str) -> list[plots.Chart]:
    """Accuracy and loss over the steps, and a dot at the best measurement on the curve that it is the best of."""
    best = [line for line in lines if line["best"]][-1:]
    bands = [(line["step"], *line["ci95"]) for line in lines if line["accuracy"] is not None]
    charts = (
        plots.chart(
            name,
            {
                name: Series(_points(lines, name), band=band),
                **({_BEST: Series(_points(best, name), dotted=True)} if name == metric else {}),
            },
            unit=unit,
            table=False,
        )
        for name, unit, band in (("accuracy", "percent", bands), ("loss", "", ()))
    )
    return [chart for chart in charts if chart is not None]


def _points(lines: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(line["step"], line[name]) for line in lines if line[name] is not None]
