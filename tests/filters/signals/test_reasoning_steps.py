import time

import pytest
from worlds.run_fixtures import sample, trace

from filters.signals.families.reasoning_steps import Steps, count_steps, find_backtracks


@pytest.mark.parametrize(
    ("text", "count", "kind"),
    [
        ("Step 1: look.\nStep 2: count.\nStep 3: add.", 3, "numbered"),
        ("**Step 1:** look.\n\n**Step 2:** count.", 2, "numbered"),
        ("1. Look.\n2. Count.\n   It is 5.\n3. Add.", 3, "numbered"),
        ("Step 1: look at the bar. Step 2: add. As in step 1, it fits.", 2, "numbered"),
        ("第一步：看图。\n第二步：相加。", 2, "numbered"),
        ("Schritt 1: Lesen.\nSchritt 2: Rechnen.", 2, "numbered"),
        ("- red: 5\n- blue: 6", 2, "items"),
        ("The values are\n12. then\n40. then.", 3, "sentences"),
        ("Look at the red bar.\n\nIt is 5.\n\nSo the sum is 9.", 3, "paragraphs"),
        ("The bar is at 3.5 units. The next is 4! Is that all? Yes", 3, "sentences"),
        ("红色柱子是6。蓝色柱子是8。", 2, "sentences"),
        ("five", 1, "sentences"),
    ],
)
def test_steps_are_what_the_writer_marked(text, count, kind):
    assert count_steps(text) == (count, kind)


@pytest.mark.parametrize(
    "text",
    [
        "It is 5. Wait, it is 6.",
        "It is 5. Wait... the label says 6.",
        "It is 5.\n\nWait, no, that's not right. It is 6.",
        "Hmm, the axis starts at two.",
        "It is five. But wait, the axis is broken.",
        "The total is 12. Let me double-check: 5 + 7 = 12.",
        "The total is 12. Let me re-check the sum.",
        "The total is 12. Let me recount.",
        "Hold on, the blue bar is higher.",
        "Actually, the blue bar is higher.",
        "It is 6. No, that's the red one.",
        "On second thought, it is 7.",
        "I misread the label.",
        "I’ve misread the label.",
        "It is 7. I made a mistake there.",
        "That can't be right.",
        "That is wrong.",
        "Correction: it is 8.",
        "Moment, das stimmt nicht.",
        "Espera, la barra azul es más alta.",
        "Attends, la barre bleue est plus haute.",
        "Подождите, это не так.",
        "等等，让我再看一下图表。",
        "不对，蓝色的更高。",
        "いや、もう一度確認します。",
        "잠깐, 다시 확인하겠습니다.",
    ],
)
def test_a_turn_back_is_found(text):
    assert len(find_backtracks(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The average wait is 5 minutes, and the wait time grows.",
        "Customers wait, on average, five minutes.",
        "They have to wait. It is late.",
        "The waiter brings five plates.",
        "The shop actually sold 5 apples.",
        "There is no red bar, so no one won.",
        "Let me look at the red bar.",
        "Let me add them up.",
        "The right bar is right of the left one.",
        "The holder holds one cup.",
        "A moment later the light is green.",
        "The chart shows an error of 5 %.",
        "The sign says wrong way.",
        "I have to count the dots.",
        "All other answers are wrong.",
        "Er wartet noch einmal.",
        "Es gibt einen Moment der Ruhe.",
        "等等级的学生有五个，高等等级有三个",
    ],
)
def test_words_that_only_look_like_a_turn_back_are_none(text):
    assert find_backtracks(text) == []


def test_phrases_close_together_are_one_turn_and_others_count_each():
    text = "It is 5. Wait, no, let me recheck. The axis starts at two, so the bar must be at 7. Hmm, is it red?"
    assert find_backtracks(text) == ["wait", "hmm"]


def test_a_row_says_it_all_and_without_a_rationale_there_is_none():
    (row,) = Steps().measure(sample(), [trace(reasoning="It is 5. Wait, it is 6. So 6.")])
    assert row == {
        "steps_state": "ok",
        "steps": 3,
        "steps_kind": "sentences",
        "backtracks": 1,
        "backtrack_phrase": "wait",
    }
    assert Steps().measure(sample(), [trace(reasoning=" \n")]) == [{"steps_state": "not_applicable"}]


@pytest.mark.parametrize(
    "text", ["wait " * 200_000, "Wait, " * 170_000, "1. \n" * 250_000, "i have to let me " * 60_000, "no, " * 250_000,
             "等等" * 330_000, "step 2 " * 140_000, " " * 1_000_000 + "wait,", "*" * 1_000_000 + " wait, no"]
)  # fmt: skip
@pytest.mark.timing
def test_a_million_characters_take_no_longer_than_a_few_seconds(text):
    begun = time.process_time()
    Steps().measure(sample(), [trace(reasoning=text)])
    assert time.process_time() - begun < 4


def test_a_phrase_after_nothing_but_tabs_begins_a_sentence():
    assert find_backtracks("\t\t\tWait, let me recheck: 12 + 15 is 27.") == find_backtracks(
        "Wait, let me recheck: 12 + 15 is 27."
    )
