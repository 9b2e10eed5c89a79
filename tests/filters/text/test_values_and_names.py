"""What makes two texts one: the words without layout. What makes them two: values and names, over any chain."""

import re
from itertools import permutations

import numpy as np
import pytest
from worlds.run_fixtures import default, sample, trace

from filters.matching.near_duplicates import LshIndex
from filters.signals.families.trace_duplicates import Duplicates
from filters.text.layout import without_layout
from filters.text.minhash import Scheme, are_near, jaccard, shingle_texts, shingles, sign
from filters.text.values_and_names import compute_forms

TEXT = (
    "The line chart of Graz shows 12 cafés in April and 1,250 visitors in May. Looking closely, the red line of "
    'station "North Ridge" falls to -4 degrees at 6:30, which is 9% less. Mr. Penrose walks eleven steps to the '
    "left of it, and so the answer that follows from all of this must be option B."
)
SCHEME = Scheme()


def near(one: str, other: str) -> bool:
    return are_near(*shingle_texts([one, other], SCHEME.shingle), 0.8)


def within(one: str, other: str) -> bool:
    asked = sample("What is it?")
    traces = [trace(asked, "", text, id=id) for id, text in (("a", one), ("b", other))]
    return any(row["near_duplicate"] for row in default(Duplicates, threshold=0.8).measure(asked, traces))


SENTENCES = TEXT.replace(". ", ".\n").replace("Mr.\n", "Mr. ").split("\n")

SAME = {
    "capitals": TEXT.upper(),
    "small letters": TEXT.lower(),
    "title case": TEXT.title(),
    "lines": "\n\n".join(SENTENCES),
    "a numbered list": "\n".join(f"{place}. {part}" for place, part in enumerate(SENTENCES, 1)),
    "numbered steps": "\n".join(f"**Step {place}:** {part}" for place, part in enumerate(SENTENCES, 1)),
    "bullets": "\n".join(f"- {part}" for part in SENTENCES),
    "plus signs for bullets": "\n".join(f"+ {part}" for part in SENTENCES),
    "a quotation": "\n".join(f"> {part}" for part in SENTENCES),
    "bold words": TEXT.replace("12", "**12**").replace("red line", "_red_ __line__"),
    "headings": "## Reasoning\n\n" + TEXT.replace("Mr. ", "\n\n### Answer\n\nMr. "),
    "dollars": TEXT.replace("12", "$12$").replace("-4", r"\(-4\)"),
    "other quotes": TEXT.replace('"North Ridge"', "«North Ridge»"),
    "single quotes": TEXT.replace('"North Ridge"', "'North Ridge'"),
    "no quotes": TEXT.replace('"', ""),
    "another minus": TEXT.replace("-4", "−4"),
    "full width": "".join(chr(ord(own) + 0xFEE0) if "!" <= own <= "~" else own for own in TEXT),
    "decomposed letters": TEXT.replace("é", "e\u0301"),
    "other white space": TEXT.replace(" ", " \n\t").replace("12", "\u00a012"),
    "other marks": TEXT.replace(",", "").replace("May.", "May;").replace("less.", "less!").replace(";", " ..."),
    "no thousands separator": TEXT.replace("1,250", "1250"),
    "spaces before percent": TEXT.replace("9%", "9 %"),
    "one word more": TEXT.replace("red line", "thin red line"),
    "one word less": TEXT.replace("closely, ", ""),
    "another word": TEXT.replace("falls", "drops"),
    "capitals and another word": TEXT.replace("falls", "drops").upper(),
}
DIFFERENT = {
    "a number": TEXT.replace("12", "13"),
    "a decimal": TEXT.replace("12", "1.2"),
    "digits that moved": TEXT.replace("12", "21"),
    "a separator": TEXT.replace("6:30", "6.30"),
    "a sign": TEXT.replace("-4", "4"),
    "a plus": TEXT.replace("-4", "+4"),
    "a percentage": TEXT.replace("9%", "9"),
    "a power": TEXT.replace("12", "12²"),
    "a number word": TEXT.replace("eleven", "twelve"),
    "a unit": TEXT.replace("12 cafés", "12 kg"),
    "numbers that changed places": TEXT.replace("12", "x").replace("1,250", "12").replace("x", "1,250"),
    "an option": TEXT.replace("option B", "option C"),
    "an option that is an article": TEXT.replace("option B", "option A"),
    "a name": TEXT.replace("Graz", "Linz"),
    "a month": TEXT.replace("April", "August"),
    "names that changed places": TEXT.replace("April", "x").replace("May", "April").replace("x", "May"),
    "a name after a title": TEXT.replace("Penrose", "Harrow"),
    "a name in quotes": TEXT.replace("Ridge", "Hill"),
    "a colour in quotes": TEXT.replace("North Ridge", "red"),
    "a name in small letters": TEXT.replace("Graz", "Linz").lower(),
    "a name in capitals": TEXT.replace("Graz", "Linz").upper(),
    "a name left out": TEXT.replace(" of Graz", ""),
    "not": TEXT.replace("must be", "must not be"),
}


