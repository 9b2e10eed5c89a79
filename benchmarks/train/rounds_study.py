"""Rounds against more training on the traces of round 0, with equal steps, on the same test questions.

    python benchmarks/train/rounds_study.py FOLDER [--recipe tiny-steps] [--rounds 2] [--steps 900] [--share 0.5]
                                            [--seeds 0 1 2] [--start last] [--samples N] [--questions N] [--test N]
                                            [--pool 0.3] [--random N N] [--set student.dtype=bfloat16]

Each seed is a run in FOLDER. Its stage `reason` is round 0. The control goes on from it for as many steps as
the rounds have together, with the same settings, on the traces of round 0. A resumed command goes on where it
was. The difference is paired by question and by seed (distill/stats/paired_effects.py); tokens are those of training.
The rounds read their own validation questions; the test questions decide nothing but the figures printed here.
With --pool round 0 asks only this share of the questions. The student answers the others, and the rounds take
its failures among them (`rounds.questions`); the last 7 % are the validation questions. With --random 514 102 the
rounds take so many random questions of the others in the place of failures: what new questions do by themselves.
Takes 2 min with `--rounds 1 --steps 20 --seeds 0 --questions 60 --test 40` (two shared cores).
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.commands.whole_run import all_stages
from distill.recipe.loading import derived_recipe, load
from distill.recipe.recipe import Recipe
from distill.reports.text_table import table
from distill.rounds import returned_questions
from distill.rounds.results import rounds_text
from distill.rounds.round_recipes import run_of_round
from distill.stats.intervals import wilson
from distill.stats.paired_effects import PairedEffect, paired_effect


def study_recipe(options: argparse.Namespace, seed: int) -> Recipe:
    """The recipe with one stage, its control, and rounds that no verdict ends."""
    recipe = load(options.recipe, dict(each.split("=", 1) for each in options.set))
    values: dict[str, Any] = recipe.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    studied = next(stage for stage in values["stages"] if stage["name"] == "reason")
    first = {**studied, "max_steps": options.steps}
    steps = max(1, round(options.share * options.steps))
    control = {**studied, "name": "control", "start": "reason", "max_steps": steps * options.rounds}
    values |= {"seed": seed, "stages": [first, control]}
    values["eval"] |= {"arms": {"control": "control", "first": "reason"}, "without_image": False}
    values["data"]["questions"]["limit"] = options.questions
    source: dict[str, Any] = values["data"]["questions"]
    if options.pool:
        ends = {"questions": (0.0, options.pool), "pool": (options.pool, 0.93), "judged": (0.93, 1.0)}
        source.pop("limit")
        values["data"] |= {name: {**source, "part": list(part)} for name, part in ends.items()}
    if options.test:
        values["data"]["test"]["limit"] = options.test
    values["rounds"] = {
        "count": options.rounds,
        "stage": "reason",
        "start": options.start,
        "steps_share": options.share,
        "min_gain_points": -100.0,
        "max_length_growth": 1000.0,
        "max_common_answer_growth": 1.0,
        **({"samples": options.samples} if options.samples else {}),
        **({"questions": "pool", "validation": "judged"} if options.pool else {}),
    }
    return derived_recipe(recipe, values, f"seed {seed}")


def return_random_questions(counts: Sequence[int], seed: int) -> None:
    """From now on so many random questions of the source go back in each round, none of them twice."""

    def verdicts(path: Path) -> Iterator[dict[str, Any]]:
        lines = list(read_jsonl(path))
        number = int(path.parents[2].name)  # RUN/rounds/N/answers/eval/predictions.jsonl
        order = sorted(line["sample_id"] for line in lines)
        random.Random(seed).shuffle(order)
        begin = sum(counts[: number - 1])
        chosen = set(order[begin : begin + counts[number - 1]])
        for line in lines:
            yield line | {"verdict": "wrong" if line["sample_id"] in chosen else "correct"}

    returned_questions.read_jsonl = verdicts


def right(run: Path, arm: str) -> dict[str, bool]:
    lines = read_jsonl(run / "eval" / "predictions.jsonl")
    return {line["sample_id"]: line["verdict"] == "correct" for line in lines if line["arm"] == arm}


def tokens(run: Path, stage: str) -> int:
    manifest = Manifest.read(run / "train" / stage)
    assert manifest is not None
    return manifest.tokens["trained"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipe", default="tiny-steps")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--start", default="last")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--test", type=int, default=0)
    parser.add_argument("--pool", type=float, default=0.0)
    parser.add_argument("--random", type=int, nargs="+", default=[])
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    found: dict[str, list[dict[str, bool]]] = {"first": [], "control": [], "rounds": []}
    for seed in options.seeds:
        run = options.folder / f"seed-{seed}"
        if options.random:
            return_random_questions(options.random, seed)
        all_stages(study_recipe(options, seed), run)
        print(f"seed {seed}\n{rounds_text(run)}")
        last = run_of_round(run, options.rounds)
        of_rounds = sum(tokens(run_of_round(run, number), "reason") for number in range(1, options.rounds + 1))
        print(f"tokens after round 0: rounds {of_rounds:,}, control {tokens(run, 'control'):,}\n")
        found["first"].append(right(run, "first"))
        found["control"].append(right(run, "control"))
        found["rounds"].append(right(last, "first"))
    ids = sorted(found["first"][0])
    columns = {arm: [[float(of_seed[each]) for each in ids] for of_seed in seeds] for arm, seeds in found.items()}
    rows = []
    for arm, seeds in columns.items():
        share = sum(map(sum, seeds)) / (len(seeds) * len(ids))
        low, high = wilson(share * len(ids), len(ids))
        effects = [paired_effect(seeds, columns[other]) for other in ("first", "control")]
        rows.append((arm, f"{100 * share:.1f} [{100 * low:.1f}, {100 * high:.1f}]", *map(_shown, effects)))
    print(table((f"{len(ids)} test questions", "accuracy %", "over first, points", "over control, points"), rows))


def _shown(effect: PairedEffect) -> str:
    low, high = effect.ci95
    return f"{100 * effect.delta:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


if __name__ == "__main__":
    main()
