"""The page of an evaluation: arms with their intervals, differences, costs, curves, and a gallery of replies.

Draws what student/evaluation/metrics.py measured and training logged; decides nothing. Values that the metrics do not
have are left out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import METRICS, VALIDATION
from distill.recipe.recipe import Recipe
from distill.reports import gallery, html, metric_table, plots
from distill.reports.metric_table import interval, probability
from distill.reports.plots import Series, percent
from distill.types import Sample
from distill.word_tables import counted
from student.evaluation.error_breakdown import breakdown_table
from student.inference.reply_metrics import columns, shown_metrics


def write_report(
    recipe: Recipe,
    path: Path,
    metrics: Mapping[str, Any],
    predictions: Sequence[Mapping[str, Any]],
    samples: Sequence[Sample],
) -> None:
    """Write the page of a run directory's evaluation as one self-contained file of at most `gallery.PAGE_BYTES`."""
    arms = metrics["arms"]
    names, shown = list(arms), shown_metrics(metrics)
    deltas = metrics.get("deltas", {})
    drawn = f"at temperature {recipe.eval.temperature:g}" if recipe.eval.temperature else "greedily"
    facts = {
        "kicker": "distill eval",
        "title": f"{recipe.name}: what the student learned",
        "lead": f"Every student answered the same {counted(arms[names[-1]]['n'], 'held-out question')} once, "
        f"{drawn}. Its "
        "answers were judged by the checker that filtered the traces.",
        "footer": [
            "Intervals hold at 95 %: Wilson's for shares, Bonett and Price's for paired differences, the bootstrap's "
            "for means; p is McNemar's exact test. Undecided answers count as not correct.",
            "Distillation does not correct errors of the teachers. The student inherits their biases and gains no "
            "new perception.",
            *(f"{name}: {arm['note']}" for name, arm in arms.items() if arm.get("note")),
        ],
        "other_pages": html.other_pages(path, path.parent.parent),
        "findings": metrics.get("diagnosis", ()),
        "figures": _metric_tiles(arms, deltas),
        "arms": arms,
        "about": {name: _origin(name, arm) for name, arm in arms.items()},
        "headline": metric_table.table(arms, columns("headline", shown)),
        "more": metric_table.table(arms, columns("more", shown)),
        "accuracy": plots.estimates(
            "Accuracy of every arm with its interval",
            [metric_table.accuracy_estimate(name, arm) for name, arm in arms.items()],
            zero=False,
        ),
        "effects": plots.estimates(
            "Paired differences of accuracy with their intervals",
            [metric_table.effect_estimate(_minus(name), delta) for name, delta in deltas.items()],
            zero=True,
        ),
        "errors": breakdown_table(arms),
        "deltas": {_minus(name): _delta_row(delta) for name, delta in deltas.items()},
        "delta_domains": list(dict.fromkeys(name for delta in deltas.values() for name in delta.get("domains", {}))),
        "running": _running(arms),
        "volatility": [(name, arm) for name, arm in arms.items() if arm.get("volatility") is not None],
        "curves": _curves(arms, path.parent.parent / "train"),
        "heat": {"domain": metric_table.heat(arms, "domains"), "difficulty": metric_table.heat(arms, "difficulty")},
    }
    cards = gallery.cards(
        predictions, samples, names, recipe.eval.gallery, domain_teachers=_domain_teachers(recipe, samples)
    )
    page = gallery.fitted(
        lambda shown: html.render("eval_report.html", gallery=shown, **facts),
        cards,
        max_pixels=recipe.data[recipe.eval.data].max_pixels,
    )
    html.write_page(path, path.parent.parent, page)


def _metric_tiles(arms: Mapping[str, Any], deltas: Mapping[str, Any]) -> list[tuple[str, str]]:
    tiles = [(name, f"{percent(arm['accuracy'])} %") for name, arm in arms.items()]
    *before, best = arms
    tiles += [
        (f"points over {name}", percent(deltas[f"{best}-{name}"]["delta"], signed=True))
        for name in before
        if f"{best}-{name}" in deltas
    ]
    return tiles


def _origin(name: str, arm: Mapping[str, Any]) -> str:
    """The origin of the student, unless its name has it."""
    stage = str(arm.get("stage") or arm.get("source") or "")
    return "" if stage == name else stage


def _minus(name: str) -> str:
    """`later-earlier` as it is read; names that hold a hyphen stay as they are."""
    return name.replace("-", " − ", 1) if name.count("-") == 1 else name


def _delta_row(delta: Mapping[str, Any]) -> dict[str, Any]:
    bootstrap = metric_table.ends_of(delta.get("bootstrap_ci95"))
    return {
        "points": percent(delta["delta"], signed=True),
        "interval": interval(delta["ci95"], signed=True),
        "bootstrap": interval(bootstrap, signed=True) if bootstrap else "",
        "p": probability(delta.get("p")),
        "gained": delta.get("only_first"),
        "lost": delta.get("only_second"),
        "domains": {name: percent(part["delta"], signed=True) for name, part in delta.get("domains", {}).items()},
    }


def _running(arms: Mapping[str, Any]) -> plots.Chart | None:
    return plots.chart(
        "Running accuracy",
        {name: Series(arm.get("running_accuracy") or ()) for name, arm in arms.items()},
        about="Over the questions answered so far, in an order that does not depend on domains.",
        x_name="questions",
        unit="percent",
    )


def _curves(arms: Mapping[str, Any], train: Path) -> list[plots.Chart]:
    """Training loss of every arm's stage, and what was measured on questions kept out, where it was."""
    losses, kept_out, asked = {}, {}, {}
    for style, (name, arm) in enumerate(arms.items()):
        folder = train / str(arm.get("stage") or "")
        if not arm.get("stage") or not folder.is_dir():
            continue
        losses[name] = Series(_points(folder / METRICS, "loss"), style=style)
        kept_out[name] = Series(_points(folder / VALIDATION, "loss"), style=style)
        band = [
            (line["step"], *line["ci95"])
            for line in _lines(folder / VALIDATION)
            if line.get("accuracy") is not None and line.get("ci95")
        ]
        asked[name] = Series(_points(folder / VALIDATION, "accuracy"), band=band, style=style)
    about = "Mean over the steps since the last line of the log, weighted as the loss; the last stage of each arm."
    result = [
        plots.chart("Training loss", losses, about=about),
        plots.chart("Loss of rows kept out", kept_out),
        plots.chart("Accuracy while training", asked, unit="percent"),
    ]
    return [chart for chart in result if chart is not None]


def _lines(path: Path) -> list[dict[str, Any]]:
    return list(read_jsonl(path, on_damage=lambda _: None))


def _points(path: Path, key: str) -> list[tuple[float, float]]:
    return [(line["step"], line[key]) for line in _lines(path) if metric_table.is_number(line.get(key))]


def _domain_teachers(recipe: Recipe, samples: Sequence[Sample]) -> dict[str, tuple[str, ...]]:
    """The teachers of each domain by the recipe; nothing for a recipe with a single teacher."""
    if len(recipe.teachers) < 2:
        return {}
    return {
        domain: tuple(each.name for each in recipe.teachers if not each.domains or domain in each.domains)
        for domain in {sample.domain for sample in samples}
    }
