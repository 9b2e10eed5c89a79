"""A cache gives an entry back as it was, or not at all."""

import os
from pathlib import Path

import orjson
import torch

from student.data.disk_cache import DATA, INDEX, DiskCache
from student.data.images import pack, unpack


def features(number: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.arange(12.0 + number).view(1, -1), "image_sizes": torch.tensor([[3, 4]])}


def held(folder: Path, name: str, number: int) -> bool:
    """Whether the cache has an entry; what it gives is what was put."""
    found = DiskCache(folder, max_bytes=1 << 20).get(name)
    if found is None:
        return False
    result, expected = unpack(*found), features(number)
    assert result.keys() == expected.keys()
    assert all(torch.equal(result[key], expected[key]) for key in expected)
    return True


def test_no_flipped_bit_of_the_index_gives_other_tensors_or_an_error(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, max_bytes=1 << 20)
    for number in range(2):
        assert cache.put(f"n{number}", *pack(features(number)))
    index = (tmp_path / INDEX).read_bytes()
    for at in range(index.index(b"\n")):
        for bit in range(8):
            damaged = bytearray(index)
            damaged[at] ^= 1 << bit
            (tmp_path / INDEX).write_bytes(damaged)
            held(tmp_path, "n0", 0)
            assert held(tmp_path, "n1", 1)


def test_an_index_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    DiskCache(tmp_path, max_bytes=1 << 20).put("n0", *pack(features(0)))
    line = orjson.loads((tmp_path / INDEX).read_bytes())
    (tmp_path / INDEX).write_bytes(orjson.dumps(line[:-1]) + b"\n")
    assert held(tmp_path, "n0", 0)


def test_a_colleague_in_a_shared_folder_can_write_the_cache(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        DiskCache(tmp_path / "cache", max_bytes=1 << 20)
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "cache").iterdir()} == {
        DATA: 0o664,
        INDEX: 0o664,
    }
