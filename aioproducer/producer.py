"""The public class `Producer`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, Unpack

from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.batching.waiters import Acknowledgement, Failure
from aioproducer._core.intake.appending import PendingAppend
from aioproducer._core.intake.checks import check_timeout, check_topic
from aioproducer._core.intake.intake import Intake
from aioproducer._core.metrics import Traffic
from aioproducer._lifecycle import State
from aioproducer._transactional import Transactional
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.errors import ConfigError, RecordPurged, TopicAuthorizationFailed
from aioproducer.types import (
    BrokerDescription,
    ClusterDescription,
    HeadersInput,
    PartitionDescription,
    RecordMetadata,
    TopicDescription,
)

if TYPE_CHECKING:
    # the first call of send_many imports these modules
    from aioproducer._core.intake.many import OrderedCalls
    from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponsePartition
    from aioproducer.errors.send_many import SendManyResult


class Producer(Transactional):
    """Sends records to Apache Kafka.

        async with Producer("localhost:9092") as producer:
            sent = await producer.send("orders", b"value", key=b"customer-7")

    One producer serves any number of tasks of one event loop. The constructor only checks the configuration and touches
    no event loop and no network, so a producer may be created at module level.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts another option.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        try:
            config = ProducerConfig(bootstrap_servers=bootstrap_servers, **options)
        except ConfigError:
            del options  # the traceback refers to this frame
            raise
        self._begin(config)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        """Return a producer with *config*, for example a result of `ProducerConfig.from_mapping`.

        Raises: TypeError if *config* is no ProducerConfig.
        """
        if not isinstance(config, ProducerConfig):
            raise TypeError(
                f"from_config takes a ProducerConfig, not {type(config).__name__};"
                " ProducerConfig.from_mapping creates one from a mapping"
            )
        producer = cls.__new__(cls)
        producer._begin(config)  # noqa: SLF001 - a method of this class
        return producer

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersInput = (),
        timestamp_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> RecordMetadata:
        """Send one record, wait until the broker has acknowledged the record, and return the record's metadata.

        Args:
            topic: name of the topic.
            value: bytes, bytearray, memoryview or None (a tombstone); with a `value_serializer` any object.
            key: bytes, bytearray, memoryview or None; with a `key_serializer` any object. Equal keys share a partition.
            partition: index from 0; by default the partitioner chooses.
            headers: pairs or a mapping of str to bytes or None.
            timestamp_ms: milliseconds since the epoch; by default the current time.
            timeout_s: time limit from the call to the acknowledgement, in seconds, if shorter than `delivery_timeout_ms`.

        Waits for metadata, async serializers and memory (at most `max_block_ms` together), then for the broker (at most
        `delivery_timeout_ms` from the call). Cancelling before the append withdraws the record. After the append,
        cancelling only ends the waiting, and the record is sent.

        Raises:
            TypeError, ValueError: an argument is invalid; the message names the argument.
            ProducerError: see `aioproducer.errors`; `possibly_persisted` is true if the record may be in the log.
        """
        outcome: Acknowledgement | PendingAppend
        if timeout_s is None:
            outcome = self._intake.append(self._awaits, topic, value, key, partition, headers, timestamp_ms)
        else:
            intake = self._limited_intake(timeout_s)
            outcome = intake.check(topic, value, key, partition, headers, timestamp_ms)
        if type(outcome) is PendingAppend:
            return await (await self._append_when_possible(outcome, timeout_s))
        return await outcome

    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersInput = (),
        timestamp_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> RecordFuture:
        """Append one record and return the Future of its `RecordMetadata`. `enqueue` takes the arguments of `send`.

        Waits for metadata, async serializers and memory (at most `max_block_ms` together). After the append the call yields
        to the event loop at times, so a loop of calls does not block other tasks. The Future has the result or error of the
        acknowledgement, at the latest after `delivery_timeout_ms` from the call, or after *timeout_s* seconds. The Future works as an
        `asyncio.Future`; with the accelerator, the Future has its own type. Cancelling the call before the append withdraws
        the record. Cancelling the Future ends only the Future, and the record is sent. The failures of a batch are logged
        once, so a Future need not be awaited.

        Raises: the errors of `send` before the append. Later errors are in the Future.
        """
        outcome: RecordFuture | PendingAppend
        if timeout_s is None:
            outcome = self._intake.append(self._receipts, topic, value, key, partition, headers, timestamp_ms)
        else:
            intake = self._limited_intake(timeout_s)
            outcome = intake.check(topic, value, key, partition, headers, timestamp_ms)
        if type(outcome) is PendingAppend:
            outcome = await self._append_when_possible(outcome, timeout_s)
        if self._yields.should_yield:
            await self._yields.yield_to_loop()
        return outcome

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersInput = (),
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Append one record without waiting and return the Future of its `RecordMetadata`, as `enqueue` does.

        Raises:
            BufferFull: no memory is free for the record, or earlier calls for the topic are waiting.
            MetadataUnavailable: the topic is unknown; its metadata is requested.
            TypeError: a serializer is async, or `send` would raise TypeError.
            ValueError, ProducerError: the errors of `send` before the append.
        """
        outcome = self._intake.append(self._receipts, topic, value, key, partition, headers, timestamp_ms)
        if type(outcome) is PendingAppend:
            raise self._sending().intake.refusal(outcome)
        return outcome

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Iterable[HeadersInput] | None = None,
        common_headers: HeadersInput = (),
        timestamps_ms: Iterable[int | None] | None = None,
        partition: int | None = None,
        partitions: Iterable[int | None] | None = None,
        timeout_s: float | None = None,
    ) -> SendManyResult:
        """Send many records of one topic, given as columns, wait for their acknowledgements, and return all outcomes.

        Args:
            topic: name of the topic.
            values: one value per record.
            keys: one key per record. All columns have the same length.
            headers: the headers of each record, in the forms that `send` accepts.
            timestamps_ms: one timestamp per record; None for the current time.
            partitions: one partition per record; None for the partitioner's choice.
            common_headers: headers of all records, in front of each record's own headers.
            partition: partition of all records.
            timeout_s: time limit for each record's outcome, in seconds from the call.

        Order within a partition is the order of *values*. Records are appended in chunks that fit memory, and each
        chunk waits at most `max_block_ms` for memory. Records of other calls may come between chunks. The records never
        linger. A record that cannot be serialized or is too large fails alone. A cancelled call appends no further
        records; appended records are sent.

        Raises:
            TypeError, ValueError: an argument or an item of a column is invalid; nothing was appended.
            SendManyError: records failed; `result` has each failure.
        """
        return await self._sending().many.send_columns(
            topic,
            values,
            keys=keys,
            headers=headers,
            common_headers=common_headers,
            timestamps_ms=timestamps_ms,
            partition=partition,
            partitions=partitions,
            timeout_s=timeout_s,
        )

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send every appended record without lingering, and wait for the outcome of each record.

        Returns after the done callbacks of the records' Futures have run. Cancelling ends only the wait.

        Raises:
            TimeoutError: (the builtin) some records have no outcome after *timeout_s* seconds.
        """
        engine = self._started()
        engine.intake.check_loop()
        loop = engine.intake.loop
        began_at = loop.time()
        try:
            async with asyncio.timeout(check_timeout(timeout_s)):
                await engine.accumulator.flush()
        finally:
            engine.metrics.calls.flush_s += loop.time() - began_at
        # Event loops run callbacks in the order of `call_soon`: done callbacks of the records run before this task does.
        await asyncio.sleep(0)

    async def partitions_for(self, topic: str) -> frozenset[int]:
        """Return the partitions of *topic*; wait for the metadata of an unknown topic.

        Raises:
            MetadataTimeout: the topic is unknown after `max_block_ms`.
            BrokerError: the cluster refuses the topic for good, for example with TopicAuthorizationFailed.
        """
        engine = self._started()
        engine.intake.check_loop()
        deadline = asyncio.get_running_loop().time() + self.config.max_block_s
        info = await engine.updater.topic(check_topic(topic), deadline)
        return frozenset(range(len(info.partitions)))

    async def cluster(self) -> ClusterDescription:
        """Request and return the brokers of the cluster, and all topics with their partitions, leaders and replicas.

        In a large cluster the response is large, so call `cluster` rarely.

        Raises:
            ConnectionFailed: no broker answered within `request_timeout_ms`.
            AuthenticationFailed, ProducerClosed.
        """
        engine = self._started()
        engine.intake.check_loop()
        return _described(await engine.updater.whole_cluster())

    def purge(self) -> int:
        """Drop every record that was never sent, and return the number of dropped records.

        Each dropped record fails with RecordPurged and is not in the log. Sent records, and calls that wait for memory or
        metadata, continue.
        """
        engine = self._started()
        engine.intake.check_loop()
        return engine.purge(Failure(RecordPurged, "purge() dropped the record before it was sent"))

    def __len__(self) -> int:
        """Return the number of records without an outcome; 0 before the start and after the end."""
        return 0 if self._engine is None else self._engine.unfinished

    def __bool__(self) -> bool:
        """Return True, also with no records, so `if producer:` tests for None."""
        return True

    def metrics(self) -> dict[str, dict[Any, Any]]:
        """Return Kafka's metrics, spelled with `_`: `{"producer": {…}, "topics": {name: {…}}, "nodes": {id: {…}}}`.

        Counters count since the start; rates, averages and maxima describe the last 30 to 60 s. An average or maximum
        without events is None. `metrics` is cheap, and the only method that any thread may call. Before `start` has
        returned, the dicts are empty; after `close`, the last numbers stay.
        """
        # If starting fails, the next attempt counts from 0.
        if self._engine is None or self._state is State.STARTING:
            return {"producer": {}, "topics": {}, "nodes": {}}
        return self._engine.report()

    def _traffic(self) -> Traffic:
        """Return totals since the start; any thread may call `_traffic`."""
        return Traffic() if self._engine is None else self._engine.metrics.traffic()

    @property
    def client_instance_id(self) -> str | None:
        """Id of this producer's client metrics in the cluster (KIP-714); None without a metrics subscription."""
        return None if self._engine is None else self._engine.metrics_push.client_instance_id

    async def _send_in(
        self, ordered: OrderedCalls, topic: str, values: Iterable[Any], **more: Any
    ) -> SendManyResult:
        """Send as `send_many`, after the calls in *ordered* have appended their records."""
        return await self._sending().many.send_columns(topic, values, ordered=ordered, **more)

    def _limited_intake(self, timeout_s: float) -> Intake:
        """Return the intake for a call with *timeout_s*, after the checks that `append` makes for other calls."""
        intake = self._sending().intake
        intake.check_loop()
        check_timeout(timeout_s)
        return intake

    async def _append_when_possible(self, pending: PendingAppend, timeout_s: float | None) -> RecordFuture:
        intake = self._sending().intake
        limit_s = None if timeout_s is None else float(timeout_s)
        return await intake.append_when_possible(pending, intake.loop.time(), limit_s)


def _described(answer: MetadataResponse) -> ClusterDescription:
    """Return the cluster in *answer* to a request for all topics, without topics that the client may not describe."""
    brokers = [BrokerDescription(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
    topics = [
        TopicDescription(
            each.name,
            tuple(map(_described_partition, sorted(each.partitions, key=attrgetter("partition_index")))),
            each.is_internal,
        )
        for each in answer.topics
        if each.name is not None and each.error_code != TopicAuthorizationFailed.code
    ]
    return ClusterDescription(
        cluster_id=answer.cluster_id,
        controller_id=None if answer.controller_id < 0 else answer.controller_id,
        brokers={each.node_id: each for each in sorted(brokers)},
        topics={each.name: each for each in sorted(topics)},
    )


def _described_partition(answer: MetadataResponsePartition) -> PartitionDescription:
    leader = None if answer.leader_id < 0 else answer.leader_id
    return PartitionDescription(
        answer.partition_index, leader, tuple(answer.replica_nodes), tuple(answer.isr_nodes)
    )
