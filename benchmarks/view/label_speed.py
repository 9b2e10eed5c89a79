"""How long a person waits between two traces while labelling by keyboard, in a real browser.

    python benchmarks/view/label_speed.py RUN --labels 100 --think 3

For each trace: `--think` seconds, one key, and the wait until the next trace is drawn. RUN gets a folder `labels`;
give a copy.
Takes 8 s with `--labels 2 --think 0`; needs Chromium (two shared cores).
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from pages.browser import DESKTOP, Tab, browse, until
from servers.view_servers import viewed

from distill.trace_records.human_labels import read_labels

SHOWN = "new URLSearchParams(location.hash.slice(1)).get('id')"
DRAWN = f"{SHOWN} !== null && document.querySelector('#trace').textContent.includes({SHOWN})"


async def label(tab: Tab, address: str, count: int, think_s: float) -> list[float]:
    """The seconds that each key took."""
    await tab.open(address, DESKTOP)
    await until(tab, DRAWN)
    waits = []
    for number in range(count):
        await asyncio.sleep(think_s)
        before, begin = await tab.evaluate(SHOWN), time.perf_counter()
        key = "cw"[number % 2]
        await tab.evaluate(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}}))")
        while not await tab.evaluate(f"{SHOWN} !== {before!r} && {DRAWN}"):
            await asyncio.sleep(0.01)
        waits.append(time.perf_counter() - begin)
    return waits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--think", type=float, default=3.0)
    arguments = parser.parse_args()
    before, begin = len(read_labels(arguments.run)), time.perf_counter()
    with viewed(arguments.run) as (_, address):
        waits = sorted(browse(lambda tab: label(tab, address, arguments.labels, arguments.think)))
    labels, seconds = len(read_labels(arguments.run)) - before, time.perf_counter() - begin
    print(f"{labels:,} traces labelled in {seconds:.0f} s")
    print(f"from a key to the next trace: median {waits[len(waits) // 2]:.2f} s, at most {waits[-1]:.2f} s")


if __name__ == "__main__":
    main()
