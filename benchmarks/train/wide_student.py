"""Writes a student with a decoder of twice the width that computes the same, for `gguf_accuracy.py --types q4_k_m`.

    python benchmarks/train/wide_student.py recipes/tiny/teachers/generalist FOLDER

llama.cpp's types that end in `_K` need rows of a multiple of 256 values; those of the shipped students have 128.
Every channel, head and neuron stands twice, and each sum over them has half of its weights: exact in floating point.
Both copies are rounded alike, so a type costs what it would cost the student itself. Prints the largest difference of
a logit.
Takes 17 s (two shared cores).
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, PreTrainedModel

from student.export.convert import save
from student.models.siq_vl import load

_TEXT = "model.text_model."
_MATRICES = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "o_proj", "down_proj")


def widened(model: PreTrainedModel) -> PreTrainedModel:
    """The same student with twice the channels, heads and neurons."""
    config = type(model.config).from_dict(model.config.to_dict())
    text = config.get_text_config()
    text.head_dim = text.hidden_size // text.num_attention_heads
    for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
        setattr(text, name, 2 * getattr(text, name))
    wide = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    wide.load_state_dict({name: _widened(name, value) for name, value in model.state_dict().items()})
    return wide.eval()


def _widened(name: str, value: torch.Tensor) -> torch.Tensor:
    if "modality_projection" in name:
        return torch.cat([value, value])
    if not name.startswith(_TEXT):
        # The head is the tied embeddings: its input stands twice, and the last norm halves it.
        return torch.cat([value, value], dim=-1) if name == "lm_head.weight" else value
    if "embed_tokens" in name:
        return torch.cat([value, value], dim=-1)
    if name == f"{_TEXT}norm.weight":
        return torch.cat([value, value]) / 2
    if value.ndim == 1:
        return torch.cat([value, value])
    assert any(part in name for part in _MATRICES), name
    rows = torch.cat([value, value])
    return torch.cat([rows, rows], dim=1) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    model, processor = load(str(given.checkpoint), dtype="float32")
    wide = widened(model)
    ids = torch.arange(200).unsqueeze(0)
    with torch.inference_mode():
        difference = (wide(input_ids=ids).logits - model.eval()(input_ids=ids).logits).abs().max().item()
    print(f"largest difference of a logit: {difference:.2g}")
    save(wide, processor, given.folder)


if __name__ == "__main__":
    main()
