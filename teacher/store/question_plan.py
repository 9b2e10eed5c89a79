"""The question plan: the readable samples, and the rows set aside with their reasons.

Writes `samples.parquet`, `quarantine.jsonl` and, last, `plan.json` with the settings and sources of both. While the
inputs are unchanged, a rerun uses these files and does not read the source again.
"""

import shutil
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from distill.artifacts.files import atomic_path, describe, write_json
from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import requiring, seal
from distill.artifacts.layout import PLAN_STATE, QUARANTINE, SAMPLES
from distill.artifacts.manifest import fingerprint, flatten
from distill.data import reader, sample_files, sources
from distill.data.grown_sources import source_files, unchanged_start
from distill.data.source_images import images_root
from distill.errors import DataError, RecipeError
from distill.ocr import reader as reader_of_text
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.teachers import Teacher
from distill.types import BadRow, Sample
from distill.word_tables import counted
from teacher import checks
from teacher.messages import parse
from teacher.messages.prompts import prompt_fault, prompt_key
from teacher.messages.request import Model, model_of, precision_key
from teacher.scheduling.routing import NO_TEACHER, may_share, route
from teacher.store import plan_images
from teacher.store.image_cues import asks_for_image_text, require_reader, with_image_text
from teacher.store.teacher_coverage import TeacherCoverage, check_coverage

_FILES = (SAMPLES, QUARANTINE)
_EXTENDED = 16
"""A plan remembers at most so many earlier plans that it begins with."""
_LIMIT_POOL = 20_000
"""`limit` chooses among at least so many samples from the start of the source; a larger source is not read on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneRows:
    """Rows of a plan that need not be looked at: the first `rows` ones without those in `but`."""

    rows: int = 0
    but: Collection[int] = ()

    @property
    def count(self) -> int:
        return self.rows - len(self.but)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """The samples of a run, and the counts of what was planned."""

    folder: Path
    samples: int
    quarantined: Counter[str]
    routed: Mapping[str, int]
    """Samples that each teacher covers, also those for which other teachers' traces decide whether it is asked."""
    settings: str = ""
    """Fingerprint of the settings that decide what a finished stage holds."""
    digest: str = ""
    """Digest of the file of samples."""
    content: str = ""
    """`sample_files.samples_content` of it."""
    extends: Sequence[tuple[int, str]] = ()
    """Earlier plans that this one begins with: numbers of samples, and digests."""

    def read(self, done: DoneRows | None = None) -> Iterator[Sample]:
        """The samples in their order; without those that are done."""
        done = done or DoneRows()
        return sample_files.read_samples(self.folder / SAMPLES, skip=done.rows, but=done.but)

    def begins_with(self, samples: int, digest: str) -> bool:
        """Whether the first samples are the samples of a file with this digest."""
        return bool(digest) and (
            (samples, digest) == (self.samples, self.digest) or (samples, digest) in self.extends
        )


def check_teachers(recipe: Recipe) -> dict[str, Model]:
    """The model of every teacher. Raises RecipeError for teachers that cannot be asked as the recipe says."""
    for problem in checks.settings_problems(recipe):
        raise problem
    require_reader(recipe)
    models = {teacher.name: model_of(recipe, teacher) for teacher in recipe.teachers}
    require_different(recipe, models)
    return models


def require_different(recipe: Recipe, models: Mapping[str, Model]) -> None:
    """Raises RecipeError for two teachers with a model in `models` that would write the same traces."""
    for first, second in combinations([teacher for teacher in recipe.teachers if teacher.name in models], 2):
        if may_share(first, second) and _attempt_settings(first, models[first.name]) == _attempt_settings(
            second, models[second.name]
        ):
            raise RecipeError(
                f"teachers {first.name} and {second.name} have the same model, prompt, settings and samples, so "
                "their traces would be the same: keep one of them and raise its samples"
            )


def result_settings(recipe: Recipe, models: Mapping[str, Model]) -> dict[str, Any]:
    """The flattened settings that decide what a finished stage holds, apart from the rows of the source."""
    source = {key: value for key, value in reader.source_fields(recipe, ASKED).items() if key != "content"}
    fields: dict[str, Any] = {
        "seed": recipe.seed,
        "data": {ASKED: source},
        "teachers": [
            affecting(teacher, "generate") | _author_settings(teacher, models[teacher.name])
            for teacher in recipe.teachers
        ],
        "outcomes": affecting(recipe.generate.outcomes, "generate"),
        "parser": parse.VERSION,
    }
    if asks_for_image_text(recipe):
        fields["ocr"] = reader_of_text.identity()
    if any(teacher.until or teacher.when == "unsure" for teacher in recipe.teachers):
        fields["relative_tolerance"] = recipe.filter.answer.relative_tolerance
    return flatten(fields)


def _attempt_settings(teacher: Teacher, model: Model) -> dict[str, Any]:
    """What decides the text of an attempt."""
    return affecting(teacher, "traces") | {"cues": teacher.cues} | _author_settings(teacher, model)


def _author_settings(teacher: Teacher, model: Model) -> dict[str, Any]:
    return {"model": model.key, "system": teacher.system, "prompt": prompt_key(teacher), **precision_key(teacher)}


