"""Checks of data: every source that a stage reads has what the stage needs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from distill.checks.context import TEACHERS, TEST_SETS, CheckContext
from distill.checks.results import CheckResult, fine, problem, warning
from distill.checks.survey import Survey
from distill.data.tables.hub_datasets import check_hub, is_hub_name
from distill.diagnosis import odd_images, usual_figures
from distill.recipe.messages import did_you_mean
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.eval import FEW_QUESTIONS
from distill.recipe.sections.stages import TRACES, Stage, is_traces
from distill.recipe.sections.teachers import OCR_CUES
from distill.reports.findings import FEWEST
from distill.reports.gold_faults import stated_types, told_answers, wrongly_typed
from distill.stats.intervals import wilson
from distill.word_tables import counted
from filters.signals.families.language import UNKNOWN, guess_of
from teacher.store.teacher_coverage import coverage_problems

_MANY_REPEATED = 0.2
"""Share of the usable rows."""
_MUCH_HELD_OUT = 0.5


def _lacking(survey: Survey, key: str, message: str, mend: str) -> CheckResult:
    """A problem; a warning where rows of the source were not read, which may have what the others lack."""
    if survey.whole:
        return problem(key, message, mend)
    return warning(key, f"{message} (rows after {survey.extent} were not read)", mend)


def source_check(name: str) -> Callable[[CheckContext], Iterator[CheckResult]]:
    """The check of one source: there, readable, with the columns of its format and enough usable rows."""
    return lambda context: _source(context, name)


def _source(context: CheckContext, name: str) -> Iterator[CheckResult]:
    key, used = f"data.{name}", f"used by {', '.join(context.uses[name])}"
    recipe = context.recipe
    if name not in recipe.data:
        names = ", ".join(recipe.data) or "none"
        hint = did_you_mean(name, recipe.data)
        yield problem(key, f"the recipe has no such source, and it is {used}{hint} (known: {names})", f"add [{key}]")
        return
    source = recipe.data[name]
    if not context.is_here(name) and is_hub_name(source):
        result = context.hub.look(f"{key}.source", source.source, "dataset")
        yield result
        if result.state != "problem":
            if source.subset is not None:
                yield context.hub.subset(f"{key}.subset", source.source, source.subset)
            check_hub(source, recipe.local(source.source), f"[{key}] source = {source.source!r}")
        return
    roles = Counter(filter(None, source.columns.model_dump().values()))
    if shared := [column for column, count in roles.items() if count > 1]:
        yield warning(
            f"{key}.columns", f"the column {shared[0]!r} has two roles", "name another column for one of them"
        )
    survey = context.survey(name)
    if source.split != "train" and recipe.local(source.source).is_file():
        yield warning(
            f"{key}.split",
            f"{source.split!r} has no effect: the source is one file, and all its rows are read",
            "leave split out, or name the file of that split",
        )
    yield fine(key, f"{survey.describe()}; {used}")
    yield from _bad_rows(survey, key)


def _bad_rows(survey: Survey, key: str) -> Iterator[CheckResult]:
    repeated = survey.reasons["duplicate_row"]
    if repeated > _MANY_REPEATED * survey.samples:
        of_rows = survey.of_rows(survey.samples + survey.reasons.total())
        yield warning(
            key,
            f"{repeated:,} {of_rows} repeat the question and images of an earlier one and are left out",
            "look at columns.question and columns.image, or remove these rows",
        )
    if survey.asked_again > _MANY_REPEATED * survey.samples:
        yield warning(
            key,
            f"{survey.asked_again:,} of {survey.extent} repeat an earlier one about the same images; they differ "
            "only in case, layout or final punctuation",
            'remove these rows; with "question" in filter.signals, the filter drops their traces',
        )
    if not survey.bad:
        return
    counts = ", ".join(f"{reason}: {count:,}" for reason, count in survey.reasons.most_common())
    first = survey.first_bad[0]
    yield warning(
        key,
        f"{survey.bad:,} {survey.of_rows(survey.samples + survey.bad)} cannot be used ({counts}); the first: row "
        f"{first.row}: {first.detail}",
        "correct or remove these rows; the run leaves them out and counts them",
    )


def check_coverage(context: CheckContext) -> Iterator[CheckResult]:
    """Every teacher gets questions."""
    if (survey := context.readable(ASKED)) is None:
        return
    for coverage_problem in coverage_problems(context.recipe, context.coverage):
        name = str(coverage_problem).removeprefix("teachers.").partition(":")[0].partition(" ")[0]
        mend = f"correct teachers.{name}, or the column or the own format that states the values"
        yield _lacking(survey, f"teachers.{name}", str(coverage_problem), mend)
    unasked = context.unasked
    if unasked:
        domains = ", ".join(f"{domain!r}: {count:,}" for domain, count in unasked.most_common(5))
        yield warning(
            "teachers.domains",
            f"{counted(unasked.total(), 'question is', 'questions are')} for no teacher and will not be asked "
            f"(by domain: {domains})",
            "add their domain to a teacher, or leave a teacher's domains empty",
        )
    extent = "" if survey.whole else f" of {survey.extent}"
    for name, count in context.routed.items():
        yield fine(f"teachers.{name}", f"is for {counted(count, 'question')}{extent}")


def check_cues(context: CheckContext) -> Iterator[CheckResult]:
    """The rows have what prompts show of them besides the question."""
    survey = context.readable(ASKED)
    for teacher in context.recipe.teachers if survey is not None and not context.is_done("generate") else ():
        if teacher.cues is None:
            continue
        assert survey is not None
        of_images, has = teacher.cues == OCR_CUES, context.cued[teacher.name]
        key = f"teachers.{teacher.name}.cues"
        if not has:
            there = ", ".join(sorted({name for sample in survey.kept for name in sample.meta})) or "nothing"
            lacking = "no row has an image" if of_images else f"no row has {teacher.cues!r} in its meta"
            yield _lacking(
                survey, key, f"{lacking}, so {{cues}} stays empty (in meta: {there})",
                "name a key that the rows have, or add it to their column meta",
            )  # fmt: skip
        elif has < survey.samples:
            yield warning(
                key, f"{survey.samples - has:,} {survey.of_rows(survey.samples)} have none: {{cues}} is empty there",
                "add the missing cues, or write a prompt that also works without cues",
            )  # fmt: skip


def check_golds(context: CheckContext) -> Iterator[CheckResult]:
    """Gold answers where a stage learns from them or judges by them."""
    for name, users in context.uses.items():
        survey = context.readable(name)
        needing = [user for user in users if user not in (TEACHERS, TEST_SETS)]
        if survey is None or not needing or survey.golds == survey.samples:
            continue
        mend = f"map [data.{name}.columns] answer to the column of the gold answers"
        if not survey.golds:
            message = f"no row has an answer; needed by {', '.join(needing)}"
            yield _lacking(survey, f"data.{name}.columns.answer", message, mend)
        else:
            yield warning(
                f"data.{name}.columns.answer",
                f"{survey.samples - survey.golds:,} {survey.of_rows(survey.samples)} have no answer, such as "
                f"{survey.without_gold!r}; they are left out by {', '.join(needing)}",
                "write answers into these rows, or remove the rows",
            )
    yield from _golds_of_questions(context)


def _golds_of_questions(context: CheckContext) -> Iterator[CheckResult]:
    survey = context.readable(ASKED)
    if survey is None or survey.golds:
        return
    until = [teacher.name for teacher in context.recipe.teachers if teacher.until and teacher.until.correct]
    consequence = f"; teachers.{until[0]}.until.correct never stops early" if until else ""
    which = "no question has" if survey.whole else f"none of {survey.extent} has"
    yield warning(
        f"data.{ASKED}.columns.answer",
        f"{which} a gold answer, so the filter cannot find wrong answers{consequence}",
        f"map [data.{ASKED}.columns] answer, or rely on agreement (filter.signals) and a judge",
    )


def _readable(context: CheckContext) -> Iterator[tuple[str, Survey]]:
    """The sources that are used and can be read."""
    surveys = ((name, context.readable(name)) for name in context.uses)
    return ((name, survey) for name, survey in surveys if survey is not None)


def check_gold_faults(context: CheckContext) -> Iterator[CheckResult]:
    """Gold answers look like the answer type that is stated, and their questions do not name them."""
    for name, survey in _readable(context):
        for message in wrongly_typed(stated_types(survey.kept)):
            yield warning(
                f"data.{name}.answer_type",
                message,
                "correct the answer_type of the rows, or leave it out: each gold answer then gives its own",
            )
        if message := told_answers(survey.kept):
            yield warning(
                f"data.{name}.columns.question", message, "name another column, or take the answers out of the texts"
            )
        if name in (ASKED, context.recipe.eval.data):
            rows = map(usual_figures.TextRow.of_question, survey.kept)
            for found in usual_figures.of_questions([*rows], f"data.{name}"):
                yield warning(f"data.{name}", found.problem, f"correct {found.change}")


def check_images_show_something(context: CheckContext) -> Iterator[CheckResult]:
    """Images are no placeholders of failed downloads, and can be seen."""
    for name, survey in _readable(context):
        refs = [ref for sample in survey.kept for ref in sample.images]
        for found in odd_images.find(refs, max_pixels=context.recipe.data[name].max_pixels):
            yield warning(
                f"data.{name}.images_root",
                f"{found.count:,} of {counted(found.looked_at, 'image')} {found.about}",
                found.change,
            )


def _tested(context: CheckContext) -> Survey | None:
    """The questions of the evaluation; None where there is none, or they cannot be read."""
    name = context.recipe.eval.data
    return context.readable(name) if name in context.uses else None


def check_tested_rows(context: CheckContext) -> Iterator[CheckResult]:
    """So many questions are evaluated that an accuracy means something."""
    tested = _tested(context)
    if tested is None or not tested.whole or not 0 < tested.golds < FEW_QUESTIONS:
        return
    low, high = wilson(tested.golds / 2, tested.golds)
    yield warning(
        f"data.{tested.name}",
        f"{counted(tested.golds, 'question')} with a right answer: an accuracy of 50 % will have the 95 % interval "
        f"[{100 * low:.0f}, {100 * high:.0f}], so few differences between students will be certain",
        f"evaluate {FEW_QUESTIONS} questions or more: `distill init` and `distill split` take --test SHARE",
    )


def check_domains(context: CheckContext) -> Iterator[CheckResult]:
    """Every domain of the evaluation is in some source that a stage learns from."""
    tested, learned = _tested(context), Counter[str]()
    for stage in context.recipe.stages:
        for name in (stage.data, *stage.replay):
            survey = context.readable(ASKED if name.partition(":")[0] == TRACES else name)
            if survey is None or not survey.whole:
                return
            learned += survey.domains
    if tested is None or not learned.keys() & tested.domains.keys():
        return  # they name their domains in other ways
    for domain, count in tested.domains.items():
        if domain not in learned and count >= FEWEST:
            yield warning(
                f"data.{tested.name}",
                f"{count:,} {tested.of_rows(tested.samples)} are of the domain {domain!r}, and no stage learns it",
                f"add rows of this domain to data.{ASKED}, or leave them out of the evaluation",
            )


def check_languages(context: CheckContext) -> Iterator[CheckResult]:
    """The evaluation asks in the language in which the student learns."""
    asked, tested = context.readable(ASKED), _tested(context)
    if asked is None or tested is None:
        return
    learned, spoken = (guess_of(" ".join(each.question for each in survey.kept)) for survey in (asked, tested))
    if UNKNOWN not in (learned.language, spoken.language) and learned.excludes(spoken):
        yield warning(
            f"data.{tested.name}",
            f"its questions are in the language {spoken.language!r}, those of data.{ASKED} in {learned.language!r}",
            "test in the language that the student learns, or add questions of this language",
        )


def check_stage_rows(context: CheckContext) -> Iterator[CheckResult]:
    """Rows of the stages that learn from sources: something to learn from, and something left beside validation."""
    for stage in context.recipe.stages:
        survey = context.readable(stage.data if not is_traces(stage) else ASKED)
        if survey is not None:
            yield from _stage_rows(stage, survey)


def _stage_rows(stage: Stage, survey: Survey) -> Iterable[CheckResult]:
    where = f"stages.{stage.name}"
    if stage.train == ("projector",) and not survey.pictured:
        yield _lacking(
            survey,
            f"{where}.train",
            f"trains the projector alone, and no row of {stage.data!r} has an image to learn from",
            f"give {where}.data rows with images, or train the language model",
        )
    held = stage.validation.hold_out if stage.validation is not None else 0
    if isinstance(held, float) and held > _MUCH_HELD_OUT:
        yield warning(
            f"{where}.validation.hold_out",
            f"keeps {100 * held:.0f} % of the rows out of training",
            f"lower {where}.validation.hold_out; 0.02 to 0.1 is usual",
        )
    if is_traces(stage):
        return
    rows = min(survey.golds, stage.limit or survey.golds)
    if isinstance(held, int) and held >= rows > 0 and survey.whole:
        yield problem(
            f"{where}.validation.hold_out",
            f"keeps out {counted(held, 'row')}, and {stage.data!r} has {rows:,}",
            f"lower {where}.validation.hold_out",
        )
    if not stage.loss.answer and not stage.loss.format and (stage.loss.final is None):
        yield problem(
            f"{where}.loss",
            "answer and format weigh 0, and rows of a source have no rationale, so nothing would be learned",
            f"raise {where}.loss.answer",
        )
