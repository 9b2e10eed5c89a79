"""The recipe's sections about data: where samples come from, and which column holds what."""

from functools import partial
from pathlib import Path
from typing import Annotated, Self

from pydantic import PrivateAttr, model_validator

from distill.extensions import ANSWER_TYPES, DATA_FORMATS
from distill.recipe.base import NameOrCode, Place, Section, Share, key

source_key = partial(key, affects="source")
ASKED = "questions"
"""The source that teachers are asked about."""
MAX_PIXELS = 50_000_000
"""Of an image, unless its source says otherwise."""

ANSWER_TYPE_NAMES: tuple[str, ...] = (
    *("number", "year", "percent", "money", "time", "ratio", "choice", "list", "date", "text"),
)
AnswerTypeEntry = Annotated[str, NameOrCode(ANSWER_TYPES, ANSWER_TYPE_NAMES)]

FORMAT_NAMES: tuple[str, ...] = (
    *("plain", "finevision", "llava", "chartqa", "cocoqa", "scienceqa", "traces", "returned"),
)
FormatEntry = Annotated[str, NameOrCode(DATA_FORMATS, FORMAT_NAMES)]


class Columns(Section):
    """Names of the columns of a source; if a column does not exist, its default value is used."""

    image: str | tuple[str, ...] = source_key(
        "image",
        "Column with the image, or a list of images: paths, bytes, base64, or ranges of files. Several columns: the "
        "images of a row in this order, without empty cells.",
    )
    question: str = source_key(
        "question",
        "Column with the question; or with several about the same images: a list beside a list of as many answers, "
        "or objects with `question` and `answer`.",
    )
    answer: str = source_key("answer", "Column with the gold answer, or a list of accepted answers.")
    answer_type: str = source_key("answer_type", "Column with the type of the answer.")
    domain: str = source_key("domain", "Column with the domain.", spares="train")
    difficulty: str = source_key("difficulty", "Column with the difficulty.", spares="train")

    def names(self, role: str) -> tuple[str, ...]:
        """The columns of a role; none where the recipe says that there is none."""
        column: str | tuple[str, ...] = getattr(self, role)
        return tuple(filter(None, [column])) if isinstance(column, str) else column


class DataSource(Section):
    """A named source of samples."""

    source: Place = source_key(
        ...,
        "File (.jsonl, .jsonl.gz, .jsonl.zst, .json, .csv, .parquet, .tar), several of them (shards/*.tar), dataset "
        "directory, folder of Parquet or tar files, image folder with a table, or hub name. The files may lie in a "
        "store: s3://bucket/shards/*.tar.",
        compared_by="the content of the files; in a store their sizes and ETags; for a hub name the name",
    )
    subset: str | None = source_key(None, "Subset (configuration) of a dataset of the hub.")
    split: str = source_key("train", "Split of a dataset of the hub or of a dataset directory.")
    format: FormatEntry = source_key(
        "plain",
        "Layout of the rows. plain: one column for each value. finevision, llava, chartqa, cocoqa, scienceqa: the "
        "columns of these datasets. traces: a dataset that a filter stage wrote; a stage that replays it also "
        'learns its rationales. returned: the questions of a round. Code that reads a row: "FILE.py:NAME", or an '
        "entry point of a package.",
    )
    images_root: Place | None = source_key(
        None,
        "Folder that image paths are relative to, on this machine or in a store (s3://bucket/images); default: the "
        "folder of the source.",
        compared_by="the bytes of the images, and in generate the folder",
    )
    columns: Columns = key(Columns(), "Names of the columns of the source.")
    earlier_turns: bool = source_key(
        False,
        "For rows with several turns: the text of each question contains the turns before it, with their gold "
        "answers, as a transcript. Default: each question is asked alone.",
        omit_default="source",
    )
    domain: str = source_key("", "Domain of rows whose domain column is absent or empty.", spares="train")
    answer_type: AnswerTypeEntry | None = source_key(
        None,
        "Type of the answers of rows that have no answer_type; default: inferred from the gold answer. Code that "
        'compares answers: "FILE.py:NAME", or an entry point of a package.',
    )
    limit: int | None = source_key(
        None, "Read at most this number of rows from the start; default: all rows.", ge=1, usual=(50, None)
    )
    part: tuple[float, float] = source_key(
        (0.0, 1.0),
        "Read only the questions whose image is in this part of all images (by a digest of its bytes); `limit` "
        "counts only these questions. [0, 0.9] and [0.9, 1] have no image in common: images of one row stay "
        "together, with all rows that they occur in.",
        omit_default="source",
        strict=False,
    )
    allow_outside_root: bool = source_key(
        False, "Also read images whose path, or a link on it, leads out of images_root."
    )
    max_pixels: int = source_key(
        MAX_PIXELS,
        "A row whose image has more pixels is left out.",
        ge=1,
        usual=(1_000_000, None),
    )
    max_bad_share: Share = source_key(
        0.2,
        "If more than this share of the rows cannot be used, the run stops: that many bad rows mean a wrong "
        "images_root or a wrong column.",
        spares="train",
        usual=(0, 0.3),
    )

    @model_validator(mode="after")
    def _some_part(self) -> Self:
        if not self.source.strip():  # it would be the folder of the recipe
            raise ValueError("source is empty; name a file, a folder or a data set of the hub")
        low, high = self.part
        if not 0 <= low < high <= 1:
            raise ValueError(f"part is two numbers between 0 and 1, the smaller one first, got {[low, high]}")
        if self.format == "traces" and (self.limit is not None or self.part != (0, 1)):
            raise ValueError(
                'a dataset of traces is always used completely; leave out limit and part with format = "traces"'
            )
        return self

    _name: str = PrivateAttr("NAME")
    """Its name in the recipe, for messages."""
    _folder: Path = PrivateAttr(Path())
    """The recipe's, where the files of a format and an answer type from outside are looked for."""