def source_digest(recipe: Recipe) -> str:
    """Digest of the source's own files; empty for a hub name, which does not change under a run."""
    return str(reader.source_fields(recipe, ASKED).get("content", ""))


def plan_inputs(recipe: Recipe, folder: Path, fields: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """What a plan depends on, as it is now."""
    return {
        "settings": fingerprint(fields),
        "content": source_digest(recipe),
        "limit": limit or 0,
        "root": images_root(recipe, ASKED),
        "images": plan_images.images_state(folder / SAMPLES),
    }


def is_current(folder: Path, inputs: Mapping[str, Any]) -> bool:
    """Whether the plan on disk was made from exactly this, and is whole. Unreadable rows are looked at again."""
    state = plan_images.read_state(folder)
    return state is not None and state["made_from"] == {**inputs, "unreadable": 0} and _are_whole(folder, state)


def _are_whole(folder: Path, state: Mapping[str, Any]) -> bool:
    """Whether the files of a plan are there as they were written."""
    return all((folder / name).is_file() for name in _FILES) and bool(state["files"] == _file_digests(folder))


def _file_digests(folder: Path) -> dict[str, str]:
    return {name: describe(folder / name).sha256 for name in _FILES}


def write_pending_plan(
    recipe: Recipe,
    folder: Path,
    *,
    limit: int | None,
    inputs: Mapping[str, Any] | None = None,
    on_read: Callable[[int], None] = lambda images: None,
) -> Path:
    """Read the source and write a new plan to a folder of its own, which `install_plan` puts in place.

    With `inputs` the plan in place is extended if it was made from them and all that changed since is that rows were
    added at the end of the source. `on_read` is called with the number of images whose text was read, where teachers
    are shown it.
    """
    pending = folder / ".pending"
    shutil.rmtree(pending, ignore_errors=True)
    earlier = None if inputs is None or limit is not None else _earlier_plan(recipe, folder, inputs)
    routed = Counter({teacher.name: earlier.routed[teacher.name] if earlier else 0 for teacher in recipe.teachers})
    rows_read: list[int] = []
    with_text = partial(with_image_text, recipe, run=folder.parent, on_read=on_read)
    with atomic_path(pending / QUARANTINE) as quarantine_path, quarantine_path.open("wb") as quarantine:
        coverage = TeacherCoverage()
        samples = _routable(recipe, quarantine, coverage, earlier.read if earlier else None, rows_read.append)
        prompted = partial(_with_prompts, recipe, quarantine, routed)
        if earlier is not None:
            quarantine.write((folder / QUARANTINE).read_bytes())
            sample_files.write_samples(pending / SAMPLES, prompted(with_text(samples)), before=folder / SAMPLES)
        else:
            chosen = (
                samples
                if limit is None
                else iter(spread_over_domains(islice(samples, max(_LIMIT_POOL, 4 * limit)), limit))
            )
            sample_files.write_samples(pending / SAMPLES, prompted(with_text(chosen)))
            check_coverage(recipe, coverage)
    files = source_files(recipe, ASKED) if rows_read and limit is None else []
    extends = earlier.extends if earlier else ()
    state = {"rows": sum(rows_read), "source": files, "extends": extends, "routed": routed}
    write_json(pending / PLAN_STATE, state, durable=False)  # it is read at once, and then removed
    return pending


@dataclass(frozen=True, slots=True, kw_only=True)
class _EarlierPlan:
    """A plan that holds for the rows at the start of the source."""

    read: reader.ReadBefore
    routed: Mapping[str, int]
    extends: Sequence[tuple[int, str]]


def _earlier_plan(recipe: Recipe, folder: Path, inputs: Mapping[str, Any]) -> _EarlierPlan | None:
    """The plan in place, if it differs from a new one only by rows at the end; None when that is not certain."""
    state = plan_images.read_state(folder)
    same = {"unreadable": 0, **{key: inputs[key] for key in ("settings", "root", "images", "limit")}}
    if state is None or not same.items() <= state["made_from"].items() or not _are_whole(folder, state):
        return None
    reasons = count_quarantined(folder)
    # Rows without a teacher or a prompt count as seen, and their answers are not in the plan. A new row with two
    # images of different parts moves old rows.
    if (
        reasons[NO_TEACHER]
        or reasons[PROMPT_FAILED]
        or recipe.data[ASKED].limit is not None
        or recipe.data[ASKED].part != (0, 1)
    ):
        return None
    start = unchanged_start(sources.locate(recipe, ASKED), state["rows"], state["source"])
    if start is None:
        return None
    this = (sample_files.count_samples(folder / SAMPLES), state["files"][SAMPLES])
    return _EarlierPlan(
        read=reader.ReadBefore(start=start, samples=folder / SAMPLES, reasons=reasons),
        routed=state["routed"],
        extends=[*((count, digest) for count, digest in state["extends"]), this][-_EXTENDED:],
    )


def _routable(
    recipe: Recipe,
    quarantine: IO[bytes],
    coverage: TeacherCoverage,
    before: reader.ReadBefore | None,
    on_end: Callable[[int], None],
) -> Iterator[Sample]:
    """The samples that at least one teacher covers; every other row goes to the quarantine with its reason."""

    def set_aside(record: dict[str, Any]) -> None:
        quarantine.write(seal(record))

    def bad(row: BadRow) -> None:
        set_aside(asdict(row))

    for sample in reader.samples(recipe, ASKED, on_bad=bad, before=before, on_end=on_end):
        if coverage.add(recipe, sample):
            yield sample
        else:
            detail = f"no teacher is for domain {sample.domain!r}"
            if any(teacher.hinted for teacher in recipe.teachers) and sample.answer is None:
                detail += " without a gold answer"
            set_aside({"sample_id": sample.id, "reason": NO_TEACHER, "detail": detail})


def _with_prompts(
    recipe: Recipe, quarantine: IO[bytes], routed: Counter[str], samples: Iterator[Sample]
) -> Iterator[Sample]:
    """The samples whose prompts code from outside can make, counted by teacher; the others go to the quarantine.

    Raises RecipeError at the end where these are more than max_bad_share of all.
    """
    total, failures = 0, list[str]()
    from_outside = {teacher.name for teacher in recipe.teachers if teacher.prompt_from_outside}
    for sample in samples:
        total += 1
        teachers = route(recipe.teachers, sample)
        faults = [prompt_fault(teacher, sample) for teacher in teachers if teacher.name in from_outside]
        if fault := next(filter(None, faults), ""):
            failures.append(fault)
            quarantine.write(seal({"sample_id": sample.id, "reason": PROMPT_FAILED, "detail": fault}))
            continue
        for teacher in teachers:
            routed[teacher.name] += 1
        yield sample
    share = recipe.data[ASKED].max_bad_share
    if len(failures) > share * total:
        raise RecipeError(
            f"{len(failures):,} of {counted(total, 'question has', 'questions have')} no prompt, more than "
            f"data.{ASKED}.max_bad_share = {share:g}; the first: {failures[0]}; correct the function"
        )


def spread_over_domains(samples: Iterable[Sample], limit: int) -> list[Sample]:
    """`limit` samples, domains taking turns, in each domain those with the smallest ids."""
    smallest: dict[str, list[tuple[str, Sample]]] = {}
    for sample in samples:
        kept = smallest.setdefault(sample.domain, [])
        insort(kept, (sample.id, sample), key=lambda item: item[0])
        del kept[limit:]
    turns = deque(deque(sample for _, sample in smallest[domain]) for domain in sorted(smallest))
    chosen: list[Sample] = []
    while turns and len(chosen) < limit:
        domain = turns.popleft()
        chosen.append(domain.popleft())
        if domain:
            turns.append(domain)
    return chosen


def install_plan(pending: Path, folder: Path, inputs: Mapping[str, Any]) -> None:
    """Put a new plan in place of the old one. A kill in between leaves no plan.json, so it is made again."""
    (folder / PLAN_STATE).unlink(missing_ok=True)
    for name in _FILES:
        (pending / name).replace(folder / name)
    written = orjson.loads((pending / PLAN_STATE).read_bytes())
    shutil.rmtree(pending)
    unreadable = sum(count for reason, count in count_quarantined(folder).items() if reason not in _LASTING_REASONS)
    made_from = {**inputs, "images": plan_images.images_state(folder / SAMPLES), "unreadable": unreadable}
    write_json(folder / PLAN_STATE, {**written, "made_from": made_from, "files": _file_digests(folder)})


PROMPT_FAILED = "prompt_failed"
_LASTING_REASONS = frozenset({NO_TEACHER, PROMPT_FAILED, "duplicate_row", "conflicting_answer"})
"""Reasons that only a change of the source or the recipe can cure, and such a change is seen."""


def count_quarantined(folder: Path) -> Counter[str]:
    """Rows set aside, by reason."""
    return Counter(row["reason"] for row in read_jsonl(folder / QUARANTINE, check=requiring("reason")))


def read_pending_plan(pending: Path) -> QuestionPlan:
    """A plan that `write_pending_plan` has written, before it is put in place."""
    samples = sample_files.count_samples(pending / SAMPLES)
    routed = orjson.loads((pending / PLAN_STATE).read_bytes())["routed"]
    return QuestionPlan(folder=pending, samples=samples, quarantined=count_quarantined(pending), routed=routed)


def read_plan(folder: Path) -> QuestionPlan:
    """The plan in place."""
    remedy = f"remove {folder / PLAN_STATE} and run again"
    if (state := plan_images.read_state(folder)) is None:
        raise DataError(f"{folder}: there is no readable plan; {remedy}")
    try:
        samples = sample_files.count_samples(folder / SAMPLES)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{folder}: the plan cannot be read ({error}); {remedy}") from None
    return QuestionPlan(
        folder=folder,
        samples=samples,
        quarantined=count_quarantined(folder),
        routed=state["routed"],
        settings=state["made_from"]["settings"],
        digest=state["files"][SAMPLES],
        content=sample_files.samples_content(folder / SAMPLES),
        extends=[(rows, digest) for rows, digest in state["extends"]],
    )
