"""The page of an ablation: every arm's accuracy, effect and cost, the claims with their verdicts, and each study.

Draws what results.json holds; decides nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.ablation.power import stated_texts
from distill.recipe.sections.data import MAX_PIXELS
from distill.reports import gallery, html, metric_table, plots
from distill.reports.metric_table import accuracy_estimate, interval, probability
from distill.reports.plots import Series, percent
from distill.types import Sample
from distill.word_tables import counted
from student.evaluation.error_breakdown import breakdown_table
from student.inference.reply_metrics import columns

_TONES = {"holds": "good", "does not hold": "bad", "undecided": "warn"}
_SIGNS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}
_BEFORE = ("before", "untouched")
"""Arms that the gallery's "gained" and "lost" count from, where one of them was run."""


def cards(
    predictions: Mapping[str, Sequence[Mapping[str, Any]]],
    samples: Sequence[Sample],
    size: int,
    *,
    reference: str,
    arm_teachers: Mapping[str, Sequence[str]] | None = None,
) -> list[gallery.GalleryCard]:
    """The gallery's questions from the predictions of one seed of every arm, under the arm's name.

    Questions gained and lost compare the reference with the student before the stage under study, else with the first
    other arm. `arm_teachers`: whose traces an arm learned from, where that differs between arms.
    """
    names = [reference, *(name for name in predictions if name != reference)]
    before = next((name for name in (*_BEFORE, *names[1:]) if name in predictions), reference)
    lines = [{**line, "arm": arm} for arm, result in predictions.items() for line in result]
    return gallery.cards(lines, samples, names, size, pair=(before, reference), arm_teachers=arm_teachers)


def write(
    path: Path, results: Mapping[str, Any], cards: Sequence[gallery.GalleryCard], *, max_pixels: int = MAX_PIXELS
) -> None:
    """Write the page as one self-contained file of at most `gallery.PAGE_BYTES`. `results`: see results.json."""
    arms, reference = results["arms"], results["reference"]
    flat = {name: {**arm["metrics"], **arm["cost"], **arm} for name, arm in arms.items()}
    effects = {name: arm["effect"] for name, arm in arms.items()}
    studies = [_study(name, study, flat) for name, study in results["studies"].items()]
    claims = [{**claim, "study": study} for study in studies for claim in study["claims"]]
    facts = {
        "kicker": "distill ablate",
        "title": f"{results['recipe']}: effects of single changes",
        "lead": f"The same recipe, trained again with one thing changed. Every student answered the same "
        f"{counted(results['n'], 'held-out question')}. Arms change the stage “{results['stage']}”.",
        "footer": [
            *stated_texts(results),
            "Intervals hold at 95 % over questions and seeds; effects are paired by question and seed. Undecided "
            "answers count as not correct. A claim holds if its difference is above zero, and does not hold if it "
            "is below, with a p-value under 0.05 after Holm's correction for the number of claims; else it is "
            "undecided. Intervals are not corrected for the number of claims: about one in twenty does not contain "
            "the true value.",
            "Distillation does not correct errors of the teachers. The student inherits their biases and gains no "
            "new perception.",
        ],
        "other_pages": html.other_pages(path, path.parent.parent),
        "figures": _figures(results, claims),
        "arms": flat,
        "about": {name: arm["about"] for name, arm in arms.items()},
        "reference": reference,
        "seeds_differ": len({tuple(arm["seeds"]) for arm in arms.values()}) > 1,
        "claims": claims,
        "effect_column": [_effect_column(effects)],
        "headline": metric_table.table(flat, columns("headline")),
        "more": metric_table.table(flat, columns("more")),
        "accuracy": plots.estimates(
            "Accuracy of every arm with its interval and its seeds",
            [accuracy_estimate(name, arm, reference) for name, arm in arms.items()],
            zero=False,
        ),
        "effects": _effects(f"Effects against {reference}", effects),
        "errors": breakdown_table(arms),
        "heat": metric_table.heat(arms, "domains"),
        "curves": _curves(arms, reference),
        "studies": studies,
        "changes": {name: arm["set"] for name, arm in arms.items()},
        "pages": {  # they lie beside this one
            name: [(seed, f"{facts['run']}/eval/report.html") for seed, facts in arm["seeds"].items()]
            for name, arm in arms.items()
        },
        "skipped": results["skipped"],
        "failed": results.get("failed", {}),
    }
    page = gallery.fitted(
        lambda shown: html.render("ablate_report.html", gallery=shown, **facts), cards, max_pixels=max_pixels
    )
    html.write_page(path, path.parent.parent, page)


