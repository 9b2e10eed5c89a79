"""Which teachers answer which sample.

A teacher covers the domains it names, or every domain when it names none; each covering teacher answers on its own.
`weight` is the share of the covered samples that it answers: 1 or more is all of them, 0.25 every fourth on average.
Which ones is decided by a hash of the sample's id and the teacher's name, so the choice survives reordering and
appending, and a larger weight only adds samples. Does not look at difficulty, and escalates nothing.
"""

import hashlib
from collections.abc import Iterable, Sequence

from distill.recipe import Teacher
from distill.types import Sample

NO_TEACHER = "no_teacher"
"""Quarantine reason of a sample whose domain no teacher covers."""


def covers(teacher: Teacher, domain: str) -> bool:
    return not teacher.domains or domain in teacher.domains


def covered(teachers: Iterable[Teacher], domain: str) -> bool:
    """Whether any teacher answers questions of this domain."""
    return any(covers(teacher, domain) for teacher in teachers)


def answers(teacher: Teacher, sample: Sample) -> bool:
    """Whether this teacher answers this sample."""
    return covers(teacher, sample.domain) and (
        teacher.weight >= 1 or _position(sample.id, teacher.name) < teacher.weight
    )


def route(teachers: Sequence[Teacher], sample: Sample) -> tuple[Teacher, ...]:
    """The teachers that answer a sample, in the recipe's order."""
    return tuple(teacher for teacher in teachers if answers(teacher, sample))


def _position(sample_id: str, teacher: str) -> float:
    """A number in [0, 1) that is fixed for a sample and a teacher and looks random over samples."""
    digest = hashlib.sha256(f"route\0{teacher}\0{sample_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
