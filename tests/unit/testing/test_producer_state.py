from __future__ import annotations

import pytest

from aioproducer._core.records.decode import decode_batches
from aioproducer.errors import BrokerError, InvalidProducerEpoch, OutOfOrderSequenceNumber
from aioproducer.testing.faults import Refused
from aioproducer.testing.producer_state import (
    MAX_SEQUENCE,
    REMEMBERED_BATCHES,
    Aborted,
    OpenTransactions,
    ProducerStates,
    Stamp,
    marker,
)
from tests.cases import for_each

ID = 1000


def states(*stamps: Stamp) -> ProducerStates:
    """Return the producer states after batches at offsets 0, 100, 200 and so on."""
    known = ProducerStates()
    for index, stamp in enumerate(stamps):
        known.check(stamp)
        known.appended(stamp, 100 * index)
    return known


def error_of(known: ProducerStates, stamp: Stamp) -> int:
    with pytest.raises(Refused) as refused:
        known.check(stamp)
    return refused.value.code


@for_each("sequence", [0, 1, 17, MAX_SEQUENCE])
def test_unknown_producer_may_start_anywhere(sequence: int) -> None:
    ProducerStates().check(Stamp(ID, 0, sequence, 1))


def test_next_sequence_is_taken() -> None:
    states(Stamp(ID, 0, 0, 3), Stamp(ID, 0, 3, 1), Stamp(ID, 0, 4, 10))


@for_each("sequence", [0, 1, 2, 4, 100])
def test_any_other_sequence_is_out_of_order(sequence: int) -> None:
    known = states(Stamp(ID, 0, 0, 3))
    assert error_of(known, Stamp(ID, 0, sequence, 1)) == OutOfOrderSequenceNumber.code


@pytest.mark.parametrize(("last", "following"), [(MAX_SEQUENCE, 0), (MAX_SEQUENCE - 1, MAX_SEQUENCE), (1, 2)])
def test_sequences_wrap_after_the_largest_int32(last: int, following: int) -> None:
    states(Stamp(ID, 0, (last - 4) & MAX_SEQUENCE, 5), Stamp(ID, 0, following, 1))


def test_batch_may_reach_across_the_wrap() -> None:
    assert Stamp(ID, 0, MAX_SEQUENCE - 1, 5).last_sequence == 2
    states(Stamp(ID, 0, MAX_SEQUENCE - 1, 5), Stamp(ID, 0, 3, 1))


def test_new_epoch_starts_at_zero() -> None:
    known = states(Stamp(ID, 0, 0, 3))
    assert error_of(known, Stamp(ID, 1, 3, 1)) == OutOfOrderSequenceNumber.code
    known.check(Stamp(ID, 1, 0, 1))


@pytest.mark.parametrize(
    ("stamp", "error"),
    [
        (Stamp(ID, 1, 3, 1), InvalidProducerEpoch),
        (Stamp(ID, 0, 0, 1), InvalidProducerEpoch),
        (Stamp(ID, 2, 2, 1), OutOfOrderSequenceNumber),
    ],
)
def test_new_epoch_ends_the_old_one(stamp: Stamp, error: type[BrokerError]) -> None:
    known = states(Stamp(ID, 1, 0, 3), Stamp(ID, 2, 0, 1))
    assert error_of(known, stamp) == error.code


def test_first_batch_of_a_transaction_is_not_overtaken() -> None:
    known = ProducerStates()
    known.begins(Stamp(ID, 0, 3, 1), from_zero=False)
    assert error_of(known, Stamp(ID, 0, 4, 1)) == OutOfOrderSequenceNumber.code
    known.begins(Stamp(ID, 0, 2, 1), from_zero=False)
    assert error_of(known, Stamp(ID, 0, 3, 1)) == OutOfOrderSequenceNumber.code
    known.check(Stamp(ID, 0, 2, 1))
    known.appended(Stamp(ID, 0, 2, 1), 0)
    known.check(Stamp(ID, 0, 3, 1))


def test_refused_first_batch_is_not_overtaken() -> None:
    known = states(Stamp(ID, 0, 0, 1))
    known.begins(Stamp(ID, 0, 0, 1), from_zero=False)
    assert error_of(known, Stamp(ID, 0, 1, 1)) == OutOfOrderSequenceNumber.code
    known.begins(Stamp(ID, 1, 0, 1), from_zero=False)
    known.check(Stamp(ID, 1, 0, 1))
    known.ended(ID, 1)
    known.check(Stamp(ID, 1, 0, 1))


