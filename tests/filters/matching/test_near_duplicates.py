"""The index of near duplicates: the same groups whatever the order, the pieces, the kills and the growth."""

import shutil

import numpy as np
import orjson
import pytest

from distill.errors import DataError, StaleError
from filters.matching import near_duplicates
from filters.matching.near_duplicates import LshIndex
from filters.text.minhash import Scheme, are_near, jaccard, shingle_texts, shingles, sign

SCHEME = Scheme()


def word(first, number):
    """A word for a number without a digit in it: numbers are values, and texts of other values are never one."""
    return first + str(number).translate(str.maketrans("0123456789", "bcdfghjklm"))


def random_words(rng, count):
    return [word("w", number) for number in rng.integers(0, 5000, count)]


def edited(rng, found, edits):
    """The words with some more: another word in place of one would make another text."""
    found = list(found)
    for place in sorted(rng.choice(len(found), edits, replace=False), reverse=True):
        found.insert(place, word("e", rng.integers(0, 10**6)))
    return found


def text_of(found):
    """With a capital: in a text without any, each word may be a name."""
    return "The " + " ".join(found)


def corpus(seed=0, singles=150, groups=30):
    """Texts of which some are near copies of each other."""
    rng = np.random.default_rng(seed)
    texts = [text_of(random_words(rng, 80)) for _ in range(singles)]
    for _ in range(groups):
        first = random_words(rng, 80)
        texts += [text_of(edited(rng, first, 1)) for _ in range(rng.integers(2, 5))]
    return texts


def chain(links=40):
    """Each text is close to the next one, and far from those at the other end."""
    rng = np.random.default_rng(1)
    found = random_words(rng, 100)
    texts = []
    for place in range(links):
        found = list(found)
        found.insert(place * 3, word("c", place))
        texts.append(text_of(found))
    return texts


class Library:
    """Adds texts to an index as the filter does, in the order given."""

    def __init__(self, folder, threshold=0.8, scheme=SCHEME):
        self.index = LshIndex.open(folder, scheme, threshold)
        self.texts = {}

    def add(self, texts, known=()):
        self.texts |= {sign([text], SCHEME).digests[0]: text for text in [*known, *texts]}
        signed = sign(texts, SCHEME)
        pieces = np.array_split(signed.signatures, 3) if len(texts) > 3 else [signed.signatures]
        self.index.add(signed.digests, signed.names, iter(pieces), self.read)
        return self

    def read(self, rows):
        return [self.texts[digest] for digest in self.index.digests_of(np.array(rows, np.int64))]

    def groups(self):
        found = {}
        for row, root in enumerate(self.index.components().tolist()):
            found.setdefault(root, set()).add(self.texts[self.index.digests[row]])
        return {frozenset(group) for group in found.values() if len(group) > 1}


def expected(texts, threshold=0.8):
    """Connected components by comparing every pair."""
    cut = list(shingle_texts(texts, SCHEME.shingle))
    parents = list(range(len(texts)))
    for one in range(len(texts)):
        for other in range(one):
            if are_near(cut[one], cut[other], threshold):
                old, new = parents[one], parents[other]
                parents = [new if parent == old else parent for parent in parents]
    found = {}
    for place, parent in enumerate(parents):
        found.setdefault(parent, set()).add(texts[place])
    return {frozenset(group) for group in found.values() if len(group) > 1}


def test_the_groups_are_those_that_comparing_every_pair_gives(tmp_path):
    texts = corpus()
    found = Library(tmp_path / "index").add(texts).groups()
    assert found == expected(texts) and len(found) >= 10


def test_a_chain_of_near_duplicates_is_one_group_in_any_order(tmp_path):
    texts = chain()
    assert jaccard(shingles(texts[0], 5), shingles(texts[-1], 5)) < 0.3
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(texts))
        found = Library(tmp_path / str(seed)).add([texts[place] for place in order]).groups()
        assert found == {frozenset(texts)}


@pytest.mark.parametrize("steps", [2, 5, 12])
def test_a_grown_index_has_the_groups_of_one_made_at_once(tmp_path, steps):
    texts = [*corpus(), *chain()]
    order = np.random.default_rng(steps).permutation(len(texts))
    grown = Library(tmp_path / "grown")
    for part in np.array_split(order, steps):
        grown.add([texts[place] for place in part])
    reopened = Library(tmp_path / "grown")
    reopened.texts = grown.texts
    assert reopened.groups() == expected(texts)
    assert len(reopened.index.segments) <= near_duplicates._MAX_SEGMENTS


