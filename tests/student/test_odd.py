"""What careless hands and bad luck do to a training stage: one plain message, true counts, nothing lost."""

import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import types
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from worlds import student_worlds as worlds

from distill.artifacts.files import describe, storage_errors
from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest, fingerprint
from distill.errors import DataError, DistillError, ImageError, ModelError, RecipeError, StorageError
from distill.recipe.loading import load
from distill.types import Progress
from student.data import image_tokens, images
from student.distributed import processes
from student.export import convert
from student.models import attention
from student.models.parts import find_parts
from student.train import train
from student.training import stage_run, step_dataset
from student.training.checkpoints.checkpoint_files import DIGESTS, last_checkpoint
from student.training.cost import memory

NOTHING_KEPT = {"student.image_memory_gb": "0", "student.image_disk_gb": "0"}


def dataset(place: Path) -> Path:
    return place / "run" / "filter" / "dataset" / "train" / "part-00000.parquet"


def edit(place: Path, *rows: dict[str, Any]) -> None:
    """Write the dataset again, with these values in its first rows."""
    found = pq.read_table(dataset(place)).to_pylist()
    for row, columns in zip(found, rows, strict=False):
        row |= columns
    found[0] = dict.fromkeys(key for row in found for key in row) | found[0]
    pq.write_table(pa.Table.from_pylist(found), dataset(place))


SPOILED = (
    {"weight": math.nan},
    {"weight": math.inf},
    {"weight": -1.0},
    {"answer": None},
    {"messages": []},
    {"images": None},
    {"signals": "{"},
    {"signals": "[]"},
    {"images": [{"bytes": None, "path": None}]},
)


@pytest.mark.parametrize("rows", [SPOILED, ({"weight": "much"},)], ids=["values", "a column of texts"])
def test_rows_that_were_spoiled_by_hand_are_counted_and_cost_no_other(rows: tuple[dict[str, Any], ...], place: Path):
    edit(place, *rows)
    made = train(worlds.recipe(place, worlds.stage("a", steps=1)), place / "run", stage="a")
    without_image = sum("bytes" in str(row.get("images")) for row in rows)
    assert made.counts.get("dropped_missing_image", 0) == without_image and made.counts["rows"] == 40 - len(rows)
    assert made.counts["dropped_malformed_row"] == len(rows) - without_image


def test_a_row_without_a_weight_counts_one(place: Path):
    edit(place, {"weight": None})
    table = pq.read_table(dataset(place))
    pq.write_table(
        table.set_column(table.schema.get_field_index("weight"), "weight", pa.array([None] * 40)), dataset(place)
    )
    assert train(worlds.recipe(place, worlds.stage("a", steps=1)), place / "run", stage="a").counts["rows"] == 40


def test_an_empty_answer_is_nothing_to_learn(place: Path):
    edit(place, {"answer": ""})
    made = train(
        worlds.recipe(place, worlds.stage("a", steps=1, more='target = "answer"\n')), place / "run", stage="a"
    )
    assert made.counts["dropped_no_answer"] == 1


def test_a_stage_in_which_no_token_counts_stops_before_it_trains(place: Path):
    columns = pq.read_table(dataset(place))
    pq.write_table(columns.append_column("weight", pa.array([0.0] * 40)), dataset(place))
    with pytest.raises(DataError, match="'a': every token of its 40 rows has weight 0"):
        train(worlds.recipe(place, worlds.stage("a")), place / "run")
    only_rationales = worlds.stage("a", "questions", more="[stages.loss]\nanswer = 0\nformat = 0\n")
    with pytest.raises(DataError, match="a source has answers and no rationales"):
        train(worlds.recipe(place, only_rationales), place / "run")
    with pytest.raises(RecipeError, match=r"stages\.a\.loss: rationale, answer and format all weigh 0"):
        worlds.recipe(place, worlds.stage("a", more="loss = { rationale = 0, answer = 0, format = 0 }\n"))


def test_replayed_rows_alone_are_no_stage(place: Path):
    edit(place, *[{"weight": math.nan}] * 40)
    recipe = worlds.recipe(place, worlds.stage("a", more="replay = { questions = 0.5 }\n"))
    with pytest.raises(DataError, match=r"no row of data = 'traces' can be trained on \(malformed_row: 40\)"):
        train(recipe, place / "run")


