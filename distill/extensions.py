"""Code from outside the project: an object that a recipe names by its file ("mine.py:Hedging") or by an entry point.

The file lies beside the recipe and runs when the object is first needed. It may import installed packages, but no
other file beside it, because the digest of the file must cover all its code. The package that uses an object checks
it.
"""

import ast
import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from inspect import isasyncgenfunction, iscoroutinefunction, signature
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, get_type_hints

from distill import redact
from distill.errors import RecipeError

SIGNALS = "cot_distill.signals"
METRICS = "cot_distill.metrics"
ANSWER_TYPES = "cot_distill.answer_types"
DATA_FORMATS = "cot_distill.data_formats"
EXPORT_FORMATS = "cot_distill.export_formats"
PROMPTS = "cot_distill.prompts"
ARMS = "cot_distill.arms"
"""Groups of entry points: one for each kind of thing that can be added from outside."""


class CodeEnded(Exception):
    """Code from outside raised what is no Exception: sys.exit, or the panic of a library in Rust."""


FAILURES = (Exception, SystemExit)
"""What code from outside may raise: with sys.exit it ends itself, not the run."""

_LONGEST_MESSAGE = 500
_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")
_MODULE = "cot_distill_file_"
_PROJECT = ("distill", "teacher", "filters", "student")
_packages: set[str] = set()
"""Modules of installed packages that brought something."""
_files: dict[str, "LoadedFile"] = {}
"""Files that this process has run, by the name of their module."""
_kept: dict[tuple[str, str, Path], "Extension"] = {}
"""What `load_once` has loaded since the last `load_again`."""
_code: dict[tuple[str, str], str] = {}
"""What identifies the code of each loaded class or function, by its module and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A loaded object and the identity of its code."""

    value: str
    """The name in the recipe."""
    loaded: Any
    code: str
    """sha256 of its file, or name and version of its package."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file that this process has run: enough for another process to run the same."""

    path: str
    source: bytes


def file_and_name(value: str) -> tuple[str, str] | None:
    """The two parts of FILE.py:NAME; None for any other value."""
    match = _FILE.fullmatch(value)
    return (match["file"], match["name"]) if match else None


