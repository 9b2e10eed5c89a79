"""What `distill plan --gain` prints of an expected gain (distill/planning/gain.py): text, and plain values."""

from dataclasses import asdict
from typing import Any

from distill.planning.gain import ALL, FEWEST_TRACES, ExpectedGain, TeacherGain
from distill.reports.text_table import interval, percent, table
from distill.word_tables import counted

_LEAST_TAUGHT = 0.5
"""Share of the questions, and of the traces that a reply can hold."""
_HEAD = (
    "teacher",
    "traces",
    "right %",
    "questions %",
    "image, nats",
    "fit",
    "gain, points",
    "95 %",
    "above 0",
    "verdict",
)

_MEASURES = {"taught": "the share of questions taught", "blind_gap": "image", "rank_surprisal": "fit"}
"""The measures of the model, as the table calls them."""


def gain_text(expected: ExpectedGain) -> str:
    """One line a teacher, the verdict, what limits each teacher, and what the prediction rests on."""
    rows = [_row(gain) for gain in expected.teachers]
    title = f"stage {expected.stage}: gain over the same training on answers alone, before it is trained"
    notes = [
        "questions: share with a kept trace that is not wrong. image: nats per token by which it lowers the "
        "surprisal",
        f"fit: rank-surprisal ratio, lower is better. Measured with {expected.student}",
    ]
    teachers_of: dict[str, list[str]] = {}
    for gain in expected.teachers:
        if text := limit(gain, expected):
            teachers_of.setdefault(text, []).append(gain.measured.teacher)
    limits = [f"{', '.join(names)}: {text}" for text, names in teachers_of.items()]
    blocks = [title, "\n".join([table(_HEAD, rows), *notes]), verdict(expected), "\n".join(limits), _basis(expected)]
    return "\n\n".join(block for block in blocks if block)


def gain_fields(expected: ExpectedGain) -> dict[str, Any]:
    """Shares are 0 to 1, gains -1 to 1; null means "not known"."""
    return {
        "recipe": expected.recipe,
        "run": str(expected.run),
        "stage": expected.stage,
        "student": expected.student,
        "verdict": verdict(expected),
        "teachers": [
            {
                **asdict(gain.measured),
                **{name: getattr(gain.prediction, name, None) for name in ("gain", "ci95", "chance", "outside")},
                "verdict": gain.verdict,
                "limit": limit(gain, expected),
            }
            for gain in expected.teachers
        ],
        "model": asdict(expected.model),
    }


def verdict(expected: ExpectedGain) -> str:
    """Whether the distillation helps, and with which teacher."""
    single = [gain for gain in expected.teachers if gain.measured.teacher != ALL and gain.prediction is not None]
    if not single:
        return "Cannot be told: no teacher has enough traces that the student can read."
    best = single[0]
    assert best.prediction is not None
    answer = {"helps": "It helps", "hurts": "It hurts", "cannot be told": "Whether it helps cannot be told"}
    points = f"{percent(best.prediction.gain, signed=True)} points {interval(best.prediction.ci95, signed=True)}"
    name, chance = best.measured.teacher, f"{100 * best.prediction.chance:.0f} %"
    text = f"{answer[best.verdict]}: {name} is expected to gain {points}, and above 0 with a chance of {chance}."
    near = [
        gain.measured.teacher
        for gain in single[1:]
        if gain.prediction is not None and best.prediction.gain - gain.prediction.gain < expected.pair_error
    ]
    if near:
        text += f" Take {name} or the cheapest of {', '.join(near)}: their predictions do not differ enough."
    elif len(single) > 1:
        text += f" Take {name}."
    together = expected.teachers[-1]
    if together.measured.teacher == ALL and together.prediction is not None:
        text += f" The dataset as it is, of all teachers: {percent(together.prediction.gain, signed=True)} points."
    return text


def limit(gain: TeacherGain, expected: ExpectedGain) -> str:
    """The reason why the gain, or its certainty, is small; empty if there is no clear reason."""
    measured, predicted = gain.measured, gain.prediction
    if measured.traces < FEWEST_TRACES:
        return f"{counted(measured.traces, 'trace')}; {FEWEST_TRACES} are needed"
    if predicted is None:
        return "none of its kept traces fits into the student's input"
    if predicted.outside:
        ranges = expected.model.ranges
        seen = (
            f"{_MEASURES[name]} is outside of {ranges[name][0]:.2f} to {ranges[name][1]:.2f}"
            for name in predicted.outside
        )
        return f"{', '.join(seen)}, which the known pairs have"
    if measured.sayable < _LEAST_TAUGHT:
        return (
            f"{percent(1 - measured.sayable)} % of its traces are longer than eval.max_new_tokens, so such replies "
            "are cut off; raise it, or drop long traces"
        )
    if measured.taught < _LEAST_TAUGHT:
        return f"its traces teach {percent(measured.taught)} % of the questions; add a teacher for the others"
    assert measured.blind_gap is not None
    if measured.blind_gap < 0:
        return (
            "the image hardly lowers the surprisal of its traces: the student reads images badly, or the traces do "
            "not state what the image shows"
        )
    return ""


def _row(gain: TeacherGain) -> tuple[str, ...]:
    measured, predicted = gain.measured, gain.prediction
    return (
        measured.teacher,
        f"{measured.traces:,}",
        _known(measured.pass_rate, percent),
        percent(measured.coverage),
        _known(measured.blind_gap, "{:.2f}".format),
        _known(measured.rank_surprisal, "{:.2f}".format),
        percent(predicted.gain, signed=True) if predicted else "?",
        interval(predicted.ci95, signed=True) if predicted else "?",
        f"{100 * predicted.chance:.0f} %" if predicted else "?",
        gain.verdict,
    )


def _known(value: float | None, show: Any) -> str:
    return "?" if value is None else str(show(value))


def _basis(expected: ExpectedGain) -> str:
    model = expected.model
    return (
        f"The prediction rests on {counted(model.pairs, 'pair')} of a teacher and one of "
        f"{counted(model.students, 'student')} of toy "
        "worlds; its interval is for a student that the model does not know. How often its sign is right: "
        "docs/eval.md. To be sure, train the arms: distill ablate"
    )
