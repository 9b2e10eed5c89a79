"""The signal `ocr` in a whole filter stage: what a rule can ask, what is read once, what is missing."""

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw, ImageFont
from worlds.run_fixtures import default, generate_folder, make_image, recipe, sample, trace

from distill.data.images.image_files import sha256
from distill.errors import MissingExtra
from distill.types import ImageRef, Sample, Trace
from filters.apply import apply
from filters.signals import registry
from filters.signals.families.ocr import Ocr
from filters.tables import measure, trace_index
from filters.tables.workers import SERIAL

pytestmark = pytest.mark.usefixtures("short_report")

pytest.importorskip("rapidocr")
RULE = """
[filter]
signals = ["answer", "format", "ocr"]
workers = 1
[[filter.rules]]
name = "misread"
drop = "ocr_verdict = 'unsupported' AND ocr_confidence > 0.8"
"""


def receipt(folder: Path, name: str, *lines: str) -> ImageRef:
    image = Image.new("RGB", (240, 40 + 40 * len(lines)), "white")
    for at, line in enumerate(lines):
        label, _, value = line.rpartition(" ")
        for x, text in ((10, label), (190, value)):
            ImageDraw.Draw(image).text((x, 20 + 40 * at), text, fill="black", font=ImageFont.load_default(20))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(buffer.getvalue())
    return ImageRef(sha256=sha256(buffer.getvalue()), path=str(folder / name))


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, dict[str, Sample], list[Trace]]:
    shop = receipt(tmp_path / "pictures", "shop.png", "Tea 12", "Bread 7", "Cheese 19")
    lost = receipt(tmp_path / "pictures", "lost.png", "Milk 3", "Soup 8")
    Path(lost.path).unlink()
    samples = {
        "sum": sample("What do Tea and Bread cost together?", "19", images=[shop]),
        "one": sample("What does Cheese cost?", "19", images=[shop]),
        "noise": sample("How many dots?", "4", images=[make_image(tmp_path / "pictures", 1)]),
        "lost": sample("What does Milk cost?", "3", images=[lost]),
        "text": sample("What is 3 + 4?", "7"),
    }
    told = {
        "sum": ("Tea is 12, Bread is 7. 12 + 7 = 19.", "Tea is 17, Bread is 7. 17 + 7 = 24."),
        "one": ("Cheese is 19.", "Cheese is 12."),
        "noise": ("I count 4 dots.",),
        "lost": ("Milk is 3.",),
        "text": ("3 + 4 = 7.",),
    }
    traces = [
        trace(samples[name], samples[name].answers[0], text, k=k)
        for name, texts in told.items()
        for k, text in enumerate(texts)
    ]
    return tmp_path, samples, traces


