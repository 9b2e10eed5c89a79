"""Several traces by one request (`choices`) against one request a trace, on a real vLLM server with its own defaults.

    python benchmarks/generate/choices.py [--rows 100] [--samples 4] [--rounds 3] [--words 0]

One vLLM server (of the interpreter that DISTILL_VLLM_PYTHON names; default: .venv-vllm) serves a shipped tiny
teacher, with prefix and image caches as they are by default. `distill generate` asks both ways in turns, each time
about images that the server has not seen. Counted: prompt tokens as the server's answers say (what a hosted API
charges), prompt tokens that the server looked up in its prefix cache and found there, traces a second of the whole
command, and CPU seconds of server and client. Times of a shared machine are worth little; CPU and tokens are.
Takes 30 s with `--rows 4 --rounds 1 --samples 2` (two shared cores). Needs vLLM.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import urllib.request
from pathlib import Path

import duckdb
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import measure

from distill.artifacts.manifest import Manifest

COUNTERS = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:request_success_total")


def counters(url: str) -> dict[str, float]:
    """The server's counters."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/metrics", timeout=30) as response:
        text = response.read().decode()
    found = {}
    for name in COUNTERS:
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.MULTILINE)
        found[name] = sum(map(float, values))
    return found


def cpu_of_descendants() -> float:
    """CPU seconds of every live process below this one."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        seconds[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(seconds[number] for number in found - {os.getpid()})


def write_questions(folder: Path, start: int, count: int, words: int) -> None:
    """Questions of the tiny recipe from number `start` on, each about an image of its own, longer by some words."""
    table = duckdb.sql(
        f"select any_value(image.bytes), any_value(question) from '{measure.QUESTIONS}' "
        f"group by md5(image.bytes) order by md5(image.bytes) limit {count} offset {start}"
    ).fetchall()
    if len(table) < count:
        raise SystemExit(f"{measure.QUESTIONS} has too few pictures: lower --rows or --rounds")
    lines = []
    for number, (image, question) in enumerate(table):
        (folder / f"{number}.png").write_bytes(image)
        question = " ".join([question, *(f"{(start + number) * 7 % 100}" for _ in range(words))])
        lines.append(orjson.dumps({"image": f"{number}.png", "question": question}) + b"\n")
    (folder / "questions.jsonl").write_bytes(b"".join(lines))


def run(folder: Path, url: str, start: int, options: argparse.Namespace, choices: int) -> dict[str, float]:
    folder.mkdir()
    write_questions(folder, start, options.rows, options.words)
    recipe = measure.write_recipe(folder, url, in_flight=None, samples=options.samples)
    recipe.write_text(recipe.read_text().replace("[teachers.sampling]", f"choices = {choices}\n[teachers.sampling]"))
    before, cpu_before = counters(url), cpu_of_descendants()
    spent = measure.timed(
        measure.command_of_ours(recipe, folder / "run"), folder / "log", measure.environment_of_ours()
    )
    if spent.code:
        raise SystemExit((folder / "log").read_text()[-2000:])
    after, server_cpu = counters(url), cpu_of_descendants() - cpu_before
    manifest = Manifest.read(folder / "run" / "generate")
    assert manifest is not None
    traces = manifest.counts["traces"]
    used = {name: after[name] - before[name] for name in COUNTERS}
    return {
        "traces": traces,
        "prompt tokens, answers": manifest.tokens["prompt"],
        "prompt tokens looked up": used[COUNTERS[0]],
        "of them found": used[COUNTERS[1]],
        "output tokens": sum(manifest.tokens.get(kind, 0) for kind in ("reasoning", "answer")),
        "traces/s": traces / spent.wall_s,
        "server CPU ms/trace": 1000 * server_cpu / traces,
        "client CPU ms/trace": 1000 * spent.cpu_s / traces,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=0, help="words that make each question longer")
    options = parser.parse_args()
    results: dict[int, list[dict[str, float]]] = {1: [], options.samples: []}
    with tempfile.TemporaryDirectory() as name:
        # Chunked prefill is off for the reason in peers/measure.py; small blocks, because prompts are short here.
        extra = ("--no-enable-chunked-prefill", "--generation-config", "vllm", "--block-size", "32")
        with measure.vllm_server.serve(measure.TEACHER, name=measure.SERVED, extra=extra) as url:
            run(Path(name) / "warm", url, 0, options, 1)
            for number in range(2 * options.rounds):
                choices = (1, options.samples)[(number + number // 2) % 2]
                found = run(Path(name) / str(number), url, (number + 1) * options.rows, options, choices)
                results[choices].append(found)
    print(f"| {options.rows} questions, {options.samples} traces each | " + " | ".join(results[1][0]) + " |")
    print("|---" * (1 + len(results[1][0])) + "|")
    for choices, measured in results.items():
        for figures in measured:
            print(f"| choices = {choices} | " + " | ".join(f"{value:,.1f}" for value in figures.values()) + " |")
    print("\n| median, together / single | ratio |\n|---|---|")
    for key in results[1][0]:
        together, single = (statistics.median(one[key] for one in results[n]) for n in (options.samples, 1))
        print(f"| {key} | {together / single if single else float('nan'):.3f} |")


if __name__ == "__main__":
    main()
