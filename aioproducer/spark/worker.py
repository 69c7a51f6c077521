"""A worker: the event loop and the producers that a Python process of Spark keeps between tasks."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from aioproducer import errors
from aioproducer._core.net.pool import ConnectionCache
from aioproducer._lifecycle import State
from aioproducer._topic_client import Client
from aioproducer.producer import Producer
from aioproducer.spark.bad_rows import SETTINGS, TimeWindow, time_window
from aioproducer.spark.decision_records import DecisionView
from aioproducer.spark.kafka_port import KafkaPort, check_retention, read_new_records
from aioproducer.spark.memory_limit import limited_address_space
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.transaction_admin import TransactionAdmin

IDLE_PRODUCERS: Final = 4
"""Maximum number of idle producers, one per configuration."""
KEPT_S: Final = 60.0
"""Time that idle connections for requests are kept, in seconds. Firewalls silently drop idle connections after minutes."""
CLOSE_S: Final = 10.0
"""Time limit of the abort after a failure, in seconds. After this limit, the next owner of the transactional id aborts."""

WINDOWS: Final = 1_000
"""Maximum number of topics whose windows are kept."""
UNCHECKED: Final = (
    errors.TopicAuthorizationFailed,
    errors.ClusterAuthorizationFailed,
    errors.UnknownTopicOrPartition,
    errors.InvalidTopicException,
    errors.UnsupportedVersion,
)
"""Errors of DescribeConfigs after which rows are sent without a check of their times."""

T = TypeVar("T")


class Clients(NamedTuple):
    """Connected clients: for transactions, and for topics and their records."""

    admin: TransactionAdmin
    topics: Client
    used_at: float = 0.0
    """Time of the last use (loop clock)."""

    async def close(self) -> None:
        """Close the connections of both clients."""
        await self.admin.__aexit__(None, None, None)
        await self.topics.__aexit__(None, None, None)


Kept = TypeVar("Kept", Clients, ConnectionCache)


class Worker:
    """An event loop on a daemon thread, and the producers that are free for the next task."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aioproducer-spark", daemon=True)
        with limited_address_space():
            self._thread.start()
        self._idle: deque[tuple[ProducerSettings, Producer]] = deque()
        self._views: dict[tuple[ProducerSettings, str], DecisionView] = {}
        self._clients: dict[ProducerSettings, Clients] = {}
        self._caches: dict[ProducerSettings, ConnectionCache] = {}
        self._windows: dict[tuple[ProducerSettings, str], tuple[TimeWindow, float]] = {}
        """Windows of topics, and the time of the answer (loop clock)."""
        atexit.register(self.close)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start *coroutine* on the event loop; coroutines start in the order of submission."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def decisions(self, settings: ProducerSettings, prefix: str) -> DecisionView:
        """Read the new records of the log, and return the decisions under *prefix*.

        Raises: DeliveryError, ProducerError.
        """
        async with self._borrowed(settings) as clients:
            return await self._read(clients, settings, prefix)

    async def check_retention(self, settings: ProducerSettings) -> None:
        """Check that the topic of decisions keeps its records. Raises: DeliveryError, ProducerError."""
        servers = ",".join(map(str, settings.config().metadata_settings().bootstrap))
        async with self._borrowed(settings) as clients:
            await check_retention(clients.topics, servers)

    async def _read(self, clients: Clients, settings: ProducerSettings, prefix: str) -> DecisionView:
        view = self._views.pop((settings, prefix), None) or DecisionView(prefix)
        await read_new_records(view, clients.topics)
        self._views[settings, prefix] = view  # a failed read drops the view, which may be incomplete
        return view

    def run_with_kafka(
        self,
        settings: ProducerSettings,
        prefix: str,
        what: Callable[[KafkaPort], Coroutine[Any, Any, T]],
    ) -> T:
        """Run *what* with a `KafkaPort` on the event loop, and return its result."""

        async def run() -> T:
            async with self._borrowed(settings) as clients:
                read = partial(self._read, clients, settings, prefix)
                async with aclosing(KafkaPort(settings, clients.admin, read)) as kafka:
                    return await what(kafka)

        return self.submit(run()).result()

    def run_with_client(
        self,
        settings: ProducerSettings,
        what: Callable[[Client], Coroutine[Any, Any, T]],
        *,
        within_s: float,
    ) -> T:
        """Run *what* with a client for topics, and return its result. Raises: TimeoutError after *within_s*; ConnectionFailed."""

        async def run() -> T:
            async with asyncio.timeout(within_s), self._borrowed(settings) as clients:
                return await what(clients.topics)

        return self.submit(run()).result()

    @contextmanager
    def producer(self, settings: ProducerSettings) -> Iterator[Producer]:
        """Lend a started producer.

        The producer is kept for the next task with equal *settings*. After an exception the producer is closed
        immediately, its remaining records fail, and the next task gets a new producer.

        Raises:
            ConfigError, ConnectionFailed: the errors of making and starting a producer.
        """
        producer = self._take(settings)
        try:
            if producer is None:
                producer = Producer.from_config(settings.config())
                self.submit(producer.start(wait=True)).result()
            yield producer
        except BaseException:
            if producer is not None:
                self.submit(producer.close(timeout_s=0)).result()
            raise
        self._idle.append((settings, producer))
        while len(self._idle) > IDLE_PRODUCERS:
            _, oldest = self._idle.popleft()
            self.submit(oldest.close()).result()

    def time_window(self, settings: ProducerSettings, topic: str) -> TimeWindow:
        """Return the window of times that *topic* keeps; the window is requested again after `KEPT_S`.

        Without the right to describe the topic's settings, and for a topic that does not exist, the window has no limits.

        Raises: ProducerError if no broker answers.
        """
        now = self._loop.time()
        window, since = self._windows.get((settings, topic), (None, 0.0))
        if window is None or now - since > KEPT_S:
            window = self.submit(self._time_window(settings, topic)).result()
            if len(self._windows) >= WINDOWS:
                self._windows.clear()
            self._windows[settings, topic] = window, now
        return window

    async def _time_window(self, settings: ProducerSettings, topic: str) -> TimeWindow:
        async with self._borrowed(settings) as clients:
            try:
                return time_window(await clients.topics.topic_settings(topic, SETTINGS))
            except UNCHECKED as error:
                return TimeWindow(unchecked=(topic, f"{type(error).__name__}: {error}"))

    @contextmanager
    def transactional(
        self, settings: ProducerSettings, name: str, *, passes_refusals: bool = False
    ) -> Iterator[Producer]:
        """Lend a started producer with the transactional id *name*, and close the producer at the end.

        With *passes_refusals* the transaction continues without records that a broker refuses for their content.

        The producer reuses connections of an earlier producer with equal *settings*. After an exception the connections
        are closed, because the connections may have caused the failure.

        Raises: the errors of making and starting a producer.
        """
        producer = Producer.from_config(settings.with_transactional_id(name).config())
        cache = self._caches.pop(settings, None) or ConnectionCache(producer.config.connection_security())
        try:
            self.submit(producer._start(cache=cache, passes_refusals=passes_refusals)).result()  # noqa: SLF001 - of this package
            yield producer
            self.submit(producer.close(timeout_s=CLOSE_S)).result()
        except BaseException:
            try:
                self.submit(producer.close(timeout_s=CLOSE_S)).result()
            finally:
                self.submit(cache.close()).result()
            raise
        self.submit(_keep(self._caches, settings, cache)).result()

    def close(self) -> None:
        """Close the producers and end the thread. `close` has no effect in a forked child."""
        atexit.unregister(self.close)
        if os.getpid() != self._pid or self._loop.is_closed():
            return
        while self._clients:
            self.submit(self._clients.popitem()[1].close()).result()
        while self._caches:
            self.submit(self._caches.popitem()[1].close()).result()
        while self._idle:
            _, producer = self._idle.pop()
            self.submit(producer.close(timeout_s=0)).result()  # idle producers have no unacknowledged records
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @asynccontextmanager
    async def _borrowed(self, settings: ProducerSettings) -> AsyncIterator[Clients]:
        """Lend connected clients, which are kept for the next call with equal *settings*, except after an exception.

        Raises: ConnectionFailed.
        """
        clients = self._clients.pop(settings, None)
        if clients is not None and self._loop.time() - clients.used_at > KEPT_S:
            await clients.close()
            clients = None
        if clients is None:
            clients = Clients(TransactionAdmin.from_config(settings.config()), Client(settings.config()))
            await clients.admin.__aenter__()
        try:
            yield clients
        except BaseException:
            await clients.close()
            raise
        await _keep(self._clients, settings, clients._replace(used_at=self._loop.time()))

    def _take(self, settings: ProducerSettings) -> Producer | None:
        """Return a usable idle producer, or None."""
        for entry in tuple(self._idle):
            if entry[0] == settings:
                try:
                    self._idle.remove(entry)
                except (IndexError, ValueError):  # another thread has taken the producer
                    continue
                if entry[1].state in (State.READY, State.DEGRADED):
                    return entry[1]
                self.submit(entry[1].close(timeout_s=0)).result()
        return None


async def _keep(idle: dict[ProducerSettings, Kept], settings: ProducerSettings, each: Kept) -> None:
    """Keep the connections of *each* for the next call with equal *settings*."""
    if settings in idle:  # a concurrent call has returned its connections
        await each.close()
        return
    idle[settings] = each
    while len(idle) > IDLE_PRODUCERS:
        await idle.pop(next(iter(idle))).close()


_workers: Final[dict[int, Worker]] = {}


def worker() -> Worker:
    """Return the worker of this process. A forked child gets its own worker."""
    pid = os.getpid()
    if pid not in _workers:
        made = Worker()
        if _workers.setdefault(pid, made) is not made:  # another thread has created the worker
            made.close()
    return _workers[pid]
