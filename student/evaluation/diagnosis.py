"""What is wrong or good about a student: rules that turn its replies and metrics into findings.

A rule gives one where the 95 % interval (Wilson) of its share is beyond its limit.
student/evaluation/error_breakdown.py says in one sentence what limits a student that works.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from distill.diagnosis import odd_rows, usual_figures
from distill.diagnosis.odd_images import OddImages
from distill.diagnosis.row_groups import StepRows
from distill.diagnosis.usual_figures import TextRow
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, learns_rationales, lineage
from distill.recipe.usual_values import UnusualValue, unusual_values
from distill.reports import unusual_settings
from distill.reports.findings import FEWEST, Finding, is_above, is_explained, share
from distill.reports.gold_faults import wrongly_typed
from distill.types import Sample
from distill.word_tables import counted
from student.data.rows import TrainingRow
from student.evaluation import learning_gap, odd_replies, untrained_groups
from student.evaluation.untrained_groups import RunRows, weakest_group
from student.inference.reply_metrics import Prediction

MANY: Final = 0.1
"""Share of replies that are cut off or have a wrong form."""
SAME_TEXT: Final = 0.2
UNDECIDED: Final = 0.2
"""Share of replies that the judge cannot compare with their gold answers; some one in ten is usual."""
BARE: Final = 0.5
LOOK: Final = 0.05
"""Points of accuracy that the images must be able to give."""
WEAK: Final = 0.5
"""Accuracy that is surely below this: a student this weak whose images show no gain is likely blind."""
COLLAPSED: Final = 0.25
"""Points by which the most frequent answer is more frequent than any gold answer."""
WIDE: Final = 0.06
"""Width of the interval of a difference above which more questions are worth asking."""
_OF_EVAL: Final = "unusual eval."
LONG: Final = 1.5
"""Median rationale over the rationales that were learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentFacts:
    """The figures that the rules read."""

    recipe: Recipe
    arm: str
    metrics: Mapping[str, Any]
    """Metrics of the arm, from metrics.json."""
    deltas: Mapping[str, Any]
    """The paired differences of the arm to those before it, by their names."""
    replies: Sequence[Prediction]
    learned_tokens: float | None
    """Mean tokens of a response of its last stage's own rows; None where no stage made it."""
    rows_left: Sequence[StepRows] = ()
    """The rows that are left after each step of the filter."""
    trained: Sequence[StepRows] = ()
    """The traces that the student's stages have trained; empty where they are not known."""
    learned: Callable[[], Sequence[TrainingRow]] = lambda: ()
    """Reads some of the rows that this stage learned from."""
    learned_replies: Sequence[Prediction] = ()
    """The replies to rows that it learned, judged by the answers that it learned."""
    tokens_right: float | None = None
    """Share of the last tokens that its stage trained for which the right one was the likeliest."""
    asked: Sequence[Sample] = ()
    """The questions, in the order of their source."""
    others: Mapping[str, Sequence[Prediction]] = field(default_factory=dict)
    """The replies of the students before it."""
    odd_images: Sequence[OddImages] = ()
    """Faults of the images of the questions."""


def diagnose(facts: StudentFacts) -> list[Finding]:
    """All findings about one student; causes come before their effects."""
    of_data = [*_settings(facts), *_images(facts), *_judging(facts), *_untrained(facts), *_forgotten(facts)]
    sight = [] if of_data else _sight(facts)
    faults = [*of_data, *_form(facts), *_collapse(facts), *sight, *_length(facts)] or [*_worse(facts)]
    found = [*_general(facts, faults), *faults]
    is_named = any(finding.name.startswith(("test_", _OF_EVAL)) for finding in found)
    learning = [] if is_named else [*_learning(facts, is_bad=bool(faults) or _is_bad(facts))]
    if any(finding.kind == "fault" for finding in (*found, *learning)):
        return [*found, *learning]
    return [_verdict(facts), *learning, *weakest_group(facts.arm, facts.replies, facts.asked)]


def _is_bad(facts: StudentFacts) -> bool:
    """Whether the student answers surely less than half right, and is surely better than no student before it."""
    ahead = any(delta["ci95"][0] > 0 for delta in facts.deltas.values())
    return facts.metrics["ci95"][1] < WEAK and not ahead


