"""What two columns or two groups of rows say of themselves: a fault that no rule expects is named by what is odd."""

import random
from collections.abc import Callable

import pytest

from distill.diagnosis import odd_rows, usual_figures
from distill.diagnosis.answer_relations import Pair, mapped, relations, same_for_different, shifted, unrelated
from distill.diagnosis.row_features import form, number_of, of_answer, of_question, of_reply, script, vocabulary
from distill.diagnosis.two_samples import differences, of_phrases
from distill.diagnosis.usual_figures import TextRow

DRAW = random.Random(5)
GOLDS = [str(DRAW.randrange(20)) for _ in range(80)]


def pairs(answers: list[str], golds: list[str] = GOLDS) -> list[Pair]:
    return [
        Pair(answer=answer, gold=gold, is_right=answer == gold) for answer, gold in zip(answers, golds, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "nothing"),
        ("-3.5", "a number"),
        ("1,200", "a number"),
        ("45 %", "a number"),
        ("12 kg", "a number with a unit"),
        ("(B)", "a letter"),
        ("Yes.", "yes or no"),
        ("red", "a word"),
        ("the red car", "a few words"),
        ("It is the red car on the left.", "a sentence"),
    ],
)
def test_the_form_of_an_answer_is_told(text: str, kind: str) -> None:
    assert form(text) == kind


def test_numbers_are_read_with_their_marks() -> None:
    assert [number_of(text) for text in ("$1,200.50", "−3", "12%", "x", "1-2")] == [1200.5, -3.0, 12.0, None, None]


def test_the_features_of_texts_are_their_form_and_script() -> None:
    assert script("图片中的数字 and") == "CJK" and script("12") is None
    assert of_reply("<think>\nI count.\n</think>\n\n4")["the form of what the reply ends with"] == "a number"
    assert of_reply("<think>\nI count")["the think block"] == "open"
    known = vocabulary(["How many red dots?", "How many blue dots?"])
    assert of_question("How many dots?", known)["the share of the question's words that are known"] == 1.0


def test_groups_of_the_same_kind_do_not_differ() -> None:
    rows = [of_answer(gold) for gold in GOLDS]
    assert differences(rows[:40], rows[40:]) == []
    assert differences(rows[:5], [of_answer("a sentence of several words")] * 40) == []  # too few to say


def test_the_feature_that_tells_two_groups_apart_comes_first() -> None:
    first = [of_answer(gold) for gold in GOLDS]
    (found, *_) = differences(first, [of_answer(f"It is the number {gold} here.") for gold in GOLDS])
    assert found.text == "the form of the answer: 'a sentence' in 100 % against 'a number' in 100 %"
    larger = differences(first, [of_answer(str(int(gold) + 1000)) for gold in GOLDS])
    assert "the value of the answer" in [each.feature for each in larger]


def test_a_category_that_the_first_group_never_has_is_a_difference_from_a_sixth_on() -> None:
    rows = [{"domain": "charts"}] * 60
    (found,) = differences(rows, [*rows[:40], *([{"domain": "digits"}] * 20)])
    assert found.text == "domain: 'digits' in 33 % against 0 %"
    assert differences(rows, [*rows[:58], *([{"domain": "digits"}] * 2)]) == []


@pytest.mark.parametrize(
    ("golds", "told"),
    [
        ([str(int(gold) + 1) for gold in GOLDS], "the gold answer is +1 away from the answer"),
        ([str((int(gold) + 1) * 100) for gold in GOLDS], "the answer is the gold answer times 0.01"),
        ([f"One sees {gold} of them." for gold in GOLDS], "the gold answer contains the answer beside other text"),
    ],
)
def test_a_relation_that_most_wrong_answers_share_is_told_with_an_example(golds: list[str], told: str) -> None:
    answers = [str(int(gold) + 1) for gold in GOLDS] if "times" in told else GOLDS
    (problem,) = relations(pairs(answers, golds))
    assert problem.startswith(f"{told} in ") and "such as" in problem


def test_wrong_answers_without_a_common_relation_and_right_ones_are_left_alone() -> None:
    drawn = [str(DRAW.randrange(20)) for _ in GOLDS]
    assert list(relations(pairs(drawn))) == [] and list(relations(pairs(GOLDS))) == []


def test_answers_of_another_form_than_the_gold_answers_are_told_and_nothing_that_follows() -> None:
    described = [f"The image shows {gold} red things on a table." for gold in GOLDS]
    (found,) = odd_rows.of_answers(pairs(["No idea what that is."] * 40 + described[40:]), "all", "data.questions")
    assert (found.name, found.certainty) == ("answers_unlike_gold", "likely")
    assert (
        "the answer is a sentence where the gold answer is a number in 80 of 80 wrong ones (100 %)" in found.problem
    )


