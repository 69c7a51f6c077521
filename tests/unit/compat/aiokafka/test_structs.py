"""The fields, next to aiokafka's own."""

from __future__ import annotations

import pickle
import sys

import aiokafka.structs
import pytest

from aioproducer import types
from aioproducer.compat.aiokafka.structs import (
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
    record_metadata,
)


def test_structs_have_the_fields_of_aiokafka() -> None:
    assert RecordMetadata._fields == aiokafka.structs.RecordMetadata._fields
    assert OffsetAndMetadata._fields == aiokafka.structs.OffsetAndMetadata._fields
    assert TopicPartition._fields == aiokafka.structs.TopicPartition._fields


@pytest.mark.parametrize("log_append_time", [False, True])
def test_record_metadata_has_aiokafkas_fields(log_append_time: bool) -> None:
    sent = record_metadata(types.RecordMetadata("orders", 2, 7, 1234, log_append_time))
    assert sent == aiokafka.structs.RecordMetadata(
        topic="orders",
        partition=2,
        topic_partition=aiokafka.structs.TopicPartition("orders", 2),
        offset=7,
        timestamp=1234,
        timestamp_type=int(log_append_time),
        log_start_offset=None,
    )


def test_record_metadata_subclasses_imported_aiokafka(monkeypatch: pytest.MonkeyPatch) -> None:
    told = types.RecordMetadata("orders", 2, 7, 1234, False)
    both = record_metadata(told)
    assert isinstance(both, aiokafka.structs.RecordMetadata)
    assert isinstance(both, RecordMetadata)
    assert both._replace(offset=8).offset == 8
    again = pickle.loads(pickle.dumps(both))
    assert again == both
    monkeypatch.delitem(sys.modules, "aiokafka.structs")
    alone = record_metadata(told)
    assert type(alone) is RecordMetadata
    assert alone == both
