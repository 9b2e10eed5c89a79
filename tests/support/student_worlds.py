"""A student, its data and a recipe small enough to train in a test, and random students of other classes.

The questions are about coloured squares; nothing is learned well, everything is exact.
"""

import hashlib
import json
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from distill.artifacts.manifest import Manifest, fingerprint
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import ImageRef
from student.data.rows import TrainingRow

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
CORPUS = (
    "How many red green blue squares are there? 0 1 2 3 4 5 6 7 8 9",
    "<think>\nrow 1: red green, 1\nrow 2: blue blue, 0\n</think>\n\n4",
)
STAGE = """
[[stages]]
name = "{name}"
data = "{data}"
train = {train}
batch_size = 8
max_steps = {steps}
learning_rate = 5e-3
log_every_steps = 1
save_every_steps = {save}
{more}
"""


def tokenizer() -> Any:
    """Byte-level BPE with ChatML's marks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")


CLASSES = ("siq-vl", "llava", "internvl", "qwen3-vl", "smolvlm")


def student(kind: str, folder: Path) -> tuple[Any, Any]:
    """A student of one of `CLASSES`; SiQ-VL is built from the `parts` in `folder`."""
    from student.models.siq_vl import build

    return build(str(folder / "vision"), str(folder / "language"), 2) if kind == "siq-vl" else other(kind)


def parts(folder: Path) -> Path:
    """`vision` and `language` checkpoints of about 60k parameters, below `folder`, which is given back."""
    import torch

    torch.set_num_threads(1)
    shutil.copytree(_parts().name, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    return folder


@cache
def _parts() -> "tempfile.TemporaryDirectory[str]":
    """The checkpoints, made once a process; the folder goes with it."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, SiglipVisionConfig, SiglipVisionModel

    made = tempfile.TemporaryDirectory()
    folder = Path(made.name)
    torch.manual_seed(0)
    sight = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    SiglipVisionModel(SiglipVisionConfig(**sight, image_size=16, patch_size=4)).save_pretrained(folder / "vision")
    words = tokenizer()
    words.save_pretrained(folder / "language")
    speech = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    Qwen2ForCausalLM(
        Qwen2Config(**speech, num_key_value_heads=2, vocab_size=len(words), tie_word_embeddings=True)
    ).save_pretrained(folder / "language")
    return made


