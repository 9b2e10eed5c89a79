"""Records of the engines that answered for a teacher: written once beside its traces, not into each of them.

A record's `engine` has name, version, model, and in `facts` the key of its entry in `engine.json`. For servers the
entry has their addresses, their longest context, and their command line if the run started them. For an embedded
engine it has the libraries and the device. At most one more entry a start; secrets are masked.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.damaged_lines import side_file
from distill.artifacts.files import write_json
from distill.artifacts.layout import ENGINES, part_paths
from distill.artifacts.manifest import canonical
from distill.errors import DataError, StaleError, TeacherError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from teacher.engines.vllm.vllm_options import answer_options, server_answer_options, server_files
from teacher.messages.completion import EngineInfo

_KEY = "facts"


def record_engine(folder: Path, served: EngineInfo) -> EngineInfo:
    """The engine as its traces name it; writes its facts into the teacher's folder first."""
    if not served.facts:
        return served
    facts = {**served.engine, "model": served.model, **served.facts}
    key = hashlib.sha256(canonical(facts)).hexdigest()[:12]
    try:
        known = read_engines(folder)
    except DataError:
        (folder / ENGINES).replace(side_file(folder / ENGINES))
        known = {}
    if key not in known:
        write_json(folder / ENGINES, known | {key: facts})
    return replace(served, engine={**served.engine, _KEY: key})


def server_settings(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The options, and the digests of files behind them, of each server that the run starts, by teacher."""
    base = recipe.path.parent
    return {
        teacher.name: {"options": server_answer_options(teacher.server), "files": server_files(teacher.server, base)}
        for teacher in recipe.teachers
        if teacher.managed
    }


def require_same_options(folder: Path, teacher: Teacher, base: Path) -> None:
    """Raises StaleError when a teacher's traces came from servers that answer otherwise than its server now.

    Options make a server answer otherwise, and so do files behind them, such as a chat template, and the server's own
    script, whose path counts from `base`. Trace ids do not cover the options of a server, so its traces would count
    as traces with the new options.
    """
    engines = _started_engines(folder, teacher)
    if not engines:
        return
    now = server_answer_options(teacher.server)
    known = [answer_options(facts["command"]) | facts["environment"] for facts in engines]
    if now not in known:
        raise StaleError(
            f"{folder} holds traces of a server with {_format_options(known[-1])}; "
            f"teachers.{teacher.name}.server has {_format_options(now)}, which changes its answers. "
            f"Set the options back, {_OR_ELSE}"
        )
    if changed := changed_files(folder, teacher, base):
        raise StaleError(
            f"{folder} holds traces of a server whose files had other content than those of teachers.{teacher.name}."
            f"server have now: {', '.join(changed)}. "
            f"Set the files back, {_OR_ELSE}"
        )


def changed_files(folder: Path, teacher: Teacher, base: Path) -> list[str]:
    """The files of a teacher's server that have other content than when its traces were made; none without traces.

    Each is named by its option, the server's own script as "its script".
    """
    noted = [facts["files"] for facts in _started_engines(folder, teacher)]
    if not noted or (files := server_files(teacher.server, base)) in noted:
        return []
    before = noted[-1]
    return [name or "its script" for name in sorted({*files, *before}) if files.get(name) != before.get(name)]


def _started_engines(folder: Path, teacher: Teacher) -> list[dict[str, Any]]:
    """What is noted of the servers that the run started for a teacher; empty while it has no traces."""
    if not teacher.managed or not _has_traces(folder):
        return []
    return [facts for facts in read_engines(folder).values() if "command" in facts]


def require_same_model(folder: Path, teacher: Teacher, served: str) -> None:
    """Raises TeacherError when a server names another model than the one that a teacher's traces came from.

    A name that the recipe asks for (`model`, `served_model`) is taken for the same model.
    """
    known = [facts["model"] for facts in read_engines(folder).values() if "command" not in facts and "model" in facts]
    if teacher.allow_other_model or served in (teacher.model, teacher.served_model) or not known:
        return
    if _has_traces(folder) and served not in known:
        raise TeacherError(
            f"the traces of teacher '{teacher.name}' in {folder} came from {known[-1]!r}; its server serves "
            f"{served!r} now; start the right server, or set served_model = {served!r} if that is another name of "
            "the same model"
        )


def _has_traces(folder: Path) -> bool:
    return any(path.stat().st_size for path in part_paths(folder, ".jsonl"))


_OR_ELSE = "choose another --run, or move the folder away; then its questions are asked again"


def _format_options(options: dict[str, list[str]]) -> str:
    return (
        " ".join(" ".join([name if name[0] == "$" else f"--{name}", *values]) for name, values in options.items())
        or "none of these options"
    )


def read_engines(folder: Path) -> dict[str, dict[str, Any]]:
    """The engines of a teacher by key. Raises DataError."""
    try:
        known: dict[str, dict[str, Any]] = orjson.loads((folder / ENGINES).read_bytes())
        if not isinstance(known, dict) or not all(isinstance(facts, dict) for facts in known.values()):
            raise ValueError("an object of objects is needed")
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(
            f"{folder / ENGINES}: not valid JSON ({error}); it records the options of the servers that answered: "
            "remove it if the options of the recipe are unchanged"
        ) from None
    return known
