"""The list of checks that a recipe has to pass before its run, and the loop that runs them.

A check is a function from a context to results. It calls what the stages themselves call, loads no weights, downloads
nothing and needs no GPU. An error of a check is a result, too, and the next check runs.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from distill import packages
from distill.checks import (
    evaluation,
    filtering,
    ideal_traces,
    lengths,
    machine,
    overlap,
    own_parts,
    rounds,
    settings,
    sources,
    student,
    teacher_contexts,
    teachers,
)
from distill.checks.context import CheckContext
from distill.checks.results import CheckReport, CheckResult, not_checked, ordered, problem
from distill.data.arrow import leave_pandas_out
from distill.errors import DistillError
from distill.machine import hardware, interrupts
from distill.recipe.recipe import Recipe

SECONDS = 45.0
"""For the whole list; what is slow looks at less when less time is left."""

RecipeCheck = Callable[[CheckContext], Iterable[CheckResult]]
"""One thing to look at. It may raise a DistillError, which becomes a problem under the check's own key."""

GENERATE: Sequence[tuple[str, RecipeCheck]] = (
    ("--run", machine.check_run_directory),
    ("teachers", teachers.check_settings),
    ("teachers", teachers.check_what_teachers_need),
    ("teachers", teachers.check_servers),
    ("teachers.server.gpus", teachers.check_gpus),
    ("report_to", student.check_trackers),
)
"""The checks of what `distill generate` needs; it reads the rows of its source itself."""

GENERATE_ALONE: Sequence[tuple[str, RecipeCheck]] = (*GENERATE, ("data", overlap.check_asked))
"""What `distill generate --check` looks at."""

ROUNDS: Sequence[tuple[str, RecipeCheck]] = (*GENERATE, ("rounds", rounds.check_rounds))
"""What the rounds after a finished round 0 need."""

WHOLE: Sequence[tuple[str, RecipeCheck]] = (
    *GENERATE,
    ("data", own_parts.check_names),
    ("teachers.prompt", own_parts.check_prompts),
    ("data.format", own_parts.check_formats),
    ("data.answer_type", own_parts.check_answer_types),
    ("teachers", sources.check_coverage),
    ("teachers", sources.check_cues),
    ("teachers.server", teachers.check_requests),
    ("cost", machine.check_cost),
    ("filter.card", machine.check_licences),
    ("data", sources.check_golds),
    ("data", sources.check_gold_faults),
    ("data", sources.check_images_show_something),
    ("data", sources.check_tested_rows),
    ("data", sources.check_domains),
    ("data", sources.check_languages),
    ("stages", sources.check_stage_rows),
    ("student", student.check_checkpoints),  # before the checks that read files of the student
    ("filter.rules", filtering.check_rules),
    ("filter.signals", filtering.check_extractors),
    ("filter.signals", own_parts.check_signals),
    ("filter.exports", own_parts.check_exports),
    ("eval.metrics", own_parts.check_metrics),
    ("filter.rules", ideal_traces.check_rules_keep_something),
    ("filter.select.mix", filtering.check_mix),
    ("filter.judge", filtering.check_judge),
    ("filter.student.checkpoint", filtering.check_likelihood_student),
    ("student", student.check_sections),
    ("extra train", student.check_packages),
    ("student", student.check_student),
    ("stages", student.check_stage_needs),
    ("stages.loss", student.check_loss),
    ("stages.distill", lengths.check_shared_tokens),
    ("eval.arms", evaluation.check_arms),
    ("eval.students", evaluation.check_other_students),
    ("eval.engine", evaluation.check_vllm),
    ("rounds", rounds.check_rounds),
    ("settings", settings.check_usual_values),
    ("ablate", evaluation.check_ablation),
    ("--run", machine.check_earlier_work),
    ("--run", machine.check_replaced_images),
    ("ulimit", machine.check_limits),
    ("data", overlap.check_leakage),
    ("stages", student.check_plans),
    ("stages.max_length", lengths.check_traces_fit),
    ("teachers.sampling.max_tokens", teacher_contexts.check_contexts),
    ("disk", machine.check_disk),
    ("engine.scratch", machine.check_scratch),
)

_SLOW = (
    *(sources.check_images_show_something, overlap.check_leakage, overlap.check_asked, student.check_plans),
    *(lengths.check_traces_fit, teacher_contexts.check_contexts),
)
"""What is left out when no time is left; all else takes a second at most once the libraries are loaded."""


def check_recipe(
    recipe: Recipe,
    run: Path,
    *,
    gpu: str | None = None,
    seconds: float = SECONDS,
    checks: Sequence[tuple[str, RecipeCheck]] = WHOLE,
    redo_stale: bool = False,
) -> CheckReport:
    """Look at everything that a run of the recipe will need. Raises RecipeError for an unknown `gpu` alone."""
    started = time.monotonic()
    if gpu is not None:
        hardware.find_gpu(gpu)
    leave_pandas_out()
    context = CheckContext(recipe, run, gpu_name=gpu, seconds=seconds, redo_stale=redo_stale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of libraries, about each other's names
        results = ordered(_all_results(context, checks))
    return CheckReport(recipe=recipe.name, run=str(run), results=results, seconds=time.monotonic() - started)


def _all_results(context: CheckContext, checks: Sequence[tuple[str, RecipeCheck]]) -> list[CheckResult]:
    results: list[CheckResult] = []
    if checks is WHOLE:
        # Each source by itself: one that cannot be read must not hide faults of another.
        results += [
            result
            for name in context.uses
            for result in _results(f"data.{name}", sources.source_check(name), context)
        ]
    for key, check in checks:
        if context.seconds_left <= 0 and check in _SLOW:
            results.append(
                not_checked(key, "no time was left", "run `distill check` again while the machine is idle")
            )
        else:
            results += _results(key, check, context)
    return results


def _results(key: str, check: RecipeCheck, context: CheckContext) -> list[CheckResult]:
    results: list[CheckResult] = []
    try:
        with interrupts.unmasked(), context.hub.unreached():  # or the hub's client tries every file again and again
            results.extend(check(context))
    except DistillError as error:
        results.append(problem(key, str(error), f"correct {key}"))
    except ImportError as error:
        plain = packages.explained(error, key)
        results.append(problem(key, str(plain or error), packages.install_line(error.name or "")))
    # A damaged file may break one check; the other checks still run. A stage would fail at this file too.
    except Exception as error:
        message = f"the check failed with {type(error).__name__}: {error}"
        results.append(problem(key, message, f"check {key}; the run would probably fail in the same way"))
    return results
