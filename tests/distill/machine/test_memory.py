"""Memory that goes back to the system."""

import ctypes
import gc
import subprocess
import sys

import pytest

from distill.machine.memory import seldom_collected

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