def signals(run: Path, samples: dict[str, Sample]) -> dict[tuple[str, int], dict[str, Any]]:
    names = {one.id: name for name, one in samples.items()}
    rows = [row for path in (run / "filter" / "signals").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return {(names[row["sample_id"]], row["k"]): row for row in rows}


def test_a_misreading_is_dropped_and_an_undecidable_trace_is_kept(
    world: tuple[Path, dict[str, Sample], list[Trace]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, samples, traces = world
    run = folder / "run"
    generate_folder(run, samples.values(), traces)
    told = []
    manifest = apply(recipe(folder, RULE), run, on_progress=told.append)
    rows = signals(run, samples)
    verdicts = {key: (row["ocr_state"], row["ocr_verdict"], row["ocr_unsupported"]) for key, row in rows.items()}
    assert verdicts == {
        ("sum", 0): ("ok", "supported", 0),
        ("sum", 1): ("ok", "unsupported", 1),
        ("one", 0): ("ok", "supported", 0),
        ("one", 1): ("ok", "unsupported", 1),
        ("noise", 0): ("ok", "not_checkable", 0),
        ("lost", 0): ("error", None, None),
        ("text", 0): ("not_applicable", None, None),
    }
    (example,) = orjson.loads(rows["sum", 1]["ocr_examples"])
    assert (example["claim"], example["picture"]) == ("tea 17", ["12"]) and example["confidence"] > 0.8
    assert "unreadable_image" in rows["lost", 0]["signal_errors"] or "missing" in rows["lost", 0]["signal_errors"]
    assert manifest.counts["rule.misread"] == 2 and manifest.counts["error.ocr"] == 1
    assert {(one.done, one.total) for one in told if one.stage == "filter: ocr"} == {(1, 3), (2, 3), (3, 3)}
    # Other traces about the same images read nothing again but what could not be read.
    reads: list[int] = []
    original = measure.read_missing

    def counted(*values: Any, run_tasks: Callable[..., Any], **options: Any) -> None:
        original(
            *values, run_tasks=lambda work, tasks, lost: (reads.append(1) or work(task) for task in tasks), **options
        )

    monkeypatch.setattr(measure, "read_missing", counted)
    more = [*traces, trace(samples["one"], "19", "The price of Cheese is 19.", k=2)]
    generate_folder(run, samples.values(), more)
    apply(recipe(folder, RULE), run)
    assert len(reads) == 1 and signals(run, samples)["one", 2]["ocr_verdict"] == "supported"


def test_rows_that_were_measured_elsewhere_need_no_image_again(
    world: tuple[Path, dict[str, Sample], list[Trace]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, samples, traces = world
    traces = [each for each in traces if each.sample_id != samples["lost"].id]
    run = folder / "run"
    generate_folder(run, samples.values(), traces)
    apply(recipe(folder, RULE), run)
    extractors = registry.build(recipe(folder, RULE), run / "filter")
    (file,) = (run / "filter" / "signals").glob("*.parquet")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    digest = measure.write_measured(pq.read_table(file), elsewhere / file.name, extractors, None)
    index = trace_index.index(run / "generate", folder / "parts", 10_000, SERIAL)
    assert [digest] == list(index.digests)
    asked: list[Any] = []
    monkeypatch.setattr(measure, "read_missing", lambda refs, *_, **__: asked.extend(refs))
    told: list[tuple[int, int]] = []
    measure.measure(index, extractors, elsewhere, on_done=lambda *counts: told.append(counts))
    assert told == [(len(traces), len(traces))] and not asked


def test_without_a_run_directory_nothing_is_measured(world: tuple[Path, dict[str, Sample], list[Trace]]) -> None:
    folder, samples, traces = world
    family = default(Ocr)
    assert family.measure(samples["sum"], traces[:1]) == [{"ocr_state": "not_applicable"}]
    # An image that was not read is an error of its own traces.
    (row,) = registry.rows((family.with_texts(folder),), samples["sum"], traces[:1])
    assert row["ocr_state"] == "error" and "was not read" in row["signal_errors"]


def test_a_trace_without_rationale_has_no_claims(world: tuple[Path, dict[str, Sample], list[Trace]]) -> None:
    folder, samples, traces = world
    silent = replace(traces[0], reasoning="")
    assert default(Ocr).with_texts(folder).measure(samples["sum"], [silent]) == [{"ocr_state": "not_applicable"}]


def test_only_a_recipe_that_asks_for_the_signal_needs_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    registry.build(recipe(tmp_path))
    with pytest.raises(MissingExtra, match=r"'ocr' needs rapidocr, .* pip install 'cot-distill\[ocr\]'"):
        registry.build(recipe(tmp_path, RULE))


def test_a_image_that_can_be_read_again_is_read_again(world: tuple[Path, dict[str, Sample], list[Trace]]) -> None:
    folder, samples, traces = world
    traces = [each for each in traces if each.sample_id in {samples["lost"].id, samples["text"].id}]
    generate_folder(folder / "run", samples.values(), traces)
    assert apply(recipe(folder, RULE), folder / "run").counts["error.ocr"] == 1
    receipt(folder / "pictures", "lost.png", "Milk 3", "Soup 8")
    again = apply(recipe(folder, RULE), folder / "run", fresh=True)
    assert "error.ocr" not in again.counts and (again.counts["measured"], again.counts["reused"]) == (1, 1)
    assert signals(folder / "run", samples)["lost", 0]["ocr_verdict"] == "supported"
