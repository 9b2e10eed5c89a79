"""Measurements become lines, a page, the best weights and the end of a stage; a resumed watch decides the same."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.recipe.sections.validation import Validation
from distill.types import Sample
from student.validation import early_stopping
from student.validation import measure as quality
from student.validation import page as samples_page
from student.validation.measure import ValidationMetrics


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What the next measurements will find."""
    waiting: list[float] = []

    def measure(
        model: Any, questions: None, held: None, *, step: int, steps: int, within: None
    ) -> tuple[ValidationMetrics, list[Any]]:
        return ValidationMetrics(
            step=step, steps=steps, loss=waiting.pop(0), token_accuracy=0.5, response_tokens=100
        ), []

    monkeypatch.setattr(quality, "measure", measure)
    yield waiting


def watcher(folder: Path, **settings: Any) -> early_stopping.EarlyStopping:
    validation = Validation(**{"hold_out": 10, "every_steps": 10, **settings})
    return early_stopping.EarlyStopping(validation, folder, folder / "checkpoints", title="stage")


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("*"))


def look(watched: early_stopping.EarlyStopping, *steps: int) -> list[bool]:
    told = []
    for step in steps:
        measured = watched.measure(nn.Linear(1, 1), step, 100)
        told.append(watched.record(measured).best)
        if told[-1] and watched.best is not None:
            watched.best.mkdir(parents=True)
            (watched.best / "trainable").touch()
    return told


def test_measurements_come_at_a_fixed_interval_of_steps_and_after_the_last_one(tmp_path: Path):
    watched = watcher(tmp_path)
    assert [step for step in range(1, 35) if watched.due(step, 34)] == [10, 20, 30, 34]


def test_patience_counts_measurements_that_are_no_better_than_the_best(tmp_path: Path, losses: list[float]):
    watched = watcher(tmp_path, patience=2)
    losses += [3.0, 2.0, 2.0, 1.0, 1.5, float("nan")]
    stopped = []
    for step, best in ((10, True), (20, True), (30, False), (40, True), (50, False), (60, False)):
        assert look(watched, step) == [best]
        stopped.append(watched.stopped)
    assert stopped == [False, False, False, False, False, True]


def test_a_loss_that_is_no_number_is_never_the_best(tmp_path: Path, losses: list[float]):
    watched = watcher(tmp_path, keep="best")
    losses += [float("nan"), 2.0]
    assert look(watched, 10) == [False] and watched.best is None
    assert "not a number" in (tmp_path / "samples.html").read_text()
    assert look(watched, 20) == [True] and watched.best == tmp_path / "checkpoints" / "best-20"


def test_a_loss_beyond_all_numbers_is_forgotten_by_a_resumed_watch(tmp_path: Path, losses: list[float]):
    first = watcher(tmp_path, patience=3, keep="best")
    losses += [float("inf"), 3.0]
    assert look(first, 10) == [False]
    checkpoint = tmp_path / "checkpoints" / "checkpoint-10"
    checkpoint.mkdir(parents=True)
    first.save(checkpoint)
    again = watcher(tmp_path, patience=3, keep="best")
    again.start(checkpoint, 10)
    assert look(again, 20) == [True] and again.best == tmp_path / "checkpoints" / "best-20"


def test_without_patience_a_stage_goes_on_and_leaves_its_last_weights(tmp_path: Path, losses: list[float]):
    watched = watcher(tmp_path)
    losses += [float(number) for number in range(50)]
    look(watched, *range(1, 51))
    assert not watched.stopped and watched.best is None and kept(tmp_path) == []


