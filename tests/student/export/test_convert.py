"""What vLLM serves is the same model: equal logits, a zero bias where Qwen2 has none, nothing converted twice."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from students import tiny_models
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, PreTrainedModel, Qwen2Config
from typer.testing import CliRunner

from distill.artifacts import files
from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.errors import DataError, ModelError, StaleError
from distill.recipe.loading import load
from student.evaluation import lmms_tasks
from student.export import convert
from student.models import siq_vl

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 48,
    "patch_size": 6,
}


def student(text: transformers.PreTrainedConfig) -> PreTrainedModel:
    """A random student whose biases and norms are not the zeros and ones that would hide a forgotten weight."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tied = bool(text.tie_word_embeddings)
    config = Idefics3Config(
        vision_config=VISION, text_config=text.to_dict(), scale_factor=2, image_token_id=299, tie_word_embeddings=tied
    )
    built = Idefics3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.ndim == 1:
                parameter.normal_(1.0, 0.5)
    return built


def inputs() -> dict[str, Any]:
    torch.manual_seed(1)
    ids = torch.tensor([[5, 6, *[299] * 16, 7, 8, 9, 10]])
    return {"input_ids": ids, "pixel_values": torch.randn(1, 1, 3, 48, 48)}


@pytest.mark.parametrize(
    "settings",
    [
        {"tie_word_embeddings": True},
        {"tie_word_embeddings": False},
        {"rms_norm_eps": 1e-2},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
        {"hidden_act": "gelu"},
    ],
    ids=["tied", "untied", "norm", "theta", "scaled-rope", "activation"],
)
def test_the_llama_form_has_the_same_logits(settings: dict[str, Any], tmp_path: Path) -> None:
    built = student(Qwen2Config(**TEXT, **settings))
    native = convert.to_vllm_native(built)
    native.save_pretrained(tmp_path)
    loaded = Idefics3ForConditionalGeneration.from_pretrained(tmp_path)
    with torch.no_grad():
        expected = built(**inputs()).logits
        assert torch.equal(native(**inputs()).logits, expected)
        assert torch.equal(loaded(**inputs()).logits, expected)


def test_the_llama_form_keeps_dtype_and_ends_of_turns() -> None:
    built = student(Qwen2Config(**TEXT)).to(torch.bfloat16)
    built.generation_config.eos_token_id = 7
    native = convert.to_vllm_native(built)
    assert {parameter.dtype for parameter in native.parameters()} == {torch.bfloat16}
    assert native.generation_config.eos_token_id == 7


def test_only_the_output_projections_bias_is_new_and_it_is_zero() -> None:
    built = student(Qwen2Config(**TEXT))
    native = convert.to_vllm_native(built)
    new = {name: value for name, value in native.named_parameters() if name not in dict(built.named_parameters())}
    assert len(new) == 2
    assert all(name.endswith("self_attn.o_proj.bias") and not value.any() for name, value in new.items())


def test_a_model_already_in_the_native_form_comes_back_as_it_is(tmp_path: Path) -> None:
    loaded, _ = siq_vl.load(str(tiny_models.build(tmp_path, layers=1)))
    assert convert.to_vllm_native(loaded) is loaded


def test_a_decoder_that_is_not_llama_in_disguise_is_refused() -> None:
    sliding = Qwen2Config(**TEXT, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    for text in (sliding, transformers.Qwen3Config(**TEXT, head_dim=8)):
        with pytest.raises(ModelError, match="cannot be written as Llama"):
            convert.to_vllm_native(student(text))


RECIPE = """
[data.questions]
source = "questions.jsonl"
[student]
model = "untuned"
[[stages]]
name = "instruct"
data = "questions"
train = ["language"]
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
[[stages]]
name = "answers_only"
data = "traces"
target = "answer"
train = ["language"]
"""


def trained(run: Path, *stages: str) -> dict[str, PreTrainedModel]:
    """A run whose stages have left random Qwen2 students."""
    run.mkdir()
    (run / "recipe.toml").write_text(RECIPE)
    students = {}
    for seed, name in enumerate(stages):
        folder = run / "train" / name
        tiny_models.build(folder / "model", layers=1)  # for its processor
        students[name] = student(Qwen2Config(**TEXT, tie_word_embeddings=bool(seed % 2)))
        students[name].save_pretrained(folder / "model")
        counts = {"parameters": 12_345, "steps": 7}
        Manifest(stage="train", fingerprint=name, fields={}, counts=counts, tokens={"trained": 999}).write(folder)
    return students


def logits_of(folder: Path) -> torch.Tensor:
    loaded, processor = siq_vl.load(str(folder))
    assert processor.tokenizer.eos_token_id is not None
    with torch.no_grad():
        return loaded(**inputs()).logits


def test_the_student_that_learned_rationales_is_exported_for_vllm(tmp_path: Path) -> None:
    students = trained(tmp_path / "run", "instruct", "reason", "answers_only")
    transformers.logging.enable_progress_bar()
    shown = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    assert shown.exit_code == 0 and "stage reason" in shown.output, shown.output
    assert "Loading weights" not in shown.stderr and "it/s" not in shown.stderr, "no bars of the libraries"
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.text_config.model_type == "llama"
    with torch.no_grad():
        assert torch.equal(logits_of(tmp_path / "out"), students["reason"](**inputs()).logits)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} <= {".json", ".safetensors", ".jinja", ".md"}
    (tmp_path / "new").touch()  # others may read an export as they may any new file
    modes = {path.stat().st_mode for path in [tmp_path / "new", *(tmp_path / "out").iterdir()]}
    assert len(modes) == 1 and (tmp_path / "out").stat().st_mode == (tmp_path / "run").stat().st_mode


def test_another_stage_and_the_plain_form_can_be_asked_for(tmp_path: Path) -> None:
    students = trained(tmp_path / "run", "instruct", "reason")
    assert convert.export(tmp_path / "run", tmp_path / "out", stage="instruct", native=False) == "instruct"
    assert transformers.AutoConfig.from_pretrained(tmp_path / "out").text_config.model_type == "qwen2"
    with torch.no_grad():
        assert torch.equal(logits_of(tmp_path / "out"), students["instruct"](**inputs()).logits)


def test_before_the_last_stage_the_last_finished_one_is_exported(tmp_path: Path) -> None:
    trained(tmp_path / "run", "instruct")
    assert convert.export(tmp_path / "run", tmp_path / "out") == "instruct"


def test_the_folder_in_which_a_command_runs_is_no_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="give a new folder"), files.new_folder(Path()):
        pass
    with pytest.raises(DataError, match="give a new folder"):
        lmms_tasks.write(load("tiny"), ["test"], Path())


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    with pytest.raises(StaleError, match="no stage is trained yet"):
        convert.export(tmp_path / "run", tmp_path / "out")
    with pytest.raises(DataError, match="no stage 'reson'; the recipe has instruct, reason, answers_only"):
        convert.export(tmp_path / "run", tmp_path / "out", stage="reson")
    trained(tmp_path / "other", "reason")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    with pytest.raises(DataError, match="already exists"):
        convert.export(tmp_path / "other", tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "kept"
