"""Traces that teachers score for a training stage: what is asked, kept, made again and refused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import stub_server
from worlds import generate_world

from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.layout import SAMPLES
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.commands.explain_scores import visual_weights
from distill.commands.store_stages import train_stage_in_store
from distill.data import sample_files
from distill.errors import DataError, RecipeError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.trace_records import scores
from distill.types import Progress
from distill.wiring.scored_traces import note_scorers, reuse_scores, score_stages
from teacher.score import EMPTY, NO_IMAGE, GivenText, score_texts

STAGE = '[[stages]]\nname = "reason"\ndata = "traces"\ntrain = ["language"]\n[stages.visual]\n'
QUESTIONS = 6


@dataclass
class Scoring:
    """A generated run whose traces are all selected, and the server of its teacher."""

    world: generate_world.World
    url: str

    @property
    def run(self) -> Path:
        return self.world.run

    def recipe(self, more: str = "") -> Recipe:
        self.world.recipe()
        path = self.world.folder / "recipe.toml"
        path.write_text(path.read_text() + "\n" + STAGE + more)
        return load(path)

    def score(self, recipe: Recipe | None = None, **options: Any) -> None:
        recipe = recipe or self.recipe()
        note_scorers(recipe, self.run)
        score_stages(recipe, self.run, **options)

    def lines(self) -> list[dict[str, Any]]:
        return [line for journal in sorted((self.run / "score").glob("*.jsonl")) for line in read_jsonl(journal)]

    def asked(self) -> int:
        return generate_world.asked_of(self.url)


@pytest.fixture
def scoring(tmp_path: Path) -> Iterator[Scoring]:
    with stub_server.serve() as url:
        world = generate_world.World(tmp_path)
        world.add_rows(QUESTIONS)
        world.add_teacher(url, samples=1)
        world.generate()
        folder = world.run / "filter" / "dataset" / "train"
        folder.mkdir(parents=True)
        rows = [{"trace_id": record["id"], "teacher": record["teacher"]} for record in world.records()]
        pq.write_table(pa.Table.from_pylist(rows), folder / "part-00000.parquet")
        yield Scoring(world, url)


def test_each_trace_is_scored_with_and_without_its_image_once(scoring: Scoring) -> None:
    before = scoring.asked()
    scoring.score()
    assert scoring.asked() - before == 2 * QUESTIONS == len(scoring.lines())
    found = dict(scores.by_trace(scoring.run, "reason"))
    assert sorted(found) == scoring.world.ids()
    texts = {record["id"]: record["text"] for record in scoring.world.records()}
    for trace, views in found.items():
        scored, gain = scores.visual_gain(views) or pytest.fail("the views differ")
        assert scored.text == texts[trace] and 0 <= gain.min() < gain.max() == pytest.approx(2, abs=0.01)
    scoring.score()
    assert scoring.asked() - before == 2 * QUESTIONS


def test_a_run_that_ends_in_the_middle_goes_on_with_what_is_missing(scoring: Scoring) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scoring.score(on_progress=stop)
    there = scoring.lines()
    assert 4 <= len(there) < 2 * QUESTIONS
    (journal,) = (scoring.run / "score").glob("*.jsonl")
    journal.write_bytes(journal.read_bytes()[:-20])  # a torn last line, as after a kill
    before = scoring.asked()
    scoring.score()
    assert scoring.asked() - before == 2 * QUESTIONS - len(there) + 1
    assert len({line["key"] for line in scoring.lines()}) == len(scoring.lines()) == 2 * QUESTIONS


def test_scores_of_another_model_are_never_taken_for_those_of_the_teacher(scoring: Scoring) -> None:
    scoring.score()
    first = scores.settings(scoring.run, "reason")
    scoring.world.teachers[0]["revision"] = "other"
    scoring.score()
    second = scores.settings(scoring.run, "reason")
    assert first is not None and second is not None and first["journals"] != second["journals"]
    assert len(scoring.lines()) == 4 * QUESTIONS and len(dict(scores.by_trace(scoring.run, "reason"))) == QUESTIONS
    del scoring.world.teachers[0]["revision"]
    before = scoring.asked()
    scoring.score()
    assert scores.settings(scoring.run, "reason") == first and scoring.asked() == before


def test_a_finished_stage_is_scored_again_only_when_it_is_made_again(scoring: Scoring) -> None:
    manifest = scoring.run / "train" / "reason" / MANIFEST
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    scoring.score()
    assert not scoring.lines() and scores.settings(scoring.run, "reason") is not None
    scoring.score(fresh=True)
    assert len(scoring.lines()) == 2 * QUESTIONS


def test_another_run_over_the_same_traces_takes_the_scores_over(scoring: Scoring, tmp_path: Path) -> None:
    scoring.score()
    other = tmp_path / "other"
    reuse_scores(scoring.run, other)
    reuse_scores(scoring.run, other)
    (journal,) = (scoring.run / "score").glob("*.jsonl")
    assert (other / "score" / journal.name).read_bytes() == journal.read_bytes()


def test_an_incomplete_journal_gets_the_scores_that_another_run_has_more(scoring: Scoring, tmp_path: Path) -> None:
    scoring.score()
    (journal,) = (scoring.run / "score").glob("*.jsonl")
    copy = tmp_path / "other" / "score" / journal.name
    copy.parent.mkdir(parents=True)
    lines = journal.read_bytes().splitlines(keepends=True)
    copy.write_bytes(b"".join([lines[1], lines[-1]]) + lines[0][:-9])  # and a torn last line, as after a kill
    with Journal(copy.with_name("busy.jsonl")), Journal(journal.with_name("busy.jsonl")) as busy:
        busy.append(orjson.loads(lines[0]))
        busy.flush()
        reuse_scores(scoring.run, tmp_path / "other")  # the journal that is open elsewhere is left alone
    assert not copy.with_name("busy.jsonl").read_bytes()
    assert sorted(copy.read_bytes().splitlines()) == sorted(journal.read_bytes().splitlines())
    before = copy.read_bytes()
    reuse_scores(scoring.run, tmp_path / "other")
    reuse_scores(tmp_path / "other", scoring.run)
    assert copy.read_bytes() == before and journal.read_bytes() == b"".join(lines)


def test_traces_without_text_or_image_are_left_out(scoring: Scoring) -> None:
    recipe = scoring.recipe()
    sample = next(iter(sample_files.read_samples(scoring.run / "generate" / SAMPLES)))
    texts = [
        GivenText(trace="a", sample=sample, text=" \n"),
        GivenText(trace="b", sample=replace(sample, images=()), text="7"),
        GivenText(trace="c", sample=sample, text="naïve 漢字 😀"),
        GivenText(trace="d", sample=sample, text="word " * 500),
    ]
    failed = score_texts(recipe, recipe.teachers[0], texts, scoring.run / "score", top_k=2)
    assert failed == {EMPTY: 2, NO_IMAGE: 2} and len(scoring.lines()) == 4
    assert {scores.decode(line).ids.shape[1] for line in scoring.lines()} == {3}


def test_traces_of_which_none_can_be_scored_stop_the_stage(scoring: Scoring) -> None:
    path = scoring.run / "generate" / SAMPLES
    samples = [replace(sample, images=()) for sample in sample_files.read_samples(path)]
    sample_files.write_samples(path, samples)
    with pytest.raises(DataError, match=r"none of its 6 traces could be scored \(no_picture: 12\)"):
        scoring.score()


def test_explain_shows_the_words_that_need_the_image(scoring: Scoring) -> None:
    scoring.score()
    trace = scoring.world.ids()[0]
    assert not visual_weights(scoring.run, trace)  # no stage has learned with them
    noted = scores.settings(scoring.run, "reason") or {}
    fields = {"stage.visual.strength": 0.5, "stage.visual.least": 0.25, "stage.visual.most": 4.0}
    fields |= {f"scores.{name}": journal for name, journal in noted["journals"].items()}
    Manifest(stage="train reason", fingerprint="", fields=fields).write(scoring.run / "train" / "reason")
    ((stage, lines),) = visual_weights(scoring.run, trace)
    assert stage == "reason" and any("[2." in line or "[1." in line for line in lines)
    assert not visual_weights(scoring.run, "nothing") and not visual_weights(scoring.run / "other", trace)


@pytest.mark.parametrize(
    ("teacher", "more", "message"),
    [
        ({"backend": "openai"}, "", "cannot score texts, because its backend is 'openai'"),
        ({}, 'teacher = "gone"', "stages.reason.visual.teacher"),
        ({"prompt": "{question} {answer}", "hinted": True}, "", "sees more than question and image"),
        ({"prompt": "{question} {cues}", "cues": "ocr"}, "", "sees more than question and image"),
        ({}, "most = 0.5", "most"),
    ],
)
def test_what_cannot_score_is_refused_when_the_recipe_is_read(
    tmp_path: Path, teacher: dict[str, Any], more: str, message: str
) -> None:
    world = generate_world.World(tmp_path)
    world.add_rows(1)
    world.add_teacher("http://127.0.0.1:9/v1", **teacher)
    with pytest.raises(RecipeError, match=message):
        Scoring(world, "").recipe(more)


def test_a_run_in_a_store_says_that_it_is_to_be_pulled_first(scoring: Scoring) -> None:
    with pytest.raises(RecipeError, match=r"stages\.reason\.visual: .*distill pull s3://bucket/run DIR"):
        train_stage_in_store(scoring.recipe(), "s3://bucket/run", (), stage=None, jobs=1, fresh=False)


def test_a_file_of_settings_that_is_no_json_is_named(scoring: Scoring) -> None:
    path = scores.settings_path(scoring.run, "reason")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(DataError, match="remove it and train again"):
        note_scorers(scoring.recipe(), scoring.run)
