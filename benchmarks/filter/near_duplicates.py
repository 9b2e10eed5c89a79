"""Near duplicates on pairs of texts that a person wrote: how many are found to be one, by kind. No text is printed.

    python benchmarks/filter/near_duplicates.py benchmarks/data/near_duplicates/heldout

It holds same.jsonl and different.jsonl, a pair a line: {"a": ..., "b": ..., "kind": ...}. Every pair goes both
ways that the filter knows: as two traces of one question (`duplicates`), and through the index of a whole run
(`corpus`), first with nothing else in it, then with all texts of the folder at once.
Takes 27 s for `blind_14` (two shared cores).
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from worlds.run_fixtures import sample, trace

from distill.recipe.recipe import Recipe
from distill.reports.text_table import table
from filters.matching.near_duplicates import LshIndex
from filters.signals.families.trace_duplicates import Duplicates
from filters.text.minhash import Scheme, sign

THRESHOLD = 0.8
"""The default of [filter.corpus]; that of [filter.duplicates] is 0.9."""


def within_question(one: str, other: str) -> bool:
    asked = sample("What is asked?")
    traces = [trace(asked, "", text, id=name) for name, text in (("a", one), ("b", other))]
    return any(row["near_duplicate"] for row in Duplicates.from_recipe(Recipe()).measure(asked, traces))


def groups(texts: Sequence[str]) -> list[int]:
    """For each text the group that the index puts it into."""
    scheme = Scheme()
    signed = sign(texts, scheme)
    # Texts of the same words are one; the one that says most of names stands for them, as in
    # `filters.run_signals.corpus_duplicates`.
    order = np.lexsort((np.iinfo(np.uint64).max - signed.names, signed.digests))
    digests, places = np.unique(signed.digests[order], return_index=True)
    chosen = order[places]
    with tempfile.TemporaryDirectory() as folder:
        index = LshIndex.open(Path(folder) / "index", scheme, THRESHOLD)
        index.add(
            digests,
            signed.names[chosen],
            iter([signed.signatures[chosen]]),
            lambda rows: [texts[chosen[row]] for row in rows],
        )
        return index.components()[np.searchsorted(digests, signed.digests)].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name in ("same", "different"):
        pairs = [orjson.loads(line) for line in (folder / f"{name}.jsonl").read_bytes().splitlines()]
        kinds = Counter(pair["kind"] for pair in pairs)
        together = groups([pair[side] for pair in pairs for side in "ab"])
        found = {
            "duplicates": [within_question(pair["a"], pair["b"]) for pair in pairs],
            "corpus, pair alone": [len(set(groups([pair["a"], pair["b"]]))) == 1 for pair in pairs],
            "corpus, all at once": [one == other for one, other in zip(together[::2], together[1::2], strict=True)],
        }
        rows = [
            (kind, str(count), *(str(sum(_of_kind(hits, pairs, kind))) for hits in found.values()))
            for kind, count in sorted(kinds.items())
        ]
        rows.append(("all", str(len(pairs)), *(str(sum(hits)) for hits in found.values())))
        print(f"{name}: pairs found to be one")
        print(table(("kind", "pairs", *found), rows))


def _of_kind(hits: Sequence[bool], pairs: Sequence[dict[str, str]], kind: str) -> list[bool]:
    return [hit for hit, pair in zip(hits, pairs, strict=True) if pair["kind"] == kind]


if __name__ == "__main__":
    main()
