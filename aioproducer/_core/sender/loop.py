"""The sender: one task that writes ready batches to the brokers and applies the responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.schedule import LatencyEstimate
from aioproducer._core.batching.waiters import TaskWaker
from aioproducer._core.clock import Wakeup
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.metrics import Metrics
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.pool import REFUSAL_TIMEOUT_S, Pool
from aioproducer._core.records.compression import Codec
from aioproducer._core.sender.obstacles import (
    Obstacles,
    failure_at,
    failure_of_encoding,
    failure_of_login,
    failure_without_producer_id,
)
from aioproducer._core.sender.producer_id import ProducerIdRequester
from aioproducer._core.sender.requests import (
    Encoder,
    OpenTransaction,
    ProduceAnswer,
    ResponseHandler,
    Unencodable,
    decoder_for,
    largest_request,
    version_for,
)
from aioproducer._core.settings import SenderSettings
from aioproducer._core.steps import Log, step_here
from aioproducer.errors import (
    ProducerError,
    TimeoutReason,
    UnsupportedCompressionType,
    UnsupportedVersion,
)

log: Final = Log(__name__)

_CONNECTING, _THROTTLED = TimeoutReason.CONNECTING, TimeoutReason.THROTTLED
_IN_FLIGHT_LIMIT = TimeoutReason.IN_FLIGHT_LIMIT
UNSENT: Final = (BatchState.OPEN, BatchState.SEALED, BatchState.BACKOFF)


class Sender:
    """Task that repeats expire → collect → drain → send. Responses arrive by callback and ring the wakeup.

    `_run_once` has no await, so no other task changes the state during a run.
    """

    def __init__(
        self,
        settings: SenderSettings,
        *,
        accumulator: Accumulator,
        completion: BatchCompletion,
        pool: Pool,
        updater: MetadataUpdater,
        wakeup: Wakeup,
        waker: TaskWaker,
        metrics: Metrics,
        transaction: OpenTransaction | None = None,
    ) -> None:
        self._settings = settings
        self._transaction = transaction
        self._accumulator = accumulator
        self._schedule = accumulator.schedule
        self._completion = completion
        self._pool = pool
        self._updater = updater
        self._wakeup, self._waker, self._metrics = wakeup, waker, metrics
        self._encoder = Encoder(settings)
        # `_acks` and `_codec` are copies, because a NamedTuple field costs three times as much (Python 3.11 to 3.13).
        self._acks, self._codec = settings.acks, settings.codec
        self._needs_identity = transaction is None and settings.idempotent
        self._tracks_busy_nodes = accumulator.settings.linger_is_adaptive
        self._compresses = settings.codec is not Codec.NONE
        self._most_in_flight = settings.in_flight_limit
        self._first_bytes = largest_request(accumulator.settings, settings)
        """Maximum size of a request to a node without requests in flight, in bytes."""
        self._answers = ResponseHandler(settings, completion, updater)
        self._loop = asyncio.get_running_loop()
        self._step = step_here()
        self._bug: BaseException | None = None
        """Exception of a bug in a task or callback; `run` raises the exception."""
        self._in_flight: dict[Connection, int] = {}
        """Number of produce requests per connection without a response, including prepared requests. Other requests on the
        connection do not count, because their responses do not wake the sender."""
        self._preparing: dict[int, list[asyncio.Task[None]]] = {}
        """Tasks by node of requests that are encoded in a thread, or wait for earlier requests or the socket. Requests are
        written in the order of the drain."""
        self._producer_id = ProducerIdRequester(
            accumulator.identities,
            settings.retry_backoff,
            on_identity=self.identity_changed,
            on_refused=self._identity_refused,
            wake=wakeup.ring,
            limits=completion.limits,
        )
        self.obstacles: Final = Obstacles(
            accumulator=accumulator,
            pool=pool,
            brokers=lambda: updater.snapshot.brokers,
            in_flight=self._in_flight,
            most_in_flight=self._most_in_flight,
            identity_error=lambda: self._producer_id.last_error,
            loop=self._loop,
        )

    def connected(self, node_id: int) -> None:
        """Note a connection to a node, which ends backoffs after lost connections.

        Batches of lost connections are retried after the initial backoff, because a broker may close the connection again.
        """
        self._schedule.connected(node_id, self._loop.time() + self._settings.retry_backoff.delay_s(0))
        self._producer_id.connected()
        self._wakeup.ring()

    async def run(self) -> None:
        """Send until `Accumulator.finish` was called and no record is left.

        A cancelled run leaves its batches; the caller has to fail these batches.

        Raises: the exception of a bug, also from the handling of responses and from encoding in threads.
        """
        self._wakeup.on_time = self._run_in_callback
        try:
            while not (self._accumulator.finishing and self._accumulator.idle):
                await self._wakeup.wait(self._run_once())
                if self._bug is not None:
                    raise self._bug
        finally:
            self._wakeup.forget()
            self._wakeup.on_time = None
            preparing = [task for tasks in self._preparing.values() for task in tasks]
            for task in preparing:
                task.cancel()
            self._encoder.close()
            await asyncio.gather(*preparing, return_exceptions=True)

    def _run_once(self) -> float:
        """Send all ready batches; return the time of the next run without an event, or infinity.

        Methods that this method calls also return the time of the next run.
        """
        check_at = self._step.run(self._run_step, self._loop.time())
        if self._preparing:
            self._encoder.yield_gil()
        return check_at

    def _run_step(self, now: float) -> float:  # noqa: C901 - skips methods without work, because each call delays a single record
        accumulator, schedule = self._accumulator, self._schedule
        accumulator.yields.reset()
        check_at = accumulator.deadlines.next_due()
        if check_at <= now:
            check_at = self._completion.expire(now, self.obstacles.failure)  # the next deadline
        if self._transaction is not None:
            self._transaction.fail_unsendable()
        if schedule.lingering or schedule.backing_off:
            schedule.collect(now, hurry=accumulator.hurries())
        # This method compares in place of min(), because a call costs as much as ten comparisons.
        windows = accumulator.windows
        if windows.check_at <= now:
            windows.seal_old(now)
        if windows.check_at < check_at:  # noqa: PLR1730
            check_at = windows.check_at
        if schedule.new_leaderless:  # the updater repeats its request until a response has the leaders
            self._updater.request_refresh(schedule.take_new_leaderless())
        for node_id in list(schedule.waiting):
            serve_at = self._serve(node_id, now)
            if serve_at < check_at:  # noqa: PLR1730
                check_at = serve_at
        # The producer id is requested after the drains: a drained batch may have needed an epoch above the highest.
        if self._needs_identity and accumulator.identities.current is None:
            check_at = min(check_at, self._request_identity(now))
            for node_id in schedule.leaders_without_identity():
                if self._pool.get(node_id) is None:  # a leader that refuses logins assigns no producer id
                    check_at = min(check_at, self._reach(node_id, now))
        if schedule.lingering or schedule.backing_off:
            return min(check_at, schedule.next_due())
        return check_at

    def _request_identity(self, now: float) -> float:
        """Request a producer id, or connect to a node for the request; return the time of the next run."""
        requester = self._producer_id
        if requester.tolerated_until > now:
            return requester.tolerated_until
        others = self._updater.snapshot.brokers.keys() - requester.asked
        connection = self._pool.least_loaded(others)
        if connection is not None and connection.throttled_until <= now:
            requester.ask(connection)
            return requester.tolerated_until
        unconnected = {each for each in others if self._pool.get(each) is None}
        if unconnected and requester.dial_next_at <= now:
            self._connect(requester.next_to_dial(unconnected))
        dial_next_at = requester.dial_next_at if unconnected else inf
        return dial_next_at if connection is None else min(dial_next_at, connection.throttled_until)

    def _connect(self, node_id: int) -> float:
        """Request a connection to *node_id*; return the time of the next attempt, infinity during an attempt."""
        broker = self._updater.snapshot.brokers.get(node_id)
        if broker is None:  # the node left the cluster: the next metadata has another leader
            self._updater.request_refresh()
            return inf
        self._pool.connect_soon(node_id, broker.address)
        at = self._pool.next_attempt_at(node_id)
        return inf if at is None else at

    def _serve(self, node_id: int, now: float) -> float:
        """Send ready batches to *node_id* within its limits; return the time of the next run."""
        connection = self._pool.get(node_id)
        if connection is None:
            log.debug("node.waiting node_id=%d reason=%s", node_id, _CONNECTING)
            return self._reach(node_id, now)
        if (until := connection.throttled_until) > now:
            log.debug("node.waiting node_id=%d reason=%s for_s=%.3f", node_id, _THROTTLED, until - now)
            return until
        while (in_flight := self._in_flight.get(connection, 0)) < self._most_in_flight:
            preparing = self._preparing.get(node_id, ())
            max_bytes = self._first_bytes
            if in_flight:
                written, batching = in_flight - len(preparing), self._accumulator.settings
                max_bytes = largest_request(batching, self._settings, in_flight, written)
            batches = self._schedule.drain(node_id, now, max_bytes)
            if not batches:  # the ready batches may no longer be sent, for example without a producer id
                break
            leaves_loop = self._compresses and self._encoder.leaves_loop(batches)
            if preparing or self._acks == 0 or leaves_loop:
                self._prepare(connection, batches, preparing[-1] if preparing else None)
            else:
                if failed := self._encoder.encode_all(batches):
                    self._fail_unencodable(failed)
                    batches = _still_in_flight(batches)
                self._write(connection, node_id, batches, now)
            if node_id not in self._schedule.waiting or connection.closed:  # the write lost the connection
                break
        else:
            log.debug("node.waiting node_id=%d reason=%s", node_id, _IN_FLIGHT_LIMIT)
        return inf

    def _reach(self, node_id: int, now: float) -> float:
        """Request a connection, and fail batches for a node that keeps refusing the login. Return the time of the next check.

        A new batch waits for the current attempt, because the fault may have been fixed in the meantime.
        """
        check_at = self._connect(node_id)
        refused = self._pool.refused_logins(node_id)
        if refused is None:
            return check_at
        tolerated_until = refused.since + REFUSAL_TIMEOUT_S
        if now < tolerated_until:
            return min(check_at, tolerated_until)
        is_trying = self._pool.next_attempt_at(node_id) is None
        for batch in tuple(self._accumulator.unresolved):
            if self._accumulator.leader(batch) == node_id and batch.ready and batch.state in UNSENT:
                if is_trying and now < batch.created_at + REFUSAL_TIMEOUT_S:
                    check_at = min(check_at, batch.created_at + REFUSAL_TIMEOUT_S)
                else:
                    self._completion.fail(batch, failure_of_login(batch, refused.error))
        return check_at

    def _prepare(
        self, connection: Connection, batches: Sequence[Batch], before: asyncio.Task[None] | None
    ) -> None:
        """Send *batches* once they are encoded and the request *before* is written."""
        self._sent(connection, connection.node_id)
        task = self._loop.create_task(self._prepare_and_write(connection, batches, before))
        self._preparing.setdefault(connection.node_id, []).append(task)
        task.add_done_callback(partial(self._prepared, connection))

    async def _prepare_and_write(
        self, connection: Connection, batches: Sequence[Batch], before: asyncio.Task[None] | None
    ) -> None:
        """Encode *batches* in a thread, and write. With acks=0 wait for the socket, because no response limits the rate."""
        unencodable = await self._encoder.encode_off_loop(batches)
        if before is not None:
            await asyncio.wait([before])
        self._step.run(self._fail_unencodable, unencodable)
        if self._acks == 0:
            # During a re-authentication the connection accepts no request.
            with suppress(ProducerError):
                await connection.drain()
        self._step.run(partial(self._write_or_give_back, connection), batches)
        if self._acks == 0:
            with suppress(ProducerError):  # the pool reports lost connections
                await connection.drain()

    def _write_or_give_back(self, connection: Connection, batches: Sequence[Batch]) -> None:
        """Write the *batches* that would still be drained for *connection*, and give back all other batches."""
        may_write = (
            not connection.closed
            and connection.throttled_until <= self._loop.time()
            and (self._transaction is None or self._transaction.may_send)
        )
        for batch in _still_in_flight(batches):
            queue = self._accumulator.queue(batch)
            if not (may_write and queue.leader == connection.node_id and queue.may_write(batch)):
                self._completion.give_back(batch)
        self._write(connection, connection.node_id, _still_in_flight(batches), self._loop.time())

    def _fail_unencodable(self, failed: Unencodable) -> None:
        for batch, error in failed:
            if batch.state is BatchState.IN_FLIGHT:  # the batch has not expired meanwhile
                self._completion.fail(batch, failure_of_encoding(batch, error))

    def _prepared(self, connection: Connection, task: asyncio.Task[None]) -> None:
        preparing = self._preparing[connection.node_id]
        preparing.remove(task)
        if not preparing:
            del self._preparing[connection.node_id]
        # The request no longer counts as prepared: it is written or given back.
        self._received(connection, connection.node_id, self._loop.time())
        if not task.cancelled():
            self._bug = self._bug or task.exception()
        self._wakeup.ring()

    def _write(self, connection: Connection, node_id: int, batches: Sequence[Batch], now: float) -> None:
        """Write one request for *batches*, which are all in flight, on the *connection* to a node."""
        if not batches:
            return
        request = self._encoder.request(batches, self._accumulator.topics)
        at_most = None if self._transaction is None else self._transaction.write(batches)
        for batch in batches:
            batch.persistence.written()
        try:
            version = version_for(request, connection.versions, at_most, self._codec)
            if self._acks == 0:
                connection.write_only(request, version=version)
            else:
                latency = self._accumulator.latencies[node_id]
                answered = partial(self._answered, connection, node_id, latency, batches, now)
                decode = decoder_for(request, version)
                connection.call(request, answered, version, decode, now)
                self._sent(connection, node_id)
                latency.sent(now)
        except (UnsupportedVersion, UnsupportedCompressionType) as error:
            for batch in batches:
                batch.persistence.not_written()
                self._completion.fail(batch, failure_at(batch, connection, error))
        except ProducerError as error:
            self._answers.lost(connection, batches, error)
        else:
            self._count(batches, now)
            if self._acks == 0:
                for batch in batches:
                    self._completion.complete(batch, -1)

    def _sent(self, connection: Connection, node_id: int) -> None:
        """Count one more request in flight on the *connection* to a node."""
        self._in_flight[connection] = self._in_flight.get(connection, 0) + 1
        if self._tracks_busy_nodes:
            self._schedule.busy.add(node_id)

    def _received(self, connection: Connection, node_id: int, now: float) -> None:
        """Count one request less in flight on the *connection* to a node."""
        left = self._in_flight[connection] = self._in_flight[connection] - 1
        if not left:
            del self._in_flight[connection]
            if self._tracks_busy_nodes:
                self._schedule.mark_idle(node_id, now)

    def _count(self, batches: Sequence[Batch], now: float) -> None:
        """Count the batches of a written request, and update the compression ratio of their topics."""
        share = 1 / len(batches)
        for batch in batches:
            name, sent = batch.topic_partition[0], len(batch.encoded or b"")
            # Upper bound of the size before compression; without a codec, the exact size.
            uncompressed = batch.size if self._compresses else sent
            if self._compresses and batch.attempts == 1:
                self._accumulator.topics[name].limits.compressed(batch)
            counters = self._metrics.topic(name)
            counters.written(len(batch.columns), sent, uncompressed, now - batch.created_at, share, now)

    def _answered(
        self,
        connection: Connection,
        node_id: int,
        latency: LatencyEstimate,
        batches: Sequence[Batch],
        sent_at: float,
        answer: ProduceAnswer | ProducerError,
    ) -> None:
        """Handle *answer*. A bug ends `run`, because *batches* would wait forever and block later batches."""
        if connection.is_reading:
            now = connection.read_at
            connection.after_read = self._resume_tasks_and_send
            self._waker.pause()
            self._wakeup.pause()
        else:  # *answer* is the error of a closed connection
            now = self._loop.time()
        self._received(connection, node_id, now)
        latency.answered(now)
        if not isinstance(answer, ProducerError):
            connection.counters.answered(now - sent_at, answer.throttle_time_ms, now)
            if self._transaction is not None:
                self._transaction.answered(now - sent_at)
        try:
            self._answers.take(connection, batches, answer, now)
        except BaseException as bug:
            for batch in batches:
                batch.persistence.answer_not_understood()
            self._bug = self._bug or _as_bug(bug)
            raise
        finally:
            if self._accumulator.finishing or self._bug:
                self._wakeup.ring()

    def _resume_tasks_and_send(self) -> None:
        """Resume the tasks of the read records, and send their next records, in this iteration of the event loop.

        If no task resumes here, `run` is woken, because tasks that await Futures resume before `run`.
        """
        try:
            if not self._waker.resume():
                self._wakeup.ring()
            elif self._wakeup.has_rung or self._transaction or self._schedule.waiting:
                self._run_in_callback()
        finally:
            self._wakeup.resume()

    def _run_in_callback(self) -> None:
        """Run the sender in this callback, one iteration earlier than its task. A task that may have to end is woken."""
        wakeup = self._wakeup
        try:
            if self._accumulator.finishing or self._bug or not wakeup.consume():
                wakeup.ring()
            else:
                wakeup.ring_at(self._run_once())
        except BaseException as bug:  # `run` raises *bug*
            self._bug = _as_bug(bug)
            wakeup.ring()
            if not isinstance(bug, Exception):  # the event loop raises *bug*, and the program may continue
                raise

    def identity_changed(self) -> None:
        """Schedule the queues that waited for an identity or for the transaction."""
        self._schedule.identity_changed(self._loop.time())

    def _identity_refused(self, error: ProducerError) -> None:
        for batch in tuple(self._accumulator.unresolved):
            if batch.ready and batch.sequence is None and batch.state in (BatchState.OPEN, BatchState.SEALED):
                self._completion.fail(batch, failure_without_producer_id(batch, error))


def _still_in_flight(batches: Sequence[Batch]) -> list[Batch]:
    """Return the *batches* that are still in flight; the other batches have failed or were queued again."""
    return [batch for batch in batches if batch.state is BatchState.IN_FLIGHT]


def _as_bug(error: BaseException) -> BaseException:
    """Return the exception that `run` raises for *error*. KeyboardInterrupt in a task would interrupt the event loop again."""
    return error if isinstance(error, Exception) else RuntimeError(f"interrupted by {error!r}")