def test_a_relation_of_one_group_is_told_where_all_rows_have_none() -> None:
    right = [Pair(answer=gold, gold=gold, is_right=True, groups={"domain": "charts"}) for gold in GOLDS]
    scaled = [
        Pair(answer=f"{int(gold) + 1}", gold=f"{int(gold) + 1}000", is_right=False, groups={"domain": "digits"})
        for gold in GOLDS[:30]
    ]
    drawn = [
        Pair(answer=str(DRAW.randrange(50, 90)), gold=gold, is_right=False, groups={"domain": "digits"})
        for gold in GOLDS[:40]
    ]
    (found,) = odd_rows.related([*right, *scaled, *drawn], "all", "data.questions")
    assert "all about the rows of the domain 'digits'" in found.problem
    assert "times 0.001 in 30 of 70 wrong ones (43 %)" in found.problem
    assert odd_rows.related([*right, *drawn], "all", "data.questions") == []


def test_a_student_that_counts_one_too_few_in_a_group_is_no_fault_of_the_gold_answers() -> None:
    right = [Pair(answer=gold, gold=gold, is_right=True, groups={"domain": "charts"}) for gold in GOLDS]
    fewer = [
        Pair(answer=str(int(gold) - 1), gold=gold, is_right=False, groups={"domain": "scenes"}) for gold in GOLDS
    ]
    assert odd_rows.related([*right, *right, *fewer], "distilled", "data.test") == []
    assert odd_rows.related(fewer, "distilled", "data.test") != []


def test_gold_answers_that_are_class_numbers_are_reported() -> None:
    order = DRAW.sample(range(30, 90), 20)
    classes = [str(order[int(gold)]) for gold in GOLDS]
    (found,) = odd_rows.related(pairs(GOLDS, classes), "distilled", "data.test")
    assert found.name == "answer_relation" and "but the same for the same answer" in found.problem
    noisy = [gold if n % 4 else str(DRAW.randrange(20)) for n, gold in enumerate(GOLDS)]
    assert mapped(pairs(noisy, classes)) and not mapped(pairs(GOLDS))
    assert not mapped(pairs([str(DRAW.randrange(20)) for _ in GOLDS]))
    assert not mapped(pairs(["7"] * 80)) and not mapped(pairs(["yes"] * 80, ["no"] * 80))


def test_gold_answers_of_the_text_alone_are_named() -> None:
    def asked(gold: Callable[[int], str]) -> list[TextRow]:
        return [TextRow(question=f"Number {n % 30}?", gold=gold(n), images=(str(n),)) for n in range(120)]

    (found,) = usual_figures.of_questions(asked(lambda n: str(n % 30)), "data.questions")
    assert (found.name, found.certainty) == (
        "gold_by_text",
        "likely",
    ) and "30 of 30 questions about several images (100 %)" in found.problem
    assert not list(usual_figures.of_questions(asked(lambda n: str(n)), "data.questions"))
    assert not list(usual_figures.of_questions(asked(lambda n: "yes" if n % 2 else "no"), "data.questions"))


def test_gold_answers_that_moved_against_their_rows_are_found_with_the_number_of_rows() -> None:
    told, is_own = shifted(pairs(GOLDS, GOLDS[3:] + GOLDS[:3])) or ("", True)
    assert "gold answer of the row 3 rows before" in told and is_own is None
    assert told.endswith("the gold answers, images or replies belong to other rows")
    assert shifted(pairs(GOLDS)) is None
    drawn = [str(DRAW.randrange(20)) for _ in GOLDS]
    assert shifted(pairs(drawn)) is None


@pytest.mark.parametrize(("moved", "name"), [(0, "gold_shifted"), (3, "replies_shifted")])
def test_the_words_of_replies_tell_whether_they_or_the_gold_answers_moved(moved: int, name: str) -> None:
    things = [DRAW.choice(("apples", "pears", "plums", "figs", "nuts", "eggs", "cups", "keys")) for _ in GOLDS]
    rows = [
        Pair(
            answer=GOLDS[place - 3],
            gold=gold,
            is_right=False,
            question=f"How many {things[place]} are there?",
            text=f"I count the {things[place - moved]}.",
        )
        for place, gold in enumerate(GOLDS)
    ]
    (found,) = odd_rows.related(rows, "a teacher", "data.questions")
    assert found.name == name and ("data.questions" in found.change) is (moved == 0)


