"""What the HTTP client costs: requests a second and client CPU a request, against the stub server of the tests.

    python benchmarks/generate/generate_client.py [--rows 10000] [--in-flight 256] [--kilobytes 12]
    python benchmarks/generate/generate_client.py --rows 1000000 --in-flight 2000 --kilobytes 1 --seconds 120

Two figures: the bare client, and the whole verb (planning, images, journal, manifest), each on one core with the stub
on another where there are two. With `--seconds` the verb is stopped after so long at work.
Takes 16 s with `--rows 300` (two shared cores).
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import stub_server
from students import tiny_models

from distill.data import reader
from distill.recipe.loading import load
from teacher.engines.connect import ClientSettings
from teacher.engines.http.http_client import ChatClient
from teacher.messages.request import Request, model_of, requests

VERB = """
import resource, sys, time
from distill.recipe import load
from teacher.generate import generate
wall, cpu = time.perf_counter(), time.process_time()
last = {}
def watch(progress):
    if not last:
        last.update(planned=time.perf_counter() - wall, planned_cpu=time.process_time() - cpu)
    last["done"] = progress.done
    if progress.done and time.perf_counter() - wall - last["planned"] > float(sys.argv[3]):
        raise KeyboardInterrupt
try:
    generate(load(sys.argv[1]), sys.argv[2], on_progress=watch)
except KeyboardInterrupt:
    pass
print(last["planned"], last["planned_cpu"], time.perf_counter() - wall, time.process_time() - cpu, last["done"],
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--kilobytes", type=int, default=12, help="size of one completion")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop the verb after so long at work")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.sched_setaffinity(0, cores[-1:])  # inherited by the stub
        with stub_server.serve(words=options.kilobytes * 100) as url:
            os.sched_setaffinity(0, cores[:1])
            for number in range(200):
                tiny_models.make_image(folder / f"{number}.png", number, size=64)
            with (folder / "rows.jsonl").open("wb") as file:
                for number in range(options.rows):
                    row = {"image": f"{number % 200}.png", "question": f"How many? {number}"}
                    file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            (folder / "recipe.toml").write_text(
                f'[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "stub"\nmodel = "stub"\n'
                f'base_url = "{url}"\nmax_in_flight = {options.in_flight}\n'
            )
            _bare(folder, min(options.rows, 10_000))
            _verb(folder, options.seconds)


def _bare(folder: Path, rows: int) -> None:
    recipe = load(folder / "recipe.toml")
    (teacher,) = recipe.teachers
    model = model_of(recipe, teacher)
    samples = (sample for sample, _ in zip(reader.samples(recipe), range(rows), strict=False))
    wanted = [request for sample in samples for request in requests(recipe, teacher, model, sample)]
    waiting = iter(wanted)

    async def get() -> Request | None:
        return next(waiting, None)

    async def ask() -> tuple[float, float]:
        settings = ClientSettings(teacher=teacher, model=model, max_pixels=10**8, max_failure_share=0.0)
        async with ChatClient(settings, urls=teacher.urls) as client:
            await client.check()
            wall, cpu = time.perf_counter(), time.process_time()
            await client.answer(get, lambda _request, _completion: None)
            return time.perf_counter() - wall, time.process_time() - cpu

    wall_s, cpu_s = asyncio.run(ask())
    _print("bare client", len(wanted), wall_s, cpu_s)


def _verb(folder: Path, seconds: float) -> None:
    command = [sys.executable, "-c", VERB, str(folder / "recipe.toml"), str(folder / "run"), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    planned, planned_cpu, wall_s, cpu_s, traces, memory = map(float, done.stdout.split())
    _print("whole verb", int(traces), wall_s - planned, cpu_s - planned_cpu)
    print(f"before that, planning: {planned:.1f} s, {planned_cpu:.1f} s CPU; peak memory of all {memory:.0f} MB")


def _print(what: str, rows: int, wall_s: float, cpu_s: float) -> None:
    print(
        f"{what:<12} {rows:,} requests in {wall_s:.2f} s: {rows / wall_s:,.0f} requests/s, "
        f"{1000 * cpu_s / rows:.3f} ms CPU a request",
        flush=True,
    )


if __name__ == "__main__":
    main()
