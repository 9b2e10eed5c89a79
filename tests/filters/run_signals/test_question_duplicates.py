"""The side table of questions: who asks the same of the same images, made once and the same in every order."""

import random
from dataclasses import replace

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from PIL import Image
from worlds import chart_images as charts
from worlds import run_fixtures

from distill.data.images.image_files import sha256
from distill.data.sample_files import to_record
from distill.types import ImageRef, Sample
from filters.apply import apply
from filters.matching import image_match
from filters.run_signals import question_duplicates
from filters.signals import schema
from filters.tables import run_signal_tables

pytestmark = pytest.mark.usefixtures("short_report")

LIMIT = 10_000_000


class World:
    """Samples by partition, as the filter stage copies them, and images in files."""

    def __init__(self, folder):
        self.folder = folder
        self.samples = folder / "samples"
        self.out = folder / "questions"
        self.shown = []

    def make_image(self, data):
        path = self.folder / f"{len(self.shown)}.img"
        path.write_bytes(data)
        self.shown.append(path)
        return ImageRef(sha256=sha256(data), path=str(path))

    def write(self, samples, partitions=1, **options):
        self.samples.mkdir(exist_ok=True)
        for number in range(partitions):
            part = samples[number::partitions]
            lines = [orjson.dumps(to_record(sample), option=orjson.OPT_APPEND_NEWLINE) for sample in part]
            (self.samples / f"part-{number:05d}.jsonl").write_bytes(b"".join(lines))
        path = question_duplicates.write(self.samples, range(partitions), self.out, max_pixels=LIMIT, **options)
        return {row["sample_id"]: row for row in pq.read_table(path).to_pylist()}

    @property
    def bytes(self):
        return (self.out / "part-00000.parquet").read_bytes()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def image(seed=0, kind="bar"):
    return charts.paint(charts.imagine(np.random.default_rng(seed), kind, (320, 240)))


def ask(name, text, *shown, **fields):
    return Sample(id=name, images=shown, question=text, **fields)


@pytest.fixture
def library(world):
    """A chart, two copies of it, another chart."""
    first, other = image(0), image(1, "pie")
    return [
        world.make_image(data)
        for data in (
            charts.png(first),
            charts.jpeg(first, 70),
            charts.webp(first, 60, lossless=True),
            charts.png(other),
        )
    ]


@pytest.fixture
def seen(monkeypatch):
    """Every call to look at an image and to compare two."""
    calls = {"hash_image": 0, "is_same_image": 0}
    for name in calls:
        original = getattr(image_match, name)

        def counted(*values, name=name, original=original, **options):
            calls[name] += 1
            return original(*values, **options)

        monkeypatch.setattr(image_match, name, counted)
    return calls


@pytest.mark.parametrize("closed", ["图中有几只猫？", "图中有几只猫。", "图中有几只猫！", "图中有几只猫 ?"])
def test_closing_marks_of_other_scripts_make_no_other_question(closed):
    def key(text):
        return question_duplicates.key(ask("a", text))

    assert key(closed) == key("图中有几只猫") != key("图中有几只狗？")
    assert key("كم عدد القطط؟") == key("كم عدد القطط")
    assert key("What is 5!?") == key("What is 5!") != key("What is 5?")


def test_the_same_question_about_a_copy_of_the_image_repeats_the_smallest_id(world, library):
    png, jpeg, webp, other = library
    rows = world.write(
        [
            ask("c", "What is the total?", png),
            ask("a", "what is  the TOTAL", jpeg),
            ask("b", "What is the total?", webp),
            ask("d", "What is the total?", other),
            ask("e", "What is the largest?", jpeg),
        ]
    )
    assert [rows[name]["question_duplicate_of"] for name in "abcde"] == [None, "a", "a", None, None]
    assert [rows[name]["question_cluster_size"] for name in "abcde"] == [3, 3, 3, 1, 1]
    assert [rows[name]["question_picture_cluster"] for name in "abcde"] == ["a", "a", "a", "d", "a"]
    assert [rows[name]["question_picture_questions"] for name in "abcde"] == [4, 4, 4, 1, 4]
    assert {row["question_state"] for row in rows.values()} == {"ok"}


