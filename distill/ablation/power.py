"""The power and the cost of an ablation, stated before its runs and stored beside the results.

The statement covers all studies of a recipe. How much seeds differ is assumed, or known from earlier results in the
same run directory.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from distill.ablation.arm_job import seed_folders
from distill.ablation.arms import STUDENT, arm, stage_under_study, untimed
from distill.ablation.drafts import Arm, Budget
from distill.artifacts.files import write_bytes
from distill.artifacts.layout import ARMS, POWER, RESULTS, SHARED
from distill.artifacts.manifest import MANIFEST, Manifest, fingerprint
from distill.data import reader
from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import REFERENCE, Claim
from distill.recipe.sections.eval import BASE
from distill.recipe.sections.stages import is_traces, lineage
from distill.stats.paired_effects import Deviations, planned_detectable
from distill.word_tables import counted

LEVEL = 0.05
ASSUMED = {"seed": 0.01, "question": 0.2, "rest": 0.4}
"""Standard deviations of a difference: 1 point between seeds; a fifth of the replies differs between two arms."""


def state_power(recipe: Recipe, folder: Path, names: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """The statement for these arms and seeds; `folder` may hold an ablation whose figures are better than assumed."""
    claims = _claims(recipe, names)
    domains = Counter(sample.domain for sample in reader.samples(recipe, recipe.eval.data) if sample.answers)
    n = sum(domains.values())
    if not n:
        raise RecipeError(
            f"{recipe.path}: [data.{recipe.eval.data}] has no question with a gold answer to compare arms with; "
            "add answers, or name another source in eval.data"
        )
    deviations, known_from = _deviations(folder)
    asked: dict[str | None, int] = {None: n}
    asked |= {claim.domain: domains[claim.domain] for claim in claims if claim.domain}
    if missing := [name for name in asked if name is not None and not asked[name]]:
        raise RecipeError(
            f"{recipe.path}: [ablate.studies]: a claim is about domain {missing[0]!r}, of which "
            f"[data.{recipe.eval.data}] has no question; it has {', '.join(map(repr, sorted(domains))) or 'none'}"
        )
    differences = []
    for domain, questions in asked.items():
        half, one, corrected = (
            planned_detectable(deviations, seeds=len(seeds), n=questions, comparisons=len(names) - 1, level=level)
            for level in (LEVEL, LEVEL, LEVEL / max(1, len(claims)))
        )
        differences.append(
            {
                "domain": domain,
                "n": questions,
                "half_width": half[0],
                "detectable": one[1] if math.isfinite(one[1]) else None,
                "detectable_corrected": corrected[1] if math.isfinite(corrected[1]) else None,
            }
        )
    return {
        "stated": datetime.now(UTC).isoformat(timespec="seconds"),
        "arms": list(names),
        "seeds": list(seeds),
        "claims": len(claims),
        "level": LEVEL,
        "sd": asdict(deviations),
        "sd_from": known_from,
        "differences": differences,
        "work": _work(recipe, folder, names, len(seeds), n),
    }


def keep_statement(recipe: Recipe, folder: Path, names: Sequence[str], seeds: Sequence[int]) -> None:
    """Add a statement of the whole recipe, unless each of `seeds` is in one or has measured an arm already."""
    statements = read_statements(folder)
    stated = {seed for statement in statements for seed in statement["seeds"]}
    measured = {
        seed
        for arm_folder in (folder / ARMS).glob("*/")
        for seed, path in seed_folders(arm_folder).items()
        if (path / "eval" / MANIFEST).is_file()
    }
    if new := sorted({*seeds} - stated - measured):
        statement = state_power(recipe, folder, names, sorted({*seeds} | stated | measured)) | {"before": new}
        write_bytes(folder / POWER, orjson.dumps([*statements, statement], option=orjson.OPT_INDENT_2) + b"\n")


def read_statements(folder: Path) -> list[dict[str, Any]]:
    """The statements that were written before runs, in their order."""
    path = folder / POWER
    return orjson.loads(path.read_bytes()) if path.is_file() else []


def stated_texts(results: Mapping[str, Any]) -> list[str]:
    """What was stated before which seeds of results.json ran, and of which seeds nothing was; empty without any."""
    statements = results.get("power") or []
    texts, left = [], {*results.get("seeds", ())}
    for statement in statements:
        before = statement["before"]
        left -= {*before}
        texts.append(
            f"Stated {statement['stated'][:10]}, before {seed_names(before)} ran: {statement_text(statement)}"
        )
    return [*texts, f"Nothing was stated before {seed_names(sorted(left))} ran."] if texts and left else texts


def seed_names(numbers: Sequence[int]) -> str:
    """Seeds as a sentence names them."""
    return f"seed{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _claims(recipe: Recipe, names: Sequence[str]) -> list[Claim]:
    return [
        claim for study in recipe.ablate.studies.values() if set(study.arms) <= set(names) for claim in study.claims
    ]


def _deviations(folder: Path) -> tuple[Deviations, str]:
    """Root mean squares over the arms of earlier results, or what is assumed."""
    path = folder / RESULTS
    arms = orjson.loads(path.read_bytes())["arms"].values() if path.is_file() else ()
    known = [arm["effect"]["sd"] for arm in arms if (arm.get("effect") or {}).get("sd")]
    if not known:
        return Deviations(**ASSUMED), "assumed"
    squares = {name: sum(each[name] ** 2 for each in known) / len(known) for name in ASSUMED}
    return Deviations(
        **{name: square**0.5 for name, square in squares.items()}
    ), f"{counted(len(known), 'arm')} measured before"


def _work(recipe: Recipe, folder: Path, names: Sequence[str], seeds: int, n: int) -> dict[str, Any]:
    """Trainings, steps and replies of all arms, each stage that arms share counted once, and their seconds."""
    trained, asked = _distinct(recipe, names)
    replies = len(asked) * n * (2 if recipe.eval.without_image else 1) * seeds
    steps = None if None in trained.values() else sum(step or 0 for step in trained.values()) * seeds
    seconds_a_step = _rate(_measured(folder, "train"), "steps")
    seconds_a_reply = _rate(_measured(folder, "eval"), "predictions", "predictions_without_image")
    seconds = None
    if steps is not None and seconds_a_step is not None and seconds_a_reply is not None:
        seconds = steps * seconds_a_step + replies * seconds_a_reply
    return {
        "trainings": len(trained) * seeds,
        "steps": steps,
        "replies": replies,
        "seconds_a_step": seconds_a_step,
        "seconds_a_reply": seconds_a_reply,
        "seconds": seconds,
    }


def _distinct(recipe: Recipe, names: Sequence[str]) -> tuple[dict[str, int | None], set[str]]:
    """For one seed: the steps of every different stage (None: they depend on the rows), and the measured students."""
    steps = {stage.name: stage.max_steps or 0 for stage in recipe.stages}
    budget = Budget(steps=steps, tokens={name: max(1, count) for name, count in steps.items()})
    known = all(stage.max_steps for stage in recipe.stages)
    earlier = {stage.name for stage in lineage(recipe.stages, stage_under_study(recipe))[:-1]}
    trained: dict[str, int | None] = {}
    asked = set()
    for name in names:
        planned = arm(recipe, name, seed=recipe.seed, budget=budget if known and name != REFERENCE else None)
        own = name if planned.rounds or name != untimed(name) else ""
        for stage in planned.recipe.stages:
            if own and stage.name not in earlier:
                trained[f"{own} {stage.name}"] = None if name != untimed(name) else stage.max_steps
            else:
                trained[_identity(planned, stage.name)] = stage.max_steps
        for each in range(1, planned.rounds + 1):
            steps_of_first = trained[f"{own} {planned.stage}"]
            length = steps_of_first and max(1, round(planned.recipe.rounds.steps_share * steps_of_first))
            trained[f"{own} round {each}"] = length
        asked.add(BASE if planned.stage == BASE else own or _identity(planned, planned.stage))
    return trained, asked


def _identity(planned: Arm, stage: str) -> str:
    """A digest of what decides a stage's student."""
    values = planned.recipe.model_dump(mode="json")
    line = lineage(planned.recipe.stages, stage)
    decisive = {"stages": [each.model_dump(mode="json", exclude={"start"}) for each in line], "eval": STUDENT}
    if any(is_traces(each) for each in line):
        decisive |= {name: values[name] for name in ("data", "teachers", "filter")}
    return fingerprint(decisive)


