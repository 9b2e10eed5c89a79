"""What the HTTP client costs: requests a second and client CPU a request, against the stub server of the tests.

    python benchmarks/generate_client.py [--rows 2000] [--in-flight 256] [--kilobytes 12]

Two figures: the bare client, and the whole verb (planning, images, journal, manifest). The stub runs in its own
process and shares the machine, so on few cores it takes its part of the wall time; CPU a request does not.
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import stub_server
import tiny_models

from distill import data
from distill.recipe import load
from teacher.client import ChatClient
from teacher.generate import generate
from teacher.identity import model_of, requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--kilobytes", type=int, default=12, help="size of one completion")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, stub_server.serve(words=options.kilobytes * 100) as url:
        folder = Path(name)
        for number in range(200):
            tiny_models.picture(folder / f"{number}.png", number, size=64)
        rows = [{"image": f"{number % 200}.png", "question": f"How many? {number}"} for number in range(options.rows)]
        (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        (folder / "recipe.toml").write_text(
            f'[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "stub"\nmodel = "stub"\n'
            f'base_url = "{url}"\nmax_in_flight = {options.in_flight}\n'
        )
        _bare(folder, options.rows)
        wall, cpu = time.perf_counter(), time.process_time()
        generate(load(folder / "recipe.toml"), folder / "run")
        _print("whole verb", options.rows, time.perf_counter() - wall, time.process_time() - cpu)


def _bare(folder: Path, rows: int) -> None:
    recipe = load(folder / "recipe.toml")
    (teacher,) = recipe.teachers
    model = model_of(recipe, teacher)
    wanted = [request for sample in data.samples(recipe) for request in requests(recipe, teacher, model, sample)]

    async def ask() -> tuple[float, float]:
        async with ChatClient(teacher, model, max_pixels=10**8, max_failure_share=0.0) as client:
            await client.check()
            wall, cpu = time.perf_counter(), time.process_time()
            await client.answer(iter(wanted), lambda _request, _completion: None)
            return time.perf_counter() - wall, time.process_time() - cpu

    _print("bare client", rows, *asyncio.run(ask()))


def _print(what: str, rows: int, wall_s: float, cpu_s: float) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{what:<12} {rows} requests in {wall_s:.2f} s: {rows / wall_s:,.0f} requests/s, "
        f"{1000 * cpu_s / rows:.2f} ms CPU a request, peak memory {memory:.0f} MB"
    )


if __name__ == "__main__":
    main()
