"""What is measured while a stage trains is what evaluation would say, and measuring changes nothing else."""

import copy
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds import student_worlds as worlds

from distill.errors import DataError
from distill.rationale import split
from distill.recipe.sections.stages import Lora, Stage
from distill.recipe.sections.validation import Validation
from distill.types import ImageRef, Sample
from student.data import collate, encode, images
from student.data.encoded_rows import Example
from student.data.rows import TrainingRow
from student.inference import generation
from student.inference.scoring import score_reply, summarize_predictions
from student.loss import training_loss
from student.models import attention, freeze, inputs
from student.models.parts import find_parts
from student.validation import measure

PIXELS = 10**6
LISTEN = 8
"""Freshly initialised decoders only repeat themselves; larger weights make them listen to the question."""


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def samples(folder: Path, count: int = 10) -> list[Sample]:
    return [
        Sample(id=row.id, images=row.images, question=row.question + " Count them." * (number % 3), answers=("1",))
        for number, row in enumerate(worlds.rows(folder, count))
    ]


def chosen(student: tuple[Any, Any], found: list[Sample], **settings: Any) -> measure.Questions:
    model, processor = student
    validation = Validation(**{"data": "test", "questions": 6, "max_new_tokens": 8, "batch_size": 4, **settings})
    encoder, store = encode.Encoder(processor, inputs.end_ids(model)), images.ImageStore(processor, torch.float32)
    return measure.choose_questions(
        found,
        validation,
        generation.Prompter(encoder, store, PIXELS),
        max_length=200,
        plain=False,
        relative_tolerance=0.0,
    )


def student(kind: str, world: Path) -> tuple[Any, Any]:
    model, processor = worlds.student(kind, world)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(LISTEN if parameter.ndim == 2 else 1)
    return model, processor


def rows(built: tuple[Any, Any], folder: Path, batches: list[list[int]]) -> measure.HeldOut:
    """Rows with images and responses of different lengths."""
    model, processor = built
    encoder = encode.Encoder(processor, inputs.end_ids(model))
    store = images.ImageStore(processor, torch.float32)
    examples = encode.encode(worlds.rows(folder, 6), encoder, store, encode.RowLimits(200, PIXELS))
    collator = collate.Collator(
        examples,
        store,
        collate.InputForm.of(model, encoder),
        max_pixels=PIXELS,
    )
    return measure.HeldOut(batches=batches, collate=collator)


