"""A client that creates, describes and reads topics: for commands, and for the decision topic of the Spark sink."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Self, TypeVar

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.metadata_source import request_metadata
from aioproducer._core.metadata.staggered import Refusals, failed
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.opening import open_connection
from aioproducer._core.protocol.admin import (
    TOPIC_RESOURCE,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aioproducer._core.protocol.consumer import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionData,
)
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aioproducer._core.records.decode import DecodedBatch, DecodedRecord, decode_batches
from aioproducer._core.steps import Log
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    LeaderNotAvailable,
    NotController,
    OffsetNotAvailable,
    ProducerError,
    ProtocolError,
    UnknownTopicOrPartition,
    broker_error,
)

log: Final = Log(__name__)

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
"""Time limit of retries, for example while a leader is being elected, in seconds."""
UNKNOWN_TOPIC_S: Final = 2.0
"""Time limit of retries for an unknown topic, in seconds: some brokers lack a new topic, all brokers a misspelt topic."""
BACKOFF: Final = Backoff(initial_s=0.05, max_s=1.0)
FETCH_BYTES: Final = 1024 * 1024
FETCH_WAIT_MS: Final = 500
BATCH_BYTES_LIMIT: Final = 100 * 1024 * 1024
"""Maximum size of a decompressed batch: a hundred times the default limit of brokers."""

# Special numbers of Kafka's protocol.
CONSUMER: Final = -1
EARLIEST: Final = -2
LATEST: Final = -1
BROKERS_DEFAULT: Final = -1
AUTHORIZED_OPERATIONS_FROM: Final = 8
"""First version of Metadata with the authorized operations (KIP-430)."""


class Client:
    """Client with one connection per broker, without a consumer group or a task.

        async with Client(config) as client:
            async for partition, records in client.read("orders"): ...

    All methods raise ProducerError. Retriable errors are retried for `TIMEOUT_S`.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._settings = config.connection_settings()
        self._security = config.connection_security()
        self._bootstrap = config.metadata_settings().bootstrap
        self._may_create = config.allow_auto_create_topics
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[str, dict[int, Address]] = {}

    async def __aenter__(self) -> Self:
        await self._any_broker()  # `async with` fails at once if no broker answers
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._security is not None:
            self._security.close()
        for connection in self._connections.values():
            connection.close()
            await connection.wait_closed()

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with the brokers' default replication factor, and wait until every partition has a leader."""
        await self._retried(partial(self._create_topic, name, partitions, config or {}))
        await self._retried(partial(self._leaders_of, name))

    async def describe(self, topics: Iterable[str] | None, *, for_writing: bool = False) -> MetadataResponse:
        """Return the metadata of the cluster and *topics*; *topics* None means all topics. Failures are not retried.

        With *for_writing*, brokers may create the topics (unless `allow_auto_create_topics` is False) and return the authorized
        operations (KIP-430).
        """
        requested = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        connection = await self._any_broker()
        request = MetadataRequest(
            topics=requested,
            allow_auto_topic_creation=for_writing and self._may_create,
            include_topic_authorized_operations=for_writing
            and connection.versions.pick(MetadataRequest) >= AUTHORIZED_OPERATIONS_FROM,
        )
        return await request_metadata(connection, request)

    async def cluster_id(self) -> str | None:
        """Return the id of the cluster; None from brokers without cluster ids."""
        return (await self._retried(partial(self.describe, []))).cluster_id

    async def topic_id(self, topic: str) -> bytes | None:
        """Return the id of *topic*, zeros from brokers without topic ids; None if the topic does not exist."""
        (found,) = (await self._retried(partial(self.describe, [topic]))).topics
        return None if found.error_code == UnknownTopicOrPartition.code else found.topic_id

    async def topic_settings(self, topic: str, names: Sequence[str]) -> dict[str, str]:
        """Return the settings *names* of *topic*, without settings unknown to the broker.

        Raises: TopicAuthorizationFailed without the permission DescribeConfigs; UnknownTopicOrPartition.
        """
        return await self._retried(partial(self._topic_settings, topic, names), UNKNOWN_TOPIC_S)

    async def read(
        self, topic: str, *, last: int | None = None, committed: bool = False
    ) -> AsyncIterator[tuple[int, list[DecodedRecord]]]:
        """Yield the records of *topic* in chunks, partition by partition, in the order of offsets.

        *committed* excludes records of open and aborted transactions. Markers of transactions are never included. *last* is the
        number of offsets at the end of each partition to which the records are limited; None means no limit.
        """
        for partition in sorted(await self._retried(partial(self._leaders_of, topic), UNKNOWN_TOPIC_S)):
            start = await self.first_offset(topic, partition)
            end = await self.end_offset(topic, partition, committed=committed)
            if last is not None:
                start = max(start, end - last)
            async for batches in self.batches(topic, partition, start, end, committed=committed):
                records = [
                    record
                    for batch in batches
                    if not batch.control
                    for record in batch.records
                    if start <= record.offset < end  # a batch may begin before `start`
                ]
                yield partition, records

    async def first_offset(self, topic: str, partition: int) -> int:
        """Return the first offset of a partition."""
        return await self._retried(partial(self._offset, topic, partition, EARLIEST), UNKNOWN_TOPIC_S)

    async def end_offset(self, topic: str, partition: int, *, committed: bool = False) -> int:
        """Return the offset of the next record of a partition; with *committed*, the begin of the first open transaction."""
        offset = partial(self._offset, topic, partition, LATEST, committed=committed)
        return await self._retried(offset, UNKNOWN_TOPIC_S)

    async def batches(
        self, topic: str, partition: int, start: int, end: int, *, committed: bool = False
    ) -> AsyncIterator[list[DecodedBatch]]:
        """Yield the batches of a partition from the batch with offset *start* to the last batch before *end*.

        Control batches and compacted batches are included. *committed* excludes batches of open and aborted transactions.
        """
        while start < end:
            fetched = await self._retried(partial(self._fetch, topic, partition, start, committed=committed))
            data = fetched.records or b""
            batches = list(decode_batches(data, limit=BATCH_BYTES_LIMIT, partial_ok=True, compacted=True))
            if not batches or batches[-1].last_offset < start:
                raise ProtocolError(f"{topic}-{partition}: no whole batch at offset {start}")
            yield _without_aborted(batches, fetched.aborted_transactions or ())
            start = batches[-1].last_offset + 1

    async def _retried(self, attempt: Callable[[], Awaitable[T]], unknown_topic_s: float = TIMEOUT_S) -> T:
        loop = asyncio.get_running_loop()
        failing_since = None
        for count in itertools.count():
            try:
                return await attempt()
            except ProducerError as error:
                # A connection may have been lost long before its request timed out, so a new connection is tried once more.
                failing_since = failing_since or loop.time()
                delay_s = BACKOFF.delay_s(count)
                timeout_s = unknown_topic_s if isinstance(error, UnknownTopicOrPartition) else TIMEOUT_S
                if not error.retriable or loop.time() + delay_s > failing_since + timeout_s:
                    raise
            self._leaders.clear()
            await asyncio.sleep(delay_s)
        raise AssertionError("there is always a next attempt")

    async def _connection(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            try:
                connection = await open_connection(address, self._settings, security=self._security)
            except ProducerError as error:
                log.info("connection.failed address=%s error=%s", address, error)  # callers report `error`
                raise
            self._connections[address] = connection
            log.info("connection.opened address=%s", address)
        return connection

    async def _any_broker(self) -> Connection:
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        failures: list[tuple[str, ProducerError]] = []
        refusals = Refusals()
        for address in self._bootstrap:
            try:
                return await self._connection(address)
            except ProducerError as error:
                failures.append((str(address), error))
                refusals.note(error)
            if not refusals.permit(is_silent=True):
                break
        if len(failures) == 1:
            raise failures[0][1]
        raise failed("no bootstrap server could be asked for metadata", failures)

    async def _create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        cluster = await self.describe([])
        addresses = {broker.node_id: Address(broker.host, broker.port) for broker in cluster.brokers}
        if cluster.controller_id not in addresses:
            raise NotController("the cluster has no controller now")
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=BROKERS_DEFAULT,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        controller = await self._connection(addresses[cluster.controller_id])
        answer = await controller.request(
            CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_S * 1000))
        )
        result = _only(answer.topics)
        _check(result.error_code, f"topic {name} was not created", result.error_message)

    async def _topic_settings(self, topic: str, names: Sequence[str]) -> dict[str, str]:
        requested = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names)
        )
        answer = await (await self._any_broker()).request(DescribeConfigsRequest(resources=[requested]))
        found = _only(answer.results)
        _check(found.error_code, f"the settings of topic {topic}", found.error_message)
        return {each.name: each.value for each in found.configs if each.value is not None}

    async def _leaders_of(self, topic: str) -> dict[int, Address]:
        if topic not in self._leaders:
            cluster = await self.describe([topic])
            addresses = {broker.node_id: Address(broker.host, broker.port) for broker in cluster.brokers}
            info = _only(cluster.topics)
            if info.error_code == UnknownTopicOrPartition.code:
                raise UnknownTopicOrPartition(f"there is no topic {topic}: is the name right?")
            _check(info.error_code, f"topic {topic}")
            if not all(part.leader_id in addresses for part in info.partitions):
                raise LeaderNotAvailable(f"topic {topic} has partitions without a leader")
            self._leaders[topic] = {
                part.partition_index: addresses[part.leader_id] for part in info.partitions
            }
        return self._leaders[topic]

    async def _leader(self, topic: str, partition: int) -> Connection:
        leaders = await self._leaders_of(topic)
        if partition not in leaders:
            raise LeaderNotAvailable(f"{topic}-{partition} is not there any more")
        return await self._connection(leaders[partition])

    async def _offset(self, topic: str, partition: int, when: int, *, committed: bool = False) -> int:
        requested = ListOffsetsPartition(partition_index=partition, timestamp=when)
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=topic, partitions=[requested])],
        )
        answer = await (await self._leader(topic, partition)).request(request)
        found = _only(_only(answer.topics).partitions)
        _check(found.error_code, f"the offsets of {topic}-{partition}")
        return found.offset

    async def _fetch(self, topic: str, partition: int, offset: int, *, committed: bool) -> PartitionData:
        """Return batches from *offset* on. At least one batch must exist, and the last batch may be incomplete."""
        requested = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=[requested])],
        )
        answer = await (await self._leader(topic, partition)).request(request)
        what = f"{topic}-{partition} from offset {offset}"
        _check(answer.error_code, what)
        fetched = _only(_only(answer.responses).partitions)
        _check(fetched.error_code, what)
        if not fetched.records:
            raise OffsetNotAvailable(f"{what}: the leader shows nothing yet")
        return fetched


def _without_aborted(
    batches: Sequence[DecodedBatch], aborted: Sequence[AbortedTransaction]
) -> list[DecodedBatch]:
    """Return *batches* without the batches of *aborted* transactions, which extend from a first offset to a marker."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_producers: set[int] = set()
    kept = []
    for batch in batches:
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            open_producers.add(waiting.pop().producer_id)
        if batch.control:
            open_producers.discard(batch.producer_id)
        if not (batch.transactional and batch.producer_id in open_producers):
            kept.append(batch)
    return kept


def _only(items: Sequence[T]) -> T:
    if len(items) != 1:
        raise ProtocolError(f"the answer has {len(items)} parts, not the one that was asked for")
    return items[0]


def _check(code: int, what: str, message: str | None = None) -> None:
    if code:
        error = broker_error(code)
        raise error(f"{what}: {message or error.__name__}")
