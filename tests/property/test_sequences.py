"""Sequences have no gap and are never given twice, wherever they begin and wrap."""

from __future__ import annotations

from hypothesis import given, strategies as st

from aioproducer._core.idempotence import (
    MAX_EPOCH,
    BatchSequence,
    IdentityKeeper,
    PartitionSequences,
    ProducerIdentity,
    add_to_sequence,
)

LAST_SEQUENCE = 2**31 - 1
IDENTITY = ProducerIdentity(1, 0)

anywhere = st.integers(0, LAST_SEQUENCE) | st.integers(LAST_SEQUENCE - 5_000, LAST_SEQUENCE)
counts = st.integers(1, 10_000)


@given(anywhere, counts)
def test_sequence_addition_equals_that_of_brokers(sequence: int, count: int) -> None:
    """Source: DefaultRecordBatch.incrementSequence."""
    wraps = sequence > LAST_SEQUENCE - count
    expected = count - (LAST_SEQUENCE - sequence) - 1 if wraps else sequence + count
    assert add_to_sequence(sequence, count) == expected


@given(anywhere, counts, counts)
def test_sequence_addition_is_associative(sequence: int, one: int, other: int) -> None:
    at = BatchSequence(IDENTITY, sequence)
    assert at.after(one).after(other) == at.after(one + other)


@given(anywhere, st.lists(counts, min_size=1, max_size=20))
def test_stamps_are_consecutive(first: int, batches: list[int]) -> None:
    keeper = IdentityKeeper()
    keeper.assign(*IDENTITY)
    sequences = PartitionSequences()
    assert sequences.may_assign(keeper, unsettled=())
    sequences._next = first
    expected = BatchSequence(IDENTITY, first)
    for count in batches:
        assert sequences.assign(count) == expected
        expected = expected.after(count)


@given(st.integers(0, MAX_EPOCH), st.lists(st.booleans(), max_size=30))
def test_identity_epochs_never_decrease(epoch: int, gaps: list[bool]) -> None:
    """Whatever breaks, a partition never writes twice under the same producer id, epoch and sequence."""
    keeper = IdentityKeeper()
    keeper.assign(1, epoch)
    sequences = PartitionSequences()
    given_out: list[BatchSequence] = []
    for number, gap in enumerate(gaps, start=2):
        if gap:
            sequences.request_epoch_bump((1,), absent=False)
        if not sequences.may_assign(keeper, unsettled=()):
            keeper.assign(number, 0)
            assert sequences.may_assign(keeper, unsettled=())
        given_out.append(sequences.assign(1))
    assert given_out == sorted(set(given_out))
