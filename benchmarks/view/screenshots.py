"""Photographs the pages of `distill view` for the documents: traces and students, light and dark, desktop and phone.

    python benchmarks/view/screenshots.py RUN --out FOLDER

RUN is a finished run, best one of `distill run tiny`. Says also what the console of the browser says.
Takes 19 s; needs Chromium (two shared cores).
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from pages.browser import DESKTOP, PHONE, Tab, browse, until
from servers.view_servers import viewed

PAGES = {
    "view": ("/", "!!document.querySelector('#trace .rationale')"),
    "view-students": ("/students", "document.querySelectorAll('article').length > 0"),
}
LOADED = "[...document.images].every((image) => image.complete)"


async def photograph(tab: Tab, address: str, out: Path) -> list[str]:
    """Write the images; what the browser complained about."""
    for name, (path, ready) in PAGES.items():
        for screen, size in (("", DESKTOP), ("-phone", PHONE)):
            for shade, dark in (("", False), ("-dark", True)):
                await tab.open(address, size, dark=dark)  # the token becomes a cookie
                await tab.open(address.partition("/?")[0] + path, size, dark=dark)
                await until(tab, ready)
                await until(tab, LOADED)
                await tab.screenshot(out / f"{name}{screen}{shade}.png", height=size[1])
    return tab.problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with viewed(arguments.run) as (_, address):
        problems = browse(lambda tab: photograph(tab, address, arguments.out))
    print("\n".join(problems) or "the console is empty")


if __name__ == "__main__":
    main()
