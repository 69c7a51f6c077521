from __future__ import annotations

import pytest

from aioproducer.arrow.result import RowFailure, RowsOutcome, SendTableError, TableResult
from aioproducer.errors import DeliveryTimeout, RecordTooLarge
from aioproducer.errors.send_many import OffsetRange
from aioproducer.types import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def failure(row: int, error: Exception | None = None, partition: int | None = None) -> RowFailure:
    return RowFailure(row, "orders", partition, error or RecordTooLarge("too large"))


def test_outcomes_add_up() -> None:
    total = RowsOutcome()
    total.add(RowsOutcome(rows=2, bytes=7, offsets={FIRST: OffsetRange(4, 5, 2)}))
    total.add(
        RowsOutcome(rows=3, bytes=1, offsets={FIRST: OffsetRange(1, 2, 2), SECOND: OffsetRange(9, 9, 1)})
    )
    offsets = {FIRST: OffsetRange(1, 5, 4), SECOND: OffsetRange(9, 9, 1)}
    assert total.result() == TableResult(5, 8, offsets)


def test_error_describes_the_first_failed_row() -> None:
    total = RowsOutcome(rows=4, bytes=4)
    total.add(RowsOutcome.of_failures([failure(1_200, partition=3), failure(1_100, partition=2)]))
    total.add(RowsOutcome.of_failures([failure(2_000)]))
    with pytest.raises(SendTableError) as raised:
        total.result()
    error = raised.value
    assert str(error) == (
        "row 1,100 (topic 'orders', partition 2): RecordTooLarge: too large; 2 more rows failed; 4 were acknowledged"
    )
    assert (error.row, error.topic, error.partition) == (1_100, "orders", 2)
    assert error.__cause__ is error.failures[1_100]
    assert list(error.failures) == [1_100, 1_200, 2_000]


def test_the_first_hundred_failures_are_kept_and_all_are_counted() -> None:
    total = RowsOutcome()
    for start in (300, 0, 150):
        total.add(RowsOutcome.of_failures([failure(row) for row in range(start, start + 150)]))
    with pytest.raises(SendTableError) as raised:
        total.result()
    assert list(raised.value.failures) == list(range(100))
    assert total.failed == 450


def test_error_facts_are_true_if_true_for_any_row() -> None:
    surely_not = RowsOutcome.of_failures([failure(0), failure(1, ValueError("no partition"))])
    assert (surely_not.possibly_persisted, surely_not.retriable) == (False, False)
    surely_not.add(RowsOutcome.of_failures([failure(500, DeliveryTimeout("late", possibly_persisted=True))]))
    with pytest.raises(SendTableError) as raised:
        surely_not.result()
    assert raised.value.possibly_persisted
    assert raised.value.retriable


def test_a_row_without_a_topic_is_named_alone() -> None:
    with pytest.raises(SendTableError, match=r"^row 7: ValueError: null; 0 were acknowledged$"):
        RowsOutcome.of_failures([RowFailure(7, None, None, ValueError("null"))]).result()
