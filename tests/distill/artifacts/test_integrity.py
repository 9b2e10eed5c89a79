"""Whether the files of a finished stage are as they were written."""

from pathlib import Path

import pytest

from distill.artifacts.files import describe
from distill.artifacts.integrity import (
    CHANGED,
    MISSING,
    changed,
    digest_note,
    digested,
    digested_path,
    is_whole,
    note_digest,
    require_whole,
)
from distill.artifacts.manifest import Manifest
from distill.errors import DataError


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Two files in a folder, and what describes them."""
    for name in ("a.txt", "inner/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("as it was written")
    outputs = {name: describe(tmp_path / name) for name in ("a.txt", "inner/b.txt")}
    return Manifest(stage="filter", fingerprint="f", fields={}, outputs=outputs)


def test_files_as_they_were_written_have_no_fault(tmp_path: Path, manifest: Manifest) -> None:
    assert changed(tmp_path, manifest.outputs.items(), digests=True) == {}
    require_whole(tmp_path, manifest, digests=True, remedy="")


def test_a_missing_file_and_a_file_of_another_size_are_found_without_digests(
    tmp_path: Path, manifest: Manifest
) -> None:
    (tmp_path / "a.txt").unlink()
    (tmp_path / "inner/b.txt").write_text("longer than it was written")
    faults = changed(tmp_path, manifest.outputs.items())
    assert faults == {"a.txt": MISSING, "inner/b.txt": "it has 26 bytes, and 17 were written"}


def test_other_bytes_of_the_same_size_are_found_with_digests_alone(tmp_path: Path, manifest: Manifest) -> None:
    (tmp_path / "a.txt").write_text("as it was WRITTEN")
    assert changed(tmp_path, manifest.outputs.items()) == {}
    assert changed(tmp_path, manifest.outputs.items(), digests=True) == {"a.txt": CHANGED}


def test_damage_is_one_message_with_the_files_and_the_remedy_and_can_be_looked_for_in_one_folder(
    tmp_path: Path, manifest: Manifest
) -> None:
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"(?s)were damaged:\n  .*a\.txt: it is missing\ndo that$"):
        require_whole(tmp_path, manifest, remedy="do that")
    require_whole(tmp_path, manifest, below="inner/", remedy="do that")


def test_a_file_with_a_noted_digest_is_whole_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    with digested_path(path) as temporary:
        temporary.write_text("content")
    assert is_whole(path) and list(digested(tmp_path)) == [path]
    path.write_text("CONTENT")
    assert not is_whole(path)
    path.unlink()
    assert not is_whole(path)


def test_a_file_of_a_version_that_noted_no_digest_is_whole_where_it_exists(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    assert not digest_note(path).exists() and not is_whole(path)
    path.write_text("content")
    assert is_whole(path)


def test_a_digest_is_noted_where_none_is_and_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    path.write_text("content")
    note_digest(path)
    assert digest_note(path).exists() and is_whole(path)
    path.write_text("CONTENT")
    note_digest(path)
    assert not is_whole(path)
