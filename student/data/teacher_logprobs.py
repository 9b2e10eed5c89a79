"""The teachers' stored distributions, put beside the tokens that the student learns.

`collect` reads the journals of generate once and writes a table to disk, with a row for every response token and 6
bytes for each of its places. 100,000 responses of 500 tokens take 6.3 GB at 21 places. The table is memory-mapped, so
it needs almost no memory. A response is framed otherwise than what the teacher wrote (tags, the answer's spelling),
so only tokens inside a run that both share have a distribution. Does not cover the loss
(student/loss/teacher_divergence.py).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distill.artifacts.files import storage_errors
from distill.errors import DataError, ModelError
from distill.rationale import NO_THINK
from distill.recipe.sections.stages import TRACES, Stage
from distill.trace_records import logprobs, scores
from distill.word_tables import counted

if TYPE_CHECKING:
    from student.data.encoded_rows import Example

Decode = Callable[[list[int]], str]
"""The text of token ids, special tokens left out."""

_LEAST_RUN = 4
"""Shorter runs of equal tokens meet by chance, in another context than the teacher's."""
_CHECKED_TRACES = 64
_GARBLED_SHARE = 0.1
"""Share of garbled traces from which a teacher has another tokenizer than the student."""
_NO_CHARACTER = 0x10FFFF
_STARTS, _IDS, _VALUES = "starts.npy", "ids.i4", "values.f2"
_MARKS = re.compile(r"</?\w+>")


@dataclass(slots=True)
class Coverage:
    """How much of what a teacher wrote has distributions."""

    traces: int = 0
    tokens: int = 0
    """Response tokens of the student's."""
    aligned: int = 0
    """Tokens of them that have a distribution."""

    @property
    def share(self) -> float:
        return self.aligned / self.tokens if self.tokens else 0.0


