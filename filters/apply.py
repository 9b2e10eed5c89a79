"""`distill filter`: measure every trace, decide by the recipe's rules, write the dataset and the report.

Signals are kept by partition and stay valid when the policy changes; decisions, dataset and report are computed from
them. The manifest is written last. This module sends no request to a teacher and needs no torch.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.artifacts import manifest
from distill.artifacts.files import Output, link_or_copy, locked, storage_errors
from distill.artifacts.integrity import changed, traces_digest
from distill.artifacts.layout import SAMPLE_PARTS, SIGNALS
from distill.artifacts.manifest import Manifest
from distill.data.arrow import leave_pandas_out
from distill.data.reader import source_fields
from distill.data.source_answer_types import load_answer_types
from distill.errors import RecipeError, StaleError
from distill.local_paths import run_command
from distill.machine.child_process import available_cores
from distill.machine.memory import give_back_memory
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.trace_records.human_labels import TraceLabel, read_labels
from distill.types import Progress, ProgressCallback, unwatched
from filters.dataset.card import VERSION
from filters.dataset.export_formats import format_codes
from filters.dataset.writer import DatasetWriter, LocalDataset
from filters.decisions import decide
from filters.decisions import rules as conditions
from filters.run_signals import corpus_duplicates, human_verdicts, question_duplicates
from filters.run_signals.shared_keys import Shared
from filters.signals import registry, schema
from filters.signals.base import Extractor
from filters.signals.families.contamination import Contamination
from filters.signals.schema import MODELS
from filters.tables import measure
from filters.tables.fork_server import count_traces, workers_for
from filters.tables.run_signal_tables import ModelSignal
from filters.tables.signal_database import Tables
from filters.tables.trace_index import PlannedTraces, index
from filters.tables.workers import Workers
from filters.text.minhash import Scheme
from filters.write_result import ResultWriter

_PACKAGING = "card and exports"
_FOLLOWING = ".filter.following"
"""In the run directory: the folder of the next result while it gets the signals of the last one."""
REMEDY = "`distill filter --fresh` filters again (valid signals are reused); `distill run --redo-stale`: all stages"


def apply(
    recipe: Recipe,
    run: Path | str,
    *,
    fresh: bool = False,
    measurers: Mapping[str, ModelSignal] | None = None,
    dataset: DatasetWriter | None = None,
    measured: "MeasuredElsewhere | None" = None,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Filter the traces of a run's finished generate stage; returns the manifest of `<run>/filter`.

    A finished stage of the same settings is returned as it is. `fresh` sets the old result aside and decides again;
    signals that are still valid are not measured again. Other traces than last time do the same: more questions were
    asked, say, or failed ones again. Signals that need a model come from `measurers`, by name
    (distill.wiring.model_signals). `dataset` writes the rows; without it processes of this machine do. With
    `measured`, processes of other machines have measured the traces. Raises
    RecipeError before anything is read when a rule cannot be right, StaleError when the stage was made from other
    settings, NothingKept when nothing is kept. If an export format of the user fails on all examples, it finishes
    the stage without exports and raises RecipeError.
    """
    started, run = time.monotonic(), Path(run)
    leave_pandas_out()
    measurers = measurers or {}
    rules = check(recipe, measurers)
    manifest.require(run, "generate", next_step=f"run {run_command('generate', recipe.path, run)} first")
    folder = run / "filter"
    with locked(run):
        if not folder.exists() and (following := folder.with_name(_FOLLOWING)).exists():
            following.rename(folder)  # its process was killed before it did so
        inputs = read_inputs(recipe, run, measurers)
        extractors, labels, fields = inputs.extractors, inputs.labels, inputs.fields
        if fresh or only_inputs_differ(Manifest.read(folder), fields):
            _start_over(folder)
        done = manifest.finished(folder, fields, remedy=REMEDY)
        if done is not None and inputs.packed(done) and not changed(folder, done.outputs.items()):
            return done
        (folder / manifest.MANIFEST).unlink(missing_ok=True)
        _remove_left(folder)  # by a run that was killed
        with Workers(recipe.filter.workers or workers_for(count_traces(run / "generate"))) as workers:
            dataset = dataset or LocalDataset(recipe)
            if measured is None:
                traces = index(run / "generate", folder / SAMPLE_PARTS, recipe.filter.partition_rows, workers)
            else:
                traces = measured.index
            traces.bring_images = dataset.bring_images
            give_back_memory()
            watch = _Watch(on_progress, "filter", traces.count)
            known: Mapping[Path, Output] = {}
            if measured is None:
                watch.measured(0, 0)  # a partition with a slow signal takes minutes
                signals = _measure_locally(recipe, traces, extractors, folder, watch, workers)
            else:
                known = measured.signals
                signals = tuple(known)
                watch.measured(traces.count, traces.count)
            shared = measured.shared if measured is not None else None
            side = _find_copies(recipe, traces, signals, shared, folder)
            side |= _measure_side(recipe, traces, measurers, labels, folder, watch)
            tables = Tables(signals=signals, side=side, columns=registry.columns(recipe))
            write = measured.write_decisions if measured is not None else None
            result = ResultWriter(recipe, rules, traces, tables, labels, folder, workers, dataset, known, write)
            counts, outputs, failure = result.write()
        _remove_left(folder)  # by a worker that was killed, whose task another one did again
        # Exports that failed are written by the next call; the dataset is finished without them.
        packaging = "" if failure is not None else inputs.packaging
        done = Manifest(
            stage="filter",
            fingerprint=manifest.fingerprint(fields),
            fields=fields,
            inputs={"generate": inputs.generated.fingerprint, _PACKAGING: packaging, **_test_sets(recipe)},
            outputs=outputs,
            counts=counts | {"measured": watch.count, "reused": watch.reused},
            versions=manifest.versions("duckdb", "pyarrow", "tokenizers", "rapidfuzz", "math-verify"),
            seconds=round(time.monotonic() - started, 3),
        ).write(folder)
        if failure is not None:
            raise failure
        return done


