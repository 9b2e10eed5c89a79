"""Whether a question is in a named test set: matches of the text and of the picture, as separate kinds.

Questions about charts and photographs are templates: "What is the total of all bars?" is in the training data and in
the test set, word for word, and is no leak. A leak of a question with a picture is a *pair*: the question
and a picture of it match the same test sample. A question without a picture that matches a test sample without one
is a pair too. The same picture under another question ("image") and the same words about another picture ("text")
are reported, for stricter rules. n-gram overlap is reported as a number and decides nothing.

Text matches when it is the test question or a light edit of it (`filters.matching.question_match`); pictures match
when their bytes or pixels are equal, or when a perceptual hash proposes and the pixels confirm
(`filters.matching.image_match`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.answers.verdicts import equivalent
from distill.data.images import read_bytes
from distill.data.sources import settings
from distill.errors import DataError, ImageError
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Sample, Trace
from filters.matching import image_match, test_sets
from filters.matching.question_match import (
    Answers,
    Wording,
    capitalised_names,
    is_same_question,
    parse_wording,
    wording_similarity,
)
from filters.matching.test_sets import TestSetIndex, gram_hashes, question_keys, text_hash, word_hash
from filters.signals.base import LOCATION, NOT_APPLICABLE, OK, UNDECIDABLE, family

ASKED = "questions"
"""The source that teachers are asked."""
_COMPARED = 4
"""Of the questions that are proposed by text, so many are compared: those that share most."""
_PLAIN_ANSWER = re.compile(r"yes|no|true|false|none|[a-z]|-?\d{1,3}(?:\.0)?")
"""Answers that two different questions often share."""
_SEEN = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Contamination:
    sources: tuple[str, ...] = field(metadata=LOCATION)
    """Names of the test sets; the index, whose digest covers them, is made from them."""
    images: Literal["all", "matching", "bytes"]
    """Which pictures are decoded: all, those whose question matches a test question, none."""
    max_pixels: int
    index: str | None = field(metadata=LOCATION)
    """Folder of the index; None measures nothing."""
    index_sha256: str | None

    name: ClassVar[str] = "contamination"
    version: ClassVar[str] = "1"
    scope: ClassVar[Literal["trace", "sample"]] = "sample"
    columns: ClassVar[pa.Schema] = family(
        "contamination",
        contamination=("text", "what matches a test sample: pair (question and picture), image, text or none"),
        contamination_source=("text", "name of the test set it matches"),
        contamination_sample=("text", "id of the test sample it matches"),
        contamination_ngram8=("number", "share of the question's runs of 8 words that stand in a test set"),
        contamination_ngram13=("number", "share of the question's runs of 13 words that stand in a test set"),
        contamination_similarity=("number", "how alike the closest test question that was compared is written, 0-1"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Contamination":
        """The settings alone: `prepare` adds the index. Raises DataError when a named source is not in the recipe."""
        section = recipe.filter.contamination
        sources = section.sources
        if sources is None:
            # Who is evaluated on the very questions that teachers are asked wants to know how well they were learnt.
            sources = (recipe.eval.data,) if recipe.eval.data in recipe.data and recipe.eval.data != ASKED else ()
        sources = tuple(dict.fromkeys(sources))
        for name in sources:
            settings(recipe, name)
        return cls(
            sources=sources, images=section.images, max_pixels=recipe.max_pixels, index=None, index_sha256=None
        )

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        if self.index is None or self.index_sha256 is None:
            return [{"contamination_state": NOT_APPLICABLE} for _ in traces]
        row = self._row(sample, test_sets.load_index(self.index, self.index_sha256))
        return [dict(row) for _ in traces]

    def _row(self, sample: Sample, index: TestSetIndex) -> dict[str, Any]:
        asked = parse_wording(sample.question)
        row, places = _grams(asked, index)
        look = self.images == "all" or (self.images == "matching" and max(places) >= 0)
        groups, unreadable = self._groups(sample, index, look=look)
        found = _matched(sample, asked, groups, places, index)
        row["contamination_similarity"] = found.similarity
        if found.sample is not None:
            matched = index.sample(found.sample)
            row |= {"contamination_source": matched.set, "contamination_sample": matched.id}
        # Without the picture it is not known whether matching text is a pair, or other text an image match.
        undecidable = unreadable and found.kind in ("none", "text")
        row["contamination_state"] = UNDECIDABLE if undecidable else OK
        row["contamination"] = None if undecidable and found.kind == "none" else found.kind
        return row

    def _groups(self, sample: Sample, index: TestSetIndex, *, look: bool) -> tuple[list[int], bool]:
        """The groups of test pictures that the sample's pictures belong to, and whether one could not be read."""
        groups: set[int] = set()
        unreadable = False
        if not index.refs:
            return [], False
        for ref in {ref.sha256: ref for ref in sample.images}.values():
            group = index.group_of_sha256.get(ref.sha256)
            if group is None and look and index.image_hashes:
                try:
                    group = self._looked(ref, index)
                except ImageError:
                    unreadable = True
            if group is not None:
                groups.add(group)
        return sorted(groups), unreadable

    def _looked(self, ref: ImageRef, index: TestSetIndex) -> int | None:
        """The group of a picture by its pixels. Raises ImageError."""
        if ref.sha256 not in index.group_of_seen:
            if len(index.group_of_seen) >= _SEEN:
                index.group_of_seen.clear()
            seen = image_match.hash_image(read_bytes(ref), max_pixels=self.max_pixels)
            (index.group_of_seen[ref.sha256],) = groups_of([seen], [ref], index, max_pixels=self.max_pixels)
        return index.group_of_seen[ref.sha256]


