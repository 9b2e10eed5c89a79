"""Build the documentation as a site: `make docs` writes dist/site, which opens from the folder or from any server.

Pages stand in the repository where their readers look for them; the site needs them below one folder. Links between
pages stay as they are, because every page keeps its place relative to the others.
"""

import logging
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = (
    "*.md",
    "LICENSE",
    "CITATION.cff",
    "docs/**/*",
    "recipes/*.toml",
    "recipes/*.md",
    "recipes/*/*.md",
    "recipes/tiny-steps/*.py",
)


def collect(pages: Path) -> None:
    """Copy every page, and what pages show or link, to the folder `pages`."""
    shutil.rmtree(pages, ignore_errors=True)
    for pattern in PATTERNS:
        for path in filter(Path.is_file, ROOT.glob(pattern)):
            target = pages / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def build(folder: Path) -> Path:
    """Write the site below `folder`; its start page. A link to a page or heading that is not there is an error."""
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config import load_config

    collect(folder / "pages")
    build_pages(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(folder / "pages"), site_dir=str(folder / "site")))
    return folder / "site" / "index.html"


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    sys.stdout.write(f"{build(ROOT / 'dist')}\n")
