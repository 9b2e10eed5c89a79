"""Random students of the classes that train by what their modules and processors tell, without code of their own.

Functions of the table `BUILDERS` in tests/support/students/student_classes.py.
"""

from typing import Any

from students.student_class_parts import SIGHT, Parts, marks, speech, without_videos

from student.models.processors import pixtral_processor

GRID = [[16, 16], [16, 32], [32, 16], [32, 32]]
"""Sizes in tiles of 16 that LLaVA-NeXT and LLaVA-OneVision cut large images into."""


def _of_qwen(t: Any, words: Any, name: str, sight: dict[str, Any]) -> Parts:
    ids = marks(words, "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    config = getattr(t, f"{name}Config")(
        text_config={**speech(words), "rope_parameters": rope},
        vision_config={"depth": 2, "num_heads": 2, "patch_size": 4, **sight},
        tie_word_embeddings=False,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    images = t.Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 1024})
    processor = without_videos(getattr(t, f"{name}Processor"))(images, words, None)
    return Parts(config, processor, "<|vision_start|><|image_pad|><|vision_end|>")


def qwen2_vl(t: Any, words: Any) -> Parts:
    return _of_qwen(t, words, "Qwen2VL", {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2})


def qwen2_5_vl(t: Any, words: Any) -> Parts:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "out_hidden_size": 32}
    return _of_qwen(t, words, "Qwen2_5_VL", {**sizes, "window_size": 16, "fullatt_block_indexes": [1]})


def glm4v(t: Any, words: Any) -> Parts:
    ids = marks(words, "<|image|>", "<|video|>", "<|begin_of_image|>", "<|end_of_image|>")
    ids |= marks(words, "<|begin_of_video|>", "<|end_of_video|>")
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1], "partial_rotary_factor": 1.0}
    sizes = {"depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 32}
    config = t.Glm4vConfig(
        text_config={**speech(words), "rope_parameters": rope},
        vision_config={**sizes, "image_size": 16, "patch_size": 4},
        image_token_id=ids["<|image|>"],
        video_token_id=ids["<|video|>"],
        image_start_token_id=ids["<|begin_of_image|>"],
        image_end_token_id=ids["<|end_of_image|>"],
        video_start_token_id=ids["<|begin_of_video|>"],
        video_end_token_id=ids["<|end_of_video|>"],
    )
    images = t.Glm4vImageProcessorPil(patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 1024})
    processor = without_videos(t.Glm4vProcessor)(images, words, None)
    return Parts(config, processor, "<|begin_of_image|><|image|><|end_of_image|>")


WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 24, "tie_word_embeddings": True}
GEMMA3_TOKENS = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}


def gemma3(t: Any, words: Any) -> Parts:
    ids = marks(words, *GEMMA3_TOKENS.values())
    words.add_tokens(["\n" * count for count in range(1, 5)])  # an image's blank lines join those beside it
    for name, mark in GEMMA3_TOKENS.items():
        setattr(words, name, mark)
        setattr(words, f"{name}_id", ids[mark])
    config = t.Gemma3Config(
        text_config=speech(
            words,
            **WINDOWS,
            head_dim=8,
            query_pre_attn_scalar=8,
        ),
        vision_config={**SIGHT, "image_size": 16, "patch_size": 4},
        mm_tokens_per_image=4,
        boi_token_index=ids["<start_of_image>"],
        eoi_token_index=ids["<end_of_image>"],
        image_token_index=ids["<image_soft_token>"],
    )
    images = t.Gemma3ImageProcessorPil(size={"height": 16, "width": 16})
    return Parts(config, t.Gemma3Processor(images, words, image_seq_length=4), "<start_of_image>")


