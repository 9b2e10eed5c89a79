# ruff: noqa: E501 - a rationale reads best on one line
"""Rationales about bar charts of the tiny world in many phrasings, with or without one fault.

Written for `benchmarks/grounding/grounding.py`; knows nothing of the extractor.
"""

from teller import Phrasing, Teller, written

BARS: list[Phrasing] = []


def bars(phrasing: Phrasing) -> Phrasing:
    BARS.append(phrasing)
    return phrasing


def _sum(a: str, b: str) -> str:
    return f"What is the sum of the {a} and the {b} bar?"


def _gap(a: str, b: str) -> str:
    return f"How much higher is the {a} bar than the {b} bar?"


RANGE = "What is the highest value minus the lowest value?"
TOTAL = "What is the total of all bars?"


def _high(t: Teller, labels: list[str]) -> tuple[str, str]:
    return max(labels, key=t.v), min(labels, key=t.v)


@bars
def terse_sum(t, a, b, labels):
    return _sum(a, b), f"{t.n(a)} {t.say(a)}, {t.n(b)} {t.say(b)}: {t.say(a)} + {t.say(b)} = {t.r(t.v(a) + t.v(b))}."


@bars
def terse_gap(t, a, b, labels):
    gap = t.r(t.v(a) - t.v(b))
    return _gap(a, b), f"The chart shows {t.n(a)} {t.say(a)}, {t.n(b)} {t.say(b)}: {t.say(a)} - {t.say(b)} = {gap}."


@bars
def running_sum(t, a, b, labels):
    text = ", ".join(f"{t.n(one)} {t.say(one)}" for one in labels) + ". "
    total, steps = t.v(labels[0]), []
    for place, one in enumerate(labels[1:]):
        new = t.r(total + t.v(one), last=place == 2)
        steps.append(f"{total} + {t.say(one)} = {new}")
        total = new
    return TOTAL, text + ", ".join(steps) + "."


@bars
def terse_range(t, a, b, labels):
    high, low = _high(t, labels)
    text = ", ".join(f"{t.n(one)} {t.say(one)}" for one in labels)
    return (
        RANGE,
        f"{text}. high {t.say(high)}, low {t.say(low)}: {t.say(high)} - {t.say(low)} = {t.r(t.v(high) - t.v(low))}.",
    )


@bars
def prose_sum(t, a, b, labels):
    return _sum(a, b), (
        f"The {t.n(a)} bar reaches {t.say(a)} and the {t.n(b)} bar reaches {t.say(b)}. "
        f"Adding them gives {t.r(t.v(a) + t.v(b))}."
    )


@bars
def prose_gap(t, a, b, labels):
    return _gap(a, b), (
        f"Looking at the chart, the height of the {t.n(a)} bar is {t.say(a)}, while the {t.n(b)} one is at {t.say(b)}. "
        f"So the {t.n(a)} bar is {t.r(t.v(a) - t.v(b))} higher."
    )


@bars
def numbered_steps(t, a, b, labels):
    return _sum(a, b), (
        f"Step 1: Find the {t.n(a)} bar. It stands at {t.say(a)}.\nStep 2: Find the {t.n(b)} bar. It stands at {t.say(b)}.\n"
        f"Step 3: Add both: {t.say(a)} + {t.say(b)} = {t.r(t.v(a) + t.v(b))}."
    )


@bars
def numbered_list(t, a, b, labels):
    lines = [f"{number}. {t.n(one).capitalize()}: {t.say(one)}" for number, one in enumerate(labels, 1)]
    total = t.r(sum(t.v(one) for one in labels))
    return TOTAL, "There are 4 bars:\n" + "\n".join(lines) + f"\nThe total is {total}."


@bars
def bullets(t, a, b, labels):
    lines = [f"- **{t.n(one).capitalize()}**: {t.say(one)}" for one in labels]
    plus = " + ".join(t.say(one) for one in labels)
    return TOTAL, "Values of the bars:\n" + "\n".join(lines) + f"\n\n{plus} = {t.r(sum(t.v(one) for one in labels))}"


@bars
def ordinals(t, a, b, labels):
    first, second, third, fourth = labels
    return _sum(a, b), (
        f"The first bar is {t.n(first)} with a value of {t.say(first)}, the second is {t.n(second)} with {t.say(second)}, "
        f"the third is {t.n(third)} with {t.say(third)} and the last is {t.n(fourth)} with {t.say(fourth)}. "
        f"The question asks for {t.n(a)} and {t.n(b)}: {t.r(t.v(a) + t.v(b))}."
    )


@bars
def respectively(t, a, b, labels):
    return _sum(a, b), (
        f"The {t.n(a)} and {t.n(b)} bars are {t.say(a)} and {t.say(b)} respectively, so their sum is {t.r(t.v(a) + t.v(b))}."
    )


@bars
def parenthesised(t, a, b, labels):
    return _gap(
        a, b
    ), f"We subtract {t.n(b)} ({t.say(b)}) from {t.n(a)} ({t.say(a)}), which leaves {t.r(t.v(a) - t.v(b))}."