def _learning(facts: StudentFacts, *, is_bad: bool) -> Iterator[Finding]:
    """What the replies to rows that it learned say of a result that no difference of the test explains."""
    if (stage := _stage(facts)) is None:
        return
    own = facts.learned_replies
    yield from learning_gap.of_own_rows(
        facts.arm, stage, own, facts.replies, facts.learned(), test=facts.recipe.eval.data, is_bad=_is_bad(facts)
    )
    if is_bad:
        yield from learning_gap.of_no_learning(facts.arm, stage, own, facts.replies, facts.tokens_right)


def _general(facts: StudentFacts, faults: Sequence[Finding]) -> Iterator[Finding]:
    """Unusual parts of the student and its test, independent of its faults; `possible` findings only if no certain
    fault explains the result.
    """
    explained, recipe = is_explained(faults), facts.recipe
    is_bad = bool(faults) or _is_bad(facts)
    test = f"data.{recipe.eval.data}"
    odd = [
        *_odd_settings(facts, is_bad=is_bad),
        *usual_figures.of_questions([*map(TextRow.of_question, facts.asked)], test),
        *odd_replies.equal_arms(facts.arm, facts.replies, facts.others),
        *(
            odd_replies.find(recipe, facts.arm, facts.replies, facts.learned(), facts.asked, facts.learned_replies)
            if is_bad
            else odd_rows.related(odd_replies.pairs_of(facts.replies, facts.asked), facts.arm, test)
        ),
    ]
    yield from (finding for finding in odd if not explained or finding.certainty != "possible")


def _odd_settings(facts: StudentFacts, *, is_bad: bool) -> Iterator[Finding]:
    """Findings of settings; those of the evaluation are likely where the student answers the rows that it learned."""
    is_learned = learning_gap.learning(facts.learned_replies, facts.replies) == "own_rows_only"
    for found in unusual_settings.findings_of(_unusual(facts, is_bad=is_bad), is_bad=is_bad):
        yield replace(found, certainty="likely") if is_learned and found.name.startswith(_OF_EVAL) else found


def _unusual(facts: StudentFacts, *, is_bad: bool) -> list[UnusualValue]:
    """Settings of the evaluation outside their usual range; for a bad result, also settings of the earlier stages."""
    recipe, stage = facts.recipe, _stage(facts)
    settings = unusual_values(recipe, "eval", f"data.{recipe.eval.data}")
    if not is_bad:
        return settings
    before = lineage(recipe.stages, stage.name) if stage is not None else ()
    earlier = unusual_values(recipe, "teachers", "filter", "student", *(f"stages.{each.name}" for each in before))
    # The stage of a setting that is far out has named it.
    return [*settings, *(each for each in earlier if not unusual_settings.is_far(each))]


def _stage(facts: StudentFacts) -> Stage | None:
    """The stage of the recipe that trained the student, if one did."""
    return next((stage for stage in facts.recipe.stages if stage.name == facts.metrics.get("stage")), None)


def _settings(facts: StudentFacts) -> Iterator[Finding]:
    """Settings with which no student can give the learned replies."""
    recipe = facts.recipe
    if recipe.stages and _stage(facts) is None:
        yield Finding(
            name="no_trained_arm",
            problem=f"No arm of the evaluation is a student that a stage of the recipe trained; {facts.arm} is none",
            change=f'eval.arms: add one, such as distilled = "{recipe.stages[-1].name}"',
            certainty="likely",
        )


def _forgotten(facts: StudentFacts) -> Iterator[Finding]:
    """Rationales that an earlier stage taught, and that a later one without rationales took away."""
    if (stage := _stage(facts)) is None:
        return
    *before, last = lineage(facts.recipe.stages, stage.name)
    taught = [each.name for each in before if learns_rationales(each)]
    bare = sum(not reply["reasoning"] for reply in facts.replies)
    if taught and not learns_rationales(last) and is_above(bare, len(facts.replies), BARE):
        yield Finding(
            name="forgotten",
            problem=f"{share(bare, len(facts.replies), f'replies of {facts.arm}')} have no rationale: its last "
            f"stage, {last.name}, has none to learn, and took away what {taught[-1]} taught",
            change=f"stages.{last.name}: replay traces in it, lower its learning rate, or leave it out",
            certainty="likely",
        )


def _images(facts: StudentFacts) -> Iterator[Finding]:
    for found in facts.odd_images:
        yield Finding(
            name=f"test_{found.name}",
            problem=f"{share(found.count, found.looked_at, 'test images')} {found.about}",
            change=f"data.{facts.recipe.eval.data}: its image column or images_root; {found.change}",
        )


