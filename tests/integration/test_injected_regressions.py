"""Damage done to a good run on purpose is shown where a user looks: the summary, the manifest, the report, the card.

The run is one of the tiny world: its images and questions, and rationales in its teachers' styles.
"""

import importlib.util
import io
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import orjson
import pytest
from PIL import Image
from worlds import run_fixtures

from distill.artifacts.manifest import Manifest
from distill.commands.stages import filter_stage
from distill.commands.status import run_status
from distill.data import reader
from distill.data.images.image_files import read_bytes, sha256
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Sample, Trace
from student.evaluation import metrics
from student.inference.scoring import score_reply

TINY = Path(__file__).parents[2] / "recipes" / "tiny"
QUESTIONS = 120
SETTINGS = f"""
[data.questions]
source = "{TINY}/data/questions.parquet"
limit = {QUESTIONS}
[data.test]
source = "{TINY}/data/test.parquet"
limit = 60
[[teachers]]
name = "structured"
model = "teachers/structured"
"""
LEADS = ("I look closely.", "Let me see.", "Here is what I see.", "Looking at the picture.")
STYLES = {"scenes": "structured", "charts": "analyst", "digits": "reader"}
Damage = Callable[[Sequence[Sample], list[Trace]], list[Trace]]


@pytest.fixture(scope="module")
def styles() -> Iterator[ModuleType]:
    """The tiny world's questions.py, which is no package."""
    names = ("world", "questions")
    sys.path.insert(0, str(TINY))
    try:
        for name in names:
            spec = importlib.util.spec_from_file_location(name, TINY / f"{name}.py")
            assert spec and spec.loader
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        yield sys.modules["questions"]
    finally:
        sys.path.remove(str(TINY))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, styles: ModuleType) -> tuple[list[Sample], list[Trace]]:
    """Questions of the tiny world, and four right traces of each in the style of its teacher."""
    samples = list(reader.samples(recipe_in(tmp_path_factory.mktemp("good")), "questions"))
    return samples, [trace for sample in samples for trace in traces_of(sample, styles)]


def traces_of(sample: Sample, styles: ModuleType, count: int = 4) -> list[Trace]:
    world = sys.modules["world"]
    meta = sample.meta
    asked = world.Question(
        kind=meta["kind"], terms=tuple(meta["terms"]), text=sample.question, answer=sample.answer or ""
    )
    shown = world.Picture(domain=sample.domain, content=meta)
    return [
        run_fixtures.trace(
            sample,
            asked.answer,
            # Each in slightly different words, so that none is an exact duplicate.
            f"{LEADS[k]} " + styles.rationale(shown, asked, np.random.default_rng([k, int(sample.id[:8], 16)])),
            teacher=STYLES[sample.domain],
            k=k,
        )
        for k in range(count)
    ]


def recipe_in(folder: Path, more: str = "") -> Recipe:
    path = folder / "recipe.toml"
    path.write_text(SETTINGS + more, encoding="utf-8")
    return load(path)


class ShownFaults:
    """A filtered run, and everything that is said about it."""

    def __init__(self, folder: Path, samples: Sequence[Sample], traces: Sequence[Trace], more: str = "") -> None:
        run = folder / "run"
        run_fixtures.generate_folder(run, samples, traces)
        self.summary = filter_stage(recipe_in(folder, more), run)
        manifest = Manifest.read(run / "filter")
        assert manifest is not None
        self.counts = manifest.counts
        self.health = orjson.loads((run / "filter/health.json").read_bytes())
        self.warned = {check["name"] for check in self.health["checks"] if check["warning"]}
        self.places = {
            "summary": self.summary,
            "status": run_status(run),
            "report": (run / "filter/report.html").read_text(encoding="utf-8"),
            "card": (run / "filter/dataset/README.md").read_text(encoding="utf-8"),
        }
        self.folder = folder

    def check(self, name: str) -> dict[str, Any]:
        (found,) = (check for check in self.health["checks"] if check["name"] == name)
        return dict(found)

    def is_shown_everywhere(self) -> bool:
        """Whether every warning stands wherever a user may look."""
        assert self.counts["warnings"] == len(self.health["warnings"]) > 0
        marks = {"summary": "warning: ", "status": "warning: ", "report": ">warning<", "card": "**Warning**: "}
        return all(
            marks[place] in text and all(warning[:40] in text for warning in self.health["warnings"])
            for place, text in self.places.items()
        )


