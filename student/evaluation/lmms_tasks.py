"""Held-out questions of a recipe as tasks of lmms-eval, with this toolkit's judge.

lmms-eval, vLLM and this toolkit pin different versions, so each has an environment of its own. A task is a folder:
questions.parquet, images/, a YAML file and utils.py, which needs nothing beyond lmms-eval. A process of this
environment (student.evaluation.lmms_judge) scores the replies. Starts no server and no lmms-eval.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import new_folder, write_json, write_text
from distill.data import reader
from distill.data.arrow import table_of
from distill.data.gold_answers import read_votes
from distill.data.images import image_files
from distill.data.sources import settings as settings_of
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ANSWER_TYPE_NAMES
from distill.types import Sample
from student.inference.reply_metrics import BUILT_IN

QUESTIONS, JUDGE = "questions.parquet", "judge.json"
METRICS = ("accuracy", "undecided_rate", "format_rate")
REFERENCE_METRICS = {metric.name: metric.key for metric in BUILT_IN if metric.lmms_eval}
"""Further metrics: name in eval/metrics.json to name in `student.inference.scoring`; VQA's where annotators voted.

The accuracy of each domain comes on top where there are several.
"""
_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("question", pa.string()),
        ("images", pa.list_(pa.string())),
        ("answers", pa.list_(pa.string())),
        ("answer_type", pa.string()),
        ("options", pa.list_(pa.string())),
        ("votes", pa.list_(pa.string())),
        ("domain", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LmmsTask:
    """A task that was written."""

    name: str
    folder: Path
    questions: int


def write(recipe: Recipe, sources: Sequence[str], out: Path) -> list[LmmsTask]:
    """One task a source in folders of the new folder `out`; lmms-eval finds them all with --include_path OUT.

    Raises DataError when something is at `out`, or when a source has no question with a gold answer.
    """
    final = out.absolute()
    with new_folder(out) as folder:
        names = _task_names(recipe, list(dict.fromkeys(sources)))
        return [_write(recipe, source, name, folder / source, final / source) for source, name in names.items()]


def _task_names(recipe: Recipe, sources: Sequence[str]) -> dict[str, str]:
    """The name of each source's task, of letters, digits and _; with a digest where sources differ in signs alone."""
    names = {source: re.sub(r"\W+", "_", f"distill_{recipe.name}_{source}") for source in sources}
    uses = Counter(names.values())
    return {
        source: name if uses[name] == 1 else f"{name}_{sha256(source.encode()).hexdigest()[:6]}"
        for source, name in names.items()
    }


def _write(recipe: Recipe, source: str, name: str, folder: Path, final: Path) -> LmmsTask:
    limit = settings_of(recipe, source).max_pixels
    (folder / "images").mkdir(parents=True)
    rows = list(_rows(reader.samples(recipe, source), folder / "images", limit, ending=recipe.eval.ending))
    if not rows:
        raise DataError(f"[data.{source}]: no question has a gold answer; nothing can be judged")
    pq.write_table(table_of(rows, _SCHEMA), folder / QUESTIONS, compression="zstd")
    domains = sorted({row["domain"] for row in rows} - {""})
    metrics = [
        *METRICS,
        *(name for name in REFERENCE_METRICS if name != "vqa_accuracy" or any(row["votes"] for row in rows)),
        *([domain_metric(domain) for domain in domains] if len(domains) > 1 else []),
    ]
    settings = {
        "plain": recipe.filter.rationale == "plain",
        "relative_tolerance": recipe.filter.answer.relative_tolerance,
        "figures": metrics,
        "answer_type": _type_from_outside(recipe, source),
    }
    write_json(folder / JUDGE, settings)
    write_text(folder / f"{name}.yaml", _yaml(name, final / QUESTIONS, recipe.eval.max_new_tokens, metrics))
    write_text(folder / "utils.py", _UTILS.replace("PYTHON_HERE", repr(sys.executable)))
    return LmmsTask(name=name, folder=final, questions=len(rows))


