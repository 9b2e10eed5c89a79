"""Accuracy of one student in transformers and as GGUF files of several types in llama.cpp, over the same questions.

    python benchmarks/train/gguf_accuracy.py recipes/tiny/teachers/generalist --count 600
        [--recipe tiny] [--source test] [--quantize "llama-quantize" --types q4_k_m]

llama.cpp is found as `distill export --gguf --verify` finds it (DISTILL_LLAMA_SERVER). `--quantize` is a command that
is called with an f16 file, the file to write, and a type. Differences are paired, against f16.
Takes as long as `--count` questions for each type: not timed here. Needs llama.cpp.
"""

import argparse
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.data import reader
from distill.errors import DistillError
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.reports.text_table import table
from distill.stats.intervals import paired, wilson
from distill.types import Sample
from student.export.gguf.files import MMPROJ, MODEL, write_gguf
from student.export.gguf.tokenizer import image_ids
from student.export.gguf.verify import square
from student.export.reply_comparison import ComparedStudent
from student.inference.scoring import score_reply
from student.models import siq_vl
from teacher.engines.llama_cpp.llama_server import find_llama_server, serve_gguf

BASELINE = "f16"


def verdicts(recipe: Recipe, samples: Sequence[Sample], texts: Sequence[str]) -> list[bool]:
    """Whether each reply is right, as `distill eval` decides it."""
    plain, tolerance = recipe.filter.rationale == "plain", recipe.filter.answer.relative_tolerance
    return [
        score_reply(sample, {"text": text, "truncated": False}, plain=plain, relative_tolerance=tolerance)["verdict"]
        == "correct"
        for sample, text in zip(samples, texts, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--source", default="test")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--quantize", default="llama-quantize")
    parser.add_argument("--types", nargs="*", default=[])
    given = parser.parse_args()
    try:
        program = find_llama_server()
    except DistillError as error:
        raise SystemExit(str(error)) from None
    recipe = loading.load(loading.find(given.recipe))
    pool = list(reader.samples(recipe, given.source))
    samples = [pool[index * len(pool) // given.count] for index in range(min(given.count, len(pool)))]
    model, processor = siq_vl.load(str(given.checkpoint))
    student = ComparedStudent(recipe, given.checkpoint, samples, given.source, dtype="float32")
    mine = student.replies(lambda done: None)
    expected = [mine[index] for index in range(len(samples))]
    replies: dict[str, list[list[int]]] = {"transformers, float32": expected}

    def ask(name: str, weights: Path, mmproj: Path) -> None:
        limit = recipe.eval.max_new_tokens
        options: dict[str, Any] = {
            "command": program,
            "context": student.longest + limit,
            "max_new_tokens": limit,
            "picture": lambda ref: square(processor, ref, student.max_pixels),
            "image_ids": image_ids(processor, model.config.scale_factor),
        }
        with serve_gguf(weights, mmproj, **options) as server:
            replies[name] = [list(reply) for _, reply in server.ask(samples)]
        print(f"{name}: {len(samples)} questions", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        for name in ("f32", BASELINE, "q8_0"):
            folder = Path(scratch) / name
            folder.mkdir()
            write_gguf(model, processor, folder, name="student", weight_type=name)
            ask(name, folder / MODEL, folder / MMPROJ)
        source = Path(scratch) / BASELINE
        for name in given.types:
            target = Path(scratch) / f"{name}.gguf"
            subprocess.run([*shlex.split(given.quantize), source / MODEL, target, name], check=True)
            ask(name, target, source / MMPROJ)

    decode = processor.tokenizer.decode
    right = {
        name: verdicts(recipe, samples, [decode(ids, skip_special_tokens=True) for ids in each])
        for name, each in replies.items()
    }
    rows = []
    for name, each in right.items():
        low, high = wilson(sum(each), len(each))
        delta = paired(each, right[BASELINE])
        equal = sum(reply == other for reply, other in zip(replies[name], expected, strict=True)) / len(expected)
        rows.append(
            [
                name,
                f"{100 * sum(each) / len(each):.1f} [{100 * low:.1f}, {100 * high:.1f}]",
                f"{100 * delta.delta:+.1f} [{100 * delta.ci95[0]:+.1f}, {100 * delta.ci95[1]:+.1f}]",
                f"{100 * equal:.1f}",
            ]
        )
    print(table(["weights", "accuracy %", f"points against {BASELINE}", "replies equal to transformers %"], rows))


if __name__ == "__main__":
    main()
