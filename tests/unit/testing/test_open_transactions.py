from __future__ import annotations

import pytest

from aioproducer._core.records.decode import decode_batches
from aioproducer.testing.open_transactions import Aborted, OpenTransactions, marker


def test_the_log_is_stable_up_to_the_first_open_transaction() -> None:
    known = OpenTransactions()
    assert known.stable_before(9) == 9
    known.wrote(5, 2)
    known.wrote(6, 3)
    known.wrote(5, 4)
    assert (known.stable_before(9), known.first_offset(5), known.first_offset(6)) == (2, 2, 3)
    known.ended(5, 5, committed=True)
    assert (known.stable_before(9), known.first_offset(5)) == (3, None)
    known.ended(6, 6, committed=False)
    assert known.stable_before(9) == 9


def test_aborted_ones_are_told_to_whom_they_concern() -> None:
    known = OpenTransactions()
    known.wrote(5, 2)
    known.ended(5, 4, committed=False)
    known.wrote(5, 5)
    known.ended(5, 6, committed=True)
    known.wrote(5, 7)
    known.ended(5, 8, committed=False)
    assert known.aborted(0, 9) == [Aborted(5, 2, 4), Aborted(5, 7, 8)]
    assert [known.aborted(*span) for span in ((0, 2), (0, 3), (4, 5), (5, 7), (9, 99))] == [
        *([], [Aborted(5, 2, 4)], [Aborted(5, 2, 4)], [], [])
    ]
    assert [known.is_aborted(5, offset) for offset in (1, 2, 3, 5, 7)] == [False, True, True, False, True]
    assert not known.is_aborted(6, 2)


def test_a_marker_where_nothing_was_written_aborts_nothing() -> None:
    known = OpenTransactions()
    known.ended(5, 0, committed=False)
    assert known.aborted(0, 9) == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_a_control_batch(committed: bool) -> None:
    (batch,) = decode_batches(marker(5, 3, committed=committed, now_ms=7), limit=1_000)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 3, -1)
    assert (batch.control, batch.transactional, batch.base_timestamp) == (True, True, 7)
    (record,) = batch.records
    assert (record.key, record.value) == (bytes([0, 0, 0, committed]), bytes(6))
