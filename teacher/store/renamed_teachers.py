"""Finds the traces of a renamed teacher, or of another run, so that none is paid for twice.

The id of a trace does not depend on the name of its teacher or on the run, so a wanted trace may be in the folder of
an earlier name. It is copied then, with its new name; the folder it comes from stays as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.layout import part_number, part_path
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from distill.trace_records.trace_lines import trace_fault
from distill.types import Sample
from distill.word_tables import counted
from teacher.messages.request import Model
from teacher.scheduling.sampling_policy import TeacherPolicy
from teacher.store.final_traces import teacher_policies
from teacher.store.question_plan import QuestionPlan
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import PART_RECORDS, read_index, trace_parts

_SAMPLES_CHECKED = 1000


def copy_traces_of_renamed_teachers(
    recipe: Recipe,
    models: Mapping[str, Model],
    plan: QuestionPlan,
    folder: Path,
    indexes: dict[str, TraceIndex],
    *,
    checked: int | None = _SAMPLES_CHECKED,
) -> Iterator[str]:
    """Copy what teachers have under other names in `folder` to the folders of `indexes`.

    Yields a sentence for each teacher that got something. `checked` samples at the start of the plan say whether a
    folder may hold traces of a teacher; None: all.
    """
    folders = [path for path in sorted(folder.glob("*/")) if trace_parts(path)]
    for position, teacher in enumerate(recipe.teachers):
        model = models[teacher.name]
        others = [
            read_index(path, teacher)
            for path in folders
            if path != indexes[teacher.name].folder and _holds_model(path, model)
        ]
        if not others:
            continue
        recipe_so_far = recipe.model_copy(update={"teachers": recipe.teachers[: position + 1]})
        policy = teacher_policies(recipe_so_far, models, indexes, include_failures=False)[teacher.name]
        if any(_find_elsewhere(policy, others, sample) for sample in islice(plan.read(), checked)):
            count, names = _copy_traces(teacher, policy, others, plan, indexes[teacher.name])
            indexes[teacher.name].replace_with(read_index(indexes[teacher.name].folder, teacher))
            yield (
                f"teacher '{teacher.name}': {counted(count, 'trace')} of {names} have the same ids, so they are "
                "reused and not asked again"
            )
        for other in others:
            other.close()


def _holds_model(folder: Path, model: Model) -> bool:
    """Whether a trace of a folder comes from a model; the first one of each part is looked at."""
    return any(
        (record["model"], record["revision"]) == (model.name, model.revision)
        for part in trace_parts(folder)
        for record in islice(read_jsonl(part, check=trace_fault, on_damage=lambda _: None), 1)
    )


def _find_elsewhere(
    policy: TeacherPolicy, others: Sequence[TraceIndex], sample: Sample
) -> list[tuple[str, TraceIndex]]:
    """The open traces of a sample that lie in other folders."""
    open_requests = policy.state_of(sample).open
    return [(request.id, other) for request in open_requests for other in others if request.id in other]


def _copy_traces(
    teacher: Teacher, policy: TeacherPolicy, others: Sequence[TraceIndex], plan: QuestionPlan, index: TraceIndex
) -> tuple[int, str]:
    """Copy traces to new parts of a teacher's folder; how many, and from which folders."""
    number = max((part_number(part) for part in index.records), default=-1) + 1
    count, names = 0, set()
    journal: Journal | None = None
    try:
        for sample in plan.read():
            while elsewhere := _find_elsewhere(policy, others, sample):
                for trace_id, source in dict(reversed(elsewhere)).items():
                    if journal is None or (count and count % PART_RECORDS == 0):
                        if journal is not None:
                            journal.close()
                            number += 1
                        journal = Journal(part_path(index.folder, number, ".jsonl"))
                    record = source.read(trace_id) | {"teacher": teacher.name}
                    index.add(record, number, journal.append(record))
                    count += 1
                    names.add(f"'{source.folder.name}'")
    finally:
        if journal is not None:
            journal.close()
        index.close()
    return count, ", ".join(sorted(names))
