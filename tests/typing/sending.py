"""Types of the results of calls, and of attributes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import assert_type

from aioproducer import (
    Producer,
    ProducerError,
    RecordMetadata,
    SendManyError,
    SendManyResult,
)
from aioproducer.contrib.threads import ThreadedProducer
from aioproducer.results import OffsetRange


async def calls(producer: Producer) -> None:
    assert_type(await producer.send("orders", b"v"), RecordMetadata)
    assert_type(await producer.send("orders", {"any": "value"}, 7, timeout_s=1), RecordMetadata)
    enqueued = await producer.enqueue("orders", b"v", key=b"k")
    appended = producer.send_nowait("orders", headers={"trace": b"1f"})
    assert_type([enqueued, appended], list[asyncio.Future[RecordMetadata]])
    assert_type(await producer.send_many("orders", [b"a", b"b"], keys=(b"k", None)), SendManyResult)
    assert_type(await producer.partitions_for("orders"), frozenset[int])
    assert_type(await producer.close(1.5), int)
    await producer.flush()
    await producer.send(7)  # type: ignore[arg-type]
    await producer.send("orders", b"v", b"k", 0)  # type: ignore[call-arg]
    await producer.send("orders", headers={"trace": "1f"})  # type: ignore[dict-item]
    await producer.send("orders", topic_partition=0)  # type: ignore[call-arg]
    await producer.send_nowait("orders", timeout_s=1)  # type: ignore[call-arg]


async def outcomes(producer: Producer) -> None:
    sent = await producer.send("orders", b"v")
    assert_type((sent.topic, sent.partition, sent.offset), tuple[str, int, int])
    try:
        result = await producer.send_many("orders", [b"v"], headers=[[("trace", None)]])
    except SendManyError as error:
        assert_type(error.result, SendManyResult)
        assert_type(error.result.failures, Mapping[int, ProducerError])
    except ProducerError as error:
        assert_type((error.possibly_persisted, error.retriable), tuple[bool, bool])
    else:
        assert_type(list(result), list[RecordMetadata | ProducerError])
        assert_type((result.delivered, result.offset(0)), tuple[int, int])
        assert_type(result.offset_ranges(), dict[int, OffsetRange])


class Flushed(ThreadedProducer):
    def flush(self, timeout_s: float | None = 5.0) -> None:
        super().flush(timeout_s)


def from_a_thread(producer: ThreadedProducer) -> None:
    assert_type(producer.send("orders", b"v"), RecordMetadata)
    assert_type(producer.send_many("orders", [b"v"]), SendManyResult)
    assert_type(producer.enqueue("orders", b"v").result(), RecordMetadata)
    producer.send(b"orders")  # type: ignore[arg-type]
