"""Data sources as samples."""

from typing import TYPE_CHECKING

from distill.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from distill.data.reader import read, samples, source_fields

__all__ = ["read", "samples", "source_fields"]
__getattr__ = lazy_exports(__name__, dict.fromkeys(__all__, "reader"))
