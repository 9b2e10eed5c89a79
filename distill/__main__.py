"""The start of the `distill` command, which refuses what a system cannot do."""

import gc
import sys
from typing import Final

ON_WINDOWS: Final = ("filter", "view", "status", "explain")
"""Commands that need no signals and process groups of POSIX."""
_COLLECT_AFTER: Final = (20_000, 50, 100)
"""The default, after every 700 new objects, takes a tenth of the CPU time of a start and of generate, for nothing."""


def main() -> None:
    """Run the command line, or say why it cannot run here."""
    if sys.platform == "win32" and not {*sys.argv[1:2]} <= {*ON_WINDOWS, "-h", "--help", "--version"}:
        sys.exit(
            f"distill: on Windows there are the commands {', '.join(ON_WINDOWS)}; for {sys.argv[1]} use WSL 2, "
            "or the Docker images (docs/docker.md)"
        )
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        from distill.cli import main as run

        run()
    except KeyboardInterrupt:  # while modules are loaded; later the commands say more
        sys.exit(130)


if __name__ == "__main__":
    main()
