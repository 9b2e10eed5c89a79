"""`distill generate` beside other ways to ask the same server: time, CPU, and what is left of an answer.

    python benchmarks/generate/peers.py --environments .peers [--only stub] [--rounds 2]

Each peer runs in an environment of its own, as a process of its own, with the driver in benchmarks/generate/peers/:

    python3.11 -m venv .peers/distilabel; .peers/distilabel/bin/pip install "distilabel[openai]" requests
    python3.11 -m venv .peers/curator; .peers/curator/bin/pip install bespokelabs-curator
    python3.11 -m venv .peers/datatrove
    .peers/datatrove/bin/pip install datatrove orjson pyarrow xxhash aiofiles aiosqlite httpx pandas

A peer whose environment is missing is left out. The bare client (bodies encoded beforehand, nothing written down) is
what no client can beat. Three measurements:

- kept: 100 questions on a stub, of which ten are cut by length and five have reasoning only; then 100 of which two
  are refused. What of the answers is in a peer's output, and how often the server was asked.
- stub: the clients' own cost, on a server that answers at once with 12 KB.
- vllm: the real server of tests/support/servers/vllm_server.py (DISTILL_VLLM_PYTHON names its interpreter) with a
  shipped teacher.

Clients take turns. Times are those of whole processes, interpreter start and imports included, and so is CPU; the
bare client's are, too. Tokens a second count what the server generated, repeated requests included, as useless as
they are; `asked` shows them. Not measured: crashes.
Takes 7 s with `--only stub --rows 100 --rounds 1` where no peer is installed (two shared cores).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import measure

DRIVERS = Path(__file__).resolve().parent / "peers"
PACKAGES = {"distilabel": "distilabel", "curator": "bespokelabs-curator", "datatrove": "datatrove"}
BAD_ENDS = dict.fromkeys(range(0, 100, 10), " (cut)") | dict.fromkeys((1, 21, 41, 61, 81), " (silent)")
REFUSALS = dict.fromkeys((2, 52), " (refused)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A way to ask. `read` gives its output as rows of question, text, reasoning, finish_reason, tokens."""

    name: str
    run: Callable[[Path, Path, str], measure.Spent]
    read: Callable[[Path], list[dict[str, Any]]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    client: str
    spent: measure.Spent
    asked: int
    tokens: int


def clients(environments: Path, in_flight: int) -> list[Client]:
    """The bare client, ours, and every peer that has an environment."""

    def driver(python: Path, script: str) -> Callable[[Path, Path, str], measure.Spent]:
        def run(folder: Path, questions: Path, url: str) -> measure.Spent:
            job = measure.write_job(folder, url, questions / "rows.jsonl", in_flight=in_flight)
            return measure.timed([python, DRIVERS / script, "run", job], folder / "log")

        return run

    def reader(python: Path, script: str) -> Callable[[Path], list[dict[str, Any]]]:
        def read(folder: Path) -> list[dict[str, Any]]:
            command = [python, DRIVERS / script, "read", folder / "job.json"]
            rows: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            return rows

        return read

    def ours(folder: Path, questions: Path, url: str) -> measure.Spent:
        folder.mkdir(parents=True)
        recipe = measure.write_recipe(questions, url, in_flight=in_flight)
        command = measure.command_of_ours(recipe, folder / "run")
        return measure.timed(command, folder / "log", measure.environment_of_ours())

    def ours_read(folder: Path) -> list[dict[str, Any]]:
        rows = [record for record in measure.records(folder / "run") if not record["error"]]
        count = lambda usage: usage["reasoning"] + usage["answer"]  # noqa: E731
        return [{**row, "tokens": count(row["usage"])} for row in rows]

    here = Path(sys.executable)
    found = [
        Client(name="bare client", run=driver(here, "bare_client.py"), read=None),
        Client(name="distill generate", run=ours, read=ours_read),
    ]
    for name, package in PACKAGES.items():
        python = environments / name / "bin" / "python"
        if not python.exists():
            print(f"{name} is left out: there is no {python}", file=sys.stderr)
            continue
        show = f"from importlib.metadata import version; print(version('{package}'))"
        known = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True).stdout.strip()
        script = f"with_{name}.py"
        found.append(Client(name=f"{name} {known}", run=driver(python, script), read=reader(python, script)))
    return found


@contextmanager
def stub(latency_s: float = 0.0) -> Iterator[str]:
    command = [sys.executable, DRIVERS / "stub.py", f"--latency-s={latency_s}"]
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def prepare(folder: Path, url: str, count: int, *, marks: dict[int, str] | None = None) -> Path:
    """A folder of questions with what every client reads."""
    questions = measure.write_questions(folder, count, marks=marks)
    measure.write_rows(questions, measure.write_recipe(questions, url, in_flight=None))
    return questions


