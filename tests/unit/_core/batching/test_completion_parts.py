from __future__ import annotations

import pytest

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.idempotence import BatchSequence
from aioproducer.errors import DeliveryTimeout, InvalidRecord, MessageTooLarge
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.completion_rig import (
    BUMPED,
    LATE,
    SPOILT,
    errors,
    next_sequence,
    nothing_is_left,
    offsets,
)
from tests.unit.floor_rig import FIRST, NODE, TOPIC, FloorRig, doubt


@in_virtual_time
async def test_halves_behind_a_gap_get_new_sequences() -> None:
    rig = FloorRig()
    rig.recognise(1)
    batch, _ = rig.sent(b"first")
    large, _ = rig.sent(b"a", b"b")
    rig.completion.fail(batch, SPOILT)
    rig.completion.split(large)
    assert list(rig.queue().batches) == list(large.successors)
    assert [part.sequence for part in large.successors] == [None, None]
    assert rig.drain() == [large.successors[0]]
    assert large.successors[0].sequence == BUMPED


@in_virtual_time
async def test_split_batch_is_sent_in_halves_that_share_its_sequences() -> None:
    rig = FloorRig()
    rig.recognise(1)
    batch, futures = rig.sent(b"a", b"b", b"c", b"d")
    doubt(batch)
    batch.refused(MessageTooLarge("too large"), was_next=True)
    rig.completion.split(batch)
    assert (rig.witness.split_batches, rig.witness.retried_batches) == ([batch], [])
    assert batch.state is BatchState.SPLIT
    left, right = batch.successors
    assert [part.columns.values for part in (left, right)] == [[b"a", b"b"], [b"c", b"d"]]
    assert [part.sequence for part in (left, right)] == [BatchSequence(FIRST, 0), BatchSequence(FIRST, 2)]
    assert [part.order for part in (left, right)] == [(1, 0), (1, 1)]
    assert {part.numbered_before for part in (left, right)} == {batch.numbered_before}
    for part in (left, right):
        assert part.deadline == batch.deadline
        assert (part.attempts, part.last_error) == (1, batch.last_error)
        assert part.persistence.in_doubt
    assert list(rig.accumulator.unresolved) == [left, right]
    assert rig.accumulator.memory.used == left.size + right.size == batch.size + 61
    assert rig.accumulator.topics[TOPIC].limits.ready == left.size
    for part, base in ((left, 10), (right, 12)):
        assert rig.drain() == [part]
        rig.completion.complete(part, base)
    assert offsets(futures) == [10, 11, 12, 13]
    assert nothing_is_left(rig)
    assert next_sequence(rig) == BatchSequence(FIRST, 4)


@in_virtual_time
async def test_split_limits_the_compressed_size() -> None:
    rig = FloorRig()
    batch, _ = rig.sent(b"a" * 400, b"b" * 400)
    batch.keep_encoded(bytearray(100))
    rig.accumulator.topics[TOPIC].limits.compressed(batch)
    rate = rig.accumulator.topics[TOPIC].limits.rate
    rig.completion.split(batch)
    share = batch.successors[0].size / batch.size
    assert (
        rig.accumulator.topics[TOPIC].limits.ready
        == rig.accumulator.topics[TOPIC].limits.full
        == int(int(100 * share) / rate)
    )


@in_virtual_time
async def test_halves_are_sent_one_by_one_to_a_leader_without_the_id() -> None:
    """Such a leader would accept the second half even if the first half had failed."""
    rig = FloorRig()
    batch, _ = rig.sent(b"a", b"b", b"c", b"d")
    rig.completion.split(batch)
    left, right = batch.successors
    assert [part.sequence for part in (left, right)] == [None, None]
    assert rig.drain() == [left]
    assert left.sequence == BatchSequence(FIRST, 0)
    assert rig.drain() == []
    rig.completion.complete(left, 10)
    assert rig.drain() == [right]
    assert right.sequence == BatchSequence(FIRST, 2)


@in_virtual_time
async def test_halves_keep_their_sequences_if_a_later_batch_has_one() -> None:
    rig = FloorRig()
    rig.recognise(1)
    batch, _ = rig.sent(b"a", b"b")
    rig.sent(b"c")
    rig.learn(TOPIC, NODE + 1)  # a leader without this producer id
    rig.completion.split(batch)
    assert [part.sequence for part in batch.successors] == [BatchSequence(FIRST, 0), BatchSequence(FIRST, 1)]


