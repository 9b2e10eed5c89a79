"""Log-probabilities of a trace's tokens, small enough to lie in its record, and read back as arrays.

A record's `logprobs` covers every generated token, also the end token and text that a parser removed. It holds the
sampled token and the k likeliest tokens, with natural log-probabilities before temperature, penalties and top-p
(vLLM's default). Values are kept as float16: within 0.1 % (0.03 at -40), and exact zero stays zero.
"""

import base64
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import requiring
from distill.artifacts.layout import part_paths
from distill.errors import DataError

if TYPE_CHECKING:
    import numpy as np

NO_TOKEN = -1
"""Fills a place for which the engine gave no token; its value is -inf."""


def encode(token_ids: "np.ndarray", values: "np.ndarray") -> dict[str, Any]:
    """The `logprobs` of a record; ids and log-probabilities have shape [tokens, 1 + k], the sampled token first."""
    import numpy as np

    if token_ids.shape != values.shape or token_ids.ndim != 2:
        raise ValueError(f"ids and values must be two tables of one shape, got {token_ids.shape} and {values.shape}")
    # Columns after one another compress better than rows: the sampled token is mostly the likeliest one.
    packed = np.ascontiguousarray(token_ids.T, "<i4").tobytes() + np.ascontiguousarray(values.T, "<f2").tobytes()
    tokens, width = token_ids.shape
    return {"tokens": tokens, "k": width - 1, "data": base64.b64encode(zlib.compress(packed, 6)).decode()}


def decode(kept: Mapping[str, Any]) -> "tuple[np.ndarray, np.ndarray]":
    """Ids (int32) and log-probabilities (float32) of shape [tokens, 1 + k]. Raises DataError."""
    import numpy as np

    try:
        tokens, width = int(kept["tokens"]), int(kept["k"]) + 1
        packed = zlib.decompress(base64.b64decode(kept["data"], validate=True))
        ids = np.frombuffer(packed, "<i4", count=tokens * width)
        values = np.frombuffer(packed, "<f2", offset=4 * tokens * width)
        return ids.reshape(width, tokens).T.astype(np.int32), values.reshape(width, tokens).T.astype(np.float32)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise DataError(
            f"log-probabilities of a trace cannot be read ({error}); its line was changed by hand"
        ) from None


def records(generate: Path, trace_ids: Collection[str]) -> Iterator[dict[str, Any]]:
    """The records of the given traces that have log-probabilities, in the order of the journals.

    `generate` is the folder of a run's generate stage. The journals are read once, front to back.
    """
    wanted_ids = frozenset(trace_ids)
    for journal in part_paths(generate, ".jsonl", below="*"):
        for record in read_jsonl(journal, check=requiring("id")):
            if record["id"] in wanted_ids and "logprobs" in record:
                yield record
