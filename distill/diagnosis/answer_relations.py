"""How answers relate to gold answers: by a fixed step or factor, by another row, by containment, or not at all.

If most wrong pairs have the same relation, one of the two columns is faulty; this holds for answers of teachers and
of a student.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distill.diagnosis.row_features import form, number_of, words
from distill.reports.findings import FEWEST, is_above, share
from distill.stats.intervals import wilson

MOST: Final = 0.5
"""Share of the wrong pairs that have to share a relation."""
BEYOND_CHANCE: Final = 0.3
_SHIFTS: Final = tuple(shift for size in range(1, 13) for shift in (size, -size))
_ALIGNED: Final = 0.3
_FEWEST_GOLDS: Final = 4
_MAPPED: Final = 300
"""Pairs that are compared with each other."""
_FACTORS: Final = (0.001, 0.01, 0.1, 10.0, 100.0, 1000.0, -1.0)
_UNITS: Final = (0.001, 0.01, 100.0, 1000.0)
_IN_OTHER_UNITS: Final = 0.15
"""Share of the wrong pairs that differ by such a factor: an answer that is wrong otherwise hardly does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One answer with the gold answer of its row."""

    answer: str
    gold: str
    is_right: bool
    groups: Mapping[str, str] = field(default_factory=dict)
    """The groups of its row (distill/diagnosis/row_groups.py)."""
    question: str = ""
    text: str = ""
    """The whole reply."""


def relations(pairs: Sequence[Pair], *, is_group: bool = False) -> Iterator[str]:
    """What most wrong pairs have in common, as sentences; the pairs in the order of their rows.

    A step counts if most of all pairs have it, and not in a group of rows: who reads an image wrongly is often one
    too high or too low in what it counts.
    """
    wrong = _wrong(pairs)
    golds = [pair.gold for pair in wrong]
    counted = Counter(relation for pair in wrong for relation in _related(pair.answer, pair.gold))
    for relation, count in counted.most_common():
        low = wilson(count, len(pairs if relation.is_step else wrong))[0]
        if low <= relation.least or (is_group and relation.is_step):
            continue
        chance = max(_common(wrong, golds[shift:] + golds[:shift], relation) for shift in (1, 2, 3, 5)) / len(wrong)
        if low > chance + min(BEYOND_CHANCE, relation.least):
            one = next(pair for pair in wrong if relation in _related(pair.answer, pair.gold))
            yield f"{relation.text} in {share(count, len(wrong), 'wrong ones')}, such as {_example(one)}"
            return


def other_form(pairs: Sequence[Pair]) -> str:
    """A sentence where most wrong answers have another form than their gold answers; else empty."""
    wrong = _wrong(pairs)
    forms = Counter((form(pair.answer), form(pair.gold)) for pair in wrong)
    for (said, right), count in forms.most_common(1):
        if said != right and wilson(count, len(wrong))[0] > MOST:
            one = next(pair for pair in wrong if (form(pair.answer), form(pair.gold)) == (said, right))
            return (
                f"the answer is {said} where the gold answer is {right} in "
                f"{share(count, len(wrong), 'wrong ones')}, such as {_example(one)}"
            )
    return ""


def mapped(pairs: Sequence[Pair]) -> str:
    """A sentence where gold answers are others than the answers, but the same for the same answer, as numbers of
    classes are; else empty.

    The most frequent gold answer of the other pairs with the same answer is compared with the gold answer of the
    pair. Gold answers of other rows show how often both agree by chance.
    """
    wrong = _wrong(pairs)[:_MAPPED]
    answers, golds = _columns(wrong)
    told = _foretold(answers, golds)
    if not any(told) or len(set(golds)) < _FEWEST_GOLDS:
        return ""
    chance = max(sum(_foretold(answers, golds[shift:] + golds[:shift])) for shift in (1, 2, 3, 5, 7)) / len(wrong)
    if wilson(sum(told), len(wrong))[0] < chance + BEYOND_CHANCE:
        return ""
    return (
        f"in {share(sum(told), len(wrong), 'wrong ones')} the gold answer is another one, but the same for the "
        f"same answer, such as {_example(wrong[told.index(True)])}: class numbers, or another spelling, may replace "
        "the answers"
    )


def _foretold(answers: Sequence[str], golds: Sequence[str]) -> list[bool]:
    """For each pair whether its gold answer is not its answer, and the most frequent one of the others with it."""
    places: dict[str, list[int]] = {}
    for place, answer in enumerate(answers):
        places.setdefault(answer, []).append(place)
    result = []
    for place, (answer, gold) in enumerate(zip(answers, golds, strict=True)):
        others = Counter(golds[other] for other in places[answer] if other != place)
        result.append(gold != answer and bool(others) and others.most_common(1)[0][0] == gold)
    return result


def _wrong(pairs: Sequence[Pair]) -> list[Pair]:
    """The wrong pairs, where they are at least half of all and enough to say something; else none."""
    wrong = [pair for pair in pairs if not pair.is_right and pair.answer.strip() and pair.gold.strip()]
    return wrong if len(wrong) >= FEWEST and 2 * len(wrong) >= len(pairs) else []


def _example(pair: Pair) -> str:
    return f"{pair.answer.strip()[:40]!r} for the gold answer {pair.gold.strip()[:60]!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Relation:
    text: str
    least: float = MOST
    """Share of the wrong pairs that have to share it."""
    is_step: bool = False


def _common(wrong: Sequence[Pair], golds: Sequence[str], relation: _Relation) -> int:
    return sum(relation in _related(pair.answer, gold) for pair, gold in zip(wrong, golds, strict=True))


def _related(answer: str, gold: str) -> set[_Relation]:
    said, right = number_of(answer), number_of(gold)
    if said is not None and right is not None:
        found = set()
        if said != right:
            step = round(right - said, 6)
            found.add(_Relation(text=f"the gold answer is {step:+.6g} away from the answer", is_step=True))
        for factor in _FACTORS:
            if right and said != right and abs(said - right * factor) <= 1e-6 * abs(said):
                least = _IN_OTHER_UNITS if factor in _UNITS else MOST
                found.add(_Relation(text=f"the answer is the gold answer times {factor:g}", least=least))
        return found
    plain, gold = answer.strip().casefold(), gold.strip().casefold()
    if plain == gold:
        return {_Relation(text="the answer has exactly the text of the gold answer")}
    if _contains(gold, plain):
        return {_Relation(text="the gold answer contains the answer beside other text")}
    if _contains(plain, gold):
        return {_Relation(text="the answer contains the gold answer beside other text")}
    return set()


def _contains(text: str, part: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


def shifted(pairs: Sequence[Pair]) -> tuple[str, bool | None] | None:
    """A sentence where answers equal the gold answers of other rows, always so many rows away; and whether the
    replies are about their own question or that of the other row, if their words tell it.
    """
    answers, golds = _columns(pairs)
    equal = sum(map(str.__eq__, answers, golds))
    if len(pairs) < 2 * FEWEST or not answers:
        return None
    counts = {shift: _equal(answers, golds, shift) for shift in _SHIFTS if abs(shift) < len(pairs) // 2}
    shift = max(counts, key=lambda each: counts[each])
    others = sorted(counts.values())
    chance = others[len(others) // 2] / len(pairs)
    low, high = wilson(counts[shift], len(pairs))[0], wilson(equal, len(pairs))[1]
    if low < max(_ALIGNED, high, chance + BEYOND_CHANCE / 2):
        return None
    is_own = is_about_own(pairs, shift)
    rows = f"{abs(shift)} row{'s' if abs(shift) > 1 else ''} {'further on' if shift > 0 else 'before'}"
    moved = {True: "gold answers or images", False: "replies", None: "gold answers, images or replies"}[is_own]
    return (
        f"{share(counts[shift], len(pairs), 'answers')} equal the gold answer of the row {rows}, and "
        f"{share(equal, len(pairs))} that of their own: the {moved} belong to other rows",
        is_own,
    )


def is_about_own(pairs: Sequence[Pair], shift: int) -> bool | None:
    """Whether replies surely share more words with their own question than with that of the row so far away (True),
    or fewer (False). None: neither is sure, as where replies have no words of questions.
    """
    spoken = [frozenset(words(pair.question)) for pair in pairs]
    counted = Counter(word for each in spoken for word in each)
    common = {word for word, count in counted.items() if 2 * count > len(pairs)}
    own = other = 0
    for place, pair in enumerate(pairs):
        if 0 <= place + shift < len(pairs):
            told = frozenset(words(pair.text)) - common
            here, there = (len(told & spoken[each]) for each in (place, place + shift))
            own, other = own + (here > there), other + (there > here)
    if is_above(own, own + other, MOST):
        return True
    return False if is_above(other, own + other, MOST) else None


def unrelated(pairs: Sequence[Pair]) -> str:
    """A sentence if answers equal their own gold answers no more often than gold answers of other rows; else
    empty."""
    answers, golds = _columns(pairs)
    if len(pairs) < 2 * FEWEST:
        return ""
    equal = sum(map(str.__eq__, answers, golds))
    said, right = Counter(answers), Counter(golds)
    chance = sum(count * right[text] for text, count in said.items()) / len(pairs) ** 2
    # Answers of another form than the gold answers cannot equal a gold answer; the form is the reason.
    if chance < 0.01 or wilson(equal, len(pairs))[0] > chance or equal > 1.5 * chance * len(pairs) + 3:
        return ""
    also = "gold answers or images" if is_about_own(pairs, 1) else "gold answers, images or replies"
    return (
        f"{share(equal, len(pairs), 'answers')} equal their gold answers; with the gold answers of other rows it "
        f"would be {100 * chance:.0f} %: {also} belong to other questions, or the model does not see the images"
    )


def same_for_different(asked: Sequence[tuple[str, str, str]]) -> tuple[int, int]:
    """How often the reply to a question is that to an earlier row with the same question and another gold answer, and
    how many such rows there are. Each row: the question, its gold answer, the reply.
    """
    first: dict[str, tuple[str, str]] = {}
    same = looked_at = 0
    for question, gold, reply in asked:
        if not reply.strip():
            continue
        if question not in first:
            first[question] = (gold, reply)
        elif first[question][0] != gold:
            looked_at += 1
            same += first[question][1] == reply
    return same, looked_at


def _columns(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Answers and gold answers without layout, case and the form of numbers."""
    return [_plain(pair.answer) for pair in pairs], [_plain(pair.gold) for pair in pairs]


def _equal(answers: Sequence[str], golds: Sequence[str], shift: int) -> int:
    kept = range(max(0, -shift), min(len(answers), len(answers) - shift))
    return sum(answers[index] == golds[index + shift] for index in kept)


def _plain(text: str) -> str:
    number = number_of(text)
    return text.strip().casefold() if number is None else f"{number:g}"
