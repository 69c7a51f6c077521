"""Updater of the cluster metadata: one task, one request at a time, no polling.

Metadata is requested for an unknown topic or leader, after NOT_LEADER_OR_FOLLOWER, after a lost connection, and when the
last response is too old. A call that waits for a topic awaits a Future.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import isinf
from typing import Final, TypeAlias

from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.metadata.background_dials import ClusterConnectivity, MissingBrokers
from aioproducer._core.metadata.metadata_source import MetadataSource, OpenConnection
from aioproducer._core.metadata.refresh_schedule import MetadataSettings, Refresh, RefreshSchedule
from aioproducer._core.metadata.snapshot import Broker, LeaderHint, MetadataSnapshot, TopicInfo
from aioproducer._core.metadata.topic_waiters import (
    Answer,
    NewAnswer,
    TopicDenials,
    TopicWaiters,
    Waiter,
    topic_error,
)
from aioproducer._core.net.connection_protocol import caused
from aioproducer._core.net.dial import again
from aioproducer._core.net.pool import REFUSAL_TIMEOUT_S, Pool
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aioproducer._core.steps import Log, as_step
from aioproducer._core.worker_threads import WORK_THREADS
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    MetadataTimeout,
    ProducerClosed,
    ProducerError,
    RebootstrapRequired,
)

log: Final = Log(__name__)

OnUpdate: TypeAlias = Callable[[MetadataSnapshot, Collection[str]], None]
"""Callable that receives the new snapshot and its changed topics, and must not raise or block."""

OnAnswer: TypeAlias = Callable[[Collection[str], int], None]
"""Callable that receives the topics in a response and the node that answered (below 0: unknown), and must not raise."""

MERGE_OFF_LOOP_PARTITIONS: Final = 5_000
"""Number of partitions from which on a response is merged in a thread; merging takes about 1 µs per partition."""


class MetadataUpdater:
    """Owner of the metadata snapshot and of the task that updates it."""

    def __init__(
        self,
        settings: MetadataSettings,
        pool: Pool,
        *,
        open_connection: OpenConnection,
        on_update: OnUpdate,
        leaderless: Callable[[], Collection[str]],
        on_answer: OnAnswer = lambda *_: None,
        limits: LogLimits | None = None,
        on_another_cluster: Callable[[ProducerError], None] = lambda _: None,
    ) -> None:
        """*open_connection* connects to a bootstrap address, outside of the *pool* of nodes.

        *leaderless* returns the topics with records that wait for a leader of their partition. These topics are
        requested again after every response without the leader. *on_answer* is called after each answer, even without
        changes. *on_another_cluster* is called with an error if the bootstrap addresses have moved to another cluster,
        before the metadata of that cluster is installed.
        """
        self._settings = settings
        self._limits = limits or LogLimits()
        self._source = MetadataSource(settings, pool, open_connection, self._limits, self._another_cluster)
        self._on_update, self._on_another_cluster = on_update, on_another_cluster
        self._leaderless = leaderless
        self._on_answer = on_answer
        self._schedule = RefreshSchedule(settings)
        self._pool = pool
        self._missing = MissingBrokers(pool)
        self._connectivity = ClusterConnectivity(pool)
        self._waiters = TopicWaiters()
        self._requests = 0  # number of requests sent
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._last_error: ProducerError | None = None
        self._refused: AuthenticationFailed | None = None  # refusal of the last request, or None
        self._failure_timer: asyncio.TimerHandle | None = None  # the timer starts at the first refusal
        self.snapshot: MetadataSnapshot = MetadataSnapshot()

    async def bootstrap(self, deadline: float) -> None:
        """Request the first metadata from a connected node, or from the first bootstrap address that responds.

        Raises: ConnectionFailed with each address and its cause once all addresses have failed, or at *deadline* (loop
        time). Cancelling leaves no connection open. `bootstrap` may be called again after a failure.
        """
        refresh = self._begin()
        self._clear_refusal()
        try:
            answer = await self._source.begin(self._request(refresh), deadline)
            before, after = await self._merged(refresh, answer)
        except BaseException:
            self._schedule.failed(refresh, _now())
            raise
        self._take(refresh, answer, before, after)

    async def wait_for_cluster(self, attempt_s: float, timeout_s: float, backoff: Backoff) -> None:
        """Repeat `bootstrap` after pauses of *backoff* until it succeeds, for at most *timeout_s* seconds; 0: one attempt.

        Each attempt takes at most *attempt_s* seconds. The failures are logged as one outage.

        Raises: the error of the last attempt; AuthenticationFailed once every address that was asked has refused.
        """
        until, attempts = _now() + timeout_s, 0
        while True:
            deadline = _now() + attempt_s
            try:
                await self.bootstrap(min(deadline, until) if timeout_s else deadline)
            except ProducerError as error:
                pause_s = backoff.delay_s(attempts)
                if _now() + pause_s >= until or self._source.is_refused:
                    raise
                self._limits.log(log, logging.WARNING, "", "metadata.failed topics=%d error=%s", 0, error)
            else:
                return
            attempts += 1
            await asyncio.sleep(pause_s)

    def start(self) -> asyncio.Task[None]:
        """Start the task that updates the snapshot; `close` ends the task."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="aioproducer metadata")
        return self._task

    def abort(self, cause: ProducerError) -> None:
        """Close the connections of the metadata source without waiting, because the event loop is closing."""
        self._closed = True
        self._source.abort(cause)

    async def close(self) -> None:
        """End the task, close the connections of the metadata source, and fail waiting calls with ProducerClosed."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._clear_refusal()
        self.fail_all(lambda: ProducerClosed("the producer was closed while waiting for metadata"))
        await self._source.close()

    def fail_all(self, error: Callable[[], ProducerError]) -> None:
        """Fail all calls that wait in `topic`, each with a new error from *error*."""
        self._waiters.fail_all(error)

    def request_refresh(self, topics: Iterable[str] | None = None) -> None:
        """Request *topics* soon, by default all topics in use.

        A request in flight does not count, because its response may be older than the reason for this call.
        """
        now = _now()
        if topics is None:
            wanted = [self._schedule.request_all(now)]
        else:
            wanted = [self._schedule.request(topic, now) for topic in topics]
        if wanted:  # also if all *topics* are pending: the call that requested them may have been interrupted
            self._wakeup.set()

    def mark_used(self, topic: str, now: float) -> None:
        """Mark *topic* as used, and request it if it is unknown."""
        info = self.snapshot.topics.get(topic)
        if info is not None and info.partitions:  # `knows` inlined: each batch calls `mark_used`
            self._schedule.mark_used(topic, now)
        else:
            self.request_refresh([topic])

    async def topic(
        self, name: str, deadline: float, *, refresh: bool = False, partition: int | None = None
    ) -> TopicInfo:
        """Return the topic once its partitions are known, with or without leaders.

        With *refresh*, only responses to later requests count. A *partition* that the known topic lacks is requested
        until the topic has the partition, or two brokers deny the partition.

        Raises: MetadataTimeout at *deadline* (loop time), with the last error as cause;
            AuthenticationFailed if brokers have refused the authentication for a while; TopicAuthorizationFailed,
            InvalidTopicException or ClusterAuthorizationFailed as soon as a broker returns this error;
            UnknownTopicOrPartition without `allow_auto_create_topics`, once brokers have denied the topic;
            ProducerClosed; the error given to `fail_all`. Cancelling stops only the waiting.
        """
        if self._closed:
            raise ProducerClosed("the producer is closed")
        is_new = refresh or partition is not None
        if self.snapshot.knows(name) and not is_new:
            self.mark_used(name, _now())
            return self.snapshot.topics[name]
        self.request_refresh([name])
        if self._refused is not None and not self._within_grace():
            raise again(self._refused)  # without an error, each call would wait for an authentication
        loop = asyncio.get_running_loop()
        condition = NewAnswer(self._requests, partition) if is_new else None
        denials = None if self._settings.allow_auto_create_topics else TopicDenials(self._requests)
        waiter = self._waiters.enter(name, condition, denials)
        timer = loop.call_at(deadline, self._give_up, name, waiter, loop.time())
        try:
            outcome = await waiter
        finally:
            timer.cancel()
            self._waiters.leave(name, waiter)
        if isinstance(outcome, ProducerError):
            raise outcome
        return outcome

    async def whole_cluster(self) -> MetadataResponse:
        """Request all topics from a broker. The response does not change the snapshot.

        Raises: ConnectionFailed, AuthenticationFailed, ProducerClosed.
        """
        if self._closed:
            raise ProducerClosed("the producer is closed")
        everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return await self._source.ask(everything, self.snapshot.brokers)

    @as_step
    def take_leader_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[Broker] = ()) -> None:
        """Apply new leaders and their addresses from a produce response (KIP-951)."""
        self._install(self.snapshot.with_leader_hints(hints, endpoints))

    def mark_leader_stale(self, node_id: int, refused: Mapping[str, Collection[int]]) -> None:
        """Mark the leader as stale for partitions that *node_id* refused, so the next response replaces the leader."""
        for topic, partitions in refused.items():
            self.snapshot = self.snapshot.with_stale_leaders(topic, partitions, node_id)
        self.request_refresh(refused)

    @property
    def unreachable(self) -> bool:
        """True before the first answer, and while no broker is connected and an attempt to connect has failed."""
        return self._connectivity.unreachable or not self.snapshot.brokers

    def connected(self, node_id: int) -> None:
        """Record a connected node, and request the wanted topics immediately."""
        self._connectivity.connected(node_id)
        self._source.connected()
        self._clear_refusal()
        self._schedule.shorten_pauses()
        self._wakeup.set()

    def disconnected(self, node_id: int, error: ProducerError | None) -> None:
        """Record a lost node or a failed attempt; request the topics of the node, or all topics if no node is connected.

        Without *error* the producer closed the connection itself.
        """
        self._source.disconnected()
        self._wakeup.set()  # the node may be a missing broker
        if error is not None and isinstance(error.__cause__, RebootstrapRequired):
            self._source.start_over(error)
            self.request_refresh()
        is_member = node_id in self.snapshot.brokers and not self._closed
        if self._connectivity.disconnected(node_id, failed=error is not None and is_member):
            self.request_refresh()
        elif error is not None:
            self.request_refresh(self.snapshot.led_by(node_id))

    async def _run(self) -> None:
        while True:
            due_at = self._schedule.due_at()
            if due_at <= _now():
                await self._refresh()
                continue
            self._wakeup.clear()
            due_at = min(due_at, self._missing.dial(), self._connectivity.dial(self.snapshot.brokers))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if isinf(due_at) else due_at):
                    await self._wakeup.wait()

    async def _refresh(self) -> None:
        refresh = self._begin()
        topics = len(refresh.topics)
        self._refused = None
        try:
            answer = await self._source.ask(self._request(refresh), self.snapshot.brokers)
            before, after = await self._merged(refresh, answer)
            self._take(refresh, answer, before, after)
        except ProducerError as error:
            self._last_error = error
            self._schedule.failed(refresh, _now())
            if isinstance(error, AuthenticationFailed):
                self._refused = error
                if self._failure_timer is None:
                    ends_at = _now() + REFUSAL_TIMEOUT_S
                    self._failure_timer = asyncio.get_running_loop().call_at(ends_at, self._fail_waiters)
                self._fail_waiters()
            self._limits.log(log, logging.WARNING, "", "metadata.failed topics=%d error=%s", topics, error)
        except Exception as bug:  # noqa: BLE001 - logged with its traceback
            # A producer without metadata would be worse than a producer with the bug.
            self._schedule.failed(refresh, _now())
            self._limits.log(log, logging.ERROR, "", "metadata.bug topics=%d", topics, error=bug)

    def _fail_waiters(self) -> None:
        """Fail waiting calls after the grace period, unless a request is in flight."""
        if self._refused is not None and not self._within_grace():
            self._waiters.fail_all(partial(again, self._refused))

    def _within_grace(self) -> bool:
        return self._failure_timer is not None and _now() < self._failure_timer.when()

    def _clear_refusal(self) -> None:
        if self._failure_timer is not None:
            self._failure_timer.cancel()
        self._refused = self._failure_timer = None

    def _begin(self) -> Refresh:
        self._requests += 1
        return self._schedule.begin(_now())

    def _request(self, refresh: Refresh) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in refresh.topics],
            allow_auto_topic_creation=self._settings.allow_auto_create_topics,
        )

    async def _merged(
        self, refresh: Refresh, answer: MetadataResponse
    ) -> tuple[MetadataSnapshot, MetadataSnapshot]:
        """Return the snapshot and its successor with *answer*; a large answer is merged in a worker thread.

        Raises: ConnectionFailed if the cluster has changed meanwhile.
        """
        large = sum(len(topic.partitions) for topic in answer.topics) >= MERGE_OFF_LOOP_PARTITIONS
        while True:
            before = self.snapshot
            merge = partial(
                before.with_answer, answer, asked=refresh.topics, complete=refresh.complete, now=_now()
            )
            if not large:
                return before, merge()
            after = await WORK_THREADS.run_anyway(merge)
            if self._source.starts_over:
                raise ConnectionFailed("the cluster changed while metadata was merged")
            if self.snapshot is before:  # no leader hint has arrived
                return before, after

    @as_step
    def _take(
        self, refresh: Refresh, answer: MetadataResponse, before: MetadataSnapshot, after: MetadataSnapshot
    ) -> None:
        now = _now()
        self._last_error = None
        self._clear_refusal()
        counts = len(after.brokers), len(refresh.topics)
        self._limits.over("metadata.failed", "", "metadata.recovered brokers=%d topics=%d", *counts)
        answered_by = self._source.answered_by
        self._waiters.serve(
            after, refresh.topics, Answer(self._requests, answered_by, len(after.brokers) == 1)
        )
        self._schedule.answered(refresh, before, after, self._waiters.topics, now)
        self._install(after)
        self._on_answer([each.name for each in answer.topics if each.name and each.partitions], answered_by)
        # No other task requests these topics, because an answer without changes wakes no task.
        self.request_refresh({*self._leaderless(), *(self._waiters.topics & set(refresh.topics))})
        if self._source.starts_over:  # a broker of another cluster answered in the meantime
            self.request_refresh()

    @as_step
    def _another_cluster(self, before: str, after: str) -> None:
        """Drop all state of the old cluster: brokers, connections and topics."""
        error = ConnectionFailed(f"the cluster changed from {before!r} to {after!r}")
        self._pool.start_over(error)
        topics = frozenset(self.snapshot.topics)
        self._install(MetadataSnapshot(version=self.snapshot.version + 1, changed=topics))
        self.request_refresh()
        self._on_another_cluster(error)

    def _install(self, snapshot: MetadataSnapshot) -> None:
        before, self.snapshot = self.snapshot, snapshot
        if snapshot.version == before.version:
            return
        self._missing.note(before, snapshot)
        if snapshot.brokers is not before.brokers or snapshot.cluster_id != before.cluster_id:
            addresses = {node_id: broker.address for node_id, broker in snapshot.brokers.items()}
            self._pool.follow(addresses, self._source.cluster_id)
        changed = snapshot.changed
        for topic in changed & snapshot.topics.keys():
            error = snapshot.topics[topic].error
            if error is not None:
                subject = Pairs(topic=topic, error=error.__name__)
                self._limits.log(log, logging.WARNING, subject, "metadata.topic_error %s", subject)
        log.debug("metadata.changed version=%d changed_topics=%d", snapshot.version, len(changed))
        self._on_update(snapshot, changed)

    def _give_up(self, topic: str, waiter: Waiter, since: float) -> None:
        info = self.snapshot.topics.get(topic)
        cause = self._last_error
        if cause is None and info is not None and info.error is not None:
            cause = topic_error(topic, info.error)
        text = f"no broker returned the partitions of topic {topic!r} within {_now() - since:.3g} s"
        if cause is not None:
            text += f"; last error: {type(cause).__name__}: {cause}"
        self._waiters.wake(topic, waiter, caused(MetadataTimeout(text), cause))


def _now() -> float:
    return asyncio.get_running_loop().time()
