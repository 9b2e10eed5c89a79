"""A tree of JSON as tables: lists of records, and records nested in records, which carry the fields of their parents.

A field keeps its last name (`data.question` is `question`) unless two fields of a table have it. Fields that a model
filled in are left out, and so are records that their annotator gave up.
"""

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from distill.data import guessed_columns
from distill.data.formats import TURNS
from distill.data.gold_answers import RowError
from distill.data.images.image_suffixes import has_image_suffix
from distill.data.row_values import PLACEHOLDER, parse_literal

Row = dict[str, Any]
_PARSED: Final = ("{", "[")
_MADE_BY_MODELS: Final = frozenset({"suggestions", "suggestion", "predictions", "prediction", "drafts", "draft"})
_GIVEN_UP: Final = ("was_cancelled", "cancelled", "discarded", "rejected", "ignored", "deleted", "skipped")
"""Fields that are true where an annotator gave no answer."""
_TAKEN: Final = frozenset({"accept", "accepted", "approved", "completed", "submitted", "done", "finished"})
_NOT_TAKEN: Final = frozenset(
    {"ignore", "ignored", "reject", "rejected", "discarded", "skip", "skipped", "pending", "draft"}
)
"""What columns hold that say whether a record counts."""
_VALUE: Final = ("value", "text", "#text", "content")
"""Fields that hold what their record is there for."""
_NAME: Final = ("name", "from_name", "key", "field")
_FLAGS: Final = ("correct", "is_correct", "isCorrect", "right", "is_right")
_RIGHT: Final = "right choices"
_LABEL: Final = ("id", "label", "key", "letter", "value", "index")
_CHOICES: Final = re.compile(r"(answer_?)?(choices?|options?|candidates?)|opciones|optionen", re.IGNORECASE)
_THINGS: Final = frozenset({"label", "labels", "target", "targets", "output", "outputs"})
"""What records nested in a question call the things in its image; as columns of a table they are answers."""
_NAMED_IMAGE: Final = re.compile(r"(?:Picture \d+: )?<img>([^<>]+)</img>")
"""An image within a text, as Qwen-VL names it."""
_SPEAKS: Final = frozenset({"role", "from", "speaker"})


class Conflict:
    """In the place of a value: records that belong to one row say different things."""


CONFLICT: Final = Conflict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A table within a tree. `rows` hold the fields of the parents, too; `own` names those that are not theirs."""

    name: str
    rows: Sequence[Row]
    own: frozenset[str]

    @property
    def asks(self) -> bool:
        """Whether the records themselves hold questions, as texts or turns."""
        rows = [{name: value for name, value in row.items() if name in self.own} for row in self.rows]
        return asks(rows)


def asks(rows: Sequence[Row]) -> bool:
    """Whether these rows hold questions, as texts or in turns of a conversation."""
    if any(isinstance(row.get(name), list) for row in rows[:1] for name in TURNS):
        return guessed_columns.has_role("question", rows[:200])
    texts = [{name: value for name, value in row.items() if isinstance(value, str)} for row in rows]
    return guessed_columns.has_role("question", texts[:200])


def tables_of(tree: Any, name: str) -> Iterator[Records]:
    """The tables within a tree, parents before the records that are nested in them."""
    rows = _columnar(tree) or _keyed_lists(tree) or _records(tree)
    if rows is None and isinstance(tree, Mapping):
        rows = [dict(tree)]
    if rows:
        yield from _tables(name, rows, [{}] * len(rows))


def _columnar(value: Any) -> list[Row] | None:
    """The rows of an object that has a list, or an object with the same keys, for each of its columns."""
    if not isinstance(value, Mapping) or not any(guessed_columns.is_usual("question", str(name)) for name in value):
        return None
    columns = [dict(enumerate(cells)) if isinstance(cells, list) else cells for cells in value.values()]
    if len(columns) < 2 or not all(isinstance(cells, Mapping) and len(cells) > 1 for cells in columns):
        return None
    if any(cells.keys() != columns[0].keys() for cells in columns):
        return None
    if not all(
        isinstance(text, str)
        for name, cells in zip(value, columns, strict=True)
        for text in cells.values()
        if guessed_columns.is_usual("question", str(name))
    ):
        return None
    return [{name: cells[key] for name, cells in zip(value, columns, strict=True)} for key in columns[0]]


def _keyed_lists(value: Any) -> list[Row] | None:
    """The records of an object that has a list of them for each image, under its name."""
    if not isinstance(value, Mapping) or len(value) < 2 or not all(has_image_suffix(str(name)) for name in value):
        return None
    if not all(isinstance(items, list) and _records(items) for items in value.values()):
        return None
    return [{"image": name, "records": items} for name, items in value.items()]


def _records(value: Any) -> list[Row] | None:
    """The records of a list, or of an object that has records of one kind under their keys."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return [dict(item) for item in value]
    if (
        not isinstance(value, Mapping)
        or len(value) < 2
        or not all(isinstance(item, Mapping) for item in value.values())
    ):
        return None
    keys = [frozenset(item) for item in value.values()]
    if 2 * len(frozenset.intersection(*keys)) < len(frozenset.union(*keys)) or not frozenset.intersection(*keys):
        return None
    return [{"key" if "id" in item else "id": key, **item} for key, item in value.items()]


