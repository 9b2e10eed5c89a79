"""Labels of people are a signal: rules read them, and the card states error rates."""

from pathlib import Path

import pytest
from worlds.run_fixtures import generate_folder, recipe, small_world

from distill.artifacts.manifest import Manifest
from distill.trace_records.human_labels import LabelJournal
from filters.apply import apply
from filters.signals import registry
from filters.tables.signal_database import Tables, connect
from filters.what_if import what_if

pytestmark = pytest.mark.usefixtures("short_report")

SETTINGS = """
[filter]
signals = ["answer", "human"]
[[filter.rules]]
name = "human"
drop = "human_verdict = 'wrong'"
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    generate_folder(tmp_path / "run", *small_world(tmp_path / "pictures", questions=6))
    return tmp_path / "run"


def label(run: Path, **labels: str) -> None:
    journal = LabelJournal(run)
    for trace, verdict in labels.items():
        journal.add({"trace": trace.removeprefix("t_"), "label": verdict, "blind": True})
    journal.close()


def verdicts(run: Path) -> dict[str, str]:
    query = "SELECT id, answer_verdict FROM signals WHERE answer_verdict IS NOT NULL ORDER BY id"
    return dict(connect(Tables.of(run / "filter")).execute(query).fetchall())


def test_a_rule_drops_what_a_person_calls_wrong_and_new_labels_measure_nothing_again(
    run: Path, tmp_path: Path
) -> None:
    settings = recipe(tmp_path, SETTINGS)
    first = apply(settings, run)
    assert first.counts["rule.human"] == 0
    correct, another = [trace for trace, verdict in verdicts(run).items() if verdict == "correct"][:2]
    label(run, **{f"t_{correct}": "wrong", f"t_{another}": "correct", "t_ffff": "wrong"})
    registry.calls.clear()
    second = apply(settings, run)
    assert second.counts["rule.human"] == 1 and second.counts["kept"] == first.counts["kept"] - 1
    assert not registry.calls  # of the signals nothing is measured again
    apply(settings, run)
    label(run, **{f"t_{correct}": "unsure"})
    assert apply(settings, run).counts["rule.human"] == 0


def test_a_table_of_an_earlier_result_is_no_part_of_a_result_without_it(run: Path, tmp_path: Path) -> None:
    settings, without = recipe(tmp_path, SETTINGS), recipe(tmp_path, '[filter]\nsignals = ["answer"]\nrules = []\n')
    apply(settings, run)
    correct = next(trace for trace, verdict in verdicts(run).items() if verdict == "correct")
    label(run, **{f"t_{correct}": "wrong"})
    apply(settings, run)
    apply(without, run, fresh=True)
    query = "SELECT count(human_verdict) FROM signals"
    assert connect(Tables.of(run / "filter")).execute(query).fetchall() == [(0,)]
    compared = what_if(settings, run)
    assert compared.total.now_kept == compared.total.kept and "reads human" in " ".join(compared.notes)


def test_a_run_that_does_not_ask_for_labels_keeps_its_decisions(run: Path, tmp_path: Path) -> None:
    settings = recipe(tmp_path)
    first = apply(settings, run)
    label(run, t_ffff="wrong")
    second = apply(settings, run)
    assert second.fingerprint == first.fingerprint
    assert {path: output for path, output in second.outputs.items() if "parquet" in path} == {
        path: output for path, output in first.outputs.items() if "parquet" in path
    }


def test_the_card_states_error_rates_only_where_people_labelled(run: Path, tmp_path: Path) -> None:
    settings, card = recipe(tmp_path), run / "filter" / "dataset" / "README.md"
    apply(settings, run)
    assert "error rates of the signals on this very dataset are not known" in card.read_text(encoding="utf-8")
    decided = [trace for trace, verdict in verdicts(run).items() if verdict == "correct"]
    label(run, **{f"t_{decided[0]}": "wrong", f"t_{decided[1]}": "correct", f"t_{decided[2]}": "correct"})
    apply(settings, run)
    text = card.read_text(encoding="utf-8")
    assert "People labelled 3 traces of this run (3 of them" in text
    assert "100.0 % [20.7, 100.0] (1 of 1) false accepts, 0.0 % [0.0, 65.8] (0 of 2) false rejects" in text
    assert "on this very dataset are not known" not in text
    before = Manifest.read(run / "filter")
    assert before is not None and apply(settings, run).created == before.created  # nothing new, nothing done
