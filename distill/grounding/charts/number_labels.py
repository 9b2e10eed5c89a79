"""Which label a number of a rationale belongs to: the labels named before it, in its row, or directly behind it.

`distill.grounding.check` decides whether the number belongs to this label in the table. Knows English.
"""

from typing import Final

from distill.grounding.charts.chart_table import ChartTable
from distill.grounding.charts.ignored_numbers import is_enumerated
from distill.grounding.charts.number_links import announces_row, find_joiner, label_follows, points_back
from distill.grounding.numbers_in_text import Item, Lead, find_last_break

_MOST_IN_A_ROW: Final = 40
"""Labels of one row that are remembered."""
_LISTED: Final = (",", ";", "and", ", and", "&")


class NamedLabels:
    """The labels that a rationale has named so far, read from left to right."""

    __slots__ = ("chain", "focus", "items", "lower", "paired", "table", "text")

    def __init__(self, text: str, lower: str, items: list[Item], table: ChartTable) -> None:
        self.text, self.lower, self.items, self.table = text, lower, items, table
        self.focus: dict[int, Item] = {}
        """The last label of each axis in this sentence or the one before."""
        self.chain: list[Item] = []
        """The labels directly before, in one row ("A and B")."""
        self.paired: dict[int, Item] = {}
        """The labels of numbers further on, by their index, where a row of labels has a row of numbers behind it."""

    def add(self, item: Item, gap: str, broken: bool) -> None:
        """Remember a label of the table after this stretch of text, `broken` by the end of a sentence."""
        axis = self.table.axis[item.label]
        follows_on = self.chain and self.table.axis[self.chain[-1].label] == axis and not broken and find_joiner(gap)
        self.chain = [*self.chain[-_MOST_IN_A_ROW:], item] if follows_on else [item]
        if broken:
            self.focus = {}
        self.focus[axis] = item

    def values_under(self, label: str, after: Item | None) -> tuple[float, ...]:
        """The values under a label and under that of the other axis that is named with it."""
        allowed = self.table.under[label]
        partner = after or self.focus.get(1 - self.table.axis[label])
        if len(allowed) > 1 and partner is not None and self.table.axis[partner.label] != self.table.axis[label]:
            other_values = set(self.table.under[partner.label])
            return tuple(value for value in allowed if value in other_values) or allowed
        return allowed

    def anchor(self, index: int, gap: str, how: Lead, tail: str, after: Item | None, *, operand: bool) -> Item | None:
        """The label that the number at this index belongs to; `after` is the one directly behind it."""
        if index in self.paired:
            return self.paired.pop(index)
        item = self.items[index]
        if after is not None and self.text[item.end : after.start].strip(" %*") in ("(", "["):
            return None if is_enumerated(self.lower, item) else after
        in_list = (
            after is not None and gap.strip(" *") in _LISTED and label_follows(self.text[item.end : after.start])
        )
        if self.chain and how.tie and not tail and not in_list:
            if operand and not (how.tie == "tight" and gap.strip(" *") in ("", "(", "[", "=", "|")):
                return None
            if len(self.chain) == 1:
                return self.chain[0]
            return self.paired.pop(index) if self._pair(index) else None
        if len(self.chain) > 1 and announces_row(gap) and self._pair(index):
            return self.paired.pop(index)
        if operand or tail or after is None or len(after.label) == 1:
            return None
        beyond = self.items[index + 2] if index + 2 < len(self.items) else None
        alone = beyond is None or beyond.number is not None or not find_joiner(self.text[after.end : beyond.start])
        return after if alone and not how.cue and label_follows(self.text[item.end : after.start]) else None

    def known_label(self, index: int) -> Item | None:
        """The item at this index if it is a label of the table."""
        item = self.items[index] if index < len(self.items) else None
        return item if item is not None and item.number is None and item.in_table else None

    def _pair(self, index: int) -> bool:
        """Pair the numbers from here on with the labels in the row before them, if there are as many."""
        run = [index]
        while len(run) <= len(self.chain) and run[-1] + 1 < len(self.items):
            left, right = self.items[run[-1]], self.items[run[-1] + 1]
            if right.number is None or find_joiner(self.text[left.end : right.start]) not in ("and", ",", "&"):
                break
            run.append(run[-1] + 1)
        if len(run) != len(self.chain):
            return False
        self.paired.update(zip(run, self.chain, strict=True))
        return True

    def is_of_focus(self, gap: str) -> bool:
        """Whether a number without a label is the value of the bar named last ("its value is 8")."""
        if len(self.focus) > 1 or len(self.chain) > 1:
            return False
        return points_back(gap[max(0, find_last_break(gap), len(gap) - 60) :])
