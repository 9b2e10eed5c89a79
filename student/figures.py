"""What eval/metrics.json holds: the figures of every arm over its judged predictions, and the arms compared.

Pure functions over predictions: nothing here reads, writes or generates. Undecided answers are not correct, and are
counted apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from student import scores
from student.judging import Prediction, summary

Lines = Sequence[Prediction]

MEASURES = 1
"""Raised with every change of what `measure`, or the judging before it, gives: an evaluation that an earlier version
measured is measured again from the replies that it kept, nothing is asked again."""


def measure(
    lines: Mapping[str, Lines],
    *,
    seed: int,
    facts: Mapping[str, Mapping[str, Any]],
    without_image: Mapping[str, Lines] | None = None,
) -> dict[str, Any]:
    """The figures of every arm, and of every later arm against every earlier one.

    `lines`: an arm's predictions, in the same order of questions for every arm; the order of arms is kept.
    `facts`: what else is known of an arm (its stage, its cost in training), noted beside its figures.
    `without_image`: predictions of the same arms to questions asked without their pictures.
    """
    names = list(lines)
    deltas = {
        f"{later}-{earlier}": _delta(lines[later], lines[earlier])
        for position, later in enumerate(names)
        for earlier in names[:position]
    }
    return {
        "arms": {arm: {**_arm(lines[arm]), **facts.get(arm, {})} for arm in names},
        "deltas": deltas,
        "seed": seed,
    }


def _arm(lines: Lines) -> dict[str, Any]:
    domains = sorted({line["domain"] for line in lines})
    return {
        **summary(lines),
        "domains": {name: summary([line for line in lines if line["domain"] == name]) for name in domains},
    }


def _delta(later: Lines, earlier: Lines) -> dict[str, Any]:
    whole = _paired(later, earlier)
    domains = sorted({line["domain"] for line in later})
    return {
        **whole,
        "domains": {
            name: _paired(*([line for line in lines if line["domain"] == name] for lines in (later, earlier)))
            for name in domains
        },
    }


def _paired(later: Lines, earlier: Lines) -> dict[str, Any]:
    return asdict(
        scores.paired(
            [line["verdict"] == "correct" for line in later], [line["verdict"] == "correct" for line in earlier]
        )
    )