def test_a_resumed_watch_is_what_it_was_at_the_checkpoint(tmp_path: Path, losses: list[float]):
    first = watcher(tmp_path, patience=3, keep="best")
    first.start(None, 0)
    losses += [3.0, 2.0, 2.5]
    look(first, 10, 20, 30)
    checkpoint = tmp_path / "checkpoints" / "checkpoint-30"
    checkpoint.mkdir()
    first.save(checkpoint)
    for folder in first.obsolete():
        shutil.rmtree(folder)
    assert kept(tmp_path) == ["best-20", "checkpoint-30"]
    # What comes after the checkpoint is lost in a kill: a better measurement, with the weights before it still there.
    losses += [1.0]
    look(first, 40)
    assert kept(tmp_path) == ["best-20", "best-40", "checkpoint-30"]
    again = watcher(tmp_path, patience=3, keep="best")
    again.start(checkpoint, 30)
    assert kept(tmp_path) == ["best-20", "checkpoint-30"] and again.best == tmp_path / "checkpoints" / "best-20"
    assert [line["step"] for line in read_jsonl(tmp_path / "validation.jsonl")] == [10, 20, 30]
    losses += [2.0, 2.0]
    assert look(again, 40, 50) == [False, False] and again.stopped
    assert [(line["step"], line["best"]) for line in read_jsonl(tmp_path / "validation.jsonl")] == [
        (10, True),
        (20, True),
        (30, False),
        (40, False),
        (50, False),
    ]


def test_a_measurement_that_was_broken_off_is_written_once_however_often_the_run_is_killed(
    tmp_path: Path, losses: list[float]
):
    first = watcher(tmp_path)
    losses += [3.0]
    look(first, 10)
    first.measurement_pending = True
    checkpoint = tmp_path / "checkpoints" / "checkpoint-20"
    checkpoint.mkdir(parents=True)
    first.save(checkpoint)
    for _ in range(2):
        again = watcher(tmp_path)
        again.start(checkpoint, 20)
        assert again.measurement_pending
        losses += [2.0]
        look(again, 20)
        assert [line["step"] for line in read_jsonl(tmp_path / "validation.jsonl")] == [10, 20]


def test_a_watch_that_starts_over_forgets_what_was_measured(tmp_path: Path, losses: list[float]):
    first = watcher(tmp_path, keep="best")
    losses += [3.0, 9.0]
    look(first, 10)
    again = watcher(tmp_path, keep="best")
    again.start(None, 0)
    assert kept(tmp_path) == [] and list(read_jsonl(tmp_path / "validation.jsonl")) == []
    assert look(again, 10) == [True]


def prediction(sample: Sample, verdict: str, **values: Any) -> dict[str, Any]:
    return {
        "sample_id": sample.id,
        "domain": "scenes",
        "question": sample.question,
        "gold": ["1"],
        "answer": "<2>",
        "reasoning": "row 1: <red>",
        "verdict": verdict,
        "truncated": False,
        "well_formed": True,
        **values,
    }


def line(step: int, **values: Any) -> dict[str, Any]:
    asked = {"n": 4, "accuracy": 0.5, "ci95": (0.2, 0.8), "format_rate": 1.0, "truncation_rate": 0.0}
    rest = {
        "undecided_rate": 0.25,
        "mean_rationale_tokens": 3.0,
        "loss": 2.0,
        "token_accuracy": 0.5,
        "response_tokens": 9,
    }
    return {**asdict(ValidationMetrics(step=step, steps=100)), **asked, **rest, **values}


def test_the_page_shows_failures_first_with_images_and_curves(tmp_path: Path):
    samples = [
        Sample(id=row.id, images=row.images, question=f"How many in {row.id}?", answers=("1",))
        for row in worlds.rows(tmp_path, 4)
    ]
    verdicts = ("correct", "undecided", "wrong", "correct")
    predictions = [prediction(sample, verdict) for sample, verdict in zip(samples, verdicts, strict=True)]
    predictions[2]["truncated"] = True
    page = samples_page.SamplesPage("tiny: reason", samples, metric="loss", gallery=3, max_pixels=10**6)
    page.write(tmp_path / "samples.html", [line(10, best=True), line(20, accuracy=0.75, loss=1.0)], predictions)
    text = (tmp_path / "samples.html").read_text()
    places = [text.index(f"How many in row{number}?</p>") for number in (2, 1, 0)]
    assert places == sorted(places) and "How many in row3?" not in text
    assert text.count("data:image/") == 3 and "cut off" in text
    assert "row 1: &lt;red&gt;" in text and "<red>" not in text
    assert all(f'aria-label="{name} over step: {name} ends at' in text for name in ("accuracy", "loss"))
    # The best measurement is a dot on the curve of what it is the best of.
    assert text.count("<polyline") == 2 and text.count('<path class="dots c1 d1" d="M0.00,') == 1
    assert "prefers-color-scheme: dark" in text and "<script" not in text


