"""The cache of byte strings (student/data/disk_cache.py) beside lmdb: CPU time to write and to read, and space.

    pip install lmdb; python benchmarks/train/disk_cache.py [--entries 400] [--kilobytes 600] [--rounds 3]

Both keep the same entries with a checksum and facts, written one transaction each without an fsync, as a cache may,
and read in random order by a second handle. By turns in one process, CPU time of this process. lmdb does not check
what it reads, so its value holds a checksum that is checked as in the project's cache.
Takes a time that is not measured: it needs lmdb.
"""

import argparse
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import orjson

from student.data.disk_cache import DiskCache

try:
    import lmdb
except ModuleNotFoundError:
    lmdb = None
Get = Callable[[str], bytes | bytearray | None]


def own(folder: Path) -> tuple[Callable[[str, bytes], None], Callable[[], Get]]:
    cache = DiskCache(folder, max_bytes=1 << 34)

    def open_again() -> Get:
        reader = DiskCache(folder, max_bytes=1 << 34)
        return lambda name: (found := reader.get(name)) and found[0]

    return lambda name, data: cache.put(name, [data], {"shape": [3, 448, 448]}), open_again


def with_lmdb(folder: Path) -> tuple[Callable[[str, bytes], None], Callable[[], Get]]:
    environment = lmdb.open(str(folder), map_size=1 << 34, sync=False)
    facts = orjson.dumps({"shape": [3, 448, 448]})

    def put(name: str, data: bytes) -> None:
        with environment.begin(write=True) as transaction:
            transaction.put(name.encode(), zlib.crc32(data).to_bytes(4) + len(facts).to_bytes(4) + facts + data)

    def open_again() -> Get:
        environment.close()
        reader = lmdb.open(str(folder), map_size=1 << 34, readonly=True)

        def get(name: str) -> bytearray | None:
            with reader.begin(buffers=True) as transaction:
                value = transaction.get(name.encode())
                if value is None:
                    return None
                data = bytearray(value[8 + int.from_bytes(value[4:8]) :])
            return data if zlib.crc32(data) == int.from_bytes(value[:4]) else None

        return get

    return put, open_again


def measure(make: Callable[..., object], entries: dict[str, bytes], names: list[str]) -> tuple[float, float, float]:
    """Milliseconds of CPU to write and to read an entry, and bytes on disk for each byte kept."""
    with tempfile.TemporaryDirectory() as folder:
        put, open_again = make(Path(folder))  # type: ignore[misc]
        start = time.process_time()
        for name, data in entries.items():
            put(name, data)
        written = time.process_time()
        get = open_again()
        begun = time.process_time()
        for name in names:
            assert get(name) == entries[name]
        read = time.process_time()
        size = sum(path.stat().st_blocks * 512 for path in Path(folder).iterdir())
    each = 1000 / len(entries)
    return (written - start) * each, (read - begun) * each, size / sum(map(len, entries.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=400)
    parser.add_argument("--kilobytes", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if lmdb is None:
        raise SystemExit(f"needs the package lmdb: {sys.executable} -m pip install lmdb")
    generator = random.Random(0)
    entries = {
        f"{number:064x}": generator.randbytes(arguments.kilobytes * 1000) for number in range(arguments.entries)
    }
    names = generator.sample(list(entries), len(entries))
    print("cache | ms CPU to write | ms CPU to read and compare | bytes on disk a byte")
    for _ in range(arguments.rounds):
        for name, make in (("own", own), ("lmdb", with_lmdb)):
            print(name, *(f"{value:.3f}" for value in measure(make, entries, names)), sep=" | ")
    # What comparing costs is in both reads.
    start = time.process_time()
    same = [bytearray(entries[name]) == entries[name] for name in names]
    print(f"comparing alone: {1000 * (time.process_time() - start) / len(same):.3f} ms")
    print(f"entries of {arguments.kilobytes} kB")


if __name__ == "__main__":
    main()
