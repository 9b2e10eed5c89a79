"""Records at known places of many journals."""

from pathlib import Path

import pytest

from filters.tables.trace_index import read_lines

LIMIT = 256


def test_more_journals_are_read_than_a_process_may_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    files = [tmp_path / f"part-{number:05d}.jsonl" for number in range(2 * LIMIT)]
    for number, file in enumerate(files):
        file.write_bytes(b"%d\nsecond %d\n" % (number, number))
    places = [(number, start) for start in (0, 2) for number in (3, 5, *range(10), 3)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT + len(list(Path("/dev/fd").iterdir())), before[1]))
    try:
        lines = list(read_lines(files, [*((number, 0) for number in range(len(files))), *places]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    text = ["%d\n", "second %d\n"]
    assert lines[: len(files)] == [b"%d\n" % number for number in range(len(files))]
    assert lines[len(files) :] == [(text[start // 2] % number).encode() for number, start in places]
