from __future__ import annotations

import pyarrow as pa
import pytest

from aioproducer.arrow.arrow_columns import Columns
from aioproducer.arrow.batches import PIECE_BYTES, PIECE_ROWS, pieces

COLUMNS = Columns(value="v", key="k", topic="orders")


def sizes(batch: pa.RecordBatch, columns: Columns = COLUMNS) -> list[int]:
    cut = list(pieces(batch, columns))
    assert pa.Table.from_batches(cut, batch.schema).equals(pa.Table.from_batches([batch]))
    return [piece.num_rows for piece in cut]


def batch_of(values: list[bytes], kind: pa.DataType | None = None) -> pa.RecordBatch:
    column = pa.array(values, kind or pa.binary())
    return pa.record_batch({"v": column, "k": pa.nulls(len(values), pa.binary())})


def test_a_batch_of_a_fair_size_is_one_piece() -> None:
    assert sizes(batch_of([b"v"] * PIECE_ROWS)) == [PIECE_ROWS]
    assert sizes(batch_of([])) == []


def test_many_rows_are_several_pieces() -> None:
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
