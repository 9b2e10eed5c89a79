"""The gallery keeps to its budget whatever it shows, says what it left out, and puts failures first."""

import base64
import io
import re
from pathlib import Path

import pytest
from pages.stylesheet import parse
from PIL import Image
from worlds import report_worlds as worlds

from distill.reports import gallery, html
from distill.types import ImageRef

PAGE = (
    '{% extends "base.html" %}{% import "gallery.html" as cards %}'
    '{% block content %}{{ cards.section(gallery, "note") }}{% endblock %}'
)


def drawn(shown: gallery.Gallery) -> str:
    return html.render(PAGE, title="t", gallery=shown)


def card(rationale: str = "because", images: tuple[ImageRef, ...] = (), **facts: object) -> gallery.GalleryCard:
    reply = gallery.CardReply(arm="distilled", answer="4", verdict="wrong", rationale=rationale)
    settings = {"question": "How many?", "gold": "5", "domain": "charts", "kind": "wrong", "images": images}
    return gallery.GalleryCard(**{**settings, "replies": (reply,), **facts})


def stored(page: str) -> list[bytes]:
    return [base64.b64decode(found) for found in re.findall(r'="data:image/\w+;base64,([^"]+)"', page)]


@pytest.mark.slow
def test_six_hundred_photographs_with_four_rationales_each_stay_below_five_megabytes(tmp_path: Path):
    asked = worlds.samples(worlds.photographs(tmp_path, 600, side=320), 600)
    page = gallery.fitted(drawn, gallery.cards(worlds.predictions(asked), asked, worlds.ARMS, 600))
    assert 3_000_000 < len(page.encode()) <= 5_000_000
    assert page.count("<article") == 600 and len(stored(page)) == 600
    assert "Images were made smaller" in page
    smallest = Image.open(io.BytesIO(stored(page)[0]))
    assert max(smallest.size) >= 160


@pytest.mark.parametrize("page_bytes", [900_000, 250_000, 60_000])
def test_a_smaller_budget_is_kept_too_and_the_page_says_what_it_cost(page_bytes: int, tmp_path: Path):
    asked = worlds.samples(worlds.photographs(tmp_path, 12, side=200), 24)
    cards = gallery.cards(worlds.predictions(asked, words=800), asked, worlds.ARMS, 24)
    page = gallery.fitted(drawn, cards, page_bytes=page_bytes)
    assert len(page.encode()) <= page_bytes
    assert ("Rationales are cut after" in page) == (page_bytes < 900_000)
    assert ("of 24 questions are shown" in page) == (page_bytes < 100_000)


def test_nothing_is_made_smaller_that_fits(tmp_path: Path):
    asked = worlds.samples(worlds.photographs(tmp_path, 3, side=200), 3)
    cards = gallery.cards(worlds.predictions(asked), asked, worlds.ARMS, 3)
    page = gallery.fitted(drawn, cards)
    assert "made smaller" not in page and "are cut" not in page and "are shown" not in page


def test_a_image_of_several_questions_is_stored_once_and_shown_by_each(tmp_path: Path):
    asked = worlds.samples([worlds.drawing(tmp_path, 1), worlds.drawing(tmp_path, 2)], 5)
    page = gallery.fitted(drawn, gallery.cards(worlds.predictions(asked), asked, worlds.ARMS, 5))
    assert len(stored(page)) == 2
    assert page.count("<use href=") == 5


def test_small_drawings_keep_every_pixel(tmp_path: Path):
    ref = worlds.drawing(tmp_path, 1)
    page = gallery.fitted(drawn, [card(images=(ref,))])
    (data,) = stored(page)
    assert Image.open(io.BytesIO(data)).convert("RGB").tobytes() == Image.open(ref.path).convert("RGB").tobytes()
    assert len(data) <= Path(ref.path).stat().st_size
    assert 'width="192" height="192"' in page and 'class="pixelated"' in page


def test_large_photographs_take_fewer_pixels_but_keep_their_shape(tmp_path: Path):
    (ref,) = worlds.photographs(tmp_path, 1, side=900)
    page = gallery.fitted(drawn, [card(images=(ref,))])
    (data,) = stored(page)
    width, height = Image.open(ref.path).size
    small = Image.open(io.BytesIO(data))
    assert max(small.size) == 768 and f'style="--full: {small.width}px"' in page
    assert small.width / small.height == pytest.approx(width / height, rel=0.02)


