"""What is asked about a picture of the tiny world: several-step questions, one-step questions, captions, and the
rationale each teacher's style would write. Gold answers are computed from the picture's content, never read.
"""

from typing import Any

import numpy as np
from world import BAR_COLOURS, COLOURS, EMPTY, GRID, SHAPES, Picture, Question

Generator = np.random.Generator
ROWS = ("top", "bottom")


def ask(image: Picture, rng: Generator) -> Question:
    """A question that needs several steps."""
    return {"scenes": _ask_scene, "charts": _ask_chart, "digits": _ask_digits}[image.domain](image.content, rng)


def rationale(image: Picture, question: Question, rng: Generator) -> str:
    """The reasoning towards the answer in the style of the domain's teacher; wording varies with `rng`."""
    style = {"scenes": _structured, "charts": _analyst, "digits": _reader}[image.domain]
    return style(image.content, question, rng)


def caption(image: Picture) -> str:
    """Everything the picture shows."""
    if image.domain == "scenes":
        return " ".join(f"Row {row + 1}: {', '.join(cells)}." for row, cells in enumerate(_rows(image.content)))
    if image.domain == "charts":
        return f"{_bars(image.content['bars'])}."
    top, bottom = _digit_rows(image.content)
    return f"{_spaced(top)} / {_spaced(bottom)}."


def sketch(image: Picture) -> list[str]:
    """One word for each of the 16 cells in reading order: what the tower learns to name.

    A chart has the value at the top of each column and the colour at its foot; a cell of no interest is "-".
    """
    content = image.content
    if image.domain == "scenes":
        return [cell if cell == EMPTY else "".join(part[:2] for part in cell.split()) for cell in content["cells"]]
    words = ["-"] * GRID**2
    if image.domain == "charts":
        for column, (colour, value) in enumerate(content["bars"].items()):
            words[column], words[column - GRID] = str(value), colour
    else:
        for digit, (row, column) in zip(content["digits"], content["cells"], strict=True):
            words[row * GRID + column] = str(digit)
    return words


SKETCH_WORDS = (
    "-",
    EMPTY,
    *(str(digit) for digit in range(10)),
    *BAR_COLOURS,
    *(f"{colour[:2]}{shape[:2]}" for colour in COLOURS for shape in SHAPES),
)


# --- scenes: row by row, counting along ----------------------------------------------------------------


def _rows(content: dict[str, Any]) -> list[list[str]]:
    cells = content["cells"]
    return [cells[start : start + GRID] for start in range(0, len(cells), GRID)]


def _counts(content: dict[str, Any], word: str) -> list[int]:
    return [sum(word in cell.split() for cell in row) for row in _rows(content)]


def _ask_scene(content: dict[str, Any], rng: Generator) -> Question:
    words = list(COLOURS) if rng.random() < 0.5 else list(SHAPES)
    first, second = (str(word) for word in rng.choice(words, size=2, replace=False))
    many, few = sum(_counts(content, first)), sum(_counts(content, second))
    if rng.random() < 0.5:
        kind, answer = "total", many + few
        text = f"How many {_things(first)} and {_things(second)} are there in total?"
    else:
        if many < few:
            first, second, many, few = second, first, few, many
        kind, answer = "more", many - few
        text = f"How many more {_things(first)} than {_things(second)} are there?"
    return Question(kind=kind, terms=(first, second), text=text, answer=str(answer))


def _things(word: str) -> str:
    return f"{word} shapes" if word in COLOURS else f"{word}s"


def _seen(cell: str, respect: int) -> str:
    """The colour (0) or the shape (1) in a cell."""
    return cell if cell == EMPTY else cell.split()[respect]


def _structured(content: dict[str, Any], question: Question, rng: Generator) -> str:
    """For each term, row by row: what every cell is in the respect asked for, a running count after each match."""
    respect = 0 if question.terms[0] in COLOURS else 1
    mark = " ->" if rng.random() < 0.5 else ";"
    steps, counts = [], []
    for term in question.terms:
        count = 0
        rows = []
        for number, row in enumerate(_rows(content), start=1):
            words = []
            for cell in row:
                words.append(_seen(cell, respect))
                if words[-1] == term:
                    count += 1
                    words.append(str(count))
            rows.append(f"Row {number}: {' '.join(words)}")
        counts.append(count)
        steps.append(f"{term}{mark} {' '.join(rows)}; {term} {count}.")
    sign = "+" if question.kind == "total" else "-"
    return "\n".join([*steps, f"{counts[0]} {sign} {counts[1]} = {question.answer}."])


# --- charts: read the bars, one line of arithmetic ----------------------------------------------------------------


def _bars(bars: dict[str, int]) -> str:
    return ", ".join(f"{colour} {value}" for colour, value in bars.items())


def _ask_chart(content: dict[str, Any], rng: Generator) -> Question:
    bars: dict[str, int] = content["bars"]
    first, second = (str(colour) for colour in rng.choice(list(bars), size=2, replace=False))
    kind = str(rng.choice(["sum", "difference", "range", "total"]))
    if kind == "sum":
        text, answer = f"What is the sum of the {first} and the {second} bar?", bars[first] + bars[second]
    elif kind == "difference":
        if bars[first] < bars[second]:
            first, second = second, first
        text, answer = f"How much higher is the {first} bar than the {second} bar?", bars[first] - bars[second]
    elif kind == "range":
        text = "What is the highest value minus the lowest value?"
        answer = max(bars.values()) - min(bars.values())
    else:
        text, answer = "What is the total of all bars?", sum(bars.values())
    terms = (first, second) if kind in ("sum", "difference") else ()
    return Question(kind=kind, terms=terms, text=text, answer=str(answer))


