"""The build scripts of the tiny world, which are no package, imported from their folder."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

TINY = Path(__file__).parents[2] / "recipes" / "tiny"


@contextmanager
def scripts_loaded(*names: str) -> Iterator[dict[str, ModuleType]]:
    """The scripts of these names, each after those that it imports."""
    sys.path.insert(0, str(TINY))
    try:
        modules = {}
        for name in names:
            spec = importlib.util.spec_from_file_location(name, TINY / f"{name}.py")
            assert spec and spec.loader
            modules[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(modules[name])
        yield modules
    finally:
        sys.path.remove(str(TINY))
        for name in names:
            sys.modules.pop(name, None)
