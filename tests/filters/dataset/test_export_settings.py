"""Exports as the recipe asks for them: names of formats, images used again, and what a change makes stale."""

import re

import pytest
from worlds.run_fixtures import generate_folder, make_image, recipe, sample, trace

from distill.artifacts.integrity import require_finished
from distill.data.images.image_files import sha256
from distill.errors import RecipeError
from filters.apply import apply
from filters.dataset.webdataset import key

pytestmark = pytest.mark.usefixtures("short_report")

KEEP_ALL = "[filter]\nrules = []\n"


def test_filtering_writes_what_the_recipe_asks_for_and_uses_its_images_again(tmp_path):
    asked = sample("How many?", "4", images=[make_image(tmp_path, 1)])
    generate_folder(tmp_path / "run", [asked], [trace(asked)])
    wanted = f'{KEEP_ALL}exports = ["llava", "webdataset"]\n'
    manifest = apply(recipe(tmp_path, wanted), tmp_path / "run")
    folder = tmp_path / "run/filter/exports"
    counts = {name: output.count for name, output in manifest.outputs.items()}
    assert counts["exports/llava.json"] == counts["exports/webdataset/png-00000.tar"] == 1
    assert "exports/llama-factory.jsonl" not in counts
    assert manifest.outputs["exports/llava.json"].sha256 == sha256((folder / "llava.json").read_bytes())
    (before,) = (folder / "images").rglob("*.png")
    place = before.stat().st_ino
    apply(recipe(tmp_path, wanted.replace('"webdataset"', '"ms-swift"')), tmp_path / "run", fresh=True)
    assert before.stat().st_ino == place and not (folder / "webdataset").exists()


def test_a_key_has_no_dot_and_no_slash():
    assert key("abc-1_Z") == "abc-1_Z"
    strange = {key(name) for name in ("a.b", "a/b", "a b", "ä", "x" * 200, "")}
    assert len(strange) == 6 and all(re.fullmatch(r"[0-9a-f]{32}", name) for name in strange)


def test_a_misspelt_format_is_an_error_with_the_nearest_one(tmp_path):
    with pytest.raises(RecipeError, match="ms-swift"):
        recipe(tmp_path, '[filter]\nexports = ["ms_swift"]\n')


def test_another_card_or_export_makes_nothing_stale_and_measures_nothing(tmp_path):
    asked = sample("How many?", "4", images=[make_image(tmp_path, 1)])
    generate_folder(tmp_path / "run", [asked], [trace(asked)])
    before = apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    wanted = f'{KEEP_ALL}exports = ["llava"]\n[filter.card]\nlicense = "cc-by-4.0"\n'
    after = apply(recipe(tmp_path, wanted), tmp_path / "run")
    assert after.fingerprint == before.fingerprint and (after.counts["measured"], after.counts["reused"]) == (0, 1)
    assert "license: cc-by-4.0" in (tmp_path / "run/filter/dataset/README.md").read_text()
    assert (tmp_path / "run/filter/exports/llava.json").is_file()
    assert apply(recipe(tmp_path, wanted), tmp_path / "run") == after
    again = apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    assert not (tmp_path / "run/filter/exports").exists() and again.outputs == before.outputs


def test_an_own_export_that_fails_on_all_examples_leaves_the_stage_finished(tmp_path):
    """The dataset does not depend on it, and a stage that trains on the dataset goes on."""
    asked = sample("How many?", "4", images=[make_image(tmp_path, 1)])
    generate_folder(tmp_path / "run", [asked], [trace(asked)])
    before = apply(recipe(tmp_path, KEEP_ALL), tmp_path / "run")
    form = "from filters.dataset.export_formats import ExportFormat\n"
    code = f'{form}chat = ExportFormat(file="chat.json", record=lambda example, paths: {{"id": example.ID}})\n'
    (tmp_path / "mine.py").write_text(code)
    wanted = f'{KEEP_ALL}exports = ["llava", "mine.py:chat"]\n'
    for _ in range(2):
        with pytest.raises(RecipeError, match=r"failed on 1 of 1 trace.* \(mine\.py, line 2\); correct its record"):
            apply(recipe(tmp_path, wanted), tmp_path / "run")
        after = require_finished(tmp_path / "run", "filter", next_step="")
        assert after.fingerprint == before.fingerprint and after.counts["selected"] == 1
    (tmp_path / "mine.py").write_text(code.replace("ID", "id"))
    assert "exports/chat.json" in apply(recipe(tmp_path, wanted), tmp_path / "run").outputs
