from __future__ import annotations

import copy

from aioproducer.types import ProducerRecord, TopicPartition
from tests.cases import for_each


def test_str_of_a_partition_is_topic_and_number() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_repr_of_a_record_has_all_fields() -> None:
    record = ProducerRecord("orders", b"v", "key", 3, [("trace", b"1")], 17)
    assert repr(record) == (
        "ProducerRecord(topic='orders', value=b'v', key='key', partition=3, headers=[('trace', b'1')], "
        "timestamp_ms=17)"
    )


@for_each(
    ("value", "shown"),
    [
        (b"a" * 64, repr(b"a" * 64)),
        (b"a" * 1_000_000, f"{b'a' * 64!r}… (1,000,000 bytes)"),
        (bytearray(b"a" * 65), f"{bytearray(b'a' * 64)!r}… (65 bytes)"),
        ("ä" * 65, f"{'ä' * 64!r}… (65 characters)"),
        (list(range(1_000)), f"{str(list(range(1_000)))[:256]}…"),
    ],
)
def test_repr_shortens_long_values(value: object, shown: str) -> None:
    assert f"value={shown}, key={shown}, partition=None" in repr(ProducerRecord("orders", value, value))


def test_copied_record_can_be_changed_alone() -> None:
    record = ProducerRecord("orders", b"v")
    changed = copy.copy(record)
    changed.value = b"w"
    assert record.value == b"v"
