"""Exports a trained student in the form that vLLM serves natively, or as transformers trained it.

vLLM's Idefics3 has a Llama decoder. Qwen2 is Llama with biases on the query, key and value projections, so a Qwen2
student becomes a Llama one with `attention_bias` and a zero bias on the output projection: the logits are the same.
The plain form keeps Qwen2; vLLM serves it through its Transformers backend only. Does not cover merging adapters
(student/training/checkpoints/saved_model.py leaves merged checkpoints) or verification (student/export/verify.py).
"""

from pathlib import Path
from typing import Any

import orjson
import torch
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    LlamaConfig,
    PreTrainedModel,
    ProcessorMixin,
)

from distill.artifacts.files import new_folder, write_json, write_text
from distill.artifacts.integrity import require_run
from distill.artifacts.layout import RECIPE, model_folder
from distill.artifacts.manifest import Manifest
from distill.errors import DataError, ModelError, StaleError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from student.data import rows
from student.export.model_card import write_model_card
from student.models import siq_vl
from student.models.library_output import hide_library_output
from student.training.checkpoints.saved_model import require_saved, write_student

NATIVE, PLAIN = "native", "plain"

# transformers (5.19 and 5.23) counts no tile for an image that is not split, and vLLM's Transformers backend takes
# its word: "returned 1 row(s) of image data ... cannot be split into the [0] row(s)". Loaded with
# --trust-remote-code only; without it transformers' own class is used, which differs in nothing else.
_IMAGE_PROCESSOR_FILE = "image_processing_unsplit.py"
_IMAGE_PROCESSOR_CLASS = "UnsplitImageProcessor"
_IMAGE_PROCESSOR = f'''\
"""Idefics3's image processor, which says of an image that is not split that it is one tile, not none."""

from transformers import Idefics3ImageProcessorPil


class {_IMAGE_PROCESSOR_CLASS}(Idefics3ImageProcessorPil):
    def get_number_of_image_patches(self, height, width, images_kwargs=None):
        tiles, rows, columns = super().get_number_of_image_patches(height, width, images_kwargs)
        return max(tiles, 1), rows, columns
'''


@hide_library_output()
def export(run: Path, out: Path, *, stage: str | None = None, native: bool = True) -> str:
    """Write the student that a finished stage left to the new folder `out`; returns the stage's name.

    Without a named stage `choose_stage` takes one. `native` writes a Qwen2 decoder as the Llama that vLLM knows in
    this place; other students are the same in both forms. Raises StaleError when no such stage is finished, DataError
    when something is at `out` or no run at `run`, ModelError when the student has no native form.
    """
    recipe, name = finished_stage(run, stage)
    with new_folder(out) as folder:
        student, processor = trained_student(recipe, run, name)
        save(to_vllm_native(student) if native else student, processor, folder)
        write_model_card(recipe, run, folder, name, server_arguments(folder))
    return name


def finished_stage(run: Path, stage: str | None) -> tuple[Recipe, str]:
    """The recipe of a run, and which stage is exported. Raises what `export` raises for the run."""
    require_run(run)
    recipe = load(run / RECIPE)
    return recipe, choose_stage(recipe, run, stage)


def trained_student(recipe: Recipe, run: Path, stage: str) -> tuple[PreTrainedModel, ProcessorMixin]:
    """The student that a stage left, in the dtype of its files. Raises ModelError if they are damaged."""
    require_saved(run, stage, digests=True)
    source = model_folder(run, stage)
    return siq_vl.load(str(source), dtype=dtype_of(source), trust_remote_code=recipe.trusts_student_code)


def choose_stage(recipe: Recipe, run: Path, stage_name: str | None = None) -> str:
    """The finished stage that is exported: the one that is wanted, else the last that learned rationales or at all.

    Raises StaleError when there is none, DataError for a name that the recipe does not have.
    """
    done = [stage for stage in recipe.stages if Manifest.read(run / "train" / stage.name) is not None]
    if stage_name is not None and stage_name not in {stage.name for stage in recipe.stages}:
        known = ", ".join(stage.name for stage in recipe.stages)
        raise DataError(f"{run}: no stage {stage_name!r}; the recipe has {known}")
    taught = [stage.name for stage in done if rows.has_rationales(recipe, stage)]
    result = [stage.name for stage in done if stage_name in (None, stage.name)]
    if not result:
        subject = "no stage is" if stage_name is None else f"stage {stage_name} is not"
        raise StaleError(f"{run}: {subject} trained yet; run `distill train` first")
    return taught[-1] if stage_name is None and taught else result[-1]


