import random
import time
import zlib

import numpy as np
import pytest
from worlds.run_fixtures import default, sample, trace

from filters.signals.families.repetition import Repetition, compression_ratio, loop_length, repeated_share
from filters.text.shingles import hash_shingles, hash_words
from filters.text.words import words

PROSE = " ".join(f"{random.Random(number).choice(('red', 'blue', 'small'))} thing{number}" for number in range(100))
LOOP = "row two holds " * 80


def of(text):
    (found,) = hash_words((text,))
    return found


def measured(reasoning, **parameters):
    (row,) = default(Repetition, **parameters).measure(sample(), [trace(reasoning=reasoning)])
    return row


def test_prose_and_loops_are_far_apart_in_all_three_measures():
    prose, loop = measured(PROSE), measured(LOOP)
    assert prose["repetition_ngram"] == 0 and loop["repetition_ngram"] > 0.9
    assert prose["repetition_compression"] < 6 and loop["repetition_compression"] > 10
    assert prose["repetition_tail"] == 0


def test_the_share_of_repeated_ngrams_is_one_minus_unique_over_total():
    assert repeated_share(*hash_shingles(hash_words(("a b c a b c",)), 3)) == 1 - 3 / 4
    assert repeated_share(*hash_shingles(hash_words(("a b c d",)), 4)) == 0


def test_a_text_shorter_than_one_ngram_is_not_measured():
    (row,) = default(Repetition, ngram=4).measure(sample(), [trace(reasoning="so", answer="4")])
    assert row == {"repetition_state": "not_applicable"}


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 0),
        ("a b c d", 0),
        ("x a a", 0),  # twice is no loop
        ("x a a a", 3),
        ("start a b a b a b", 6),
        ("start a b a b a", 0),  # two and a half periods
        ("start b a b a b a b", 7),  # a loop may start in the middle of its period
        ("a a a then prose goes on", 0),  # a loop that ended is not a tail
    ],
)
def test_the_tail_loop_is_the_longest_suffix_of_three_periods(text, length):
    assert loop_length(of(text)) == length


def test_the_tail_loop_agrees_with_trying_every_suffix():
    def slow(found):
        best = 0
        for size in range(3, len(found) + 1):
            tail = found[-size:]
            if any(all(tail[i] == tail[i - p] for i in range(p, size)) for p in range(1, size // 3 + 1)):
                best = size
        return best

    source = random.Random(1)
    for _ in range(300):
        found = [source.choice("ab") for _ in range(source.randint(0, 14))]
        assert loop_length(of(" ".join(found))) == slow(found), found


def test_a_word_cut_by_the_token_limit_does_not_hide_the_loop():
    cut = trace(reasoning=LOOP + "row tw", answer="", finish_reason="length", outcome="truncated_thinking")
    (row,) = default(Repetition).measure(sample(), [cut])
    assert row["repetition_tail"] > 0.99


def test_the_raw_text_is_measured_when_nothing_could_be_parsed():
    (row,) = default(Repetition).measure(sample(), [trace(reasoning="", answer="", outcome="malformed")])
    assert row["repetition_state"] == "not_applicable"  # the fixture's raw text is two tags


def test_characters_are_words_in_scripts_without_spaces():
    assert words("红色方块 two") == ["红", "色", "方", "块", "two"]
    assert measured("红色方块在左边" * 30)["repetition_ngram"] > 0.9


@pytest.mark.parametrize("size", [0, 1, 700, 762, 763, 3000, 3834, 3835, 40_000])
def test_the_size_of_the_window_changes_no_compression(size):
    text = "".join(random.Random(size).choices("abc ", k=size))
    assert compression_ratio(text) == len(text) / len(zlib.compress(text.encode(), 1))


def test_lone_surrogates_do_not_stop_the_measurement():
    assert compression_ratio("\ud800 broken") > 0


def test_the_loop_is_the_longest_end_that_stands_three_times():
    def slowly(words):
        found = [0]
        for period in range(1, len(words) // 3 + 1):
            length = next(
                (n for n in range(period, len(words)) if words[-1 - n] != words[-1 - n + period]), len(words)
            )
            found.append(length if length >= 3 * period else 0)
        return max(found)

    pick = random.Random(7)
    for _ in range(3000):
        unit = pick.choices(range(3), k=pick.randint(1, 5))
        text = [
            *pick.choices(range(3), k=pick.randint(0, 9)),
            *unit * pick.randint(1, 5),
            *unit[: pick.randint(0, 4)],
        ]
        text *= pick.randint(1, 3)
        assert loop_length(np.array(text, np.uint64)) == slowly(text), text


def test_words_that_nearly_loop_take_no_time_that_grows_with_their_square():
    nearly = np.array([1] * 200_000 + [2, 1], np.uint64)
    before = time.thread_time()
    assert loop_length(nearly) == 0
    assert time.thread_time() - before < 0.5