def _judging(facts: StudentFacts) -> Iterator[Finding]:
    """Gold answers of another type than their rows state; replies that equal the gold answer but are refused."""
    golds = ((reply["gold"][0], reply["answer_type"]) for reply in facts.replies if reply["gold"])
    change = f"data.{facts.recipe.eval.data}: the answer_type of its rows does not fit their answers"
    if problems := list(wrongly_typed(golds)):
        yield from (Finding(name="answer_type", problem=problem, change=change) for problem in problems)
        return
    undecided = [reply for reply in facts.replies if reply["verdict"] == "undecided"]
    same = [
        reply
        for reply in facts.replies
        if reply["verdict"] != "correct"
        and reply["answer"].strip().casefold() in {gold.strip().casefold() for gold in reply["gold"]}
    ]
    if is_above(len(same), len(facts.replies), SAME_TEXT):
        kind = Counter(reply["answer_type"] for reply in same).most_common(1)[0][0]
        yield Finding(
            name="answer_type",
            problem=f"{share(len(same), len(facts.replies), f'replies of {facts.arm}')} have exactly the text of the "
            f"gold answer, but the judge does not accept them as {kind}",
            change=change,
        )
    elif is_above(len(undecided), len(facts.replies), UNDECIDED):
        one = undecided[0]
        yield Finding(
            name="replies_undecided",
            problem="The judge cannot decide on "
            f"{share(len(undecided), len(facts.replies), f'replies of {facts.arm}')}, such as "
            f"{one['answer'][:40]!r} for the gold answer {one['gold'][0][:60]!r}",
            change=f"data.{facts.recipe.eval.data}: gold answers as short as the student's, or their answer_type",
            certainty="likely",
        )


def _untrained(facts: StudentFacts) -> Iterator[Finding]:
    """Groups of questions of which the student has trained nothing."""
    if facts.trained:
        rows = RunRows.of(facts.rows_left, facts.trained)
        yield from untrained_groups.find(facts.arm, facts.replies, facts.asked, rows, is_bad=_is_bad(facts))


def _form(facts: StudentFacts) -> Iterator[Finding]:
    """Replies that are cut off, do not end, or have no closed think block."""
    replies, limit = facts.replies, facts.recipe.eval.max_new_tokens
    cut = [reply for reply in replies if reply["truncated"]]
    if is_above(len(cut), len(replies), MANY):
        went_on = [reply for reply in cut if reply["reasoning"] and reply["answer"]]
        if 2 * len(went_on) > len(cut):
            yield Finding(
                name="chat_template",
                problem=f"{share(len(went_on), len(replies), f'replies of {facts.arm}')} give an answer and then "
                f"continue to the limit of {counted(limit, 'token')}: the student did not learn how a turn ends",
                change="[student] model: its chat_template must end a turn with the end token of its tokenizer",
                certainty="likely",
            )
        elif facts.learned_tokens is None or limit < 2 * facts.learned_tokens:
            learned = f"; it learned replies of {facts.learned_tokens:.0f} tokens" if facts.learned_tokens else ""
            yield Finding(
                name="replies_cut",
                problem=f"{share(len(cut), len(replies), f'replies of {facts.arm}')} are cut off at {limit:,} "
                f"tokens{learned}",
                change=f"eval.max_new_tokens, now {limit:,}: raise it",
            )
        else:
            yield Finding(
                name="replies_endless",
                problem=f"{share(len(cut), len(replies), f'replies of {facts.arm}')} do not end within {limit:,} "
                f"tokens, although it learned replies of {facts.learned_tokens:.0f}",
                change="the training of this student: it has too few steps or too high a learning rate",
                certainty="likely",
            )
    unformed = [reply for reply in replies if not reply["well_formed"] and not reply["truncated"]]
    if is_above(len(unformed), len(replies), MANY):
        yield Finding(
            name="replies_unformed",
            problem=f"{share(len(unformed), len(replies), f'replies of {facts.arm}')} have no closed think block "
            "with an answer",
            change="the training of this student: more steps, or filter.rationale if its traces have another form",
            certainty="likely",
        )


def _collapse(facts: StudentFacts) -> Iterator[Finding]:
    """One answer to most questions."""
    total = len(facts.replies)
    answers = Counter(reply["answer"].strip() for reply in facts.replies if reply["answer"].strip())
    if not answers:
        return
    answer, count = answers.most_common(1)[0]
    golds = Counter(reply["gold"][0].strip() for reply in facts.replies if reply["gold"])
    most = golds.most_common(1)[0][1] / total if golds else 0.0
    learned = [reply["gold"][0].strip() for reply in facts.learned_replies]
    taught = learned.count(answer)
    if is_above(count, total, most + COLLAPSED):
        is_taught = len(learned) < FEWEST or is_above(taught, len(learned), most)
        yield Finding(
            name="one_answer",
            problem=f"{facts.arm} answers {answer[:40]!r} to {share(count, total, 'questions')}; the most frequent "
            f"gold answer has {100 * most:.0f} %",
            change="filter.select.mix: take every answer equally often, so that none can be guessed"
            if is_taught
            else f"the training of this student: only {share(taught, len(learned), 'rows that it learned')} have "
            "this answer",
        )


