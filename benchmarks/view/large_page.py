"""How long a person waits for `distill view` of a million traces, in a real browser, and how much memory it takes.

    python benchmarks/view/large_page.py RUN FOLDER --traces 1000000 [--unfiltered]

RUN is a small filtered run; it is copied under new ids until it has so many traces, into FOLDER, which is used again.
`--unfiltered` shows the same run without its filter stage. The server is a process of its own. For each action: the
time until the list is drawn, and until the trace beside it is drawn, too.
Takes 16 s with `--traces 3000`; needs Chromium (two shared cores).
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from enlarged_run import enlarge
from pages.browser import DESKTOP, Tab, browse

from distill.artifacts.layout import RECIPE

_WATCH = """
window.seen = {};
const watched = {list: '#rows li', trace: '#trace .rationale'};
const watch = () => {
  for (const [name, drawn] of Object.entries(watched))
    if (!(name in seen) && document.querySelector(drawn)) seen[name] = performance.now();
  if (Object.keys(seen).length < 2) requestAnimationFrame(watch);
};
requestAnimationFrame(watch);
"""
_ACT = """(async () => {
  const begin = performance.now(), before = found, ended = (() => ACTION)();
  while (found === before) await new Promise(requestAnimationFrame);
  const list = performance.now() - begin;
  await ended;
  await new Promise(requestAnimationFrame);
  return [list / 1000, (performance.now() - begin) / 1000, found.total, byId("problem").textContent];
})()"""
_FILTERED = {
    "facet: dropped": "toggle('fate', 'dropped')",
    "a second facet: wrong": "toggle('answer_verdict', 'wrong')",
    "a third facet: the first rule": "toggle('rule', found.facets.rule[0][0])",
    "no facet": "(history.replaceState(null, '', '#'), search())",
    "condition of three signals": "ask({where: `answer_verdict = 'wrong' AND rationale_tokens > 60 AND "
    "repetition_ngram < 0.5`})",
    "condition of the side table": "ask({where: 'corpus_cluster_size > 1'})",
    "no condition": "ask({where: ''})",
    "ordered by a signal": "ask({order: '-rationale_tokens'})",
    "ordered by a signal, with a facet": "toggle('answer_verdict', 'correct')",
}
_ALWAYS = {
    "no choice": "(history.replaceState(null, '', '#'), search())",
    "one word": "ask({words: 'digit'})",
    "three words": "ask({words: 'how many the'})",
    "no words": "ask({words: ''})",
    "ordered by teacher": "ask({order: '-teacher'})",
    "next page": "ask({order: '', offset: '50', id: ''})",
    "page at 900,000": "ask({offset: '900000', id: ''})",
}
_POLICY = {"policy opened": "openBench()", "policy without its first rule": "(rules.splice(0, 1), compare())"}
_TIMED = (
    "(async () => { const begin = performance.now(); await ACTION; return (performance.now() - begin) / 1000; })()"
)


async def measure(tab: Tab, address: str, filtered: bool, think_s: float) -> list[str]:
    """The seconds of the first page and of every action, as lines; a person reads for `think_s` before each."""
    tab.patience_s = 600.0
    await tab.call("Page.enable")
    await tab.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
    await tab.open(address, DESKTOP)
    while not await tab.evaluate("'trace' in seen"):
        await asyncio.sleep(0.05)
    paint = await tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    seen = await tab.evaluate("seen")
    lines = [
        f"first paint {paint / 1000:.2f} s, list {seen['list'] / 1000:.2f} s, trace {seen['trace'] / 1000:.2f} s"
    ]
    for name, action in ((_FILTERED if filtered else {}) | _ALWAYS).items():
        await asyncio.sleep(think_s)
        listed, all_drawn, total, problem = await tab.evaluate(_ACT.replace("ACTION", action))
        lines.append(f"{name}: {total:,} traces, list {listed:.2f} s, trace {all_drawn:.2f} s {problem}")
    for name, action in _POLICY.items() if filtered else ():
        await asyncio.sleep(think_s)
        lines.append(f"{name}: {await tab.evaluate(_TIMED.replace('ACTION', action)):.2f} s")
    return lines + [f"console: {problem}" for problem in tab.problems]


def without_filter(run: Path) -> Path:
    """The same run before its filter stage, beside it."""
    folder = run.with_name(f"{run.name}-unfiltered")
    folder.mkdir(exist_ok=True)
    if not (folder / "generate").exists():
        (folder / "generate").symlink_to(run.resolve() / "generate")
        (folder / RECIPE).write_bytes((run / RECIPE).read_bytes())
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--traces", type=int, default=1_000_000)
    parser.add_argument("--unfiltered", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds from the address to its opening")
    parser.add_argument("--think", type=float, default=0.0, help="seconds before each action")
    arguments = parser.parse_args()
    if not arguments.folder.exists():
        enlarge(arguments.run, arguments.folder, arguments.traces)
    run = without_filter(arguments.folder) if arguments.unfiltered else arguments.folder
    begin = time.perf_counter()
    command = [sys.executable, "-m", "distill", "view", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        print(f"from the command to the address: {time.perf_counter() - begin:.2f} s", flush=True)
        time.sleep(arguments.pause)
        print(*browse(lambda tab: measure(tab, address, not arguments.unfiltered, arguments.think)), sep="\n")
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        print(f"memory of the server: {peak / 1024:.0f} MB at most")
        server.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
