"""What random students of all classes are made of: their tokenizer, the sizes of their layers, their marks."""

from typing import Any, NamedTuple

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


def without_videos(processor: type) -> type:
    """The processor class for images only: its video processor would need torchvision."""
    return type(processor.__name__, (processor,), {"check_argument_for_proper_class": lambda *_: None})


def marks(words: Any, *marks: str) -> dict[str, int]:
    """The ids of new special tokens."""
    words.add_special_tokens({"extra_special_tokens": list(marks)})
    return {mark: words.convert_tokens_to_ids(mark) for mark in marks}


def speech(words: Any, **more: Any) -> dict[str, Any]:
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None}
    return {**WORDS, "num_key_value_heads": 2, "vocab_size": len(words), "tie_word_embeddings": False, **ends, **more}