@bars
def equals_signs(t, a, b, labels):
    return _sum(
        a, b
    ), f"{t.n(a)} = {t.say(a)}\n{t.n(b)} = {t.say(b)}\nsum = {t.say(a)} + {t.say(b)} = {t.r(t.v(a) + t.v(b))}"


@bars
def latex(t, a, b, labels):
    return _sum(a, b), (
        f"From the chart, $\\text{{{t.n(a)}}} = {t.say(a)}$ and $\\text{{{t.n(b)}}} = {t.say(b)}$. "
        f"Hence \\({t.say(a)} + {t.say(b)} = {t.r(t.v(a) + t.v(b))}\\)."
    )


@bars
def ratio(t, a, b, labels):
    return f"What is the ratio of {a} to {b}?", (
        f"{t.n(a).capitalize()} is {t.say(a)}, {t.n(b)} is {t.say(b)}. The ratio is {t.say(a)} / {t.say(b)} = "
        f"{written(round(t.r(t.v(a) / t.v(b)), 2))}."
    )


@bars
def average(t, a, b, labels):
    total = t.r(sum(t.v(one) for one in labels), last=False)
    listed = ", ".join(f"{t.n(one)} at {t.say(one)}" for one in labels)
    return "What is the average of all bars?", (
        f"I read {listed}. The sum is {total}, and divided by 4 the average is {written(t.r(total / 4))}."
    )


@bars
def percent(t, a, b, labels):
    total = sum(t.v(one) for one in labels)
    listed = "; ".join(f"{t.n(one)}: {t.say(one)}" for one in labels)
    return f"What share of the total is the {a} bar?", (
        f"{listed}. Total = {t.r(total, last=False)}. Share of {t.n(a)}: {t.say(a)} / {total} = "
        f"{t.r(round(100 * t.v(a) / total, 1))}%."
    )


@bars
def double_check(t, a, b, labels):
    return _sum(a, b), (
        f"Okay, let me look at the picture. I see 4 bars. The {t.n(a)} one goes up to {t.say(a)}. Then {t.n(b)} goes up to "
        f"{t.say(b)}. Let me double-check: {t.n(a)} is {t.say(a)}, yes. So {t.say(a)} plus {t.say(b)} equals "
        f"{t.r(t.v(a) + t.v(b))}."
    )


@bars
def table(t, a, b, labels):
    lines = "\n".join(f"| {t.n(one)} | {t.say(one)} |" for one in labels)
    total = t.r(sum(t.v(one) for one in labels))
    return TOTAL, f"| bar | value |\n|---|---|\n{lines}\n\nSumming the column gives {total}."


@bars
def extremes(t, a, b, labels):
    high, low = _high(t, labels)
    return RANGE, (
        f"The tallest bar is {t.n(high)} with {t.say(high)}. The shortest bar is {t.n(low)} with {t.say(low)}. "
        f"The difference between them is {t.r(t.v(high) - t.v(low))}."
    )


@bars
def nameless_extremes(t, a, b, labels):
    high, low = _high(t, labels)
    return (
        RANGE,
        f"The maximum value is {t.say(high)} and the minimum value is {t.say(low)}, so {t.say(high)} - {t.say(low)} = {t.r(t.v(high) - t.v(low))}.",
    )


@bars
def left_to_right(t, a, b, labels):
    numbers = [t.say(one) for one in labels]
    return TOTAL, (
        f"From left to right the bars have the values {', '.join(numbers[:-1])} and {numbers[-1]}. "
        f"Their total is {t.r(sum(t.v(one) for one in labels))}."
    )


@bars
def grouped_sum(t, a, b, labels):
    one, two, three, four = labels
    left, right = t.r(t.v(one) + t.v(two), last=False), t.v(three) + t.v(four)
    return TOTAL, (
        f"{t.n(one)} and {t.n(two)} together make {t.say(one)} + {t.say(two)} = {left}; {t.n(three)} and {t.n(four)} make "
        f"{t.say(three)} + {t.say(four)} = {right}. Altogether that is {left} + {right} = {t.r(left + right)}."
    )


@bars
def verbal_running(t, a, b, labels):
    one, two, three, four = labels
    first = t.r(t.v(one) + t.v(two), last=False)
    second = first + t.v(three)
    return TOTAL, (
        f"Start with {t.n(one)} at {t.say(one)}. Adding {t.n(two)}, which is {t.say(two)}, gives {first}. "
        f"Adding {t.n(three)}, which is {t.say(three)}, gives {second}. With {t.n(four)} at {t.say(four)} we get "
        f"{t.r(second + t.v(four))}."
    )


@bars
def question_first(t, a, b, labels):
    return f"If every bar grew by 2, what would the sum of {a} and {b} be?", (
        f"Every bar grows by 2, so {t.n(a)} goes from {t.say(a)} to {t.v(a) + 2} and {t.n(b)} goes from {t.say(b)} to "
        f"{t.v(b) + 2}. {t.v(a) + 2} + {t.v(b) + 2} = {t.r(t.v(a) + t.v(b) + 4)}."
    )