def losses(model: Any, layout: collate.Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Surprisals of the labelled tokens of a pass, and whether each is the likeliest one."""
    logits = model(**layout.inputs, use_cache=False).logits.flatten(0, 1)[layout.at]
    labels = torch.from_numpy(layout.labels)
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none"), logits.argmax(1) == labels


def test_the_same_questions_are_asked_whatever_the_order_and_the_rest_of_the_source(world: Path, tmp_path: Path):
    built = worlds.student("siq-vl", world)
    found = samples(tmp_path)
    without_gold = Sample(id="g", images=(), question="?", answers=())
    first = chosen(built, found)
    second = chosen(built, [without_gold, *reversed(found)])
    assert [sample.id for sample in first.samples] == [sample.id for sample in second.samples]
    assert len(first.samples) == 6 and first.samples != found[:6]
    assert list(first.batches) == list(second.batches)
    assert all(sample in first.samples for sample in chosen(built, found, questions=3).samples)


def test_a_question_that_cannot_be_asked_is_counted_and_another_one_takes_its_place(world: Path, tmp_path: Path):
    built = worlds.student("siq-vl", world)
    found = samples(tmp_path)
    before = chosen(built, found, questions=9)
    Path(before.samples[0].images[0].path).write_bytes(b"no image")
    second = before.samples[1].id
    broken = [replace(sample, question="squares " * 400) if sample.id == second else sample for sample in found]
    after = chosen(built, broken, questions=9)
    assert [sample.id for sample in after.samples[:7]] == [sample.id for sample in before.samples[2:]]
    assert sum(after.dropped.values()) == 2 and after.dropped["too_long"] == 1
    with pytest.raises(DataError, match=r"validation.data = 'test': no question can be asked \(none has an answer\)"):
        chosen(built, [Sample(id="g", images=(), question="?")])


def test_rows_kept_out_do_not_depend_on_the_order_and_keep_questions_together():
    names = [f"question{number // 2}" for number in range(400)]
    for amount, expected in ((40, 40), (41, 42), (0.1, 40)):
        places = measure.choose_held_out(names, amount)
        kept = {names[place] for place in places}
        assert len(places) == pytest.approx(expected, abs=0 if isinstance(amount, int) else 16)
        assert len(places) == 2 * len(kept)
        shuffled = random.Random(0).sample(names, len(names))
        assert {shuffled[place] for place in measure.choose_held_out(shuffled, amount)} == kept
    grown = [*names, *(f"new{number}" for number in range(100))]
    assert measure.choose_held_out(names, 0.1) == [
        place for place in measure.choose_held_out(grown, 0.1) if place < len(names)
    ]
    assert measure.choose_held_out(names, 10**6) == list(range(400))


def test_questions_asked_of_a_stages_own_source_are_the_first_ones_kept_out(world: Path, tmp_path: Path):
    found = samples(tmp_path)
    asked = {sample.id for sample in chosen(worlds.student("siq-vl", world), found, questions=4).samples}
    names = [sample.id for sample in found]
    assert {names[place] for place in measure.choose_held_out(names, 4)} == asked


def test_figures_are_what_evaluation_says_of_the_same_replies(world: Path, tmp_path: Path):
    model, processor = student("siq-vl", world)
    found = samples(tmp_path)
    questions = chosen((model, processor), found)
    truth = []
    for sample in questions.samples:
        (batch,) = questions.prompter.batches([sample], 1)
        (reply,) = generation.generate_replies(model.eval(), questions.prompter, [sample], batch, max_new_tokens=8)
        truth.append(reply)
    # Gold answers that make some replies right: those of the replies themselves.
    golds = [split(reply.text).answer.strip() if place % 2 else "!" for place, reply in enumerate(truth)]
    asked = [replace(sample, answers=(gold,)) for sample, gold in zip(questions.samples, golds, strict=True)]
    figures, predictions = measure.measure(model, replace(questions, samples=asked), None, step=7, steps=9)
    expected = [
        score_reply(sample, asdict(reply), plain=False, relative_tolerance=0.0)
        for sample, reply in zip(asked, truth, strict=True)
    ]
    assert predictions == expected
    told = asdict(figures)
    for name, value in summarize_predictions(expected).items():
        assert told[name] == value
    assert 0 < figures.accuracy < 1 and figures.step == 7 and figures.loss is None and figures.seconds > 0
    assert figures.undecided_rate == figures.n_undecided / 6


def test_a_rationale_that_is_cut_is_no_answer_as_in_evaluation(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    built, found = student("siq-vl", world), samples(tmp_path, 6)
    questions = replace(chosen(built, found), plain=True)
    texts = iter(["a\n\n1", "b\n\n1", "c\n\n1", "d\n\n1", "1 + 0 = 1", "e\n\n1"])

    def replies(model: Any, prompter: Any, samples: Any, batch: Any, **settings: Any) -> list[generation.Reply]:
        given = [next(texts) for _ in batch]
        counts = {"think": 0, "plain": 1}
        return [
            generation.Reply(
                text=text,
                tokens=8,
                rationale_tokens=1,
                rationale_tokens_by_style=counts,
                truncated="=" in text,
            )
            for text in given
        ]

    monkeypatch.setattr(measure, "generate_replies", replies)
    said = measure.ask_questions(built[0], questions)
    assert [line["sample_id"] for line in said] == [sample.id for sample in questions.samples]
    (cut,) = (line for line in said if line["truncated"])
    assert cut["answer"] == "" and cut["verdict"] != "correct" and cut["rationale_tokens"] == 8
    assert sum(line["verdict"] == "correct" for line in said) == 5


def test_a_student_prepared_for_training_says_what_it_says_when_it_is_evaluated(world: Path, tmp_path: Path):
    told = []
    for prepared in (False, True):
        model, processor = student("siq-vl", world)
        questions = chosen((model, processor), samples(tmp_path), batch_size=6)
        measured: Any = model
        if prepared:
            training_loss.attach(model)
            attention.use(model, attention.PACKED)
            measured = freeze.prepare(model, find_parts(model), ["language"], Lora(dropout=0.5))
        told.append(measure.measure(measured, questions, None, step=1, steps=9)[1])
        if prepared:
            assert attention.of(model) == attention.PACKED
    assert told[0] == told[1] and len({prediction["text"] for prediction in told[0]}) > 1


@pytest.mark.parametrize("batches", [[[0, 5], [1], [4, 2, 3]], [[0, 1, 2, 3, 4, 5]]])
def test_the_loss_is_the_mean_over_all_response_tokens_however_they_are_batched(
    batches: list[list[int]], world: Path, tmp_path: Path
):
    built = student("siq-vl", world)
    held = rows(built, tmp_path, batches)
    figures, predictions = measure.measure(built[0], None, held, step=1, steps=9)
    with torch.no_grad():
        alone = [losses(built[0].eval(), held.collate([row])) for row in range(6)]
    surprisals, right = (torch.cat(found) for found in zip(*alone, strict=True))
    assert figures.loss == pytest.approx(surprisals.mean().item(), rel=1e-5)
    assert figures.token_accuracy == pytest.approx(right.float().mean().item())
    assert figures.response_tokens == len(surprisals)
    assert predictions == [] and figures.accuracy is None and figures.n == 0


def state(model: torch.nn.Module) -> dict[str, Any]:
    """Everything about a model that measuring could leave behind."""
    return {
        "modes": [module.training for module in model.modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "hooks": [
            len(hooks)
            for module in model.modules()
            for name, hooks in vars(module).items()
            if name.endswith("_hooks") and hooks is not None
        ],
        "config": copy.deepcopy(model.config.to_dict()),
        "generation": copy.deepcopy(model.generation_config.to_dict()),
        "offsets": getattr(getattr(model, "model", None), "rope_deltas", None),
        "random": (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()),
    }


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_measuring_leaves_no_trace_and_training_goes_on_as_if_it_had_not_been(kind: str, world: Path, tmp_path: Path):
    told = []
    for measured in (False, True):
        built = model, _ = student(kind, world)
        for module in model.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.5
        questions, held = chosen(built, samples(tmp_path)), rows(built, tmp_path, [[0, 1], [2]])
        model.train()
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        found = []
        for step in range(3):
            mean = losses(model, held.collate([3, 4, 5]))[0].mean()
            mean.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(mean.item())
            if measured:
                before = state(model)
                measure.measure(model, questions, held, step=step, steps=9)
                assert state(model) == before
        told.append(found)
    assert told[0] == told[1] and len(set(told[0])) == 3


def test_a_model_is_put_back_also_when_measuring_fails(world: Path):
    model, _ = student("siq-vl", world)
    model.train()
    with pytest.raises(RuntimeError), measure.undisturbed(model):
        assert not model.training
        model.left_behind = 1
        raise RuntimeError
    assert model.training and not hasattr(model, "left_behind")


@pytest.mark.parametrize("limit", [1, 2, 3, 256])
def test_rows_kept_out_are_measured_in_batches_that_fit_into_a_micro_batch(limit: int):
    image = ImageRef(sha256="0" * 64, path="a.png")
    lengths, images_of_rows = [30, 10, 20, 20, 10, 64], [2, 0, 1, 1, 1, 4]
    kept_out = encode.Examples(
        [
            Example(
                row=TrainingRow(
                    id=str(at), images=(image,) * count, question="", response="", answer=(0, 0), sample_id=""
                ),
                ids=np.zeros(length, np.int32),
                begin=0,
                kinds=np.zeros(length, np.uint8),
            )
            for at, (length, count) in enumerate(zip(lengths, images_of_rows, strict=True))
        ]
    )
    stage = Stage(name="s", data="traces", train=("language",), micro_batch_tokens=64, micro_batch_images=limit)
    batches = measure.batch_rows(kept_out, stage)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) * max(lengths[row] for row in batch) <= 64
        assert len(batch) == 1 or sum(images_of_rows[row] for row in batch) <= limit
    assert len(batches) == {1: 5, 2: 4, 3: 3, 256: 3}[limit]