@in_virtual_time
async def test_halves_of_an_uncertain_batch_keep_its_sequences() -> None:
    """With other sequences a leader that has the batch would append the halves again."""
    rig = FloorRig()
    batch, _ = rig.sent(b"a", b"b")
    doubt(batch)
    rig.completion.split(batch)
    left, right = batch.successors
    assert [(part.sequence, part.persistence.half_of_possibly_persisted) for part in (left, right)] == [
        (BatchSequence(FIRST, 0), True),
        (BatchSequence(FIRST, 1), True),
    ]
    assert rig.drain() == [left]
    assert rig.drain() == []  # the first half is sent alone


@pytest.mark.parametrize("in_doubt", [False, True])
@in_virtual_time
async def test_split_batch_counts_as_lost_when_it_may_be_in_the_log(*, in_doubt: bool) -> None:
    """A leader that has the batch does not recognise the parts, so its denial of an earlier batch proves nothing."""
    rig = FloorRig()
    rig.recognise(1)
    earlier, _ = rig.sent(b"earlier")
    batch, _ = rig.sent(b"a", b"b")
    if in_doubt:
        doubt(batch)
    else:
        batch.persistence.answered()
    rig.completion.split(batch)
    queue = rig.accumulator.queue(earlier)
    assert (queue.newest_lost_in_doubt > earlier.order) is in_doubt
    assert all(part.order > queue.newest_lost_in_doubt for part in batch.successors)


@in_virtual_time
async def test_halves_of_a_batch_missing_in_the_log_are_plain_batches() -> None:
    rig = FloorRig()
    rig.recognise(1)
    batch, _ = rig.sent(b"a", b"b")
    rig.completion.split(batch)
    assert not any(part.persistence.half_of_possibly_persisted for part in batch.successors)


@in_virtual_time
async def test_halves_behind_a_missing_batch_are_plain_batches() -> None:
    rig = FloorRig()
    rig.recognise(1)
    missing, _ = rig.sent(b"missing")
    batch, _ = rig.sent(b"a", b"b")
    doubt(batch)
    rig.completion.split(batch)
    missing.persistence.answered()
    rig.completion.fail(missing, SPOILT)
    for part in batch.successors:
        assert part.sequence is None
        assert not part.possibly_persisted
        assert not part.persistence.half_of_possibly_persisted


@pytest.mark.parametrize(
    ("lengths", "left"), [([1_000, 1, 1], 1), ([1, 1, 1_000], 2), ([100, 100, 100, 100, 400], 3)]
)
@in_virtual_time
async def test_halves_are_of_bytes_and_never_empty(lengths: list[int], left: int) -> None:
    rig = FloorRig()
    batch, _ = rig.sent(*(bytes(length) for length in lengths))
    rig.completion.split(batch)
    assert [len(part) for part in batch.successors] == [left, len(lengths) - left]
    assert rig.accumulator.topics[TOPIC].limits.cap == max(part.size for part in batch.successors)


@in_virtual_time
async def test_halves_have_no_sequences_without_idempotence() -> None:
    rig = FloorRig(idempotent=False)
    batch, _ = rig.sent(b"a", b"b")
    rig.completion.split(batch)
    assert [part.sequence for part in batch.successors] == [None, None]
    assert rig.drain() == [batch.successors[0]]
    assert rig.queue().retrying == (batch.successors[1],)


@in_virtual_time
async def test_rest_of_a_refused_batch_gets_a_new_sequence() -> None:
    rig = FloorRig()
    batch, futures = rig.sent(b"a", b"bad", b"c", b"worse")
    rig.completion.reject_records(batch, {3: LATE, 1: SPOILT})
    assert rig.witness.failures == [(batch, 1, SPOILT), (batch, 1, LATE)]
    assert errors([futures[1], futures[3]]) == [InvalidRecord, DeliveryTimeout]
    assert batch.state is BatchState.SPLIT
    [rest] = batch.successors
    assert rig.witness.retried_batches == [rest]
    assert rest.columns.values == [b"a", b"c"]
    assert rig.accumulator.memory.used == rest.size
    assert rig.drain() == [rest]
    assert rest.sequence == BUMPED
    rig.completion.complete(rest, 5)
    assert offsets([futures[0], futures[2]]) == [5, 6]
    assert nothing_is_left(rig)