def _figures(results: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    arms, reference = results["arms"], results["reference"]
    seeds = sorted({len(arm["seeds"]) for arm in arms.values()})
    facts = [
        ("arms", f"{len(arms)}"),
        ("seeds an arm", " to ".join(f"{count}" for count in dict.fromkeys((seeds[0], seeds[-1])))),
        ("questions", f"{results['n']:,}"),
        (f"accuracy of {reference}", f"{percent(arms[reference]['accuracy'])} %"),
    ]
    if claims:
        holding = sum(claim["verdict"] == "holds" for claim in claims)
        facts.append(("claims hold", f"{holding} of {len(claims)}"))
    if failed := results.get("failed"):
        facts.append(("arms that failed", f"{len(failed)}"))
    return facts


def _effect_column(effects: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Effects as one more column of the headline table; None for the reference."""
    cells = {
        name: metric_table.MetricCell(text="reference")
        if effect is None
        else metric_table.MetricCell(
            text=percent(effect["delta"], signed=True),
            interval=f"{interval(effect['ci95'], signed=True)}\n{_p_of(effect)}",
        )
        for name, effect in effects.items()
    }
    return {"label": "effect", "cells": cells}


def _p_of(effect: Mapping[str, Any]) -> str:
    p = probability(effect["p"])
    return f"p {p}" if p.startswith("<") else f"p = {p}"


def _effects(caption: str, effects: Mapping[str, Mapping[str, Any] | None]) -> plots.Estimates | None:
    rows = [metric_table.effect_estimate(name, effect) for name, effect in effects.items() if effect is not None]
    return plots.estimates(caption, sorted(rows, key=lambda row: -row.value), zero=True)


def _curves(arms: Mapping[str, Any], reference: str) -> list[plots.Chart]:
    """One chart an arm: its seeds, beside the first seed of the reference."""
    base: plots.Points = next(iter(arms[reference]["curves"].values()))
    result = []
    for name, arm in arms.items():
        if not any(arm["curves"].values()):
            continue
        series = {f"seed {seed}": Series(points) for seed, points in arm["curves"].items()}
        if name != reference and base:
            series[reference] = Series(base, style=5)
        if (chart := plots.chart(name, series)) is not None:
            result.append(chart)
    return result


def _study(name: str, study: Mapping[str, Any], arms: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a study: its claims, its arms and further results."""
    reference, effects = study["reference"], study["effects"]
    compared = {arm: arms[arm] for arm in study["arms"]}
    return {
        "name": name,
        "question": study["question"],
        "reference": reference,
        "claims": [*map(_claim, study["claims"]), *map(_untested, study.get("untested", ()))],
        "arms": compared,
        "headline": metric_table.table(compared, columns("headline")),
        "effect_column": [_effect_column({arm: effects.get(arm) for arm in compared})],
        "effects": _effects(f"Effects of {name} against {reference}", effects),
        "fit": _fit(study["fit"]) if "fit" in study else None,
        "ranks": _ranks(study["ranks"]) if "ranks" in study else None,
        "notes": list(study["notes"]),
    }


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    verdict, effect = claim["verdict"], claim["effect"]
    compared = f"{claim['better']} against {claim['than']}"
    if claim["domain"]:
        compared += f", {claim['domain']} only"
    points, ends = percent(effect["delta"], signed=True), interval(effect["ci95"], signed=True)
    figures = f"{compared}: {points} points {ends}, {_p_of(effect)}"
    if (adjusted := probability(claim["p_adjusted"])) != probability(effect["p"]):
        figures += f" (corrected {adjusted})"
    if verdict == "undecided" and effect["detectable"] is not None:
        figures += f"; these runs can find {percent(effect['detectable'])} points"
    return {
        "text": claim["text"],
        "verdict": verdict,
        "mark": f"{_SIGNS[verdict]} {verdict}",
        "tone": _TONES[verdict],
        "figures": figures,
    }


def _untested(claim: Mapping[str, Any]) -> dict[str, Any]:
    """A claim about an arm that has no results."""
    compared = f"{claim['better']} against {claim['than']}: {claim['why']}"
    return {"text": claim["text"], "verdict": "", "mark": "– not tested", "tone": "warn", "figures": compared}


def _fit(fit: Mapping[str, Any]) -> dict[str, Any]:
    """A curve through measured points; without a curve where there are too few."""
    points = [(point["x"], point["accuracy"], *point["ci95"]) for point in fit["points"]]
    chart = plots.chart(
        f"Accuracy over {fit['x_name']}",
        {
            "fitted": Series(fit["curve"], band=fit["curve_ci95"]),
            "measured": Series(
                [(x, y) for x, y, _, _ in points], bars=[(x, low, high) for x, _, low, high in points], dotted=True
            ),
        },
        x_name=fit["x_name"],
        unit="percent",
        table=False,
    )
    rows = [
        (point["arm"], plots.number(point["x"]), f"{percent(point['accuracy'])} %", interval(point["ci95"]))
        for point in fit["points"]
    ]
    return {
        "chart": chart,
        "x_name": fit["x_name"],
        "rows": rows,
        "formula": fit["formula"] or "",
        "text": fit["text"],
    }


def _ranks(ranks: Mapping[str, Any]) -> dict[str, Any]:
    """Two rankings of the teachers, side by side: who fits the student, and whose student answers best."""
    chart = plots.chart(
        "Accuracy of the student over the fit of its teacher",
        {row["teacher"]: Series([(row["fit"], row["accuracy"])]) for row in ranks["rows"]},
        x_name=ranks["signal"],
        unit="percent",
        table=False,
    )
    correlations = ""
    if ranks["spearman"] is not None:
        low, high = map(plots.number, ranks["ci95"])
        correlations = f"Spearman’s rank correlation {plots.number(ranks['spearman'])} [{low}, {high}]"
        correlations += f"; Kendall’s {plots.number(ranks['kendall'])}"
    return {
        "chart": chart,
        "rows": [
            row | {"fit": plots.number(row["fit"]), "accuracy": f"{percent(row['accuracy'])} %"}
            for row in ranks["rows"]
        ],
        "correlations": correlations,
        "text": ranks["text"],
    }
