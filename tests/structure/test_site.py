"""The documentation builds as a site: every page is in its menu, no link is broken, no other host is asked."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    start: Path = runpy.run_path(str(ROOT / "docs" / "build_site.py"))["build"](tmp_path_factory.mktemp("site"))
    return start.parent


def test_every_page_is_in_the_menu(site: Path) -> None:
    menu = (site / "index.html").read_text(encoding="utf-8")
    pages = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("recipes/**/README.md"),
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
    ]
    missing = [
        page.relative_to(ROOT).as_posix()
        for page in pages
        if "packages" not in page.parts
        and f'href="{re.sub("README.md$", "index.html", page.relative_to(ROOT).as_posix()).replace(".md", ".html")}"'
        not in menu
    ]
    assert missing == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//|<link[^>]+rel=\"?(?:stylesheet|preconnect)\"?[^>]+//"
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
