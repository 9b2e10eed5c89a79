"""Compares the filter's ranking of teachers with the accuracy of students trained on each of them.

The filter ranks by student fit: how likely a student that has not seen them finds each teacher's kept traces
(filters/report/teachers.py). The two rankings are compared by rank correlation (distill/stats/rank_correlation.py).
"""

from collections.abc import Mapping
from typing import Any

from distill.errors import DataError
from distill.stats.rank_correlation import LOW_FITS, rank_correlation
from distill.teacher_fits import Fits

SHOWN = "rank_surprisal"
"""The signal that the filter's report ranks by."""
ARM = "teacher_"
"""What the name of an arm of one teacher begins with; the teacher follows."""
_SUMMARY = ("rows", "spearman", "kendall", "p", "ci95")


def of_results(results: Mapping[str, Any], fits: Fits, *, seed: int = 0) -> dict[str, Any]:
    """`rank_correlation` by the report's signal, for the arms `teacher_NAME` of an ablation's results.json.

    `fits` comes from `distill.teacher_fits.fit_values`. Under "signals" the correlations by every signal.
    """
    arms = results["arms"]
    answers = {
        teacher: [(round(seed_result["accuracy"] * held["n"]), held["n"]) for seed_result in held["seeds"].values()]
        for teacher in fits
        if (held := arms.get(f"{ARM}{teacher}")) is not None
    }
    fits_of_answered = {teacher: fits[teacher] for teacher in answers}
    by_signal = {
        signal: rank_correlation(
            signal, {name: values[signal] for name, values in fits_of_answered.items()}, answers, seed=seed
        )
        for signal in LOW_FITS
        if all(values.get(signal) for values in fits_of_answered.values())
    }
    if SHOWN not in by_signal:
        missing = sorted(name for name, values in fits_of_answered.items() if not values.get(SHOWN))
        raise DataError(f"{SHOWN} was measured on no trace of {', '.join(missing) or 'any teacher'}")
    return by_signal[SHOWN] | {
        "signals": {signal: {key: result[key] for key in _SUMMARY} for signal, result in by_signal.items()}
    }
