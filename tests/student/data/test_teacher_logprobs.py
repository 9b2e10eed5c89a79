"""Stored distributions beside the student's tokens: what is aligned, what is kept, what is refused."""

import pickle
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import student_worlds as worlds

from distill.artifacts.journal import Journal
from distill.errors import DataError, ModelError
from distill.trace_records.logprobs import NO_TOKEN, encode
from student.data.teacher_logprobs import TopLogprobs, TraceRow, align, collect, likeliest

TOKENIZER = worlds.tokenizer()
K = 3


def decode(ids: list[int]) -> str:
    return str(TOKENIZER.decode(ids, skip_special_tokens=True))


def tokens(text: str) -> np.ndarray:
    return np.asarray(TOKENIZER(text)["input_ids"], np.int32)


def record(name: str, text: str, *, teacher: str = "t", shift: int = 0, stored: bool = True) -> dict[str, object]:
    """A trace's line; token i of it has the log-probabilities -i/8, -i/8 - 1 and so on, its own token first."""
    ids = tokens(text + "<|im_end|>") + shift
    table = np.stack([ids, *(ids + place for place in range(K))], axis=1)
    values = -np.arange(len(ids))[:, None] / 8 - np.array([0, *range(K)])
    kept = {"logprobs": encode(table, values.astype(np.float32))} if stored else {}
    return {"id": name, "teacher": teacher, "text": text, **kept}


def journal(folder: Path, *records: dict[str, object]) -> Path:
    for line in records:
        with Journal(folder / "generate" / str(line["teacher"]) / "part-00000.jsonl") as opened:
            opened.append(line)
    return folder / "generate"


def response(rationale: str, answer: str) -> np.ndarray:
    return tokens(f"<think>\n{rationale}\n</think>\n\n{answer}<|im_end|>")


RATIONALE = "row 1: red green, 1\nrow 2: blue blue, 0\nrow 3: green green, 2"


def test_tokens_inside_shared_runs_have_the_teacher_s_distribution_and_the_framing_has_none(tmp_path: Path) -> None:
    text = f"{RATIONALE}\nSo the answer is 4"
    generate = journal(tmp_path, record("a", text))
    ours = response(RATIONALE, "4")
    found, coverage = collect(generate, [TraceRow("a", ours)], top_k=K, decode=decode, folder=tmp_path / "table")
    ids, values = found.of(0, len(ours))
    theirs = tokens(text)
    inside = np.flatnonzero(ids[:, 0] != NO_TOKEN)
    head, body = len(tokens("<think>\n")), len(tokens(RATIONALE))
    assert inside.tolist() == list(range(head, head + body + 1))  # the line break after the rationale is shared, too
    assert (ids[inside, 0] == ours[inside]).all() and (ours[inside] == theirs[: len(inside)]).all()
    assert np.allclose(values[inside, 0], -np.arange(len(inside)) / 8, rtol=1e-3)
    outside = np.setdiff1d(np.arange(len(ours)), inside)
    assert (ids[outside] == NO_TOKEN).all() and (values[outside] == -np.inf).all()
    assert coverage["t"].aligned == len(inside) and coverage["t"].tokens == len(ours)


def test_a_response_written_as_the_teacher_did_is_aligned_to_its_last_token(tmp_path: Path) -> None:
    generate = journal(tmp_path, record("a", f"<think>\n{RATIONALE}\n</think>\n\n4"))
    _, coverage = collect(
        generate, [TraceRow("a", response(RATIONALE, "4"))], top_k=K, decode=decode, folder=tmp_path / "table"
    )
    assert coverage["t"].share == 1


def test_rows_in_any_order_twice_or_without_a_distribution(tmp_path: Path) -> None:
    texts = {name: f"<think>\nrow {number}: red\n</think>\n\n{number}" for number, name in enumerate("abcd")}
    generate = journal(
        tmp_path,
        *(record(name, text, teacher="tu"[number % 2]) for number, (name, text) in enumerate(texts.items())),
        record("e", "row 1: red", stored=False),
    )
    names = ["c", "", "a", "e", "d", "a", "nowhere"]
    ours = [tokens(texts.get(name, "How many?") + "<|im_end|>") for name in names]
    found, coverage = collect(
        generate, list(map(TraceRow, names, ours)), top_k=K, decode=decode, folder=tmp_path / "table"
    )
    for row, (name, expected) in enumerate(zip(names, ours, strict=True)):
        ids, values = found.of(row, len(expected))
        assert ids.shape == values.shape == (len(expected), K + 1)
        assert (ids[:, 0] == (expected if name in texts else NO_TOKEN)).all()
    assert {name: each.traces for name, each in coverage.items()} == {"t": 3, "u": 1}
    again: TopLogprobs = pickle.loads(pickle.dumps(found))
    assert len(pickle.dumps(found)) < 1000 and (again.of(0, 5)[0] == found.of(0, 5)[0]).all()


def test_the_traces_of_a_renamed_teacher_count_once_and_for_the_name_that_the_data_has(tmp_path: Path) -> None:
    text = f"<think>\n{RATIONALE}\n</think>\n\n4"
    generate = journal(tmp_path, *(record("a", text, teacher=name) for name in ("former", "now")))
    ours, folder = tokens(text + "<|im_end|>"), tmp_path / "table"
    found, coverage = collect(generate, [TraceRow("a", ours, "now")] * 2, top_k=K, decode=decode, folder=folder)
    assert {name: (each.traces, each.tokens) for name, each in coverage.items()} == {"now": (2, 2 * len(ours))}
    assert all((found.of(row, len(ours))[0][:, 0] == ours).all() for row in (0, 1))
    assert (folder / "ids.i4").stat().st_size == 2 * len(ours) * (K + 1) * 4


