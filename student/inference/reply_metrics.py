"""Metrics of replies: one entry defines the value of a reply, the aggregate, and the places where the result is
shown.

To add a metric, add an entry to `BUILT_IN`, or write a user's metric (student/evaluation/user_metrics.py); both are
treated alike. Predictions, metrics.json, differences between arms, tables of the pages, console and lmms-eval tasks
follow from the entry. Verdict, rationale and checked values of a reply are from student/inference/scoring.py.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from distill.answers.reference_metrics import anls, exact_match, relaxed_accuracy, rouge_l, vqa_accuracy
from distill.data.gold_answers import read_votes
from distill.errors import RecipeError
from distill.extensions import FAILURES, call, describe
from distill.reports.metric_table import OTHERS, Kind, Measure
from distill.stats import intervals
from distill.types import Sample

Prediction = dict[str, Any]
Value = bool | float | None
REFERENCES = ("rationale", "rationales", "cot", "solution")
"""Keys of a sample's meta that may hold a reference rationale, or a list of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric: the value of a reply, and the form of the aggregate."""

    name: str
    """Its key in metrics.json."""
    label: str
    """The heading of its column on a page."""
    kind: Literal["share", "mean"]
    """share: of replies for which the value is true. mean: of numbers."""
    value: Callable[[Sample, Mapping[str, Any]], Value] | None = None
    """Of a question and the prediction of one reply (student.inference.scoring.score_reply); None: it does not apply.
    A metric without this function reads what the prediction holds under `field`."""
    note: str = ""
    field: str = ""
    """Where a prediction holds the value; by default under the metric's name."""
    equals: str | None = None
    """The value is whether the field is this text."""
    interval: bool = True
    """Whether metrics.json holds its interval and the number of replies that it applies to."""
    while_training: bool = False
    """Whether it is measured on held-out rows during training too."""
    compared: bool = False
    """Whether the difference between two arms is tested; of shares only."""
    shown: Literal["headline", "more", "file"] = "more"
    """The table of the page that has it; file: metrics.json alone."""
    console: str = ""
    """The heading of its column on the console; '' for none."""
    written: Kind | Literal[""] = ""
    """How its number is written; by default a share in percent, a mean with three digits."""
    lmms_eval: bool = False
    """Whether tasks for lmms-eval report it."""

    @property
    def key(self) -> str:
        return self.field or self.name

    def of(self, prediction: Mapping[str, Any]) -> Value:
        """The value of one prediction."""
        held: Any = prediction.get(self.key)
        return held if self.equals is None or held is None else bool(held == self.equals)

    def column(self) -> Measure:
        """The column of a table that shows it."""
        kind: Kind = self.written or ("share" if self.kind == "share" else "number")
        return Measure(label=self.label, keys=(self.name,), kind=kind, note=self.note)


def _references(sample: Sample) -> list[str]:
    """The sample's own rationales, where its source has them."""
    for name in REFERENCES:
        value = sample.meta.get(name)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        if result := [text for text in texts if isinstance(text, str) and text.strip()]:
            return result
    return []


def _vqa_accuracy(sample: Sample, prediction: Mapping[str, Any]) -> float | None:
    votes = read_votes(sample.meta)
    return vqa_accuracy(prediction["answer"], votes) if votes else None


def _rationale_rouge_l(sample: Sample, prediction: Mapping[str, Any]) -> float | None:
    references, rationale = _references(sample), prediction["reasoning"]
    return rouge_l(rationale, references) if references and rationale else None


