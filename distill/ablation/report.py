"""The page of an ablation: every arm's accuracy, effect and cost, the claims with their verdicts, and each study.

Draws what results.json holds; decides nothing, and leaves out what it does not hold.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.ablation.power import stated_texts
from distill.reports import gallery, html, metric_table, plots
from distill.reports.metric_table import accuracy_estimate, interval, probability
from distill.reports.plots import Series, percent
from distill.types import Sample
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

    Questions gained and lost are those of the reference against the student before the stage under study, else
    against the first other arm. `arm_teachers`: whose traces an arm learned from, where that differs between arms.
    """
    names = [reference, *(name for name in predictions if name != reference)]
    before = next((name for name in (*_BEFORE, *names[1:]) if name in predictions), reference)
    lines = [{**line, "arm": arm} for arm, result in predictions.items() for line in result]
    return gallery.cards(lines, samples, names, size, pair=(before, reference), arm_teachers=arm_teachers)


def write(
    path: Path, results: Mapping[str, Any], cards: Sequence[gallery.GalleryCard], *, max_pixels: int = 50_000_000
) -> None:
    """Write the page as one self-contained file of at most `gallery.PAGE_BYTES`. `results`: see results.json."""
    arms = results["arms"]
    reference = results.get("reference", "")
    flat = {name: {**arm.get("metrics", {}), **arm.get("cost", {}), **arm} for name, arm in arms.items()}
    studies = [_study(name, study, flat) for name, study in results.get("studies", {}).items()]
    claims = [{**claim, "study": study} for study in studies for claim in study["claims"]]
    facts = {
        "kicker": "distill ablate",
        "title": results.get("title") or f"{results['recipe']}: what made the difference",
        "lead": _lead(results),
        "footer": [
            *stated_texts(results),
            "Intervals hold at 95 % over questions and seeds; effects are paired by question and seed. Undecided "
            "answers count as not correct. A claim holds if its difference is above zero, and does not hold if it "
            "is below, with a p-value under 0.05 after Holm's correction for the number of claims; else it is "
            "undecided. Intervals are not corrected: one in twenty misses by chance.",
            "Distillation does not correct what teachers see or reason wrongly, inherits their biases and creates no "
            "new perception.",
        ],
        "other_pages": html.other_pages(path, path.parent.parent),
        "figures": _figures(results, claims),
        "arms": flat,
        "about": {name: arm.get("about", "") for name, arm in arms.items()},
        "reference": reference,
        "claims": claims,
        "effect_column": [_column("effect", {name: arm.get("effect") for name, arm in arms.items()})],
        "headline": metric_table.table(flat, columns("headline")),
        "more": metric_table.table(flat, columns("more")),
        "accuracy": plots.estimates(
            "Accuracy of every arm with its interval and its seeds",
            [accuracy_estimate(name, arm, reference) for name, arm in arms.items() if arm.get("ci95")],
            zero=False,
        ),
        "effects": _effects(f"Effects against {reference}", {name: arm.get("effect") for name, arm in arms.items()}),
        "errors": breakdown_table(arms),
        "heat": metric_table.heat(arms, "domains"),
        "curves": _curves(arms, reference),
        "studies": studies,
        "changes": {name: arm["set"] for name, arm in arms.items() if arm.get("set")},
        "pages": _pages(arms),
        "skipped": results.get("skipped", {}),
    }
    page = gallery.fitted(
        lambda shown: html.render("ablate_report.html", gallery=shown, **facts), cards, max_pixels=max_pixels
    )
    html.write_page(path, path.parent.parent, page)


def _lead(results: Mapping[str, Any]) -> str:
    text = "The same recipe, trained again with one thing changed."
    if n := results.get("n"):
        text += f" Every student answered the same {n:,} held-out questions."
    if stage := results.get("stage"):
        text += f" Arms change the stage “{stage}”."
    return text


