"""Near-duplicate search: speed against datasketch, recall against the closed form, growth against one shot.

    python benchmarks/filter/dedup.py [--texts 1000000] [--seed 0]

Texts have 300 words of a Zipf-like vocabulary; a tenth of them are edited copies of others. Everything runs on one
thread. datasketch (2.x, bulk MinHash and its LSH, as many permutations) does a part of the texts in the same run
and is given the shingles' bytes the cheapest way it offers (pip install datasketch; without it, this part is left
out). Recall is measured on pairs of exactly known similarity.
Takes 25 s with `--texts 1000` (two shared cores).
"""

import argparse
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from distill.reports.text_table import table
from filters.matching.near_duplicates import LshIndex
from filters.text.minhash import Scheme, jaccard, shingles, sign

WORDS = 300
VOCABULARY = 30_000
COPIES = 0.1
DATASKETCH_TEXTS = 4_000
PAIRS = 3_000


class Corpus:
    """Texts by number, made when they are asked for: a million of them need no memory."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        self.words = np.array(["".join(rng.choice(letters, rng.integers(2, 11))) for _ in range(VOCABULARY)])
        weights = 1 / np.arange(10, VOCABULARY + 10)
        self.cumulative = np.cumsum(weights / weights.sum())
        self.seed = seed

    def picks(self, number: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, number])
        if number % round(1 / COPIES) == 7:  # an edited copy of the text three before it
            found = self.picks(number - 3).copy()
            # Words more: another word in place of one makes another text.
            return np.insert(found, rng.integers(0, WORDS, 3), rng.integers(0, VOCABULARY, 3))
        return np.minimum(np.searchsorted(self.cumulative, rng.random(WORDS)), VOCABULARY - 1)

    def text(self, number: int) -> str:
        return "The " + " ".join(self.words[self.picks(number)])


def index_texts(folder: Path, corpus: Corpus, numbers: Sequence[int], order: list[int]) -> tuple[LshIndex, float]:
    """Add texts to the index of a folder; the seconds leave out the making of the texts."""
    scheme = Scheme()
    index = LshIndex.open(folder, scheme, 0.8)
    seconds = made = 0.0
    digests, names, signatures = [], [], []
    for start in range(0, len(numbers), 10_000):
        texts = [corpus.text(number) for number in numbers[start : start + 10_000]]
        began = time.perf_counter()
        signed = sign(texts, scheme)
        seconds += time.perf_counter() - began
        digests.append(signed.digests)
        names.append(signed.names)
        signatures.append(signed.signatures)
    order.extend(numbers)

    def read(rows: Sequence[int]) -> list[str]:
        nonlocal made
        began = time.perf_counter()
        texts = [corpus.text(order[row]) for row in rows]
        made += time.perf_counter() - began
        return texts

    began = time.perf_counter()
    index.add(np.concatenate(digests), np.concatenate(names), iter(signatures), read)
    return index, seconds + time.perf_counter() - began - made


def groups(index: LshIndex, order: Sequence[int]) -> dict[int, frozenset[int]]:
    """The components with more than one text, by their members' numbers."""
    found: dict[int, set[int]] = {}
    for row, root in enumerate(index.components().tolist()):
        found.setdefault(root, set()).add(order[row])
    return {min(members): frozenset(members) for members in found.values() if len(members) > 1}


def datasketch_seconds(corpus: Corpus) -> float:
    """Seconds for DATASKETCH_TEXTS texts; nan where it is not installed."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ModuleNotFoundError:
        print("datasketch is not installed: its times are nan")
        return math.nan
    scheme = Scheme()
    texts = [corpus.text(number) for number in range(DATASKETCH_TEXTS)]
    began = time.perf_counter()

    def cut() -> Iterator[list[bytes]]:
        for text in texts:
            words = text.split()
            yield [" ".join(words[start : start + 3]).encode() for start in range(len(words) - 2)]

    hashes = MinHash.bulk(cut(), num_perm=scheme.permutations)
    lsh = MinHashLSH(num_perm=scheme.permutations, params=(scheme.bands, scheme.rows))
    for number, found in enumerate(hashes):
        lsh.query(found)
        lsh.insert(number, found)
    return time.perf_counter() - began


def recall(corpus: Corpus, target: float, seed: int) -> tuple[float, float]:
    """Found share of pairs of about this similarity, and the closed form's mean over their true similarities."""
    rng = np.random.default_rng([seed, round(100 * target)])
    scheme = Scheme()
    texts: list[str] = []
    expected = []
    # Each word more costs two shingles of three words and makes three.
    edits = max(1, round(WORDS * (1 - target) / (2 + 3 * target)))
    while len(texts) < 2 * PAIRS:
        picks = rng.integers(0, VOCABULARY, WORDS)
        places = rng.choice(WORDS // 4, edits, replace=False) * 4
        other = np.insert(picks, places, rng.integers(0, VOCABULARY, edits))
        pair = ["The " + " ".join(corpus.words[words]) for words in (picks, other)]
        similarity = jaccard(*(shingles(text, scheme.shingle) for text in pair))
        expected.append(1 - (1 - similarity**scheme.rows) ** scheme.bands)
        texts += pair
    folder = Path(tempfile.mkdtemp())
    try:
        index = LshIndex.open(folder, scheme, target - 0.08)
        signed = sign(texts, scheme)
        index.add(signed.digests, signed.names, iter([signed.signatures]), lambda rows: [texts[row] for row in rows])
        roots = index.components()
    finally:
        shutil.rmtree(folder)
    return float(np.mean(roots[0::2] == roots[1::2])), float(np.mean(expected))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    corpus = Corpus(options.seed)
    folder = Path(tempfile.mkdtemp())
    try:
        more = options.texts // 100
        order: list[int] = []
        index, seconds = index_texts(folder / "grown", corpus, range(options.texts), order)
        counts = dict(index.counts)
        _, added = index_texts(folder / "grown", corpus, range(options.texts, options.texts + more), order)
        grown = groups(LshIndex.open(folder / "grown", Scheme(), 0.8), order)
        at_once: list[int] = []
        numbers = np.random.default_rng(options.seed).permutation(options.texts + more).tolist()
        whole, _ = index_texts(folder / "whole", corpus, numbers, at_once)
        theirs = datasketch_seconds(corpus) / DATASKETCH_TEXTS
        ours = seconds / options.texts
        print(f"{Scheme().as_fields()}; {counts}")
        print(
            table(
                ("", "texts", "us a text", "texts/s"),
                [
                    ("near_duplicates, end to end", f"{options.texts:,}", f"{1e6 * ours:.1f}", f"{1 / ours:,.0f}"),
                    ("datasketch bulk + LSH", f"{DATASKETCH_TEXTS:,}", f"{1e6 * theirs:.1f}", f"{1 / theirs:,.0f}"),
                ],
            )
        )
        print(f"times faster than datasketch: {theirs / ours:.1f}")
        print(f"adding {more:,} texts: {added:.2f} s, {added / seconds:.1%} of the full {seconds:.1f} s")
        print(f"grown equals one shot in another order: {grown == groups(whole, at_once)} ({len(grown):,} groups)")
    finally:
        shutil.rmtree(folder)
    rows = [(target, *recall(corpus, target, options.seed)) for target in (0.7, 0.8, 0.9)]
    print(
        table(
            ("similarity", "found", "closed form", "points"),
            [(f"{t:.1f}", f"{got:.3f}", f"{want:.3f}", f"{100 * (got - want):+.1f}") for t, got, want in rows],
        )
    )


if __name__ == "__main__":
    main()
