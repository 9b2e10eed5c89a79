"""Whether the arithmetic written in a trace is correct. Measured on every trace, with or without a chart's table.

`distill.grounding.arithmetic_slips` decides what is a claim and whether it is right. A trace that states no
arithmetic is `none_stated`, not right. `grounding` measures whether its numbers are in the image.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import orjson
import pyarrow as pa

from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, SignalOfEachTrace, family
from filters.signals.time_limits import TooMuch
from filters.text.words import readable, visible_text

FEW = 5
"""So many slips of a trace are written out; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic(SignalOfEachTrace):
    name: ClassVar[str] = "arithmetic"
    version: ClassVar[str] = "21"
    columns: ClassVar[pa.Schema] = family(
        "arithmetic",
        arithmetic=("text", "right, slip, or none_stated where the trace states no arithmetic that can be checked"),
        arithmetic_checked=("count", "claims that could be checked, in signs or in words"),
        arithmetic_slips=("count", "claims that do not come out"),
        arithmetic_slip=("text", "the first few that do not come out, and what comes out: a JSON list"),
    )

    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        text = visible_text(trace)
        if not text.strip():
            return {"arithmetic_state": NOT_APPLICABLE}
        from distill.grounding.arithmetic_slips import find_slips

        slips = find_slips(readable(text))
        if not slips.complete and not slips.slips:
            # A slip that was found counts, but without one the unread part may still have a slip.
            raise TooMuch("more numbers, or more signs around them, than are read of a text of this length")
        return {
            "arithmetic_state": OK,
            "arithmetic": slips.verdict,
            "arithmetic_checked": slips.checked,
            "arithmetic_slips": len(slips.slips),
            "arithmetic_slip": orjson.dumps(slips.slips[:FEW]).decode() if slips.slips else None,
        }
