"""File locks of the operating system: exclusive, without waiting, and released when the process ends."""

import os
from typing import Final

HIDES_LOCKED_BYTES: Final = os.name == "nt"
"""Whether others cannot read what is locked: Windows, where filelock locks the first byte of a file."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False where another opening of it, in any process, has the lock."""
    from filelock import lock_descriptor

    return lock_descriptor(descriptor, blocking=False)
