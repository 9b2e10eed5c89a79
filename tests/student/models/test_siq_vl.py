"""A student built from parts is the parts' weights, and speaks the chat format; a bad checkpoint is one message."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    SiglipConfig,
    SiglipImageProcessorPil,
    SiglipModel,
    SiglipProcessor,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from distill.errors import ModelError, RecipeError
from student.export import convert
from student.models import siq_vl
from student.models.parts import Parts, find_parts

SIGHT = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 48,
    "patch_size": 6,
}
SPEECH = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tower`, `decoder` and `untied`, a decoder with a head of its own."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoints")
    SiglipVisionModel(SiglipVisionConfig(**SIGHT, vision_use_head=False)).save_pretrained(folder / "tower")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        ["How many red circles are there?"],
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    for name, tied in (("decoder", True), ("untied", False)):
        config = Qwen2Config(**SPEECH, vocab_size=len(tokenizer), tie_word_embeddings=tied)
        decoder = Qwen2ForCausalLM(config)
        # Zero biases would hide an export that forgets them.
        for key, parameter in decoder.named_parameters():
            if key.endswith("bias"):
                torch.nn.init.normal_(parameter)
        decoder.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def prompt(processor: siq_vl.ProcessorMixin, width: int = 48, height: int = 48) -> dict[str, torch.Tensor]:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8))
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}
    text = processor.apply_chat_template([turn], add_generation_prompt=True)
    return processor(text=[text], images=[[image]], return_tensors="pt")


@pytest.mark.parametrize("language", ["decoder", "untied"])
def test_a_built_student_holds_the_weights_of_its_parts(checkpoints: Path, language: str) -> None:
    built, _ = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / language), 2)
    tower = SiglipVisionModel.from_pretrained(checkpoints / "tower").state_dict()
    decoder = Qwen2ForCausalLM.from_pretrained(checkpoints / language)
    assert all(torch.equal(value, tower[key]) for key, value in built.model.vision_model.state_dict().items())
    words = decoder.config.vocab_size
    assert torch.equal(built.get_input_embeddings().weight[:words], decoder.get_input_embeddings().weight)
    assert torch.equal(built.lm_head.weight[:words], decoder.lm_head.weight)
    assert (built.lm_head.weight is built.get_input_embeddings().weight) == (language == "decoder")


def test_the_tower_of_a_whole_siglip_checkpoint_is_taken(checkpoints: Path, tmp_path: Path) -> None:
    text = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 9,
    }
    whole = SiglipModel(SiglipConfig(vision_config=SIGHT, text_config=text))
    whole.save_pretrained(tmp_path)
    built, _ = siq_vl.build(str(tmp_path), str(checkpoints / "decoder"), 2)
    theirs = whole.vision_model.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in built.model.vision_model.state_dict().items())


def test_the_dtype_asked_for_is_the_dtype_of_every_weight(checkpoints: Path) -> None:
    built, _ = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2, dtype="bfloat16")
    assert {parameter.dtype for parameter in built.parameters()} == {torch.bfloat16}


def test_a_built_student_in_bfloat16_is_what_it_is_when_loaded_again(checkpoints: Path, tmp_path: Path) -> None:
    built, processor = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2, dtype="bfloat16")
    convert.save(built, processor, tmp_path)
    loaded, _ = siq_vl.load(str(tmp_path), dtype="bfloat16")
    buffers = dict(loaded.named_buffers())
    assert buffers and all(torch.equal(value, buffers[name]) for name, value in built.named_buffers())
    ids = torch.arange(5, 200).unsqueeze(0)
    assert torch.equal(built.eval()(input_ids=ids).logits, loaded.eval()(input_ids=ids).logits)


def test_an_image_becomes_one_token_a_shuffled_patch(checkpoints: Path) -> None:
    built, processor = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 4)
    inputs = prompt(processor)
    assert int((inputs["input_ids"] == built.config.image_token_id).sum()) == (48 // 6 // 4) ** 2
    assert built(**inputs).logits.isfinite().all()


@pytest.mark.parametrize(("width", "height"), [(1, 1), (300, 7), (7, 300), (47, 49)])
def test_an_image_of_any_shape_becomes_one_square_of_the_towers_size(
    checkpoints: Path, width: int, height: int
) -> None:
    built, processor = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2)
    inputs = prompt(processor, width, height)
    assert inputs["pixel_values"].shape == (1, 1, 3, 48, 48)
    assert inputs["pixel_attention_mask"].all()
    assert int((inputs["input_ids"] == built.config.image_token_id).sum()) == 16


def test_loss_falls_on_the_assistants_words_and_the_end_of_the_turn(checkpoints: Path) -> None:
    _, processor = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2)
    turns = [
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": [{"type": "text", "text": "There are 3"}]},
    ]
    for _ in range(2):
        encoded = processor.apply_chat_template(
            [turns], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        ids, mask = encoded["input_ids"][0], encoded["assistant_masks"][0]
        trained = [token for token, one in zip(ids, mask, strict=True) if one]
        assert processor.tokenizer.decode(trained) == "There are 3<|im_end|>"
        turns[1] = {"role": "assistant", "content": "There are 3"}


def test_a_student_ends_its_turn_at_im_end_and_pads_with_another_token(checkpoints: Path) -> None:
    built, processor = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2)
    end = processor.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert built.generation_config.eos_token_id == built.config.text_config.eos_token_id == end
    assert built.generation_config.pad_token_id == processor.tokenizer.pad_token_id != end


def test_a_factor_that_does_not_divide_the_grid_names_those_that_do(checkpoints: Path) -> None:
    with pytest.raises(RecipeError, match="choose one of: 1, 2, 4, 8"):
        siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 3)


WORDS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
TEXT = {**WORDS, "num_key_value_heads": 2, "vocab_size": 300}
QWEN_VISION = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32}


@pytest.mark.parametrize(
    ("config", "tower", "projector", "language"),
    [
        (
            lambda: transformers.Qwen3VLConfig(text_config=TEXT, vision_config=QWEN_VISION),
            "model.visual",
            "model.visual.merger",
            "model.language_model",
        ),
        (
            lambda: transformers.LlavaConfig(
                vision_config=SiglipVisionConfig(**WORDS), text_config=transformers.LlamaConfig(**TEXT)
            ),
            "model.vision_tower",
            "model.multi_modal_projector",
            "model.language_model",
        ),
        (
            lambda: transformers.InternVLConfig(vision_config=WORDS, text_config=Qwen2Config(**TEXT)),
            "model.vision_tower",
            "model.multi_modal_projector",
            "model.language_model",
        ),
        (
            lambda: transformers.SmolVLMConfig(vision_config=WORDS, text_config=transformers.LlamaConfig(**TEXT)),
            "model.vision_model",
            "model.connector",
            "model.text_model",
        ),
    ],
    ids=["qwen3-vl", "llava", "internvl", "smolvlm"],
)
def test_the_parts_of_other_models_are_found_by_role(
    config: Callable[[], transformers.PreTrainedConfig], tower: str, projector: str, language: str
) -> None:
    with torch.device("meta"):
        built = transformers.AutoModelForImageTextToText.from_config(config())
    layers = [f"{tower}.deepstack_merger_list.{index}" for index in range(3)] if "visual" in tower else []
    expected = Parts(tower=tower, projector=projector, language=language, further_projectors=tuple(layers))
    assert find_parts(built) == expected


def test_a_language_model_without_eyes_is_refused(checkpoints: Path) -> None:
    with pytest.raises(ModelError, match="decoder"):
        siq_vl.load(str(checkpoints / "decoder"))


def test_a_tower_named_as_the_decoder_is_refused(checkpoints: Path) -> None:
    with pytest.raises(ModelError, match="tower"):
        siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "tower"), 2)


def test_a_loaded_checkpoint_has_the_dtype_asked_for(checkpoints: Path, tmp_path: Path) -> None:
    convert.save(
        *siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2, dtype="bfloat16"), tmp_path
    )
    for dtype in (torch.float32, torch.bfloat16):
        loaded, _ = siq_vl.load(str(tmp_path), dtype=str(dtype).removeprefix("torch."))
        assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}


def test_a_decoder_named_as_the_tower_is_refused_not_filled_with_random_weights(checkpoints: Path) -> None:
    with pytest.raises(ModelError, match="not a SigLIP vision tower"):
        siq_vl.build(str(checkpoints / "decoder"), str(checkpoints / "decoder"), 2)


@pytest.mark.parametrize("damage", ["cut", "missing", "config"])
def test_an_unreadable_checkpoint_is_one_message(checkpoints: Path, tmp_path: Path, damage: str) -> None:
    built, processor = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2)
    convert.save(built, processor, tmp_path / "whole")
    broken = shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    weights = broken / "model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "missing":
        weights.unlink()
    else:
        (broken / "config.json").write_text("{")
    with pytest.raises(ModelError, match="broken"):
        siq_vl.load(str(broken))


def test_a_folder_that_is_not_there_and_has_no_name_of_the_hub_is_said_to_be_missing() -> None:
    with pytest.raises(ModelError, match=r"my stüdent: this checkpoint cannot be loaded: there is no such folder\n"):
        siq_vl.load("my stüdent")


@pytest.mark.parametrize("part", ["tower", "decoder"])
def test_a_part_whose_weights_are_pickled_is_not_loaded(checkpoints: Path, tmp_path: Path, part: str) -> None:
    from safetensors.torch import load_file

    pickled = Path(shutil.copytree(checkpoints / part, tmp_path / part))
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    names = {each: str(checkpoints / each) for each in ("tower", "decoder")} | {part: str(pickled)}
    with pytest.raises(ModelError, match=r"cannot be loaded(.|\n)*safetensors"):
        siq_vl.build(names["tower"], names["decoder"], 2)


def test_images_are_normalised_as_the_processor_of_a_whole_siglip_checkpoint_says(
    checkpoints: Path, tmp_path: Path
) -> None:
    tower = Path(shutil.copytree(checkpoints / "tower", tmp_path / "tower"))
    images = SiglipImageProcessorPil(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.6, 0.7])
    tokenizer = AutoTokenizer.from_pretrained(checkpoints / "decoder")
    SiglipProcessor(images, tokenizer).save_pretrained(tower)  # one file for both
    assert not (tower / "preprocessor_config.json").exists()
    _, processor = siq_vl.build(str(tower), str(checkpoints / "decoder"), 2)
    assert list(processor.image_processor.image_mean) == [0.1, 0.2, 0.3]
    assert list(processor.image_processor.image_std) == [0.4, 0.6, 0.7]


def test_a_checkpoint_that_lacks_weights_is_refused(checkpoints: Path, tmp_path: Path) -> None:
    built, processor = siq_vl.build(str(checkpoints / "tower"), str(checkpoints / "decoder"), 2)
    convert.save(built, processor, tmp_path)
    state = {key: value for key, value in built.state_dict().items() if "connector" not in key}
    state.pop("lm_head.weight")
    from safetensors.torch import save_file

    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 1 of its weights"):
        siq_vl.load(str(tmp_path))
