"""Results of the checks of a recipe: as values, as text, and as one JSON object.

distill/checks/recipe_checks.py runs the checks.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from distill.word_tables import counted

State = Literal["problem", "warning", "not checked", "ok"]
_ORDER: tuple[State, ...] = get_args(State)
_WIDTH = 116
_BEGINS_WITH_KEY = re.compile(r"\[?[a-z_]+\.[\w.]+(\]|:| =)")
"""A message that says itself what it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was looked at. A problem would stop the run; a warning would not, and costs quality or money."""

    state: State
    key: str
    """The recipe's key that it is about, or the place."""
    message: str
    mend: str = ""
    """What to do; empty where nothing is to be done."""


def problem(key: str, message: str, mend: str) -> CheckResult:
    return CheckResult(state="problem", key=key, message=message, mend=mend)


def warning(key: str, message: str, mend: str) -> CheckResult:
    return CheckResult(state="warning", key=key, message=message, mend=mend)


def fine(key: str, message: str) -> CheckResult:
    return CheckResult(state="ok", key=key, message=message)


def not_checked(key: str, why: str, mend: str = "") -> CheckResult:
    return CheckResult(state="not checked", key=key, message=why, mend=mend)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All results of a recipe, those that stop a run first."""

    recipe: str
    run: str
    results: Sequence[CheckResult]
    seconds: float

    @property
    def problems(self) -> list[CheckResult]:
        return [result for result in self.results if result.state == "problem"]

    @property
    def counts(self) -> dict[str, int]:
        counter = Counter(result.state for result in self.results)
        return {state: counter[state] for state in _ORDER}

    def as_fields(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return {
            "recipe": self.recipe,
            "run": self.run,
            "ok": not self.problems,
            "seconds": round(self.seconds, 1),
            "counts": self.counts,
            "results": [asdict(result) for result in self.results],
        }

    def as_text(self, *, only_open: bool = False) -> str:
        """A line or two a result; with `only_open`, of those that are not ok."""
        shown = [result for result in self.results if not (only_open and result.state == "ok")]
        return "\n".join([*(line for result in shown for line in _lines(result)), self.summary])

    @property
    def summary(self) -> str:
        plurals = {"ok": "ok", "not checked": "not checked"}
        counts = [counted(n, state, plurals.get(state, "")) for state, n in self.counts.items()]
        return f"{self.recipe}: {', '.join(counts)} ({self.seconds:.1f} s)"


def ordered(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Problems first, then warnings, then what was not checked; in each the order in which they were found."""
    # A problem may concern several stages, or several checks that need the part that is wrong; it is reported once.
    once: dict[Any, CheckResult] = {}
    for result in results:
        says_where = _BEGINS_WITH_KEY.match(result.message)
        once.setdefault((result.state, result.message) if says_where else result, result)
    return sorted(once.values(), key=lambda result: _ORDER.index(result.state))


def _in_one_line(text: str) -> str:
    """A text with its lines behind each other: `;` parts them, except after a line that announces the next one."""
    return re.sub(r"([:;,]?)\s*\n\s*", lambda end: f"{end[1] or ';'} ", text)


def _lines(result: CheckResult) -> list[str]:
    indent = " " * 13
    message = _in_one_line(result.message)
    names_its_key = re.match(rf"\[?{re.escape(result.key)}(\]| =|[.:\[])", message)
    first_line = f"{result.state:<11}  {message if names_its_key else f'{result.key}: {message}'}"
    lines = textwrap.wrap(
        first_line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    if result.mend:
        mend = f"-> {_in_one_line(result.mend)}"
        lines += textwrap.wrap(
            mend,
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines
