"""Whether a question is in a named test set: matches of the text and of the image, as separate kinds.

Questions about charts and photographs are templates: "What is the total of all bars?" is in the training data and in
the test set, word for word, and is no leak. A leak of a question with an image is a *pair*: the question
and an image of it match the same test sample. A question without an image that matches a test sample without one
is a pair too. The same image under another question ("image") and the same words about another image ("text")
are reported, for stricter rules. An image of one colour under another question is no match. n-gram overlap is
reported as a number and decides nothing.

A text matches if it is the test question or a light edit of it (`filters.matching.question_match`). Images match if
their bytes or pixels are equal, or if a perceptual hash proposes the pair and the pixels confirm it
(`filters.matching.image_match`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.data.images.image_files import read_bytes
from distill.data.sources import settings
from distill.errors import DataError, ImageError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
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

_COMPARED = 4
"""So many of the questions that are proposed by text are compared: those that share most."""
_PLAIN_ANSWER = re.compile(r"yes|no|true|false|none|[a-z]|-?\d{1,3}(?:\.0)?")
"""Answers that two different questions often share."""
_SEEN = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Contamination:
    sources: tuple[str, ...] = field(metadata=LOCATION)
    """Names of the test sets; the index is made from them, and its digest covers them."""
    images: Literal["all", "matching", "bytes"]
    """The images that are decoded: all, those whose question matches a test question, or none."""
    max_pixels: int
    index: str | None = field(metadata=LOCATION)
    """Folder of the index; None measures nothing."""
    index_sha256: str | None

    name: ClassVar[str] = "contamination"
    version: ClassVar[str] = "27"
    scope: ClassVar[Literal["trace", "sample"]] = "sample"
    columns: ClassVar[pa.Schema] = family(
        "contamination",
        contamination=("text", "what matches a test sample: pair (question and image), image, text or none"),
        contamination_source=("text", "name of the test set it matches"),
        contamination_sample=("text", "id of the test sample it matches"),
        contamination_ngram8=("number", "share of the question's runs of 8 words that are in a test set"),
        contamination_ngram13=("number", "share of the question's runs of 13 words that are in a test set"),
        contamination_similarity=("number", "similarity of the wording to the closest compared test question, 0-1"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Contamination":
        """The settings alone: `prepare` adds the index. Raises DataError when a named source is not in the recipe."""
        section = recipe.filter.contamination
        sources = section.sources
        if sources is None:
            # An evaluation on the teachers' questions measures memorisation, and is not a leak.
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
        question = parse_wording(sample.question)
        row, positions = _gram_shares(question, index)
        decode_images = self.images == "all" or (self.images == "matching" and max(positions) >= 0)
        groups, unreadable = self._groups(sample, index, decode_images=decode_images)
        best = _best_match(sample, question, groups, positions, index)
        row["contamination_similarity"] = best.similarity
        if best.sample is not None:
            test_sample = index.sample(best.sample)
            row |= {"contamination_source": test_sample.set, "contamination_sample": test_sample.id}
        # Without the image it is unknown whether matching text is a pair, and other text an image match.
        undecidable = unreadable and best.kind in ("none", "text")
        row["contamination_state"] = UNDECIDABLE if undecidable else OK
        row["contamination"] = None if undecidable and best.kind == "none" else best.kind
        return row

    def _groups(self, sample: Sample, index: TestSetIndex, *, decode_images: bool) -> tuple[list[int], bool]:
        """The groups of test images that the sample's images belong to, and whether one could not be read."""
        groups: set[int] = set()
        unreadable = False
        if not index.refs:
            return [], False
        for ref in {ref.sha256: ref for ref in sample.images}.values():
            group = index.group_of_sha256.get(ref.sha256)
            if group is None and decode_images and index.image_hashes:
                try:
                    group = self._looked(ref, index)
                except ImageError:
                    unreadable = True
            if group is not None:
                groups.add(group)
        return sorted(groups), unreadable

    def _looked(self, ref: ImageRef, index: TestSetIndex) -> int | None:
        """The group of an image by its pixels. Raises ImageError."""
        if ref.sha256 not in index.group_of_seen:
            if len(index.group_of_seen) >= _SEEN:
                index.group_of_seen.clear()
            image_hashes = image_match.hash_image(read_bytes(ref), max_pixels=self.max_pixels)
            (index.group_of_seen[ref.sha256],) = find_image_groups(
                [image_hashes], [ref], index, max_pixels=self.max_pixels
            )
        return index.group_of_seen[ref.sha256]


def find_image_groups(
    hashes_of_images: Sequence[image_match.ImageHashes],
    refs: Sequence[ImageRef],
    index: TestSetIndex,
    *,
    max_pixels: int,
) -> list[int | None]:
    """The group of test images with the same pixels, for each of these images. Raises ImageError."""
    groups = [index.group_of_pixels.get(image_hashes.pixels) for image_hashes in hashes_of_images]
    unmatched = [row for row, group in enumerate(groups) if group is None]
    for position, test_image in image_match.propose_pairs(
        [hashes_of_images[row] for row in unmatched], index.image_hashes
    ):
        row = unmatched[position]
        if groups[row] is None and image_match.is_same_image(
            read_bytes(refs[row]), read_bytes(index.refs[test_image]), max_pixels=max_pixels
        ):
            groups[row] = index.groups[test_image]
    return groups