def without_gold(samples: Sequence[Sample]) -> list[Sample]:
    return [replace(sample, answers=()) for sample in samples]


def permuted(traces: Sequence[Trace], chance: random.Random) -> list[Trace]:
    """The traces in another order within each teacher."""
    found = list(traces)
    for teacher in sorted({trace.teacher for trace in traces}):
        places = [place for place, trace in enumerate(traces) if trace.teacher == teacher]
        for place, other in zip(places, chance.sample(places, len(places)), strict=True):
            found[place] = traces[other]
    return found


def with_rationales_of(traces: Sequence[Trace], others: Sequence[Trace]) -> list[Trace]:
    return [replace(trace, reasoning=other.reasoning) for trace, other in zip(traces, others, strict=True)]


def wrong(trace: Trace, by: int) -> Trace:
    """The trace with another result, in its rationale as well."""
    answer = str(int(trace.answer) + by)
    head, _, _ = trace.reasoning.rpartition(trace.answer)
    return replace(trace, answer=answer, reasoning=f"{head}{answer}.")


def partly_wrong(traces: Sequence[Trace], chance: random.Random, share: float = 0.3) -> list[Trace]:
    spoilt = set(chance.sample(range(len(traces)), round(share * len(traces))))
    return [wrong(trace, chance.randint(1, 4)) if place in spoilt else trace for place, trace in enumerate(traces)]


# --- a good run ---------------------------------------------------------------------------------------------------


def test_a_good_run_is_warned_of_nowhere(good: tuple[list[Sample], list[Trace]], tmp_path: Path) -> None:
    shown = ShownFaults(tmp_path, *good)
    # The questions of this world are worded by templates, and so are its rationales.
    notes = [note for note in shown.health["notes"] if "follow a template" not in note]
    assert shown.health["warnings"] == notes == [] and not shown.warned
    assert "warnings" not in shown.counts
    lines = "\n".join((shown.summary, shown.places["status"])).splitlines()
    assert not [line for line in lines if "warning: " in line]
    assert not [line for line in lines if "note: " in line and "same words as another trace" not in line]
    assert ">warning<" not in shown.places["report"] and "**Warning**" not in shown.places["card"]
    # All of it was looked at; a check that knows nothing would be no comfort.
    assert shown.check("wrong")["checked"] == shown.counts["selected"] > 350
    assert shown.check("contradicted")["checked"] > 0.95 * shown.counts["selected"]
    assert shown.check("related")["share"] > 0.95 and shown.check("ungrounded")["checked"] > 100


def test_a_good_run_without_gold_answers_is_warned_of_nowhere(
    good: tuple[list[Sample], list[Trace]], tmp_path: Path
) -> None:
    samples, traces = good
    shown = ShownFaults(tmp_path, without_gold(samples), partly_wrong(traces, random.Random(1), share=0.02))
    assert not shown.warned and shown.check("contested")["checked"] > 350


# --- shuffled rationales --------------------------------------------------------------------------------------------


def test_rationales_of_other_questions_are_reported(good: tuple[list[Sample], list[Trace]], tmp_path: Path) -> None:
    samples, traces = good
    shown = ShownFaults(tmp_path, samples, with_rationales_of(traces, permuted(traces, random.Random(0))))
    assert {"contradicted", "ungrounded", "related"} <= shown.warned and shown.is_shown_everywhere()
    assert shown.counts["selected.contradicted"] > 0.5 * shown.counts["selected"]


