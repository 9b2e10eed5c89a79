"""Which images are the same: copies are found, charts that differ in what a question may ask about never are."""

import numpy as np
import pytest
from PIL import Image
from worlds import chart_images as charts

from distill.errors import ImageError
from filters.matching import image_compare, image_match

LIMIT = 10_000_000
SIZES = ((320, 240), (400, 300), (480, 360))


def looks(*files):
    return [image_match.hash_image(data, max_pixels=LIMIT) for data in files]


def same(one, other):
    return image_match.is_same_image(one, other, max_pixels=LIMIT)


def found(one, other):
    """As a run finds it: proposed by hash or pixels, then confirmed."""
    seen = looks(one, other)
    proposed = seen[0].pixels == seen[1].pixels or list(image_match.propose_pairs(seen)) == [(0, 1)]
    return proposed and same(one, other)


def drawn(seed, count, kinds=charts.KINDS):
    rng = np.random.default_rng(seed)
    for number in range(count):
        size = SIZES[number % len(SIZES)]
        yield charts.paint(charts.imagine(rng, kinds[number % len(kinds)], size)), rng


def test_a_chart_saved_again_is_found():
    for image, rng in drawn(0, 18):
        original = charts.png(image)
        for copy in (charts.jpeg(image, 30), charts.jpeg(image, 75), charts.resaved(image, rng)[0]):
            assert found(original, copy)


def test_a_chart_resized_is_found_whatever_the_filter():
    for number, (image, rng) in enumerate(drawn(1, 20)):
        how = list(charts.FILTERS)[number % len(charts.FILTERS)]
        assert found(charts.png(image), charts.png(charts.resized(image, charts.factor(rng, 0.5, 2.0), how)))


def test_a_chart_resized_and_saved_with_loss_is_found():
    for image, rng in drawn(2, 12):
        copy = charts.resized(image, charts.factor(rng, 0.8, 2.0), "bicubic")
        assert found(charts.png(image), charts.jpeg(copy, int(rng.integers(60, 96))))


def test_a_slightly_different_colour_profile_is_the_same_chart():
    for image, rng in drawn(3, 6):
        assert found(charts.png(image), charts.png(charts.drifted(image, rng)))


@pytest.mark.parametrize("what", charts.EDITS)
def test_charts_that_differ_are_never_the_same(what):
    rng = np.random.default_rng([4, charts.EDITS.index(what)])
    judged = 0
    for number in range(24):
        kind, size = charts.KINDS[number % len(charts.KINDS)], SIZES[number % len(SIZES)]
        one, other = (charts.paint(chart) for chart in charts.pair(rng, what, kind, size))
        if one.tobytes() == other.tobytes():  # the edit is less than a pixel
            continue
        judged += 1
        assert not same(charts.png(one), charts.png(other)), (number, kind)
        changed = charts.resized(other, charts.factor(rng, 0.6, 1.8), "lanczos") if number % 2 else other
        assert not same(charts.jpeg(one, 80), charts.resaved(changed, rng, low=40)[0]), (number, kind)
    assert judged >= 12


def test_one_changed_digit_in_a_large_chart_is_a_difference():
    rng = np.random.default_rng(5)
    one, other = (charts.paint(chart) for chart in charts.pair(rng, "digit", "bar", (1600, 1200)))
    assert not same(charts.png(one), charts.png(other))
    assert same(charts.png(one), charts.jpeg(one, 50))


