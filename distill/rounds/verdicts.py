"""Whether a round helped, from the replies to the validation questions alone: its gain, and guards.

The rounds go on while a round gains more than `rounds.min_gain_points` over the best round before it. Otherwise, or
if a guard fails, they end. A round that gains nothing is never the best round. Never sees the test set.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from distill.recipe.sections.rounds import Rounds
from distill.stats import intervals
from distill.stats.intervals import Delta

Replies = Sequence[Mapping[str, Any]]
"""Predictions of an evaluation (student/inference/scoring.py), in the order of its questions."""

BETTER, NOT_BETTER, SMALL_GAIN = "better", "not_better", "small_gain"
COMMON_ANSWER, LONGER_REPLIES, ACCURACY_LOST = "common_answer", "longer_replies", "accuracy_lost"
"""What a verdict on a round can be; the last three are guards."""
CONTINUES = (BETTER, NOT_BETTER)
"""The verdicts with which the rounds go on; a round that is not better is allowed by a negative least gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFigures:
    """What the replies of one student say."""

    n: int
    correct: int
    accuracy: float
    ci95: tuple[float, float]
    median_tokens: float | None
    """None where a server does not count them."""
    common_answer: str
    common_share: float
    gold_common_share: float
    """The same share among the gold answers of these questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundVerdict:
    """The verdict on one round."""

    kind: str
    text: str
    """A sentence for people."""
    gain: Delta
    """Against the best round before."""


def measure(replies: Replies) -> PassFigures:
    """The figures of one round; at least one reply."""
    correct = sum(map(_is_correct, replies))
    counted = [reply["tokens"] for reply in replies if reply["tokens"] is not None]
    answer, common = _commonest([reply["answer"] for reply in replies])
    return PassFigures(
        n=len(replies),
        correct=correct,
        accuracy=correct / len(replies),
        ci95=intervals.wilson(correct, len(replies)),
        median_tokens=float(median(counted)) if counted else None,
        common_answer=answer,
        common_share=common,
        gold_common_share=_commonest([reply["gold"][0] for reply in replies])[1],
    )


def judge_round(settings: Rounds, first: Replies, best: Replies, now: Replies) -> RoundVerdict:
    """The verdict on a round whose student gave `now`; `first` are the replies of round 0.

    `best` and `now` are to the same questions, in the same order. Raises ValueError where they are not.
    """
    if [reply["sample_id"] for reply in best] != [reply["sample_id"] for reply in now]:
        raise ValueError("the rounds answered other validation questions")
    before, after = measure(first), measure(now)
    gain = intervals.paired(list(map(_is_correct, now)), list(map(_is_correct, best)))
    points = f"{100 * gain.delta:+.1f} points [{100 * gain.ci95[0]:+.1f}, {100 * gain.ci95[1]:+.1f}]"
    usual = max(before.common_share, after.gold_common_share)
    if after.common_share > usual + settings.max_common_answer_growth:
        text = (
            f"{100 * after.common_share:.0f} % of the replies have the answer {after.common_answer!r:.40}; in "
            f"round 0 {100 * before.common_share:.0f} % had one answer, and {100 * after.gold_common_share:.0f} % "
            f"of the gold answers are the same: the student answers without looking ({points})"
        )
        return RoundVerdict(kind=COMMON_ANSWER, text=text, gain=gain)
    lengths = (before.median_tokens, after.median_tokens)
    if lengths[0] and lengths[1] and lengths[1] > lengths[0] * (1 + settings.max_length_growth):
        text = (
            f"the median reply has {lengths[1]:g} tokens, and {lengths[0]:g} in round 0: more than "
            f"{100 * settings.max_length_growth:.0f} % longer ({points})"
        )
        return RoundVerdict(kind=LONGER_REPLIES, text=text, gain=gain)
    if gain.ci95[1] < 0:
        return RoundVerdict(kind=ACCURACY_LOST, text=f"the student answers worse than before: {points}", gain=gain)
    if 100 * gain.delta <= settings.min_gain_points:
        text = f"the round gains {points}; rounds.min_gain_points asks for more than {settings.min_gain_points:g}"
        return RoundVerdict(kind=SMALL_GAIN, text=text, gain=gain)
    kind = BETTER if gain.delta > 0 else NOT_BETTER
    return RoundVerdict(kind=kind, text=f"the round gains {points}", gain=gain)


def _is_correct(reply: Mapping[str, Any]) -> bool:
    return bool(reply["verdict"] == "correct")


def _commonest(answers: Sequence[str]) -> tuple[str, float]:
    """The commonest answer, in small letters, and its share of all replies; one without an answer has none."""
    counts = Counter(answer.strip().casefold() for answer in answers if answer.strip())
    answer, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return answer, count / len(answers)
