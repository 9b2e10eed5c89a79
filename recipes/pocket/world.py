"""Questions about the pocket world with gold answers that are computed from what was drawn, never read.

    python world.py              # data/*.parquet beside this file, from packages/

Six kinds: recognise, count, compare, read, compute, and read a page. `questions` are for teachers, `captions` and
`instruct` for the first two stages, `test` is held out by picture and by table.
"""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drawing
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from setup import HERE, PACKAGES, STAMPS, TABLES
from sources import KINDS, PLURAL, Series, Thing, series, things

SEED = 20261123
ROWS = {"captions": 600, "instruct": 600, "questions": 900, "test": 600}
GOODS = ("tea", "coffee", "bread", "milk", "soup", "cake", "rice", "juice", "salad", "cheese", "eggs", "fish")
SHOPS = ("Corner Shop", "City Market", "Green Cafe", "Old Mill", "Sea View", "North Star")
NOTICES = ("Room", "Floor", "Bus", "Desk", "Gate", "Seat", "Hall", "Track")
PLACES = ("Library", "Museum", "Town Hall", "Clinic", "Theatre", "Swimming Pool")
Generator = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a picture shows. `content` is what golds are computed from."""

    domain: str
    content: dict[str, Any]
    drawn: drawing.Drawing = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class World:
    """Pictures and tables of one split."""

    things: dict[str, list[Thing]]
    series: list[list[Series]]
    """By table, so that a table with many groups does not crowd out the others."""

    def scene(self, domain: str, rng: Generator) -> Scene:
        return {"things": self._things, "charts": self._chart, "pages": self._page}[domain](rng)

    def _things(self, rng: Generator) -> Scene:
        amount = 1 if rng.random() < 0.25 else int(rng.integers(3, 8))
        few = rng.choice(list(self.things), size=min(3, len(self.things)), replace=False)
        chosen = []
        for kind in rng.choice(few, size=amount):
            chosen.append(self.things[kind][rng.integers(len(self.things[kind]))])
        drawn, places = drawing.draw_things(chosen, rng)
        content = {"names": [thing.name for thing in chosen], "kinds": [thing.kind for thing in chosen]}
        return Scene(domain="things", content={**content, "places": places}, drawn=drawn)

    def _chart(self, rng: Generator) -> Scene:
        table = self.series[rng.integers(len(self.series))]
        one = table[rng.integers(len(table))]
        amount = int(rng.integers(3, min(5, len(one.rows)) + 1))
        rows = [one.rows[index] for index in sorted(rng.choice(len(one.rows), size=amount, replace=False))]
        content = {"title": one.title, "rows": rows, "source": one.table}
        return Scene(domain="charts", content=content, drawn=drawing.draw_chart(one.title, rows, rng))

    def _page(self, rng: Generator) -> Scene:
        if rng.random() < 0.75:
            title = str(rng.choice(SHOPS))
            goods = rng.choice(GOODS, size=int(rng.integers(3, 6)), replace=False)
            rows = [(str(good), str(rng.integers(1, 21))) for good in goods]
        else:
            title = str(rng.choice(PLACES))
            facts = rng.choice(NOTICES, size=int(rng.integers(3, 6)), replace=False)
            rows = [(str(fact), str(rng.integers(1, 100))) for fact in facts]
        content = {"title": title, "rows": rows, "receipt": title in SHOPS}
        return Scene(domain="pages", content=content, drawn=drawing.draw_page(title, rows, rng))


DOMAINS = ("things", "charts", "pages")


def load(split: str, packages: Path = PACKAGES) -> World:
    """The world of one split, from what setup.py has fetched."""
    manifest = json.loads((packages / "manifest.json").read_text(encoding="utf-8"))
    by_kind: dict[str, list[Thing]] = {kind: [] for kind in KINDS}
    for thing in things(packages / STAMPS.name):
        if thing.split == split:
            by_kind[thing.kind].append(thing)
    by_table: dict[str, list[Series]] = {}
    for one in series(packages / TABLES.name, manifest["tables"]):
        if one.split == split:
            by_table.setdefault(one.table, []).append(one)
    return World(things={kind: found for kind, found in by_kind.items() if found}, series=list(by_table.values()))


# --- questions ------------------------------------------------------------------------------------------------------

Asked = tuple[str, str, str]
"""Kind, question and gold answer."""
CHOICE = "Is this an animal, a food, a vehicle, a plant or a building?"


def ask(scene: Scene, rng: Generator) -> Asked:
    """A question that has to be worked out, or for one thing recognised."""
    return {"things": _ask_things, "charts": _ask_chart, "pages": _ask_page}[scene.domain](scene.content, rng)


def perceive(scene: Scene, rng: Generator) -> Asked:
    """A question of one step."""
    content = scene.content
    if scene.domain == "things":
        if len(content["kinds"]) == 1:
            return "recognise", CHOICE, content["kinds"][0]
        return "total", "How many things are in the picture?", str(len(content["kinds"]))
    label, value = content["rows"][rng.integers(len(content["rows"]))]
    if scene.domain == "charts":
        return "read", f"What is the value of {label}?", str(value)
    return "read page", f"What stands beside {label}?", str(value)


def _ask_things(content: dict[str, Any], rng: Generator) -> Asked:
    kinds = content["kinds"]
    if len(kinds) == 1:
        return "recognise", CHOICE, kinds[0]
    shown = sorted(set(kinds))
    others = [kind for kind in KINDS if kind not in shown]
    first = str(rng.choice(shown))
    if rng.random() < 0.5 or (len(shown) == 1 and not others):
        return "count", f"How many {PLURAL[first]} are in the picture?", str(kinds.count(first))
    second = str(rng.choice([kind for kind in (*shown, *others[:1]) if kind != first]))
    if kinds.count(first) < kinds.count(second):
        first, second = second, first
    gold = kinds.count(first) - kinds.count(second)
    return "compare", f"How many more {PLURAL[first]} than {PLURAL[second]} are in the picture?", str(gold)


def _ask_chart(content: dict[str, Any], rng: Generator) -> Asked:
    rows = content["rows"]
    values = [value for _, value in rows]
    kind = rng.choice(["read", "difference", "range"], p=[0.25, 0.4, 0.35])
    if kind == "range":
        return "compute", "What is the highest value minus the lowest value?", str(max(values) - min(values))
    (first, high), (second, low) = (rows[index] for index in rng.choice(len(rows), size=2, replace=False))
    if kind == "read":
        return "read", f"What is the value of {first}?", str(high)
    if high < low:
        first, second, high, low = second, first, low, high
    return "compare", f"How much higher is {first} than {second}?", str(high - low)


def _ask_page(content: dict[str, Any], rng: Generator) -> Asked:
    rows = content["rows"]
    if not content["receipt"] or rng.random() < 0.2:
        first, one = rows[rng.integers(len(rows))]
        return "read page", f"What stands beside {first}?", one
    chosen = [rows[index] for index in rng.choice(len(rows), size=int(rng.integers(2, 4)), replace=False)]
    *first, last = (name for name, _ in chosen)
    total = sum(int(price) for _, price in chosen)
    return "compute", f"What do {', '.join(first)} and {last} cost together?", str(total)


def caption(scene: Scene) -> str:
    """What a picture shows in reading order, without the heading of a chart or a page."""
    content = scene.content
    if scene.domain != "things":
        return ", ".join(f"{label} {value}" for label, value in content["rows"])
    kinds = content["kinds"]
    if len(kinds) == 1:
        return str(kinds[0])
    rows: dict[int, list[str]] = {}
    for place, kind in zip(content["places"], kinds, strict=True):
        rows.setdefault(place // drawing.GRID, []).append(kind)
    lines = (f"{('Top', 'Middle', 'Bottom')[row]}: {', '.join(names)}" for row, names in sorted(rows.items()))
    return ". ".join(lines)


def table(scene: Scene) -> dict[str, str]:
    """A chart's table as the reports and the grounding signal read it."""
    lines = [f"{label},{value}" for label, value in scene.content["rows"]]
    return {"table": "\n".join(["label,value", *lines])}


