"""The content of the page about a run's students: the diagnosis of each stage, learning curves, and the replies of
all arms to one question side by side, also with the students of another run. Reads what training and evaluation
wrote."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import EVAL_METRICS, METRICS, PREDICTIONS, RECIPE, VALIDATION, stage_folders
from distill.data import reader
from distill.errors import DataError, RecipeError
from distill.recipe.loading import load
from distill.reports.findings import read_findings
from distill.stats.intervals import paired

_POINTS: Final = 400
"""Points of a curve that are sent; a longer one is thinned."""
_SHOWN: Final = ("verdict", "answer", "reasoning", "error_cause", "truncated", "well_formed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyQuery:
    """Which questions are wanted."""

    right: str = ""
    """Arm that is right; empty: any."""
    wrong: str = ""
    """Arm that is not right."""
    domain: str = ""
    words: str = ""
    offset: int = 0
    limit: int = 20


class Students:
    """The students of one run. Files are read again when they change.

    Replies of the run `other` are arms with the name `OTHER: arm`, for questions that both runs asked.
    """

    def __init__(self, run: Path, other: Path | None = None) -> None:
        self._run = run
        self._other = None if other is None else Students(other)
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._questions: list[dict[str, Any]] = []
        self._images: dict[str, list[dict[str, Any]]] | None = None

    def overview(self) -> dict[str, Any]:
        """Findings, arms with their accuracy, and the curves of every stage, also while it trains."""
        return {
            "findings": read_findings(self._run),
            "arms": self._arms(),
            "changes": self._changes(),
            "domains": sorted({question["domain"] for question in self._read()}),
            "curves": [
                curve
                for folder in stage_folders(self._run)
                for curve in (
                    _curve(folder, METRICS, "loss", f"{folder.name}: loss"),
                    _curve(folder, VALIDATION, "accuracy", f"{folder.name}: accuracy while training"),
                )
                if curve
            ],
        }

    def _arms(self) -> dict[str, dict[str, Any]]:
        path = self._run / "eval" / EVAL_METRICS
        metrics = orjson.loads(path.read_bytes()) if path.is_file() else {}
        arms = {
            name: {key: arm.get(key) for key in ("n", "accuracy", "ci95", "limited_by")}
            for name, arm in metrics.get("arms", {}).items()
        }
        if self._other is not None:
            arms |= {self._named(name): arm for name, arm in self._other._arms().items()}
        return arms

    def _named(self, arm: str) -> str:
        assert self._other is not None
        return f"{self._other._run.resolve().name}: {arm}"

    def _changes(self) -> list[dict[str, Any]]:
        """For each arm that both runs have: what got better and worse, over the questions that both asked."""
        if self._other is None:
            return []
        changes = []
        for arm in self._other._arms():
            before = self._named(arm)
            both = [
                question["replies"]
                for question in self._read()
                if arm in question["replies"] and before in question["replies"]
            ]
            if both:
                now, then = ([each[name]["verdict"] == "correct" for each in both] for name in (arm, before))
                changes.append({"arm": arm, "before": before, **asdict(paired(now, then))})
        return changes

    def questions(self, query: ReplyQuery) -> dict[str, Any]:
        """The questions that fit, with the replies of every arm; `total` counts all of them."""
        words = query.words.casefold().split()
        matching = [
            question
            for question in self._read()
            if (not query.domain or question["domain"] == query.domain)
            and _is_right(question, query.right, True)
            and _is_right(question, query.wrong, False)
            and all(word in question["question"].casefold() for word in words)
        ]
        shown = matching[query.offset : query.offset + query.limit]
        images = self.images() if shown else {}
        rows = [question | {"images": len(images.get(question["sample_id"], ()))} for question in shown]
        return {"total": len(matching), "rows": rows}

    def images(self) -> dict[str, list[dict[str, Any]]]:
        """References of the images of the evaluation's questions, by sample; none where the source is gone."""
        with self._lock:
            if self._images is None:
                self._images = dict(self._read_images())
            return self._images

    def _read_images(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        with suppress(DataError, RecipeError):  # replies are shown without images then
            if (self._run / RECIPE).is_file():
                recipe = load(self._run / RECIPE)
                for sample in reader.samples(recipe, recipe.eval.data):
                    yield sample.id, [asdict(image) for image in sample.images]

    def _read(self) -> list[dict[str, Any]]:
        own = self._read_own()
        if self._other is None:
            return own
        others = {question["sample_id"]: question["replies"] for question in self._other._read_own()}
        return [
            question
            | {
                "replies": question["replies"]
                | {self._named(arm): reply for arm, reply in others.get(question["sample_id"], {}).items()}
            }
            for question in own
        ]

    def _read_own(self) -> list[dict[str, Any]]:
        path = self._run / "eval" / PREDICTIONS
        if not path.is_file():
            return []
        with self._lock:
            stamp = (path.stat().st_mtime_ns, path.stat().st_size)
            if stamp != self._stamp:
                questions: dict[str, dict[str, Any]] = {}
                for line in read_jsonl(path, on_damage=lambda _: None):
                    question = questions.setdefault(
                        line["sample_id"],
                        {key: line[key] for key in ("sample_id", "question", "gold", "domain")} | {"replies": {}},
                    )
                    question["replies"][line["arm"]] = {key: line.get(key) for key in _SHOWN}
                self._questions, self._stamp, self._images = list(questions.values()), stamp, None
            return self._questions


def _is_right(question: Mapping[str, Any], arm: str, right: bool) -> bool:
    """Whether an arm that was asked is right, or is not; true where no arm is named."""
    reply = question["replies"].get(arm)
    return not arm or (reply is not None and (reply.get("verdict") == "correct") == right)


def _curve(folder: Path, name: str, key: str, title: str) -> dict[str, Any] | None:
    lines = read_jsonl(folder / name, on_damage=lambda _: None)
    points = [(line["step"], line[key]) for line in lines if isinstance(line.get(key), int | float)]
    if len(points) < 2:
        return None
    every = -(-len(points) // _POINTS)
    return {"title": title, "points": points[:-1:every] + points[-1:], "share": key == "accuracy"}
