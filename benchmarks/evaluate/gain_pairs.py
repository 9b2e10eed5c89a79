"""Known pairs of teachers and students: what was measured before training, and what training gained.

    python benchmarks/evaluate/gain_pairs.py study FOLDER --see 500 --reason 150 [--teachers careful terse]
    python benchmarks/evaluate/gain_pairs.py collect FOLDER   # adds the finished arms of a study
    python benchmarks/evaluate/gain_pairs.py kept RUN         # those of docs/results; RUN has traces of tiny-studies
    python benchmarks/evaluate/gain_pairs.py fit              # evidence, and the model of `distill plan --gain`

A study trains, in the world `tiny-steps`, one student a teacher on that teacher's traces alone, and the control on
answers alone, from a student that has learned to see for `--see` steps. Pairs are in docs/results/gain_pairs.json.
The gain is accuracy over the control, paired by question (three seeds without kept replies: by seed).
Takes 3 s for `fit`; a study trains a student a teacher, which is not timed here (two shared cores).
"""

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from gain_fit import GainPair, fit_model, left_out, pair_of, student_of

from distill.ablation.runner import AskedArms, ablate, place
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import DECISIONS, PREDICTIONS, RECIPE, model_folder
from distill.artifacts.manifest import Manifest
from distill.planning.gain import (
    MODEL_FILE,
    TeacherMeasures,
    counted_teachers,
    measured_teachers,
    student_reads,
    teacher_measures,
)
from distill.recipe.loading import derived_recipe, load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import REFERENCE
from distill.reports.text_table import interval, percent, table
from distill.stats.gain_model import MEASURES
from distill.stats.intervals import paired, wilson

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
PAIRS = RESULTS / "gain_pairs.json"
CONTROL = "answers_only"
_RULES = ("incomplete", "bad_format", "wrong_answer", "not_measured")
_T_OF_SEEDS = {3: 4.302652729911275}
"""Quantile of Student's t for the 95 % interval of a mean over so many seeds."""


# --- trainings -----------------------------------------------------------------------------------------------------


def study_recipe(see: int, reason: int, questions: int, test: int) -> Recipe:
    """`tiny-steps` with a stage that learns to see first, and few rules, so that bad teachers pass."""
    recipe = load("tiny-steps")
    values: dict[str, Any] = recipe.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    studied = next(stage for stage in values["stages"] if stage["name"] == "reason")
    first = {**studied, "name": "see", "data": "captions", "replay": {"instruct": 0.3}, "max_steps": see}
    values["stages"] = [first, {**studied, "max_steps": reason}]
    values["data"]["questions"]["limit"] = questions
    values["data"]["test"]["limit"] = test
    values["filter"]["rules"] = [rule for rule in values["filter"]["rules"] if rule["name"] in _RULES]
    values["eval"] = {"data": "test", "max_new_tokens": 160, "batch_size": 150, "without_image": False}
    values["ablate"] = {"seeds": [recipe.seed]}
    return derived_recipe(recipe, values, f"see {see}, reason {reason}")


def study(options: argparse.Namespace) -> None:
    recipe = study_recipe(options.see, options.reason, options.questions, options.test)
    teachers = options.teachers or [teacher.name for teacher in recipe.teachers]
    ablate(recipe, options.folder, AskedArms(arms=[CONTROL, *(f"teacher_{name}" for name in teachers)]))


# --- pairs ---------------------------------------------------------------------------------------------------------


def collect(folder: Path) -> list[GainPair]:
    """The pairs of a study's finished arms. The reference is that of its teacher where all its traces are of one."""
    reference = place(folder, REFERENCE, 0)
    recipe = load(str(reference / RECIPE))
    see, reason = recipe.stages
    decisions = pq.read_table(reference / "filter" / DECISIONS, columns=["teacher", "selected"])
    selected = set(decisions.filter(decisions["selected"])["teacher"].to_pylist())
    control = _right(place(folder, CONTROL, 0))
    pairs = []
    for measured in measured_teachers(recipe, reference, model_folder(reference, see.name)):
        run = reference if selected == {measured.teacher} else place(folder, f"teacher_{measured.teacher}", 0)
        if Manifest.read(run / "eval") is not None:
            student = f"{see.max_steps} + {reason.max_steps} steps"
            pairs.append(_pair("tiny-steps", student, measured, _right(run), control))
    return pairs


