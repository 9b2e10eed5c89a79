"""Example traces of the report page with their images and facts.

All are read at once, because samples are in partitions that are read whole. Ties are broken by the sample's id: ids
are hashes, so the smallest are a random sample, and they are in one partition. Images share a budget of bytes, so
that a page stays small enough for mail.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from distill.data.images import image_files
from distill.errors import ImageError
from distill.reports import html
from distill.types import Sample
from filters.decisions.rules import Condition
from filters.report.table import TableFacts
from filters.tables.trace_index import PlannedTraces

SELECTED, DROPPED = 9, 3
_CANDIDATES = 48
_RATIONALE_CHARACTERS = 1500
IMAGE_BYTES, PAGE_BYTES = 120_000, 3_200_000
"""Largest size of one image as text, else it is made smaller; largest size of all images of a page."""
_FULL_SIDES, _SMALL_SIDE = (768, 512, html.IMAGE_SIDE), 288
"""Stored pixels of the longer side, the first number that fits; an image that is opened shows all of them."""


def selected(facts: TableFacts) -> list[str]:
    """Ids of selected traces, spread over teachers and domains."""
    return _spread(facts, "selected", (), SELECTED)


def dropped(facts: TableFacts, rule: str) -> list[str]:
    """Ids of traces that a rule drops; first those that no other rule drops."""
    return _spread(facts, "list_contains(rules, ?)", [rule], DROPPED)


def worst(facts: TableFacts, rule: Condition) -> tuple[list[str], str]:
    """Ids of the traces that a rule drops most clearly, and the value that orders them; '' for a rule that compares
    no number."""
    limit = rule.threshold
    if limit is None or not facts.has(limit.column):
        return dropped(facts, rule.name), ""
    up = limit.operator.startswith(">")
    order = f"{facts.columns[limit.column].sql} {'DESC' if up else 'ASC'} NULLS LAST, len(rules)"
    words = f"{'highest' if up else 'lowest'} {limit.column} first"
    return _spread(facts, "list_contains(rules, ?)", [rule.name], DROPPED, order=order, mix=False), words


def _spread(
    facts: TableFacts, where: str, values: Sequence[str], limit: int, *, order: str = "len(rules)", mix: bool = True
) -> list[str]:
    """The first traces in this order, not the same question twice, each teacher and domain in turn with `mix`."""
    rows = facts.rows(
        f"""SELECT id, sample_id, teacher, domain FROM page WHERE {where}
        ORDER BY {order}, sample_id, id LIMIT {_CANDIDATES}""",
        values,
    )
    chosen: dict[str, None] = {}
    samples: set[str] = set()
    kinds: dict[tuple[str, str], int] = {}
    for max_of_kind in (*range(1, limit + 1), _CANDIDATES) if mix else (_CANDIDATES,):
        for name, sample, teacher, domain in rows:
            if len(chosen) < limit and sample not in samples and kinds.get((teacher, domain), 0) < max_of_kind:
                chosen[name] = None
                samples.add(sample)
                kinds[teacher, domain] = kinds.get((teacher, domain), 0) + 1
    for name, *_ in rows:
        if len(chosen) < limit:
            chosen[name] = None
    return list(chosen)


def load(facts: TableFacts, index: PlannedTraces, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The data of the page for each of these traces."""
    names = list(dict.fromkeys(ids))
    # A list is looked through; a subquery, and a join before the rows are chosen, would hold the ids of all traces.
    rows = facts.rows(
        """SELECT id, local.sample_id, answer_verdict, rationale_tokens, reasons
        FROM (FROM local WHERE list_contains($1::VARCHAR[], id)) AS local
        JOIN (FROM decisions WHERE list_contains($1::VARCHAR[], id)) AS decisions USING (id)""",
        [names],
    )
    row_of_trace = {row[0]: row for row in rows}
    samples = index.samples_of(row[1] for row in rows)
    index.bring_images(list(samples.values()))
    for sides in (_FULL_SIDES, _FULL_SIDES[-1:]):
        album = _Album(sides)
        images = {row[0]: album.page_images(samples[row[1]]) for row in rows}
        if not any(left_out for _, left_out in images.values()):
            break
    example_of_trace = {}
    for trace in index.traces(names):
        _, sample_id, verdict, tokens, reasons = row_of_trace[trace.id]
        sample = samples[sample_id]
        shown, left_out = images[trace.id]
        example_of_trace[trace.id] = {
            "id": trace.id,
            "question": _clip(sample.question),
            "pictures": shown,
            "left_out": left_out,
            "images": len(sample.images),
            "gold": None if sample.answer is None else _clip(sample.answer),
            "teacher": trace.teacher,
            "domain": sample.domain,
            "answer": _clip(trace.answer),
            "verdict": verdict,
            "tokens": tokens,
            "rationale": _clip(trace.reasoning.strip() or ("" if trace.answer else trace.text)),
            "reasons": [{**reason, "values": orjson.loads(reason["values"])} for reason in reasons],
        }
    return example_of_trace


def _clip(text: str) -> str:
    return text if len(text) <= _RATIONALE_CHARACTERS else f"{text[:_RATIONALE_CHARACTERS]} …"


class _Album:
    """Pictures, until the page is full; the same image is prepared once."""

    def __init__(self, sides: Sequence[int]) -> None:
        self._sides = sides
        self._room = PAGE_BYTES
        self._known: dict[str, html.PageImage | None] = {}

    def page_images(self, sample: Sample) -> tuple[list[html.PageImage], int]:
        """The readable images that fit, and how many do not."""
        readable = [image for ref in sample.images if (image := self._image(ref)) is not None]
        shown = []
        for image in readable:
            if len(image.uri) <= self._room:
                self._room -= len(image.uri)
                shown.append(image)
        return shown, len(readable) - len(shown)

    def _image(self, ref: Any) -> html.PageImage | None:
        if ref.sha256 not in self._known:
            try:
                data = image_files.read_bytes(ref)
                for side in self._sides:
                    image = html.page_image(data, full=side)
                    if len(image.uri) <= IMAGE_BYTES:
                        break
                else:
                    image = html.page_image(data, side=min(_SMALL_SIDE, max(image.width, image.height) - 1))
                self._known[ref.sha256] = image
            except ImageError:
                self._known[ref.sha256] = None
        return self._known[ref.sha256]
