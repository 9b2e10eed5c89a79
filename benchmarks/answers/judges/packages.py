"""Import one module of an installed package without the imports of the packages around it.

The scorers of lmms-eval and VLMEvalKit need none of the models and data sets that their packages import.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of(name: str) -> ModuleType:
    """The module `a.b.c`; the packages `a` and `a.b` are entered but their `__init__` is not run."""
    parents = name.split(".")[:-1]
    if parents[0] in sys.modules:
        root = Path(sys.modules[parents[0]].__path__[0])
    else:
        spec = importlib.util.find_spec(parents[0])
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{parents[0]} is not installed in {sys.executable}")
        root = Path(next(iter(spec.submodule_search_locations)))
    for depth in range(1, len(parents) + 1):
        package = ".".join(parents[:depth])
        if package not in sys.modules:
            bare = ModuleType(package)
            bare.__path__ = [str(root.joinpath(*parents[1:depth]))]
            sys.modules[package] = bare
    return importlib.import_module(name)
