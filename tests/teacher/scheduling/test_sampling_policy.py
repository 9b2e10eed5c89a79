"""What is still wanted of a teacher: attempts, adaptive sampling, escalation, drafts. And how it is streamed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from distill.recipe.sections.generate import Outcomes
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Outcome, Sample
from teacher.messages.request import Author, Model, Request
from teacher.scheduling import ordering
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.scheduling.ordering import Lengths, Window, kind_of
from teacher.scheduling.request_queue import RequestQueue
from teacher.scheduling.sampling_policy import Rules, SampleState, TeacherPolicy, TraceStatus

SAMPLE = Sample(id="s", images=(), question="How many?", answers=("4",), answer_type="number")
NO_GOLD = Sample(id="n", images=(), question="How many?", answer_type="number")


class Desk:
    """Teachers whose traces a test writes by hand, as (outcome, answer)."""

    def __init__(self, *teachers: Mapping[str, Any], **outcomes: Any) -> None:
        made = tuple(
            Teacher.model_validate_json(
                _json({"name": "t", "model": "m", "base_url": "http://127.0.0.1:9/v1"} | dict(t))
            )
            for t in teachers
        )
        rules = Rules(teachers=made, outcomes=Outcomes(**outcomes), relative_tolerance=0.0)
        self.written: dict[str, TraceStatus] = {}
        self.asked: list[Request] = []
        self.lines: dict[str, TeacherPolicy] = {}
        for teacher in made:
            author = Author(teacher=teacher, model=Model(name=teacher.model, revision="r", local=False), seed=0)
            line = TeacherPolicy(author, rules, self.written.get, self.lines.get(teacher.after or ""))
            self.lines[teacher.name] = line

    def write(self, request: Request, answer: str = "4", outcome: str = "complete") -> None:
        record = {"answer": answer, "reasoning": f"because {answer}", "outcome": outcome}
        self.asked.append(request)
        self.written[request.id] = TraceStatus(outcome=outcome, record=lambda: record)

    def look(self, sample: Sample = SAMPLE, name: str = "t") -> SampleState:
        return self.lines[name].state_of(sample)

    def answer(self, *answers: str, sample: Sample = SAMPLE, name: str = "t") -> SampleState:
        """Give these answers in turn to what is open, batch by batch, until nothing is."""
        left = list(answers)
        while (look := self.look(sample, name)).open:
            for request in look.open:
                self.write(request, left.pop(0))
        return look


def _json(value: Any) -> bytes:
    import orjson

    return orjson.dumps(value)


def test_fixed_n_asks_for_all_at_once_and_is_settled_when_all_are_there() -> None:
    desk = Desk({"samples": 3})
    assert [request.k for request in desk.look().open] == [0, 1, 2]
    desk.write(desk.look().open[1])
    assert [request.k for request in desk.look().open] == [0, 2]
    assert desk.answer("4", "5").done and len(desk.look().finals) == 3


def test_adaptive_n_stops_at_enough_verified_traces() -> None:
    desk = Desk({"samples": 8, "until": {"correct": 2}})
    assert len(desk.look().open) == 2
    look = desk.answer("4", "5", "6", "4")
    assert len(look.finals) == 4 and look.done


def test_adaptive_n_stops_at_agreement_where_there_is_no_gold_and_at_the_cap_otherwise() -> None:
    desk = Desk({"samples": 6, "until": {"correct": 1, "agree": 2}})
    assert len(desk.answer("7", "8", "8", sample=NO_GOLD).finals) == 3
    assert len(desk.answer(*"555555").finals) == 6  # never the gold 4


def test_without_a_criterion_for_its_kind_of_question_a_sample_gets_all_its_traces() -> None:
    desk = Desk({"samples": 3, "until": {"agree": 2}})
    assert len(desk.answer("4", "4", "4").finals) == 3


def test_what_adaptive_n_asks_does_not_depend_on_the_order_of_arrival() -> None:
    desk = Desk({"samples": 8, "until": {"correct": 1, "at_once": 3}})
    first = desk.look().open
    desk.write(first[2], "4")
    assert [request.id for request in desk.look().open] == [request.id for request in first[:2]]
    desk.write(first[0], "9")
    desk.write(first[1], "9")
    assert desk.look().done and len(desk.look().finals) == 3


@pytest.mark.parametrize(
    ("policy", "outcome", "changed"),
    [
        ("resample", "repetition", {"seed"}),
        ("raise_cap", "truncated_answer", {"max_tokens"}),
        ("budget", "truncated_thinking", {"thinking_budget"}),
    ],
)
def test_a_bad_outcome_is_asked_again_with_exactly_what_its_policy_changes(
    policy: str, outcome: str, changed: set[str]
) -> None:
    desk = Desk({"sampling": {"max_tokens": 100}}, **{outcome: policy, "attempts": 2})
    (first,) = desk.look().open
    desk.write(first, "", outcome)
    (second,) = desk.look().open
    ours, theirs = ({"seed": r.seed, **r.sampling.model_dump()} for r in (first, second))
    assert {key for key in ours if ours[key] != theirs[key]} == changed
    assert second.id != first.id and (second.k, second.attempt) == (0, 1)
    desk.write(second, "", outcome)
    (final,) = desk.look().finals
    assert final.request == second and [request.id for request in final.replaced] == [first.id]


def test_each_attempt_has_a_larger_cap_or_a_smaller_budget_than_the_one_before() -> None:
    policies = {
        "truncated_answer": "raise_cap",
        "truncated_thinking": "budget",
        "cap_factor": 1.5,
        "budget_share": 0.4,
    }
    for outcome, name, values in (
        ("truncated_answer", "max_tokens", [1000, 1500, 2250]),
        ("truncated_thinking", "thinking_budget", [None, 400, 160]),
    ):
        desk = Desk({"sampling": {"max_tokens": 1000}}, **policies, attempts=3)
        while asked := desk.look().open:
            desk.write(asked[0], "", outcome)
        assert [getattr(request.sampling, name) for request in desk.asked] == values


def test_a_thinking_budget_is_a_token_or_more_and_never_grows() -> None:
    desk = Desk(
        {"sampling": {"max_tokens": 100, "thinking_budget": 2}}, truncated_thinking="budget", budget_share=0.001
    )
    for _ in range(2):
        desk.write(desk.look().open[0], "", "truncated_thinking")
    assert desk.asked[1].sampling.thinking_budget == 1 and desk.look().done
    desk = Desk(
        {"sampling": {"max_tokens": 100, "thinking_budget": 50}}, truncated_thinking="budget", budget_share=0.5
    )
    desk.write(desk.look().open[0], "", "truncated_thinking")
    assert desk.look().done


def test_attempts_are_bounded_and_never_the_same_request_twice() -> None:
    desk = Desk({}, empty_answer="resample", truncated_answer="raise_cap", attempts=5)
    for outcome in ("empty_answer", "truncated_answer", "empty_answer", "truncated_answer", "empty_answer"):
        (request,) = desk.look().open
        desk.write(request, "", outcome)
    assert desk.look().done
    assert len({(request.seed, request.sampling) for request in desk.asked}) == 5


def test_a_greedy_teacher_is_not_asked_for_another_seed() -> None:
    desk = Desk({"sampling": {"temperature": 0.0}}, repetition="resample")
    desk.write(desk.look().open[0], "", "repetition")
    assert desk.look().done


def test_a_dropped_outcome_is_final_and_marked() -> None:
    desk = Desk({}, refusal="drop")
    desk.write(desk.look().open[0], "", "refusal")
    assert desk.look().finals[0].dropped


BIG = {"name": "big", "model": "big", "after": "t", "when": "unsure", "sure_share": 0.75}


@pytest.mark.parametrize(
    ("answers", "asked"),
    [("4444", False), ("4449", False), ("4499", True), ("9999", True), ("4 half", True)],
)
def test_the_large_teacher_is_asked_where_the_small_one_disagrees_or_agrees_on_a_wrong_answer(
    answers: str, asked: bool
) -> None:
    desk = Desk({"samples": 4}, BIG)
    assert desk.look(name="big").waiting
    if answers == "4 half":
        for request, outcome in zip(desk.look().open, ["complete", "error", "error", "refusal"], strict=True):
            desk.write(request, "4", outcome)
    else:
        desk.answer(*answers)
    assert bool(desk.look(name="big").open) == asked


def test_a_teacher_for_failures_answers_only_what_the_other_could_not() -> None:
    desk = Desk({}, {"name": "other", "model": "o", "after": "t", "when": "failed"}, refusal="keep")
    desk.write(desk.look().open[0], "", "refusal")
    desk.answer("4", sample=NO_GOLD)
    assert desk.look(name="other").open and not desk.look(NO_GOLD, "other").open


def test_a_chained_teacher_works_on_every_complete_draft() -> None:
    desk = Desk(
        {"samples": 3}, {"name": "editor", "model": "e", "after": "t", "prompt": "{question}\n{draft}", "samples": 2}
    )
    first, second, third = desk.look().open
    desk.write(first, "4")
    desk.write(second, "5", "truncated_answer")
    desk.write(third, "6")
    opened = desk.look(name="editor").open
    assert [(request.k, request.draft) for request in opened] == [
        (0, first.id),
        (1, first.id),
        (4, third.id),
        (5, third.id),
    ]
    assert opened[0].prompt.text == "How many?\nbecause 4\n\n4"
    assert len({request.id for request in opened}) == 4


def test_an_error_is_final_for_this_run() -> None:
    desk = Desk({}, {"name": "other", "model": "o", "after": "t", "when": "failed"})
    desk.write(desk.look().open[0], "", Outcome.ERROR)
    assert desk.look().done and desk.look(name="other").open


def make_image(name: str) -> tuple[ImageRef, ...]:
    return (ImageRef(sha256=name, path=name),)


def numbered(count: int, *, domain: str = "", images: int = 1000) -> list[Sample]:
    return [
        Sample(id=f"{domain}{n:04}", images=make_image(f"{domain}{n % images}"), question="q?", domain=domain)
        for n in range(count)
    ]


def drained(window: Window) -> list[Sample]:
    return list(iter(window.next, None))


def test_questions_about_one_image_are_asked_together() -> None:
    order = [sample.images[0].sha256 for sample in drained(Window(iter(numbered(12, images=4)), Lengths()))]
    assert [order[i : i + 3] for i in (0, 3, 6, 9)] == [[name] * 3 for name in "0123"]


def test_kinds_that_take_long_are_asked_first_once_that_is_known() -> None:
    quick, slow = numbered(20, domain="quick"), numbered(20, domain="slow")
    lengths = Lengths()
    for sample, tokens in ((quick[0], 10), (slow[0], 500)):
        lengths.add(sample, tokens)
    order = [sample.domain for sample in drained(Window(iter([*quick, *slow]), lengths))]
    assert order == ["slow"] * 20 + ["quick"] * 20


def test_the_images_that_come_next_are_known_before_their_samples_are_drawn() -> None:
    window = Window(iter(numbered(40, images=10)), Lengths())
    assert list(window.upcoming(12)) == []  # nothing is read before it is needed
    first = window.next()
    assert first is not None
    ahead = [ref.sha256 for ref in window.upcoming(12)]
    assert ahead == ["1", "2", "3"]  # the three samples left of the first image count
    drawn = list(dict.fromkeys(sample.images[0].sha256 for sample in drained(window)))
    assert drawn[1:4] == ahead and list(window.upcoming(12)) == []


def test_what_a_kind_is_expected_to_take_goes_from_the_mean_of_all_to_its_own() -> None:
    quick, slow = (numbered(1, domain=domain)[0] for domain in ("quick", "slow"))
    lengths = Lengths()
    assert lengths.expected(kind_of(quick)) == 0
    for tokens in (100, 140):
        lengths.add(slow, tokens)
    assert lengths.expected(kind_of(quick)) == 120
    lengths.add(quick, 30)
    # The mean of all three is 90, and counts as four traces.
    assert lengths.expected(kind_of(quick)) == (30 + 4 * 90) / 5
    assert lengths.expected(kind_of(slow)) == (240 + 4 * 90) / 6


def test_the_kind_of_a_question_is_its_domain_its_answer_type_and_the_magnitude_of_its_length() -> None:
    asked = Sample(id="k", images=(), question="How many?", domain="charts", answer_type="number")
    assert kind_of(asked) == ("charts", "number", 4)
    assert kind_of(Sample(id="k", images=(), question="What is it? " * 10, domain="charts")) == ("charts", "", 7)


def test_a_window_reads_no_further_ahead_than_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "WINDOW", 8)
    drawn: list[str] = []

    def source() -> Iterator[Sample]:
        for sample in numbered(100):
            drawn.append(sample.id)
            yield sample

    window = Window(source(), Lengths())
    window.next()
    assert len(drawn) == 8
    for _ in range(9):
        window.next()
    assert 10 <= len(drawn) <= 18
    assert len({sample.id for sample in drained(window)}) == 90


def done(desk: Desk, feed: RequestQueue, request: Request, answer: str) -> None:
    desk.write(request, answer)
    feed.done(request, {"usage": {"reasoning": 5, "answer": 1}})


def test_a_feed_gives_every_request_once_and_what_follows_first() -> None:
    desk = Desk({"samples": 4, "until": {"agree": 2}})
    changes: list[int] = []
    feed = RequestQueue(desk.lines["t"], iter([NO_GOLD, *numbered(3)]), on_expect=changes.append)
    seen: list[Request] = []
    while (request := feed.take()) is not None:
        seen.append(request)
        assert feed.holds(request.sample)
        done(desk, feed, request, str(request.k))  # no two agree, so all four are needed
    assert feed.finished and len({request.id for request in seen}) == len(seen) == 16
    assert [request.sample.id for request in seen[:4]] != [request.sample.id for request in seen[2:6]]
    assert not any(changes) and not any(feed.holds(request.sample) for request in seen)


def test_a_feed_counts_the_traces_that_it_saves_and_those_that_were_there_before() -> None:
    desk = Desk({"samples": 4, "until": {"agree": 2}})
    for there in ({}, {"complete": 2}):
        found, changes = Counter[str](), list[int]()
        feed = RequestQueue(desk.lines["t"], iter([NO_GOLD]), on_found=found.update, on_expect=changes.append)
        while (request := feed.take()) is not None:
            done(desk, feed, request, "7")
        assert (found, sum(changes)) == (there, -2)
    assert len(desk.asked) == 2


def test_to_look_whether_a_request_is_ready_takes_none() -> None:
    desk = Desk({"samples": 2})
    feed = RequestQueue(desk.lines["t"], iter([NO_GOLD]))
    assert feed.prepare() and feed.prepare()
    first, second = feed.take(), feed.take()
    assert first is not None and second is not None and (first.k, second.k) == (0, 1)
    assert not feed.prepare() and feed.take() is None


def test_samples_of_a_lost_agent_go_to_one_that_lives_or_are_asked_here() -> None:
    desk = Desk({"samples": 1})
    feed = RequestQueue(desk.lines["t"], iter(samples := numbered(4)))
    ids = [sample.id for sample in samples]
    feed.leave(ids[:2], "one")
    feed.leave(ids[2:], "two")
    assert feed.take() is None and feed.waits and not feed.finished
    feed.give_up_on_lost({"two", "three"}, "three")
    assert feed.take() is None, "the third one asks what the first one has left"
    feed.give_up_on_lost({"two"}, None)
    asked = [feed.take(), feed.take()]
    assert [request and request.sample.id for request in asked] == ids[:2] and feed.take() is None
    feed.give_up_on_lost((), None)
    assert [request and request.sample.id for request in (feed.take(), feed.take())] == ids[2:] and not feed.waits


@pytest.mark.parametrize("order", [("t", "editor"), ("editor", "t")])
def test_a_sample_that_another_agent_has_done_ends_for_all_teachers_in_whatever_order_it_is_told(
    order: tuple[str, str],
) -> None:
    desk = Desk({"samples": 1}, {"name": "editor", "model": "e", "after": "t", "prompt": "{question} {draft}"})
    samples = numbered(1)
    feeds = {"t": RequestQueue(desk.lines["t"], iter(samples))}
    feeds["editor"] = RequestQueue(desk.lines["editor"], iter(samples), feeds["t"])
    for feed in feeds.values():
        feed.leave([samples[0].id], "another")
        assert feed.take() is None and feed.waits
    made = {}
    for name in ("t", "editor"):
        (made[name],) = desk.look(samples[0], name).open
        desk.write(made[name])
    desk.written.clear()
    for name in order:
        desk.write(made[name])
        feeds[name].found({"id": made[name].id, "sample_id": samples[0].id, "outcome": "complete"})
    assert all(feed.finished for feed in feeds.values())


def test_a_later_teacher_waits_for_each_sample_and_hears_when_the_first_one_is_done() -> None:
    desk = Desk({"samples": 1}, {"name": "editor", "model": "e", "after": "t", "prompt": "{question} {draft}"})
    samples = numbered(2)
    first = RequestQueue(desk.lines["t"], iter(samples))
    second = RequestQueue(desk.lines["editor"], iter(samples), first)

    got = []
    for _ in samples:
        assert second.take() is None and not second.finished
        request = first.take()
        assert request is not None
        done(desk, first, request, "4")
        edited = second.take()
        assert edited is not None
        got.append(edited.sample.id)
        done(desk, second, edited, "4")
    assert first.take() is None and first.finished
    assert second.take() is None and second.finished
    assert sorted(got) == [sample.id for sample in samples]


def test_a_sample_does_not_wait_for_a_teacher_that_stopped() -> None:
    desk = Desk({}, BIG)
    samples = numbered(3)
    first = RequestQueue(desk.lines["t"], iter(samples))
    second = RequestQueue(desk.lines["big"], iter(samples), first)

    changes: list[bool] = []
    second.on_change = lambda: changes.append(True)
    assert second.take() is None and not second.finished
    first.close()
    assert changes and second.take() is None and second.finished


def names(teachers: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    made = [Teacher.model_validate_json(_json({"model": "m", **teacher})) for teacher in teachers]
    return [[teacher.name for teacher in group] for group in group_teachers(made)]


def test_servers_that_are_up_work_together_and_started_ones_take_turns() -> None:
    up = {"base_url": "http://127.0.0.1:9/v1"}
    assert names([{"name": "a", **up}, {"name": "b"}, {"name": "c"}, {"name": "d", **up}]) == [["a", "b", "d"], ["c"]]
    assert names([{"name": "a", "backend": "embedded"}, {"name": "b", **up}]) == [["a"], ["b"]]


def test_started_servers_with_gpus_of_their_own_work_together() -> None:
    def on(*gpus: str) -> dict[str, Any]:
        return {"server": {"gpus": gpus}}

    assert names([{"name": "a", **on("0")}, {"name": "b", **on("1,2")}, {"name": "c", **on("2")}]) == [
        ["a", "b"],
        ["c"],
    ]


def test_a_teacher_never_comes_before_the_one_it_follows() -> None:
    up = {"base_url": "http://127.0.0.1:9/v1"}
    assert names([{"name": "a"}, {"name": "b"}, {"name": "c", "after": "b", **up}]) == [["a"], ["b", "c"]]