def test_a_teacher_with_other_tokens_is_refused_by_its_stored_ids(tmp_path: Path) -> None:
    right = [record(f"r{number}", f"<think>\n{RATIONALE}\n</think>\n\n{number}") for number in range(5)]
    wrong = [record(f"w{number}", RATIONALE, teacher="stranger", shift=1) for number in range(5)]
    generate = journal(tmp_path, *right, *wrong)
    names = [str(line["id"]) for line in (*right, *wrong)]
    ours = [response(RATIONALE, "4")] * len(names)
    with pytest.raises(
        ModelError, match=r"teacher 'stranger' has another tokenizer .* 5 of 5 traces .*remove \[stages.distill\]"
    ):
        collect(generate, list(map(TraceRow, names, ours)), top_k=K, decode=decode, folder=tmp_path / "table")
    found, _ = collect(
        generate, list(map(TraceRow, names[:5], ours)), top_k=K, decode=decode, folder=tmp_path / "table"
    )
    assert found.of(0, 3)[0].shape == (3, K + 1)


def test_a_text_that_a_server_wrote_differently_at_the_edges_is_the_same_text(tmp_path: Path) -> None:
    line = record("a", f"<think>\n{RATIONALE}\n</think>\n\n4") | {"text": f"<think>{RATIONALE}</think>4"}
    _, coverage = collect(
        journal(tmp_path, line),
        [TraceRow("a", response(RATIONALE, "4"))],
        top_k=K,
        decode=decode,
        folder=tmp_path / "table",
    )
    assert coverage["t"].share == 1


def test_a_run_without_any_distribution_is_refused(tmp_path: Path) -> None:
    generate = journal(tmp_path, record("a", RATIONALE, stored=False))
    with pytest.raises(DataError, match=r"0 of the 1 trace to learn from have log-probabilities.*set logprobs"):
        collect(
            generate, [TraceRow("a", response(RATIONALE, "4"))], top_k=K, decode=decode, folder=tmp_path / "table"
        )


def test_of_a_distribution_the_likeliest_tokens_and_the_sampled_one_are_kept_once() -> None:
    ids = np.array([[7, 1, 7, 3], [9, 1, 2, 3], [7, 7, NO_TOKEN, NO_TOKEN], [3, 1, 2, 3]], np.int32)
    values = np.array([[-1, -3, -1, -2], [-9, -1, -2, -3], [-1, -1, -np.inf, -np.inf], [-3, -1, -2, -3]], np.float32)
    kept, numbers = likeliest(ids, values, 2)
    assert kept.tolist() == [[7, 3, -1], [1, 2, 9], [7, -1, -1], [1, 2, 3]]
    assert numbers.tolist() == [[-1, -2, -np.inf], [-1, -2, -9], [-1, -np.inf, -np.inf], [-1, -2, -3]]
    wider, _ = likeliest(ids, values, 5)
    assert wider.shape == (4, 6) and (np.sort(wider[1])[-4:] == [1, 2, 3, 9]).all()


def test_an_empty_trace_aligns_with_nothing() -> None:
    nothing = np.zeros(0, np.int32)
    assert align(np.arange(9), nothing).tolist() == [-1] * 9 and align(nothing, np.arange(9)).tolist() == []
    assert (align(np.arange(9), np.full(9, NO_TOKEN)) == -1).all()


def test_a_repeated_passage_aligns_with_its_first_occurrence() -> None:
    passage = list(range(10, 30))
    places = align(np.array([1, 2, *passage, 3]), np.array([*passage, 5, 6, *passage, 4]))
    assert places.tolist() == [-1, -1, *range(20), -1]


IDS = st.lists(st.integers(0, 3) | st.sampled_from([0xD800, 151_645]), max_size=40)


@settings(max_examples=300)
@given(IDS, IDS)
def test_aligned_tokens_are_equal_and_in_order_in_runs_long_enough(ours: list[int], theirs: list[int]) -> None:
    places = align(np.array(ours, np.int32), np.array(theirs, np.int32))
    aligned = np.flatnonzero(places >= 0)
    assert all(ours[here] == theirs[places[here]] for here in aligned)
    assert (np.diff(places[aligned]) > 0).all()
    breaks = np.flatnonzero((np.diff(aligned) != 1) | (np.diff(places[aligned]) != 1)) + 1
    assert all(len(run) >= 4 or not len(run) for run in np.split(aligned, breaks))


@pytest.mark.parametrize("changed_share", [0.0, 0.01, 0.03])
def test_a_framed_text_with_some_changed_tokens_is_aligned_almost_everywhere_else(changed_share: float) -> None:
    chance = random.Random(0)
    shares = []
    for _ in range(50):
        theirs = [chance.choices(range(200), k=1)[0] for _ in range(300)]
        ours = _changed(theirs, changed_share, chance)
        places = align(np.array([900, 901, *ours, 902, 903]), np.array([*theirs, 904]))
        shares.append((places >= 0).mean())
    assert np.mean(shares) > 0.98 - 4 * changed_share


def _changed(ids: Sequence[int], share: float, chance: random.Random) -> list[int]:
    """Some tokens left out, doubled or replaced."""
    found: list[int] = []
    for token in ids:
        found += chance.choice([[], [500, 501], [502]]) if chance.random() < share else [token]
    return found
