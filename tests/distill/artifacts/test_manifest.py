"""Manifests, fingerprints, and the digests of files and folders."""

import json
import os
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from distill.artifacts import manifest as artifacts
from distill.artifacts.files import (
    Output,
    describe,
    directory_sha256,
    remembered_sha256,
    write_text,
)
from distill.artifacts.manifest import Manifest, set_aside
from distill.errors import DataError, StaleError

FIELDS = {"seed": 0, "teachers": [{"name": "a", "samples": 2, "sampling": {"top_p": 0.9}}], "data": {"limit": None}}


def manifest(fields: dict[str, object]) -> Manifest:
    flat = artifacts.flatten(fields)
    return Manifest(
        stage="generate",
        fingerprint=artifacts.fingerprint(flat),
        fields=flat,
        inputs={"recipe": "ab"},
        outputs={"part.jsonl": Output(sha256="cd", bytes=7, count=2)},
        counts={"traces": 2},
    )


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    assert Manifest.read(tmp_path) is None
    written = manifest(FIELDS).write(tmp_path)
    assert Manifest.read(tmp_path) == written
    assert artifacts.finished(tmp_path, artifacts.flatten(FIELDS), remedy="use --fresh") == written
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    "change", [('"traces": 2', '"traces": 3'), ('"eval"', '"evan"'), ('"sha256": "cd"', '"sha256": "cc"')]
)
def test_a_manifest_with_a_flipped_bit_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    made = replace(manifest(FIELDS), stage="eval", seconds=0.1 + 0.2)
    made.write(tmp_path)
    assert Manifest.read(tmp_path) == made
    path = tmp_path / "manifest.json"
    text = path.read_text()
    assert text.count(change[0]) == 1
    path.write_text(text.replace(*change))
    with pytest.raises(DataError, match=r"manifest\.json: its content was changed after it was written"):
        Manifest.read(tmp_path)


def test_a_manifest_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    written = manifest(FIELDS).write(tmp_path)
    path = tmp_path / "manifest.json"
    values = orjson.loads(path.read_bytes())
    assert len(values.pop("crc")) == 8
    path.write_bytes(orjson.dumps(values))
    assert Manifest.read(tmp_path) == written


def test_a_stale_stage_names_exactly_the_fields_that_differ_and_the_remedy(tmp_path: Path) -> None:
    manifest(FIELDS).write(tmp_path)
    changed = {"seed": 0, "teachers": [{"name": "a", "samples": 4, "sampling": {"top_p": 0.9}}], "data": {"limit": 9}}
    with pytest.raises(StaleError) as caught:
        artifacts.finished(
            tmp_path, artifacts.flatten({**changed, "extra": True}), remedy="use --fresh to start over"
        )
    lines = str(caught.value).splitlines()
    assert lines[1:-1] == [
        "  data.limit: None -> 9",
        "  extra: '(not set)' -> True",
        "  teachers.a.samples: 2 -> 4",
    ]
    assert lines[-1] == "use --fresh to start over"


def test_of_many_fields_that_differ_the_first_are_listed_and_the_others_counted() -> None:
    text = artifacts.differences({f"a{n:02}": 1 for n in range(20)}, {f"b{n:02}": 1 for n in range(20)})
    lines = text.splitlines()
    assert len(lines) == 17 and lines[0] == "  a00: 1 -> '(not set)'"
    assert lines[-1].startswith(
        "  and 24 more fields; the run may have another recipe or version: see `distill plan "
    )


def test_a_stage_that_is_needed_and_not_finished_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(StaleError, match="has not been run; run distill generate"):
        artifacts.require(tmp_path, "generate", next_step="run distill generate")
    (tmp_path / "generate").mkdir()
    with pytest.raises(StaleError, match="is unfinished; run distill generate"):
        artifacts.require(tmp_path, "generate", next_step="run distill generate")
    written = manifest(FIELDS).write(tmp_path / "generate")
    assert artifacts.require(tmp_path, "generate", next_step="x") == written


