"""A file system that does not answer."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.client_helpers import teacher
from students import tiny_models

from distill.data import bounded_reads
from distill.data.bounded_reads import bounded
from distill.data.images import image_files
from distill.errors import CircuitOpen, ImageError
from distill.types import ImageRef
from teacher.engines.image_folders import Folders, UnreadableError
from teacher.engines.image_parts import ImageParts


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Files are opened only after the event is set; a read is waited for 0.2 s."""
    answers, opened = threading.Event(), os.open

    def slow(*arguments: object, **options: object) -> int:
        answers.wait()
        return opened(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(bounded_reads, "LIMIT_S", 0.2)
    monkeypatch.setattr(image_files.os, "open", slow)
    yield answers
    answers.set()


def make_image(folder: Path) -> ImageRef:
    path = tiny_models.make_image(folder / "0.png", 0, size=16)
    return ImageRef(sha256=image_files.sha256(path.read_bytes()), path=str(path))


def test_results_and_errors_belong_to_the_read_that_asked() -> None:
    assert [bounded(lambda number=number: number) for number in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0)
    assert bounded(lambda: "after") == "after"


def test_a_late_answer_is_never_taken_for_that_of_the_next_read() -> None:
    late = threading.Event()
    with pytest.raises(TimeoutError, match=r"not answered for 0\.05 s"):
        bounded(lambda: late.wait() and "late", 0.05)
    late.set()
    assert [bounded(lambda number=number: number) for number in range(20)] == list(range(20))


def test_a_forked_process_reads_with_a_thread_of_its_own() -> None:
    assert bounded(os.getpid) == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if bounded(os.getpid, 5.0) == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_image_on_a_silent_disk_is_unreadable_and_comes_back_with_the_disk(
    tmp_path: Path, silence: threading.Event
) -> None:
    ref = make_image(tmp_path)
    with pytest.raises(ImageError, match=r"0\.png: the file system has not answered for 0\.2 s") as error:
        image_files.read_bytes(ref)
    assert error.value.reason == "unreadable_image"
    silence.set()
    assert image_files.sha256(image_files.read_bytes(ref)) == ref.sha256


def test_a_silent_folder_is_an_outage_and_no_fault_of_its_rows(tmp_path: Path, silence: threading.Event) -> None:
    ref = make_image(tmp_path)
    folders = Folders(patience_s=0.1)
    parts = ImageParts(teacher("http://127.0.0.1:9/v1"), folders, max_pixels=10**6)
    with pytest.raises(UnreadableError) as unreadable:
        asyncio.run(parts.part(ref))
    with pytest.raises(CircuitOpen, match="the images in"):
        for _ in range(5):
            assert folders.wait(ref, unreadable.value.error)


def test_a_process_ends_although_a_read_of_it_never_does(tmp_path: Path) -> None:
    code = (
        "import time\nfrom distill.data.bounded_reads import bounded\n"
        "try: bounded(lambda: time.sleep(3600), 0.1)\nexcept TimeoutError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "not answered" in done.stdout
