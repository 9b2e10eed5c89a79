"""What a stage finds about its own result: one sentence each, how sure it is, and the line of the recipe to change.

The rules are with the stages: filters/decisions/diagnosis.py, student/training/diagnosis.py,
student/evaluation/diagnosis.py. Measures nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from distill.artifacts.layout import DIAGNOSIS, EVAL_METRICS, HEALTH, stage_folders
from distill.stats.intervals import wilson

Certainty = Literal["certain", "likely", "possible"]
MOST: Final = 3
"""Findings that are shown at the end of a command."""
FEWEST: Final = 20
"""With fewer cases than this, a share says nothing."""
_EFFECTS: Final = (
    "few_traces",
    "largest_loss",
    "dropped_in_common",
    "replies_unformed",
    "replies_endless",
    "wrong_in_common",
    "own_rows_only",
)
"""Findings about a result, which may have many causes: they come after others that are as sure."""
_LOST_ROWS: Final = ("rows_lost", "test_group_untrained")
"""Findings that name the rows of such a result: like a certain fault they explain it, and it is left out."""
_ORDER: Final = ("certain", "likely", "possible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, good, or open: what the data does not decide."""

    name: str
    kind: Literal["fault", "good", "open"] = "fault"
    problem: str
    """What is there, with its figures: a sentence without its full stop."""
    certainty: Certainty = "certain"
    change: str = ""
    """The key of the recipe to change, with its value now, and what to do; empty for what is good."""

    @property
    def text(self) -> str:
        advice = f" Change {self.change}." if self.change else ""
        certainty = "" if self.kind == "open" else f" ({self.certainty})"
        return f"{self.problem}{certainty}.{advice}"


def chosen(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The findings that are shown, as JSON: faults first, the most certain first. Good results and open questions
    appear only if there is no fault; findings about a result appear only if no finding names its cause."""
    found = list(findings)
    faults = [finding for finding in found if finding.kind == "fault"]
    causes = [fault for fault in faults if fault.name not in _EFFECTS]
    if is_explained(causes) or any(cause.name in _LOST_ROWS for cause in causes):
        faults = causes
    ranked = sorted(faults or found, key=lambda finding: (_ORDER.index(finding.certainty), finding.name in _EFFECTS))
    return [asdict(finding) | {"text": finding.text} for finding in ranked[:MOST]]


def is_explained(findings: Iterable[Finding]) -> bool:
    """Whether a certain fault explains the result, so that findings that are only odd can be left out."""
    return any(finding.kind == "fault" and finding.certainty == "certain" for finding in findings)


def as_text(findings: Iterable[Mapping[str, Any]]) -> str:
    """Findings as lines of a command's output."""
    return "\n".join(f"diagnosis{_stage(finding)}: {finding['text']}" for finding in findings)


def _stage(finding: Mapping[str, Any]) -> str:
    return f" of {finding['stage']}" if finding.get("stage", "").startswith("train ") else ""


def share(count: int, total: int, what: str = "") -> str:
    """A count with its share: `6 of 50 replies (12 %)`."""
    return f"{count:,} of {total:,}{what and f' {what}'} ({100 * count / total:.0f} %)" if total else "none"


def is_above(count: int, total: int, limit: float) -> bool:
    """Whether a share is surely above a limit: its 95 % interval (Wilson) is, of at least FEWEST cases."""
    return total >= FEWEST and wilson(count, total)[0] > limit


def is_below(count: int, total: int, limit: float) -> bool:
    """Whether a share is surely below a limit, as `is_above`."""
    return total >= FEWEST and wilson(count, total)[1] < limit


def read_findings(run: Path, stage: str = "") -> list[dict[str, Any]]:
    """The findings of a run's stages, or of one of them, in their order, each with its `stage`."""
    files = [
        ("filter", run / "filter" / HEALTH),
        *((f"train {folder.name}", folder / DIAGNOSIS) for folder in stage_folders(run)),
        ("eval", run / "eval" / EVAL_METRICS),
    ]
    return [
        finding | {"stage": name}
        for name, path in files
        if name.startswith(stage) and path.is_file()
        for finding in orjson.loads(path.read_bytes()).get("diagnosis", ())
    ]
