"""Claims of a rationale against the text that OCR reads in its image: supported, unsupported, or not to be told."""

import pytest

from distill.ocr.claims import Verdict, check_claims
from distill.ocr.layout import ImageText, read_layout
from distill.ocr.reader import TextLine


def line(text: str, x: float, y: float, score: float = 0.99) -> TextLine:
    """A line of text whose letters have one width."""
    return TextLine(text=text, score=score, left=x, top=y, right=x + 0.02 * len(text), bottom=y + 0.06)


def layout(*lines: TextLine) -> ImageText:
    found = read_layout([lines])
    assert found is not None
    return found


RECEIPT = layout(
    line("Nordic Shop", 0.3, 0.02), line("Milk", 0.05, 0.2), line("$2.49", 0.8, 0.2), line("Rye Bread", 0.05, 0.3),
    line("$3.10", 0.8, 0.3), line("Butter", 0.05, 0.4), line("$4.25", 0.8, 0.4), line("TOTAL", 0.05, 0.5),
    line("$9.84", 0.8, 0.5),
)  # fmt: skip
BARS = layout(
    line("Exports", 0.4, 0.02), line("120", 0.1, 0.2), line("95.5", 0.4, 0.3), line("80", 0.7, 0.4),
    line("Peru", 0.1, 0.9), line("Chile", 0.4, 0.9), line("Cuba", 0.7, 0.9),
)  # fmt: skip
AXIS = layout(
    line("Exports 2024", 0.4, 0.02), *(line(str(20 * at), 0.02, 0.8 - 0.15 * at) for at in range(5)),
    line("Peru", 0.1, 0.9), line("Chile", 0.4, 0.9), line("Cuba", 0.7, 0.9),
)  # fmt: skip
TABLE = layout(
    line("Goals", 0.4, 0.05), line("Hours", 0.7, 0.05), line("Ana Ruiz", 0.05, 0.3), line("14", 0.42, 0.3),
    line("79", 0.72, 0.3), line("Bo Lind", 0.05, 0.5), line("31", 0.42, 0.5), line("22", 0.72, 0.5),
)  # fmt: skip
SIGN = layout(line("EXIT 14", 0.3, 0.2), line("Harbour Road", 0.25, 0.4), line("2.5 km", 0.4, 0.6))


def verdict(image: ImageText | None, text: str, question: str = "?") -> Verdict:
    return check_claims(text, image, question).verdict


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (RECEIPT, "The receipt lists milk at $2.49, rye bread at $3.10 and butter at $4.25. The total is $9.84."),
        (RECEIPT, "Milk costs $2.49 and butter $4.25, so together 2.49 + 4.25 = $6.74."),
        (RECEIPT, "Milk is $2.49 and butter is $4.25. The total is $6.74."),
        (RECEIPT, "You pay $9.84. With a 20 dollar note you get $10.16 back."),
        (RECEIPT, "There are 3 items on the receipt: milk, bread and butter."),
        (BARS, "Peru exported 120, Chile 95.5 and Cuba 80. The average is (120 + 95.5 + 80) / 3 = 98.5."),
        (TABLE, "Ana Ruiz has 14 goals in 79 hours, Bo Lind 31 goals in 22 hours."),
        (SIGN, "The sign says EXIT 14 toward Harbour Road, 2.5 km ahead."),
        (RECEIPT, 'The heading says "Nordic Shop".'),
        (RECEIPT, "All numbers: 2.49, 3.10, 4.25. The largest is 4.25 and the smallest 2.49, so 1.76."),
        (BARS, "* Peru -> 120\n* Chile -> 95.5\n* Cuba -> 80\nThe sum is 295.5."),
        (
            layout(
                line("Tea", 0.1, 0.1), line("EUR 12.50", 0.8, 0.1), line("Rice", 0.1, 0.3), line("EUR 3.10", 0.8, 0.3)
            ),
            "Tea is EUR 12.50 and rice EUR 3.10. The sum is EUR 15.60.",
        ),
    ],
)
def test_what_the_image_says_and_what_is_computed_from_it_is_supported(image: ImageText, text: str) -> None:
    assert verdict(image, text, "What do you get back from a 20 dollar note?") == "supported"


