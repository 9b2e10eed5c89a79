"""The scripts of a recipe's folder, which are no package, imported from there."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

RECIPES = Path(__file__).parents[3] / "recipes"
TINY = RECIPES / "tiny"


@contextmanager
def scripts_loaded(folder: Path, *names: str) -> Iterator[dict[str, ModuleType]]:
    """The scripts of these names, each after those that it imports."""
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        modules = {}
        for name in names:
            spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
            assert spec and spec.loader
            modules[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(modules[name])
        yield modules
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)
