"""The parts of one training stage, in order: model, rows, memory plan, step dataset, weights. Each part uses the
results of the parts before it.

student/training/stage.py calls them in their order; student/training/stage_manifest.py ends the stage. Does not
decide which stages run (student/train.py) and holds no training loop (student/training/loop/trainer.py).
"""

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel, ProcessorMixin

from distill.artifacts.files import write_json
from distill.artifacts.layout import (
    CACHE,
    CHECKPOINTS,
    COVERAGE,
    DISTRIBUTIONS,
    METRICS,
    PARTS,
    REFERENCE,
    ROWS,
    SETTINGS,
    WEIGHTS,
)
from distill.artifacts.manifest import begin, fingerprint
from distill.data.source_images import ImagesRead
from distill.errors import TooFewRows
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import AUTO, Stage
from distill.recipe.sections.student import Student
from distill.types import Progress, ProgressCallback
from student.data import image_tokens, rows, scored_rollouts, teacher_logprobs
from student.data.collate import collate
from student.data.encode import Encoder, Examples, RowLimits, encode
from student.data.encoded_rows import MappedRows, whole_pairs, write_rows
from student.data.image_tokens import ImageEncoder, TokenStore
from student.data.images import ImageStore
from student.data.teacher_logprobs import TopLogprobs
from student.data.visual_weights import VisualWeights
from student.distributed import own_disks, processes
from student.loss import training_loss
from student.models import attention, freeze, kernels
from student.models.flops import Cost
from student.models.inputs import type_name
from student.models.library_output import hide_library_output
from student.models.parts import Parts, find_parts
from student.training import freeze_checks, kernel_choice, reference, step_dataset
from student.training.checkpoints import checkpoint_files as checkpoints
from student.training.checkpoints import saved_model
from student.training.cost import memory
from student.training.loop import metrics_log, shared_memory, trainer
from student.training.loop.metrics_log import StepLog
from student.training.stage import Session
from student.training.step_dataset import StepDataset
from student.validation import early_stopping, measure


