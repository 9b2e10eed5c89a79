"""The student's language model as a plain checkpoint: SmolLM2-135M-Instruct out of its 4-bit file.

    python language.py           # writes language/

tower.py joins it with the tower. Tokenizer and chat template come out of the same file.
"""

import sys

import torch
from lite import libraries
from setup import HERE, WEIGHTS


def main() -> None:
    libraries()  # gguf
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name = next(WEIGHTS.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS, gguf_file=name)
    read = AutoModelForCausalLM.from_pretrained(WEIGHTS, gguf_file=name, dtype=torch.float32)
    # transformers refuses to save a model that it read from a GGUF file, though its weights are plain by now.
    config = type(read.config)(**{key: value for key, value in read.config.to_dict().items() if "quant" not in key})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(HERE / "language")
    tokenizer.save_pretrained(HERE / "language")
    print(f"language: {sum(weight.numel() for weight in model.parameters()) / 1e6:.1f} M parameters")


if __name__ == "__main__":
    sys.exit(main())
