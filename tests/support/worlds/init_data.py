"""Pictures and tables that the tests of `distill init` begin with."""

import csv
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result
from worlds.run_fixtures import make_image

from distill import cli
from distill.data import reader
from distill.recipe.loading import load
from distill.types import Sample


def photos(folder: Path, count: int = 20) -> list[str]:
    """Names of images in a folder and one below it, some with capitals in their suffix, some turned by EXIF."""
    names = []
    for number in range(count):
        path = Path(make_image(folder / ("below" if number % 4 == 0 else ""), number, 40).path)
        image, turned = Image.open(path), Image.Exif()
        turned[0x0112] = 6
        renamed = path.with_suffix(".JPG" if number % 2 else ".jpeg")
        image.save(renamed, exif=turned)
        path.unlink()
        names.append(str(renamed.relative_to(folder)))
    return names


def distill(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["init", *arguments])


def read(recipe: Path, name: str = "questions") -> list[Sample]:
    found = list(reader.read(load(recipe), name))
    assert all(isinstance(item, Sample) for item in found), found
    return [item for item in found if isinstance(item, Sample)]


def asked() -> set[tuple[str, str, str | None]]:
    """The images, questions and answers that `init` reads from the folder `data`; none where it refuses."""
    done = distill("data", "--out", "new", "--force")
    if done.exit_code:
        assert done.output.startswith("distill: "), done.output
        return set()
    recipe = load(Path("new/recipe.toml"))
    samples = [sample for name in recipe.data for sample in read(recipe.path, name)]
    return {(Path(sample.images[0].path).name, sample.question, sample.answer) for sample in samples}


def write_csv(path: Path, rows: list[list[str]], delimiter: str = ",", bom: str = "") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(bom)
        csv.writer(file, delimiter=delimiter).writerows(rows)


def close_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is there, and what it holds may not be read: for root too."""

    def refusing(call: Callable[..., Any], *, below_only: bool) -> Callable[..., Any]:
        def checked(path: Any, *arguments: Any, **options: Any) -> Any:
            where = Path(path).absolute() if isinstance(path, str | Path) else Path()
            if folder in where.parents or (where == folder and not below_only):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *arguments, **options)

        return checked

    for name, below_only in (("scandir", False), ("listdir", False), ("stat", True), ("lstat", True)):
        monkeypatch.setattr(os, name, refusing(getattr(os, name), below_only=below_only))
