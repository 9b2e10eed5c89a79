"""Students of other people's classes by the name of a directory: loaded, found by role, trained, saved."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    Siglip2VisionConfig,
    Siglip2VisionModel,
    SiglipConfig,
    SiglipModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from worlds import student_worlds as worlds

from distill.errors import MissingExtra, ModelError, RecipeError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from student.models import processors, siq_vl
from student.models.parts import find_parts
from student.train import train

NAMES = (*worlds.ALL_CLASSES[1:], "idefics3")
TRAIN_LIKE_OTHERS = ("qwen2-vl", "glm4v", "llava-next", "aya-vision")
CLASSES = {
    "llava": ("LlavaForConditionalGeneration", "LlavaProcessor"),
    "internvl": ("InternVLForConditionalGeneration", "InternVLProcessor"),
    "qwen3-vl": ("Qwen3VLForConditionalGeneration", "Qwen3VLProcessor"),
    "smolvlm": ("SmolVLMForConditionalGeneration", "SmolVLMProcessor"),
    "qwen3.5": ("Qwen3_5ForConditionalGeneration", "Qwen3VLProcessor"),
    "gemma4": ("Gemma4ForConditionalGeneration", "Gemma4Processor"),
    "lfm2-vl": ("Lfm2VlForConditionalGeneration", "Lfm2VlProcessor"),
    "qwen2-vl": ("Qwen2VLForConditionalGeneration", "Qwen2VLProcessor"),
    "qwen2.5-vl": ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLProcessor"),
    "glm4v": ("Glm4vForConditionalGeneration", "Glm4vProcessor"),
    "gemma3": ("Gemma3ForConditionalGeneration", "Gemma3Processor"),
    "llava-next": ("LlavaNextForConditionalGeneration", "LlavaNextProcessor"),
    "llava-onevision": ("LlavaOnevisionForConditionalGeneration", "LlavaOnevisionProcessor"),
    "mistral3": ("Mistral3ForConditionalGeneration", "PixtralProcessor"),
    "ovis2": ("Ovis2ForConditionalGeneration", "Ovis2Processor"),
    "aya-vision": ("AyaVisionForConditionalGeneration", "AyaVisionProcessor"),
    "deepseek-vl": ("DeepseekVLForConditionalGeneration", "DeepseekVLProcessor"),
    "idefics3": ("Idefics3ForConditionalGeneration", "Idefics3Processor"),
}
STAGE = worlds.stage(
    "reason", train='["projector", "language"]', steps=2, more="[stages.lora]\nrank = 4\nalpha = 8\n"
)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of every class, and the parts of SiQ-VL."""
    folder = worlds.parts(tmp_path_factory.mktemp("shelf"))
    for kind in NAMES[:-1]:
        worlds.published(kind, folder / kind)
    built, processor = worlds.student("siq-vl", folder)
    built.save_pretrained(folder / "idefics3")
    processor.save_pretrained(folder / "idefics3")
    return folder


