"""The judge arm: asked about undecided verdicts only, each question once, and unclear replies decide nothing."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from worlds import run_fixtures as fixtures

from distill.artifacts.journal import read_jsonl
from distill.types import Sample, Trace
from filters.run_signals import teacher_judge
from filters.signals import schema
from filters.signals.families.answer import judge_trace

PROMPT = "Q: {question} G: {gold} P: {prediction} {other}"
UNCLEAR = ("a wolf, grey, I believe", "weeee, a wolf, grey, or so I believe")
Item = tuple[str, Sample, Trace]


class Teacher:
    """Says yes where the prediction holds a vowel twice, no elsewhere, and remembers what it was asked."""

    def __init__(self, replies: dict[str, str] | None = None) -> None:
        self.asked: list[str] = []
        self._replies = replies or {}

    def __call__(self, questions: list[str]) -> list[str]:
        self.asked += questions
        return [
            next((reply for part, reply in self._replies.items() if part in text), "Yes." if "eee" in text else "no")
            for text in questions
        ]


def items() -> list[Item]:
    """Right, wrong, empty and undecided answers, and questions without gold."""
    found = []
    for number in range(6):
        asked = fixtures.sample(f"Which animal is in picture {number}?", "a grey wolf", answer_type="text")
        for k, answer in enumerate(("a grey wolf", "a cow", UNCLEAR[0], "  ", UNCLEAR[1], UNCLEAR[0])):
            one = fixtures.trace(asked, answer, k=k)
            found.append((one.id, asked, one))
    asked = fixtures.sample("Without gold?")
    one = fixtures.trace(asked, "anything")
    return [*found, (one.id, asked, one)]


def rows(paths: list[Path]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for path in paths for row in pq.read_table(path).to_pylist()}


def run(found: list[Item], folder: Path, teacher: Teacher, **options: Any) -> list[Path]:
    return teacher_judge.measure(found, folder, teacher, **{"prompt": PROMPT, "identity": {"model": "m"}, **options})


def undecided(found: list[Item]) -> set[str]:
    verdicts = {name: judge_trace(sample, trace, 0.0) for name, sample, trace in found if trace.answer.strip()}
    return {name for name, verdict in verdicts.items() if verdict and verdict.verdict == "undecided"}


def test_only_undecided_verdicts_are_asked_about_and_each_question_once(tmp_path: Path) -> None:
    found, teacher = items(), Teacher()
    open_ones = undecided(found)
    decided = {name for name, _, trace in found} - open_ones
    assert len(open_ones) == 18 and len(decided) == 19, "the fixture must hold both"
    paths = run(found, tmp_path, teacher)
    assert set(rows(paths)) == open_ones
    wanted = {teacher_judge.question(PROMPT, sample, trace) for name, sample, trace in found if name in open_ones}
    assert sorted(teacher.asked) == sorted(wanted) and len(teacher.asked) < len(open_ones)
    assert list(pq.read_schema(paths[0]).names) == ["id", *schema.JUDGE.names]
    assert pq.read_schema(paths[0]).metadata[b"fingerprint"]


def test_what_is_inserted_goes_in_as_it_is() -> None:
    asked = fixtures.sample("Is {gold} a colour?", "blue", "azure")
    text = teacher_judge.question(PROMPT, asked, fixtures.trace(asked, " {question} "))
    assert text == "Q: Is {gold} a colour? G: blue or azure P: {question} {other}"


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("yes", "correct"),
        ("Yes.", "correct"),
        ("**Yes**, they name the same animal.", "correct"),
        ("YES\nBoth mean a wolf.", "correct"),
        ("They name the same thing.\n\nAnswer: yes", "correct"),
        ("The answer is **yes**.", "correct"),
        ("no", "wrong"),
        ("No, the reference is 4.", "wrong"),
        ("no - one is red", "wrong"),
        ("These differ. Verdict: No.", "wrong"),
        ("", "undecided"),
        ("maybe", "undecided"),
        ("There is no way to tell", "undecided"),
        ("no one can know that", "undecided"),
        ("Yes and no.", "undecided"),
        ("yes, but no", "undecided"),
        ("Yesterday", "undecided"),
        ("not the same", "undecided"),
        ("correct", "undecided"),
        ("It would be yes if the units were given", "undecided"),
        ("I cannot help with that.", "undecided"),
        ("yes or no?", "undecided"),
    ],
)
def test_only_a_clear_yes_or_no_decides(reply: str, verdict: str) -> None:
    assert teacher_judge.verdict(reply) == verdict


def test_verdicts_states_and_reasons_reach_the_table(tmp_path: Path) -> None:
    found = items()
    teacher = Teacher({"picture 1?": "  Hard to\nsay. ", "picture 2?": "", "picture 3?": "No. " + "Because. " * 100})
    table = rows(run(found, tmp_path, teacher))
    by_question: dict[str, dict[str, Any]] = {}
    for name, sample, _ in found:
        if name in table:
            by_question[sample.question[-2]] = table[name]
    unclear, silent, wrong = (by_question[number] for number in "123")
    assert (unclear["judge_state"], unclear["judge_verdict"]) == ("undecidable", "undecided")
    assert unclear["judge_reason"] == "Hard to say."
    assert (silent["judge_state"], silent["judge_verdict"], silent["judge_reason"]) == (
        "error",
        "undecided",
        teacher_judge.NO_REPLY,
    )
    assert (wrong["judge_state"], wrong["judge_verdict"]) == ("ok", "wrong") and len(wrong["judge_reason"]) == 200


def test_nothing_is_asked_twice_but_what_had_no_reply(tmp_path: Path) -> None:
    found = items()
    paths = run(found, tmp_path, Teacher({"picture 2?": ""}))
    before = [path.read_bytes() for path in paths]
    silent = Teacher({"picture 2?": ""})
    assert [path.read_bytes() for path in run(found, tmp_path, silent)] == before
    assert silent.asked and all("picture 2?" in text for text in silent.asked)
    run(found, tmp_path, Teacher())
    full = Teacher()
    run(found, tmp_path, full)
    assert full.asked == []


def test_another_prompt_or_another_teacher_is_asked_again(tmp_path: Path) -> None:
    run(items(), tmp_path, Teacher())
    for options in ({"prompt": PROMPT + "!"}, {"identity": {"model": "other"}}):
        teacher = Teacher()
        run(items(), tmp_path, teacher, **options)
        assert teacher.asked


def test_the_table_does_not_depend_on_the_order_of_the_traces(tmp_path: Path) -> None:
    mixed = items()
    random.Random(1).shuffle(mixed)
    one, other = run(items(), tmp_path / "a", Teacher()), run(mixed, tmp_path / "b", Teacher())
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_replies_that_were_given_are_not_asked_for_again(
    rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_judge, "ROUND", 3)

    class Lost(Teacher):
        def __call__(self, questions: list[str]) -> list[str]:
            if len(self.asked) >= 3 * rounds:
                raise KeyboardInterrupt
            return super().__call__(questions)

    lost, later = Lost(), Teacher()
    with pytest.raises(KeyboardInterrupt):
        run(items(), tmp_path / "lost", lost)
    paths = run(items(), tmp_path / "lost", later)
    assert not set(lost.asked) & set(later.asked)
    assert [path.read_bytes() for path in paths] == [
        path.read_bytes() for path in run(items(), tmp_path / "whole", Teacher())
    ]
    assert len(list(read_jsonl(tmp_path / "lost" / teacher_judge.JOURNAL))) == len(lost.asked) + len(later.asked)


def test_a_verdict_that_became_certain_leaves_the_table(tmp_path: Path) -> None:
    found = items()
    open_ones = sorted(undecided(found))
    run(found, tmp_path, Teacher())
    changed = [
        (name, sample, replace(trace, answer="a grey wolf") if name == open_ones[0] else trace)
        for name, sample, trace in found
    ]
    teacher = Teacher()
    assert set(rows(run(changed, tmp_path, teacher))) == set(open_ones[1:]) and teacher.asked == []


def test_without_undecided_traces_nothing_is_asked_and_no_file_is_left(tmp_path: Path) -> None:
    run(items(), tmp_path, Teacher())
    teacher = Teacher()
    assert run([], tmp_path, teacher) == [] and teacher.asked == [] and not list(tmp_path.glob("*.parquet"))
