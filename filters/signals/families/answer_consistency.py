"""Does the rationale conclude what its answer says?

A family of its own, for rules; `distill.answers.consistency` decides.

Works without a gold answer. `filters.decisions.dataset_checks` checks a sample of the dataset also where this family
is not measured.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, UNDECIDABLE, SignalOfEachTrace, family


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion(SignalOfEachTrace):
    name: ClassVar[str] = "conclusion"
    version: ClassVar[str] = "30"
    columns: ClassVar[pa.Schema] = family(
        "conclusion",
        conclusion=(
            "text",
            ("agrees or contradicts: the conclusion of the rationale compared with the answer after it"),
        ),
    )

    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        if not trace.reasoning.strip() or not trace.answer.strip():
            return {"conclusion_state": NOT_APPLICABLE}
        from distill.answers.consistency import compare_conclusion

        verdict = compare_conclusion(trace.reasoning, trace.answer, sample.answer_type, sample.options)
        return {"conclusion_state": UNDECIDABLE if verdict is None else OK, "conclusion": verdict}
