"""`AIOKafkaProducer` on top of `Producer`, and the batches that its users fill record by record."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, Self, cast

from aioproducer import types
from aioproducer._core.clock import wall_ms
from aioproducer._core.intake.checks import as_bytes, as_headers, check_timestamp
from aioproducer._core.intake.many import OrderedCalls
from aioproducer._core.partitioning import PartitionFunction
from aioproducer._core.records.columns import BATCH_OVERHEAD, record_size_bound
from aioproducer._core.security.secret import without_frames
from aioproducer._lifecycle import State
from aioproducer.compat.aiokafka import errors
from aioproducer.compat.aiokafka.aiokafka_client import AIOKafkaClient, Sender
from aioproducer.compat.aiokafka.aiokafka_options import translated_config, translated_security
from aioproducer.compat.aiokafka.aiokafka_transactions import AIOKafkaTransactions
from aioproducer.compat.aiokafka.structs import RecordMetadata, TopicPartition, record_metadata
from aioproducer.compat.aiokafka.translation import as_aiokafka, relayed, translating
from aioproducer.errors import AuthenticationFailed, ProducerClosed
from aioproducer.errors.send_many import SendManyResult
from aioproducer.producer import Producer
from aioproducer.serializers import Serialized
from aioproducer.types import Headers

Serializer = Callable[[Any], Serialized]
"""A synchronous serializer, as in aiokafka."""


def serialized(argument: str, serializer: Serializer | None, data: Any) -> bytes | None:
    """Return a record's key or value as bytes. Raises: TypeError; the errors of *serializer*."""
    if serializer is None:
        return as_bytes(argument, data)
    return as_bytes(f"the result of {argument}_serializer", serializer(data))


def whole_ms(timestamp: float | None) -> int | None:
    """Return *timestamp* without its fraction; aiokafka accepts `time.time() * 1000`."""
    return int(timestamp) if isinstance(timestamp, float) else timestamp


class AppendedRecord(NamedTuple):
    """A record in a batch that was not sent yet."""

    offset: int
    """Index in the batch, from 0."""
    size: int
    """Upper bound of the size, in bytes."""
    timestamp: int
    """Milliseconds since the epoch."""
    crc: None = None
    """Always None: records have no CRC since Kafka 0.11."""


class BatchBuilder:
    """Records for one partition, up to a size; created by `AIOKafkaProducer.create_batch`.

    Sizes are the producer's own upper bounds, so the records are sent as one batch.
    """

    def __init__(
        self, max_size: int, *, key_serializer: Serializer | None, value_serializer: Serializer | None
    ) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.timestamps_ms: list[int] = []
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._max_size = max_size
        self._size = BATCH_OVERHEAD
        self._closed = False

    def append(
        self,
        *,
        timestamp: float | None,
        key: Any,
        value: Any,
        headers: Iterable[tuple[str, bytes | None]] | None = (),
    ) -> AppendedRecord | None:
        """Add a record. Return None if the batch is closed, or is closed now because the record does not fit.

        The first record always fits. *timestamp* is in milliseconds since the epoch; None stands for now.

        Raises: TypeError, ValueError for an argument; the errors of a serializer.
        """
        if self._closed:
            return None
        key = serialized("key", self._key_serializer, key)
        value = serialized("value", self._value_serializer, value)
        pairs = as_headers("headers", tuple(headers or ()))
        timestamp_ms = wall_ms() if timestamp is None else check_timestamp("timestamp", whole_ms(timestamp))
        size = record_size_bound(value, key, pairs)
        if self.values and self._size + size > self._max_size:
            self.close()  # a later, smaller record would overtake this record
            return None
        self._size += size
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(pairs)
        self.timestamps_ms.append(timestamp_ms)
        return AppendedRecord(len(self.values) - 1, size, timestamp_ms)

    def close(self) -> None:
        """Refuse further records."""
        self._closed = True

    def closed(self) -> bool:
        """Return True if the batch accepts no more records: it is closed, sent or full."""
        return self._closed

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.values)

    def size(self) -> int:
        """Return an upper bound of the size before compression, in bytes."""
        return self._size


NOTHING: Final = cast("RecordMetadata", None)
"""Result of a record without acknowledgement: None, typed as in aiokafka."""


