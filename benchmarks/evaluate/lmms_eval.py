"""A run's student in lmms-eval, served by vLLM, against the same student in `distill eval`.

    python benchmarks/evaluate/lmms_eval.py runs/tiny [--stage reason] [--environment DIR] [--limit N]

exports the student and its held-out questions, serves it, asks lmms-eval to evaluate it on them, and compares what
lmms-eval finds, in all and reply by reply, with the predictions that `distill eval` left in the run. Then lmms-eval's
own ChartQA task over the same questions, once with its own limit of 16 tokens and once with room for a rationale.

lmms-eval gets an environment of its own in DIR (default: .venv-lmms-eval here; made where there is none, about
3 GB, the torch of constraints.txt). vLLM is found as `distill export --verify` finds it (DISTILL_VLLM_PYTHON).
Takes as long as an installation of 3 GB and three evaluations: not timed here. Needs vLLM.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.recipe import loading
from distill.reports.text_table import table
from student.evaluation import lmms_tasks
from student.export import convert
from teacher.engines.vllm.export_server import SERVED_NAME, SITE, find_server, serve_export

VERSION = "0.7.3"
PINNED = (
    "accelerate",
    "datasets",
    "huggingface_hub",
    "numpy",
    "pillow",
    "pyarrow",
    "tokenizers",
    "torch",
    "transformers",
)
ROOT = Path(__file__).resolve().parents[2]
TOKENS = 2048
"""Of context that the server keeps for a question and the reply to it, beside the reply's own limit."""
STANDARD = """\
include: {included}
task: {name}
dataset_path: parquet
dataset_kwargs: {{data_files: {{test: {data}}}}}
lmms_eval_specific_kwargs: {{default: {{pre_prompt: "", post_prompt: ""}}}}
"""


