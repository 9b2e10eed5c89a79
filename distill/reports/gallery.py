"""The gallery of a report page: questions with their images and what every arm says to them, failures first.

A page stays below a number of bytes for any number and size of images: images are made smaller, then rationales
shorter, then cards are left out, and the page says so. An image that several cards show is stored once. Which arms
there are and who is right is decided elsewhere.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from distill.recipe.sections.data import MAX_PIXELS
from distill.reports.thumbnails import Album, Thumbnail, album
from distill.types import ImageRef, Sample
from distill.word_tables import counted

PAGE_BYTES = 4_900_000
"""Largest size of a page with its gallery, below the limit of 5 MB."""
_TEXT_SHARE = 0.6
"""Share of the page's bytes for text; beyond it rationales are made shorter."""
_RATIONALE_LIMITS = (8000, 4000, 2000, 1000, 600, 400, 250)
_HEAD = 480
"""Characters of a rationale that are read without opening the rest."""
_IMAGES = 4
"""Most images shown of a question; the rest is counted."""
_NOMINAL = 120
"""Bytes that a picture's element may differ between a draft and the page."""

GAINED, BOTH, NEITHER, LOST = "gained", "both right", "neither right", "lost"
"""What became of a question between two arms; other arms of its card may have any verdict."""
RIGHT, WRONG, UNDECIDED = "correct", "wrong", "undecided"
FAILURES_FIRST = (LOST, NEITHER, WRONG, UNDECIDED, GAINED, BOTH, RIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReply:
    """The reply of one arm."""

    arm: str
    answer: str
    verdict: str
    rationale: str
    notes: tuple[str, ...] = ()
    """Remarks such as "cut off"."""
    teachers: tuple[str, ...] = ()
    """Whose traces the arm learned from, where that is known and differs between arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryCard:
    question: str
    gold: str
    domain: str
    kind: str
    images: tuple[ImageRef, ...]
    replies: tuple[CardReply, ...]
    difficulty: str = ""
    teachers: tuple[str, ...] = ()
    """Who is asked questions of this domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A rationale as it is shown: its beginning, the rest behind "show all", and how much is not on the page."""

    head: str
    rest: str
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """What the template draws."""

    cards: tuple[GalleryCard, ...]
    total: int
    arms: tuple[str, ...]
    domains: tuple[str, ...]
    difficulties: tuple[str, ...]
    kinds: tuple[str, ...]
    teachers: tuple[str, ...]
    arms_have_teachers: bool
    verdicts: tuple[str, ...]
    album: Album
    limit: int
    notes: tuple[str, ...] = ()
    pictures: int = _IMAGES

    def text(self, rationale: str) -> Text:
        return split(rationale, self.limit)

    def shown(self, card: GalleryCard) -> list[Thumbnail]:
        """The images of a card that are on the page."""
        thumbnails = (self.album.pictures.get(ref.sha256) for ref in card.images[: self.pictures])
        return [image for image in thumbnails if image is not None]


Render = Callable[[Gallery], str]


def cards(
    predictions: Sequence[Mapping[str, Any]],
    samples: Sequence[Sample],
    arms: Sequence[str],
    size: int,
    *,
    pair: tuple[str, str] | None = None,
    arm_teachers: Mapping[str, Sequence[str]] | None = None,
    domain_teachers: Mapping[str, Sequence[str]] | None = None,
) -> list[GalleryCard]:
    """Up to `size` questions that every arm answered: a fixed mix over domains and over who was right.

    `predictions`: lines of predictions.jsonl, each with its "arm". `pair`: (before, after), the arms whose
    comparison gives gained and lost; by default the first and the last. `arm_teachers`: the teachers of an arm's
    traces. `domain_teachers`: the teachers that are asked questions of a domain.
    """
    by_sample: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for prediction in predictions:
        by_sample[prediction["sample_id"]][prediction["arm"]] = prediction
    before, after = pair or (arms[0], arms[-1])
    queues: dict[tuple[int, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        if all(arm in by_sample[sample.id] for arm in arms):
            kind = kind_of(by_sample[sample.id], before, after)
            queues[FAILURES_FIRST.index(kind), sample.domain].append(sample)
    # Turn by turn: the n-th question of every kind and domain before the next of any.
    ordered = [sorted(queues[key], key=lambda sample: sample.id) for key in sorted(queues)]
    chosen = [sample for turn in zip_longest(*ordered) for sample in turn if sample is not None][:size]
    gallery_cards = [
        _card(sample, by_sample[sample.id], arms, before, after, arm_teachers or {}, domain_teachers or {})
        for sample in chosen
    ]
    return sorted(
        gallery_cards,
        key=lambda card: (FAILURES_FIRST.index(card.kind), sum(reply.verdict == RIGHT for reply in card.replies)),
    )


def kind_of(by_arm: Mapping[str, Mapping[str, Any]], before: str, after: str) -> str:
    """Which of two arms is right; the verdict itself if there is only one arm."""
    first, last = by_arm[before]["verdict"], by_arm[after]["verdict"]
    if before == after:
        return str(last)
    if last == RIGHT:
        return BOTH if first == RIGHT else GAINED
    return LOST if first == RIGHT else NEITHER


def _card(
    sample: Sample,
    by_arm: Mapping[str, Mapping[str, Any]],
    arms: Sequence[str],
    before: str,
    after: str,
    arm_teachers: Mapping[str, Sequence[str]],
    domain_teachers: Mapping[str, Sequence[str]],
) -> GalleryCard:
    difficulty = next((by_arm[arm]["difficulty"] for arm in arms if by_arm[arm].get("difficulty") is not None), "")
    return GalleryCard(
        question=sample.question,
        gold=" or ".join(sample.answers),
        domain=sample.domain,
        kind=kind_of(by_arm, before, after),
        images=sample.images,
        difficulty=str(difficulty),
        teachers=tuple(domain_teachers.get(sample.domain, ())),
        replies=tuple(
            CardReply(
                arm=arm,
                answer=by_arm[arm]["answer"],
                verdict=by_arm[arm]["verdict"],
                rationale=by_arm[arm].get("reasoning", ""),
                notes=_notes(by_arm[arm]),
                teachers=tuple(arm_teachers.get(arm, ())),
            )
            for arm in arms
        ),
    )


def _notes(prediction: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if prediction.get("truncated"):
        notes.append("cut off")
    elif not prediction.get("well_formed", True):
        notes.append("malformed")
    if prediction.get("unsupported_values"):
        notes.append("unsupported value")
    if prediction.get("consistent") is False:
        notes.append("answer differs from its rationale")
    return tuple(notes)


def split(text: str, limit: int) -> Text:
    """A long text in two parts at a blank; what lies beyond `limit` is only counted."""
    kept = text[:limit]
    missing = len(text) - len(kept)
    # A rest of a few words is not worth a click.
    if len(kept) <= _HEAD * 1.25 and not missing:
        return Text(head=kept, rest="", missing=0)
    if len(kept) <= _HEAD:
        return Text(head=kept, rest="", missing=missing)
    cut = kept.rfind(" ", _HEAD // 2, _HEAD)
    cut = _HEAD if cut < 0 else cut + 1
    return Text(head=kept[:cut], rest=kept[cut:], missing=missing)


@dataclass(slots=True)
class _Page:
    """A page in the making: what is cut to make it fit."""

    render: Render
    total: int
    cards: tuple[GalleryCard, ...]
    limit: int = _RATIONALE_LIMITS[0]
    album: Album = field(default_factory=Album)

    def draw(self) -> str:
        replies = [reply for card in self.cards for reply in card.replies]
        arm_teachers = sorted({name for reply in replies for name in reply.teachers})
        card_teachers = sorted({name for card in self.cards for name in card.teachers})
        verdicts = {reply.verdict for reply in replies}
        notes = list(self.album.notes)
        if any(len(reply.rationale) > self.limit for reply in replies):
            notes.append(f"Rationales are cut after {self.limit:,} characters; predictions.jsonl has all of them.")
        if len(self.cards) < self.total:
            notes.append(
                f"{len(self.cards):,} of {counted(self.total, 'question is', 'questions are')} shown, to keep the "
                "page small."
            )
        shown = Gallery(
            cards=self.cards,
            total=self.total,
            arms=tuple(dict.fromkeys(reply.arm for reply in replies)),
            domains=tuple(sorted({card.domain for card in self.cards})),
            difficulties=tuple(sorted({card.difficulty for card in self.cards} - {""})),
            kinds=tuple(kind for kind in FAILURES_FIRST if any(card.kind == kind for card in self.cards)),
            teachers=tuple(arm_teachers or card_teachers),
            arms_have_teachers=bool(arm_teachers),
            verdicts=tuple(name for name in (WRONG, UNDECIDED, RIGHT) if name in verdicts),
            album=self.album,
            limit=self.limit,
            notes=tuple(notes),
        )
        return self.render(shown)


def fitted(
    render: Render,
    gallery_cards: Sequence[GalleryCard],
    *,
    max_pixels: int = MAX_PIXELS,
    page_bytes: int = PAGE_BYTES,
) -> str:
    """The page that `render` makes of these cards, at most `page_bytes` long as UTF-8.

    Raises nothing for images that cannot be read any more: they are left out. A page whose other parts are longer
    than `page_bytes` is returned without cards.
    """
    page = _Page(render, len(gallery_cards), tuple(gallery_cards))
    text_bytes = int(page_bytes * _TEXT_SHARE)
    page.album = Album.placeholders(_refs(page.cards))
    for page.limit in _RATIONALE_LIMITS:
        drawn = page.draw()
        if _length(drawn) <= text_bytes:
            break
    while page.cards and _length(drawn) > text_bytes:
        # The last ones are those where nothing failed.
        page.cards = page.cards[: min(len(page.cards) - 1, int(len(page.cards) * text_bytes / _length(drawn)))]
        page.album = Album.placeholders(_refs(page.cards))
        drawn = page.draw()
    refs = _refs(page.cards)
    left = page_bytes - _length(drawn) - _NOMINAL * (len(refs) + 20)
    page.album = album(refs, max(0, left), max_pixels=max_pixels)
    return page.draw()


def _length(text: str) -> int:
    return len(text.encode())


def _refs(gallery_cards: Sequence[GalleryCard]) -> list[tuple[ImageRef, int]]:
    """Every different image of the cards, with the number of cards that show it."""
    refs: dict[str, tuple[ImageRef, int]] = {}
    for card in gallery_cards:
        for ref in card.images[:_IMAGES]:
            refs[ref.sha256] = (ref, refs[ref.sha256][1] + 1 if ref.sha256 in refs else 1)
    return list(refs.values())
