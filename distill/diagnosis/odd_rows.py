"""Findings that need no rule for their fault: answers against gold answers, one group of rows against another."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from distill.diagnosis.answer_relations import (
    Pair,
    mapped,
    other_form,
    relations,
    same_for_different,
    shifted,
    unrelated,
)
from distill.diagnosis.row_features import Features, of_answer
from distill.diagnosis.two_samples import Difference, differences
from distill.reports.findings import Certainty, Finding, is_above, share

SAME: Final = 0.5
"""Share of rows with the reply to another row above which the image cannot have been looked at."""
_TOLD: Final = 2


def of_answers(pairs: Sequence[Pair], who: str, golds: str) -> Iterator[Finding]:
    """Findings about answers (of teachers or a student) compared with gold answers; the pairs in the order of their
    rows.

    `golds` is the key of the recipe where the gold answers come from.
    """
    found = related(pairs, who, golds)
    yield from found
    if not found:
        yield from differing(
            [of_answer(pair.gold) for pair in pairs if pair.gold.strip()],
            [of_answer(pair.answer) for pair in pairs if pair.answer.strip()],
            f"The answers of {who} differ from the gold answers in ",
            name="answers_unlike_gold",
            change=_columns(golds),
        )
        if problem := unrelated(pairs):
            yield Finding(
                name="gold_unrelated", problem=f"Of {who}, {problem}", certainty="possible", change=_columns(golds)
            )


def related(pairs: Sequence[Pair], who: str, golds: str) -> list[Finding]:
    """What relates answers to gold answers. Where all pairs have nothing in common, a group of rows may."""
    if found := [*_related(pairs, who, golds, is_group=False)]:
        return found
    members: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        for group in pair.groups.items():
            members.setdefault(group, []).append(pair)
    for (grouping, value), of_group in sorted(members.items(), key=lambda group: -len(group[1])):
        about = f"{who} about the rows of the {grouping} {value!r}"
        if len(of_group) < len(pairs) and (found := [*_related(of_group, about, golds, is_group=True)]):
            return found
    return []


def _related(pairs: Sequence[Pair], who: str, golds: str, *, is_group: bool) -> Iterator[Finding]:
    # A student that counts one too few of something in a group maps its answers, too.
    as_a_whole = () if is_group else filter(None, [mapped(pairs)])
    for problem in [*relations(pairs, is_group=is_group)] or as_a_whole:
        yield Finding(
            name="answer_relation",
            problem=f"The answers of {who} and their gold answers: {problem}",
            certainty="likely",
            change=_columns(golds),
        )
    if (found := shifted(pairs)) is not None:
        problem, is_own = found
        replies = f"what joins the replies of {who} with their questions, such as the order of the lines of a batch"
        yield Finding(
            name="gold_shifted" if is_own is not False else "replies_shifted",
            problem=f"Of {who}, {problem}",
            certainty="likely",
            change=_columns(golds) if is_own else replies if is_own is False else f"{_columns(golds)}; or {replies}",
        )
    elif problem := other_form(pairs):
        yield Finding(
            name="answers_unlike_gold",
            problem=f"The answers of {who} and their gold answers: {problem}",
            certainty="likely",
            change=f"what asks for the answers (prompt, system, answer format); or {_columns(golds)}",
        )


def _columns(golds: str) -> str:
    return f"{golds}: its columns of question, image and answer; look at rows with `distill view`"


def of_same_replies(asked: Sequence[tuple[str, str, str]], who: str) -> Iterator[Finding]:
    """Whether the replies look at the question alone. Each row: question, gold answer, reply."""
    same, looked_at = same_for_different(asked)
    if is_above(same, looked_at, SAME):
        yield Finding(
            name="same_reply",
            problem=f"{share(same, looked_at, f'replies of {who}')} to a question that other images have too, with "
            "another gold answer, are identical to the reply for the first of these images: the model does not use "
            "the images",
            certainty="likely",
            change=f"the path between the run and {who}: a cache, a server or a model that drops the images",
        )


def differing(
    first: Iterable[Features],
    second: Iterable[Features],
    begin: str,
    *,
    name: str,
    change: str,
    certainty: Certainty = "possible",
    more: Difference | None = None,
) -> Iterator[Finding]:
    """A finding of the features in which the second group differs most from the first, and of one more difference."""
    found = [each.text for each in islice(differences([*first], [*second]), _TOLD)]
    found += [more.text] if more is not None else []
    if found:
        yield Finding(name=name, problem=begin + "; and in ".join(found), certainty=certainty, change=change)
