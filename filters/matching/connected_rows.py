"""Union-find over row numbers: pairs are joined one by one; each row knows the smallest row of its group."""

from array import array


class ConnectedRows:
    """Rows in components; at first each is one of its own."""

    def __init__(self, count: int) -> None:
        self._parent = array("q", range(count))

    def root(self, row: int) -> int:
        """The smallest row of the component of a row."""
        parent = self._parent
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    def join(self, row: int, other_row: int) -> None:
        first, second = sorted((self.root(row), self.root(other_row)))
        self._parent[second] = first
