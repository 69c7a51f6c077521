"""Records of every shape, the ways to send them, and the expected records of a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from aioproducer import Producer, RecordMetadata
from tests.kafka.readback import Record

KEYS = (None, b"", b"customer-7", bytes(range(256)))
VALUES = (None, b"", b"value", bytes(range(256)) * 4, b"very compressible " * 200)
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("trace", b"1f"),),
    (
        ("null", None),
        ("empty", b""),
        ("twice", b"1"),
        ("twice", None),
        ("", bytes(range(256))),
        ("größe", b"7"),
    ),
)
FIRST_TIMESTAMP_MS = 1_700_000_000_000


class Sample(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int

    def as_read(self, sent: RecordMetadata) -> Record:
        """Return the record that a consumer has to read if *sent* is correct."""
        return Record(
            sent.partition, sent.offset, self.key, self.value, self.headers, self.timestamp_ms, False
        )


SAMPLES = tuple(
    # neither all alike nor in order: timestamps are stored as differences to the batch's first
    Sample(key, value, headers, FIRST_TIMESTAMP_MS + number * 7_919 % 1_000)
    for number, (key, value, headers) in enumerate(product(KEYS, VALUES, HEADERS))
)
"""Each combination of a key, a value and headers."""

WayToSend: TypeAlias = Callable[[Producer, str, Sequence[Sample]], Coroutine[Any, Any, list[RecordMetadata]]]


async def with_send(producer: Producer, topic: str, samples: Sequence[Sample]) -> list[RecordMetadata]:
    return await asyncio.gather(
        *(
            producer.send(topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp_ms)
            for each in samples
        )
    )


async def with_enqueue(producer: Producer, topic: str, samples: Sequence[Sample]) -> list[RecordMetadata]:
    futures = [
        await producer.enqueue(
            topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp_ms
        )
        for each in samples
    ]
    return await asyncio.gather(*futures)


async def with_send_nowait(producer: Producer, topic: str, samples: Sequence[Sample]) -> list[RecordMetadata]:
    await producer.partitions_for(topic)
    return await asyncio.gather(
        *(
            producer.send_nowait(
                topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp_ms
            )
            for each in samples
        )
    )


async def with_send_many(producer: Producer, topic: str, samples: Sequence[Sample]) -> list[RecordMetadata]:
    result = await producer.send_many(
        topic,
        [each.value for each in samples],
        keys=[each.key for each in samples],
        headers=[each.headers for each in samples],
        timestamps_ms=[each.timestamp_ms for each in samples],
    )
    return [sent for sent in result if isinstance(sent, RecordMetadata)]


WAYS_TO_SEND: tuple[WayToSend, ...] = (with_send, with_enqueue, with_send_nowait, with_send_many)
