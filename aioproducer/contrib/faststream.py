"""FastStream's publishing through a `Producer`: transactions, an outcome per record, batches of any size.

    producer = Producer("localhost:9092")
    broker = KafkaBroker("localhost:9092", middlewares=[PublishWith(producer)], consumer_only=True)

docs/faststream.md has the recipes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from aioproducer import Producer, RecordMetadata, SendManyResult

try:
    from fast_depends.pydantic import PydanticSerializer
    from faststream import BaseMiddleware, ContextRepo
    from faststream.kafka import KafkaPublishCommand
    from faststream.message import encode_message
except ImportError as _missing:
    raise ImportError(
        "aioproducer.contrib.faststream needs FastStream: pip install 'faststream[kafka]'"
    ) from _missing

Sent: TypeAlias = (
    RecordMetadata | SendManyResult | asyncio.Future[RecordMetadata] | list[asyncio.Future[RecordMetadata]]
)


class PublishWith:
    """Middleware of a `KafkaBroker` that publishes with *producer*; must be the last middleware.

    `broker.publish`, publishers and answers of handlers return the record's `RecordMetadata`; a batch of two or more
    records returns its `SendManyResult`. With `no_confirm=True` the result is the record's Future, or one Future per
    record of a batch. The errors are those of `Producer`. Before the producer is started, as in tests with
    `TestKafkaBroker`, FastStream publishes with its own producer.

    *serializer* encodes bodies other than `bytes` and `str`; pass the serializer of the broker, if set. The default is
    FastStream's: JSON by pydantic. A codec of the broker has no effect.
    """

    def __init__(self, producer: Producer, *, serializer: Any = None) -> None:
        self._producer = producer
        self._serializer = serializer or PydanticSerializer(use_fastdepends_errors=False)

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:
        """Return the middleware of one message."""
        return _Publishing(self._producer, self._serializer, msg, context=context)


class _Publishing(BaseMiddleware[Any, Any]):
    def __init__(self, producer: Producer, serializer: Any, msg: Any, /, *, context: ContextRepo) -> None:
        super().__init__(msg, context=context)
        self._producer = producer
        self._serializer = serializer

    async def publish_scope(self, call_next: Callable[[Any], Awaitable[Any]], cmd: Any) -> Any:
        """Send the record or batch of *cmd* in place of FastStream's producer."""
        if self._producer.state == "new":
            return await call_next(cmd)
        command = KafkaPublishCommand.from_cmd(cmd)
        send = _send_batch if command.extra_bodies else _send
        return await send(self._producer, self._serializer, command)


async def _send(producer: Producer, serializer: Any, command: KafkaPublishCommand) -> Sent:
    value, headers = _encoded(command, serializer, command.body, has_key=command.key is not None)
    send = producer.enqueue if command.no_confirm else producer.send
    placed = {"partition": command.partition, "timestamp_ms": command.timestamp_ms}
    return await send(command.destination, value, command.key, headers=headers, **placed)


async def _send_batch(producer: Producer, serializer: Any, command: KafkaPublishCommand) -> Sent:
    topic, count = command.destination, len(command.batch_bodies)
    keys = [command.key_for(position) for position in range(count)]
    encoded = [
        _encoded(command, serializer, body, has_key=key is not None)
        for body, key in zip(command.batch_bodies, keys, strict=True)
    ]
    if not command.no_confirm:
        return await producer.send_many(
            topic,
            [value for value, _ in encoded],
            keys=keys,
            headers=[headers for _, headers in encoded],
            timestamps_ms=[command.timestamp_ms] * count,
            partition=command.partition,
        )
    placed = {"partition": command.partition, "timestamp_ms": command.timestamp_ms}
    return [
        await producer.enqueue(topic, value, key, headers=headers, **placed)
        for (value, headers), key in zip(encoded, keys, strict=True)
    ]


def _encoded(
    command: KafkaPublishCommand, serializer: Any, body: Any, *, has_key: bool
) -> tuple[bytes | None, list[tuple[str, bytes]]]:
    """Return value and headers of a record, encoded as by FastStream; None with a key is a tombstone."""
    value, content_type = (None, None) if body is None and has_key else encode_message(body, serializer)
    headers: dict[str, Any] = {"content-type": content_type or "", **command.headers_to_publish()}
    return value, [(name, str(text or "").encode()) for name, text in headers.items()]
