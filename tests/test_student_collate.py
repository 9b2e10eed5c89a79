"""Tokens, labels and pictures that reach the model are those that the student's own processor makes."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import student_worlds as worlds
import torch
from PIL import Image

from distill.errors import DataError
from student import collate, encode, pictures, stage

PIXELS = 10**6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def encoded(model, processor, rows):
    encoder = encode.Encoder(processor, stage.end_ids(model))
    store = pictures.ImageStore(processor, torch.float32)
    examples = encode.encode(rows, encoder, store, max_length=500, max_pixels=PIXELS)
    collator = collate.Collator(
        examples,
        store,
        image_id=encoder.image_id,
        pad_id=processor.tokenizer.pad_token_id,
        max_pixels=PIXELS,
        type_name=stage.type_name(model),
    )
    return examples, collator


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_loss_covers_the_response_and_the_end_of_its_turn_and_nothing_else(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    rows = worlds.rows(tmp_path, 6)
    examples, collator = encoded(model, processor, rows)
    batch = collator([{"row": row} for row in range(6)])
    for row, labels in zip(rows, batch["labels"], strict=True):
        learned = processor.tokenizer.decode(labels[labels != collate.IGNORED])
        assert learned == f"{row.response}<|im_end|>"
    assert int((batch["labels"] != collate.IGNORED).sum()) == examples.response_tokens


@pytest.mark.parametrize("kind", worlds.CLASSES)
@pytest.mark.parametrize("images", [0, 1, 2])
def test_the_model_sees_what_its_own_processor_would_show_it(kind: str, images: int, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    model.eval()
    rows = worlds.rows(tmp_path, 4, images=images)
    examples, collator = encoded(model, processor, rows)
    batch = collator([{"row": row} for row in range(4)])
    lengths, _ = batch.pop("lengths"), batch.pop("labels")
    ours = model(**batch, use_cache=False).logits
    for place, row in enumerate(rows):
        content = [{"type": "image"}] * images + [{"type": "text", "text": row.question}]
        turns = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": [{"type": "text", "text": row.response}]},
        ]
        text = processor.apply_chat_template(turns)
        pictures = [Image.open(ref.path) for ref in row.images] or None
        made = processor(text=[text], images=[pictures] if pictures else None, return_tensors="pt")
        theirs = model(**made, use_cache=False).logits[0]
        length = int(lengths[place])
        assert made["input_ids"][0][:length].tolist() == examples.ids[place].tolist()
        torch.testing.assert_close(ours[place, :length], theirs[:length], atol=1e-5, rtol=1e-4)


def test_a_row_that_is_too_long_is_counted_and_never_cut(world: Path, tmp_path: Path):
    _model, processor = worlds.student("siq-vl", world)
    rows = worlds.rows(tmp_path, 5)
    encoder, store = encode.Encoder(processor, []), pictures.ImageStore(processor, torch.float32)
    whole = encode.encode(rows, encoder, store, max_length=500, max_pixels=PIXELS)
    limit = sorted(whole.lengths)[2]
    some = encode.encode(rows, encoder, store, max_length=limit, max_pixels=PIXELS)
    assert some.dropped == Counter({encode.TOO_LONG: 2})
    assert sorted(some.lengths) == sorted(whole.lengths)[:3]


def test_an_image_that_cannot_be_read_any_more_costs_its_row_only(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    rows = worlds.rows(tmp_path, 3)
    Path(rows[1].images[0].path).unlink()
    examples, _ = encoded(model, processor, rows)
    assert examples.row_ids == ["row0", "row2"]
    assert examples.dropped == Counter(missing_image=1)


def test_a_question_that_holds_the_image_placeholder_is_counted(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    rows = worlds.rows(tmp_path, 2)
    rows[0] = replace(rows[0], question="What is <image> here?")
    examples, _ = encoded(model, processor, rows)
    assert examples.dropped == Counter({encode.IMAGE_TOKEN_IN_TEXT: 1})


def test_a_template_that_never_ends_a_turn_gets_an_end(world: Path, tmp_path: Path):
    model, processor = worlds.other("llava")
    processor.chat_template = processor.chat_template.replace("<|im_end|>\\n", " ")
    examples, _ = encoded(model, processor, worlds.rows(tmp_path, 2))
    assert [ids[-1] for ids in examples.ids] == [processor.tokenizer.eos_token_id] * 2


def test_a_template_that_marks_no_response_is_an_error(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    processor.chat_template = "{%- generation -%}{%- endgeneration -%}{%- for message in messages -%}x{%- endfor -%}"
    with pytest.raises(DataError, match="row0: no token of its response"):
        encoded(model, processor, worlds.rows(tmp_path, 2, images=0))


def test_a_placeholder_too_many_or_too_few_is_seen():
    assert encode.expand([1, 9, 2], 9, [(9, 9)]) == [1, 9, 9, 2]
    assert encode.expand([1, 9, 9], 9, [(9,)]) is None
    assert encode.expand([1, 2], 9, [(9,)]) is None