@bars
def threshold(t, a, b, labels):
    above = [one for one in labels if t.v(one) > 5]
    listed = ", ".join(f"{t.n(one)} ({t.say(one)})" for one in labels)
    return "How many bars are higher than 5?", f"The bars are {listed}. Higher than 5: {len(above)} of the 4 bars."


@bars
def year_title(t, a, b, labels):
    return _sum(a, b), (
        f"The chart, which seems to be from 2019, has an axis from 0 to 10. {t.n(a).capitalize()} shows {t.say(a)} and "
        f"{t.n(b)} shows {t.say(b)}, which makes {t.r(t.v(a) + t.v(b))} in total."
    )


@bars
def half_way(t, a, b, labels):
    return _gap(a, b), (
        f"The top of the {t.n(a)} bar lies on the line for {t.say(a)}. The top of the {t.n(b)} bar lies on the line for "
        f"{t.say(b)}. Therefore the difference is {t.say(a)} minus {t.say(b)}, which is {t.r(t.v(a) - t.v(b))}."
    )


@bars
def value_first(t, a, b, labels):
    return (
        _sum(a, b),
        f"There is a value of {t.say(a)} for {t.n(a)} and {t.say(b)} for {t.n(b)}. The answer is {t.r(t.v(a) + t.v(b))}.",
    )


@bars
def json_like(t, a, b, labels):
    listed = ", ".join(f'"{t.n(one)}": {t.say(one)}' for one in labels)
    return (
        TOTAL,
        f"{{{listed}}} -> {' + '.join(t.say(one) for one in labels)} = {t.r(sum(t.v(one) for one in labels))}",
    )


@bars
def arrows(t, a, b, labels):
    return _gap(a, b), f"{t.n(a)} → {t.say(a)}, {t.n(b)} → {t.say(b)}; difference → {t.r(t.v(a) - t.v(b))}"


@bars
def comparison(t, a, b, labels):
    return f"Is {a} higher than {b}?", (
        f"The {t.n(a)} bar has a value of {t.say(a)}. The {t.n(b)} bar has a value of {t.say(b)}. "
        f"Since {t.say(a)} {'>' if t.v(a) > t.v(b) else '≤'} {t.say(b)}, the {t.n(a)} bar is higher, by {t.r(t.v(a) - t.v(b))} units."
    )


@bars
def product(t, a, b, labels):
    return (
        f"What is {a} times {b}?",
        f"{t.n(a)} is at {t.say(a)} and {t.n(b)} at {t.say(b)}, so {t.say(a)} × {t.say(b)} = {t.r(t.v(a) * t.v(b))}.",
    )


@bars
def second_highest(t, a, b, labels):
    ranked = sorted(labels, key=t.v, reverse=True)
    return "What is the second highest bar?", (
        f"Sorted from the highest to the lowest: {', '.join(f'{t.n(one)} ({t.say(one)})' for one in ranked)}. "
        f"The 2nd highest bar is {t.n(ranked[1])}, with a value of {t.say(ranked[1])}."
    )


@bars
def without(t, a, b, labels):
    total = sum(t.v(one) for one in labels)
    return f"What is the total without the {a} bar?", (
        f"All bars: {' + '.join(t.say(one) for one in labels)} = {t.r(total, last=False)}. Without {t.n(a)} ({t.say(a)}): "
        f"{total} - {t.say(a)} = {t.r(total - t.v(a))}."
    )


@bars
def wordy(t, a, b, labels):
    return _gap(a, b), (
        f"To answer this, I need two readings. Reading one: the {t.n(a)} column. Its top edge touches gridline {t.say(a)}, "
        f"so the value is {t.say(a)}. Reading two: the {t.n(b)} column. Its top edge touches gridline {t.say(b)}, so the "
        f"value is {t.say(b)}. Subtracting the second reading from the first one, I get {t.r(t.v(a) - t.v(b))}."
    )


@bars
def possessive(t, a, b, labels):
    return _sum(
        a, b
    ), f"{t.n(a).capitalize()}'s value is {t.say(a)}; {t.n(b)}'s is {t.say(b)}. Together: {t.r(t.v(a) + t.v(b))}."


@bars
def swapped_order(t, a, b, labels):
    return _gap(a, b), f"{t.say(a)} ({t.n(a)}) - {t.say(b)} ({t.n(b)}) = {t.r(t.v(a) - t.v(b))}"


@bars
def answer_tag(t, a, b, labels):
    return _sum(a, b), (
        f"Let's read the values: the {t.n(a)} bar shows {t.say(a)}, and the {t.n(b)} bar shows {t.say(b)}.\n"
        f"Sum: {t.say(a)} + {t.say(b)}.\nAnswer: {t.r(t.v(a) + t.v(b))}"
    )


@bars
def yellow_line(t, a, b, labels):
    return _gap(a, b), (
        f"At first glance the {t.n(b)} bar looks like {t.say(b)}, and it is exactly {t.say(b)} because it ends at the {t.say(b)} "
        f"mark. The {t.n(a)} bar ends at the {t.say(a)} mark. {t.say(a)} - {t.say(b)} = {t.r(t.v(a) - t.v(b))}, so the gap is "
        f"{t.v(a) - t.v(b)}."
    )