def kept(everyone: Sequence[Client], folder: Path, title: str, marks: dict[int, str]) -> None:
    """What is left of 100 answers, some of them bad."""
    head = "asked | in flight | seeds | answers | cut ones | finish_reason | reasoning | tokens"
    print(f"\n### 100 questions, {title}\n\n| client | {head} |\n|{'---|' * 9}")
    cut_ones = sum("cut" in mark for mark in marks.values())
    with stub(latency_s=0.5) as url:
        questions = prepare(folder / title, url, 100, marks=marks)
        for client in everyone:
            if client.read is None:
                continue
            tell(url, "reset", b"")
            work = folder / f"{title} {client.name}"
            spent = client.run(work, questions, url)
            seen = json.loads(tell(url, "seen"))
            if spent.code:
                print(f"| {client.name} | {seen['asked']} | failed: {tail(work)} |")
                continue
            rows = [row for row in client.read(work) if row["text"] is not None]
            cut = sum("I see them in" in row["text"] for row in rows)
            parts = [seen["asked"], seen["most"], seen["seeds"], len(rows), f"{cut} of {cut_ones}"]
            parts += [sum(bool(row[key]) for row in rows) for key in ("finish_reason", "reasoning", "tokens")]
            print(f"| {client.name} | " + " | ".join(map(str, parts)) + " |", flush=True)


def race(everyone: Sequence[Client], folder: Path, questions: Path, url: str, rounds: int) -> list[Result]:
    """All clients, in turn. One that fails is told and left out from then on."""
    results: list[Result] = []
    out: set[str] = set()
    for number in range(rounds):
        for client in everyone:
            if client.name in out:
                continue
            before = measure.counts(url)
            work = folder / f"{number} {client.name}"
            spent = client.run(work, questions, url)
            after = measure.counts(url)
            if spent.code:
                print(f"\n{client.name} failed: {tail(work)}")
                out.add(client.name)
                continue
            asked, tokens = after.requests - before.requests, after.tokens - before.tokens
            results.append(Result(client=client.name, spent=spent, asked=asked, tokens=tokens))
            print(f"{client.name}: {spent.wall_s:.1f} s", file=sys.stderr)
    return results


def show(results: Sequence[Result], title: str, count: int) -> None:
    """Medians of the rounds."""
    print(f"\n### {title}\n")
    print("| client | asked | wall s (each) | requests/s | tokens/s | CPU ms/request | times ours |")
    print("|---|---|---|---|---|---|---|")
    names = list(dict.fromkeys(result.client for result in results))
    walls = {name: [one.spent.wall_s for one in results if one.client == name] for name in names}
    mine = statistics.median(walls.get("distill generate", [float("nan")]))
    for name in names:
        runs = [one for one in results if one.client == name]
        wall_s = statistics.median(walls[name])
        asked = statistics.median(one.asked for one in runs)
        each = ", ".join(f"{one:.1f}" for one in walls[name])
        print(
            f"| {name} | {asked:.0f} | {wall_s:.2f} ({each}) | {count / wall_s:,.0f} "
            f"| {statistics.median(one.tokens / one.spent.wall_s for one in runs):,.0f} "
            f"| {1000 * statistics.median(one.spent.cpu_s for one in runs) / count:.2f} "
            f"| {wall_s / mine:.1f} |",
            flush=True,
        )


def tell(url: str, route: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/{route}", data=body, timeout=30) as response:
        found: bytes = response.read()
        return found


def tail(work: Path) -> str:
    lines = (work / "log").read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing printed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, default=Path(".peers"))
    parser.add_argument("--only", choices=["kept", "stub", "vllm"], nargs="+", default=["kept", "stub", "vllm"])
    parser.add_argument("--clients", nargs="+", help="words that names must begin with; default: every client")
    parser.add_argument("--rows", type=int, default=1000, help="questions on the stub")
    parser.add_argument("--real-rows", type=int, default=400, help="questions on the real server")
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    began = time.monotonic()
    everyone = clients(options.environments.absolute(), options.in_flight)
    if options.clients:
        everyone = [one for one in everyone if one.name.startswith(tuple(options.clients))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "kept" in options.only:
            kept(everyone, folder, "10 answers cut by length, 5 without content", BAD_ENDS)
            kept(everyone, folder, "2 refused with HTTP 400", REFUSALS)
        if "stub" in options.only:
            with stub() as url:
                questions = prepare(folder / "stub", url, options.rows)
                results = race(everyone, folder / "on stub", questions, url, options.rounds)
            show(results, f"Stub server, {options.rows} image questions, {options.in_flight} in flight", options.rows)
        if "vllm" in options.only:
            with measure.real_server(folder) as url:
                questions = prepare(folder / "real", url, options.real_rows)
                if everyone[0].run(folder / "warm", questions, url).code:
                    raise SystemExit(f"the first requests failed: {tail(folder / 'warm')}")
                results = race(everyone, folder / "on vllm", questions, url, options.rounds)
            title = f"vLLM, {options.real_rows} image questions, {options.in_flight} in flight"
            show(results, title, options.real_rows)
    print(f"\nWhole benchmark: {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
