"""Damaged lines: each costs its own record and no other, is kept beside its file, and is never taken for a record."""

import random
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from distill.artifacts.damaged_lines import count_damaged, recovered, side_file
from distill.artifacts.journal import Journal, read_jsonl, read_jsonl_at
from distill.artifacts.json_lines import Damaged, LineReader, cut_torn_tail, record_at, requiring, scan, seal
from distill.artifacts.layout import model_folder
from distill.errors import DataError, StorageError
from distill.trace_records.trace_lines import trace_fault

RECORDS = [{"id": f"{number:04x}", "answer": "ä\n" * number, "nested": {"a": [{"b": number}]}} for number in range(9)]
LINES = [seal(record) for record in RECORDS]


def found(data: bytes) -> tuple[list[object], list[Damaged]]:
    """Records and damaged pieces of a file's bytes."""
    reader, start = LineReader(plain=False), 0
    read: list[tuple[int, dict[str, object]] | Damaged] = []
    for line in data.splitlines(keepends=True) if b"\r" not in data else data.split(b"\n"):
        line = line if line.endswith(b"\n") else line + b"\n"
        read += reader.read(line, start)
        start += len(line)
    return [item[1] for item in read if isinstance(item, tuple)], [i for i in read if isinstance(i, Damaged)]


def test_a_line_is_plain_json_with_its_checksum_as_the_last_key() -> None:
    line = seal({"b": "ü", "a": 1})
    assert line.endswith(b"\n") and list(orjson.loads(line)) == ["a", "b", "crc"]
    assert found(line) == ([{"a": 1, "b": "ü"}], [])


def test_every_flipped_bit_of_a_line_costs_that_line_alone() -> None:
    before, after = LINES[0], LINES[4]
    for at in range(len(LINES[3]) - 1):
        for bit in range(8):
            line = bytearray(LINES[3])
            line[at] ^= 1 << bit
            records, damaged = found(before + bytes(line) + after)
            assert records == [RECORDS[0], RECORDS[4]] and damaged, (at, bit)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\n\n"),
        lambda data: data.replace(b"\n", b"\0" * 4096 + b"\n"),
        lambda data: b"\0" * 512 + b"\n" + data,
        lambda data: data.replace(b"}\n", b"} \t\n"),
        lambda data: data.replace(b"}\n{", b"}{"),
    ],
    ids=["order mark", "crlf", "empty lines", "zeros at ends", "zeros first", "blanks", "no line breaks"],
)
def test_what_only_stands_between_records_costs_none(change: Callable[[bytes], bytes]) -> None:
    records, damaged = found(change(b"".join(LINES)))
    assert records == RECORDS and {piece.reason for piece in damaged} <= {"blank"}


def test_a_lost_line_break_after_a_torn_line_costs_the_torn_line_alone() -> None:
    records, damaged = found(LINES[0] + LINES[1][:20] + LINES[2] + LINES[3])
    assert records == [RECORDS[0], RECORDS[2], RECORDS[3]]
    assert [piece.data for piece in damaged] == [LINES[1][:20]]


def test_a_valid_object_without_some_field_or_without_its_checksum_is_no_record() -> None:
    record = orjson.loads(LINES[3])
    for name in record:
        rest = {key: value for key, value in record.items() if key != name}
        records, damaged = found(LINES[0] + orjson.dumps(rest) + b"\n" + LINES[4])
        assert records == [RECORDS[0], RECORDS[4]] and len(damaged) == 1, name


def test_a_file_without_checksums_is_read_and_goes_on_with_them(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    with Journal(path) as journal:
        journal.append({"a": 3})
    assert [record["a"] for record in read_jsonl(path)] == [1, 2, 3]
    path.write_bytes(path.read_bytes() + b'{"a":4}\n')
    with pytest.raises(DataError, match=r"part.jsonl:4: this line is damaged: it has no checksum"):
        list(read_jsonl(path))


def test_a_record_is_found_again_by_its_first_byte_whatever_stands_around_it(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + LINES[0] + LINES[1][:9] + LINES[2][:-1] + b"\r\n" + LINES[3])
    with path.open("rb") as file:
        for start, record in read_jsonl_at(path, on_damage=lambda _: None):
            assert record_at(file, start) == record
        assert record_at(file, 4) is None


def test_damaged_lines_are_set_aside_with_place_and_reason_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    bad = b"\xff" + LINES[5][1:]
    path.write_bytes(LINES[0] + b"nonsense\n" + LINES[1] + b"\n" + bad + LINES[2])
    assert list(recovered(path)) == RECORDS[:3]
    assert path.read_bytes() == b"".join(LINES[:3])
    kept = list(read_jsonl(side_file(path)))
    assert [(piece["line"], piece["reason"]) for piece in kept] == [
        (2, "it is not one JSON object"),
        (4, "blank"),
        (5, "its checksum differs"),
    ]
    assert kept[0]["text"] == "nonsense\n" and kept[0]["start"] == len(LINES[0]) and "base64" in kept[2]
    assert count_damaged(tmp_path) == {side_file(path): 2}
    assert list(recovered(path)) == RECORDS[:3] and len(list(read_jsonl(side_file(path)))) == 3


def test_lines_set_aside_by_a_killed_process_are_not_set_aside_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_bytes(LINES[0] + b"nonsense\n")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("distill.artifacts.damaged_lines.mend", killed)
        list(recovered(path))
    assert list(recovered(path)) == RECORDS[:1] and count_damaged(tmp_path) == {side_file(path): 1}


def test_a_record_that_lacks_what_its_reader_needs_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"one":1,"two":2}\n{"one":1}\n')
    assert list(recovered(path, requiring("one", "two"))) == [{"one": 1, "two": 2}]
    assert [piece["reason"] for piece in read_jsonl(side_file(path))] == ["it has no two"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"id": "xyz"}, "its id is not hexadecimal"),
        ({"outcome": "fine"}, "its outcome is 'fine'"),
        ({"text": None}, "its text is a NoneType"),
        ({"usage": {"prompt": -1}}, "its usage.prompt is no number of tokens"),
        ({"engine": {}}, "its engine has no name or version"),
        ({"hinted": "no"}, "its hinted is a str"),
        ({"stop_reason": 1}, "its stop_reason is a int"),
    ],
)
def test_what_keeps_a_record_from_being_a_trace_is_said(change: dict[str, object], fault: str) -> None:
    words = ("sample_id", "teacher", "reasoning", "answer", "text", "finish_reason", "model", "revision")
    usage = dict.fromkeys(("prompt", "image", "reasoning", "answer"), 1)
    record: dict[str, object] = dict.fromkeys((*words, "prompt_sha", "created"), "") | {"usage": usage, "params": {}}
    record |= {"id": "00ff", "k": 0, "seed": 1, "latency_s": 0.5, "outcome": "complete"}
    record |= {"engine": {"name": "stub", "version": ""}, "draft": "", "error": "", "attempt": 0, "hinted": False}
    assert trace_fault(record) == ""
    assert trace_fault(record | change) == fault
    assert trace_fault({key: value for key, value in record.items() if key != "seed"}) == "it has no seed"


