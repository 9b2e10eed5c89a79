"""Answer types of users: a user's file or an installed package decides whether two answers are the same.

Creating a type registers it in this process. A sample's `answer_type` is the name, an @ and the beginning of the
digest of its code. So changed code judges again, and types of the same name in two files are two types.
`distill.data.source_answer_types` loads the code.
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
        if self.name.startswith(PREFIX):  # a type of another name would take the place of one of the project's own
            digest = getattr(self.same, "__module__", "").rpartition("_")[2]  # so ends the module of a user's file
            _TYPES[self.name] = _TYPES[stated_type(self.name, digest)] = self

    def compare(self, text: str, gold: GoldAnswer) -> CompareResult:
        """The verdict on one answer; undecided if the user's function fails or returns another value."""
        try:
            same = self.decide(text, gold.text)
        except (Exception, SystemExit):
            return undecided("own_type_failed")
        return undecided("own_type") if same is None else correct("own_type") if same else wrong("own_type")

    def decide(self, text: str, gold: str) -> bool | None:
        """The verdict of `same`. Raises the errors of the user's function, and TypeError for a value that is not a
        verdict."""
        same = self.same(text, gold)
        if same not in (None, True, False):
            raise TypeError(f"it returned {same!r:.60}; a verdict is True, False or None")
        return None if same is None else bool(same)


PREFIX = "own_"
"""How the name of every type from outside begins."""
_TYPES: dict[str, UserAnswerType] = {}
"""The types of this process by what samples state; the latest of a name also by its name."""


def stated_type(name: str, code: str) -> str:
    """The parts of a sample's `answer_type`: the name of a type, and the digest of its code."""
    return f"{name}@{code.removeprefix('sha256:')[:16]}"


def find(answer_type: str) -> UserAnswerType | None:
    """The type that a sample's `answer_type` means; None where this process knows none."""
    return _TYPES.get(answer_type) or _TYPES.get(answer_type.partition("@")[0])
