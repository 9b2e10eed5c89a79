"""Which teachers get at least one sample of a source, and the message for a teacher that gets none."""

from collections import Counter
from collections.abc import Iterator

from distill.errors import RecipeError
from distill.recipe.messages import did_you_mean
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from teacher.scheduling.routing import covers


class TeacherCoverage:
    """Kinds of samples in a source, and the teachers that cover any of them."""

    def __init__(self) -> None:
        self.domains, self.difficulties = Counter[str](), Counter[str]()
        self.covering: set[str] = set()

    def add(self, recipe: Recipe, sample: Sample) -> bool:
        """Count a sample; whether a teacher is for it."""
        self.domains[sample.domain] += 1
        self.difficulties[str(sample.meta.get("difficulty", ""))] += 1
        covering = [teacher.name for teacher in recipe.teachers if covers(teacher, sample)]
        self.covering.update(covering)
        return bool(covering)


def check_coverage(recipe: Recipe, coverage: TeacherCoverage) -> None:
    """Raises RecipeError for a teacher that no sample is for."""
    for problem in coverage_problems(recipe, coverage):
        raise problem


def coverage_problems(recipe: Recipe, coverage: TeacherCoverage) -> Iterator[RecipeError]:
    """Every teacher that no sample of the source is for: most likely a misspelt domain."""
    for teacher in recipe.teachers:
        if teacher.name not in coverage.covering and not teacher.fallback:
            yield _uncovered_error(teacher, coverage)


def _uncovered_error(teacher: Teacher, coverage: TeacherCoverage) -> RecipeError:
    for key, asked_for, present in (
        ("domains", teacher.domains, coverage.domains),
        ("difficulty", teacher.difficulty, coverage.difficulties),
    ):
        if asked_for and not present.keys() & set(asked_for):
            found = ", ".join(repr(value) for value in sorted(present) if value)
            return RecipeError(
                f"teachers.{teacher.name}.{key} = {list(asked_for)}: no sample has any of these"
                f"{did_you_mean(asked_for[0], present)} "
                f"(in [data.{ASKED}]: {found or 'no sample has one'}); correct this key, or the values of "
                f"[data.{ASKED}]"
            )
    return RecipeError(
        f"teachers.{teacher.name}: no sample of [data.{ASKED}] is for it (domains, difficulty, "
        f"modality = {teacher.modality!r}, hinted = {teacher.hinted}: hinted needs gold answers)"
    )
