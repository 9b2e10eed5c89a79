"""Stages that learn their teachers' stored distributions, from the journals to the weights."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from worlds import student_worlds as worlds

from distill.artifacts.journal import Journal, read_jsonl
from distill.errors import DataError, ModelError
from distill.trace_records.logprobs import encode
from student.data import images, teacher_logprobs
from student.data.collate import collate
from student.data.encode import Encoder, RowLimits
from student.data.encode import encode as encode_rows
from student.data.rows import read
from student.loss import training_loss
from student.loss.teacher_divergence import from_teacher, topk_divergence
from student.models import freeze, inputs
from student.models.parts import find_parts
from student.train import train
from student.training.step_dataset import build_step_dataset

OWN, OTHER = 0.6, 0.3
"""What the made-up teachers give the token of their text and the one after it in the vocabulary."""


def teachers(folder: Path, *, shift: int = 0) -> None:
    """Journals of two teachers for the traces of a world; `shift`: what is added to the tokens of the second one."""
    words = worlds.tokenizer()
    rows = pq.read_table(folder / "run/filter/dataset/train/part-00000.parquet").to_pylist()
    for name, start in (("even", 0), ("odd", 1)):
        with Journal(folder / "run/generate" / name / "part-00000.jsonl") as journal:
            for row in rows[start::2]:
                text = row["messages"][-1]["content"]
                ids = np.asarray(words(text + "<|im_end|>")["input_ids"]) + (shift if start else 0)
                table = np.stack([ids, ids, (ids + 1) % len(words)], axis=1)
                values = np.log(np.broadcast_to([OWN, OWN, OTHER], table.shape))
                kept = encode(table.astype(np.int32), values.astype(np.float32))
                journal.append({"id": row["trace_id"], "teacher": name, "text": text, "logprobs": kept})


def stage(weight: float | None, *, steps: int = 6, more: str = "") -> str:
    distill = "" if weight is None else f"[stages.distill]\nweight = {weight}\n"
    return worlds.stage("reason", steps=steps, more=more + distill)


def logs(folder: Path) -> list[dict[str, object]]:
    return list(read_jsonl(folder / "run/train/reason/metrics.jsonl"))


def test_a_stage_comes_nearer_to_its_teachers_and_says_how_much_of_their_tokens_it_could_use(place: Path):
    teachers(place)
    manifest = train(worlds.recipe(place, stage(1.0, steps=60)), place / "run", stage="reason")
    divergences = [line["extra"]["divergence"] for line in logs(place)]  # type: ignore[index]
    assert divergences[0] > 2 and divergences[-1] < 0.25 * divergences[0] and min(divergences) > 0
    # The loss cannot fall to zero where the teachers are unsure; all of it is divergence.
    assert [line["loss"] for line in logs(place)] == pytest.approx(divergences, abs=1e-6)
    coverage = json.loads((place / "run/train/reason/distill.json").read_text())
    assert coverage["rows"] == 40
    for name in ("even", "odd"):
        found = coverage["teachers"][name]
        assert found["traces"] == 20 and found["aligned"] == found["tokens"] > 400
    assert "distill.json" in manifest.outputs
    assert not (place / "run/train/reason/distributions").exists()


def test_at_weight_zero_nothing_changes(place: Path, tmp_path: Path):
    teachers(place)
    other = Path(shutil.copytree(place, tmp_path / "other"))
    train(worlds.recipe(place, stage(None)), place / "run")
    train(worlds.recipe(other, stage(0.0)), other / "run")
    assert [line["loss"] for line in logs(other)] == pytest.approx([line["loss"] for line in logs(place)], abs=1e-6)


def test_the_loss_is_likelihood_and_divergence_by_their_weight(place: Path):
    teachers(place)
    made = worlds.recipe(place, stage(0.3, more="no_think = 0.3\n").replace("batch_size = 8", "batch_size = 40"))
    planned = made.stages[0]
    model, processor = worlds.student("siq-vl", place)
    encoder, store = Encoder(processor, inputs.end_ids(model)), images.ImageStore(processor, torch.float32)
    examples = encode_rows(read(made, place / "run", planned, Counter()), encoder, store, RowLimits(500, 10**6))
    found, coverage = teacher_logprobs.of_examples(
        place / "run", examples.rows, planned, top_k=20, decode=processor.tokenizer.decode, folder=place / "table"
    )
    training_loss.attach(model)
    student = freeze.prepare(model, find_parts(model), planned.train, None)
    collator = collate(student, examples, store, planned, encoder, max_pixels=10**6, raw_pixels=True)
    steps = build_step_dataset(student, find_parts(model), collator, planned, seed=0, distributions=found)
    batch = steps.on_device(steps[0]["micro_batches"][0], torch.device("cpu"))
    del batch["cells"]
    teacher = {name: batch.pop(f"teacher_{name}") for name in ("ids", "logprobs", "weights")}
    said = (teacher["ids"] >= 0).any(1)
    thinking = sum("no_think" not in example.row.question for example in examples.rows)
    assert 0 < thinking < 40 and sum(each.traces for each in coverage.values()) == thinking
    assert 0 < said.sum() == sum(each.aligned for each in coverage.values()) < len(said)
    scored = model(**batch, extra=from_teacher(**teacher))
    at, labels, _ = batch.pop("at"), batch.pop("labels"), batch.pop("weights")
    logits = model(**batch, use_cache=False).logits.flatten(0, 1)[at]
    likelihood = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    divergence = topk_divergence(logits, teacher["ids"], teacher["logprobs"])
    expected = torch.where(said, 0.7 * likelihood + 0.3 * divergence, likelihood).mean()
    assert scored.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    names, weights = zip(*((name, p) for name, p in model.named_parameters() if p.requires_grad), strict=True)
    ours, theirs = torch.autograd.grad(scored.loss, weights), torch.autograd.grad(expected, weights)
    for name, one, other in zip(names, ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-5), name


def test_a_teacher_with_other_tokens_stops_the_stage_before_a_step(place: Path):
    teachers(place, shift=1)
    with pytest.raises(ModelError, match=r"teacher 'odd' has another tokenizer than the student"):
        train(worlds.recipe(place, stage(0.5)), place / "run")
    assert not list(read_jsonl(place / "run/train/reason/metrics.jsonl"))


def test_a_run_whose_teachers_stored_nothing_stops_the_stage(place: Path):
    with pytest.raises(DataError, match=r"0 of the 40 traces to learn from have log-probabilities"):
        train(worlds.recipe(place, stage(0.5)), place / "run")
