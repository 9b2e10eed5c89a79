"""What measuring student fit costs beside plain forward passes over the very same batches.

    python benchmarks/train/fit.py [--traces 256] [--words 120] [--hidden 256] [--layers 4] [--threads 1]

A random student of tests/support/students/tiny_models.py reads made-up traces about random images. Each of its
batches is then fed to the whole model once more (logits for every position, as a plain forward makes them), and to
the model without its output layer, which is the least that any likelihood costs. The three take turns; medians are
shown.
Preparing rows (chat template, tokens, images) is shown apart: a plain forward needs it just as much.
Takes 30 s with `--traces 16 --rounds 1 --hidden 64 --layers 2 --vocabulary 4000` (two shared cores).
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from students import tiny_models

from distill.data.images import image_files
from distill.types import ImageRef
from student.data.rows import TrainingRow
from student.inference.likelihood import LikelihoodScorer, ScoredRow
from student.models import siq_vl

WORDS = [*["row", "bar", "red", "blue", "circle", "square", "north", "south", "total", "sum"], *"123456789=+-,."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("traces", 256),
        ("words", 120),
        ("hidden", 256),
        ("layers", 4),
        ("vocabulary", 32_000),
        ("batch-tokens", 4096),
        ("rounds", 5),
        ("threads", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        student, processor = siq_vl.load(
            str(tiny_models.build(folder / "model", hidden=options.hidden, layers=options.layers))
        )
        student.resize_token_embeddings(options.vocabulary, mean_resizing=False)
        said = traces(folder, options.traces, options.words)
        batches: list[tuple[Any, ...]] = []

        class Recording(LikelihoodScorer):
            def _scores(self, *batch: Any) -> Any:
                batches.append(batch)
                return super()._scores(*batch)

        fit = Recording(student, processor, batch_tokens=options.batch_tokens, max_length=4096, max_pixels=10**7)
        started = time.perf_counter()
        found = fit(said)
        whole = time.perf_counter() - started
        inputs = [collator(rows).inputs for collator, _, rows in batches]
        took: dict[str, list[float]] = {"plain forward": [], "measured": [], "without output layer": []}
        for _ in range(options.rounds):
            took["plain forward"].append(timed(lambda: [student(**one, use_cache=False).logits for one in inputs]))
            took["measured"].append(timed(lambda: [LikelihoodScorer._scores(fit, *batch) for batch in batches]))
            took["without output layer"].append(
                timed(lambda: [student.base_model(**one, use_cache=False) for one in inputs])
            )
        tokens = sum(values["tokens"] for values in found)
        padded = sum(one["input_ids"].numel() for one in inputs)
        print(
            f"{len(said)} traces, {tokens:,} response tokens, {padded:,} tokens in {len(batches)} forward passes, "
            f"{sum(p.numel() for p in student.parameters()) / 1e6:.1f} M parameters, {options.threads} thread(s)"
        )
        plain = statistics.median(took["plain forward"])
        for what, seconds in took.items():
            middle = statistics.median(seconds)
            print(f"{what:22} {middle:7.2f} s  {padded / middle:9,.0f} tokens/s  {plain / middle:6.1%} of plain")
        print(f"{'everything, first time':22} {whole:7.2f} s  {len(said) / whole:9,.1f} traces/s, rows prepared")


@torch.inference_mode()
def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def traces(folder: Path, count: int, words: int) -> list[ScoredRow]:
    """Traces of half to one and a half times so many words, two about each image."""
    found = []
    for number in range(count):
        path = tiny_models.make_image(folder / f"{number // 2}.png", number // 2)
        ref = ImageRef(sha256=image_files.sha256(path.read_bytes()), path=str(path))
        length = words // 2 + number * 7919 % max(1, words)
        head = "<think>\n" + " ".join(WORDS[(number + step * step) % len(WORDS)] for step in range(length))
        head += "\n</think>\n\n"
        row = TrainingRow(
            id=str(number), images=(ref,), question="How many are there in total?", response=f"{head}{number}"
        )
        found.append(ScoredRow(row=row, answer_at=len(head)))
    return found


if __name__ == "__main__":
    main()
