"""Which teachers work at the same time.

Servers that are up anyway work together. Servers that the run starts share a round only if their GPUs are named and
differ. Otherwise they take turns, so teachers that do not fit on one GPU together run one after the other. A teacher
never comes in an earlier round than the one it comes after.
"""

from collections.abc import Sequence
from itertools import combinations

from distill.recipe.sections.teachers import Teacher


def group_teachers(teachers: Sequence[Teacher], *, batches_apart: bool = False) -> list[list[Teacher]]:
    """The teachers of a recipe in rounds, each teacher in the first one that it fits into.

    With `batches_apart` those asked by batch files share no round with others, which would wait hours for them.
    """
    rounds_so_far: list[list[Teacher]] = []
    round_of: dict[str, int] = {}
    for teacher in teachers:
        earliest = round_of[teacher.after] if teacher.after else 0
        for number in range(earliest, len(rounds_so_far)):
            others = rounds_so_far[number]
            apart = batches_apart and any(_by_batches(teacher) != _by_batches(other) for other in others)
            if not apart and all(_may_share_round(teacher, other) for other in others):
                break
        else:
            number = len(rounds_so_far)
            rounds_so_far.append([])
        rounds_so_far[number].append(teacher)
        round_of[teacher.name] = number
    return rounds_so_far


def fit_together(teachers: Sequence[Teacher]) -> bool:
    """Whether all of them can work at the same time."""
    return all(_may_share_round(first, second) for first, second in combinations(teachers, 2))


def _by_batches(teacher: Teacher) -> bool:
    return teacher.capabilities.direct is not None


def _may_share_round(first: Teacher, second: Teacher) -> bool:
    if first.capabilities.in_process or second.capabilities.in_process:
        return False
    return not (first.managed and second.managed) or _on_other_gpus(first, second)


def _on_other_gpus(first: Teacher, second: Teacher) -> bool:
    ours, theirs = (
        {gpu.strip() for entry in each.server.gpus for gpu in entry.split(",")} for each in (first, second)
    )
    return bool(ours and theirs) and not ours & theirs
