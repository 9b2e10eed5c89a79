"""Writes the questions of a round as a source: those that a student fails, with its wrong replies.

A question goes back when the judge calls a reply to it wrong and few of its replies are right. A question with only
undecided replies does not go back, because the judge could not separate right traces from wrong ones.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from distill.artifacts.files import describe
from distill.artifacts.integrity import changed
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import PREDICTIONS
from distill.artifacts.manifest import Manifest, fingerprint, require
from distill.data import reader
from distill.data.tables.rows_with_images import IMAGE_CELLS, cells_of_images, write_rows
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ANSWER_TYPE_NAMES
from distill.recipe.sections.rounds import REPLY
from distill.rounds.round_recipes import QUESTIONS_FILE
from distill.types import Sample

_ROUNDING = 1e-9
"""A share of so many replies is a whole number in a recipe, but not always as a float: 0.58 * 50 is below 29."""
_SCHEMA = pa.schema(
    [
        ("image", IMAGE_CELLS),
        ("question", pa.string()),
        ("answer", pa.list_(pa.string())),
        ("answer_type", pa.string()),
        ("domain", pa.string()),
        ("meta", pa.string()),
    ]
)


def write_returned(recipe: Recipe, attempts: Sequence[Path], folder: Path) -> Manifest:
    """Write the questions that go back to `folder`, from the finished evaluations in these run directories.

    Each holds one reply to every question. Returns at once what is there and made from the same replies. Without a
    question to return it writes no file of them.
    """
    settings = recipe.rounds
    evaluated = [require(run, "eval", next_step="run `distill run` again") for run in attempts]
    fields = {
        # What a question holds besides its words, such as the table of its chart, is not in the predictions.
        "evaluations": [manifest.fingerprint for manifest in evaluated],
        "predictions": [manifest.outputs[PREDICTIONS].sha256 for manifest in evaluated],
        "rounds.returned": settings.returned,
        "rounds.most_right": settings.most_right,
    }
    made = fingerprint(fields)
    before = Manifest.read(folder)
    if (
        before is not None
        and before.fingerprint == made
        and not changed(folder, before.outputs.items(), digests=True)
    ):
        return before
    verdicts: Counter[str] = Counter()
    right: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    for run in attempts:
        for line in read_jsonl(run / "eval" / PREDICTIONS):
            verdicts[line["verdict"]] += 1
            if line["verdict"] == "correct":
                right[line["sample_id"]] += 1
            elif line["verdict"] == "wrong":
                wrong.setdefault(line["sample_id"], line["text"])
    most_right = settings.most_right * len(attempts) + _ROUNDING
    failed = [identity for identity in wrong if right[identity] <= most_right]
    chosen = sorted(failed, key=lambda identity: (right[identity], identity))[: settings.returned]
    path = folder / QUESTIONS_FILE
    path.unlink(missing_ok=True)
    if chosen:
        write_rows(path, _SCHEMA, _rows(recipe, {identity: wrong[identity] for identity in chosen}))
    return Manifest(
        stage="rounds/questions",
        fingerprint=made,
        fields=fields,
        inputs={run.name: manifest.fingerprint for run, manifest in zip(attempts, evaluated, strict=True)},
        outputs={QUESTIONS_FILE: describe(path, len(chosen))} if chosen else {},
        counts={
            "replies": verdicts.total(),
            **{verdict: verdicts[verdict] for verdict in ("correct", "wrong", "undecided")},
            "returned": len(chosen),
        },
    ).write(folder)


def _rows(recipe: Recipe, replies: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The questions in the order of their source, each with the reply that was wrong."""
    for sample in reader.samples(recipe, recipe.rounds.questions):
        if sample.id in replies:
            yield _row(sample, replies[sample.id])


def _row(sample: Sample, reply: str) -> dict[str, Any]:
    meta = {**sample.meta, REPLY: reply}
    known = sample.answer_type in ANSWER_TYPE_NAMES
    return {
        "image": cells_of_images(sample.images),
        "question": sample.question,
        "answer": list(sample.answers),
        "answer_type": sample.answer_type if known else None,  # code of the user's is named by the source
        "domain": sample.domain,
        "meta": orjson.dumps(meta, option=orjson.OPT_SORT_KEYS, default=str).decode(),
    }
