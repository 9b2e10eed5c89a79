"""What the pocket world is made of: pictures with their kinds and captions, and charts' rows from open tables.

Reads what setup.py has unpacked. A picture belongs to one split by its name, a chart by the table that it is drawn
from, so that no test question shows a picture or a table that was seen in training.
"""

import csv
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = {
    "animal": ("animals",),
    "food": ("food/fruit", "food/vegetables", "food/nuts", "food/dessert"),
    "vehicle": ("vehicles",),
    "plant": ("plants/flowers", "plants/trees"),
    "building": ("town/houses", "town/monuments"),
}
"""Kinds of things to the folders of pictures that show them."""
PLURAL = {kind: f"{kind}s" for kind in KINDS} | {"food": "foods"}
TEST_SHARE = 0.25
LARGEST = 99
"""Largest value in a chart; series are scaled to whole numbers of two digits."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A picture of one thing."""

    path: Path
    name: str
    kind: str
    split: str


@dataclass(frozen=True, kw_only=True)
class Series:
    """The rows of one chart before some are chosen."""

    table: str
    title: str
    rows: tuple[tuple[str, int], ...]
    split: str


def things(folder: Path) -> list[Thing]:
    """Every captioned picture of a kind, in the order of their paths."""
    found = []
    for kind, places in KINDS.items():
        for path in sorted(path for place in places for path in (folder / place).rglob("*.png")):
            text = path.with_suffix(".txt")
            name = caption(text.read_text(encoding="utf-8", errors="replace")) if text.is_file() else ""
            if name:
                place = path.relative_to(folder).as_posix()
                found.append(Thing(path=path, name=name, kind=kind, split=split_of(place)))
    return found


def others(folder: Path) -> list[Thing]:
    """Pictures of no kind, without names: more to see for a tower that learns features."""
    known = {thing.path for thing in things(folder)}
    paths = (path for path in sorted(folder.rglob("*.png")) if path not in known)
    found = ((path, split_of(path.relative_to(folder).as_posix())) for path in paths)
    return [Thing(path=path, name="", kind="", split=split) for path, split in found]


def caption(text: str) -> str:
    """The name in the English first line, without article and remarks; empty where it is no short one."""
    line = re.sub(r"\(.*?\)", "", text.partition("\n")[0])
    line = re.split(r"[.,;:!?]", line)[0].strip()
    name = re.sub(r"^(an?|the|some)\s+", "", line, flags=re.IGNORECASE).strip().lower()
    return name if name.isascii() and 1 <= len(name.split()) <= 3 else ""


def split_of(name: str) -> str:
    digest = hashlib.sha256(name.encode()).digest()
    return "test" if digest[0] < TEST_SHARE * 256 else "train"


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a table becomes series: rows with the same `group`, a label and a value each, means where several."""

    table: str
    title: str
    label: Callable[[dict[str, Any]], str]
    value: Callable[[dict[str, Any]], float]
    group: Callable[[dict[str, Any]], str] = lambda row: ""
    total: bool = False
    split: str = "train"


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _month(row: dict[str, Any]) -> str:
    return MONTHS[int(row["date"][5:7]) - 1]


TABLES = (
    Recipe(
        table="gapminder.json",
        title="Life expectancy {}",
        label=lambda row: row["country"],
        value=lambda row: row["life_expect"],
        group=lambda row: str(row["year"]),
    ),
    Recipe(
        table="gapminder-health-income.csv",
        title="Income, thousands",
        label=lambda row: row["country"],
        value=lambda row: float(row["income"]) / 1000,
    ),
    Recipe(
        table="population_engineers_hurricanes.csv",
        title="Hurricanes",
        label=lambda row: row["state"],
        value=lambda row: float(row["hurricanes"]),
    ),
    Recipe(
        table="birdstrikes.csv",
        title="Bird strikes {}",
        label=lambda row: row["Phase of flight"],
        value=lambda row: 1 / 3,
        group=lambda row: row["Flight Date"][:4],
        total=True,
    ),
    Recipe(
        table="weather.csv",
        title="Warmest hour {}, mean",
        label=_month,
        value=lambda row: float(row["temp_max"]) if row["location"] == "New York" else float("nan"),
        group=lambda row: f"New York {row['date'][:4]}",
    ),
    Recipe(
        table="obesity.json",
        title="Obesity, %",
        label=lambda row: row["state"],
        value=lambda row: 100 * row["rate"],
        split="test",
    ),
    Recipe(
        table="unemployment-across-industries.json",
        title="Jobless {}, ten thousands",
        label=lambda row: row["series"],
        value=lambda row: row["count"] / 10,
        group=lambda row: f"{MONTHS[row['month'] - 1]} {row['year']}",
        split="test",
    ),
    Recipe(
        table="seattle-weather.csv",
        title="Days in Seattle, {}",
        label=lambda row: row["weather"],
        value=lambda row: 1.0,
        group=lambda row: f"{_month(row)} {row['date'][:4]}",
        total=True,
        split="test",
    ),
)


def series(folder: Path, allowed: dict[str, str]) -> list[Series]:
    """All series of at least three usable rows, of the tables whose licence allows it."""
    usable = (recipe for recipe in TABLES if recipe.table in allowed)
    return [one for recipe in usable for one in _series(recipe, read_rows(folder / recipe.table))]


def read_rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines())) if path.suffix == ".csv" else json.loads(text)


def _series(recipe: Recipe, rows: list[dict[str, Any]]) -> list[Series]:
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        value = recipe.value(row)
        if value == value:
            cells[recipe.group(row)][recipe.label(row)].append(value)
    found = []
    for group, by_label in cells.items():
        points = []
        for label, values in by_label.items():
            value = round(sum(values) if recipe.total else sum(values) / len(values))
            if label.isascii() and 1 < len(label) <= 12 and 1 <= value <= LARGEST:
                points.append((label, value))
        if len(points) >= 3:
            title = recipe.title.format(group)
            found.append(Series(table=recipe.table, title=title, rows=tuple(points), split=recipe.split))
    return found
