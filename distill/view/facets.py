"""The values of the columns that a person chooses by a click, with their counts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

FACETS: Final = (
    *("fate", "rule", "label", "outcome", "answer_verdict", "arithmetic", "teacher", "domain", "difficulty"),
)
"""Columns whose values are counted. `rule`: each rule that a trace failed."""
NO_NAME: Final = "(none)"
"""What a page shows for an empty value."""
_SHOWN: Final = 30


def facet_values(
    counts: Iterable[Mapping[str, Any]],
    names: Iterable[str],
    chosen: Mapping[str, Sequence[str]],
    find: Mapping[str, str],
) -> dict[str, Any]:
    """`facets`: the first values of each facet with their counts; `more`: how many others have the text to `find`.

    A chosen value is always among them: a page shows it, so that it can be removed again.
    """
    facets: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    more = dict.fromkeys(facets, 0)
    for row in counts:
        name, value = row["facet"], str(row["value"])
        if name not in facets:
            continue
        fits = find.get(name, "").casefold() in (value or NO_NAME).casefold()
        if value in chosen.get(name, ()) or (fits and len(facets[name]) < _SHOWN):
            facets[name].append((value, row["n"]))
        elif fits:
            more[name] += 1
    return {"facets": facets, "more": {name: count for name, count in more.items() if count}}