def test_all_images_must_be_the_same_and_in_order(world, library):
    png, jpeg, _, other = library
    rows = world.write(
        [
            ask("a", "Compare.", png, other),
            ask("b", "Compare.", jpeg, other),
            ask("c", "Compare.", other, png),
            ask("d", "Compare.", png),
        ]
    )
    assert [rows[name]["question_duplicate_of"] for name in "abcd"] == [None, "a", None, None]
    assert [rows[name]["question_pictures"] for name in "abcd"] == [2, 2, 2, 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many are red?", "How many are blue?"),
        ("What is x2?", "What is x²?"),
        ("Is 1.5 larger?", "Is 15 larger?"),
        ("Is it not red?", "Is it red?"),
    ],
)
def test_other_words_are_another_question(world, library, one, other):
    rows = world.write([ask("a", one, library[0]), ask("b", other, library[0])])
    assert rows["b"]["question_duplicate_of"] is None


def test_other_options_are_another_question(world, library):
    rows = world.write(
        [
            ask("a", "Which?", library[0], meta={"options": ["red", "blue"]}),
            ask("b", "Which?", library[1], meta={"options": ["red", "green"]}),
            ask("c", "Which?", library[1], meta={"options": ["Red", "Blue"]}),
        ]
    )
    assert [rows[name]["question_duplicate_of"] for name in "abc"] == [None, None, "a"]


def test_questions_without_images_are_compared_by_their_text(world):
    rows = world.write([ask("a", "Two and two?"), ask("b", "two and  two"), ask("c", "Two and three?")])
    assert rows["b"]["question_duplicate_of"] == "a" and rows["c"]["question_duplicate_of"] is None
    assert rows["a"]["question_picture_cluster"] is None and rows["a"]["question_pictures"] == 0


def test_a_image_that_cannot_be_decoded_is_undecidable_and_leaves_the_others_alone(world, library):
    broken = world.make_image(b"no picture at all")
    rows = world.write(
        [
            ask("a", "Why?", broken),
            ask("b", "Why?", library[0]),
            ask("c", "why", library[1]),
            ask("d", "Why?", broken),
        ]
    )
    assert [rows[name]["question_state"] for name in "abcd"] == ["undecidable", "ok", "ok", "undecidable"]
    assert [rows[name]["question_duplicate_of"] for name in "abcd"] == [None, None, "b", None]


def test_a_image_that_was_missing_is_looked_at_when_it_is_back(world, library):
    samples = [ask("a", "Why?", library[0]), ask("b", "Why?", library[1])]
    path = world.shown[1]
    data = path.read_bytes()
    path.unlink()
    assert world.write(samples)["b"]["question_state"] == "undecidable"
    path.write_bytes(data)
    assert world.write(samples)["b"]["question_duplicate_of"] == "a"


def test_a_comparison_that_failed_is_not_remembered_as_a_difference(world, library):
    world.write([ask("a", "Why?", library[0])])
    world.write([ask("b", "Why?", library[1])])
    samples = [ask("a", "Why?", library[0]), ask("b", "Why?", library[1])]
    path = world.shown[1]
    data = path.read_bytes()
    path.unlink()
    assert world.write(samples)["b"]["question_duplicate_of"] is None
    path.write_bytes(data)
    assert world.write(samples)["b"]["question_duplicate_of"] == "a"


def test_the_table_says_the_same_whatever_the_order_the_partitions_and_the_workers(world, library):
    samples = [
        ask(f"{number:02d}", f"Question {number % 3}?", library[number % 4], *library[: number % 2])
        for number in range(20)
    ]
    world.write(samples)
    first = world.bytes
    for partitions, workers in ((3, 1), (1, 2), (2, 3)):
        for old in [*world.samples.iterdir(), *world.out.iterdir()]:
            old.unlink()
        random.Random(partitions).shuffle(samples)
        world.write(samples, partitions, workers=workers)
        assert world.bytes == first


