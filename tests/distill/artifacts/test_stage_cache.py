"""Stages made once and linked."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from distill.artifacts.manifest import Manifest
from distill.artifacts.stage_cache import Shared


def made(place: Path, content: str = "x") -> Path:
    place.mkdir(parents=True)
    (place / "file").write_text(content)
    Manifest(stage="train", fingerprint="f", fields={}).write(place)
    return place


def test_a_kept_stage_is_found_under_its_key_from_other_places(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "shared")
    first, second = made(tmp_path / "arms" / "a" / "train"), tmp_path / "arms" / "b" / "deep" / "train"
    shared.keep("key", first)
    assert shared.link("key", second)
    assert (first / "file").read_text() == (second / "file").read_text() == "x"
    assert first.resolve() == second.resolve()


def test_links_hold_when_the_whole_folder_is_moved(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "before" / "shared")
    shared.keep("key", made(tmp_path / "before" / "a"))
    (tmp_path / "before").rename(tmp_path / "after")
    assert (tmp_path / "after" / "a" / "file").read_text() == "x"


def test_an_unfinished_stage_is_not_linked(tmp_path: Path) -> None:
    (tmp_path / "shared" / "key").mkdir(parents=True)
    assert not Shared(tmp_path / "shared").link("key", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_of_two_that_made_the_same_one_is_kept(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "shared")
    shared.keep("key", made(tmp_path / "a", "first"))
    shared.keep("key", made(tmp_path / "b", "second"))
    assert (tmp_path / "b" / "file").read_text() == "first"


def test_what_a_kill_left_half_moved_is_replaced(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "shared")
    (tmp_path / "shared" / "key").mkdir(parents=True)
    (tmp_path / "shared" / "key" / "half").touch()
    shared.keep("key", made(tmp_path / "a"))
    assert (tmp_path / "a" / "file").exists() and not (tmp_path / "a" / "half").exists()


def test_a_folder_of_its_own_is_never_replaced_by_a_link(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "shared")
    shared.keep("key", made(tmp_path / "a"))
    own = tmp_path / "b"
    own.mkdir()
    assert not shared.link("key", own)
    assert not own.is_symlink()


@pytest.mark.parametrize("links", [True, False])
def test_a_copied_stage_outlives_the_place_it_came_from(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    shared, stage = Shared(tmp_path / "shared"), made(tmp_path / "run" / "train" / "align")
    (stage / "deep").mkdir()
    (stage / "deep" / "weights").write_text("w")
    shared.copy("key", stage)
    shutil.rmtree(stage)
    assert shared.link("key", tmp_path / "a")
    assert (tmp_path / "a" / "deep" / "weights").read_text() == "w"
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["key"]


def test_a_stage_that_another_process_has_kept_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, move = Shared(tmp_path / "shared"), Path.rename

    def late(stage: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", move)
        Shared(tmp_path / "shared").keep("key", made(tmp_path / "a", "first"))
        return move(stage, target)

    monkeypatch.setattr(Path, "rename", late)
    shared.keep("key", made(tmp_path / "b", "second"))
    assert (tmp_path / "a" / "file").read_text() == (tmp_path / "b" / "file").read_text() == "first"


def test_a_stage_that_is_kept_between_a_look_and_its_removal_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, find = Shared(tmp_path / "shared"), Shared.find

    def late(shared: Shared, key: str) -> Path | None:
        found = find(shared, key)
        monkeypatch.setattr(Shared, "find", find)
        Shared(tmp_path / "shared").keep("key", made(tmp_path / "a", "first"))
        return found

    monkeypatch.setattr(Shared, "find", late)
    shared.copy("key", made(tmp_path / "b", "second"))
    assert (tmp_path / "a" / "file").read_text() == "first"
