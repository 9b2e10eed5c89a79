"""Where a journal's lines start, when they are written, and reading from a line on."""

import fcntl
import resource
from pathlib import Path

import pytest

from distill.artifacts.journal import Journal, read_jsonl, read_jsonl_at
from distill.artifacts.json_lines import no_check, read_record, record_at, records_holding, scan, seal
from distill.errors import BusyError, StorageError


def test_append_says_where_the_line_starts_also_after_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "part.jsonl"
    with Journal(path) as journal:
        starts = [journal.append({"a": number}) for number in range(3)]
    with Journal(path) as journal:
        starts.append(journal.append({"a": 3}))
        assert journal.end == path.stat().st_size
    with path.open("rb") as file:
        assert [record_at(file, start) for start in starts] == [{"a": number} for number in range(4)]
        assert record_at(file, starts[1] + 1) is None
    assert [start for start, _ in read_jsonl_at(path)] == starts
    assert [record["a"] for _, record in read_jsonl_at(path, begin=starts[2])] == [2, 3]


def test_held_lines_are_written_together_and_count_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    with Journal(path) as journal:
        starts = [journal.append({"a": number}, hold=True) for number in range(2)]
        assert path.read_bytes() == b"" and starts == [0, len(seal({"a": 0}))]
        assert journal.end == len(seal({"a": 0}) + seal({"a": 1}))
        journal.write_held()
        assert path.read_bytes() == seal({"a": 0}) + seal({"a": 1})


def test_when_the_disk_is_full_the_lines_that_fit_stay_and_no_part_of_another(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    fits = seal({"a": 0}) + seal({"a": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        for number in range(3):
            journal.append({"a": number}, hold=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(fits) + 5, limits[1]))
        try:
            with pytest.raises(StorageError, match=r"part\.jsonl: cannot write: File too large; .* \(ulimit -f\)"):
                journal.write_held()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == fits and journal.end == len(fits)
        assert journal.append({"a": 3}) == len(fits)
    assert path.read_bytes() == fits + seal({"a": 3})


def test_a_journal_reaches_the_disk_within_a_fifth_of_a_second_by_default(tmp_path: Path) -> None:
    with Journal(tmp_path / "part.jsonl") as journal:
        assert journal.flush_interval_s == 0.2


def test_a_file_of_several_blocks_is_cut_at_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    whole = seal({"a": "x" * 70_000}) + seal({"a": "y" * 70_000})
    path.write_bytes(whole + b'{"a": "' + b"z" * 200_000)
    Journal(path).close()
    assert path.read_bytes() == whole
    assert [len(record["a"]) for record in read_jsonl(path)] == [70_000, 70_000]


def test_damaged_lines_are_numbered_from_one_and_found_at_their_byte(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    lines = [seal({"a": 0}), b'{"a":1,"crc":"00000000"}\n', seal({"a": 2})]
    path.write_bytes(b"".join(lines))
    before, damaged, after = scan(path)
    assert isinstance(before, tuple) and isinstance(after, tuple) and not isinstance(damaged, tuple)
    assert (damaged.line, damaged.start, damaged.data.strip()) == (2, len(lines[0]), lines[1].strip())
    assert (before[0], after[0]) == (0, len(lines[0]) + len(lines[1]))


def test_a_journal_that_another_process_writes_is_not_rewritten_before_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    with path.open("ab") as other:  # has written a part of its first line
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(seal({"a": 1})[:-5])
        other.flush()
        with pytest.raises(BusyError):
            Journal(path)
        other.write(seal({"a": 1})[-5:])
    assert list(read_jsonl(path)) == [{"a": 1}]


def test_in_a_file_without_checksums_a_last_record_needs_no_line_break_and_a_torn_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}')
    assert list(read_jsonl_at(path)) == [(0, {"a": 1}), (8, {"a": 2})]
    assert read_record(path, 8) == {"a": 2}
    assert [record["a"] for record in records_holding(path, b'"a"', no_check)] == [1, 2]
    path.write_bytes(b'{"a":1}\n{"a":2')
    assert list(read_jsonl_at(path)) == [(0, {"a": 1})] and read_record(path, 8) is None
    # A file of this program is appended to: what has no line break is still being written.
    path.write_bytes((sealed := seal({"a": 1}) + seal({"a": 2}))[:-1])
    assert [record for _, record in read_jsonl_at(path)] == [{"a": 1}]
    with Journal(path) as journal:
        journal.append({"a": 3})
    assert [record["a"] for _, record in read_jsonl_at(path)] == [1, 3] and len(sealed) > path.stat().st_size - 1
