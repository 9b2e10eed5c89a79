"""The judge at its limits: the first and the last value, length and number of words that a reader takes."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from distill.answers import conclusions, judge, lists
from distill.answers.choices import _letter_of_shortened_option
from distill.answers.consistency import compare_conclusion, find_conclusion
from distill.answers.dates.dates_and_times import Clock, Day, read_dates, read_times
from distill.answers.final_answer import MAX_CHARACTERS, final_answer
from distill.answers.numbers import (
    asked_units,
    expressions,
    foreign_number_words,
    measure_units,
    pick_number,
    ratios,
    solution_sets,
)
from distill.answers.numbers.quantities import read_quantities, read_single_quantity
from distill.answers.numbers.repeated_numbers import is_year
from distill.answers.texts import (
    answer_sentences,
    asked_roles,
    denied_answers,
    mentions,
    other_words,
    plain_clauses,
    text_answers,
    turned_relations,
    yes_or_no,
)
from distill.answers.texts.other_words import _may_be_short_for
from distill.answers.texts.stated_polarity import stated_polarity
from distill.answers.words import person_names, place_names, spelling_variants
from distill.answers.words.spelling import are_opposites
from distill.answers.words.spelling_variants import _same_code

DAY, HALF_DAY = 86_400, 43_200


@pytest.mark.parametrize("hour", range(31))
def test_a_clock_has_hours_from_0_to_24_and_from_1_to_12_beside_am_and_pm(hour: int) -> None:
    seconds = hour * 3600 + 15 * 60
    plain = [Clock(seconds=seconds % DAY, open_half=1 <= hour <= 12)] if hour <= 24 else []
    assert read_times(f"{hour}:15") == plain
    if hour < 10:
        assert read_times(f"0{hour}:15") == [Clock(seconds=seconds, open_half=False)]
    for half, later in (("am", 0), ("pm", HALF_DAY)):
        known = [Clock(seconds=seconds % HALF_DAY + later, open_half=False)] if 1 <= hour <= 12 else []
        assert read_times(f"{hour}:15 {half}") == known


@pytest.mark.parametrize("minute", [0, 1, 29, 30, 31, 58, 59, 60, 61, 99])
@pytest.mark.parametrize("hour", [0, 1, 11, 12, 13, 23, 24, 25, 26])
def test_minutes_before_and_after_an_hour_end_at_59(minute: int, hour: int) -> None:
    for side, sign in (("past", 1), ("after", 1), ("to", -1), ("before", -1), ("till", -1)):
        seconds = (hour * 3600 + sign * minute * 60) % HALF_DAY
        known = [Clock(seconds=seconds, open_half=True)] if hour <= 24 and minute <= 59 else []
        assert read_times(f"{minute} {side} {hour}") == known, side


@pytest.mark.parametrize("hour", range(1, 13))
def test_the_part_of_the_day_decides_the_half(hour: int) -> None:
    seconds = hour * 3600 % HALF_DAY
    for part, late in (("in the morning", False), ("in the evening", True), ("at night", hour % 12 >= 6)):
        assert read_times(f"{hour}:00 {part}") == [Clock(seconds=seconds + HALF_DAY * late, open_half=False)], part


@pytest.mark.parametrize("first", [0, 1, 2, 11, 12, 13, 30, 31, 32])
@pytest.mark.parametrize("second", [0, 1, 12, 13, 31, 32])
def test_a_date_in_figures_has_a_month_to_12_and_a_day_to_31_in_either_order(first: int, second: int) -> None:
    orders = {
        (month, day) for month, day in ((first, second), (second, first)) if 1 <= month <= 12 and 1 <= day <= 31
    }
    known = [tuple(Day(year=2020, month=month, day=day) for month, day in sorted(orders))] if orders else []
    assert read_dates(f"{first}/{second}/2020") == known
    iso = 1 <= first <= 12 and 1 <= second <= 31
    assert read_dates(f"2020-{first}-{second}") == ([(Day(year=2020, month=first, day=second),)] if iso else [])
    if orders and second <= 12:
        assert read_dates(f"{first}/{second}/2020", day_first=True) == (
            [(Day(year=2020, month=second, day=first),)] if 1 <= first <= 31 and second else []
        )


@pytest.mark.parametrize("year", [0, 1, 68, 69, 70, 71, 98, 99])
def test_a_year_of_two_figures_is_of_1970_to_2069(year: int) -> None:
    assert read_dates(f"13/1/{year:02}") == [(Day(year=year + (2000 if year < 70 else 1900), month=1, day=13),)]


@pytest.mark.parametrize(("year", "known"), [(1499, False), (1500, True), (2099, True), (2100, False)])
def test_a_bare_number_is_a_year_from_1500_to_2099(year: int, known: bool) -> None:
    (quantity,) = read_quantities(str(year))
    assert is_year(quantity) is known
    for text in (f"{year} km", f"${year}", f"{year}%", f"{year}.5"):
        assert not any(map(is_year, read_quantities(text))), text


@pytest.mark.parametrize(
    ("read", "longest", "before", "after"),
    [
        (solution_sets.read_solutions, 80, "x = 2", "or x = 5"),
        (solution_sets._read_limit, 60, "at least", "3"),
        (text_answers.looks_mathematical, 400, "x^2 +", "1"),
        (lambda text: [*expressions.readings(text, "3", with_units=True)], 300, "x^2 +", "1"),
        (foreign_number_words.foreign_numbers, foreign_number_words.LONGEST, "drei Hunde,", "zwei Katzen"),
        (lambda unit: measure_units.size_in(unit, "m"), 30, "km", ""),
        (lambda unit: measure_units.size_in("km", unit), 30, "metre", ""),
        (lambda text: place_names._country_code(text), 60, "", "Spain"),
        (lambda text: mentions.mentions(text, "cup"), 400, "a", "cup"),
        (lambda text: mentions.ends_with(text, "cup", ""), 400, "it is a", "cup"),
        (lambda text: text_answers._range_ends(text), 60, "2 -", "8"),
        (
            lambda text: turned_relations.turns_relation(text, ["ana"], "Who is shorter?"),
            400,
            "Ana is taller than",
            "Eva",
        ),
        (lambda text: plain_clauses.states_plainly(text, "hat", "What is she wearing?"), 300, "She wears a", "hat"),
        (lambda text: [*answer_sentences.stated_parts(text)], 300, "The answer is", "blue"),
        (lambda text: denied_answers.compare_with_denied(text, "cup", ("cup",)), 120, "a cup, not", "bowl"),
        (lambda text: person_names.same_person(text, "John Smith"), 60, "Mr. John", "Smith"),
        (lambda text: person_names.names_person(text, "Smith", "Who won?"), 60, "John", "Smith"),
        (lambda text: spelling_variants.with_one_name(text, "UN") != text, 400, "x", "United Nations (UN)"),
        (pick_number.pick_counted_number, 300, "three years: 2009, 2010 and", "2012"),
        (lambda text: lists._same_labelled_items(text, ["ink", "oil"], HIGH_LOW), 400, "high ink low", "oil"),
    ],
)
def test_a_text_is_read_up_to_its_longest_length(
    read: Callable[[str], object], longest: int, before: str, after: str
) -> None:
    read_lengths = [
        length
        for length in (len(before + after) + 1, longest - 1, longest, longest + 1, 10 * longest)
        if read(before + " " * (length - len(before + after)) + after)
    ]
    assert read_lengths == [len(before + after) + 1, longest - 1, longest]


HIGH_LOW = "Which are high and low?"


@pytest.mark.parametrize(
    ("read", "longest", "before", "after"),
    [
        (lambda asked: "cup" in mentions.words_of(asked), 400, "", "cup"),
        (lambda asked: mentions.mentions("Acme bolts", "Acme", asked), 400, "Who sells the", "bolts"),
        (lambda asked: plain_clauses.states_plainly("She wears a hat", "hat", asked), 300, "What is she", "wearing?"),
        (asked_units.asks_percent, 1000, "What", "percent"),
        (
            lambda asked: asked_roles.is_about_the_opposite("the shortest one", (), asked),
            400,
            "Which is the",
            "tallest",
        ),
        (lambda asked: yes_or_no._repeats(["door"], asked), 400, "Is the", "door"),
        (
            lambda asked: lists._same_labelled_items("high ink low oil", ["ink", "oil"], asked),
            400,
            "Are high and",
            "low",
        ),
        (lambda asked: "cup" in conclusions._asked(asked), 300, "", "cup"),
        (lambda sentence: not conclusions._goes_on(sentence, ""), 300, "so", "it"),
    ],
)
def test_a_question_is_read_up_to_its_longest_length(
    read: Callable[[str], object], longest: int, before: str, after: str
) -> None:
    test_a_text_is_read_up_to_its_longest_length(read, longest, before, after)


@pytest.mark.parametrize(
    ("read", "most"),
    [
        (lambda count: mentions.mentions("zz " * (count - 2) + "a cup", "cup"), 40),
        (lambda count: mentions.ends_with("zz " * (count - 1) + "cup", "cup", ""), 40),
        (
            lambda count: mentions.mentions("the " + "bolts " * (count - 2) + "Acme", "Acme", "Who sells the bolts"),
            40,
        ),
        (
            lambda count: plain_clauses.states_plainly(f"It is a {'small ' * (count - 4)}hat", "hat", "What is it?"),
            30,
        ),
        (lambda count: list(conclusions.conclusions(("Ok is it. " * 300)[17 - count :] + "Ok. So it is red.")), 2000),
        (lambda count: compare_conclusion("\\boxed{b}", "a" * count), 600),
        (lambda count: not final_answer(f"I doubt{' ' * (count - 14)}that the answer is 5").marked, 60),
    ],
)
def test_words_characters_and_the_distance_of_a_denial_are_bounded(read: Callable[[int], object], most: int) -> None:
    assert [count for count in (most - 1, most, most + 1) if read(count)] == [most - 1, most]


@pytest.mark.parametrize(
    ("word", "plain", "verdict"),
    [("café", "cafe", "undecided"), ("élan", "elan", "undecided"), ("résumé", "resume", "correct")],
)
def test_a_word_of_five_letters_is_sure_without_its_accents(word: str, plain: str, verdict: str) -> None:
    assert judge(word, plain).verdict == verdict
    assert judge(f"{word}s", f"{plain}s").verdict == "correct"


@pytest.mark.parametrize("letters", range(2, 9))
def test_initials_in_lower_case_stand_for_a_name_of_three_to_six_words(letters: int) -> None:
    initials = "abcdefgh"[:letters]
    name = " ".join(f"{letter.upper()}xx" for letter in initials)
    assert (judge(initials, name).verdict == "correct") is (3 <= letters <= 6)
    assert judge(initials.upper(), name).verdict == ("correct" if letters > 2 else "undecided")


@pytest.mark.parametrize("letters", range(1, 7))
def test_a_unit_of_up_to_four_letters_may_be_a_symbol(letters: int) -> None:
    assert measure_units.may_be_symbol("k" * letters) is (letters <= 4)
    assert measure_units.may_be_symbol("k" * letters + "²")


@pytest.mark.parametrize(("words", "reason"), [(7, "other_words"), (8, "other_words"), (9, "free_text")])
def test_a_gold_answer_of_more_than_eight_words_is_a_sentence(words: int, reason: str) -> None:
    gold = " ".join(f"{letter}{letter}{letter}" for letter in "abcdefghi"[:words])
    result = other_words.compare_other_words("zzz yyy", gold)
    assert (result.reason == "free_text") is (reason == "free_text")


@pytest.mark.parametrize(("words", "long"), [(15, False), (16, False), (17, True)])
def test_a_prediction_of_more_than_sixteen_words_is_free_text(words: int, long: bool) -> None:
    prediction = " ".join(f"{letter}{letter}{letter}" for letter in "bcdefghijklmnopqr"[:words])
    assert (other_words.compare_other_words(prediction, "xxx yyy").reason == "free_text") is long


@pytest.mark.parametrize(
    ("left", "right", "known"),
    [("able", "unable", True), ("honest", "dishonest", True), ("ply", "imply", False), ("legal", "illegal", True)],
)
def test_a_denying_syllable_of_two_or_three_letters_makes_an_opposite_of_a_word_of_four(
    left: str, right: str, known: bool
) -> None:
    assert are_opposites(left, right) is are_opposites(right, left) is known


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((0, 0), (0, 0), True),
        ((0, 0), (1, 2), False),
        ((0, 1), (0, 5), True),
        ((1, 2), (2, 4), True),
        ((1, 2), (2, 4, 0), False),
        ((1, 2, 3), (2, 4, 6), True),
        ((1, 2, 3), (2, 4, 7), False),
    ],
)
def test_ratios_are_the_same_where_all_terms_are_proportional(
    first: tuple[int, ...], second: tuple[int, ...], same: bool
) -> None:
    left, right = (tuple(map(Decimal, terms)) for terms in (first, second))
    assert ratios.same_ratio(left, right) is ratios.same_ratio(right, left) is same


@pytest.mark.parametrize("whole", ["0", "1", "2", "8"])
def test_a_share_needs_a_whole_and_a_percentage_of_it(whole: str) -> None:
    gold = read_single_quantity("12.5%")
    assert gold is not None
    result = ratios.compare_worded_share(f"1 in {whole}", gold)
    assert (result is not None) is (whole == "8")


@pytest.mark.parametrize("year", [999, 1000, 1001, 2098, 2999, 3000])
def test_the_only_year_of_a_sentence_is_from_1000_to_2999(year: int) -> None:
    verdict = judge(f"it has {year} on it beside the 7", str(year), "year")
    assert (verdict.reason == "only_year") is (1000 <= year <= 2999)


@pytest.mark.parametrize(("letters", "cut"), [(MAX_CHARACTERS, False), (2_000, False), (2_001, True)])
def test_an_answer_of_more_than_2000_characters_is_cut(letters: int, cut: bool) -> None:
    assert final_answer("a" * letters).cut is cut


def test_the_conclusion_of_a_rationale_is_in_its_last_600_characters() -> None:
    stated = find_conclusion("b" * 100 + "a" * 600)
    assert stated is not None
    assert stated.text == "a" * 600


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("миллион", "1000000"),
        ("два миллиона", "2000000"),
        ("пять миллионов", "5000000"),
        ("مليون", "1000000"),
        ("خمسة ملايين", "5000000"),
        ("one ninth", "1/9"),
        ("two ninths", "2/9"),
        ("one eighth", "1/8"),
        ("one tenth", "1/10"),
        ("one twelfth", "1/12"),
    ],
)
def test_scales_and_parts_in_words_have_their_value(text: str, gold: str) -> None:
    assert judge(text, gold, "number").verdict == "correct"
    assert judge(text, f"{gold}9", "number").verdict != "correct"


def test_words_in_bold_after_a_verb_are_a_stated_part() -> None:
    assert judge("The winner is **Torre Azul**.", "Torre Azul").verdict == "correct"
    assert judge("The **Torre Azul** is not the winner.", "Torre Azul").verdict != "correct"


def test_as_many_capitals_as_words_are_all_their_initials_or_no_abbreviation() -> None:
    assert _may_be_short_for("CEO", "Chief Executive Officer")
    assert not _may_be_short_for("CFO", "Chief Executive Officer")


@pytest.mark.parametrize(
    ("text", "gold", "same"),
    [
        ("HKT 20", "hkt20", True),
        ("HK 20", "hk20", False),
        ("7HKTMNOPQR 20412", "7hktmnopqr20412", True),
        ("7HKTMNOPQRS 20412", "7hktmnopqrs20412", False),
        ("7HKT 204", "7hkt205", False),
    ],
)
def test_a_code_of_5_to_15_signs_may_be_written_with_blanks(text: str, gold: str, same: bool) -> None:
    assert _same_code(text, gold) is same


@pytest.mark.parametrize(("length", "verdict"), [(400, "yes"), (401, None)])
def test_a_statement_of_more_than_400_characters_is_no_yes(length: int, verdict: str | None) -> None:
    text = "It is. "
    assert stated_polarity(text + "x" * (length - len(text)), "Is it open?") == verdict


def test_a_letter_after_the_last_option_names_none() -> None:
    assert judge("tall", "(C) tall", options=["small", "wide"]).answer_type == "text"
    assert judge("tall", "(B) wide", options=["small", "wide"]).answer_type == "choice"


@pytest.mark.parametrize(("added", "letters"), [(4, {"A"}), (5, set())])
def test_a_shortened_option_has_at_least_half_of_its_words(added: int, letters: set[str]) -> None:
    said = "plum pear fig date"
    option = f"{said} {' '.join(['onyx', 'jade', 'ruby', 'opal', 'zinc'][:added])}"
    assert _letter_of_shortened_option(said, [option, "tin"]) == letters


def test_another_symbol_alone_is_wrong() -> None:
    assert judge("→", "←").verdict == "wrong"


def test_a_box_without_braces_ends_at_its_formula() -> None:
    assert judge(r"$\boxed 5$ and 6", "5").verdict == "correct"
