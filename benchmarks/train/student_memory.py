"""Foretold against measured memory of a training step, on a CPU.

    MALLOC_MMAP_THRESHOLD_=65536 python benchmarks/train/student_memory.py [--only projector]

Every line is a process of its own that makes one step, then watches the most memory it holds during a second one.
Takes 4 min with `--only projector` (two shared cores).
"""

import argparse
import ctypes
import re
import subprocess
import sys
from pathlib import Path

import torch
from transformers import Idefics3Config

from distill.recipe.sections.stages import Lora, Stage
from student.loss import training_loss
from student.models import attention, freeze
from student.models.parts import find_parts
from student.models.siq_vl import without_weights
from student.training.cost import memory
from student.training.optimizer.compensated_adamw import CompensatedAdamW

TRAINED = {
    "projector": (("projector",), None),
    "full": (("projector", "language"), None),
    "adapters": (("language",), Lora(rank=16, alpha=32, dropout=0.0)),
}
TEXT = {
    "model_type": "qwen2",
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 16000,
    "tie_word_embeddings": True,
}
SIGHT = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4}
ROWS, LENGTH, SIDE, PATCH = 6, 512, 224, 16
IMAGE_ID, IMAGE_TOKENS = 7, (SIDE // PATCH // 2) ** 2


def outlined(dtype: str):
    sight = {**SIGHT, "image_size": SIDE, "patch_size": PATCH}
    joined = {"scale_factor": 2, "image_token_id": IMAGE_ID, "tie_word_embeddings": True}
    return without_weights(Idefics3Config(text_config=TEXT, vision_config=sight, **joined), dtype)


def measure(trained: str, dtype: str, checkpointing: bool) -> None:
    """Print foretold and measured bytes of one step's own memory."""
    torch.set_num_threads(1)
    train, lora = TRAINED[trained]
    stage = Stage(name="only", data="traces", train=train, lora=lora, micro_batch_tokens=ROWS * LENGTH)
    outline = outlined(dtype)
    roles = find_parts(outline)
    found = memory.of_stage(outline, roles, stage)
    patches = ROWS * (SIDE // PATCH) ** 2
    foretold = found.needed(tokens=ROWS * LENGTH, patches=patches, checkpointing=checkpointing) - found.static

    model = type(outline)(outline.config).to(getattr(torch, dtype))
    attention.use(model, attention.PACKED)
    training_loss.attach(model)
    student = freeze.prepare(model, roles, train, lora).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    weights = [parameter for parameter in student.parameters() if parameter.requires_grad]
    whole = all(parameter.dtype == torch.float32 for parameter in weights)
    optimizer = torch.optim.AdamW(weights, fused=True) if whole else CompensatedAdamW(weights)

    def step() -> None:
        ids = torch.randint(8, 15000, (ROWS, LENGTH))
        ids[:, :IMAGE_TOKENS] = IMAGE_ID
        pixels = torch.randn(ROWS, 1, 3, SIDE, SIDE).to(model.dtype)
        at = torch.arange(ROWS * LENGTH)
        student(
            input_ids=ids, pixel_values=pixels, at=at, labels=ids.flatten(), weights=torch.ones(len(at)) / len(at)
        ).loss.backward()

    step()
    optimizer.step()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step()
    print(foretold, held("VmHWM") - before)


def held(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TRAINED, default=list(TRAINED), help="what is trained")
    chosen = parser.parse_args().only
    print(f"{'trained':<10} {'dtype':<9} {'checkpointing':<13} {'foretold':>10} {'measured':>10} {'error':>7}")
    for trained in chosen:
        for dtype in ("float32", "bfloat16"):
            for checkpointing in (False, True):
                arguments = [trained, dtype, str(int(checkpointing))]
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", __file__, *arguments], check=True, capture_output=True, text=True
                )
                foretold, measured = map(int, done.stdout.split()[-2:])
                print(
                    f"{trained:<10} {dtype:<9} {checkpointing!s:<13} {foretold / 1e6:>7.0f} MB "
                    f"{measured / 1e6:>7.0f} MB {foretold / measured - 1:>+7.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] in TRAINED:
        measure(sys.argv[1], sys.argv[2], sys.argv[3] == "1")
    else:
        main()
