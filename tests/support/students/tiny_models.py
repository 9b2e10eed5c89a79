"""Random Idefics3 models small enough to build in a test: byte-level BPE tokenizer, ChatML, safetensors on disk.

They say nothing sensible; they answer fast and exactly the way a real checkpoint of the class does. The decoder is
a Llama with attention biases, the form that vLLM serves.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}{{- message['content'] -}}
{%- else -%}
{%- for content in message['content'] -%}
{%- if content['type'] in ('image', 'image_url') -%}{{- '<image>' -}}{%- else -%}{{- content['text'] -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
CORPUS = (
    "How many red circles and blue squares are there in total?",
    "<think>\nRow 1: red circle, empty, blue square. 1 + 2 = 3. Row 2: green, 4 - 1 = 3.\n</think>\n\n7",
    "Which bar is higher, north or south? What is the sum of the digits 0 1 2 3 4 5 6 7 8 9?",
)


def build(
    folder: Path,
    *,
    seed: int = 0,
    hidden: int = 128,
    layers: int = 3,
    image_size: int = 96,
    spread: float = 0.1,
    end_weight: float = 1.0,
) -> Path:
    """Write a random Idefics3 checkpoint with processor and tokenizer to `folder`; about 1.2 M parameters by default.

    `spread` is the standard deviation of the output layer: larger values give sharper distributions. `end_weight`
    lengthens the end token's row, so that answers end more often and at different lengths.
    """
    import torch
    import transformers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        PreTrainedTokenizerFast,
    )

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS * 20, trainer)
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")])
    tokenizer.add_special_tokens(
        {"extra_special_tokens": ["<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>"]}
    )
    patch, shuffle = image_size // 8, 2
    side = {"longest_edge": image_size}
    images = Idefics3ImageProcessorPil(
        do_image_splitting=False, size=side, max_image_size=side, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    processor = Idefics3Processor(images, tokenizer, image_seq_len=(8 // shuffle) ** 2, chat_template=CHAT_TEMPLATE)
    config = Idefics3Config(
        vision_config={
            "hidden_size": 96,
            "intermediate_size": 192,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": image_size,
            "patch_size": patch,
        },
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "attention_bias": True,
            "tie_word_embeddings": False,
            "max_position_embeddings": 1024,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        scale_factor=shuffle,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Idefics3ForConditionalGeneration(config)
        with torch.no_grad():
            # Wide enough that every layer, and so the whole prompt and the image, decides the answer.
            for weight in model.parameters():
                if weight.dim() >= 2:
                    weight.normal_(std=2 / weight[0].numel() ** 0.5)
            model.get_input_embeddings().weight.normal_()
            model.lm_head.weight.normal_(std=spread)
            model.lm_head.weight[tokenizer.eos_token_id] *= end_weight
    model.generation_config.eos_token_id = [tokenizer.eos_token_id]
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def make_image(path: Path, seed: int, size: int = 96) -> Path:
    """A random image on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path
