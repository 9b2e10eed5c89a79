"""What the benchmarks against other clients share: the questions, processes with their time, a server's counters."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "support"))

from servers import vllm_server

from distill.data import reader
from distill.recipe.loading import load
from teacher.messages.request import model_of, requests

ROOT = Path(__file__).resolve().parents[3]
QUESTIONS = ROOT / "recipes" / "tiny" / "data" / "questions.parquet"
TEACHER = ROOT / "recipes" / "tiny" / "teachers" / "structured"
DOMAIN = "scenes"
SERVED = "served"
TEMPERATURE = 0.7
MAX_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A process from its start to its end, its children included."""

    wall_s: float
    cpu_s: float
    started: float
    ended: float
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a server says it has answered since its start."""

    requests: int
    tokens: int


def timed(command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> Spent:
    """Run a command to its end; what it prints goes to `log`."""
    with log.open("wb") as output:
        started, clock = time.time(), time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(environment or {}),
        )
        _, status, used = os.wait4(process.pid, 0)
        wall_s, ended = time.perf_counter() - clock, time.time()
    process.returncode = code = os.waitstatus_to_exitcode(status)
    cpu_s = used.ru_utime + used.ru_stime
    return Spent(wall_s=wall_s, cpu_s=cpu_s, started=started, ended=ended, code=code)


def counts(url: str) -> Counts:
    """The server's own counters, from /metrics."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/metrics", timeout=30) as response:
        text = response.read().decode()
    return Counts(
        requests=_sum(text, "vllm:request_success_total"), tokens=_sum(text, "vllm:generation_tokens_total")
    )


def _sum(text: str, name: str) -> int:
    found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.MULTILINE)
    return round(sum(map(float, found)))


def write_questions(folder: Path, count: int, *, marks: Mapping[int, str] | None = None) -> Path:
    """Pictures and `questions.jsonl` with `count` questions of the tiny recipe; `marks` are added to some of them."""
    table = duckdb.sql(
        f"select image.bytes, question from '{QUESTIONS}' where domain = '{DOMAIN}' limit {count}"
    ).fetchall()
    if len(table) < count:
        raise SystemExit(f"{QUESTIONS} has only {len(table)} questions of the domain {DOMAIN}, {count} are wanted")
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (image, question) in enumerate(table):
        (folder / f"{number}.png").write_bytes(image)
        mark = (marks or {}).get(number, "")
        lines.append(orjson.dumps({"image": f"{number}.png", "question": f"{question}{mark}"}) + b"\n")
    (folder / "questions.jsonl").write_bytes(b"".join(lines))
    return folder


def write_recipe(folder: Path, url: str, *, in_flight: int | None, samples: int = 1, attempts: int = 1) -> Path:
    """A recipe that asks the questions of `folder`, with nothing on that other clients could not ask for, too."""
    teacher: dict[str, Any] = {"name": "teacher", "model": str(TEACHER), "served_model": SERVED, "base_url": url}
    teacher |= {"samples": samples} | ({"max_in_flight": in_flight} if in_flight else {})
    sampling = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "stop_repetition": False}
    lines = ["[generate.outcomes]", f"attempts = {attempts}"]
    lines += ["[data.questions]", 'source = "questions.jsonl"', "[[teachers]]"]
    lines += [f"{key} = {orjson.dumps(value).decode()}" for key, value in teacher.items()]
    lines += ["[teachers.sampling]", *(f"{key} = {orjson.dumps(value).decode()}" for key, value in sampling.items())]
    path = folder / "recipe.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def write_rows(folder: Path, recipe_path: Path) -> Path:
    """The same requests for other clients: image, question and the seed that `generate` gives it, in `rows.jsonl`."""
    recipe = load(recipe_path)
    (teacher,) = recipe.teachers
    model = model_of(recipe, teacher)
    rows = []
    for sample in reader.samples(recipe):
        (image,) = sample.images
        for request in requests(recipe, teacher, model, sample):
            assert image.path
            row = {"image": str(folder / image.path), "question": sample.question, "seed": request.seed}
            rows.append(orjson.dumps({**row, "id": request.id}) + b"\n")
    (folder / "rows.jsonl").write_bytes(b"".join(rows))
    return folder / "rows.jsonl"


def write_job(folder: Path, url: str, rows: Path, *, in_flight: int) -> Path:
    """What the drivers read."""
    folder.mkdir(parents=True)
    job = {"url": url, "model": SERVED, "rows": str(rows), "out": str(folder), "in_flight": in_flight}
    path = folder / "job.json"
    path.write_bytes(orjson.dumps({**job, "temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}))
    return path


def command_of_ours(recipe: Path, run: Path) -> list[str | Path]:
    """The command line as a user runs it."""
    start = "import runpy; runpy.run_module('distill', run_name='__main__')"
    return [sys.executable, "-c", start, "generate", recipe, "--run", run]


def environment_of_ours() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT)}


def records(run: Path) -> list[dict[str, Any]]:
    """What `generate` made durable."""
    parts = sorted(run.glob("generate/*/part-*.jsonl"))
    return [orjson.loads(line) for part in parts for line in part.read_bytes().splitlines()]


@contextmanager
def real_server(folder: Path, extra: Sequence[str] = ()) -> Iterator[str]:
    """A vLLM server that serves one of the shipped tiny teachers.

    Clients put image and text in different orders, so the chat template puts the image first for all of them.
    Prefix and image caches are off: every run finds the same server, and the second costs what the first did.
    Chunked prefill is off because an engine on a CPU dies of it when requests have seeds ("CPU Generator does not
    use offset", vLLM 0.32), which happens as soon as more prompts arrive at once than fit into one step.
    """
    template = (TEACHER / "chat_template.jinja").read_text()
    mixed = (
        "{%- if content['type'] in ('image', 'image_url') -%}{{- '<image>' -}}"
        "{%- else -%}{{- content['text'] -}}{%- endif -%}\n{%- endfor -%}"
    )
    apart = (
        "{%- if content['type'] in ('image', 'image_url') -%}{{- '<image>' -}}{%- endif -%}\n{%- endfor -%}\n"
        "{%- for content in message['content'] -%}"
        "{%- if content['type'] == 'text' -%}{{- content['text'] -}}{%- endif -%}\n{%- endfor -%}"
    )
    if mixed not in template:
        raise SystemExit(f"{TEACHER}/chat_template.jinja is not what this benchmark knows how to reorder")
    path = folder / "images_first.jinja"
    path.write_text(template.replace(mixed, apart))
    options = ("--chat-template", str(path), "--chat-template-content-format", "openai")
    options += ("--generation-config", "vllm", "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0")
    options += ("--no-enable-chunked-prefill",)
    with vllm_server.serve(TEACHER, name=SERVED, extra=(*options, *extra)) as url:
        yield url
