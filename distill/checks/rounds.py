"""Checks of the rounds after round 0."""

from collections.abc import Iterator

from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, fine, problem, warning
from distill.errors import RecipeError
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.rounds import HELD_OUT
from distill.rounds.round_recipes import with_teachers_of_round
from distill.word_tables import counted


def check_rounds(context: CheckContext) -> Iterator[CheckResult]:
    """The teachers of a round can be asked, and do not write their traces again."""
    recipe, settings = context.recipe, context.recipe.rounds
    if not settings.count:
        return
    try:
        teachers = with_teachers_of_round(recipe).teachers
    except RecipeError as error:
        yield problem("rounds.teachers", str(error), "correct rounds.teachers, rounds.samples or rounds.prompt")
        return
    if not teachers:
        yield problem(
            "rounds.count", "the recipe has no [[teachers]], and rounds ask them", "add one, or set it to 0"
        )
        return
    same = [each.name for each in teachers if each.sampling.temperature == 0 and "{reply}" not in each.prompt]
    # Questions of another source are new to the teachers in the first round.
    before = "round 0" if settings.questions == ASKED else "the round before" if settings.count > 1 else ""
    if same and before:
        names = ", ".join(same)
        message = f"{names} with temperature = 0 would write the same traces as in {before}"
        yield warning("rounds.prompt", message, "set rounds.prompt with {reply}, or a temperature")
    split = (
        f" ({100 * settings.hold_out:.3g} % of the images of questions)" if settings.validation == HELD_OUT else ""
    )
    asked = ", ".join(each.name for each in teachers)
    yield fine(
        "rounds",
        f"up to {counted(settings.count, 'round')} of {recipe.round_stage.name}; teachers: {asked}; compared on "
        f"[data.{settings.validation}]{split}",
    )