@pytest.mark.parametrize("kind", SAME)
def test_other_layout_and_light_edits_make_no_other_text(kind: str) -> None:
    assert SAME[kind] != TEXT
    assert near(TEXT, SAME[kind]) and within(TEXT, SAME[kind])


@pytest.mark.parametrize("kind", DIFFERENT)
def test_other_values_and_names_always_make_another_text(kind: str) -> None:
    assert not near(TEXT, DIFFERENT[kind]) and not within(TEXT, DIFFERENT[kind])


def test_a_name_that_opens_a_sentence_parts_texts_and_a_common_opening_does_not() -> None:
    texts = [
        f"{first} the left of the two thin lines goes up. {TEXT}" for first in ("Graz", "Linz", "Here", "Clearly")
    ]
    assert not near(texts[0], texts[1]) and not near(texts[0], texts[2]) and near(texts[2], texts[3])


def test_texts_in_capitals_with_a_word_more_are_two_because_it_may_be_a_name() -> None:
    assert not near(TEXT.upper(), SAME["one word more"].upper())


OTHER_CONTENT = {
    "a colour": ("red line", "blue line"),
    "a noun": ("visitors", "tables"),
    "a side": ("left", "top"),
    "a verb": ("walks", "waits"),
    "a preposition": ("of it", "under it"),
    "a contraction of not": ("must be", "mustn't be"),
    "never": ("falls", "never falls"),
    "a restriction": ("shows", "only shows"),
    "words that changed places": ("steps to the left", "left to the steps"),
}


@pytest.mark.parametrize("kind", OTHER_CONTENT)
def test_another_word_that_is_not_known_to_say_the_same_makes_another_text(kind: str) -> None:
    other = TEXT.replace(*OTHER_CONTENT[kind])
    assert other != TEXT and not near(TEXT, other) and not within(TEXT, other)
    long = " ".join(["And then the walls are as tall as the trees that stand there."] * 20)
    assert not near(f"{TEXT} {long}", f"{other} {long}") and not near(TEXT.upper(), other.upper())


@pytest.mark.parametrize(
    "edit",
    [
        ("The line", "Of course, the line"),
        ("Looking closely, the", "The"),
        ("and so", "and, as we can see, therefore"),
        ("must be", "must indeed be"),
        ("shows", "displays"),
        ("answer that", "response that"),
    ],
)
def test_fillers_and_words_that_say_the_same_make_no_other_text_of_any_case(edit: tuple[str, str]) -> None:
    other = TEXT.replace(*edit)
    for one, two in ((TEXT, other), (TEXT.upper(), other.upper()), (TEXT, other.lower()), (TEXT.title(), other)):
        assert near(one, two) and within(one, two)


def test_quoted_words_are_compared_as_they_stand() -> None:
    asked = sample("Which word is missing?")
    reasoning = "The gap stands before a noun of place, so that one of the four words of the list must be right."
    traces = [trace(asked, answer, reasoning, id=answer) for answer in ("here", "there")]
    assert not any(row["near_duplicate"] for row in default(Duplicates).measure(asked, traces))