def _figures(results: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    facts = [("arms", f"{len(results['arms'])}")]
    if seeds := sorted({len(arm["seeds"]) for arm in results["arms"].values() if arm.get("seeds")}):
        facts.append(("seeds an arm", " to ".join(f"{count}" for count in dict.fromkeys((seeds[0], seeds[-1])))))
    if n := results.get("n"):
        facts.append(("questions", f"{n:,}"))
    if reference := results["arms"].get(results.get("reference")):
        facts.append((f"accuracy of {results['reference']}", f"{percent(reference['accuracy'])} %"))
    if claims:
        holding = sum(claim["verdict"] == "holds" for claim in claims)
        facts.append(("claims hold", f"{holding} of {len(claims)}"))
    return facts


def _column(label: str, effects: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Effects as one more column of the headline table."""
    result = {}
    for name, effect in effects.items():
        if effect is None:
            result[name] = metric_table.MetricCell(text="reference")
            continue
        text = interval(effect["ci95"], signed=True) if effect.get("ci95") else ""
        text += _with_p(" ", effect)
        result[name] = metric_table.MetricCell(text=percent(effect["delta"], signed=True), interval=text.strip())
    return {"label": label, "cells": result}


def _with_p(separator: str, effect: Mapping[str, Any]) -> str:
    p = probability(effect.get("p"))
    return f"{separator}p {'' if p.startswith('<') else '= '}{p}" if p else ""


def _effects(caption: str, effects: Mapping[str, Mapping[str, Any] | None]) -> plots.Estimates | None:
    rows = [
        metric_table.effect_estimate(name, effect)
        for name, effect in effects.items()
        if effect and effect.get("ci95")
    ]
    return plots.estimates(caption, sorted(rows, key=lambda row: -row.value), zero=True)


def _curves(arms: Mapping[str, Any], reference: str) -> list[plots.Chart]:
    """One chart an arm: its seeds, beside the first seed of the reference."""
    base: plots.Points = next(iter(arms.get(reference, {}).get("curves", {}).values()), [])
    result = []
    for name, arm in arms.items():
        curves = arm.get("curves", {})
        if not any(curves.values()):
            continue
        series = {f"seed {seed}": Series(points) for seed, points in curves.items()}
        if name != reference and base:
            series[reference] = Series(base, style=5)
        chart = plots.chart(name, series)
        if chart is not None:
            result.append(chart)
    return result


def _pages(arms: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Links to the page of every arm's evaluation; they lie beside this one."""
    result = {
        name: [
            (seed, f"{facts['run']}/eval/report.html")
            for seed, facts in arm.get("seeds", {}).items()
            if "run" in facts
        ]
        for name, arm in arms.items()
    }
    return {name: links for name, links in result.items() if links}


def _study(name: str, study: Mapping[str, Any], arms: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a study: its claims, its arms and further results."""
    reference = study.get("reference", "")
    limited = {arm: arms[arm] for arm in study.get("arms", ()) if arm in arms}
    effects = study.get("effects", {})
    return {
        "name": name,
        "question": study.get("question") or name,
        "reference": reference,
        "claims": [_claim(claim) for claim in study.get("claims", ())],
        "arms": limited,
        "headline": metric_table.table(limited, columns("headline")),
        "effect_column": [
            _column("effect", {arm: effects[arm] for arm in limited if arm in effects} | {reference: None})
        ],
        "accuracy": plots.estimates(
            f"Accuracy of the arms of {name}",
            [accuracy_estimate(arm, facts, reference) for arm, facts in limited.items() if facts.get("ci95")],
            zero=False,
        ),
        "effects": _effects(f"Effects of {name} against {reference}", effects),
        "fit": _fit(study["fit"]) if study.get("fit") else None,
        "ranks": _ranks(study["ranks"]) if study.get("ranks") else None,
        "notes": list(study.get("notes", ())),
    }


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    verdict = str(claim.get("verdict", "undecided"))
    effect = claim.get("effect") or {}
    summary = ""
    if metric_table.is_number(effect.get("delta")):
        summary = f"{percent(effect['delta'], signed=True)} points"
        if effect.get("ci95"):
            summary += f" {interval(effect['ci95'], signed=True)}"
        summary += _with_p(", ", effect)
        if (adjusted := probability(claim.get("p_adjusted"))) and adjusted != probability(effect.get("p")):
            summary += f" (corrected {adjusted})"
        if verdict == "undecided" and metric_table.is_number(effect.get("detectable")):
            summary += f"; these runs can find {percent(effect['detectable'])} points"
    if claim.get("better") and claim.get("than"):
        compared = f"{claim['better']} against {claim['than']}"
        if claim.get("domain"):
            compared += f", {claim['domain']} only"
        summary = f"{compared}: {summary}" if summary else compared
    return {
        "text": claim.get("text", ""),
        "verdict": verdict,
        "mark": f"{_SIGNS.get(verdict, '')} {verdict}".strip(),
        "tone": _TONES.get(verdict, ""),
        "figures": summary,
    }


def _fit(fit: Mapping[str, Any]) -> dict[str, Any]:
    """A curve through measured points."""
    points = fit.get("points") or ()
    result = [
        (point["x"], point["accuracy"], *(metric_table.ends_of(point.get("ci95")) or (point["accuracy"],) * 2))
        for point in points
    ]
    x_name = fit.get("x_name", "x")
    chart = plots.chart(
        f"Accuracy over {x_name}",
        {
            "fitted": Series(fit.get("curve") or (), band=fit.get("curve_ci95") or ()),
            "measured": Series(
                [(x, y) for x, y, _, _ in result], bars=[(x, low, high) for x, _, low, high in result], dotted=True
            ),
        },
        x_name=x_name,
        unit="percent",
        table=False,
    )
    rows = [
        (point.get("arm", ""), plots.number(x), f"{percent(y)} %", interval((low, high)) if point.get("ci95") else "")
        for point, (x, y, low, high) in zip(points, result, strict=True)
    ]
    return {
        "chart": chart,
        "x_name": x_name,
        "rows": rows,
        "formula": fit.get("formula", ""),
        "text": fit.get("text", ""),
    }


def _ranks(ranks: Mapping[str, Any]) -> dict[str, Any]:
    """Two rankings of the teachers, side by side: who fits the student, and whose student answers best."""
    rows = [dict(row) for row in ranks.get("rows") or ()]
    known = [
        row for row in rows if metric_table.is_number(row.get("fit")) and metric_table.is_number(row.get("accuracy"))
    ]
    chart = plots.chart(
        "Accuracy of the student over the fit of its teacher",
        {row["teacher"]: Series([(row["fit"], row["accuracy"])]) for row in known},
        x_name=str(ranks.get("signal") or "fit"),
        unit="percent",
        table=False,
    )
    result = []
    for key, label in (("spearman", "Spearman’s rank correlation"), ("kendall", "Kendall’s")):
        number = ranks.get(key)
        if number is not None and metric_table.is_number(number):
            ends = metric_table.ends_of(ranks.get("ci95")) if key == "spearman" else None
            more = f" [{plots.number(ends[0])}, {plots.number(ends[1])}]" if ends else ""
            result.append(f"{label} {plots.number(float(number))}{more}")
    return {
        "chart": chart,
        "rows": [
            {
                "teacher": row.get("teacher", ""),
                "fit_rank": row.get("fit_rank", ""),
                "student_rank": row.get("student_rank", ""),
                "fit": plots.number(row["fit"]) if metric_table.is_number(row.get("fit")) else "",
                "accuracy": f"{percent(row['accuracy'])} %" if metric_table.is_number(row.get("accuracy")) else "",
            }
            for row in rows
        ],
        "correlations": "; ".join(result),
        "text": ranks.get("text", ""),
    }
