"""What a whole `distill generate` costs beside a bare client, as processes from their start to their end.

    python benchmarks/generate/generate_speed.py [--rows 10000] [--latency-s 0.02] [--words 100] [--rounds 3]
        [--tree OTHER]

Both ask a stub server the same questions about images, with the same number of requests in flight. The bare client
(benchmarks/generate/peers/bare_client.py) encodes every body beforehand, checks nothing and keeps nothing. CPU time
is user and system time of the process, which a busy machine changes less than wall time. Each `--tree` is another
checkout of this project, measured by turns with this one. The clients have one core, the server another one. A
first run of each is not counted: it compiles the modules, which an installation has done.
Takes 13 s with `--rows 300 --rounds 1` (two shared cores).
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import measure
from servers import stub_server
from students import tiny_models

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--latency-s", type=float, default=0.02)
    parser.add_argument("--words", type=int, default=100, help="length of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tree", type=Path, action="append", default=[], help="another checkout")
    options = parser.parse_args()
    options.tree = [tree.resolve() for tree in options.tree]
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)  # Python would import from here before it looks at PYTHONPATH
        os.sched_setaffinity(0, cores[-1:])  # inherited by the stub
        with stub_server.serve(words=options.words, latency_s=options.latency_s) as url:
            os.sched_setaffinity(0, cores[:1])
            recipe = _write_questions(folder, url, options)
            job = _write_job(folder, url, options)
            _compare(folder, recipe, job, options)


def _write_questions(folder: Path, url: str, options: argparse.Namespace) -> Path:
    for number in range(IMAGES):
        tiny_models.make_image(folder / f"{number}.png", number, size=64)
    rows = ({"image": f"{number % IMAGES}.png", "question": f"How many? {number}"} for number in range(options.rows))
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "stub"\nmodel = "stub"\n'
        f'base_url = "{url}"\nmax_in_flight = {options.in_flight}\n'
    )
    return recipe


def _write_job(folder: Path, url: str, options: argparse.Namespace) -> Path:
    rows = (
        {"image": str(folder / f"{number % IMAGES}.png"), "question": f"How many? {number}", "seed": number}
        for number in range(options.rows)
    )
    (folder / "job.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    job = {"url": url, "model": "stub", "rows": str(folder / "job.jsonl"), "out": str(folder)}
    path = folder / "job.json"
    path.write_bytes(orjson.dumps({**job, "in_flight": options.in_flight, "temperature": 0.7, "max_tokens": 4096}))
    return path


def _compare(folder: Path, recipe: Path, job: Path, options: argparse.Namespace) -> None:
    spent: dict[str, list[measure.Spent]] = {}
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    for turn in range(options.rounds + 1):
        bare = [sys.executable, ROOT / "benchmarks" / "generate" / "peers" / "bare_client.py", "run", job]
        spent.setdefault("bare client", []).append(measure.timed(bare, folder / "log", compiled))
        for tree in (*options.tree, ROOT):
            name = "this tree" if tree == ROOT else str(tree)
            run = folder / f"run {turn} {name.replace('/', '_')}"
            command = measure.command_of_ours(recipe, run)
            used = measure.timed(command, folder / "log", {**compiled, "PYTHONPATH": str(tree)})
            if used.code or len(measure.records(run)) != options.rows:
                raise SystemExit(f"{name}: exit code {used.code}:\n{(folder / 'log').read_text()[-2000:]}")
            spent.setdefault(name, []).append(used)
    spent = {name: runs[1:] for name, runs in spent.items()}
    bare_wall, bare_cpu = _median(spent["bare client"])
    for name, runs in spent.items():
        wall, cpu = _median(runs)
        each = ", ".join(f"{1000 * run.cpu_s / options.rows:.3f}" for run in runs)
        print(
            f"{name:<20} {wall:6.2f} s ({wall / bare_wall:.2f}x bare), {1000 * cpu / options.rows:.3f} ms CPU a "
            f"request ({1000 * (cpu - bare_cpu) / options.rows:+.3f} to bare; runs: {each})"
        )


def _median(runs: list[measure.Spent]) -> tuple[float, float]:
    return statistics.median(run.wall_s for run in runs), statistics.median(run.cpu_s for run in runs)


if __name__ == "__main__":
    main()
