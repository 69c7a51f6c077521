from __future__ import annotations

import pytest

from aioproducer._core.records.compression import Codec
from aioproducer._core.records.record_batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from aioproducer.errors import (
    BrokerError,
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    UnsupportedCompressionType,
)
from aioproducer.testing.faults import Refused
from aioproducer.testing.log import FUTURE_LIMIT_MS, Appended, PartitionLog, is_zstd
from tests.cases import for_each
from tests.unit.testing.batches import batch, with_header

NOW_MS = 1_700_000_000_000


def append(
    log: PartitionLog, data: bytes | bytearray, *, leader_epoch: int = 0, max_bytes: int = 1_000_000
) -> Appended:
    return log.append(data, leader_epoch=leader_epoch, max_bytes=max_bytes, now_ms=NOW_MS)


def refusal(log: PartitionLog, data: bytes | bytearray, *, max_bytes: int = 1_000_000) -> Refused:
    """Append a batch that the log must refuse, and assert that the log is unchanged."""
    before = log.end_offset
    with pytest.raises(Refused) as refused:
        append(log, data, max_bytes=max_bytes)
    assert log.end_offset == before
    return refused.value


def test_offsets_count_records_across_batches() -> None:
    log = PartitionLog()
    assert append(log, batch(b"a", b"b")) == Appended(0, -1)
    assert append(log, batch(b"c")) == Appended(2, -1)
    assert log.end_offset == 3
    assert [(r.offset, r.value) for b in log.batches() for r in b.records] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_batch_keeps_its_bytes_but_for_offset_and_leader_epoch() -> None:
    log = PartitionLog()
    append(log, batch())
    sent = batch(b"x" * 100, codec=Codec.GZIP, producer_id=7, epoch=3, sequence=9)
    append(log, sent, leader_epoch=5)
    assert log.read(1, 10_000) == with_header(sent, base_offset=1, leader_epoch=5)


@for_each("codec", Codec)
def test_every_codec_is_taken_and_read_back(codec: Codec) -> None:
    log = PartitionLog()
    append(log, batch(b"one", b"two", codec=codec))
    [stored] = log.batches()
    assert stored.codec is codec
    assert [record.value for record in stored.records] == [b"one", b"two"]


@for_each(
    ("changes", "error"),
    [
        ({"magic": 1}, InvalidRecord),
        ({"magic": 3}, InvalidRecord),
        ({"length": 48}, CorruptMessage),
        ({"length": -1}, CorruptMessage),
        ({"length": 10_000}, CorruptMessage),
        ({"attributes": 5}, UnsupportedCompressionType),
        ({"attributes": CODEC_MASK}, UnsupportedCompressionType),
        ({"base_offset": 1}, InvalidRecord),
        ({"crc": 0}, CorruptMessage),
        ({"record_count": 0, "last_offset_delta": -1}, InvalidRecord),
        ({"record_count": 2}, InvalidRecord),
        ({"last_offset_delta": 1}, InvalidRecord),
        ({"attributes": CONTROL}, InvalidRecord),
        ({"attributes": TRANSACTIONAL}, InvalidRecord),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, InvalidRecord),
        ({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, InvalidRecord),
    ],
)
def test_header_that_no_client_may_send_is_refused(changes: dict[str, int], error: type[BrokerError]) -> None:
    assert refusal(PartitionLog(), with_header(batch(), **changes)).code == error.code


@for_each("data", [b"", b"\0" * 60, bytes(batch() + batch()), bytes(batch() + b"\0")])
def test_append_refuses_all_but_one_batch(data: bytes) -> None:
    assert refusal(PartitionLog(), data).code == InvalidRecord.code


def test_batch_may_be_as_large_as_the_limit_and_no_larger() -> None:
    log = PartitionLog()
    sent = batch(b"x" * 500)
    assert refusal(log, sent, max_bytes=len(sent) - 1).code == MessageTooLarge.code
    append(log, sent, max_bytes=len(sent))


