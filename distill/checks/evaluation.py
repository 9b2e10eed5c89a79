"""Checks of the evaluation: its arms, students from elsewhere, servers and the form that vLLM serves."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from distill import packages
from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, fine, not_checked, problem, warning
from distill.checks.student import require_checkpoint
from distill.checks.teachers import server_state
from distill.data import sources
from distill.data.tables.hub_datasets import is_hub_name
from distill.errors import DistillError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import REFERENCE
from distill.recipe.sections.eval import AnyStudent
from distill.word_tables import counted
from student.evaluation import students
from teacher.engines.http.remote_student import check_server
from teacher.engines.vllm import export_server

if TYPE_CHECKING:
    from distill.ablation.drafts import Arm

_ANSWER_S = 6.0


def check_arms(context: CheckContext) -> Iterator[CheckResult]:
    """There is a student for every arm."""
    recipe = context.recipe
    if not recipe.evaluates:
        if recipe.stages:
            mend = f"add [data.{recipe.eval.data}] with right answers"
            yield warning("eval.data", "there is no evaluation source, so nothing is evaluated", mend)
        return
    if recipe.stages or recipe.eval.arms or recipe.eval.students:
        arms = students.arms_of(recipe)
        yield fine("eval.arms", f"{', '.join(arms)}")
        if recipe.student is None and "base" in recipe.eval.arms.values():
            yield problem(
                "eval.arms", '"base" is the student before any stage, and there is no [student]', "add [student]"
            )


def check_other_students(context: CheckContext) -> Iterator[CheckResult]:
    """Students that no stage makes: their checkpoints, adapters and servers."""
    for name, student in context.recipe.eval.students.items():
        key = f"eval.students.{name}"
        try:
            if student.base_url is not None:
                yield _served(name, student)
            else:
                yield from _on_disk(context, key, name, student)
        except DistillError as error:
            yield problem(key, str(error), f"correct {key}")


def _served(name: str, student: AnyStudent) -> CheckResult:
    def ask() -> str:
        async def asked() -> None:
            async with asyncio.timeout(_ANSWER_S):
                await check_server(name, student)

        asyncio.run(asked())
        return "answers and serves the model"

    assert student.base_url is not None
    return server_state(f"eval.students.{name}.base_url", student.base_url.rstrip("/"), ask)


def _on_disk(context: CheckContext, key: str, arm: str, student: AnyStudent) -> Iterator[CheckResult]:
    recipe = context.recipe
    name, folder, adapter = students.locate(key, recipe, student)
    if folder is None:
        yield context.hub.look(f"{key}.model", name, "model", student.revision)
        return
    if packages.missing(*packages.TRAIN):
        return  # said of the extra
    from student.models.library_output import hide_library_output

    with hide_library_output():
        target = students.EvaluatedStudent(
            arm=arm, origin=name, key="", facts={}, model=str(folder), adapter=adapter, foreign=True
        )
        students.require_loadable(recipe, target)
    require_checkpoint(folder, trust_remote_code=recipe.trusts_student_code)
    yield fine(key, f"{folder} is a whole checkpoint" + (f", and {adapter} fits it" if adapter else ""))


def check_ablation(context: CheckContext) -> Iterator[CheckResult]:
    """Check that every arm that `distill ablate` would train can be made, and that its own sources exist."""
    recipe = context.recipe
    if "ablate" not in recipe.model_fields_set:
        return
    from distill.ablation.arms import arm
    from distill.ablation.runner import AskedArms, chosen

    names = chosen(recipe, AskedArms())[0]
    yield fine("ablate", f"{counted(len(names), 'arm')} can be made")
    for name in names:
        planned = arm(recipe, name, seed=recipe.seed)
        if name in recipe.ablate.own:
            yield from _odd_own_arm(recipe, name, planned)
        changed = planned.recipe
        read = {changed.eval.data, *CheckContext(changed, context.run, gpu_name=None, seconds=0.0).uses}
        if planned.rounds:
            read.add(changed.rounds.questions)
        for source in sorted(read):
            if source in recipe.data and changed.data.get(source) == recipe.data[source] and source in context.uses:
                continue  # the check of the source reports it
            try:
                sources.settings(changed, source)
                if not is_hub_name(changed.data[source]):
                    sources.locate(changed, source)
            except DistillError as error:
                yield problem("ablate", f"arm {name}: {error}", f"correct what arm {name} sets")


def _odd_own_arm(recipe: Recipe, name: str, planned: "Arm") -> Iterator[CheckResult]:
    """An arm of the user that changes nothing, or something else at each call."""
    from distill.ablation.arms import arm

    if arm(recipe, name, seed=recipe.seed).recipe.model_dump() != planned.recipe.model_dump():
        yield warning(
            f"ablate.own.{name}",
            "it gives other values at the second call, so its results are left out, and it is trained again",
            "let the values depend on the arguments of its function alone",
        )
    elif arm(recipe, REFERENCE, seed=recipe.seed).recipe.model_dump() == planned.recipe.model_dump():
        yield warning(
            f"ablate.own.{name}",
            f"it changes no value, so it is trained as the arm {REFERENCE} is",
            "set a value in its function (distill.recipe.loading.put), or leave the arm out",
        )


def check_vllm(context: CheckContext) -> Iterator[CheckResult]:
    """With eval.engine = "vllm": a vLLM to serve with, and a student that has a form for it."""
    recipe = context.recipe
    if recipe.eval.engine != "vllm":
        return
    try:
        export_server.find_server(recipe, probe=False)
        yield fine("eval.engine", "a program that can serve students is installed")
    except DistillError as error:
        yield problem("eval.engine", str(error), 'set eval.engine = "embedded", or install vLLM')
    if packages.missing(*packages.TRAIN) or not recipe.stages or not context.student_is_here:
        yield not_checked("eval.engine", "whether the student has a form that vLLM serves natively")
        return
    from student.export import convert

    try:
        convert.becomes_llama(context.planner.outline.config)
    except DistillError as error:
        yield problem("eval.engine", str(error), 'set eval.engine = "embedded"')