class AIOKafkaProducer(AIOKafkaTransactions):
    """Sends records to Apache Kafka; every argument and method is aiokafka's.

        producer = AIOKafkaProducer(bootstrap_servers="localhost:9092")
        await producer.start()
        try:
            sent = await producer.send_and_wait("orders", b"value", key=b"customer-7")
        finally:
            await producer.stop()

    Durations are in milliseconds, sizes in bytes. docs/from-aiokafka.md lists the differences from aiokafka.

    Args:
        loop: has no effect; the producer runs in the event loop of `start`. Deprecated, as in aiokafka.
        bootstrap_servers: `host[:port]`, several as a list or separated by commas; the usual port is 9092.
        client_id: name in the brokers' logs; default `aioproducer-N`.
        metadata_max_age_ms: maximum age of metadata.
        request_timeout_ms: time limit of the wait before an append, of the delivery, and of a request.
        api_version: has no effect; versions are negotiated. Deprecated, as in aiokafka.
        acks: 0, 1 or "all" (-1). By default 1, and "all" with *enable_idempotence*.
        key_serializer: called with each key; returns bytes.
        value_serializer: called with each value; returns bytes.
        compression_type: gzip, snappy, lz4, zstd or None.
        max_batch_size: size of a full batch.
        partitioner: `(key_bytes, all_partitions, available_partitions) -> partition`.
        max_request_size: maximum size of a request and of a record.
        linger_ms: time that a partial batch waits for more records.
        retry_backoff_ms: initial delay before a retry; doubles with each failure, up to one second.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        ssl_context: the TLS context, such as `helpers.create_ssl_context()`; required with TLS.
        connections_max_idle_ms: closes a connection after this time without use; None: never.
        enable_idempotence: prevents duplicates by retries; `request_timeout_ms` then does not limit the delivery.
        transactional_id: enables transactions and idempotence; only one running producer may use an id.
        transaction_timeout_ms: time limit of a transaction.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.
        sasl_plain_password: password for PLAIN and SCRAM.
        sasl_plain_username: user name for PLAIN and SCRAM.
        sasl_kerberos_service_name: Kerberos service name of the brokers.
        sasl_kerberos_domain_name: Kerberos name of the brokers, if it is not their host name.
        sasl_oauth_token_provider: an `abc.AbstractTokenProvider`, of this package or of aiokafka.

    Raises:
        ValueError: an option is out of range, contradicts another, or is missing.
    """

    _closed: bool | None = None  # until the options are checked
    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Sequence[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300_000,
        request_timeout_ms: int = 40_000,
        api_version: str | None = None,
        acks: Literal[0, 1, -1, "all"] | object | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        compression_type: Literal["gzip", "snappy", "lz4", "zstd"] | None = None,
        max_batch_size: int = 16_384,
        partitioner: PartitionFunction | None = None,
        max_request_size: int = 1_048_576,
        linger_ms: float = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        connections_max_idle_ms: int | None = 540_000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        for name, value in {"loop": loop, "api_version": api_version}.items():
            if value is not None:
                warnings.warn(f"{name} has no effect; leave it out", DeprecationWarning, stacklevel=2)
        security: dict[str, Any] = {
            "security_protocol": security_protocol,
            "ssl_context": ssl_context,
            "sasl_mechanism": sasl_mechanism,
            "sasl_plain_username": sasl_plain_username,
            "sasl_plain_password": sasl_plain_password,
            "sasl_kerberos_service_name": sasl_kerberos_service_name,
            "sasl_kerberos_domain_name": sasl_kerberos_domain_name,
            "sasl_oauth_token_provider": sasl_oauth_token_provider,
        }
        try:
            config = translated_config(
                bootstrap_servers=bootstrap_servers,
                client_id=client_id,
                metadata_max_age_ms=metadata_max_age_ms,
                request_timeout_ms=request_timeout_ms,
                acks=acks,
                compression_type=compression_type,
                max_batch_size=max_batch_size,
                partitioner=partitioner,
                max_request_size=max_request_size,
                linger_ms=linger_ms,
                retry_backoff_ms=retry_backoff_ms,
                connections_max_idle_ms=connections_max_idle_ms,
                enable_idempotence=enable_idempotence,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                **translated_security(**security),
            )
        except ValueError as error:
            without_frames(error)
            security.clear()
            sasl_plain_password = None  # this frame goes into the traceback
            raise
        self._producer = Producer.from_config(config)
        self._key_serializer = key_serializer  # not passed on: a batch serializes its records before the send
        self._value_serializer = value_serializer
        self._max_batch_size = max_batch_size
        self._partition_locks: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._batches: set[asyncio.Task[SendManyResult]] = set()
        self._ordered = OrderedCalls()
        # Read by health checks, instrumentation and frameworks.
        self.client: AIOKafkaClient = AIOKafkaClient(
            self._producer, bootstrap_servers, {"request_timeout_ms": request_timeout_ms, **security}
        )
        self._metadata = self.client.cluster
        self._sender = Sender(self._producer)
        self._closed = False

    def __del__(self, _warnings: Any = warnings) -> None:
        """Warn if the producer was not stopped, as in aiokafka."""
        if self._closed is not False:
            return
        _warnings.warn(f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, source=self, stacklevel=2)
        if self._loop is not None:
            self._loop.call_exception_handler({"producer": self, "message": "Unclosed AIOKafkaProducer"})

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Connect, unless connected.

        Raises: KafkaConnectionError if no broker is reachable, or authentication fails. The call may be repeated.
        """
        if self._producer.state in {State.READY, State.DEGRADED}:
            return
        self._loop = asyncio.get_running_loop()
        with translating():
            try:
                await self._producer.start()
            except AuthenticationFailed as error:  # aiokafka has one error for all failed starts
                raise as_aiokafka(errors.KafkaConnectionError)(str(error)) from error

    async def stop(self) -> None:
        """Send all appended records and close. Has no effect before the start and after the first call."""
        self._closed = True
        if self._producer.state is not State.NEW:
            await self.client.close()
            await self._producer.close()

    async def flush(self) -> None:
        """Wait for the outcome of all records so far. Return at once before the start and after the end."""
        try:
            await self._producer.flush()
        except ProducerClosed:
            return
        if self._batches:
            await asyncio.wait(self._batches)  # the tasks finish one loop iteration later

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of *topic*. Raises: UnknownTopicOrPartitionError, or another KafkaError."""
        with translating():
            return set(await self._producer.partitions_for(topic))

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Append one record and return the Future of its acknowledgement, which is None with `acks=0`.

        If the call is cancelled before the append, the record is not sent. Cancelling the Future has no effect on the
        record.

        Raises:
            KafkaTimeoutError: no memory was free within `request_timeout_ms`.
            UnknownTopicOrPartitionError: no metadata of the topic, or no such partition, within `request_timeout_ms`.
            MessageSizeTooLargeError: the record is larger than `max_request_size`.
            TypeError, ValueError: an argument is invalid. The errors of a serializer.
        """
        record = self._record(value, key, partition, timestamp_ms, headers)
        with translating():
            return relayed(await self._producer.enqueue(topic, **record), self._outcome)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Send one record and return its position; None with `acks=0`. Raises: as `send`; any KafkaError."""
        if type(self).send is not _SEND:  # overridden or instrumented: aiokafka calls `send` here
            return await (await self.send(topic, value, key, partition, timestamp_ms, headers))
        record = self._record(value, key, partition, timestamp_ms, headers)
        with translating():
            return self._outcome(await self._producer.send(topic, **record))

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch of up to `max_batch_size` for `send_batch`."""
        return BatchBuilder(
            self._max_batch_size,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata]:
        """Close *batch* and send its records. Return the Future of the first record's position.

        If *partition* is None, the partitioner chooses one, as for a record without a key. The Future's result is None
        with `acks=0` and for an empty batch.

        Waits for an earlier batch to the same partition, and for memory. A call that is cancelled during the first wait
        sends nothing.

        Raises:
            KafkaTimeoutError: the earlier batch had no outcome within `request_timeout_ms`.
            ValueError: the topic has no such partition. IllegalOperation: no transaction is open. Else as
                `partitions_for`.
        """
        await self.partitions_for(topic)
        partition = self._partition(topic, partition, None, None, None, None)
        with translating():
            _ = self._producer._sending()  # noqa: SLF001 - of this package
        where = TopicPartition(topic, partition)
        turn = self._partition_locks[where]
        try:
            async with asyncio.timeout(self._producer.config.max_block_s):
                await turn.acquire()
        except TimeoutError as error:
            raise as_aiokafka(errors.KafkaTimeoutError)(
                f"{where}: the previous batch has no outcome yet"
            ) from error
        batch.close()
        sending = asyncio.create_task(
            self._producer._send_in(  # noqa: SLF001 - of this package
                self._ordered,
                topic,
                batch.values,
                keys=batch.keys,
                headers=batch.headers,
                timestamps_ms=batch.timestamps_ms,
                partition=partition,
            )
        )
        self._batches.add(sending)
        sending.add_done_callback(self._batches.discard)
        sending.add_done_callback(lambda _: turn.release())
        future = relayed(sending, self._first)
        await asyncio.sleep(0)
        await self._ordered.wait_all(topic)  # later calls are behind the batch
        return future

    def _record(
        self,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: Iterable[tuple[str, bytes | None]] | None,
    ) -> dict[str, Any]:
        if value is None and key is None:
            raise ValueError("a record needs a key or a value")
        return {
            "key": serialized("key", self._key_serializer, key),
            "value": serialized("value", self._value_serializer, value),
            "partition": partition,
            "timestamp_ms": whole_ms(timestamp_ms),
            "headers": headers or (),
        }

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: Any,
        serialized_value: Any,
    ) -> int:
        """Return the partition of a record, as far as it is known before the send. Frameworks call this."""
        every = self._metadata.partitions_for_topic(topic)
        if every is None:
            raise as_aiokafka(errors.UnknownTopicOrPartitionError)(f"topic {topic!r}: no metadata yet")
        if partition is not None:
            if partition not in every:
                raise ValueError(f"topic {topic!r} has no partition {partition!r}")
            return partition
        available = sorted(self._metadata.available_partitions_for_topic(topic) or ())
        chosen = self._producer.config.effective_partitioner().partition(
            topic, as_bytes("key", serialized_key), len(every), available
        )
        return random.choice(available or sorted(every)) if chosen is None else chosen

    def _outcome(self, sent: types.RecordMetadata) -> RecordMetadata:
        return NOTHING if self._producer.config.acks == 0 else record_metadata(sent)

    def _first(self, result: SendManyResult) -> RecordMetadata:
        for sent in result:
            if isinstance(sent, types.RecordMetadata):  # always true: a failure raises SendManyError
                return self._outcome(sent)
        return NOTHING


_SEND: Final = AIOKafkaProducer.send
