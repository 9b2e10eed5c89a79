"""Exports are opened by what reads them; where a reader is not installed, by the rules that its project documents."""

import io
import re
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner
from worlds.run_fixtures import generate_folder, make_image, recipe, sample, trace

from distill import cli
from distill.data.images.image_files import sha256
from distill.errors import DataError, RecipeError, StaleError
from distill.types import ImageRef
from filters.apply import apply
from filters.dataset import exports
from filters.dataset.export_formats import FORMATS, chosen_formats, without_tags
from filters.dataset.webdataset import Shards

pytestmark = pytest.mark.usefixtures("short_report")

ALL = ("llava", "llama-factory", "ms-swift", "webdataset")
KEEP_ALL = "[filter]\nrules = []\n"
HOSTILE = "Which tag shows <image> or <bbox>: <img>a</img>, «<video>»?"


def formats(names):
    return chosen_formats(names, Path())


def photograph(folder: Path) -> ImageRef:
    buffer = io.BytesIO()
    Image.new("RGB", (20, 12), (30, 90, 200)).save(buffer, "JPEG")
    path = folder / "photograph.jpg"
    path.write_bytes(buffer.getvalue())
    return ImageRef(sha256=sha256(buffer.getvalue()), path=str(path))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A filtered run: questions about two images, one, a photograph and none, some of them full of marks."""
    folder = tmp_path_factory.mktemp("world")
    shared = make_image(folder, 1)
    samples = [
        sample("Count both.", "4", images=[shared, make_image(folder, 2)]),
        sample("What is it?", "4", images=[shared], domain="charts"),
        sample(HOSTILE, "4", images=[photograph(folder)]),
        sample(f"{HOSTILE} Or none?", "4"),
        sample("Two plus two?", "4"),
    ]
    reasoning = "The tag <image> stands for\na picture: “vier” 四."
    traces = [trace(samples[0], "4", "Two and two.", k=1), *(trace(item, "4", reasoning) for item in samples)]
    generate_folder(folder / "run", samples, traces)
    apply(recipe(folder, KEEP_ALL), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "here"
    return folder, exports.export(run, ALL, folder)


def originals(run):
    return {example.id: example for example in exports.read(run / "filter/dataset")}


def digests(folder: Path):
    return {str(path.relative_to(folder)): sha256(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def without_its_tags(text: str, name) -> str:
    return without_tags(text, FORMATS[name].tags)


def test_every_file_is_named_with_its_examples_and_no_path_is_absolute(run, exported):
    folder, files = exported
    rows = len(originals(run))
    assert (
        rows == 6 and [files[name] for name in ("llava.json", "llama-factory.jsonl", "ms-swift.jsonl")] == [rows] * 3
    )
    assert sum(count for name, count in files.items() if name.endswith(".tar")) == rows
    assert {path for path in digests(folder) if not path.startswith("images/")} == set(files)
    for path in folder.glob("*.*"):
        assert str(run.parent).encode() not in path.read_bytes()


def test_images_lie_there_once_under_names_made_from_their_content(exported):
    folder, _ = exported
    images = sorted((folder / "images").rglob("*.*"))
    assert sorted(path.suffix for path in images) == [".jpg", ".png", ".png"]
    for path in images:
        assert sha256(path.read_bytes()).startswith(path.stem) and path.parent.name == path.stem[:2]


def test_llava_keeps_every_conversation_as_it_is_written(run, exported):
    """LLaVA moves a picture's mark to the front of its turn, where it stands already; roles are human and gpt."""
    folder, _ = exported
    rows = orjson.loads((folder / "llava.json").read_bytes())
    known = originals(run)
    assert [row["id"] for row in rows] == list(known)
    for row in rows:
        example = known[row["id"]]
        human, model = row["conversations"]
        assert (human["from"], model["from"]) == ("human", "gpt")
        listed = row.get("image", [])
        paths = [listed] if isinstance(listed, str) else listed
        assert (
            human["value"].count("<image>") == len(paths) == len(example.pictures) and "<image>" not in model["value"]
        )
        assert [(folder / path).read_bytes() for path in paths] == [one.data for one in example.pictures]
        bare = human["value"].replace("<image>", "").strip()
        if len(paths) == 1:
            assert isinstance(listed, str) and f"<image>\n{bare}" == human["value"]
        assert bare == without_its_tags(example.messages[0]["content"], "llava")
        assert model["value"] == without_its_tags(example.messages[1]["content"], "llava")
    assert sum("image" not in row for row in rows) == 2


