"""The producer as users see it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from aioproducer.batching.batch import RecordFuture
from aioproducer.batching.waiters import Acknowledgement, Failure
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.describing import described
from aioproducer.errors import ConfigError, RecordPurged
from aioproducer.intake.appending import PendingAppend
from aioproducer.intake.checks import check_timeout, check_topic
from aioproducer.intake.intake import Intake
from aioproducer.lifecycle import State
from aioproducer.transactional import Transactional
from aioproducer.types import ClusterDescription, HeadersInput, RecordMetadata

if TYPE_CHECKING:
    # imported with what send_many needs, by its first call
    from aioproducer.errors.send_many import SendManyResult
    from aioproducer.intake.convoy import Convoy


class Producer(Transactional):
    """Sends records to Apache Kafka.

        async with Producer("localhost:9092") as producer:
            sent = await producer.send("orders", b"value", key=b"customer-7")

    One producer serves any number of tasks of one event loop. Making one touches no event loop and no
    network: it only checks the configuration, so it may be done at module level.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts another.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        try:
            config = ProducerConfig(bootstrap_servers=bootstrap_servers, **options)
        except ConfigError:
            del options  # this frame goes into the traceback
            raise
        self._begin(config)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        """Return a producer with a configuration that was made before, say by `ProducerConfig.from_mapping`.

        Raises: TypeError for anything else.
        """
        if not isinstance(config, ProducerConfig):
            raise TypeError(
                f"from_config takes a ProducerConfig, not {type(config).__name__};"
                " ProducerConfig.from_mapping makes one of a mapping"
            )
        producer = cls.__new__(cls)
        producer._begin(config)  # noqa: SLF001 - our own
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
        """Send one record and return where it is, once the broker has acknowledged it.

        Args:
            topic: its name.
            value: bytes, bytearray, memoryview or None (a tombstone); anything with a `value_serializer`.
            key: likewise; records with the same key go to the same partition.
            partition: from 0; by default the partitioner chooses.
            headers: pairs or a mapping of str to bytes or None.
            timestamp_ms: milliseconds since the epoch; by default now.
            timeout_s: fail after this many seconds, if that is before the delivery timeout.

        Waits for metadata and memory (at most `max_block_ms` together), then for the broker (at most
        `delivery_timeout_ms` from the call). Cancelled before the record is appended, it is not sent;
        after that it goes on, and only the waiting ends.

        Raises:
            TypeError, ValueError: an argument is not what it should be; the message names it.
            ProducerError: see `aioproducer.errors`; `possibly_persisted` says whether it may be in the log.
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
        """Append one record and return the Future of its acknowledgement.

        Waits as `send` does for metadata and memory, but not for the broker; and now and then, its record appended,
        for one turn of the event loop, so that a loop of such calls holds up nobody. Cancelling the Future only
        detaches it. A Future that nobody awaits is fine, too: its failure is logged, once per batch
        (when many batches fail at once, the rest at DEBUG).

        Raises: as `send`, for what happens before the append; the rest is in the Future.
        """
        outcome: RecordFuture | PendingAppend
        if timeout_s is None:
            outcome = self._intake.append(self._receipts, topic, value, key, partition, headers, timestamp_ms)
        else:
            intake = self._limited_intake(timeout_s)
            outcome = intake.check(topic, value, key, partition, headers, timestamp_ms)
        if type(outcome) is PendingAppend:
            outcome = await self._append_when_possible(outcome, timeout_s)
        if self._turns.due:
            await self._turns.take()
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
        """Append one record now and return the Future of its acknowledgement.

        Raises:
            BufferFull: there is no memory for it, or earlier calls for the topic are waiting.
            MetadataUnavailable: the topic is not known yet; it is being asked for.
            TypeError, ValueError, ProducerError: as `enqueue`.
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
        """Send many records of one topic, given as columns, and return all their outcomes.

        Args:
            topic: its name.
            values: one item per record.
            keys: a column of the same length, like *headers*, *timestamps_ms* and *partitions*.
            headers: one item per record, as `send` takes them.
            timestamps_ms: None where now will do.
            partitions: None where the partitioner is to choose.
            common_headers: put before each record's own.
            partition: one for all.
            timeout_s: fail what has no outcome after this many seconds.

        Order within a partition is the order of *values*. Records are appended in chunks that fit memory; each
        chunk waits at most `max_block_ms` for it. Records of other calls may come between chunks. It never lingers.
        A record that cannot be serialized or is too large is the only one to fail. Cancelled, it appends no more;
        what was appended goes on.

        Raises:
            TypeError, ValueError: an argument, or an item of a column; nothing was appended.
            SendManyError: records failed; `result` tells which and why.
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
        """Send every record appended so far without lingering, and wait for the outcome of each, good or bad.

        Returns after the done callbacks of their Futures have run. Cancelling ends only the waiting.

        Raises:
            TimeoutError: (the builtin one) some records had no outcome after *timeout_s* seconds.
        """
        engine = self._started()
        engine.intake.check_loop()
        loop = engine.intake.loop
        began_at = loop.time()
        try:
            async with asyncio.timeout(None if timeout_s is None else check_timeout("timeout_s", timeout_s)):
                await engine.accumulator.flush()
        finally:
            engine.metrics.flushed(loop.time() - began_at)
        # Event loops run callbacks in the order of `call_soon`: done callbacks of the records run before this task does.
        await asyncio.sleep(0)

    async def partitions_for(self, topic: str) -> frozenset[int]:
        """Return the partitions of *topic*, waiting for its metadata if it is not known yet.

        Raises:
            MetadataTimeout: it was not known after `max_block_ms`.
            BrokerError: the cluster refuses it for good, such as TopicAuthorizationFailed.
        """
        engine = self._started()
        engine.intake.check_loop()
        deadline = asyncio.get_running_loop().time() + self.config.max_block_s
        info = await engine.updater.topic(check_topic(topic), deadline)
        return frozenset(range(len(info.partitions)))

    async def cluster(self) -> ClusterDescription:
        """Ask a broker for the cluster: its brokers, and all topics with their partitions, leaders and replicas.

        One request for everything, so not for every record: in a large cluster the answer is large, too.

        Raises:
            ConnectionFailed: no broker has answered within `request_timeout_ms`.
            AuthenticationFailed, ProducerClosed.
        """
        engine = self._started()
        engine.intake.check_loop()
        return described(await engine.updater.whole_cluster())

    def purge(self) -> int:
        """Drop every record that waits to be sent, and return how many there were.

        Each fails with RecordPurged, and is surely not in the log. What is on its way to a broker, or was before, goes
        on; so do calls that still wait for memory or metadata.
        """
        engine = self._started()
        engine.intake.check_loop()
        return engine.purge(Failure(RecordPurged, "purge() dropped the record before it was sent"))

    def __len__(self) -> int:
        """Return how many records have no outcome yet; 0 before the start and after the end."""
        return 0 if self._engine is None else self._engine.unfinished

    def __bool__(self) -> bool:
        """Be true, however many records there are: `if producer:` asks whether there is one."""
        return True

    def metrics(self) -> dict[str, dict[Any, Any]]:
        """Return Kafka's metrics, spelled with `_`: `{"producer": {…}, "topics": {name: {…}}, "nodes": {id: {…}}}`.

        Counters since the start, rates, averages and maxima of the last 30 to 60 s, and what is in use now. An average
        or a maximum of nothing is None. Cheap to call, and the only method that any thread may call. Before
        `start` has returned all is empty; after `close` the last numbers stay.
        """
        # If starting fails, the next attempt counts from 0.
        if self._engine is None or self._state is State.STARTING:
            return {"producer": {}, "topics": {}, "nodes": {}}
        return self._engine.report()

    @property
    def client_instance_id(self) -> str | None:
        """The id under which the cluster has this producer's metrics, if it asks for some (KIP-714); else None."""
        return None if self._engine is None else self._engine.metrics_push.client_instance_id

    async def _send_in(
        self, convoy: Convoy, topic: str, values: Iterable[Any], **more: Any
    ) -> SendManyResult:
        """Do as `send_many`, after the calls that are in *convoy* have appended their records."""
        return await self._sending().many.send_columns(topic, values, convoy=convoy, **more)

    def _limited_intake(self, timeout_s: float) -> Intake:
        """Return the intake for a call with *timeout_s*, after checks that the append makes of other calls."""
        intake = self._sending().intake
        intake.check_loop()
        check_timeout("timeout_s", timeout_s)
        return intake

    async def _append_when_possible(self, pending: PendingAppend, timeout_s: float | None) -> RecordFuture:
        intake = self._sending().intake
        limit_s = None if timeout_s is None else float(timeout_s)
        return await intake.append_when_possible(pending, intake.loop.time(), limit_s)
