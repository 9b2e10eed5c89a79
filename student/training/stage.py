"""One training stage, from its start model to the saved student: rows, freeze, fit, proof, merge, manifest.

Does not decide which stages run (student/train.py) and holds no training loop (student/training/trainer.py).
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from distill.artifacts.files import describe, write_json
from distill.artifacts.layout import (
    ADAPTER,
    CACHE,
    CHECKPOINTS,
    COVERAGE,
    DISTRIBUTIONS,
    METRICS,
    MODEL,
    PARTS,
    SETTINGS,
)
from distill.artifacts.manifest import Manifest, begin, canonical, fingerprint, versions
from distill.data.source_images import pictures_of
from distill.errors import DataError, InputError, RecipeError
from distill.recipe.recipe import Recipe
from distill.recipe.stages import Stage
from distill.types import Progress, ProgressCallback
from student.data import rows
from student.distributed import processes
from student.models.inputs import end_ids, pad_id, type_name
from student.training import saved_model
from student.training.session import Session

if TYPE_CHECKING:
    import torch

    from student.data.encode import Encoder, Examples
    from student.data.image_tokens import TokenStore
    from student.data.images import ImageStore
    from student.data.teacher_logprobs import TopLogprobs
    from student.models.siq_vl import Parts
    from student.training.metrics_log import StepLog

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "tokenizers")


def run(
    recipe: Recipe,
    run_folder: Path,
    stage: Stage,
    fields: Mapping[str, Any],
    *,
    start: Path | None,
    again: bool,
    session: Session,
    on_progress: ProgressCallback,
) -> Manifest | None:
    """Train one stage from `start` (None: the base student) and leave its model; resumes from its checkpoints.

    `again`: a later stage of this command starts from the same.
    Every process of a run takes part. The main one writes all files and gives back the manifest, the others None.
    """
    import torch

    from student.data import image_tokens
    from student.models import freeze
    from student.models.flops import Cost
    from student.models.quiet import quiet
    from student.models.siq_vl import parts as find_parts
    from student.training import checkpoints, freeze_checks, memory, metrics_log, trainer
    from student.training.step_dataset import feed, require_something_to_learn
    from student.validation import early_stopping, measure

    begun = time.perf_counter()
    assert recipe.student is not None
    folder = run_folder / "train" / stage.name
    for problem in requirement_problems(recipe, stage):
        raise problem
    main = processes.is_main()
    if main:
        begin(
            folder / SETTINGS,
            fields,
            begun=any(folder.glob(f"{CHECKPOINTS}/*")),
            remedy="take the change back to resume it, or add --fresh "
            f"(with --stage {stage.name} for this stage alone)",
        )
    dtype = getattr(torch, recipe.student.dtype)
    with quiet():
        model, processor = session.bases.take(recipe, start, again=again)
    parts = find_parts(model)
    with processes.main_first():
        encoder, readable = _examples(recipe, run_folder, stage, model, processor, dtype, session)
    examples, kept_out = measure.split(readable, stage)
    require_something_to_learn(examples, stage)
    held_out = {"held_out": len(kept_out)} if stage.validation is not None else {}
    shrunk = {"shrunk": readable.shrunk} if readable.shrunk else {}
    assert session.store is not None
    on_progress(
        Progress(
            stage=f"read {stage.name}",
            done=len(readable),
            total=len(readable),
            unit="rows",
            facts={**dict(sorted(readable.dropped.items())), **shrunk, **held_out, **session.store.facts},
        )
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    student = _ready(recipe, stage, model, parts, encoder, device)
    stage = memory.settled(
        stage,
        model,
        parts,
        patches_per_token=examples.image_share(encoder.image_id) * Cost.of(student, parts).patches_per_token,
        available=memory.available(device),
    )
    table = freeze.table(student, parts)
    frozen = freeze_checks.frozen_digests(student, parts)
    if main:
        write_json(
            folder / PARTS,
            {
                "parts": freeze.table_values(table),
                "frozen_sha256": freeze_checks.by_role(frozen, parts),
                "gradient_checkpointing": stage.gradient_checkpointing,
            },
        )

    distributions = processes.share(
        _distributions(recipe, run_folder, stage, examples, processor, on_progress) if main else None
    )
    with processes.main_first():
        pictures = image_tokens.for_stage(
            model,
            parts,
            session.store,
            examples,
            stage,
            recipe.student,
            image_id=encoder.image_id,
            max_pixels=rows.max_pixels(recipe, stage),
            folder=run_folder / "train" / CACHE,
            device=device,
            sharers=image_tokens.sharing(recipe.stages, stage),
            on_progress=on_progress,
        )
    made = feed(
        student,
        parts,
        examples,
        pictures,
        stage,
        image_id=encoder.image_id,
        pad_id=pad_id(processor),
        max_pixels=rows.max_pixels(recipe, stage),
        type_name=type_name(model),
        seed=recipe.seed,
        distributions=distributions,
        process=processes.rank(),
        processes=processes.count(),
    )
    watched = early_stopping.of_stage(
        recipe, stage, folder, student, processor, encoder, session.store, kept_out, on_progress
    )
    with (
        metrics_log.journal(folder / METRICS, checkpoints.last_step(folder / CHECKPOINTS)) if main else nullcontext()
    ) as metrics:

        def on_log(log: "StepLog") -> None:
            if metrics is not None:
                metrics.append(asdict(log))
            on_progress(
                Progress(
                    stage=f"train {stage.name}",
                    done=log.step,
                    total=log.steps,
                    unit="steps",
                    facts={"loss": log.loss, "tokens/s": round(log.tokens_per_s)},
                )
            )

        last = trainer.fit(
            student,
            processor,
            parts,
            made,
            stage,
            folder=folder / CHECKPOINTS,
            seed=recipe.seed,
            dtype=dtype,
            workers=_workers(pictures),
            on_log=on_log,
            watch=watched,
        )
    freeze_checks.require_equal(frozen, freeze_checks.frozen_digests(student, parts))
    with quiet():
        student = saved_model.whole(student, recipe, stage, start, parts)
        if not main:
            return None
        saved_model.save(folder, student, processor, parts, merged=stage.lora is not None)
    manifest = Manifest(
        stage=f"train {stage.name}",
        fingerprint=fingerprint(fields),
        fields=orjson.loads(canonical(fields)),
        inputs={f"frozen.{role}": digest for role, digest in freeze_checks.by_role(frozen, parts).items()}
        | pictures_of(recipe, rows.sources_of(stage)),
        outputs={file.relative_to(folder).as_posix(): describe(file) for file in _outputs(folder, stage)},
        counts={
            "rows": len(examples),
            **held_out,
            **shrunk,
            "steps": last.step,
            "images": last.images,
            "trainable_parameters": sum(row.trainable for row in table),
            "parameters": sum(row.parameters for row in table),
            **{f"dropped_{reason}": count for reason, count in sorted(examples.dropped.items())},
        },
        tokens={"trained": last.tokens, "response": last.response_tokens},
        versions=versions(*PACKAGES),
        seconds=round(time.perf_counter() - begun, 3),
    ).write(folder)
    clean(folder)
    return manifest


def requirement_problems(recipe: Recipe, stage: Stage) -> Iterator[InputError]:
    """Everything that a stage asks for and that is not here: RecipeError, ModelError, MissingExtra."""
    from student.models import attention, kernels, lora
    from student.training import sft_config

    assert recipe.student is not None
    if recipe.student.dtype == "float16":
        yield RecipeError("student.dtype = 'float16': gradients overflow there; train in bfloat16 or float32")
    checks: tuple[Callable[[], None], ...] = (
        partial(lora.require, stage.lora),
        partial(kernels.require, stage),
        partial(attention.require, recipe.student.attention),
        partial(sft_config.require, stage),
    )
    for check in checks:
        try:
            check()
        except InputError as error:
            yield error


def _ready(
    recipe: Recipe, stage: Stage, model: Any, parts: "Parts", encoder: "Encoder", device: "torch.device"
) -> Any:
    """A loaded model as its stage trains it: our loss, attention and kernels, everything else frozen."""
    import torch

    from student.models import attention, freeze, kernels, loss_head
    from student.models.quiet import quiet

    assert recipe.student is not None
    loss_head.require_plain_head(model, torch.tensor([encoder.prompts([("?", 0)])[0]]), type_name(model))
    loss_head.attach(model)
    attention.use(model, attention.choose(recipe.student.attention, device, model.dtype))
    kernels.apply(stage.kernels, model, parts)
    torch.manual_seed(recipe.seed)
    with quiet():
        return freeze.prepare(model, parts, stage.train, stage.lora)


def _outputs(folder: Path, stage: Stage) -> list[Path]:
    """The files that a stage leaves, sorted."""
    from student.validation import early_stopping

    files = [*(folder / MODEL).iterdir(), folder / METRICS, folder / PARTS]
    files += [*(folder / ADAPTER).iterdir()] if stage.lora else []
    files += [folder / COVERAGE] if stage.distill else []
    files += [path for path in early_stopping.files(folder) if path.is_file()] if stage.validation else []
    return sorted(files)


def clean(folder: Path) -> None:
    """Remove what only an unfinished stage needs."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    shutil.rmtree(folder / DISTRIBUTIONS, ignore_errors=True)
    (folder / SETTINGS).unlink(missing_ok=True)


