"""A student that is given tokens computed once learns what it learns from pixels."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from processes import forked
from worlds import student_worlds as worlds

from distill.artifacts import layout
from distill.artifacts.journal import read_jsonl
from distill.errors import ModelError, StorageError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Preference, Stage
from distill.recipe.sections.student import Student
from distill.types import ImageRef, Progress
from student.data import encode, image_tokens
from student.data import images as student_images
from student.data.disk_cache import DATA, INDEX
from student.models import freeze, inputs
from student.models.parts import find_parts
from student.train import train

PIXELS = 10**6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def prepared(kind, world, tmp_path, *, images=2, train=("language",), dtype=torch.float32):
    """A student with its language model to be trained, the ids of four rows, their images, and the store."""
    model, processor = worlds.student(kind, world)
    model.to(dtype)
    parts = find_parts(model)
    freeze.prepare(model, parts, train, None)
    store = student_images.ImageStore(processor, dtype)
    encoder = encode.Encoder.of(model, processor)
    rows = worlds.rows(tmp_path, 4, images=images)
    return model, parts, store, encoder, rows


def ids_of(encoder, store, row):
    ids, *_ = encoder.conversations([row])[0]
    return torch.tensor(
        encode.expand(ids, encoder.placeholder_id, [store.expansion(ref, PIXELS) for ref in row.images])
    )


def tokens(model, parts, store, encoder, refs, folder, **more):
    settings = {"max_bytes": 10**9, **more}
    return image_tokens.token_store(image_encoder(model, parts, store, encoder, folder), refs, **settings)


def image_encoder(model, parts, store, encoder, folder):
    return image_tokens.ImageEncoder(
        model=model, parts=parts, store=store, image_id=encoder.image_id, max_pixels=PIXELS, folder=folder
    )


def passed(model, ids, inputs, type_name, image_id):
    """Logits, and the gradient of every trained tensor."""
    model.zero_grad()
    types = {} if type_name is None else {type_name: (ids == image_id).long()[None]}
    logits = model(input_ids=ids[None], **types, **inputs, use_cache=False).logits
    torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[1:]).backward()
    return logits, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("kind", "images"),
    [
        *((kind, images) for kind in worlds.CLASSES for images in (1, 2)),
        *((kind, 1) for kind in worlds.ALL_CLASSES[len(worlds.CLASSES) :] if kind != "ovis2"),
    ],
)
def test_logits_and_gradients_are_those_of_the_pixels(kind, images, world, tmp_path):
    model, parts, store, encoder, rows = prepared(kind, world, tmp_path, images=images)
    refs = [ref for row in rows for ref in row.images]
    kept = tokens(model, parts, store, encoder, refs, tmp_path)
    for row in rows:
        ids = ids_of(encoder, store, row)
        found = [
            passed(
                model,
                ids,
                source.join([source.features(ref, PIXELS) for ref in row.images]),
                inputs.type_name(model),
                encoder.image_id,
            )
            for source in (store, kept)
        ]
        torch.testing.assert_close(found[1][0], found[0][0], atol=1e-6, rtol=1e-5)
        assert found[1][1].keys() == found[0][1].keys() and found[0][1]
        for name, gradient in found[0][1].items():
            torch.testing.assert_close(found[1][1][name], gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_an_image_that_went_through_the_tower_alone_is_equal_to_the_bit(kind, world, tmp_path):
    model, parts, store, encoder, rows = prepared(kind, world, tmp_path, images=1)
    for row in rows[:2]:
        kept = tokens(model, parts, store, encoder, row.images, tmp_path)
        ids, types = ids_of(encoder, store, row), inputs.type_name(model)
        found = [
            passed(model, ids, source.join([source.features(row.images[0], PIXELS)]), types, encoder.image_id)
            for source in (store, kept)
        ]
        assert torch.equal(found[0][0], found[1][0])
        assert all(torch.equal(found[1][1][name], gradient) for name, gradient in found[0][1].items())


def test_a_student_that_makes_more_than_tokens_of_its_pixels_keeps_none(world, tmp_path):
    model, parts, store, encoder, rows = prepared("ovis2", world, tmp_path, images=1)
    with pytest.raises(ModelError, match=r"gives more than tokens \(visual_indicator_features\); set student.image_"):
        tokens(model, parts, store, encoder, rows[0].images, tmp_path)


def test_the_tower_is_not_asked_again_and_pixels_still_go_through_it(world, tmp_path):
    model, parts, store, encoder, rows = prepared("qwen3-vl", world, tmp_path)
    refs = [ref for row in rows for ref in row.images]
    kept = tokens(model, parts, store, encoder, refs, tmp_path)
    asked = []
    model.get_submodule(parts.tower).register_forward_hook(lambda *_: asked.append(1))
    row, types = rows[0], inputs.type_name(model)
    ids = ids_of(encoder, store, row)
    passed(model, ids, kept.join([kept.features(r, PIXELS) for r in row.images]), types, encoder.image_id)
    assert not asked
    tokens(model, parts, store, encoder, refs, tmp_path)
    assert not asked
    passed(model, ids, store.join([store.features(r, PIXELS) for r in row.images]), types, encoder.image_id)
    assert len(asked) == 1


def test_a_batch_without_images_has_no_image_input(world, tmp_path):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    assert tokens(model, parts, store, encoder, rows[0].images, tmp_path).join([]) == {}


def test_tokens_are_kept_in_the_students_dtype(world, tmp_path):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1, dtype=torch.bfloat16)
    kept = tokens(model, parts, store, encoder, rows[0].images, tmp_path)
    found = kept.features(rows[0].images[0], PIXELS)["pixel_values"]
    assert found.dtype == torch.bfloat16 and found.shape == (4, 32)


def test_another_projector_or_processor_never_gets_these_tokens(world, tmp_path):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    refs = rows[0].images
    first = tokens(model, parts, store, encoder, refs, tmp_path).features(refs[0], PIXELS)["pixel_values"]
    with torch.no_grad():
        next(model.get_submodule(parts.projector).parameters()).mul_(2)
    second = tokens(model, parts, store, encoder, refs, tmp_path).features(refs[0], PIXELS)["pixel_values"]
    torch.testing.assert_close(second, 2 * first)
    store.processor.image_processor.image_std = [1.0, 1.0, 1.0]
    other = student_images.ImageStore(store.processor, torch.float32)
    third = tokens(model, parts, other, encoder, refs, tmp_path).features(refs[0], PIXELS)["pixel_values"]
    assert not torch.allclose(second, third)


def test_arms_that_start_from_the_same_weights_share_tokens_whatever_they_train(world, tmp_path):
    from distill.recipe.sections.stages import Lora

    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    refs = [ref for row in rows for ref in row.images]
    tokens(model, parts, store, encoder, refs, tmp_path)
    other, *_ = prepared("siq-vl", world, tmp_path, images=1)
    freeze.prepare(other, parts, ("language",), Lora(rank=2))
    asked = []
    other.get_submodule(parts.tower).register_forward_hook(lambda *_: asked.append(1))
    tokens(other, parts, store, encoder, refs, tmp_path)
    assert not asked and len(list(tmp_path.glob("tokens-*"))) == 1


def test_damaged_tokens_are_computed_again_at_the_next_start(world, tmp_path):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    refs = [ref for row in rows for ref in row.images]
    kept = tokens(model, parts, store, encoder, refs, tmp_path)
    before = [kept.features(ref, PIXELS)["pixel_values"] for ref in refs]
    (folder,) = tmp_path.glob("tokens-*")
    with (folder / DATA).open("r+b") as file:
        file.seek(100)
        file.write(b"????")
    with pytest.raises(StorageError, match="run the same command again"):
        kept.features(refs[0], PIXELS)
    for _ in ("tokens", "the line that says how they are laid out"):
        again = tokens(model, parts, store, encoder, refs, tmp_path)
        after = [again.features(ref, PIXELS)["pixel_values"] for ref in refs]
        for old, new in zip(before, after, strict=True):
            torch.testing.assert_close(old, new)
        with (folder / INDEX).open("r+b") as file:
            file.write(b"????")


def test_tokens_that_the_processor_does_not_announce_are_an_error(world, tmp_path):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    ref = rows[0].images[0]
    store.expansion(ref, PIXELS)
    store._expansions = {size: ids[:-2] for size, ids in store._expansions.items()}
    with pytest.raises(ModelError, match=r"makes 4 tokens of 1 image, its processor writes"):
        tokens(model, parts, store, encoder, [ref], tmp_path)


def source(encoder, examples, said, **settings):
    """What a stage over these examples takes images from."""
    images = image_tokens.distinct_images(examples)
    stage = Stage(name="reason", data="traces", train=("language",), epochs=2)
    return image_tokens.for_stage(
        encoder,
        examples,
        Recipe(student=Student(model="any", **settings), stages=(stage,)),
        stage,
        count=(len(images), 4 * len(images)),
        device=torch.device("cpu"),
        on_progress=said.append,
    )


def test_a_model_that_gives_no_tokens_is_trained_from_pixels_unless_asked(world, tmp_path):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    examples = encode.encode(rows, encoder, store, encode.RowLimits(500, PIXELS))
    store._expansions = {size: ids[:-2] for size, ids in store._expansions.items()}
    said: list[Progress] = []
    encoding = image_encoder(model, parts, store, encoder, tmp_path)
    assert source(encoding, examples, said, image_tokens="auto") is store
    assert said[-1].facts["kept"] == "no" and "its processor writes" in str(said[-1].facts["because"])
    with pytest.raises(ModelError):
        source(encoding, examples, said, image_tokens="on")


@pytest.mark.parametrize("setting", ["auto", "on"])
def test_a_stage_for_whose_tokens_those_of_others_leave_no_room_is_trained_from_pixels(setting, world, tmp_path):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    halves = [encode.encode(some, encoder, store, encode.RowLimits(500, PIXELS)) for some in (rows[:2], rows[2:])]
    limit = {"image_tokens": setting, "image_tokens_gb": 3 * 4 * 32 * 4 / 1e9}  # three images
    encoding, said = image_encoder(model, parts, store, encoder, tmp_path), list[Progress]()
    assert isinstance(source(encoding, halves[0], said, **limit), image_tokens.TokenStore)
    assert source(encoding, halves[1], said, **limit) is store
    assert said[-1].facts["kept"] == "no" and "no room" in str(said[-1].facts["because"])


NEED = image_tokens.Need(trained=("language",), images=100, uses=200.0, bytes=10**6, limit_bytes=10**7, device="cpu")


@pytest.mark.parametrize(
    ("setting", "change", "use", "reason"),
    [
        ("auto", {}, True, "2.0 uses an image"),
        ("auto", {"uses": 100.0}, False, "1.0 uses an image"),
        ("on", {"uses": 100.0}, True, "1.0 uses an image"),
        ("auto", {"device": "cuda"}, False, "as fast as copying"),
        ("on", {"device": "cuda"}, True, "2.0 uses"),
        ("off", {}, False, "image_tokens = 'off'"),
        ("on", {"trained": ("projector", "language")}, False, "projector is trained"),
        ("on", {"limit_bytes": 10**5}, False, "0.0 GB of image tokens, more than student.image_tokens_gb"),
        ("on", {"images": 0, "uses": 0.0}, False, "no images"),
    ],
)
def test_tokens_are_kept_where_that_saves_work(setting, change, use, reason):
    choice = image_tokens.choose(setting, replace(NEED, **change))
    assert choice.use == use and reason in choice.reason


def test_batches_through_the_tower_are_the_same_in_every_run(world, tmp_path, monkeypatch):
    model, parts, store, encoder, rows = prepared("siq-vl", world, tmp_path, images=1)
    monkeypatch.setattr(image_tokens, "_BATCH_VALUES", 2 * 3 * 16 * 16)
    refs: list[ImageRef] = [ref for row in rows for ref in row.images]
    seen: list[tuple[int, int]] = []
    whole = tokens(model, parts, store, encoder, refs, tmp_path / "a", on_image=lambda *n: seen.append(n))
    assert seen == [(0, 4), (2, 4), (4, 4)]
    # As a run that was killed after its first batch goes on.
    tokens(model, parts, store, encoder, refs[:2], tmp_path / "b")
    resumed = tokens(model, parts, store, encoder, refs, tmp_path / "b")
    for ref in refs:
        pair = [one.features(ref, PIXELS)["pixel_values"] for one in (whole, resumed)]
        assert torch.equal(*pair)


ALIGN = worlds.stage("align", "questions", train='["projector"]', steps=2)
REASON = worlds.stage("reason", steps=6, save=2, more="[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n")
ARM = worlds.stage("answers_only", steps=2, more='start = "align"\ntarget = "answer"\n')
# Nothing stays in memory, and a third of the images does not fit on disk either.
ON_DISK = {"student.image_tokens": "on", "student.image_memory_gb": "0", "student.image_disk_gb": "2e-5"}
CHILD = """
import json, os, signal, sys
from pathlib import Path
from distill.recipe import load
from student.data import image_tokens as features
from student.train import train
features._BATCH_VALUES = 8 * 3 * 16 * 16
where, moment, done = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def watch(progress):
    if progress.stage == moment and progress.done == done:
        os.kill(os.getpid(), signal.SIGKILL)
