import base64
import hashlib
import io
from pathlib import Path
from urllib.parse import unquote

import pytest
from jinja2 import UndefinedError
from pages.stylesheet import parse
from PIL import Image

from distill.errors import ImageError
from distill.reports import html


def encoded(width, height, kind="PNG"):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (200, 40, 40)).save(buffer, kind)
    return buffer.getvalue()


BODY = '{% extends "base.html" %}{% block content %}'


def page(content, **context):
    return html.render(BODY + content + "{% endblock %}", title="A title", **context)


def test_a_page_is_whole_and_knows_light_dark_and_phones():
    text = page("<p>{{ value }}</p>", value="x")
    assert text.lstrip().startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text
    assert "<title>A title</title>" in text


def test_a_page_states_that_nothing_is_fetched_and_no_script_runs_but_its_own():
    without = page("<p>x</p>")
    assert "default-src 'none'" in without and "script-src 'none'" in without and "<script" not in without
    code = "document.title = 'a < b';"
    text = html.render(BODY + "{% endblock %}{% block script %}" + code + "{% endblock %}", title="A title")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and f"<script>{code}</script>" in text


def test_values_are_escaped():
    assert "&lt;b&gt;" in page("{{ value }}", value="<b>")
    assert "&lt;i&gt;" in page("{{ show.table(['a'], [[value]]) }}", value="<i>")


def test_a_value_that_is_not_given_is_an_error():
    with pytest.raises(UndefinedError):
        page("{{ missing }}")


def test_tiny_images_are_enlarged_and_kept_sharp():
    found = html.page_image(encoded(96, 96))
    assert (found.width, found.height, found.pixelated) == (192, 192, True)
    assert 'class="pixelated"' in page("{{ show.pictures([picture]) }}", picture=found)
    assert html.page_image(encoded(4, 2)).width == 32


def test_large_images_are_scaled_down():
    found = html.page_image(encoded(2000, 1000))
    assert (found.width, found.height, found.pixelated) == (384, 192, False)
    assert found.uri.startswith("data:image/jpeg;base64,") and len(found.uri) < 20_000


def test_images_of_usual_size_are_shown_as_they_are():
    data = encoded(300, 200)
    assert html.page_image(data).uri == html.data_uri(data, "image/png")


def test_what_is_no_image_is_an_error():
    with pytest.raises(ImageError):
        html.page_image(b"not an image")


@pytest.mark.parametrize("values", [[1], [0.0, 1.0], [5, 5, 5], list(range(1000)), [-3.5, 2.25, 1e6]])
def test_bars_of_a_histogram_are_round_and_cover_every_value(values):
    start, width, count = html.edges(min(values), max(values), 10)
    assert start <= min(values) and start + count * width >= max(values)
    assert 1 <= count <= 12
    assert f"{width:.1e}"[:3] in ("1.0", "2.0", "2.5", "5.0")
    assert start / width == pytest.approx(round(start / width))


def test_the_comparison_shows_every_speaker_with_its_verdict():
    arms = [
        {"name": "instruct", "answer": "3", "verdict": "wrong", "rationale": ""},
        {"name": "distilled", "answer": "4", "verdict": "correct", "rationale": "Two and two."},
    ]
    text = page(
        "{{ show.comparison([], 'How many?', '4', arms, ['scenes']) }}"
        "{{ show.funnel([('asked', 10), ('kept', 4)]) }}",
        arms=arms,
    )
    assert '<span class="badge bad">wrong</span>' in text and '<span class="badge good">correct</span>' in text
    assert "Two and two." in text and "width: 40.00%" in text and "40.0 %" in text


