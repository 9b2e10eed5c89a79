"""The page of an evaluation: arms with their intervals, differences, costs, and a gallery of what each arm says.

Draws what student/evaluate.py measured; decides nothing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from distill import pages
from distill.artifacts import write_text
from distill.recipe import Recipe
from distill.types import Sample

_RATIONALE_CHARACTERS = 4000
CORRECT = "correct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One line of the interval plot; positions in percent of its width."""

    label: str
    text: str
    left: float
    right: float
    point: float
    zero: float | None = None


def write(
    recipe: Recipe,
    path: Path,
    metrics: Mapping[str, Any],
    predictions: Sequence[Mapping[str, Any]],
    samples: Sequence[Sample],
) -> None:
    """Write the page as one self-contained file."""
    arms = metrics["arms"]
    best = list(arms)[-1]
    domains = list(arms[best]["domains"])
    page = pages.render(
        "eval_report.html",
        kicker="distill eval",
        title=f"{recipe.name}: what the student learned",
        lead=f"Every student answered the same {arms[best]['n']:,} held-out questions, greedily and once. "
        "Its answers were judged by the checker that filtered the traces.",
        footer=[
            "Intervals hold at 95 %: Wilson's for shares, Bonett and Price's for paired differences; p is McNemar's "
            "exact test. Undecided answers count as not correct.",
            "Distillation does not correct what teachers see or reason wrongly, inherits their biases and creates no "
            "new perception.",
        ],
        figures=_figures(arms, metrics["deltas"]),
        accuracy=[
            _share_interval(name, arm["accuracy"], arm["ci95"], f"{_percent(arm['accuracy'])} %")
            for name, arm in arms.items()
        ],
        domains=domains,
        arms=arms,
        deltas=[
            _delta_interval(name.replace("-", " − ", 1) if name.count("-") == 1 else name, delta)
            for name, delta in metrics["deltas"].items()
        ],
        delta_rows=metrics["deltas"],
        gallery=gallery(predictions, samples, list(arms), recipe.eval.gallery, _max_pixels(recipe)),
    )
    write_text(path, page)


def _max_pixels(recipe: Recipe) -> int:
    return recipe.data[recipe.eval.data].max_pixels


def _figures(arms: Mapping[str, Any], deltas: Mapping[str, Any]) -> list[tuple[str, str]]:
    figures = [(name, f"{_percent(arm['accuracy'])} %") for name, arm in arms.items()]
    best = list(arms)[-1]
    figures += [
        (f"points over {name.removeprefix(f'{best}-')}", f"{_percent(delta['delta'], sign=True)}")
        for name, delta in deltas.items()
        if name.startswith(f"{best}-")
    ]
    return figures


def _percent(share: float, *, sign: bool = False) -> str:
    return f"{100 * share:+.1f}" if sign else f"{100 * share:.1f}"


def _share_interval(label: str, share: float, ci95: Sequence[float], text: str) -> Interval:
    return Interval(
        label=label,
        text=f"{text} [{_percent(ci95[0])}, {_percent(ci95[1])}]",
        left=100 * ci95[0],
        right=100 * ci95[1],
        point=100 * share,
    )


def _delta_interval(label: str, delta: Mapping[str, Any]) -> Interval:
    low, high = delta["ci95"]
    return Interval(
        label=label,
        text=f"{_percent(delta['delta'], sign=True)} [{_percent(low, sign=True)}, {_percent(high, sign=True)}]",
        left=50 + 50 * low,
        right=50 + 50 * high,
        point=50 + 50 * delta["delta"],
        zero=50.0,
    )


def gallery(
    predictions: Sequence[Mapping[str, Any]],
    samples: Sequence[Sample],
    arms: Sequence[str],
    size: int,
    max_pixels: int,
) -> list[dict[str, Any]]:
    """Questions with pictures and every arm's reply: a fixed mix over domains and over who was right."""
    said: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for prediction in predictions:
        said[prediction["sample_id"]][prediction["arm"]] = prediction
    kinds: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        if len(said[sample.id]) == len(arms):
            kinds[(_kind(said[sample.id], arms), sample.domain)].append(sample)
    # Turn by turn: the n-th question of every kind and domain before the next of any.
    queues = [sorted(found, key=lambda sample: sample.id) for _, found in sorted(kinds.items(), key=_rank)]
    chosen = [sample for turn in zip_longest(*queues) for sample in turn if sample is not None][:size]
    return [_card(sample, said[sample.id], arms, max_pixels) for sample in chosen]


GAINED, BOTH, NEITHER, LOST = "gained", "all right", "none right", "lost"
_ORDER = (GAINED, BOTH, NEITHER, LOST)


def _kind(said: Mapping[str, Mapping[str, Any]], arms: Sequence[str]) -> str:
    """Who was right: the last arm against the first."""
    first, last = said[arms[0]]["verdict"] == CORRECT, said[arms[-1]]["verdict"] == CORRECT
    if last:
        return BOTH if first else GAINED
    return LOST if first else NEITHER


def _rank(item: tuple[tuple[str, str], list[Sample]]) -> tuple[int, str]:
    (kind, domain), _ = item
    return _ORDER.index(kind), domain


def _card(
    sample: Sample, said: Mapping[str, Mapping[str, Any]], arms: Sequence[str], max_pixels: int
) -> dict[str, Any]:
    return {
        "pictures": pages.pictures(sample, max_pixels=max_pixels),
        "question": sample.question,
        "gold": " or ".join(sample.answers),
        "tags": [tag for tag in (sample.domain, _kind(said, arms) if len(arms) > 1 else "") if tag],
        "arms": [
            {
                "name": arm,
                "answer": said[arm]["answer"],
                "verdict": said[arm]["verdict"],
                "rationale": said[arm]["reasoning"][:_RATIONALE_CHARACTERS],
            }
            for arm in arms
        ],
    }