@pytest.mark.parametrize("fate", ["deleted", "replaced", "shortened"])
def test_a_journal_that_is_taken_away_while_it_is_open_is_an_error_and_nothing_is_claimed(
    tmp_path: Path, fate: str
) -> None:
    path = tmp_path / "part.jsonl"
    journal = Journal(path, flush_interval_s=3600)
    journal.append({"a": 1})
    if fate == "shortened":
        with path.open("rb+") as file:
            file.truncate(3)
    else:
        path.unlink()
        if fate == "replaced":
            path.write_bytes(LINES[0])
    with pytest.raises(StorageError, match="deleted, replaced or shortened while this run was writing"):
        journal.flush()
    with pytest.raises(StorageError, match="deleted, replaced or shortened"):
        journal.close()


def test_random_damage_never_makes_a_record_that_was_not_there() -> None:
    chance = random.Random(0)
    known = [orjson.dumps(record, option=orjson.OPT_SORT_KEYS) for record in RECORDS]
    for _ in range(2000):
        data = bytearray(b"".join(LINES))
        for _ in range(chance.randrange(1, 6)):
            at, size = chance.randrange(len(data)), chance.randrange(1, 40)
            twice = data[at : at + size] * 2
            data[at : at + size] = chance.choice([b"", b"\0" * size, chance.randbytes(size), twice])
        records, _ = found(bytes(data).replace(b"\r", b"\n"))
        assert all(orjson.dumps(record) in known for record in records)


@pytest.mark.parametrize("torn", [b"x", b'{"a": 1', b"y" * 70_000])
def test_a_file_that_holds_nothing_but_a_torn_line_is_emptied(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(torn)
    with path.open("rb+") as file:
        assert cut_torn_tail(file) == 0
    assert path.read_bytes() == b""


def test_a_record_without_a_checksum_is_found_where_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(b'{"a":1}\n  {"b":2}\n')
    assert list(scan(path)) == [(0, {"a": 1}), (10, {"b": 2})]


def test_a_student_lies_below_its_stage(tmp_path: Path) -> None:
    assert model_folder(tmp_path, "reason").is_relative_to(tmp_path / "train" / "reason")


def test_a_whole_record_that_lacks_a_field_is_damaged_where_it_starts_after_a_torn_one() -> None:
    torn = LINES[1][:20]
    damaged = list(LineReader(requiring("other"), plain=False).read(torn + LINES[2], 100))
    places = [(piece.start, piece.line, piece.reason) for piece in damaged if isinstance(piece, Damaged)]
    assert places == [(100, 1, "its checksum differs"), (100 + len(torn), 1, "it has no other")]


def test_an_empty_line_before_a_torn_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(b"\nx")
    with path.open("rb+") as file:
        assert cut_torn_tail(file) == 1
    assert path.read_bytes() == b"\n"


def test_an_edited_line_that_names_a_key_twice_is_damaged_and_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.jsonl"
    path.write_bytes(
        b'{"id":"00","answer":"7"}\n{"id":"01","answer":"7","answer":"8"}\n{"id":"02","answer":"\\"a\\": 1"}\n'
    )
    damaged: list[Damaged] = []
    assert [record["id"] for record in read_jsonl(path, on_damage=damaged.append)] == ["00", "02"]
    assert [(line.line, line.reason) for line in damaged] == [(2, "it names a key twice: 'answer'")]
    with pytest.raises(DataError, match=r"part-00000\.jsonl:2: .* names a key twice: 'answer'"):
        list(read_jsonl(path))
