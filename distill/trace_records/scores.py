"""Scores: the log-probabilities that a teacher gives the tokens of texts it is shown, kept beside the traces.

`RUN/score/TEACHER-DIGEST.jsonl` is a journal with a line for each text and view: the text after its prompt with the
image, and after the same prompt without (`blind`). The digest covers everything about the teacher that changes its
scores, so a stage never uses scores of another teacher. `RUN/score/STAGE.json` says which journals a training stage
reads. Does not cover how texts are scored (teacher/score.py).
"""

import base64
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import requiring
from distill.errors import DataError
from distill.trace_records import logprobs

if TYPE_CHECKING:
    import numpy as np

FOLDER = "score"
FIELD = "scores."
"""Prefix of the fields of a training stage that name the journal it read of each teacher."""
WITH_IMAGE, BLIND = "picture", "blind"
"""The views: a text after its prompt with its image, and without."""
check_score = requiring("key", "trace", "view", "text", "logprobs", "ends")
_STEPS = 60
_LEAST_RAW = 1e-6


@dataclass(frozen=True, slots=True)
class ScoredText:
    """What a teacher gives the tokens of one text in one view."""

    text: str
    ids: "np.ndarray"
    """int32[tokens, 1 + k]: the tokens of the text, then the likeliest ones in their place."""
    values: "np.ndarray"
    """float32, of the same shape: natural log-probabilities."""
    ends: "np.ndarray"
    """int32[tokens]: how many characters of the text end with each token."""


def record_of(key: str, trace: str, view: str, scored: ScoredText, seconds: float = 0.0) -> dict[str, Any]:
    """The line of a journal. `seconds`: since the line before it, or since the teacher was asked."""
    return {
        "key": key,
        "trace": trace,
        "view": view,
        "text": scored.text,
        "logprobs": logprobs.encode(scored.ids, scored.values),
        "ends": base64.b64encode(zlib.compress(scored.ends.astype("<i4").tobytes())).decode(),
        "seconds": round(seconds, 4),
    }


def decode(record: Mapping[str, Any]) -> ScoredText:
    """The scores of a line. Raises DataError."""
    import numpy as np

    ids, values = logprobs.decode(record["logprobs"])
    try:
        ends = np.frombuffer(zlib.decompress(base64.b64decode(record["ends"], validate=True)), "<i4")
        if len(ends) != len(ids) or not isinstance(record["text"], str):
            raise ValueError("it has other tokens")
    except (TypeError, ValueError, zlib.error) as error:
        raise DataError(f"the score of trace {record['trace']} cannot be read ({error}); remove its line") from None
    return ScoredText(text=record["text"], ids=ids, values=values, ends=ends)


def settings_path(run: Path, stage: str) -> Path:
    """The file that says which scores a stage reads."""
    return run / FOLDER / f"{stage}.json"


def settings(run: Path, stage: str) -> dict[str, Any] | None:
    """The content of the file: `journals` by the teacher that scored; None without one."""
    try:
        read: dict[str, Any] = orjson.loads(settings_path(run, stage).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataError(f"{settings_path(run, stage)}: not valid JSON ({error}); remove it and train again") from None
    return read


def _records(run: Path, stage: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of the journals that a stage reads, each with the teacher that scored."""
    for teacher, name in (settings(run, stage) or {"journals": {}})["journals"].items():
        for record in read_jsonl(run / FOLDER / name, check=check_score, on_damage=lambda _: None):
            yield teacher, record


def by_trace(run: Path, stage: str) -> Iterator[tuple[str, dict[str, Mapping[str, Any]]]]:
    """The lines by view of every trace that has the scores of both views for a stage."""
    waiting: dict[str, dict[str, Mapping[str, Any]]] = {}
    for _, record in _records(run, stage):
        views = waiting.setdefault(record["trace"], {})
        views[record["view"]] = record
        if len(views) == 2:
            yield record["trace"], waiting.pop(record["trace"])


def of_image(run: Path, stage: str) -> Iterator[dict[str, Any]]:
    """The lines of the texts after their prompt with the image, with `id` and `teacher` as records of traces."""
    for teacher, record in _records(run, stage):
        if record["view"] == WITH_IMAGE:
            yield {**record, "id": record["trace"], "teacher": teacher}


def seconds(run: Path, stage: str, traces: Collection[str] | None) -> float:
    """Seconds that the scores of a stage took, of the given `traces` or of all."""
    return sum(
        float(record["seconds"]) for _, record in _records(run, stage) if traces is None or record["trace"] in traces
    )


def visual_gain(views: Mapping[str, Mapping[str, Any]]) -> "tuple[ScoredText, np.ndarray] | None":
    """A trace's text and, for each of its tokens, the nats that the image adds; None where the views differ."""
    image, blind = decode(views[WITH_IMAGE]), decode(views[BLIND])
    if image.text != blind.text or image.ids[:, 0].tolist() != blind.ids[:, 0].tolist():
        return None
    return image, image.values[:, 0] - blind.values[:, 0]


def visual_weights(gain: "np.ndarray", *, strength: float, least: float, most: float) -> "np.ndarray":
    """Loss weights of tokens from what the image adds to their log-probability, float32, with mean 1.

    In proportion to 1 + strength * gain, between `least` (at most 1) and `most` (at least 1). Bisection finds the
    factor that makes the mean 1 within these bounds.
    """
    import numpy as np

    if not len(gain):
        return np.ones(0, np.float32)
    raw = np.log(np.maximum(1 + strength * gain.astype(np.float64), _LEAST_RAW))
    low, high = np.log(least + _LEAST_RAW) - raw.max(), np.log(most + _LEAST_RAW) - raw.min()
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if np.clip(np.exp(raw + middle), least, most).mean() < 1:
            low = middle
        else:
            high = middle
    weights: np.ndarray = np.clip(np.exp(raw + high), least, most).astype(np.float32)
    return weights