def test_a_image_that_cannot_be_read_any_more_is_left_out_and_counted(tmp_path: Path):
    gone = ImageRef(sha256="0" * 64, path=str(tmp_path / "gone.png"))
    page = gallery.fitted(drawn, [card(images=(gone,)), card(images=())])
    assert "1 image could not be read" in page
    assert page.count("image left out") == 1 and page.count("no image") == 1


@pytest.mark.parametrize("length", [0, 1, 480, 599, 601, 3000])
def test_a_rationale_is_whole_whether_or_not_part_of_it_waits_for_a_click(length: int):
    text = ("word " * 1000)[:length]
    found = gallery.split(text, 8000)
    assert found.head + found.rest == text and found.missing == 0
    assert len(found.head) <= 600
    assert not found.rest or found.head.endswith(" ")


def test_what_is_not_on_the_page_is_counted():
    found = gallery.split("x" * 5000, 1000)
    assert len(found.head + found.rest) == 1000 and found.missing == 4000
    page = gallery._Page(drawn, 1, (card("y " * 3000),), limit=1000).draw()
    assert "show all but 5,000 characters" in page


def test_failures_come_first_and_every_kind_and_domain_has_its_turn():
    asked = worlds.samples([ImageRef(sha256="a", path="a")], 120)
    lines = worlds.predictions(asked, words=3)
    found = gallery.cards(lines, asked, worlds.ARMS, 24)
    kinds = [each.kind for each in found]
    assert kinds == sorted(kinds, key=gallery.FAILURES_FIRST.index)
    assert set(kinds) == {"lost", "neither right", "gained", "both right"}
    assert {each.domain for each in found} == set(worlds.DOMAINS)
    assert [each.question for each in found] == [
        each.question for each in gallery.cards(lines, asked, worlds.ARMS, 24)
    ]
    for each in found:
        first, last = (each.replies[place].verdict == "correct" for place in (0, -1))
        assert {"lost": (True, False), "gained": (False, True)}.get(each.kind, (first, last)) == (first, last)


def test_a_single_arm_shows_wrong_answers_then_undecided_then_correct_ones():
    asked = worlds.samples([ImageRef(sha256="a", path="a")], 60)
    found = gallery.cards(worlds.predictions(asked, ("student",), words=3), asked, ("student",), 60)
    verdicts = [each.replies[0].verdict for each in found]
    assert verdicts == sorted(verdicts, key=("wrong", "undecided", "correct").index) and len(set(verdicts)) == 3


def test_questions_that_some_arm_did_not_answer_are_not_shown():
    asked = worlds.samples([ImageRef(sha256="a", path="a")], 4)
    lines = worlds.predictions(asked, words=3)
    found = gallery.cards(lines[1:], asked, worlds.ARMS, 10)
    assert asked[0].question not in [each.question for each in found] and len(found) == 3


def test_what_is_wrong_with_a_reply_is_said_in_words():
    said = {"truncated": False, "well_formed": False, "unsupported_values": 2, "consistent": False}
    assert gallery._notes(said) == ("malformed", "unsupported value", "answer differs from its rationale")
    assert gallery._notes({"truncated": True, "well_formed": False}) == ("cut off",)
    assert gallery._notes({"well_formed": True, "consistent": None, "unsupported_values": None}) == ()


def test_what_students_say_stays_text():
    hostile = "<script>alert(1)</script></article>\"' {{ 7 * 7 }}"
    page = gallery.fitted(
        drawn,
        [
            card(hostile, question=hostile, gold=hostile, domain=hostile, teachers=(hostile,), difficulty=hostile),
            card("y"),
        ],
    )
    scripts = [element for element in parse(page).walk() if element.tag == "script"]
    assert scripts == [] and "49" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 5


def test_the_outcome_of_a_question_is_said_of_two_arms_whatever_a_third_one_answers() -> None:
    verdicts = {"before": "correct", "between": "wrong", "after": "correct"}
    by_arm = {arm: {"verdict": verdict} for arm, verdict in verdicts.items()}
    assert gallery.kind_of(by_arm, "before", "after") == "both right"
    wrong = {arm: {"verdict": "correct" if arm == "between" else "wrong"} for arm in by_arm}
    assert gallery.kind_of(wrong, "before", "after") == "neither right"
