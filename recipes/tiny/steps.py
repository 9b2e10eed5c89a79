"""The steps task: a grid of four to eight shapes is a program, and what eight teachers write about it.

The shapes are carried out in reading order on a number that the question gives. They are as easy to read as scenes
are, so the number of steps limits accuracy. Each teacher but two goes wrong in a way of its own (`FAULTS`), often
enough for the filter's rules to matter. Gold answers are computed from the picture's content.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from world import EMPTY, GRID, SHAPES, Picture

Generator = np.random.Generator

NUMBERS: Final = {"red": 1, "blue": 2, "green": 3, "yellow": 4}
STEPS: Final = range(4, 9)
LARGEST: Final = 30
"""No result on the way is above it, or below zero."""
RULE: Final = "circle +, square -, triangle * 2; red 1, blue 2, green 3, yellow 4."
FAULTS: Final = {
    "careful": "none: lists every cell, and computes at every shape",
    "terse": "none: writes the arithmetic alone",
    "slips": "one result is computed wrongly, and used",
    "order": "the rows are carried out from the bottom to the top",
    "misreader": "one shape is read with another colour",
    "contradicts": "the answer is not the last result, or it is right and the last result wrong",
    "verbose": "lists every cell first, computes everything twice, and may check the last step again and again",
    "format": "no closed think block, or no answer after it",
}
FAULT_RATE: Final = {
    "slips": 0.45, "order": 0.6, "misreader": 0.45, "contradicts": 0.5, "verbose": 0.3, "format": 0.5,
}  # fmt: skip
"""Share of its rationales in which a teacher makes its fault."""


def imagine_program(steps: int, rng: Generator) -> tuple[Picture, int]:
    """A grid of so many shapes and the number to start at: the order matters, every result is from 0 to LARGEST."""
    while True:
        cells = [EMPTY] * GRID**2
        for position in rng.choice(len(cells), size=steps, replace=False):
            cells[position] = f"{rng.choice(list(NUMBERS))} {rng.choice(SHAPES, p=(0.4, 0.38, 0.22))}"
        start = int(rng.integers(1, 10))
        results = run_cells(cells, start)
        doubles = any(cell.endswith("triangle") for cell in shapes_of(cells)[1:])
        if doubles and min(results) >= 0 and max(results) <= LARGEST:
            return Picture(domain="scenes", content={"cells": cells}), start


def question_of(start: int) -> str:
    return f"Start at {start}: {RULE} What is the result?"


def shapes_of(cells: list[str]) -> list[str]:
    return [cell for cell in cells if cell != EMPTY]


def run_cells(cells: list[str], start: int) -> list[int]:
    """The start, then the result of every shape in reading order."""
    results = [start]
    for cell in shapes_of(cells):
        results.append(apply_shape(cell, results[-1]))
    return results


def apply_shape(cell: str, value: int) -> int:
    colour, shape = cell.split()
    if shape == "triangle":
        return 2 * value
    return value + NUMBERS[colour] if shape == "circle" else value - NUMBERS[colour]


# --- what teachers write --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a solution says: the cells as they are read, the order of the rows, the results as they are written."""

    cells: list[str]
    results: tuple[int, ...]
    answer: str
    rows: tuple[int, ...] = tuple(range(GRID))
    closed: bool = True
    """Whether its think block is closed."""

    def in_order(self) -> list[str]:
        return [cell for row in self.rows for cell in self.cells[row * GRID : (row + 1) * GRID]]


def solve(cells: list[str], start: int) -> Solution:
    results = tuple(run_cells(cells, start))
    return Solution(cells=cells, results=results, answer=str(results[-1]))


def reply(teacher: str, cells: list[str], start: int, rng: Generator) -> str:
    """A whole reply of a teacher, with its fault as often as FAULT_RATE says."""
    right = solve(cells, start)
    faulty = bool(rng.random() < FAULT_RATE.get(teacher, 0.0))
    solution = _FAULT[teacher](right, rng) if faulty and teacher in _FAULT else right
    text = arithmetic_alone(solution) if teacher == "terse" else cell_by_cell(solution)
    if teacher == "verbose":
        text = f"{_listing(solution)}\n{text}\nOnce more: {arithmetic_alone(solution)}"
        if faulty:
            text += f" So {_equations(solution)[-1]}." * 25
    if not solution.closed:
        return f"<think>\n{text}\n\n{solution.answer}"
    return f"<think>\n{text}\n</think>\n\n{solution.answer}"


