"""The training times that the headers of the shipped recipes state: arithmetic, no GPU, no network, no weights.

    python benchmarks/project/recipe_times.py

prints, for every recipe below, tokens x FLOPs a token / (nominal rate of a card x MFU), stage by stage and in all,
with the MFU that the kernels of a step reach at most (student/training/cost/roofline.py), and the time to expect;
last, the memory of the students that `distill init` chooses among.
Models are outlines of the published sizes; lengths of rows are assumed (TEXT): these data sets were not counted.
Takes more than 5 min (two shared cores).
"""

import argparse
import json
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill.machine import hardware
from distill.planning import first_models, stage_plans, stage_times
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.reports.text_table import table
from student.training.cost import workload
from student.training.cost.workload import Load

CARDS = {
    "siq-vl-0.5b": "L40S",
    "siq-vl-1.5b": "L40S",
    "qwen3-vl-2b-student": "L40S",
    "qwen3.5-0.8b-student": "L40S",
    "single-gpu-24gb": "RTX 4090",
    "charts-only": "L40S",
    "chartqa": "L40S",
    "coco-qa": "L40S",
    "textvqa-docvqa": "L40S",
    "scienceqa": "L40S",
}
TEXT = {
    "align": (250, 220),
    "instruct": (90, 40),
    "reason": (450, 400),
    "random": (450, 400),
    "answers_only": (60, 10),
}
"""Stage to the text tokens of a row, and of them those of its response."""
QWEN3_VL_PATCHES = 800
"""Of an image of some 450 pixels a side; four of them are a token."""
LARGE_PATCHES = {"textvqa-docvqa": 6000}
"""Of photographs of a megapixel and pages, made smaller where a row grows longer than its stage allows."""


def siglip(width: int, inner: int, layers: int, heads: int, side: int) -> dict[str, Any]:
    return {
        "model_type": "siglip_vision_model",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "image_size": side,
        "patch_size": 16,
    }


def qwen(width: int, inner: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "qwen2",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }


QWEN_SIGHT = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_heads": 16,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
}
MODELS: dict[str, dict[str, Any]] = {
    "google/siglip2-base-patch16-224": siglip(768, 3072, 12, 12, 224),
    "google/siglip2-large-patch16-512": siglip(1024, 4096, 24, 16, 512),
    "google/siglip2-so400m-patch16-384": siglip(1152, 4304, 27, 16, 384),
    "Qwen/Qwen2.5-0.5B-Instruct": qwen(896, 4864, 24, 14),
    "Qwen/Qwen2.5-1.5B-Instruct": qwen(1536, 8960, 28, 12),
    "Qwen/Qwen3-VL-2B-Instruct": {
        "model_type": "qwen3_vl",
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
            "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "out_hidden_size": 2048,
            "deepstack_visual_indexes": [5, 11, 17],
            **QWEN_SIGHT,
        },
    },
    "Qwen/Qwen3.5-0.8B": {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_5_text",
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_hidden_layers": 24,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "vocab_size": 248320,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "mrope_section": [11, 11, 10]},
        },
        "vision_config": {
            "model_type": "qwen3_5_vision",
            **QWEN_SIGHT,
            "depth": 12,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_heads": 12,
            "out_hidden_size": 1024,
        },
    },
}

_SMALL = MODELS["Qwen/Qwen3-VL-2B-Instruct"]
MODELS["Qwen/Qwen3-VL-4B-Instruct"] = _SMALL | {
    "text_config": _SMALL["text_config"]
    | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
    "vision_config": _SMALL["vision_config"] | {"out_hidden_size": 2560},
}


def local(name: str, folder: Path, model: str | None = None) -> Recipe:
    """The shipped recipe with configurations in `folder` in place of the hub's models, or with another `model`."""
    student = loading.load(name, {"student.model": model} if model else {}).student
    assert student is not None
    overrides = {}
    for key in ("model", "vision", "language"):
        model = getattr(student, key)
        if model is not None:
            (folder / model).mkdir(parents=True, exist_ok=True)
            (folder / model / "config.json").write_text(json.dumps(MODELS[model]))
            overrides[f"student.{key}"] = str(folder / model)
    return loading.load(name, overrides)


def patches_of(found: Recipe) -> tuple[int, int]:
    """Patches and tokens of an image."""
    student = found.student
    assert student is not None
    if student.vision is None or student.pixel_shuffle is None:
        patches = LARGE_PATCHES.get(found.name, QWEN3_VL_PATCHES)
        return patches, patches // 4
    config = json.loads((Path(student.vision) / "config.json").read_text())
    patches = (config["image_size"] // config["patch_size"]) ** 2
    return patches, patches // student.pixel_shuffle**2


@dataclass(frozen=True, slots=True)
class Row:
    """One stage of a recipe on a card, or all of them."""

    stage: str
    tokens: float
    flops: float
    least_h: float
    expected_h: float
    checkpointing: bool


def times(name: str, folder: Path) -> list[Row]:
    """The stages of a recipe."""
    found = local(name, folder)
    card = hardware.find_gpu(CARDS[name])
    patches, image_tokens = patches_of(found)
    rows = []
    for outlined in stage_plans.plans(found, folder / "run")[1]:
        text, response = TEXT[outlined.stage.name]
        length = text + image_tokens
        load = Load(
            rows=None,
            own_tokens=length,
            tokens=length,
            squared_length=length**2,
            response_tokens=response,
            patches=patches,
            squared_patches=patches**2,
            basis="assumed",
            is_bound=False,
        )
        planned = replace(outlined, load=load, schedule=workload.schedule(outlined.stage, load))
        gpu_fit = stage_plans.fit(planned, card)
        time = stage_times.stage_time(planned, card, gpu_fit)
        assert time is not None and planned.schedule is not None
        rows.append(
            Row(planned.stage.name, planned.schedule.tokens, planned.flops, *time.hours, gpu_fit.checkpointing)
        )
    return rows


def first_students(folder: Path) -> str:
    """The memory of a stage of `own-images` for the students that `distill init` chooses among."""
    cells = []
    for student in first_models.STUDENTS:
        found = local("own-images", folder, student.name)
        planned = stage_plans.StagePlanner(found, folder / "run").plan(found.stages[0])
        needed = (planned.bytes(checkpointing=twice) / 2**30 for twice in (False, True))
        cells.append((student.name, *(f"{gib:.1f}" for gib in needed), f"{student.needs_gib:.1f}"))
    return table(("student of own-images, GiB", "plain", "layers computed twice", "distill init"), cells)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name, card in CARDS.items():
            rows = times(name, Path(folder))
            sums = [sum(getattr(row, key) for row in rows) for key in ("tokens", "flops", "least_h", "expected_h")]
            rate = hardware.find_gpu(card).bf16
            assert rate is not None
            cells = [
                (
                    row.stage + ("*" if row.checkpointing else ""),
                    f"{row.tokens / 1e6:.1f}",
                    f"{row.flops / row.tokens / 1e9:.2f}",
                    f"{row.flops / (row.least_h * 3600) / rate:.3f}",
                    f"{row.least_h * 60:.1f}",
                    f"{row.expected_h * 60:.1f}",
                )
                for row in (*rows, Row("all", *sums, checkpointing=False))
            ]
            head = (f"{name} on {card}", "M tokens", "GFLOP a token", "MFU at most", "minutes at least", "expected")
            print(table(head, cells), end="\n\n")
        print("*: with gradient checkpointing\n")
        print(first_students(Path(folder)))


if __name__ == "__main__":
    main()