def test_an_earlier_page_leads_to_a_later_one_and_stays_as_it_is(tmp_path: Path):
    earlier, stage = tmp_path / "filter" / "report.html", 'a "b" <script>#'
    html.write_page(
        earlier, tmp_path, html.render("base.html", title="t", other_pages=html.other_pages(earlier, tmp_path))
    )
    before = earlier.read_bytes()
    for later in (tmp_path / "train" / stage / "samples.html", tmp_path / "eval" / "report.html"):
        html.write_page(later, tmp_path, "")
    assert earlier.read_bytes() == before
    (address,) = links(earlier)
    found = links(earlier.parent / address)
    assert [(tmp_path / unquote(each)).relative_to(tmp_path).as_posix() for each in found] == [
        "filter/report.html",
        f"train/{stage}/samples.html",
        "eval/report.html",
    ]
    assert "<script>" not in (tmp_path / "index.html").read_text()


def links(page: Path) -> list[str]:
    return [each.attributes["href"] for each in parse(page.read_text()).walk() if each.tag == "a"]


def test_the_templates_are_package_data():
    folder = Path(html.__file__).parent / "templates"
    assert {path.name for path in folder.iterdir()} >= {"base.html", "macros.html", "style.css", "filter_report.html"}


def test_a_page_links_the_other_pages_that_the_run_has(tmp_path: Path):
    page = tmp_path / "eval" / "report.html"
    assert html.other_pages(page, tmp_path) == [("all pages", "../index.html")]
    stage = 'a "b" <script>#'
    for name in ("filter/report.html", f"train/{stage}/samples.html", "eval/report.html"):
        (tmp_path / name).parent.mkdir(parents=True)
        html.write_page(tmp_path / name, tmp_path, "")
    links = html.other_pages(page, tmp_path)
    assert [name for name, _ in links] == ["all pages", "filter", f"train, {stage}"]
    for _, address in links:
        assert (page.parent / unquote(address)).is_file()
    text = html.render("{% extends 'base.html' %}\n", title="t", other_pages=links)
    assert "<script>" not in text and [link.attributes["href"] for link in parse(text).walk() if link.tag == "a"] == [
        address for _, address in links
    ]
    assert html.other_pages(tmp_path / "train" / stage / "samples.html", tmp_path)[1] == (
        "filter",
        "../../filter/report.html",
    )


def test_the_page_of_all_pages_leads_to_those_of_rounds_and_lists_stages_in_their_order(tmp_path: Path):
    (tmp_path / "recipe.toml").write_text('[[stages]]\nname = "b"\n[[stages]]\nname = "a"\n', encoding="utf-8")
    rounds = [tmp_path / "rounds" / str(number) for number in (1, 2, 10)]
    for run in rounds:
        (run / "eval").mkdir(parents=True)
        html.write_page(run / "eval" / "report.html", run, "")
    for name in ("train/a/samples.html", "train/b/samples.html"):
        (tmp_path / name).parent.mkdir(parents=True)
        html.write_page(tmp_path / name, tmp_path, "")
    links = {
        link.attributes["href"]: link
        for link in parse((tmp_path / "index.html").read_text()).walk()
        if link.tag == "a"
    }
    train = ["train/b/samples.html", "train/a/samples.html"]
    assert list(links) == [*train, *(f"rounds/{number}/index.html" for number in (1, 2, 10))]
    assert f"{tmp_path.name}, round 10: pages of the run" in (rounds[-1] / "index.html").read_text()


def test_names_that_differ_in_signs_alone_have_ids_of_their_own() -> None:
    page = html.render(
        '{% for name in names %}<h2 id="{{ name|slug }}">\n</h2>{% endfor %}', names=["a.b", "a-b", "a_b"]
    )
    assert page.count('id="a.b"') == page.count('id="a-b"') == page.count('id="a_b"') == 1


@pytest.mark.parametrize(
    ("share", "digits", "shown"),
    [
        (0.0, 1, "0.0 %"),
        (0.0003, 1, "under 0.1 %"),
        (0.5, 1, "50.0 %"),
        (0.9997, 1, "over 99.9 %"),
        (0.9997, 0, "over 99 %"),
        (1.0, 0, "100 %"),
    ],
)
def test_a_share_that_is_not_all_or_none_is_not_rounded_to_it(share: float, digits: int, shown: str) -> None:
    assert html.percent(share, digits) == shown
