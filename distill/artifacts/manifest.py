"""Manifests and fingerprints: the inputs and the files of a finished stage.

A stage's manifest is written last: no manifest means the stage is unfinished. Each stage defines the meaning of its
files.
"""

import hashlib
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Self

import orjson

from distill import redact
from distill.artifacts.files import Output, write_json
from distill.errors import DataError, StaleError
from distill.word_tables import counted

MANIFEST = "manifest.json"
STAGES = ("generate", "filter", "train", "eval")
_CHECKSUM = "crc"
_DIGEST = re.compile(r"[0-9a-f]{32,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The record of a finished stage. `fields` are the flattened settings that `fingerprint` covers."""

    stage: str
    fingerprint: str
    fields: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, Output] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def write(self, folder: Path) -> Self:
        values = orjson.loads(redact.dumps(self))
        write_json(folder / MANIFEST, values | {_CHECKSUM: _checksum(values)})
        return self

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """The manifest of a stage folder, or None when the stage is unfinished."""
        path = folder / MANIFEST
        try:
            values = orjson.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}: not valid JSON ({error}); remove it to redo the stage") from None
        try:
            stated = values.pop(_CHECKSUM, None)  # versions before this one wrote none
            if stated is not None and stated != _checksum(values):
                raise DataError(f"{path}: its content was changed after it was written; remove it to redo the stage")
            values["outputs"] = {name: Output(**output) for name, output in values["outputs"].items()}
            return cls(**values)
        except (KeyError, TypeError, AttributeError):
            raise DataError(f"{path}: no manifest of a stage; remove it to redo the stage") from None


def _checksum(values: Mapping[str, Any]) -> str:
    """The CRC-32 of all other keys: a flipped bit in a count would be a false number."""
    return f"{zlib.crc32(canonical(values)):08x}"


def fingerprint(fields: Mapping[str, Any]) -> str:
    """Hex digest of flattened settings; equal settings give equal digests on every machine."""
    return hashlib.sha256(canonical(fields)).hexdigest()


def canonical(value: Any) -> bytes:
    """The one JSON spelling of a value: sorted keys, no spaces."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys, so that a difference can be named. The key of a list item is its name."""
    if isinstance(value, Mapping) and value:
        items = ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        items = ((str(item.get("name", position)), item) for position, item in enumerate(value))
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat.update(flatten(item, f"{prefix}.{key}" if prefix else key))
    return flat


def finished(folder: Path, fields: Mapping[str, Any], *, remedy: str) -> Manifest | None:
    """The manifest of a finished stage made from exactly these settings; None when it is unfinished.

    Raises StaleError, which names the fields that differ, if the stage was finished from other settings.
    """
    manifest = Manifest.read(folder)
    if manifest is None or manifest.fingerprint == fingerprint(fields):
        return manifest
    raise StaleError(f"{folder} was made from other settings:\n{differences(manifest.fields, fields)}", remedy)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """One line for each field that differs, with old and new value; of many fields, only the first ones and the
    number of all."""
    lines = [f"  {key}: {_difference(old, new)}" for key, (old, new) in changes(before, now).items()]
    if len(lines) <= _MOST_DIFFERENCES:
        return "\n".join(lines)
    rest = len(lines) - _MOST_DIFFERENCES
    last = (
        f"  and {counted(rest, 'more field')}; the run may have another recipe or version: see `distill plan RECIPE "
        "--diff RUN`"
    )
    return "\n".join([*lines[:_MOST_DIFFERENCES], last])


_MOST_DIFFERENCES: Final = 16
"""Fields that a message lists; one changed key is one or two."""


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new value of every field that differs; `before` as it was read back, `now` as it will be."""
    after: dict[str, Any] = orjson.loads(canonical(now))
    pairs = {
        key: (before.get(key, "(not set)"), after.get(key, "(not set)"))
        for key in sorted(before.keys() | after.keys())
    }
    return {key: (old, new) for key, (old, new) in pairs.items() if old != new}


def begin(path: Path, fields: Mapping[str, Any], *, begun: bool, remedy: str) -> None:
    """Note the settings of an unfinished stage in `path`.

    Raises StaleError, which names the fields that differ, if work was `begun` with other settings.
    """
    before = read_noted(path)
    if begun and before is not None and fingerprint(before) != fingerprint(redact.tree(fields)):
        raise StaleError(f"{path.parent} was started with other settings:\n{differences(before, fields)}", remedy)
    write_json(path, fields)


def read_noted(path: Path) -> dict[str, Any] | None:
    """The settings that `begin` noted; None without a readable file."""
    try:
        noted: dict[str, Any] = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        return None
    return noted


def _difference(old: Any, new: Any) -> str:
    """Two digests say only that the content is another one."""
    if all(isinstance(value, str) and _DIGEST.fullmatch(value) for value in (old, new)):
        return f"other content ({old[:8]} -> {new[:8]})"
    return f"{_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def require(run: Path, stage: str, *, next_step: str) -> Manifest:
    """The manifest of an earlier stage. Raises StaleError with the next step if the stage is not finished."""
    manifest = Manifest.read(run / stage)
    if manifest is None:
        state = "is unfinished" if (run / stage).exists() else "has not been run"
        raise StaleError(f"{run / stage}: stage '{stage}' {state}; {next_step}")
    return manifest


def set_aside(folder: Path, previous: Path | None = None) -> None:
    """Move a stage's folder to `<folder>.previous`, over an older one: --fresh never destroys the last result.

    An unfinished stage, for example one that was stopped after --fresh, is removed and does not replace a finished
    stage there.
    """
    previous = previous or folder.with_name(f"{folder.name}.previous")
    if not folder.exists():
        return
    if (previous / MANIFEST).exists() and not (folder / MANIFEST).exists():
        shutil.rmtree(folder)
        return
    if previous.exists():
        shutil.rmtree(previous)
    previous.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(previous)


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the named distributions, our own first; absent ones are left out."""
    installed = {package: _version(package) for package in ("cot-distill", *packages)}
    return {package: version for package, version in installed.items() if version is not None}


@cache
def _version(package: str) -> str | None:
    """Reading it parses the whole description of the package: some 10 ms."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
