"""Obstacles: the reasons for the missing acknowledgement of a batch, computed on demand."""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import RESOLVED, BatchState
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.schedule import TICK_S
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.pool import Pool
from aioproducer.errors import (
    AuthenticationFailed,
    BrokerError,
    DeliveryTimeout,
    ProducerError,
    TimeoutReason,
)

LATE_S: Final = 0.25
"""Margin of a deadline, in seconds. If the producer handles a deadline later, the event loop did not run."""


class Obstacle(NamedTuple):
    """Reason for a missing acknowledgement, with the details as a clause."""

    reason: TimeoutReason
    text: str
    cause: ProducerError | None = None


class Obstacles(NamedTuple):
    """Finds the obstacle of a batch from its state and the connection to its leader. A search changes no state."""

    accumulator: Accumulator
    pool: Pool
    brokers: Callable[[], Collection[int]]
    """Returns the ids of the cluster's brokers."""
    in_flight: Mapping[Connection, int]
    most_in_flight: int
    identity_error: Callable[[], ProducerError | None]
    """Returns the failure to get a producer id, or None without a failure."""
    loop: asyncio.AbstractEventLoop

    def failure(self, batch: Batch, timeout_s: float | None = None, due_at: float | None = None) -> Failure:
        """Return the failure of *batch* at its deadline, or at the deadline *due_at* of a call with a *timeout_s*."""
        now = self.loop.time()
        due_at = batch.deadline if due_at is None else due_at
        waited_s = now - batch.created_at if timeout_s is None else timeout_s + now - due_at
        obstacle = self._late(batch, now, now - due_at - TICK_S, waited_s)
        limit = f"{waited_s:.1f} s" if timeout_s is None else f"{timeout_s:g} s (timeout_s)"
        times = "never sent" if not batch.attempts else f"sent {_times(batch.attempts)}, not acknowledged"
        text = f"{batch.topic_partition}: delivery timed out after {limit}, {times}: {obstacle.text}"
        last, cause = batch.last_error, batch.last_error or obstacle.cause
        if last is not None and str(last) not in text:
            text += f"; last error: {type(last).__name__}: {last}"
        return Failure(DeliveryTimeout, text, batch.possibly_persisted, cause, reason=obstacle.reason)

    def of(self, batch: Batch) -> Obstacle:
        """Return the reason why *batch* is not acknowledged at present."""
        now = self.loop.time()
        return self._of(batch, now) or Obstacle(
            TimeoutReason.LOOP_BLOCKED, "the event loop has not sent the batch yet"
        )

    def _late(self, batch: Batch, now: float, late_s: float, waited_s: float) -> Obstacle:
        """Return the obstacle of *batch*, *late_s* after its deadline and after a wait of *waited_s*.

        A blocked event loop is the reason if there is no other obstacle, or if the loop was blocked for most of the
        wait. For NO_ANSWER a tenth of the wait is enough: a response may have arrived while the loop was blocked.
        """
        obstacle = self._of(batch, now)
        if obstacle is not None:
            share = 0.1 if obstacle.reason is TimeoutReason.NO_ANSWER else 0.5
            if late_s <= max(LATE_S, share * waited_s):
                return obstacle
        for_s = f" for {late_s:.1f} s" if late_s > LATE_S else ""
        return Obstacle(TimeoutReason.LOOP_BLOCKED, f"the event loop did not run{for_s}")

    def _of(self, batch: Batch, now: float) -> Obstacle | None:
        """Return the obstacle of *batch*; None if *batch*, or an earlier batch of its partition, can be sent now."""
        while batch.successors:
            batch = next(
                (each for each in batch.successors if each.state not in RESOLVED), batch.successors[-1]
            )
        topic = self.accumulator.topics.get(batch.topic_partition.topic)
        queue = None if topic is None else topic.by_partition.get(batch.topic_partition.partition)
        if batch.persistence.attempt_is_out:
            return self._unanswered(NO_LEADER if queue is None else queue.leader, now)
        if queue is None or queue.leader == NO_LEADER:
            return Obstacle(TimeoutReason.NO_LEADER, "the partition has no leader")
        # The batch is being compressed in a thread, or is queued behind unwritten requests.
        if batch.state is BatchState.IN_FLIGHT:
            text = f"earlier requests to node {queue.leader} are still being written"
            return self._node(queue.leader, now) or Obstacle(TimeoutReason.IN_FLIGHT_LIMIT, text)
        return self._queued(queue, now)

    def _unanswered(self, leader: int, now: float) -> Obstacle:
        node = "the leader" if leader == NO_LEADER else f"node {leader}"
        is_connected = self.pool.get(leader) is not None
        return (
            self._throttle(leader, now)
            or (self._away(leader) if is_connected else None)
            or Obstacle(TimeoutReason.NO_ANSWER, f"{node} has not answered")
        )

    def _queued(self, queue: PartitionQueue, now: float) -> Obstacle | None:
        leader, head = queue.leader, queue.next_batch(now)
        match head:
            case Batch():
                return self._node(leader, now)
            case None:
                return Obstacle(
                    TimeoutReason.BACKING_OFF, "the batch was waiting for more records (linger_ms)"
                )
            case TimeoutReason.PRODUCER_ID:
                error = self.identity_error()
                why = "no broker has assigned a producer id" + (f": {error}" if error is not None else "")
                return self._any_node() or Obstacle(head, why, error)
            case TimeoutReason.TRANSACTION:
                text = "the transaction does not take the partition yet"
                return self._any_node() or Obstacle(head, text)
            case TimeoutReason.BACKING_OFF:
                batch = queue.retrying[0] if queue.retrying else queue.batches[0]
                away = None if isinstance(batch.last_error, BrokerError) else self._away(leader)
                text = f"the next attempt was due in {max(batch.retry_at - now, 0.0):.1f} s"
                return away or Obstacle(head, text)
            case TimeoutReason.IN_FLIGHT_LIMIT:
                count = len(queue.in_flight)
                batches, await_ = ("batch", "awaits") if count == 1 else ("batches", "await")
                text = f"{count} earlier {batches} of the partition {await_} the response"
                return self._away(leader) or self._throttle(leader, now) or Obstacle(head, text)

    def _node(self, leader: int, now: float) -> Obstacle | None:
        """Return the obstacle of requests to *leader*."""
        if (away := self._away(leader) or self._throttle(leader, now)) is not None:
            return away
        connection = self.pool.get(leader)
        if connection is None or (count := self.in_flight.get(connection, 0)) < self.most_in_flight:
            return None
        requests = "1 request is" if count == 1 else f"{count} requests are"
        return Obstacle(
            TimeoutReason.IN_FLIGHT_LIMIT,
            f"{requests} in flight to node {leader}, the limit of max_in_flight_requests_per_connection",
        )

    def _throttle(self, leader: int, now: float) -> Obstacle | None:
        connection = self.pool.get(leader)
        if connection is None or not 0 < connection.throttled_until >= now:
            return None
        for_s = connection.throttled_until - now
        return Obstacle(
            TimeoutReason.THROTTLED, f"node {leader} is throttling this client for another {for_s:.1f} s"
        )

    def _away(self, node_id: int) -> Obstacle | None:
        """Return the reason for the lack of a usable connection to the node; None with a usable connection."""
        connection = self.pool.get(node_id)
        if connection is not None:
            text = f"the login at node {node_id} is being repeated"
            return Obstacle(TimeoutReason.AUTHENTICATION, text) if connection.is_paused else None
        refused, error = self.pool.refused_logins(node_id), self.pool.last_error(node_id)
        if refused is not None:
            text = f"node {node_id} refused the login: {refused.error}"
            return Obstacle(TimeoutReason.AUTHENTICATION, text, refused.error)
        why = "" if error is None else f": {error}"
        return Obstacle(TimeoutReason.CONNECTING, f"node {node_id} is not connected{why}", error)

    def _any_node(self) -> Obstacle | None:
        """Return the reason for the lack of a connected broker; None if a broker is connected."""
        brokers = self.brokers()
        if self.pool.least_loaded(brokers) is not None:
            return None
        away = [obstacle for node_id in brokers if (obstacle := self._away(node_id)) is not None]
        return next(
            (each for each in away if each.reason is TimeoutReason.AUTHENTICATION), away[0] if away else None
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def failure_at(batch: Batch, connection: Connection, error: ProducerError) -> Failure:
    """Return the failure of *batch* for *error* on *connection*."""
    text = f"{batch.topic_partition} at {connection}, {_attempts_of(batch)}: {error}"
    return Failure(type(error), text, batch.possibly_persisted, batch.last_error or error)


def failure_without_producer_id(batch: Batch, error: ProducerError) -> Failure:
    """Return the failure of *batch* without a producer id."""
    text = f"{batch.topic_partition}: no producer id, which an idempotent producer needs: {error}"
    return Failure(type(error), text, batch.possibly_persisted, error)


def failure_of_login(batch: Batch, error: AuthenticationFailed) -> Failure:
    """Return the failure of *batch* whose leader refuses the login."""
    return Failure(type(error), f"{batch.topic_partition}: {error}", batch.possibly_persisted, error)


def failure_of_encoding(batch: Batch, error: Exception) -> Failure:
    """Return the failure of *batch*, which could not be encoded or compressed."""
    text = f"{batch.topic_partition}: the batch could not be encoded: {error!r}"
    return Failure(ProducerError, text, batch.possibly_persisted, error)


def _attempts_of(batch: Batch) -> str:
    elapsed_s = asyncio.get_running_loop().time() - batch.created_at
    attempts = f"{batch.attempts} attempt{'' if batch.attempts == 1 else 's'}"
    return f"{attempts} in {elapsed_s:.3f} s"