def groups_of(
    looks: Sequence[image_match.ImageHashes], refs: Sequence[ImageRef], index: TestSetIndex, *, max_pixels: int
) -> list[int | None]:
    """The group of test pictures that each of these pictures belongs to by its pixels. Raises ImageError."""
    found = [index.group_of_pixels.get(seen.pixels) for seen in looks]
    others = [place for place, group in enumerate(found) if group is None]
    for one, other in image_match.propose_pairs([looks[place] for place in others], index.image_hashes):
        place = others[one]
        if found[place] is None and image_match.is_same_image(
            read_bytes(refs[place]), read_bytes(index.refs[other]), max_pixels=max_pixels
        ):
            found[place] = index.groups[other]
    return found


def prepare(recipe: Recipe, folder: Path) -> Contamination:
    """The family with the index of the recipe's test sets, which is built in `folder` unless a valid one is there.

    Raises DataError when a test set cannot be read.
    """
    measured = Contamination.from_recipe(recipe)
    if not measured.sources:
        return measured
    try:
        digest = test_sets.build_index(recipe, measured.sources, folder, images=measured.images != "bytes")
    except DataError as error:
        raise DataError(
            f"the filter must read the test sets to tell what leaks from them: {error}\n"
            "Name others in filter.contamination.sources; with sources = [] nothing is compared"
        ) from None
    return replace(measured, index=str(folder.resolve()), index_sha256=digest)


@dataclass(slots=True, kw_only=True)
class Match:
    """The best match so far of a training question in the test sets."""

    kind: str = "none"
    sample: int | None = None
    similarity: float | None = None
    """Of any question compared, matching or not."""
    _rank: tuple[int, float] = (0, 0.0)

    def offer(self, kind: str, sample: int, similar: float) -> None:
        self.similarity = max(similar, self.similarity or 0.0)
        rank = (("none", "text", "image", "pair").index(kind), similar)
        if kind != "none" and rank > self._rank:
            self._rank, self.kind, self.sample = rank, kind, sample


