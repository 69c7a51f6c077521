from __future__ import annotations

import copy

from aioproducer.types import ProducerRecord, TopicPartition


def test_a_partition_is_written_as_kafka_writes_it() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_a_copied_record_can_be_changed_alone() -> None:
    record = ProducerRecord("orders", b"v")
    changed = copy.copy(record)
    changed.value = b"w"
    assert record.value == b"v"
