import time

import pytest
from worlds.run_fixtures import default, recipe, sample, trace

from distill.errors import RecipeError
from filters.signals.families import personal_data
from filters.signals.families.personal_data import FINDERS, MOST_CHECKED, Checks, Sensitive
from filters.signals.registry import build, identity, rows


def kinds(text):
    (row,) = default(Sensitive).measure(sample(), [trace(reasoning=text)])
    assert row["sensitive"] == (row["sensitive_kinds"] is not None) == (row["sensitive_count"] > 0)
    return row["sensitive_kinds"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Write to anna.meier+x@post.uni-bonn.de today.", "email"),
        ("It says <ANNA@MEIER.ORG>.", "email"),
        ("The card says +49 30 1234567.", "phone"),
        ("+1-212-736-5000 is on the sign", "phone"),
        ("Call (212) 736-5000 now.", "phone"),
        ("Tel: 030 / 1234 567", "phone"),
        ("Phone number is 212-736-5000.", "phone"),
        ("电话：13812345678", "phone"),
        ("The card number is 4539 1488 0343 6467.", "card"),
        ("4539148803436467", "card"),
        ("5500-0055-5555-5559", "card"),
        ("3714 496353 98431", "card"),
        ("DE89 3704 0044 0532 0130 00 is the account", "iban"),
        ("GB29NWBK60161331926819", "iban"),
        ("FR14 2004 1010 0505 0001 3M02 606", "iban"),
        ("The server is 8.8.4.200.", "ip"),
        ("2001:4860:4860::8888 answers", "ip"),
        ("11010519491231002X", "national_id"),
        ("CPF 529.982.247-25", "national_id"),
        ("DNI 12345678Z", "national_id"),
        ("NIE X1234567L", "national_id"),
        ("RSSMRA85T10A562S", "national_id"),
        ("131052-308T", "national_id"),
        ("2 55 08 14 168 025 38", "national_id"),
    ],
)
def test_personal_data_is_found(text, kind):
    assert kind in kinds(text).split("+")


@pytest.mark.parametrize(
    "text",
    [
        "The bars are at 120, 340, 560 and 7,890, so 120 + 340 = 460.",
        "From 2019-2020 to 2021-2022 the value rose by 12.5 %.",
        "The sum is 555 - 123 - 4567 = -4135.",
        "The population is 1,402,112,000 and the debt 31 419 689 421 557.",
        "12 +345678901 = 345678913 and 5+123456789 is more.",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        "The share is 0.3333333333333333 of the whole.",
        "0000 0000 0000 0000 and 4444 4444 4444 4444",
        "The card number is 4539 1488 0343 6468.",
        "ISBN 978-3-16-148410-0, printed 2004.",
        "Order 4539148803436468 was sent at 12:30:45.",
        "DE89 3704 0044 0532 0130 01 is no account",
        "XX89 3704 0044 0532 0130 00",
        "See section 1.2.3.4 and version 10.0.190.45 of it.",
        "The router is 192.168.0.1, the example 203.0.113.7.",
        "999.300.1.2 is no address; 1.2.3.4.5 neither.",
        "12:30:45:10 and 16:9 and a::b",
        "Write to anna@example.com or me@localhost, or @anna.",
        "3 @ 4.50 each, x@y",
        "11010519491231002Y 110105194912310021",
        "CPF 529.982.247-26",
        "DNI 12345678A, RSSMRA85T10A562T, 131052-308U",
        "Call (212) 555-0123 in the film.",
        "The date is 12/05/2019, called at 10.30.",
        "(2019) 123-4567",
        "",
    ],
)
def test_numbers_that_only_look_like_personal_data_are_none(text):
    assert kinds("The chart. " + text) is None


CHECKED = ["110105194912310021", "CPF 529.982.247-26", "DNI 12345678A", "RSSMRA85T10A562T", "131052-308U"]


@pytest.mark.parametrize("text", CHECKED)
def test_without_the_extra_the_form_of_a_national_number_counts(text, monkeypatch):
    assert kinds(text) is None
    monkeypatch.setattr(personal_data, "_library", lambda _: None)
    assert kinds(text) == "national_id"
    assert kinds("Call +49 30 1234567 and write 2 55 08 14 168 025 38") == "phone+national_id"


def test_the_identity_names_the_libraries_that_check(tmp_path, monkeypatch):
    made = recipe(tmp_path, '[filter]\nsignals = ["sensitive"]\n')
    (family,) = build(made)
    assert "python-stdnum 2" in family.checked_by and "phonenumbers" in family.checked_by
    with_extra = identity((family,))
    monkeypatch.setattr(personal_data, "checked_by", lambda: "")
    assert identity(build(made)) != with_extra


