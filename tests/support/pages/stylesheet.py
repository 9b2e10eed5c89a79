"""What colours a page's own style sheet gives its elements: a small cascade, and WCAG's contrast of two colours.

Knows what the project's pages use: types, classes, ids, attributes, child and descendant, a few pseudo-classes,
custom properties, and media queries for the colour scheme. Rules for print or for some width of the screen are passed
over, and rules for states and pseudo-elements: what is checked is the page as it is opened.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905
_COMPOUND = re.compile(r"::?[\w-]+(?:\([^)]*\))?|\[[^\]]+\]|[.#]?[\w-]+|\*")
Colour = tuple[int, int, int]


@dataclass(eq=False)
class Element:
    tag: str
    attributes: dict[str, str]
    parent: "Element | None" = None
    children: list["Element"] = field(default_factory=list)
    text: str = ""
    """Directly inside, without that of children."""

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def walk(self) -> Iterator["Element"]:
        yield self
        for child in self.children:
            yield from child.walk()

    def ancestors(self) -> Iterator["Element"]:
        """Itself first."""
        here: Element | None = self
        while here is not None:
            yield here
            here = here.parent

    def words(self) -> str:
        return " ".join(part for element in self.walk() for part in element.text.split())

    def __str__(self) -> str:
        shown = "".join(f' {name}="{self.attributes[name]}"' for name in ("id", "class") if name in self.attributes)
        return f"<{self.tag}{shown}> {self.words()[:40]}"


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("document", {})
        self.here = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self.here)
        self.here.children.append(element)
        if tag not in VOID:
            self.here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.here.children.append(Element(tag, {name: value or "" for name, value in attrs}, self.here))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            if self.here.tag != tag:
                raise AssertionError(f"</{tag}> closes {self.here}")
            assert self.here.parent is not None
            self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        self.here.text += data


def parse(page: str) -> Element:
    """The whole page as a tree. Raises AssertionError for tags that do not close."""
    builder = _Builder()
    builder.feed(page)
    assert builder.here is builder.root, f"{builder.here} is never closed"
    return builder.root


@dataclass
class Rule:
    selector: str
    values: dict[str, str]
    dark: bool
    order: int

    def __post_init__(self) -> None:
        self.parts = re.sub(r"\s*>\s*", " > ", self.selector).split()
        self.needed = frozenset(re.findall(r"\.([\w-]+)", re.sub(r":not\([^)]*\)", "", self.parts[-1])))

    def applies(self, element: Element) -> bool:
        return self.needed.issubset(element.classes) and _matches(element, self.parts)

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """Specificity, then place in the sheet."""
        plain = re.sub(r":not\(([^)]*)\)", r"\1", self.selector)
        ids, classes = plain.count("#"), len(re.findall(r"[.\[]|(?<!:):(?!:)", plain))
        return ids, classes, len(re.findall(r"(?:^|[\s>])[a-z]", plain)), self.order


def rules(css: str) -> list[Rule]:
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    found: list[Rule] = []
    for media, body in _blocks(css):
        dark = media is not None and "prefers-color-scheme: dark" in media
        if media is not None and not dark:
            continue
        for selectors, values in _blocks_of(body):
            declared = dict(part.split(":", 1) for part in values.split(";") if ":" in part)
            clean = {name.strip(): value.replace("!important", "").strip() for name, value in declared.items()}
            for selector in selectors.split(","):
                if "::" not in selector and ":focus" not in selector and ":hover" not in selector:
                    found.append(Rule(selector.strip(), clean, dark, len(found)))
    return found


def _blocks(css: str) -> Iterator[tuple[str | None, str]]:
    """Media query (None for plain rules) and the rules inside."""
    place = 0
    for match in re.finditer(r"@media([^{]*)\{((?:[^{}]*\{[^{}]*\})*[^{}]*)\}", css):
        yield None, css[place : match.start()]
        yield match[1], match[2]
        place = match.end()
    yield None, css[place:]


def _blocks_of(body: str) -> list[tuple[str, str]]:
    return re.findall(r"([^{}]+)\{([^{}]*)\}", body)


def _matches(element: Element, parts: list[str]) -> bool:
    *before, last = parts
    if not _fits(element, last):
        return False
    if not before:
        return True
    if before[-1] == ">":
        return element.parent is not None and _matches(element.parent, before[:-1])
    return any(_matches(above, before) for above in list(element.ancestors())[1:])


def _fits(element: Element, compound: str) -> bool:
    siblings = element.parent.children if element.parent else [element]
    for part in _COMPOUND.findall(compound):
        if part == "*":
            fits = True
        elif part[0] == ".":
            fits = part[1:] in element.classes
        elif part[0] == "#":
            fits = element.attributes.get("id") == part[1:]
        elif part[0] == "[":
            name, _, value = part[1:-1].partition("=")
            fits = name in element.attributes and (not value or element.attributes[name] == value.strip("\"'"))
        elif part.startswith(":not("):
            fits = not _fits(element, part[5:-1])
        elif part[0] == ":":
            fits = {
                ":root": element.tag == "html",
                ":first-child": siblings[0] is element,
                ":last-child": siblings[-1] is element,
                ":only-child": len(siblings) == 1,
            }.get(part, False)
        else:
            fits = element.tag == part
        if not fits:
            return False
    return True


class Styles:
    """Every element's declarations under one colour scheme."""

    def __init__(self, root: Element, *, dark: bool) -> None:
        css = "\n".join(element.text for element in root.walk() if element.tag == "style")
        self._rules = sorted((rule for rule in rules(css) if dark or not rule.dark), key=lambda rule: rule.weight)
        self._own: dict[Element, dict[str, str]] = {}

    def own(self, element: Element) -> dict[str, str]:
        if element not in self._own:
            found: dict[str, str] = {}
            for rule in self._rules:
                if rule.applies(element):
                    found |= rule.values
            inline = element.attributes.get("style", "")
            found |= {
                name.strip(): value.strip()
                for name, value in (part.split(":", 1) for part in inline.split(";") if ":" in part)
            }
            self._own[element] = found
        return self._own[element]

    def inherited(self, element: Element, name: str) -> str | None:
        return next((self.own(above)[name] for above in element.ancestors() if name in self.own(above)), None)

    def resolve(self, element: Element, value: str) -> Colour | None:
        """The colour in a value such as "1px solid var(--line)"; None where there is none."""
        while match := re.search(r"var\((--[\w-]+)\)", value):
            held = self.inherited(element, match[1])
            assert held is not None, f"{match[1]} is not set for {element}"
            value = value.replace(match[0], held)
        if value == "white":
            return 255, 255, 255
        found = re.search(r"#([0-9a-f]{6})\b", value)
        return None if found is None else tuple(int(found[1][place : place + 2], 16) for place in (0, 2, 4))  # type: ignore[return-value]

    def colour(self, element: Element, name: str = "color") -> Colour | None:
        """An inherited colour: of text, or of what is drawn."""
        for above in element.ancestors():
            value = self.own(above).get(name)
            if value == "inherit":
                continue
            if value is not None:
                return self.resolve(above, value)
        return None

    def background(self, element: Element) -> Colour:
        """Of the nearest element behind that has one."""
        for above in element.ancestors():
            own = self.own(above)
            value = own.get("background-color") or own.get("background")
            if value and value not in ("none", "transparent") and (colour := self.resolve(above, value)):
                return colour
        raise AssertionError(f"nothing is painted behind {element}")

    def hidden(self, element: Element) -> bool:
        return any(
            "hidden" in above.classes or self.own(above).get("display") == "none" for above in element.ancestors()
        )


def contrast(first: Colour, second: Colour) -> float:
    """WCAG 2's ratio, 1 to 21."""
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: Colour) -> float:
    red, green, blue = (linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
