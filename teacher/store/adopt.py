"""Traces that a teacher has already, under another name: nothing is bought twice because a teacher was renamed.

The id of a trace does not depend on the name of its teacher, so a trace that a recipe wants may lie in the folder of
another name. It is copied then, with its new name; the folder it comes from stays as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.layout import part_number, part_path
from distill.recipe.recipe import Recipe
from distill.recipe.teachers import Teacher
from distill.traces.trace_lines import trace_fault
from distill.types import Sample
from teacher.messages.request import Model
from teacher.scheduling.sampling_policy import TeacherPolicy
from teacher.store.final_traces import lines
from teacher.store.question_plan import QuestionPlan
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import PART_RECORDS, parts, scan

_LOOKED_AT = 1000
"""Samples at the start of a plan that say whether a folder may hold traces of a teacher."""


def adopt(
    recipe: Recipe, models: Mapping[str, Model], plan: QuestionPlan, folder: Path, ledgers: dict[str, TraceIndex]
) -> Iterator[str]:
    """Copy what teachers have under other names to their folders; a sentence for each teacher that got something."""
    others = {path.name: path for path in sorted(folder.glob("*/")) if parts(path)}
    for position, teacher in enumerate(recipe.teachers):
        strangers = [scan(path, teacher) for name, path in others.items() if name != teacher.name]
        strangers = [each for each in strangers if _same_model(each, models[teacher.name])]
        if not strangers:
            continue
        known = recipe.model_copy(update={"teachers": recipe.teachers[: position + 1]})
        line = lines(known, models, ledgers, settled=False)[teacher.name]
        if any(_elsewhere(line, strangers, sample) for sample in islice(plan.read(), _LOOKED_AT)):
            count, names = _copied(teacher, line, strangers, plan, ledgers[teacher.name])
            ledgers[teacher.name].become(scan(folder / teacher.name, teacher))
            yield f"teacher '{teacher.name}': {count:,} traces of {names} are its own by content, not asked again"
        for each in strangers:
            each.close()


def _same_model(ledger: TraceIndex, model: Model) -> bool:
    """Whether a trace of a folder comes from a model; the first one of each part is looked at."""
    return any(
        (record["model"], record["revision"]) == (model.name, model.revision)
        for part in ledger.records
        for record in islice(read_jsonl(part, check=trace_fault, on_damage=lambda _: None), 1)
    )


def _elsewhere(line: TeacherPolicy, strangers: Sequence[TraceIndex], sample: Sample) -> list[tuple[str, TraceIndex]]:
    """The open traces of a sample that lie in other folders."""
    agenda = line.agenda(sample)
    opened = agenda.look(line.found).open if agenda else ()
    return [(request.id, each) for request in opened for each in strangers if request.id in each]


def _copied(
    teacher: Teacher, line: TeacherPolicy, strangers: Sequence[TraceIndex], plan: QuestionPlan, ledger: TraceIndex
) -> tuple[int, str]:
    """Copy traces to new parts of a teacher's folder; how many, and from which folders."""
    number = max((part_number(part) for part in ledger.records), default=-1) + 1
    count, names = 0, set()
    journal: Journal | None = None
    try:
        for sample in plan.read():
            while found := _elsewhere(line, strangers, sample):
                for trace_id, source in dict(reversed(found)).items():
                    if journal is None or (count and count % PART_RECORDS == 0):
                        if journal is not None:
                            journal.close()
                            number += 1
                        journal = Journal(part_path(ledger.folder, number, ".jsonl"))
                    record = source.read(trace_id) | {"teacher": teacher.name}
                    ledger.add(record, number, journal.append(record))
                    count += 1
                    names.add(f"'{source.folder.name}'")
    finally:
        if journal is not None:
            journal.close()
        ledger.close()
    return count, ", ".join(sorted(names))
