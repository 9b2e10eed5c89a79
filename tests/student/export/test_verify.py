"""What proves an export: each way in which one can be wrong is caught and named; what is right passes."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from worlds import student_worlds as worlds

from distill.artifacts import integrity
from distill.errors import DataError, DistillError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import Sample
from student.export.check_report import questions
from student.export.convert import export
from student.export.reply_comparison import ComparedStudent, Tokens
from student.export.verify import verify
from student.train import train

FIRST = worlds.stage("first", steps=2)
LORA = worlds.stage("lora", steps=3, more="[stages.lora]\nrank = 4\nalpha = 8\n")
BOTH = worlds.stage("both", steps=3, train='["projector", "language"]', more="[stages.lora]\nrank = 4\nalpha = 8\n")
EVAL = '[eval]\ndata = "test"\nmax_new_tokens = 6\n'


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a whole stage, one with adapters, and one with adapters beside a projector trained in full."""
    folder = worlds.parts(tmp_path_factory.mktemp("world"))
    worlds.data(folder)
    recipe = worlds.recipe(folder, FIRST, LORA, BOTH, more=EVAL)
    trained(recipe, folder / "run")
    return folder


def trained(recipe: Recipe, run: Path) -> None:
    train(recipe, run)
    (run / "recipe.toml").write_text(recipe.to_toml())


