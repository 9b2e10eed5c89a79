"""How long a trace is for the student: tokens of its own tokenizer, without special or image tokens.

Needs the student's `tokenizer.json`, not its weights and not torch. Without a student section the lengths are numbers
of words, which the state records.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.artifacts.files import file_sha256
from distill.errors import ModelError
from distill.machine import hub
from distill.recipe.recipe import Recipe
from distill.types import Outcome, Sample, Trace
from filters.signals.base import LOCATION, NOT_APPLICABLE, OK, WORDS, family
from filters.signals.token_counts import cached_counter, find_text_split
from filters.text.words import words

_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    tokenizer: str | None = field(metadata=LOCATION)
    """Path of a tokenizer.json; None counts words."""
    tokenizer_sha256: str | None

    name: ClassVar[str] = "length"
    version: ClassVar[str] = "1"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family(
        "length",
        rationale_tokens=("count", "length of the rationale in the student's tokens"),
        answer_tokens=("count", "length of the answer in the student's tokens"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Length":
        path = student_tokenizer(recipe)
        if path is None:
            return cls(tokenizer=None, tokenizer_sha256=None)
        counter(str(path))  # an unreadable tokenizer is reported now, not after an hour of measuring
        return cls(tokenizer=str(path), tokenizer_sha256=file_sha256(path))

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        count = counter(self.tokenizer)
        lengths = count([text for trace in traces for text in (trace.reasoning, trace.answer)])
        state = WORDS if self.tokenizer is None else OK
        return [
            {"length_state": NOT_APPLICABLE}
            if trace.outcome == Outcome.ERROR
            else {
                "length_state": state,
                "rationale_tokens": lengths[2 * position],
                "answer_tokens": lengths[2 * position + 1],
            }
            for position, trace in enumerate(traces)
        ]


def student_tokenizer(recipe: Recipe) -> Path | None:
    """The tokenizer file of the recipe's student; None without a student. Raises ModelError when there is none."""
    if recipe.student is None:
        return None
    name = recipe.student.model or recipe.student.language or ""
    folder = Path(recipe.local_or_hub(name))
    if folder.is_dir():
        if not (folder / _FILE).is_file():
            raise ModelError(
                f"{folder}: no {_FILE}, so rationales cannot be counted in the student's tokens; save the tokenizer "
                "again with transformers (AutoTokenizer.from_pretrained(...).save_pretrained(...)) or leave 'length' "
                "out of filter.signals"
            )
        return folder / _FILE
    return _download(name, recipe.student.revision if recipe.student.model else None)


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    unreached = ""
    try:
        with hub.cache_if_unreached(name) as unreached:
            return Path(hf_hub_download(name, _FILE, revision=revision))
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        if unreached:
            raise ModelError(
                f"student.model or student.language: {hub.unreached_text(name, unreached, f'no {_FILE}')}; or leave "
                "'length' out of filter.signals"
            ) from error
        raise ModelError(
            f"student {name!r}: no directory of that name beside the recipe and its {_FILE} cannot be fetched from "
            f"the hub ({type(error).__name__}); check student.model or student.language, or leave 'length' out of "
            "filter.signals"
        ) from error


@cache
def counter(tokenizer: str | None) -> Callable[[list[str]], list[int]]:
    """A function from texts to their lengths. Raises ModelError when the tokenizer cannot be loaded."""
    if tokenizer is None:
        return lambda texts: [len(words(text)) for text in texts]
    from tokenizers import Tokenizer

    try:
        loaded = Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"{tokenizer}: cannot be read as a tokenizer: {error}") from error
    # Saved settings of a training run would cap or pad every length.
    loaded.no_truncation()
    loaded.no_padding()
    split = find_text_split(loaded.to_str())
    if split is None:
        return lambda texts: [len(tokens) for tokens in loaded.encode_batch_fast(texts, add_special_tokens=False)]
    count = cached_counter(split, lambda text: len(loaded.encode(text, add_special_tokens=False)))
    return lambda texts: [count(text) for text in texts]
