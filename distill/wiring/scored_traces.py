"""Has teachers score the traces of training stages that need it, before these are trained.

A stage with `visual` needs its traces' log-probabilities with and without the image. `note_scorers` writes down
which scores a stage reads, which is part of its fingerprint and costs nothing; `score_stages` then makes those that
are missing. Stages without `visual` are skipped.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path, locked, write_json
from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.json_lines import requiring
from distill.artifacts.layout import SAMPLES, by_number, part_paths
from distill.artifacts.manifest import MANIFEST
from distill.data import sample_files
from distill.errors import BusyError, DataError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage
from distill.recipe.sections.teachers import Teacher
from distill.trace_records import scores
from distill.types import ProgressCallback, unwatched
from distill.word_tables import counted

if TYPE_CHECKING:
    from teacher.score import GivenText

_TOP_K = 0
"""A difference of log-probabilities needs those of the text's own tokens only."""


def note_scorers(recipe: Recipe, run: Path) -> None:
    """Write down for each stage with `visual` or `rollouts` whose scores it reads."""
    from teacher.score import journal_name

    for stage in recipe.stages:
        if stage.rollouts is not None:
            top_k, chosen = stage.rollouts.top_k, [stage.rollouts.teacher]
        elif stage.visual is not None:
            top_k, chosen = _TOP_K, [each.name for each in _scorers(recipe, stage)]
        else:
            continue
        scorers = [each for each in recipe.teachers if each.name in chosen]
        journals = {each.name: journal_name(recipe, each, top_k=top_k) for each in scorers}
        noted = {"journals": journals}
        if scores.settings(run, stage.name) != noted:
            write_json(scores.settings_path(run, stage.name), noted)


def score_stages(
    recipe: Recipe,
    run: Path,
    only: str | None = None,
    *,
    fresh: bool = False,
    on_progress: ProgressCallback = unwatched,
) -> None:
    """Score the traces of each stage with `visual`, or of one, that is not finished or made again (`fresh`).

    Scores that are there are kept. Raises DataError where no trace of a stage can be scored, and what `generate`
    raises for teachers that are not there or fail.
    """
    for stage in recipe.stages:
        if stage.visual is None or only not in (None, stage.name):
            continue
        if fresh or not (run / "train" / stage.name / MANIFEST).is_file():
            with locked(run):
                _score_stage(recipe, run, stage, on_progress)


def reuse_scores(source: Path, target: Path) -> None:
    """Copy to a run the scores that it lacks and another run over the same traces has.

    A journal that another process is writing is left as it is; its missing lines are copied the next time.
    """
    for journal in sorted((source / scores.FOLDER).glob("*.jsonl")):
        copy = target / scores.FOLDER / journal.name
        if not copy.exists():
            with atomic_path(copy) as temporary:
                shutil.copyfile(journal, temporary)
        else:
            with suppress(BusyError):
                _add_lacking(journal, copy)


def _add_lacking(journal: Path, copy: Path) -> None:
    """Append the scores that only `journal` has: the other one may have been copied before all were made."""
    own = {record["key"] for record in _whole(copy)}
    lacking = [record["key"] for record in _whole(journal) if record["key"] not in own]
    if not lacking:
        return
    wanted = set(lacking)
    with Journal(copy) as there:
        for record in _whole(journal):
            if record["key"] in wanted:
                wanted.discard(record["key"])
                there.append(record)


def _whole(journal: Path) -> Iterator[dict[str, Any]]:
    return read_jsonl(journal, check=scores.check_score, on_damage=lambda _: None)


def _score_stage(recipe: Recipe, run: Path, stage: Stage, on_progress: ProgressCallback) -> None:
    from teacher.score import reporting, score_texts

    wanted = _selected(run, stage)
    failed: Counter[str] = Counter()
    asked = 0
    for teacher in _scorers(recipe, stage):
        assert stage.visual is not None
        own = {trace for trace, writer in wanted.items() if stage.visual.teacher or writer == teacher.name}
        report, texts = reporting(on_progress, teacher.name, 2 * len(own), "texts"), _texts(run, own)
        failed += score_texts(recipe, teacher, texts, run / scores.FOLDER, top_k=_TOP_K, on_done=report)
        asked += 2 * len(own)
    if asked and sum(failed.values()) >= asked:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(failed.items()))
        raise DataError(
            f"stage '{stage.name}': none of its {counted(len(wanted), 'trace')} could be scored ({reasons}); correct "
            "the teacher, or remove [stages.visual]"
        )


def _scorers(recipe: Recipe, stage: Stage) -> list[Teacher]:
    """The teachers that score for a stage: the one that it names, or all, each its own traces."""
    assert stage.visual is not None
    return [teacher for teacher in recipe.teachers if stage.visual.teacher in (None, teacher.name)]


def _selected(run: Path, stage: Stage) -> dict[str, str]:
    """The traces that a stage learns from, and who wrote each."""
    from student.data.rows import data_folder

    folder = data_folder(run, stage)
    traces: dict[str, str] = {}
    try:
        for file in sorted(folder.glob("*.parquet"), key=by_number):
            table = pq.read_table(file, columns=["trace_id", "teacher"])
            traces |= zip(table["trace_id"].to_pylist(), table["teacher"].to_pylist(), strict=True)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{folder}: cannot be read as filtered traces: {error}; run the filter stage again") from None
    return dict(list(traces.items())[: stage.limit])


def _texts(run: Path, traces: set[str]) -> "Iterator[GivenText]":
    """What the teachers wrote, and the sample of each trace, in the order of the journals."""
    from teacher.score import GivenText

    generate, check = run / "generate", requiring("id", "sample_id", "text", "error")
    of_trace: dict[str, tuple[str, str]] = {}
    for journal in part_paths(generate, ".jsonl", below="*"):
        for record in read_jsonl(journal, check=check, on_damage=lambda _: None):
            if record["id"] in traces and not record["error"]:
                of_trace.setdefault(record["id"], (record["sample_id"], record["text"]))
    needed = {sample_id for sample_id, _ in of_trace.values()}
    samples = {sample.id: sample for sample in sample_files.read_samples(generate / SAMPLES, needed)}
    for trace, (sample_id, text) in of_trace.items():
        if sample_id in samples:
            yield GivenText(trace=trace, sample=samples[sample_id], text=text)
