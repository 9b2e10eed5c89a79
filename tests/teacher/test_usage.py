"""Token counts that a server does not report are shown as not known wherever a run tells its counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import stub_server
from worlds.generate_world import World

from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.commands.status import funnel, status_fields
from distill.planning.scale_plan import plan_scale, scale_text
from distill.python_api.frames import traces
from distill.trace_records.token_counts import known_usage, output_tokens
from distill.types import Outcome, Progress
from teacher.engines.http.chat_protocol import completion_from_body
from teacher.messages.parse import VERSION
from teacher.preflight import preflight

PRICE = {"price.input": 2.0, "price.output": 10.0}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with stub_server.serve() as url:
        world = World(tmp_path)
        world.add_teacher(url, **PRICE)
        yield world


def _cells(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(name + "  ")]
    return line.removeprefix(name).strip()


def test_a_server_without_usage_has_tokens_that_are_not_known_and_not_0(world: World) -> None:
    world.add_rows(4, text="fault=odd")
    seen: list[Progress] = []
    manifest = world.generate(on_progress=seen.append)
    (world.run / "recipe.toml").write_text("")
    assert manifest.counts["without_usage"] == 4
    text = funnel(world.run)
    assert _cells(text, "generate: tokens") == _cells(text, "generate: tokens wasted") == "not known"
    state = status_fields(world.run)["stages"][0]
    assert state["tokens"] == dict.fromkeys(("prompt", "image", "reasoning", "answer", "wasted"))
    assert seen[-1].facts["cost"] == "not known" and "tokens_per_s" not in seen[-1].facts
    row = traces(world.run).to_pylist()[0]
    assert {row[f"{part}_tokens"] for part in ("prompt", "image", "reasoning", "answer")} == {None}
    estimate = preflight(world.recipe(), world.run)
    (line,) = [line.split() for line in estimate.splitlines() if line.startswith("stub  ")]
    assert line[3:] == ["4", "0", "0", "0B", "0", "s", "0"], "nothing is left to ask"
    planned = plan_scale(world.recipe(), world.run, engine="slurm", samples=1000, agents=1)
    assert planned.output_tokens is None and planned.costs["teachers"] is None
    assert _cells(scale_text(planned, world.recipe()), "output tokens") == "not known"


def test_where_some_replies_have_usage_their_sum_is_a_lower_bound_with_the_number_of_the_others(world: World) -> None:
    world.add_rows(3)
    world.add_rows(2, text="fault=odd")
    seen: list[Progress] = []
    world.generate(on_progress=seen.append)
    found = [output_tokens(each["usage"], each["outcome"]) for each in world.records()]
    known = [count for count in found if count is not None]
    assert len(known) == 3 and sum(known)
    text = funnel(world.run)
    assert _cells(text, "generate: tokens") == f">= {sum(known):,}"
    assert _cells(text, "generate: without usage") == "2"
    assert seen[-1].facts["without_usage"] == 2 and str(seen[-1].facts["cost"]).startswith(">= ")
    planned = plan_scale(world.recipe(), world.run, engine="slurm", samples=1000, agents=1)
    assert planned.output_tokens == pytest.approx(1000 * sum(known) / 3)


def test_a_run_with_all_usage_says_its_counts_as_they_are(world: World) -> None:
    world.add_rows(3)
    assert "without_usage" not in world.generate().counts
    total = sum(each["usage"]["reasoning"] + each["usage"]["answer"] for each in world.records())
    text = funnel(world.run)
    assert _cells(text, "generate: tokens") == f"{total:,}" and _cells(text, "generate: tokens wasted") == "0"


def test_an_estimate_by_replies_without_usage_is_not_known(world: World) -> None:
    world.add_rows(6, text="fault=odd")
    text = preflight(world.recipe(), world.run, probe=3)
    (line,) = [line.split() for line in text.splitlines() if line.startswith("stub  ")]
    assert (line[4], line[5], line[7], line[8]) == ("?", "?", "?", "?"), "prompt, output, time and cost"


@pytest.mark.parametrize("said", [{}, {"usage": None}, {"usage": {}}, {"usage": "many"}])
def test_an_answer_without_usage_is_an_answer(said: dict[str, object]) -> None:
    body = {"choices": [{"message": {"content": "7"}, "finish_reason": "stop"}], **said}
    done = completion_from_body(body, b"", 0.1, logprobs=False)
    assert (done.text, done.prompt_tokens, done.completion_tokens) == ("7", 0, 0)


@pytest.mark.parametrize(
    ("usage", "outcome", "choice", "shown"),
    [
        ((0, 0, 0, 0), Outcome.COMPLETE, None, (None, None, None, None)),
        ((9, 4, 0, 0), Outcome.COMPLETE, None, (9, 4, None, None)),
        ((9, 4, 0, 0), Outcome.EMPTY_ANSWER, None, (9, 4, 0, 0)),
        ((0, 0, 3, 1), Outcome.COMPLETE, None, (None, None, 3, 1)),
        ((0, 0, 3, 1), Outcome.COMPLETE, {"index": 1, "of": 2}, (0, 0, 3, 1)),
        ((0, 0, 0, 0), Outcome.ERROR, None, (0, 0, 0, 0)),
    ],
)
def test_a_zero_that_cannot_be_true_is_no_count(
    usage: tuple[int, ...], outcome: str, choice: dict[str, int] | None, shown: tuple[int | None, ...]
) -> None:
    names = ("prompt", "image", "reasoning", "answer")
    record = {"usage": dict(zip(names, usage, strict=True)), "outcome": str(outcome), "choice": choice}
    assert known_usage(record) == dict(zip(names, shown, strict=True))


def test_tokens_that_the_server_counted_stay_when_a_later_parser_splits_a_reply_as_before(tmp_path: Path) -> None:
    with stub_server.serve(field=True, words=5) as url:
        world = World(tmp_path)
        world.add_teacher(url)
        world.add_rows(3)
        world.generate()
        before = {record["id"]: record["usage"] for record in world.records()}
        for part in (world.run / "generate" / "stub").glob("part-*.jsonl"):
            older = [record | {"params": record["params"] | {"parser": 0}} for record in read_jsonl(part)]
            write_jsonl(part, older)
        world.generate(fresh=True)
        after = {record["id"]: record["usage"] for record in world.records()}
        assert {record["params"]["parser"] for record in world.records()} == {VERSION}
    assert after == before and {usage["reasoning"] for usage in after.values()} == {6}