@pytest.mark.parametrize(
    ("image", "text", "claims"),
    [
        (RECEIPT, "Milk is $2.49, rye bread is $3.70.", ["rye bread 3.70"]),
        (RECEIPT, "Milk costs $4.25 and butter costs $2.49.", ["milk 4.25", "butter 2.49"]),
        (RECEIPT, "The prices are 2.49, 3.10 and 4.52.", ["4.52"]),
        (BARS, "Peru exported 120, Chile 59.5 and Cuba 80.", ["chile 59.5"]),
        (BARS, "Peru exported 80, Chile 95.5 and Cuba 120.", ["peru 80", "cuba 120"]),
        (BARS, "The values are 120, 80 and 80.", ["80"]),
        (TABLE, "Ana Ruiz: goals 79, hours 79.", ["goals 79"]),
        (SIGN, "The sign shows 2.8 km.", ["2.8"]),
        (RECEIPT, 'The heading says "Sunny Market".', ["Sunny Market"]),
        (SIGN, "The sign reads Mill Lane.", ["Mill Lane"]),
        (SIGN, "The entry Harbour Road comes with the number 2.8 km.", ["2.8"]),
        (RECEIPT, "Milk has 2.49, so butter has 4.75.", ["butter 4.75"]),
    ],
)
def test_a_misreading_is_named(image: ImageText, text: str, claims: list[str]) -> None:
    found = check_claims(text, image, "?")
    assert found.verdict == "unsupported"
    assert [unread.claim for unread in found.unread] == claims
    assert all(unread.confidence > 0.9 for unread in found.unread)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (None, 'The sign says "EXIT 14", and 45 stands below.'),
        (AXIS, "Peru: 57\nChile: 33"),
        (SIGN, "A man of about 40 years stands near 5 cars."),
        (SIGN, "I see 35 people."),
        (RECEIPT, "The name is 'Nordlc Shap'."),
        (layout(line("Ju", 0.5, 0.5)), "The chart shows red 1, yellow 3: 1 + 3 = 4."),
        (layout(line("Ju", 0.5, 0.5)), "red 9, purple 1: 9 - 1 = 8. So 8 more."),
        (layout(line("Tea", 0.1, 0.2), line("Rice", 0.1, 0.4), line("8", 0.8, 0.4), line("Soup", 0.1, 0.6),
                line("3", 0.8, 0.6)), "The entry Tea has the number 7."),
        (layout(line("Tea", 0.1, 0.2), line("1250", 0.8, 0.2), line("Rice", 0.1, 0.4), line("9.10", 0.8, 0.4)),
         "Tea costs 12.50."),
    ],
)  # fmt: skip
def test_what_ocr_cannot_tell_is_never_unsupported(image: ImageText | None, text: str) -> None:
    assert verdict(image, text) == "not_checkable"


def test_a_number_with_a_decimal_comma_is_not_told_from_one_with_a_point() -> None:
    menu = layout(line("Coffee 3.50", 0.1, 0.1), line("Cake 4.25", 0.1, 0.2))
    assert verdict(menu, "The coffee costs 3,50 and the cake costs 4,25.") == "not_checkable"
    assert verdict(menu, "The coffee costs 3,60.") == "unsupported"


def test_the_confidence_is_that_of_the_letters_that_speak_against_a_claim() -> None:
    doubtful = layout(
        line("Milk", 0.05, 0.2), line("2.49", 0.8, 0.2, score=0.6), line("Rice", 0.05, 0.4), line("3.10", 0.8, 0.4)
    )
    (unread,) = check_claims("Milk costs 2.79.", doubtful).unread
    assert unread.confidence == 0.6 and unread.picture == ("2.49",)
    (unread,) = check_claims("Rice costs 3.70.", doubtful).unread
    assert unread.confidence == 0.99


def test_words_that_the_question_gives_are_no_claim() -> None:
    assert check_claims('I look for the word "Sunny Market".', SIGN, 'Where does it say "Sunny Market"?').checked == 0


def test_wrong_arithmetic_is_no_misreading() -> None:
    assert check_claims("Milk is $2.49, butter is $4.25. 2.49 + 4.25 = 7.74.", RECEIPT).unread == ()


@pytest.mark.parametrize("text", ["Tea £12", "TeaEUR12.50", "Tea 12m", "Tea l2"])
def test_numbers_are_found_where_ocr_joins_or_confuses_letters(text: str) -> None:
    image = layout(line(text, 0.1, 0.1))
    assert not check_claims(f"The price is {'12.50' if '.' in text else '12'}.", image).unread


def test_a_text_with_too_many_numbers_is_not_checked() -> None:
    claims = check_claims("3 " * 100_000, SIGN)
    assert not claims.complete and claims.checked == 0


def test_several_images_are_one_text() -> None:
    both = read_layout([[line("Tea", 0.1, 0.1), line("12", 0.8, 0.1)], [line("Rice", 0.1, 0.1), line("7", 0.8, 0.1)]])
    assert verdict(both, "Tea is 12, Rice is 7.") == "supported"
    assert verdict(both, "Tea is 7, Rice is 7.") == "unsupported"


def test_marks_of_an_axis_belong_to_no_label() -> None:
    assert AXIS.has_axis and AXIS.printed == 1
    assert not {20.0, 40.0, 60.0} & {value for values in AXIS.table.under.values() for value in values}