def test_a_backtick_is_an_apostrophe_between_letters_and_marks_code_elsewhere() -> None:
    assert without_layout("isn`t -`20` `x`") == without_layout("isn't -20 x")


def test_what_counts_on_is_a_list_and_what_wrapped_is_a_number() -> None:
    assert without_layout("1. one\n2) two\n(3) three").split() == ["one", "two", "three"]
    bullets = "$\\bullet$ one\n$\\bullet$ two\n- three"
    for lines in ("(a) one\n(b) two\n(c) three", "i. one\nii. two\niii. three", bullets):
        assert re.findall("[a-z]+", without_layout(lines)) == ["one", "two", "three"]
    steps = "## Step 1\nCount.\n## Step 2\nAdd.\n**Step 3**\nAnswer."
    assert re.findall("[A-Za-z0-9]+", without_layout(steps)) == ["Count", "Add", "Answer"]
    letters = "(b) one\n(c) two\nx. three\nStep 4 of five"  # no list that counts up from its first place
    assert without_layout(letters).split() == ["(b)", "one", "(c)", "two", "x.", "three", "Step", "4", "of", "five"]
    assert without_layout("the sum is\n12. And so\n2019. Then").split() == [
        "the",
        "sum",
        "is",
        "12.",
        "And",
        "so",
        "2019.",
        "Then",
    ]


def test_texts_of_other_scripts_are_compared_by_their_characters_and_values() -> None:
    chinese = "图表显示格拉茨有十二家咖啡馆，其中红线在早上下降到零下4度，因此这道题目的正确答案应当是第二个选项。"
    assert near(chinese, chinese.replace("，", " ").replace("。", "\n").replace("4", "４"))
    assert not near(chinese, chinese.replace("十二", "十三")) and not near(chinese, chinese.replace("4", "5"))
    german = (
        "Die Straße in Köln führt über 4 Brücken und danach an einem großen alten Haus vorbei zum kleinen Hafen hin."
    )
    assert near(german, german.upper()) and not near(german, german.replace("Köln", "Bonn"))
    russian = "На графике города Томска видно, что красная линия падает до отметки 4 и потом растёт до самого конца."
    assert near(russian, russian.upper()) and not near(russian, russian.replace("Томска", "Омска"))


def test_a_text_has_the_form_that_it_has_among_others() -> None:
    texts = ["", "!!!", *SAME.values(), *DIFFERENT.values(), "lone \ud800", "İstanbul ΟΔΟΣ", "x" * 5000, "1", "\n"]
    together = compute_forms(texts)
    for place, text in enumerate(texts):
        alone = compute_forms([text])
        assert alone.values[0] == together.values[place] and alone.names[0] == together.names[place]
        assert alone.templates[0] == together.templates[place]


def test_the_same_words_with_other_values_have_one_template_and_other_words_have_another() -> None:
    (own,) = compute_forms([TEXT]).templates
    kinds = (
        "a number",
        "a sign",
        "a number word",
        "an option",
        "a name",
        "a month",
        "names that changed places",
        "a name in quotes",
    )
    assert {int(compute_forms([DIFFERENT[kind]]).templates[0]) for kind in kinds} == {int(own)}
    assert (
        compute_forms([SAME["another word"]]).templates[0] != own
        and compute_forms(["Yes, 4 of them."]).templates[0] == 0
    )


# --- chains -----------------------------------------------------------------------------------------------------

BODY = "the tall old house by the river has a green door and a small window that looks out over the water "
LINKS = {
    "graz": BODY + "where boats of Graz lie in the sun all day and nobody is seen on the deck of them at all",
    "small, of graz": BODY
    + "where boats of graz lie in the sun all day and nobody is indeed seen on the deck of them at all",
    "small, of linz": BODY
    + "where boats of linz lie in the sun all day and nobody is indeed seen on the deck of them at all",
    "linz": BODY + "where boats of Linz lie in the sun all day and nobody is seen on the deck of them at all",
}