def _right(run: Path) -> list[bool]:
    lines = sorted(read_jsonl(run / "eval" / PREDICTIONS), key=lambda line: str(line["sample_id"]))
    return [line["verdict"] == "correct" for line in lines]


def _pair(
    world: str, student: str, measured: TeacherMeasures, right: Sequence[bool], control: Sequence[bool]
) -> GainPair:
    effect = paired(right, control)
    return _made(world, student, measured, effect.delta, effect.ci95)


def _made(world: str, student: str, measured: TeacherMeasures, gain: float, ci95: tuple[float, float]) -> GainPair:
    values = measured.measures()
    if values is None or measured.pass_rate is None:
        raise SystemExit(f"{student}, {measured.teacher}: the student could read no trace of it")
    return GainPair(
        world=world,
        student=student,
        teacher=measured.teacher,
        measures=values,
        gain=gain,
        ci95=ci95,
        pass_rate=measured.pass_rate,
    )


def kept(run: Path) -> list[GainPair]:
    """The pairs of `tiny-studies` whose outcomes are kept: those of the current recipe, and of an earlier form of it.

    `run` has some filtered traces of that recipe; they give pass rates and the questions that a teacher teaches.
    """
    recipe = load("tiny-studies")
    asked, counts = counted_teachers(recipe, run)
    fits_now = json.loads((RESULTS / "outcomes" / "teacher_fits.json").read_text())
    studies = json.loads((RESULTS / "studies.json").read_text())
    signals = studies["studies"]["fit"]["ranks"]["signals"]
    fits_before: dict[str, dict[str, float]] = {}
    for signal, ranks in signals.items():
        for row in ranks["rows"]:
            fits_before.setdefault(row["teacher"], {})[signal] = row["fit"]
    control = _kept_right(CONTROL)
    pairs = []
    for name in fits_now:
        read = student_reads(fits_now[name], recipe.eval.max_new_tokens), fits_before[name]  # no reply was cut
        now, before = (teacher_measures(name, asked, counts[name], each) for each in read)
        pairs.append(_pair("tiny", "1,400 + 600 steps", now, _kept_right(f"teacher_{name}"), control))
        gain, ci95 = _gain_over_seeds(studies["arms"][f"teacher_{name}"], studies["arms"][CONTROL])
        pairs.append(_made("tiny", "250 + 120 steps", before, gain, ci95))
    return pairs


def _kept_right(arm: str) -> list[bool]:
    values = json.loads((RESULTS / "outcomes" / "seed-0" / f"{arm}.json").read_text())
    return [verdict == "c" for verdict in values["verdicts"]]


def _gain_over_seeds(arm: dict[str, Any], control: dict[str, Any]) -> tuple[float, tuple[float, float]]:
    """Mean difference of the seeds and its interval by Student's t; the replies of these runs are not kept."""
    gains = [arm["seeds"][seed]["accuracy"] - control["seeds"][seed]["accuracy"] for seed in arm["seeds"]]
    half = _T_OF_SEEDS[len(gains)] * statistics.stdev(gains) / math.sqrt(len(gains))
    gain = statistics.fmean(gains)
    return gain, (gain - half, gain + half)


def read() -> list[GainPair]:
    return [GainPair(**{**pair, "ci95": tuple(pair["ci95"])}) for pair in json.loads(PAIRS.read_text())]


def add(pairs: Sequence[GainPair]) -> None:
    """Write these pairs beside the others; a pair that is there already is replaced."""
    known = {pair_of(pair): pair for pair in [*(read() if PAIRS.exists() else []), *pairs]}
    PAIRS.write_text(json.dumps([asdict(pair) for pair in known.values()], indent=1) + "\n")
    print(f"{len(pairs)} pairs; {PAIRS} has {len(known)}")


# --- evidence ------------------------------------------------------------------------------------------------------


