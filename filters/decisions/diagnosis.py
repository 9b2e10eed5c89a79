"""What is wrong or good about a run's traces and its dataset: rules that turn counts into findings.

A rule gives a finding where the 95 % interval (Wilson) of its share is beyond its limit. The checks of the selected
dataset have warnings of their own (filters/decisions/dataset_checks.py).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from distill.diagnosis.lost_groups import LostGroup, findings_of, lost_groups
from distill.recipe.sections.data import ASKED
from distill.recipe.usual_values import unusual_values
from distill.reports import unusual_settings
from distill.reports.findings import FEWEST, Finding, is_above, is_below, is_explained, share
from distill.stats.intervals import wilson
from distill.word_tables import counted
from filters.decisions import odd_traces
from filters.decisions.diagnosis_facts import TraceFacts
from filters.decisions.row_steps import rule_step

MANY: Final = 0.2
"""From this share of traces on, a fault of their form, or duplicates, are a finding."""
WEAK: Final = 0.3
GOOD: Final = 0.5
"""A teacher with a smaller share of correct answers is weak; one with a larger share is good."""
LOST: Final = 0.4
"""Share of the correct traces that one rule alone may drop."""
ONE_ANSWER: Final = 0.8
_OF_OUTCOME: Final = {
    "error": "teachers.{teacher}: `distill explain` shows the errors, such as a context that is too short",
    "empty_answer": "teachers.{teacher}.sampling.stop, or its prompt: the text ends before an answer",
    "repetition": "teachers.{teacher}.sampling: a higher temperature or a repetition penalty, or another model",
}
_OWN: Final = {"exact_duplicate", "question_duplicate", "contaminated", "incomplete", "bad_format", "arithmetic_slip"}
"""Default rules that have a more precise finding."""
_WRONG: Final = ("teachers_weak", "teacher_wrong", "few_traces")
_EXPLAINED: Final = {
    **dict.fromkeys(("gold_shifted", "replies_shifted", "images_coarse"), _WRONG),
    "answers_unlike_gold": (*_WRONG, "gold_or_images"),
    "replies_go_on": ("traces_cut",),
}
"""Findings that follow from a likely one: of wrong answers, of replies that reach the limit."""


def diagnose(facts: TraceFacts) -> list[Finding]:
    """All findings, in the order of causes: an earlier one may explain a later one."""
    lost = lost_groups(facts.steps)
    faults = [
        *_failed_parts(facts),
        *_outcomes(facts),
        *_copies(facts),
        *_weightless(facts),
        *_teachers(facts),
        *_hints(facts),
        *_gold(facts),
        *_leaked(facts),
        *_duplicates(facts),
        *_strict_rules(facts, {each.after.step for each in lost}),
        *_few_traces(facts),
        *_one_answer(facts),
    ]
    total, asked = facts.funnel.total, facts.funnel.total["asked"]
    odd = [*_general(facts, faults, lost)]
    effects = {name for each in odd if each.certainty != "possible" for name in _EXPLAINED.get(each.name, ())}
    faults = [*odd, *(fault for fault in faults if fault.name not in effects)]
    good = Finding(
        name="dataset",
        kind="good",
        problem=f"The dataset holds {counted(total['selected'], 'trace')}; the rules keep "
        f"{share(total['kept'], asked)}, and "
        f"{share(facts.questions['kept'], facts.questions['asked'], 'questions')} have one",
    )
    return faults or ([good] if total["selected"] else [])


def _general(facts: TraceFacts, faults: Sequence[Finding], lost: Sequence[LostGroup]) -> Iterator[Finding]:
    """Unusual parts of the run, independent of its faults; `possible` findings only if no certain fault explains the
    result."""
    settings = unusual_values(facts.recipe, f"data.{ASKED}", "teachers", "generate", "filter")
    explained, is_bad = is_explained(faults), _is_bad(facts, faults)
    results = [*odd_traces.odd_results(facts.judged)] if is_bad else []
    odd = [
        *unusual_settings.findings_of(settings, is_bad=is_bad and not explained),
        *odd_traces.odd_figures(facts.judged),
        *results,
        *(each for each in findings_of(() if explained else lost) if is_bad or each.certainty != "possible"),
        *(_largest_loss(facts) if results else ()),
    ]
    yield from (finding for finding in odd if not explained or finding.certainty != "possible")


def _is_bad(facts: TraceFacts, faults: Sequence[Finding]) -> bool:
    """Whether something is wrong, many questions keep no trace, or few traces of a teacher are complete or right."""
    parts = [(facts.questions["kept"], facts.questions["asked"])]
    for count in facts.teachers.values():
        parts += [(count["complete"], count["asked"]), (count["correct"], count["judged"])]
    return bool(faults) or any(is_below(part, whole, GOOD) for part, whole in parts)


def _largest_loss(facts: TraceFacts) -> Iterator[Finding]:
    """The rule that drops most of the traces."""
    if not facts.funnel.rules:
        return
    name, count = max(facts.funnel.rules.items(), key=lambda rule: rule[1])
    drops = {rule.name: rule.drop for rule in facts.recipe.filter.rules}
    if name in drops and is_above(count, facts.funnel.total["asked"], LOST):
        yield Finding(
            name="largest_loss",
            problem=f"Most traces are lost by the rule {name}: {share(count, facts.funnel.total['asked'])}",
            certainty="possible",
            change=f'filter.rules, name = "{name}", drop = "{drops[name]}"; or the cause of these traces',
        )


def _failed_parts(facts: TraceFacts) -> Iterator[Finding]:
    """Signals and answer types that fail on many traces: rules do not see their values."""
    for part in facts.failed:
        if is_above(part.count, part.of, MANY):
            yield Finding(
                name="part_failed",
                problem=f"{part.what} failed on {share(part.count, part.of, 'traces')}, {part.effect}",
                certainty="certain",
                change=part.change,
            )


def _outcomes(facts: TraceFacts) -> Iterator[Finding]:
    """Teachers many of whose requests gave no answer."""
    for name, (outcome, count) in facts.outcomes.items():
        if is_above(count, facts.teachers[name]["asked"], MANY):
            yield Finding(
                name="no_answer",
                problem=f"{share(count, facts.teachers[name]['asked'], f'traces of {name}')} have no answer: their "
                f"outcome is {outcome!r}",
                change=_OF_OUTCOME.get(outcome, f"generate.outcomes.{outcome}: another policy").format(teacher=name),
            )


def _copies(facts: TraceFacts) -> Iterator[Finding]:
    """Teachers that give the same trace again and again, because they do not draw their tokens."""
    for teacher in facts.recipe.teachers:
        count = facts.copies.get(teacher.name, 0)
        asked = facts.teachers.get(teacher.name, {}).get("asked", 0)
        if teacher.samples > 1 and not teacher.sampling.temperature and is_above(count, asked, MANY):
            yield Finding(
                name="copies",
                problem=f"{share(count, asked, f'traces of {teacher.name}')} repeat another one of their question",
                change=f"teachers.{teacher.name}.sampling.temperature, now 0: some 0.8, or samples = 1",
            )


def _weightless(facts: TraceFacts) -> Iterator[Finding]:
    """Right traces that count for nothing."""
    selected = facts.funnel.total["selected"]
    if is_above(facts.weightless, selected, MANY):
        yield Finding(
            name="weightless",
            problem=f"{share(facts.weightless, selected, 'selected traces')} have the weight 0: they teach nothing",
            change=f'filter.select.weight, now "{facts.recipe.filter.select.weight}": an expression above 0',
        )


def _teachers(facts: TraceFacts) -> Iterator[Finding]:
    """Teachers whose traces end too early, have another form, or are wrong where other teachers are right."""
    settings = {teacher.name: teacher for teacher in facts.recipe.teachers}
    faults: dict[str, list[tuple[str, Mapping[str, int]]]] = {}
    for name, count in facts.teachers.items():
        if is_above(count["declined"], count["asked"], MANY):
            faults.setdefault("declined", []).append((name, count))
        if is_above(count["foreign_language"], count["spoken"], MANY):
            faults.setdefault("foreign", []).append((name, count))
        if is_above(count["cut"], count["asked"], MANY):
            faults.setdefault("cut", []).append((name, count))
        formed = max(count["unformed"], count["untold"])
        if is_above(formed, count["complete"], MANY):
            faults.setdefault("form", []).append((name, count))
    if declined := faults.get("declined"):
        yield Finding(
            name="teacher_declines",
            problem=f"{_sum(declined, 'declined', 'asked', 'traces')} decline to answer",
            change=f"teachers.{declined[0][0]}.prompt or system: look at them with `distill view`; or another model",
        )
    if foreign := faults.get("foreign"):
        yield Finding(
            name="teacher_language",
            problem=f"{_sum(foreign, 'foreign_language', 'spoken', 'rationales')} are in another "
            "language than their questions",
            change=f"teachers.{foreign[0][0]}.system: ask for that language; or a rule on language_differs",
            certainty="likely",
        )
    if cut := faults.get("cut"):
        teacher = settings.get(cut[0][0])
        now = f", now {teacher.sampling.max_tokens}" if teacher is not None else ""
        yield Finding(
            name="traces_cut",
            problem=f"{_sum(cut, 'cut', 'asked', 'traces')} reach the token limit without an answer",
            change=f"teachers.{cut[0][0]}.sampling.max_tokens{now}: raise it, or set thinking_budget",
        )
    if form := faults.get("form"):
        untold, complete = (sum(count[name] for _, count in form) for name in ("untold", "complete"))
        kind = "untold" if is_above(untold, complete, MANY) else "unformed"
        what = "have no rationale apart from the answer" if kind == "untold" else "have a wrong form"
        yield Finding(
            name="teacher_format",
            problem=f"{_sum(form, kind, 'complete', 'complete traces')} {what}",
            change=f"teachers.{form[0][0]}.reasoning or its prompt: it must write its reasoning in think tags or in "
            "the field of the server",
        )
    if not (form or cut or declined):
        yield from _weak_teachers(facts)


def _weak_teachers(facts: TraceFacts) -> Iterator[Finding]:
    weak = [
        (name, count) for name, count in facts.teachers.items() if is_below(count["correct"], count["judged"], WEAK)
    ]
    others = [count for count in facts.teachers.values() if is_above(count["correct"], count["judged"], GOOD)]
    if weak and others and not _is_text_refused(facts):
        domains = next((teacher.domains for teacher in facts.recipe.teachers if teacher.name == weak[0][0]), ())
        where = f" or, if it is right, the gold answers of {', '.join(domains)}" if domains else ""
        yield Finding(
            name="teacher_wrong",
            problem=f"Only {_sum(weak, 'correct', 'judged', 'answers')} are correct; others are right "
            f"in {share(sum(c['correct'] for c in others), sum(c['judged'] for c in others))}",
            change=f'the [[teachers]] block with name = "{weak[0][0]}": another model, or other domains{where}',
        )


def _hints(facts: TraceFacts) -> Iterator[Finding]:
    """Teachers that are shown the gold answer, and invent readings of the image that lead to it."""
    if is_above(*facts.speaks_of_hint, MANY):
        names = [teacher.name for teacher in facts.recipe.teachers if teacher.hinted]
        yield Finding(
            name="hints_told",
            problem=f"{share(*facts.speaks_of_hint, 'rationales of ' + ', '.join(names))} mention the answer that "
            "was shown to the teacher: the student learns to refer to an answer that it does not see",
            change=f"teachers.{names[0] if names else 'NAME'}.prompt: ask it to reason as if it did not know the "
            "answer; or leave out its hinted",
        )
    hinted, others = facts.unseen.get(True), facts.unseen.get(False)
    if hinted is None:
        return
    if others is not None and others.checked >= FEWEST:
        most = wilson(others.unseen, others.checked)[1]
        compared = f"; without it, {share(others.unseen, others.checked)} do"
    else:
        most, compared = MANY, ""
    if is_above(hinted.unseen, hinted.checked, most):
        yield Finding(
            name="hints_guess",
            problem=f"{share(hinted.unseen, hinted.checked, 'traces of ' + ', '.join(hinted.teachers))}, shown the "
            f"gold answer, state values that are not in the image{compared}: a student learns to guess",
            change=f"teachers.{hinted.teachers[0]}.hinted, now true: show {{cues}} in its prompt instead of "
            "{answer}, or drop such traces by a rule on unsupported_values or ocr_verdict",
            certainty="likely",
        )


def _is_text_refused(facts: TraceFacts) -> bool:
    return is_above(*facts.same_text, MANY)


def _gold(facts: TraceFacts) -> Iterator[Finding]:
    """Answers that equal the gold answer but are refused; gold answers that no teacher gives, or every question."""
    if facts.told:
        yield Finding(
            name="answer_in_question",
            problem=facts.told,
            change=f"data.{ASKED}.columns.question: another column, or clean its texts",
            certainty="likely",
        )
    every = list(facts.teachers.items())
    judged, correct = (sum(count[name] for _, count in every) for name in ("judged", "correct"))
    refused = judged - correct
    asked = max((teacher.samples for teacher in facts.recipe.teachers), default=0)
    other_type = f"data.{ASKED}: the answer_type of its rows does not fit their answers"
    if facts.wrongly_typed:
        yield from (Finding(name="answer_type", problem=each, change=other_type) for each in facts.wrongly_typed)
    elif _is_text_refused(facts) and is_above(refused, judged, MANY):
        same, looked = facts.same_text
        yield Finding(
            name="answer_type",
            problem=f"{share(same, looked, 'refused answers')} have exactly the text of the gold answer",
            change=other_type,
        )
    elif is_below(correct, judged, WEAK) and (agreed := sum(count["agreed"] for _, count in every)) * 2 > refused:
        yield Finding(
            name="gold_or_images",
            problem=f"Only {share(correct, judged, 'answers')} are correct, although in "
            f"{share(agreed, refused, 'others')} the teachers agree on another answer: images or gold answers belong "
            "to other questions",
            change=f"data.{ASKED}: its columns for image, question and answer; look at traces with `distill view`",
            certainty="likely",
        )
    elif is_below(correct, judged, WEAK / 2):
        yield Finding(
            name="teachers_weak",
            problem=f"Only {share(correct, judged, 'answers')} are correct, and "
            + (
                "the teachers do not agree"
                if asked > 1
                else "one trace a question does not tell whether teachers agree"
            ),
            certainty="possible",
            change="[[teachers]]: a larger model; or the images do not reach it",
        )


def _leaked(facts: TraceFacts) -> Iterator[Finding]:
    leaked, asked = facts.questions["leaked"], facts.questions["asked"]
    stages = facts.recipe.stages
    tested, trained = (
        facts.recipe.eval.data,
        {ASKED, *(name for stage in stages for name in (stage.data, *stage.replay))},
    )
    if tested in trained:
        yield Finding(
            name="leaked",
            problem=f"The students are tested with [data.{tested}], which they also learn from",
            change=f'eval.data, now "{tested}": a source that nothing trains on',
        )
    elif leaked:
        sets = ", ".join(f"data.{name}" for name in facts.leaked_from) or f"data.{tested}"
        yield Finding(
            name="leaked",
            problem=f"{share(leaked, asked, 'training questions')} are in a test set with their images",
            change=f"{sets}.source: split by image (`distill split`), or leave these rows out",
        )


def _duplicates(facts: TraceFacts) -> Iterator[Finding]:
    count = facts.questions
    if is_above(count["doubled"], count["asked"], MANY):
        yield Finding(
            name="duplicates",
            problem=f"{share(count['doubled'], count['asked'], 'questions')} repeat another one with its images",
            change="data.questions.source: it holds rows more than once; "
            'with "question" in filter.signals, the rule question_duplicate drops them',
        )


def _strict_rules(facts: TraceFacts, named: Collection[str]) -> Iterator[Finding]:
    """Rules that drop correct traces, except the `named` steps, which have a finding about one group of rows."""
    correct = facts.funnel.total["correct"]
    rules = {rule.name: rule.drop for rule in facts.recipe.filter.rules}
    if is_above(slips := facts.correct_alone.get("arithmetic_slip", 0), correct, LOST):
        yield Finding(
            name="arithmetic_slips",
            problem=f"{share(slips, correct, 'correct traces')} are dropped for a slip in their written arithmetic",
            change="[[teachers]]: another model, or a prompt that asks it to check its steps (`distill view`)",
        )
    for name, count in facts.correct_alone.items():
        if rule_step(name) not in named and name in rules and name not in _OWN and is_above(count, correct, LOST):
            yield Finding(
                name="rule_drops",
                problem=f"The rule {name} alone drops {share(count, correct, 'correct traces')}",
                change=f'filter.rules, name = "{name}", drop = "{rules[name]}": weaken it (`distill view`, Policy)',
            )


def _few_traces(facts: TraceFacts) -> Iterator[Finding]:
    """Questions without a correct trace that would have one with more traces."""
    asked, kept = facts.questions["asked"], facts.questions["kept"]
    judged, correct = (sum(count[name] for count in facts.teachers.values()) for name in ("judged", "correct"))
    if not facts.recipe.teachers:
        return  # a recipe may filter traces whose teachers it does not name
    teacher = max(facts.recipe.teachers, key=lambda teacher: teacher.samples)
    most = teacher.samples
    rate = correct / judged if judged else 0.0
    if most <= 2 and is_below(kept, asked, 0.6) and WEAK < rate < 0.7 and not facts.questions["leaked"]:
        yield Finding(
            name="few_traces",
            problem=f"Only {share(kept, asked, 'questions')} keep a trace: a teacher gives {most}, and "
            f"{100 * rate:.0f} % are correct",
            change=f"teachers.{teacher.name}.samples, now {most}: with 4, at most "
            f"about {100 * (1 - (1 - rate) ** 4):.0f} % of the questions have a correct one",
            certainty="likely",
        )


def _one_answer(facts: TraceFacts) -> Iterator[Finding]:
    answer, count, total = facts.answers
    if is_above(count, total, ONE_ANSWER):
        yield Finding(
            name="one_answer",
            problem=f"{share(count, total, 'selected traces')} have the answer {answer!r}: a student learns to give "
            "it without looking at the image",
            change="filter.select.mix: take every answer equally often, or add questions with other answers",
        )


def _sum(teachers: Sequence[tuple[str, Mapping[str, int]]], part: str, whole: str, what: str) -> str:
    part_sum, whole_sum = (sum(of[key] for _, of in teachers) for key in (part, whole))
    return share(part_sum, whole_sum, f"{what} of {', '.join(name for name, _ in teachers)}")
