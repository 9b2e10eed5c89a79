"""Compares the claims of a rationale about text in its image with the text that OCR reads there.

Needs no table. `distill.ocr.claims` decides which claims are supported, and how sure that is. The images are read
before traces are measured (`filters.tables.measure`), each once; needs the extra `ocr`.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import orjson
import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import LOCATION, NOT_APPLICABLE, OK, family
from filters.signals.time_limits import TooMuch
from filters.text.words import readable

if TYPE_CHECKING:
    from distill.ocr.claims import ImageClaims

FEW = 5
"""So many unsupported claims of a trace are written out; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ocr:
    reader: str
    """Version of the reader of text."""
    max_pixels: int
    texts: Path | None = field(default=None, metadata=LOCATION)
    """The file with the text of the images; None: nothing is measured."""

    name: ClassVar[str] = "ocr"
    version: ClassVar[str] = "4"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family(
        "ocr",
        ocr_verdict=(
            "text",
            "supported, unsupported (a claim is not what OCR reads in the image) or not_checkable",
        ),
        ocr_confidence=("number", "how sure the surest unsupported claim is one, 0-1: doubtful letters make it low"),
        ocr_unsupported=("count", "numbers, names and quotations of the rationale that are not in the image"),
        ocr_checked=("count", "claims that could be checked, including values computed from supported numbers"),
        ocr_unchecked=("count", "claims that OCR cannot check"),
        ocr_lines=("count", "lines of text in the images"),
        ocr_examples=("text", "the first few that are unsupported, how sure, and what OCR read: a JSON list"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Ocr":
        """The settings alone: `with_texts` adds the file. Raises MissingExtra."""
        from distill.ocr import reader

        reader.require("filter.signals = 'ocr'")
        return cls(reader=reader.identity(), max_pixels=recipe.max_pixels)

    def with_texts(self, run: Path) -> "Ocr":
        """The family with the file of a run directory that holds the text of its images."""
        from distill.ocr.texts import texts_file

        return replace(self, texts=texts_file(run, max_pixels=self.max_pixels))

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        if self.texts is None or not sample.images or not any(trace.reasoning for trace in traces):
            return [{"ocr_state": NOT_APPLICABLE} for _ in traces]
        from distill.ocr.claims import check_claims
        from distill.ocr.layout import read_layout
        from distill.ocr.texts import find_lines

        images = [find_lines(self.texts, ref.sha256) for ref in sample.images]
        layout = read_layout(images)
        around = " ; ".join(sample.options)
        rows: list[dict[str, Any]] = []
        for trace in traces:
            if not trace.reasoning:
                rows.append({"ocr_state": NOT_APPLICABLE})
                continue
            claims = check_claims(readable(trace.reasoning), layout, sample.question, around)
            if not claims.complete:
                raise TooMuch("more numbers and names than are checked in a text of this length")
            rows.append(_row(claims) | {"ocr_lines": sum(map(len, images))})
        return rows


def _row(claims: "ImageClaims") -> dict[str, Any]:
    unread = sorted(claims.unread, key=lambda claim: -claim.confidence)
    return {
        "ocr_state": OK,
        "ocr_verdict": claims.verdict,
        "ocr_confidence": unread[0].confidence if unread else None,
        "ocr_unsupported": len(unread),
        "ocr_checked": claims.checked,
        "ocr_unchecked": claims.unchecked,
        "ocr_examples": orjson.dumps(unread[:FEW]).decode() if unread else None,
    }