def test_a_key_that_grew_too_common_is_treated_as_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(near_duplicates, "_BUCKET", 4)
    rng = np.random.default_rng(0)
    first = random_words(rng, 80)
    texts = [text_of(edited(rng, first, edits)) for edits in rng.integers(1, 12, 60)]
    whole = Library(tmp_path / "whole").add(texts)
    grown = Library(tmp_path / "grown")
    for start in range(0, 60, 7):
        grown.add(texts[start : start + 7])
    assert whole.index.counts["wide_keys"] > 0
    assert grown.groups() == whole.groups()
    assert Library(tmp_path / "other").add(texts[::-1]).groups() == whole.groups()


def test_forgetting_the_link_of_a_chain_parts_it(tmp_path):
    texts = chain()
    library = Library(tmp_path / "index").add(texts)
    kept = np.array([library.texts[digest] not in texts[15:25] for digest in library.index.digests])
    library.index.keep(kept, library.read)
    left = [text for text in texts if text not in texts[15:25]]
    assert library.groups() == expected(left) and len(library.groups()) == 2
    library.add(texts[15:25])
    assert library.groups() == {frozenset(texts)}


def test_an_index_of_another_scheme_or_threshold_is_not_read(tmp_path):
    Library(tmp_path).add(corpus(singles=5, groups=1))
    for scheme, threshold in ((Scheme(shingle=4), 0.8), (Scheme(bands=8), 0.8), (SCHEME, 0.9)):
        with pytest.raises(StaleError, match="distill-minhash"):
            LshIndex.open(tmp_path, scheme, threshold)


def test_a_damaged_index_says_what_to_do(tmp_path):
    Library(tmp_path).add(corpus(singles=5, groups=1))
    (tmp_path / "segment-00000/keys.npy").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="remove"):
        LshIndex.open(tmp_path, SCHEME, 0.8)


def test_what_a_kill_left_of_an_addition_is_not_part_of_the_index(tmp_path):
    texts = corpus()
    half = Library(tmp_path / "index").add(texts[:100])
    shutil.copytree(tmp_path / "index", tmp_path / "before")
    half.add(texts[100:])
    # Killed before index.json: its segment and its edges lie there, the index still names the old ones.
    shutil.copytree(tmp_path / "before", tmp_path / "index", dirs_exist_ok=True)
    again = Library(tmp_path / "index")
    assert len(again.index) == 100
    again.add(texts[100:], known=texts[:100])
    assert again.groups() == expected(texts)
    named = orjson.loads((tmp_path / "index/index.json").read_bytes())["segments"]
    assert sorted(path.name for path in (tmp_path / "index").glob("segment-*")) == sorted(named)


def test_nothing_to_add_is_nothing_to_do(tmp_path):
    Library(tmp_path / "index").add([])
    assert not (tmp_path / "index").exists()


PAIRS = 500


@pytest.mark.parametrize("target", [0.7, 0.8, 0.9])
def test_pairs_are_found_as_often_as_the_closed_form_says(tmp_path, target):
    rng = np.random.default_rng(round(100 * target))
    texts, similar = [], []
    # Each word more costs two shingles of three words and makes three.
    edits = max(1, round(98 * (1 - target) / (2 + 3 * target)))
    for _ in range(PAIRS):
        first = [word("w", number) for number in rng.integers(0, 10**7, 100)]
        other = list(first)
        for place in sorted(rng.choice(24, edits, replace=False) * 4, reverse=True):
            other.insert(place, word("e", rng.integers(0, 10**7)))
        pair = [text_of(first), text_of(other)]
        similar.append(jaccard(*(shingles(text, SCHEME.shingle) for text in pair)))
        texts += pair
    found = Library(tmp_path / "index", threshold=target - 0.15).add(texts)
    roots = found.index.components()
    theory = np.mean([1 - (1 - similarity**SCHEME.rows) ** SCHEME.bands for similarity in similar])
    assert np.mean(roots[0::2] == roots[1::2]) == pytest.approx(
        theory, abs=0.02 + 2 * np.sqrt(theory * (1 - theory) / PAIRS)
    )
