"""How much of a real server's speed `distill generate` turns into durable traces.

    python benchmarks/generate/real_server.py [--rows 750] [--samples 2] [--rounds 3]

One vLLM server (of the interpreter that DISTILL_VLLM_PYTHON names; default: .venv-vllm) serves a shipped tiny
teacher. A bare client (benchmarks/generate/peers/bare_client.py: bodies encoded beforehand, a fixed number in flight,
nothing written down) and the command `distill generate` take turns with the same requests: prompts, images, seeds,
sampling. The bare client's number in flight is the best of a sweep made first.

- steady: output tokens a second from the 10th to the 90th percentile of the completions. Ours by `created` of the
  durable records, the bare client's by arrival.
- end to end: ours from the start of the command to its exit with the manifest written, interpreter and planning
  included; the bare client's from its first request to its last answer, start not included.

On few cores the client takes its CPU from the server, which is why CPU a request is reported.
Takes 30 to 60 s with `--rows 10 --rounds 1 --sweep 8` (two shared cores). Needs vLLM.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import measure

BARE = Path(__file__).resolve().parent / "peers" / "bare_client.py"
TARGETS = {"steady": 0.97, "end_to_end": 0.90}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of one client."""

    client: str
    requests: int
    tokens: int
    steady: float
    end_to_end: float
    wall_s: float
    cpu_ms: float
    texts: dict[str, str]


def steady(arrived: Sequence[tuple[float, int]]) -> float:
    """Tokens a second between the 10th and the 90th percentile of the completions."""
    ordered = sorted(arrived)
    first, last = len(ordered) // 10, len(ordered) * 9 // 10
    seconds = ordered[last][0] - ordered[first][0]
    return sum(tokens for _, tokens in ordered[first + 1 : last + 1]) / seconds


def bare(folder: Path, url: str, rows: Path, in_flight: int) -> Result:
    job = measure.write_job(folder, url, rows, in_flight=in_flight)
    spent = measure.timed([sys.executable, BARE, "run", job], folder / "log")
    if spent.code:
        raise SystemExit(f"the bare client failed:\n{(folder / 'log').read_text()[-2000:]}")
    found = orjson.loads((folder / "bare.json").read_bytes())
    tokens = sum(count for _, count in found["arrived"])
    wall_s = found["ended"] - found["started"]
    ids = [orjson.loads(line)["id"] for line in rows.read_bytes().splitlines()]
    return Result(
        client=f"bare client, {in_flight} in flight",
        requests=len(found["arrived"]),
        tokens=tokens,
        steady=steady([(when, count) for when, count in found["arrived"]]),
        end_to_end=tokens / wall_s,
        wall_s=wall_s,
        cpu_ms=1000 * found["cpu_s"] / len(found["arrived"]),
        texts={ids[int(number)]: text for number, text in found["texts"].items()},
    )


def ours(folder: Path, recipe: Path) -> Result:
    folder.mkdir(parents=True)
    run = folder / "run"
    spent = measure.timed(measure.command_of_ours(recipe, run), folder / "log", measure.environment_of_ours())
    if spent.code:
        raise SystemExit(f"distill generate ended with {spent.code}:\n{(folder / 'log').read_text()[-2000:]}")
    made = measure.records(run)
    arrived = [
        (
            datetime.fromisoformat(record["created"]).timestamp(),
            record["usage"]["reasoning"] + record["usage"]["answer"],
        )
        for record in made
    ]
    tokens = sum(count for _, count in arrived)
    return Result(
        client="distill generate",
        requests=len(made),
        tokens=tokens,
        steady=steady(arrived),
        end_to_end=tokens / spent.wall_s,
        wall_s=spent.wall_s,
        cpu_ms=1000 * spent.cpu_s / len(made),
        texts={record["id"]: record["text"] for record in made},
    )


def startup() -> float:
    """Seconds until the command line answers, work not included."""
    with tempfile.TemporaryDirectory() as name:
        command = [*measure.command_of_ours(Path(), Path())[:3], "generate", "--help"]
        return measure.timed(command, Path(name) / "log", measure.environment_of_ours()).wall_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=750)
    parser.add_argument("--samples", type=int, default=2, help="traces a question, each one request with its seed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sweep", type=int, nargs="+", default=[128, 256, 384])
    parser.add_argument("--in-flight", type=int, help="requests in flight for ours; default: left to the client")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with measure.real_server(folder) as url:
            print(f"server up after {time.monotonic() - began:.0f} s", file=sys.stderr)
            measure.write_questions(folder, options.rows)
            recipe = measure.write_recipe(folder, url, in_flight=options.in_flight, samples=options.samples)
            rows = measure.write_rows(folder, recipe)
            some = folder / "some.jsonl"
            some.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[: max(options.sweep) * 2]))
            bare(folder / "warm", url, some, options.sweep[0])
            sweep = {count: bare(folder / f"sweep{count}", url, some, count).steady for count in options.sweep}
            best = max(sweep, key=lambda count: sweep[count])
            shown = ", ".join(f"{count}: {rate:,.0f}" for count, rate in sweep.items())
            print(f"bare client by requests in flight, tokens/s: {shown}", file=sys.stderr)
            results: list[Result] = []
            for number in range(options.rounds):
                for result in (
                    bare(folder / f"bare{number}", url, rows, best),
                    ours(folder / f"ours{number}", recipe),
                ):
                    results.append(result)
                    print(f"{result.client}: {result.wall_s:.1f} s, {result.steady:,.0f} tokens/s", file=sys.stderr)
    report(results, options.rows * options.samples)
    print(f"\nStart of the command line: {startup():.2f} s. Whole benchmark: {time.monotonic() - began:.0f} s.")


def report(results: Sequence[Result], wanted: int) -> None:
    print("| round | client | requests | tokens | steady tokens/s | end-to-end tokens/s | wall s | CPU ms/request |")
    print("|---|---|---|---|---|---|---|---|")
    for number, one in enumerate(results):
        print(
            f"| {number // 2 + 1} | {one.client} | {one.requests} | {one.tokens:,} | {one.steady:,.0f} "
            f"| {one.end_to_end:,.0f} | {one.wall_s:.2f} | {one.cpu_ms:.2f} |"
        )
    pairs = list(zip(results[::2], results[1::2], strict=True))
    print("\n| ours / bare | each round | median | target |\n|---|---|---|---|")
    for name, target in TARGETS.items():
        ratios = [getattr(mine, name) / getattr(other, name) for other, mine in pairs]
        each = ", ".join(f"{ratio:.1%}" for ratio in ratios)
        print(f"| {name.replace('_', ' ')} | {each} | {statistics.median(ratios):.1%} | {target:.0%} |")
    for other, mine in pairs:
        if not (other.requests == mine.requests == wanted):
            print(f"\nUnequal work: {other.requests} and {mine.requests} of {wanted} requests")
    first, second = pairs[0]
    same = sum(second.texts.get(key) == text for key, text in first.texts.items())
    print(f"\nEqual texts in both clients' first round: {same / len(first.texts):.1%} of {len(first.texts)}.")


if __name__ == "__main__":
    main()