def test_llama_factory_finds_as_many_marks_as_images_in_the_file_that_its_index_names(run, exported, tmp_path):
    """By data/README.md of LLaMA-Factory: roles take turns, media are found below dataset_dir, counts are equal."""
    import datasets

    folder, _ = exported
    index = orjson.loads((folder / "dataset_info.json").read_bytes())
    entry = index["run"]
    tags, columns = entry["tags"], entry["columns"]
    assert entry["formatting"] == "sharegpt" and (folder / entry["file_name"]).suffix == ".jsonl"
    file = str(folder / entry["file_name"])
    rows = datasets.load_dataset("json", data_files=file, split="train", cache_dir=str(tmp_path))
    known = originals(run)
    assert rows["id"][:] == list(known)
    for row in rows:
        example, messages, images = known[row["id"]], row[columns["messages"]], row[columns["images"]]
        roles = [message[tags["role_tag"]] for message in messages]
        assert roles == [tags["user_tag"], tags["assistant_tag"]]
        text = "".join(message[tags["content_tag"]] for message in messages)
        assert [text.count(tag) for tag in FORMATS["llama-factory"].tags] == [len(images), 0, 0]
        assert [(folder / path).read_bytes() for path in images] == [one.data for one in example.pictures]
        bare = [messages[0]["content"].removeprefix("<image>" * len(images)), messages[1]["content"]]
        assert bare == [without_its_tags(message["content"], "llama-factory") for message in example.messages]


def test_ms_swift_finds_no_mark_of_its_own_but_the_images(run, exported, tmp_path):
    """By Custom-dataset.md of ms-swift: text is cut at special tokens, and each <image> takes the next image."""
    import datasets

    folder, _ = exported
    file = str(folder / "ms-swift.jsonl")
    rows = datasets.load_dataset("json", data_files=file, split="train", cache_dir=str(tmp_path))
    cut = re.compile(f"({'|'.join(map(re.escape, FORMATS['ms-swift'].tags))})")
    known = originals(run)
    for row in rows:
        example = known[row["id"]]
        assert [set(message) for message in row["messages"]] == [{"role", "content"}] * 2
        marks = [part for message in row["messages"] for part in cut.split(message["content"])[1::2]]
        assert marks == ["<image>"] * len(example.pictures)
        assert [(folder / path).read_bytes() for path in row["images"]] == [one.data for one in example.pictures]
        bare = row["messages"][0]["content"].removeprefix("<image>" * len(row["images"]))
        assert bare == without_its_tags(example.messages[0]["content"], "ms-swift")
        assert row["messages"][1]["content"] == without_its_tags(example.messages[1]["content"], "ms-swift")


def test_a_tar_holds_examples_as_neighbours_with_unchanged_text_and_nothing_of_this_machine(run, exported):
    folder, files = exported
    known = originals(run)
    seen = []
    for path in sorted((folder / "webdataset").iterdir()):
        with tarfile.open(path) as tar:
            infos = tar.getmembers()
            assert {(one.mtime, one.uid, one.gid, one.uname, one.mode) for one in infos} == {(0, 0, 0, "", 0o644)}
            keys = [one.name.split(".", 1)[0] for one in infos]
            assert len([1 for before, after in pairwise(["", *keys]) if before != after]) == len(set(keys))
            contents = {one.name: tar.extractfile(one).read() for one in infos}
        for name in dict.fromkeys(keys):
            row = orjson.loads(contents[f"{name}.json"])
            example = known[row["trace_id"]]
            seen.append(example.id)
            assert [dict(message) for message in row["messages"]] == list(example.messages)
            assert [contents[f"{name}.{image}"] for image in row["images"]] == [one.data for one in example.pictures]
            assert {column: row[column] for column in example.values} == example.values
        assert files[f"webdataset/{path.name}"] == len(set(keys))
    assert sorted(seen) == sorted(known)


