"""The traffic on the wire: every attempt to append a record, and its answer.

The checker does not rely on the producer's own counters. This module records the traffic of connections:
a batch counts as written once a transport was given it, and as answered once an answer that makes sense has arrived.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from unittest import mock

from aioproducer._core.net.connection import Connection
from aioproducer._core.net.in_flight import FrameReader
from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.metadata import MetadataResponse
from aioproducer._core.protocol.produce import ProduceRequest, ProduceResponse
from aioproducer._core.protocol.schema import (
    RequestHeader,
    decode,
    decode_request,
    decode_response,
    read_correlation_id,
)
from aioproducer._core.records.decode import decode_batches
from aioproducer.errors import ProtocolError

MAX_BYTES: Final = 1 << 27


@dataclass(slots=True, eq=False)
class Attempt:
    """One batch in one request."""

    topic: str
    partition: int
    values: tuple[bytes, ...]
    code: int | None = None
    """The error code of its answer; 0 is success, None no answer."""
    answered_at: float = float("inf")
    refused_values: frozenset[bytes] = frozenset()
    """The records that the answer named in `record_errors`."""

    def answer_by(self, when: float) -> int | None:
        """Return the code that the client knew at *when*."""
        return self.code if self.answered_at <= when else None


class Wire:
    """All requests that producers wrote during the recording."""

    def __init__(self) -> None:
        self._attempts: dict[bytes, list[Attempt]] = defaultdict(list)
        self._names: dict[bytes, str] = {}

    def attempts(self, value: bytes) -> list[Attempt]:
        """Return the attempts to append the record with *value*, in order."""
        return self._attempts.get(value, [])

    @contextmanager
    def listening(self) -> Iterator[Wire]:
        """Listen to every connection, between it and its transport: below that it may be TLS."""
        set_transport, feed_data = Connection.set_transport, Connection.feed_data
        conversations: dict[Connection, _Conversation] = {}

        def made(connection: Connection, transport: asyncio.BaseTransport) -> None:
            conversations[connection] = conversation = _Conversation(self._attempts, self._names)
            _overhear(transport, "write", conversation.said_by_client)
            set_transport(connection, transport)

        def received(connection: Connection, data: bytes) -> None:
            conversations[connection].said_by_broker(data)
            feed_data(connection, data)

        with mock.patch.multiple(Connection, set_transport=made, feed_data=received):
            yield self


class _Conversation:
    """One connection; *names* are those of all topics by their ids, as far as any has heard of them."""

    def __init__(self, attempts: dict[bytes, list[Attempt]], names: dict[bytes, str]) -> None:
        self._attempts, self._names = attempts, names
        self._requests, self._answers = FrameReader(MAX_BYTES), FrameReader(MAX_BYTES)
        self._unanswered: deque[tuple[RequestHeader, Mapping[tuple[str, int], Attempt]]] = deque()
        self._makes_sense = True

    def said_by_client(self, data: bytes) -> None:
        for payload in self._requests.feed(bytes(data)):
            header, body_at = decode_request(payload, REQUESTS)
            attempts: dict[tuple[str, int], Attempt] = {}
            if header.api_key == ProduceRequest.API_KEY:
                request = decode(ProduceRequest, header.api_version, payload, body_at)
                attempts.update(self._noted(request))
                if request.acks == 0:
                    continue
            self._unanswered.append((header, attempts))

    def said_by_broker(self, data: bytes) -> None:
        """Record answers up to the first malformed answer; a client cannot trust later bytes."""
        if self._makes_sense:
            try:
                for payload in self._answers.feed(data):
                    self._hear(payload)
            except ProtocolError:
                self._makes_sense = False

    def _noted(self, request: ProduceRequest) -> Iterator[tuple[tuple[str, int], Attempt]]:
        for topic in request.topic_data:
            name = topic.name or self._names[topic.topic_id]
            for data in topic.partition_data:
                batches = decode_batches(data.records or b"", limit=MAX_BYTES)
                values = tuple(record.value or b"" for batch in batches for record in batch.records)
                attempt = Attempt(name, data.index, values)
                for value in values:
                    self._attempts[value].append(attempt)
                yield (name, data.index), attempt

    def _hear(self, payload: bytes) -> None:
        header, attempts = self._unanswered.popleft() if self._unanswered else (None, {})
        if header is None or header.correlation_id != read_correlation_id(payload):
            raise ProtocolError("that was not asked for")
        answer, _ = decode_response(REQUESTS[header.api_key].RESPONSE, header.api_version, payload)
        if isinstance(answer, MetadataResponse):
            self._names.update({topic.topic_id: topic.name or "" for topic in answer.topics})
        if not isinstance(answer, ProduceResponse):
            return
        now = asyncio.get_running_loop().time()
        for topic in answer.responses:
            for partition in topic.partition_responses:
                with suppress(KeyError):  # one that was not asked for
                    name = topic.name or self._names[topic.topic_id]
                    attempt = attempts[name, partition.index]
                    attempt.code, attempt.answered_at = partition.error_code, now
                    attempt.refused_values = frozenset(
                        attempt.values[each.batch_index]
                        for each in partition.record_errors
                        if each.batch_index < len(attempt.values)
                    )


def _overhear(whom: object, name: str, listen: Callable[[bytes], None]) -> None:
    """Call *listen* with the arguments of the method *name* of *whom* before the method runs."""
    method = getattr(whom, name)

    def overheard(data: bytes) -> None:
        listen(data)
        method(data)

    setattr(whom, name, overheard)
