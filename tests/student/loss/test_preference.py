"""Stages that learn from pairs: the loss is DPO's, rows stay apart, and a killed stage ends with the same weights."""

import json
import shutil
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from faults import killed
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.recipe.sections.stages import Preference, Stage
from student.data import images
from student.data.collate import collate
from student.data.encode import Encoder, RowLimits
from student.data.encode import encode as encode_rows
from student.data.encoded_rows import whole_pairs
from student.data.rows import TrainingRow, read
from student.loss import training_loss
from student.loss.preference import PairLoss
from student.models import attention, freeze, inputs
from student.models.parts import find_parts
from student.train import train
from student.training.reference import reference_log_probs
from student.training.step_dataset import StepDataset, build_step_dataset

PAIRS = "[stages.preference]\nbeta = 0.5\nsft = {sft}\n"


def stage(*, sft: float = 1.0, steps: int = 6, save: int = 200, more: str = "") -> str:
    return worlds.stage("prefer", "traces:pairs", steps=steps, save=save, more=more + PAIRS.format(sft=sft))


def pairs_of(folder: Path) -> None:
    """The arm `pairs` of a world: each trace with a wrong one beside it that counts otherwise."""
    made = []
    for row in pq.read_table(folder / "run/filter/dataset/train/part-00000.parquet").to_pylist():
        wrong = "9"  # never right: what a student of this size can learn in some steps
        said = row["messages"][1]["content"].removesuffix(row["answer"]) + wrong
        messages = [row["messages"][0], {"role": "assistant", "content": said}]
        judged = [json.dumps({"answer_verdict": verdict}) for verdict in ("wrong", "correct")]
        other = {**row, "messages": messages, "answer": wrong, "trace_id": f"a wrong {row['trace_id']}"}
        # By id the wrong trace comes first, as it may in a run.
        made += [{**other, "signals": judged[0]}, {**row, "signals": judged[1]}]
    target = folder / "run/filter/arms/pairs"
    (target / "train").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(made), target / "train/part-00000.parquet")
    fields = {"arm": "pairs"}
    Manifest(stage="filter/arms/pairs", fingerprint="", fields=fields).write(target)


@pytest.fixture
def pairs(place: Path) -> Path:
    pairs_of(place)
    return place


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "run/train/prefer/model/model.safetensors")


def logs(folder: Path) -> list[dict[str, Any]]:
    return list(read_jsonl(folder / "run/train/prefer/metrics.jsonl"))


def test_loss_and_gradients_are_those_of_trl(tmp_path: Path):
    from trl import DPOConfig, DPOTrainer

    words = worlds.tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = Qwen2ForCausalLM(config).float()
    ours = deepcopy(model)
    training_loss.attach(ours)
    asked = {
        "prompt": ["How many red squares?", "How many?"],
        "chosen": [" row 1: red, 1", " row 1: green, 2 row 2: red"],
        "rejected": [" row 1: red, 0 row", " row 1: blue"],
    }
    settings = DPOConfig(
        str(tmp_path),
        beta=0.3,
        loss_type=["sigmoid", "sft"],
        loss_weights=[1.0, 0.7],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        precompute_ref_log_probs=True,
        report_to=[],
    )
    trainer = DPOTrainer(model, args=settings, train_dataset=Dataset.from_dict(asked), processing_class=words)
    batch = trainer.data_collator([trainer.train_dataset[index] for index in range(2)])
    given = torch.tensor([-30.0, -40.0, -35.0, -20.0])
    batch |= {"ref_chosen_logps": given[:2], "ref_rejected_logps": given[2:]}
    model.eval()
    expected = trainer.compute_loss(model, dict(batch))
    expected.backward()
    slopes = {name: value.grad.clone() for name, value in model.named_parameters()}

    mask = batch["completion_mask"].bool()
    mask[:, 0] = False
    row, place = mask.nonzero(as_tuple=True)
    right = row < 2
    scored = ours(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        at=row * mask.shape[1] + place - 1,
        labels=batch["input_ids"][mask],
        weights=0.7 * right / right.sum(),
        joint=PairLoss(
            reply=2 * (row % 2) + row // 2,
            reference=given[[0, 2, 1, 3]],
            weights=torch.full((2,), 0.5),
            beta=0.3,
        ),
    )
    scored.loss.backward()
    assert expected.item() > 0.1
    assert scored.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    for name, value in ours.named_parameters():
        torch.testing.assert_close(value.grad, slopes[name], atol=1e-5, rtol=0)


