"""Results of an ablation: accuracy, effect against the reference and cost of every arm; the verdict on every claim.

Reads what finished arms left and writes results.json, the report and the manifest. Trains and asks nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import orjson

from distill.ablation import report, teacher_ranking
from distill.ablation.arm_result import ArmResult
from distill.ablation.arms import stage_under_study
from distill.ablation.power import LEVEL, read_statements
from distill.artifacts.files import describe, write_bytes
from distill.artifacts.layout import REPORT, RESULTS
from distill.artifacts.manifest import Manifest, canonical, fingerprint
from distill.data import reader
from distill.errors import DataError
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import REFERENCE, Study
from distill.stats import intervals, scaling_law
from distill.stats.paired_effects import SeedSpread, holm, paired_effect, seed_spread, share_of_seeds
from distill.teacher_fits import Fits
from student.evaluation.error_breakdown import error_breakdown

if TYPE_CHECKING:
    from distill.reports.gallery import GalleryCard

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
CORRECT = "correct"
NONE: Mapping[str, str] = MappingProxyType({})


Outcomes = Mapping[str, Mapping[int, ArmResult]]
ShareSpreads = Mapping[str | None, SeedSpread | None]


def write(
    recipe: Recipe,
    folder: Path,
    outcomes: Outcomes,
    skipped: Mapping[str, str],
    fits: Fits | DataError | None = None,
    *,
    failed: Mapping[str, str] = NONE,
) -> Manifest:
    """Write results.json, report.html and the manifest to `folder`.

    `fits`: the values of `teacher_fits.fit_values`, or the reason why there are none. `skipped` and `failed`: arms
    with the reason.
    """
    results = table(recipe, folder, outcomes, skipped, fits, failed=failed)
    write_bytes(folder / RESULTS, orjson.dumps(results, option=orjson.OPT_INDENT_2) + b"\n")
    max_pixels = recipe.data[recipe.eval.data].max_pixels
    report.write(folder / REPORT, results, _cards(recipe, outcomes), max_pixels=max_pixels)
    fields = {
        "ablate": affecting(recipe.ablate, "ablate"),
        "arms": {
            f"{name}.{seed}": result.evaluation
            for name, by_seed in outcomes.items()
            for seed, result in by_seed.items()
        },
    }
    return Manifest(
        stage="ablate",
        fingerprint=fingerprint(fields),
        fields=orjson.loads(canonical(fields)),
        inputs={},
        outputs={name: describe(folder / name) for name in (RESULTS, REPORT)},
        counts={
            "arms": len(outcomes),
            "runs": sum(len(by_seed) for by_seed in outcomes.values()),
            "failed_arms": len(failed),
        },
    ).write(folder)


def _cards(recipe: Recipe, outcomes: Outcomes) -> "list[GalleryCard]":
    """Questions with what the arms say to them, of the reference's first seed; replies may not have been kept."""
    samples = list(reader.samples(recipe, recipe.eval.data))
    seed = next(iter(outcomes[REFERENCE]))
    first = {name: by_seed[seed].predictions for name, by_seed in outcomes.items() if seed in by_seed}
    predictions = {name: [line for line in lines if "answer" in line] for name, lines in first.items()}
    teachers = {f"teacher_{teacher.name}": [teacher.name] for teacher in recipe.teachers}
    return report.cards(predictions, samples, recipe.ablate.gallery, reference=REFERENCE, arm_teachers=teachers)


def table(
    recipe: Recipe,
    folder: Path,
    outcomes: Outcomes,
    skipped: Mapping[str, str],
    fits: Fits | DataError | None = None,
    *,
    failed: Mapping[str, str] = NONE,
) -> dict[str, Any]:
    """The content of results.json; a study that cannot be analysed is among `skipped`, with the reason.

    A study of which arms are missing for a known reason has the others, and its claims about those arms as untested.

    Raises DataError where arms answered different questions.
    """
    _require_same_questions(outcomes)
    reference = outcomes[REFERENCE]
    some = next(iter(reference.values()))
    spread_of, of_shares = cache(partial(_seed_spread, outcomes)), _share_spreads(outcomes)
    results: dict[str, Any] = {
        "recipe": recipe.name,
        "stage": stage_under_study(recipe),
        "reference": REFERENCE,
        "seeds": sorted({seed for by_seed in outcomes.values() for seed in by_seed}),
        "n": len(some.predictions),
        "arms": {
            name: _arm(by_seed, folder, of_shares)
            | {"effect": None if name == REFERENCE else effect(by_seed, reference, spread_of(None))}
            for name, by_seed in outcomes.items()
        },
        "skipped": dict(skipped),
        "failed": dict(failed),
        "studies": {},
    }
    missing = dict.fromkeys(skipped, "is left out") | dict.fromkeys(failed, "failed")
    for name, study in recipe.ablate.studies.items():
        if (without := _without(study, outcomes, missing)) is None:
            continue
        try:
            measured = _study(study, outcomes, spread_of, without)
            results["studies"][name] = measured | _analysis(recipe, study, results, fits)
        except DataError as error:
            results["skipped"][f"study {name}"] = str(error)
    _decide(
        [claim for study in results["studies"].values() for claim in study["claims"]],
        sum(len(study.claims) for study in recipe.ablate.studies.values()),
    )
    if statements := read_statements(folder):
        results["power"] = statements
    return results


