"""The embedded engine against transformers itself, on small random models."""

import inspect
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from PIL import Image
from students import tiny_models

from distill.data.images.image_files import sha256
from distill.errors import ModelError, OutOfMemory
from distill.recipe.recipe import Recipe
from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.engines.embedded.decoding import BatchRow, Sampler
from teacher.engines.embedded.embedded_teacher import EmbeddedTeacher
from teacher.messages.completion import Completion
from teacher.messages.request import Model, Request, requests

MODEL = Model(name="model", revision="r", local=True)
QUESTIONS = ("How many?", "How many red circles and blue squares are there in total?", "Sum of 1 2 3?", "7 - 4 =")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build(tmp_path_factory.mktemp("model"), hidden=64, layers=2, spread=0.2, end_weight=1.5)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[ImageRef]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = [tiny_models.make_image(folder / f"{index}.png", index) for index in range(6)]
    return [ImageRef(sha256=sha256(path.read_bytes()), path=str(path)) for path in paths]


def teacher(samples: int = 1, max_in_flight: int = 64, **sampling: Any) -> Teacher:
    return Teacher(
        name="t",
        model="model",
        backend="embedded",
        samples=samples,
        max_in_flight=max_in_flight,
        sampling=Sampling(**{"max_tokens": 40, **sampling}),
    )


def wanted(who: Teacher, refs: Sequence[ImageRef], questions: Sequence[str] = QUESTIONS) -> list[Request]:
    found = []
    for number, ref in enumerate(refs):
        for question in questions:
            sample = Sample(id=f"{number}-{question}", images=(ref,), question=question)
            found += requests(Recipe(), who, MODEL, sample)
    return found


def ask(
    model: Path, who: Teacher, asked: Sequence[Request], *, dtype: torch.dtype = torch.float32
) -> dict[str, Completion]:
    engine = EmbeddedTeacher(who, str(model), max_pixels=10**8)
    engine.model.to(dtype)
    found: dict[str, Completion] = {}
    pulses: list[int] = []
    engine.answer(asked, lambda request, done: found.__setitem__(request.id, done), lambda: pulses.append(1))
    assert len(found) == len(asked)
    return found


def hold(engine: EmbeddedTeacher, most: Callable[[torch.Tensor], bool]) -> list[int]:
    """Give a teacher a memory that holds what `most` says of the input ids of a pass; rows of each pass tried."""
    own, tried = engine.model.forward, []

    def forward(input_ids: torch.Tensor, **inputs: Any) -> Any:
        tried.append(len(input_ids))
        if not most(input_ids):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore text.")
        return own(input_ids, **inputs)

    forward.__signature__ = inspect.signature(own)  # type: ignore[attr-defined]
    engine.model.forward = forward
    return tried


def test_answers_of_a_batch_that_memory_does_not_hold_come_in_smaller_ones(
    model: Path, images: list[ImageRef]
) -> None:
    who = teacher(samples=2, temperature=0.9)
    asked = wanted(who, images[:2])
    lines: list[str] = []
    engine = EmbeddedTeacher(who, str(model), max_pixels=10**8, say=lines.append)
    tried = hold(engine, lambda ids: len(ids) <= 3)
    found: dict[str, Completion] = {}
    engine.answer(asked, lambda request, done: found.__setitem__(request.id, done), lambda: None)
    whole = ask(model, who, asked)
    assert {name: done.text for name, done in found.items()} == {name: done.text for name, done in whole.items()}
    assert not any(done.error for done in found.values())
    assert tried[0] == 8 and tried.count(8) == 1, "a size that did not fit was tried again"
    assert lines[0] == "teacher 't': out of memory with 16 in a batch: from here on 8"


def test_a_request_that_memory_does_not_hold_alone_is_refused_and_one_that_comes_first_ends_the_run(
    model: Path, images: list[ImageRef]
) -> None:
    who = teacher(temperature=0.0)
    asked = wanted(who, images[:1])
    engine = EmbeddedTeacher(who, str(model), max_pixels=10**8)
    longest = max(len(engine.render(request.prompt)) for request in asked)
    widths: list[int] = []
    hold(engine, lambda ids: widths.append(ids.shape[1]) or True)
    engine.answer(asked, lambda request, done: None, lambda: None)
    engine = EmbeddedTeacher(who, str(model), max_pixels=10**8)
    hold(engine, lambda ids: ids.shape[1] < max(widths))
    found: dict[str, Completion] = {}
    engine.answer(asked, lambda request, done: found.__setitem__(request.id, done), lambda: None)
    refused = {name for name, done in found.items() if done.error}
    assert refused == {request.id for request in asked if len(engine.render(request.prompt)) == longest}
    (name,) = refused
    assert found[name].error.startswith(
        "refused_request: the GPU's memory is too small for this request alone: CUDA out of memory"
    )
    engine = EmbeddedTeacher(who, str(model), max_pixels=10**8)
    hold(engine, lambda ids: False)
    with pytest.raises(OutOfMemory, match="max_in_flight"):
        engine.answer(asked, lambda request, done: None, lambda: None)