def environment(folder: Path) -> Path:
    """The interpreter of an environment that has lmms-eval."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        pins = folder / "constraints.txt"
        pins.write_text("".join(f"{line}\n" for line in lines if line.partition("==")[0] in PINNED))
        command = [python, "-m", "pip", "install", "--quiet", "--constraint", pins, f"lmms-eval=={VERSION}"]
        subprocess.run(command, check=True)
    return python


def ask(python: Path, folder: Path, url: str, task: str, tasks: Path, *more: str) -> tuple[dict[str, Any], float]:
    """lmms-eval's results file and the seconds it took."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(SITE)  # torchvision built for CUDA beside a torch that is not
    told = os.environ | {"PYTHONPATH": str(site), "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
    told["OPENAI_API_KEY"] = "none"
    out = folder / f"results-{task}{'-'.join(more)}".replace("=", "-")
    command: list[Any] = [
        python,
        "-m",
        "lmms_eval",
        "eval",
        "--model",
        "openai",
        "--include_path",
        tasks,
        "--tasks",
        task,
    ]
    command += ["--model_args", f"model={SERVED_NAME},base_url={url},num_concurrent=16"]
    command += ["--output_path", out, "--log_samples", *more]
    begun = time.perf_counter()
    done = subprocess.run(command, env=told, capture_output=True, text=True, check=False)
    if done.returncode or not list(out.rglob("*results.json")):
        sys.exit(f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}\nlmms-eval ended with {done.returncode}")
    (results,) = out.rglob("*results.json")
    found = json.loads(results.read_text())
    (samples,) = out.rglob("*samples*.jsonl")
    return {**found, "samples": [json.loads(line) for line in samples.open()]}, time.perf_counter() - begun


def replies(found: dict[str, Any], questions: Path) -> dict[str, tuple[str, bool]]:
    """Question id to what the student said and whether that was right."""
    ids = pq.read_table(questions, columns=["id"])["id"].to_pylist()
    said = {}
    for line in found["samples"]:
        text = line["filtered_resps"]
        said[ids[line["doc_id"]]] = (text if isinstance(text, str) else text[0], bool(line["accuracy"]))
    return said


def standard(task: lmms_tasks.LmmsTask, folder: Path, python: Path) -> Path:
    """A folder with lmms-eval's own ChartQA task over the questions of `task` that have one image."""
    rows = [
        {
            "type": "human_test",
            "question": row["question"],
            "answer": row["answers"][0],
            "image": {"bytes": (task.folder / "images" / row["images"][0]).read_bytes(), "path": None},
        }
        for row in pq.read_table(task.folder / lmms_tasks.QUESTIONS).to_pylist()
        if len(row["images"]) == 1
    ]
    texts = ("type", "question", "answer")
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([*((name, pa.string()) for name in texts), ("image", image)])
    features = {name: {"dtype": "string", "_type": "Value"} for name in texts}
    info = {"info": {"features": features | {"image": {"_type": "Image"}}}}
    written = pa.Table.from_pylist(rows, schema=schema).replace_schema_metadata({"huggingface": json.dumps(info)})
    folder.mkdir()
    pq.write_table(written, folder / "charts.parquet")
    script = "import lmms_eval; print(lmms_eval.__path__[0])"
    said = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True, cwd=folder).stdout
    included = Path(said.strip()) / "tasks" / "chartqa" / "chartqa.yaml"
    text = STANDARD.format(included=included, name="chartqa_here", data=folder / "charts.parquet")
    (folder / "chartqa_here.yaml").write_text(text)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--stage")
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-lmms-eval")
    parser.add_argument("--limit", type=int, help="questions, of each task")
    options = parser.parse_args()
    recipe = loading.load(options.run / "recipe.toml")
    python = environment(options.environment.absolute())
    limit = ["--limit", str(options.limit)] if options.limit else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stage = convert.export(options.run, folder / "student", stage=options.stage)
        (task,) = lmms_tasks.write(recipe, [recipe.eval.data], folder / "tasks")
        rows = pq.read_table(task.folder / lmms_tasks.QUESTIONS, columns=["images"])["images"].to_pylist()
        arguments = {
            **convert.server_arguments(folder / "student"),
            "dtype": convert.dtype_of(folder / "student"),
            "max-model-len": min(TOKENS + recipe.eval.max_new_tokens, most(folder / "student")),
            "limit-mm-per-prompt": {"image": max(map(len, rows))},
        }
        limits = {
            "max_new_tokens": recipe.eval.max_new_tokens,
            "max_pixels": recipe.data[recipe.eval.data].max_pixels,
        }
        with serve_export(folder / "student", server=find_server(recipe), arguments=arguments, **limits) as server:
            print(f"stage {stage}, {server.engine}, lmms-eval {VERSION}, {task.questions} questions", flush=True)
            found, seconds = ask(python, folder, server.url, task.name, folder / "tasks", *limit)
            compare(
                options.run, stage, found["results"][task.name], replies(found, task.folder / lmms_tasks.QUESTIONS)
            )
            print(f"{seconds:.0f} s\n")
            charts = standard(task, folder / "standard", python)
            for tokens in (16, recipe.eval.max_new_tokens):
                room = ["--gen_kwargs", f"max_new_tokens={tokens}"]
                own, _ = ask(python, folder, server.url, "chartqa_here", charts, *room, *limit)
                relaxed = own["results"]["chartqa_here"]["relaxed_overall,none"]
                print(f"lmms-eval's chartqa, {tokens} tokens: {relaxed:.4f}")


def most(checkpoint: Path) -> int:
    """Tokens of context that a checkpoint's language model was made for."""
    config = json.loads((checkpoint / "config.json").read_text())
    return int(config.get("text_config", config)["max_position_embeddings"])


def compare(run: Path, stage: str, results: dict[str, Any], said: dict[str, tuple[str, bool]]) -> None:
    """Print both sides' figures, and how many replies are the same text with the same verdict."""
    metrics = json.loads((run / "eval" / "metrics.json").read_text())["arms"]
    arm = next((name for name, figures in metrics.items() if figures.get("stage") == stage), None)
    if arm is None:
        sys.exit(f"{run}/eval has no arm of stage {stage}; name one with --stage, or run distill eval")
    ours = metrics[arm]
    rows = []
    for key, value in results.items():
        name = key.removesuffix(",none")
        other = ours["domains"].get(name.removeprefix("accuracy_"), {}).get("accuracy", ours.get(name))
        if isinstance(value, float) and key.endswith(",none") and "_stderr" not in key:
            rows.append((name, f"{value:.4f}", "" if other is None else f"{other:.4f}"))
    print(table(("figure", "lmms-eval", "distill eval"), rows))
    known = {}
    with (run / "eval" / "predictions.jsonl").open() as lines:
        for line in map(json.loads, lines):
            if line["arm"] == arm:
                known[line["sample_id"]] = (line["text"], line["verdict"] == "correct")
    both = set(said) & set(known)
    texts = sum(said[key][0] == known[key][0] for key in both)
    verdicts = sum(said[key][1] == known[key][1] for key in both)
    print(f"{len(both)} questions on both sides: {texts} replies the same text, {verdicts} the same verdict")


if __name__ == "__main__":
    main()