def _remove_left(folder: Path) -> None:
    for left in folder.rglob(".*.tmp"):
        if left.is_file():
            left.unlink()


def check(recipe: Recipe, measurers: Mapping[str, ModelSignal]) -> list[conditions.Condition]:
    """The rules of a recipe. RecipeError for one that cannot be right, and for a signal that nothing can measure."""
    load_answer_types(recipe)
    rules = conditions.check(recipe.filter, registry.columns(recipe))
    if missing := [name for name in MODELS if name in recipe.filter.signals and name not in measurers]:
        raise RecipeError(
            f"{recipe.path}: filter.signals asks for {', '.join(missing)}, which a model measures; hand in "
            "`distill.wiring.model_signals.measurers(recipe, run)`, as `distill filter` does"
        )
    return rules


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInputs:
    """What the result of a filter stage depends on: `fields`: all settings except card and exports; `packaging`: card
    and exports."""

    generated: Manifest
    extractors: tuple[Extractor, ...]
    labels: Mapping[str, TraceLabel]
    fields: dict[str, Any]
    packaging: str

    def packed(self, done: Manifest) -> bool:
        """Whether the card and the exports of a result were made with these settings."""
        return done.inputs.get(_PACKAGING) == self.packaging


def read_inputs(recipe: Recipe, run: Path, measurers: Mapping[str, ModelSignal]) -> FilterInputs:
    """The inputs of a run whose generate stage is finished. The caller holds the lock of the run."""
    generated = manifest.require(run, "generate", next_step=f"run {run_command('generate', recipe.path, run)} first")
    extractors, labels = registry.build(recipe, run / "filter"), read_labels(run)
    identities = registry.identity(extractors) | {
        name: dict(model_signal.identity) for name, model_signal in measurers.items()
    }
    if (scheme := corpus_scheme(recipe)) is not None:
        identities["corpus"] = scheme.as_fields()
    if "human" in recipe.filter.signals:
        identities["human"] = human_verdicts.identity(labels)
    identities["decisions"] = {"version": decide.VERSION}
    return FilterInputs(
        generated=generated,
        extractors=extractors,
        labels=labels,
        fields=manifest.flatten(_fields(recipe, generated, identities)),
        packaging=_packaging_fingerprint(recipe, labels),
    )