def test_greedy_answers_equal_those_of_transformers_one_by_one(model: Path, images: list[ImageRef]) -> None:
    who = teacher(temperature=0.0)
    asked = wanted(who, images)
    found = ask(model, who, asked)
    assert len({done.text for done in found.values()}) > 0.8 * len(asked)
    engine = EmbeddedTeacher(who, str(model), max_pixels=10**8)
    for request in asked:
        inputs = engine.processor(
            text=engine.render(request.prompt),
            images=[Image.open(request.sample.images[0].path)],
            add_special_tokens=False,
            return_tensors="pt",
        )
        with torch.inference_mode():
            out = engine.model.generate(**inputs, max_new_tokens=40, do_sample=False)
        tokens = out[0, inputs["input_ids"].shape[1] :].tolist()
        ended = tokens[-1] == engine.tokenizer.eos_token_id
        assert found[request.id].text == engine.tokenizer.decode(tokens, skip_special_tokens=True).rstrip("\ufffd")
        assert found[request.id].finish_reason == ("stop" if ended else "length")
        assert found[request.id].completion_tokens == len(tokens)
        assert found[request.id].prompt_tokens == inputs["input_ids"].shape[1]
        assert found[request.id].image_tokens == 16


def test_the_test_model_ends_some_answers_early_and_cuts_others(model: Path, images: list[ImageRef]) -> None:
    who = teacher(samples=4, temperature=1.0)
    finishes = {done.finish_reason for done in ask(model, who, wanted(who, images)).values()}
    assert finishes == {"stop", "length"}


def test_a_samples_text_depends_on_its_seed_and_not_on_its_batch(model: Path, images: list[ImageRef]) -> None:
    who = teacher(samples=3, temperature=1.0, top_p=0.95)
    asked = wanted(who, images)
    # How float32 products are rounded depends on a batch's shape and the CPU, and may tip a draw.
    exact = torch.float64
    together = ask(model, who, asked, dtype=exact)
    assert len({done.text for done in together.values()}) > 0.9 * len(asked)
    small = teacher(samples=3, max_in_flight=4, temperature=1.0, top_p=0.95)
    apart = ask(model, small, list(reversed(asked)), dtype=exact)
    alone = ask(model, who, asked[:1], dtype=exact)
    assert {key: done.text for key, done in apart.items()} == {key: done.text for key, done in together.items()}
    assert alone[asked[0].id].text == together[asked[0].id].text


