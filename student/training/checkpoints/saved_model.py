"""What a finished stage leaves: the student, its adapters, and the manifest. A model folder is complete or absent."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.artifacts.files import storage_errors
from distill.artifacts.integrity import require_whole
from distill.artifacts.layout import ADAPTER, MODEL
from distill.artifacts.manifest import Manifest
from distill.local_paths import as_argument
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage
from distill.word_tables import counted
from student.distributed import processes
from student.models import start_model

if TYPE_CHECKING:
    from student.models.parts import Parts


def require_saved(run: Path, stage: str, *, digests: bool = False) -> None:
    """Raise DataError when the student of a finished stage was changed; with `digests` its content is compared."""
    folder = run / "train" / stage
    manifest = Manifest.read(folder)
    if manifest is not None:
        remedy = (
            f"put a copy of them back, or let `distill repair {as_argument(run)} --apply` set them aside, after "
            f"which `distill train` trains this stage again ({counted(manifest.counts.get('steps', 0), 'step')}, "
            f"{manifest.seconds:,.0f} s last time)"
        )
        require_whole(folder, manifest, below=f"{MODEL}/", digests=digests, remedy=remedy)


def gather_student(student: Any, recipe: Recipe, stage: Stage, start: Path | None, parts: "Parts") -> Any:
    """The student. Of a sharded one the main process gets the start model with the trained weights, others None."""
    from student.distributed import fsdp
    from student.models import freeze

    if not fsdp.is_sharded(student):
        return student
    trained: dict[str, Any] = {}
    for name, parameter in student.named_parameters():
        if parameter.requires_grad:
            value = fsdp.gather_tensor(parameter.detach())
            trained |= {name: value.cpu()} if processes.is_main() else {}
    if not processes.is_main():
        return None
    model = freeze.prepare(start_model.load(recipe, start)[0], parts, stage.train, stage.lora)
    for name, value in trained.items():
        fsdp.fill(model.get_parameter(name), value)
    return model


def save_stage_model(folder: Path, student: Any, processor: Any, parts: "Parts", *, merged: bool) -> None:
    """Write the whole student under a temporary name, then rename it; `merged`: its adapters too, apart."""
    from student.models import lora
    from student.training.checkpoints.checkpoint_files import give_usual_modes

    partial = folder / f".{MODEL}.tmp"
    with storage_errors(folder / MODEL):
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(folder / MODEL, ignore_errors=True)
        if merged:
            lora.save(student, folder / ADAPTER, parts.projectors)
            give_usual_modes(folder / ADAPTER)
            student = lora.merge(student)
        write_student(student, processor, partial)
        partial.rename(folder / MODEL)


def write_student(student: Any, processor: Any, folder: Path) -> None:
    """Write the files by which transformers loads a student again; safetensors only."""
    from student.training.checkpoints.checkpoint_files import give_usual_modes

    for config in (student.config, student.config.get_text_config()):
        # Trainers switch the cache off in the model's own settings; a loaded student is to generate.
        config.use_cache = True
        # The path that it was loaded from: without it equal trainings in two places have the same bytes.
        config._name_or_path = ""
    student.save_pretrained(folder)
    processor.save_pretrained(folder)
    give_usual_modes(folder)