def test_webdataset_reads_every_example_and_its_images(run, exported):
    webdataset = pytest.importorskip("webdataset")
    folder, _ = exported
    tars = sorted(str(path) for path in (folder / "webdataset").glob("*.tar"))
    known = originals(run)
    found = {}
    for row in webdataset.WebDataset(tars, shardshuffle=False).decode("pil"):
        found[row["json"]["trace_id"]] = [row[name].size for name in row["json"]["images"]]
    sizes = {one: [Image.open(io.BytesIO(p.data)).size for p in known[one].pictures] for one in known}
    assert found == sizes


def test_datasets_reads_a_series_of_tars_with_its_images(exported, tmp_path):
    import datasets

    folder, files = exported
    series = {name.rsplit("-", 1)[0] for name in files if name.endswith(".tar")}
    assert series == {"webdataset/text", "webdataset/png", "webdataset/png-png", "webdataset/jpg"}
    tars = [str(folder / name) for name in files if name.startswith("webdataset/png-png-")]
    rows = datasets.load_dataset("webdataset", data_files=tars, split="train", cache_dir=str(tmp_path))
    assert len(rows) == 2
    for row in rows:
        assert [row[name].size for name in row["json"]["images"]] == [(24, 24)] * 2
        assert row["json"]["messages"][0]["content"] == "Count both."


def test_trl_makes_batches_of_the_dataset(run, tmp_path):
    import datasets
    from students import tiny_models
    from transformers import AutoProcessor
    from trl.data_utils import is_conversational, prepare_multimodal_messages
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    rows = datasets.load_dataset(str(run / "filter/dataset"), split="train", cache_dir=str(tmp_path / "cache"))
    assert is_conversational(rows[0])
    for row in rows:
        user, assistant = prepare_multimodal_messages(row["messages"], images=row["images"])
        kinds = [part["type"] for part in user["content"]]
        assert kinds == ["image"] * len(row["images"]) + ["text"]
        assert assistant["content"] == [{"type": "text", "text": row["messages"][1]["content"]}]
    tiny_models.build(tmp_path / "model", hidden=32, layers=1)
    processor = AutoProcessor.from_pretrained(tmp_path / "model")
    plain = [row for row in rows if row["images"] and "<image>" not in str(row["messages"])]
    batch = DataCollatorForVisionLanguageModeling(processor)(plain)
    assert len(plain) == len(batch["input_ids"]) == 1 and batch["pixel_values"].shape[1] >= 2


def test_a_second_export_has_the_same_bytes(run, exported, tmp_path):
    folder, _ = exported
    exports.write(run / "filter/dataset", tmp_path / "again", formats(ALL), name="run")
    assert digests(tmp_path / "again") == digests(folder)


def test_unchanged_images_are_linked_and_forgotten_ones_go(run, tmp_path):
    dataset, folder = run / "filter/dataset", tmp_path / "exports"
    exports.write(dataset, folder, formats(["llava"]), name="run")
    places = {path.name: path.stat().st_ino for path in (folder / "images").rglob("*.*")}
    damaged = sorted((folder / "images").rglob("*.png"))[0]
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    (folder / "images/00").mkdir(exist_ok=True)
    (folder / "images/00/stranger.png").write_bytes(b"x")
    exports.write(dataset, folder, formats(["ms-swift"]), name="run", before=[folder])
    after = {path.name: path.stat().st_ino for path in (folder / "images").rglob("*.*")}
    assert set(after) == set(places)
    assert {name for name in after if after[name] != places[name]} == {damaged.name}
    assert sha256(damaged.read_bytes()).startswith(damaged.stem)
    assert {path.name for path in folder.iterdir()} == {"README.md", "images", "ms-swift.jsonl"}
    assert exports.write(dataset, folder, formats([]), name="run") == {} and not folder.exists()


