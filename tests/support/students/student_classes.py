"""Random students of every class that trains here, small enough for a test, with processors made on the spot.

`BUILDERS` is the table: a class is one function, which gives its model's configuration, its processor and what a
conversation holds in the place of an image.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from students import more_student_classes as more
from students.student_class_parts import CHATML, SIGHT, Parts, marks, speech, tokenizer, without_videos
from students.student_class_parts import WORDS as WORDS


def llava(t: Any, words: Any) -> Parts:
    ids = marks(words, "<image>")
    config = t.LlavaConfig(
        vision_config=t.SiglipVisionConfig(**SIGHT, image_size=16, patch_size=4),
        text_config=t.LlamaConfig(**speech(words)),
        image_token_index=ids["<image>"],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    images = t.SiglipImageProcessorPil(size={"height": 16, "width": 16})
    processor = t.LlavaProcessor(images, words, patch_size=4, vision_feature_select_strategy="full")
    return Parts(config, processor, "<image>")


def internvl(t: Any, words: Any) -> Parts:
    ids = marks(words, "<IMG_CONTEXT>", "<img>", "</img>", "<video>")
    for name, mark in INTERNVL_TOKENS.items():
        setattr(words, name, mark)
        setattr(words, f"{name}_id", ids[mark])
    config = t.InternVLConfig(
        vision_config={**SIGHT, "image_size": [16, 16], "patch_size": [4, 4]},
        text_config=t.Qwen2Config(**speech(words)),
        image_token_id=ids["<IMG_CONTEXT>"],
        image_seq_length=4,
    )
    images = t.GotOcr2ImageProcessorPil(size={"height": 16, "width": 16}, crop_to_patches=False)
    processor = without_videos(t.InternVLProcessor)(images, words, None, image_seq_length=4)
    return Parts(config, processor, "<IMG_CONTEXT>")


INTERNVL_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}


def _qwen(t: Any, words: Any, config_class: Any, text: dict[str, Any], **sight: Any) -> Parts:
    """Qwen3-VL and Qwen3.5: a tower for images of any shape, a processor and positions of the same kind."""
    ids = marks(words, "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    config = config_class(
        text_config={**speech(words), "rope_parameters": rope, **text},
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
    processor = without_videos(t.Qwen3VLProcessor)(images, words, None)
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
    marks(own, "<|im_start|>")
    return _qwen(t, own, t.Qwen3_5Config, text)


def smolvlm(t: Any, words: Any) -> Parts:
    ids = marks(words, "<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>")
    marks(words, *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)))
    config = t.SmolVLMConfig(
        vision_config={**SIGHT, "image_size": 16, "patch_size": 4},
        text_config=t.LlamaConfig(**speech(words)),
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
    ids = marks(words, *GEMMA_TOKENS.values(), "<|video|>")
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
        text_config=speech(words, **text),
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
    processor = without_videos(t.Gemma4Processor)(
        t.Gemma4AudioFeatureExtractor(), images, words, None, image_seq_length=70
    )
    return Parts(config, processor, "<|image|>")


def lfm2_vl(t: Any, words: Any) -> Parts:
    from student.models.lfm2_images import Lfm2VlImageProcessorPil

    tiles = [f"<|img_row_{row}_col_{column}|>" for row in (1, 2) for column in (1, 2)]
    ids = marks(words, "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", *tiles)
    config = t.Lfm2VlConfig(
        vision_config={
            **SIGHT,
            "model_type": "siglip2_vision_model",
            "patch_size": 4,
            "num_patches": 16,
            "vision_use_head": False,
        },
        text_config={
            **speech(words, tie_word_embeddings=True),  # vLLM ties them whatever is said
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

FURTHER: dict[str, Callable[[Any, Any], Parts]] = {
    "qwen2-vl": more.qwen2_vl,
    "qwen2.5-vl": more.qwen2_5_vl,
    "glm4v": more.glm4v,
    "gemma3": more.gemma3,
    "llava-next": more.llava_next,
    "llava-onevision": more.llava_onevision,
    "mistral3": more.mistral3,
    "ovis2": more.ovis2,
    "aya-vision": more.aya_vision,
    "deepseek-vl": more.deepseek_vl,
}
"""Classes without code of their own in the project; the tests of what they may do otherwise have them."""


_ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5]}
WIDE: dict[str, dict[str, Any]] = {
    "qwen3-vl": {
        "head_dim": 32,
        "rope_parameters": {**_ROPE, "mrope_interleaved": True},
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
    "gemma3": {"head_dim": 32, "query_pre_attn_scalar": 32},
    **{kind: {"head_dim": 32} for kind in ("mistral3", "llava", "llava-next", "smolvlm")},
    "qwen2-vl": {"rope_parameters": _ROPE},
    "qwen2.5-vl": {"rope_parameters": _ROPE},
    "glm4v": {"rope_parameters": {**_ROPE, "partial_rotary_factor": 1.0}},
    # vLLM reads sizes of published configurations that transformers leaves alone, here and below.
    "lfm2-vl": {"conv_dim": 128, "conv_dim_out": 128, "block_dim": 128},
}
"""Settings of language models with heads that vLLM has kernels for."""
_WIDE_SIGHT = {
    "gemma4": {"default_output_length": 70},
    "qwen2-vl": {"hidden_size": 128},
    "qwen3-vl": {"out_hidden_size": 128},
    "qwen3.5": {"out_hidden_size": 128},
    "qwen2.5-vl": {"out_hidden_size": 128},
    "glm4v": {"out_hidden_size": 128},
}
"""What the towers give to such language models."""


def wide(kind: str, config: Any) -> Any:
    """The configuration with the least width that vLLM serves on a CPU."""
    values = config.to_dict()
    values["text_config"] |= {"hidden_size": 128, "intermediate_size": 128, **WIDE.get(kind, {})}
    values["text_config"].pop("per_layer_config", None)
    values["vision_config"] |= _WIDE_SIGHT.get(kind, {})
    if kind == "ovis2":
        values["hidden_size"] = 128
    return type(config)(**values)


def speak_up(model: Any, words: int) -> None:
    """Scale random weights, as drawn they answer every question alike; only the first `words` tokens are said."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and ("language_model" in name or "lm_head" in name):
            weight.data.mul_(8 if ".layers." in name else 4)
    model.get_output_embeddings().weight.data[words:] = 0