def report(pairs: Sequence[GainPair]) -> str:
    """Each pair with its prediction, and how often the sign is right against two baselines."""
    by_pair, by_student = left_out(pairs, pair_of), left_out(pairs, student_of)
    rows = [
        (
            f"{pair.world}, {pair.student}",
            pair.teacher,
            percent(pair.pass_rate),
            *(f"{pair.measures[name]:.2f}" for name in MEASURES),
            f"{percent(pair.gain, signed=True)} {interval(pair.ci95, signed=True)}",
            percent(one, signed=True),
            percent(other, signed=True),
        )
        for pair, one, other in zip(pairs, by_pair, by_student, strict=True)
    ]
    head = ("student", "teacher", "right %", *MEASURES, "gain, points", "without pair", "without student")
    sure = [index for index, pair in enumerate(pairs) if pair.is_sure]
    rates = [pair.pass_rate for pair in pairs]
    methods: dict[str, Sequence[float]] = {
        "model, without the pair": by_pair,
        "model, without the student": by_student,
        "always helps": [1.0] * len(pairs),
        "pass rate alone, without the pair": _by_pass_rate(pairs),
    }
    orders = [
        (name, _ordered(pairs, values))
        for name, values in (("model, without the pair", by_pair), ("the higher pass rate", rates))
    ]
    scores = [
        (name, _score(pairs, values, range(len(pairs))), _score(pairs, values, sure))
        for name, values in methods.items()
    ]
    return "\n\n".join(
        [
            table(head, rows),
            table(("right sign", "all pairs", "pairs whose interval excludes 0"), scores),
            table(("the better of two teachers of a student", "where their intervals lie apart"), orders),
        ]
    )


def _ordered(pairs: Sequence[GainPair], predicted: Sequence[float]) -> str:
    """How often the better of two teachers of a student is named, where the intervals of their gains lie apart."""
    apart = [
        (predicted[one] - predicted[other]) * (pairs[one].gain - pairs[other].gain) > 0
        for one in range(len(pairs))
        for other in range(one)
        if student_of(pairs[one]) == student_of(pairs[other])
        and (pairs[one].ci95[0] > pairs[other].ci95[1] or pairs[other].ci95[0] > pairs[one].ci95[1])
    ]
    return _share(sum(apart), len(apart))


def _score(pairs: Sequence[GainPair], predicted: Sequence[float], indexes: Sequence[int]) -> str:
    right = sum((predicted[index] > 0) == (pairs[index].gain > 0) for index in indexes)
    return _share(right, len(indexes))


def _share(right: int, n: int) -> str:
    low, high = wilson(right, n)
    return f"{right} of {n}, {100 * right / n:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def _by_pass_rate(pairs: Sequence[GainPair]) -> list[float]:
    """Helps from a pass rate on: the one that is right most often for the other pairs."""
    predictions = []
    for pair in pairs:
        others = [other for other in pairs if other is not pair]
        rates = [0.0, *sorted({other.pass_rate for other in others}), 1.01]
        least = max(rates, key=lambda rate: sum((other.pass_rate >= rate) == (other.gain > 0) for other in others))
        predictions.append(1.0 if pair.pass_rate >= least else -1.0)
    return predictions


def pair_error(pairs: Sequence[GainPair]) -> float:
    """Root mean square error of the differences between two teachers of a student, each pair left out in turn."""
    predicted = left_out(pairs, pair_of)
    errors = [
        (predicted[one] - predicted[other]) - (pairs[one].gain - pairs[other].gain)
        for one in range(len(pairs))
        for other in range(one)
        if student_of(pairs[one]) == student_of(pairs[other])
    ]
    return math.sqrt(statistics.fmean(error * error for error in errors))


def fit(pairs: Sequence[GainPair]) -> None:
    model = fit_model(pairs)
    fields = {
        "model": asdict(model),
        "pair_error": pair_error(pairs),
        "from": "benchmarks/evaluate/gain_pairs.py",
    }
    MODEL_FILE.write_text(json.dumps(fields, indent=1) + "\n")
    print(report(pairs))
    print(f"\n{MODEL_FILE}: {fields}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("study")
    train.add_argument("folder", type=Path)
    train.add_argument("--see", type=int, required=True)
    train.add_argument("--reason", type=int, required=True)
    train.add_argument("--teachers", nargs="*")
    train.add_argument("--questions", type=int, default=800)
    train.add_argument("--test", type=int, default=400)
    for name, argument in (("collect", "folder"), ("kept", "run")):
        commands.add_parser(name).add_argument(argument, type=Path)
    commands.add_parser("fit")
    options = parser.parse_args()
    if options.command == "study":
        study(options)
    elif options.command == "collect":
        add(collect(options.folder))
    elif options.command == "kept":
        add(kept(options.run))
    else:
        fit(read())


if __name__ == "__main__":
    main()