def _type_from_outside(recipe: Recipe, source: str) -> str | None:
    """The code that judges answers of a source, by its whole path, for the process of the judge."""
    value = settings_of(recipe, source).answer_type
    return None if value is None or value in ANSWER_TYPE_NAMES else recipe.whole_name(value)


def _rows(samples: Iterator[Sample], folder: Path, max_pixels: int, *, ending: str) -> Iterator[Mapping[str, Any]]:
    """Rows of the questions with a gold answer; their images become files that all decoders read in the same way."""
    for sample in samples:
        if not sample.answers:
            continue
        names = []
        for ref in sample.images:
            content, mime = image_files.portable(image_files.read_bytes(ref), max_pixels=max_pixels)
            names.append(f"{ref.sha256}.{mime.rpartition('/')[2]}")
            if not (folder / names[-1]).exists():
                (folder / names[-1]).write_bytes(content)
        yield {
            "id": sample.id,
            "question": f"{sample.question}{ending}",
            "images": names,
            "answers": list(sample.answers),
            "answer_type": sample.answer_type or "",
            "options": list(sample.options),
            "votes": read_votes(sample.meta),
            "domain": sample.domain,
        }


def domain_metric(domain: str) -> str:
    """The name under which lmms-eval shows the accuracy of a domain."""
    return f"accuracy_{domain}"


def _yaml(name: str, questions: Path, max_new_tokens: int, metrics: Sequence[str]) -> str:
    """A task file. JSON is YAML, so values are written as JSON; the functions are of utils.py beside it."""
    values = {
        "task": name,
        "dataset_path": "parquet",
        "dataset_kwargs": {"data_files": {"test": str(questions)}},
        "test_split": "test",
        "output_type": "generate_until",
        "generation_kwargs": {"max_new_tokens": max_new_tokens, "temperature": 0, "do_sample": False},
        # The judge takes replies apart itself: a rationale that never ends must not pass for an answer.
        "reasoning_tags": "none",
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": metric != "undecided_rate"}
            for metric in metrics
        ],
        "metadata": [{"version": 1.0}],
    }
    functions = ("doc_to_visual", "doc_to_text", "doc_to_target", "process_results")
    lines = [f"{key}: {orjson.dumps(value).decode()}" for key, value in values.items()]
    return "\n".join([*lines, *(f"{key}: !function utils.{key}" for key in functions)]) + "\n"


_UTILS = '''\
"""What lmms-eval calls for the task in this folder. Written by `distill export --lmms-eval`.

The toolkit scores the replies in its own environment: PYTHON -m student.evaluation.lmms_judge, over pipes. The
environment variable DISTILL_PYTHON names another interpreter that has the toolkit.
"""

import json
import os
import subprocess
import threading
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).resolve().parent
PYTHON = os.environ.get("DISTILL_PYTHON") or PYTHON_HERE
_lock = threading.Lock()
_judge = None


def doc_to_visual(doc):
    """The pictures of a question, RGB, in its order."""
    pictures = []
    for name in doc["images"]:
        with Image.open(FOLDER / "images" / name) as picture:
            pictures.append(picture.convert("RGB"))
    return pictures


def doc_to_text(doc, lmms_eval_specific_kwargs=None):
    """The question as the student was taught: nothing before it, nothing after it."""
    return doc["question"]


def doc_to_target(doc):
    """The canonical answer; process_results accepts the others too."""
    return doc["answers"][0]


def process_results(doc, results):
    """Metrics of one reply by name; means over the questions are the metrics of the task."""
    global _judge
    question = {key: value for key, value in doc.items() if key != "images"}
    with _lock:
        try:
            if _judge is None:
                command = [PYTHON, "-m", "student.evaluation.lmms_judge", str(FOLDER)]
                _judge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            _judge.stdin.write(json.dumps([question, results[0] or ""]).encode() + b"\\n")
            _judge.stdin.flush()
            line = _judge.stdout.readline()
        except OSError:
            line = b""
    if not line:
        raise RuntimeError(
            f"{PYTHON} -m student.evaluation.lmms_judge gave no verdict; name an interpreter that has the toolkit, "
            "with its [train] extra, in DISTILL_PYTHON"
        )
    return json.loads(line)
'''