def _analyst(content: dict[str, Any], question: Question, rng: Generator) -> str:
    bars: dict[str, int] = content["bars"]
    terse = bool(rng.random() < 0.5)
    if question.kind == "total":
        return f"{_bars(bars)}. {_running_sum(list(bars.values()))}."
    if question.kind == "range":
        high, low = max(bars.values()), min(bars.values())
        extremes = f"high {high}, low {low}" if terse else f"The highest is {high}, the lowest is {low}"
        return f"{_bars(bars)}. {extremes}: {high} - {low} = {question.answer}."
    first, second = question.terms
    sign = "+" if question.kind == "sum" else "-"
    read = _bars({colour: bars[colour] for colour in question.terms})
    lead = read if terse else f"The chart shows {read}"
    return f"{lead}: {bars[first]} {sign} {bars[second]} = {question.answer}."


# --- digits: transcribe everything first, then compute ------------------------------------------------------------


def _digit_rows(content: dict[str, Any]) -> tuple[list[int], list[int]]:
    return content["digits"][:3], content["digits"][3:]


def _spaced(numbers: list[int]) -> str:
    return " ".join(str(number) for number in numbers)


def _running_sum(numbers: list[int]) -> str:
    steps, total = [], numbers[0]
    for number in numbers[1:]:
        steps.append(f"{total} + {number} = {total + number}")
        total += number
    return ", ".join(steps)


def _ask_digits(content: dict[str, Any], rng: Generator) -> Question:
    kind = str(rng.choice(["row", "range", "largest"]))
    rows = dict(zip(ROWS, _digit_rows(content), strict=True))
    digits = content["digits"]
    if kind == "row":
        which = str(rng.choice(ROWS))
        text, answer = f"What is the sum of the digits in the {which} row?", sum(rows[which])
        return Question(kind=kind, terms=(which,), text=text, answer=str(answer))
    if kind == "range":
        text, answer = "What is the largest digit minus the smallest digit?", max(digits) - min(digits)
    else:
        text = "What is the largest digit of the top row plus the largest digit of the bottom row?"
        answer = max(rows["top"]) + max(rows["bottom"])
    return Question(kind=kind, terms=(), text=text, answer=str(answer))


def _reader(content: dict[str, Any], question: Question, rng: Generator) -> str:
    top, bottom = _digit_rows(content)
    read = f"{_spaced(top)} / {_spaced(bottom)}"
    lead = f"The image reads {read}." if rng.random() < 0.5 else f"Transcript: {read}."
    if question.kind == "row":
        (which,) = question.terms
        numbers = top if which == "top" else bottom
        return f"{lead}\nThe {which} row is {_spaced(numbers)}. {_running_sum(numbers)}."
    if question.kind == "range":
        high, low = max(top + bottom), min(top + bottom)
        return f"{lead}\nThe largest is {high}, the smallest is {low}. {high} - {low} = {question.answer}."
    return f"{lead}\nThe largest are {max(top)} and {max(bottom)}. {max(top)} + {max(bottom)} = {question.answer}."


# --- one-step questions: perception, answered directly ------------------------------------------------------------


def perceive(image: Picture, rng: Generator) -> tuple[str, str]:
    """A question that one look answers, and its answer."""
    content = image.content
    if image.domain == "scenes":
        row = int(rng.integers(GRID))
        look = rng.random()
        if look < 0.3:
            return f"What is in row {row + 1}?", ", ".join(_rows(content)[row])
        if look < 0.7:
            respect = int(rng.integers(2))
            return f"Which {('colours', 'shapes')[respect]} are in row {row + 1}?", " ".join(
                _seen(cell, respect) for cell in _rows(content)[row]
            )
        word = str(rng.choice([*COLOURS, *SHAPES]))
        return f"How many {_things(word)} are in row {row + 1}?", str(_counts(content, word)[row])
    if image.domain == "charts":
        if rng.random() < 0.3:
            return "Which values do the bars show?", _bars(content["bars"])
        colour = str(rng.choice(list(content["bars"])))
        return f"What is the value of the {colour} bar?", str(content["bars"][colour])
    which = int(rng.integers(2))
    return f"Which digits are in the {ROWS[which]} row?", _spaced(_digit_rows(content)[which])


def facts(rng: Generator) -> str:
    """One line of plain arithmetic, for a language model that never saw a picture."""
    first, second = int(rng.integers(0, 28)), int(rng.integers(0, 10))
    if rng.random() < 0.5:
        return f"{first} + {second} = {first + second}."
    return f"{max(first, second)} - {min(first, second)} = {abs(first - second)}."


def read_in_order(image: Picture, rng: Generator) -> tuple[str, str]:
    """A question for everything in a chart or in digits, in an order that the question gives, and its answer."""
    content = image.content
    if image.domain == "charts":
        bars: dict[str, int] = content["bars"]
        order = [str(colour) for colour in rng.permutation(list(bars))]
        return f"Read the bars {', '.join(order)}.", _bars({colour: bars[colour] for colour in order})
    rows = dict(zip(ROWS, _digit_rows(content), strict=True))
    order = [str(row) for row in rng.permutation(ROWS)]
    return f"Read the {order[0]} row, then the {order[1]} row.", " / ".join(_spaced(rows[row]) for row in order)