def _fields(recipe: Recipe, generated: Manifest, extractors: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the result depends on; how the work is cut into partitions and processes is not part of it."""
    return {
        **_policy(recipe),
        "extractors": extractors,
        "generate": {
            "fingerprint": generated.fingerprint,
            "outputs": traces_digest(generated),
        },
    }


def _policy(recipe: Recipe) -> dict[str, Any]:
    """The settings of the recipe that the result depends on."""
    policy = affecting(recipe.filter, "filter") | {"signals": list(registry.signal_names(recipe))}
    return {"filter": policy, "seed": recipe.seed}


def _test_sets(recipe: Recipe) -> dict[str, str]:
    """The content of the sources that traces are searched for, which `distill plan --diff` compares."""
    if Contamination.name not in registry.signal_names(recipe):
        return {}
    contents = {
        name: source_fields(recipe, name).get("content") for name in Contamination.from_recipe(recipe).sources
    }
    return {f"data.{name}.content": str(content) for name, content in contents.items() if content}


def require_same_policy(recipe: Recipe, run: Path) -> None:
    """Raise StaleError for a finished stage that other settings made. Signals and traces are not compared."""
    folder, now = run / "filter", manifest.flatten(_policy(recipe))
    done = Manifest.read(folder)
    if done is None:
        return
    before = {name: value for name, value in done.fields.items() if name in now or name.startswith("filter.")}
    if manifest.changes(before, now):
        raise StaleError(f"{folder} was made from other settings:\n{manifest.differences(before, now)}", REMEDY)


def corpus_scheme(recipe: Recipe) -> Scheme | None:
    """How texts are signed for near duplicates of the whole run; None where they are not looked for."""
    settings = recipe.filter
    return Scheme(shingle=settings.corpus.shingle) if "corpus" in settings.signals else None


def _packaging_fingerprint(recipe: Recipe, labels: Mapping[str, TraceLabel]) -> str:
    """Fingerprint of what affects only the card and the exports: a change makes no training stale."""
    settings = affecting(recipe.filter, "card")
    if labels:
        settings["labels"] = human_verdicts.identity(labels)
    if outside := format_codes(recipe.filter.exports, recipe.path.parent):
        settings["outside"] = outside
    return manifest.fingerprint(settings | {"version": VERSION})


def only_inputs_differ(before: Manifest | None, fields: dict[str, Any]) -> bool:
    """Whether the last result was made by the same settings from other traces or other labels."""
    changed = manifest.changes(before.fields, fields).keys() if before is not None else set()
    return bool(changed) and changed <= {"generate.fingerprint", "generate.outputs", human_verdicts.FIELD}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredElsewhere:
    """Traces that processes of other machines have measured."""

    index: PlannedTraces
    signals: Mapping[Path, Output]
    """The files that `filters.tables.measure.measure` would write, in order."""
    shared: Shared | None = None
    """The texts among which near duplicates are; None: all."""
    write_decisions: Callable[[Path], int] | None = None
    """Writes the decision table, and gives its rows; None where this process decides."""


def _measure_locally(
    recipe: Recipe,
    traces: PlannedTraces,
    extractors: tuple[Extractor, ...],
    folder: Path,
    watch: "_Watch",
    workers: Workers,
) -> tuple[Path, ...]:
    """Every signal of one trace or one sample that the recipe asks for, partition by partition."""
    return measure.measure(
        traces,
        extractors,
        folder / SIGNALS,
        scheme=corpus_scheme(recipe),
        workers=workers,
        readers=recipe.filter.workers or available_cores(),
        on_done=watch.measured,
        on_read=watch.images_read,
    )


def _find_copies(
    recipe: Recipe, traces: PlannedTraces, signals: tuple[Path, ...], shared: Shared | None, folder: Path
) -> dict[str, tuple[Path, ...]]:
    """Near duplicates of the whole run, if the recipe asks for them; their file by the name of the family."""
    scheme, threshold = corpus_scheme(recipe), recipe.filter.corpus.threshold
    if scheme is None:
        return {}
    path = corpus_duplicates.write(traces, signals, folder / "corpus", scheme, threshold, shared)
    give_back_memory()
    return {"corpus": (path,)}


def _measure_side(
    recipe: Recipe,
    traces: PlannedTraces,
    measurers: Mapping[str, ModelSignal],
    labels: Mapping[str, TraceLabel],
    folder: Path,
    watch: "_Watch",
) -> dict[str, tuple[Path, ...]]:
    """All else that the recipe asks for across partitions, of people or of models; the files of each family."""
    settings = recipe.filter
    side: dict[str, tuple[Path, ...]] = {}
    if "question" in settings.signals:
        traces.copy_samples()
        side["question"] = (
            question_duplicates.write(
                traces.samples,
                range(len(traces.digests)),
                folder / "question",
                max_pixels=recipe.max_pixels,
                workers=settings.workers or available_cores(),
                bring_images=traces.bring_images,
            ),
        )
    if "human" in settings.signals:
        side["human"] = (human_verdicts.write(labels, folder / "human"),)
    for name, measurer in measurers.items():
        side[name] = tuple(measurer(traces.items(), watch.beside(f"filter: {name}").measured_beside))
    return side


def _start_over(folder: Path) -> None:
    """Set the last result aside; the new one starts from its signals, which are checked before they are reused."""
    if not (folder / manifest.MANIFEST).exists():
        return
    following = folder.with_name(_FOLLOWING)
    with storage_errors(folder):
        shutil.rmtree(following, ignore_errors=True)
        following.mkdir()
        measured = (folder / name for name in (SIGNALS, registry.TEST_SETS, *schema.SIDE))
        for path in (path for signal_folder in measured for path in signal_folder.rglob("*") if path.is_file()):
            new = following / path.relative_to(folder)
            new.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".jsonl":  # a journal only grows, and files that were moved aside do not change
                shutil.copy2(path, new)
            else:
                link_or_copy(path, new)
        manifest.set_aside(folder)
        following.rename(folder)


class _Watch:
    """Counts measured and reused traces and reports the progress."""

    def __init__(self, on_progress: ProgressCallback, stage: str, total: int) -> None:
        self.count = self.reused = 0
        self._on_progress, self._stage, self._total = on_progress, stage, total

    def beside(self, stage: str) -> "_Watch":
        """Counts of its own for the same watcher."""
        return _Watch(self._on_progress, stage, self._total)

    def measured_beside(self, rows: int, reused: bool) -> None:
        self.measured(rows, rows if reused else 0)

    def images_read(self, read: int, images: int) -> None:
        """Report so many images of which OCR has read the text."""
        self._on_progress(Progress(stage="filter: ocr", done=read, total=images, unit="images"))

    def measured(self, rows: int, reused: int) -> None:
        """Add `rows` finished traces, of which the values of `reused` were reused."""
        self.reused += reused
        self.count += rows - reused
        self._on_progress(
            Progress(
                stage=self._stage,
                done=self.count + self.reused,
                total=self._total,
                unit="traces",
                facts={"reused": self.reused},
            )
        )
