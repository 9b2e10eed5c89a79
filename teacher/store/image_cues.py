"""The text that OCR reads in the images of samples, put into their meta for prompts with cues = "ocr".

Read once for each distinct image of a run (`distill.ocr.texts`), while its plan is written.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from distill.machine.child_process import available_cores
from distill.machine.process_pool import ProcessPool
from distill.ocr import reader
from distill.ocr.texts import UnreadImage, find_lines, read_missing, texts_file
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import OCR_CUES
from distill.types import Sample

_AT_ONCE: Final = 256
"""Samples whose images are read before the first of them goes on."""


def asks_for_image_text(recipe: Recipe) -> bool:
    return any(teacher.cues == OCR_CUES for teacher in recipe.teachers)


def require_reader(recipe: Recipe) -> None:
    """Raises MissingExtra where a teacher is shown what OCR reads, and OCR is not installed."""
    for teacher in recipe.teachers:
        if teacher.cues == OCR_CUES:
            reader.require(f"teachers.{teacher.name}.cues = {OCR_CUES!r}")


def with_image_text(
    recipe: Recipe, samples: Iterable[Sample], run: Path, on_read: Callable[[int], None] = lambda images: None
) -> Iterator[Sample]:
    """The samples with the text of their images under `ocr` in their meta; a data set's own text there stays.

    Samples are unchanged where no teacher's prompt has it. An image that cannot be read has no text. `on_read` is
    called with the number of images that were read or known.
    """
    if not asks_for_image_text(recipe):
        yield from samples
        return
    path, rows, read = texts_file(run, max_pixels=recipe.max_pixels), iter(samples), 0
    with ProcessPool(available_cores()) as readers:
        while group := list(islice(rows, _AT_ONCE)):
            refs = {ref.sha256: ref for sample in group if OCR_CUES not in sample.meta for ref in sample.images}
            report = partial(lambda before, done, total: on_read(before + done), read)
            read_missing(refs, path, max_pixels=recipe.max_pixels, run_tasks=readers.map, on_done=report)
            read += len(refs)
            for sample in group:
                known = {} if OCR_CUES in sample.meta else {OCR_CUES: _text(sample, path)}
                yield replace(sample, meta={**sample.meta, **known})


def _text(sample: Sample, path: Path) -> str:
    lines = []
    for ref in sample.images:
        try:
            lines += [line.text for line in find_lines(path, ref.sha256)]
        except UnreadImage:
            continue
    return "\n".join(lines)
