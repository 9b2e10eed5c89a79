# ruff: noqa: E501 - a rationale reads best on one line
"""Rationales about tables as data sets of natural charts keep them: years, categories, series, shares, large numbers.

Written for `benchmarks/grounding/grounding.py`; knows nothing of the extractor.
"""

import random

from teller import Phrasing, written

COUNTRIES = (
    "Norway",
    "Spain",
    "Germany",
    "South Korea",
    "United States",
    "Brazil",
    "Japan",
    "Kenya",
    "Canada",
    "Peru",
)
FOODS = ("Lamb", "Corn", "Rye", "Beef (US)", "Palm oil", "Wheat", "Rice", "Sugar")
ANSWERS = ("Very satisfied", "Somewhat satisfied", "Not satisfied", "Don't know", "No opinion")
SERIES = ("Favorable", "Unfavorable", "Men", "Women", "Imports", "Exports")
YEARS = tuple(str(year) for year in range(2008, 2022))

LINES: list[Phrasing] = []
"""One series: {label: value}; labels are years, countries or answers."""
GRIDS: list[Phrasing] = []
"""Several series: labels are "row|column"."""


def series(rng: random.Random) -> tuple[dict[str, float], tuple[str, ...], str]:
    """The values of one series, labels that are not in it, and its title."""
    kind = rng.choice(["years", "countries", "foods", "answers"])
    if kind == "years":
        start = rng.randrange(len(YEARS) - 7)
        labels, others = YEARS[start : start + rng.randint(4, 7)], ()
        low, high, digits, title = rng.choice(
            [(20, 90, 1, "Revenue in billion dollars"), (1000, 90000, 0, "Employees")]
        )
    else:
        pool = {"countries": COUNTRIES, "foods": FOODS, "answers": ANSWERS}[kind]
        labels = tuple(rng.sample(pool, min(len(pool) - 1, rng.randint(4, 6))))
        others = tuple(label for label in pool if label not in labels)
        low, high, digits, title = {
            "countries": (2, 70, 2, "Share of population, 2017"),
            "foods": (20, 900, 1, "Prices of food in 2014 (index)"),
            "answers": (3, 60, 0, "How satisfied are you?"),
        }[kind]
    values: dict[str, float] = {}
    while len(set(values.values())) < len(labels):
        values = {label: round(rng.uniform(low, high), digits) for label in labels}
    if not digits:
        values = {label: int(value) for label, value in values.items()}
    return values, others, title


def grid(rng: random.Random) -> tuple[dict[str, float], tuple[str, ...], str]:
    rows = rng.choice([YEARS[2:7], COUNTRIES[:5], YEARS[8:12]])
    start = rng.choice([0, 2, 4])
    values: dict[str, float] = {}
    labels = [f"{row}|{column}" for row in rows for column in SERIES[start : start + 2]]
    while len(set(values.values())) < len(labels):
        values = {label: rng.randint(11, 98) for label in labels}
    return values, (), "Views over time, in %"


def lines(phrasing: Phrasing) -> Phrasing:
    LINES.append(phrasing)
    return phrasing


def grids(phrasing: Phrasing) -> Phrasing:
    GRIDS.append(phrasing)
    return phrasing


@lines
def lookup(t, a, b, labels):
    return (
        f"What is the value of {a}?",
        f"The chart shows the value for {t.n(a)}, which is {t.say(a)}. So the answer is {t.say(a)}.",
    )


@lines
def gap(t, a, b, labels):
    return f"What is the difference between {a} and {b}?", (
        f"First I look for {t.n(a)}: the value is {t.say(a)}. Next, {t.n(b)} has a value of {t.say(b)}. "
        f"The difference is {t.say(a)} - {t.say(b)} = {written(t.r(round(t.v(a) - t.v(b), 2)))}."
    )


