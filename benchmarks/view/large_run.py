"""How long `distill view` takes on a run of many traces.

    python benchmarks/view/large_run.py RUN FOLDER --traces 1000000

Copies a small filtered run again and again under new ids (enlarged_run.py), then measures each request of the page at
the server, and the memory of the process. large_page.py measures them in a browser.
Takes 5 s with `--traces 3000` (two shared cores).
"""

import argparse
import resource
import time
from pathlib import Path

from enlarged_run import enlarge

from distill.view.policy import compare_policy, policy
from distill.view.trace_table import Query, TraceTable

QUERIES = {
    "first page": Query(),
    "one facet": Query(chosen={"fate": ["dropped"]}),
    "rule and verdict": Query(chosen={"rule": ["arithmetic_slip"], "answer_verdict": ["correct"]}),
    "condition": Query(where="answer_verdict = 'wrong' AND rationale_tokens > 60 AND repetition_ngram < 0.5"),
    "words": Query(words="larger digit"),
    "sorted": Query(order="-rationale_tokens"),
    "last page": Query(offset=900_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--traces", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if not arguments.folder.exists():
        enlarge(arguments.run, arguments.folder, arguments.traces)
    begin = time.perf_counter()
    table = TraceTable(arguments.folder)
    print(f"opened: {time.perf_counter() - begin:.2f} s")
    for name, query in QUERIES.items():
        begin, busy = time.perf_counter(), time.process_time()
        total = table.search(query)["total"]
        wall, cpu = time.perf_counter() - begin, time.process_time() - busy
        print(f"{name}: {total:,} traces, {wall:.2f} s, {cpu:.2f} CPU s")
    begin, busy = time.perf_counter(), time.process_time()
    own = policy(table)
    compare_policy(table, own | {"rules": own["rules"][1:]})
    wall, cpu = time.perf_counter() - begin, time.process_time() - busy
    print(f"policy without its first rule: {wall:.2f} s, {cpu:.2f} CPU s")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
