"""What holds for every test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

# As the command line sets it: torch's threads must not spin while they wait, or busy cores make them crawl.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Sums of several threads come in any order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student's parts, questions and a finished filter stage, never written to."""
    import student_worlds

    folder = student_worlds.parts(tmp_path_factory.mktemp("world"))
    student_worlds.data(folder)
    return folder


@pytest.fixture
def place(world: Path, tmp_path: Path) -> Path:
    """A copy of the world for one test."""
    return Path(shutil.copytree(world, tmp_path / "w"))