train(load(where / "recipe.toml", json.loads(sys.argv[4])), where / "run", on_progress=watch)
"""


def losses(folder: Path, name: str) -> list[float]:
    return [line["loss"] for line in read_jsonl(folder / "run" / "train" / name / "metrics.jsonl")]


@pytest.mark.slow
def test_a_recipe_trained_on_kept_tokens_and_killed_twice_ends_as_if_nothing_happened(tmp_path, monkeypatch):
    whole = worlds.parts(tmp_path / "whole")
    worlds.data(whole)
    recipe = worlds.recipe(whole, ALIGN, REASON, ARM)
    pixels, killed = (Path(shutil.copytree(whole, tmp_path / name)) for name in ("pixels", "killed"))
    monkeypatch.setattr(image_tokens, "_BATCH_VALUES", 8 * 3 * 16 * 16)
    torch.set_num_threads(1)
    train(load(pixels / "recipe.toml", {"student.image_tokens": "off"}), pixels / "run")
    train(load(recipe.path, ON_DISK), whole / "run")
    for moment, done in (("image tokens reason", 16), ("train reason", 3)):
        ended = forked.run(CHILD, killed, moment, done, json.dumps(ON_DISK))
        assert ended.codes == [-signal.SIGKILL], ended.stderr
        assert len(list((killed / "run" / "train" / layout.CACHE).glob("tokens-*"))) == 1
    said: list[Progress] = []
    train(load(killed / "recipe.toml", ON_DISK), killed / "run", on_progress=said.append)
    # The tokens were there: no batch went through the tower.
    assert [one.done for one in said if one.stage == "image tokens answers_only"] == [40]
    for name in ("reason", "answers_only"):
        assert losses(killed, name) == losses(whole, name)
        assert losses(whole, name) == pytest.approx(losses(pixels, name), abs=1e-4)
    for folder in (pixels, whole, killed):
        assert not (folder / "run" / "train" / layout.CACHE).exists()


@pytest.mark.parametrize(
    ("asked", "sharers"), [("align", 0), ("instruct", 2), ("reason", 2), ("tuned", 0), ("other", 1)]
)
def test_stages_share_tokens_until_one_of_them_trains_the_projector(asked, sharers, tmp_path):
    both = '["projector", "language"]'
    recipe = worlds.recipe(
        tmp_path,
        ALIGN,
        worlds.stage("instruct"),
        worlds.stage("reason", more='start = "align"\n'),
        worlds.stage("tuned", train=both),
        worlds.stage("other"),
    )
    assert image_tokens.sharing(recipe.stages, next(one for one in recipe.stages if one.name == asked)) == sharers


def test_a_step_of_pairs_looks_at_two_rows_for_each_pair():
    rows = encode.Examples(rows=[None] * 40)
    single = Stage(name="reason", data="traces", train=("language",), max_steps=10, batch_size=8)
    pairs = single.model_copy(update={"data": "traces:pairs", "preference": Preference()})
    assert image_tokens._passes(single, rows) == 2.0
    assert image_tokens._passes(pairs, rows) == 4.0
