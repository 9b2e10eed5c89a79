"""Automatic concurrency against the best of a manual sweep, on the stub's engine and on any server.

    python benchmarks/generate/concurrency.py [--slots 100] [--seconds 10] [--rounds 2]
    python benchmarks/generate/concurrency.py --queue-hidden        # a server without /metrics
    python benchmarks/generate/concurrency.py --simulate    # silent servers of many kinds, on a clock of their own
    python benchmarks/generate/concurrency.py --vllm               # a real vLLM on this machine (DISTILL_VLLM_PYTHON)

Every setting sends requests for so many seconds, starting cold, the automatic one finding its limit in that time;
settings take turns in every round. What counts is answered requests a second; the table shows the median of rounds.
Takes 26 s with `--seconds 1 --rounds 1 --slots 8`, 14 s with `--simulate` (two shared cores).
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import stub_server, vllm_server
from servers.simulated_server import LATENCIES, drawn_latencies, seconds_of
from students import tiny_models

from distill.data.images.image_files import sha256
from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.engines.connect import ClientSettings
from teacher.engines.http.concurrency import BLIND_START, ConcurrencyLimit
from teacher.engines.http.http_client import ChatClient
from teacher.messages.completion import Completion
from teacher.messages.request import Author, Model, Request

SWEEP = (4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = 64


@contextmanager
def server(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    if options.vllm:
        model = tiny_models.build(folder / "model", spread=0.3, end_weight=-50.0)
        with vllm_server.serve(model, extra=("--max-num-seqs", str(options.slots))) as url:
            yield url
    else:
        token_s = options.latency_s / TOKENS if options.latency_s else 0.002
        with stub_server.serve(slots=options.slots, token_s=token_s, slot_s=0.00002, words=TOKENS - 3) as url:
            yield url


def wanted(author: Author, folder: Path) -> Iterator[Request]:
    refs = []
    for number in range(64):
        path = tiny_models.make_image(folder / f"{number}.png", number)
        refs.append(ImageRef(sha256=sha256(path.read_bytes()), path=str(path)))
    for number in itertools.count():
        sample = Sample(
            id=f"{number}", images=(refs[number % len(refs)],), question=f"How many red circles? {number}"
        )
        yield author.first_attempt(sample, 0)


async def rate(author: Author, url: str, waiting: Iterator[Request], seconds: float) -> tuple[float, int]:
    """Requests answered a second, and the limit in the end."""
    answered = 0
    until = time.monotonic() + seconds

    async def get() -> Request | None:
        return next(waiting) if time.monotonic() < until else None

    def done(_: Request, completion: Completion) -> None:
        nonlocal answered
        assert not completion.error, completion.error
        answered += time.monotonic() < until

    settings = ClientSettings(teacher=author.teacher, model=author.model, max_pixels=10**8, max_failure_share=0.0)
    async with ChatClient(settings, urls=[url]) as client:
        await client.check()
        await client.answer(get, done)
        return answered / seconds, client.replicas[0].concurrency.limit


def simulate() -> None:
    """Time of the automatic limit beside the best fixed one, for servers that show nothing."""
    sizes = [(slots, requests) for slots in (4, 16, 64, 256, 1024) for requests in (2000, 10_000)]
    print(
        "| start | mean latency | latencies |", " | ".join(f"{slots} slots, {count:,}" for slots, count in sizes), "|"
    )
    starts = {"unknown": None, "text after 2 %": 0.02, "text after 20 %": 0.2, "text after 90 %": 0.9, "known": None}
    for name, begin_share in starts.items():
        for mean_s in (3.0, 15.0, 60.0):
            for kind in LATENCIES:
                ratios = []
                for slots, count in sizes:
                    latencies = drawn_latencies(kind, mean_s, count)
                    known = name == "known"
                    limit = ConcurrencyLimit(start=slots if known else BLIND_START, warm=known, longest_s=300.0)
                    seconds = seconds_of(limit, slots, latencies, begin_share=begin_share)
                    ratios.append(seconds / seconds_of(slots, slots, latencies))
                print(
                    f"| {name} | {mean_s:g} s | {kind} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--latency-s", type=float, help="of a request to the stub; default: 0.13 and more")
    parser.add_argument("--sweep", type=int, nargs="+", default=SWEEP, help="fixed numbers in flight")
    parser.add_argument("--queue-hidden", action="store_true", help="don't look at /metrics")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--simulate", action="store_true", help="simulated servers that show nothing")
    options = parser.parse_args()
    if options.simulate:
        simulate()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with server(options, folder) as url:
            found: dict[int | None, list[float]] = {}
            limits: list[int] = []
            for _ in range(options.rounds):
                for setting in (*options.sweep, None):
                    teacher = Teacher(
                        name="t",
                        model=str(folder / "model") if options.vllm else "stub",
                        base_url=url,
                        served_model="served" if options.vllm else None,
                        backend="openai" if options.queue_hidden else "vllm",
                        max_in_flight=setting,
                        sampling=Sampling(max_tokens=TOKENS, temperature=0.0),
                    )
                    author = Author(teacher=teacher, model=Model(name="stub", revision="", local=False), seed=0)
                    answered, limit = asyncio.run(rate(author, url, wanted(author, folder), options.seconds))
                    found.setdefault(setting, []).append(answered)
                    if setting is None:
                        limits.append(limit)
    medians = {setting: statistics.median(rates) for setting, rates in found.items()}
    best = max(options.sweep, key=lambda setting: medians[setting])
    print("| in flight | requests/s | of the best |\n| --- | --- | --- |")
    for setting, median in medians.items():
        print(f"| {setting or f'automatic, ended at {limits}'} | {median:,.1f} | {median / medians[best]:.1%} |")


if __name__ == "__main__":
    main()
