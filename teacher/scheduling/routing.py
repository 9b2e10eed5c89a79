"""Which teachers answer which sample.

A teacher covers the domains, difficulties and modality it names, or all of them when it names none; a hinted one only
samples with a gold answer. Each covering teacher answers on its own, a fallback only where no other teacher covers.
`weight` is the share of the covered samples that it answers: 1 or more is all of them, 0.25 every fourth on average.
Which ones is decided by a hash of the sample's id and the teacher's name, so the choice survives reordering and
appending, and a larger weight only adds samples. What follows from other teachers' traces is decided in
`sampling_policy.py`.
"""

import hashlib
from collections.abc import Sequence

from distill.recipe.sections.teachers import Teacher
from distill.types import Sample

NO_TEACHER = "no_teacher"
"""Quarantine reason of a sample that no teacher covers."""


def covers(teacher: Teacher, sample: Sample) -> bool:
    """Whether a teacher is for samples like this one, taken by itself."""
    return (
        (not teacher.domains or sample.domain in teacher.domains)
        and (not teacher.difficulty or str(sample.meta.get("difficulty", "")) in teacher.difficulty)
        and (teacher.modality == "any" or (teacher.modality == "image") == bool(sample.images))
        and (not teacher.hinted or sample.answer is not None)
    )


def may_share(first: Teacher, second: Teacher) -> bool:
    """Whether there can be samples that both cover."""

    def disjoint(ours: Sequence[str], theirs: Sequence[str]) -> bool:
        return bool(ours and theirs) and not set(ours) & set(theirs)

    return not (
        disjoint(first.domains, second.domains)
        or disjoint(first.difficulty, second.difficulty)
        or {first.modality, second.modality} == {"image", "text"}
        or first.fallback != second.fallback
    )


def route(teachers: Sequence[Teacher], sample: Sample) -> tuple[Teacher, ...]:
    """The teachers that answer a sample, in the recipe's order; those that come after another one only with it."""
    covering = [teacher for teacher in teachers if covers(teacher, sample)]
    if len(covering) == 1 and covering[0].weight >= 1 and covering[0].after is None:
        return (covering[0],)  # most samples
    regular = [teacher for teacher in covering if not teacher.fallback]
    chosen: dict[str, Teacher] = {}
    for teacher in regular or covering:
        share = teacher.weight >= 1 or _position(sample.id, teacher.name) < teacher.weight
        if share and (teacher.after is None or teacher.after in chosen):
            chosen[teacher.name] = teacher
    return tuple(chosen.values())


def _position(sample_id: str, teacher: str) -> float:
    """A number in [0, 1) that is fixed for a sample and a teacher and looks random over samples."""
    digest = hashlib.sha256(f"route\0{teacher}\0{sample_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
