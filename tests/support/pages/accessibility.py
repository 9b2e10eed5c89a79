"""Whether everybody can read a page: rules of WCAG 2 (A and AA) that can be checked without a browser."""

from collections import Counter
from collections.abc import Iterator

from pages.stylesheet import Element, Styles, contrast, parse

TEXT, DRAWN = 4.5, 3.0
"""Contrast that text needs, and what is drawn or can be operated."""
_CONTROLS = ("input", "select", "textarea", "button")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_DRAWN = {
    **dict.fromkeys(("series", "dots", "bars", "point", "range", "seed", "now", "dropped", "zero"), "stroke"),
    "kept": "fill",
}
"""Classes of what carries meaning in a chart, and what paints it."""


def problems(page: str) -> list[str]:
    """Everything that is wrong, in words; empty for a page that is fine."""
    root = parse(page)
    found = [*_document(root), *_headings(root), *_names(root), *_tables(root), *_controls(root)]
    for dark in (False, True):
        found += [f"{'dark' if dark else 'light'}: {text}" for text in _contrasts(root, Styles(root, dark=dark))]
    return found


def _all(root: Element, *tags: str) -> Iterator[Element]:
    return (element for element in root.walk() if element.tag in tags)


def _document(root: Element) -> Iterator[str]:
    if not any(element.attributes.get("lang") for element in _all(root, "html")):
        yield "the page does not say its language"
    titles = [element for head in _all(root, "head") for element in _all(head, "title")]
    if [bool(element.words()) for element in titles] != [True]:
        yield "the page has not one title"
    views = [element.attributes for element in _all(root, "meta") if element.attributes.get("name") == "viewport"]
    if not views or any(word in views[0]["content"] for word in ("maximum-scale", "user-scalable")):
        yield "the viewport is not set, or forbids zooming"
    if len(list(_all(root, "main"))) != 1:
        yield "the page has not one main part"
    ids = Counter(element.attributes["id"] for element in root.walk() if "id" in element.attributes)
    yield from (f"id {name!r} is used {count} times" for name, count in ids.items() if count > 1)
    regions = Counter(element.attributes.get("aria-label") for element in _all(root, "section"))
    yield from (f"region {name!r} is there {count} times" for name, count in regions.items() if name and count > 1)
    for element in root.walk():
        if (target := element.attributes.get("href", "")).startswith("#") and target[1:] not in ids:
            yield f"{element} leads to {target}, which is not there"
        if int(element.attributes.get("tabindex", 0)) > 0:
            yield f"{element} has a tabindex above zero"
        for name in ("aria-labelledby", "aria-describedby", "for"):
            if element.attributes.get(name) and element.attributes[name] not in ids:
                yield f"{element}: {name} names nothing"


def _headings(root: Element) -> Iterator[str]:
    levels = [(int(element.tag[1]), element) for element in _all(root, *_HEADINGS)]
    if [level for level, _ in levels].count(1) != 1:
        yield "the page has not one h1"
    before = 0
    for level, element in levels:
        if level > before + 1:
            yield f"{element} comes after a heading of level {before}"
        if not element.words():
            yield f"{element} is empty"
        before = level


def _names(root: Element) -> Iterator[str]:
    for element in root.walk():
        attributes = element.attributes
        if element.tag == "img" and not attributes.get("alt", "").strip():
            yield f"{element}: a picture has no alt text"
        labelled = attributes.get("role") == "img" and attributes.get("aria-label", "").strip()
        if element.tag == "svg" and not labelled and not _is_hidden(element):
            yield f"{element}: a drawing has neither role and label, nor is it hidden from readers of the screen"
        if element.tag in ("a", "button", "summary", "legend", "label", "caption") and not _name(element):
            yield f"{element} has no name"
        if attributes.get("role") in ("region", "table", "img") and not _name(element):
            yield f"{element}: its role needs a label"
        if "scroll" in element.classes and (attributes.get("tabindex") != "0" or attributes.get("role") != "region"):
            yield f"{element}: what scrolls cannot be reached and named by keyboard"
        if element.tag in ("ul", "ol") and any(child.tag != "li" for child in element.children):
            yield f"{element}: a list holds something else than items"
        if attributes.get("role") == "table" and not any(
            child.attributes.get("role") == "row" for child in element.children
        ):
            yield f"{element}: a table without rows"
        if attributes.get("aria-hidden") == "true" and any(_reachable(below) for below in element.walk()):
            yield f"{element}: hidden from readers, yet reached by keyboard"


def _is_hidden(element: Element) -> bool:
    return any(above.attributes.get("aria-hidden") == "true" for above in element.ancestors())


def _name(element: Element) -> str:
    images = " ".join(image.attributes.get("alt", "") for image in _all(element, "img"))
    return (element.attributes.get("aria-label") or element.words() or images).strip()


def _reachable(element: Element) -> bool:
    return element.tag in ("a", *_CONTROLS, "summary") or element.attributes.get("tabindex") == "0"


def _tables(root: Element) -> Iterator[str]:
    for table in _all(root, "table"):
        heads = list(_all(table, "th"))
        if not heads:
            yield f"{table} has no headers"
        yield from (
            f"{head}: a header without scope" for head in heads if head.attributes.get("scope") not in ("col", "row")
        )
        yield from (f"{head}: an empty header" for head in heads if not head.words())
        for row in _all(table, "tbody"):
            yield from (f"{line}: a row without a header" for line in _all(row, "tr") if line.children[0].tag != "th")
        widths = {sum(int(cell.attributes.get("colspan", 1)) for cell in row.children) for row in _all(table, "tr")}
        if len(widths) > 1:
            yield f"{table}: rows of {sorted(widths)} cells"


def _controls(root: Element) -> Iterator[str]:
    targets = {element.attributes.get("for") for element in _all(root, "label")}
    for element in _all(root, "input", "select", "textarea"):
        labelled = any(above.tag == "label" and above.words() for above in element.ancestors())
        if not labelled and "aria-label" not in element.attributes and element.attributes.get("id") not in targets:
            yield f"{element}: a control without a label"
    for element in _all(root, "fieldset"):
        if not any(child.tag == "legend" for child in element.children):
            yield f"{element}: a group of controls without a legend"


def _contrasts(root: Element, styles: Styles) -> Iterator[str]:
    """Each pair of colours is told once."""
    told: set[tuple[object, ...]] = set()

    def check(element: Element, name: str, least: float) -> Iterator[str]:
        front = styles.colour(element, name)
        behind = styles.background(element)
        if front is None or (pair := (name == "color", front, behind)) in told:
            return
        told.add(pair)
        if (ratio := contrast(front, behind)) < least:
            yield f"{element}: {name} {front} on {behind} has a contrast of {ratio:.2f}, not {least}"

    body = next(_all(root, "body"))
    for element in body.walk():
        if element.tag in ("script", "style") or styles.hidden(element):
            continue
        if element.text.strip() or element.tag in ("select", "input"):
            yield from check(element, "color", TEXT)
        if element.tag in _CONTROLS and element.attributes.get("type") != "checkbox":
            yield from check(element, "border", DRAWN)
        for name in set(element.classes) & set(_DRAWN):
            if any(above.tag == "svg" for above in element.ancestors()):
                yield from check(element, _DRAWN[name], DRAWN)