def test_faint_writing_makes_another_image_too():
    rng = np.random.default_rng(13)
    for _ in range(3):
        pair = (charts.paint(chart) for chart in charts.pair(rng, "digit", "bar", (400, 300)))
        one, other = (Image.eval(image, lambda level: 255 - (255 - level) // 10) for image in pair)
        assert not same(charts.png(one), charts.png(other))
        assert found(charts.png(one), charts.png(charts.resized(one, 0.8, "box")))


def test_a_part_of_a_image_or_another_shape_is_another_image():
    image = charts.paint(charts.imagine(np.random.default_rng(6), "bar", (400, 300)))
    assert not same(charts.png(image), charts.png(image.crop((20, 15, 400, 300))))
    assert not same(charts.png(image), charts.png(image.resize((400, 240))))
    assert not same(charts.png(image), charts.png(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)))


def test_a_grey_file_of_a_grey_image_is_the_same():
    image = charts.paint(charts.imagine(np.random.default_rng(7), "table", (400, 300)))
    assert found(charts.png(image), charts.jpeg(image.convert("L"), 70))


def test_it_does_not_matter_which_image_comes_first():
    for image, rng in drawn(8, 6):
        copy = charts.resaved(charts.resized(image, 0.7, "box"), rng, low=30)[0]
        original = charts.png(image)
        assert image_compare.image_difference(original, copy, max_pixels=LIMIT) == image_compare.image_difference(
            copy, original, max_pixels=LIMIT
        )


def test_a_large_image_is_compared_in_strips_with_the_same_result(monkeypatch):
    image = charts.paint(charts.imagine(np.random.default_rng(9), "scatter", (400, 300)))
    files = charts.png(image), charts.jpeg(image, 50)
    whole = image_compare.image_difference(*files, max_pixels=LIMIT)
    monkeypatch.setattr(image_compare, "_STRIP", 40 * 400)
    parts = image_compare.image_difference(*files, max_pixels=LIMIT)
    assert parts.luminance == pytest.approx(whole.luminance, rel=1e-3)
    assert parts.chroma == pytest.approx(whole.chroma, rel=1e-3)
    assert parts.common == pytest.approx(whole.common, abs=0.02)


def test_plain_images_are_proposed_by_equal_pixels_only():
    white, red = (Image.new("RGB", (64, 48), colour) for colour in ("white", "red"))
    seen = looks(charts.png(white), charts.png(red), charts.webp(white, 60, lossless=True))
    assert all(look.flat for look in seen)
    assert list(image_match.propose_pairs(seen)) == []
    assert image_match.cluster_images(seen, lambda pairs: [True for _ in pairs]) == [0, 1, 0]


def test_a_file_that_is_no_image_is_an_error():
    with pytest.raises(ImageError):
        image_match.hash_image(b"no picture", max_pixels=LIMIT)
    with pytest.raises(ImageError):
        image_match.is_same_image(b"no picture", b"nor this", max_pixels=LIMIT)


def hashed(seed, count):
    """Looks of which many are close; half are copies of the other half, some bits away."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 1 << 63, count // 2)
    made = []
    for value in hashes.tolist():
        flipped = value
        for bit in rng.choice(64, size=int(rng.integers(0, 11)), replace=False).tolist():
            flipped ^= 1 << bit
        made += [value, flipped]
    shade = [bytes([level]) * 256 for level in (100, 110, 125)]
    return [
        image_match.ImageHashes(phash=value.to_bytes(8) + shade[place % 3], flat=place % 17 == 0, pixels=str(place))
        for place, value in enumerate(made)
    ]


def expected(ours, theirs):
    def close(one, other):
        bits = int.from_bytes(one.phash[:8]) ^ int.from_bytes(other.phash[:8])
        shades = max(abs(a - b) for a, b in zip(one.phash[8:], other.phash[8:], strict=True))
        flat = one.flat or other.flat
        return not flat and bits.bit_count() <= image_match.DISTANCE and shades <= image_match.SHADE

    return [(i, j) for i, one in enumerate(ours) for j, other in enumerate(theirs) if close(one, other)]


@pytest.mark.parametrize("limit", [0, 1 << 24])
def test_the_index_proposes_what_comparing_all_pairs_would(monkeypatch, limit):
    monkeypatch.setattr(image_match, "_ALL_PAIRS", limit)
    monkeypatch.setattr(image_match, "_ROWS", 50)
    seen = hashed(10, 300)
    pairs = [(one, other) for one, other in expected(seen, seen) if one < other]
    assert list(image_match.propose_pairs(seen)) == pairs and len(pairs) > 30
    assert list(image_match.propose_pairs(seen[:40], tuple(seen))) == expected(seen[:40], seen)


def test_looks_that_are_asked_about_again_are_remembered_only_while_they_are_the_same():
    seen = hashed(11, 40)
    for known in (tuple(seen[:20]), tuple(seen[20:]), ()):
        for _ in range(2):
            assert list(image_match.propose_pairs([seen[1]], known)) == expected([seen[1]], known)


def test_clusters_do_not_depend_on_the_order_or_on_how_many_pairs_are_judged_at_once():
    """Six images in a chain of copies, and one that is not confirmed."""
    plain = bytes(8) + bytes(256)
    seen = [image_match.ImageHashes(phash=plain, flat=False, pixels=str(place)) for place in range(8)]
    linked = {frozenset(pair) for pair in [(0, 3), (3, 5), (5, 1), (1, 6), (2, 4)]}
    rng = np.random.default_rng(12)
    for batch in (1, 3, 100):
        order = rng.permutation(8).tolist()
        shuffled = [seen[place] for place in order]

        def confirm(pairs, order=order):
            return [frozenset((order[one], order[other])) in linked for one, other in pairs]

        groups = {}
        for place, first in enumerate(image_match.cluster_images(shuffled, confirm, batch=batch)):
            groups.setdefault(first, set()).add(order[place])
        assert {frozenset(group) for group in groups.values()} == {
            frozenset(group) for group in ({0, 1, 3, 5, 6}, {2, 4}, {7})
        }
