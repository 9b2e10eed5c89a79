"""Another policy is compared with the last decisions: nothing is measured, nothing in the run changes."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import run_fixtures as fixtures
from typer.testing import CliRunner

from distill.artifacts.files import file_sha256
from distill.cli import app
from distill.errors import RecipeError, StaleError
from filters.apply import apply
from filters.signals import registry
from filters.what_if import as_text, what_if

RULES = """
[[filter.rules]]
name = "incomplete"
drop = "outcome <> 'complete'"
[[filter.rules]]
name = "wrong"
drop = "answer_verdict = 'wrong'"
"""
ONE = f"{RULES}[filter.select]\nper_question = 1\n"
SHORT = """
[[filter.rules]]
name = "short"
drop = "rationale_tokens < 20"
"""


@pytest.fixture
def run(tmp_path):
    """A filtered run: of each question one trace is selected."""
    samples, traces = fixtures.small_world(tmp_path / "pictures")
    fixtures.generate_folder(tmp_path / "run", samples, traces)
    apply(fixtures.recipe(tmp_path, ONE), tmp_path / "run")
    registry.calls.clear()
    return tmp_path / "run"


def other(run: Path, text: str):
    return fixtures.recipe(run.parent, text)


def test_the_comparison_is_what_filtering_anew_gives(run):
    found = what_if(other(run, SHORT), run)
    before = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    apply(other(run, SHORT), run, fresh=True)
    after = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    for flag, was, now in (
        ("kept", found.total.kept, found.total.now_kept),
        ("selected", found.total.selected, found.total.now_selected),
    ):
        assert (was, now) == (sum(row[flag] for row in before), sum(row[flag] for row in after))
    newly = [new["id"] for old, new in zip(before, after, strict=True) if new["selected"] and not old["selected"]]
    assert found.moved["newly selected"] == (len(newly), tuple(newly[:3])) and newly
    assert found.reasons["short"] == (0, sum(not row["kept"] for row in after))
    assert found.reasons["per_question = 1"][1] == 0 < found.reasons["per_question = 1"][0]


def test_no_extractor_is_called_and_no_file_of_the_run_changes(run):
    before = {path: file_sha256(path) for path in run.rglob("*") if path.is_file()}
    what_if(other(run, SHORT), run)
    assert not registry.calls
    assert {path: file_sha256(path) for path in run.rglob("*") if path.is_file()} == before


def test_groups_add_up_to_the_whole(run):
    found = what_if(other(run, SHORT), run)
    assert found.total.traces == 24 and set(found.groups) == {"teacher", "domain", "difficulty"}
    for rows in found.groups.values():
        assert [sum(column) for column in zip(*rows.values(), strict=True)] == list(found.total)


def test_questions_with_unreadable_images_stay_dropped(tmp_path):
    samples, traces = fixtures.small_world(tmp_path / "pictures")
    fixtures.generate_folder(tmp_path / "run", samples, traces)
    Path(samples[0].images[0].path).unlink()
    apply(fixtures.recipe(tmp_path, ONE), tmp_path / "run")
    found = what_if(fixtures.recipe(tmp_path, "[filter]\nrules = []\n"), tmp_path / "run")
    assert found.total.now_kept == 20 and found.reasons["unreadable_image"] == (4, 4)


def test_what_was_measured_otherwise_or_not_at_all_is_said(run):
    text = '[[filter.rules]]\nname = "far"\ndrop = "student_nll > 3"\n[filter.duplicates]\nthreshold = 0.5\n'
    notes = what_if(other(run, text), run).notes
    assert "filter.duplicates.threshold = 0.5 is asked for, but the signals were measured with 0.9" in notes[0]
    assert "the rule far reads student, which was not measured" in notes[1] and len(notes) == 2
    assert not what_if(other(run, "[filter.judge]\nmax_tokens = 7\n"), run).notes


def test_a_policy_that_cannot_be_right_is_refused(run):
    with pytest.raises(RecipeError, match="no column 'nothing'"):
        what_if(other(run, '[[filter.rules]]\nname = "r"\ndrop = "nothing > 3"\n'), run)


def test_a_run_must_be_filtered_first(tmp_path):
    fixtures.generate_folder(tmp_path / "run", *fixtures.small_world(tmp_path / "pictures"))
    with pytest.raises(StaleError, match="run `distill filter` first"):
        what_if(fixtures.recipe(tmp_path), tmp_path / "run")


def test_the_command_prints_the_funnel_of_both_and_the_difference(run):
    (run.parent / "other.toml").write_text(SHORT)
    arguments = ["filter", str(run.parent / "recipe.toml"), "--run", str(run), "--what-if"]
    shown = CliRunner().invoke(app, [*arguments, str(run.parent / "other.toml")])
    assert shown.exit_code == 0, shown.output
    assert "domain charts" in shown.output and "newly selected" in shown.output
    assert shown.output.strip() == as_text(what_if(other(run, SHORT), run)).strip()
    changed = CliRunner().invoke(
        app, [*arguments, str(run.parent / "other.toml"), "--set", "filter.select.per_question=1"]
    )
    assert "per_question = 1" in changed.output and not (run.parent / "runs").exists()
