"""One judge in a process of its own: reads a pair a line, writes its verdict a line.

    python child.py FILE.py FUNCTION

The function gets prediction, gold, answer type (or None) and options (or None), and gives a verdict or a bool.
"""

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
            verdict = judge(*json.loads(line))
        except Exception:
            verdict = False  # a scorer that raises gives no point
        print({True: "correct", False: "wrong"}.get(verdict, verdict), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
