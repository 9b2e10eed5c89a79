"""What a rationale concludes is read cautiously: a right answer is never contradicted, a wrong one mostly is."""

from pathlib import Path

import orjson
import pytest

from distill.answers.consistency import compare_conclusion, find_conclusion

RATIONALES = [
    orjson.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "chart_rationales.jsonl").read_bytes().splitlines()
]
ANSWERS = (
    ("12", "13"), ("63%", "62%"), ("8.5%", "8.6%"), ("2", "3"), ("175", "165"), ("44%", "45%"),
    ("65+", "18-29"), ("12:5", "12:7"), ("26", "25"), ("6", "7"), ("yes", "no"),
    ("346 thousand", "345 thousand"), ("23%", "24%"), ("214", "213"), ("8", "9"), ("17", "16"),
    ("11.1 million", "11.2 million"), ("Feb to Mar", "May to Jun"), ("37.6%", "36.7%"), ("45.7", "45.8"),
    ("2014", "2011"), ("5", "4"), ("9", "8"), ("18", "17"), ("5", "6"), ("3 million", "4 million"),
    ("20", "21"), ("66%", "67%"), ("125", "124"), ("1.23", "1.24"), ("-1.5%", "-1.6%"), ("45%", "46%"),
    ("Alice and Bob", "Carla"), ("9", "8"), ("10", "11"), ("6", "5"), ("22", "21"), ("6", "7"), ("53%", "52%"),
    ("$1,599.20", "$1,699.20"), ("39.6%", "38.6%"), ("16.3", "16.4"),
)  # fmt: skip
"""For each rationale its answer as a person reads it, and another one."""


def test_rationales_of_many_styles_never_contradict_their_own_answer_and_mostly_another_one() -> None:
    own = [compare_conclusion(row["rationale"], answer) for row, (answer, _) in zip(RATIONALES, ANSWERS, strict=True)]
    other = [
        compare_conclusion(row["rationale"], answer) for row, (_, answer) in zip(RATIONALES, ANSWERS, strict=True)
    ]
    assert "contradicts" not in own and "agrees" not in other
    assert own.count("agrees") >= 21 and other.count("contradicts") >= 20


@pytest.mark.parametrize(
    ("reasoning", "answer", "expected"),
    [
        ("blue 8, red 6: 8 + 6 = 14.", "14", "agrees"),
        ("blue 8, red 6: 8 + 6 = 14.", "15", "contradicts"),
        ("I see 3 apples and 4 pears, so 7 in all.", "8", "contradicts"),
        ("The chart shows 45 in 2015.\nThe answer is **45**.", "54", "contradicts"),
        (r"Adding both gives \boxed{12}.", "12", "agrees"),
        ("Seven of the shapes are red.", "7", "agrees"),
        # A unit or a scale is not told apart here: the digits are those of the answer.
        ("The difference is 3.5 - 1.2 = 2.3 million.", "2.3", None),
        # What comes after the result contradicts nothing, nor does a sentence without one.
        ("So it grew by 16.3. Peru, in contrast, fell by 2.5.", "16.3", None),
        ("So it is 45.7. Sanity check: 100 - 54.3 = 45.7.", "45.7", "agrees"),
        ("There are 3 rows of 4 apples in row 9 as well", "12", None),
        # Words may be put in other words, unless they are marked as the answer.
        ("The sky is dark, so it is night.", "evening", None),
        ("It is dark. The answer is night.", "day", "contradicts"),
        ("It is a photograph.", "12", None),
        ("", "12", None),
        ("So there are 12.", "", None),
    ],
)
def test_a_conclusion_is_compared_with_the_answer(reasoning: str, answer: str, expected: str | None) -> None:
    assert compare_conclusion(reasoning, answer) == expected


def test_a_choice_is_compared_by_letter_or_text() -> None:
    offered = ("cat", "dog")
    assert compare_conclusion("It barks, so it must be the dog.", "B", "choice", offered) == "agrees"
    assert compare_conclusion("So the right choice is B.", "A", "choice", offered) == "contradicts"
    assert compare_conclusion("A dog would bark.", "A", "choice", offered) is None


def test_the_conclusion_is_what_is_marked_else_the_last_sentence() -> None:
    assert find_conclusion("First 3.5 are read. Then 4 more.") == (
        "Then 4 more.",
        False,
        "First 3.5 are read. Then 4 more.",
    )
    marked = find_conclusion("The answer is 7. It was 8 before.")
    assert marked is not None and marked[:2] == ("7", True)
    assert find_conclusion("  \n") is None
