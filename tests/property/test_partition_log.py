"""A partition's log under producers that repeat, skip and scribble."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, strategies as st

from aioproducer.testing.faults import Refused
from aioproducer.testing.log import PartitionLog
from aioproducer.testing.producer_state import REMEMBERED_BATCHES
from tests.unit.testing.batches import batch

MAX_SEQUENCE = 0x7FFFFFFF


def append(log: PartitionLog, data: bytes | bytearray) -> int:
    return log.append(data, leader_epoch=0, max_bytes=1_000_000, now_ms=1).base_offset


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for each in log.batches() for record in each.records]


class Step(NamedTuple):
    """A batch of so many records; and before it, so many of the last ones again."""

    records: int
    repeated: int


STEPS = st.lists(
    st.builds(Step, records=st.integers(1, 4), repeated=st.integers(0, REMEMBERED_BATCHES)), max_size=12
)


@given(steps=STEPS, start=st.sampled_from([0, 3, MAX_SEQUENCE - 5, MAX_SEQUENCE]))
def test_resent_batches_are_stored_once_in_order(steps: list[Step], start: int) -> None:
    log = PartitionLog()
    sent: list[tuple[bytearray, int]] = []
    expected: list[bytes] = []
    sequence = start
    for step in steps:
        for data, offset in sent[-step.repeated :] if step.repeated else []:
            assert append(log, data) == offset
        new = [str(len(expected) + index).encode() for index in range(step.records)]
        data = batch(*new, producer_id=1, epoch=0, sequence=sequence)
        sent.append((data, append(log, data)))
        assert sent[-1][1] == len(expected)
        expected += new
        sequence = (sequence + step.records) & MAX_SEQUENCE
    assert values(log) == expected


@given(
    first=st.integers(1, 5),
    epoch=st.integers(0, 3),
    sequence=st.integers(0, 12),
    records=st.integers(1, 5),
)
def test_batch_is_appended_known_or_refused(first: int, epoch: int, sequence: int, records: int) -> None:
    """The complete rule for a producer that has written *first* records in epoch 1, as an independent formula."""
    log = PartitionLog()
    append(log, batch(*[b"old"] * first, producer_id=1, epoch=1, sequence=0))
    data = batch(*[b"new"] * records, producer_id=1, epoch=epoch, sequence=sequence)
    is_next = (epoch == 1 and sequence == first) or (epoch > 1 and sequence == 0)
    is_known = (epoch, sequence, records) == (1, 0, first)
    try:
        offset = append(log, data)
    except Refused:
        assert not is_next
        assert not is_known
        assert log.end_offset == first
    else:
        assert offset == (0 if is_known else first)
        assert is_known or is_next
        assert log.end_offset == first + (records if is_next else 0)


@given(position=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_damaged_batch_is_refused(position: int, byte: int, cut: int) -> None:
    log = PartitionLog()
    original = batch(b"some", b"records", producer_id=1, epoch=0, sequence=0)
    damaged = bytearray(original)
    damaged[position % len(damaged)] = byte
    del damaged[max(len(damaged) - cut, 0) :]
    leader_epoch = slice(12, 16)  # is the broker's to write, so it may be anything
    harmless = damaged[:12] == original[:12] and damaged[16:] == original[16:]
    try:
        append(log, damaged)
    except Refused:
        assert not harmless
        assert log.end_offset == 0
    else:
        assert harmless
        assert values(log) == [b"some", b"records"]
        assert log.read(0, 1)[leader_epoch] == bytes(4)


@given(
    counts=st.lists(st.integers(1, 5), max_size=20), offset=st.integers(0, 120), limit=st.integers(0, 3000)
)
def test_fetch_returns_whole_consecutive_batches(counts: list[int], offset: int, limit: int) -> None:
    log = PartitionLog()
    stored: list[tuple[int, bytes]] = []  # the last offset of each batch, and the batch
    for count in counts:
        base_offset = append(log, batch(*[b"value"] * count))
        stored.append((base_offset + count - 1, log.read(base_offset, 1)))
    expected = b""
    for last_offset, data in stored:
        if last_offset >= offset:
            if expected and len(expected) + len(data) > limit:
                break
            expected += data
    assert log.read(offset, limit) == expected
