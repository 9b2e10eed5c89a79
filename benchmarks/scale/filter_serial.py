"""What one agent alone does in `filter` of a run in a store while all others wait: CPU seconds by number of traces.

    python benchmarks/scale/filter_serial.py [--questions 1500 6000] [--images 500] [--folder DIR]

Answers so many questions, four times each, by a stub into a store in a folder, filters them with one agent and one
worker, and prints the CPU seconds of the steps: signals, their files, decisions by file, keys of texts and rows,
which agents share, and all else, which the agent that decides does alone. Of that, others wait for all before the
rows (`waited for`); they write rows during the rest. The last line has the seconds that a million traces add to
each, by the first and the last number of questions. The stub's texts are short, so signals cost less than those of
real rationales.
Takes 45 s with `--questions 60 120 --images 20` (two shared cores).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import stub_server
from worlds.generate_world import World

from distill.reports.text_table import table
from filters import store_run
from filters.dataset_units import DatasetUnits
from filters.decision_units import DecisionUnits
from filters.key_units import KeyUnits
from filters.signal_tables import SignalTables
from filters.signal_units import SignalUnits
from filters.stored_dataset import StoredDataset
from teacher.store_run import generate_in_store

SAMPLES = 4
UNITS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, nargs="+", default=[1500, 6000])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder, stub_server.serve(latency_s=0.0) as url:
        found = [measured(Path(folder) / str(count), url, count, chosen.images) for count in chosen.questions]
    millions = SAMPLES * (chosen.questions[-1] - chosen.questions[0]) / 1e6
    steps = list(found[0])
    rows = [
        [f"{SAMPLES * count:,} traces", *(f"{seconds[step]:.2f}" for step in steps)]
        for count, seconds in zip(chosen.questions, found, strict=True)
    ]
    if millions:
        rows.append(["a million more", *(f"{(found[-1][step] - found[0][step]) / millions:.0f}" for step in steps)])
    print(table(["CPU s", *steps], rows))


def measured(folder: Path, url: str, questions: int, images: int) -> dict[str, float]:
    """CPU seconds of each step."""
    folder.mkdir()
    world = World(folder)
    world.add_rows(questions, images=images)
    world.add_teacher(url, samples=SAMPLES, max_in_flight=64)
    world.head = (
        f'[engine]\nscratch = "scratch"\nunit_rows = {questions // UNITS}\nlease_s = 60.0\n'
        "[filter]\nworkers = 1\nrules = []\n[generate]\npatience_s = 2.0"
    )
    recipe, address = world.recipe(), f"file://{folder / 'store'}"
    generate_in_store(recipe, address, folder / "first")
    seconds = dict.fromkeys(
        (
            "signals, shared",
            "files, shared",
            "decisions, shared",
            "keys, shared",
            "rows, shared",
            "waited for",
            "alone",
        ),
        0.0,
    )

    def timed(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                seconds[step] += time.process_time() - started

        return call

    def noted(begin: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found = begin(*arguments)
            if found is not None and not seconds["waited for"]:
                seconds["waited for"] = time.process_time() - begun - sum(seconds.values())
            return found

        return call

    begun = time.process_time()
    with (
        mock.patch.object(SignalUnits, "measure", timed("signals, shared", SignalUnits.measure)),
        mock.patch.object(SignalTables, "write", timed("files, shared", SignalTables.write)),
        mock.patch.object(KeyUnits, "find", timed("keys, shared", KeyUnits.find)),
        mock.patch.object(DecisionUnits, "decide", timed("decisions, shared", DecisionUnits.decide)),
        mock.patch.object(DatasetUnits, "begin", noted(DatasetUnits.begin)),
        mock.patch.object(StoredDataset, "start", noted(StoredDataset.start)),
        mock.patch.object(DatasetUnits, "work", timed("rows, shared", DatasetUnits.work)),
    ):
        timed("alone", store_run.filter_in_store)(recipe, address, folder / "second")
    seconds["alone"] -= sum(spent for step, spent in seconds.items() if "shared" in step)
    return seconds


if __name__ == "__main__":
    main()