def _without(study: Study, outcomes: Outcomes, missing: Mapping[str, str]) -> dict[str, str] | None:
    """The arms that a study has to do without, with what is `missing` of them; None where it cannot be shown yet.

    Two arms that a study compares have a seed in common, or one of them is missing for a known reason.
    """
    pairs = [(name, study.reference) for name in study.arms]
    pairs += [(claim.better, claim.than) for claim in study.claims]
    apart = [pair for pair in pairs if not _is_comparable(outcomes, *pair)]
    if study.reference not in outcomes or not all(missing.keys() & {*pair} for pair in apart):
        return None
    return {name: missing[name] for pair in apart for name in pair if name in missing}


def _is_comparable(outcomes: Outcomes, first: str, second: str) -> bool:
    """Whether two arms have a seed in common."""
    return bool(set(outcomes.get(first, ())) & set(outcomes.get(second, ())))


def _analysis(
    recipe: Recipe, study: Study, results: Mapping[str, Any], fits: Fits | DataError | None
) -> dict[str, Any]:
    """The further analysis that a study asks for: a scaling law, or a ranking of teachers."""
    if study.kind == "scaling":
        measured = [name for name in study.arms if name in results["arms"]]
        return {"fit": scaling_law.of_results(results, measured, seed=recipe.seed)}
    if study.kind == "teacher_fit" and fits is not None:
        if isinstance(fits, DataError):
            raise fits
        return {"ranks": teacher_ranking.of_results(results, fits, seed=recipe.seed)}
    return {}


def _require_same_questions(outcomes: Outcomes) -> None:
    asked = {
        tuple(line["sample_id"] for line in result.predictions)
        for by_seed in outcomes.values()
        for result in by_seed.values()
    }
    if len(asked) > 1:
        raise DataError(
            "arms answered different questions, so they cannot be compared: the held-out data changed between runs; "
            "`distill ablate --fresh` runs all arms again"
        )


def _arm(by_seed: Mapping[int, ArmResult], folder: Path, spreads: ShareSpreads) -> dict[str, Any]:
    some = next(iter(by_seed.values()))
    return {
        "about": some.about,
        "set": dict(some.changed),
        **_shares(by_seed, spreads, None),
        "seeds": {
            str(number): {
                "accuracy": result.figures["accuracy"],
                "ci95": result.figures["ci95"],
                "run": result.folder.relative_to(folder).as_posix(),
            }
            for number, result in by_seed.items()
        },
        "domains": {domain: _shares(by_seed, spreads, domain) for domain in spreads if domain is not None},
        **error_breakdown(*(result.predictions for result in by_seed.values())),
        "metrics": _means([_numbers(result.figures) for result in by_seed.values()]),
        "cost": {
            **_means([result.cost for result in by_seed.values()]),
            "answer_tokens": _mean([result.figures.get("mean_tokens") for result in by_seed.values()]),
        },
        "curves": {str(number): [list(point) for point in result.curve] for number, result in by_seed.items()},
    }


