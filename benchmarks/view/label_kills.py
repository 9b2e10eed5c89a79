"""Kill the server of `distill view` with SIGKILL at random moments while labels are sent, and count what is lost.

    python benchmarks/view/label_kills.py RUN --kills 20

RUN gets a folder `labels`; give a copy.
Takes 12 s with `--kills 2` (two shared cores).
"""

import argparse
import random
import signal
import subprocess
import sys
import threading
from http.client import HTTPException
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers.view_servers import Visitor

from distill.trace_records.human_labels import LABELS, read_labels
from distill.view.trace_table import Query, TraceTable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    chance, confirmed, number, count, lost, wrong = random.Random(0), {}, 0, 0, 0, 0
    traces = [row["id"] for row in TraceTable(arguments.run).search(Query(limit=100_000))["rows"]]
    for _ in range(arguments.kills):
        command = [sys.executable, "-m", "distill", "view", str(arguments.run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            visitor = Visitor(server.stdout.readline().strip())
            timer = threading.Timer(chance.uniform(0.05, 1.5), server.send_signal, [signal.SIGKILL])
            timer.start()
            while server.poll() is None:
                trace, label = traces[number % len(traces)], chance.choice(LABELS)
                number += 1
                try:
                    if visitor.ask("/api/labels", {"trace": trace, "label": label})[0] == 200:
                        confirmed[trace], count = label, count + 1
                    else:
                        raise SystemExit(f"the label of {trace} was refused")
                except (OSError, HTTPException):
                    break
        kept = read_labels(arguments.run)
        lost = sum(trace not in kept for trace in confirmed)
        wrong = sum(trace in kept and kept[trace].label != label for trace, label in confirmed.items())
    print(f"{arguments.kills} kills, {count:,} labels confirmed, {lost} lost, {wrong} changed")


if __name__ == "__main__":
    main()
