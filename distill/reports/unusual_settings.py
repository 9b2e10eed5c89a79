"""Settings outside of their usual range as findings: for a bad result, or if a setting is far outside."""

from collections.abc import Iterable, Iterator
from typing import Final

from distill.recipe.usual_values import UnusualValue, is_range
from distill.reports.findings import Finding

FAR: Final = 2.0
"""Factor out of its range from which a setting is named beside a result that is not bad."""
VERY_FAR: Final = 5.0


def is_far(value: UnusualValue) -> bool:
    """Whether the setting is reported for a good result, too. An unusual choice may be intended, so it is not."""
    return is_range(value.usual) and value.times >= FAR


def findings_of(values: Iterable[UnusualValue], *, is_bad: bool) -> Iterator[Finding]:
    """A finding for each setting, once for several items (such as teachers) that share it."""
    named: dict[str, list[UnusualValue]] = {}
    for value in values:
        if is_bad or is_far(value):
            named.setdefault(value.name, []).append(value)
    for name, (first, *others) in named.items():
        more = f" (and {', '.join(each.path for each in others)})" if others and others[0].path != first.path else ""
        about = first.about if first.about[1:2].isupper() else f"{first.about[:1].lower()}{first.about[1:]}"
        yield Finding(
            name=f"unusual {name}",
            problem=f"{first.text}{more}: {about}",
            certainty="likely" if is_far(first) and first.times >= VERY_FAR else "possible",
            change=f"{first.path}: a usual value, if there is no reason for this one",
        )
