import re
from html.parser import HTMLParser

import pytest
from worlds import report_worlds
from worlds.run_fixtures import generate_folder, recipe, sample, small_world, trace

from filters.apply import apply
from filters.report import examples


class Page(HTMLParser):
    """Everything a page refers to, and whether its tags close."""

    void = frozenset({"meta", "img", "rect", "line", "br", "link"})

    def __init__(self, text):
        super().__init__()
        self.references, self.open, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag


@pytest.fixture
def text(tmp_path):
    samples, traces = small_world(tmp_path / "pictures")
    generate_folder(tmp_path / "run", samples, traces)
    apply(recipe(tmp_path), tmp_path / "run")
    return (tmp_path / "run/filter/report.html").read_text()


def test_the_page_stands_alone(text):
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags and "link" not in page.tags
    page.references.remove("../index.html")  # links all pages of the run, those too that come later
    assert all(reference.startswith(("data:image/", "#")) for reference in page.references)
    assert "@import" not in text and "url(" not in text
    assert all(f'id="{reference[1:]}"' in text for reference in page.references if reference.startswith("#"))


def test_the_page_of_all_pages_of_the_run_links_it(text, tmp_path):
    assert Page((tmp_path / "run/index.html").read_text()).references == ["filter/report.html"]


def test_the_funnel_is_shown_overall_and_by_teacher_and_domain(text):
    cell = re.compile(r"<t[dh][^>]*>([^<]*)</t[dh]>")
    rows = [cell.findall(row) for row in re.findall(r"<tr>.*?</tr>", text, re.DOTALL)]
    assert ["structured", "18", "18", "12", "6", "6"] in [row[:6] for row in rows]
    assert ["charts", "12", "9", "6", "3", "3"] in [row[:6] for row in rows]


def test_examples_show_images_values_and_every_rule(text):
    assert text.count('class="pixelated"') >= 6 + 3 * 5
    for name in ("incomplete", "wrong_answer", "bad_format", "repetition", "exact_duplicate"):
        assert f'id="rule-{name}"' in text
    assert "answer_verdict = <b>wrong</b>" in text
    assert "outcome = <b>truncated_thinking</b>" in text


def test_text_of_teachers_is_escaped(tmp_path):
    asked = sample("Is <b> & 'c' bold?", "<script>alert(1)</script>")
    generate_folder(tmp_path / "run", [asked], [trace(asked, "<script>alert(1)</script>", "<img src=x onerror=y>")])
    apply(recipe(tmp_path), tmp_path / "run")
    text = (tmp_path / "run/filter/report.html").read_text()
    assert "<script>" not in text and "<img src=x" not in text
    assert "Is &lt;b&gt; &amp; &#39;c&#39; bold?" in text


def test_questions_without_gold_and_images_have_a_page_too(tmp_path):
    asked = sample("What is this?", domain="")
    generate_folder(tmp_path / "run", [asked], [trace(asked, "a cat")])
    apply(recipe(tmp_path), tmp_path / "run")
    text = (tmp_path / "run/filter/report.html").read_text()
    assert "no image" in text and "How hard the questions are" not in text


@pytest.mark.parametrize(("room", "opens"), [(3_200_000, True), (150_000, False)])
def test_images_open_at_full_size_as_long_as_the_page_has_room(tmp_path, monkeypatch, room, opens):
    monkeypatch.setattr(examples, "PAGE_BYTES", room)
    shown = report_worlds.photographs(tmp_path / "pictures", 6, side=900)
    samples = [sample(f"What is in picture {n}?", "a flower", images=[ref]) for n, ref in enumerate(shown)]
    generate_folder(tmp_path / "run", samples, [trace(one, "a flower") for one in samples])
    apply(recipe(tmp_path), tmp_path / "run")
    text = (tmp_path / "run/filter/report.html").read_text()
    opened = {int(width) for width in re.findall(r"--full: (\d+)px", text)}
    assert all(384 < width <= 768 for width in opened) and bool(opened) == opens
    assert "data:image/jpeg" in text


def test_hostile_names_of_domains_and_files_stay_text(tmp_path):
    hostile = "\"'><script>alert(1)</script>\u202e\n"
    (tmp_path / "pictures").mkdir()
    (ref,) = report_worlds.photographs(tmp_path / "pictures", 1)
    named = tmp_path / "pictures" / "'\"><script>alert(2)<\u202e\n.jpg"
    (tmp_path / "pictures" / "0.jpg").rename(named)
    asked = sample("What?", "4", images=[type(ref)(sha256=ref.sha256, path=str(named))], domain=hostile)
    generate_folder(tmp_path / "run", [asked], [trace(asked, "4")])
    apply(recipe(tmp_path), tmp_path / "run")
    text = (tmp_path / "run/filter/report.html").read_text()
    assert Page(text).open == [] and "<script" not in text and "data:image/jpeg" in text
    assert "&lt;script&gt;alert(1)" in text