def test_size_is_judged_before_the_checksum() -> None:
    sent = with_header(batch(b"x" * 500), crc=1)
    assert refusal(PartitionLog(), sent, max_bytes=100).code == MessageTooLarge.code


def test_resent_batch_is_not_appended() -> None:
    log = PartitionLog()
    append(log, batch())
    sent = batch(b"a", b"b", producer_id=1, epoch=0, sequence=0)
    assert append(log, sent) == append(log, sent) == Appended(1, -1)
    assert log.end_offset == 3


def test_sequence_and_epoch_are_checked() -> None:
    log = PartitionLog()
    append(log, batch(producer_id=1, epoch=1, sequence=0))
    assert refusal(log, batch(producer_id=1, epoch=1, sequence=2)).code == OutOfOrderSequenceNumber.code
    assert refusal(log, batch(producer_id=1, epoch=0, sequence=1)).code == InvalidProducerEpoch.code


def test_batch_refused_for_its_size_does_not_take_its_sequence() -> None:
    log = PartitionLog()
    refusal(log, batch(b"x" * 500, producer_id=1, epoch=0, sequence=0), max_bytes=100)
    append(log, batch(producer_id=1, epoch=0, sequence=0))


def test_batch_without_producer_id_is_no_duplicate() -> None:
    log = PartitionLog()
    assert append(log, batch()).base_offset == 0
    assert append(log, batch()).base_offset == 1


@for_each(
    ("records", "left"),
    [(1, [b"a", b"b", b"c"]), (3, [b"a", b"b", b"c"]), (4, [b"a", b"b"]), (5, []), (99, [])],
)
def test_end_that_a_log_loses_is_whole_batches(records: int, left: list[bytes]) -> None:
    log = three_batches()
    lost = log.lose_end(records)
    assert [record.value for each in log.batches() for record in each.records] == left
    assert [record.value for record in lost] == [b"a", b"b", b"c", b"d", b"e", b"f"][len(left) :]
    assert lost[0].offset == log.end_offset == len(left)
    assert append(log, batch()).base_offset == len(left)


def stamped(sequence: int, *, epoch: int = 0) -> bytearray:
    return batch(producer_id=1, epoch=epoch, sequence=sequence)


def test_truncated_log_expects_next_sequence() -> None:
    log = PartitionLog()
    for sequence in range(8):
        append(log, stamped(sequence))
    log.lose_end(2)
    assert refusal(log, stamped(8)).code == OutOfOrderSequenceNumber.code
    assert append(log, stamped(6)).base_offset == 6


