"""A recipe's questions as a task of lmms-eval: called as lmms-eval calls it, and judged as `distill eval` judges.

With DISTILL_LMMS_PYTHON, an interpreter of an environment that has lmms-eval, lmms-eval itself runs the task too.
"""

import base64
import importlib.util
import io
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from distill import cli
from distill.data import reader
from distill.data.images import image_files
from distill.errors import DataError
from distill.recipe import loading
from student.evaluation import lmms_tasks, metrics
from student.inference.scoring import score_reply
from teacher.engines.vllm.export_server import SITE

TEN = ["nous les gosses", "dakota", "clos culombu", "dakota digital", *["dakota"] * 6]
ASKED: list[tuple[dict[str, Any], str]] = [
    ({"question": "How many?", "answer": "4", "domain": "counts"}, "<think>\nTwo and two.\n</think>\n\n4"),
    ({"question": "How many then?", "answer": "7", "domain": "counts"}, "<think>\nSix.\n</think>\n\n6.9"),
    (
        {"question": "Which?", "answer": "B", "answer_type": "choice", "meta": {"options": ["a dog", "a cat"]}},
        "<think>\nIt purrs.\n</think>\n\na cat",
    ),
    ({"question": "Which brand?", "answer": TEN, "domain": "brands"}, "The Dakota."),
    (
        {"question": "Who signed?", "answer": ["T.F. Riehl", "TF Riehl"], "domain": "brands"},
        "<think>\nIt goes on and",
    ),
    ({"question": "What percentage?", "answer": "50%", "domain": "counts"}, "<think>\nHalf.\n</think>\n\n0.5"),
    ({"question": "Nobody knows?"}, "never asked"),
]
"""Rows of a source, and what a student says to each."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory whose recipe has the questions above, with images of several kinds."""
    folder = tmp_path / "run"
    folder.mkdir()
    chance = np.random.default_rng(0)
    rows = []
    for number, (row, _) in enumerate(ASKED):
        noise = Image.fromarray(chance.integers(0, 256, (9, 7, 3), dtype=np.uint8))
        names = [f"{number}.jpg", f"{number}-glass.png"][: 1 + number % 2]
        noise.save(folder / names[0])
        if len(names) > 1:
            noise.putalpha(Image.linear_gradient("L").resize(noise.size))
            noise.save(folder / names[1])
        rows.append({"image": names, **row})
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (folder / "recipe.toml").write_text(
        '[data.questions]\nsource = "test.jsonl"\n[data.test]\nsource = "test.jsonl"\n[eval]\nmax_new_tokens = 77\n',
        encoding="utf-8",
    )
    return folder


@pytest.fixture
def task(run: Path, tmp_path: Path) -> lmms_tasks.LmmsTask:
    (found,) = lmms_tasks.write(loading.load(run / "recipe.toml"), ["test"], tmp_path / "tasks")
    return found


def settings(task: lmms_tasks.LmmsTask) -> dict[str, Any]:
    """The task file, every `!function` loaded as a module of its own, as lmms-eval does."""

    class Loader(yaml.SafeLoader):
        pass

    def function(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
        module, name = str(loader.construct_scalar(node)).split(".")
        spec = importlib.util.spec_from_file_location(module, task.folder / f"{module}.py")
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return getattr(loaded, name)

    Loader.add_constructor("!function", function)
    found: dict[str, Any] = yaml.load((task.folder / f"{task.name}.yaml").read_text(), Loader)
    return found


def documents(values: dict[str, Any], cache: Path) -> list[dict[str, Any]]:
    import datasets

    found = datasets.load_dataset(values["dataset_path"], cache_dir=str(cache), **values["dataset_kwargs"])
    return list(found[values["test_split"]])


@contextmanager
def server(seen: list[dict[str, Any]]) -> Iterator[str]:
    """An OpenAI-compatible server of a student that knows the replies above."""
    replies = {row["question"]: reply for row, reply in ASKED}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append(body)
            text = replies[body["messages"][-1]["content"][-1]["text"]]
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
            answer = json.dumps(
                {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 0,
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                }
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}/v1"
        listening.shutdown()


def ask(url: str, question: str, images: list[Image.Image], limits: dict[str, Any]) -> str:
    """One request as lmms-eval's "openai" model makes it: the images as PNG, then the text."""
    parts: list[dict[str, Any]] = []
    for image in images:
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        url_of = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url_of}})
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}]
    body = {"model": "m", "messages": messages, "max_tokens": limits["max_new_tokens"], "temperature": 0}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request) as response:
        said: str = json.loads(response.read())["choices"][0]["message"]["content"]
        return said


def expected(run: Path) -> dict[str, float]:
    """The figures that `distill eval` has for the replies above."""
    found = loading.load(run / "recipe.toml")
    replies = {row["question"]: reply for row, reply in ASKED}
    lines = [
        score_reply(
            sample,
            {"text": replies[sample.question], "tokens": 9, "rationale_tokens": 3, "truncated": False},
            plain=False,
            relative_tolerance=found.filter.answer.relative_tolerance,
        )
        for sample in reader.samples(found, "test")
        if sample.answers
    ]
    overview = metrics.group_metrics(lines)
    by_domain = {
        f"accuracy_{name}": metrics.group_metrics([line for line in lines if line["domain"] == name])["accuracy"]
        for name in ("brands", "counts")
    }
    return {name: overview[name] for name in (*lmms_tasks.METRICS, *lmms_tasks.REFERENCE_METRICS)} | by_domain