def test_a_projector_learns_nothing_from_text(place: Path):
    (place / "texts.jsonl").write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n", encoding="utf-8")
    texts = '[data.texts]\nsource = "texts.jsonl"\ncolumns = { image = "" }\n'
    with pytest.raises(DataError, match="none of its 1 row has an image"):
        train(worlds.recipe(place, worlds.stage("a", "texts", train='["projector"]'), more=texts), place / "run")


def test_a_loss_that_is_no_number_ends_the_stage_and_keeps_the_checkpoint_before_it(place: Path):
    recipe = worlds.recipe(place, worlds.stage("a", steps=6, save=1).replace("5e-3", "1e30"))
    with pytest.raises(
        DistillError, match=r"the loss is (nan|inf) since step \d of 6.*learning_rate \(now 1e\+30\)"
    ) as error:
        train(recipe, place / "run")
    assert error.value.exit_code == 1
    losses = [line["loss"] for line in read_jsonl(place / "run" / "train" / "a" / "metrics.jsonl")]
    newest = last_checkpoint(place / "run" / "train" / "a" / "checkpoints")
    assert losses[-1] is None and newest is not None and newest.name == f"checkpoint-{len(losses) - 1}"


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_vanishes_while_its_stage_trains_is_one_message(
    workers: int, place: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = worlds.recipe(place, worlds.stage("a", "questions"))
    monkeypatch.setattr(step_dataset, "decoding_processes", lambda _: workers)
    encode = stage_run.StageRun._readable

    def then_lose(running: stage_run.StageRun) -> Any:
        found = encode(running)
        shutil.rmtree(place / "images")
        return found

    monkeypatch.setattr(stage_run.StageRun, "_readable", then_lose)
    with pytest.raises(ImageError, match=r"\d+\.png: no such file; an earlier read succeeded: restore the file"):
        train(load(recipe.path, NOTHING_KEPT | {"student.image_tokens": "off"}), place / "run")
    # A process that is left ignores SIGTERM, and Python waits for it at exit.
    assert multiprocessing.active_children() == []


def test_a_file_that_the_filter_did_not_write_is_no_part_of_the_dataset(place: Path):
    fields = {"filter": "by hand"}
    manifest = Manifest(
        stage="filter",
        fingerprint=fingerprint(fields),
        fields=fields,
        outputs={"dataset/train/part-00000.parquet": describe(dataset(place))},
    )
    manifest.write(place / "run" / "filter")
    shutil.copy(dataset(place), dataset(place).with_name("copy.parquet"))
    recipe = worlds.recipe(place, worlds.stage("a", steps=1))
    with pytest.raises(DataError, match=r"copy\.parquet: the filter stage did not write this file"):
        train(recipe, place / "run")
    dataset(place).with_name("copy.parquet").unlink()
    assert train(recipe, place / "run", stage="a").counts["rows"] == 40


def test_a_file_in_the_place_of_a_folder_is_one_message(place: Path):
    recipe = worlds.recipe(place, worlds.stage("a", steps=1))
    (place / "file").write_text("", encoding="utf-8")
    with pytest.raises(StorageError, match="file: a file is in the place of a folder"):
        train(recipe, place / "file")
    (place / "run" / "train").write_text("", encoding="utf-8")
    with pytest.raises(StorageError, match="a file is in the place of a folder"):
        train(recipe, place / "run")


@pytest.mark.parametrize("name", ["flex_attention", "flash_attention_2", "flash_attention_3"])
def test_an_attention_that_the_machine_lacks_is_refused_with_what_to_choose(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match=f"student.attention = '{name}' cannot be used here.*choose \"auto\""):
        attention.require(name)
    attention.require("sdpa")


def test_a_tracker_that_is_not_known_is_refused_before_anything_is_read(place: Path):
    recipe = worlds.recipe(place, worlds.stage("a", more='report_to = ["nonsense"]\n'))
    said: list[Progress] = []
    with pytest.raises(RecipeError, match=r"stages\.a\.report_to = 'nonsense' is not known; trackio, wandb"):
        train(recipe, place / "run", on_progress=said.append)
    assert not said


def test_settled_settings_do_not_change_how_many_stages_share_image_tokens(tmp_path: Path):
    recipe = worlds.recipe(tmp_path, worlds.stage("a"), worlds.stage("b"))
    settled = recipe.stages[0].model_copy(update={"gradient_checkpointing": False})
    assert settled != recipe.stages[0] and image_tokens.sharing(recipe.stages, settled) == 2


_FULL = "cannot write: (the disk or the quota is full|File too large); finished work is intact"


def _tokenizer(path: Path) -> None:
    Tokenizer(WordLevel({str(number): number for number in range(30_000)}, "0")).save(str(path))


_WRITERS = {
    "torch": lambda path: torch.save({"state": [torch.zeros(30_000) for _ in range(4)]}, path),
    "a small file of torch": lambda path: torch.save({"last_epoch": 1}, path),
    "safetensors": lambda path: save_file({"weight": torch.zeros(90_000)}, path),
    "numpy": lambda path: np.save(path, np.zeros(90_000)),
    "tokenizers": _tokenizer,
    "DuckDB": lambda path: duckdb.execute(f"COPY (SELECT random() FROM range(90000)) TO '{path}' (FORMAT parquet)"),
}


@pytest.mark.parametrize("limit_bytes", [100, 2_000, 200_000])
@pytest.mark.parametrize("library", _WRITERS)
def test_a_file_that_a_library_cannot_finish_is_one_message(library: str, limit_bytes: int, tmp_path: Path):
    if library == "a small file of torch" and limit_bytes > 1_000:
        return
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        with pytest.raises(StorageError, match=_FULL), storage_errors(tmp_path):
            _WRITERS[library](tmp_path / "file.npy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_images_beyond_the_memory_are_all_on_disk_however_many_threads_look(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    """The place on disk is opened when memory is full, while other threads ask whether there is a place."""
    _, processor = worlds.student("siq-vl", place)
    asked: list[bool] = []
    opened = images.ImageStore._open_cache

    def ask_then_open(store: images.ImageStore) -> None:
        asked.append(store._has_room())
        opened(store)
        asked.append(store._has_room())

    monkeypatch.setattr(images.ImageStore, "_open_cache", ask_then_open)
    store = images.ImageStore(processor, torch.float32, memory_bytes=1, disk_bytes=1 << 30, folder=place / "cache")
    store.prepare([row.images[0] for row in worlds.rows(place)], 10**6)
    assert all(asked) and store.facts == {"images on disk": 8}


def test_an_outline_of_one_token_is_drawn(place: Path):
    student, _ = worlds.student("siq-vl", place)
    recipe = worlds.recipe(place, worlds.stage("a", more="micro_batch_tokens = 1\n"))
    outlined = memory.of_stage(student, find_parts(student), recipe.stages[0])
    assert all(outlined.needed(tokens=1, patches=0, checkpointing=each) > 0 for each in (False, True))


def test_an_export_that_the_disk_refuses_leaves_nothing_behind(place: Path):
    train(worlds.recipe(place, worlds.stage("a", steps=1)), place / "run")
    shutil.copy(place / "recipe.toml", place / "run")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(StorageError, match="out: cannot write"):
            convert.export(place / "run", place / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not [path.name for path in place.iterdir() if "out" in path.name]
    (place / "run" / "train" / "a" / "model" / "config.json").unlink()
    with pytest.raises(DataError, match=r"config\.json: it is missing"):
        convert.export(place / "run", place / "out")
    with pytest.raises(DataError, match="nowhere: not a run directory"):
        convert.export(place / "nowhere", place / "out")


@pytest.fixture(scope="module")
def killed(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world whose stage was killed after the step behind its first checkpoint."""
    folder = Path(shutil.copytree(world, tmp_path_factory.mktemp("killed") / "w"))

    class Killed(Exception):
        pass

    def kill(progress: Progress) -> None:
        if progress.stage == "train a" and progress.done == 3:
            raise Killed

    with pytest.raises(Killed):
        train(worlds.recipe(folder, worlds.stage("a", save=2)), folder / "run", on_progress=kill)
    checkpoint = folder / "run" / "train" / "a" / "checkpoints" / "checkpoint-2"
    shutil.copytree(checkpoint, checkpoint.with_name("checkpoint-copy"))
    return folder


@pytest.mark.parametrize("content", [b"{", None])
def test_what_a_stage_under_way_noted_of_itself_is_in_its_checkpoint_too(
    content: bytes | None, killed: Path, tmp_path: Path
):
    place = Path(shutil.copytree(killed, tmp_path / "w"))
    stage = place / "run" / "train" / "a"
    noted = json.loads((stage / "checkpoints" / "checkpoint-2" / "parts.json").read_bytes())
    (stage / "parts.json").write_bytes(content) if content is not None else (stage / "parts.json").unlink()
    train(load(place / "recipe.toml"), place / "run")
    assert json.loads((stage / "parts.json").read_bytes())["rows"] == noted["rows"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("trainable.safetensors", b"junk"),
        ("trainable.safetensors", None),
        ("optimizer.pt", b"junk"),
        ("optimizer.pt", None),
        ("meter.json", b"{}"),
        ("trainer_state.json", None),
        ("parts.json", b"{"),
    ],
)
def test_a_damaged_checkpoint_of_an_earlier_version_is_named_with_the_way_out(
    file: str, content: bytes | None, killed: Path, tmp_path: Path
):
    place = Path(shutil.copytree(killed, tmp_path / "w"))
    recipe = load(place / "recipe.toml")
    checkpoint = place / "run" / "train" / "a" / "checkpoints" / "checkpoint-2"
    (checkpoint / DIGESTS).unlink()
    if content is None:
        (checkpoint / file).unlink()
    else:
        (checkpoint / file).write_bytes(content)
    with pytest.raises(DataError, match=r"checkpoint-2: this checkpoint is damaged .* remove the folder"):
        train(recipe, place / "run")
    if file == "meter.json":  # the way out is the same for all
        shutil.rmtree(checkpoint)
        assert train(recipe, place / "run", stage="a").counts["steps"] == 6


def test_a_stage_is_not_resumed_with_other_rows_than_it_was_begun_with(killed: Path, tmp_path: Path):
    place = Path(shutil.copytree(killed, tmp_path / "w"))
    recipe, kept = load(place / "recipe.toml"), dataset(place).read_bytes()
    edit(place, {"weight": math.nan})
    with pytest.raises(DataError, match=r"a: it started with other rows \(40 then, 39 now\); .* --stage a --fresh"):
        train(recipe, place / "run")
    dataset(place).write_bytes(kept)
    assert train(recipe, place / "run", stage="a").counts["steps"] == 6


def test_machines_that_read_different_rows_do_not_train_together(place: Path, monkeypatch: pytest.MonkeyPatch):
    def gather(value: Any) -> list[Any]:
        """As with a second machine that lacks an image."""
        return [value, value | {"count": 39}] if isinstance(value, dict) and "sha256" in value else [value]

    monkeypatch.setattr(processes, "gather", gather)
    with pytest.raises(DataError, match="stage 'a': the machines of this training read different rows"):
        train(worlds.recipe(place, worlds.stage("a", steps=1)), place / "run")


@pytest.mark.parametrize("text", ["[]", "{}"])
def test_a_manifest_that_is_none_is_one_message(text: str, place: Path):
    recipe = worlds.recipe(place, worlds.stage("a", steps=1))
    (place / "run" / "train" / "a").mkdir(parents=True)
    (place / "run" / "train" / "a" / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"manifest\.json: no manifest of a stage; remove it"):
        train(recipe, place / "run")


def test_what_tensorboard_wrote_of_a_stage_stays_after_its_end(place: Path, monkeypatch: pytest.MonkeyPatch):
    """Its usual place is the folder of the checkpoints, which is removed with them."""
    from transformers.integrations import integration_utils

    class SummaryWriter:
        def __init__(self, log_dir: str) -> None:
            Path(log_dir).mkdir(parents=True, exist_ok=True)
            (Path(log_dir) / "events").touch()

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(integration_utils, "is_tensorboard_available", lambda: True)
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    train(worlds.recipe(place, worlds.stage("a", more='report_to = ["tensorboard"]\n')), place / "run")
    assert (place / "run/trackers/tensorboard/train/a/events").is_file()
    assert "TENSORBOARD_LOGGING_DIR" not in os.environ, "the next stage has a folder of its own"
