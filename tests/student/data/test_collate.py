"""Tokens, labels and images that reach the model are those that the student's own processor makes."""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from worlds import student_worlds as worlds

from distill.errors import DataError, ModelError
from distill.types import ImageRef
from student.data import collate, encode
from student.data import images as student_images

PIXELS = 10**6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def encoded(model, processor, rows):
    encoder = encode.Encoder.of(model, processor)
    store = student_images.ImageStore(processor, torch.float32)
    examples = encode.encode(rows, encoder, store, encode.RowLimits(500, PIXELS))
    collator = collate.Collator(
        examples,
        store,
        collate.InputForm.of(model, encoder),
        max_pixels=PIXELS,
    )
    return examples, collator


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_loss_covers_the_response_and_the_end_of_its_turn_and_nothing_else(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    rows = worlds.rows(tmp_path, 6)
    examples, collator = encoded(model, processor, rows)
    layout = collator(range(6))
    ids = layout.inputs["input_ids"].flatten()
    assert torch.equal(ids[layout.at + 1], torch.from_numpy(layout.labels))
    for place, (begin, end) in zip(layout.rows, collate.row_bounds(layout, examples), strict=True):
        assert processor.tokenizer.decode(layout.labels[begin:end]) == f"{rows[place].response}<|im_end|>"
    assert len(layout.labels) == int(examples.columns.responses.sum())


@pytest.mark.parametrize(
    ("kind", "images"),
    [
        *((kind, images) for kind in worlds.CLASSES for images in (0, 1, 2)),
        *((kind, 1 + (kind != "llava-onevision")) for kind in worlds.ALL_CLASSES[len(worlds.CLASSES) :]),
    ],
)
def test_the_model_sees_what_its_own_processor_would_show_it(kind: str, images: int, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    model.eval()
    rows = worlds.rows(tmp_path, 4, images=images)
    examples, collator = encoded(model, processor, rows)
    ours = model(**collator(range(4)).inputs, use_cache=False).logits
    for place, row in enumerate(rows):
        content = [{"type": "image"}] * images + [{"type": "text", "text": row.question}]
        turns = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": [{"type": "text", "text": row.response}]},
        ]
        text = processor.apply_chat_template(turns)
        student_images = [Image.open(ref.path) for ref in row.images] or None
        made = processor(text=[text], images=[student_images] if student_images else None, return_tensors="pt")
        theirs = model(**made, use_cache=False).logits[0]
        ids = examples.rows[place].ids
        length = len(ids)
        assert made["input_ids"][0][:length].tolist() == ids.tolist()
        torch.testing.assert_close(ours[place, :length], theirs[:length], atol=1e-5, rtol=1e-4)


def test_a_row_that_is_too_long_is_counted_and_never_cut(world: Path, tmp_path: Path):
    _model, processor = worlds.student("siq-vl", world)
    rows = worlds.rows(tmp_path, 5)
    encoder, store = encode.Encoder(processor, []), student_images.ImageStore(processor, torch.float32)
    whole = encode.encode(rows, encoder, store, encode.RowLimits(500, PIXELS))
    limit = sorted(whole.lengths)[2]
    some = encode.encode(rows, encoder, store, encode.RowLimits(limit, PIXELS))
    assert some.dropped == Counter({encode.TOO_LONG: 2})
    assert sorted(some.lengths) == sorted(whole.lengths)[:3]


def test_an_image_that_cannot_be_read_any_more_costs_its_row_only(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    rows = worlds.rows(tmp_path, 3)
    Path(rows[1].images[0].path).unlink()
    examples, _ = encoded(model, processor, rows)
    assert [example.row.id for example in examples.rows] == ["row0", "row2"]
    assert examples.dropped == Counter(missing_image=1)


def test_a_response_that_holds_the_end_of_a_turn_is_counted_and_never_cut(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    rows = worlds.rows(tmp_path, 3)
    for place, text in enumerate(("<think>\nthe page says <|im_end|>, 2\n</think>\n\n2", "2<|im_end|>")):
        rows[place] = replace(rows[place], response=text)
    examples, _ = encoded(model, processor, rows)
    assert [example.row.id for example in examples.rows] == ["row1", "row2"]
    assert processor.tokenizer.decode(examples.rows[0].ids[examples.rows[0].begin :]) == "2<|im_end|>"
    assert examples.dropped == Counter({encode.END_TOKEN_IN_TEXT: 1})


def test_a_question_that_holds_the_image_placeholder_is_counted(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    rows = worlds.rows(tmp_path, 2)
    rows[0] = replace(rows[0], question="What is <image> here?")
    examples, _ = encoded(model, processor, rows)
    assert examples.dropped == Counter({encode.IMAGE_TOKEN_IN_TEXT: 1})


def test_a_question_that_holds_the_token_of_an_image_is_counted_where_conversations_ask_by_another(
    world: Path, tmp_path: Path
):
    model, processor = worlds.student("gemma3", world)
    rows = worlds.rows(tmp_path, 2)
    rows[0] = replace(rows[0], question="What is <image_soft_token> here?")
    examples, _ = encoded(model, processor, rows)
    assert examples.dropped == Counter({encode.IMAGE_TOKEN_IN_TEXT: 1})


def test_a_processor_that_shows_several_images_otherwise_than_one_is_refused(world: Path, tmp_path: Path):
    # LLaVA-OneVision cuts an image into tiles only if it is the only one of its conversation.
    model, processor = worlds.student("llava-onevision", world)
    rows = worlds.rows(tmp_path / "one", 5) + worlds.rows(tmp_path / "two", 1, images=2)
    with pytest.raises(ModelError, match="or the number of images changes, which is not supported"):
        encoded(model, processor, rows)


def test_a_template_that_never_ends_a_turn_gets_an_end(world: Path, tmp_path: Path):
    model, processor = worlds.other("llava")
    processor.chat_template = processor.chat_template.replace("<|im_end|>\\n", " ")
    examples, _ = encoded(model, processor, worlds.rows(tmp_path, 2))
    assert [example.ids[-1] for example in examples.rows] == [processor.tokenizer.eos_token_id] * 2


def test_a_template_that_marks_no_response_is_an_error(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    processor.chat_template = (
        "{%- generation -%}{%- endgeneration -%}{%- for message in messages -%}{{ loop.length }}{%- endfor -%}"
    )
    with pytest.raises(ModelError, match="block around the whole response"):
        encoded(model, processor, worlds.rows(tmp_path, 2, images=0))


def test_a_placeholder_too_many_or_too_few_is_seen():
    assert encode.expand([1, 9, 2], 9, [(9, 9)]) == [1, 9, 9, 2]
    assert encode.expand([1, 9, 9], 9, [(9,)]) is None
    assert encode.expand([1, 2], 9, [(9,)]) is None


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_every_token_of_a_response_is_rationale_answer_or_format(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    rationale, answer = "row 1: red green, 1\nrow 2: blue blue, 0", "4"
    response = f"<think>\n{rationale}\n</think>\n\n{answer}"
    (row,) = worlds.rows(tmp_path, 1)
    begin = response.index(rationale)
    spans = {"rationale": (begin, begin + len(rationale)), "answer": (len(response) - 1, len(response))}
    examples, _ = encoded(model, processor, [replace(row, response=response, **spans)])
    (example,) = examples.rows
    said = example.ids[example.begin :]
    parts = [processor.tokenizer.decode(said[example.kinds == kind]) for kind in range(3)]
    assert parts == [rationale, answer, "<think>\n\n</think>\n\n<|im_end|>"]


def test_images_are_made_smaller_where_that_makes_a_row_fit(world: Path, tmp_path: Path):
    _model, processor = worlds.student("qwen3-vl", world)
    path = worlds.make_image(tmp_path / "large.png", 1, size=64)
    ref = ImageRef(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), path=str(path))
    large, *rows = worlds.rows(tmp_path, 11)[::5]
    large = replace(large, images=(ref,))
    encoder, store = encode.Encoder(processor, []), student_images.ImageStore(processor, torch.float32)

    def read(limit: int, too_long: str) -> encode.Examples:
        return encode.encode([large, *rows], encoder, store, encode.RowLimits(limit, PIXELS, too_long=too_long))

    whole = read(500, "drop")
    limit = whole.lengths[0] - 1
    dropped, shrunk = read(limit, "drop"), read(limit, "shrink_image")
    assert (len(dropped), dropped.dropped) == (2, Counter(too_long=1))
    assert (len(shrunk), shrunk.shrunk, shrunk.dropped) == (3, 1, Counter())
    row = shrunk.rows[0].row
    fewer = int((shrunk.rows[0].ids == encoder.image_id).sum())
    assert 0 < fewer < int((whole.rows[0].ids == encoder.image_id).sum())
    assert shrunk.rows[0].kinds.tolist() == whole.rows[0].kinds.tolist()
    joined = store.join([store.features(each, PIXELS) for each in row.images])
    assert int(joined["image_grid_thw"].prod()) == 4 * fewer == len(joined["pixel_values"])
    with pytest.raises(DataError, match=rf"row row0 has {limit + 1} tokens.*max_length is {limit}"):
        read(limit, "error")


def test_an_image_that_becomes_too_narrow_for_its_processor_is_no_way_to_make_a_row_fit(world: Path, tmp_path: Path):
    """Qwen-VL's processor takes sides of 1 to 200; of 600 x 3 pixels the half is 300 x 1."""
    _model, processor = worlds.student("qwen3-vl", world)
    path = tmp_path / "narrow.png"
    Image.new("RGB", (600, 3)).save(path)
    ref = ImageRef(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), path=str(path))
    (row,) = worlds.rows(tmp_path, 1)
    text, narrow = replace(row, images=()), replace(row, images=(ref,))
    encoder, store = encode.Encoder(processor, []), student_images.ImageStore(processor, torch.float32)
    whole = encode.RowLimits(500, PIXELS, too_long="shrink_image")
    (limit,) = encode.encode([text], encoder, store, whole).lengths
    found = encode.encode([narrow, text], encoder, store, replace(whole, max_length=limit))
    assert (len(found), found.dropped) == (1, Counter(too_long=1))


def test_a_row_whose_images_cannot_take_fewer_tokens_is_dropped(world: Path, tmp_path: Path):
    _model, processor = worlds.student("siq-vl", world)
    encoder, store = encode.Encoder(processor, []), student_images.ImageStore(processor, torch.float32)
    rows = worlds.rows(tmp_path, 2)
    found = encode.encode(rows, encoder, store, encode.RowLimits(10, PIXELS, too_long="shrink_image"))
    assert (len(found), found.shrunk, found.dropped) == (0, 0, Counter(too_long=2))
