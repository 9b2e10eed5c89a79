"""Columns of ids become numpy arrays and back, whatever their lengths and wherever a slice of them begins."""

import numpy as np
import pyarrow as pa
import pytest

from filters.tables.id_columns import digest_array, ids_of, split_rows, text_array

EQUAL, UNEQUAL = [b"0a", b"1b", b"2c", b"3d"], [b"0a", b"1", b"", "é".encode()]


@pytest.mark.parametrize("values", [EQUAL, UNEQUAL, []])
def test_ids_survive_both_ways(values: list[bytes]) -> None:
    column = text_array(np.array(values, np.bytes_))
    column.validate(full=True)
    assert column.type == pa.string() and column.to_pylist() == [value.decode() for value in values]
    assert ids_of(column).tolist() == values
    assert ids_of(column.slice(1, 2)).tolist() == values[1:3]
    assert ids_of(pa.chunked_array([column.slice(2), column.slice(0, 1)])).tolist() == values[2:] + values[:1]


def test_digests_that_end_with_zero_bytes_stay_whole() -> None:
    digests = [b"0123456789abcd\0\0", bytes(16), b"0123456789abcdef"]
    column = digest_array(np.array(digests, "S16"))
    column.validate(full=True)
    assert column.to_pylist() == digests and column.type == pa.binary(16)
    again = ids_of(column.slice(1))
    assert again.dtype == "S16" and digest_array(again).to_pylist() == digests[1:]


def test_rows_of_a_number_stay_in_their_order() -> None:
    table = pa.table({"row": range(6)})
    found = [
        (number, rows["row"].to_pylist())
        for number, rows in split_rows(table, np.array([2, 0, 2, 5, 0, 2], np.int32))
    ]
    assert found == [(0, [1, 4]), (2, [0, 2, 5]), (5, [3])]
    assert not list(split_rows(table.slice(6), np.empty(0, np.int32)))