def _sight(facts: StudentFacts) -> Iterator[Finding]:
    """Images that change nothing."""
    unseen = facts.metrics.get("without_image") or {}
    gain = unseen.get("gain")
    if not gain or unseen["n"] < 2 * FEWEST or unseen["accuracy"] > 1 - LOOK:  # such questions need no image
        return
    if learning_gap.learning(facts.learned_replies, facts.replies) == "own_rows_only":
        return  # what it answers of its own rows, it sees
    right = unseen["n"] * (2 * unseen["accuracy"] + gain["delta"])  # with and without images, together
    sure = (
        gain["ci95"][1] < LOOK and right >= FEWEST
    )  # if a student is never right, its replies do not show whether it uses the image
    if sure or (gain["delta"] < LOOK and gain["ci95"][0] <= 0 and facts.metrics["ci95"][1] < WEAK):
        yield Finding(
            name="blind",
            problem=f"{facts.arm} is right in {100 * (unseen['accuracy'] + gain['delta']):.0f} % with the images and "
            f"in {100 * unseen['accuracy']:.0f} % without them: it does not see them",
            certainty="likely" if sure else "possible",
            change="[student]: its vision tower and projector (weights lost in a conversion, or a projector that no "
            "stage trains); and the image column of the training data",
        )


def _length(facts: StudentFacts) -> Iterator[Finding]:
    lengths = [reply["rationale_tokens"] for reply in facts.replies if reply.get("rationale_tokens")]
    if len(lengths) < FEWEST or not facts.learned_tokens:
        return
    if (middle := statistics.median(lengths)) > LONG * facts.learned_tokens:
        yield Finding(
            name="long_rationales",
            problem=f"The rationales of {facts.arm} have {middle:.0f} tokens in the median; learned ones have "
            f"{facts.learned_tokens:.0f} with their answers",
            change="filter.select.order: take the shorter of a question's correct traces first",
            certainty="likely",
        )


def _worse(facts: StudentFacts) -> Iterator[Finding]:
    """A finding for a student that is significantly worse than an earlier one."""
    losses = {name: delta["delta"] for name, delta in facts.deltas.items() if delta["ci95"][1] < 0}
    if losses:
        against = " and ".join(f"{-100 * delta:.0f} points less than {name}" for name, delta in losses.items())
        yield Finding(
            name="worse",
            problem=f"{_accuracy(facts)}, {against}",
            change="the traces or the training of this student: `distill view`, Students, shows what only "
            f"{next(iter(losses))} has right",
        )


def _too_few(questions: int) -> str:
    return "one question is too little" if questions == 1 else f"{questions:,} questions are too few"


def _accuracy(facts: StudentFacts) -> str:
    low, high = facts.metrics["ci95"]
    return f"{facts.arm} is right in {100 * facts.metrics['accuracy']:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def _verdict(facts: StudentFacts) -> Finding:
    """Good news where the student is surely better than every earlier one; else what the questions do not decide."""
    better, undecided = [], []
    for name, delta in facts.deltas.items():
        low, high = (100 * end for end in delta["ci95"])
        points = f"{100 * delta['delta']:+.0f} points"
        if low > 0:
            better.append(f"{points} over {name}")
        else:
            undecided.append((high - low, f"{name} ({points} [{low:+.0f}, {high:+.0f}])"))
    problem = _accuracy(facts) + (f", {' and '.join(better)}" if better else "")
    more = f"data.{facts.recipe.eval.data}: some hundred questions" if len(facts.replies) < FEWEST else ""
    if not undecided:
        name = "few_questions" if more else "student"
        return Finding(name=name, kind="good" if better else "open", problem=problem, change=more)
    wide = max(width for width, _ in undecided) > 100 * WIDE
    return Finding(
        name="undecided",
        kind="open",
        problem=f"{problem}; {_too_few(len(facts.replies))} to decide whether it is better than "
        f"{' and than '.join(text for _, text in undecided)}",
        change=f"data.{facts.recipe.eval.data}: four times as many questions halve such an interval" if wide else "",
    )
