"""A distribution for tests: modules and entry points in a folder of packages, as an installer leaves them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

NAME, VERSION = "own-parts", "1.2"


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, modules: Mapping[str, str], points: Mapping[str, Mapping[str, str]]
) -> None:
    """Install own-parts 1.2 into `folder` for this process and those that it starts.

    `modules`: source by name. `points`: by group, the object of each entry point.
    """
    info = folder / f"{NAME.replace('-', '_')}-{VERSION}.dist-info"
    info.mkdir(parents=True)
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
        monkeypatch.delitem(sys.modules, module, raising=False)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
    lines = [
        line
        for group, objects in points.items()
        for line in (f"[{group}]", *(f"{point} = {where}" for point, where in objects.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(folder))
