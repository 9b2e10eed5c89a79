"""Links, anchors and file names in the documents lead to something, and the trees they draw are the tree."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HISTORY = {"docs/log.md", "CHANGELOG.md"}
"""They keep the module paths of their time."""
_PACKAGES = ("distill", "teacher", "filters", "student")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE = re.compile(
    r"(?<![\w/-])(?:distill|teacher|filters|student|tests|benchmarks|docs|recipes)/[\w/.-]*\w"
    r"\.(?:py|md|toml|html|css|js|jsonl|json|parquet|txt|png|ipynb)\b"
)
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def documents(*patterns: str) -> dict[str, str]:
    command = ["git", "ls-files", "--", *(patterns or ["*.md"])]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split() if not name.startswith("tests/data/")]
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in names if (ROOT / name).is_file()}


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    result = set()
    for heading in re.findall(r"^#+ +(.+?) *$", _FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        result.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return result


def broken_links(pages: dict[str, str]) -> Iterator[str]:
    for name, text in pages.items():
        for target in _LINK.findall(_FENCE.sub("", text)):
            if "://" in target or target.startswith("mailto:"):
                continue
            path, _, anchor = target.partition("#")
            file = ((ROOT / name).parent / path).resolve()
            if path and not file.exists():
                yield f"{name}: {target}"
            elif anchor and anchor not in anchors(file.read_text(encoding="utf-8") if path else text):
                yield f"{name}: {target} (no such heading)"


def test_every_link_and_anchor_of_the_documents_leads_somewhere() -> None:
    assert list(broken_links(documents())) == []


def test_a_broken_link_and_a_broken_anchor_are_found() -> None:
    pages = {"docs/x.md": "[a](nowhere.md) [b](log.md#no-such-heading) [c](#here) [d](log.md#index)\n# Here\n"}
    assert list(broken_links(pages)) == [
        "docs/x.md: nowhere.md",
        "docs/x.md: log.md#no-such-heading (no such heading)",
    ]


def test_nothing_but_an_empty_line_follows_a_table() -> None:
    pages = {
        name: _FENCE.sub("", text)
        for name, text in documents().items()
        if not {"templates", "card.md"} & set(name.split("/"))
    }
    followed = re.compile(r"^ *\|.*\|\n *([^|\s].*)$", re.MULTILINE)
    assert followed.findall("| a |\n| - |\n- b") == ["- b"], "it would be shown as a row of the table"
    assert {name: found for name, text in pages.items() if (found := followed.findall(text))} == {}


def test_every_file_that_a_document_or_a_source_file_names_exists() -> None:
    missing = []
    code = [f"{package}/*" for package in _PACKAGES]
    others = ("benchmarks/*.py", "recipes/*.toml", ".ci/*", "Makefile", "Dockerfile", "*.yml", "pyproject.toml")
    read = {name: text for name, text in documents(*code, *others).items() if not name.endswith(".json")}
    for page, text in (documents() | read).items():
        own = re.findall(r"^```\w+ (\S+)", text, re.MULTILINE)  # files that the page shows how to write
        if page not in HISTORY:
            missing += [
                f"{page}: {file}" for file in _FILE.findall(text) if file not in own and not (ROOT / file).exists()
            ]
    assert missing == []


def test_the_tree_of_the_readme_names_every_package_folder() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = text.partition("## Where things are")[2].partition("```\n")[2].partition("```")[0]
    folders = {path.parent.name for package in _PACKAGES for path in (ROOT / package).glob("*/__init__.py")}
    assert {folder for folder in folders if f"{folder}/" not in tree} == set()


def test_the_index_of_the_log_lists_every_section() -> None:
    text = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    index = text.partition("\n## Index\n")[2].partition("\n## ")[0]
    sections = anchors("\n".join(re.findall(r"^## .+$", _FENCE.sub("", text), re.MULTILINE))) - {"index"}
    assert {section for section in sections if f"(#{section})" not in index} == set()