BUILT_IN: tuple[Metric, ...] = (
    Metric(
        name="undecided_rate",
        label="undecided",
        kind="share",
        field="verdict",
        equals="undecided",
        note="The checker could not tell.",
    ),
    Metric(
        name="exact_accuracy",
        label="exact match",
        kind="share",
        field="exact",
        value=lambda sample, prediction: bool(exact_match(prediction["answer"], sample.answers)),
        note="Same words as a gold answer.",
        lmms_eval=True,
    ),
    Metric(
        name="relaxed_accuracy",
        label="relaxed accuracy",
        kind="share",
        field="relaxed",
        value=lambda sample, prediction: any(relaxed_accuracy(prediction["answer"], gold) for gold in sample.answers),
        note="Numbers within 5 %, as ChartQA counts.",
        compared=True,
        lmms_eval=True,
    ),
    Metric(
        name="anls",
        label="ANLS",
        kind="mean",
        value=lambda sample, prediction: anls(prediction["answer"], sample.answers),
        note="Average normalised Levenshtein similarity, as DocVQA counts.",
        shown="file",
        lmms_eval=True,
    ),
    Metric(
        name="vqa_accuracy",
        label="VQA accuracy",
        kind="mean",
        value=_vqa_accuracy,
        note="By the votes of annotators, where there are some.",
        shown="file",
        lmms_eval=True,
    ),
    Metric(
        name="rouge_l",
        label="ROUGE-L",
        kind="mean",
        value=lambda sample, prediction: rouge_l(f"{prediction['reasoning']} {prediction['answer']}", sample.answers),
        note="Of the whole reply with the gold answers, times 100.",
        written="share",
    ),
    Metric(
        name="rationale_rouge_l",
        label="ROUGE-L of the rationale",
        kind="mean",
        value=_rationale_rouge_l,
        note="With the sample's own rationale, times 100.",
        shown="file",
        written="share",
    ),
    Metric(
        name="format_rate",
        label="well formed",
        kind="share",
        field="well_formed",
        note="At most one think block, closed, with an answer after it.",
        while_training=True,
    ),
    Metric(
        name="truncation_rate",
        label="cut off",
        kind="share",
        field="truncated",
        note="The token limit came first.",
        while_training=True,
    ),
    Metric(
        name="hallucination_rate",
        label="hallucination",
        kind="share",
        field="unsupported_values",
        note=(
            "Share of rationales with a value that chart and question do not support, among rationales with a "
            "value that can be checked."
        ),
        compared=True,
        shown="headline",
        console="hallucinated %",
    ),
    Metric(
        name="mean_unsupported_values",
        label="unsupported values",
        kind="mean",
        field="unsupported_values",
        shown="file",
    ),
    Metric(
        name="consistency_rate",
        label="consistency",
        kind="share",
        field="consistent",
        note="Answers that their rationale concludes, of those whose rationale concludes anything.",
        compared=True,
        shown="headline",
    ),
    Metric(
        name="mean_rationale_tokens",
        label="rationale, tokens",
        kind="mean",
        field="rationale_tokens",
        interval=False,
        while_training=True,
        shown="headline",
        console="rationale tokens",
        written="tokens",
    ),
    Metric(
        name="mean_tokens",
        label="tokens an answer",
        kind="mean",
        field="tokens",
        interval=False,
        while_training=True,
        shown="headline",
        written="tokens",
    ),
    Metric(
        name="mean_seconds",
        label="seconds an answer",
        kind="mean",
        field="seconds",
        interval=False,  # the replies of a batch share its seconds, so they are no sample of independent values
        shown="headline",
        written="seconds",
    ),
)
"""The project's own metrics beside accuracy, in the order of metrics.json and of the tables."""

_TOO_LARGE = 1e100
"""Sums of squares of smaller numbers are finite."""


def metric_values(metrics: Iterable[Metric], sample: Sample, prediction: Prediction) -> dict[str, Value]:
    """The value of each metric with a function for a reply. Raises RecipeError, which names a metric that fails."""
    return {metric.key: _value(metric, sample, prediction) for metric in metrics if metric.value is not None}


def _value(metric: Metric, sample: Sample, prediction: Prediction) -> Value:
    assert metric.value is not None
    where = f"eval.metrics: {metric.name} on sample {sample.id}"
    try:
        value: Value = call(metric.value, sample, dict(prediction))
        if value is None:
            return None
        if metric.kind == "share" and value in (True, False):
            return bool(value)
        if metric.kind == "mean" and isinstance(value, Real) and abs(value) < _TOO_LARGE:
            return float(value)
    except FAILURES as error:
        raise RecipeError(f"{where} failed: {describe(error)}; correct its function") from error
    meant = "true or false" if metric.kind == "share" else f"a number smaller than {_TOO_LARGE:g}"
    raise RecipeError(f"{where} gave {value!r:.60}; its kind is {metric.kind!r}, so it gives {meant}, or None")


def aggregate(metric: Metric, predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Share or mean of a metric over predictions, with its interval and the number of replies that it applies to."""
    known = [value for prediction in predictions if (value := metric.of(prediction)) is not None]
    if metric.kind == "share":
        known = [bool(value) for value in known]
    n, total = len(known), math.fsum(known)
    result: dict[str, Any] = {metric.name: total / n if n else None}
    if metric.interval:
        if metric.kind == "share":
            ends = intervals.wilson(int(total), n) if n else None
        else:
            ends = intervals.bootstrap_mean([float(value) for value in known])
        result |= {f"{metric.name}_ci95": ends, f"{metric.name}_n": n}
    return result


_DESCRIBED = ("label", "kind", "note", "shown", "written")


def describe_metric(metric: Metric) -> dict[str, Any]:
    """The description of a metric for pages and console, for metrics.json."""
    return {key: getattr(metric, key) for key in _DESCRIBED}


def shown_metrics(metrics: Mapping[str, Any]) -> tuple[Metric, ...]:
    """The metrics that a metrics file can hold: the project's own, and the user's metrics that it describes."""
    own = metrics.get("own_metrics", {})
    return (
        *BUILT_IN,
        *(Metric(name=name, console=description["label"], **description) for name, description in own.items()),
    )


def columns(shown: Literal["headline", "more"], metrics: Iterable[Metric] = BUILT_IN) -> tuple[Measure, ...]:
    """The columns of a table of the page; values that do not come from replies, such as the cost of training, are
    last."""
    return (*(metric.column() for metric in metrics if metric.shown == shown), *OTHERS[shown])