class TopLogprobs:
    """The table that `collect` left in a folder. It is pickled as its path, so that workers share the pages."""

    def __init__(self, folder: Path, width: int) -> None:
        self._folder = folder
        self.width = width
        """Places a token."""
        self._starts = np.load(folder / _STARTS)
        self._ids = np.memmap(folder / _IDS, "<i4", mode="r").reshape(-1, width)
        self._values = np.memmap(folder / _VALUES, "<f2", mode="r").reshape(-1, width)

    def __reduce__(self) -> tuple[type["TopLogprobs"], tuple[Path, int]]:
        return type(self), (self._folder, self.width)

    def of(self, row: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids int32 and natural log-probabilities float32 of a row's response tokens, both [tokens, width].

        Empty places hold NO_TOKEN and -inf; where a token has no distribution, all of them do.
        """
        start = self._starts[row]
        if start < 0:
            shape = tokens, self.width
            return np.full(shape, logprobs.NO_TOKEN, np.int32), np.full(shape, -np.inf, np.float32)
        result = slice(start, start + tokens)
        return np.array(self._ids[result]), self._values[result].astype(np.float32)


def of_examples(
    run: Path, examples: "Sequence[Example]", stage: Stage, *, top_k: int, decode: Decode, folder: Path
) -> tuple[TopLogprobs, dict[str, Coverage]]:
    """`collect` for the rows of a stage. A trace learned without its rationale has none: its teacher had thought."""
    own = stage.rollouts is not None
    rows = [
        TraceRow(
            trace=example.row.id if is_whole_trace(example) else "",
            response=example.ids[example.begin :],
            teacher=example.row.teacher,
        )
        for example in examples
    ]
    records = scores.of_image(run, stage.name) if own else None
    place = run / (scores.FOLDER if own else "generate")
    return collect(place, rows, top_k=top_k, decode=decode, folder=folder, records=records)


def is_whole_trace(example: "Example") -> bool:
    """Whether a row is a trace with its rationale."""
    return example.row.source.partition(":")[0] == TRACES and not example.row.question.endswith(NO_THINK)


class TraceRow(NamedTuple):
    """What a row has of a trace."""

    trace: str
    """Id of the trace; "" for a row of another source."""
    response: np.ndarray
    """Its token ids as the student writes them, int32[tokens]."""
    teacher: str = ""
    """Who wrote it by the data; "": whom the record names."""


def collect(
    generate: Path,
    rows: Sequence[TraceRow],
    *,
    top_k: int,
    decode: Decode,
    folder: Path,
    records: Iterable[Mapping[str, Any]] | None = None,
) -> tuple[TopLogprobs, dict[str, Coverage]]:
    """The distributions of a stage's rows, and by teacher how many of its tokens have one.

    `generate` is the folder of a run's generate stage, `decode` the student's, `records` what is read in the place of
    the journals below `generate`. A trace counts once: after its teacher was renamed it lies in the folders of both
    names. Of every stored distribution the `top_k` likeliest tokens and the sampled one are kept. Raises ModelError
    for a teacher with other tokens than the student's, and DataError when nothing has a distribution.
    """
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        if row.trace:
            numbers[row.trace].append(number)
    starts = np.full(len(rows), -1, np.int64)
    coverage: dict[str, Coverage] = defaultdict(Coverage)
    checks: dict[str, _TokenCheck] = {}
    written = 0
    with storage_errors(folder), ExitStack() as files:
        folder.mkdir(parents=True, exist_ok=True)
        # Written front to back: a mapped file on a full disk would kill the process instead of raising.
        outputs = [files.enter_context((folder / name).open("wb")) for name in (_IDS, _VALUES)]
        for record in logprobs.records(generate, numbers) if records is None else records:
            if record["id"] not in numbers or starts[numbers[record["id"]][0]] >= 0:
                continue
            teacher = record["teacher"]
            ids, values = logprobs.decode(record["logprobs"])
            checks.setdefault(teacher, _TokenCheck(teacher, decode)).see(record, ids[:, 0])
            table = likeliest(ids, values, top_k)
            for number in numbers[record["id"]]:
                positions = align(rows[number].response, ids[:, 0])
                for output, kept, empty in zip(outputs, table, (logprobs.NO_TOKEN, -np.inf), strict=True):
                    # Place -1 is the row added at the end.
                    output.write(np.pad(kept, ((0, 1), (0, 0)), constant_values=empty)[positions].tobytes())
                starts[number], written = written, written + len(positions)
                of_teacher = coverage[rows[number].teacher or teacher]
                of_teacher.traces += 1
                of_teacher.tokens += len(positions)
                of_teacher.aligned += int((positions >= 0).sum())
        for check in checks.values():
            check.require()
        np.save(folder / _STARTS, starts)
    if not any(each.aligned for each in coverage.values()):
        stored = sum(each.traces for each in coverage.values())
        raise DataError(
            f"{generate}: {stored:,} of the {counted(len(numbers), 'trace')} to learn from have log-probabilities, "
            "but none for a token that the student learns; set logprobs under [[teachers]] and generate again, or "
            "train without [stages.distill]"
        )
    return TopLogprobs(folder, top_k + 1), dict(coverage)


class _TokenCheck:
    """Whether a teacher's token ids are the student's: read by the student, they must give the teacher's text.

    Names of models and sizes of vocabularies say less: the stored ids are what counts.
    """

    def __init__(self, teacher: str, decode: Decode) -> None:
        self._teacher = teacher
        self._decode = decode
        self._seen = 0
        self._garbled: list[str] = []

    def see(self, record: Mapping[str, Any], ids: np.ndarray) -> None:
        """Look at one of the first traces. `ids` are its tokens."""
        if self._seen == _CHECKED_TRACES:
            return
        self._seen += 1
        read = self._decode([int(token) for token in ids if token >= 0])
        # Servers write thinking marks in their own way, and white space at the edges of fields is theirs, too.
        squeezed = _squeeze(read)
        if not all(_squeeze(piece) in squeezed for piece in _MARKS.split(record["text"])):
            self._garbled.append(f"trace {record['id']} says {record['text'][:60]!r}, its tokens {read[:60]!r}")
        if self._seen == _CHECKED_TRACES:
            self.require()

    def require(self) -> None:
        """Raise ModelError when too many texts came out as others."""
        if len(self._garbled) > _GARBLED_SHARE * self._seen:
            raise ModelError(
                f"teacher '{self._teacher}' has another tokenizer than the student: decoded with the student's "
                f"tokenizer, {len(self._garbled)} of {self._seen} traces give another text ({self._garbled[0]}); "
                "teacher and student need the same tokenizer: remove [stages.distill], or use a student of the "
                "teacher's model family"
            )


def _squeeze(text: str) -> str:
    return "".join(text.split())


def likeliest(ids: np.ndarray, values: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The sampled token and the `top_k` likeliest, from ids and log-probabilities [tokens, 1 + k], sampled one first.

    Both [tokens, top_k + 1], int32 and float16, no id twice in a row; empty places (NO_TOKEN, -inf) where there are
    fewer.
    """
    best = np.argsort(-values[:, 1:], axis=1, kind="stable")[:, :top_k] + 1
    kept_ids = np.full((len(ids), top_k + 1), logprobs.NO_TOKEN, "<i4")
    kept_values = np.full(kept_ids.shape, -np.inf, "<f2")
    kept_ids[:, : best.shape[1]] = np.take_along_axis(ids, best, axis=1)
    kept_values[:, : best.shape[1]] = np.take_along_axis(values, best, axis=1)
    missing = (kept_ids != ids[:, :1]).all(axis=1)
    kept_ids[missing, -1], kept_values[missing, -1] = ids[missing, 0], values[missing, 0]
    return kept_ids, kept_values


def align(ours: np.ndarray, theirs: np.ndarray, *, least: int = _LEAST_RUN) -> np.ndarray:
    """For each of our tokens its place among theirs or -1, int64[ours]; places rise.

    From left to right, the longest run of at least `least` tokens that begins here is taken where it first
    occurs in what is left of theirs. Tokens are searched as the characters of a text, which is linear for responses
    that share long runs and takes 10 ms for two of 4,000 tokens that share none.
    """
    text, source = _as_text(ours), _as_text(theirs)
    positions = np.full(len(text), -1, np.int64)
    here = left = 0
    while here + least <= len(text):
        start = source.find(text[here : here + least], left)
        if start < 0:
            here += 1
            continue
        fits, too_long = least, min(len(text) - here, len(source) - start) + 1
        while too_long - fits > 1:
            length = (fits + too_long) // 2
            result = source.find(text[here : here + length], start)
            if result < 0:
                too_long = length
            else:
                fits, start = length, result
        positions[here : here + fits] = np.arange(start, start + fits)
        here, left = here + fits, start + fits
    return positions


def _as_text(ids: np.ndarray) -> str:
    """Each id as a character; no vocabulary is larger than Unicode."""
    return np.where(ids < 0, _NO_CHARACTER, ids).astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
