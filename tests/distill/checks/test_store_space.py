"""`distill check` says how much space the images of a store need on this machine."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from servers import store_servers
from servers.store_servers import BUCKET
from students import tiny_models

from distill.checks.context import CheckContext
from distill.checks.machine import check_scratch
from distill.checks.survey import survey
from distill.object_store.open_store import open_store
from distill.object_store.recipe_stores import files_in
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    store_servers.set_keys(monkeypatch)
    with store_servers.s3_server() as server:
        yield server


@pytest.fixture
def stored(endpoint: str, tmp_path: Path) -> Recipe:
    """Twelve questions about twelve images, all in a store."""
    store = open_store(f"s3://{BUCKET}", config=store_servers.config(endpoint))
    rows = []
    for number in range(12):
        tiny_models.make_image(tmp_path / f"{number}.png", number, size=16)
        store.put(f"data/{number}.png", tmp_path / f"{number}.png")
        rows.append({"image": f"{number}.png", "question": "How many?", "answer": str(number)})
    store.put("data/rows.jsonl", b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (tmp_path / "recipe.toml").write_text(
        f'[engine]\nscratch = "{tmp_path}/scratch"\n'
        f'{store_servers.recipe_section(endpoint)}[data.questions]\nsource = "s3://{BUCKET}/data/rows.jsonl"\n'
    )
    return load(tmp_path / "recipe.toml")


def mean_size(folder: Path, every: int = 1) -> float:
    sizes = [(folder / f"{number}.png").stat().st_size for number in range(0, 12, every)]
    return sum(sizes) / len(sizes)


def test_images_that_were_only_looked_for_do_not_change_the_mean_size(
    stored: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distill.checks.survey._DECODING_SHARE", 0.0)
    monkeypatch.setattr("distill.checks.survey._DECODED_AFTERWARDS", 4)
    with files_in(tmp_path / "files", stored):
        found = survey(stored, ASKED, seconds=60)
    assert not found.decoded
    assert found.image_bytes == pytest.approx(mean_size(tmp_path, every=4))


def test_check_says_how_much_space_the_images_need(stored: Recipe, tmp_path: Path) -> None:
    with files_in(tmp_path / "files", stored):
        context = CheckContext(stored, tmp_path / "run", gpu_name=None, seconds=60)
        (result,) = check_scratch(context)
        assert context.readable(ASKED).image_bytes == pytest.approx(mean_size(tmp_path))  # type: ignore[union-attr]
    assert result.key == "engine.scratch"
    assert "images of the questions, which lie in a store" in result.message


def test_a_disk_that_is_too_small_is_a_warning(
    stored: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with files_in(tmp_path / "files", stored):
        context = CheckContext(stored, tmp_path / "run", gpu_name=None, seconds=60)
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
        (result,) = check_scratch(context)
    assert result.state == "warning"
    assert "larger disk" in result.mend
