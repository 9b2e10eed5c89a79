"""Every error a user can meet, as one tree.

    DistillError            the run failed                                    exit 1
    ├── InputError          the user's input is wrong                         exit 2
    │   ├── RecipeError     a recipe that cannot mean anything
    │   ├── DataError       a source that cannot be read, or holds nothing
    │   │   ├── ImageError  one image that cannot be read (a row's reason, not a run's)
    │   │   ├── DataOverlap  training data is in the evaluation data
    │   │   ├── NothingKept  the filter keeps no trace, or none of an arm
    │   │   └── TooFewRows  nothing is left to train a stage on, or to keep out of it
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

A message says what was wrong, the value, where it stands, and what to do next. The command line prints it
without a traceback; anything that is not a DistillError is a bug of ours and shows its traceback. No message holds a
secret (distill/redact.py).
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from distill import redact


class DistillError(Exception):
    """The run failed for a reason worth one plain sentence.

    A second argument says what to do about the first. It is of its own because a command that works on many runs has
    another answer to the same problem (distill/ablation/runner.py).
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
    """What the user gave cannot be used."""

    exit_code = 2


class RecipeError(InputError, ValueError):
    """A recipe that cannot mean anything: unknown key, wrong type, impossible combination."""


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
    """No trace of a run passes the rules of its filter, or none is in the dataset of an arm."""


class TooFewRows(DataError):
    """A stage has no row to train on, to keep out, or of a group that has a share of the tokens."""


class ModelError(InputError, OSError):
    """A checkpoint, tokenizer or processor that cannot be loaded."""


class StaleError(InputError):
    """An artifact was made from other settings than the ones asked for now."""


class MissingExtra(InputError, ImportError):
    """An optional dependency is not installed; the message names the pip line."""


class TeacherError(DistillError):
    """A teacher stopped answering or answers what cannot be used."""


class StorageError(DistillError, OSError):
    """The disk is full, or a disk or object store refuses a request; what was written before stays valid."""


class StoreUnavailable(StorageError):
    """An object store did not answer, or asked to try again; whether a write was done is not known."""


class RowsLost(DistillError):
    """A step gives fewer or more results than it read rows; what it made is not used."""


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
    """The first line of what an error says; its kind, if it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def input_errors(*checks: Callable[[], object]) -> Iterator[InputError]:
    """The errors that these checks raise, of each check its first one."""
    for check in checks:
        try:
            check()
        except InputError as error:
            yield error