def _tables(name: str, rows: Sequence[Row], parents: Sequence[Row]) -> Iterator[Records]:
    flat, nested = _flattened(list(map(_as_chat, rows)))
    inner = [record for lists in nested for records in lists.values() for record in records]
    if asks(flat) and not asks(inner):  # what is nested in a question is said about it
        flat = [_with_nested(row, lists) for row, lists in zip(flat, nested, strict=True)]
        nested = [{} for _ in flat]
    elif not asks(inner):  # what several people answered to the question of an id
        said = [{name: found for name, found in lists.items() if _are_answers(name, found)} for lists in nested]
        flat = [{**row, **answers} for row, answers in zip(flat, said, strict=True)]
        nested = [
            {name: found for name, found in lists.items() if name not in answers}
            for lists, answers in zip(nested, said, strict=True)
        ]
    flat, parents, nested = _taken(flat, parents, nested)
    own = frozenset(field for row in flat for field in row)
    full = [{**_renamed(parent, own, name), **row} for parent, row in zip(parents, flat, strict=True)]
    if full:
        yield Records(name=name, rows=full, own=own)
    for field in dict.fromkeys(field for lists in nested for field in lists):
        pairs = [(item, row) for row, lists in zip(full, nested, strict=True) for item in lists.get(field, ())]
        yield from _tables(field, [item for item, _ in pairs], [row for _, row in pairs])


def _as_chat(row: Row) -> Row:
    """A row whose turns are in two columns, as TRL has them, or name their images in <img>, in the usual form."""
    reply = next((name for name in ("completion", "chosen") if _is_chat(row.get(name))), None)
    if reply and _is_chat(row.get("prompt")):
        turns = [*row["prompt"], *row[reply]]
        row = {**{name: value for name, value in row.items() if name not in ("prompt", reply)}, "messages": turns}
    column = next((name for name in TURNS if _is_chat(row.get(name))), None)
    if column is None or not row.keys().isdisjoint(("image", "images")):
        return row
    shown: list[str] = []
    turns = [_with_placeholders(turn, shown) for turn in row[column]]
    return {**row, column: turns, "images": shown} if shown else row