def pair_rows(folder: Path, count: int = 6) -> list[TrainingRow]:
    made = []
    for number, row in enumerate(worlds.rows(folder, count)):
        own = replace(row, sample_id=f"question{number}", source="traces:pairs")
        made += [own, replace(own, id=f"{row.id} wrong", response=row.response + " row", rejected=True)]
    return made


class Run:
    """The steps of a stage over pairs, with the reference of another student than the one that learns."""

    def __init__(self, world: Path, folder: Path, attend: str, rows: list[TrainingRow], **settings: Any) -> None:
        base = {"name": "s", "data": "traces:pairs", "train": ("language",), "batch_size": 6, "max_steps": 1}
        self.stage = Stage(**base | settings, preference=Preference(beta=0.5, sft=0.7))
        self.model, processor = worlds.student("siq-vl", world)
        training_loss.attach(self.model)
        attention.use(self.model, attend)
        self.student = freeze.prepare(self.model, find_parts(self.model), self.stage.train, None)
        self.student.eval()
        encoder, store = Encoder(processor, inputs.end_ids(self.model)), images.ImageStore(processor, torch.float32)
        self.examples = encode_rows(rows, encoder, store, RowLimits(500, 10**6))
        rows_as_tokens = self.examples, store, self.stage, encoder
        collator = collate(self.student, *rows_as_tokens, max_pixels=10**6, raw_pixels=True)
        self.steps: StepDataset = build_step_dataset(
            self.student, find_parts(self.model), collator, self.stage, seed=0
        )
        self.steps.reference = np.linspace(-60, -30, len(rows), dtype=np.float32)

    def passes(self) -> list[dict[str, Any]]:
        return [self.steps.on_device(each, torch.device("cpu")) for each in self.steps[0]["micro_batches"]]

    def loss_and_gradients(self) -> tuple[float, dict[str, torch.Tensor]]:
        self.student.zero_grad()
        total = 0.0
        for batch in self.passes():
            del batch["cells"]
            joint = PairLoss(**{name[5:]: batch.pop(name) for name in list(batch) if name.startswith("pair_")})
            scored = self.student(**batch, joint=joint)
            scored.loss.backward()
            total += scored.loss.item()
        named = self.student.named_parameters()
        return total, {name: value.grad.clone() for name, value in named if value.grad is not None}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def test_packed_pairs_have_the_loss_and_gradients_of_padded_ones_in_passes_of_any_size(bare: Path, tmp_path: Path):
    rows = pair_rows(tmp_path)
    padded = Run(bare, tmp_path, "sdpa", rows, line_tokens=1)
    loss, slopes = padded.loss_and_gradients()
    for settings in ({}, {"micro_batch_tokens": 1}):
        other = Run(bare, tmp_path, attention.PACKED, rows, **settings)
        assert len(other.passes()) == (6 if settings else 1)
        found, own = other.loss_and_gradients()
        assert found == pytest.approx(loss, abs=1e-5) and own.keys() == slopes.keys()
        for name, slope in slopes.items():
            torch.testing.assert_close(own[name], slope, atol=1e-5, rtol=0)


def test_a_changed_pair_changes_the_rewards_of_the_others_by_exactly_nothing(bare: Path, tmp_path: Path):
    run = Run(bare, tmp_path, attention.PACKED, pair_rows(tmp_path))
    (batch,) = run.passes()
    del batch["cells"]
    joint = PairLoss(**{name[5:]: batch.pop(name) for name in list(batch) if name.startswith("pair_")})
    before = joint.rewards(run.student(**batch, joint=joint).nll)
    labelled = batch["at"][joint.reply == 3]
    batch["input_ids"] = batch["input_ids"].clone()
    batch["input_ids"].flatten()[labelled[1:]] = 5
    changed = (before != joint.rewards(run.student(**batch, joint=joint).nll)).nonzero().tolist()
    assert changed == [[1, 1]]


def test_the_reference_is_the_log_probability_of_each_reply(bare: Path, tmp_path: Path):
    rows = pair_rows(tmp_path)
    run = Run(bare, tmp_path, attention.PACKED, rows)
    found = reference_log_probs(run.student, run.steps, len(rows), run.stage)
    alone = Run(bare, tmp_path, attention.PACKED, rows, micro_batch_tokens=1)
    one_by_one = reference_log_probs(alone.student, alone.steps, len(rows), alone.stage)
    np.testing.assert_allclose(found, one_by_one, atol=1e-3)
    for index, example in enumerate(run.examples.rows):
        layout = run.steps._collator([index])
        batch = run.steps.on_device(layout.inputs, torch.device("cpu"))
        logits = run.model(**batch, use_cache=False).logits.flatten(0, 1)[layout.at]
        expected = -torch.nn.functional.cross_entropy(logits, torch.from_numpy(layout.labels), reduction="sum")
        assert found[index] == pytest.approx(expected.item(), abs=1e-3), example.row.id


