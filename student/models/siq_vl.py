"""Students and teachers as Hugging Face models: SiQ-VL built from its parts, or any image-text-to-text checkpoint.

SiQ-VL is Idefics3: a SigLIP-shaped tower, a pixel shuffle, one linear layer without bias, and a decoder. Does not
cover training (student/training/loop/trainer.py) or what vLLM serves (student/export/convert.py).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    Idefics3Config,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    PreTrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
    SiglipVisionModel,
)

from distill.data.images.lfs_pointers import explain_pointers
from distill.errors import MissingExtra, ModelError, RecipeError
from distill.machine import hub
from student.models.library_output import errors_alone
from student.models.processors import image_settings, load_processor

IMAGE_TOKEN = "<image>"
MARKERS = ("<fake_token_around_image>", IMAGE_TOKEN, "<global-img>", "<end_of_utterance>")

# ChatML with the assistant's turn marked for the loss. The loop runs over message['content'] itself because vLLM
# reads the template to find out that it takes content blocks; otherwise it would join image and text by a newline.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}
{%- if message['content'] is string -%}{{- message['content'] -}}
{%- else -%}{%- for content in message['content'] -%}{{- content['text'] -}}{%- endfor -%}{%- endif -%}
{{- '<|im_end|>' -}}
{%- endgeneration -%}
{%- else -%}
{%- if message['content'] is string -%}{{- message['content'] -}}
{%- else -%}
{%- for content in message['content'] -%}
{%- if content['type'] in ('image', 'image_url') -%}{{- '<image>' -}}{%- else -%}{{- content['text'] -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>' -}}
{%- endif -%}
{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


_NOISY = ("transformers.modeling_utils", "transformers.distributed.tensor_parallel")  # also of loads that go well


def build(
    vision: str, language: str, pixel_shuffle: int, *, dtype: str = "float32", seed: int = 0
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """SiQ-VL from a SigLIP tower and a Qwen2 decoder, directories or hub names, with a fresh projector.

    The weights lie in `dtype`, frozen parts included. Raises ModelError for a checkpoint that cannot be read and
    RecipeError for a shuffle factor that does not divide the tower's patch grid.
    """
    torch_dtype = getattr(torch, dtype)
    sight, tower = _tower(vision, dtype=torch_dtype)
    decoder, tokenizer = _decoder(language, dtype=torch_dtype)
    patches_per_side = _grid_side(sight, pixel_shuffle, vision)
    rows = decoder.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            decoder.resize_token_embeddings(len(tokenizer), mean_resizing=False)

    text_config = decoder.config
    text_config.pad_token_id = tokenizer.pad_token_id
    text_config.eos_token_id = tokenizer.eos_token_id
    config = _joined_config(sight, text_config, pixel_shuffle)
    config.image_token_id = tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Not made first and cast then: that would round the frequencies of the rotations, which stay in float32.
        model: PreTrainedModel = AutoModelForImageTextToText.from_config(config, dtype=torch_dtype)
    _copy(model.model.vision_model, getattr(tower, "vision_model", tower), vision, ignore=("head.",))
    _copy(model.model.text_model, decoder.model, language)
    if config.tie_word_embeddings:
        model.tie_weights()
    else:
        _copy(model.lm_head, decoder.lm_head, language)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model, _processor(tokenizer, vision, sight.image_size, (patches_per_side // pixel_shuffle) ** 2)


def require_tower(vision: str) -> None:
    """Raise what `build` raises for a tower, by the names and shapes of its weights: none is read."""
    _tower(vision, device_map="meta")


def require_decoder(language: str) -> None:
    """Raise what `build` raises for a decoder and its tokenizer, by the names and shapes of its weights."""
    _decoder(language, device_map="meta")


def require_whole(path_or_name: str, *, revision: str | None = None, trust_remote_code: bool = False) -> None:
    """Raise what `load` raises, by the names and shapes of the weights: none is read."""
    _whole(path_or_name, revision, trust_remote_code, device_map="meta")


def _tower(vision: str, **options: Any) -> tuple[Any, Any]:
    """Configuration and weights of a SigLIP tower."""
    sight = _sight(vision)
    with _readable(vision):
        tower, result = SiglipVisionModel.from_pretrained(
            vision, use_safetensors=True, output_loading_info=True, **options
        )
    _complete(vision, "a SigLIP vision tower", result, unused=("head.",))
    return sight, tower


def _decoder(language: str, **options: Any) -> tuple[Any, Any]:
    """A language model and its tokenizer, which has the marks of images."""
    with _readable(language):
        decoder, result = AutoModelForCausalLM.from_pretrained(
            language, use_safetensors=True, output_loading_info=True, **options
        )
        tokenizer = _tokenizer(language)
    _complete(language, "a language model", result)
    _mark_images(tokenizer, language)
    return decoder, tokenizer


def _sight(vision: str) -> Any:
    """The configuration of a SigLIP tower, alone or in a whole model; fixed-size SigLIP-2 is the same class."""
    with _readable(vision):
        config = AutoConfig.from_pretrained(vision)
    config = getattr(config, "vision_config", config)
    if config.model_type == "siglip2_vision_model":
        raise ModelError(
            f"{vision}: this is a SigLIP-2 tower for images of any shape (NaFlex), which SiQ-VL cannot take\n"
            "name one of a fixed size, such as google/siglip2-base-patch16-224"
        )
    if config.model_type != "siglip_vision_model":
        raise ModelError(
            f"{vision}: this checkpoint is not a SigLIP vision tower, but of type {config.model_type}\n"
            "check that student.vision names the right checkpoint"
        )
    return config


def _grid_side(sight: Any, pixel_shuffle: int, vision: str) -> int:
    """Patches along a side of an image. Raises RecipeError for a shuffle factor that does not divide them."""
    patches_per_side = int(sight.image_size // sight.patch_size)
    if patches_per_side % pixel_shuffle:
        divisors = ", ".join(
            str(factor) for factor in range(1, patches_per_side + 1) if patches_per_side % factor == 0
        )
        raise RecipeError(
            f"student.pixel_shuffle = {pixel_shuffle} does not divide the patch grid of {vision} "
            f"({patches_per_side} x {patches_per_side} patches); choose one of: {divisors}"
        )
    return patches_per_side


def _mark_images(tokenizer: Any, language: str) -> None:
    """Give a decoder's tokenizer the marks of images and of the end of a turn; ModelError without <|im_end|>."""
    tokenizer.add_special_tokens({"extra_special_tokens": list(MARKERS)})
    if tokenizer.pad_token_id is None or tokenizer.pad_token == tokenizer.eos_token:
        tokenizer.pad_token = "<|endoftext|>"
    end_of_turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    if end_of_turn is None or end_of_turn == tokenizer.unk_token_id:
        raise ModelError(f"{language}: its tokenizer has no <|im_end|>; the chat format needs one (Qwen2 has it)")
    tokenizer.eos_token = "<|im_end|>"