def cell_by_cell(solution: Solution) -> str:
    """Every cell, and after each shape its arithmetic: "Row 1: empty, red circle: 7 + 1 = 8, empty, empty." """
    equations = iter(_equations(solution))
    lines = []
    for row in solution.rows:
        cells = solution.cells[row * GRID : (row + 1) * GRID]
        words = [cell if cell == EMPTY else f"{cell}: {next(equations)}" for cell in cells]
        lines.append(f"Row {row + 1}: {', '.join(words)}.")
    return "\n".join(lines)


def arithmetic_alone(solution: Solution) -> str:
    return f"{', '.join(_equations(solution))}."


def _listing(solution: Solution) -> str:
    return " ".join(
        f"Row {row + 1}: {', '.join(solution.cells[row * GRID : (row + 1) * GRID])}." for row in solution.rows
    )


def _equations(solution: Solution) -> list[str]:
    """The arithmetic of every shape, from the results as they are written."""
    equations = []
    for index, cell in enumerate(shapes_of(solution.in_order())):
        before, after = solution.results[index], solution.results[index + 1]
        colour, shape = cell.split()
        step = "* 2" if shape == "triangle" else f"{'+' if shape == 'circle' else '-'} {NUMBERS[colour]}"
        equations.append(f"{before} {step} = {after}")
    return equations


# --- faults ---------------------------------------------------------------------------------------------------------


def _slip(right: Solution, rng: Generator) -> Solution:
    """A result off by a little, and what follows from it; if none can be had above zero, the solution is right."""
    shapes = shapes_of(right.cells)
    for _ in range(50):
        wrong_step = int(rng.integers(len(shapes)))
        results = [right.results[0]]
        for index, cell in enumerate(shapes):
            results.append(apply_shape(cell, results[-1]))
            if index == wrong_step:
                results[-1] += int(rng.choice([-2, -1, 1, 2]))
        if min(results) >= 0:
            return replace(right, results=tuple(results), answer=str(results[-1]))
    return right


def _order(right: Solution, _: Generator) -> Solution:
    """The rows from the bottom to the top, if another answer comes out."""
    upward = replace(right, rows=tuple(reversed(range(GRID))))
    results = tuple(run_cells(upward.in_order(), right.results[0]))
    if results[-1] == right.results[-1] or min(results) < 0:
        return right
    return replace(upward, results=results, answer=str(results[-1]))


def _misread(right: Solution, rng: Generator) -> Solution:
    """One circle or square is read in another colour."""
    places = [index for index, cell in enumerate(right.cells) if cell != EMPTY and not cell.endswith("triangle")]
    for _ in range(50 if places else 0):
        place = int(rng.choice(places))
        colour, shape = right.cells[place].split()
        other = str(rng.choice([name for name in NUMBERS if name != colour]))
        cells = [*right.cells[:place], f"{other} {shape}", *right.cells[place + 1 :]]
        wrong = solve(cells, right.results[0])
        if min(wrong.results) >= 0:
            return wrong
    return right


def _contradict(right: Solution, rng: Generator) -> Solution:
    """Another answer than the last result, or a wrong last result before the right answer."""
    changes = [change for change in (-3, -2, -1, 1, 2, 3) if right.results[-1] + change >= 0]
    other = right.results[-1] + int(rng.choice(changes))
    if rng.random() < 0.5:
        return replace(right, answer=str(other))
    return replace(right, results=(*right.results[:-1], other))


def _break_format(right: Solution, rng: Generator) -> Solution:
    return replace(right, closed=False) if rng.random() < 0.5 else replace(right, answer="")


_FAULT: Final[dict[str, Callable[[Solution, Generator], Solution]]] = {
    "slips": _slip,
    "order": _order,
    "misreader": _misread,
    "contradicts": _contradict,
    "format": _break_format,
}
