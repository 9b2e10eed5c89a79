"""Tables as people keep them: CSV of Excel, workbooks, a database."""

import csv
import io
import random
import sqlite3
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from layouts.package import Made, row, save_image
from layouts.scenes import Scene
from layouts.second_set.languages import ask_in, blind, kind_of


@blind("own")
def own_excel_csv_german(folder: Path, rng: random.Random) -> Made:
    """`CSV UTF-8` of a German Excel: byte order mark, semicolons, quoted cells with semicolons, German headers, an
    empty last line.
    """
    rows, lines = [], []
    for i in range(10):
        scene = Scene(rng)
        name = f"Foto {i + 1:02d}.jpg"
        image = save_image(scene.image, folder / "Bilder" / name)
        question, answer = ask_in(scene, "de", kind_of(i))
        lines.append([i + 1, name, question, answer, "geprüft; siehe Liste" if i % 3 == 0 else "", "12,5"])
        rows.append(row(question, answer, [image]))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
    writer.writerow(["Nr.", "Bilddatei", "Frage", "Antwort", "Bemerkung", "Größe (kB)"])
    writer.writerows(lines)
    (folder / "Fragen zu den Bildern.csv").write_bytes(text.getvalue().encode("utf-8-sig"))
    return "", rows


@blind("own")
def own_csv_windows_1252(folder: Path, rng: random.Random) -> Made:
    """`CSV` of a French Excel: Windows-1252 and semicolons; pictures beside the table."""
    rows, lines = [], []
    for i in range(9):
        scene = Scene(rng)
        name = f"DSC_{200 + i:04d}.JPG"
        image = save_image(scene.image, folder / name)
        question, answer = ask_in(scene, "fr", kind_of(i))
        lines.append([name, question, answer])
        rows.append(row(question, answer, [image]))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
    writer.writerow(["Fichier", "Question", "Réponse"])
    writer.writerows(lines)
    (folder / "questions.csv").write_bytes(text.getvalue().encode("cp1252"))
    return "", rows


@blind("own")
def own_unicode_text_utf16(folder: Path, rng: random.Random) -> Made:
    """`Unicode Text` of Excel: UTF-16 with tabs, ending `.txt`."""
    rows, lines = [], ["Image\tQuestion\tAnswer"]
    for i in range(9):
        scene = Scene(rng)
        name = f"scan{i + 1}.png"
        image = save_image(scene.image, folder / "scans" / name)
        question, answer = scene.ask(kind_of(i))
        lines.append(f"scans\\{name}\t{question}\t{answer}")
        rows.append(row(question, answer, [image]))
    (folder / "questions.txt").write_bytes("\r\n".join([*lines, ""]).encode("utf-16"))
    return "", rows


def write_xlsx(path: Path, sheets: dict[str, list[list[str | int]]]) -> None:
    """A workbook as Excel writes it, with shared strings."""
    strings: list[str] = []

    def cell(value: str | int, at: str) -> str:
        if isinstance(value, int):
            return f'<c r="{at}"><v>{value}</v></c>'
        if value not in strings:
            strings.append(value)
        return f'<c r="{at}" t="s"><v>{strings.index(value)}</v></c>'

    main, relations = (
        "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
        "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
    )
    head, package = (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n',
        "http://schemas.openxmlformats.org/package/2006",
    )
    parts = {}
    for number, lines in enumerate(sheets.values(), 1):
        body = "".join(
            f'<row r="{y}">'
            + "".join(cell(value, f"{chr(65 + x)}{y}") for x, value in enumerate(line) if value != "")
            + "</row>"
            for y, line in enumerate(lines, 1)
        )
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f'{head}<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>'
        )
    names = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{i}" r:id="rId{i}"/>' for i, name in enumerate(sheets, 1)
    )
    parts["xl/workbook.xml"] = (
        f'{head}<workbook xmlns="{main}" xmlns:r="{relations}"><sheets>{names}</sheets></workbook>'
    )
    kinds = [("worksheet", f"worksheets/sheet{i}.xml") for i in range(1, len(sheets) + 1)] + [
        ("sharedStrings", "sharedStrings.xml")
    ]
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{relations}/{kind}" Target="{target}"/>'
        for i, (kind, target) in enumerate(kinds, 1)
    )
    parts["xl/_rels/workbook.xml.rels"] = (
        f'{head}<Relationships xmlns="{package}/relationships">{links}</Relationships>'
    )
    items = "".join(f"<si><t>{escape(each)}</t></si>" for each in strings)
    parts["xl/sharedStrings.xml"] = (
        f'{head}<sst xmlns="{main}" count="{len(strings)}" uniqueCount="{len(strings)}">{items}</sst>'
    )
    parts["_rels/.rels"] = (
        f'{head}<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="rId1" Type="{relations}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    )
    office = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    kind = "".join(
        f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{office}.worksheet+xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    parts["[Content_Types].xml"] = (
        f'{head}<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{office}.sheet.main+xml"/>{kind}'
        f'<Override PartName="/xl/sharedStrings.xml" ContentType="{office}.sharedStrings+xml"/></Types>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in sorted(parts, key=lambda each: each != "[Content_Types].xml"):
            file.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), parts[name])


@blind("own")
def own_xlsx_two_sheets(folder: Path, rng: random.Random) -> Made:
    """A workbook: the questions in its first sheet, notes in the second."""
    rows, lines = [], [["Photo", "Question", "Correct answer", "Checked by"]]
    for i in range(10):
        scene = Scene(rng)
        name = f"shelf_{i + 1:02d}.jpg"
        image = save_image(scene.image, folder / "photos" / name)
        question, answer = scene.ask(kind_of(i))
        lines.append([name, question, scene.count if answer.isdigit() else answer, "Ann" if i % 2 else ""])
        rows.append(row(question, answer, [image]))
    write_xlsx(folder / "shelf questions.xlsx", {"Questions": lines, "Notes": [["Note"], ["Photos taken in May."]]})
    return "", rows


@blind("own")
def own_sqlite(folder: Path, rng: random.Random) -> Made:
    """A database with a table of photos and one of questions about them."""
    rows = []
    with sqlite3.connect(folder / "quiz.db") as base:
        base.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY, file TEXT NOT NULL, place TEXT)")
        base.execute(
            "CREATE TABLE questions "
            "(id INTEGER PRIMARY KEY, photo_id INTEGER REFERENCES photos(id), question TEXT, answer TEXT)"
        )
        for i in range(7):
            scene = Scene(rng)
            name = f"photos/p{i:03d}.jpg"
            image = save_image(scene.image, folder / name)
            base.execute("INSERT INTO photos VALUES (?, ?, ?)", (i + 10, name, "Oslo"))
            for kind in ("count", "colour")[: 1 + i % 2]:
                question, answer = scene.ask(kind)
                base.execute(
                    "INSERT INTO questions (photo_id, question, answer) VALUES (?, ?, ?)", (i + 10, question, answer)
                )
                rows.append(row(question, answer, [image]))
    base.close()
    return "", rows
