"""The typed answer judge and the metrics that published results use. Imports only the lowest layer of the project
(errors, text helpers)."""

from typing import TYPE_CHECKING

from distill.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from distill.answers.answer_types import infer_type
    from distill.answers.reference_metrics import anls, exact_match, relaxed_accuracy, rouge_l
    from distill.answers.verdicts import Judgement, equivalent, judge

__all__ = ["Judgement", "anls", "equivalent", "exact_match", "infer_type", "judge", "relaxed_accuracy", "rouge_l"]
__getattr__ = lazy_exports(
    __name__,
    {"infer_type": "answer_types"}
    | dict.fromkeys(("anls", "exact_match", "relaxed_accuracy", "rouge_l"), "reference_metrics")
    | dict.fromkeys(("Judgement", "equivalent", "judge"), "verdicts"),
)