def _is_chat(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    return is_list and not any(_SPEAKS.isdisjoint(item) for item in value)


def _with_placeholders(turn: Row, shown: list[str]) -> Row:
    """A turn with <image> in the place of each image that its text names; their paths are added to `shown`."""
    text_field = next((field for field in ("value", "content") if isinstance(turn.get(field), str)), None)
    if text_field is None:
        return turn
    shown += _NAMED_IMAGE.findall(turn[text_field])
    return {**turn, text_field: _NAMED_IMAGE.sub(PLACEHOLDER, turn[text_field])}


def _renamed(parent: Row, own: frozenset[str], name: str) -> Row:
    """The fields of a parent. One whose name a child has, too, gets another one."""
    return {f"parent of {name}: {field}" if field in own else field: value for field, value in parent.items()}


def _taken(
    rows: Sequence[Row], parents: Sequence[Row], nested: Sequence[dict[str, list[Row]]]
) -> tuple[list[Row], list[Row], list[dict[str, list[Row]]]]:
    """The rows that count, by their fields and columns of verdicts, without the columns."""
    names = {name for row in rows for name in row}
    verdicts = {
        name
        for name in names
        if all(isinstance(row.get(name), str) and row[name].lower() in _TAKEN | _NOT_TAKEN for row in rows)
    }
    kept = [
        (_answered({name: value for name, value in row.items() if name not in verdicts}), parent, lists)
        for row, parent, lists in zip(rows, parents, nested, strict=True)
        if not _is_given_up(row) and not any(row[name].lower() in _NOT_TAKEN for name in verdicts)
    ]
    return [row for row, _, _ in kept], [parent for _, parent, _ in kept], [lists for _, _, lists in kept]


def _is_given_up(row: Row) -> bool:
    return any(row.get(field) is True for field in _GIVEN_UP)


def _answered(row: Row) -> Row:
    """A row that lists the choices that were accepted, with the only one as its answer."""
    accepted = row.get("accept")
    choices = next((value for name, value in row.items() if _CHOICES.fullmatch(name)), None)
    if isinstance(choices, dict) and _RIGHT in choices:
        accepted = choices.pop(_RIGHT)
    if not isinstance(accepted, list) or "answer" in row:
        return row
    return {**row, "answer": accepted[0] if len(accepted) == 1 else CONFLICT}


def _flattened(rows: Sequence[Row]) -> tuple[list[Row], list[dict[str, list[Row]]]]:
    """The fields of each record and of its nested objects, and the lists of records in it."""
    leaves = [dict(_leaves(row, ())) for row in rows]
    paths = list(dict.fromkeys(path for row in leaves for path in row))
    counts = Counter(path[-1] for path in paths)
    top = {path[0] for path in paths if len(path) == 1}
    names = {
        path: path[-1] if len(path) == 1 or (counts[path[-1]] == 1 and path[-1] not in top) else ".".join(path)
        for path in paths
    }
    flat: list[Row] = []
    nested: list[dict[str, list[Row]]] = []
    for row in leaves:
        lists = {names[path]: found for path, value in row.items() if (found := _nested(path[-1], value)) is not None}
        nested.append(lists)
        flat.append({names[path]: _cell(path[-1], value) for path, value in row.items() if names[path] not in lists})
    return flat, nested


def _leaves(value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The fields of an object that are no objects, by their paths."""
    for name, item in value.items():
        if name in _MADE_BY_MODELS:
            continue
        item = _parsed(item)
        here = (*path, str(name))
        if isinstance(item, list) and (attributes := _attributes(item)) is not None:
            yield from _leaves(attributes, here)
        elif not isinstance(item, Mapping) or _is_cell(str(name), item) or _records(item) is not None:
            yield here, item
        elif (held := next((field for field in _VALUE if field in item), None)) and _is_plain(item[held]):
            yield here, item[held]
            yield from _leaves({field: each for field, each in item.items() if field != held}, here)
        else:
            yield from _leaves(item, here)


def _parsed(value: Any) -> Any:
    """A cell with the object or the list of objects that its text holds."""
    if not isinstance(value, str) or not value.lstrip().startswith(_PARSED):
        return value
    try:
        parsed = parse_literal(value)
    except RowError:
        return value
    holds_records = isinstance(parsed, Mapping) or _nested("", parsed) is not None
    return parsed if holds_records else value


def _is_cell(name: str, value: Mapping[str, Any]) -> bool:
    """Whether an object is one value: an image, or choices with their letters."""
    is_image = not value.keys().isdisjoint(("bytes", "offset", "row")) or value.keys() <= {"path"}
    return is_image or bool(_CHOICES.fullmatch(name))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _attributes(items: Sequence[Any]) -> Row | None:
    """A list of names with their values as an object, where it has a question or an answer among them."""
    if not items or not all(isinstance(item, Mapping) for item in items):
        return None
    name_field = next((field for field in _NAME if all(isinstance(item.get(field), str) for item in items)), None)
    if name_field is None:
        return None
    found: Row = {}
    for item in items:
        value = _only_value(item)
        if value is not None:
            found[item[name_field]] = CONFLICT if item[name_field] in found else value
    named = any(guessed_columns.is_usual(role, name) for role in ("question", "answer") for name in found)
    return found if named else None


def _only_value(item: Mapping[str, Any]) -> Any:
    """What an attribute holds: a text, a number, or the only one within it; several are a conflict."""
    value = next((item[field] for field in _VALUE if item.get(field) is not None), None)
    if isinstance(value, Mapping):
        value = next(iter(value.values())) if len(value) == 1 else None
    if isinstance(value, list):
        if not all(map(_is_plain, value)):
            return None
        return value[0] if len(value) == 1 else CONFLICT if value else None
    return value if _is_plain(value) else None


def _nested(name: str, value: Any) -> list[Row] | None:
    """The records in a field; None for a value, for turns of a chat and for choices."""
    records = _records(value)
    if records is None or _CHOICES.fullmatch(name) or name in TURNS:
        return None
    return None if any(not _SPEAKS.isdisjoint(record) for record in records) else records


def _cell(name: str, value: Any) -> Any:
    """A value as a row of JSON lines holds it."""
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list) and value and _CHOICES.fullmatch(name) and (records := _records(value)):
        text = next((field for field in ("text", "value", "content") if all(field in each for each in records)), None)
        label = next((field for field in _LABEL if field != text and all(field in each for each in records)), None)
        if text and len({frozenset(each) for each in records}) == 1:
            texts = [each[text] for each in records]
            flag = next(
                (field for field in _FLAGS if all(isinstance(each.get(field), bool) for each in records)), None
            )
            if flag:
                right = [str(at) for at, each in enumerate(records) if each[flag]]
                return {"label": [str(at) for at in range(len(texts))], "text": texts, _RIGHT: right}
            return {"label": [str(each[label]) for each in records], "text": texts} if label else texts
    return value


def _with_nested(row: Row, lists: Mapping[str, list[Row]]) -> Row:
    """A question with what all records nested in it agree on. Lists of answers stay as they are."""
    kept = {name: records for name, records in lists.items() if _holds_answers(name, records)}
    said: Row = {}
    for name, records in lists.items():
        if name in kept:
            continue
        if all(map(_is_given_up, records)):
            said[_GIVEN_UP[0]] = True
        for table in tables_of(records, name):
            for field in dict.fromkeys(field for each in table.rows for field in each if field in table.own):
                values = [each[field] for each in table.rows if field in each]
                short = name if field in _VALUE else field
                full = f"{name}.{field}" if short in row or short in said or short in _THINGS else short
                said[full] = values[0] if all(value == values[0] for value in values) else CONFLICT
    return {**row, **kept, **said}


def _holds_answers(name: str, records: Sequence[Row]) -> bool:
    """Whether records are the answers of several people, as in VQA."""
    return guessed_columns.is_usual("answer", name) and all("answer" in record for record in records)


def _are_answers(name: str, records: Sequence[Row]) -> bool:
    """Whether records are answers of several people to one question: none names a question of its own."""
    return _holds_answers(name, records) and not any(
        "question" in field.lower() for each in records for field in each
    )
