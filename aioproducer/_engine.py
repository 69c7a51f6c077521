"""A started producer: its layers wired together, and stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import cached_property, partial
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.completion import BatchCompletion, OutcomeObserver
from aioproducer._core.batching.receipts import receipts_on
from aioproducer._core.batching.waiters import Failure, acknowledgement_on
from aioproducer._core.clock import Wakeup
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.intake.intake import Intake
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metadata.metadata_source import BOOTSTRAP, bootstrap_opener
from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.metrics import Metrics, Values, report
from aioproducer._core.metrics_push import MetricsPush
from aioproducer._core.net.pool import ConnectionCache, Pool
from aioproducer._core.partitioning import RoundRobinPartitioner
from aioproducer._core.records.columns import RecordColumns, open_records
from aioproducer._core.sender.loop import Sender
from aioproducer._core.settings import IntakeSettings
from aioproducer._core.steps import Log, as_step
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed, ProducerClosed, ProducerError

if TYPE_CHECKING:
    from aioproducer._core.intake.many import ManyIntake
    from aioproducer._core.transactions.producer_transactions import Transactions
    from aioproducer._core.transactions.transaction_records import TransactionRecords
    from aioproducer._core.transactions.transaction_requests import ResumedTransaction

log: Final = Log(__name__)


def transactions_of(config: ProducerConfig, *, on_moved: Callable[[bool], None]) -> Transactions | None:
    """Return the transactions of a producer with *config*; None without a transactional id."""
    if config.transactional_id is None:
        return None
    # The imports are here, so that producers without transactions start sooner.
    from aioproducer._core.transactions.producer_transactions import Transactions  # noqa: PLC0415
    from aioproducer._core.transactions.transaction_requests import TransactionSettings  # noqa: PLC0415

    settings = TransactionSettings(
        config.transactional_id,
        config.transaction_timeout_ms,
        two_phase_commit=config.transaction_two_phase_commit_enable,
        max_block_s=config.max_block_s,
    )
    return Transactions(settings, on_moved=on_moved)


class Engine:
    """All parts of a started producer, on one event loop from `start` to `close`."""

    def __init__(
        self,
        config: ProducerConfig,
        interceptors: InterceptorChain,
        *,
        on_crash: Callable[[BaseException], None],
        on_fatal: Callable[[], None],
        on_transaction: Callable[[bool], None],
        cache: ConnectionCache | None = None,
        passes_refusals: bool = False,
    ) -> None:
        """*on_crash* is called for a bug of aioproducer, *on_fatal* for a fatal error of a transactional producer.

        *on_transaction* receives True if the open transaction accepts records. *cache* has the connections of an earlier
        producer, and receives those of this producer. With *passes_refusals* a transaction continues without records that
        a broker refuses for their content.
        """
        self._on_crash = on_crash
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._connections = config.connection_settings()
        self._rack = config.client_rack if config.partitioner_rack_aware else None
        self._bootstrap_timeout_s = config.bootstrap_timeout_ms / 1000
        self._cache = cache
        self._security = config.connection_security() if cache is None else cache.security
        self._starting: asyncio.Task[None] | None = None
        self.sending: asyncio.Task[None] | None = None
        """Task of the sender, from the end of `start` on; once the task is done, no records are sent."""
        self._stopping: asyncio.Task[None] | None = None
        self.metrics: Final = Metrics(self._loop.time)
        self.limits: Final = LogLimits()
        wakeup, awaits = Wakeup(self._loop), acknowledgement_on(self._loop)
        self.pool: Final = Pool(
            self._connections,
            on_connected=self._connected,
            on_disconnected=self._disconnected,
            metrics=self.metrics,
            security=self._security,
            limits=self.limits,
        )
        self.updater: Final = MetadataUpdater(
            config.metadata_settings(),
            self.pool,
            open_connection=bootstrap_opener(
                self._connections, security=self._security, metrics=self.metrics, limits=self.limits
            ),
            on_update=self._metadata_changed,
            leaderless=self._leaderless_topics,
            on_answer=self._metadata_answered,
            limits=self.limits,
            on_another_cluster=self._another_cluster,
        )
        self.metrics_push: Final = MetricsPush(
            self.pool,
            brokers=lambda: self.updater.snapshot.brokers,
            report=self.report,
            topics=self.metrics.topics,
            transactional_id=config.transactional_id,
            enabled=config.enable_metrics_push,
        )
        transactions = transactions_of(config, on_moved=on_transaction)
        self.transactions: Final = transactions
        sending = config.sender_settings()
        batching = config.batching_settings()
        if passes_refusals:
            batching = batching._replace(max_in_flight=1)
        self.accumulator: Final = Accumulator(
            batching,
            IdentityKeeper() if transactions is None else transactions.manager,
            loop=self._loop,
            wake=wakeup.ring,
            wake_at=wakeup.ring_at,
            mark_used=self.updater.mark_used,
            # Interceptors may recognise a record by the objects in its headers, which only columns keep.
            records=RecordColumns if interceptors else open_records,
        )
        records = (
            None
            if transactions is None
            else transactions.watch(self.accumulator, self.updater, on_fatal=self._failed_fatally)
        )
        completion = BatchCompletion(
            self.accumulator,
            observer=OutcomeObserver(self.metrics, interceptors),
            on_failure=None if records is None else records.failing,
            limits=self.limits,
            passes_refusals=passes_refusals,
        )
        self._completion = completion
        self._wakeup = wakeup
        self._sender = Sender(
            sending,
            accumulator=self.accumulator,
            completion=completion,
            pool=self.pool,
            updater=self.updater,
            wakeup=wakeup,
            waker=awaits.waker,
            metrics=self.metrics,
            transaction=records,
        )
        if transactions is not None:
            from aioproducer._core.transactions.coordinator import Coordinators  # noqa: PLC0415

            coordinators = Coordinators(self.pool, self.updater, sending.retry_backoff, self.limits)
            transactions.open(completion, coordinators, on_admitted=self._admitted)
        self._partitioner = config.effective_partitioner()
        settings = IntakeSettings(
            key_serializer=config.key_serializer,
            value_serializer=config.value_serializer,
            partitioner=self._partitioner,
            interceptors=interceptors,
            max_block_s=config.max_block_s,
            on_refused=self.metrics.refused if records is None else partial(self._refused, records),
        )
        self.intake: Final = Intake(
            settings,
            accumulator=self.accumulator,
            completion=completion,
            updater=self.updater,
            expired=self._sender.obstacles.failure,
            awaits=awaits,
            receipts=receipts_on(awaits.waker),
        )

    @cached_property
    def many(self) -> ManyIntake:
        """Intake of `send_many`, created at the first call of `send_many` to keep start-up short."""
        from aioproducer._core.intake.many import ManyIntake  # noqa: PLC0415

        return ManyIntake(
            self.intake, accumulator=self.accumulator, completion=self._completion, updater=self.updater
        )

    @property
    def degraded(self) -> bool:
        """True before the first metadata answer, and while no broker is connected and an attempt to connect has failed."""
        return self.updater.unreachable

    async def start(
        self, resumed: ResumedTransaction | None = None, *, wait: bool = True, timeout_s: float | None = None
    ) -> None:
        """Get the first metadata answer, and start the tasks; a transactional producer takes the identity in *resumed*.

        Attempts are repeated for *timeout_s* seconds (None: `bootstrap_timeout_ms`). `max_block_ms` and *timeout_s* limit
        the initialization of transactions. Without *wait*, attempts and initialization continue in the background.

        Raises: ConnectionFailed; ProducerClosed if `stop` is called meanwhile. A failed or cancelled start leaves no
        connection or task behind.
        """
        if self._cache is not None:
            self.pool.take_over(self._cache.take())
        until = self._loop.time() + (timeout_s or inf)
        if wait:
            await self._reach_cluster(self._bootstrap_timeout_s if timeout_s is None else timeout_s)
        self.updater.start().add_done_callback(partial(self._ended, "metadata"))
        self.sending = self._loop.create_task(self._sender.run(), name="aioproducer: sender")
        self.sending.add_done_callback(partial(self._ended, "sender"))
        if self.transactions is not None and not wait:
            self.transactions.initialize_later()
        elif self.transactions is not None:
            try:
                with self.metrics.timed("init_s"):
                    await self.transactions.initialize(resumed, until - self._loop.time())
            except BaseException:
                await self.stop()
                raise

    async def _reach_cluster(self, timeout_s: float) -> None:
        """Get the first metadata answer in a task that `stop` cancels."""
        settings = self._connections
        attempt_s = settings.setup_timeout_s + settings.request_timeout_s
        reaching = self.updater.wait_for_cluster(attempt_s, timeout_s, settings.reconnect_backoff)
        self._starting = self._loop.create_task(reaching, name="aioproducer: start")
        try:
            await asyncio.wait([self._starting])
            if self._stopping is None:
                self._starting.result()
        except BaseException:
            await self.stop()
            raise
        if self._stopping is not None:
            await self.stop()
            raise ProducerClosed("the producer was closed while it was starting")

    async def drained(self) -> None:
        """Wait for the outcome of all records, including those of calls that still append; push the last metrics."""
        self.accumulator.finish()
        if self.sending is not None:
            await asyncio.wait([self.sending])
        await self.metrics_push.finish()

    @as_step
    def fail_everything(self, failure: Failure) -> int:
        """Fail every record without an outcome, including those of calls that still append; return their number."""
        arriving = self.accumulator.arriving
        self.accumulator.close(failure)
        self.updater.fail_all(failure.error)
        return arriving + self._completion.fail_everything(failure)

    @property
    def unfinished(self) -> int:
        """Number of records without an outcome, including those of calls that still append."""
        return self.accumulator.arriving + sum(map(len, tuple(self.accumulator.unresolved)))

    def obstacle(self, batch: Batch) -> tuple[str, str]:
        """Return the reason why *batch* is not acknowledged yet, and the details."""
        reason, text, _ = self._sender.obstacles.of(batch)
        return reason, text

    @as_step
    def purge(self, failure: Failure) -> int:
        """Fail every waiting record that was never written to a socket; return their number."""
        waiting = [
            each
            for each in self.accumulator.unresolved
            if each.state in (BatchState.OPEN, BatchState.SEALED) and not each.possibly_persisted
        ]
        records = sum(map(len, waiting))
        for batch in waiting:
            try:
                self._completion.fail(batch, failure)
            except BaseException:  # a signal handler raised while the batch was half moved
                self._completion.abandon(batch, failure)
                self.accumulator.recount()
                raise
        return records

    async def stop(self) -> None:
        """Close connections and end tasks. Concurrent calls are allowed.

        In a cancelled scope of anyio the call waits for the tasks, then raises CancelledError.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(), name="aioproducer: stop")
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            # A cancelled scope of anyio cancels every await in it, so a shield is needed to wait for the tasks.
            from anyio import CancelScope  # noqa: PLC0415 - needed on cancellation only

            with CancelScope(shield=True):
                await asyncio.shield(self._stopping)
            raise

    def report(self) -> dict[str, dict[Any, Any]]:
        """Return the metrics. `report` changes nothing, and may be called from any thread, at any time."""
        memory, snapshot = self.accumulator.memory, self.updater.snapshot
        age_s = self._loop.time() - snapshot.fetched_at
        producer: Values = {
            "requests_in_flight": self.pool.in_flight,
            "buffer_total_bytes": memory.limit,
            # Each half of a split batch has a header, so some bytes more than the limit may be in use.
            "buffer_available_bytes": max(memory.free, 0),
            "bufferpool_wait_time_ns_total": round(memory.waited_s * 1e9),
            "calls_waiting": len(self.accumulator.pending_calls),
            "batches_unfinished": self.accumulator.unfinished,
            "metadata_age": age_s if isfinite(age_s) else None,
        }
        nodes: dict[int, Values] = {
            node_id: {
                "address": str(broker.address),
                "connected": (connection := self.pool.get(node_id)) is not None,
                "requests_in_flight": connection.in_flight if connection is not None else 0,
            }
            for node_id, broker in snapshot.brokers.items()
        }
        return report(self.metrics, producer, nodes)

    async def _stop(self) -> None:
        sending = self.sending
        has_sent_all = (
            sending is not None and sending.done() and not sending.cancelled() and not sending.exception()
        )
        self.accumulator.finish()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self.transactions is not None:
            await self.transactions.stop()
        await self.metrics_push.stop()
        await self.updater.close()
        if self._cache is None:
            if self._security is not None:
                self._security.close()
        elif has_sent_all:  # a running sender might write on a connection of the next producer
            self._cache.put(self.pool.release())
        await self.pool.close()  # applies the last responses, so batches in flight have their outcome
        if self.sending is not None:
            await asyncio.wait([self.sending])
        self.limits.close()

    @as_step
    def _ended(self, which: str, task: asyncio.Task[None]) -> None:
        """Fail the producer after the unexpected end of a task."""
        if task is self.sending and task.cancelled():  # the event loop shuts down without a close
            cause: BaseException = asyncio.CancelledError()
            failure = Failure(ProducerClosed, "the producer's event loop is shutting down")
            going_down = ConnectionFailed("the producer's event loop is shutting down")
            self.updater.abort(going_down)  # the updater stops first, so that it dials no more
            self.pool.abort(going_down)
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("task.crashed task=%s", which, exc_info=error)
            cause = error
            failure = Failure(
                ProducerError,
                f"the {which} task ended because of a bug in aioproducer: {error!r}",
                cause=error,
            )
        else:
            return
        try:
            self._on_crash(cause)
            if self.transactions is not None:
                self.transactions.give_up(failure.error())
        finally:  # an error of the calls above must not leave records without an outcome
            self.fail_everything(failure)
            if not task.cancelled() and self._stopping is None:  # no close() may follow
                self._stopping = self._loop.create_task(self._stop(), name="aioproducer: stop")

    def _admitted(self) -> None:
        self._sender.identity_changed()
        self._wakeup.ring()

    def _refused(self, of_transaction: TransactionRecords, records: int, error: BaseException) -> None:
        """Count records that failed before the append, and fail their transaction."""
        self.metrics.refused(records, error)
        of_transaction.refused(error)

    def _failed_fatally(self, error: ProducerError) -> None:
        """Mark the transactional producer as failed; its records fail in the next loop iteration."""
        self._on_fatal()
        failure = Failure(type(error), str(error), cause=error.__cause__, fatal=True)
        self._loop.call_soon(self.fail_everything, failure)

    def _another_cluster(self, error: ProducerError) -> None:
        """Fail the open transaction, and send waiting batches to the new cluster under another producer id."""
        if self.transactions is not None:
            self.transactions.leave_cluster(error)
        self.accumulator.identities.leave_cluster()
        for topic in self.accumulator.topics.values():
            topic.leave_cluster()
        self._wakeup.ring()

    def _connected(self, node_id: int) -> None:
        if self.transactions is not None:
            self.transactions.coordinators.connected(node_id)
        self.updater.connected(node_id)
        self._sender.connected(node_id)
        self.metrics_push.connected(node_id)

    def _disconnected(self, node_id: int, error: ProducerError | None) -> None:
        self.updater.disconnected(node_id, error)
        if self.transactions is not None:
            self.transactions.coordinators.connections_changed()
        self._wakeup.ring()

    def _leaderless_topics(self) -> set[str]:
        schedule = self.accumulator.schedule
        missing = self.accumulator.shrunk_topics()
        return schedule.leaderless_topics() | schedule.suspicious_topics() | missing

    def _metadata_answered(self, topics: Collection[str], node_id: int) -> None:
        is_only_broker = len(self.updater.snapshot.brokers) == 1
        self._completion.fail_missing(topics, node_id, is_only_broker=is_only_broker)

    def _metadata_changed(self, snapshot: MetadataSnapshot, topics: Collection[str]) -> None:
        """Apply *snapshot*, in which *topics* have changed, and drop the state of deleted topics and nodes."""
        if self._rack is not None:
            self.accumulator.latencies.nearby = snapshot.in_rack(self._rack)
        for name in topics:
            info = snapshot.topics.get(name)
            if info is None:
                self.accumulator.update_topic(name, ())
                queues = self.accumulator.topics.get(name)
                if queues is None or queues.idle:
                    self.metrics.forget_topic(name)
                    if isinstance(self._partitioner, RoundRobinPartitioner):
                        self._partitioner.forget(name)
            else:
                self.accumulator.update_topic(name, info.leaders, info.topic_id)
        left = self.metrics.nodes.keys() - {*snapshot.brokers, BOOTSTRAP}
        self.metrics.forget_nodes([node_id for node_id in left if not self.pool.counts_for(node_id)])
        self.accumulator.latencies.forget(snapshot.brokers)
        self.accumulator.schedule.forget_nodes(snapshot.brokers)
        self._wakeup.ring()
