"""Rows by group: domain, teacher, type and form of the gold answer, images, length of the question, values of `meta`.

A step of a run is described by the rows that are left after it, as counts by group, so any two steps can be compared
(distill/diagnosis/lost_groups.py).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any, Final

import orjson

from distill.diagnosis.row_features import form, words
from distill.recipe.base import Section
from distill.types import Sample

DOMAIN: Final = "domain"
TEACHER: Final = "teacher"
SELECTION: Final = "the selection"
"""The step after which the rows of the dataset are left."""
MOST_ROWS: Final = 1000
"""Rows that are looked at after each step."""
_MOST_VALUES: Final = 50
"""A grouping with more values, such as a name for each row, does not group."""
_LENGTHS: Final = (8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """The rows that are left after one step."""

    step: str
    """What took the others, such as `the rule misread`."""
    change: str
    """The keys of the recipe that decide what it takes."""
    rows: int
    groups: Mapping[str, Mapping[str, int]]
    """Grouping to value to number of rows."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, str]], step: str = "", change: str = "") -> "StepRows":
        """Of the groups of each row."""
        counts: dict[str, Counter[str]] = {}
        number = 0
        for row in rows:
            number += 1
            for grouping, value in row.items():
                counts.setdefault(grouping, Counter())[value] += 1
        few = {grouping: dict(values) for grouping, values in counts.items() if len(values) <= _MOST_VALUES}
        return cls(step=step, change=change, rows=number, groups=few)


ROWS_LEFT: Final = "rows_left"
"""Key of the files of a stage that hold the rows that are left after its steps."""


def as_fields(steps: Iterable[StepRows]) -> dict[str, Any]:
    """For JSON."""
    return {ROWS_LEFT: [asdict(step) for step in steps]}


def read_rows_left(path: Path) -> list[StepRows]:
    """The rows that are left after each step of a stage; none where an earlier version wrote the file."""
    try:
        return [StepRows(**fields) for fields in orjson.loads(path.read_bytes()).get(ROWS_LEFT, ())]
    except FileNotFoundError:
        return []


def groups_of(sample: Sample, teacher: str = "") -> dict[str, str]:
    """The groups of a question, and of what a teacher wrote about it; the plainest grouping first."""
    image = sample.images[0] if sample.images else None
    known = {
        DOMAIN: sample.domain,
        TEACHER: teacher,
        "answer type": sample.answer_type or "",
        "form of the gold answer": form(sample.answers[0]) if sample.answers else "nothing",
        "number of images": str(len(sample.images)),
        "file of the images": (PurePath(image.path).name if image.column else _kind_of_file(image.path))
        if image is not None
        else "",
        "length of the question": _length(sample.question),
    }
    scalars = {
        f"meta.{name}": str(value)
        for name, value in sorted(sample.meta.items())
        if isinstance(value, str | bool | int)
    }
    return {grouping: value for grouping, value in (known | scalars).items() if value}


def _kind_of_file(path: str) -> str:
    """The folder and the ending of an image file."""
    file = PurePath(path)
    return f"{file.parent.name}/*{file.suffix}"


def _length(question: str) -> str:
    count = len(words(question))
    most = next((most for most in _LENGTHS if count <= most), None)
    return f"more than {_LENGTHS[-1]} words" if most is None else f"up to {most} words"


def settings_text(path: str, section: Section, names: Iterable[str]) -> str:
    """The keys of a section without their default value, among the given keys, with their values, such as
    `stages.reason.teachers, now {'a': 1.0}`."""
    plain = {name: field.get_default(call_default_factory=True) for name, field in type(section).model_fields.items()}
    changed = [name for name in names if getattr(section, name) != plain[name]]
    return " and ".join(f"{path}.{name}, now {_shown(getattr(section, name))}" for name in changed)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(dict(value))
    if isinstance(value, tuple):
        return str([each.model_dump() if isinstance(each, Section) else each for each in value])
    return str(value.model_dump() if isinstance(value, Section) else value)
