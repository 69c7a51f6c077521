"""Keeps the snapshot of the cluster up to date: one task, one request at a time, nobody polls.

It asks when a topic is not known, a leader is not known, a broker says that it is not the leader, a connection is
lost, or the last answer is too old. Who waits for a topic waits for an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf, isinf
from typing import Final, Protocol, TypeAlias

from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.metadata.last_connection import LastConnection
from aioproducer._core.metadata.metadata_source import ConnectionPool, MetadataSource, OpenConnection
from aioproducer._core.metadata.refresh_schedule import MetadataSettings, Refresh, RefreshSchedule
from aioproducer._core.metadata.snapshot import Broker, LeaderHint, MetadataSnapshot, TopicInfo
from aioproducer._core.metadata.topic_waiters import (
    Answer,
    Denials,
    NewAnswer,
    TopicWaiters,
    Waiter,
    topic_error,
)
from aioproducer._core.net.address import Address
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.dial import again
from aioproducer._core.net.pool import REFUSAL_PATIENCE_S
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
"""Told the new snapshot and the topics that are new, gone or different in it. Does not raise, does not wait."""

OnAnswer: TypeAlias = Callable[[Collection[str], int], None]
"""Receives the topics in a response, and the node that answered (below 0: unknown). Must not raise."""

MERGE_OFF_LOOP_PARTITIONS: Final = 5_000
"""Number of partitions from which on a response is merged in a thread; merging takes about 1 µs each."""


class MetadataUpdater:
    """Owns the snapshot and the task that renews it."""

    def __init__(
        self,
        settings: MetadataSettings,
        pool: ConnectionPool,
        *,
        open_connection: OpenConnection,
        on_update: OnUpdate,
        leaderless: Callable[[], Collection[str]],
        on_answer: OnAnswer = lambda *_: None,
        limits: LogLimits | None = None,
        on_another_cluster: Callable[[ProducerError], None] = lambda _: None,
    ) -> None:
        """*open_connection* connects to a bootstrap address, outside of the *pool* of nodes.

        *leaderless* returns the topics with records that wait for a leader of their partition: they are asked for
        again after every answer that brings none. *on_answer* is called after each answer, even without changes.
        *on_another_cluster* is called with an error if the bootstrap addresses have moved to another cluster, before
        the metadata of that cluster is installed.
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
        self._last_connection = LastConnection(pool)
        self._waiters = TopicWaiters()
        self._requests = 0  # sent so far
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._last_error: ProducerError | None = None
        self._refused: AuthenticationFailed | None = None  # what came of the last request, until the next one
        self._patience: asyncio.TimerHandle | None = None  # since the first refusal of a row of them
        self.snapshot: MetadataSnapshot = MetadataSnapshot()

    async def bootstrap(self, deadline: float) -> None:
        """Get the first answer, from a node that is connected, or whichever bootstrap address is the first to give one.

        Raises: ConnectionFailed with each address and its cause once all have failed, or at *deadline* (loop time).
        Cancelling leaves no connection open. It may be called again after a failure.
        """
        refresh = self._begin()
        self._let_in()
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
        """Keep the snapshot up to date from now on, in a task that `close` ends."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="aioproducer metadata")
        return self._task

    def abort(self, cause: ProducerError) -> None:
        """Close what it opened, without waiting for anything: the event loop is going down."""
        self._closed = True
        self._source.abort(cause)

    async def close(self) -> None:
        """End the task, close what it opened, and fail whoever still waits with ProducerClosed."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._let_in()
        self.fail_all(lambda: ProducerClosed("the producer was closed while waiting for metadata"))
        await self._source.close()

    def fail_all(self, error: Callable[[], ProducerError]) -> None:
        """Let everybody who waits in `topic` raise what *error* returns: one instance each."""
        self._waiters.fail_all(error)

    def request_refresh(self, topics: Iterable[str] | None = None) -> None:
        """Ask again soon for *topics*, by default for all that are in use; cheap if that is so already.

        A request that is on its way does not count: what it brings may be older than the reason for this call.
        """
        now = _now()
        if topics is None:
            wanted = [self._schedule.want_all(now)]
        else:
            wanted = [self._schedule.want(topic, now) for topic in topics]
        if wanted:  # also topics that were requested before: the requesting call may have been interrupted
            self._wakeup.set()

    def touch(self, topic: str, now: float) -> None:
        """Note that *topic* is in use, and have it asked for if it is not known."""
        info = self.snapshot.topics.get(topic)
        if info is not None and info.partitions:  # `knows` without a call: this is asked for each batch
            self._schedule.touch(topic, now)
        else:
            self.request_refresh([topic])

    async def topic(
        self, name: str, deadline: float, *, anew: bool = False, partition: int | None = None
    ) -> TopicInfo:
        """Return the topic once its partitions are known, whether they have leaders or not.

        With *anew* a broker is asked first; answers to requests from before this call do not count. With *partition*,
        which the known topic lacks, brokers are asked until the topic has it or two of them deny it.

        Raises: MetadataTimeout at *deadline* (loop time), its cause being why the topic is not known;
            AuthenticationFailed if nothing else has come of any request for a while;
            TopicAuthorizationFailed, InvalidTopicException or ClusterAuthorizationFailed as soon as a broker answers so;
            UnknownTopicOrPartition without `allow_auto_create_topics`, once brokers have denied the topic;
            ProducerClosed; the error given to `fail_all`. Cancelling stops only the waiting.
        """
        if self._closed:
            raise ProducerClosed("the producer is closed")
        is_new = anew or partition is not None
        if self.snapshot.knows(name) and not is_new:
            self.touch(name, _now())
            return self.snapshot.topics[name]
        self.request_refresh([name])
        if self._refused is not None and not self._is_patient():
            raise again(self._refused)  # callers come one by one: each would wait for a login of its own
        loop = asyncio.get_running_loop()
        condition = NewAnswer(self._requests, partition) if is_new else None
        denials = None if self._settings.allow_auto_create_topics else Denials(self._requests)
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
        """Ask a broker for all topics. What it says is returned, and nothing else: it does not become the snapshot.

        Raises: ConnectionFailed, AuthenticationFailed, ProducerClosed.
        """
        if self._closed:
            raise ProducerClosed("the producer is closed")
        everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return await self._source.ask(everything, self.snapshot.brokers)

    @as_step
    def take_leader_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[Broker] = ()) -> None:
        """Follow what an answer to a produce request says about new leaders, and where they are (KIP-951)."""
        self._install(self.snapshot.with_leader_hints(hints, endpoints))

    def doubt_leader(self, node_id: int, refused: Mapping[str, Collection[int]]) -> None:
        """Note that a node *refused* partitions, by topic, as if it did not lead them: the next answer is believed."""
        for topic, partitions in refused.items():
            self.snapshot = self.snapshot.with_doubts(topic, partitions, node_id)
        self.request_refresh(refused)

    @property
    def unreachable(self) -> bool:
        """True before the first answer, and while no broker is connected and an attempt to connect has failed."""
        return self._last_connection.unreachable or not self.snapshot.brokers

    def connected(self, node_id: int) -> None:
        """Note that the pool has connected to a node: whatever waits for an answer is asked for again at once."""
        self._last_connection.connected(node_id)
        self._source.connected()
        self._let_in()
        self._schedule.hurry()
        self._wakeup.set()

    def disconnected(self, node_id: int, error: ProducerError | None) -> None:
        """Record a lost node or a failed attempt, and request its topics, or all if no node is connected.

        Without *error* the producer closed the connection itself.
        """
        self._source.disconnected()
        self._wakeup.set()  # it may have been a missing one
        if error is not None and isinstance(error.__cause__, RebootstrapRequired):
            self._source.start_over(error)
            self.request_refresh()
        is_member = node_id in self.snapshot.brokers and not self._closed
        if self._last_connection.disconnected(node_id, failed=error is not None and is_member):
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
            due_at = min(due_at, self._missing.dial(), self._last_connection.dial(self.snapshot.brokers))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if isinf(due_at) else due_at):
                    await self._wakeup.wait()

    async def _refresh(self) -> None:
        refresh = self._begin()
        self._refused = None
        try:
            answer = await self._source.ask(self._request(refresh), self.snapshot.brokers)
            before, after = await self._merged(refresh, answer)
            self._take(refresh, answer, before, after)
        except ProducerError as error:
            self._last_error = error
            self._schedule.failed(refresh, _now())
            if isinstance(error, AuthenticationFailed):
                self._note_refusal(error)
            topics = len(refresh.topics)
            self._limits.log(log, logging.WARNING, "", "metadata.failed topics=%d error=%s", topics, error)
        except Exception as bug:  # noqa: BLE001 - logged with its traceback
            # A producer without metadata would be worse than one with the bug.
            self._schedule.failed(refresh, _now())
            topics = len(refresh.topics)
            self._limits.log(log, logging.ERROR, "", "metadata.bug topics=%d", topics, error=bug)

    def _note_refusal(self, error: AuthenticationFailed) -> None:
        self._refused = error
        if self._patience is None:
            ends_at = _now() + REFUSAL_PATIENCE_S
            self._patience = asyncio.get_running_loop().call_at(ends_at, self._tell_refusal)
        self._tell_refusal()

    def _tell_refusal(self) -> None:
        """Let nobody wait for what does not pass by itself; a request that is on its way tells them."""
        if self._refused is not None and not self._is_patient():
            self._waiters.fail_all(partial(again, self._refused))

    def _is_patient(self) -> bool:
        return self._patience is not None and _now() < self._patience.when()

    def _let_in(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._refused = self._patience = None

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

        Raises: ConnectionFailed: the cluster has changed meanwhile.
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
        self._let_in()
        counts = len(after.brokers), len(refresh.topics)
        self._limits.over("metadata.failed", "", "metadata.recovered brokers=%d topics=%d", *counts)
        told_by = self._source.told_by
        self._waiters.serve(after, refresh.topics, Answer(self._requests, told_by, len(after.brokers) == 1))
        self._schedule.answered(refresh, before, after, self._waiters.topics, now)
        self._install(after)
        self._on_answer([each.name for each in answer.topics if each.name and each.partitions], told_by)
        # No other task requests these topics, because an answer without changes wakes none.
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
        text = f"nobody told the partitions of topic {topic!r} in {_now() - since:.3g} s"
        if cause is not None:
            text += f"; last error: {type(cause).__name__}: {cause}"
        error = MetadataTimeout(text)
        error.__cause__ = cause
        self._waiters.wake(topic, waiter, error)


def _now() -> float:
    return asyncio.get_running_loop().time()


class Dialler(Protocol):
    """What is needed of `net.pool.Pool`."""

    def connect_soon(self, node_id: int, address: Address) -> None:
        """Start connecting, unless that is so already or has just failed."""

    def next_attempt_at(self, node_id: int) -> float | None:
        """Return when the pause after a failure is over."""

    def get(self, node_id: int) -> Connection | None:
        """Return the connection of the node if requests can be sent on it now."""

    def forget(self, node_id: int) -> None:
        """Drop the node, and cancel its dial."""


MOST_MISSED: Final = 10
"""Maximum number of departed brokers that are dialled. A restarting cluster may have many, with new ids."""


class MissingBrokers:
    """Brokers that are gone from the cluster while partitions have no leader: they may be about to come back.

    To ask the others again and again when one is back costs them a request each time. So it is dialled itself, as
    any node that was lost: once it accepts, there is a reason to ask. Only the last `MOST_MISSED` departed nodes are
    dialled; other nodes return with a later response.
    """

    def __init__(self, pool: Dialler) -> None:
        self._pool = pool
        self._brokers: dict[int, Broker] = {}

    def note(self, before: MetadataSnapshot, after: MetadataSnapshot) -> None:
        """Note who left, who is back, and whether anybody is missed at all."""
        before_brokers, self._brokers = self._brokers, {}
        if after.leaderless:
            known = {**before_brokers, **before.brokers}
            missed = [each for node_id, each in known.items() if node_id not in after.brokers]
            self._brokers = {each.node_id: each for each in missed[-MOST_MISSED:]}
        for node_id in before_brokers.keys() - self._brokers.keys() - after.brokers.keys():
            if self._pool.get(node_id) is None:
                self._pool.forget(node_id)

    def dial(self) -> float:
        """Have the pool connect to them; return when to do so again, unless it reports one before."""
        next_at = inf
        for broker in self._brokers.values():
            self._pool.connect_soon(broker.node_id, broker.address)
            pause_over_at = self._pool.next_attempt_at(broker.node_id)
            if pause_over_at is not None:
                next_at = min(next_at, pause_over_at)
        return next_at