def problem(group: str, value: str, names: Iterable[str]) -> str:
    """The fault of a name that is not one of `names`, not FILE.py:NAME and not an entry point; '' for a valid name.

    Runs no file and imports no package.
    """
    names = sorted(names)
    if value in names or file_and_name(value) is not None:
        return ""
    installed = sorted(point.name for point in metadata.entry_points(group=group))
    if value in installed:
        return ""
    from difflib import get_close_matches

    nearest = get_close_matches(value, [*names, *installed], n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return (
        f"{value!r} is not known; {hint}known: {', '.join([*names, *installed])}; "
        f'from your own file write "FILE.py:NAME", from a package the name of its entry point in {group}'
    )


def load(group: str, value: str, key: str, folder: Path, check: Callable[[Any], str]) -> Extension:
    """The object that a recipe key names; files are relative to `folder`, the folder of the recipe.

    `check` says what the object lacks, '' when nothing. Raises RecipeError.
    """
    file_name = file_and_name(value)
    if file_name is not None:
        path = Path(file_name[0])
        with suppress(RuntimeError):  # `~` of a user whom this machine does not know stays
            path = path.expanduser()
        path = (folder / path).resolve()
        loaded, code = _from_file(path, file_name[1], f"{key} = {value!r}")
    else:
        loaded, code = _from_package(group, value, key)
    if lacking := check(loaded):
        raise RecipeError(f"{key} = {value!r}: {lacking} (docs/extending.md has a complete example)")
    _code[_address(loaded)] = code
    return Extension(value=value, loaded=loaded, code=code)


def load_once(group: str, value: str, key: str, folder: Path, check: Callable[[Any], str]) -> Extension:
    """As `load`, but once in a process: all rows of a stage use the file as it was at the first call."""
    place = (group, value, folder)
    if place not in _kept:
        _kept[place] = load(group, value, key, folder, check)
    return _kept[place]


def load_again() -> None:
    """Let `load_once` look at files again; at the start of a stage, as a notebook edits them between two."""
    _kept.clear()


def code_of(loaded: Any) -> str | None:
    """What identifies the code of a class or function that `load` returned; None for the project's own."""
    return _code.get(_address(loaded))


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What code from outside returns. Raises its Exceptions as they are, CodeEnded for all else but Ctrl-C.

    Where it changes the working folder, that is taken back: a relative --run would lie elsewhere.
    """
    folder = _working_folder()
    try:
        return function(*arguments)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        if type(error).__module__.startswith("distill."):  # a time limit of this project
            raise
        raise CodeEnded(describe(error)) from error
    finally:
        if folder and _working_folder() != folder:
            os.chdir(folder)


def _working_folder() -> str:
    with suppress(FileNotFoundError):  # it was deleted
        return str(Path.cwd())
    return ""


def call_fault(function: Any, *arguments: str) -> str:
    """Why a function cannot be called with so many arguments, by their names; '' if it can be called, or if this is
    not known."""
    if iscoroutinefunction(function) or isasyncgenfunction(function):
        return "it is an async function, whose result would never be waited for; write it without async"
    try:
        taken = signature(function)
    except (TypeError, ValueError):  # of a function in C
        return ""
    try:
        taken.bind(*arguments)
    except TypeError as error:
        return f"it takes {taken}, and is called with ({', '.join(arguments)}): {error}"
    return ""


def field_fault(made: Any) -> str:
    """Which field of a dataclass holds a value of another type than it states; '' for none."""
    from pydantic import TypeAdapter, ValidationError

    for name, stated in get_type_hints(type(made)).items():
        try:
            TypeAdapter(stated).validate_python(getattr(made, name))
        except ValidationError as error:
            return f"its {name} is {getattr(made, name)!r:.60}: {error.errors()[0]['msg']}"
    return ""


def describe(error: BaseException) -> str:
    """An error in characters that every file can hold, cut where it is long, with its line of code from outside."""
    try:
        text = str(error) if isinstance(error, CodeEnded) else f"{type(error).__name__}: {error}"
        return redact.encodable(text)[:_LONGEST_MESSAGE] + _place(error)
    except FAILURES:  # its own __str__ fails
        return type(error).__name__


def loaded_code() -> tuple[LoadedFile | str, ...]:
    """The files that this process has run and the modules of packages, for `run_code` in a process that it starts."""
    return (*_files.values(), *sorted(_packages))


def run_code(loaded: Sequence[LoadedFile | str]) -> None:
    """Run the files that the parent process has run, so that its objects can be unpickled here."""
    for code in loaded:
        # One of an earlier recipe may run no longer; what is needed is missed when it is unpickled.
        try:
            if isinstance(code, str):
                import_module(code)
            else:
                _module(Path(code.path), code.source, code.path)
        except (ModuleNotFoundError, RecipeError) as error:
            logging.getLogger(__name__).warning(f"code that another process has run cannot run here: {error}")


def _address(loaded: Any) -> tuple[str, str]:
    return str(getattr(loaded, "__module__", "")), str(getattr(loaded, "__qualname__", id(loaded)))


def _from_file(path: Path, name: str, where: str) -> tuple[Any, str]:
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is no file")  # a FIFO would be waited for
        source = path.read_bytes()
    except OSError as error:
        raise RecipeError(f"{where}: {path} cannot be read ({error.strerror}); correct the path") from None
    module = _module(path, source, where)
    if not hasattr(module, name):
        defined = [key for key, item in vars(module).items() if getattr(item, "__module__", "") == module.__name__]
        raise RecipeError(
            f"{where}: {path} defines no {name}; it defines {', '.join(sorted(defined)) or 'nothing'}; "
            "correct the name after the colon"
        )
    return getattr(module, name), f"sha256:{module.__name__.removeprefix(_MODULE)}"


def _module(path: Path, source: bytes, where: str) -> ModuleType:
    """The module of a file's source. Its name holds the digest, so a changed file is another module."""
    name = f"{_MODULE}{hashlib.sha256(source).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    if beside := _imported_beside(path, source):
        raise RecipeError(
            f"{where}: {path} imports {beside} from its folder, but the fingerprint of results does not cover that "
            "file; move the imported code into this file, or install it as a package"
        )
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look a class up by its module's name
    try:
        call(exec, compile(source, str(path), "exec"), vars(module))
    except FAILURES as error:
        del sys.modules[name]
        raise RecipeError(
            f"{where}: {path}: {describe(error)}; {_next_step(error)}. It may import installed packages and "
            "cot-distill, but no other file beside it"
        ) from error
    _files[name] = LoadedFile(str(path), source)
    return module


def _next_step(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"install the package of {error.name} for {sys.executable}, or correct the file"
    return "correct the file"


def _imported_beside(path: Path, source: bytes) -> str:
    """A module or package of the file's folder that the file imports; '' for none.

    Python finds one where the folder is on its path: in a notebook, or with `python -m`.
    """
    with suppress(SyntaxError, ValueError, RecursionError):  # told when the file runs
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for name in {name.partition(".")[0] for name in names}:
                for beside in (path.parent / f"{name}.py", path.parent / name):
                    if beside.exists() and _is_found_at(name, beside) and not _is_installed(name, path.parent):
                        return beside.name
    return ""


def _is_installed(name: str, folder: Path) -> bool:
    """Whether a module with its source in this folder is of an installed package, or of this project."""
    if name in _PROJECT or name in metadata.packages_distributions():
        return True
    from urllib.parse import urlsplit
    from urllib.request import url2pathname  # here, because few files need it: 20 ms

    # A package in development mode lists no modules.
    origins = (package.read_text("direct_url.json") for package in metadata.distributions())
    parsed = (json.loads(origin) for origin in origins if origin and "editable" in origin)
    places = {Path(url2pathname(urlsplit(each["url"]).path)) for each in parsed}
    return not places.isdisjoint((folder, *folder.parents))


def _is_found_at(name: str, place: Path) -> bool:
    """Whether Python would import a module from this file or folder."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
    return any(each is not None and Path(each).resolve() in (place, place / "__init__.py") for each in places)


def _place(error: BaseException) -> str:
    """The last line of code from outside that an error passed through; '' where there is none."""
    packages, place = {name.partition(".")[0] for name in _packages}, ""
    for frame, line in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_MODULE) or module.partition(".")[0] in packages:
            place = f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return place


def _from_package(group: str, value: str, key: str) -> tuple[Any, str]:
    points = list(metadata.entry_points(group=group, name=value))
    if not points:
        raise RecipeError(f"{key}: {problem(group, value, ())}")
    packages = sorted({point.dist.name for point in points if point.dist is not None})
    if len(packages) > 1:
        raise RecipeError(
            f"{key} = {value!r}: the packages {', '.join(packages)} both define it (entry points in {group}); "
            "uninstall all but one"
        )
    try:
        loaded = call(points[0].load)
    except FAILURES as error:
        raise RecipeError(
            f"{key} = {value!r}: {points[0].value} of the package {', '.join(packages)} cannot be imported: "
            f"{describe(error)}; install what is missing, or correct the package or its entry point"
        ) from error
    _packages.add(points[0].module)
    package = points[0].dist
    return loaded, f"{package.name} {package.version}" if package is not None else points[0].value
