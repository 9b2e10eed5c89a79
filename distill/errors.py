"""All errors that a user can see, as one tree.

    DistillError            the run failed                                    exit 1
    ├── InputError          the user's input is wrong                         exit 2
    │   ├── RecipeError     a recipe that is not valid
    │   ├── DataError       a source that cannot be read, or has no usable row
    │   │   ├── ImageError  one image that cannot be read (a row's reason, not a run's)
    │   │   ├── DataOverlap  training data is in the evaluation data
    │   │   ├── NothingKept  the filter keeps no trace of a run or an arm
    │   │   └── TooFewRows  a stage has no rows to train on or to hold out
    │   ├── ModelError      a checkpoint or tokenizer that cannot be loaded
    │   ├── StaleError      an artifact made from other settings
    │   └── MissingExtra    an optional dependency that is not installed
    ├── TeacherError        a teacher that stopped answering
    ├── StorageError        a disk or an object store refuses a request
    │   └── StoreUnavailable  an object store does not answer now; the request may be sent again
    ├── RowsLost            a step gives fewer or more results than it read rows
    ├── BusyError           another process works on the same run
    ├── OutOfMemory         the memory of the GPU does not hold one row of the work
    ├── ArmsFailed          arms of an ablation failed; the others are finished
    └── CircuitOpen         too many requests failed; stopped to save money   exit 3

A message says what is wrong, the value, where it is, and the next step. The command line prints it without a
traceback; any other exception is a bug of the toolkit and shows its traceback. No message holds a secret
(distill/redact.py).
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from distill import redact


class DistillError(Exception):
    """The run failed for a known reason, which the message describes.

    The second argument is the next step. It is separate from the problem, because a command that works on many runs
    needs another next step (distill/ablation/runner.py).
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*(redact.message(each) if isinstance(each, str) else each for each in arguments))

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    @property
    def problem(self) -> str:
        """The message without its remedy."""
        return str(self.args[0]) if self.args else ""

    @property
    def has_remedy(self) -> bool:
        """Whether the message has a remedy of its own."""
        return len(self.args) > 1


class InputError(DistillError):
    """The user's input cannot be used."""

    exit_code = 2


class RecipeError(InputError, ValueError):
    """A recipe that is not valid: unknown key, wrong type, impossible combination."""


class DataError(InputError, ValueError):
    """A data source that cannot be read, or that holds no usable row."""


class ImageError(DataError):
    """One image that cannot be decoded safely. `reason` is the counted snake_case reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type["ImageError"], tuple[str, str]]:
        return type(self), (self.reason, str(self))


class DataOverlap(DataError):
    """Training data is in the evaluation data."""


class NothingKept(DataError):
    """The rules of a filter drop all traces of a run, or the dataset of an arm is empty."""


class TooFewRows(DataError):
    """A stage has no rows to train on, no rows to hold out, or no rows of a group with a share of the tokens."""


class ModelError(InputError, OSError):
    """A checkpoint, tokenizer or processor that cannot be loaded."""


class StaleError(InputError):
    """An artifact was made from other settings than the ones asked for now."""


class MissingExtra(InputError, ImportError):
    """An optional dependency is not installed; the message names the pip line."""


class TeacherError(DistillError):
    """A teacher stopped answering, or its answers cannot be used."""


class StorageError(DistillError, OSError):
    """The disk is full, or a disk or object store refuses a request; finished files stay valid."""


class StoreUnavailable(StorageError):
    """An object store did not answer, or asked to try again; whether a write was done is not known."""


class RowsLost(DistillError):
    """A step gives fewer or more results than it read rows; its results are not used."""


class BusyError(DistillError):
    """Another process works on the same run directory."""


class OutOfMemory(DistillError):
    """The memory of the GPU does not hold the work, not even one row of it."""


class ArmsFailed(DistillError):
    """Arms of an ablation failed. The others are finished, and the results are written."""


class CircuitOpen(DistillError):
    """Too many requests failed in a row; the run stopped before wasting more."""

    exit_code = 3


def require_rows(is_whole: bool, problem: str) -> None:
    """Raise RowsLost with the problem, unless a step of `filter` has a result for each row."""
    if not is_whole:
        raise RowsLost(
            f"{problem}; nothing was made from the rest",
            "run the same command again; if it fails again, move the folder filter of the run away and filter again, "
            "which measures all traces again. If that fails too, it is a fault of distill: please report it with the "
            "output of `distill check RECIPE`",
        )


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type if the message is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def input_errors(*checks: Callable[[], object]) -> Iterator[InputError]:
    """The errors that these checks raise, of each check its first one."""
    for check in checks:
        try:
            check()
        except InputError as error:
            yield error
