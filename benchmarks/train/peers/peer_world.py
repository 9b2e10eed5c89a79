"""A random Qwen3-VL as hubs have it, rows with traces, and the files from which each trainer reads them."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import train_world as world

ROOT = Path(__file__).resolve().parents[3]
PATCH, MERGE = 16, 2
TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}{{- message['content'] -}}
{%- else -%}{%- for content in message['content'] -%}
{%- if content['type'] == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- else -%}{{- content['text'] -}}{%- endif -%}
{%- endfor -%}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""Qwen3-VL's own for one question and its answer: no system turn, a line feed after each turn."""


def write_student(folder: Path, shape: world.Shape) -> Path:
    """A student with the widths of `shape` and random weights, in the files of a published checkpoint."""
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(0)
    words = world.tokenizer()
    marks = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    words.add_special_tokens({"extra_special_tokens": marks})
    image, video, start, end = words.convert_tokens_to_ids(marks)
    pair = shape.hidden // shape.heads // 2
    config = Qwen3VLConfig(
        text_config={
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.key_value_heads,
            "head_dim": 2 * pair,
            "vocab_size": shape.vocabulary,
            "eos_token_id": words.eos_token_id,
            "pad_token_id": words.pad_token_id,
            "bos_token_id": None,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [pair - 2 * (pair // 3), pair // 3, pair // 3],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": shape.tower_layers,
            "hidden_size": shape.tower_hidden,
            "intermediate_size": shape.tower_intermediate,
            "num_heads": shape.tower_heads,
            "out_hidden_size": shape.hidden,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, shape.tower_layers - 1],
        },
        tie_word_embeddings=True,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    Qwen3VLForConditionalGeneration(config).save_pretrained(folder)
    words.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    sizes = {"shortest_edge": (PATCH * MERGE) ** 2, "longest_edge": 2**20}
    images = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "size": sizes,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    videos = {**images, "video_processor_type": "Qwen3VLVideoProcessor"}
    for name, values in (("preprocessor", images), ("video_preprocessor", videos)):
        (folder / f"{name}_config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def write_rows(folder: Path, shape: world.Shape, rows: int) -> None:
    """`folder`/questions.jsonl and images: an image, a question, a rationale of 3 to 12 sentences and an answer.

    A picture's sides are multiples of what a token of the tower covers, so no processor resizes it: the ways in
    which they do differ in the last bits, and the losses shall be compared.
    """
    chance, lines = random.Random(0), []
    block = PATCH * MERGE
    size = tuple(max(round(side / block), 1) * block for side in shape.image_pixels)
    for number in range(rows):
        path = world.make_image(folder / "images" / f"{number}.jpg", number, (size[0], size[1]))
        rationale = "\n".join(world.sentence(chance) for _ in range(chance.randint(3, 12)))
        answer = f"<think>\n{rationale}\n</think>\n\n{chance.choice(world.COLOURS)}"
        lines.append({"image": path.name, "question": f"what {world.sentence(chance)}?", "answer": answer})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "questions.jsonl").write_text(text, encoding="utf-8")


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def export(folder: Path) -> None:
    """The rows of `folder` as the toolkit exports a filtered dataset for the other trainers."""
    world.write_traces(folder, folder / "filtered")
    recipe = '[data.questions]\nsource = "../questions.jsonl"\nimages_root = "../images"\n'
    (folder / "filtered" / "recipe.toml").write_text(recipe, encoding="utf-8")
    command = [sys.executable, "-m", "distill", "export", str(folder / "filtered"), "--out", str(folder / "exported")]
    command += ["--dataset", "llama-factory", "--dataset", "ms-swift"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the rows could not be exported:\n{done.stdout}{done.stderr}")
