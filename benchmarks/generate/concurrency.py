"""Automatic concurrency against the best of a manual sweep, on the stub's engine and on any server.

    python benchmarks/generate/concurrency.py [--slots 100] [--seconds 10] [--rounds 2]
    python benchmarks/generate/concurrency.py --queue-hidden        # a server without /metrics
    python benchmarks/generate/concurrency.py --vllm               # a real vLLM on this machine (DISTILL_VLLM_PYTHON)

Every setting sends requests for so many seconds, starting cold, the automatic one finding its limit in that time;
settings take turns in every round. What counts is answered requests a second; the table shows the median of rounds.
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

import stub_server
import tiny_models
import vllm_server

from distill.data.images import sha256
from distill.recipe.sampling import Sampling
from distill.recipe.teachers import Teacher
from distill.types import ImageRef, Sample
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
        with stub_server.serve(slots=options.slots, token_s=0.002, slot_s=0.00002, words=TOKENS - 3) as url:
            yield url


def wanted(author: Author, folder: Path) -> Iterator[Request]:
    refs = []
    for number in range(64):
        path = tiny_models.picture(folder / f"{number}.png", number)
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

    client = ChatClient(author.teacher, author.model, urls=[url], max_pixels=10**8, max_failure_share=0.0)
    async with client:
        await client.check()
        await client.answer(get, done)
        return answered / seconds, client.replicas[0].concurrency.limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--queue-hidden", action="store_true", help="don't look at /metrics")
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with server(options, folder) as url:
            found: dict[int | None, list[float]] = {}
            limits: list[int] = []
            for _ in range(options.rounds):
                for setting in (*SWEEP, None):
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
    best = max(SWEEP, key=lambda setting: medians[setting])
    print("| in flight | requests/s | of the best |\n| --- | --- | --- |")
    for setting, median in medians.items():
        print(f"| {setting or f'automatic, ended at {limits}'} | {median:,.1f} | {median / medians[best]:.1%} |")


if __name__ == "__main__":
    main()