def test_epoch_of_one_transaction_alone_begins_with_zero() -> None:
    known = ProducerStates()
    known.begins(Stamp(ID, 0, 5, 1), from_zero=True)
    assert error_of(known, Stamp(ID, 0, 5, 1)) == OutOfOrderSequenceNumber.code
    known.begins(Stamp(ID, 0, 5, 1), from_zero=False)
    assert error_of(known, Stamp(ID, 0, 5, 1)) == OutOfOrderSequenceNumber.code
    known.check(Stamp(ID, 0, 0, 1))


def test_marker_with_new_epoch_restarts_sequences() -> None:
    known = states(Stamp(ID, 0, 0, 3))
    known.ended(ID, 0)
    known.check(Stamp(ID, 0, 3, 1))
    assert known.known() == {ID: (0, 2)}
    known.ended(ID, 1)
    assert known.known() == {ID: (1, -1)}
    assert (known.epoch(ID), known.epoch(ID + 1)) == (1, -1)
    assert error_of(known, Stamp(ID, 0, 3, 1)) == InvalidProducerEpoch.code
    assert error_of(known, Stamp(ID, 1, 3, 1)) == OutOfOrderSequenceNumber.code
    known.check(Stamp(ID, 1, 0, 1))
    known.restart()
    known.check(Stamp(ID, 1, 0, 1))


def test_last_five_batches_are_known_as_duplicates() -> None:
    sent = [Stamp(ID, 0, sequence, 1) for sequence in range(REMEMBERED_BATCHES + 1)]
    known = states(*sent)
    assert [known.offset_of_duplicate(stamp) for stamp in sent] == [None, 100, 200, 300, 400, 500]


def test_batch_too_old_to_be_remembered_is_out_of_order() -> None:
    sent = [Stamp(ID, 0, sequence, 1) for sequence in range(REMEMBERED_BATCHES + 1)]
    assert error_of(states(*sent), sent[0]) == OutOfOrderSequenceNumber.code


@for_each("stamp", [Stamp(ID, 0, 0, 2), Stamp(ID, 0, 1, 2), Stamp(ID, 1, 0, 3), Stamp(ID + 1, 0, 0, 3)])
def test_duplicate_is_the_very_same_batch(stamp: Stamp) -> None:
    assert states(Stamp(ID, 0, 0, 3)).offset_of_duplicate(stamp) is None


def test_duplicates_of_an_older_epoch_are_forgotten() -> None:
    old = Stamp(ID, 0, 0, 3)
    assert states(old, Stamp(ID, 1, 0, 1)).offset_of_duplicate(old) is None


def test_producers_do_not_know_each_other() -> None:
    states(Stamp(ID, 0, 0, 3), Stamp(ID + 1, 0, 0, 1), Stamp(ID, 0, 3, 1), Stamp(ID + 1, 0, 1, 1))


def test_log_is_stable_up_to_the_first_open_transaction() -> None:
    known = OpenTransactions()
    assert known.stable_offset(9) == 9
    known.wrote(5, 2)
    known.wrote(6, 3)
    known.wrote(5, 4)
    assert (known.stable_offset(9), known.first_offset(5), known.first_offset(6)) == (2, 2, 3)
    known.ended(5, 5, committed=True)
    assert (known.stable_offset(9), known.first_offset(5)) == (3, None)
    known.ended(6, 6, committed=False)
    assert known.stable_offset(9) == 9


def test_aborted_transactions_are_returned_by_offset() -> None:
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


def test_marker_where_nothing_was_written_aborts_nothing() -> None:
    known = OpenTransactions()
    known.ended(5, 0, committed=False)
    assert known.aborted(0, 9) == []


@pytest.mark.parametrize("committed", [True, False])
def test_marker_is_a_control_batch(committed: bool) -> None:
    (batch,) = decode_batches(marker(5, 3, committed=committed, now_ms=7), limit=1_000)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 3, -1)
    assert (batch.control, batch.transactional, batch.base_timestamp) == (True, True, 7)
    (record,) = batch.records
    assert (record.key, record.value) == (bytes([0, 0, 0, committed]), bytes(6))
