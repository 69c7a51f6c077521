from __future__ import annotations

import pyarrow as pa
import pytest

from aioproducer.arrow.arrow_columns import Columns
from aioproducer.arrow.batches import (
    PIECE_BYTES,
    PIECE_ROWS,
    RowFailure,
    RowsOutcome,
    SendTableError,
    TableResult,
    pieces,
)
from aioproducer.errors import DeliveryTimeout, RecordTooLarge
from aioproducer.errors.send_many import OffsetRange
from aioproducer.types import TopicPartition

COLUMNS = Columns(value="v", key="k", topic="orders")


def sizes(batch: pa.RecordBatch, columns: Columns = COLUMNS) -> list[int]:
    cut = list(pieces(batch, columns))
    assert pa.Table.from_batches(cut, batch.schema).equals(pa.Table.from_batches([batch]))
    return [piece.num_rows for piece in cut]


def batch_of(values: list[bytes], kind: pa.DataType | None = None) -> pa.RecordBatch:
    column = pa.array(values, kind or pa.binary())
    return pa.record_batch({"v": column, "k": pa.nulls(len(values), pa.binary())})


def test_batch_up_to_the_limit_is_one_piece() -> None:
    assert sizes(batch_of([b"v"] * PIECE_ROWS)) == [PIECE_ROWS]
    assert sizes(batch_of([])) == []


def test_large_batch_is_cut_into_pieces() -> None:
    assert sizes(batch_of([b"v"] * (2 * PIECE_ROWS + 1))) == [PIECE_ROWS, PIECE_ROWS, 1]


def test_heavy_rows_are_fewer_in_a_piece() -> None:
    quarter = b"v" * (PIECE_BYTES // 4)
    assert sizes(batch_of([quarter] * 8)) == [4, 4]
    assert sizes(batch_of([b"v" * (PIECE_BYTES + 1)] * 3)) == [1, 1, 1]


def test_keys_weigh_as_values_do() -> None:
    half = b"v" * (PIECE_BYTES // 2)
    batch = pa.record_batch({"v": [half, half], "k": [half, half]})
    assert sizes(batch) == [1, 1]
    assert sizes(batch, Columns(value="v", topic="orders")) == [2]


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())], ids=str)
def test_only_the_bytes_of_its_own_rows_make_a_batch_heavy(kind: pa.DataType) -> None:
    batch = batch_of([b"v" * PIECE_BYTES * 2, *([b"v" * 100] * 10)], kind)
    assert sizes(batch.slice(1)) == [10]


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
    total.add(RowsOutcome(failures=[failure(1_200, partition=3), failure(1_100, partition=2)]))
    total.add(RowsOutcome(failures=[failure(2_000)]))
    with pytest.raises(SendTableError) as raised:
        total.result()
    error = raised.value
    assert str(error) == (
        "row 1,100 (topic 'orders', partition 2): RecordTooLarge: too large; 2 more rows failed; 4 were acknowledged"
    )
    assert (error.row, error.topic, error.partition) == (1_100, "orders", 2)
    assert error.__cause__ is error.failures[1_100]
    assert list(error.failures) == [1_100, 1_200, 2_000]


def test_error_keeps_100_failures_and_counts_all() -> None:
    total = RowsOutcome()
    for start in (300, 0, 150):
        total.add(RowsOutcome(failures=[failure(row) for row in range(start, start + 150)]))
    with pytest.raises(SendTableError) as raised:
        total.result()
    assert list(raised.value.failures) == list(range(100))
    assert len(total.failures) == 450


def test_error_facts_are_true_if_true_for_any_row() -> None:
    outcome = RowsOutcome(failures=[failure(0), failure(1, ValueError("no partition"))])
    with pytest.raises(SendTableError) as raised:
        outcome.result()
    assert (raised.value.possibly_persisted, raised.value.retriable) == (False, False)
    outcome.add(RowsOutcome(failures=[failure(500, DeliveryTimeout("late", possibly_persisted=True))]))
    with pytest.raises(SendTableError) as raised:
        outcome.result()
    assert (raised.value.possibly_persisted, raised.value.retriable) == (True, True)


def test_row_without_a_topic_is_named_by_its_number() -> None:
    with pytest.raises(SendTableError, match=r"^row 7: ValueError: null; 0 were acknowledged$"):
        RowsOutcome(failures=[RowFailure(7, None, None, ValueError("null"))]).result()