def test_whole_traces_of_other_questions_are_reported_without_gold_answers(
    good: tuple[list[Sample], list[Trace]], tmp_path: Path
) -> None:
    samples, traces = good
    others = permuted(traces, random.Random(0))
    swapped = [
        replace(trace, reasoning=other.reasoning, answer=other.answer)
        for trace, other in zip(traces, others, strict=True)
    ]
    shown = ShownFaults(tmp_path, without_gold(samples), swapped)
    assert {"contested", "ungrounded", "related"} <= shown.warned and shown.is_shown_everywhere()


def test_rationales_of_other_questions_with_the_same_answer_are_reported(
    good: tuple[list[Sample], list[Trace]], tmp_path: Path
) -> None:
    """Every answer is right and follows from its rationale: only what the rationale is about is wrong."""
    samples, traces = good
    chance = random.Random(0)
    by_answer: dict[tuple[str, str], list[int]] = {}
    for place, trace in enumerate(traces):
        by_answer.setdefault((trace.teacher, trace.answer), []).append(place)
    others = list(traces)
    for places in by_answer.values():
        for place, other in zip(places, chance.sample(places, len(places)), strict=True):
            others[place] = traces[other]
    shown = ShownFaults(tmp_path, samples, with_rationales_of(traces, others))
    assert shown.warned == {"ungrounded"} and shown.is_shown_everywhere()
    assert shown.check("related")["share"] < 0.9
    assert shown.check("contradicted")["count"] == shown.check("wrong")["count"] == 0


# --- wrong answers --------------------------------------------------------------------------------------------------

KEEP_WRONG = '[filter]\nrules = [{ name = "incomplete", drop = "outcome <> \'complete\'" }]\n'


def test_wrong_answers_that_no_rule_drops_are_reported(
    good: tuple[list[Sample], list[Trace]], tmp_path: Path
) -> None:
    samples, traces = good
    spoilt = partly_wrong(traces, random.Random(0))
    shown = ShownFaults(tmp_path, samples, spoilt, KEEP_WRONG)
    assert shown.warned == {"wrong"} and shown.is_shown_everywhere()
    found = shown.check("wrong")
    assert shown.counts["selected.wrong"] == found["count"] == round(0.3 * len(traces))
    assert found["ci95"][0] < 0.3 < found["ci95"][1]
    assert "answer_verdict = 'wrong'" in shown.summary


def test_the_usual_rules_drop_wrong_answers_and_nothing_is_warned_of(
    good: tuple[list[Sample], list[Trace]], tmp_path: Path
) -> None:
    samples, traces = good
    shown = ShownFaults(tmp_path, samples, partly_wrong(traces, random.Random(0)))
    assert not shown.warned and shown.counts["rule.wrong_answer"] == round(0.3 * len(traces))


def test_wrong_answers_are_reported_without_gold_by_the_votes_of_other_traces(
    good: tuple[list[Sample], list[Trace]], tmp_path: Path
) -> None:
    samples, traces = good
    shown = ShownFaults(tmp_path, without_gold(samples), partly_wrong(traces, random.Random(0)), KEEP_WRONG)
    assert shown.warned == {"contested"} and shown.is_shown_everywhere()
    assert shown.check("contested")["share"] > 0.25


def test_where_two_traces_of_a_question_differ_neither_has_a_majority(
    good: tuple[list[Sample], list[Trace]], tmp_path: Path
) -> None:
    samples, traces = good
    pairs = [trace for trace in partly_wrong(traces, random.Random(0)) if trace.k < 2]
    shown = ShownFaults(tmp_path, without_gold(samples), pairs, KEEP_WRONG)
    assert shown.warned == {"contested"} and shown.check("contested")["share"] > 0.35


def test_the_rule_that_the_warning_names_ends_it(good: tuple[list[Sample], list[Trace]], tmp_path: Path) -> None:
    samples, traces = good
    rule = "answer_verdict IS NULL AND not coalesce(in_majority, false)"
    more = f'[[filter.rules]]\nname = "contested"\ndrop = "{rule}"\n'
    shown = ShownFaults(tmp_path, without_gold(samples), partly_wrong(traces, random.Random(0)), more)
    assert not shown.warned and shown.check("contested")["count"] == 0 < shown.counts["rule.contested"]