def test_each_image_is_looked_at_once_and_nothing_again(world, library, seen):
    samples = [ask(f"{number:02d}", f"Question {number}?", library[number % 3]) for number in range(12)]
    world.write(samples)
    # The lossless copy has the pixels of the original, so that one comparison is enough.
    assert seen == {"hash_image": 3, "is_same_image": 1}
    before = world.bytes
    world.write(samples)
    assert seen == {"hash_image": 3, "is_same_image": 1} and world.bytes == before
    grown = [*samples, ask("99", "And this?", library[3])]
    rows = world.write(grown)
    assert seen == {"hash_image": 4, "is_same_image": 1}
    assert rows["99"]["question_picture_cluster"] == "99"


def test_a_grown_table_is_the_one_that_is_made_in_one_go(world, library):
    samples = [ask(f"{number:02d}", f"Question {number % 2}?", library[number % 4]) for number in range(12)]
    world.write(samples[6:])
    world.write(samples)
    grown = world.bytes
    for old in world.out.iterdir():
        old.unlink()
    world.write(samples)
    assert world.bytes == grown


def test_a_run_that_was_killed_keeps_what_it_had_seen(world, library, seen):
    samples = [ask(str(number), "Why?", ref) for number, ref in enumerate(library)]
    world.write(samples)
    whole = world.bytes
    (world.out / "part-00000.parquet").unlink()
    journal = next(world.out.glob("looks-*.jsonl"))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    next(world.out.glob("pairs-*.jsonl")).write_bytes(b'{"one": "ab')
    world.write(samples)
    assert world.bytes == whole
    assert seen["hash_image"] == 4 + 2


def test_other_settings_forget_what_was_seen(world, library, seen, monkeypatch):
    samples = [ask("a", "Why?", library[0]), ask("b", "Why?", library[1])]
    world.write(samples)
    before = run_signal_tables.metadata(world.out / "part-00000.parquet")[run_signal_tables.FINGERPRINT]
    monkeypatch.setattr(image_match, "VERSION", "another")
    world.write(samples)
    assert seen == {"hash_image": 4, "is_same_image": 2}
    assert run_signal_tables.metadata(world.out / "part-00000.parquet")[run_signal_tables.FINGERPRINT] != before
    assert len(list(world.out.glob("[!.]*"))) == 3


def test_a_changed_question_changes_the_table(world, library):
    samples = [ask("a", "Why?", library[0]), ask("b", "Why?", library[1])]
    assert world.write(samples)["b"]["question_duplicate_of"] == "a"
    rows = world.write([samples[0], replace(samples[1], question="Who?")])
    assert rows["b"]["question_duplicate_of"] is None


def test_the_rows_are_in_the_order_of_their_ids_and_have_the_documented_columns(world, library):
    world.write([ask(name, "Why?", library[0]) for name in "cab"])
    table = pq.read_table(world.out / "part-00000.parquet")
    assert table["sample_id"].to_pylist() == ["a", "b", "c"]
    assert table.schema.names == ["sample_id", *schema.QUESTION.names]


def test_the_filter_drops_traces_of_a_repeated_question(tmp_path):
    shown = run_fixtures.make_image(tmp_path / "pictures", 1, size=64)
    resaved = tmp_path / "pictures" / "resaved.png"
    with Image.open(shown.path) as opened:
        opened.save(resaved, compress_level=1)
    copy = ImageRef(sha256=sha256(resaved.read_bytes()), path=str(resaved))
    assert copy.sha256 != shown.sha256
    asked = [
        run_fixtures.sample("How many dots?", "4", images=[shown]),
        run_fixtures.sample("How  many dots", "4", images=[copy]),
        run_fixtures.sample("Which colour?", "4", images=[copy]),
    ]
    traces = [run_fixtures.trace(one) for one in asked]
    run_fixtures.generate_folder(tmp_path / "run", asked, traces)
    recipe = run_fixtures.recipe(tmp_path, '[filter]\nsignals = ["answer", "format", "repetition", "question"]\n')
    manifest = apply(recipe, tmp_path / "run")
    assert manifest.counts["rule.question_duplicate"] == 1 and manifest.counts["kept"] == 2
    decisions = {row["id"]: row for row in pq.read_table(tmp_path / "run/filter/decisions.parquet").to_pylist()}
    second = max(traces[:2], key=lambda trace: trace.sample_id)
    first = min(asked[:2], key=lambda one: one.id)
    (reason,) = decisions[second.id]["reasons"]
    assert orjson.loads(reason["values"]) == {"question_duplicate_of": first.id}
