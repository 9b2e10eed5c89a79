"""Answers in pieces as servers and proxies send them: nothing of one is lost, however its events are written."""

import tracemalloc
from collections.abc import Callable

import orjson
import pytest
from servers import stub_answers

from teacher.engines.http.chat_protocol import completion_from_body, parse_json
from teacher.engines.http.heard_pieces import FirstText, HeardPieces
from teacher.engines.http.streaming import assemble_body, comes_in_pieces
from teacher.engines.outage import Failure

ANSWER = stub_answers.completion("How many?", {"seed": 1}, words=5, field=False)
EVENTS = [event for event in stub_answers.events(ANSWER) if event.partition(b"data: [DONE]")[0]]
TEXT = ANSWER["choices"][0]["message"]["content"]


def over_several_lines(event: bytes) -> bytes:
    data, end, rest = event.partition(b"\n\ndata: [DONE]")
    lines = orjson.dumps(orjson.loads(data.removeprefix(b"data: ")), option=orjson.OPT_INDENT_2).splitlines()
    return b"".join(b"data: %s\n" % line for line in lines) + b"\n" + (b"data: [DONE]\n\n" if end else b"") + rest


@pytest.mark.parametrize(
    "written",
    [
        lambda event: event,
        lambda event: event.replace(b"\n", b"\r\n"),
        lambda event: event.replace(b"\n", b"\r"),
        lambda event: event.replace(b"\n\n", b"\n"),
        lambda event: event.replace(b"data: ", b"data:"),
        lambda event: b": ping\n\n\n" + b"event: message\nid: 3\nretry: 10\n" + event,
        over_several_lines,
    ],
    ids=["LF", "CR LF", "CR", "no empty line", "no blank", "comments and names", "several lines"],
)
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_an_answer_is_the_same_however_its_events_are_written(
    written: Callable[[bytes], bytes], start: bytes
) -> None:
    payload = start + b"".join(map(written, EVENTS))
    body = assemble_body(payload)
    assert body["choices"][0]["message"]["content"] == TEXT
    assert body["usage"] == ANSWER["usage"]


def test_the_first_line_says_what_an_answer_is_where_its_type_does_not() -> None:
    whole, stream = orjson.dumps(ANSWER), b"".join(EVENTS)
    for payload in (stream, b"\xef\xbb\xbf" + stream, b"\r\n: ping\n\n" + stream, b"event: x\n" + stream):
        assert comes_in_pieces("application/json", payload)
    assert comes_in_pieces("Text/Event-Stream; charset=UTF-8", b"odd")
    for kind in ("application/json", "text/event-stream", ""):
        assert not comes_in_pieces(kind, b"\n" + whole)
    assert not comes_in_pieces("text/html", b"<html>Sign in</html>")


def test_an_error_amid_the_pieces_is_no_answer() -> None:
    halves = b'data: {"choices": []\n\ndata: "model": ""}\n\n'
    for said in (b'data: {"error": {"message": "overloaded"}}\n\n', b"data: half\n\n", halves, b"data: {}, {}\n\n"):
        with pytest.raises(Failure):
            assemble_body(b"".join(EVENTS[:3]) + said)


def test_numbers_of_choices_that_are_none_make_no_answer() -> None:
    def event(index: object) -> bytes:
        choice = {"index": index, "delta": {"content": "4"}, "finish_reason": "stop"}
        return b"data: %b\n\n" % orjson.dumps({"choices": [choice]})

    assert assemble_body(event(None) + event(0))["choices"][0]["message"]["content"] == "44"
    for index in ("0", 0.5, [0]):
        with pytest.raises(Failure, match="not a piece"):
            assemble_body(event(0) + event(index))


@pytest.mark.parametrize("pieces", [False, True])
def test_thoughts_in_parts_of_a_message_are_kept(pieces: bool) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Two bars "}, {"type": "text", "text": "of 2."}]},
        {"type": "text", "text": "4"},
    ]
    if pieces:
        each = [{"choices": [{"index": 0, "delta": {"content": [part]}, "finish_reason": None}]} for part in parts]
        each.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        body = assemble_body(b"".join(b"data: %s\n\n" % orjson.dumps(one) for one in each))
    else:
        body = parse_json(orjson.dumps({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}))
    completion = completion_from_body(body, b"", 0.1, logprobs=False)
    assert completion.text == "<think>Two bars of 2.</think>4"


def test_a_text_that_a_piece_has_under_two_names_counts_once_and_thoughts_are_no_content() -> None:
    deltas = [
        {"role": "assistant", "content": "", "reasoning": None},
        {"reasoning": "one ", "reasoning_content": "one "},
        {"reasoning_content": "two ", "reasoning": ""},
        {"content": [{"type": "thinking", "thinking": "three"}, {"type": "text", "text": "4"}]},
        {"content": "2", "reasoning": None, "tool_calls": []},
    ]
    ends = [None] * (len(deltas) - 1) + ["stop"]
    events = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in zip(deltas, ends, strict=True)
    ]
    body = assemble_body(b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events))
    message = body["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("one two three", "42")


@pytest.mark.parametrize("pieces", [False, True])
def test_a_message_in_more_levels_than_python_can_follow_is_no_answer(pieces: bool) -> None:
    levels = 505  # of two each; JSON texts may have 1,024
    content = b'[{"thinking":' * levels + b'"x"' + b"}]" * levels
    key = b"delta" if pieces else b"message"
    payload = b'{"choices":[{"%b":{"content":%b},"finish_reason":"stop"}]}' % (key, content)
    assert parse_json(payload)
    with pytest.raises(Failure):
        body = assemble_body(b"data: " + payload + b"\n\n") if pieces else parse_json(payload)
        completion_from_body(body, payload, 0.0, logprobs=False)


def test_an_answer_that_does_not_come_in_pieces_is_not_kept_for_a_listener() -> None:
    heard: list[str] = []

    class Listener:
        def begin(self) -> None:
            pass

        def write(self, text: str) -> None:
            heard.append(text)

    pieces, part = HeardPieces(Listener()), b"x" * (1 << 16)
    tracemalloc.start()
    try:
        for _ in range(128):
            pieces.feed(part)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * len(part)
    pieces.feed(b'\ndata: {"choices": [{"delta": {"content": "Blue"}}]}\n')
    assert heard == ["Blue"]


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning": "Two"},
        {"reasoning_content": "Two"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "Two"}]},
        {"reasoning": "Two", "reasoning_details": [{"type": "reasoning.text", "text": "Two"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Two"}]}]},
    ],
    ids=["reasoning", "content", "details", "reasoning and details", "parts"],
)
def test_thoughts_are_heard_under_each_name_that_an_answer_may_give_them(thought: dict[str, object]):
    heard: list[str] = []
    begun: list[str] = []

    class Listener:
        def begin(self) -> None:
            pass

        def write(self, text: str) -> None:
            heard.append(text)

    pieces = [{"model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in (thought, {"content": "Blue"})]
    stream = b"".join(b"data: %s\n\n" % orjson.dumps(piece) for piece in pieces)
    HeardPieces(Listener()).feed(stream)
    FirstText(begun.append).feed(stream.splitlines(keepends=True)[0])
    assert "".join(heard) == "<think>\nTwo\n</think>\n\nBlue" and begun == ["m"]
