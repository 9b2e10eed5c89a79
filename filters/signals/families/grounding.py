"""Whether the rationale agrees with the image. Measured where the sample's meta holds the table of its chart.

`distill.grounding.check` decides which values are supported. A sample without a table is not measured and costs no
time.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Literal

import orjson
import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, family
from filters.signals.time_limits import TooMuch
from filters.text.words import readable

FEW = 5
"""So many unsupported values of a trace are written out; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounding:
    table: str | None
    """The key of a sample's meta that holds the table; None tries chart_table.TABLE_KEYS."""
    relative_tolerance: float
    """Readings within this relative error of the table are supported: for charts whose values are not printed."""

    name: ClassVar[str] = "grounding"
    version: ClassVar[str] = "9"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family(
        "grounding",
        unsupported_values=("count", "numbers and labels of the rationale without support in the chart's table"),
        grounding_checked=("count", "numbers and labels that could be judged"),
        unsupported=("text", "the first few that are unsupported, why, and what the table says: a JSON list"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Grounding":
        section = recipe.filter.grounding
        return cls(table=section.table, relative_tolerance=section.relative_tolerance)

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        from distill.grounding.charts.derivation import read_chart
        from distill.grounding.check import check_rationale

        chart = read_chart(sample, self.table)
        if chart is None:
            return [{"grounding_state": NOT_APPLICABLE} for _ in traces]
        rows: list[dict[str, Any]] = []
        for trace in traces:
            if not trace.reasoning:
                rows.append({"grounding_state": NOT_APPLICABLE})
                continue
            result = check_rationale(readable(trace.reasoning), *chart, self.relative_tolerance, FEW)
            if not result.complete:
                raise TooMuch("more numbers and labels than are judged in a text of this length")
            examples = result.unsupported
            rows.append(
                {
                    "grounding_state": OK,
                    "unsupported_values": result.count,
                    "grounding_checked": result.checked,
                    "unsupported": orjson.dumps(examples).decode() if examples else None,
                }
            )
        return rows

    def supported(self, sample: Sample, rationale: str) -> tuple[tuple[int, int], ...]:
        """The positions of the numbers of a rationale that the chart's table supports; empty without a table."""
        from distill.grounding.charts.derivation import read_chart
        from distill.grounding.check import check_rationale
        from distill.grounding.numbers_in_text import plain_text

        chart = read_chart(sample, self.table)
        if chart is None:
            return ()
        text = readable(rationale)
        spans = check_rationale(text, *chart, self.relative_tolerance, FEW).supported
        plain = plain_text(text)
        if len(plain) == len(text):
            return spans
        # LaTeX that is written out moves what follows it, and leaves every digit: places are found by the digits.
        before = [0, *accumulate(map(str.isdigit, plain))]
        places = [place for place, sign in enumerate(text) if sign.isdigit()]
        return tuple(
            (places[before[start]], places[before[end] - 1] + 1)
            for start, end in spans
            if before[start] < before[end]
        )
