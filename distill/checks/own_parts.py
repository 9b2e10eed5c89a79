"""Checks of parts of the user's own: each is tried on a few rows, twice, before teachers and hours are spent on it.

What fails on some rows is counted by its stage, so it is a warning here; what fails on all of them is a problem.
Parts of finished stages are tried, too: they may be new since, and the next command uses them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import metadata
from itertools import islice
from typing import Any

import pyarrow as pa

from distill.checks.context import CheckContext
from distill.checks.ideal_traces import ideal_trace
from distill.checks.results import CheckResult, fine, problem, warning
from distill.data import formats, sources
from distill.data.formats import ParsedRow, RowError
from distill.data.images import image_files
from distill.data.source_answer_types import answer_type_of, load_type
from distill.data.sources import SourceRow
from distill.errors import DistillError, RecipeError
from distill.extensions import ANSWER_TYPES, DATA_FORMATS, EXPORT_FORMATS, FAILURES, SIGNALS, describe
from distill.machine.processor_time import OutOfTime, processor_time
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ANSWER_TYPE_NAMES, ASKED, FORMAT_NAMES, DataSource
from distill.recipe.sections.filter import EXPORT_NAMES, SIGNAL_NAMES
from distill.types import BadRow, Sample, Trace
from distill.word_tables import counted
from filters.dataset import writer
from filters.dataset.export_formats import FORMATS, DatasetRow, ExportFormat, ExportImage, chosen_formats
from filters.dataset.exports import record_of
from filters.signals import registry, user_signals
from filters.signals.base import Extractor
from student.evaluation.user_metrics import UserMetric, user_metrics
from student.inference.reply_metrics import metric_values
from student.inference.scoring import score_reply
from teacher.messages.prompts import prompt, prompt_fault, prompt_key

_SECONDS = 2.0
"""For all rows of one part."""
_LONGEST = 5.0
"""For the two calls with one row, of processor time or of waiting."""
_SENTENCES = 4
_ROWS = 32
"""Rows that a data format is tried on."""


def check_names(context: CheckContext) -> Iterator[CheckResult]:
    """Names of the project's own that an installed package gives to a part, too: the part of the package is not
    used."""
    recipe = context.recipe
    sources = recipe.data.items()
    used = [
        *(("filter.signals", SIGNALS, name, SIGNAL_NAMES) for name in recipe.filter.signals),
        *(("filter.exports", EXPORT_FORMATS, name, EXPORT_NAMES) for name in recipe.filter.exports),
        *((f"data.{key}.format", DATA_FORMATS, source.format, FORMAT_NAMES) for key, source in sources),
        *(
            (f"data.{key}.answer_type", ANSWER_TYPES, source.answer_type, ANSWER_TYPE_NAMES)
            for key, source in sources
        ),
    ]
    for key, group, name, own in used:
        if name in own and (points := metadata.entry_points(group=group, name=name)):
            packages = ", ".join(sorted({point.dist.name for point in points if point.dist is not None}))
            yield warning(
                key,
                f"{name!r} is the project's own; the part of this name in the package {packages} is not used",
                f"give the entry point of the package another name ({group})",
            )


def check_prompts(context: CheckContext) -> Iterator[CheckResult]:
    """Prompts of code from outside: a text for each question, and the same one at each call."""
    for teacher in context.recipe.teachers:
        if not teacher.prompt_from_outside or _is_unusable(prompt_key, teacher):
            continue

        def text(sample: Sample, teacher: Any = teacher) -> str:
            if fault := prompt_fault(teacher, sample):
                raise RecipeError(fault)
            return prompt(teacher, sample).text

        samples = _samples(context, ASKED)
        yield from _tried(context, f"teachers.{teacher.name}.prompt", teacher.prompt, text, samples, "questions")


def check_answer_types(context: CheckContext) -> Iterator[CheckResult]:
    """Answer types from outside: a verdict on a gold answer against itself."""
    for name, source in context.recipe.data.items():
        if (
            source.answer_type is None
            or source.answer_type in ANSWER_TYPE_NAMES
            or name not in (*context.uses, ASKED)
        ):
            continue
        key = f"data.{name}.answer_type"
        if _is_unusable(answer_type_of, source):
            continue
        made = load_type(source.answer_type, context.recipe.path.parent, key).loaded
        samples = _samples(context, name)
        own = [sample for sample in samples if sample.answer_type == answer_type_of(source)]
        if samples and not own:
            column = source.columns.answer_type
            yield warning(
                key,
                f"{source.answer_type!r} is used for no row: each of the {counted(len(samples), 'row')} that were "
                f"read states another type, such as in the column {column!r}",
                f'columns.answer_type = "" under [data.{name}] uses it for all rows',
            )
            continue
        golds = [sample.answer for sample in own if sample.answer]
        results = list(_tried(context, key, source.answer_type, partial(_decided, made), golds, "gold answers"))
        yield from results
        if golds and not results and all(made.decide(gold, gold) is None for gold in golds):
            yield warning(
                key,
                f"{source.answer_type!r} is undecided about each of {len(golds)} gold answers where a teacher gives "
                "this very answer, so no trace can be correct",
                "look at the answers of the source, and at the function `same`",
            )


def _decided(made: Any, gold: str) -> bool | None:
    same: bool | None = made.decide(gold, gold)
    if same is False:
        raise ValueError(f"the gold answer {gold!r:.60} is wrong where a teacher gives this very answer")
    return same


def check_formats(context: CheckContext) -> Iterator[CheckResult]:
    """Data formats from outside: the same questions at each reading. Rows that fail are counted by the survey."""
    for name, source in context.recipe.data.items():
        if source.format in FORMAT_NAMES or name not in context.uses or context.readable(name) is None:
            continue
        rows = islice(sources.rows(sources.locate(context.recipe, name)), _ROWS)
        yield from _tried(context, f"data.{name}.format", source.format, partial(_parsed, source), [*rows], "rows")


def _parsed(source: DataSource, row: SourceRow | BadRow) -> ParsedRow | str:
    try:
        return formats.parse(row.values, source) if isinstance(row, SourceRow) else row.detail
    except RowError as error:
        return describe(error)


def check_signals(context: CheckContext) -> Iterator[CheckResult]:
    """Signals from outside: rows with values for made-up right traces."""
    if _is_unusable(registry.build, context.recipe):
        return
    for extractor in registry.build(context.recipe):
        if extractor.name in registry.FAMILIES:
            continue
        measure = partial(_measured, context.recipe, extractor)
        yield from _tried(
            context, "filter.signals", extractor.name, measure, _samples(context, ASKED), "made-up traces"
        )


def _trace(recipe: Recipe, sample: Sample) -> Trace:
    return ideal_trace(sample, _SENTENCES, *(teacher.name for teacher in recipe.teachers[:1]))


def _measured(recipe: Recipe, extractor: Extractor, sample: Sample) -> Any:
    return user_signals.measure(extractor, sample, [_trace(recipe, sample)])


def check_exports(context: CheckContext) -> Iterator[CheckResult]:
    """Export formats from outside: a record for made-up examples."""
    recipe = context.recipe
    formats = chosen_formats(recipe.filter.exports, recipe.path.parent)
    if formats:
        yield fine("filter.exports", ", ".join(formats))
    for name, made in formats.items():
        if name not in FORMATS:
            write = partial(_record, recipe, made)
            yield from _tried(context, "filter.exports", name, write, _samples(context, ASKED), "made-up examples")


def _record(recipe: Recipe, made: ExportFormat, sample: Sample) -> bytes:
    trace = _trace(recipe, sample)
    families = tuple(each for each in registry.build(recipe) if each.name in registry.FAMILIES)
    rows = pa.Table.from_pylist(registry.rows(families, sample, [trace]), schema=registry.columns(recipe))
    values = writer.row(sample, trace, [], rows.to_pylist()[0], recipe.filter.rationale)
    messages = values.pop("messages")
    values.pop("images")
    images = tuple(ExportImage(data=image_files.read_bytes(image), suffix=".png") for image in sample.images)
    paths = [f"images/{image.sha256[:2]}/{image.sha256[:32]}.png" for image in sample.images]
    return record_of(made, DatasetRow(messages=messages, pictures=images, values=values), paths)


def check_metrics(context: CheckContext) -> Iterator[CheckResult]:
    """Metrics from outside: a value for made-up replies."""
    recipe = context.recipe
    metrics = user_metrics(recipe)
    if metrics:
        yield fine("eval.metrics", ", ".join(metric.name for metric in metrics))
    for metric in metrics:
        value = partial(_value, recipe, metric)
        yield from _tried(
            context, "eval.metrics", metric.name, value, _samples(context, recipe.eval.data), "made-up replies"
        )


def _value(recipe: Recipe, metric: UserMetric, sample: Sample) -> Any:
    trace = _trace(recipe, sample)
    tokens = {"tokens": trace.usage.reasoning + trace.usage.answer, "rationale_tokens": trace.usage.reasoning}
    reply = {"text": trace.text, "truncated": False, "seconds": 1.0, **tokens}
    tolerance = recipe.filter.answer.relative_tolerance
    prediction = score_reply(sample, reply, plain=False, relative_tolerance=tolerance)
    return metric_values((metric,), sample, prediction)


def _is_unusable(load: Callable[[Any], Any], of: Any) -> bool:
    """Whether a part cannot be loaded, which the check of its section reports."""
    try:
        load(of)
    except DistillError:
        return True
    return False


def _samples(context: CheckContext, source: str) -> list[Sample]:
    survey = context.readable(source)
    return survey.kept if survey is not None else []


def _tried(
    context: CheckContext, key: str, name: str, call: Callable[[Any], Any], rows: Sequence[Any], what: str
) -> Iterator[CheckResult]:
    """What is wrong with a part, by two calls with each row: it fails, takes long, or gives two values."""
    failures, different, tried = list[str](), 0, 0
    started = time.monotonic()
    for row in rows:
        try:
            with processor_time(_LONGEST, _LONGEST):
                different += repr(call(row)) != repr(call(row))
        except OutOfTime:
            context.slow_parts.add(name)
            mend = "make it faster; otherwise each row can take this time"
            yield warning(key, f"{name!r} takes more than {_LONGEST / 2:g} s for one of the {what}", mend)
            return
        except FAILURES as error:
            failures.append(str(error) if isinstance(error, DistillError) else describe(error))
        tried += 1
        if time.monotonic() - started > _SECONDS:
            break
    if failures:
        state = problem if len(failures) == tried else warning
        message = f"{name!r} fails on {len(failures)} of {tried} {what}; the first: {failures[0]}"
        yield state(key, message, f"correct {name}")
    elif different:
        yield warning(
            key,
            f"{name!r} gives another value at the second call for {different} of {tried} {what}, so a run that is "
            "stopped and resumed has another result",
            "let its values depend on its arguments alone (random numbers: on the id of the sample)",
        )
