"""Numbers as people read them."""

import sys

import pytest

from distill.reports import text_table
from distill.reports.text_table import short_number, table


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), (999.4, "999"), (1_234, "1.23 k"), (999_700, "1 M"), (4.2e21, "4.2 Z"), (12_345_678, "12.3 M")],
)
def test_a_number_has_three_digits_and_the_letter_of_its_size(value: float, text: str) -> None:
    assert short_number(value) == text and "e+" not in short_number(value)


HEAD, ROWS = ("arm", "n", "what it is"), [("distilled", 36, "the reference"), ("random", 7, "as many tokens " * 8)]


def fit(columns: int, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool = True) -> None:
    monkeypatch.setattr(text_table, "_room", None)  # as it is given back after the test
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    text_table.fit_terminal()


def test_a_file_or_pipe_gets_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = table(HEAD, ROWS)
    fit(20, monkeypatch, is_terminal=False)
    assert table(HEAD, ROWS) == wide


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_no_line_of_a_table_is_wider_than_the_terminal_and_no_word_is_lost(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = table(HEAD, ROWS)
    fit(columns, monkeypatch)
    narrow = table(HEAD, ROWS)
    assert max(map(len, narrow.splitlines())) <= columns < max(map(len, wide.splitlines()))
    words = [word for row in ROWS for cell in row for word in str(cell).split()]
    assert [word for word in narrow.replace(":", " ").split() if word in words] == words
    assert ("n: 36" in narrow) is (columns == 20), "only what no column can give way to becomes a list"
    fit(24, monkeypatch)
    assert "a.rather.long.name.of.a.key\n" in table(("key", "now"), [("a.rather.long.name.of.a.key", 1)])
    assert table(HEAD[:2], [("a", 1)]) == "arm  n\n---  -\na    1"
