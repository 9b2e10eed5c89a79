"""Adapters in the language model: plain, DoRA or rsLoRA, over whole or 4-bit weights; their file and their merging.

Which layers get one is decided elsewhere (student/models/freeze.py). The weights below the adapters may lie in NF4
(QLoRA); a saved student never does: merging writes the weights that the adapters were trained against, in their own
dtype.
"""

import json
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear as AdaptedLinear
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from distill.artifacts.files import write_json
from distill.errors import MissingExtra
from distill.recipe.sections.stages import Lora

ADAPTER_MARK = "lora_"
"""In the name of every tensor of an adapter."""


def adapt(model: PreTrainedModel, lora: Lora, names: list[str]) -> PeftModel:
    """Freeze the model and put an adapter of float32 weights at each of the linear layers with these full names.

    Raises MissingExtra where the weights are to lie in 4 bits and bitsandbytes is not installed.
    """
    if lora.quantize is not None:
        quantize(model, names, lora.quantize)
    adapted = get_peft_model(
        model,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            use_dora=lora.dora,
            use_rslora=lora.rslora,
            target_modules=names,
        ),
    )
    for module in adapted.modules():
        if type(module) is AdaptedLinear and not module.lora_variant and module.get_base_layer().weight.itemsize < 4:
            module.forward = MethodType(_forward_in_few_bits, module)  # type: ignore[method-assign]
    return adapted


def _forward_in_few_bits(layer: AdaptedLinear, states: torch.Tensor) -> torch.Tensor:
    """PEFT's forward with the adapters' products in the dtype of the states, as under autocast.

    PEFT casts the states to the float32 of the adapters: its products and sums then move several times the memory of
    the layer's own product (docs/log.md, adapters on a GPU). Weights, their gradients and the optimizer stay float32.
    """
    result: torch.Tensor
    if layer.disable_adapters or layer.merged:
        result = AdaptedLinear.forward(layer, states)
        return result
    result = layer.base_layer(states)
    for name in layer.active_adapters:
        inner = layer.lora_dropout[name](states) @ layer.lora_A[name].weight.to(states.dtype).T
        outer = (layer.lora_B[name].weight * layer.scaling[name]).to(states.dtype).T
        result = torch.addmm(result.flatten(0, -2), inner.flatten(0, -2), outer).view_as(result)
    return result


def require(lora: Lora | None) -> None:
    """Raise MissingExtra before data is read, if the adapters need a package that is not installed."""
    if lora is not None and lora.quantize is not None:
        _bitsandbytes()


def quantize(model: nn.Module, names: list[str], kind: str) -> None:
    """Put weights of linear layers into 4 bits, block by block (https://arxiv.org/abs/2305.14314); biases stay."""
    bnb = _bitsandbytes()
    for name in names:
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        small = bnb.nn.Linear4bit(
            linear.in_features,
            linear.out_features,
            bias=linear.bias is not None,
            compute_dtype=linear.weight.dtype,
            quant_type=kind,
            device="meta",
        )
        small.weight = bnb.nn.Params4bit(linear.weight.data, requires_grad=False, quant_type=kind, module=small)
        small.bias = linear.bias
        # A CPU with AVX-512 would rewrite the weights in place at the first reply in eval mode.
        small.support_avx512bf16_for_cpu = False
        # Moving is what quantizes.
        model.set_submodule(name, small.to(linear.weight.device))


def is_quantized(parameter: torch.Tensor) -> bool:
    return getattr(parameter, "quant_state", None) is not None


def size(parameter: torch.Tensor) -> tuple[int, str, int]:
    """Count, dtype and bytes of a parameter; for 4-bit weights the count of the represented weights, and the bytes
    with their scales."""
    if not is_quantized(parameter):
        dtype = str(parameter.dtype).removeprefix("torch.")
        return parameter.numel(), dtype, parameter.numel() * parameter.element_size()
    state: Any = parameter.quant_state  # type: ignore[attr-defined]
    scales = state.as_dict(packed=True).values()
    return state.shape.numel(), state.quant_type, sum(each.nbytes for each in (parameter, *scales))


def merge(student: PeftModel) -> PreTrainedModel:
    """The student without adapters, their effect in its weights; 4-bit weights come back in the dtype they had.

    PEFT alone would round the sum to 4 bits again.
    """
    for name, module in list(student.named_modules()):
        if isinstance(module, nn.Linear) and is_quantized(module.weight):
            student.set_submodule(name, _dequantized(module))
    merged: PreTrainedModel = student.merge_and_unload()
    return merged


def _dequantized(small: Any) -> nn.Linear:
    weight = _bitsandbytes().functional.dequantize_4bit(small.weight.data, small.weight.quant_state)
    linear = nn.Linear(small.in_features, small.out_features, bias=small.bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    linear.bias = small.bias
    return linear


def save(student: PeftModel, folder: Path, full_modules: tuple[str, ...]) -> None:
    """Write the adapters as PEFT does; with them the weights of `full_modules`, which were trained in full.

    So the folder holds all that a stage learned: plain PEFT, loading it onto the model that the stage started from,
    gives the student (over 4-bit weights up to their rounding).
    """
    # PEFT would otherwise look at the hub for the vocabulary of the start model.
    student.save_pretrained(folder, save_embedding_layers=False)
    prefix = "base_model.model."
    trained = {
        name: parameter.detach().cpu().contiguous()
        for name, parameter in student.named_parameters()
        if parameter.requires_grad and name.startswith(tuple(f"{prefix}{module}." for module in full_modules))
    }
    if not trained:
        return
    weights, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    save_file({**load_file(weights), **trained}, weights, metadata={"format": "pt"})
    write_json(config, {**json.loads(config.read_text(encoding="utf-8")), "modules_to_save": list(full_modules)})


def _bitsandbytes() -> Any:
    try:
        import bitsandbytes
    except ImportError:
        raise MissingExtra(
            "stages.lora.quantize: 4-bit weights need the bitsandbytes library, which is not installed: "
            "pip install 'cot-distill[qlora]', or leave quantize out"
        ) from None
    return bitsandbytes
