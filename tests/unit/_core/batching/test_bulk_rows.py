from __future__ import annotations

from dataclasses import replace

import pytest

from aioproducer._core.batching.bulk import Rows
from aioproducer._core.records.columns import HeaderColumn, HeaderColumns
from tests.cases import for_each

ROWS = Rows(
    "orders",
    positions=range(3),
    values=[b"a", b"b", b"c"],
    keys=[b"k", None, b"m"],
    headers=[(("h", b"1"),), (), ()],
    timestamps_ms=[10, 20, 30],
    partitions=[0, None, 2],
    sizes=[15, 16, 17],
)
BARE = Rows(
    "orders",
    positions=range(3),
    values=[b"a", b"b", b"c"],
    keys=None,
    headers=None,
    timestamps_ms=7,
    partitions=None,
)


def test_length_of_rows_is_the_number_of_values() -> None:
    assert len(ROWS) == 3
    assert not ROWS.slice(3, 3)


def test_slice_cuts_every_column() -> None:
    assert ROWS.slice(1, 3) == Rows(
        "orders",
        positions=range(1, 3),
        values=[b"b", b"c"],
        keys=[None, b"m"],
        headers=[(), ()],
        timestamps_ms=[20, 30],
        partitions=[None, 2],
        sizes=[16, 17],
    )


def test_rows_are_taken_by_index() -> None:
    assert ROWS.take([2, 0]) == Rows(
        "orders",
        positions=(2, 0),
        values=(b"c", b"a"),
        keys=(b"m", b"k"),
        headers=((), (("h", b"1"),)),
        timestamps_ms=(30, 10),
        partitions=(2, 0),
        sizes=(17, 15),
    )


def test_take_accepts_a_single_row_and_no_row() -> None:
    assert list(ROWS.take([1]).values) == [b"b"]
    assert list(ROWS.take([]).values) == []


def test_headers_that_are_columns_stay_columns() -> None:
    headers = HeaderColumns([HeaderColumn("trace", None, [b"1", b"2", b"3"]), HeaderColumn("type", b"x")], 3)
    rows = replace(BARE, headers=headers)
    for part, indices in (rows.slice(1, 3), [1, 2]), (rows.take([2, 0]), [2, 0]), (rows.take([1]), [1]):
        assert isinstance(part.headers, HeaderColumns)
        assert list(part.headers) == [headers[index] for index in indices]


def test_value_for_all_rows_is_kept_by_slice_and_take() -> None:
    part = replace(BARE, partitions=4).slice(0, 1)
    assert (part.keys, part.headers, part.timestamps_ms, part.partitions, part.sizes) == (
        None,
        None,
        7,
        4,
        (),
    )
    assert BARE.take([1]).partitions is None


@pytest.mark.parametrize(
    ("partitions", "asked_for"), [([0, None, 2], [0, None, 2]), (4, [4, 4, 4]), (None, [None] * 3)]
)
def test_partition_of_a_row_is_its_own_or_the_common_one(
    partitions: list[int | None] | int | None, asked_for: list[int | None]
) -> None:
    rows = replace(BARE, partitions=partitions)
    assert [rows.partition(index) for index in range(3)] == asked_for


@for_each(("partitions", "highest"), [([0, None, 2], 2), ([None, None], None), (4, 4), (None, None)])
def test_highest_partition_is_the_highest_number_requested(
    partitions: list[int | None] | int | None, highest: int | None
) -> None:
    assert replace(BARE, partitions=partitions).highest_partition() == highest


def test_rows_are_split_by_partition_in_the_order_of_first_rows() -> None:
    split = ROWS.by_partition([4, 0, 4])
    assert list(split) == [4, 0]
    assert split[4].take([0, 1]) == ROWS.take([0, 2])
    assert split[0].take([0]) == ROWS.take([1])


def test_split_keeps_values_common_to_all_rows() -> None:
    rows = replace(BARE, partitions=7)
    split = rows.by_partition([7, 7, 7])
    assert list(split) == [7]
    assert split[7].take([0, 1, 2]) == rows.take([0, 1, 2])


def test_split_headers_that_are_columns_stay_columns() -> None:
    headers = HeaderColumns([HeaderColumn("trace", None, [b"1", b"2", b"3"]), HeaderColumn("type", b"x")], 3)
    split = replace(BARE, headers=headers).by_partition([0, 1, 0])
    assert [list(rows.headers or ()) for rows in split.values()] == [[headers[0], headers[2]], [headers[1]]]
    assert all(isinstance(rows.headers, HeaderColumns) for rows in split.values())