def test_a_stage_learns_which_trace_of_a_pair_is_right(pairs: Path):
    manifest = train(worlds.recipe(pairs, stage(steps=30)), pairs / "run")
    first, last = (logs(pairs)[place]["extra"] for place in (0, -1))
    # At the first step student and reference are one.
    assert first["reward_margin"] == pytest.approx(0, abs=1e-4)
    assert first["preference_loss"] == pytest.approx(np.log(2), abs=1e-4)
    assert last["reward_margin"] > 0.5 and last["reward_accuracy"] > 0.9
    assert last["reward_margin"] == pytest.approx(last["reward_right"] - last["reward_wrong"], abs=1e-5)
    assert manifest.counts["steps"] == 30
    of_stage = Manifest.read(pairs / "run/train/prefer")
    assert of_stage is not None and of_stage.counts["rows"] == 80
    assert of_stage.counts["right_tokens"] == of_stage.counts["wrong_tokens"] > 0
    assert not (pairs / "run/train/prefer/reference.npz").exists()


def test_without_sft_the_loss_is_the_preference_alone(pairs: Path):
    train(worlds.recipe(pairs, stage(sft=0.0, steps=3)), pairs / "run")
    for line in logs(pairs):
        assert line["loss"] == pytest.approx(line["extra"]["preference_loss"], abs=1e-6)


def test_a_row_whose_partner_is_too_long_is_left_out_and_counted(pairs: Path):
    made = worlds.recipe(pairs, stage())
    model, processor = worlds.student("siq-vl", pairs)
    encoder, store = Encoder(processor, inputs.end_ids(model)), images.ImageStore(processor, torch.float32)
    rows = list(read(made, pairs / "run", made.stages[0], Counter()))
    rows[1] = replace(rows[1], response=rows[1].response + " row" * 500)
    dropped: Counter[str] = Counter()
    found = encode_rows(
        rows,
        encoder,
        store,
        RowLimits(400, 10**6),
        dropped=dropped,
        into=lambda examples: list(whole_pairs(examples, dropped)),
    )
    assert dropped == {"too_long": 1, "no_partner": 1}
    assert [example.row.rejected for example in found.rows] == [False, True] * 39


WORK = """
from student.training import reference
def work(where, moment, number):
    where, number = Path(where), int(number)
    if moment == "reference":
        own = reference.np.savez
        def half(file, **values):
            file.write(b"PK")
            die()
        reference.np.savez = half
    def note(progress):
        if moment == "training" and progress.stage == "train prefer" and progress.done == number:
            die()
    train(load(where / "recipe.toml"), where / "run", on_progress=note)
"""


def test_a_killed_stage_ends_with_the_weights_of_an_unbroken_one(pairs: Path, tmp_path: Path):
    worlds.recipe(pairs, stage(steps=8, save=2))
    other = Path(shutil.copytree(pairs, tmp_path / "other"))
    train(worlds.recipe(pairs, stage(steps=8, save=2)), pairs / "run")
    killed.die_in_turn(WORK, (other, "reference", 0), (other, "training", 1), (other, "training", 5))
    train(worlds.recipe(other, stage(steps=8, save=2)), other / "run")
    ours = weights(pairs)
    assert all(torch.equal(value, ours[name]) for name, value in weights(other).items())
    assert [line["extra"] for line in logs(pairs)] == [line["extra"] for line in logs(other)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": "traces"}, "both or none"),
        ({"preference": None}, "both or none"),
        ({"no_think": 0.1}, "no_think changes single rows"),
        ({"replay": {"questions": 0.1}}, "replay changes single rows"),
        ({"target": "answer"}, "compares traces"),
        ({"too_long": "shrink_image"}, "the same image"),
    ],
)
def test_settings_that_pairs_cannot_have_are_refused(changed: dict[str, Any], said: str):
    base = {"name": "s", "data": "traces:pairs", "train": ("language",), "preference": Preference()}
    Stage(**base)
    with pytest.raises(ValueError, match=said):
        Stage(**base | changed)