def llava_next(t: Any, words: Any) -> Parts:
    ids = marks(words, "<image>")
    config = t.LlavaNextConfig(
        vision_config=t.CLIPVisionConfig(**SIGHT, image_size=16, patch_size=4, projection_dim=16),
        text_config=t.MistralConfig(**speech(words), sliding_window=None),
        image_token_index=ids["<image>"],
        image_grid_pinpoints=GRID,
    )
    size = {"height": 16, "width": 16}
    images = t.LlavaNextImageProcessorPil(size={"shortest_edge": 16}, crop_size=size, image_grid_pinpoints=GRID)
    options = {"vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return Parts(config, t.LlavaNextProcessor(images, words, patch_size=4, **options), "<image>")


def llava_onevision(t: Any, words: Any) -> Parts:
    ids = marks(words, "<image>", "<video>")
    config = t.LlavaOnevisionConfig(
        vision_config=t.SiglipVisionConfig(**SIGHT, image_size=16, patch_size=4, vision_use_head=False),
        text_config=t.Qwen2Config(**speech(words)),
        image_token_index=ids["<image>"],
        video_token_index=ids["<video>"],
        image_grid_pinpoints=GRID,
    )
    images = t.LlavaOnevisionImageProcessorPil(size={"height": 16, "width": 16}, image_grid_pinpoints=GRID)
    processor = without_videos(t.LlavaOnevisionProcessor)(
        images, words, None, num_image_tokens=16, vision_feature_select_strategy="full"
    )
    return Parts(config, processor, "<image>")


def mistral3(t: Any, words: Any) -> Parts:
    ids = marks(words, "[IMG]", "[IMG_BREAK]", "[IMG_END]")
    config = t.Mistral3Config(
        vision_config=t.PixtralVisionConfig(**SIGHT, image_size=32, patch_size=4),
        text_config=t.MistralConfig(**speech(words, head_dim=8), sliding_window=None),
        image_token_index=ids["[IMG]"],
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    images = t.PixtralImageProcessorPil(size={"longest_edge": 32}, patch_size={"height": 4, "width": 4})
    return Parts(config, pixtral_processor()(images, words, patch_size=4, spatial_merge_size=2), "[IMG]")


def ovis2(t: Any, words: Any) -> Parts:
    indicators = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    ids = marks(words, "<IMG_ATOM>", *indicators, "<image>")
    config = t.Ovis2Config(
        vision_config={
            **SIGHT,
            "image_size": 16,
            "patch_size": 4,
            "vocab_size": 32,
            "hidden_stride": 2,
        },
        text_config=t.Qwen2Config(**speech(words)),
        image_token_id=ids["<IMG_ATOM>"],
        visual_indicator_token_ids=[ids[mark] for mark in indicators],
        vocab_size=len(words),
        hidden_size=32,
        tie_word_embeddings=False,
    )
    images = t.Ovis2ImageProcessorPil(size={"height": 16, "width": 16}, crop_to_patches=False)
    return Parts(config, t.Ovis2Processor(images, words, image_seq_length=4), "<image>")


def aya_vision(t: Any, words: Any) -> Parts:
    special = ("<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>", "<image>")
    ids = marks(words, *special, "TILE", "TILE_GLOBAL", *(f"TILE_{number}" for number in range(1, 5)))
    config = t.AyaVisionConfig(
        vision_config=t.SiglipVisionConfig(**SIGHT, image_size=16, patch_size=4, vision_use_head=False),
        text_config=t.Cohere2Config(
            **speech(
                words,
                layer_types=["sliding_attention", "full_attention"],
                sliding_window=24,
                tie_word_embeddings=True,
            )
        ),
        image_token_index=ids["<|IMG_PATCH|>"],
    )
    images = t.GotOcr2ImageProcessorPil(size={"height": 16, "width": 16}, max_patches=4)
    return Parts(
        config, t.AyaVisionProcessor(images, words, patch_size=4, img_size=16, downsample_factor=2), "<image>"
    )


def deepseek_vl(t: Any, words: Any) -> Parts:
    ids = marks(words, "<image_placeholder>")
    words.image_token, words.image_token_id = "<image_placeholder>", ids["<image_placeholder>"]
    config = t.DeepseekVLConfig(
        vision_config=t.SiglipVisionConfig(**SIGHT, image_size=16, patch_size=4, vision_use_head=False),
        text_config=t.LlamaConfig(**speech(words)),
        image_token_id=ids["<image_placeholder>"],
        tie_word_embeddings=False,
    )
    images = t.DeepseekVLImageProcessorPil(size={"height": 16, "width": 16}, min_size=2)
    return Parts(config, t.DeepseekVLProcessor(images, words, num_image_tokens=16), "<image_placeholder>")


def paligemma(t: Any, words: Any) -> Parts:
    ids = marks(words, "<image>", "<bos>")
    words.image_token, words.image_token_id = "<image>", ids["<image>"]
    words.bos_token = "<bos>"
    config = t.PaliGemmaConfig(
        vision_config=t.SiglipVisionConfig(**SIGHT, image_size=16, patch_size=4, vision_use_head=False),
        text_config=t.GemmaConfig(**speech(words, head_dim=8, tie_word_embeddings=True)),
        image_token_index=ids["<image>"],
        vocab_size=len(words),
        projection_dim=32,
        hidden_size=32,
    )
    images = t.SiglipImageProcessorPil(size={"height": 16, "width": 16})
    images.image_seq_length = 16
    processor = t.PaliGemmaProcessor(images, words)
    config.text_config.vocab_size = len(words)
    return Parts(config, processor, "<image>")