def other(kind: str, change: Callable[[str, Any], Any] = lambda _, config: config) -> tuple[Any, Any]:
    """A random student of a class with its processor; `change`: another configuration from the first."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = tokenizer()
    built = (BUILDERS | FURTHER)[kind](transformers, words)
    built.processor.chat_template = CHATML.replace("IMAGE", built.image)
    model = transformers.AutoModelForImageTextToText.from_config(change(kind, built.config))
    for weight in model.parameters():
        if weight.ndim == 2 and not weight.any():  # Gemma 3's projector begins as zeros: no image would be seen
            torch.nn.init.normal_(weight, std=0.1)
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    return model, built.processor


_TOWERS_IN_TOWERS = ("lfm2-vl", "llava", "llava-next", "llava-onevision", "gemma3")
_FILES: dict[str, dict[str, Any]] = {
    "llava": {"patch_size": 4, "vision_feature_select_strategy": "full"},
    "internvl": {"image_seq_length": 4},
    "smolvlm": {"image_seq_len": 4},
    "gemma3": {"image_seq_length": 4},
    "llava-next": {
        "patch_size": 4,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    },
    "llava-onevision": {"num_image_tokens": 16, "vision_feature_select_strategy": "full"},
    "mistral3": {"patch_size": 4, "spatial_merge_size": 2},
    "ovis2": {"image_seq_length": 4},
    "aya-vision": {"patch_size": 4, "img_size": 16, "downsample_factor": 2},
    "deepseek-vl": {"num_image_tokens": 16},
}
"""What the files of a published processor hold beside the name of its class."""
_VIDEOS = {
    "internvl": "InternVL",
    "qwen3-vl": "Qwen3VL",
    "qwen3.5": "Qwen3VL",
    "smolvlm": "SmolVLM",
    "gemma4": "Gemma4",
    "qwen2-vl": "Qwen2VL",
    "qwen2.5-vl": "Qwen2VL",
    "glm4v": "Glm4v",
    "llava-onevision": "LlavaOnevision",
}
_TOKENS = {
    "internvl": INTERNVL_TOKENS,
    "gemma4": GEMMA_TOKENS,
    "gemma3": more.GEMMA3_TOKENS,
    "deepseek-vl": {"image_token": "<image_placeholder>"},
}


def published(kind: str, folder: Path, *, served: bool = False) -> Path:
    """A random student of a class on disk as hubs have it, with the settings of a video processor if it has one.

    `served`: one that vLLM serves, and whose replies vary.
    """
    model, made = other(kind, *([wide] if served else []))
    if served:
        speak_up(model, len(tokenizer()))
    model.save_pretrained(folder)
    if kind in _TOWERS_IN_TOWERS:  # transformers has another name for a part than the hub, and puts it back
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