def _joined_config(sight: Any, text_config: Any, pixel_shuffle: int) -> Idefics3Config:
    """The configuration of SiQ-VL from the configurations of its tower and its decoder."""
    sizes = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "image_size",
        "patch_size",
    )
    return Idefics3Config(
        vision_config={
            key: getattr(sight, key) for key in (*sizes, "hidden_act", "layer_norm_eps", "attention_dropout")
        },
        text_config=text_config.to_dict(),
        scale_factor=pixel_shuffle,
        tie_word_embeddings=bool(text_config.tie_word_embeddings),
        pad_token_id=text_config.pad_token_id,
    )


def load(
    path_or_name: str, *, dtype: str = "float32", revision: str | None = None, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Any Hugging Face image-text-to-text checkpoint with its processor.

    Raises ModelError when it cannot be read, MissingExtra naming a library that it needs and that is missing.
    """
    return _whole(path_or_name, revision, trust_remote_code, dtype=getattr(torch, dtype))


def _whole(
    path_or_name: str, revision: str | None, trust_remote_code: bool, **options: Any
) -> tuple[PreTrainedModel, ProcessorMixin]:
    with _readable(path_or_name):
        model, result = AutoModelForImageTextToText.from_pretrained(
            path_or_name,
            revision=revision,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
        processor = load_processor(path_or_name, revision=revision, trust_remote_code=trust_remote_code)
    _complete(path_or_name, "a whole image-text-to-text model", result)
    return model, processor


def outline_build(
    vision: str, language: str, pixel_shuffle: int, *, dtype: str = "float32"
) -> tuple[PreTrainedModel, ProcessorMixin | None]:
    """What `build` makes, on the meta device: no weights are read. No processor where there is no tokenizer.

    Raises what `build` raises.
    """
    sight = _sight(vision)
    with _readable(language):
        text_config = AutoConfig.from_pretrained(language)
    patches_per_side = _grid_side(sight, pixel_shuffle, vision)
    tokenizer = processor = None
    with suppress(ModelError), _readable(language):
        tokenizer = _tokenizer(language)
    if tokenizer is not None:
        _mark_images(tokenizer, language)
        text_config.vocab_size = max(text_config.vocab_size, len(tokenizer))
        text_config.eos_token_id = tokenizer.eos_token_id
        processor = _processor(tokenizer, vision, sight.image_size, (patches_per_side // pixel_shuffle) ** 2)
    return without_weights(_joined_config(sight, text_config, pixel_shuffle), dtype), processor


def outline(
    path_or_name: str, *, dtype: str = "float32", revision: str | None = None, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, ProcessorMixin | None]:
    """What `load` makes, on the meta device: no weights are read. No processor where its files are missing."""
    with _readable(path_or_name):
        config = AutoConfig.from_pretrained(path_or_name, revision=revision, trust_remote_code=trust_remote_code)
        model = without_weights(config, dtype, trust_remote_code=trust_remote_code)
    processor = None
    with suppress(ModelError, MissingExtra), _readable(path_or_name):
        processor = load_processor(path_or_name, revision=revision, trust_remote_code=trust_remote_code)
    return model, processor


def without_weights(config: Any, dtype: str, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """The model of a configuration on the meta device, where nothing takes memory or time."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForImageTextToText.from_config(config, trust_remote_code=trust_remote_code)
    return model.to(getattr(torch, dtype))  # type: ignore[arg-type]


def _tokenizer(language: str) -> Any:
    # The empty config makes the tokenizer's own files decide its class, not the model type: transformers 5 would
    # otherwise load any tokenizer beside a Qwen2 model as Qwen2Tokenizer, with other rules for numbers.
    return AutoTokenizer.from_pretrained(language, config=PreTrainedConfig())


def _complete(name: str, kind: str, result: dict[str, Any], unused: tuple[str, ...] = ()) -> None:
    """Refuse a checkpoint that lacks weights: transformers would only warn and fill them with random numbers."""
    missing = sorted(
        key for key in result["missing_keys"] if not key.removeprefix("vision_model.").startswith(unused)
    )
    if missing:
        raise ModelError(
            f"{name}: this checkpoint is not {kind}, or is incomplete: it lacks {len(missing)} of its weights "
            f"({', '.join(missing[:3])}, ...)\ncheck that the recipe names the right checkpoint for this part"
        )


def _copy(target: torch.nn.Module, source: torch.nn.Module, name: str, ignore: tuple[str, ...] = ()) -> None:
    weights = {key: value for key, value in source.state_dict().items() if not key.startswith(ignore)}
    try:
        target.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise ModelError(f"{name}: its weights don't fit the student: {error}") from None


def _processor(tokenizer: Any, vision: str, image_size: int, image_seq_len: int) -> Idefics3Processor:
    """Images become squares of the tower's size, normalised as the tower was trained; no splitting into tiles."""
    settings = image_settings(vision)
    images = Idefics3ImageProcessorPil(
        do_image_splitting=False,
        size={"longest_edge": image_size},
        max_image_size={"longest_edge": image_size},
        image_mean=settings.get("image_mean", [0.5, 0.5, 0.5]),
        image_std=settings.get("image_std", [0.5, 0.5, 0.5]),
    )
    return Idefics3Processor(images, tokenizer, image_seq_len=image_seq_len, chat_template=CHAT_TEMPLATE)


@contextmanager
def _readable(path_or_name: str) -> Iterator[None]:
    """Turn the many ways in which a checkpoint fails to load into one message."""
    unreached = ""
    try:
        with errors_alone(*_NOISY), hub.cache_if_unreached(path_or_name) as unreached:
            yield
    except ImportError as error:
        library = _library(error)
        raise MissingExtra(
            f"{path_or_name}: this checkpoint needs {library}, which is not installed: pip install {library}"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        reason = hub.load_fault(error)
        if unreached:
            raise ModelError(hub.unreached_text(path_or_name, unreached, reason)) from error
        reason = explain_pointers(Path(path_or_name)) or reason
        raise ModelError(
            f"{path_or_name}: this checkpoint cannot be loaded: {reason}\n"
            "check the path or hub name, and that config.json, *.safetensors and the processor files are there"
        ) from error


def _library(error: ImportError) -> str:
    """The name under which pip knows what an ImportError, or a complaint of transformers, is about."""
    text = str(error)
    result = re.search(r"pip install ([\w-]+)", text) or re.search(r"requires the (\w+) library", text)
    return error.name or (result[1].lower() if result else text.strip().splitlines()[0])
