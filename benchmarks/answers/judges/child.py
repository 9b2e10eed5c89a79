"""One judge in a process of its own: reads a pair a line, writes its verdict a line.

    python child.py FILE.py FUNCTION

The function gets prediction, gold, answer type (or None) and options (or None), and gives a verdict or a bool.
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path


def main(path: str, function: str) -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # what a judge prints is no verdict
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_judge", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    judge = getattr(module, function)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        try:
            verdict = verdict_of(judge, *json.loads(line))
        except Exception:
            verdict = "wrong"  # a scorer that raises gives no point
        print(verdict, file=out, flush=True)


def verdict_of(judge, prediction, gold, answer_type, options):
    """The best verdict over several golds."""
    verdicts = [
        judge(prediction, each, answer_type, options) for each in (gold if isinstance(gold, list) else [gold])
    ]
    names = {{True: "correct", False: "wrong"}.get(verdict, verdict) for verdict in verdicts}
    return next(name for name in ("correct", "undecided", "wrong") if name in names)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE.py")
    parser.add_argument("function", metavar="FUNCTION")
    given = parser.parse_args()
    main(given.file, given.function)
