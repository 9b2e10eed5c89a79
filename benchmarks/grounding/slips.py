"""Slips in written arithmetic: how many are found, and how many right texts are flagged, by file. No text is printed.

    python benchmarks/grounding/slips.py [FOLDER ...]

A FOLDER holds right.jsonl and slips.jsonl, and some have right_natural.jsonl, a {"text": ...} a line. Default: all in
benchmarks/data/arithmetic, written without a look at the parser. Tuned on `dev`, `attack` and `blind_dev`, not on
`heldout` and `blind_heldout`. `attack_later` was written after that; one text of it was mended. right_natural holds
texts with traps. `blind_dev` and `blind_heldout` are random halves of one set, and share its sentence patterns.
`blind_12_dev` and `blind_12_heldout` are halves of 60 sentences; the held half was not read. Nothing
is tuned on `blind_13_heldout`; it and `blind_13_dev` are halves of 300 sentences, each written by hand. `phrasings`
holds 192 sentences with drawn numbers, four times each: the parser is tuned on them. `blind_14_dev` and
`blind_14_heldout` are halves of another 300 by another writer; the held half was not read. `blind_15` is by a third
writer: its right texts were read, its slips were not. `blind_18_dev` and `blind_18_heldout` are halves
of 300 whole traces of teachers with at most one slip each, `blind_19_dev` and `blind_19_heldout` of 240; the held
halves were not read. `blind_20_dev` and `blind_20_heldout` are halves of 240 more, not read. `blind_21_dev` and
`blind_21_heldout` are halves of 240 whole rationales; the held half was not read.
Takes 3 s (two shared cores).
"""

import argparse
from pathlib import Path

import orjson

from distill.grounding.arithmetic_slips import find_slips

DATA = Path(__file__).parents[1] / "data" / "arithmetic"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    for folder in parser.parse_args().folders or sorted(DATA.iterdir()):
        for name in ("slips", "right", "right_natural"):
            if not (folder / f"{name}.jsonl").exists():
                continue
            texts = [orjson.loads(line)["text"] for line in (folder / f"{name}.jsonl").read_bytes().splitlines()]
            flagged = sum(bool(find_slips(text).slips) for text in texts)
            print(f"{folder.name:13} {name:14} {flagged:4} of {len(texts):4} flagged ({flagged / len(texts):.1%})")


if __name__ == "__main__":
    main()
