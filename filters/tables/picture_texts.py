"""Reads the text of the pictures that the signal `ocr` needs, before traces are measured: each picture once."""

from collections.abc import Callable, Iterable

from distill.machine.process_pool import ProcessPool
from distill.ocr.texts import read_missing
from distill.types import ImageRef, Sample
from filters.signals.base import Extractor
from filters.signals.families.ocr import Ocr

OnRead = Callable[[int, int], None]
"""Called with the pictures that are read, and all of them."""


def read_pictures(
    extractors: Iterable[Extractor], samples: Iterable[Sample], processes: int, on_read: OnRead
) -> None:
    """Read what is missing, in so many processes; nothing where `ocr` is not among the families.

    What was read stays on disk when the run is killed. A picture that cannot be read costs its own samples' values.
    """
    for extractor in extractors:
        if not isinstance(extractor, Ocr) or extractor.texts is None:
            continue
        refs: dict[str, ImageRef] = {}
        for sample in samples:
            refs |= {ref.sha256: ref for ref in sample.images if ref.sha256 not in refs}
        with ProcessPool(processes) as readers:
            read_missing(
                refs, extractor.texts, max_pixels=extractor.max_pixels, run_tasks=readers.map, on_done=on_read
            )
