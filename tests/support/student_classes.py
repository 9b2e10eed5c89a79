"""Random students of every class that trains here, small enough for a test, with processors made on the spot.

`BUILDERS` is the table: a class is one function, which gives its model's configuration, its processor and what a
conversation holds in the place of an image.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file

CORPUS = (
    "How many red green blue squares are there? 0 1 2 3 4 5 6 7 8 9",
    "<think>\nrow 1: red green, 1\nrow 2: blue blue, 0\n</think>\n\n4",
)
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
SIGHT = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


class Parts(NamedTuple):
    """What a builder gives."""

    config: Any
    processor: Any
    image: str
    """What a conversation holds in the place of an image."""


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


def _without_videos(processor: type) -> type:
    """The processor class for images only: its video processor would need torchvision."""
    return type(processor.__name__, (processor,), {"check_argument_for_proper_class": lambda *_: None})


def _marks(words: Any, *marks: str) -> dict[str, int]:
    """The ids of new special tokens."""
    words.add_special_tokens({"extra_special_tokens": list(marks)})
    return {mark: words.convert_tokens_to_ids(mark) for mark in marks}


def _text(words: Any, **more: Any) -> dict[str, Any]:
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None}
    return {**WORDS, "num_key_value_heads": 2, "vocab_size": len(words), "tie_word_embeddings": False, **ends, **more}


def llava(t: Any, words: Any) -> Parts:
    ids = _marks(words, "<image>")
    config = t.LlavaConfig(
        vision_config=t.SiglipVisionConfig(**SIGHT, image_size=16, patch_size=4),
        text_config=t.LlamaConfig(**_text(words)),
        image_token_index=ids["<image>"],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    images = t.SiglipImageProcessorPil(size={"height": 16, "width": 16})
    processor = t.LlavaProcessor(images, words, patch_size=4, vision_feature_select_strategy="full")
    return Parts(config, processor, "<image>")


def internvl(t: Any, words: Any) -> Parts:
    ids = _marks(words, "<IMG_CONTEXT>", "<img>", "</img>", "<video>")
    for name, mark in INTERNVL_TOKENS.items():
        setattr(words, name, mark)
        setattr(words, f"{name}_id", ids[mark])
    config = t.InternVLConfig(
        vision_config={**SIGHT, "image_size": [16, 16], "patch_size": [4, 4]},
        text_config=t.Qwen2Config(**_text(words)),
        image_token_id=ids["<IMG_CONTEXT>"],
        image_seq_length=4,
    )
    images = t.GotOcr2ImageProcessorPil(size={"height": 16, "width": 16}, crop_to_patches=False)
    processor = _without_videos(t.InternVLProcessor)(images, words, None, image_seq_length=4)
    return Parts(config, processor, "<IMG_CONTEXT>")


INTERNVL_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}


def _qwen(t: Any, words: Any, config_class: Any, text: dict[str, Any], **sight: Any) -> Parts:
    """Qwen3-VL and Qwen3.5: a tower for images of any shape, a processor and positions of the same kind."""
    ids = _marks(words, "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    config = config_class(
        text_config={**_text(words), "rope_parameters": rope, **text},
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 4,
            "num_position_embeddings": 16,
            **sight,
        },
        tie_word_embeddings=False,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    images = t.Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 1024})
    processor = _without_videos(t.Qwen3VLProcessor)(images, words, None)
    return Parts(config, processor, "<|vision_start|><|image_pad|><|vision_end|>")


def qwen3_vl(t: Any, words: Any) -> Parts:
    return _qwen(t, words, t.Qwen3VLConfig, {"head_dim": 8}, deepstack_visual_indexes=[0])


def qwen3_5(t: Any, words: Any) -> Parts:
    text = {
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "head_dim": 8,
        "partial_rotary_factor": 1.0,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    # As transformers loads any tokenizer beside such a model: it splits words by rules of its own.
    model = json.loads(words.backend_tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    own = t.Qwen3_5Tokenizer(model["vocab"], merges, eos_token=words.eos_token, pad_token=words.pad_token)
    _marks(own, "<|im_start|>")
    return _qwen(t, own, t.Qwen3_5Config, text)


def smolvlm(t: Any, words: Any) -> Parts:
    ids = _marks(words, "<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>")
    _marks(words, *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)))
    config = t.SmolVLMConfig(
        vision_config={**SIGHT, "image_size": 16, "patch_size": 4},
        text_config=t.LlamaConfig(**_text(words)),
        scale_factor=2,
        image_token_id=ids["<image>"],
        pad_token_id=words.pad_token_id,
    )
    # SmolVLM's own processor needs a package for spelling numbers; Idefics3's writes the same tokens.
    images = t.Idefics3ImageProcessorPil(
        do_image_splitting=True,
        size={"longest_edge": 32},
        max_image_size={"longest_edge": 16},
        image_mean=[0.5] * 3,
    )
    return Parts(config, t.Idefics3Processor(images, words, image_seq_len=4), "<image>")


GEMMA_TOKENS = {
    "image_token": "<|image|>",
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
}


def gemma4(t: Any, words: Any) -> Parts:
    """The small ones: windows, a second embedding, keys and values shared by the last layers, ears, bent logits."""
    ids = _marks(words, *GEMMA_TOKENS.values(), "<|video|>")
    for name, mark in GEMMA_TOKENS.items():
        setattr(words, name, mark)
        setattr(words, f"{name}_id", ids[mark])
    text = {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 24,
        "num_kv_shared_layers": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": len(words),
        "final_logit_softcapping": 2.0,
    }
    sight = {**SIGHT, "num_key_value_heads": 2, "head_dim": 8, "patch_size": 2, "position_embedding_size": 64}
    hearing = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "output_proj_dims": 16}
    config = t.Gemma4Config(
        text_config=_text(words, **text),
        vision_config={**sight, "pooling_kernel_size": 3},
        audio_config={**hearing, "subsampling_conv_channels": [4, 2]},
        tie_word_embeddings=False,
        image_token_id=ids["<|image|>"],
        audio_token_id=ids["<|audio|>"],
        video_token_id=ids["<|video|>"],
        boi_token_id=ids["<|image>"],
        eoi_token_id=ids["<image|>"],
        boa_token_id=ids["<|audio>"],
        eoa_token_index=ids["<audio|>"],
    )
    images = t.Gemma4ImageProcessorPil(patch_size=2, max_soft_tokens=70, pooling_kernel_size=3)
    processor = _without_videos(t.Gemma4Processor)(
        t.Gemma4AudioFeatureExtractor(), images, words, None, image_seq_length=70
    )
    return Parts(config, processor, "<|image|>")


def lfm2_vl(t: Any, words: Any) -> Parts:
    from student.models.lfm2_images import Lfm2VlImageProcessorPil

    tiles = [f"<|img_row_{row}_col_{column}|>" for row in (1, 2) for column in (1, 2)]
    ids = _marks(words, "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", *tiles)
    config = t.Lfm2VlConfig(
        vision_config={
            **SIGHT,
            "model_type": "siglip2_vision_model",
            "patch_size": 4,
            "num_patches": 16,
            "vision_use_head": False,
        },
        text_config={
            **_text(words, tie_word_embeddings=True),  # vLLM ties them whatever is said
            "model_type": "lfm2",
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "block_auto_adjust_ff_dim": False,
        },
        projector_hidden_size=32,
        image_token_id=ids["<image>"],
        tie_word_embeddings=True,
    )
    images = Lfm2VlImageProcessorPil(
        encoder_patch_size=4, tile_size=16, min_image_tokens=1, max_image_tokens=4, min_tiles=2, max_tiles=4
    )
    return Parts(config, t.Lfm2VlProcessor(images, words), "<image>")


BUILDERS: dict[str, Callable[[Any, Any], Parts]] = {
    "llava": llava,
    "internvl": internvl,
    "qwen3-vl": qwen3_vl,
    "smolvlm": smolvlm,
    "qwen3.5": qwen3_5,
    "gemma4": gemma4,
    "lfm2-vl": lfm2_vl,
}


WIDE: dict[str, dict[str, Any]] = {
    "qwen3-vl": {
        "head_dim": 32,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5]},
    },
    "qwen3.5": {
        "head_dim": 32,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
            "partial_rotary_factor": 1.0,
        },
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    },
    "gemma4": {"head_dim": 32, "global_head_dim": 64},
    # vLLM reads sizes of published configurations that transformers leaves alone, here and below.
    "lfm2-vl": {"conv_dim": 128, "conv_dim_out": 128, "block_dim": 128},
}
"""Settings of language models with heads that vLLM has kernels for."""


def wide(kind: str, config: Any) -> Any:
    """The configuration with the least width that vLLM serves on a CPU."""
    values = config.to_dict()
    values["text_config"] |= {"hidden_size": 128, "intermediate_size": 128, **WIDE[kind]}
    values["text_config"].pop("per_layer_config", None)
    values["vision_config"] |= {"gemma4": {"default_output_length": 70}, "lfm2-vl": {}}.get(
        kind, {"out_hidden_size": 128}
    )
    return type(config)(**values)


def speak_up(model: Any, words: int) -> None:
    """Scale random weights, as drawn they answer every question alike; only the first `words` tokens are said."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and ("language_model" in name or "lm_head" in name):
            weight.data.mul_(8 if ".layers." in name else 4)
    model.get_output_embeddings().weight.data[words:] = 0


