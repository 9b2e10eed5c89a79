"""The recipe's sections about data: where samples come from, and which column holds what."""

from typing import Literal

from pydantic import Field

from distill.recipe.base import LocalOrHub, Section, Share

AnswerType = Literal["number", "year", "percent", "money", "time", "ratio", "choice", "list", "date", "text"]


class Columns(Section):
    """Which column of a source holds what; a column that is not there leaves its default."""

    image: str = "image"
    question: str = "question"
    answer: str = "answer"
    answer_type: str = "answer_type"
    domain: str = "domain"
    difficulty: str = "difficulty"


class DataSource(Section):
    """A named source of samples."""

    source: LocalOrHub
    """File (.jsonl, .json, .csv, .parquet), directory, image folder with a table, or hub name."""
    subset: str | None = None
    split: str = "train"
    format: Literal["plain", "finevision", "llava", "chartqa", "cocoqa", "scienceqa"] = "plain"
    images_root: LocalOrHub | None = None
    """Folder that image paths are relative to; default: the folder of the source."""
    columns: Columns = Columns()
    domain: str = ""
    """Domain of rows whose domain column is absent or empty."""
    answer_type: AnswerType | None = None
    limit: int | None = Field(default=None, ge=1)
    allow_outside_root: bool = False
    max_pixels: int = Field(default=50_000_000, ge=1)
    max_bad_share: Share = 0.2
    """More unusable rows than this share stop the run: a wrong images_root is not a few bad rows."""
