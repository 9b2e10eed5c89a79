"""The manifest and the diagnosis of a training stage, written when its student is saved."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson

from distill.artifacts.files import describe, write_json
from distill.artifacts.layout import ADAPTER, COVERAGE, DIAGNOSIS, IMAGES, METRICS, MODEL, PARTS, WEIGHTS
from distill.artifacts.manifest import Manifest, canonical, fingerprint, versions
from distill.diagnosis.row_groups import as_fields
from distill.reports import findings
from student.training import diagnosis
from student.training.trained_rows import read_trained_rows

if TYPE_CHECKING:
    from student.training.stage_run import StageRun

_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "tokenizers")


def write_manifest(work: "StageRun") -> Manifest:
    """Write the diagnosis, then the manifest, which marks the stage as finished. For the main process only."""
    from student.training import freeze_checks

    folder, frozen = work.folder, freeze_checks.by_role(work.frozen, work.parts)
    counts = _counts(work)
    facts = diagnosis.read_facts(work.recipe, work.stage, folder, counts)
    found = findings.chosen(diagnosis.diagnose(facts))
    write_json(folder / DIAGNOSIS, {"diagnosis": found} | as_fields(read_trained_rows(work)))
    return Manifest(
        stage=f"train {work.stage.name}",
        fingerprint=fingerprint(work.fields),
        fields=orjson.loads(canonical(work.fields)),
        inputs={f"frozen.{role}": digest for role, digest in frozen.items()}
        | ({"kernels": work.kernels["kernels"]} if work.kernels else {}),
        outputs={file.relative_to(folder).as_posix(): describe(file) for file in _outputs(work)},
        counts=counts,
        tokens={
            "trained": work.last.tokens,
            "response": work.last.response_tokens,
            "own_response": _own_response_tokens(work),
        },
        versions=versions(*_PACKAGES),
        seconds=round(time.perf_counter() - work.begun, 3),
    ).write(folder)


def _counts(work: "StageRun") -> dict[str, int]:
    from student.validation import early_stopping

    kept = early_stopping.kept_step(work.stage.validation, work.folder, work.last.step)
    return {
        "rows": len(work.examples),
        **work.row_counts,
        "steps": work.last.step,
        **({"kept_step": kept} if kept is not None else {}),
        "responses": work.last.responses,
        "images": work.last.images,
        "trainable_parameters": sum(row.trainable for row in work.table),
        "parameters": sum(row.parameters for row in work.table if row.part != "adapters"),
        **{f"dropped_{reason}": count for reason, count in sorted(work.examples.dropped.items())},
    }


def _own_response_tokens(work: "StageRun") -> int:
    """Tokens of the responses of the stage's own rows, each once: replayed ones have another length."""
    columns = work.examples.columns
    return int(columns.responses[np.asarray(columns.sources) == work.stage.data].sum())


def _outputs(work: "StageRun") -> list[Path]:
    """The files that the stage leaves, sorted."""
    from student.validation import early_stopping

    folder, stage = work.folder, work.stage
    files = [*(folder / MODEL).iterdir(), folder / METRICS, folder / PARTS, folder / DIAGNOSIS]
    files += [*(folder / ADAPTER).iterdir()] if stage.lora else []
    files += [folder / COVERAGE] if stage.divergence else []
    files += [folder / WEIGHTS] if stage.visual else []
    files += [folder / IMAGES] if (folder / IMAGES).is_file() else []
    files += [path for path in early_stopping.output_files(folder) if path.is_file()] if stage.validation else []
    return sorted(files)