@in_virtual_time
async def test_rest_of_a_refused_batch_waits_for_batches_in_flight() -> None:
    rig = FloorRig()
    rig.recognise(1)
    batch, _ = rig.sent(b"a", b"bad")
    beside, _ = rig.sent(b"beside")
    rig.completion.reject_records(batch, {1: SPOILT})
    assert rig.drain() == []
    rig.completion.complete(beside, 5)
    assert rig.drain() == list(batch.successors)


@in_virtual_time
async def test_rest_of_a_refused_batch_goes_first_without_idempotence() -> None:
    rig = FloorRig(idempotent=False)
    batch, _ = rig.sent(b"bad", b"b")
    _ = rig.fill(b"new")
    rig.completion.reject_records(batch, {0: SPOILT})
    [rest] = batch.successors
    assert rest.state is BatchState.BACKOFF
    assert rig.drain() == [rest]


@in_virtual_time
async def test_halves_are_of_one_size_with_keys_and_headers_counted() -> None:
    for key, headers in ((bytes(1_000), ()), (None, (("trace", bytes(1_000)),))):
        rig = FloorRig()
        _ = rig.append(b"a", key=key, headers=headers)
        batch = rig.fill(b"b", b"c", b"d")
        assert rig.drain() == [batch]
        rig.completion.split(batch)
        assert [part.columns.values for part in batch.successors] == [[b"a"], [b"b", b"c", b"d"]]


@in_virtual_time
async def test_batch_is_split_into_parts_below_the_limit() -> None:
    rig = FloorRig(batch_bytes=20_000)
    rig.recognise(1)
    first, _ = rig.sent(*[b"x" * 1_000] * 16)
    second, futures = rig.sent(*[b"x" * 1_000] * 15)
    rig.completion.split(first)
    assert rig.drain() == [first.successors[0]]
    rig.completion.split(first.successors[0])
    limit = rig.accumulator.topics[TOPIC].limits.cap
    rig.completion.split(second)
    assert [len(part) for part in second.successors] == [4, 4, 4, 3]
    assert all(part.size <= limit for part in second.successors)
    assert [part.sequence for part in second.successors] == [
        BatchSequence(FIRST, each) for each in (16, 20, 24, 28)
    ]
    parts = [*first.successors[0].successors, first.successors[1], *second.successors]
    for part, base in zip(parts, (0, 4, 8, 16, 20, 24, 28), strict=True):
        assert rig.drain() == [part]
        rig.completion.complete(part, base)
    assert offsets(futures) == list(range(16, 31))
    assert nothing_is_left(rig)


@in_virtual_time
async def test_topic_limit_ends_when_a_larger_batch_is_accepted() -> None:
    rig = FloorRig(batch_bytes=1_000, batch_max_bytes=1_000)
    rig.recognise(1)
    batch, _ = rig.sent(b"a" * 300, b"b" * 300)
    rig.completion.split(batch)
    limits = rig.accumulator.topics[TOPIC].limits
    assert limits.ready == limits.full == batch.successors[0].size
    for part in batch.successors:
        assert rig.drain() == [part]
        rig.completion.complete(part, 0)
    assert limits.first_limit(300.0, is_next=False) > batch.size
    probe, _ = rig.sent(b"c" * 700)
    probe.created_at = 300.0
    rig.completion.complete(probe, 8)
    assert limits.ready == limits.full == 1_000
    assert not rig.completion._capped


@in_virtual_time
async def test_limit_does_not_depend_on_batches_before_the_refusal() -> None:
    rig = FloorRig(batch_bytes=2_000, batch_max_bytes=2_000)
    rig.recognise(1)
    accepted, _ = rig.sent(b"a" * 700)
    rig.completion.complete(accepted, 0)
    batch, _ = rig.sent(b"b" * 500, b"c" * 500)
    rig.completion.split(batch)
    assert rig.accumulator.topics[TOPIC].limits.cap == batch.successors[0].size


@in_virtual_time
async def test_halves_of_a_buffer_leave_room_for_as_many_records() -> None:
    accelerator = pytest.importorskip("aioproducer._core._accelerator", exc_type=ImportError)
    rig = FloorRig(records=accelerator.RecordBuffer, batch_bytes=4_000)
    batch, _ = rig.sent(*[b"v" * 100] * 20)
    rig.completion.split(batch)
    assert [len(part) for part in batch.successors] == [10, 10]
    assert len(rig.fill(*[b"v" * 100] * 10)) == 10
    assert rig.accumulator.unfinished == 3