def row(scene: Scene, asked: Asked) -> dict[str, Any]:
    kind, question, answer = asked
    buffer = io.BytesIO()
    scene.drawn.image.save(buffer, "PNG")
    facts = {**scene.content, "kind": kind, **(table(scene) if scene.domain == "charts" else {})}
    return {
        "image": {"bytes": buffer.getvalue(), "path": None},
        "question": question,
        "answer": answer,
        "domain": scene.domain,
        "difficulty": kind,
        "meta": json.dumps(facts),
    }


def rows(world: World, count: int, seed: int, make: Callable[[Scene, Generator], Asked]) -> list[dict[str, Any]]:
    """So many rows, the domains in turn."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        scene = world.scene(DOMAINS[number % len(DOMAINS)], rng)
        found.append(row(scene, make(scene, rng)))
    return found


def build(folder: Path, packages: Path = PACKAGES, sizes: dict[str, int] = ROWS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    train, test = load("train", packages), load("test", packages)
    makers: dict[str, Callable[[Scene, Generator], Asked]] = {
        "captions": lambda scene, rng: ("caption", "Describe the picture.", caption(scene)),
        "instruct": perceive,
        "questions": ask,
        "test": ask,
    }
    for number, (name, count) in enumerate(sizes.items()):
        made = rows(test if name == "test" else train, count, SEED + number, makers[name])
        pq.write_table(pa.Table.from_pylist(made), folder / f"{name}.parquet")
        print(f"{name}: {len(made)} rows", flush=True)


if __name__ == "__main__":
    sys.exit(build(HERE / "data"))