def prepare(recipe: Recipe, folder: Path) -> Contamination:
    """The family with the index of the recipe's test sets, which is built in `folder` unless a valid one is there.

    Raises DataError when a test set cannot be read.
    """
    family_settings = Contamination.from_recipe(recipe)
    if not family_settings.sources:
        return family_settings
    try:
        digest = test_sets.build_index(
            recipe, family_settings.sources, folder, images=family_settings.images != "bytes"
        )
    except DataError as error:
        raise DataError(
            f"the filter must read the test sets to find leaks: {error}\n"
            "Name others in filter.contamination.sources; with sources = [] nothing is compared"
        ) from None
    return replace(family_settings, index=str(folder.resolve()), index_sha256=digest)


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


def find_best_match(sample: Sample, groups: Sequence[int], index: TestSetIndex) -> Match:
    """The best match of a question whose images belong to these groups of test images."""
    question, positions = index.proposals(sample.question)
    return _best_match(sample, question, groups, positions, index)


def _best_match(
    sample: Sample, question: Wording, groups: Sequence[int], positions: Sequence[int], index: TestSetIndex
) -> Match:
    best = Match()
    for group in groups:
        for test_row in index.samples_of_group[group]:
            _offer_by_image(best, sample, question, test_row, index, plain=group in index.plain_groups)
    if best.kind != "pair":
        _offer_by_text(best, sample, question, positions, index)
    return best


def _gram_shares(question: Wording, index: TestSetIndex) -> tuple[dict[str, Any], list[int]]:
    """The shares of known n-grams, and index positions of proposed test questions, the exact text first."""
    hashes = [word_hash(token) for token in question.tokens]
    runs = [gram_hashes(hashes, size) for size in test_sets.GRAMS]
    positions = index.find([*runs[0], *runs[1], text_hash(question.text), *question_keys(question)])
    row: dict[str, Any] = {}
    start = 0
    for size, queries in zip(test_sets.GRAMS, runs, strict=True):
        is_known = [position >= 0 for position in positions[start : start + len(queries)]]
        row[f"contamination_ngram{size}"] = sum(is_known) / len(is_known) if is_known else None
        start += len(queries)
    return row, positions[start:]


def _offer_by_image(
    best: Match, sample: Sample, question: Wording, test_row: int, index: TestSetIndex, *, plain: bool
) -> None:
    """Offer a test sample whose image matches: with the same question a pair. `plain`: it has one colour."""
    test_question = index.wording(test_row)
    other = "none" if plain else "image"
    kind = "pair" if _is_same_sample(sample, question, test_row, index, same_image=True) else other
    best.offer(kind, test_row, wording_similarity(question, test_question))


def _offer_by_text(
    best: Match, sample: Sample, question: Wording, positions: Sequence[int], index: TestSetIndex
) -> None:
    """Offer the test samples with similar words, about any images."""
    exact_position, *near_positions = positions
    if exact_position >= 0:
        for text in index.rows_at(exact_position):
            _offer_text(best, text, 1.0, index)
        if sample.images or best.kind == "pair":
            return
    shared = Counter(text for position in near_positions if position >= 0 for text in index.rows_at(position))
    for text in sorted(shared, key=lambda text: (-shared[text], text))[:_COMPARED]:
        test_row = max(index.texts[kind][text].as_py() for kind in ("plain", "pictured"))
        similar = wording_similarity(question, index.wording(test_row))
        if _is_same_sample(sample, question, test_row, index, same_image=False):
            _offer_text(best, text, similar, index)
        else:
            best.offer("none", test_row, similar)


def _offer_text(best: Match, text: int, similar: float, index: TestSetIndex) -> None:
    """Offer a test question by its text: a pair without an image, a text match with one."""
    for column, kind in (("plain", "pair"), ("pictured", "text")):
        test_row = index.texts[column][text].as_py()
        if test_row >= 0:
            best.offer(kind, test_row, similar)


def _is_same_sample(
    sample: Sample, question: Wording, test_row: int, index: TestSetIndex, *, same_image: bool
) -> bool:
    test_sample = index.sample(test_row)

    def is_name(word: str) -> bool:
        return word in capitalised_names(test_sample.question) or word in capitalised_names(sample.question)

    return is_same_question(
        question,
        index.wording(test_row),
        same_image=same_image,
        is_word=index.is_word,
        is_name=is_name,
        answers=lambda: _compare_answers(sample.answers, test_sample.answers),
    )


def _compare_answers(answers: tuple[str, ...], gold_answers: tuple[str, ...]) -> Answers:
    if not answers or not gold_answers:
        return "unknown"
    agreed = [answer for answer in answers if any(_is_same_answer(answer, gold) for gold in gold_answers)]
    if not agreed:
        return "differ"
    plain = [answer for answer in agreed if _PLAIN_ANSWER.fullmatch(answer.strip().lower())]
    if len(plain) < len(agreed):
        return "agree"
    return "may agree" if any(answer.strip()[-1:].isdigit() for answer in plain) else "unknown"


@lru_cache(maxsize=1 << 14)  # the questions of a template have few answers
def _is_same_answer(answer: str, gold_answer: str) -> bool:
    from distill.answers.verdicts import equivalent

    return equivalent(answer, gold_answer)