def groups_of(index: LshIndex, order: list[str]) -> set[frozenset[str]]:
    found: dict[int, set[str]] = {}
    for row, root in enumerate(index.components().tolist()):
        found.setdefault(root, set()).add(order[row])
    return {frozenset(group) for group in found.values()}


@pytest.mark.parametrize("steps", [1, 4])
def test_no_chain_leads_from_one_name_to_another(tmp_path, steps: int) -> None:
    results = []
    for number, order in enumerate(permutations(LINKS)):
        index = LshIndex.open(tmp_path / str(number), SCHEME, 0.6)
        for names in np.array_split(np.array(order), steps):
            signed = sign([LINKS[name] for name in names], SCHEME)
            index.add(
                signed.digests,
                signed.names,
                iter([signed.signatures]),
                lambda rows, order=order: [LINKS[order[row]] for row in rows],
            )
        results.append(groups_of(index, list(order)))
    assert all(result == results[0] for result in results)
    assert not any({"graz", "linz"} <= group for group in results[0])
    assert any({"graz", "small, of graz"} <= group for group in results[0])
    assert jaccard(*(shingles(LINKS[name], 3) for name in ("small, of graz", "small, of linz"))) >= 0.6


def test_no_chain_leads_from_one_name_to_another_within_a_question() -> None:
    asked = sample("What is it?")
    results = []
    for order in permutations(LINKS):
        traces = [trace(asked, "", LINKS[name], id=name) for name in order]
        rows = default(Duplicates, threshold=0.6).measure(asked, traces)
        results.append({each.id: row["duplicate_of"] for each, row in zip(traces, rows, strict=True)})
        assert all(row["other_values"] for row in rows)
    assert all(result == results[0] for result in results)
    assert results[0] == {"graz": None, "small, of graz": "graz", "linz": None, "small, of linz": "linz"}


def test_rationales_with_another_short_answer_are_no_duplicates() -> None:
    asked = sample("Which colour has the bar?")
    reasoning = (
        "I look at the bar on the left of the chart and compare it with the legend that stands to the right, where "
        "some small squares in a row have the names of towns under them, and each town has its own tint."
    )
    traces = [trace(asked, answer, reasoning, id=answer) for answer in ("blue", "Blue.", "green")]
    rows = dict(zip(["blue", "Blue.", "green"], default(Duplicates).measure(asked, traces), strict=True))
    assert rows["blue"]["duplicate_of"] == "Blue." and rows["green"]["duplicate_of"] is None
    assert all(row["other_values"] for row in rows.values())
    inches = [trace(asked, answer, f'{reasoning} It is 5" wide.', id=answer) for answer in ("blue", "green")]
    assert not any(row["near_duplicate"] for row in default(Duplicates).measure(asked, inches))


def test_a_sign_for_a_whole_phrase_stays_one_sign() -> None:
    assert without_layout("\ufdfa \ufdfb ﬁ") == "\ufdfa \ufdfb fi"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5e-3", "5e3"),
        ("2E-4", "2E4"),
        ("1.5e-3", "1.5e3"),
        ("C#", "C"),
        ("C#", "C++"),
        ("C++", "C"),
        ("F#", "F"),
        ("F\u266f", "F"),
        ("E\u266d", "E"),
    ],
)
def test_exponents_and_the_signs_of_a_name_belong_to_it(one: str, other: str) -> None:
    text = "We look at the slide and read that the setting is {} in the second row of the table on the right."
    assert not near(text.format(one), text.format(other)) and not within(text.format(one), text.format(other))


@pytest.mark.parametrize("layout", ["# {}", "## {} ##", "{} #chart", "#1 {}"])
def test_a_hash_that_marks_a_heading_a_tag_or_a_number_is_layout(layout: str) -> None:
    plain = layout.replace("#", "").format("the red line is above").split()
    assert without_layout(layout.format("the red line is above")).replace(".", " ").split() == plain
