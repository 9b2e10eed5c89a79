"""In which order samples are asked: the ones expected to take longest first, those about one image together.

A run ends with its longest trace, so long traces should not start last. A server that has just prepared an image
should get the other questions about this image while the image is in its cache. Works on a window of the source, so a
source of any size streams through. How long a kind of question takes is learned from the traces as they come in.
"""

from collections import deque
from collections.abc import Iterator

from distill.types import ImageRef, Sample

WINDOW = 4096
"""Samples looked over at once."""
_PRIOR_TRACES = 4
"""Weight of the mean over all kinds in the expectation of one kind, in traces."""

Kind = tuple[str, str, int]
"""Domain, answer type, and the magnitude of the question's length."""


def kind_of(sample: Sample) -> Kind:
    return sample.domain, sample.answer_type or "", len(sample.question).bit_length()


class Lengths:
    """Mean tokens of a trace, by kind of question, shrunk towards the mean of all while traces are few."""

    def __init__(self) -> None:
        self._sums: dict[Kind, tuple[int, int]] = {}
        self._traces = 0
        self._tokens = 0

    def add(self, sample: Sample, tokens: int) -> None:
        kind = kind_of(sample)
        traces, total = self._sums.get(kind, (0, 0))
        self._sums[kind] = traces + 1, total + tokens
        self._traces += 1
        self._tokens += tokens

    def expected(self, kind: Kind) -> float:
        if not self._traces:
            return 0.0
        mean = self._tokens / self._traces
        traces, total = self._sums.get(kind, (0, 0))
        return (total + _PRIOR_TRACES * mean) / (traces + _PRIOR_TRACES)


class Window:
    """Hands samples of a source on, reordered within a window."""

    def __init__(self, samples: Iterator[Sample], lengths: Lengths) -> None:
        self._samples = samples
        self._lengths = lengths
        self.count = 0
        self._kinds: dict[Kind, deque[str]] = {}
        """The images (digest of the first, or the sample's id) of waiting questions by kind, in order."""
        self._groups: dict[str, deque[Sample]] = {}
        self._current: deque[Sample] = deque()

    def next(self) -> Sample | None:
        """The next sample to ask; None at the end of the source."""
        if not self._current:
            self._refill()
            self._current = self._longest()
        if not self._current:
            return None
        self.count -= 1
        return self._current.popleft()

    def _refill(self) -> None:
        while self.count < WINDOW and (sample := next(self._samples, None)) is not None:
            self.count += 1
            name = sample.images[0].sha256 if sample.images else sample.id
            group = self._groups.get(name)
            if group is None:
                group = self._groups[name] = deque()
                self._kinds.setdefault(kind_of(sample), deque()).append(name)
            group.append(sample)

    def upcoming(self, samples: int) -> Iterator[ImageRef]:
        """The images of about so many next samples, if no other kind of question is expected to take longer."""
        seen = len(self._current)
        for name in self._kinds[self._longest_kind()] if self._kinds else ():
            if seen >= samples:
                return
            group = self._groups[name]
            seen += len(group)
            yield from group[0].images

    def _longest_kind(self) -> Kind:
        return max(self._kinds, key=lambda kind: (self._lengths.expected(kind), len(self._kinds[kind])))

    def _longest(self) -> deque[Sample]:
        """The questions about one image, of the kind that is expected to take longest."""
        if not self._kinds:
            return deque()
        kind = self._longest_kind()
        names = self._kinds[kind]
        group = self._groups.pop(names.popleft())
        if not names:
            del self._kinds[kind]
        return group