def to_vllm_native(model: PreTrainedModel) -> PreTrainedModel:
    """An Idefics3 model with a Qwen2 decoder as the same model with a Llama decoder; others come back as they are."""
    text = model.config.get_text_config()
    if not becomes_llama(model.config):
        return model
    shared = (
        *("vocab_size", "hidden_size", "intermediate_size", "hidden_act", "max_position_embeddings"),
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_parameters"),
        *("initializer_range", "tie_word_embeddings", "attention_dropout"),
        *("pad_token_id", "eos_token_id", "bos_token_id"),
    )
    llama = LlamaConfig(**{key: getattr(text, key) for key in shared}, attention_bias=True, mlp_bias=False)
    config = Idefics3Config(
        vision_config=model.config.vision_config.to_dict(),
        text_config=llama.to_dict(),
        scale_factor=model.config.scale_factor,
        image_token_id=model.config.image_token_id,
        tie_word_embeddings=model.config.tie_word_embeddings,
        pad_token_id=text.pad_token_id,
    )
    native = Idefics3ForConditionalGeneration(config).to(model.dtype)
    missing, unexpected = native.load_state_dict(model.state_dict(), strict=False)
    if unexpected or any(not name.endswith("self_attn.o_proj.bias") for name in missing):
        raise ModelError(f"weights don't fit the Llama form: missing {missing[:3]}, unexpected {unexpected[:3]}")
    with torch.no_grad():
        for name in missing:
            native.get_parameter(name).zero_()
    native.generation_config = model.generation_config
    return native.eval()


def becomes_llama(config: Any) -> bool:
    """Whether the native form of a model has another decoder. Raises ModelError for one that has no native form."""
    text = config.get_text_config()
    if config.model_type != "idefics3" or text.model_type == "llama":
        return False
    if text.model_type != "qwen2":
        raise ModelError(f"a {text.model_type} decoder cannot be written as Llama; only Qwen2 can")
    if any(kind != "full_attention" for kind in getattr(text, "layer_types", None) or ()):
        raise ModelError("a Qwen2 decoder with sliding-window attention cannot be written as Llama")
    return True


def save(model: PreTrainedModel, processor: ProcessorMixin, directory: Path) -> None:
    """Write a checkpoint that AutoModelForImageTextToText and AutoProcessor load again; safetensors only.

    A form that vLLM serves through its Transformers backend gets an image processor that counts right.
    """
    write_student(model, processor, directory)
    if form_of(directory) == PLAIN and not getattr(processor.image_processor, "do_image_splitting", False):
        path = directory / "processor_config.json"
        values = orjson.loads(path.read_bytes())
        module = _IMAGE_PROCESSOR_FILE.removesuffix(".py")
        values["image_processor"]["auto_map"] = {"AutoImageProcessor": f"{module}.{_IMAGE_PROCESSOR_CLASS}"}
        write_json(path, values)
        write_text(directory / _IMAGE_PROCESSOR_FILE, _IMAGE_PROCESSOR)


def form_of(directory: Path) -> str:
    """Whether vLLM serves an exported checkpoint by a class of its own: NATIVE, or PLAIN."""
    config = _config(directory)
    qwen = config["model_type"] == "idefics3" and config["text_config"]["model_type"] != "llama"
    return PLAIN if qwen else NATIVE


def dtype_of(directory: Path) -> str:
    """The dtype that a checkpoint's weights lie in."""
    return str(_config(directory).get("dtype") or "float32")


def server_arguments(directory: Path) -> dict[str, Any]:
    """The options, beside the model, without which vLLM does not serve an exported checkpoint as it is."""
    if _config(directory)["model_type"] == "lfm2_vl" and not torch.cuda.is_available():
        # vLLM 0.32's rotary operator for CPUs takes the heads of LFM2 for something else; its plain torch does not.
        return {"compilation-config": {"custom_ops": ["none"]}}
    return {} if form_of(directory) == NATIVE else {"model-impl": "transformers", "trust-remote-code": True}


def _config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        result: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ModelError(f"{path}: cannot be read: {error}; train the stage again with --stage and --fresh") from None
    return result
