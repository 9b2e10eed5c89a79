"""`distill repair`: says what damaged files of a run cost, changes nothing unasked, and afterwards the run heals."""

import errno
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worlds.run_fixtures import generate_folder, recipe, small_world

from distill.artifacts.damaged_lines import side_file
from distill.artifacts.files import describe, locked
from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.manifest import Manifest
from distill.commands.repair import repair_run
from distill.commands.stages import filter_stage
from distill.commands.status import run_status
from distill.errors import BusyError, DataError, StorageError
from filters.apply import apply


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, generated and filtered, never written to."""
    folder = tmp_path_factory.mktemp("filtered")
    samples, traces = small_world(folder / "pictures")
    generate_folder(folder / "run", samples, traces)
    apply(recipe(folder, SETTINGS), folder / "run")
    (folder / "run" / "recipe.toml").write_text("")
    return folder / "run"


@pytest.fixture
def run(filtered: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(filtered, tmp_path / "run"))


SETTINGS = "[filter]\npartition_rows = 4\n[filter.select]\nper_question = 1\n"


def bytes_of(run: Path) -> dict[str, str]:
    files = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def flip(path: Path, at: int = 60) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_an_undamaged_run_is_said_to_be_whole_and_stays_as_it_is(run: Path) -> None:
    before = bytes_of(run)
    assert re.search(
        r"nothing is damaged: \d+ lines and \d+ files .* \(0\.0*[1-9]\d* MB\)", repair_run(run, apply=True)
    )
    assert bytes_of(run) == before


def test_a_run_that_cannot_be_written_is_looked_at_unless_another_process_works_on_it(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive, or the run of another user."""
    opened = Path.open

    def refused(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if path.is_relative_to(run) and set(mode) & set("wax+"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, mode, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        assert "nothing is damaged" in repair_run(run)
        with pytest.raises(StorageError, match="cannot write"):
            repair_run(run, apply=True)
    with locked(run), monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        with pytest.raises(BusyError, match="another process"):
            repair_run(run)
    (run / ".lock").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        assert "nothing is damaged" in repair_run(run)


def test_a_finished_filter_names_a_file_of_generate_that_is_gone(run: Path) -> None:
    chosen = recipe(run.parent, SETTINGS)
    finished = filter_stage(chosen, run)
    assert "warning" not in finished
    journal = min(run.glob("generate/structured/part-*.jsonl"))
    journal.unlink()
    text = filter_stage(chosen, run)
    assert f"warning: generate/structured/{journal.name}: it is missing; `distill repair {run}` shows" in text


def test_what_it_would_do_is_said_and_not_done(run: Path) -> None:
    journal = min(run.glob("generate/structured/part-*.jsonl"))
    journal.write_bytes(b"broken" + journal.read_bytes())
    parts = sorted(run.glob("filter/signals/*.parquet"))
    parts[0].unlink()
    parts[1].write_bytes(parts[1].read_bytes()[:-9])
    flip(run / "filter" / "report.html")
    before = bytes_of(run)
    said = repair_run(run)
    assert bytes_of(run) == before
    assert "4 damaged files" in said and "nothing was changed" in said and f"distill repair {run} --apply" in said
    name = journal.relative_to(run)
    assert re.search(rf"{name}: 1 damaged line \(1: .+\); the next run asks for at most 1 trace again", said)
    assert re.search(rf"signals/{parts[0].name}: it is missing; the next run measures \d+ rows again", said)
    assert re.search(rf"signals/{parts[1].name}: it has .* bytes, and .* were written; the next run measures", said)
    assert "report.html: its content was changed after it was written; it is made again from what is there" in said
    assert "2 files damaged" in run_status(run)


def test_the_next_command_can_be_pasted_where_a_path_holds_spaces(run: Path) -> None:
    spaced = run.rename(run.with_name("my run"))
    flip(spaced / "filter" / "report.html")
    assert f"`distill repair '{spaced}' --apply`" in repair_run(spaced)
    assert f"`distill run '{spaced / 'recipe.toml'}' --run '{spaced}'`" in repair_run(spaced, apply=True)


def test_damaged_lines_and_files_are_set_aside_and_the_stages_are_unfinished(run: Path) -> None:
    journal = min(run.glob("generate/structured/part-*.jsonl"))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + b"broken\n" + b"".join(lines[2:]))
    flip(run / "filter" / "decisions.parquet")
    assert "set aside as *.damaged" in repair_run(run, apply=True)
    assert [piece["text"] for piece in read_jsonl(side_file(journal))] == ["broken\n"]
    assert len(list(read_jsonl(journal))) == len(lines) - 1
    assert side_file(run / "filter" / "decisions.parquet").is_file()
    assert Manifest.read(run / "generate") is None and Manifest.read(run / "filter") is None
    assert "nothing is damaged" in repair_run(run)
    assert "note: 1 damaged line was set aside in generate/structured/part-00000.jsonl.damaged" in run_status(run)


NAMES = ("signals/part-00001.parquet", "corpus/part-00000.parquet", "dataset/README.md")


@pytest.mark.parametrize(
    ("fates", "mended"),
    [
        (("flipped", "shortened", "deleted"), True),
        (("shortened", "deleted", "flipped"), True),
        (("deleted", "flipped", "shortened"), True),
        # Without a repair only what changes the size of a file, or takes it away, is seen.
        (("shortened", "deleted", "shortened"), False),
        (("deleted", "shortened", "deleted"), False),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "repaired" if value else "as it is",
)
def test_a_filter_stage_heals_to_the_same_bytes(
    run: Path, filtered: Path, fates: tuple[str, ...], mended: bool
) -> None:
    before = {key: output.sha256 for key, output in Manifest.read(run / "filter").outputs.items()}
    for name, fate in zip(NAMES, fates, strict=True):
        path = run / "filter" / name
        if fate == "flipped":
            flip(path, path.stat().st_size // 2)
        elif fate == "shortened":
            path.write_bytes(path.read_bytes()[:-5])
        else:
            path.unlink()
    if mended:
        assert "3 damaged files" in repair_run(run, apply=True)
    again = apply(recipe(filtered.parent, SETTINGS), run)
    assert {key: output.sha256 for key, output in again.outputs.items()} == before


def test_a_damaged_signal_part_of_an_unfinished_stage_is_measured_again(run: Path, filtered: Path) -> None:
    before = {key: output.sha256 for key, output in Manifest.read(run / "filter").outputs.items()}
    (run / "filter" / "manifest.json").unlink()
    path = run / "filter" / "signals" / "part-00001.parquet"
    flip(path, path.stat().st_size // 2)
    assert "signals/part-00001.parquet: its content was changed after it was written" in repair_run(run)
    again = apply(recipe(filtered.parent, SETTINGS), run)
    assert {key: output.sha256 for key, output in again.outputs.items()} == before
    assert again.counts["measured"] and again.counts["reused"]


def test_a_manifest_that_cannot_be_read_is_set_aside(run: Path, filtered: Path) -> None:
    path = run / "filter" / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])
    said = repair_run(run, apply=True)
    assert "filter/manifest.json: it cannot be read" in said and "the stage is finished again" in said
    assert apply(recipe(filtered.parent, SETTINGS), run).counts["measured"] == 0


def test_a_flipped_digit_in_a_manifest_is_found_once_and_no_command_shows_it(run: Path, filtered: Path) -> None:
    path = run / "filter" / "manifest.json"
    text = path.read_text()
    assert '"kept": ' in text
    before = Manifest.read(path.parent)
    path.write_text(text.replace('"kept": ', '"kept": 1'))
    with pytest.raises(DataError, match="its content was changed after it was written"):
        run_status(run)
    said = repair_run(run, apply=True)
    assert "1 damaged file\n" in said and "filter/manifest.json" in said
    again = apply(recipe(filtered.parent, SETTINGS), run)
    assert before is not None and again.counts["kept"] == before.counts["kept"]


def test_damaged_lines_of_a_journal_that_is_still_open_are_found_too(run: Path) -> None:
    with Journal(run / "filter" / "question" / "looks-1.jsonl") as journal:
        journal.append({"sha256": "a"})
    with journal.path.open("ab") as file:
        file.write(b"\0\0\0\n{\n")
    assert re.search(
        r"looks-1.jsonl: 2 damaged lines \(2, 3: blank; .+\); what they held is made again", repair_run(run)
    )


def test_the_command_needs_a_run_and_prompts_for_nothing(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run directory"):
        repair_run(tmp_path / "nothing")
    done = subprocess.run(
        [sys.executable, "-m", "distill", "repair", str(run)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0 and "nothing is damaged" in done.stdout


def test_a_file_that_was_set_aside_as_a_whole_has_no_damaged_lines(run: Path) -> None:
    folder = run / "train" / "reason"
    folder.mkdir(parents=True)
    metrics = folder / "metrics.jsonl"
    with Journal(metrics) as journal:
        journal.append({"step": 1})
        journal.append({"step": 2})
    Manifest(stage="train reason", fingerprint="", fields={}, outputs={metrics.name: describe(metrics)}).write(folder)
    metrics.write_bytes(metrics.read_bytes().splitlines(keepends=True)[0])  # the last line is lost
    (run / "filter" / "manifest.json").write_text("{}")
    assert "2 damaged files" in repair_run(run, apply=True)
    assert side_file(metrics).is_file() and "set aside" not in run_status(run)


@pytest.mark.parametrize("place", [".cache", "previous"])
def test_damage_is_found_wherever_the_run_lies(run: Path, tmp_path: Path, place: str) -> None:
    moved = tmp_path / place / "run"
    shutil.copytree(run, moved)
    shutil.copytree(run / "filter", moved / "filter.previous")
    flip(min(moved.glob("filter.previous/corpus/*.parquet")))
    assert "nothing is damaged" in repair_run(moved)
    (moved / "filter" / "manifest.json").unlink()
    flip(min(moved.glob("filter/corpus/*.parquet")))
    assert "filter/corpus/part-00000.parquet" in repair_run(moved)
