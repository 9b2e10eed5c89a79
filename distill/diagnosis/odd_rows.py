"""Findings that need no rule for their fault: answers against gold answers, one group of rows against another."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from distill.diagnosis.answer_relations import Pair, relations, same_for_different, shifted, unrelated
from distill.diagnosis.row_features import Features, of_answer
from distill.diagnosis.two_samples import differences
from distill.reports.findings import Certainty, Finding, is_above, share

SAME: Final = 0.5
"""Share of rows with the reply to another row above which the image cannot have been looked at."""
_TOLD: Final = 2


def of_answers(pairs: Sequence[Pair], who: str, golds: str) -> Iterator[Finding]:
    """What relates the answers of someone to gold answers; the pairs in the order of their rows.

    `golds` is the key of the recipe where the gold answers come from.
    """
    change = f"{golds}: its columns of question, image and answer; look at rows with `distill view`"
    for problem in relations(pairs):
        yield Finding(
            name="answer_relation",
            problem=f"The answers of {who} and their gold answers: {problem}",
            certainty="likely",
            change=change,
        )
    if problem := shifted(pairs):
        yield Finding(name="gold_shifted", problem=f"Of {who}, {problem}", certainty="likely", change=change)
        return
    yield from differing(
        [of_answer(pair.gold) for pair in pairs if pair.gold.strip()],
        [of_answer(pair.answer) for pair in pairs if pair.answer.strip()],
        f"The answers of {who} differ from the gold answers in ",
        name="answers_unlike_gold",
        change=change,
    )
    if problem := unrelated(pairs):
        yield Finding(name="gold_unrelated", problem=f"Of {who}, {problem}", certainty="possible", change=change)


def of_same_replies(asked: Sequence[tuple[str, str, str]], who: str) -> Iterator[Finding]:
    """Whether the replies look at the question alone. Each row: question, gold answer, reply."""
    same, looked_at = same_for_different(asked)
    if is_above(same, looked_at, SAME):
        yield Finding(
            name="same_reply",
            problem=f"{share(same, looked_at)} replies of {who} to a question that other images have too, with "
            "another gold answer, are word for word those to the first of them: the images are not looked at",
            certainty="likely",
            change=f"whatever stands between the run and {who}: a cache, a server or a model that drops the images",
        )


def differing(
    first: Iterable[Features],
    second: Iterable[Features],
    begin: str,
    *,
    name: str,
    change: str,
    certainty: Certainty = "possible",
) -> Iterator[Finding]:
    """A finding of the features in which the second group differs most from the first."""
    found = [each.text for each in islice(differences([*first], [*second]), _TOLD)]
    if found:
        yield Finding(name=name, problem=begin + "; and in ".join(found), certainty=certainty, change=change)
