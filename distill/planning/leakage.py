"""Finds training data in the evaluation data. Counts over whole sources, before time and money are spent.

Every training source (what teachers are asked, what a stage learns from or replays) is compared with every evaluation
source (`eval.data`, what stages validate on, named test sets). `filters.source_overlap`
defines what counts as a leak. `measure` only counts, for a check of a whole recipe; `require` raises an error, for a
stage that is about to start.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from distill.artifacts.files import locked
from distill.artifacts.integrity import learned_from
from distill.artifacts.layout import LEAKAGE, train_data_folder
from distill.artifacts.manifest import Manifest
from distill.errors import DataError, DataOverlap
from distill.planning.compared_sources import evaluation_sources, training_sources
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import TRACES
from distill.reports.text_table import table
from distill.word_tables import counted
from filters import source_overlap
from filters.source_overlap import Overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Leakage:
    """The comparison of training sources with evaluation sources."""

    overlaps: tuple[Overlap, ...] = ()
    """The overlap of each pair of sources, also where it is empty."""
    not_compared: Mapping[str, str] = field(default_factory=dict)
    """Source to the reason: it could not be read, or the time was up."""

    @property
    def leaking(self) -> tuple[Overlap, ...]:
        return tuple(overlap for overlap in self.overlaps if overlap.leaking)

    def summary(self) -> str:
        """A table of all counts for the summary of a stage; empty where nothing was to compare."""
        rows = [
            (
                each.training,
                *(each.evaluation, f"{each.rows:,}", f"{each.pairs:,}", f"{each.images:,}", f"{each.texts:,}"),
                f"{each.touched:,} of {each.questions:,}",
            )
            for each in self.overlaps
        ]
        head = (
            "trained on",
            "tested on",
            "rows",
            "same question",
            "same image",
            "same words",
            "test questions met",
        )
        lines = [table(head, rows)] if rows else []
        if self.leaking:
            lines.append("warning: training data is in the evaluation data, so its score is too high")
        return "\n".join([*lines, *self._missing()])

    def _missing(self) -> list[str]:
        return [f"note: [data.{name}] was not compared: {why}" for name, why in self.not_compared.items()]

    def refusal(self) -> str:
        """Why a run must not go on: counts, examples and the next step; empty when nothing leaks."""
        if not self.leaking:
            return ""
        lines = ["training data is in the evaluation data, so its score would be too high"]
        for overlap in self.leaking:
            lines += [f"{overlap}; such as", *(f"  {leak}" for leak in overlap.examples)]
        return "\n".join(
            [
                *lines,
                "Split the data by image (`distill split SOURCE --test 0.1 --out DIR`) or remove these rows; to "
                "continue with them, set allow_overlap = true under [eval]",
            ]
        )


def refuse_leakage(recipe: Recipe, run: Path, training: Sequence[str], *, is_trained: bool = False) -> Leakage:
    """Compare these training sources with all evaluation sources, and refuse to go on where one leaks.

    Questions that stages learn only through the filtered dataset count if they are in this dataset. All questions
    count if the stages are trained (`is_trained`) and one of them learned from another dataset. Raises DataOverlap
    unless `eval.allow_overlap` is set.
    """
    if not training or not evaluation_sources(recipe):
        return Leakage()
    chosen = None if is_trained and _learned_from_another(recipe, run) else in_dataset(recipe, run)
    with locked(run):
        leakage = measure_leakage(
            recipe, run / LEAKAGE, training=training, only={} if chosen is None else {ASKED: chosen}
        )
    if leakage.leaking and not recipe.eval.allow_overlap:
        raise DataOverlap(f"{recipe.path}: {leakage.refusal()}")
    return leakage


def measure_leakage(
    recipe: Recipe,
    folder: Path | None = None,
    *,
    training: Sequence[str] | None = None,
    evaluation: Sequence[str] | None = None,
    only: Mapping[str, Collection[str]] | None = None,
    limit_s: float | None = None,
) -> Leakage:
    """Compare training sources with evaluation sources, by default all of the recipe.

    `folder` keeps what was found for the next time (None: nothing is kept). `only` names, for a training source, the
    ids of the samples that count. After `limit_s` what is left is not compared, and the result says so; indexing an
    evaluation source is not cut short. A source that cannot be read is named in the result and raises nothing.
    """
    names = training_sources(recipe) if training is None else training
    sources = evaluation_sources(recipe) if evaluation is None else evaluation
    if not names or not sources:
        return Leakage()
    deadline = time.monotonic() + limit_s if limit_s is not None else float("inf")
    overlaps: list[Overlap] = []
    not_compared: dict[str, str] = {}
    with TemporaryDirectory(prefix="distill-leakage-") as temporary:
        cache_folder = folder or Path(temporary)
        tests: list[source_overlap.Test] = []
        for name in sources:
            try:
                tests.append(source_overlap.Test.open(recipe, name, cache_folder / "tests" / name))
            except DataError as error:
                not_compared[name] = str(error)
        for name in names if tests else ():
            try:
                comparison = source_overlap.find(recipe, name, tests, cache_folder, deadline)
            except DataError as error:
                not_compared[name] = str(error)
                continue
            if not comparison.complete:
                not_compared[name] = (
                    f"only its first {counted(comparison.rows, 'row was', 'rows were')}, in the {limit_s:.0f} s that "
                    "were given"
                )
            overlaps += [comparison.overlap(test, (only or {}).get(name)) for test in tests]
    return Leakage(overlaps=tuple(overlaps), not_compared=not_compared)


def _learned_from_another(recipe: Recipe, run: Path) -> bool:
    """Whether a stage learned from another dataset than the present one, so that its training data are not known."""
    filtered = Manifest.read(run / "filter")
    trained = [Manifest.read(run / "train" / stage.name) for stage in recipe.stages]
    return filtered is not None and any(each is not None and not learned_from(each, filtered) for each in trained)


def in_dataset(recipe: Recipe, run: Path) -> set[str] | None:
    """The questions of the filtered dataset, if stages learn from what was asked through the dataset alone."""
    learned = {name for stage in recipe.stages for name in (stage.data, *stage.replay)}
    files = sorted(train_data_folder(run).glob("*.parquet"))
    arms = any(name.startswith(f"{TRACES}:") for name in learned)
    if not files or TRACES not in learned or ASKED in learned or arms:
        return None
    return {name for file in files for name in pq.read_table(file, columns=["sample_id"])["sample_id"].to_pylist()}