def _measured(folder: Path, verb: str) -> list[Manifest]:
    """The finished stages of that verb which the arms share."""
    stages = [Manifest.read(path.parent) for path in sorted((folder / SHARED).glob(f"{verb}-*/manifest.json"))]
    return [manifest for manifest in stages if manifest is not None]


def _rate(manifests: Sequence[Manifest], *units: str) -> float | None:
    count = sum(manifest.counts.get(unit, 0) for manifest in manifests for unit in units)
    return sum(manifest.seconds for manifest in manifests) / count if count else None


def statement_text(statement: Mapping[str, Any]) -> str:
    """The statement as sentences, for the console and the page."""
    work, sd, claims = statement["work"], statement["sd"], statement["claims"]
    seeds = len(statement["seeds"])
    lines = [
        f"{counted(len(statement['arms']), 'arm')} x {counted(seeds, 'seed')}, {counted(claims, 'claim')}. Standard "
        f"deviations of a difference ({statement['sd_from']}): {100 * sd['seed']:.1f} points between seeds, "
        f"{100 * sd['question']:.0f} between questions, {100 * sd['rest']:.0f} of single replies."
    ]
    holm = f"after Holm's correction for {counted(claims, 'claim')} at worst"
    for row in statement["differences"]:
        of = f"{row['domain'] or 'all questions'}: {counted(row['n'], 'question')}"
        if row["detectable"] is None:
            lines.append(f"{of}; no difference can be found.")
            continue
        half, one, corrected = (100 * row[name] for name in ("half_width", "detectable", "detectable_corrected"))
        of += f", half width {half:.1f} points"
        found = f"{one:.1f} points by a single claim" + (f", {corrected:.1f} {holm}" if claims else "")
        lines.append(f"{of}; found with a probability of 80 %: {found}.")
    steps = "steps unknown" if work["steps"] is None else counted(work["steps"], "step")
    cost = f"{counted(work['trainings'], 'training')}, {steps}, {counted(work['replies'], 'reply', 'replies')}"
    if work["seconds"] is None:
        lines.append(f"{cost}. Seconds are known when one arm is finished in this run directory.")
    else:
        lines.append(
            f"{cost}: about {work['seconds']:,.0f} s one after the other, at {work['seconds_a_step']:.2f} s a step "
            f"and {work['seconds_a_reply']:.3f} s a reply as measured here; traces and filtering come on top."
        )
    return "\n".join(lines)