def test_where_links_are_refused_images_are_written(run, tmp_path, monkeypatch):
    exports.write(run / "filter/dataset", tmp_path / "one", formats(["llava"]), name="run")

    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    exports.write(run / "filter/dataset", tmp_path / "two", formats(["llava"]), name="run", before=[tmp_path / "one"])
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_what_a_killed_export_left_does_not_enter_the_next_one(run, exported, tmp_path):
    left = tmp_path / ".exports.tmp" / "images" / "00"
    left.mkdir(parents=True)
    (left / "half.png").write_bytes(b"half")
    exports.write(run / "filter/dataset", tmp_path / "exports", formats(ALL), name="run")
    assert digests(tmp_path / "exports") == digests(exported[0])
    assert [path.name for path in tmp_path.iterdir()] == ["exports"]


def test_the_guide_counts_the_texts_that_were_altered(exported):
    text = (exported[0] / "README.md").read_text()
    parts = dict(re.findall(r"^## (\S+?)[,:].*?$(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE))
    assert list(parts) == ["LLaVA", "LLaMA-Factory", "ms-swift", "WebDataset"]
    assert [("In 5 examples" in part) for part in parts.values()] == [True, True, True, False]


def test_an_export_overwrites_nothing_and_needs_a_finished_filter_stage(run, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/thesis.txt").write_text("precious")
    with pytest.raises(DataError, match="give a new folder"):
        exports.export(run, ["llava"], tmp_path / "taken")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["thesis.txt"]
    with pytest.raises(StaleError, match="distill filter"):
        exports.export(tmp_path / "norun", ["llava"], tmp_path / "out")
    for formats in ([], ["llava", "lava"]):
        with pytest.raises(DataError, match="one or more of llava, llama-factory"):
            exports.export(run, formats, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_what_is_named_and_says_where(run, exported, tmp_path):
    (run / "recipe.toml").touch()
    command = ["export", str(run), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli.app, [*command, "--dataset", "ms-swift", "--dataset", "llava"])
    assert done.exit_code == 0 and f"{tmp_path / 'out' / 'llava.json'}: 6\n" in done.stdout
    logged = [orjson.loads(line) for line in (run / "log.jsonl").read_bytes().splitlines()]
    assert [line["message"].split(" with")[0] for line in logged[-2:]] == ["export begins", "export ends"]
    assert (tmp_path / "out/ms-swift.jsonl").read_bytes() == (exported[0] / "ms-swift.jsonl").read_bytes()
    again = CliRunner().invoke(cli.app, [*command, "--dataset", "llava"])
    assert again.exit_code == 2 and "give a new folder" in again.output


def test_large_series_are_cut_into_tars_and_few_files_are_open_at_once(run, tmp_path, monkeypatch):
    by_count = {count: [one for one in originals(run).values() if len(one.pictures) == count] for count in (0, 2)}
    examples = [one for pair in zip(by_count[0], by_count[2], strict=True) for one in pair]
    monkeypatch.setattr("filters.dataset.webdataset._OPEN_SERIES", 1)
    expected = {f"{series}-0000{number}.tar": 1 for number in (0, 1) for series in ("text", "png-png")}
    for name, limit, order in (("cut", 1, sorted(examples, key=lambda one: one.id)), ("switching", 10**9, examples)):
        shards = Shards(tmp_path / name, shard_bytes=limit)
        for example in order:
            shards.add(example)
        shards.close()
        assert shards.files == expected
        names = []
        for path in (tmp_path / name).iterdir():
            with tarfile.open(path) as tar:
                names += [member for member in tar.getnames() if member.endswith(".json")]
        assert sorted(names) == sorted(f"{example.id}.json" for example in examples)


CHAT = """
from filters.dataset.export_formats import ExportFormat

chat = ExportFormat(
    file="chat.json",
    record=lambda example, paths: {"id": example.id, "turns": len(example.messages), "pictures": list(paths)},
    tags=("<bbox>",),
    guide="## Chat of {name}",
)
"""


def test_a_form_from_a_file_beside_the_recipe_is_written_and_measures_nothing(run, tmp_path):
    import shutil

    folder = Path(shutil.copytree(run.parent, tmp_path / "w"))
    (folder / "mine.py").write_text(CHAT)
    settings = f'{KEEP_ALL}exports = ["llava", "mine.py:chat"]\n'
    before = apply(recipe(folder, KEEP_ALL), folder / "run")
    done = apply(recipe(folder, settings), folder / "run")
    assert done.fingerprint == before.fingerprint and done.counts["measured"] == 0
    written = folder / "run/filter/exports"
    records = orjson.loads((written / "chat.json").read_bytes())
    assert len(records) == done.counts["selected"] == done.outputs["exports/chat.json"].count
    assert all((written / path).is_file() for record in records for path in record["pictures"])
    guide = (written / "README.md").read_text()
    assert "## Chat of" in guide and "a text that this trainer reads" in guide
    (folder / "mine.py").write_text(CHAT.replace('"turns"', '"messages"'))
    apply(recipe(folder, settings), folder / "run")
    assert "messages" in orjson.loads((written / "chat.json").read_bytes())[0]


def test_an_export_format_that_is_invalid_or_fails_is_an_error(run, tmp_path):
    (tmp_path / "mine.py").write_text(CHAT.replace("len(example.messages)", "example.turns"))
    with pytest.raises(
        RecipeError, match=r"mine\.py:chat' failed on (\d+) of \1 traces; the first: trace .*: Attribut"
    ):
        exports.export(run, ["llava", f"{tmp_path / 'mine.py'}:chat"], tmp_path / "out")
    for record, reason in (
        ("None", "the record is NoneType"),
        ('{"x": object()}', "not JSON"),
        ("exit(1)", "SystemExit"),
        ('{"x": [{"y": float("nan")}]}', "a number is NaN or infinite"),
        ('{"x": float("-inf")}', "a number is NaN or infinite"),
    ):
        (tmp_path / "mine.py").write_text(CHAT.replace('{"id": example.id', f'{record} or {{"id": example.id'))
        (tmp_path / "mine.py").write_text(CHAT.split("record=")[0] + f"record=lambda example, paths: {record},\n)\n")
        with pytest.raises(RecipeError, match=rf"the first: trace .*{reason}.*; correct its record"):
            exports.export(run, [f"{tmp_path / 'mine.py'}:chat"], tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
    with pytest.raises(RecipeError, match=r"an export is a .*ExportFormat"):
        exports.export(run, [f"{tmp_path / 'mine.py'}:ExportFormat"], tmp_path / "out")


def test_examples_on_which_a_form_fails_are_left_out_and_counted(run, tmp_path, caplog):
    changed = "example.messages.clear() or example.values.clear() or paths.clear()"
    for body, lost in ((changed, 0), ("1 // (int(example.id, 16) % 2)", None)):
        (tmp_path / "mine.py").write_text(
            CHAT.split("record=")[0] + f'record=lambda example, paths: {{"x": {body}}},\n)\n'
        )
        place = tmp_path / f"out{lost}"
        counts = exports.export(run, [f"{tmp_path / 'mine.py'}:chat", "llava"], place)
        whole, written = counts["llava.json"], counts["chat.json"]
        assert len(orjson.loads((place / "chat.json").read_bytes())) == written
        assert written == whole if lost == 0 else 0 < written < whole
    told = f"failed on {whole - written} of {whole} traces; the first: trace "
    assert told in caplog.text and "they are left out of chat.json" in caplog.text
    assert told in (place / "README.md").read_text()


def test_the_folder_of_the_terminal_is_no_new_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="give a new folder"):
        exports.export(run, ALL, Path())


def test_examples_with_many_images_have_a_series_whose_name_fits(run, tmp_path):
    example = next(one for one in originals(run).values() if len(one.pictures) == 2)
    first, second = example.pictures
    mixed = [first, replace(second, suffix=".jpg")] * 80
    shards = Shards(tmp_path / "shards")
    for images in ([first] * 70, [first] * 70, [first] * 71, mixed, [*mixed, first]):
        shards.add(replace(example, pictures=tuple(images)))
    shards.close()
    files = list(shards.files.items())
    assert files[:2] == [("png70-00000.tar", 2), ("png71-00000.tar", 1)]
    assert [name.partition("-")[0] for name, _ in files[2:]] == ["160", "161"] and {n for _, n in files[2:]} == {1}
    with tarfile.open(tmp_path / "shards/png70-00000.tar") as tar:
        assert len(tar.getnames()) == 2 * 71


def test_the_guide_says_which_files_hold_no_weights(tmp_path):
    samples = [sample(f"What is it, {number}?", "4", images=[make_image(tmp_path, number)]) for number in range(3)]
    generate_folder(tmp_path / "run", samples, [trace(one, "4", "Two and two.") for one in samples])
    weight = f"CASE WHEN sample_id = '{samples[0].id}' THEN 2.5 ELSE 1.0 END"
    for settings, said in ((f'select.weight = "{weight}"\n', True), ("", False)):
        apply(recipe(tmp_path, f"{KEEP_ALL}{settings}"), tmp_path / "run", fresh=True)
        folder = tmp_path / f"out-{said}"
        exports.export(tmp_path / "run", ALL, folder)
        guide = (folder / "README.md").read_text()
        assert ("than 1 (`filter.select.weight`): 1." in guide) == said
        assert ("`llava.json`, `llama-factory.jsonl`, `ms-swift.jsonl` hold no weights" in guide) == said


ELSEWHERE = {
    "images": [{"bytes": b"", "path": None}],
    "messages": [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A square."}],
    "trace_id": "t1",
}


def dataset_of(folder: Path, *rows: dict) -> Path:
    """A dataset as another program writes it."""
    (folder / "train").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "train/part-00000.parquet")
    return folder


def test_a_dataset_of_another_program_without_weights_and_names_of_images_is_written(run, tmp_path):
    data = next(one for one in originals(run).values() if len(one.pictures) == 1).pictures[0].data
    rows = ELSEWHERE | {"images": [{"bytes": data, "path": None}]}, ELSEWHERE | {"images": [], "trace_id": "t2"}
    exports.write(dataset_of(tmp_path / "data", *rows), tmp_path / "out", formats(ALL), name="mine")
    written = orjson.loads((tmp_path / "out/llava.json").read_bytes())
    assert [one["id"] for one in written] == ["t1", "t2"]
    assert Path(written[0]["image"]).suffix in (".png", ".jpg") and "image" not in written[1]
    assert Image.open(tmp_path / "out" / written[0]["image"]).size


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({name: value for name, value in ELSEWHERE.items() if name != "images"}, "no column images; add it"),
        ({name: value for name, value in ELSEWHERE.items() if name != "trace_id"}, "no column trace_id; add it"),
        (ELSEWHERE, "row 1 is no example: ImageError: "),
        (ELSEWHERE | {"images": [{"bytes": None, "path": "a.png"}]}, "row 1 is no example: ImageError: "),
        (ELSEWHERE | {"messages": None}, "row 1 is no example: TypeError: "),
        (ELSEWHERE | {"images": [], "messages": [{"role": "tool", "content": "4"}]}, "a message of the role 'tool'"),
    ],
)
def test_a_row_of_another_program_that_is_no_example_is_named(tmp_path, row, said):
    folder = dataset_of(tmp_path / "data", row)
    with pytest.raises(DataError, match=re.escape(said)):
        exports.write(folder, tmp_path / "out", formats(ALL), name="mine")
    assert not (tmp_path / "out").exists()
