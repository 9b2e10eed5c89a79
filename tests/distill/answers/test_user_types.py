"""Answer types of users: how they are found by name and digest, and what their verdicts mean."""

from collections.abc import Callable, Iterator

import pytest

from distill.answers import judge, user_types
from distill.answers.user_types import UserAnswerType


def by_first_letter(said: str, gold: str) -> bool | None:
    if not said[0].isalpha():
        raise ValueError("no letter")
    return None if said[0].isupper() else said[0] == gold[0]


@pytest.fixture(autouse=True)
def _no_types_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(user_types, "_TYPES", {})
    yield


@pytest.mark.parametrize(
    ("said", "verdict", "reason"),
    [
        ("cat", "correct", "own_type"),
        ("dog", "wrong", "own_type"),
        ("Cat", "undecided", "own_type"),
        ("7", "undecided", "own_type_failed"),
    ],
)
def test_the_function_of_a_user_decides_and_a_failure_leaves_the_answer_open(
    said: str, verdict: str, reason: str
) -> None:
    UserAnswerType(name="own_letter", same=by_first_letter)
    judged = judge(said, "cow", "own_letter")
    assert (judged.verdict, judged.reason, judged.answer_type) == (verdict, reason, "own_letter")


@pytest.mark.parametrize(("value", "verdict"), [(True, True), (False, False), (None, None), (1, True), (0, False)])
def test_a_verdict_is_true_false_or_none(value: object, verdict: bool | None) -> None:
    same: Callable[[str, str], bool | None] = lambda said, gold: value  # type: ignore[return-value]  # noqa: E731
    assert UserAnswerType(name="own_constant", same=same).decide("a", "b") is verdict


def test_another_value_is_no_verdict() -> None:
    other = UserAnswerType(name="own_text", same=lambda said, gold: "yes")  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="it returned 'yes'; a verdict is True, False or None"):
        other.decide("a", "b")


def test_a_type_is_found_by_its_name_and_by_the_digest_of_its_code() -> None:
    digests = ["0123456789abcdef0123", "fedcba98765432100000"]
    types = []
    for digest in digests:
        function = lambda said, gold: True  # noqa: E731
        function.__module__ = f"answer_types_{digest}"
        types.append(UserAnswerType(name="own_same", same=function))
    stated = [user_types.stated_type("own_same", f"sha256:{digest}") for digest in digests]
    assert stated == ["own_same@0123456789abcdef", "own_same@fedcba9876543210"]
    assert [user_types.find(name) for name in stated] == types
    assert user_types.find("own_same") is user_types.find("own_same@unknown") is types[1]
    assert user_types.find("own_other") is None


def test_a_type_takes_the_place_of_no_type_of_the_project() -> None:
    UserAnswerType(name="number", same=by_first_letter)
    assert user_types.find("number") is None and judge("5", "5", "number").reason == "same_text"
