"""The answer judge, promise by promise, its symbolic voter, and the reference metrics on published values."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distill.answers import math_worker, verdicts
from distill.answers.answer_types import infer_type
from distill.answers.reference_metrics import anls, exact_match, relaxed_accuracy, rouge_l
from distill.answers.verdicts import equivalent, judge

CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"


@pytest.mark.parametrize(
    ("gold", "kind"),
    [
        ("7", "number"),
        ("1/2", "number"),
        ("seven", "number"),
        ("7 apples", "number"),
        ("1,000", "number"),
        ("1234.5", "number"),
        ("2010", "year"),
        ("3010", "number"),
        ("50%", "percent"),
        ("fifty percent", "percent"),
        ("$5", "money"),
        ("5 euros", "money"),
        ("12:30", "time"),
        ("3 pm", "time"),
        ("16:9", "ratio"),
        ("B", "choice"),
        ("(C)", "choice"),
        ("2010-03-05", "date"),
        ("March 5, 2010", "date"),
        ("1, 2 and 3", "list"),
        ("red, blue and green", "list"),
        ("[1, 2]", "list"),
        ("cat", "text"),
        ("A man and his dog", "text"),
        ("New York", "text"),
        ("March", "date"),
    ],
)
def test_the_type_of_a_gold_answer_is_inferred_and_recorded(gold: str, kind: str) -> None:
    assert infer_type(gold) == kind
    assert judge("nothing of the sort", gold).answer_type == kind


def test_a_declared_type_overrules_the_inferred_one() -> None:
    assert judge("2050", "2010", relative_tolerance=0.05).verdict == WRONG
    assert judge("2050", "2010", "number", relative_tolerance=0.05).verdict == CORRECT
    assert judge("50%", "50", "percent").verdict == CORRECT
    assert judge("6:40", "3:20", "ratio").verdict == CORRECT
    assert judge("6:40", "3:20", "time").verdict == WRONG


def test_numeric_answers_keep_their_relative_error_and_others_have_none() -> None:
    assert judge("110", "100").relative_error == pytest.approx(0.1)
    assert judge("90", "100").relative_error == pytest.approx(0.1)
    assert judge("$110", "$100").relative_error == pytest.approx(0.1)
    assert judge("100", "100").relative_error == 0.0
    assert judge("1", "0").relative_error == float("inf")
    for prediction, gold in (("2011", "2010"), ("12:45", "12:30"), ("10:7", "10:1"), ("dog", "cat"), ("C", "B")):
        assert judge(prediction, gold).relative_error is None


def test_a_tolerance_is_relative_to_the_gold_and_inclusive() -> None:
    assert judge("19", "20", relative_tolerance=0.05).verdict == CORRECT
    assert judge("20", "19", relative_tolerance=0.05).verdict == WRONG
    assert judge("105", "100", relative_tolerance=0.05).verdict == CORRECT
    assert judge("106", "100", relative_tolerance=0.05).verdict == WRONG
    assert judge("0.01", "0", relative_tolerance=0.05).verdict == WRONG


def test_one_accepted_gold_is_enough_and_an_open_one_is_kept() -> None:
    assert judge("NYC", ["New York", "NYC"]).verdict == CORRECT
    assert judge("0.5", ["12", "50%"]).verdict == UNDECIDED
    assert judge("9", ["7", "8"]).verdict == WRONG
    assert judge("9", ["70", "8"]).relative_error == pytest.approx(0.125)


@pytest.mark.parametrize("gold", ["", "  ", [], ["", " "]])
def test_without_a_gold_answer_nothing_is_decided(gold: str | Sequence[str]) -> None:
    judged = judge("7", gold)
    assert (judged.verdict, judged.reason) == (UNDECIDED, "no_gold")


OPTIONS = ["red", "dark red", "blue", "7"]


@pytest.mark.parametrize(
    ("gold", "prediction", "verdict"),
    [
        ("C", "blue", CORRECT),
        ("C", "C. blue", CORRECT),
        ("C", "(C) blue", CORRECT),
        ("C", "The answer is blue.", CORRECT),
        ("C", "It looks blue to me", CORRECT),
        ("blue", "C", CORRECT),
        ("blue", "(C)", CORRECT),
        ("B", "dark red", CORRECT),
        ("A", "dark red", WRONG),
        ("A", "It is dark red", WRONG),
        ("A", "It is red", CORRECT),
        ("D", "7", CORRECT),
        ("C", "red", WRONG),
        ("C", "B) blue", UNDECIDED),
        ("C", "red or blue", UNDECIDED),
        ("C", "not blue", UNDECIDED),
        ("C", "green", UNDECIDED),
    ],
)
def test_a_choice_is_a_letter_or_the_text_of_an_option(gold: str, prediction: str, verdict: str) -> None:
    assert judge(prediction, gold, "choice", options=OPTIONS).verdict == verdict


@pytest.mark.timing
def test_a_symbolic_comparison_that_takes_too_long_is_undecided_and_the_next_one_works() -> None:
    endless = "\\int_0^{10^{9}} \\sin(x^{x^{x}}) \\cdot \\prod_{k=1}^{10^{8}} (x-k) dx"
    started = time.monotonic()
    late = math_worker.vote_on_expressions(endless, "9^{9^{9^{9}}}", timeout_s=0.5)
    assert late is not None and (late.verdict, late.reason) == (UNDECIDED, "expression_took_too_long")
    assert time.monotonic() - started < 30
    found = math_worker.vote_on_expressions("\\sqrt{4}", "2")
    assert found is not None and found.verdict == CORRECT


def test_a_symbolic_comparison_that_had_to_wait_for_the_processor_has_the_same_verdict() -> None:
    assert math_worker.vote_on_expressions("\\sqrt{4}", "2") is not None
    worker = math_worker._worker._process
    assert worker is not None
    worker.send_signal(signal.SIGSTOP)
    threading.Timer(1.5, worker.send_signal, [signal.SIGCONT]).start()
    found = math_worker.vote_on_expressions("\\sqrt{9}", "3", timeout_s=1.0)
    assert found is not None and found.verdict == CORRECT
    assert math_worker._worker._process is worker


def test_a_start_of_the_symbolic_worker_that_is_interrupted_shifts_no_later_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    math_worker._worker.stop()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(math_worker._Worker, "_line", interrupted)
        math_worker.vote_on_expressions("1", "2")
    votes = [math_worker.vote_on_expressions(*pair) for pair in (("2", "2"), ("3", "4"))]
    assert [vote and vote.verdict for vote in votes] == [CORRECT, WRONG]


def test_a_symbolic_worker_that_dies_before_a_question_reaches_it_leaves_it_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, started = math_worker._worker, math_worker._Worker._started

    def dies(self: math_worker._Worker) -> object:
        process = started(self)
        assert process is not None
        process.kill()
        process.wait()
        return process

    with monkeypatch.context() as patched:
        patched.setattr(math_worker._Worker, "_started", dies)
        vote = math_worker.vote_on_expressions("2", "2")
    assert vote is not None and vote.verdict == UNDECIDED
    assert (vote := math_worker.vote_on_expressions("2", "2")) is not None and vote.verdict == CORRECT
    assert worker._process is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no process")
def test_a_process_forked_during_a_vote_has_a_symbolic_worker_of_its_own() -> None:
    program = (
        "import os, sys; from distill.answers import math_worker as m; m.vote_on_expressions('2', '2');"
        "m._worker._lock.acquire();"
        "child = os.fork();"
        "vote = child or m.vote_on_expressions('2', '2');"
        "child or (m._worker.stop(), os._exit(vote is None or vote.verdict != 'correct'));"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]); m._worker._lock.release();"
        "sys.exit(code or m._worker._process.poll() is not None)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_the_symbolic_worker_ends_with_the_process_that_started_it() -> None:
    program = (
        "import os; from distill.answers import math_worker as m; m.vote_on_expressions('2', '2');"
        "print(m._worker._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    worker = int(done.stdout)
    deadline = time.monotonic() + 60
    while _is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(worker)


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=500)
def test_any_two_texts_get_a_verdict(prediction: str, gold: str) -> None:
    judged = verdicts._judge(prediction, gold, None, 0.0, None, ask_worker=False)
    assert judged.verdict in (CORRECT, WRONG, UNDECIDED)


@given(
    st.text(alphabet="0123456789.,:%$/- ()ABCabc½−\\{}^", min_size=1, max_size=20),
    st.sampled_from(sorted(verdicts.TYPES)),
)
@settings(max_examples=500)
def test_an_answer_always_agrees_with_itself(text: str, kind: str) -> None:
    if text.strip():
        assert verdicts._judge(text, text, kind, 0.0, None, ask_worker=False).verdict == CORRECT


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=2))
@settings(max_examples=300)
def test_a_number_is_the_same_with_and_without_separators(value: Decimal) -> None:
    assert judge(f"{value:,}", str(value), "number").verdict == CORRECT
    assert judge(str(value + 1), str(value), "number").verdict == WRONG


def test_equivalence_is_symmetric_and_asks_no_worker() -> None:
    for a, b in (("7", "7.0"), ("50%", "50"), ("1,000", "1000"), ("a cat", "Cat"), ("(B)", "B")):
        assert equivalent(a, b)
        assert equivalent(b, a)
    assert not equivalent("7", "8")
    assert not equivalent("\\sqrt{4}", "2")


def test_a_letter_and_the_text_of_its_option_are_equivalent() -> None:
    for a, b in (("C", "blue"), ("(c)", "It is blue."), ("dark red", "B"), ("7", "D")):
        assert equivalent(a, b, options=OPTIONS)
        assert equivalent(b, a, "choice", options=OPTIONS)
    for a, b in (("C", "red"), ("B", "red"), ("blue", "red or blue"), ("A", "green")):
        assert not equivalent(a, b, options=OPTIONS)
    assert not equivalent("C", "blue")


def test_a_gold_that_is_one_of_the_options_is_a_choice() -> None:
    assert judge("C", "blue", options=OPTIONS).answer_type == "choice"
    assert judge("C", "blue", options=OPTIONS).verdict == CORRECT
    assert judge("B", "blue", options=OPTIONS).verdict == WRONG
    assert judge("D", "7", options=OPTIONS).verdict == CORRECT
    assert judge("black", "black", options=OPTIONS).answer_type == "text"


@pytest.mark.timing
def test_judging_numbers_is_fast_enough_for_millions_of_traces() -> None:
    started = time.process_time()
    for value in range(4000):
        judge(f"The answer is {value % 97}.", str(value % 89), "number")
    rate = 4000 / (time.process_time() - started)
    assert rate > 5_000, f"{rate:.0f} judgements a second"  # about 50,000 on an idle core


# Eight pairs (prediction, target) from the published tests of pix2struct, with the averages they give there.
PUBLISHED = [
    ("abc", "abc"),
    ("abc", "Abc"),
    ("Abc", "abc"),
    ("100%", "96%"),
    ("100%", "94%"),
    ("100%", "0.96"),
    ("100%", "0.94"),
    ("Don't", "Won't"),
]


def test_reference_metrics_agree_with_the_published_averages() -> None:
    def average(metric: Callable[[str, str], float]) -> float:
        return 100 * sum(metric(prediction, target) for prediction, target in PUBLISHED) / len(PUBLISHED)

    assert average(exact_match) == 12.5
    assert average(anls) == pytest.approx(47.5)
    assert average(relaxed_accuracy) == 62.5


@pytest.mark.parametrize(
    ("prediction", "score"),
    [("The Coca", 0.0), ("CocaCola", 0.89), ("Coca cola", 1.0), ("Cola", 0.0), ("Cat", 0.0)],
)
def test_anls_agrees_with_the_values_published_for_two_aliases(prediction: str, score: float) -> None:
    assert anls(prediction, ["Coca Cola", "Coca Cola Company"]) == pytest.approx(score, abs=0.005)


@pytest.mark.parametrize(
    ("prediction", "similarities"),
    [
        ("The Coca", (0.44, 0.29)),
        ("CocaCola", (0.89, 0.47)),
        ("Coca cola", (1.0, 0.53)),
        ("Cola", (0.44, 0.23)),
        ("Cat", (0.22, 0.12)),
    ],
)
def test_the_similarities_below_the_threshold_agree_too(prediction: str, similarities: tuple[float, float]) -> None:
    found = [anls(prediction, gold, threshold=1.01) for gold in ("Coca Cola", "Coca Cola Company")]
    assert found == pytest.approx(similarities, abs=0.006)  # published cut to two places


@pytest.mark.parametrize(
    ("prediction", "gold", "score"),
    [
        ("19", "20", 1.0),
        ("20", "19", 0.0),
        ("1950", "2010", 1.0),
        ("0.01", "0", 0.0),
        ("0", "0", 1.0),
        ("1,000", "1000", 0.0),
        ("$5", "5", 0.0),
        ("Yes.", "Yes", 0.0),
    ],
)
def test_relaxed_accuracy_keeps_the_definition_with_its_oddities(prediction: str, gold: str, score: float) -> None:
    assert relaxed_accuracy(prediction, gold) == score


def test_rouge_l_is_the_longest_common_subsequence_f_measure_of_the_best_gold() -> None:
    assert rouge_l("the cat sat", "the cat sat") == 1.0
    assert rouge_l("the cat", "the cat sat on a mat") == pytest.approx(2 * (1.0 * 2 / 6) / (1.0 + 2 / 6))
    assert rouge_l("the cat", ["something else", "the cat"]) == 1.0
    assert rouge_l("", "the cat") == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_rouge_l_gives_the_numbers_of_the_rouge_score_package(seed: int) -> None:
    from rouge_score.rouge_scorer import RougeScorer

    chance = random.Random(seed)
    words = ["the", "cat", "sat,", "on", "A", "mat.", "12", "15.3%", "red-blue", "It's", "été", "\n"]
    one, other = (" ".join(chance.choices(words, k=chance.randint(0, 40))) for _ in range(2))
    expected = RougeScorer(["rougeL"], use_stemmer=False).score(other, one)["rougeL"].fmeasure
    assert rouge_l(one, other) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "answer",
    [
        "17 (or 18)",
        "17 (or maybe 18)",
        "17 (possibly 18)",
        r"\boxed{16} or \boxed{17}",
        r"$\boxed{17}$ or $\boxed{18}$",
    ],
)
def test_an_answer_that_names_another_number_beside_the_right_one_is_undecided(answer: str) -> None:
    assert judge(answer, ["17"]).verdict == "undecided"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("0.75 (or 75)", "0.75"),
        ("50% (or 0.5)", "50%"),
        ("1.5 hours (or 90 minutes)", "1.5 hours"),
        ("17 (or 17)", "17"),
    ],
)
def test_the_same_number_in_other_units_is_no_other_number(answer: str, gold: str) -> None:
    assert judge(answer, [gold]).verdict == "correct"


@pytest.mark.parametrize(
    ("said", "gold", "verdict"),
    [
        ("three halves", "1.5", CORRECT),
        ("two third", "2", UNDECIDED),  # of what has no plural, the words may be two numbers
        ("nineteen ten", "1910", CORRECT),
        ("ten ten", "1010", CORRECT),
        ("ثلاث", "3", CORRECT),
        ("午後13時", "13:00", CORRECT),
    ],
)
def test_numbers_in_words_are_read_to_the_edge_of_their_rules(said: str, gold: str, verdict: str) -> None:
    assert judge(said, gold, "time" if ":" in gold else "number").verdict == verdict


def test_a_quantifier_that_two_options_share_chooses_none() -> None:
    shared = ["all of the above", "all of these", "red"]
    assert judge("all of them", "A", "choice", options=shared).verdict == UNDECIDED
    assert judge("all of them", "A", "choice", options=["all of the above", "blue", "red"]).verdict == CORRECT