def match(sample: Sample, groups: Sequence[int], index: TestSetIndex) -> Match:
    """The best match of a question whose pictures belong to these groups of test pictures."""
    asked = parse_wording(sample.question)
    _, places = _grams(asked, index)
    return _matched(sample, asked, groups, places, index)


def _matched(sample: Sample, asked: Wording, groups: Sequence[int], places: list[int], index: TestSetIndex) -> Match:
    found = Match()
    for group in groups:
        for number in index.samples_of_group[group]:
            _compare(found, sample, asked, number, index)
    if found.kind != "pair":
        _by_text(found, sample, asked, places, index)
    return found


def _grams(asked: Wording, index: TestSetIndex) -> tuple[dict[str, Any], list[int]]:
    """The shares of known n-grams, and the places of the test questions that the text proposes, its own first."""
    hashes = [word_hash(token) for token in asked.tokens]
    runs = [gram_hashes(hashes, size) for size in test_sets.GRAMS]
    places = index.find([*runs[0], *runs[1], text_hash(asked.text), *question_keys(asked)])
    row: dict[str, Any] = {}
    start = 0
    for size, queries in zip(test_sets.GRAMS, runs, strict=True):
        known = [place >= 0 for place in places[start : start + len(queries)]]
        row[f"contamination_ngram{size}"] = sum(known) / len(known) if known else None
        start += len(queries)
    return row, places[start:]


def _compare(found: Match, sample: Sample, asked: Wording, number: int, index: TestSetIndex) -> None:
    """Offer a test sample whose picture matches: the same question makes a pair."""
    other = index.wording(number)
    kind = "pair" if _matches(sample, asked, number, index, same_picture=True) else "image"
    found.offer(kind, number, wording_similarity(asked, other))


def _by_text(found: Match, sample: Sample, asked: Wording, places: list[int], index: TestSetIndex) -> None:
    """Offer the test samples that are worded alike, wherever their pictures are."""
    exact, *near = places
    if exact >= 0:
        for text in index.rows_at(exact):
            _offer_text(found, text, 1.0, index)
        if sample.images or found.kind == "pair":
            return
    shared = Counter(text for place in near if place >= 0 for text in index.rows_at(place))
    for text in sorted(shared, key=lambda text: (-shared[text], text))[:_COMPARED]:
        number = max(index.texts[kind][text].as_py() for kind in ("plain", "pictured"))
        similar = wording_similarity(asked, index.wording(number))
        if _matches(sample, asked, number, index, same_picture=False):
            _offer_text(found, text, similar, index)
        else:
            found.offer("none", number, similar)


def _offer_text(found: Match, text: int, similar: float, index: TestSetIndex) -> None:
    """A test question without a picture matches whole; of one with a picture only the words do."""
    for column, kind in (("plain", "pair"), ("pictured", "text")):
        number = index.texts[column][text].as_py()
        if number >= 0:
            found.offer(kind, number, similar)


def _matches(sample: Sample, asked: Wording, number: int, index: TestSetIndex, *, same_picture: bool) -> bool:
    other = index.sample(number)

    def is_name(word: str) -> bool:
        return word in capitalised_names(other.question) or word in capitalised_names(sample.question)

    return is_same_question(
        asked,
        index.wording(number),
        same_picture=same_picture,
        is_word=index.is_word,
        is_name=is_name,
        answers=lambda: _agreement(sample.answers, other.answers),
    )


def _agreement(ours: tuple[str, ...], theirs: tuple[str, ...]) -> Answers:
    if not ours or not theirs:
        return "unknown"
    agreed = [one for one in ours if any(equivalent(one, other) for other in theirs)]
    if not agreed:
        return "differ"
    plain = [answer for answer in agreed if _PLAIN_ANSWER.fullmatch(answer.strip().lower())]
    if len(plain) < len(agreed):
        return "agree"
    return "may agree" if any(answer.strip()[-1:].isdigit() for answer in plain) else "unknown"