def test_answers_that_equal_gold_answers_by_chance_alone_are_unrelated() -> None:
    golds = [str(DRAW.randrange(4)) for _ in range(200)]
    mixed = DRAW.sample(golds, len(golds))
    assert "with the gold answers of other rows it would be" in unrelated(pairs(mixed, golds))
    assert unrelated(pairs(golds, golds)) == "" and unrelated(pairs(["x"] * 200, golds)) == ""


def test_replies_that_repeat_that_to_another_image_are_counted() -> None:
    asked = [("How many?", str(n), "I count three of them.") for n in range(30)]
    assert same_for_different(asked) == (29, 29)
    (found,) = odd_rows.of_same_replies(asked, "a teacher")
    assert found.name == "same_reply" and "29 of 29 replies of " in found.problem
    assert list(odd_rows.of_same_replies([(q, g, f"{r} {g}") for q, g, r in asked], "a teacher")) == []
    assert list(odd_rows.of_same_replies([(q, g, "") for q, g, _ in asked], "a teacher")) == []


def rows(count: int = 120, **fields: str) -> list[TextRow]:
    def row(n: int) -> TextRow:
        values = {"question": f"How many dots has number {n}?", "gold": str(n), "answer": str(n)}
        values |= {"rationale": f"Number {n} shows row after row of dots, and these are {n}."}
        values |= {name: value.format(n, n) for name, value in fields.items() if name != "image"}
        return TextRow(images=(fields.get("image", "{}").format(n),), **values)

    return [row(n) for n in range(count)]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, ""),
        ({"question": "How many&nbsp;dots {}?"}, "question_characters"),
        ({"question": "charts"}, "question_short"),
        ({"gold": "word " * 70}, "gold_long"),
        ({"gold": "nan"}, "gold_missing"),
        ({"gold": "none"}, ""),
        ({"image": "the same"}, "one_image"),
    ],
)
def test_figures_of_questions_out_of_their_range_are_named(fields: dict[str, str], name: str) -> None:
    assert [found.name for found in usual_figures.of_questions(rows(**fields), "data.questions")] == [name][
        : len(name)
    ]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, ""),
        ({"rationale": "Number {} has â€œdotsâ€ in some rows, {}."}, "rationale_characters"),
        ({"rationale": "{}"}, "rationale_short"),
        ({"rationale": "我们先仔细看一下这张图片，然后计算 {}。"}, "rationale_script"),
        ({"rationale": "Number {} shows a row of dots and,"}, "rationale_cut"),
        ({"rationale": "Number {} of {} dots is what the row shows"}, "rationale_unended"),
        ({"answer": "77"}, "rationale_without_answer"),
        ({"answer": "Yes"}, ""),
        ({"rationale": "How many dots has number {}? I count {}."}, "rationale_is_question"),
        ({"rationale": "We see seven dots, so the answer is 7 here.", "answer": "7"}, "rationales_alike"),
    ],
)
def test_figures_of_traces_out_of_their_range_are_named(fields: dict[str, str], name: str) -> None:
    assert [found.name for found in usual_figures.of_traces(rows(**fields), "teachers")] == [name][: len(name)]


def test_who_is_often_one_too_low_among_many_right_answers_has_right_gold_answers() -> None:
    right = pairs(GOLDS[:30], GOLDS[:30])
    low = [Pair(answer=str(int(gold) - 1), gold=gold, is_right=False) for gold in GOLDS[30:60]]
    assert list(relations([*right, *low])) == [] and len(list(relations([*low, *low]))) == 1


def test_a_phrase_that_the_texts_of_one_group_lack_is_told_in_its_longest_form() -> None:
    asked = [f"How many {thing} are in picture {number}?" for number in range(20) for thing in ("cats", "dogs")]
    told = [f"{question} Reference text: {number}" for number, question in enumerate(asked)]
    found = of_phrases("questions with", [*told, *asked[:10]], asked)
    assert found is not None and found.text == "questions with 'reference text': 0 % against 80 %"
    assert of_phrases("questions with", asked, asked[10:30]) is None
    assert of_phrases("questions with", told, asked[:19]) is None


@pytest.mark.parametrize(
    ("begin", "is_named"),
    [
        ("The answer is {gold}. ", True),
        ("{gold}. ", True),
        ("The rows show {gold} and more. ", False),
        ("", False),
    ],
)
def test_rationales_that_begin_with_the_answer_are_named(begin: str, is_named: bool) -> None:
    seen = "In the first row there are some apples, and in the second row all of the others."
    rows = [
        TextRow(question="How many?", gold=gold, images=(), rationale=f"{begin.format(gold=gold)}{seen}", answer=gold)
        for gold in GOLDS
    ]
    names = [found.name for found in usual_figures.of_traces(rows, "prompt")]
    assert ("rationale_answer_first" in names) is is_named