@pytest.fixture
def spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the num2words library, which SmolVLM asks for and needs for videos alone."""
    from transformers.models.smolvlm import processing_smolvlm

    if processing_smolvlm.num2words is None:
        monkeypatch.setattr(processing_smolvlm, "num2words", str)


@pytest.mark.usefixtures("spelled")
@pytest.mark.parametrize("kind", NAMES)
def test_a_directory_of_each_class_is_loaded_with_its_own_processor(kind: str, shelf: Path, tmp_path: Path):
    student, processor = siq_vl.load(str(shelf / kind), dtype="bfloat16")
    assert (type(student).__name__, type(processor).__name__) == CLASSES[kind]
    assert {parameter.dtype for parameter in student.parameters()} == {torch.bfloat16}
    found = find_parts(student)
    for part in (found.tower, found.projector, found.language):
        assert list(student.get_submodule(part).parameters())
    known = (found.tower, *found.projectors, found.language, *found.unused, *found.fixed, "lm_head")
    assert [name for name, _ in student.named_parameters() if not name.startswith(known)] == []
    expected = worlds.batch(worlds.student("siq-vl" if kind == "idefics3" else kind, shelf)[1], tmp_path)
    made = worlds.batch(processor, tmp_path)
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], value) for name, value in expected.items())


@pytest.mark.usefixtures("spelled")
@pytest.mark.parametrize("kind", ["internvl", "qwen3-vl", "qwen3.5", "gemma4", "smolvlm"])
def test_a_processor_without_its_half_for_videos_is_saved_whole(kind: str, shelf: Path, tmp_path: Path):
    processor = processors.load_processor(str(shelf / kind))
    for place in ("once", "twice"):
        processor.save_pretrained(tmp_path / place)
        AutoConfig.from_pretrained(shelf / kind).save_pretrained(tmp_path / place)
        saved = json.loads((tmp_path / place / "processor_config.json").read_text())
        assert saved["processor_class"] == CLASSES[kind][1]
        assert saved["video_processor"]["video_processor_type"].endswith("VideoProcessor")
        processor = processors.load_processor(str(tmp_path / place))


def test_a_library_that_a_class_asks_for_is_named(shelf: Path, monkeypatch: pytest.MonkeyPatch):
    from transformers.models.smolvlm import processing_smolvlm

    monkeypatch.setattr(processing_smolvlm, "num2words", None)
    with pytest.raises(MissingExtra, match=r"smolvlm: this checkpoint needs num2words, .* pip install num2words$"):
        siq_vl.load(str(shelf / "smolvlm"))
    monkeypatch.setattr(processors, "VIDEOS", "nothing")
    with pytest.raises(
        MissingExtra, match=r"qwen3-vl: this checkpoint needs torchvision, .* pip install torchvision$"
    ):
        siq_vl.load(str(shelf / "qwen3-vl"))


def recipe(folder: Path, student: str) -> Recipe:
    made = worlds.recipe(folder, STAGE)
    text = made.path.read_text(encoding="utf-8")
    before, _, rest = text.partition("[student]\n")
    stages = rest[rest.index("[[stages]]") - 1 :]
    made.path.write_text(f'{before}[student]\nmodel = "{student}"\ndtype = "float32"\n{stages}', encoding="utf-8")
    return load(made.path)


@pytest.mark.usefixtures("spelled")
@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind not in TRAIN_LIKE_OTHERS])
def test_a_recipe_trains_a_student_of_each_class_by_name(kind: str, shelf: Path, tmp_path: Path):
    worlds.data(tmp_path)
    shutil.copytree(shelf / kind, tmp_path / kind)
    train(recipe(tmp_path, kind), tmp_path / "run")
    start = load_file(shelf / kind / "model.safetensors")
    roles = find_parts(siq_vl.load(str(shelf / kind))[0])
    folder = tmp_path / "run" / "train" / "reason" / "model"
    trained = load_file(folder / "model.safetensors")
    changed = {name for name, value in start.items() if not torch.equal(value, trained[name])}
    # Saved names differ from those in memory in their first word or two; the decoder of the older Qwens has none.
    projector, language = (f"{part.rpartition('.')[2]}." for part in (roles.projector, roles.language))
    owners = dict.fromkeys((projector, "deepstack_merger_list."), "projector") | dict.fromkeys(
        (language, "model.layers.0.", "model.layers.1."), "language"
    )
    assert {next((role for part, role in owners.items() if part in name), name) for name in changed} == {
        "projector",
        "language",
    }
    again, processor = siq_vl.load(str(folder))
    assert (type(again).__name__, type(processor).__name__) == CLASSES[kind]


SIGHT = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 24,
    "patch_size": 4,
}
TEXT = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9}


@pytest.mark.parametrize("whole", [False, True], ids=["tower alone", "with its text tower"])
@pytest.mark.parametrize("shuffle", [1, 2, 3, 6])
def test_siq_vl_takes_any_tower_of_fixed_size_and_factor_of_its_grid(whole, shuffle, shelf: Path, tmp_path: Path):
    # SigLIP-2 of a fixed size is SigLIP's class, with a vocabulary of its own beside it.
    tower = (
        SiglipModel(SiglipConfig(vision_config=SIGHT, text_config={**TEXT, "vocab_size": 99}))
        if whole
        else SiglipVisionModel(SiglipVisionConfig(**SIGHT))
    )
    tower.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.4] * 3, "image_std": [0.5] * 3}))
    student, processor = siq_vl.build(str(tmp_path), str(shelf / "language"), shuffle)
    batch = worlds.batch(processor, tmp_path)
    tokens = (24 // 4 // shuffle) ** 2
    assert int((batch["input_ids"] == student.config.image_token_id).sum()) == 3 * tokens
    assert tuple(processor.image_processor.image_mean) == (0.4, 0.4, 0.4)
    assert student(**batch).loss.isfinite()
    with pytest.raises(RecipeError, match="choose one of: 1, 2, 3, 6"):
        siq_vl.build(str(tmp_path), str(shelf / "language"), 4)


def test_a_siglip2_tower_for_any_shape_is_refused_with_a_way_out(shelf: Path, tmp_path: Path):
    sight = {key: value for key, value in SIGHT.items() if key != "image_size"}
    Siglip2VisionModel(Siglip2VisionConfig(**sight, num_patches=36)).save_pretrained(tmp_path)
    for make in (siq_vl.build, siq_vl.outline_build):
        with pytest.raises(ModelError, match=r"any shape \(NaFlex\)[\s\S]*such as google/siglip2-base-patch16-224"):
            make(str(tmp_path), str(shelf / "language"), 2)


@pytest.mark.parametrize("tied", [False, True])
def test_siq_vl_takes_qwen2_with_and_without_a_head_of_its_own(tied: bool, shelf: Path, tmp_path: Path):
    words = worlds.tokenizer()
    words.save_pretrained(tmp_path)
    # Qwen2.5 is the same class; its larger sizes have a head of their own, and all have rows to spare.
    decoder = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**worlds.WORDS, num_key_value_heads=2, vocab_size=400, tie_word_embeddings=tied)
    )
    decoder.save_pretrained(tmp_path)
    student, processor = siq_vl.build(str(shelf / "vision"), str(tmp_path), 2)
    assert (student.lm_head.weight is student.get_input_embeddings().weight) == tied
    assert torch.equal(student.lm_head.weight, decoder.lm_head.weight)
    assert student(**worlds.batch(processor, tmp_path)).loss.isfinite()
