"""The start of the `distill` command, which refuses a system whose locks and signals it does not know."""

import sys


def main() -> None:
    """Run the command line, or say why it cannot run here."""
    if sys.platform == "win32":
        sys.exit("distill: Windows is not supported; use WSL 2, or the Docker images (docs/docker.md)")
    try:
        from distill.cli import main as run

        run()
    except KeyboardInterrupt:  # while modules are loaded; later the commands say more
        sys.exit(130)


if __name__ == "__main__":
    main()