@lines
def gap_words(t, a, b, labels):
    return f"By how much does {a} exceed {b}?", (
        f"According to the graph, {t.n(a)} is at about {t.say(a)} and {t.n(b)} at {t.say(b)}. That means {t.n(a)} exceeds "
        f"{t.n(b)} by {written(t.r(round(t.v(a) - t.v(b), 2)))}."
    )


@lines
def mean(t, a, b, labels):
    total = round(sum(t.v(one) for one in labels), 2)
    plus = " + ".join(t.say(one) for one in labels)
    return "What is the average value?", (
        f"To find the average, I add all {len(labels)} values and divide by {len(labels)}.\n{plus} = "
        f"{written(t.r(total, last=False))}\n{written(total)} / {len(labels)} = {t.r(total / len(labels)):.2f}"
    )


@lines
def two_mean(t, a, b, labels):
    total = t.v(a) + t.v(b)
    return f"What is the average of {a} and {b}?", (
        f"{t.n(a)}: {t.say(a)}\n{t.n(b)}: {t.say(b)}\n\nAverage = ({t.say(a)} + {t.say(b)}) / 2 = "
        f"{written(t.r(round(total / 2, 3)))}"
    )


@lines
def peak(t, a, b, labels):
    high, low = max(labels, key=t.v), min(labels, key=t.v)
    return "What is the difference between the largest and the smallest value?", (
        f"The y-axis runs from 0 to {10 ** len(str(int(t.v(high)))):,}. The largest value is {t.say(high)} ({t.n(high)}), and the "
        f"smallest is {t.say(low)} ({t.n(low)}). The difference: {t.say(high)} - {t.say(low)} = "
        f"{written(t.r(round(t.v(high) - t.v(low), 2)))}."
    )


@lines
def ratio(t, a, b, labels):
    return f"What is the ratio of {a} to {b}?", (
        f"1. Value of {t.n(a)}: {t.say(a)}.\n2. Value of {t.n(b)}: {t.say(b)}.\n3. Ratio: {t.say(a)} / {t.say(b)} ≈ "
        f"{t.r(t.v(a) / t.v(b)):.2f}."
    )


@lines
def change(t, a, b, labels):
    return f"What is the percentage change from {b} to {a}?", (
        f"The value for {t.n(b)} was {t.say(b)}; for {t.n(a)} it was {t.say(a)}. The change is ({t.say(a)} - {t.say(b)}) / "
        f"{t.say(b)} × 100 = {t.r(round(100 * (t.v(a) - t.v(b)) / t.v(b), 1))}%."
    )


@lines
def above(t, a, b, labels):
    line = t.true[b]
    many = [one for one in labels if t.v(one) > line]
    return f"How many are above {written(line)}?", (
        f"We need the entries above {written(line)}. They are: {', '.join(f'{t.n(one)} ({t.say(one)})' for one in many) or 'none'}. "
        f"That makes {len(many)} of {len(labels)}."
    )


@lines
def listing(t, a, b, labels):
    return "Which one has the highest value?", (
        "Reading the chart from left to right:\n"
        + "\n".join(f"* {t.n(one)} - {t.say(one)}" for one in labels)
        + f"\nThe highest is {t.n(max(labels, key=t.v))}."
    )


@lines
def ranking(t, a, b, labels):
    ranked = sorted(labels, key=t.v, reverse=True)
    return "What is the third highest value?", (
        f"In descending order: {', '.join(t.say(one) for one in ranked)}. The 3rd value in this list is {t.say(ranked[2])}, "
        f"which belongs to {t.n(ranked[2])}."
    )


@lines
def factor(t, a, b, labels):
    return f"How many times larger is {a} than {b}?", (
        f"{t.n(a)} stands at {t.say(a)}, and {t.n(b)} stands at {t.say(b)}. Dividing the two gives roughly "
        f"{t.r(t.v(a) / t.v(b)):.1f}, so it is about {t.v(a) / t.v(b):.1f} times as large."
    )


