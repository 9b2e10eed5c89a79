"""Memory that goes back to the system."""

import ctypes
import gc
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from distill.machine.memory import free_bytes, give_back_pages, seldom_collected

SCRIPT = """
import numpy as np
from distill.machine.memory import give_back_memory

def own_mb():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) // 1024

np.ones(30 << 20, np.uint8)  # glibc now keeps freed arrays up to this size
arrays = [np.ones(8 << 20, np.uint8) for _ in range(20)]
last = np.ones(1 << 20, np.uint8)
del arrays
before = own_mb()
give_back_memory()
print(before, own_mb())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_freed_arrays_go_back_to_the_system():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before >= 150 and after < 60, (before, after)


@pytest.mark.parametrize(("before", "inside"), [(700, 20_000), (0, 0), (50_000, 50_000)])
def test_cycles_are_looked_for_seldom_in_a_block_and_as_before_after_it(before, inside):
    own = gc.get_threshold()
    gc.set_threshold(before, 10, 10)
    try:
        with pytest.raises(ValueError, match="in the block"), seldom_collected():
            assert gc.get_threshold() == (inside, 10, 10)
            raise ValueError("in the block")
        assert gc.get_threshold() == (before, 10, 10)
    finally:
        gc.set_threshold(*own)


def test_a_threshold_that_is_set_in_the_block_stays():
    own = gc.get_threshold()
    gc.set_threshold(150_000, 10, 10)
    try:
        with seldom_collected():
            gc.set_threshold(20_000, 10, 10)
        assert gc.get_threshold() == (20_000, 10, 10)
    finally:
        gc.set_threshold(*own)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_of_a_mapped_array_go_back_and_its_changes_stay(tmp_path: Path):
    mapped = np.lib.format.open_memmap(tmp_path / "array.npy", "w+", np.uint64, (4 << 20,))
    mapped[:] = np.arange(len(mapped))
    before = pages_of_files()
    give_back_pages(mapped, np.zeros(3))
    assert pages_of_files() < before - 30_000
    assert (mapped == np.arange(len(mapped))).all()
    assert np.load(tmp_path / "array.npy")[-1] == len(mapped) - 1


def pages_of_files() -> int:
    """kB of mapped files, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssFile", "RssShmem")))


def control_group(folder: Path, values: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / f"memory.{name}").write_text(f"{value}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_free_memory_is_what_the_limits_of_a_container_or_job_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5_000))
    (tmp_path / "proc/self").mkdir(parents=True)
    lines = {1: "9:name=systemd:/\n4:cpu,memory:/job/step\n0::/\n", 2: "0::/job/step\n"}[version]
    (tmp_path / "proc/self/cgroup").write_text(lines)
    limit, used = {1: ("limit_in_bytes", "usage_in_bytes"), 2: ("max", "current")}[version]
    unlimited, prefix = {1: (2**63 - 4096, "total_"), 2: ("max", "")}[version]
    job = tmp_path / "sys/fs/cgroup" / {1: "memory", 2: ""}[version] / "job"
    stat = f"anon 5\n{prefix}inactive_file 300"
    control_group(job / "step", {limit: unlimited, used: 900, "stat": stat})
    assert free_bytes(tmp_path) == free_bytes(tmp_path / "no such system") == 5_000
    control_group(job, {limit: 1000, used: 900, "stat": stat})
    assert free_bytes(tmp_path) == 400
    control_group(job, {limit: 1000, used: 2000, "stat": stat})
    assert free_bytes(tmp_path) == 0
