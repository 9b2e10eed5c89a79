# ruff: noqa: E501 - a rationale reads best on one line
"""More phrasings about bar charts, written after the extractor was finished: what it does on what it was not made for.

Written for `benchmarks/grounding/grounding.py`, whose first run on them is in the log; knows nothing of the extractor.
"""

from rationales import RANGE, TOTAL
from teller import Phrasing, Teller, written

LATER: list[Phrasing] = []


def later(phrasing: Phrasing) -> Phrasing:
    LATER.append(phrasing)
    return phrasing


@later
def thinking_aloud(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is {a} plus {b}?", (
        f"Hmm, let me see. The user is asking about {t.n(a)} and {t.n(b)}. In the image, {t.n(a)} seems to be {t.say(a)}... yes, "
        f"counting the lines it is {t.say(a)}. And {t.n(b)}? That one is {t.say(b)}. Okay, {t.say(a)} + {t.say(b)} is "
        f"{t.r(t.v(a) + t.v(b))}. I'm confident."
    )


@later
def count_lines(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"How tall is the {a} bar compared to the {b} bar?", (
        f"Counting gridlines from the bottom, the {t.n(a)} bar spans {t.say(a)} of them, and the {t.n(b)} bar spans {t.say(b)}. "
        f"Hence {t.n(a)} is taller by {t.r(t.v(a) - t.v(b))}."
    )


@later
def given_that(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What do {a} and {b} sum to?", (
        f"Given that {t.n(a)} has a height of {t.say(a)} and {t.n(b)} has a height of {t.say(b)}, the requested sum equals "
        f"{t.r(t.v(a) + t.v(b))}."
    )


@later
def headed_sections(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    lines = "\n".join(f"   - {t.n(one).capitalize()} bar: {t.say(one)} units" for one in labels)
    return TOTAL, (
        f"### Step 1: Read the chart\n{lines}\n\n### Step 2: Compute\n   {' + '.join(t.say(one) for one in labels)} = "
        f"**{t.r(sum(t.v(one) for one in labels))}**"
    )


@later
def code_style(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is {a} minus {b}?", (
        f"values = {{{', '.join(f'{t.n(one)!r}: {t.say(one)}' for one in labels)}}}\n"
        f"result = values[{t.n(a)!r}] - values[{t.n(b)!r}] = {t.r(t.v(a) - t.v(b))}"
    )


@later
def colour_then_dash(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    high, low = max(labels, key=t.v), min(labels, key=t.v)
    return RANGE, (
        f"Bars: {', '.join(f'{t.n(one)}–{t.say(one)}' for one in labels)}. Max: {t.say(high)}. Min: {t.say(low)}. "
        f"Range: {t.r(t.v(high) - t.v(low))}."
    )


@later
def reaching_up(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is the average of {a} and {b}?", (
        f"The {t.n(a)} column extends up to {t.say(a)} on the scale, whereas the {t.n(b)} column extends up to {t.say(b)}. "
        f"Their average is ({t.say(a)} + {t.say(b)}) / 2 = {written(t.r((t.v(a) + t.v(b)) / 2))}."
    )


@later
def one_after_another(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    total, said = t.v(labels[0]), [f"We begin with {t.say(labels[0])} ({t.n(labels[0])})."]
    for place, one in enumerate(labels[1:]):
        total = t.r(total + t.v(one), last=place == 2)
        said.append(f"Plus {t.say(one)} ({t.n(one)}) is {total}.")
    return TOTAL, " ".join(said)


@later
def let_variables(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"How many units higher is {a} than {b}?", (
        f"Let x be the value of the {t.n(a)} bar and y the value of the {t.n(b)} bar. From the chart, x = {t.say(a)} and y = {t.say(b)}. "
        f"Then x - y = {t.say(a)} - {t.say(b)} = {t.r(t.v(a) - t.v(b))}."
    )


@later
def percent_higher(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"By what percentage is {a} higher than {b}?", (
        f"{t.n(a).capitalize()} measures {t.say(a)}; {t.n(b)} measures {t.say(b)}. ({t.say(a)} - {t.say(b)}) / {t.say(b)} = "
        f"{t.r(round((t.v(a) - t.v(b)) / t.v(b), 3)):.3f}, i.e. {t.r(round(100 * (t.v(a) - t.v(b)) / t.v(b), 1))}%."
    )


@later
def fraction_of(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    total = t.r(sum(t.v(one) for one in labels), last=False)
    return f"What fraction of the total is {a}?", (
        f"The four bars are {t.n(labels[0])} ({t.say(labels[0])}), {t.n(labels[1])} ({t.say(labels[1])}), {t.n(labels[2])} "
        f"({t.say(labels[2])}) and {t.n(labels[3])} ({t.say(labels[3])}), {total} in all. So {t.n(a)} makes up {t.say(a)}/{total} of it."
    )


@later
def ranked_list(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    ranked = sorted(labels, key=t.v, reverse=True)
    return "Which bar is the second tallest?", (
        "Ranking the bars:\n"
        + "\n".join(f"#{place} {t.n(one)} = {t.say(one)}" for place, one in enumerate(ranked, 1))
    )


@later
def twice(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is twice the {a} bar plus the {b} bar?", (
        f"The {t.n(a)} bar: {t.say(a)}. Twice that is {t.r(2 * t.v(a), last=False)}. The {t.n(b)} bar: {t.say(b)}. "
        f"Sum: {2 * t.v(a)} + {t.say(b)} = {t.r(2 * t.v(a) + t.v(b))}."
    )


@later
def hedged_looks(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is the combined height of {a} and {b}?", (
        f"The {t.n(a)} bar looks to be at the level of {t.say(a)}, and next to it I find the {t.n(b)} bar at the level of {t.say(b)}. "
        f"Combined height: {t.r(t.v(a) + t.v(b))}."
    )


@later
def whereas(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"Which is larger, {a} or {b}?", (
        f"Comparing heights, we have {t.say(a)} for the {t.n(a)} bar versus {t.say(b)} for the {t.n(b)} bar, a difference of "
        f"{t.r(t.v(a) - t.v(b))}. {t.n(a).capitalize()} is larger."
    )


@later
def correction(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is {a} + {b}?", (
        f"The first thing to find is {t.n(a)}, whose bar climbs to {t.say(a)}. Wait, is that right? Yes, the bar ends exactly at {t.say(a)}. "
        f"The second thing is {t.n(b)}, whose bar climbs to {t.say(b)}. The total of both: {t.r(t.v(a) + t.v(b))}."
    )


@later
def excluded(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    rest = [one for one in labels if one != a]
    return f"What is the sum of all bars except {a}?", (
        f"Leaving out {t.n(a)}, the remaining bars are {t.n(rest[0])} with {t.say(rest[0])}, {t.n(rest[1])} with {t.say(rest[1])} and "
        f"{t.n(rest[2])} with {t.say(rest[2])}. Summing up: {t.say(rest[0])} + {t.say(rest[1])} + {t.say(rest[2])} = "
        f"{t.r(sum(t.v(one) for one in rest))}."
    )


@later
def parity(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    even = [one for one in labels if t.v(one) % 2 == 0]
    return "How many bars have an even value?", (
        f"Values: {', '.join(f'{t.n(one)}={t.say(one)}' for one in labels)}. Even ones: "
        f"{', '.join(t.say(one) for one in even) or 'none'}. Count: {len(even)}."
    )


@later
def terse_arrow(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return (
        f"{a} + {b} = ?",
        f"{t.n(a)}={t.say(a)};{t.n(b)}={t.say(b)} => {t.say(a)}+{t.say(b)}={t.r(t.v(a) + t.v(b))}",
    )


@later
def long_prose(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    one, two, three, four = labels
    return TOTAL, (
        f"This is a simple bar chart with four differently coloured bars. Starting on the left, there is a {t.n(one)} bar with a height of {t.say(one)}. "
        f"To its right stands a {t.n(two)} bar, which has a height of {t.say(two)}. The third bar, coloured {t.n(three)}, rises to {t.say(three)}. "
        f"Finally, the {t.n(four)} bar on the far right rises to {t.say(four)}. To get the total of all bars, I add up the heights of all 4 bars, which "
        f"gives a total of {t.r(t.v(one) + t.v(two) + t.v(three) + t.v(four))}."
    )


@later
def legend_first(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"How much do {a} and {b} add up to?", (
        f"I identify the {t.n(a)} bar and estimate its height: {t.say(a)}. I do the same for the {t.n(b)} bar: {t.say(b)}. "
        f"The addition {t.say(a)} + {t.say(b)} yields {t.r(t.v(a) + t.v(b))}."
    )


@later
def both_are(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is the difference of {a} and {b}?", (
        f"For the {t.n(a)} bar I get {t.say(a)}, for the {t.n(b)} bar {t.say(b)}. This is a difference of {t.r(t.v(a) - t.v(b))}."
    )


@later
def all_four(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    names = ", ".join(t.n(one) for one in labels[:-1]) + f" and {t.n(labels[-1])}"
    numbers = ", ".join(t.say(one) for one in labels[:-1]) + f" and {t.say(labels[-1])}"
    return (
        TOTAL,
        f"The bars {names} have values of {numbers}, respectively. The overall total comes to {t.r(sum(t.v(one) for one in labels))}.",
    )


@later
def the_one_that(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    high, low = max(labels, key=t.v), min(labels, key=t.v)
    return RANGE, (
        f"Among these, {t.n(high)} is the largest, at {t.say(high)}, and {t.n(low)} is the smallest, at {t.say(low)}. "
        f"Their difference equals {t.say(high)} − {t.say(low)} = {t.r(t.v(high) - t.v(low))}."
    )


@later
def therefore_latex(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is {b} subtracted from {a}?", (
        f"**{t.n(a).capitalize()}** $\\rightarrow$ {t.say(a)}\n**{t.n(b).capitalize()}** $\\rightarrow$ {t.say(b)}\n"
        f"$$\\Delta = {t.say(a)} - {t.say(b)} = {t.r(t.v(a) - t.v(b))}$$"
    )


@later
def restated(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is the sum of {a} and {b}?", (
        f"We need {t.n(a)} + {t.n(b)}. Reading the picture, {t.n(a)} = {t.say(a)} and {t.n(b)} = {t.say(b)}; substituting, we have "
        f"{t.say(a)} + {t.say(b)}, and that is {t.r(t.v(a) + t.v(b))}. So the final answer: {t.v(a) + t.v(b)}."
    )


@later
def mean_of_three(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    three = labels[:3]
    total = t.r(sum(t.v(one) for one in three), last=False)
    return "What is the mean of the first three bars?", (
        f"The first three bars are {', '.join(t.n(one) for one in three)}; their heights are {', '.join(t.say(one) for one in three)}. "
        f"The sum is {total} and the mean {total}/3 ≈ {t.r(total / 3):.2f}."
    )


@later
def bar_by_bar(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    said = [f"Bar {place} ({t.n(one)}) has height {t.say(one)}." for place, one in enumerate(labels, 1)]
    return TOTAL, " ".join(said) + f" Adding everything up I obtain {t.r(sum(t.v(one) for one in labels))}."


@later
def value_is_at(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"What is {a} multiplied by {b}?", (
        f"The value at {t.n(a)} is {t.say(a)} while the value at {t.n(b)} is {t.say(b)}; multiplying the two values results in "
        f"{t.r(t.v(a) * t.v(b))}."
    )


@later
def above_the_other(t: Teller, a: str, b: str, labels: list[str]) -> tuple[str, str]:
    return f"By how many units does {a} exceed {b}?", (
        f"{t.n(a).capitalize()} tops out at {t.say(a)}. {t.n(b).capitalize()} tops out at {t.say(b)}. That puts {t.n(a)} "
        f"{t.r(t.v(a) - t.v(b))} units above {t.n(b)}."
    )
