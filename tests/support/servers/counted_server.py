"""The stub server as a program that a run starts. It writes down each start, and which other servers are up then.

The folder COUNTED_STARTS gets the file `starts`, with a line for each start: the name of the model, then those of the
servers that are up.
"""

import os
import runpy
import sys
from pathlib import Path

import psutil


def main() -> None:
    name, folder = sys.argv[sys.argv.index("--model") + 1], Path(os.environ["COUNTED_STARTS"])
    up = [path.suffix[1:] for path in folder.glob("*.*") if psutil.pid_exists(int(path.stem))]
    with (folder / "starts").open("a") as file:
        file.write(" ".join([name, *up]) + "\n")
    (folder / f"{os.getpid()}.{name}").touch()
    runpy.run_path(str(Path(__file__).with_name("stub_server.py")), run_name="__main__")


if __name__ == "__main__":
    main()
