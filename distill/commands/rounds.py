"""The rounds of `distill run`: ask the student, send its failures to the teachers, train it again, see if it helped.

Each round is a run directory with the stages of any run (distill/rounds/round_recipes.py describes its files). So a
killed command resumes, and finished work stays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import PREDICTIONS
from distill.commands.stages import filter_stage, generate_stage, logged, recorded
from distill.errors import StaleError
from distill.python_api import verbs
from distill.recipe.recipe import Recipe
from distill.rounds.make_round import RoundSteps, make_round, selected_traces
from distill.rounds.results import read_results, round_fields, rounds_text, write_results
from distill.rounds.round_recipes import VALIDATION, evaluation_recipe, round_folder, run_of_round, student_of_round
from distill.rounds.verdicts import BETTER, CONTINUES, Replies, judge_round, measure

Finish = Callable[[Callable[..., Any], Recipe, Path], Any]
"""Run a stage that is not finished; if the command allows it, also one that is stale."""


@dataclass(slots=True)
class _Rounds:
    """What is known of the rounds so far."""

    recipe: Recipe
    run: Path
    replies: list[Replies] = field(default_factory=list)
    """To the validation questions, by round."""
    fields: list[dict[str, Any]] = field(default_factory=list)
    best: int = 0

    def add(self, replies: Replies, counts: dict[str, int]) -> str:
        """Judge the round that gave these replies; the reason where the rounds end with it, else nothing."""
        number = len(self.fields)
        settings = self.recipe.rounds
        verdict = judge_round(settings, self.replies[0], self.replies[self.best], replies) if number else None
        self.replies.append(replies)
        self.fields.append(round_fields(number, run_of_round(self.run, number), measure(replies), verdict, counts))
        if verdict is None:
            return ""
        if verdict.kind == BETTER:
            self.best = number
        if verdict.kind in CONTINUES:
            return ""
        return f"round {number} is the last one: {verdict.text}"

    def write(self, ended: str) -> None:
        """Write what is known so far. `ended`: why there is no further round; empty while there may be one."""
        from distill.reports.html import write_links

        student = str(student_of_round(self.recipe, self.run, self.best))
        write_results(self.run, {"passes": self.fields, "best": self.best, "student": student, "ended": ended})
        write_links(self.run)


def all_rounds(
    recipe: Recipe, run: Path, *, finish: Finish, train_and_evaluate: Callable[[Recipe, Path], Sequence[str]]
) -> str:
    """Make the rounds of a recipe after its round 0, until one does not help; what was found, as text."""
    rounds = _Rounds(recipe, run)
    rounds.add(_validate(recipe, run, 0, finish), {"traces": selected_traces(run)})
    steps = RoundSteps(
        ask=partial(finish, _ask_student),
        generate=partial(finish, generate_stage),
        filter_traces=partial(finish, filter_stage),
        train=train_and_evaluate,
    )
    ended, before = "", read_results(run)
    for number in range(1, recipe.rounds.count + 1):
        rounds.write("")
        try:
            made = make_round(recipe, run, number, steps)
            ended = made.ended or rounds.add(
                _validate(recipe, run, number, finish), {"returned": made.returned, "traces": made.traces}
            )
        except StaleError as error:
            if before is not None:
                # A refused command changes nothing: the rounds that are finished stay in the results.
                write_results(run, before)
            where = f"the settings of round {number} follow from [rounds] and from the rounds before it"
            raise StaleError(f"{error}\n{where}") from None
        if ended:
            break
    rounds.write(ended or f"rounds.count = {recipe.rounds.count} is reached")
    return rounds_text(run)


def _validate(recipe: Recipe, run: Path, number: int, finish: Finish) -> Replies:
    """The judged replies of the student of a round to the validation questions."""
    assert recipe.rounds.validation is not None
    folder = round_folder(run, number) / VALIDATION
    finish(_ask_student, evaluation_recipe(recipe, run, number, recipe.rounds.validation), folder)
    return list(read_jsonl(folder / "eval" / PREDICTIONS))


@logged("eval")
def _ask_student(recipe: Recipe, run: Path, *, fresh: bool = False) -> str:
    """An evaluation on questions that are no test: nothing is compared with what the student has learned."""
    with recorded(recipe, run) as on_progress:
        verbs.evaluate_compared(recipe, run, fresh=fresh, on_progress=on_progress)
    return ""