def test_a_dry_run_asks_a_server_and_comes_to_the_figures_of_distill_eval(
    run: Path, task: lmms_tasks.LmmsTask, tmp_path: Path
) -> None:
    values = settings(task)
    rows = documents(values, tmp_path / "cache")
    assert values["generation_kwargs"] == {"max_new_tokens": 77, "temperature": 0, "do_sample": False}
    scores: dict[str, list[float]] = {entry["metric"]: [] for entry in values["metric_list"]}
    with server([]) as url:
        for row in rows:
            reply = ask(url, values["doc_to_text"](row), values["doc_to_visual"](row), values["generation_kwargs"])
            for name, value in values["process_results"](row, [reply]).items():
                scores[name].append(value)
    assert {entry["aggregation"] for entry in values["metric_list"]} == {"mean"}
    assert {name: sum(found) / len(found) for name, found in scores.items()} == pytest.approx(expected(run))
    assert len(rows) == task.questions == len(ASKED) - 1  # the one without a gold answer cannot be judged
    assert len(scores["vqa_accuracy"]) == 1
    # Replies of every kind are among them: right, wrong, undecided, without an end.
    assert 0 < sum(scores["accuracy"]) < len(rows)
    assert sum(scores["undecided_rate"]) == 1 and sum(scores["format_rate"]) == len(rows) - 1


def test_a_task_shows_the_pixels_that_the_student_learned_from(
    run: Path, task: lmms_tasks.LmmsTask, tmp_path: Path
) -> None:
    values = settings(task)
    samples = {sample.id: sample for sample in reader.samples(loading.load(run / "recipe.toml"), "test")}
    for row in documents(values, tmp_path / "cache"):
        sample = samples[row["id"]]
        assert values["doc_to_text"](row, {"pre_prompt": "not ours"}) == sample.question
        assert values["doc_to_target"](row) == sample.answer
        shown = values["doc_to_visual"](row)
        assert [image.mode for image in shown] == ["RGB"] * len(sample.images)
        for image, ref in zip(shown, sample.images, strict=True):
            assert np.array_equal(np.asarray(image), np.asarray(image_files.load(ref, max_pixels=10**6)))


def test_students_asked_for_answers_alone_are_asked_in_the_words_they_learned(run: Path, tmp_path: Path) -> None:
    here = loading.load(run / "recipe.toml", {"eval.think": "false"})
    (task,) = lmms_tasks.write(here, ["test"], tmp_path / "tasks")
    values = settings(task)
    assert all(values["doc_to_text"](row).endswith(" /no_think") for row in documents(values, tmp_path / "cache"))


def test_the_task_needs_nothing_of_this_toolkit_where_lmms_eval_runs(task: lmms_tasks.LmmsTask) -> None:
    ours = "{'distill', 'student', 'orjson', 'pyarrow'}"
    script = f"""
import sys
sys.path.insert(0, {str(task.folder)!r})
import utils
print(sorted({ours} & {{name.partition('.')[0] for name in sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "[]"


def test_a_judge_that_is_not_there_is_named(
    task: lmms_tasks.LmmsTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for python in (str(tmp_path / "nowhere"), "/bin/false"):
        monkeypatch.setenv("DISTILL_PYTHON", python)
        values = settings(task)
        with pytest.raises(RuntimeError, match=f"{python}.*DISTILL_PYTHON"):
            values["process_results"](documents(values, tmp_path / "cache")[0], ["4"])


def test_the_command_line_writes_tasks_and_names_them(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks"
    arguments = ["export", str(run), "--out", str(out), "--lmms-eval", "test", "--lmms-eval", "questions"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    assert "--tasks distill_run_test,distill_run_questions" in done.output
    assert sorted(path.name for path in out.glob("*/*.yaml")) == [
        "distill_run_questions.yaml",
        "distill_run_test.yaml",
    ]
    again = CliRunner().invoke(cli.app, arguments)
    assert again.exit_code == 2 and "give a new folder" in again.output
    both = CliRunner().invoke(cli.app, [*arguments, "--dataset", "llava"])
    assert both.exit_code == 2 and "--dataset and --lmms-eval" in both.output


def test_a_failed_export_leaves_nothing(run: Path, tmp_path: Path) -> None:
    found = loading.load(run / "recipe.toml")
    with pytest.raises(DataError, match="did you mean 'test'"):
        lmms_tasks.write(found, ["test", "tset"], tmp_path / "tasks")
    (run / "test.jsonl").write_text('{"image": "0.jpg", "question": "Nobody knows?"}\n')
    with pytest.raises(DataError, match="no question has a gold answer"):
        lmms_tasks.write(found, ["test"], tmp_path / "tasks")
    assert not list(tmp_path.glob("*tasks*"))


LMMS_PYTHON = os.environ.get("DISTILL_LMMS_PYTHON", "")


@pytest.mark.skipif(not LMMS_PYTHON, reason="DISTILL_LMMS_PYTHON names no environment that has lmms-eval")
def test_lmms_eval_itself_runs_the_task_and_comes_to_the_figures_of_distill_eval(
    run: Path, task: lmms_tasks.LmmsTask, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)  # torchvision built for CUDA beside a torch that is not
    environment = os.environ | {
        "PYTHONPATH": str(site),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "1",
        "OPENAI_API_KEY": "none",
    }
    seen: list[dict[str, Any]] = []
    with server(seen) as url:
        command = [LMMS_PYTHON, "-m", "lmms_eval", "eval", "--model", "openai"]
        command += ["--model_args", f"model=student,base_url={url},num_concurrent=2", "--tasks", task.name]
        command += ["--include_path", str(task.folder.parent), "--output_path", str(tmp_path / "results")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (results,) = (tmp_path / "results").rglob("*results.json")
    found = json.loads(results.read_text())["results"][task.name]
    assert {name: found[f"{name},none"] for name in expected(run)} == pytest.approx(expected(run))
    assert {body["max_tokens"] for body in seen} == {77} and {body["temperature"] for body in seen} == {0}
