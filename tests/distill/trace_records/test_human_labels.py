"""Labels of people: the last one counts, one writer, rates against the judge."""

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from distill.errors import BusyError, DataError, StorageError
from distill.trace_records.human_labels import FILE, LabelJournal, TraceLabel, compare_with_judge, read_labels


def test_the_last_label_of_a_trace_counts_and_a_second_writer_is_refused(tmp_path: Path) -> None:
    journal = LabelJournal(tmp_path)
    journal.add({"trace": "aa", "label": "wrong", "note": "reads 3"})
    journal.add({"trace": "aa", "label": "correct"})
    with pytest.raises(BusyError):
        LabelJournal(tmp_path)
    assert {trace: label.label for trace, label in read_labels(tmp_path).items()} == {"aa": "correct"}
    for wrong in ({"trace": "", "label": "wrong"}, {"trace": "a", "label": "maybe"}, {"label": "wrong"}):
        with pytest.raises(DataError):
            journal.add(wrong)
    journal.close()


def test_a_run_that_is_deleted_under_view_is_no_error_unless_labels_are_lost(tmp_path: Path) -> None:
    for labels in (0, 1):
        journal = LabelJournal(tmp_path / "run")
        for _ in range(labels):
            journal.add({"trace": "aa", "label": "wrong"})
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(StorageError, match="was deleted") if labels else nullcontext():
            journal.close()


def test_rates_against_the_judge_count_decided_labels_of_judged_traces() -> None:
    given = ["wrong"] * 4 + ["correct"] * 5 + ["unsure", "wrong"]
    labels = {f"t{place}": TraceLabel(trace=f"t{place}", label=label) for place, label in enumerate(given)}  # type: ignore[arg-type]
    verdicts = [
        "correct",
        "wrong",
        "wrong",
        "wrong",
        "correct",
        "correct",
        "wrong",
        "undecided",
        "correct",
        "correct",
    ]
    found = compare_with_judge(labels, {f"t{place}": verdict for place, verdict in enumerate(verdicts)})
    assert (found["false_accept"]["n"], found["false_accept"]["of"]) == (1, 4)
    assert (found["false_reject"]["n"], found["undecided"]["n"], found["undecided"]["of"]) == (1, 1, 5)
    assert found["labels"] == 11 and found["unsure"] == 1
    assert compare_with_judge({}, {})["false_accept"] == {"n": 0, "of": 0}


def test_an_edited_label_that_names_a_key_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_bytes(b'{"trace":"aa","label":"wrong"}\n{"trace":"bb","label":"wrong","label":"correct"}\n')
    with pytest.raises(DataError, match=r"labels\.jsonl:2: it names a key twice: 'label'; correct the line"):
        read_labels(tmp_path)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"trace":"bb","label":"Correct"}', "label = 'Correct' is none of correct, wrong, unsure"),
        (b'{"trace":"bb","label":["wrong"]}', r"label = \['wrong'\] is none of"),
        (b'{"trace":7,"label":"wrong"}', "trace = 7 is no id"),
        (b'{"trace":"bb","label":"wrong","blind":1}', "blind = 1 is no true or false"),
        (b'{"trace":"bb","label":"wrong","note":5}', "note = 5 is no text"),
    ],
)
def test_an_edited_line_that_is_no_label_is_an_error_that_names_it(tmp_path: Path, line: bytes, what: str) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_bytes(b'{"trace":"aa","label":"wrong"}\n' + line + b"\n")
    with pytest.raises(DataError, match=rf"labels\.jsonl:2: it is no label: {what}.*; correct the line"):
        read_labels(tmp_path)


def test_the_last_line_of_a_file_that_an_editor_wrote_needs_no_line_break(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_bytes(b'{"trace":"aa","label":"wrong"}\n{"trace":"bb","label":"correct"}')
    assert list(read_labels(tmp_path)) == ["aa", "bb"]
    journal = LabelJournal(tmp_path)
    journal.add({"trace": "cc", "label": "unsure"})
    journal.close()
    assert list(read_labels(tmp_path)) == ["aa", "bb", "cc"]
