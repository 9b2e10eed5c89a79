"""Signatures: fixed for ever by golden vectors, and as good as the theory says."""

import sys

import numpy as np
import pytest

from filters.text import minhash
from filters.text.minhash import NO_WORDS, Scheme, band_keys, jaccard, shingles, sign, signature_agreement
from filters.text.rationale_words import FILLERS
from filters.text.words import words

ODD = [
    "",
    "one",
    "one two three",
    "  a\tb\nc d \r\n e f ",
    "a b c d e f",
    "图表的值是五 and more",
    "x" * 5000,
    "cafe\u0301 au lait s'il vous plait",
    "caf\u00e9 au lait s'il vous plait",
    "lone surrogate \ud800 in a text",
    "a\u00a0b c\u2003d e f",
]


def test_the_scheme_gives_the_values_that_indexes_on_disk_were_made_with():
    found = sign(["The bar of 2010 is 5 and the one of 2011 is 7", ""], Scheme())
    assert found.digests[0].hex() == "5551473b2b5c626c93661e6e7a914a5a"
    assert found.digests[1] == NO_WORDS
    assert found.signatures[0][:4].tolist() == [973631232, 384910898, 833862434, 1150856537]
    assert found.signatures[0].sum(dtype=np.uint64) == 95820620806
    keys = band_keys(found.signatures, Scheme())[:, 0].tolist()
    assert [keys[0], keys[1], keys[-1]] == [12132160975855751237, 17955466376209181693, 8361228572564662013]
    assert set(found.signatures[1].tolist()) == {2**32 - 1}
    assert found.templates.tolist() == [16612070224339674590, 0]
    named = sign(
        ['In the Graz chart the bar of 2010 is "Rise" and the one that follows it falls from 5 to 7.'], Scheme()
    )
    assert named.names.tolist() == [598185506434921] and named.templates.tolist() == [12290292523303626830]


def test_a_text_has_the_signature_that_it_has_alone():
    together = sign(ODD, Scheme())
    for place, text in enumerate(ODD):
        alone = sign([text], Scheme())
        assert alone.digests[0] == together.digests[place]
        assert (alone.signatures[0] == together.signatures[place]).all()


def test_batches_of_any_size_give_the_same(monkeypatch):
    texts = [f"{text} {number}" for number in range(50) for text in ODD]
    whole = sign(texts, Scheme())
    monkeypatch.setattr(minhash, "_BATCH_CHARACTERS", 100)
    cut = sign(texts, Scheme())
    assert (whole.digests == cut.digests).all() and (whole.signatures == cut.signatures).all()


def test_texts_are_equal_when_their_words_are():
    digests = sign(ODD, Scheme()).digests
    same = {(one, other) for one in range(len(ODD)) for other in range(one) if digests[one] == digests[other]}
    assert same == {(4, 3), (8, 7), (10, 3), (10, 4)}


@pytest.mark.parametrize("size", [1, 3, 5])
def test_shingles_are_the_runs_of_words(size):
    for text in ODD:
        found = [word for word in words(text) if word not in FILLERS]
        runs = {tuple(found[start : start + size]) for start in range(len(found) - size + 1)}
        assert len(shingles(text, size)) == (len(runs) or min(1, len(found)))


def test_a_short_text_is_not_the_beginning_of_a_longer_one():
    assert jaccard(shingles("a b", 3), shingles("a b c", 3)) == 0
    assert jaccard(shingles("a b", 3), shingles("a b", 3)) == 1


@pytest.mark.parametrize("target", [0.5, 0.7, 0.9])
def test_the_share_of_equal_places_estimates_the_similarity_as_well_as_theory_allows(target):
    rng = np.random.default_rng(0)
    scheme = Scheme(shingle=1)
    common, own = round(400 * target), round(400 * (1 - target) / 2)
    errors, found = [], 0
    for _ in range(400):
        digits = str.maketrans("0123456789", "bcdfghjklm")  # a number is a value, and must be the same in both
        numbers = rng.choice(10**6, common + 2 * own, replace=False)
        picked = ["w" + str(number).translate(digits) for number in numbers]
        pair = [" ".join(picked[: common + own]), " ".join(picked[:common] + picked[common + own :])]
        similarity = jaccard(*(shingles(text, 1) for text in pair))
        signed = sign(pair, scheme).signatures
        errors.append(signature_agreement(signed[:1], signed[1:])[0] - similarity)
        keys = band_keys(signed, scheme)
        found += bool((keys[:, 0] == keys[:, 1]).any())
    deviation = np.sqrt(target * (1 - target) / scheme.permutations)
    assert abs(np.mean(errors)) < 4 * deviation / np.sqrt(400)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(deviation, rel=0.2)
    expected = 1 - (1 - target**scheme.rows) ** scheme.bands
    assert found / 400 == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 400) + 0.01)


def test_every_space_of_unicode_parts_words():
    spaces = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    signed = sign(["é b c", *(f"é{space}b{space}c" for space in spaces)], Scheme())
    assert len(spaces) > 20 and len(set(signed.digests.tolist())) == 1