def test_a_checkpoints_own_settings_change_no_answer(model: Path, images: list[ImageRef], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    settings = copy / "generation_config.json"
    own = {"num_beams": 3, "num_return_sequences": 2, "stop_strings": ["a"], "min_new_tokens": 9}
    settings.write_bytes(orjson.dumps(orjson.loads(settings.read_bytes()) | own))
    asked = wanted(teacher(temperature=0.0), images[:2])
    texts = [
        {key: done.text for key, done in ask(path, teacher(temperature=0.0), asked).items()} for path in (model, copy)
    ]
    assert texts[0] == texts[1]


def test_the_room_for_an_answer_depends_on_its_own_prompt_and_not_on_its_batch(
    model: Path, images: list[ImageRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = EmbeddedTeacher.__init__

    def with_little_context(self: EmbeddedTeacher, *args: Any, **options: Any) -> None:
        load(self, *args, **options)
        self._context = 64

    monkeypatch.setattr(EmbeddedTeacher, "__init__", with_little_context)
    asked = wanted(teacher(temperature=0.0), images[:1])
    together = ask(model, teacher(temperature=0.0), asked)
    alone = ask(model, teacher(temperature=0.0, max_in_flight=1), asked)
    assert len({done.prompt_tokens for done in alone.values()}) > 1
    for key, done in alone.items():
        assert together[key].completion_tokens == done.completion_tokens
        assert done.finish_reason == "stop" or done.prompt_tokens + done.completion_tokens == min(
            64, done.prompt_tokens + 40
        )


def test_more_samples_of_a_question_than_a_batch_holds_are_all_answered(model: Path, images: list[ImageRef]) -> None:
    who = teacher(samples=10, max_in_flight=4, temperature=1.0, max_tokens=4)
    assert len(ask(model, who, wanted(who, images[:1], QUESTIONS[:1]))) == 10


def test_questions_with_no_one_or_two_images_can_be_mixed(model: Path, images: list[ImageRef]) -> None:
    who = teacher(temperature=0.0, max_tokens=5)
    samples = [Sample(id=str(count), images=tuple(images[:count]), question="How many?") for count in (0, 1, 2)]
    asked = [request for sample in samples for request in requests(Recipe(), who, MODEL, sample)]
    found = ask(model, who, asked)
    assert [found[request.id].image_tokens for request in asked] == [0, 16, 32]
    assert not any(done.error for done in found.values())


def test_a_vanished_image_or_a_refused_prompt_costs_its_own_row_only(model: Path, images: list[ImageRef]) -> None:
    who = teacher(temperature=0.0, max_tokens=5)
    gone = ImageRef(sha256="00" * 32, path=str(Path(images[0].path).parent / "gone.png"))
    rows = [
        ("good", images[0], "How many?"),
        ("gone", gone, "How many?"),
        ("forged", images[1], "How many <image> are there?"),
        ("long", images[2], "How many? " * 600),
    ]
    asked = [
        request
        for name, ref, question in rows
        for request in requests(Recipe(), who, MODEL, Sample(id=name, images=(ref,), question=question))
    ]
    found = ask(model, who, asked)
    errors = {request.sample.id: found[request.id].error for request in asked}
    assert errors["good"] == ""
    assert errors["gone"].startswith("image: missing_image")
    assert errors["forged"].startswith("refused_request:")
    assert "leave no room in a context of 1024" in errors["long"]


def test_a_stop_string_ends_a_row_and_is_not_part_of_it(model: Path, images: list[ImageRef]) -> None:
    who = teacher(temperature=0.0)
    asked = wanted(who, images)
    plain = ask(model, who, asked)
    key, text = next((key, done.text) for key, done in plain.items() if len(done.text) > 12)
    stop = text[5:8]
    stopped = teacher(temperature=0.0, stop=(stop,))
    found = {old.id: new for old, new in zip(asked, wanted(stopped, images), strict=True)}
    answers = ask(model, stopped, list(found.values()))
    assert answers[found[key].id].text == text[: text.index(stop)]
    assert answers[found[key].id].finish_reason == "stop"


def test_an_opening_thinking_tag_written_by_the_template_stands_in_the_text(
    model: Path, images: list[ImageRef], tmp_path: Path
) -> None:
    import shutil

    thinking = tmp_path / "thinking"
    shutil.copytree(model, thinking)
    template = thinking / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant\\n'", "assistant\\n<think>\\n'"))
    who = teacher(temperature=0.0, max_tokens=5)
    found = ask(thinking, who, wanted(who, images[:1]))
    assert all(done.text.startswith("<think>\n") for done in found.values())


def rows(count: int) -> list[BatchRow]:
    (request,) = requests(Recipe(), teacher(), MODEL, Sample(id="s", images=(), question="q"))
    made = []
    for seed in range(count):
        seeded = replace(request, seed=seed)
        made.append(BatchRow(request=seeded, prompt_tokens=1, image_tokens=0, prefix="", max_tokens=1))
    return made


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 3},
        {"top_p": 0.6},
        {"top_k": 3, "top_p": 0.7},
        {"min_p": 0.3},
    ],
)
def test_draws_follow_the_distribution_that_transformers_warpers_define(settings: dict[str, Any]) -> None:
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = torch.tensor([[2.0, 1.5, 1.0, 0.0, -1.0, 1.2]])
    values = {"temperature": 1.0, **settings}
    expected = TemperatureLogitsWarper(values["temperature"])(None, logits)
    for key, warper in (("min_p", MinPLogitsWarper), ("top_k", TopKLogitsWarper), ("top_p", TopPLogitsWarper)):
        if key in values:
            expected = warper(values[key])(None, expected)
    shares = expected.softmax(-1)[0]
    count = 20_000
    sampler = Sampler(Sampling(**values), rows(count), max_new_tokens=1, vocabulary=6)
    drawn = torch.bincount(sampler.pick(logits.expand(count, -1)), minlength=6) / count
    assert torch.equal(drawn > 0, shares > 0)
    assert (drawn - shares).abs().max() < 0.015


def test_the_repetition_penalty_equals_that_of_transformers() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    seen = torch.randint(0, 9, (5, 4), generator=torch.Generator().manual_seed(1))
    expected = RepetitionPenaltyLogitsProcessor(1.7)(seen, logits).argmax(-1)
    sampler = Sampler(Sampling(temperature=0.0, repetition_penalty=1.7), rows(5), max_new_tokens=1, vocabulary=9)
    sampler.see(seen[:, :3])
    sampler.see(seen[:, 3:])
    assert torch.equal(sampler.pick(logits), expected)


def test_padding_is_not_penalised() -> None:
    sampler = Sampler(Sampling(temperature=0.0, repetition_penalty=100.0), rows(1), max_new_tokens=1, vocabulary=3)
    sampler.see(torch.tensor([[2, 2, 1]]), torch.tensor([[0, 0, 1]]))
    assert sampler.pick(torch.tensor([[0.1, 0.2, 0.3]])).tolist() == [2]


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def torn_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def no_processor(folder: Path) -> None:
    for name in ("processor_config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)


def no_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


@pytest.mark.parametrize("damage", [broken_config, torn_weights, no_processor, no_template])
def test_an_unreadable_checkpoint_is_named_with_the_next_step(model: Path, tmp_path: Path, damage: Any) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    damage(copy)
    with pytest.raises(ModelError, match=str(copy)) as caught:
        EmbeddedTeacher(teacher(), str(copy), max_pixels=1)
    assert "config.json" in str(caught.value) or "chat_template.jinja" in str(caught.value)
