"""Pictures, workbooks and other helpers of this set."""

import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from layouts.package import Made, PublicLayout
from PIL import Image, ImageDraw

COLOURS: Final = {
    "red": (205, 40, 40),
    "green": (40, 150, 60),
    "blue": (45, 80, 200),
    "yellow": (230, 205, 40),
    "black": (20, 20, 20),
    "white": (250, 250, 250),
    "orange": (240, 140, 30),
    "purple": (130, 50, 160),
}
GERMAN: Final = {
    "red": "rot",
    "green": "grün",
    "blue": "blau",
    "yellow": "gelb",
    "black": "schwarz",
    "white": "weiß",
    "orange": "orange",
    "purple": "violett",
}
SHAPES: Final = ("circle", "square", "triangle")


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture and what can be asked about it."""

    image: Image.Image
    count: str
    colour: str
    shape: str
    code: str


def draw(rng: random.Random, size: tuple[int, int] | None = None) -> Picture:
    """Draw some equal shapes on a mottled ground, and a code at the bottom."""
    width, height = size or (rng.randrange(140, 220), rng.randrange(120, 170))
    image = Image.new("RGB", (width, height), tuple(rng.randrange(170, 215) for _ in range(3)))
    pen = ImageDraw.Draw(image)
    for _ in range(60):
        x, y, grey = rng.randrange(width), rng.randrange(height), rng.randrange(150, 220)
        pen.rectangle((x, y, x + rng.randrange(1, 9), y + rng.randrange(1, 9)), fill=(grey, grey, grey))
    count, colour, shape = rng.randrange(1, 7), rng.choice(list(COLOURS)), rng.choice(SHAPES)
    for i in range(count):
        x, y, side = 8 + (i % 3) * (width // 3), 8 + (i // 3) * (height // 3), min(width, height) // 5
        if shape == "circle":
            pen.ellipse((x, y, x + side, y + side), fill=COLOURS[colour])
        elif shape == "square":
            pen.rectangle((x, y, x + side, y + side), fill=COLOURS[colour])
        else:
            pen.polygon([(x, y + side), (x + side, y + side), (x + side // 2, y)], fill=COLOURS[colour])
    code = f"{rng.choice('KLMPRTX')}{rng.randrange(100, 1000)}"
    pen.rectangle((4, height - 22, 46, height - 4), fill=(255, 255, 255))
    pen.text((8, height - 19), code, fill=(0, 0, 0))
    return Picture(image, str(count), colour, shape, code)


def held_out(*, refusable: bool = False) -> Callable[[Callable[[Path, random.Random], Made]], PublicLayout]:
    """Make a layout of this group; the name of the function is that of the layout."""
    return lambda write: PublicLayout(write.__name__, "heldout-3", refusable, write, "own")


def offer(rng: random.Random, right: str, pool: Sequence[str], count: int = 4) -> tuple[list[str], int]:
    """Choices with the right one among them, and its index."""
    choices = [right, *rng.sample([each for each in pool if each != right], count - 1)]
    rng.shuffle(choices)
    return choices, choices.index(right)


def other(rng: random.Random, right: str, pool: Sequence[str]) -> str:
    """Something that is not right."""
    return rng.choice([each for each in pool if each != right])


Cell = str | int | None


def _column(index: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]


def write_workbook(
    path: Path, sheets: Mapping[str, Sequence[Sequence[Cell]]], merged: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Write an Excel file as Excel does, with shared strings; `merged` has ranges of merged cells of a sheet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    strings: dict[str, int] = {}
    files, used = {}, 0
    for number, (name, rows) in enumerate(sheets.items(), 1):
        lines = []
        for i, cells in enumerate(rows, 1):
            line = ""
            for j, cell in enumerate(cells):
                if isinstance(cell, int):
                    line += f'<c r="{_column(j)}{i}"><v>{cell}</v></c>'
                elif cell:
                    used += 1
                    line += f'<c r="{_column(j)}{i}" t="s"><v>{strings.setdefault(cell, len(strings))}</v></c>'
            lines.append(f'<row r="{i}">{line}</row>')
        ranges = (merged or {}).get(name, [])
        cells_merged = "".join(f'<mergeCell ref="{each}"/>' for each in ranges)
        tail = f'<mergeCells count="{len(ranges)}">{cells_merged}</mergeCells>' if ranges else ""
        files[f"xl/worksheets/sheet{number}.xml"] = (
            f'{head}<worksheet xmlns="{main}"><sheetData>{"".join(lines)}</sheetData>{tail}</worksheet>'
        )
    texts = "".join(f'<si><t xml:space="preserve">{escape(text)}</t></si>' for text in strings)
    files["xl/sharedStrings.xml"] = (
        f'{head}<sst xmlns="{main}" count="{used}" uniqueCount="{len(strings)}">{texts}</sst>'
    )
    files["xl/styles.xml"] = (
        f'{head}<styleSheet xmlns="{main}"><fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
        '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/>'
        '</fill></fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        '<cellXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/></cellXfs>'
        '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
    )
    names = "".join(f'<sheet name="{escape(n)}" sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(sheets, 1))
    files["xl/workbook.xml"] = (
        f'{head}<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{names}</sheets></workbook>'
    )
    parts = [("worksheet", f"worksheets/sheet{i}.xml") for i in range(1, len(sheets) + 1)]
    parts += [("styles", "styles.xml"), ("sharedStrings", "sharedStrings.xml")]
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{office}/{part}" Target="{target}"/>'
        for i, (part, target) in enumerate(parts, 1)
    )
    files["xl/_rels/workbook.xml.rels"] = (
        f'{head}<Relationships xmlns="{package}/relationships">{links}</Relationships>'
    )
    files["_rels/.rels"] = (
        f'{head}<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="rId1" Type="{office}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>'
    )
    overrides = "".join(
        f'<Override PartName="/xl/{target}" ContentType="{kind}.{part}+xml"/>' for part, target in parts
    )
    files["[Content_Types].xml"] = (
        f'{head}<Types xmlns="{package}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
        f'ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f"{overrides}</Types>"
    )
    order = ["[Content_Types].xml", "_rels/.rels", "xl/workbook.xml"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in [*order, *(each for each in files if each not in order)]:
            archive.writestr(zipfile.ZipInfo(name, (2026, 3, 2, 9, 0, 0)), files[name])