def test_truncated_log_keeps_last_five_batches() -> None:
    log = PartitionLog()
    for sequence in range(8):
        append(log, stamped(sequence))
    log.lose_end(2)
    assert [append(log, stamped(sequence)).base_offset for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    assert refusal(log, stamped(0)).code == OutOfOrderSequenceNumber.code


def test_producer_with_nothing_left_in_the_log_is_unknown() -> None:
    log = PartitionLog()
    append(log, batch(producer_id=2, epoch=0, sequence=0))
    append(log, batch())
    for sequence in range(3):
        append(log, stamped(sequence))
    log.lose_end(3)
    append(log, stamped(17))
    assert refusal(log, batch(producer_id=2, epoch=0, sequence=17)).code == OutOfOrderSequenceNumber.code


def test_epoch_that_is_lost_was_never_there() -> None:
    log = PartitionLog()
    append(log, stamped(0))
    append(log, stamped(0, epoch=1))
    log.lose_end(1)
    assert append(log, stamped(0)).base_offset == 0
    append(log, stamped(1))


def test_log_append_time_replaces_the_records_own() -> None:
    log = PartitionLog(log_append_time=True)
    future = NOW_MS + 10 * FUTURE_LIMIT_MS
    assert append(log, batch(b"a", b"b", timestamps=[1, future])) == Appended(0, NOW_MS)
    [stored] = log.batches()  # which checks the CRC as well
    assert stored.attributes & LOG_APPEND_TIME
    assert [record.timestamp_ms for record in stored.records] == [NOW_MS, NOW_MS]


def test_records_too_far_in_the_future_are_named() -> None:
    limit = NOW_MS + FUTURE_LIMIT_MS
    log = PartitionLog()
    append(log, batch(timestamps=[limit]))
    refused = refusal(log, batch(b"a", b"b", b"c", timestamps=[limit + 1, limit, limit + 2]))
    assert refused.code == InvalidTimestamp.code
    assert sorted(refused.record_errors) == [0, 2]


def test_compacted_log_names_the_records_without_keys() -> None:
    log = PartitionLog(compacted=True)
    append(log, batch(b"a", keys=[b"k"]))
    refused = refusal(log, batch(b"a", b"b", b"c", keys=[None, b"k", None]))
    assert refused.code == InvalidRecord.code
    assert sorted(refused.record_errors) == [0, 2]


def test_undecodable_records_are_corrupt() -> None:
    sent = batch(b"abc", keys=[b"k"])
    sent[-3:] = b"\xff\xff\xff"
    assert refusal(PartitionLog(compacted=True), with_header(sent)).code == CorruptMessage.code


def three_batches() -> PartitionLog:
    """Offsets 0-1, 2 and 3-5; times 10, 40 / 20 / 30, 30, 50."""
    log = PartitionLog()
    append(log, batch(b"a", b"b", timestamps=[10, 40]))
    append(log, batch(b"c", timestamps=[20]))
    append(log, batch(b"d", b"e", b"f", timestamps=[30, 30, 50]))
    return log


@for_each(("offset", "first"), [(0, 0), (1, 0), (2, 2), (3, 3), (5, 3)])
def test_read_begins_with_the_batch_that_holds_the_offset(offset: int, first: int) -> None:
    log = three_batches()
    data = log.read(offset, 1_000_000)
    assert int.from_bytes(data[:8], "big") == first
    assert log.read(0, 1_000_000).endswith(data)


def test_read_at_the_end_returns_nothing() -> None:
    assert three_batches().read(6, 1_000) == b""


def test_read_returns_whole_batches_within_its_limit() -> None:
    log = three_batches()
    first, second = len(log.read(0, 1)), len(log.read(2, 1))
    assert len(log.read(0, first + second)) == first + second
    assert len(log.read(0, first + second + 1)) == first + second


def test_large_first_batch_is_returned_on_request() -> None:
    log = three_batches()
    assert log.read(0, 0, at_least_one=True)
    assert log.read(0, 0, at_least_one=False) == b""


@for_each(("timestamp_ms", "found"), [(0, (0, 10)), (10, (0, 10)), (11, (1, 40)), (41, (5, 50)), (51, None)])
def test_first_record_as_late_as_a_time_is_found(timestamp_ms: int, found: tuple[int, int] | None) -> None:
    assert three_batches().find_time(timestamp_ms) == found


def test_latest_record_need_not_be_the_last() -> None:
    log = three_batches()
    append(log, batch(b"g", timestamps=[1]))
    assert log.find_latest_time() == (5, 50)
    assert PartitionLog().find_latest_time() is None


def test_watchers_are_called_after_append() -> None:
    log = PartitionLog()
    seen: list[int] = []

    def watch_once() -> None:
        seen.append(log.end_offset)
        log.watchers.discard(watch_once)

    log.watchers.add(watch_once)
    append(log, batch())
    append(log, batch())
    assert seen == [1]


def test_watchers_are_called_when_the_end_is_lost() -> None:
    log = three_batches()
    seen: list[int] = []
    log.watchers.add(lambda: seen.append(log.end_offset))
    log.lose_end(1)
    assert seen == [3]


def test_zstd_is_recognised_by_the_header_alone() -> None:
    assert is_zstd(batch(codec=Codec.ZSTD))
    assert not is_zstd(batch(codec=Codec.LZ4))
    assert not is_zstd(b"\xff" * 22)