def _examples(
    recipe: Recipe, run_folder: Path, stage: Stage, model: Any, processor: Any, dtype: Any, session: Session
) -> "tuple[Encoder, Examples]":
    from student.data.encode import Encoder, encode
    from student.data.images import ImageStore

    assert recipe.student is not None
    session.store = session.store or ImageStore(
        processor,
        dtype,
        memory_bytes=int(recipe.student.image_memory_gb * 1e9),
        disk_bytes=int(recipe.student.image_disk_gb * 1e9),
        folder=run_folder / "train" / CACHE,
    )
    dropped: Counter[str] = Counter()
    encoder = Encoder(processor, end_ids(model))
    examples = encode(
        rows.read(recipe, run_folder, stage, dropped),
        encoder,
        session.store,
        max_length=stage.max_length,
        max_pixels=rows.max_pixels(recipe, stage),
        too_long=stage.too_long,
        dropped=dropped,
    )
    if not len(examples):
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(dropped.items())) or "the data is empty"
        raise DataError(
            f"stage '{stage.name}': no row of data = {stage.data!r} can be trained on ({reasons}); "
            f"max_length is {stage.max_length} tokens, image tokens included"
        )
    return encoder, examples


def _distributions(
    recipe: Recipe,
    run_folder: Path,
    stage: Stage,
    examples: "Examples",
    processor: Any,
    on_progress: ProgressCallback,
) -> "TopLogprobs | None":
    """The teachers' distributions for the rows of a stage that distils; says how much they cover."""
    from student.data import teacher_logprobs

    if stage.distill is None:
        return None
    folder = run_folder / "train" / stage.name
    stored = max((teacher.logprobs for teacher in recipe.teachers), default=stage.distill.top_k)
    found, coverage = teacher_logprobs.of_examples(
        run_folder / "generate",
        examples.rows,
        top_k=min(stage.distill.top_k, stored),
        decode=lambda ids: str(processor.tokenizer.decode(ids, skip_special_tokens=True)),
        folder=folder / DISTRIBUTIONS,
    )
    by_teacher = {name: asdict(of_teacher) for name, of_teacher in sorted(coverage.items())}
    write_json(folder / COVERAGE, {"rows": len(examples), "teachers": by_teacher})
    on_progress(
        Progress(
            stage=f"distributions {stage.name}",
            done=sum(of_teacher.traces for of_teacher in coverage.values()),
            total=len(examples),
            unit="rows",
            facts={name: f"{of_teacher.share:.1%} of its tokens" for name, of_teacher in sorted(coverage.items())},
        )
    )
    return found


def _workers(store: "ImageStore | TokenStore") -> int:
    """Processes that decode images: none while all features are in memory."""
    import os

    return min(4, max(1, (os.cpu_count() or 1) // processes.local_count())) if store.full else 0