def _shares(by_seed: Mapping[int, ArmResult], spreads: ShareSpreads, domain: str | None) -> dict[str, Any]:
    """The share of right answers with its interval, to the questions of a domain or to all."""
    outcomes = matrix(by_seed, domain)
    accuracy, ci95 = share_of_seeds(outcomes, spreads[domain])
    return {"n": len(outcomes[0]), "accuracy": accuracy, "ci95": ci95}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of an arm, those without images under names of their own."""
    unseen = metrics.get("without_image") or {}
    return {**metrics, **{f"without_image_{key}": unseen[key] for key in ("accuracy", "n") if key in unseen}}


def matrix(by_seed: Mapping[int, ArmResult], domain: str | None = None) -> list[list[float]]:
    """Seeds x questions: 1 where the answer is correct."""
    return [
        [float(line["verdict"] == CORRECT) for line in result.predictions if domain in (None, line["domain"])]
        for result in by_seed.values()
    ]


def effect(
    first: Mapping[int, ArmResult],
    second: Mapping[int, ArmResult],
    spread: SeedSpread | None,
    *,
    domain: str | None = None,
) -> dict[str, Any]:
    """Accuracy of one arm minus the accuracy of another, paired by question and training seed; also by seed.

    Only seeds that both arms have count. `detectable`: the smallest true difference that such runs find with a
    probability of 80 %. `sd`: standard deviations of its parts.
    """
    seeds, a, b = _paired(first, second, domain)
    if not a[0]:
        raise DataError(f"no question of domain {domain!r} was answered; correct the claim in [ablate.studies]")
    result = paired_effect(a, b, spread)
    by_seed: dict[str, dict[str, Any]] = {}
    for number, of_first, of_second in zip(seeds, a, b, strict=True):
        alone = intervals.paired([bool(value) for value in of_first], [bool(value) for value in of_second])
        by_seed[str(number)] = {"delta": alone.delta, "ci95": alone.ci95, "p": alone.p}
    values: dict[str, Any] = {"delta": result.delta, "ci95": result.ci95, "p": result.p}
    values |= {"detectable": result.detectable if math.isfinite(result.detectable) else None, "by_seed": by_seed}
    if len(seeds) == 1:  # the test for shares is exact if few questions differ; the test of means is not
        values |= by_seed[str(seeds[0])]
    if result.standard_error == 0:  # all questions agree, so their spread is 0; the interval of one seed is wider
        values |= {**by_seed[str(seeds[0])], "detectable": None}
    return values | ({"sd": asdict(result.deviations)} if result.deviations else {})


def _paired(
    first: Mapping[int, ArmResult], second: Mapping[int, ArmResult], domain: str | None = None
) -> tuple[list[int], list[list[float]], list[list[float]]]:
    """The seeds that both arms have, and both arms' outcomes with these seeds."""
    seeds = [number for number in first if number in second]
    first_results, second_results = ({number: result[number] for number in seeds} for result in (first, second))
    return seeds, matrix(first_results, domain), matrix(second_results, domain)


def _seed_spread(outcomes: Outcomes, domain: str | None) -> SeedSpread | None:
    """How much seeds differ, estimated from all arms together; the reference aside."""
    reference = outcomes[REFERENCE]
    pairs = [_paired(by_seed, reference, domain) for name, by_seed in outcomes.items() if name != REFERENCE]
    return seed_spread(paired_effect(a, b) for seeds, a, b in pairs if len(seeds) > 1 and a[0])


def _share_spreads(outcomes: Outcomes) -> ShareSpreads:
    """How much seeds differ in the share of right answers, by all arms together: of all questions, and by domain."""
    some = next(iter(outcomes[REFERENCE].values()))
    spreads = {}
    for domain in (None, *sorted({str(line["domain"]) for line in some.predictions})):
        shares = [matrix(by_seed, domain) for by_seed in outcomes.values() if len(by_seed) > 1]
        spreads[domain] = seed_spread(paired_effect(rows, [[0.0] * len(row) for row in rows]) for rows in shares)
    return spreads


def _means(many: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    keys = [key for key, value in many[0].items() if isinstance(value, int | float) and not isinstance(value, bool)]
    means = {key: _mean([result.get(key) for result in many]) for key in keys}
    return {key: value for key, value in means.items() if value is not None}


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def _study(
    study: Study,
    outcomes: Outcomes,
    spread_of: Callable[[str | None], SeedSpread | None],
    without: Mapping[str, str],
) -> dict[str, Any]:
    """The effects and claims of a study, `without` the arms that have no results, as `_without` gives them."""
    arms = [name for name in study.arms if _is_comparable(outcomes, name, study.reference)]
    compared = [name for name in arms if name != study.reference]
    result: dict[str, Any] = {
        "question": study.question,
        "reference": study.reference,
        "arms": arms,
        "effects": {name: effect(outcomes[name], outcomes[study.reference], spread_of(None)) for name in compared},
        "claims": [],
        "untested": [],
        "notes": [*study.notes, *(f"{name} {why}; the study is without it." for name, why in without.items())],
    }
    for claim in study.claims:
        if not _is_comparable(outcomes, claim.better, claim.than):
            why = "; ".join(f"{name} {without[name]}" for name in (claim.better, claim.than) if name in without)
            result["untested"].append({**claim.model_dump(), "why": why})
            continue
        spread = spread_of(claim.domain)
        measured = effect(outcomes[claim.better], outcomes[claim.than], spread, domain=claim.domain)
        result["claims"].append({**claim.model_dump(), "effect": measured})
    return result


def _decide(claims: Sequence[dict[str, Any]], stated: int) -> None:
    """Give every claim a verdict, and its p-value adjusted for the number of claims `stated`, with results or not."""
    adjusted = holm({str(index): claim["effect"]["p"] for index, claim in enumerate(claims)}, stated)
    for claim, p in zip(claims, adjusted.values(), strict=True):
        claim["p_adjusted"] = p
        claim["verdict"] = verdict(claim["effect"]["delta"], p)


def verdict(delta: float, p_adjusted: float) -> str:
    """Whether a claim that a difference is above zero holds, at a level of 5 % for all claims together."""
    if p_adjusted >= LEVEL or delta == 0:
        return UNDECIDED
    return HOLDS if delta > 0 else FAILS