def other(kind: str, change: Callable[[str, Any], Any] = lambda _, config: config) -> tuple[Any, Any]:
    """A random student of one of `BUILDERS` with its processor; `change`: another configuration from the first."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = tokenizer()
    built = BUILDERS[kind](transformers, words)
    built.processor.chat_template = CHATML.replace("IMAGE", built.image)
    model = transformers.AutoModelForImageTextToText.from_config(change(kind, built.config))
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    return model, built.processor


_FILES: dict[str, dict[str, Any]] = {
    "llava": {"patch_size": 4, "vision_feature_select_strategy": "full"},
    "internvl": {"image_seq_length": 4},
    "smolvlm": {"image_seq_len": 4},
}
"""What the files of a published processor hold beside the name of its class."""
_VIDEOS = {
    "internvl": "InternVL",
    "qwen3-vl": "Qwen3VL",
    "qwen3.5": "Qwen3VL",
    "smolvlm": "SmolVLM",
    "gemma4": "Gemma4",
}
_TOKENS = {"internvl": INTERNVL_TOKENS, "gemma4": GEMMA_TOKENS}


def published(kind: str, folder: Path, *, served: bool = False) -> Path:
    """A random student of a class on disk as hubs have it, with the settings of a video processor if it has one.

    `served`: one that vLLM serves, and whose replies vary.
    """
    model, made = other(kind, *([wide] if served else []))
    if served:
        speak_up(model, len(tokenizer()))
    model.save_pretrained(folder)
    if kind == "lfm2-vl":  # transformers has another name for a part of the tower than the hub, and puts it back
        weights = load_file(folder / "model.safetensors")
        renamed = {name.replace("vision_tower.", "vision_tower.vision_model."): weights[name] for name in weights}
        save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    made.tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(made.chat_template, encoding="utf-8")
    # SmolVLM's own processor, which its builder avoids.
    name = "SmolVLMProcessor" if kind == "smolvlm" else type(made).__name__
    images = {**made.image_processor.to_dict(), "processor_class": name}
    images["image_processor_type"] = images["image_processor_type"].removesuffix("Pil")
    if kind == "smolvlm":
        images["image_processor_type"] = "SmolVLMImageProcessor"
    files = {
        "preprocessor_config.json": images,
        "processor_config.json": {"processor_class": name, **_FILES.get(kind, {})},
    }
    if kind in _VIDEOS:
        files["video_preprocessor_config.json"] = {**images, "video_processor_type": f"{_VIDEOS[kind]}VideoProcessor"}
    if kind == "gemma4":
        files["processor_config.json"] |= {"feature_extractor": json.loads(made.feature_extractor.to_json_string())}
    for file, values in files.items():
        (folder / file).write_text(json.dumps(values), encoding="utf-8")
    if kind in _TOKENS:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        settings["extra_special_tokens"] = _TOKENS[kind]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
