"""Which teachers work at the same time.

Servers that are up anyway work together. One that the run starts shares its round with others only if their GPUs are
named and differ; otherwise they take turns, so teachers that do not fit on one GPU together
run one after the other. A teacher never comes in an earlier round than the one it comes after.
"""

from collections.abc import Sequence

from distill.recipe.teachers import Teacher


def rounds(teachers: Sequence[Teacher]) -> list[list[Teacher]]:
    """The teachers of a recipe in rounds, each teacher in the first one that it fits into."""
    made: list[list[Teacher]] = []
    place: dict[str, int] = {}
    for teacher in teachers:
        earliest = place[teacher.after] if teacher.after else 0
        for number in range(earliest, len(made)):
            if all(_together(teacher, other) for other in made[number]):
                break
        else:
            number = len(made)
            made.append([])
        made[number].append(teacher)
        place[teacher.name] = number
    return made


def _together(one: Teacher, other: Teacher) -> bool:
    if one.capabilities.in_process or other.capabilities.in_process:
        return False
    return not (one.managed and other.managed) or _apart(one, other)


def _apart(one: Teacher, other: Teacher) -> bool:
    ours, theirs = ({gpu.strip() for entry in each.server.gpus for gpu in entry.split(",")} for each in (one, other))
    return bool(ours and theirs) and not ours & theirs
