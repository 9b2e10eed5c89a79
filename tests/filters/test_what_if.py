"""Another policy is compared with the last decisions: nothing is measured, nothing in the run changes."""

import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from worlds import run_fixtures as fixtures

from distill.artifacts.files import describe, file_sha256
from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.errors import RecipeError, StaleError
from distill.trace_records.human_labels import LabelJournal
from filters.apply import apply
from filters.signals import registry
from filters.what_if import LastTraces, as_text, what_if

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


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """A folder with a filtered run: of each question one trace is selected."""
    folder = tmp_path_factory.mktemp("filtered")
    fixtures.generate_folder(folder / "run", *fixtures.small_world(folder / "pictures"))
    apply(fixtures.recipe(folder, ONE), folder / "run")
    return folder


@pytest.fixture
def run(filtered, tmp_path):
    """A copy of the filtered run."""
    registry.calls.clear()
    shutil.copy(filtered / "recipe.toml", tmp_path)
    return shutil.copytree(filtered / "run", tmp_path / "run")


def other(run: Path, text: str):
    return fixtures.recipe(run.parent, text)


def test_the_comparison_is_what_filtering_again_gives(run):
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


POLICIES = {
    "limits of teacher and question": """
        [filter.select]
        per_teacher = 1
        per_question = 1
        order = ["-rationale_tokens"]
    """,
    "a limit of the dataset": "[filter.select]\nlimit = 5\n",
    "a mix": '[[filter.select.mix]]\nby = "k = 0"\nshares = { true = 0.4 }\n',
    "a rule on a table across partitions": '[filter]\nrules = [{ name = "again", drop = "corpus_duplicate" }]\n',
    "copies of dropped traces": """
        [filter]
        rules = [{ name = "first", drop = "signals.k = 0" }, { name = "again", drop = "exact_duplicate" }]
    """,
    "copies of dropped traces, ordered by a column in capital letters": """
        [filter]
        rules = [{ name = "first", drop = "signals.k = 0" }]
        [filter.select]
        per_question = 1
        order = ["Exact_Duplicate"]
    """,
    "rules that overlap": """
        [filter]
        rules = [{ name = "a", drop = "k > 0" }, { name = "b", drop = "k > 0 OR answer_verdict = 'wrong'" }]
        [filter.select]
        per_question = 2
    """,
}


@pytest.mark.parametrize("text", POLICIES.values(), ids=POLICIES)
def test_every_kind_of_policy_gives_the_decisions_of_filtering_again(run, text):
    found = what_if(other(run, text), run)
    before = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    apply(other(run, text), run, fresh=True)
    after = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    pairs = list(zip(before, after, strict=True))
    for flag, was, now in (
        ("kept", found.total.kept, found.total.now_kept),
        ("selected", found.total.selected, found.total.now_selected),
    ):
        assert (was, now) == (sum(row[flag] for row in before), sum(row[flag] for row in after))
    moves = {
        "newly kept": [new["id"] for old, new in pairs if new["kept"] and not old["kept"]],
        "newly dropped": [new["id"] for old, new in pairs if old["kept"] and not new["kept"]],
        "newly selected": [new["id"] for old, new in pairs if new["selected"] and not old["selected"]],
        "no longer selected": [new["id"] for old, new in pairs if old["selected"] and not new["selected"]],
    }
    assert found.moved == {name: (len(ids), tuple(ids[:3])) for name, ids in moves.items()}
    assert {name: both for name, both in found.reasons.items() if any(both)} == {
        name: (_reasons(before)[name], _reasons(after)[name]) for name in {**_reasons(before), **_reasons(after)}
    }


def test_traces_of_the_last_comparison_serve_the_next_one_until_the_run_is_filtered_again(run):
    last = LastTraces()
    for text in [SHORT, *POLICIES.values(), SHORT]:
        assert what_if(other(run, text), run, last=last) == what_if(other(run, text), run)
    traces = last.policies.traces
    what_if(other(run, ONE), run, last=last)
    assert last.policies.traces is traces
    apply(other(run, SHORT), run, fresh=True)
    after = what_if(other(run, SHORT), run, last=last)
    assert last.policies.traces is not traces
    assert after.total.kept == after.total.now_kept and not any(count for count, _ in after.moved.values())


def _reasons(rows) -> Counter[str]:
    """How often each rule, or limit of the selection, is a reason of a decision."""
    reasons = [reason for row in rows for reason in row["reasons"]]
    return Counter(one["condition"] if one["rule"] == "not_selected" else one["rule"] for one in reasons)


