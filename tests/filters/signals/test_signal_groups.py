"""Samples that are measured together have the signals that each has alone."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace, Usage
from filters.signals import registry
from filters.signals.base import family
from filters.signals.families.repetition import Repetition
from filters.signals.time_limits import MOST_CHARACTERS
from filters.text.minhash import Scheme, remember_forms, sign
from filters.text.shared_texts import forget_texts
from filters.text.words import comparable_text

TEXTS = (
    "The red bar is 8 and the blue one 6, so 8 + 6 = 15.",
    "Wait, let me recheck: the red bar is 8. I cannot see the image.",
    "图中红色的柱子大约到8，比蓝色的高。等等，再数一遍。",
    "- The red bar\n- is 8\n\nThe blue bar is taller than Norway's, so 3 more.",
)
TABLE = {"bars": {"red": 8, "blue": 6}}


def trace(sample_id: str, k: int, reasoning: str) -> Trace:
    return Trace(
        id=f"{sample_id}-{k}", sample_id=sample_id, teacher="t", k=k, seed=k, reasoning=reasoning, answer="red",
        text=reasoning, outcome="complete", finish_reason="stop", usage=Usage(), params={}, model="m", revision="",
        engine={}, prompt_sha="", latency_s=0.0, created="",
    )  # fmt: skip


def questions() -> list[tuple[Sample, list[Trace]]]:
    asked = []
    for number in range(6):
        sample = Sample(id=f"s{number}", images=(), question="How many?", answers=("red",), meta=TABLE)
        own = [trace(sample.id, k, TEXTS[(number + k) % len(TEXTS)] + " Yes." * number) for k in range(3)]
        asked.append((sample, own))
    return asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Picky:
    name: ClassVar[str] = "picky"
    version: ClassVar[str] = "1"
    scope: ClassVar[str] = "sample"
    columns: ClassVar[pa.Schema] = family("picky", picky_length=("count", "characters"))

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        if sample.id == "s3":
            raise ValueError("not this one")
        return [{"picky_state": "ok", "picky_length": len(each.reasoning)} for each in traces]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy:
    """A user's family that looks at who wrote a trace."""

    name: ClassVar[str] = "written_by"
    version: ClassVar[str] = "1"
    scope: ClassVar[str] = "trace"
    columns: ClassVar[pa.Schema] = family("written_by", written_by=("text", "the teacher"))

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        return [{"written_by_state": "ok", "written_by": each.teacher} for each in traces]


def test_traces_that_say_the_same_are_measured_once_and_have_the_rows_that_each_has_alone(monkeypatch) -> None:
    families = tuple(each.from_recipe(Recipe()) for each in registry.FAMILIES.values() if each.scope == "trace")
    families = (*families, WrittenBy())
    sample = questions()[0][0]
    texts = (TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[0])
    traces = [
        replace(trace(sample.id, k, text), teacher="abcd"[k], hinted=k > 1, model=f"m{k}", notes=("a note",) * k)
        for k, text in enumerate(texts)
    ]
    traces[3] = replace(traces[3], finish_reason="length", outcome="truncated")
    alone = [row for each in traces for row in registry.rows(families, sample, [each])]
    measure, counts = Repetition.measure, []

    def counted(self: Repetition, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        counts.append(len(traces))
        return measure(self, sample, traces)

    monkeypatch.setattr(Repetition, "measure", counted)
    assert registry.rows(families, sample, traces) == alone
    assert counts == [3], "the third trace says what the first one says; the fourth was cut"
    assert [row["written_by"] for row in alone] == ["a", "b", "c", "d"]


def test_a_group_of_samples_has_the_rows_of_each_sample_alone() -> None:
    families = (*(each.from_recipe(Recipe()) for each in registry.FAMILIES.values()), Picky())
    asked = questions()
    alone = [row for sample, traces in asked for row in registry.rows(families, sample, traces)]
    forget_texts()
    remember_forms([comparable_text(each) for _, traces in asked for each in traces])
    together = registry.rows_of_samples(families, asked)
    forget_texts()
    assert together == alone
    assert {row["picky_state"] for row in together if row["sample_id"] == "s3"} == {"error"}
    assert {row["picky_state"] for row in together if row["sample_id"] != "s3"} == {"ok"}
    assert {row["grounding_state"] for row in together} == {"ok"}


def test_a_text_that_is_too_long_leaves_the_others_of_its_group_measured() -> None:
    asked = questions()
    sample, traces = asked[2]
    asked[2] = (sample, [replace(traces[0], text="x" * (MOST_CHARACTERS + 1)), *traces[1:]])
    rows = registry.rows_of_samples((Picky(),), asked)
    states = {row["id"]: row["picky_state"] for row in rows}
    assert states.pop("s2-0") == "timed_out"
    assert {state for id, state in states.items() if not id.startswith("s3")} == {"ok"}


@pytest.mark.parametrize("remembered", [0, 2, 4])
def test_signatures_do_not_depend_on_the_forms_that_are_remembered(remembered: int) -> None:
    expected = sign(TEXTS, Scheme())
    remember_forms(TEXTS[:remembered])
    signed = sign(TEXTS, Scheme())
    forget_texts()
    assert (signed.signatures == expected.signatures).all() and (signed.digests == expected.digests).all()
    assert (signed.names == expected.names).all() and (signed.templates == expected.templates).all()