@pytest.mark.parametrize(
    ("metric", "said"), [("loss", "Step 10: loss 2.0000."), ("accuracy", "Step 10: 50.0 % correct [")]
)
def test_the_best_measurement_has_the_value_that_it_is_the_best_by(metric: str, said: str, tmp_path: Path):
    page = samples_page.SamplesPage("stage", (), metric=metric, gallery=3, max_pixels=1)
    page.write(tmp_path / "samples.html", [line(10, best=True)], [])
    assert said in re.sub("<[^>]*>", "", (tmp_path / "samples.html").read_text())


def test_the_page_says_which_images_it_does_not_show(tmp_path: Path):
    (row,) = worlds.rows(tmp_path, 1)
    gone = replace(row.images[0], path=str(tmp_path / "gone.png"), sha256="0" * 64)
    images = {"none": (), "gone": (gone,), "two gone": (gone, gone), "six": row.images * 6}
    samples = [Sample(id=name, images=images[name], question=name, answers=("1",)) for name in images]
    page = samples_page.SamplesPage("stage", samples, metric="loss", gallery=9, max_pixels=10**6)
    page.write(tmp_path / "samples.html", [line(10)], [prediction(sample, "wrong") for sample in samples])
    text = (tmp_path / "samples.html").read_text()
    told = re.findall('<span class="missing">([^<]*)</span>', text)
    assert told == ["no image", "the image is not shown", "2 images are not shown", "2 more not shown"]


def test_a_page_without_questions_has_the_loss_alone(tmp_path: Path):
    page = samples_page.SamplesPage("stage", (), metric="loss", gallery=3, max_pixels=1)
    page.write(
        tmp_path / "samples.html",
        [asdict(ValidationMetrics(step=10, steps=100, loss=2.0, token_accuracy=0.5, response_tokens=9))],
        [],
    )
    text = (tmp_path / "samples.html").read_text()
    assert 'aria-label="loss over step' in text and 'aria-label="accuracy over step' not in text


def test_the_page_counts_the_questions_that_could_not_be_asked(tmp_path: Path):
    measured = asdict(ValidationMetrics(step=10, steps=100, loss=2.0, token_accuracy=0.5, response_tokens=9))
    texts = []
    for left_out in ({"too_long": 3, "image_token_in_text": 1}, {}):
        page = samples_page.SamplesPage("stage", (), metric="loss", gallery=3, max_pixels=1, left_out=left_out)
        page.write(tmp_path / "samples.html", [measured], [])
        texts.append((tmp_path / "samples.html").read_text())
    assert "could not be asked and were replaced by others: image_token_in_text 1, too_long 3." in texts[0]
    assert "could not be asked" not in texts[1]


def test_a_page_stays_small_with_large_images(tmp_path: Path):
    import numpy as np
    from PIL import Image

    from distill.data.images import image_files
    from distill.types import ImageRef

    refs = []
    for number in range(6):
        path = tmp_path / f"{number}.png"
        noise = np.random.default_rng(number).integers(0, 255, (900, 900, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        refs.append(ImageRef(sha256=image_files.sha256(path.read_bytes()), path=str(path)))
    sample = Sample(id="s", images=tuple(refs), question="?", answers=("1",))
    page = samples_page.SamplesPage("stage", [sample], metric="loss", gallery=24, max_pixels=10**6)
    page.write(tmp_path / "samples.html", [line(10)], [prediction(sample, "wrong")])
    text = (tmp_path / "samples.html").read_text()
    # Noise compresses worst; a page of 24 such questions has some 4 MB.
    assert text.count("data:image/jpeg") == 4 and len(text) < 170_000
