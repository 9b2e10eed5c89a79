"""Checks of settings: names each setting outside its usual range, with its value."""

from collections.abc import Iterator

from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, warning
from distill.recipe.usual_values import is_range, unusual_values

_PARTS = ("data", "teachers", "generate", "filter", "student", "stages", "eval", "rounds")


def check_usual_values(context: CheckContext) -> Iterator[CheckResult]:
    """Settings out of their usual range. An unusual choice, such as allow_overlap, is intended."""
    for value in unusual_values(context.recipe, *_PARTS):
        if is_range(value.usual):
            mend = f"keep the value if you chose it on purpose; the key sets: {value.about}"
            yield warning(value.path, value.text.removeprefix(f"{value.path} "), mend)
