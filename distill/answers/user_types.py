"""Answer types from outside the project: a user's file or an installed package says when two answers are the same.

Creating a type registers it in this process under its name. A sample's `answer_type` is the name, an @ and the
beginning of the digest of its code, so that changed code judges again. `distill.data.source_answer_types` loads the
code.
"""

from collections.abc import Callable
from dataclasses import dataclass

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.number_answers import GoldAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAnswerType:
    """A type of answers and its judge."""

    name: str
    """Begins with own_."""
    same: Callable[[str, str], bool | None]
    """Whether a prediction means the same as the gold answer; None: undecided. Both are final answers."""
    numeric: bool = False
    """Whether a rationale that ends in another number contradicts the answer."""

    def __post_init__(self) -> None:
        _TYPES[self.name] = self

    def compare(self, text: str, gold: GoldAnswer) -> CompareResult:
        """The verdict on one answer; a judge that fails leaves it undecided."""
        try:
            same = self.same(text, gold.text)
        except Exception:
            return undecided("own_type_failed")
        return undecided("own_type") if same is None else correct("own_type") if same else wrong("own_type")


_TYPES: dict[str, UserAnswerType] = {}


def find(answer_type: str) -> UserAnswerType | None:
    """The type that a sample's `answer_type` means; None where this process knows none."""
    return _TYPES.get(answer_type.partition("@")[0])
