"""Whether a person can label a trace every few seconds by keyboard, in a real browser.

    python benchmarks/view/label_speed.py RUN --labels 100 --think 3

One key every `--think` seconds; a key waits until its trace is painted. The page measures with its own clock how long
the next trace takes to be painted: what is left of `--think` is the time to look at it. The time of all labels runs
from the first painted trace to the moment when the server has stored the last label; the start of server and browser
is printed apart. RUN gets a folder `labels`; give a copy.
Takes 8 s with `--labels 2 --think 0`; needs Chromium (two shared cores).
"""

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from pages.browser import DESKTOP, Tab, browse, until
from servers.view_servers import viewed

from distill.trace_records.human_labels import read_labels

SHOWN = "new URLSearchParams(location.hash.slice(1)).get('id')"
DRAWN = f"{SHOWN} !== null && document.querySelector('#trace').textContent.includes({SHOWN})"
PRESS = f"""new Promise((painted) => {{
  const before = {SHOWN}, begin = performance.now();
  const look = () => {SHOWN} !== before && {DRAWN}
    ? requestAnimationFrame(() => setTimeout(() => painted((performance.now() - begin) / 1000)))
    : setTimeout(look, 1);
  document.dispatchEvent(new KeyboardEvent("keydown", {{ key: "KEY", bubbles: true }}));
  look();
}})"""
"""Presses a key; gives the seconds until the next trace is painted (a task after its frame)."""


@dataclass(slots=True)
class Labelled:
    """Seconds of a session; `begun` is the moment of the first painted trace."""

    begun: float = 0.0
    waits: list[float] = field(default_factory=list)
    all_s: float = 0.0


async def label(tab: Tab, address: str, count: int, every_s: float) -> Labelled:
    await tab.open(address, DESKTOP)
    await until(tab, DRAWN)
    session = Labelled(begun=time.perf_counter())
    for number in range(count):
        due = session.begun + (number + 1) * every_s
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        session.waits.append(await tab.evaluate(PRESS.replace("KEY", "cw"[number % 2])))
    await until(tab, "waitingLabels === 0")
    session.all_s = time.perf_counter() - session.begun
    return session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--think", type=float, default=3.0)
    arguments = parser.parse_args()
    before, load, begin = len(read_labels(arguments.run)), os.getloadavg()[0], time.perf_counter()
    with viewed(arguments.run) as (_, address):
        session = browse(lambda tab: label(tab, address, arguments.labels, arguments.think))
    assert session is not None  # browse gives None without Chromium
    labels, waits = len(read_labels(arguments.run)) - before, sorted(session.waits)
    print(f"{session.begun - begin:.1f} s until the first trace is painted: start of server and browser")
    print(f"{labels:,} traces labelled in {session.all_s:.1f} s, one key every {arguments.think:g} s")
    print(
        f"from a key to the next painted trace: median {waits[len(waits) // 2]:.3f} s, mean "
        f"{sum(waits) / len(waits):.3f} s, at most {waits[-1]:.3f} s"
    )
    print(f"load of the machine: {load:.1f} at the begin, {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
