import io
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from PIL import Image
from worlds.run_fixtures import generate_folder, make_image, recipe, sample, trace

from distill.artifacts.manifest import Manifest, fingerprint
from distill.data.images.image_files import sha256
from distill.errors import RecipeError
from distill.recipe.sections.filter import Filter, Select
from distill.types import ImageRef
from filters.apply import apply
from filters.dataset import writer
from filters.decisions import decide
from filters.decisions import rules as conditions
from filters.tables.signal_database import Tables
from filters.tables.trace_index import index

pytestmark = pytest.mark.usefixtures("short_report")

KEEP_ALL = "[filter]\nrules = []\n"


@pytest.fixture
def world(tmp_path):
    """One question with two images, a correct and a wrong trace, and one question without gold or image."""
    first = sample(
        "Count  both.", "4", "four", images=[make_image(tmp_path, 1), make_image(tmp_path, 2)], domain="scenes"
    )
    second = sample("What is it?", domain="")
    traces = [
        trace(first, "four", " Two and two. \n", k=0),
        trace(first, "5", "Two and three.", k=1),
        trace(second, "a cat", "", teacher="brief"),
    ]
    generate_folder(tmp_path / "run", [first, second], traces)
    return tmp_path, first, second, traces


def rows_of(run):
    files = sorted((run / "filter" / "dataset" / "train").glob("*.parquet"))
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def test_load_dataset_opens_the_folder_and_decodes_the_images(world):
    import datasets

    tmp_path, first, *_ = world
    apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    loaded = datasets.load_dataset(str(tmp_path / "run/filter/dataset"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    train = loaded["train"]
    assert isinstance(train.features["images"].feature, datasets.Image)
    assert set(train.column_names) >= {
        *("images", "messages", "sample_id", "trace_id", "teacher"),
        *("domain", "rationale", "answer", "weight", "signals"),
    }
    row = next(row for row in train if row["sample_id"] == first.id)
    assert [image.size for image in row["images"]] == [(24, 24), (24, 24)]
    with Image.open(first.images[0].path) as original:
        assert row["images"][0].tobytes() == original.convert("RGB").tobytes()


def test_a_row_holds_the_plain_question_and_the_thought_before_the_answer(world):
    tmp_path, _, second, traces = world
    apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    rows = {row["trace_id"]: row for row in rows_of(tmp_path / "run")}
    correct, wrong, bare = (rows[item.id] for item in traces)
    assert correct["messages"] == [
        {"role": "user", "content": "Count  both."},
        {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\n4"},
    ]
    assert (correct["rationale"], correct["answer"], correct["weight"]) == ("Two and two.", "4", 1.0)
    assert wrong["answer"] == "5"
    assert bare["messages"][1]["content"] == "<think>\n\n</think>\n\na cat"
    assert bare["images"] == [] and bare["teacher"] == "brief" and bare["sample_id"] == second.id
    signals = orjson.loads(correct["signals"])
    assert signals["answer_verdict"] == "correct" and signals["rationale_tokens"] == 3


def test_plain_rationales_stand_before_the_answer_without_tags(world):
    tmp_path, *_, traces = world
    apply(recipe(tmp_path, KEEP_ALL + 'rationale = "plain"\n'), tmp_path / "run")
    contents = {row["trace_id"]: row["messages"][1]["content"] for row in rows_of(tmp_path / "run")}
    assert contents[traces[0].id] == "Two and two.\n\n4"
    assert contents[traces[2].id] == "a cat"


def test_rows_come_in_the_order_of_question_and_trace(world):
    tmp_path, *_ = world
    apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    keys = [(row["sample_id"], row["trace_id"]) for row in rows_of(tmp_path / "run")]
    assert keys == sorted(keys) and len(keys) == 3


def test_images_that_decoders_read_differently_are_stored_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    Image.new("RGB", (30, 10), (200, 30, 30)).save(buffer, "JPEG", exif=exif)
    path = tmp_path / "turned.jpg"
    path.write_bytes(buffer.getvalue())
    turned = sample("What?", "4", images=[ImageRef(sha256=sha256(buffer.getvalue()), path=str(path))])
    generate_folder(tmp_path / "run", [turned], [trace(turned)])
    apply(recipe(tmp_path), tmp_path / "run")
    (row,) = rows_of(tmp_path / "run")
    with Image.open(io.BytesIO(row["images"][0]["bytes"])) as stored:
        assert stored.size == (10, 30)


def test_a_question_whose_image_is_gone_is_dropped_and_counted(world):
    tmp_path, first, _, traces = world
    Path(first.images[1].path).unlink()
    manifest = apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    assert [row["trace_id"] for row in rows_of(tmp_path / "run")] == [traces[2].id]
    assert manifest.counts["rule.unreadable_image"] == 2
    assert (manifest.counts["kept"], manifest.counts["dropped"], manifest.counts["selected"]) == (1, 2, 1)
    decisions = pq.read_table(tmp_path / "run/filter/decisions.parquet").to_pylist()
    reasons = {row["id"]: [reason["rule"] for reason in row["reasons"]] for row in decisions}
    assert reasons[traces[0].id] == ["unreadable_image"] and reasons[traces[2].id] == []


def test_large_datasets_are_cut_into_files(tmp_path, monkeypatch):
    samples = [sample(f"Question {number}?", "4", images=[make_image(tmp_path, number)]) for number in range(5)]
    traces = [trace(item) for item in samples]
    generate_folder(tmp_path / "run", samples, traces)
    apply(recipe(tmp_path), tmp_path / "run")
    whole = rows_of(tmp_path / "run")
    folder = tmp_path / "run/filter"
    found = index(tmp_path / "run/generate", folder / "samples", 10)
    database = decide.database(Tables.of(folder), folder / "decisions.parquet")
    shutil.rmtree(folder / "dataset")
    monkeypatch.setattr(writer, "_GROUP_ROWS", 1)
    monkeypatch.setattr(writer, "_FILE_BYTES", 5_000)
    written = writer.write(database, found, folder / "dataset", recipe(tmp_path))
    assert written.rows == 5 and len(written.files) >= 2
    assert rows_of(tmp_path / "run") == whole


def test_what_a_killed_run_left_of_its_dataset_does_not_enter_the_next_one(world):
    tmp_path, *_ = world
    left = tmp_path / "run/filter/.dataset.tmp/train/part-00007.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half a file")
    apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    folder = tmp_path / "run/filter/dataset"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == {
        "README.md",
        "train/part-00000.parquet",
    }


def test_an_answer_of_an_undecided_verdict_stays_the_traces_own():
    asked = sample("Which share?", "50%", answer_type="percent")
    found = writer.row(asked, trace(asked, " 0.5 "), [], {"answer_verdict": "undecided"}, "think")
    assert found["answer"] == "0.5"
    assert writer.row(replace(asked, answers=()), trace(asked, "x"), [], {}, "plain")["answer"] == "x"


def test_of_several_gold_answers_a_row_has_the_one_that_its_rationale_leads_to(tmp_path):
    asked = sample("What colour is the door?", "red", "dark blue", "navy")
    traces = [
        trace(asked, "It is dark blue.", "It looks dark blue.", k=0),
        trace(asked, "Red", "It looks red.", k=1),
        trace(asked, "Navy", "It looks navy.", k=2),
    ]
    generate_folder(tmp_path / "run", [asked], traces)
    apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    answers = {row["trace_id"]: row["answer"] for row in rows_of(tmp_path / "run")}
    assert [answers[item.id] for item in traces] == ["dark blue", "red", "navy"]


def test_a_gold_answer_within_the_tolerance_is_the_one_that_is_taught():
    asked = sample("How tall is it?", "10", "20")
    of = {"answer_verdict": "correct"}
    found = writer.row(asked, trace(asked, "20.5"), [], of, "think", relative_tolerance=0.05)
    assert found["answer"] == "20"


def test_a_limit_is_met_by_other_questions_where_images_are_gone(tmp_path):
    samples = [sample(f"Question {number}?", "4", images=[make_image(tmp_path, number)]) for number in range(30)]
    generate_folder(tmp_path / "run", samples, [trace(item) for item in samples])
    for item in samples[::3]:
        Path(item.images[0].path).unlink()
    manifest = apply(recipe(tmp_path, f"{KEEP_ALL}[filter.select]\nlimit = 15\n"), tmp_path / "run")
    decisions = pq.read_table(tmp_path / "run/filter/decisions.parquet").to_pylist()
    chosen = {row["id"] for row in decisions if row["selected"]}
    assert {row["trace_id"] for row in rows_of(tmp_path / "run")} == chosen and len(chosen) == 15
    assert manifest.counts["kept"] + manifest.counts["rule.unreadable_image"] == 30


def test_rows_come_in_the_order_of_the_curriculum(tmp_path):
    samples = [sample(f"Question {number}?", "4", images=[make_image(tmp_path, number)]) for number in range(9)]
    traces = [trace(item, "4", "so " * (3 + number * 7 % 9)) for number, item in enumerate(samples)]
    generate_folder(tmp_path / "run", samples, traces)
    apply(recipe(tmp_path, f'{KEEP_ALL}[filter.select]\ncurriculum = ["-rationale_tokens"]\n'), tmp_path / "run")
    lengths = [len(row["rationale"]) for row in rows_of(tmp_path / "run")]
    assert lengths == sorted(lengths, reverse=True) and len(set(lengths)) == 9


def test_rows_weigh_what_an_expression_over_their_signals_says(tmp_path):
    samples = [sample(f"Question {number}?", "4", images=[make_image(tmp_path, number)]) for number in range(4)]
    traces = [trace(item, "4", "so " * (3 + number)) for number, item in enumerate(samples)]
    generate_folder(tmp_path / "run", samples, traces)
    weight = (
        "CASE WHEN rationale_tokens = 3 THEN NULL WHEN rationale_tokens = 4 THEN -1 ELSE 0.5 * rationale_tokens END"
    )
    apply(recipe(tmp_path, f'{KEEP_ALL}[filter.select]\nweight = "{weight}"\n'), tmp_path / "run")
    found = {len(row["rationale"].split()): row["weight"] for row in rows_of(tmp_path / "run")}
    assert found == {3: 1.0, 4: 0.0, 5: 2.5, 6: 3.0}


def test_a_weight_that_fails_on_a_value_names_the_expression_and_the_value(tmp_path):
    item = sample("Question?", "4", images=[make_image(tmp_path, 0)])
    generate_folder(tmp_path / "run", [item], [trace(item, "4", "so so so")])
    with pytest.raises(RecipeError, match=r"filter.select.weight = 'teacher::double': Conversion Error: .*try_cast"):
        apply(recipe(tmp_path, f'{KEEP_ALL}[filter.select]\nweight = "teacher::double"\n'), tmp_path / "run")


@pytest.mark.parametrize(
    ("weight", "kind"), [("teacher", "varchar"), ("[k, 2]", r"bigint\[\]"), ("md5(id)::UUID", "uuid")]
)
def test_a_weight_that_is_no_number_is_an_error_before_anything_is_read(tmp_path, weight, kind):
    with pytest.raises(RecipeError, match=rf"filter.select.weight = .*: gives {kind}, not a number"):
        apply(recipe(tmp_path, f'{KEEP_ALL}[filter.select]\nweight = "{weight}"\n'), tmp_path / "run")


@pytest.mark.parametrize("weight", ["1.5", "k", "k::UTINYINT", "k::HUGEINT", "1.25::DECIMAL(9, 2)", "k::FLOAT"])
def test_numbers_of_all_kinds_are_weights(weight):
    conditions.check(Filter(select=Select(weight=weight)))


LOAD = """
import json, sys
import datasets
rows = [datasets.load_dataset(folder, split="train") for folder in sys.argv[1:]]
print(json.dumps([[row["trace_id"] for row in found] for found in rows]))
"""


def test_load_dataset_gives_the_rows_of_this_run_although_all_runs_share_one_cache(tmp_path):
    caches = ("HF_DATASETS_CACHE", "HF_HOME", "HOME")
    environment = {name: value for name, value in os.environ.items() if name not in (*caches, "XDG_CACHE_HOME")}

    def loaded(variable, *runs):
        folders = [str(run / "filter/dataset") for run in runs]
        done = subprocess.run(
            [sys.executable, "-c", LOAD, *folders],
            env=environment | {variable: str(tmp_path / f"shared by {variable}"), "HF_DATASETS_OFFLINE": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        return [sorted(ids) for ids in orjson.loads(done.stdout)]

    def written(run):
        return sorted(row["trace_id"] for row in rows_of(run))

    runs = [tmp_path / name for name in ("first", "second", "third")]
    for count, run in enumerate(runs, start=2):
        asked = [sample(f"How many of {number}?", "4") for number in range(count)]
        generate_folder(run, asked, [trace(one) for one in asked])
        apply(recipe(tmp_path, KEEP_ALL), run)
    for variable in caches:
        assert loaded(variable, *runs) == [written(run) for run in runs]

    apply(recipe(tmp_path, KEEP_ALL + "[filter.select]\nlimit = 1\n"), runs[0], fresh=True)
    moved = runs[1].rename(tmp_path / "moved")
    runs[2].rename(runs[1])  # where another run was before
    shutil.copytree(runs[0], tmp_path / "copied")
    now = [runs[0], moved, runs[1], tmp_path / "copied"]
    assert [len(written(run)) for run in now] == [1, 3, 4, 1]
    for variable in caches:
        assert loaded(variable, *now) == [written(run) for run in now]
        assert list((tmp_path / f"shared by {variable}").rglob("dataset-train.arrow"))


def test_a_dataset_whose_card_lacks_the_digest_of_its_content_is_packed_again(world):
    tmp_path, *_ = world
    run = tmp_path / "run"
    apply(recipe(tmp_path, KEEP_ALL), run)
    manifest = Manifest.read(run / "filter")
    settings = recipe(tmp_path, KEEP_ALL).filter.model_dump(mode="json", include={"card", "exports"})
    assert manifest is not None
    replace(manifest, inputs={**manifest.inputs, "card and exports": fingerprint(settings)}).write(run / "filter")
    card = run / "filter/dataset/README.md"
    new = card.read_text()
    assert "  description: " in new
    card.write_text(new.replace("  description: ", "  was: "))
    again = apply(recipe(tmp_path, KEEP_ALL), run)
    assert card.read_text() == new and again.fingerprint == manifest.fingerprint
