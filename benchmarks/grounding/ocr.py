"""How well the signal `ocr` finds misreadings: share found, false alarms on right rationales, cost.

    python benchmarks/grounding/ocr.py --cache FOLDER [--pictures 360] [--seed 20261125] [--misses 0]
        [--pocket runs/pocket/pocket] [--questions 100]

Two sets, reported apart. "apart" are the images and rationales of `ocr_images.py`, on which the rules were not
tuned. "pocket" are charts and receipts of the pocket world's test questions (a folder that its setup.py has made),
with the rationales that the world's tool teacher writes of what was drawn, and the same with one misreading; its
questions were looked at while the rules were written. Text is read once and kept in the cache.
Takes 20 s with `--pictures 4` (two shared cores).
"""

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq
from ocr_images import make

from distill.ocr.claims import ImageClaims, check_claims
from distill.ocr.layout import read_layout
from distill.ocr.texts import find_lines, read_missing, texts_file
from distill.types import ImageRef

MAX_PIXELS = 1 << 24
SURE = 0.8
"""Confidence from which the documented rule drops a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    layout: str
    image: str
    """Digest."""
    question: str
    text: str
    fault: str


def save(folder: Path, data: bytes, refs: dict[str, ImageRef]) -> str:
    digest = hashlib.sha256(data).hexdigest()
    path = folder / "pictures" / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    refs[digest] = ImageRef(sha256=digest, path=str(path))
    return digest


def apart(folder: Path, count: int, seed: int, refs: dict[str, ImageRef]) -> Iterator[Case]:
    for picture, told in make(count, seed):
        image = save(folder, picture.png, refs)
        for said in told:
            yield Case(layout=picture.layout, image=image, question=said.question, text=said.text, fault=said.fault)


def pocket(options: argparse.Namespace, refs: dict[str, ImageRef]) -> Iterator[Case]:
    """The test questions about charts and pages, as the tool teacher answers them from what was drawn."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "pocket"))
    from tools import of_words

    rng = random.Random(options.seed)
    rows = pq.read_table(options.pocket / "data" / "test.parquet").to_pylist()
    for row in [row for row in rows if row["domain"] != "things"][: options.questions]:
        question, drawn = row["question"], [(name, str(value)) for name, value in json.loads(row["meta"])["rows"]]
        right = of_words(drawn, question)[0]
        image = save(options.cache, row["image"]["bytes"], refs)
        yield Case(layout=row["domain"], image=image, question=question, text=right, fault="")
        while True:
            at = rng.randrange(len(drawn))
            name, value = drawn[at]
            digits = list(value)
            digits[rng.randrange(len(digits))] = rng.choice("0123456789")
            other_row = rng.random() < 0.2
            wrong = rng.choice(drawn)[1] if other_row else "".join(digits)
            text = of_words([*drawn[:at], (name, wrong), *drawn[at + 1 :]], question)[0]
            if wrong[0] != "0" and text != right:
                break
        fault = "other_row" if other_row else "number"
        yield Case(layout=row["domain"], image=image, question=question, text=text, fault=fault)


def report(name: str, cases: list[Case], texts: Path, misses: int) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    started = time.process_time()
    for case in cases:
        claims = check_claims(case.text, read_layout([find_lines(texts, case.image)]), case.question)
        what = "alarm" if claims.unread else claims.verdict
        for kind in (case.layout, "all"):
            counts[kind, case.fault or "right", what] += 1
            counts[kind, case.fault or "right", "sure"] += is_sure(claims)
        if bool(claims.unread) != bool(case.fault) and misses > 0:
            misses -= 1
            print(f"  {case.fault or 'ALARM'} | {case.layout} | {case.text!r} | {claims}")
    spent = time.process_time() - started
    print(f"{name}: {len(cases)} rationales, {1e3 * spent / len(cases):.2f} ms of CPU time a rationale")
    for kind in sorted({kind for kind, _, _ in counts}, key=lambda kind: (kind == "all", kind)):
        faults = [fault for fault in ("number", "other_row", "name") if any((kind, fault, w) in counts for w in WHAT)]
        cells = []
        for fault in faults:
            total = sum(counts[kind, fault, what] for what in WHAT)
            cells.append(f"{fault} {counts[kind, fault, 'alarm']}/{total} (sure {counts[kind, fault, 'sure']})")
        right = {what: counts[kind, "right", what] for what in (*WHAT, "sure")}
        total = sum(right[what] for what in WHAT)
        alarms = f"false alarms {right['alarm']}/{total} (sure {right['sure']})"
        print(
            f"  {kind}: found {', '.join(cells) or '-'}; {alarms}, right and not checkable {right['not_checkable']}"
        )
    wrong = [case for case in cases if case.fault]
    found = sum(counts["all", fault, "alarm"] for fault in ("number", "other_row", "name"))
    right_count = len(cases) - len(wrong)
    print(f"  found {found / len(wrong):.1%} of {len(wrong)}, "
          f"false alarms {counts['all', 'right', 'alarm'] / right_count:.1%} of {right_count}")  # fmt: skip


WHAT = ("alarm", "supported", "not_checkable")


def is_sure(claims: ImageClaims) -> bool:
    return any(unread.confidence >= SURE for unread in claims.unread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=360)
    parser.add_argument("--seed", type=int, default=20261125)
    parser.add_argument("--misses", type=int, default=0, help="so many wrong verdicts are written out")
    parser.add_argument("--pocket", type=Path, help="folder of the pocket world")
    parser.add_argument("--questions", type=int, default=100, help="so many test questions of it")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    refs: dict[str, ImageRef] = {}
    sets = {"apart": list(apart(options.cache, options.pictures, options.seed, refs))}
    if options.pocket:
        sets["pocket"] = list(pocket(options, refs))
    texts = texts_file(options.cache, max_pixels=MAX_PIXELS)
    started = time.perf_counter()
    with get_context("forkserver").Pool(options.processes) as pool:
        read_missing(refs, texts, max_pixels=MAX_PIXELS, run_tasks=lambda read, tasks, _: pool.imap(read, tasks))
    print(f"{len(refs)} pictures read or known in {time.perf_counter() - started:.0f} s")
    for name, cases in sets.items():
        report(name, cases, texts, options.misses)


if __name__ == "__main__":
    main()
