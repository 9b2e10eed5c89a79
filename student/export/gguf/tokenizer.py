"""The tokenizer and the chat template of a SiQ-VL student as metadata of llama.cpp.

llama.cpp has a fixed list of ways to cut a text into words before byte pairs are merged, each under a name. A
tokenizer that cuts in another way is refused. Normalisation (NFC in Qwen2's tokenizer) is not done by llama.cpp: a
text in another normal form gets other tokens there.
"""

from typing import Any

import orjson
from transformers import ProcessorMixin

from distill.errors import ModelError
from student.export.gguf.vision import PROJECTORS, Around
from student.models.siq_vl import CHAT_TEMPLATE, IMAGE_TOKEN, MARKERS

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # llama.cpp's types of tokens

_MEDIA = "<__media"
"""How the mark begins that llama.cpp puts where an image stands. Its server adds random letters, then `__>`."""
_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}{{- message['content']MARKED -}}
{%- else -%}{%- for part in message['content'] -%}{{- part['text']MARKED -}}{%- endfor -%}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def tokens_around(processor: ProcessorMixin) -> Around:
    """The markers that Idefics3's processor puts around an image that is not split."""
    ids = processor.tokenizer.convert_tokens_to_ids
    return Around(inside=ids(MARKERS[2]), after=ids(MARKERS[0]))


def image_ids(processor: ProcessorMixin, shuffle: int) -> list[int]:
    """Token ids of one image that are not in the text that llama.cpp tokenises."""
    around = tokens_around(processor)
    ids = [processor.tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)] * processor.image_seq_len
    return ids if PROJECTORS[shuffle] == "janus_pro" else [around.inside, *ids, around.after]


def tokenizer_settings(processor: ProcessorMixin, rows: int, shuffle: int) -> dict[str, Any]:
    """Metadata for a decoder with `rows` embeddings. Raises ModelError for a tokenizer that llama.cpp lacks."""
    if processor.chat_template != CHAT_TEMPLATE:
        raise ModelError("the student has another chat template than SiQ-VL's, and only that is written as GGUF")
    tokenizer = processor.tokenizer
    if tokenizer.eos_token_id is None:
        raise ModelError(
            "the student's tokenizer has no end-of-turn token (eos_token), so a reply in llama.cpp would never end; "
            "set eos_token in its tokenizer_config.json"
        )
    parsed = orjson.loads(tokenizer.backend_tokenizer.to_str())
    model = parsed["model"]
    if model["type"] != "BPE":
        raise ModelError(f"a tokenizer of type {model['type']} is not written as GGUF; byte-level BPE is")
    added = {token["id"]: token for token in parsed["added_tokens"]}
    names = {index: name for name, index in model["vocab"].items()} | {
        index: token["content"] for index, token in added.items()
    }
    kinds = [
        (_CONTROL if added[index]["special"] else _USER_DEFINED) if index in added
        else _NORMAL if index in names else _UNUSED
        for index in range(rows)
    ]  # fmt: skip
    result = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _words(parsed["pre_tokenizer"]),
        "tokenizer.ggml.tokens": [names.get(index, f"[PAD{index}]") for index in range(rows)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": chat_template(shuffle),
    }
    if tokenizer.bos_token_id is not None:
        result["tokenizer.ggml.bos_token_id"] = tokenizer.bos_token_id
    if tokenizer.pad_token_id is not None:
        result["tokenizer.ggml.padding_token_id"] = tokenizer.pad_token_id
    return result


def chat_template(shuffle: int) -> str:
    """SiQ-VL's template with the tokens around an image that llama.cpp does not write itself."""
    before, after = MARKERS[0], ""
    if PROJECTORS[shuffle] == "janus_pro":
        before, after = before + MARKERS[2], MARKERS[0]
    marked = f" | replace('{_MEDIA}', '{before}{_MEDIA}')"
    if after:
        marked += f" | replace('__>', '__>{after}')"
    return _TEMPLATE.replace("MARKED", marked)


def _words(settings: dict[str, Any] | None) -> str:
    """llama.cpp's name of the way in which a tokenizer cuts a text into words."""
    steps = (settings or {}).get("pretokenizers", [settings])
    match [(step or {}).get("type") for step in steps]:
        case ["ByteLevel"] if steps[0]["use_regex"] and not steps[0]["add_prefix_space"]:
            return "gpt-2"
        case ["Digits", "ByteLevel"] if steps[0]["individual_digits"] and steps[1]["use_regex"]:
            return "smollm"
        case ["Split", "ByteLevel"] if steps[0]["pattern"].get("Regex") == _QWEN2_WORDS:
            return "qwen2"
    raise ModelError(
        "the tokenizer splits a text into words in a way that is not known of llama.cpp here; export with --plain"
    )
