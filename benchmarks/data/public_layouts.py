"""For how many public data sets, in the files of their publishers, `distill init` reads the right rows.

    python benchmarks/data/public_layouts.py FOLDER [--group dev] [--only NAME] [--details]

Makes small copies of 188 data sets in FOLDER: folders, file types and columns are those of the published data set,
all images and texts are synthetic. Each copy comes with the rows that a careful person would read from it. A row is
right if a sample has its question, its images, its choices and an accepted answer. A data set passes if all rows are
right, or all rows of one of its splits; a row without an image may be left out. A data set without questions, gold
answers or images passes if it is refused.

The first 85 were divided at random, hard and easy ones apart: `dev` was for work, `heldout` was only counted until
its first figures were written. `heldout-2` (`layouts/second_set`) is of another person who had not read the code,
and `heldout-3` (`layouts/third_set`, own folders, chats and traps) of a third one.
docs/log.md has the first figures of each group. `--details` shows the reasons of failures of all groups, not only
`dev`.
Takes 50 s (two shared cores).
"""

import argparse
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Final

import layouts
from layouts.package import PublicLayout, Row
from layouts.scenes import Digest, pixel_digest
from typer.testing import CliRunner

from distill import cli
from distill.data import reader
from distill.data.images import image_files
from distill.recipe.loading import load
from distill.types import BadRow, Sample

MODULES: Final = [import_module(module.name) for module in walk_packages(layouts.__path__, "layouts.")]
LAYOUTS: Final = {
    layout.name: layout for module in MODULES for layout in vars(module).values() if isinstance(layout, PublicLayout)
}
GROUPS: Final = ("dev", "heldout", "heldout-2", "heldout-3")
MAX_PIXELS: Final = 1 << 24
SHOWN: Final = 2


@dataclass(frozen=True, slots=True)
class Score:
    """What `distill init` made of one layout."""

    passed: bool
    right: int
    rows: int
    text: str
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReadSample:
    """A sample in the form in which it is compared."""

    question: str
    images: Sequence[Digest]
    answers: Sequence[str]


def plain(text: str) -> str:
    """Text without differences of case and white space."""
    return " ".join(text.split()).lower()


def read_sample(sample: Sample) -> ReadSample:
    images = [pixel_digest(image_files.load(image, max_pixels=MAX_PIXELS)) for image in sample.images]
    return ReadSample(plain(sample.question), images, sample.answers)


def has_answer(sample: ReadSample, row: Row) -> bool:
    """Whether an accepted answer is among those of the sample, as a text or as the letter of a choice."""
    if row.answer is None:
        return True
    given = {plain(answer) for answer in sample.answers}
    for answer in sample.answers:
        if len(answer) == 1 and answer.isupper() and (index := ord(answer) - ord("A")) < len(row.choices):
            given.add(plain(row.choices[index]))
    return bool(given & {plain(answer) for answer in (row.answer, *row.accept)})


def find_mistake(row: Row, samples: Sequence[ReadSample]) -> str:
    """Why no sample is the row; empty if one is."""
    asked = [sample for sample in samples if plain(row.question) in sample.question]
    if not asked:
        return "" if not row.images else f"no question {row.question[:60]!r}"
    shown = [sample for sample in asked if list(sample.images) == list(row.images)]
    if not shown:
        return f"{len(asked[0].images)} images instead of {len(row.images)}, or others: {row.question[:60]!r}"
    offered = [sample for sample in shown if all(plain(choice) in sample.question for choice in row.choices)]
    if not offered:
        return f"choices are missing: {row.question[:60]!r}"
    if not any(has_answer(sample, row) for sample in offered):
        return f"answer {list(offered[0].answers[:3])} instead of {row.answer!r}: {row.question[:60]!r}"
    return ""


def score_rows(rows: Sequence[Row], samples: Sequence[Sample], bad: Sequence[BadRow]) -> Score:
    """Compare the rows that were read with the expected ones."""
    read = [read_sample(sample) for sample in samples]
    mistakes = [find_mistake(row, read) for row in rows]
    wrong = {row.split for row, mistake in zip(rows, mistakes, strict=True) if mistake}
    reasons = [mistake for mistake in mistakes if mistake][:SHOWN]
    reasons += [f"{each.reason}: {each.detail}" for each in bad[:SHOWN]]
    right = mistakes.count("")
    text = f"{len(samples)} samples, {len(bad)} bad rows"
    return Score(bool({row.split for row in rows} - wrong), right, len(rows), text, reasons)


def score_layout(layout: PublicLayout, folder: Path) -> Score:
    """Make a layout, run `distill init` on it, and compare what its recipe reads."""
    source, out = folder / layout.group / layout.name, folder / "recipes" / layout.name
    for each in (source, out):
        shutil.rmtree(each, ignore_errors=True)
    path, rows = layout.make(source)
    done = CliRunner().invoke(cli.app, ["init", path, "--out", str(out), "--gpu", "L4"])
    if done.exit_code:
        refused = layout.refusable and isinstance(done.exception, SystemExit)
        counted = 0 if refused else len(rows)
        return Score(refused, 0, counted, "refused", [done.output.strip() or repr(done.exception)])
    recipe = load(out / "recipe.toml")
    found = [item for name in recipe.data for item in reader.read(recipe, name)]
    samples = [item for item in found if isinstance(item, Sample)]
    return score_rows(rows, samples, [item for item in found if isinstance(item, BadRow)])


def table_lines(folder: Path, layouts: Sequence[PublicLayout], details: bool) -> Iterator[str]:
    """One line for each layout, with reasons below it, and one for each group."""
    passed: Counter[str] = Counter()
    right: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for layout in layouts:
        score = score_layout(layout, folder)
        passed[layout.group] += score.passed
        right[layout.group] += score.right
        rows[layout.group] += score.rows
        counts = f"{score.right} of {score.rows} rows"
        yield f"{'yes' if score.passed else 'NO':3} {layout.group:9} {layout.name:26} {counts:15} {score.text}"
        if details or (layout.group == "dev" and not score.passed):
            yield from (f"        {' '.join(reason.split())[:400]}" for reason in score.reasons)
    for group in GROUPS:
        if total := sum(layout.group == group for layout in layouts):
            yield f"{group}: {passed[group]} of {total} layouts, {right[group]} of {rows[group]} rows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--group", choices=GROUPS, help="only this group; default: all")
    parser.add_argument("--only", choices=sorted(LAYOUTS), metavar="NAME", action="append", help="only this data set")
    parser.add_argument("--details", action="store_true", help="show reasons for all groups")
    arguments = parser.parse_args()
    chosen = [
        layout
        for name, layout in sorted(LAYOUTS.items())
        if arguments.group in (None, layout.group) and name in (arguments.only or LAYOUTS)
    ]
    for line in table_lines(arguments.folder.resolve(), chosen, arguments.details):
        print(line, flush=True)


if __name__ == "__main__":
    main()