def test_every_finding_counts_and_none_is_kept():
    (row,) = default(Sensitive).measure(sample(), [trace(reasoning="a@b.de, c@d.fr", answer="Tel. 030 1234567")])
    assert row == {
        "sensitive_state": "ok",
        "sensitive": True,
        "sensitive_kinds": "email+phone",
        "sensitive_count": 3,
        "sensitive_words": None,
    }


def test_of_a_long_list_the_first_candidates_are_checked():
    """A list of false numbers that is not read to its end is not said to hold nothing."""
    asked = sample()
    true = "8.8.4.200, " * (MOST_CHECKED + 50)
    false = "1.300.4.200, " * (MOST_CHECKED + 50)
    short = "1.300.4.200, " * (MOST_CHECKED - 50)
    states = {}
    for name, text in (("true", true), ("false", false), ("short", short), ("mixed", f"a@b.de {false}")):
        (row,) = rows((default(Sensitive),), asked, [trace(reasoning=text)])
        states[name] = row["sensitive_state"], row.get("sensitive"), row.get("sensitive_count")
    assert states == {
        "true": ("ok", True, MOST_CHECKED),
        "false": ("timed_out", None, None),
        "short": ("ok", False, 0),
        "mixed": ("ok", True, 1),
    }


def test_a_word_before_an_earlier_number_says_nothing_of_the_next_one():
    assert list(FINDERS["phone"]("tel 030 1234567 / height 7654321", Checks())) == ["030 1234567"]


def test_words_of_a_list_are_whole_words_in_scripts_whose_vowels_are_marks(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("दान\ncafe\u0301\n", encoding="utf-8")
    listed = personal_data.word_list(str(path))
    assert personal_data.count_listed("यह दिन है, यह दान है", listed) == 1
    assert personal_data.count_listed("a café and a cafe", listed) == 1


def test_an_empty_trace_has_nothing_to_hide():
    empty = trace(reasoning="", answer="", outcome="error")
    (row,) = default(Sensitive).measure(sample(), [empty])
    assert row["sensitive_state"] in ("not_applicable", "ok") and not row.get("sensitive")


def test_words_of_a_list_are_found_as_whole_words_in_any_case(tmp_path):
    (tmp_path / "words.txt").write_text("# a remark\nbomb\nHate speech\n炸弹\nnaïve\n", encoding="utf-8")
    made = recipe(tmp_path, '[filter]\nsignals = ["sensitive"]\n[filter.sensitive]\nwords = "words.txt"\n')
    (family,) = build(made)

    def count(text):
        return family.measure(sample(), [trace(reasoning=text)])[0]["sensitive_words"]

    assert count("A BOMB and another bomb.") == 2
    assert count("This is hate\nspeech.") == 1
    assert count("这里有炸弹。") == 1
    assert count("NAÏVE") == 1
    assert count("The bombastic speech; they hate a speech.") == 0
    assert identity((family,))["sensitive"].keys() == {"version", "words_sha256", "checked_by"}


@pytest.mark.parametrize("content", [None, b"# nothing\n", b"\xff\xfe\x00"])
def test_a_list_that_cannot_be_used_is_said_at_once(tmp_path, content):
    if content is not None:
        (tmp_path / "words.txt").write_bytes(content)
    made = recipe(tmp_path, '[filter]\nsignals = ["sensitive"]\n[filter.sensitive]\nwords = "words.txt"\n')
    with pytest.raises(RecipeError, match=r"words\.txt"):
        build(made)


@pytest.mark.parametrize(
    "text",
    ["@" * 1_000_000, "a@" * 500_000, "a@b." * 250_000, "1" * 1_000_000, "1 " * 500_000, "12 " * 330_000,
     "123-" * 250_000, "+1 " * 330_000, "(" * 1_000_000, "1." * 500_000, "a:" * 500_000, "DE89 " * 200_000,
     "phone " * 160_000, "AAAA " * 200_000, "tel 123 4567 " * 77_000, "1234 " * 200_000,
     "f" * 1_000_000, "ABCDEF12" * 125_000]
)  # fmt: skip
@pytest.mark.timing
def test_a_million_characters_take_no_longer_than_a_few_seconds(text):
    begun = time.process_time()
    for find in FINDERS.values():
        list(find(text, Checks()))
    assert time.process_time() - begun < 8


def test_an_address_with_digits_of_another_writing_is_none_and_no_error():
    assert list(FINDERS["ip"]("the server 93.184.216.3\u0663 and 93.184.216.34", Checks())) == ["93.184.216.34"]


def test_a_number_is_a_phone_number_after_a_word_of_any_case():
    for word in ("Phone", "TEL", "whatſapp", "MOBİLE", "电话"):
        assert list(FINDERS["phone"](f"{word}: 030 1234567", Checks())) == ["030 1234567"], word
    assert not list(FINDERS["phone"]("height: 030 1234567", Checks()))