@pytest.fixture
def run(world: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may spoil."""
    return Path(shutil.copytree(world / "run", tmp_path / "run"))


@pytest.fixture
def recipe(world: Path) -> Recipe:
    return load(world / "recipe.toml")


Change = Callable[[list[Tokens]], list[Tokens]]


def serving(recipe: Recipe, change: Change = lambda replies: replies) -> Any:
    """What a server would say that computes as transformers does, changed on its way."""

    @contextmanager
    def serve(out: Path, **_: Any) -> Iterator[Any]:
        def ask(samples: Sequence[Sample]) -> list[Tokens]:
            student = ComparedStudent(recipe, out, samples, recipe.eval.data)
            found = student.replies(lambda _: None)
            return change([(student.prompts[place], found[place]) for place in range(len(samples))])

        yield SimpleNamespace(engine="transformers 5", ask=ask)

    return serve


def proven(recipe: Recipe, run: Path, out: Path, stage: str, change: Change = lambda replies: replies) -> Any:
    return verify(recipe, run, out, serving(recipe, change), stage=stage, prompts=12)


def refused(recipe: Recipe, run: Path, out: Path, stage: str, change: Change = lambda replies: replies) -> str:
    """The message, which verify.json says the same as."""
    with pytest.raises(DistillError) as caught:
        proven(recipe, run, out, stage, change)
    assert caught.value.exit_code == 1
    report = json.loads((out / "verify.json").read_text())
    assert not report["passed"]
    assert any(not check["passed"] for check in report["checks"])
    return str(caught.value)


def edit(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors[name] = change(tensors[name])
    save_file(tensors, path, metadata={"format": "pt"})


QUERY = "model.text_model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize("native", [True, False], ids=["native", "plain"])
@pytest.mark.parametrize("stage", ["first", "lora", "both"])
def test_an_export_of_every_kind_of_stage_is_proven_in_both_forms(
    recipe: Recipe, run: Path, tmp_path: Path, stage: str, native: bool
) -> None:
    export(run, tmp_path / "out", stage=stage, native=native)
    report = proven(recipe, run, tmp_path / "out", stage)
    assert report["passed"] and report == json.loads((tmp_path / "out" / "verify.json").read_text())
    figures = {check["name"]: check["value"] for check in report["checks"]}
    assert figures["weights"] == 0.0 and figures["logits"] <= 1e-5
    assert figures["learned"] > 1e-3
    assert ("adapter" in figures) == (stage != "first")
    assert figures.get("adapter", 0.0) <= 1e-4
    assert report["form"] == ("native" if native else "plain")
    assert report["replies"]["identical"] == report["replies"]["compared"] == 12
    assert report["replies"]["top1_agreement"] == 1.0


def test_a_changed_weight_of_the_export_is_named(recipe: Recipe, run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out", stage="lora")
    edit(tmp_path / "out", QUERY, lambda weight: weight + 0.01)
    message = refused(recipe, run, tmp_path / "out", "lora")
    assert f"weights: the export does not hold the weights of the run: 0.01 (limit 0); {QUERY} differs" in message
    assert "logits: the export computes other logits" in message


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        (
            "generation_config.json",
            lambda text: json.dumps(json.loads(text) | {"eos_token_id": 3}),
            "generation_config",
        ),
        ("chat_template.jinja", lambda text: text.replace("user", "person") + "x", "chat_template"),
    ],
)
def test_a_lost_setting_of_the_export_is_named(
    recipe: Recipe, run: Path, tmp_path: Path, file: str, change: Callable[[str], str], named: str
) -> None:
    export(run, tmp_path / "out", stage="first")
    path = tmp_path / "out" / file
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    message = refused(recipe, run, tmp_path / "out", "first")
    assert "settings: the export holds another tokenizer, template or way to end replies" in message
    assert named in message


def test_a_bias_that_the_llama_form_adds_must_be_zero(recipe: Recipe, run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out", stage="lora")
    bias = "model.text_model.layers.0.self_attn.o_proj.bias"
    edit(tmp_path / "out", bias, lambda value: value + 1e-6)
    assert f"{bias} differs" in refused(recipe, run, tmp_path / "out", "lora")


def unchanged(*_: Any, **__: Any) -> dict[str, str]:
    """Files are as they were written: these tests are about a merge that went wrong, not about damage."""
    return {}


def test_a_merge_that_kept_the_base_is_an_error(
    recipe: Recipe, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "changed", unchanged)
    shutil.copyfile(*(run / "train" / stage / "model" / "model.safetensors" for stage in ("first", "lora")))
    export(run, tmp_path / "out", stage="lora")
    message = refused(recipe, run, tmp_path / "out", "lora")
    assert "learned: the merged weights are those that the stage started from" in message
    assert "adapter: the merged student differs from its start model with the adapter" in message


def test_a_merge_that_lost_a_layer_is_an_error(
    recipe: Recipe, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "changed", unchanged)
    before = load_file(run / "train" / "first" / "model" / "model.safetensors")
    edit(run / "train" / "lora" / "model", QUERY, lambda _: before[QUERY])
    export(run, tmp_path / "out", stage="lora")
    message = refused(recipe, run, tmp_path / "out", "lora")
    assert "adapter: the merged student differs from its start model with the adapter" in message
    assert "learned:" not in message and "weights:" not in message


def one_token_off(count: int) -> Change:
    def change(replies: list[Tokens]) -> list[Tokens]:
        off = [(prompt, [*reply[:-1], (reply[-1] + 1) % 300]) for prompt, reply in replies[:count]]
        return [*off, *replies[count:]]

    return change


def test_replies_that_differ_are_shown(recipe: Recipe, run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out", stage="lora")
    message = refused(recipe, run, tmp_path / "out", "lora", one_token_off(1))
    assert "identical_replies: the server's greedy replies differ from transformers: 0.916667" in message
    assert "squares" in message and "transformers says" in message and "margin" in message
    (difference,) = json.loads((tmp_path / "out" / "verify.json").read_text())["replies"]["differences"]
    assert difference["margin"] > 0 and difference["transformers"] != difference["server"]


def test_a_prompt_that_the_server_tokenises_otherwise_is_an_error(recipe: Recipe, run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out", stage="lora")
    message = refused(
        recipe, run, tmp_path / "out", "lora", lambda replies: [(prompt[1:], reply) for prompt, reply in replies]
    )
    assert "same_prompts: the server encodes the same questions to other token ids: 0 (limit 1)" in message


def test_in_bfloat16_differing_replies_are_reported_and_an_adapter_is_allowed_its_rounding(
    world: Path, tmp_path: Path
) -> None:
    text = (world / "recipe.toml").read_text().replace('dtype = "float32"', 'dtype = "bfloat16"')
    path = world / "half.toml"
    path.write_text(text)
    recipe = load(path)
    run = tmp_path / "run"
    shutil.copytree(world / "run" / "filter", run / "filter")
    for stage in ("first", "lora"):
        train(recipe, run, stage=stage)
    (run / "recipe.toml").write_text(recipe.to_toml())
    for native in (True, False):
        export(run, tmp_path / f"{native}", stage="lora", native=native)
        report = proven(recipe, run, tmp_path / f"{native}", "lora", one_token_off(6))
        assert report["passed"] and report["dtype"] == "bfloat16"
        assert report["replies"]["identical"] == 6
        (adapter,) = [check for check in report["checks"] if check["name"] == "adapter"]
        assert 0 < adapter["value"] < adapter["limit"]


def test_questions_come_from_the_evaluation_and_are_spread_over_it(recipe: Recipe) -> None:
    source, samples = questions(recipe, 4)
    everything = questions(recipe, 100)[1]
    assert source == "test" and len(everything) == 12
    assert [sample.id for sample in samples] == [everything[place].id for place in (0, 3, 6, 9)]


def test_another_source_serves_where_the_evaluation_has_none(recipe: Recipe) -> None:
    gone = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"data": "gone"})})
    source, samples = questions(gone, 40)
    assert source == "questions" and len(samples) == 40
    none = recipe.model_copy(update={"data": {}})
    with pytest.raises(DataError, match="nothing to ask"):
        questions(none, 4)