def test_a_side_table_that_lacks_traces_is_joined_by_id(run):
    """A row of another trace would be taken for its own if the files were read side by side."""
    text = '[filter]\nrules = [{ name = "again", drop = "corpus_state = \'ok\'" }]\n'
    path = next((run / "filter/corpus").glob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(table.slice(5), path)
    done = Manifest.read(run / "filter")
    outputs = {**done.outputs, path.relative_to(run / "filter").as_posix(): describe(path)}
    replace(done, outputs=outputs).write(run / "filter")
    found = what_if(other(run, text), run)
    states = table["corpus_state"].to_pylist()[5:]
    assert found.reasons["again"][1] == states.count("ok") < 24


def test_no_extractor_is_called_and_no_file_of_the_run_changes(run):
    before = {path: file_sha256(path) for path in run.rglob("*") if path.is_file()}
    what_if(other(run, SHORT), run)
    assert not registry.calls
    assert {path: file_sha256(path) for path in run.rglob("*") if path.is_file()} == before


def test_neither_the_families_nor_pandas_are_loaded(run):
    other(run, SHORT + '[[filter.select.mix]]\nby = "k = 0"\nshares = { true = 0.4 }\n')
    command = f"""
import sys
from pathlib import Path
from distill.recipe.loading import load
from filters.what_if import what_if
what_if(load({str(run.parent / "recipe.toml")!r}), Path({str(run)!r}))
print(sorted({{"pandas", "filters.signals.registry", "filters.signals.families.language"}} & sys.modules.keys()))"""
    done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_more_rules_than_one_number_has_bits_are_counted_one_by_one(run):
    names = [f"rule_{number}" for number in range(65)]
    rules = "".join(
        f"[[filter.rules]]\nname = '{name}'\ndrop = 'rationale_tokens < {number}'\n"
        for number, name in enumerate(names)
    )
    found = what_if(other(run, rules), run)
    tokens = [row["rationale_tokens"] for path in (run / "filter/signals").glob("*.parquet") for row in _rows(path)]
    for number, name in enumerate(names):
        count = sum(length is not None and length < number for length in tokens)
        assert found.reasons.get(name, (0, 0)) == (0, count)
    assert found.reasons["rule_64"][1]


def _rows(path):
    return pq.read_table(path).to_pylist()


def test_groups_add_up_to_the_whole(run):
    found = what_if(other(run, SHORT), run)
    assert found.total.traces == 24 and set(found.groups) == {"teacher", "domain", "difficulty"}
    for rows in found.groups.values():
        assert [sum(column) for column in zip(*rows.values(), strict=True)] == list(found.total)


def test_a_value_that_is_named_as_a_missing_one_is_counted_beside_it(tmp_path, short_report):
    asked = [fixtures.sample(f"Question {n}?", domain=("", "(none)")[n % 2]) for n in range(6)]
    fixtures.generate_folder(tmp_path / "run", asked, [fixtures.trace(one) for one in asked])
    settings = fixtures.recipe(tmp_path, '[filter]\nsignals = ["length"]\n')
    apply(settings, tmp_path / "run")
    found = what_if(settings, tmp_path / "run")
    assert found.total.traces == 6 and found.groups["domain"]["(none)"].traces == 6


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
    assert "filter.duplicates.threshold = 0.5 is asked for, but the signals were measured with 0.8" in notes[0]
    assert "the rule far reads student, which was not measured" in notes[1] and len(notes) == 2
    assert not what_if(other(run, "[filter.judge]\nmax_tokens = 7\n"), run).notes


def test_labels_that_the_signals_do_not_hold_are_said(tmp_path):
    fixtures.generate_folder(tmp_path / "run", *fixtures.small_world(tmp_path / "pictures"))
    recipe = fixtures.recipe(tmp_path, '[filter]\nsignals = ["answer", "human"]\nrules = []\n')
    apply(recipe, tmp_path / "run")
    assert not what_if(recipe, tmp_path / "run").notes
    labels = LabelJournal(tmp_path / "run")
    labels.add({"trace": _rows(tmp_path / "run/filter/decisions.parquet")[0]["id"], "label": "wrong"})
    labels.close()
    (note,) = what_if(recipe, tmp_path / "run").notes
    assert note.startswith("labels were given since the run was filtered")


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
