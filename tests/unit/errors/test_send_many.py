from __future__ import annotations

import copy

import pytest

from aioproducer.errors import DeliveryTimeout, MessageTooLarge, ProducerFenced, RecordTooLarge, SendManyError
from aioproducer.errors.send_many import DeliveredRun, OffsetRange, SendManyResult
from aioproducer.types import RecordMetadata


def result_of_four() -> SendManyResult:
    """Two runs, out of order, and one failure."""
    result = SendManyResult("orders", 4)
    result.add_delivered(DeliveredRun([1, 3], 2, 70, [11, 13], log_append_time=False))
    result.add_failed(2, RecordTooLarge("too large"))
    result.add_delivered(DeliveredRun(range(1), 0, 5, [10], log_append_time=True))
    return result


def test_positions_lead_to_partitions_and_offsets() -> None:
    result = result_of_four()
    assert len(result) == 4
    assert result.delivered == 3
    assert [result.partition(position) for position in (0, 1, 3)] == [0, 2, 2]
    assert [result.offset(position) for position in (0, 1, 3)] == [5, 70, 71]
    assert result.offset(-1) == 71


def test_partition_and_offset_of_a_failed_record_raise_its_error() -> None:
    result = result_of_four()
    for ask in (result.partition, result.offset):
        with pytest.raises(RecordTooLarge, match="too large"):
            ask(2)


@pytest.mark.parametrize("position", [4, -5])
def test_result_refuses_positions_beyond_the_call(position: int) -> None:
    with pytest.raises(IndexError, match="outside the 4 records"):
        result_of_four().offset(position)


def test_iterating_yields_metadata_or_error_by_position() -> None:
    result = result_of_four()
    first, second, third, fourth = result
    assert first == RecordMetadata("orders", 0, 5, 10, log_append_time=True)
    assert second == RecordMetadata("orders", 2, 70, 11, log_append_time=False)
    assert third is result.failures[2]
    assert fourth == RecordMetadata("orders", 2, 71, 13, log_append_time=False)


def test_unknown_offset_applies_to_the_whole_run() -> None:
    result = SendManyResult("orders", 2)
    result.add_delivered(DeliveredRun(range(2), 0, -1, [1, 2], log_append_time=False))
    assert [result.offset(position) for position in range(2)] == [-1, -1]


def test_result_includes_outcomes_added_after_a_read() -> None:
    result = SendManyResult("orders", 2)
    result.add_delivered(DeliveredRun([0], 0, 1, [1], log_append_time=False))
    assert result.offset(0) == 1
    result.add_delivered(DeliveredRun([1], 0, 2, [1], log_append_time=False))
    assert result.offset(1) == 2


def test_failures_are_in_order_and_cannot_be_changed() -> None:
    result = SendManyResult("orders", 3)
    for position in (2, 0):
        result.add_failed(position, RecordTooLarge(str(position)))
    assert list(result.failures) == [0, 2]
    with pytest.raises(TypeError):
        result.failures[1] = RecordTooLarge()  # type: ignore[index]


def test_raise_failures_without_failures_does_nothing() -> None:
    SendManyResult("orders", 0).raise_failures()


def test_send_many_error_has_result_and_first_cause() -> None:
    result = result_of_four()
    with pytest.raises(
        SendManyError, match=r"^1 of 4 records for 'orders' failed; the first, at position 2"
    ) as raised:
        result.raise_failures()
    assert raised.value.result is result
    assert raised.value.__cause__ is result.failures[2]
    assert not raised.value.possibly_persisted
    assert not raised.value.retriable


def test_error_is_possibly_persisted_if_one_record_is() -> None:
    result = result_of_four()
    result.add_failed(3, MessageTooLarge("?", possibly_persisted=True))
    with pytest.raises(SendManyError) as raised:
        result.raise_failures()
    assert raised.value.possibly_persisted


def test_error_is_retriable_if_one_record_is() -> None:
    result = result_of_four()
    result.add_failed(3, DeliveryTimeout("too late"))
    with pytest.raises(SendManyError) as raised:
        result.raise_failures()
    assert raised.value.retriable
    assert copy.copy(raised.value).retriable
    assert not SendManyError.retriable


def test_error_is_abortable_if_one_record_is() -> None:
    result = result_of_four()
    lost = DeliveryTimeout("too late")
    lost.abortable = True
    result.add_failed(3, lost)
    with pytest.raises(SendManyError) as raised:
        result.raise_failures()
    assert (raised.value.abortable, raised.value.fatal) == (True, False)


def test_error_is_fatal_if_one_record_is() -> None:
    result = result_of_four()
    lost, last = DeliveryTimeout("too late"), ProducerFenced("another")
    lost.abortable = last.fatal = True
    result.add_failed(0, lost)
    result.add_failed(3, last)
    with pytest.raises(SendManyError) as raised:
        result.raise_failures()
    assert (raised.value.abortable, raised.value.fatal) == (False, True)


def test_result_repr_has_counts() -> None:
    assert repr(result_of_four()) == "<SendManyResult topic='orders' delivered=3 failed=1>"


def test_offset_ranges_are_grouped_by_partition() -> None:
    result = result_of_four()
    assert result.offset_ranges() == {2: OffsetRange(70, 71, 2), 0: OffsetRange(5, 5, 1)}
    result.add_delivered(DeliveredRun([2], 2, 60, [12], log_append_time=False))
    assert result.offset_ranges()[2] == OffsetRange(60, 71, 3)


def test_offset_ranges_count_records_at_unknown_offsets() -> None:
    unknown, known = OffsetRange(-1, -1, 2), OffsetRange(5, 6, 2)
    assert unknown.joined(known) == known.joined(unknown) == OffsetRange(5, 6, 4)
    assert unknown.joined(unknown) == OffsetRange(-1, -1, 4)
    result = SendManyResult("orders", 3)
    result.add_delivered(DeliveredRun(range(3), 0, -1, [1, 2, 3], log_append_time=False))
    assert result.offset_ranges() == {0: OffsetRange(-1, -1, 3)}


def test_range_may_start_at_offset_zero() -> None:
    assert OffsetRange(0, 0, 1).joined(OffsetRange(1, 1, 1)) == OffsetRange(0, 1, 2)