def outspoken(folder: Path) -> None:
    """Put a random language model in the place of the one in `folder`: vLLM serves it, and its replies vary.

    vLLM on a CPU has no kernel for heads of 8, which those of `parts` are. Weights as they are drawn say the same to
    every question; scaled like this, attention decides.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config.from_pretrained(folder / "language", hidden_size=128, intermediate_size=128)
    torch.manual_seed(0)
    decoder = Qwen2ForCausalLM(config)
    for name, weight in decoder.named_parameters():
        if weight.ndim == 2:
            weight.data.mul_(8 if ".layers." in name else 4)
    decoder.save_pretrained(folder / "language")


def picture(path: Path, number: int, size: int = 16) -> Path:
    """Four coloured squares with some noise."""
    noise = np.random.default_rng(number)
    half = size // 2
    pixels = np.zeros((size, size, 3), dtype=np.int64)
    for row in range(2):
        for column in range(2):
            colour = list(COLOURS.values())[int(noise.integers(0, 3))]
            pixels[row * half : (row + 1) * half, column * half : (column + 1) * half] = colour
    pixels = (pixels + noise.integers(0, 40, pixels.shape)).clip(0, 255)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def data(folder: Path, questions: int = 40) -> None:
    """`questions.jsonl` and `test.jsonl` with their images, and a finished filter stage in `run`."""
    chance = random.Random(0)
    rows, traces = [], []
    for number in range(questions):
        path = picture(folder / "images" / f"{number}.png", number)
        colour, answer = chance.choice(list(COLOURS)), str(chance.randrange(5))
        question = f"How many {colour} squares?" if number % 3 else f"Are there {colour} squares, and how many?"
        lines = [f"row {line}: {colour}, {chance.randrange(3)}" for line in range(1, 2 + number % 4)]
        rationale = "\n".join(lines)
        domain = ("scenes", "charts")[number % 2]
        rows.append({"image": path.name, "question": question, "answer": answer, "domain": domain})
        content = path.read_bytes()
        traces.append(
            {
                "images": [{"bytes": content, "path": path.name}],
                "messages": [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": f"<think>\n{rationale}\n</think>\n\n{answer}"},
                ],
                "sample_id": hashlib.sha256(content).hexdigest()[:16],
                "trace_id": f"trace{number}",
                "rationale": rationale,
                "answer": answer,
            }
        )
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[:12]), encoding="utf-8")
    target = folder / "run" / "filter" / "dataset" / "train"
    target.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(traces), target / "part-00000.parquet")
    fields = {"filter": "by hand"}
    Manifest(stage="filter", fingerprint=fingerprint(fields), fields=fields).write(folder / "run" / "filter")


def stage(
    name: str, data: str = "traces", *, train: str = '["language"]', steps: int = 6, save: int = 200, more: str = ""
) -> str:
    return STAGE.format(name=name, data=data, train=train, steps=steps, save=save, more=more)


def recipe(folder: Path, *stages: str, more: str = "") -> Recipe:
    path = folder / "recipe.toml"
    sources = "".join(
        f'[data.{name}]\nsource = "{name}.jsonl"\nimages_root = "images"\n' for name in ("questions", "test")
    )
    student = '[student]\nvision = "vision"\nlanguage = "language"\npixel_shuffle = 2\ndtype = "float32"\n'
    path.write_text(sources + student + "".join(stages) + more, encoding="utf-8")
    return load(path)


def rows(folder: Path, count: int = 8, *, images: int = 1) -> list[TrainingRow]:
    """Rows of different lengths."""
    found = []
    for number in range(count):
        refs = []
        for place in range(images):
            path = picture(folder / "pictures" / f"{number}-{place}.png", 100 * number + place)
            refs.append(ImageRef(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), path=str(path)))
        response = "<think>\n" + "row 1: red green, 1\n" * (number % 5) + f"</think>\n\n{number % 10}"
        found.append(
            TrainingRow(id=f"row{number}", images=tuple(refs), question="How many red squares?", response=response)
        )
    return found


def batch(processor: Any, folder: Path, count: int = 3) -> dict[str, Any]:
    """Inputs with labels as the processor alone makes them, right-padded; every real token is a label."""
    texts, images = [], []
    for row in rows(folder, count):
        turns = [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": row.question}]},
            {"role": "assistant", "content": [{"type": "text", "text": row.response}]},
        ]
        texts.append(processor.apply_chat_template(turns))
        images.append([Image.open(str(ref.path)).convert("RGB") for ref in row.images])
    processor.tokenizer.padding_side = "right"
    made = dict(processor(text=texts, images=images, padding=True, return_tensors="pt"))
    made["labels"] = made["input_ids"].masked_fill(made["attention_mask"] == 0, -100)
    return made


CHATML = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- for content in message['content'] -%}
{%- if content['type'] == 'image' -%}{{- 'IMAGE' -}}{%- else -%}{{- content['text'] -}}{%- endif -%}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
WORDS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def _without_videos(processor: type) -> type:
    """The processor class for images only: its video processor would need torchvision."""
    return type(processor.__name__, (processor,), {"check_argument_for_proper_class": lambda *_: None})


def other(kind: str) -> tuple[Any, Any]:
    """A random student of another class with its processor: llava, internvl, qwen3-vl, smolvlm."""
    import torch
    import transformers as t

    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = tokenizer()
    marks = {
        "llava": ["<image>"],
        "internvl": ["<IMG_CONTEXT>", "<img>", "</img>", "<video>"],
        "qwen3-vl": ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"],
        "smolvlm": ["<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>"],
    }[kind]
    words.add_special_tokens({"extra_special_tokens": marks})
    ids = {mark: words.convert_tokens_to_ids(mark) for mark in marks}
    text = {**WORDS, "num_key_value_heads": 2, "vocab_size": len(words), "tie_word_embeddings": False}
    sight = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "llava":
        config: Any = t.LlavaConfig(
            vision_config=t.SiglipVisionConfig(**sight, image_size=16, patch_size=4),
            text_config=t.LlamaConfig(**text),
            image_token_index=ids["<image>"],
            vision_feature_select_strategy="full",
            vision_feature_layer=-1,
        )
        images: Any = t.SiglipImageProcessorPil(size={"height": 16, "width": 16})
        processor: Any = t.LlavaProcessor(
            images, words, patch_size=4, vision_feature_select_strategy="full", chat_template=CHATML
        )
        place = "<image>"
    elif kind == "internvl":
        words.start_image_token, words.end_image_token = "<img>", "</img>"
        words.context_image_token, words.video_token = "<IMG_CONTEXT>", "<video>"
        words.start_image_token_id, words.end_image_token_id = ids["<img>"], ids["</img>"]
        words.context_image_token_id, words.video_token_id = ids["<IMG_CONTEXT>"], ids["<video>"]
        config = t.InternVLConfig(
            vision_config={**sight, "image_size": [16, 16], "patch_size": [4, 4]},
            text_config=t.Qwen2Config(**text),
            image_token_id=ids["<IMG_CONTEXT>"],
            image_seq_length=4,
        )
        images = t.GotOcr2ImageProcessorPil(size={"height": 16, "width": 16}, crop_to_patches=False)
        processor = _without_videos(t.InternVLProcessor)(
            images, words, None, image_seq_length=4, chat_template=CHATML
        )
        place = "<IMG_CONTEXT>"
    elif kind == "qwen3-vl":
        config = t.Qwen3VLConfig(
            text_config={
                **text,
                "head_dim": 8,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
            },
            vision_config={
                "depth": 2,
                "hidden_size": 16,
                "intermediate_size": 32,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 4,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0],
            },
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
        )
        images = t.Qwen2VLImageProcessorPil(
            patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 1024}
        )
        processor = _without_videos(t.Qwen3VLProcessor)(images, words, None, chat_template=CHATML)
        place = "<|vision_start|><|image_pad|><|vision_end|>"
    else:
        config = t.SmolVLMConfig(
            vision_config={**sight, "image_size": 16, "patch_size": 4},
            text_config=t.LlamaConfig(**text),
            scale_factor=2,
            image_token_id=ids["<image>"],
            pad_token_id=words.pad_token_id,
        )
        # SmolVLM's own processor needs a package for spelling numbers; Idefics3's writes the same tokens.
        edge = {"longest_edge": 32}
        images = t.Idefics3ImageProcessorPil(
            do_image_splitting=True, size=edge, max_image_size={"longest_edge": 16}, image_mean=[0.5] * 3
        )
        words.add_special_tokens(
            {"extra_special_tokens": [f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)]}
        )
        config.text_config.vocab_size = len(words)
        processor = t.Idefics3Processor(images, words, image_seq_len=4, chat_template=CHATML)
        place = "<image>"
    processor.chat_template = CHATML.replace("IMAGE", place)
    model = t.AutoModelForImageTextToText.from_config(config)
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    return model, processor


def published(kind: str, folder: Path) -> Path:
    """A random student of a class on disk as hubs have it, with the settings of a video processor if it has one."""
    model, made = other(kind)
    model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(made.chat_template, encoding="utf-8")
    # SmolVLM's own processor, which `other` avoids.
    name = "SmolVLMProcessor" if kind == "smolvlm" else type(made).__name__
    images = {**made.image_processor.to_dict(), "processor_class": name}
    images["image_processor_type"] = images["image_processor_type"].removesuffix("Pil")
    if kind == "smolvlm":
        images["image_processor_type"] = "SmolVLMImageProcessor"
    more: dict[str, Any] = {
        "llava": {"patch_size": 4, "vision_feature_select_strategy": "full"},
        "internvl": {"image_seq_length": 4},
        "qwen3-vl": {},
        "smolvlm": {"image_seq_len": 4},
    }[kind]
    videos = {"internvl": "InternVL", "qwen3-vl": "Qwen3VL", "smolvlm": "SmolVLM"}.get(kind)
    files = {"preprocessor_config.json": images, "processor_config.json": {"processor_class": name, **more}}
    if videos is not None:
        files["video_preprocessor_config.json"] = {**images, "video_processor_type": f"{videos}VideoProcessor"}
    for file, values in files.items():
        (folder / file).write_text(json.dumps(values), encoding="utf-8")
    if kind == "internvl":
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        marks = {"start_image": "<img>", "end_image": "</img>", "context_image": "<IMG_CONTEXT>", "video": "<video>"}
        settings["extra_special_tokens"] = {f"{mark}_token": text for mark, text in marks.items()}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
