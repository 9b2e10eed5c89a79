"""Greedy replies don't depend on the batch they were made in; a reply comes apart in one way."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from worlds import student_worlds as worlds

from distill.data.images import image_files
from distill.errors import ModelError
from distill.types import Sample
from student.data import encode
from student.data import images as student_images
from student.inference import generation
from student.inference.generation import Draw
from student.inference.scoring import score_reply
from student.models.siq_vl import build

PIXELS = 10**6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def questions(folder: Path, count: int = 7) -> list[Sample]:
    return [
        Sample(id=row.id, images=row.images, question=row.question + " Count them." * (number % 3), answers=("1",))
        for number, row in enumerate(worlds.rows(folder, count))
    ]


def answers(model, processor, samples, *, batch_size: int, max_new_tokens: int = 12, draw: Draw | None = None):
    encoder = encode.Encoder.of(model, processor)
    prompter = generation.Prompter(encoder, student_images.ImageStore(processor, torch.float32), PIXELS)
    found = {}
    for batch in prompter.batches(samples, batch_size):
        replies = generation.generate_replies(
            model.eval(), prompter, samples, batch, max_new_tokens=max_new_tokens, draw=draw
        )
        found |= {samples[place].id: reply for (place, _), reply in zip(batch, replies, strict=True)}
    return found


def test_drawn_replies_are_those_of_their_seed_and_leave_the_state_of_chance_alone(world: Path, tmp_path: Path):
    built = build(str(world / "vision"), str(world / "language"), 2)
    samples, state = questions(tmp_path), torch.get_rng_state()

    def drawn(seed: int) -> list[str]:
        found = answers(*built, samples, batch_size=4, draw=Draw(temperature=1.0, seed=seed))
        return [reply.text for reply in found.values()]

    greedy = [reply.text for reply in answers(*built, samples, batch_size=4).values()]
    assert drawn(1) == drawn(1) != drawn(2)
    assert greedy not in (drawn(1), drawn(2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("draw", [None, Draw(temperature=1.0, seed=1)])
def test_a_checkpoints_own_settings_change_no_reply_and_stay(draw: Draw | None, world: Path, tmp_path: Path) -> None:
    model, processor = build(str(world / "vision"), str(world / "language"), 2)
    samples = questions(tmp_path, 4)
    plain = answers(model, processor, samples, batch_size=4, draw=draw)
    first = processor.tokenizer(next(iter(plain.values())).text, add_special_tokens=False)["input_ids"]
    leaky = {"suppress_tokens": first, "min_new_tokens": 3, "repetition_penalty": 3.0, "min_p": 0.9, "top_h": 0.1}
    model.generation_config.update(**leaky)
    assert answers(model, processor, samples, batch_size=4, draw=draw) == plain
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    assert answers(adapted, processor, samples, batch_size=4, draw=draw) == plain
    assert model.generation_config.suppress_tokens == first


@pytest.mark.parametrize("kind", ["siq-vl", "llava", "internvl", "qwen3-vl", "smolvlm"])
def test_replies_do_not_depend_on_the_batch(kind: str, world: Path, tmp_path: Path):
    built = build(str(world / "vision"), str(world / "language"), 2) if kind == "siq-vl" else worlds.other(kind)
    with torch.no_grad():
        # Freshly initialised decoders only repeat themselves; larger weights make them listen to the question.
        for parameter in built[0].parameters():
            parameter.mul_(8 if parameter.ndim == 2 else 1)
    samples = questions(tmp_path)
    together, alone = (answers(*built, samples, batch_size=size) for size in (4, 1))
    assert together == alone and set(together) == {sample.id for sample in samples}
    assert len({reply.text for reply in together.values()}) > 1


@pytest.mark.parametrize("kind", ["siq-vl", "llava", "internvl", "qwen3-vl", "smolvlm"])
def test_a_student_sees_what_its_processor_makes_of_an_image(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.ndim == 2 else 1)
    (sample,) = questions(tmp_path, 1)
    (reply,) = answers(model, processor, [sample], batch_size=1).values()
    turns = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": sample.question}]}]
    text = processor.apply_chat_template([turns], add_generation_prompt=True)
    loaded = [image_files.load(ref, max_pixels=PIXELS) for ref in sample.images]
    inputs = processor(text=text, images=loaded, return_tensors="pt", add_special_tokens=False)
    ids = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert reply.text == processor.tokenizer.decode(ids).removesuffix("<|im_end|>")


def test_a_reply_ends_at_the_end_of_the_turn_and_says_when_it_does_not(world: Path, tmp_path: Path):
    model, processor = build(str(world / "vision"), str(world / "language"), 2)
    samples = questions(tmp_path, 2)
    assert all(
        r.truncated and r.tokens == 5
        for r in answers(model, processor, samples, batch_size=2, max_new_tokens=5).values()
    )
    end = processor.tokenizer.eos_token_id
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(model.lm_head.weight.shape[0]))
    with torch.no_grad():
        model.lm_head.bias[end] = 100.0
    for reply in answers(model, processor, samples, batch_size=2).values():
        assert (reply.text, reply.tokens, reply.truncated) == ("", 1, False)


def test_a_processor_that_joins_text_and_images_in_its_own_way_is_refused_before_a_student_is_asked(
    world: Path, tmp_path: Path
):
    model, processor = worlds.student("llava", world)
    samples, own = questions(tmp_path, 1), type(processor)
    assert answers(model, processor, samples, batch_size=1, max_new_tokens=1)

    def joined(self, text, **options):
        return own.__call__(self, text=[each.replace("<image>H", "<image> H") for each in text], **options)

    def called(self, text, **options):
        return joined(self, text, **options) if isinstance(text, list) else own.__call__(self, text=text, **options)

    processor.__class__ = type(own.__name__, (own,), {"__call__": called})
    with pytest.raises(ModelError, match="if the text around it"):
        answers(model, processor, samples, batch_size=1)


def test_a_rationale_in_plain_text_has_tokens_too(world: Path):
    model, processor = worlds.student("siq-vl", world)
    encoder = encode.Encoder.of(model, processor)
    ids = processor.tokenizer("row 1: red, 1\n\n1<|im_end|>")["input_ids"]
    store = student_images.ImageStore(processor, torch.float32)
    plain = generation.parse_reply(ids, generation.Prompter(encoder, store, PIXELS, "plain"), [])
    think = generation.parse_reply(ids, generation.Prompter(encoder, store, PIXELS), [])
    assert plain.rationale_tokens == len(processor.tokenizer("row 1: red, 1")["input_ids"])
    assert think.rationale_tokens == 0 and plain.text == think.text
    by_style = {"think": 0, "plain": plain.rationale_tokens}
    assert think.rationale_tokens_by_style == plain.rationale_tokens_by_style == by_style


def test_thinking_that_the_prompt_opens_and_the_token_limit_cuts_is_no_answer(world: Path, tmp_path: Path):
    model, processor = build(str(world / "vision"), str(world / "language"), 2)
    processor.chat_template = processor.chat_template.replace("assistant\\n' -}}", "assistant\\n<think>\\n' -}}")
    (cut,) = answers(model, processor, questions(tmp_path, 1), batch_size=1, max_new_tokens=4).values()
    assert cut.truncated and cut.text.startswith("<think>\n")
    encoder = encode.Encoder.of(model, processor)
    prompter = generation.Prompter(encoder, student_images.ImageStore(processor, torch.float32), PIXELS)
    (prompt,) = encoder.prompts([("How many?", 0)])

    def scored(text: str) -> dict:
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        reply = asdict(generation.parse_reply(ids, prompter, prompt))
        asked = Sample(id="s", images=(), question="How many?", answers=("7",), answer_type="number")
        return score_reply(asked, reply, plain=False, relative_tolerance=0.0)

    unfinished = scored("4 + 3 = 7")
    assert (unfinished["answer"], unfinished["reasoning"]) == ("", "4 + 3 = 7")
    assert unfinished["verdict"] != "correct" and unfinished["rationale_tokens"]
    assert scored("4 + 3 = 7<|im_end|>")["verdict"] != "correct"  # it ends without an answer
    for whole in ("4 + 3 = 7\n</think>\n\n7<|im_end|>", "<think>\n4 + 3 = 7\n</think>\n\n7<|im_end|>"):
        found = scored(whole)
        assert (found["verdict"], found["well_formed"], found["reasoning"]) == ("correct", True, "4 + 3 = 7")


def test_a_checkpoints_own_sampling_settings_do_not_leak_in(world: Path, tmp_path: Path):
    model, processor = build(str(world / "vision"), str(world / "language"), 2)
    samples = questions(tmp_path, 3)
    before = answers(model, processor, samples, batch_size=3)
    model.generation_config.update(do_sample=True, temperature=9.0, repetition_penalty=3.0, no_repeat_ngram_size=2)
    assert answers(model, processor, samples, batch_size=3) == before