@dataclass(slots=True, kw_only=True)
class StageRun:
    """One stage while it is trained. Each method is one step and leaves its results here; all processes take part."""

    recipe: Recipe
    run: Path
    stage: Stage
    """From `plan_memory` on with the settings that fit the memory."""
    fields: Mapping[str, Any]
    """The settings that the fingerprint covers."""
    start: Path | None
    """The model folder of the stage before; None: the recipe's student."""
    session: Session
    on_progress: ProgressCallback
    begun: float = field(default_factory=time.perf_counter)

    processor: ProcessorMixin = field(init=False)
    model: PreTrainedModel = field(init=False)
    parts: Parts = field(init=False)
    store: ImageStore = field(init=False)
    encoder: Encoder = field(init=False)
    examples: Examples = field(init=False)
    held_out: Examples = field(init=False)
    """Rows that validation measures and the stage does not train on."""
    row_identity: dict[str, Any] = field(init=False)
    """The number of rows, those held out included, and their digest."""
    row_counts: dict[str, int] = field(init=False)
    """Rows held out and images made smaller, where there can be any."""
    student: PreTrainedModel | PeftModel = field(init=False)
    """The model as it is trained: with adapters, everything else frozen."""
    table: list[freeze.PartRow] = field(init=False)
    frozen: dict[str, str] = field(init=False)
    """Digests of the frozen tensors before training."""
    distributions: TopLogprobs | None = field(init=False)
    images: ImageStore | TokenStore = field(init=False)
    steps: StepDataset = field(init=False)
    kernels: dict[str, Any] | None = None
    last: StepLog = field(init=False)

    @property
    def folder(self) -> Path:
        return self.run / "train" / self.stage.name

    @property
    def settings(self) -> Student:
        assert self.recipe.student is not None
        return self.recipe.student

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.settings.dtype)
        return dtype

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def max_pixels(self) -> int:
        return rows.max_pixels(self.recipe, self.stage)

    def note_settings(self) -> None:
        """Write down what the stage is trained with. Raises StaleError where it was begun with other settings."""
        if processes.is_main():
            begin(
                self.folder / SETTINGS,
                self.fields,
                begun=any(self.folder.glob(f"{CHECKPOINTS}/*")),
                remedy="undo the change to resume it, or begin it again: "
                f"`distill train --stage {self.stage.name} --fresh`",
            )

    def load_model(self, *, again: bool) -> None:
        """Load the start model; `again`: a later stage of this command starts from the same."""
        with hide_library_output():
            self.model, self.processor = self.session.start_models.get(self.recipe, self.start, again=again)
        self.parts = find_parts(self.model)

    def read_rows(self) -> None:
        """Read and tokenise the rows, and hold some out for validation. Raises TooFewRows where none can be used."""
        readable = self._readable()
        self.row_identity = {"count": len(readable), "sha256": readable.digest}
        checkpoints.require_same_rows(self.folder, self.row_identity)
        self.examples, self.held_out = measure.split_held_out(readable, self.stage)
        step_dataset.require_something_to_learn(self.examples, self.stage)
        self.row_counts = {"held_out": len(self.held_out)} if self.stage.validation is not None else {}
        self.row_counts |= {"shrunk": readable.shrunk} if readable.shrunk else {}
        if self.stage.replay:
            own = np.asarray(self.examples.columns.sources) == self.stage.data
            self.row_counts |= {"replayed": int(np.count_nonzero(~own))}
        if self.stage.preference is not None:
            right, wrong = self.examples.columns.responses.reshape(-1, 2).sum(0).tolist()
            self.row_counts |= {"right_tokens": right, "wrong_tokens": wrong}
        dropped = dict(sorted(readable.dropped.items()))
        self._report("read", len(readable), len(readable), "rows", dropped | self.row_counts | self.store.facts)

    def _readable(self) -> Examples:
        # Several processes read images from one cache on disk, and the pages of it that are in memory are shared.
        memory_bytes = int(self.settings.image_memory_gb * 1e9) if processes.count() == 1 else 0
        self.session.store = self.session.store or ImageStore(
            self.processor,
            self.dtype,
            memory_bytes=memory_bytes,
            disk_bytes=int(self.settings.image_disk_gb * 1e9),
            folder=self.run / "train" / CACHE,
        )
        self.store = self.session.store
        self.encoder = Encoder.of(self.model, self.processor)
        path = self.folder / ROWS
        own_disks.bring(rows.data_folder(self.run, self.stage))
        # One process for each disk reads every row and image; the others map its file.
        counts = own_disks.share_on_disk(self._write_rows(path) if own_disks.writes() else None)
        return Examples(MappedRows(path), **counts)

    def _write_rows(self, path: Path) -> dict[str, Any]:
        """Encode the rows into a file, and count those that were left out or changed."""
        dropped: Counter[str] = Counter()
        visual = VisualWeights.of_stage(self.run, self.stage, self._text_of) if self.stage.visual else None
        weighted = visual.weighted if visual is not None else iter
        if self.stage.rollouts is not None:
            weighted = partial(scored_rollouts.scored_alone, self.run, self.stage, dropped)
            dropped += scored_rollouts.count_left_out(rows.data_folder(self.run, self.stage))
        images = ImagesRead(self.recipe)
        examples = encode(
            images.noting(rows.read(self.recipe, self.run, self.stage, dropped)),
            self.encoder,
            self.store,
            RowLimits(self.stage.max_length, self.max_pixels, self.stage.too_long),
            dropped=dropped,
            into=lambda examples: write_rows(
                path, whole_pairs(examples, dropped) if self.stage.preference else weighted(examples)
            ),
        )
        images.write(self.folder)
        if visual is not None:
            self._note_weights(visual)
        # Replayed rows alone have no share of the tokens.
        if not len(examples) or (self.stage.replay and self.stage.data not in examples.columns.sources):
            reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(dropped.items()))
            raise TooFewRows(
                f"stage '{self.stage.name}': no row of data = {self.stage.data!r} can be trained on "
                f"({reasons or 'the data is empty'}); max_length is {self.stage.max_length:,} tokens with images"
            )
        return {"dropped": dropped, "shrunk": examples.shrunk}

    def _note_weights(self, visual: VisualWeights) -> None:
        """Write down how many tokens have a weight by the image."""
        covered, traces = visual.coverage, visual.coverage.traces
        write_json(self.folder / WEIGHTS, asdict(covered) | {"unscored": visual.unscored})
        facts = {"weighed": f"{100 * covered.share:.1f} % of their tokens", "unscored": visual.unscored}
        self._report("weigh", traces, traces + visual.unscored, "traces", facts)

    def _text_of(self, ids: list[int]) -> str:
        """The text of token ids, special tokens left out."""
        return str(self.processor.tokenizer.decode(ids, skip_special_tokens=True))

    def prepare_model(self) -> None:
        """Give the model our loss, attention and kernels, add adapters, and freeze everything else."""
        model = self.model
        training_loss.require_plain_head(model, torch.tensor([self.encoder.prompts([("?", 0)])[0]]), type_name(model))
        training_loss.attach(model)
        name = attention.choose(self.settings.attention, self.device, model.dtype)
        if reason := attention.use_fitting(model, name, type_name(model)):
            self._report("pad", len(self.examples), len(self.examples), "rows", {"not packed": reason})
        kernels.apply(self.stage.kernels, model, self.parts)
        torch.manual_seed(self.recipe.seed)
        with hide_library_output():
            self.student = freeze.prepare(model, self.parts, self.stage.train, self.stage.lora)

    def plan_memory(self) -> None:
        """Settle micro-batches and gradient checkpointing by the memory of the device."""
        patches_per_token = Cost.of(self.student, self.parts).patches_per_token
        settled = memory.settled(
            self.stage,
            self.model,
            self.parts,
            patches_per_token=self.examples.image_share(self.encoder.image_id) * patches_per_token,
            available=memory.available(self.device),
        )
        # Every process plans the steps of all processes, with the pass size of the device with the least memory.
        tokens = min(processes.gather(memory.as_begun(settled, self.stage, checkpoints.begun_parts(self.folder))))
        self.stage = settled.model_copy(update={"micro_batch_tokens": tokens})

    def note_parts(self) -> None:
        """Write down which parts are trained, and the digests of those that are not."""
        self.table = freeze.table(self.student, self.parts)
        self.frozen = freeze_checks.frozen_digests(self.student, self.parts)
        if processes.is_main():
            write_json(
                self.folder / PARTS,
                {
                    "parts": [asdict(row) for row in self.table],
                    "frozen_sha256": freeze_checks.by_role(self.frozen, self.parts),
                    "rows": self.row_identity,
                    "gradient_checkpointing": self.stage.gradient_checkpointing,
                    "micro_batch_tokens": self.stage.pass_tokens,
                    **({"kernels": self.kernels} if self.kernels else {}),
                },
            )

    def read_distributions(self) -> None:
        """Read the teachers' log-probabilities of a stage that distils; the main process reads for all."""
        self.distributions = self._distributions() if processes.is_main() else None
        width = processes.share(self.distributions.width if self.distributions is not None else None)
        if width is not None:
            own_disks.bring(self.folder / DISTRIBUTIONS)
            self.distributions = self.distributions or TopLogprobs(self.folder / DISTRIBUTIONS, width)

    def _distributions(self) -> TopLogprobs | None:
        distill = self.stage.divergence
        if distill is None:
            return None
        own = self.stage.rollouts is not None  # a student may say special tokens, too
        stored = max((teacher.logprobs for teacher in self.recipe.teachers), default=distill.top_k)
        distributions, coverage = teacher_logprobs.of_examples(
            self.run,
            self.examples.rows,
            self.stage,
            top_k=distill.top_k if own else min(distill.top_k, stored),
            decode=self.processor.tokenizer.decode if own else self._text_of,
            folder=self.folder / DISTRIBUTIONS,
        )
        teachers = dict(sorted(coverage.items()))
        by_teacher = {name: asdict(covered) for name, covered in teachers.items()}
        write_json(self.folder / COVERAGE, {"rows": len(self.examples), "teachers": by_teacher})
        self._report(
            "distributions",
            sum(covered.traces for covered in teachers.values()),
            len(self.examples),
            "rows",
            {name: f"{100 * covered.share:.1f} % of its tokens" for name, covered in teachers.items()},
        )
        return distributions

    def encode_images(self) -> None:
        """Compute image tokens once where the stage trains nothing that they go through."""
        encoder = ImageEncoder(
            model=self.model,
            parts=self.parts,
            store=self.store,
            image_id=self.encoder.image_id,
            max_pixels=self.max_pixels,
            folder=self.run / "train" / CACHE,
        )
        count = processes.share(encoder.count(self.examples) if processes.is_main() else None)
        with own_disks.writer_first():
            self.images = image_tokens.for_stage(
                encoder,
                self.examples,
                self.recipe,
                self.stage,
                count=count,
                device=self.device,
                on_progress=self.on_progress,
            )

    def build_steps(self) -> None:
        """Plan which rows every step holds."""
        rows = self.examples, self.images, self.stage, self.encoder
        self.steps = step_dataset.build_step_dataset(
            self.student,
            self.parts,
            collate(self.student, *rows, max_pixels=self.max_pixels, raw_pixels=True),
            self.stage,
            seed=self.recipe.seed,
            distributions=self.distributions,
            process=processes.rank(),
            processes=processes.count(),
        )
        if self.stage.preference is not None:
            self.steps.reference = processes.share(self._reference() if processes.is_main() else None)

    def _reference(self) -> np.ndarray:
        """Log-probabilities of all pairs under the start student; its adapters change nothing yet."""
        student, count = self.student.to(self.device), len(self.examples)
        path = self.folder / REFERENCE
        self._report("reference", count, count, "rows", {})
        return reference.stored_or_computed(
            student, self.steps, count, self.stage, path, fingerprint({**self.fields, "rows": self.row_identity})
        )

    def choose_kernels(self) -> None:
        """Settle `kernels = "auto"`: those that the stage was begun with, or the fastest in the main process."""
        if self.stage.kernels == AUTO:
            made = (self.student, self.model, self.parts, self.steps, self.stage, self.device)
            self.kernels = kernel_choice.kept(checkpoints.begun_parts(self.folder), *made)
            self.stage = self.stage.model_copy(update={"kernels": self.kernels["kernels"]})
            self._report("kernels", 1, 1, "choices", {"kept": self.kernels["why"]})

    def train(self) -> None:
        """Train from the last checkpoint, measuring on the way; then check that nothing frozen has changed."""
        made = (self.student, self.encoder, self.store, self.held_out, self.on_progress)
        validation = early_stopping.early_stopping_of(self.recipe, self.stage, self.folder, *made)
        done = checkpoints.last_step(self.folder / CHECKPOINTS)
        # The manifest has the seconds of all commands that worked on this stage.
        self.begun -= metrics_log.seconds_before(self.folder / CHECKPOINTS)
        log = metrics_log.journal(self.folder / METRICS, done) if processes.is_main() else nullcontext()
        reached, notices, workers = done, dict[str, Any](), step_dataset.decoding_processes(self.images)
        with log as metrics:

            def on_log(entry: StepLog) -> None:
                if metrics is not None:
                    metrics.append(asdict(entry))
                nonlocal reached
                reached = entry.step
                facts = {"loss": entry.loss, "tokens/s": round(entry.tokens_per_s)} | notices
                self._report("train", entry.step, entry.steps, "steps", facts)

            def on_notice(text: str) -> None:
                notices["now"] = text
                self._report("train", reached, len(self.steps.plan), "steps", notices)

            self.last = trainer.fit(
                self,
                workers=shared_memory.affordable(workers, self.steps, on_notice),
                on_log=on_log,
                on_notice=on_notice,
                early_stopping=validation,
            )
        freeze_checks.require_equal(self.frozen, freeze_checks.frozen_digests(self.student, self.parts))

    def save_model(self) -> None:
        """Gather the student in the main process, and write it and its adapters there."""
        with hide_library_output():
            student = saved_model.gather_student(self.student, self.recipe, self.stage, self.start, self.parts)
            if processes.is_main():
                merged = self.stage.lora is not None
                saved_model.save_stage_model(self.folder, student, self.processor, self.parts, merged=merged)

    def _report(self, step: str, done: int, total: int, unit: str, facts: Mapping[str, Any]) -> None:
        name = f"{step} {self.stage.name}"
        self.on_progress(Progress(stage=name, done=done, total=total, unit=unit, facts=dict(facts)))
