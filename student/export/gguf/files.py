"""A trained student as two GGUF files for llama.cpp: the decoder with its tokenizer, and tower with projector.

Only SiQ-VL students: llama.cpp's own converter reads the checkpoints of other classes (`distill export --plain`).
Does not start llama.cpp (teacher/engines/llama_cpp/) or compare replies (student/export/gguf/verify.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers import PreTrainedModel, ProcessorMixin

from distill.artifacts.files import new_folder
from distill.errors import ModelError
from student.export.convert import finished_stage, trained_student
from student.export.gguf.decoder import decoder_settings, decoder_tensors
from student.export.gguf.tokenizer import tokenizer_settings, tokens_around
from student.export.gguf.vision import Tensors, vision_settings, vision_tensors
from student.export.model_card import write_model_card
from student.models.library_output import hide_library_output

MODEL, MMPROJ = "model.gguf", "mmproj.gguf"
TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
_BLOCK = 32  # values of a row that share a scale in q8_0
_UNROUNDED = ("v.position_embd.", "v.patch_embd.", "adapter.boi", "adapter.eoi")


@hide_library_output()
def export_gguf(run: Path, out: Path, *, stage: str | None = None, weight_type: str = "f16") -> str:
    """Write the student that a finished stage left to the new folder `out`; returns the stage's name.

    `weight_type`: the type of the decoder's matrices; the tower has f16 at least. Raises what `convert.export`
    raises, and ModelError for a student that is not SiQ-VL.
    """
    recipe, name = finished_stage(run, stage)
    with new_folder(out) as folder:
        student, processor = trained_student(recipe, run, name)
        write_gguf(student, processor, folder, name=recipe.name, weight_type=weight_type)
        size = student.config.vision_config.image_size
        facts = {"model": MODEL, "mmproj": MMPROJ, "weights": weight_type, "image_size": size}
        write_model_card(recipe, run, folder, name, gguf=facts)
    return name


def write_gguf(
    model: PreTrainedModel, processor: ProcessorMixin, folder: Path, *, name: str, weight_type: str
) -> None:
    """Write both files to `folder`. Raises ModelError for a student that cannot be written so."""
    text = model.config.get_text_config()
    tensors = tensors_of(model, processor)
    settings = decoder_settings(model) | tokenizer_settings(processor, text.vocab_size, model.config.scale_factor)
    header = {"general.type": "model", "general.name": name}
    _write(folder / MODEL, text.model_type, header | settings, tensors[MODEL], weight_type)
    header = {"general.type": "mmproj", "general.name": name}
    settings = vision_settings(model, processor.image_processor)
    _write(folder / MMPROJ, "clip", header | settings, tensors[MMPROJ], "f32" if weight_type == "f32" else "f16")


def tensors_of(model: PreTrainedModel, processor: ProcessorMixin) -> dict[str, Tensors]:
    """The tensors of each file in float32. Raises ModelError for a student that cannot be written so."""
    if model.config.model_type != "idefics3" or processor.image_processor.do_image_splitting:
        tiles = " with images in tiles" if model.config.model_type == "idefics3" else ""
        raise ModelError(
            f"only SiQ-VL students are written as GGUF, and this is {model.config.model_type}{tiles}; export it "
            "with --plain, and let llama.cpp's convert_hf_to_gguf.py read the folder"
        )
    return {MODEL: decoder_tensors(model), MMPROJ: vision_tensors(model, tokens_around(processor))}


def _write(path: Path, architecture: str, settings: Mapping[str, Any], tensors: Tensors, weight_type: str) -> None:
    matrix_type, file_type = TYPES[weight_type]
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in settings.items():
        _add(writer, key, value)
    writer.add_file_type(file_type)
    if weight_type == "q8_0":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, value in tensors.items():
        values = value.contiguous().numpy()
        kind = type_of(name, values, matrix_type)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def type_of(name: str, values: np.ndarray[Any, Any], matrix_type: gguf.GGMLQuantizationType) -> Any:
    """The type that a tensor has in a file whose matrices have `matrix_type`."""
    if values.ndim == 1 or name.startswith(_UNROUNDED):
        return gguf.GGMLQuantizationType.F32
    if matrix_type == gguf.GGMLQuantizationType.Q8_0 and values.shape[-1] % _BLOCK:
        return gguf.GGMLQuantizationType.F16
    return matrix_type


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)
