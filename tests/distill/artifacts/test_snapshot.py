"""Snapshots hold what they were given, or count as none; digests of the beginning of a file that grows."""

import hashlib
import re
from pathlib import Path

import pytest

from distill.artifacts.snapshot import PrefixDigest, read_snapshot, write_snapshot


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_snapshot(tmp_path / "kept", {"version": 3}, [b"first", b"", bytearray(b"second")])
    return tmp_path / "kept"


def test_a_snapshot_gives_back_its_header_and_pieces(path: Path) -> None:
    found = read_snapshot(path)
    assert found is not None
    assert found[0]["version"] == 3 and found[1] == [b"first", b"", b"second"]


@pytest.mark.parametrize("damage", ["missing", "shorter", "longer", "changed", "no header", "no checksum"])
def test_a_damaged_snapshot_counts_as_none(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    head, _, rest = whole.partition(b"\n")
    damaged = {
        "shorter": whole[:-1],
        "longer": whole + b"x",
        "changed": whole[:-1] + b"x",
        "no header": rest,
        "no checksum": re.sub(rb',"crc":"[0-9a-f]{8}"', b"", head) + b"\n" + rest,
    }
    path.unlink()
    if damage != "missing":
        path.write_bytes(damaged[damage])
    assert head and read_snapshot(path) is None


def test_the_digest_of_a_beginning_is_that_of_its_bytes_however_the_file_grows(tmp_path: Path) -> None:
    file, digest = tmp_path / "growing", PrefixDigest()
    content = b"0123456789"

    def expected(end: int) -> str:
        return hashlib.sha256(content[:end]).hexdigest()

    file.write_bytes(content[:4])
    assert [digest.of(file, end) for end in (0, 3, 4)] == [expected(0), expected(3), expected(4)]
    assert digest.of(file, 5) == ""
    file.write_bytes(content)
    assert [digest.of(file, end) for end in (8, 2, 4, 10)] == [expected(8), expected(2), expected(4), expected(10)]
    assert PrefixDigest().of(tmp_path / "missing", 1) == ""
