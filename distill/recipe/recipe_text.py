"""Edits the text of a recipe: replaces values, turns unused sections into comments, keeps all comments."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import tomli_w

_HEADER = re.compile(r"^\[+([\w.]+)\]+")
_PAIR = re.compile(r"^(\w+) = (?:.*?)(\s+#.*)?$")


def edit_recipe_text(
    text: str, values: Mapping[str, Any], unused: Collection[str] = (), comments: Mapping[str, str] | None = None
) -> str:
    """Set `values` by dotted key (None removes the key), and turn the sections `unused` into comments.

    `comments`: by dotted key, the comment that takes the place of that beside a value which is set.

    A missing key is added at the end of its section. Sections with the same name, such as [[stages]], get the same
    values. Each value must be on one line.
    """
    blocks = [
        _block(block, _name(block), values, comments or {})
        for block in re.split(r"^(?=\[)", text, flags=re.MULTILINE)
        if block
    ]
    return "".join(
        re.sub(r"^(?=.)", "# ", block, flags=re.MULTILINE) if _name(block) in unused else block for block in blocks
    )


def _name(block: str) -> str:
    header = _HEADER.match(block)
    return header[1] if header else ""


def _block(block: str, section: str, values: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    left = {key.rpartition(".")[2]: value for key, value in values.items() if key.rpartition(".")[0] == section}
    lines = []
    for line in block.splitlines():
        pair = _PAIR.match(line)
        if not pair or pair[1] not in left:
            lines.append(line)
        elif (value := left.pop(pair[1])) is not None:
            comment = comments.get(f"{section}.{pair[1]}")
            lines.append(_pair(pair[1], value) + (f"    # {comment}" if comment else pair[2] or ""))
    at = max((number for number, line in enumerate(lines) if line and not line.startswith("#")), default=-1) + 1
    lines[at:at] = [_pair(key, value) for key, value in left.items() if value is not None]
    return "\n".join(lines) + "\n"


def _pair(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(_pair(name, each) for name, each in value.items())
        return f"{key} = {{ {inner} }}"
    return tomli_w.dumps({key: value}).strip()
