"""What is odd about a student's replies and its test, for results that no rule explains.

The test is compared with the rows that were learned, replies with gold answers and learned responses, wrong replies
with right ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from distill.diagnosis import odd_rows
from distill.diagnosis.answer_relations import Pair
from distill.diagnosis.row_features import (
    Features,
    form,
    number_of,
    of_answer,
    of_image,
    of_question,
    of_reply,
    vocabulary,
)
from distill.diagnosis.row_groups import groups_of
from distill.diagnosis.two_samples import of_phrases
from distill.rationale import NO_THINK
from distill.recipe.recipe import Recipe
from distill.reports.findings import Finding, share
from distill.types import ImageRef, Sample
from student.data.rows import TrainingRow
from student.evaluation.learning_gap import figures
from student.evaluation.learning_gap import learning as learning_of
from student.inference.reply_metrics import Prediction

IMAGES: Final = 48
EQUAL: Final = 0.98
"""Share of equal replies from which two students are the same."""


def find(
    recipe: Recipe,
    arm: str,
    replies: Sequence[Prediction],
    learned: Sequence[TrainingRow],
    asked: Sequence[Sample],
    own_replies: Sequence[Prediction] = (),
) -> Iterator[Finding]:
    """The findings about a bad result, the surest first; `learned` may be empty.

    How the test differs from what was learned explains a student that answers its own rows, and none that does not.
    """
    test, learning = f"data.{recipe.eval.data}", learning_of(own_replies, replies)
    for finding in odd_rows.of_answers(pairs_of(replies, asked), arm, test):
        if finding.name != "gold_unrelated" or learning != "not_learned":  # own rows have their gold answers
            yield finding
    yield from odd_rows.of_same_replies(
        [(reply.get("question", ""), reply["gold"][0], reply.get("text", "")) for reply in replies if reply["gold"]],
        arm,
    )
    if learned and asked:
        if learning != "not_learned":
            own_rows = figures(arm, own_replies, replies) if learning == "own_rows_only" else ""
            yield from _test_differs(recipe, learned, asked, own_rows)
        yield from odd_rows.differing(
            (of_reply(row.response) for row in learned),
            (of_reply(reply.get("text", "")) for reply in replies),
            f"The replies of {arm} differ from those that it learned in ",
            name="replies_unlike_learned",
            change="the training of this student, or the mode and the limits under [eval]",
        )
    right, wrong = (
        [_features(reply) for reply in replies if (reply["verdict"] == "correct") is wanted]
        for wanted in (True, False)
    )
    yield from odd_rows.differing(
        right,
        wrong,
        f"The wrong replies of {arm} differ from the right ones in ",
        name="wrong_in_common",
        change=f"{test}, or the training rows: more of this kind; look at some with `distill view`, Students",
    )


def pairs_of(replies: Sequence[Prediction], asked: Sequence[Sample]) -> list[Pair]:
    """The answers of the replies with their gold answers and the groups of their questions."""
    groups = {sample.id: groups_of(sample) for sample in asked}
    return [
        Pair(
            answer=reply["answer"],
            gold=reply["gold"][0],
            is_right=reply["verdict"] == "correct",
            groups=groups.get(reply["sample_id"], {}),
            question=reply.get("question", ""),
            text=reply.get("text", ""),
        )
        for reply in replies
        if reply["gold"]
    ]


def equal_arms(
    arm: str, replies: Sequence[Prediction], others: Mapping[str, Sequence[Prediction]]
) -> Iterator[Finding]:
    """Students before it that reply word for word the same."""
    for name, before in others.items():
        same = sum(reply["text"] == other["text"] for reply, other in zip(replies, before, strict=True))
        if replies and same >= EQUAL * len(replies):
            yield Finding(
                name="same_student",
                problem=f"{share(same, len(replies), f'replies of {arm}')} are word for word those of {name}: the "
                "stages between the two changed nothing",
                certainty="likely",
                change="eval.arms, or the stages between the two: learning rate, steps and trained parts",
            )


def _test_differs(
    recipe: Recipe, learned: Sequence[TrainingRow], asked: Sequence[Sample], own_rows: str
) -> Iterator[Finding]:
    """Questions, gold answers and images of the test against those that were learned.

    `own_rows`: the figures of a student that answers its learned rows far better than the test, else empty.
    """
    known = vocabulary(row.question for row in learned[::2])
    answers = [row.response[slice(*row.answer)] for row in learned if row.answer[1]]
    begin = f"{own_rows}{'; the' if own_rows else 'The'} test differs from the training rows in "
    change = (
        f"data.{recipe.eval.data}, or the training rows: both need the same kinds of questions, answers and images"
    )
    texts = [each.question.removesuffix(NO_THINK) for each in asked]  # a setting has its own finding
    questions = [of_question(text, known) for text in texts]
    groups = (
        ([of_question(row.question, known) for row in learned[1::2]], questions),
        ([of_answer(answer) for answer in answers], [of_answer(each.answers[0]) for each in asked if each.answers]),
        (_images(recipe, [row.images for row in learned]), _images(recipe, [each.images for each in asked])),
    )
    phrase = of_phrases("questions with", [row.question for row in learned], texts)
    for name, (first, second) in zip(("question", "answer", "image"), groups, strict=True):
        yield from odd_rows.differing(
            first,
            second,
            begin,
            name=f"test_{name}_differs",
            change=change,
            certainty="likely" if own_rows or name == "image" or (name == "question" and phrase) else "possible",
            more=phrase if name == "question" else None,
        )


def _images(recipe: Recipe, images: Sequence[Sequence[ImageRef]]) -> list[Features]:
    shown = [refs for refs in images if refs]
    step = max(1, len(shown) // IMAGES)
    limit = recipe.data[recipe.eval.data].max_pixels
    return [
        features | {"the number of images": str(len(refs))}
        for refs in shown[::step]
        if (features := dict(of_image(refs[0], max_pixels=limit)))
    ]


def _features(reply: Prediction) -> Features:
    tokens, gold = reply.get("rationale_tokens"), reply["gold"][0] if reply["gold"] else ""
    return {
        "the domain": reply["domain"],
        "the type of the answer": reply["answer_type"],
        "the tokens of the rationale": float(tokens) if tokens is not None else None,
        "the form of the gold answer": form(gold),
        "the value of the gold answer": number_of(gold),
        **of_question(reply.get("question", "")),
    }
