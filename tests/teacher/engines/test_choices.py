"""Several traces by one request: the ids of single requests, seeds as they were sent, and nothing lost in between."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from servers import stub_server
from servers.client_helpers import asked, seen, teacher
from worlds.generate_world import World

from distill.artifacts.journal import read_jsonl, write_jsonl
from teacher.engines.http.choices import completions_from_body
from teacher.messages.request import join_choices
from teacher.replay import replay

ROWS, SAMPLES = 5, 4


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


def world_of(folder: Path, url: str, **settings: Any) -> World:
    folder.mkdir()
    world = World(folder)
    world.add_rows(ROWS)
    world.add_teacher(url, samples=SAMPLES, images="base64", **{"choices": SAMPLES, **settings})
    return world


def test_a_sample_is_one_request_and_the_ids_are_those_of_single_requests(url: str, tmp_path: Path) -> None:
    together = world_of(tmp_path / "together", url)
    manifest = together.generate()
    assert seen(url)["requests"] == ROWS and manifest.counts["complete"] == ROWS * SAMPLES
    assert [body["n"] for body in seen(url)["bodies"]] == [SAMPLES] * ROWS
    single = world_of(tmp_path / "single", url, choices=1)
    counts = single.generate()
    assert together.ids() == single.ids() and together.planned() == single.planned()
    # The prompt is read once, and every token that was written is counted once.
    assert manifest.tokens["prompt"] * SAMPLES == counts.tokens["prompt"]
    assert (
        manifest.tokens["reasoning"] + manifest.tokens["answer"]
        == counts.tokens["reasoning"] + counts.tokens["answer"]
    )


def test_a_record_says_which_choice_it_is_and_the_seed_that_was_sent(url: str, tmp_path: Path) -> None:
    world = world_of(tmp_path / "world", url)
    world.generate()
    sent = {body["seed"] for body in seen(url)["bodies"]}
    by_sample: dict[str, list[dict[str, Any]]] = {}
    for record in world.records():
        by_sample.setdefault(record["sample_id"], []).append(record)
    for records in by_sample.values():
        assert [(record["k"], record["choice"]) for record in records] == [
            (k, {"index": k, "of": SAMPLES}) for k in range(SAMPLES)
        ]
        assert len({record["seed"] for record in records}) == 1 and records[0]["seed"] in sent
        assert len({record["text"] for record in records}) == SAMPLES


def test_a_kill_between_choices_loses_none_that_is_written_and_asks_the_others_one_by_one(
    url: str, tmp_path: Path
) -> None:
    world = world_of(tmp_path / "world", url)
    world.generate()
    part = world.run / "generate" / "stub" / "part-00000.jsonl"
    before = list(read_jsonl(part))
    write_jsonl(part, iter(before[:-2]))
    asked_before = seen(url)["requests"]
    world.generate()
    after = seen(url)
    assert after["requests"] == asked_before + 2 and not any("n" in body for body in after["bodies"][-2:])
    records = {record["id"]: record for record in world.records()}
    assert records.keys() == {record["id"] for record in before}
    assert all(records[record["id"]] == record for record in before[:-2])
    for record in before[-2:]:
        assert "choice" not in records[record["id"]]
        assert records[record["id"]]["seed"] in {body["seed"] for body in after["bodies"][-2:]} != {record["seed"]}


def test_what_is_wrong_with_a_request_is_found_out_choice_by_choice(url: str, tmp_path: Path) -> None:
    world = world_of(tmp_path / "world", url)
    world.rows[0]["question"] += " fault=400"
    world.rows[1]["question"] += " fault=500x1"
    manifest = world.generate()
    assert manifest.counts["error"] == SAMPLES and manifest.counts["complete"] == (ROWS - 1) * SAMPLES
    errors = [record for record in world.records() if record["error"]]
    assert len({record["seed"] for record in errors}) == SAMPLES  # each was asked with its own
    assert (
        sum("choice" in record for record in world.records()) == (ROWS - 1) * SAMPLES
    )  # a busy server is waited for


def test_a_server_that_gives_fewer_choices_is_asked_for_the_others(tmp_path: Path) -> None:
    with stub_server.serve(choices=0) as url:
        world = world_of(tmp_path / "world", url)
        assert world.generate().counts["complete"] == ROWS * SAMPLES
        assert seen(url)["requests"] == ROWS * SAMPLES
    assert sum("choice" in record for record in world.records()) == ROWS


def test_further_attempts_and_adaptive_rounds_are_single_requests_unless_whole(url: str, tmp_path: Path) -> None:
    world = world_of(tmp_path / "world", url, **{"until.correct": 1, "until.at_once": 2, "choices": 2})
    world.rows[0]["question"] += " fault=emptyx1"  # an empty answer to the first two, asked again with a new seed
    world.generate()
    bodies = seen(url)["bodies"]
    alone = {body["messages"][0]["content"][-1]["text"] for body in bodies if "n" not in body}
    assert alone == {world.rows[0]["question"]}
    assert {body["n"] for body in bodies if "n" in body} == {2}


def test_a_choice_is_replayed_with_its_siblings(url: str, tmp_path: Path) -> None:
    world = world_of(tmp_path / "world", url)
    world.generate()
    record = next(record for record in world.records() if record["k"] == 2)
    found = replay(world.recipe(), world.run, record["id"], resend=True)
    body = found["request"]["body"]
    assert (body["n"], body["seed"]) == (SAMPLES, record["seed"]) and found["equal"]


def test_log_probabilities_count_the_tokens_of_each_choice(url: str, tmp_path: Path) -> None:
    world = world_of(tmp_path / "world", url, logprobs=2)
    world.generate()
    for record in world.records():
        assert record["usage"]["reasoning"] + record["usage"]["answer"] == 23  # of the stub


@pytest.mark.parametrize("texts", [["a" * 10, "b" * 30], ["", ""], ["abc", "", "a", "abcdefg"], ["a" * 900, "b"]])
def test_tokens_of_choices_are_shared_out_without_a_rest(texts: list[str]) -> None:
    choices = [{"message": {"content": text}, "finish_reason": "stop"} for text in texts]
    body = {"choices": choices, "usage": {"prompt_tokens": 9, "completion_tokens": 17}}
    found = completions_from_body(body, orjson.dumps(body), 0.1, logprobs=False)
    assert [one.text for one in found] == texts and [one.prompt_tokens for one in found] == [9] + [0] * (
        len(texts) - 1
    )
    assert sum(one.completion_tokens for one in found) == 17 and all(one.completion_tokens for one in found)


def test_only_whole_groups_of_first_attempts_are_joined(url: str) -> None:
    who = teacher(url, samples=6)
    first, second = asked(who, "a")[:6], asked(who, "b")[:6]
    assert [len(each.parts) for each in join_choices([*first, *second], 3)] == [3, 3, 3, 3]
    assert [len(each.parts) for each in join_choices([*first[1:], *second[:3]], 3)] == [1, 1, 3, 3]
    assert [each.id for joined in join_choices(first[2:], 3) for each in joined.parts] == [
        each.id for each in first[2:]
    ]
    assert join_choices(first, 1) == first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 6, "choices": 4}, "choices = 4 must divide samples = 6"),
        ({"samples": 2, "choices": 2, "backend": "batch"}, "takes no choices"),
    ],
)
def test_choices_that_cannot_be_asked_for_are_refused(url: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        teacher(url, **settings)
