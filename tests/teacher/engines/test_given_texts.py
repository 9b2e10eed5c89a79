"""Where a given text lies in a server's prompt, and answers that hold no scores of it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacher.engines.http.given_texts import scored_text, token_ends
from teacher.engines.outage import Failure

PROMPT = ["", "user", "\n", "?", "assistant", "\n"]


@pytest.mark.parametrize(
    ("text", "pieces", "ends"),
    [
        ("one two", ["one", " two"], [3, 7]),
        ("", [], []),
        ("😀x", ["", "", "", "😀", "x"], [1, 1, 1, 1, 2]),
        ("😀x", ["\ufffd", "\ufffd", "\ufffd", "\ufffd", "x"], [1, 1, 1, 1, 2]),
        ("a漢b", ["a", "", "\ufffd", "b"], [1, 2, 2, 3]),
        ("a é", ["a", " ", "", "é"], [1, 2, 3, 3]),
    ],
)
def test_each_token_ends_where_its_character_ends(text: str, pieces: list[str], ends: list[int]) -> None:
    assert token_ends(text, [*PROMPT, *pieces]) == ends


def test_a_token_that_begins_in_the_prompt_belongs_to_the_text() -> None:
    assert token_ends("\nabc", ["assistant", "\n\n", "abc"]) == [1, 4]


@pytest.mark.parametrize("pieces", [[], ["one"], ["one", " three"], ["one", " two", "!"]])
def test_a_prompt_that_does_not_end_with_the_text_is_no_score(pieces: list[str]) -> None:
    assert token_ends("one two", [*PROMPT, *pieces]) is None


@given(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=20))
def test_any_text_is_found_piece_by_piece(pieces: list[str]) -> None:
    pieces = [piece for piece in pieces if "\ufffd" not in piece]
    ends = token_ends("".join(pieces), ["<|assistant|>", *pieces])
    assert ends == np.cumsum([len(piece) for piece in pieces]).tolist()


def entry(token: int, text: str, logprob: Any = -1.0, rank: int = 4) -> dict[str, Any]:
    others = {str(9 - place): {"logprob": -0.1 * place, "rank": place, "decoded_token": "x"} for place in (1, 2)}
    return {str(token): {"logprob": logprob, "rank": rank, "decoded_token": text}} | others


def test_the_token_of_the_text_comes_first_then_the_likeliest() -> None:
    body = {"prompt_logprobs": [None, entry(1, "user"), entry(5, "one"), entry(6, " two")], "model": "m"}
    done = scored_text(body, b"", 0.0, "one two", 2)
    assert done.token_ids is not None and done.token_logprobs is not None
    assert done.token_ids.tolist() == [[5, 8, 7], [6, 8, 7]]
    assert np.allclose(done.token_logprobs, [[-1, -0.1, -0.2]] * 2)
    assert (done.prompt_tokens, done.completion_tokens, done.model) == (2, 2, "m")


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"prompt_logprobs": None},
        {"prompt_logprobs": []},
        {"prompt_logprobs": [None, {}]},
        {"prompt_logprobs": [None, entry(1, "7", "high")]},
        {"prompt_logprobs": [None, entry(1, "7", 0.5)]},
        {"prompt_logprobs": [None, entry(1, "7", float("nan"))]},
        {"prompt_logprobs": [entry(1, "7")]},
        {"prompt_logprobs": [None, entry(1, "8")]},
        {"prompt_logprobs": [None, {"x": {"logprob": -1.0, "rank": 1, "decoded_token": "7"}}]},
    ],
)
def test_what_holds_no_scores_is_an_error_that_says_so(body: Any) -> None:
    with pytest.raises(Failure, match=r"prompt_logprobs of a text|does not end with the given text"):
        scored_text(body, b"{}", 0.0, "7", 1)


def test_a_server_that_replies_without_scores_is_no_outage_and_the_key_to_change_is_named() -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "7"}}]}
    with pytest.raises(Failure, match=r"cannot score texts.*stages\.visual\.teacher") as caught:
        scored_text(body, b"{}", 0.0, "7", 1)
    assert caught.value.remedy