# --- leaked test questions ------------------------------------------------------------------------------------------


def leaked(folder: Path, styles: ModuleType) -> tuple[list[Sample], list[Trace]]:
    """Test questions as training questions: as they are, in other words, with the image saved again."""
    found = []
    for place, sample in enumerate(list(reader.samples(recipe_in(folder), "test"))[:12]):
        (ref,) = sample.images
        if place % 3 == 1:
            sample = replace(sample, question="Please tell me: " + sample.question)
        if place % 3 == 2:
            buffer = io.BytesIO()
            Image.open(io.BytesIO(read_bytes(ref))).convert("RGB").save(buffer, "JPEG", quality=92)
            path = folder / f"saved-{place}.jpg"
            path.write_bytes(buffer.getvalue())
            ref = ImageRef(sha256=sha256(buffer.getvalue()), path=str(path))
        sample = replace(sample, images=(ref,), id=run_fixtures.sample_id(sample.question, [ref.sha256]))
        found.append(sample)
    return found, [trace for sample in found for trace in traces_of(sample, styles, count=1)]


def test_test_questions_in_the_dataset_are_reported(
    good: tuple[list[Sample], list[Trace]], styles: ModuleType, tmp_path: Path
) -> None:
    questions, traces = leaked(tmp_path, styles)
    shown = ShownFaults(tmp_path, good[0] + questions, good[1] + traces, KEEP_WRONG)
    assert shown.warned == {"leaked"} and shown.is_shown_everywhere()
    assert shown.counts["selected.leaked"] == 12 and "[data.test]" in shown.summary


def test_test_questions_that_were_dropped_are_still_noted(
    good: tuple[list[Sample], list[Trace]], styles: ModuleType, tmp_path: Path
) -> None:
    questions, traces = leaked(tmp_path, styles)
    shown = ShownFaults(tmp_path, good[0] + questions, good[1] + traces)
    assert not shown.warned and shown.counts["rule.contaminated"] == 12
    for place in ("summary", "status", "report", "card"):
        assert "12 questions in [data.test] with the images" in shown.places[place]


# --- the command, and evaluation ------------------------------------------------------------------------------------


def test_the_command_prints_the_warning(good: tuple[list[Sample], list[Trace]], tmp_path: Path) -> None:
    samples, traces = good
    shuffled = with_rationales_of(traces, permuted(traces, random.Random(0)))
    run_fixtures.generate_folder(tmp_path / "run", samples, shuffled)
    recipe_in(tmp_path)
    command = [
        sys.executable,
        "-m",
        "distill",
        "filter",
        str(tmp_path / "recipe.toml"),
        "--run",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "filter: warnings" in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    assert any("have another one than the answer that follows" in line for line in lines)


def test_metrics_show_a_student_that_learned_shuffled_rationales(
    good: tuple[list[Sample], list[Trace]],
) -> None:
    """Its answers may be right: consistency and unsupported values give it away, with room between the intervals."""
    samples, traces = good
    first = [trace for trace in traces if trace.k == 0]
    others = permuted(first, random.Random(0))

    def overview(said: Sequence[Trace]) -> dict[str, Any]:
        return metrics.group_metrics([reply(sample, trace) for sample, trace in zip(samples, said, strict=True)])

    clean, damaged = overview(first), overview(with_rationales_of(first, others))
    assert clean["accuracy"] == damaged["accuracy"] == 1
    assert damaged["consistency_rate_ci95"][1] < 0.5 < 0.9 < clean["consistency_rate_ci95"][0]
    assert clean["hallucination_rate_ci95"][1] < 0.1 < 0.5 < damaged["hallucination_rate_ci95"][0]


def reply(sample: Sample, trace: Trace) -> dict[str, Any]:
    words = len(trace.reasoning.split())
    said = {
        "text": f"<think>\n{trace.reasoning}\n</think>\n\n{trace.answer}",
        "tokens": words + 1,
        "rationale_tokens": words,
        "truncated": False,
    }
    return score_reply(sample, said, plain=False, relative_tolerance=0.0)