def test_a_fingerprint_depends_on_values_and_not_on_their_order() -> None:
    assert artifacts.fingerprint({"a": 1, "b": 2.5}) == artifacts.fingerprint({"b": 2.5, "a": 1})
    assert artifacts.fingerprint({"a": 1}) != artifacts.fingerprint({"a": 1.0})
    assert artifacts.fingerprint({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


def test_flattening_names_list_items_and_keeps_empty_sections() -> None:
    assert artifacts.flatten({"a": {"b": 1, "c": []}, "l": [{"name": "x", "v": 1}, {"v": 2}], "t": (1, 2)}) == {
        "a.b": 1,
        "a.c": [],
        "l.x.name": "x",
        "l.x.v": 1,
        "l.1.v": 2,
        "t": (1, 2),
    }


def test_the_digest_of_a_directory_follows_names_and_contents(tmp_path: Path) -> None:
    def folder(name: str, **files: str) -> Path:
        (tmp_path / name / "sub").mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / name / "sub" / file).write_text(text)
        return tmp_path / name

    first = directory_sha256(folder("a", x="1", y="2"))
    assert directory_sha256(folder("b", y="2", x="1")) == first
    assert directory_sha256(folder("c", x="2", y="1")) != first
    (folder("d", x="1", y="2") / ".cache").write_text("ignored")
    assert directory_sha256(tmp_path / "d") == first


def test_a_description_holds_digest_size_and_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert describe(tmp_path / "a", 3) == Output(sha256=digest, bytes=3, count=3)


def test_a_digest_is_not_remembered_for_another_file_of_the_same_size_and_time(tmp_path: Path) -> None:
    """The clock of a file system moves in steps of milliseconds."""
    path = tmp_path / "metrics.json"
    digests = []
    for text in ("1.25", "1.50"):
        write_text(path, text)
        os.utime(path, ns=(10**18, 10**18))
        digests.append((remembered_sha256(path), describe(path).sha256))
    assert all(remembered == sha256 for remembered, sha256 in digests)


def test_starting_over_keeps_the_last_result_aside(tmp_path: Path) -> None:
    stage = tmp_path / "filter"
    for text in ("first", "second"):
        write_text(stage / "a", text)
        set_aside(stage)
    assert not stage.exists()
    assert (tmp_path / "filter.previous" / "a").read_text() == "second"
    set_aside(stage)
    assert (tmp_path / "filter.previous" / "a").read_text() == "second"


def test_starting_over_twice_keeps_the_finished_result_and_not_what_was_stopped_in_between(tmp_path: Path) -> None:
    stage, previous = tmp_path / "eval", tmp_path / "eval.previous"
    manifest({"seed": 1}).write(stage)
    set_aside(stage)
    write_text(stage / "a", "stopped")
    set_aside(stage)
    assert not stage.exists() and [each.name for each in previous.iterdir()] == ["manifest.json"]
    manifest({"seed": 2}).write(stage)
    set_aside(stage)
    found = Manifest.read(previous)
    assert found is not None and found.fields == {"seed": 2}


def test_versions_leave_out_what_is_not_installed() -> None:
    found = artifacts.versions("pyarrow", "no-such-distribution")
    assert "pyarrow" in found and "no-such-distribution" not in found


def test_a_manifest_that_is_none_is_named_with_the_way_on(tmp_path: Path) -> None:
    for text, fault in (
        ("{", "not valid JSON"),
        ("[]", "no manifest of a stage"),
        ('{"outputs": {}}', "no manifest"),
    ):
        (tmp_path / artifacts.MANIFEST).write_text(text)
        with pytest.raises(DataError, match=rf"{artifacts.MANIFEST}: {fault}.*remove it to redo the stage"):
            Manifest.read(tmp_path)


def test_a_stage_is_refused_only_if_it_was_begun_with_other_settings(tmp_path: Path) -> None:
    note = tmp_path / "begun.json"
    artifacts.begin(note, {"seed": 1}, begun=True, remedy="")  # nothing is noted
    artifacts.begin(note, {"seed": 2}, begun=False, remedy="")  # no work was done
    artifacts.begin(note, {"seed": 2}, begun=True, remedy="")
    with pytest.raises(StaleError, match=r"(?s)started with other settings.*seed: 2 -> 3.*use --fresh"):
        artifacts.begin(note, {"seed": 3}, begun=True, remedy="use --fresh")
    assert json.loads(note.read_bytes()) == {"seed": 2}


def test_a_manifest_without_counts_and_time_has_none() -> None:
    empty = Manifest(stage="filter", fingerprint="f", fields={})
    assert (empty.counts, empty.tokens, empty.outputs, empty.seconds) == ({}, {}, {}, 0)