@lines
def combined(t, a, b, labels):
    return f"What do {a} and {b} add up to?", (
        f"The question asks for {t.n(a)} and {t.n(b)} combined. In the figure, {t.n(a)} accounts for {t.say(a)}; {t.n(b)} "
        f"accounts for {t.say(b)}. Combined, they account for {written(t.r(round(t.v(a) + t.v(b), 2)))}."
    )


@lines
def remark(t, a, b, labels):
    return f"Is {a} larger than {b}?", (
        f"Okay, so I need to compare two values. The chart seems to have {len(labels)} entries, the source is a survey of 2019 "
        f"with 1,503 people (p. 12, Fig. 3). {t.n(a)} is {t.say(a)}. {t.n(b)} is {t.say(b)}. "
        f"{'Yes' if t.v(a) > t.v(b) else 'No'}, it is {'larger' if t.v(a) > t.v(b) else 'not larger'}."
    )


@lines
def rounded(t, a, b, labels):
    return f"What is the value of {a}, rounded?", (
        f"{t.n(a)} comes to {t.say(a)}, so roughly {round(t.v(a))}. For comparison, {t.n(b)} comes to {t.say(b)}."
    )


@lines
def median(t, a, b, labels):
    ranked = sorted(t.v(one) for one in labels)
    middle = (
        ranked[len(ranked) // 2] if len(ranked) % 2 else (ranked[len(ranked) // 2 - 1] + ranked[len(ranked) // 2]) / 2
    )
    return "What is the median?", (
        f"All values: {'; '.join(f'{t.n(one)} {t.say(one)}' for one in labels)}. Sorted, the median is {written(t.r(middle))}."
    )


def _row(label: str) -> str:
    return label.partition("|")[0]


def _column(label: str) -> str:
    return label.partition("|")[2]


@grids
def grid_lookup(t, a, b, labels):
    return f"What was the {_column(a)} value in {_row(a)}?", (
        f"In {_row(a)}, the {_column(a)} line is at {t.say(a)}%. The answer is {t.say(a)}."
    )


@grids
def grid_gap(t, a, b, labels):
    return f"How far is {_column(a)} in {_row(a)} from {_column(b)} in {_row(b)}?", (
        f"{_column(a)} in {_row(a)}: {t.say(a)}. {_column(b)} in {_row(b)}: {t.say(b)}. The difference is "
        f"|{t.say(a)} - {t.say(b)}| = {abs(t.r(t.v(a) - t.v(b)))}."
    )


@grids
def grid_rows(t, a, b, labels):
    one = [label for label in labels if _row(label) == _row(a)]
    return f"What is the total of {_row(a)}?", (
        f"For {_row(a)}, the values are {' and '.join(f'{t.say(label)} ({_column(label)})' for label in one)}. "
        f"{' + '.join(t.say(label) for label in one)} = {t.r(sum(t.v(label) for label in one))}."
    )


@grids
def grid_series(t, a, b, labels):
    one = [label for label in labels if _column(label) == _column(a)]
    total = sum(t.v(label) for label in one)
    return f"What is the average of {_column(a)}?", (
        f"The {_column(a)} values are: {', '.join(f'{_row(label)}: {t.say(label)}' for label in one)}. Their sum is "
        f"{t.r(total, last=False)}, and the average is {total} / {len(one)} = {written(t.r(round(total / len(one), 2)))}."
    )


@grids
def grid_peak(t, a, b, labels):
    one = [label for label in labels if _column(label) == _column(a)]
    high = max(one, key=t.v)
    return f"When was {_column(a)} highest?", (
        f"Looking at {_column(a)}, the highest point is {t.say(high)}, reached in {_row(high)}. So the answer is {_row(high)}."
    )


@lines
def second_look(t, a, b, labels):
    return f"What was the figure for {a}?", (
        f"Looking at the chart, I can see {len(labels)} categories on the x-axis. The bar corresponding to {t.n(a)} is labeled {t.say(a)}. "
        f"For reference, {t.n(b)}'s bar is labeled {t.say(b)}. So the figure for {t.n(a)} is {t.say(a)}."
    )


@lines
def to_the_next(t, a, b, labels):
    return f"By how much do {a} and {b} differ?", (
        f"**Given:**\n- {t.n(a)}: {t.say(a)}\n- {t.n(b)}: {t.say(b)}\n\n**Calculation:**\n$${t.say(a)} - {t.say(b)} = "
        f"{written(t.r(round(t.v(a) - t.v(b), 2)))}$$\n\n**Answer:** {written(round(t.v(a) - t.v(b), 2))}"
    )


@lines
def top_two(t, a, b, labels):
    one, two = sorted(labels, key=t.v, reverse=True)[:2]
    return "What is the sum of the two largest values?", (
        f"The two largest values belong to {t.n(one)} and {t.n(two)}, with {t.say(one)} and {t.say(two)} respectively. "
        f"Adding these two gives {written(t.r(round(t.v(one) + t.v(two), 2)))}."
    )


@lines
def shares(t, a, b, labels):
    total = round(sum(t.v(one) for one in labels), 2)
    return f"What percentage of the total does {a} make up?", (
        f"Total: {' + '.join(t.say(one) for one in labels)} = {written(t.r(total, last=False))}. {t.n(a)} makes up {t.say(a)} of that, "
        f"i.e. {t.say(a)} / {written(total)} × 100 ≈ {t.r(100 * t.v(a) / total):.1f}%."
    )


@lines
def scan(t, a, b, labels):
    high = max(labels, key=t.v)
    return "Which entry has the largest value?", (
        f"I'll go through the entries one by one: {'; '.join(f'{t.n(one)} has {t.say(one)}' for one in labels)}. "
        f"The maximum of these is {t.say(high)}, so the entry is {t.n(high)}."
    )


@lines
def less_than(t, a, b, labels):
    few = [one for one in labels if t.v(one) < t.true[a]]
    return f"How many entries are below {written(t.true[a])}?", (
        f"Threshold: {written(t.true[a])}. Checking each entry: "
        + ", ".join(f"{t.n(one)} = {t.say(one)} ({'yes' if one in few else 'no'})" for one in labels)
        + f". So {len(few)} entries qualify."
    )


@grids
def grid_compare(t, a, b, labels):
    row, column, other = _row(a), _column(a), next(one for one in labels if _row(one) == _row(a) and one != a)
    return f"In {row}, how do {column} and {_column(other)} compare?", (
        f"In {row}, {column} stood at {t.say(a)} percent, compared with {t.say(other)} percent for {_column(other)}. "
        f"The gap is {abs(t.r(t.v(a) - t.v(other)))} percentage points."
    )


@grids
def grid_change(t, a, b, labels):
    same = [one for one in labels if _column(one) == _column(a)]
    first, last = same[0], same[-1]
    verb = "rose" if t.v(last) > t.v(first) else "fell"
    return f"How did {_column(a)} change from {_row(first)} to {_row(last)}?", (
        f"{_column(a)} was {t.say(first)}% in {_row(first)} and {t.say(last)}% in {_row(last)}, so it {verb} by "
        f"{abs(t.r(t.v(last) - t.v(first)))} points."
    )


@grids
def grid_listing(t, a, b, labels):
    rows = list(dict.fromkeys(_row(one) for one in labels))
    columns = list(dict.fromkeys(_column(one) for one in labels))
    lines = "\n".join(
        f"- {row}: " + ", ".join(f"{column} {t.say(f'{row}|{column}')}%" for column in columns) for row in rows
    )
    return f"What is the total of {_column(a)}?", (
        f"Here are the values:\n{lines}\n\nThe total of {_column(a)} is "
        f"{' + '.join(t.say(f'{row}|{_column(a)}') for row in rows)} = {t.r(sum(t.v(f'{row}|{_column(a)}') for row in rows))}."
    )
