"""Long texts and texts of odd signs: how much is read for slips, and the state of a text that is not read whole."""

from types import SimpleNamespace

import pytest

from distill.grounding.arithmetic import canonical_text
from distill.grounding.arithmetic.canonical_text import MOST_NUMBERS, mark_numbers
from distill.grounding.arithmetic_slips import find_slips


def test_a_listing_of_more_numbers_than_are_read_is_said_to_be_incomplete() -> None:
    found = find_slips("3, " * (2 * MOST_NUMBERS))
    assert not found.complete
    assert find_slips("3 + 4 = 7. " * 100).complete


@pytest.mark.parametrize("nested", ["√" * 500 + "16 = 4", "-" * 500 + "16 = 16", "3 + " + "(" * 300 + "4 = 7"])
def test_signs_nested_without_end_are_no_arithmetic_and_no_error(nested):
    assert find_slips(f"We have 2 + 2 = 4. Then {nested}").verdict == "right"


def test_a_text_that_takes_too_much_work_is_said_to_be_incomplete() -> None:
    """Few numbers, and many signs and words between them; what was found before the end of the work counts."""
    signs = "sum of 3, f f " + "</a> " * 40 + "r = 4 "
    assert find_slips(signs * 20).complete
    endless = find_slips(signs * 260)
    assert not endless.complete and not endless.slips
    assert [slip.expected for slip in find_slips("8 + 6 = 15. " + signs * 260).slips] == [14]
    exercise = "There are 20 boxes of 5 pens each, so 20 * 5 = 100 pens in total. "
    assert find_slips(exercise * 90).complete


def test_of_a_text_full_of_numbers_no_more_is_split_than_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, pieces = canonical_text._NUMBER, []

    def split(text: str, maxsplit: int) -> list[str]:
        pieces.append(pattern.split(text, maxsplit=maxsplit))
        return pieces[-1]

    monkeypatch.setattr(canonical_text, "_NUMBER", SimpleNamespace(split=split, finditer=pattern.finditer))
    marked = mark_numbers("2 " * 32_768, 400)
    assert not marked.complete and marked.number_spans()[:3] == [(0, 1), (2, 3), (4, 5)]
    assert len(marked.number_spans()) == 400 and len(pieces[0]) < 3 * 4 * 400 + 20
    assert not mark_numbers("1.2.3 " * 32_768, 400).complete


def test_every_one_of_many_slips_is_written_as_it_stands_in_the_text() -> None:
    slips = find_slips("".join(f"{n} + 1 = {n + 2}. " for n in range(100, 200))).slips
    assert [slip.written.split(" + ")[-2].split()[-1] for slip in slips] == [str(n) for n in range(100, 200)]


def test_of_a_long_listing_no_more_is_cleaned_than_is_read() -> None:
    text = "1,000 and 2 + 3 = 5. " * 3000
    marked = mark_numbers(text, 1000)
    assert not marked.complete and len(marked.numbers) == 1000
    assert len(marked.plain) < len(text) / 4
    # What is cut ends with a sentence: "= 2" of "= 2 000 000" would be a slip.
    sums = "".join(f"1 {n} 000 000 + 1 000 000 000 = 2 {n} 000 000\n" for n in range(100, 1000)) * 3
    for shift in range(13):
        found = find_slips("7 " * shift + "is a list\n" + sums)
        assert found.checked and not found.slips and not found.complete
    assert mark_numbers("The bar is 2 units high, and nothing else is said of it. " * 1000, 1001).complete
