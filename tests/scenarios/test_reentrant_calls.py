"""User code calls every method of the producer, at every place where the producer calls user code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from aioproducer import Producer, ProducerError
from aioproducer.errors import MessageTooLarge, NotLeaderOrFollower, TopicAuthorizationFailed
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, cluster as open_cluster, scenario

PARTITIONS = 12
MOST_CALLS = 300
"""Maximum number of calls per site: user code that makes a call per failed call would never end."""


class UserCode:
    """Makes a call from each of the sites where the producer calls it."""

    def __init__(self, site: str, call: Call) -> None:
        self.site, self.call = site, call
        self.producer: Producer | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.calls = self.depth = 0
        self.bugs: list[BaseException] = []

    def at(self, site: str) -> None:
        if site != self.site or self.producer is None or self.calls >= MOST_CALLS or self.depth >= 3:
            return
        self.calls += 1
        self.depth += 1
        try:
            self.call(self, self.producer)
        except ProducerError:
            pass
        except BaseException as bug:
            self.bugs.append(bug)
            raise
        finally:
            self.depth -= 1

    def spawn(self, work: Awaitable[Any]) -> None:
        async def done() -> None:
            with suppress(ProducerError):
                await work

        task = asyncio.get_running_loop().create_task(done())
        self.tasks.add(task)

    # --- sites ------------------------------------------------------------------------------------------------------

    def on_send(self, record: Any) -> Any:
        self.at("on_send")
        return record

    def on_acknowledgement(self, metadata: object, error: object, where: object) -> None:
        self.at("acknowledged" if error is None else "failed")

    def serialize(self, value: bytes | None) -> bytes | None:
        self.at("serializer")
        return value

    def done(self, _: object) -> None:
        self.at("done callback")

    def partition(self, topic: str, key: bytes | None, count: int, available: object) -> int:
        self.at("partitioner")
        return len(key or b"") % count

    keyless_is_sticky = False


class Handler(logging.Handler):
    def __init__(self, code: UserCode) -> None:
        super().__init__(logging.DEBUG)
        self._code = code

    def emit(self, record: logging.LogRecord) -> None:
        self._code.at("log handler")


@contextmanager
def logging_to(code: UserCode) -> Iterator[None]:
    logger, handler = logging.getLogger("aioproducer"), Handler(code)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


Call = Callable[[UserCode, Producer], object]


def eagerly(code: UserCode, work: Any) -> None:
    """Begin *work* at once, as `asyncio.eager_task_factory` does, and go on in a task."""
    try:
        first = work.send(None)
    except (StopIteration, ProducerError):
        return

    class Rest:
        def __await__(self) -> Any:
            waiting: Any = first
            while True:
                try:
                    yield waiting
                except BaseException as error:  # noqa: BLE001 - passed on
                    waiting = work.throw(error)
                    continue
                try:
                    waiting = work.send(None)
                except StopIteration as over:
                    return over.value

    code.spawn(Rest())


CALLS: dict[str, Call] = {
    "send_nowait": lambda code, producer: producer.send_nowait(TOPIC, b"again", partition=code.calls % 12),
    "send": lambda code, producer: code.spawn(producer.send(TOPIC, b"again")),
    "enqueue": lambda code, producer: code.spawn(producer.enqueue(TOPIC, b"again", key=b"k")),
    "send_many": lambda code, producer: code.spawn(producer.send_many(TOPIC, [b"a"] * 30)),
    "flush": lambda code, producer: code.spawn(producer.flush()),
    "purge": lambda _, producer: producer.purge(),
    "send and purge": lambda _, producer: (producer.send_nowait(TOPIC, b"again"), producer.purge()),
    "purge and send": lambda _, producer: (producer.purge(), producer.send_nowait(TOPIC, b"again")),
    "metrics": lambda _, producer: (producer.metrics(), len(producer), producer.state, repr(producer)),
    "partitions_for": lambda code, producer: code.spawn(producer.partitions_for("new")),
    "close": lambda code, producer: code.spawn(producer.close()),
    "close(0)": lambda code, producer: code.spawn(producer.close(0)),
    "close(0) at once": lambda code, producer: eagerly(code, producer.close(0)),
}
SITES = ("on_send", "acknowledged", "failed", "serializer", "partitioner", "done callback", "log handler")


@asynccontextmanager
async def calling(
    code: UserCode, *, start: bool = True, **options: Any
) -> AsyncIterator[tuple[Producer, Cluster]]:
    async with open_cluster(brokers=2, partitions=PARTITIONS) as cluster:
        user_code: dict[str, Any] = {
            "interceptors": [code],
            "value_serializer": code.serialize,
            "partitioner": code,
            "delivery_timeout_ms": 4_000,
            "request_timeout_ms": 1_000,
        }
        producer = Producer(cluster.bootstrap_servers, **user_code | options)
        await producer.start()
        with logging_to(code):
            if start:
                await producer.send(TOPIC, b"known")
            yield producer, cluster
        code.producer = None
        await producer.close(0)
        if code.tasks:
            await asyncio.wait(code.tasks)
        assert code.bugs == []


async def trouble(producer: Producer, cluster: Cluster, code: UserCode) -> list[asyncio.Future[Any]]:
    """Send in all ways, through refusals, splits, moves and outages; return the outcomes."""
    outcomes: list[asyncio.Future[Any]] = []

    def send(records: int) -> None:
        for each in range(records):
            try:
                future = producer.send_nowait(TOPIC, b"%d" % each * 10, partition=each % PARTITIONS)
            except ProducerError:
                continue
            future.add_done_callback(code.done)
            outcomes.append(future)
        calls = (
            producer.send(TOPIC, b"awaited"),
            producer.send(TOPIC, b"in time", timeout_s=0.3),
            producer.send_many(TOPIC, [b"bulk"] * 40, timeout_s=1.0),
        )
        outcomes.extend(map(asyncio.ensure_future, calls))

    send(20)
    await asyncio.sleep(0.5)
    for error in (NotLeaderOrFollower, TopicAuthorizationFailed):
        cluster.on("produce", topic=TOPIC, times=2).answer(error)
        send(20)
        await asyncio.sleep(0.5)
    cluster.on("produce", topic=TOPIC, times=2).answer(MessageTooLarge)
    send(60)
    await asyncio.sleep(0.5)
    cluster.move_leader(TOPIC, 1, to_broker=1)
    cluster.disconnect(2)
    send(20)
    await asyncio.sleep(0.5)
    for node in (1, 2):
        await cluster.stop_broker(node, failover=False)
    send(60)
    await asyncio.sleep(4.5)
    for node in (1, 2):
        await cluster.start_broker(node)
    send(20)
    return outcomes


@pytest.mark.parametrize("call", CALLS)
@for_each("site", SITES)
@scenario
async def test_records_have_outcomes_when_user_code_calls_the_producer(
    site: str, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    code = UserCode(site, CALLS[call])
    async with calling(code) as (producer, cluster):
        code.producer = producer
        outcomes = await trouble(producer, cluster, code)
        done, pending = await asyncio.wait(outcomes, timeout=10)
        assert not pending
        for each in done:
            _ = each.exception()
        code.producer = None
        assert code.calls
        assert caplog.text.count("task.crashed") == caplog.text.count(".bug") == 0
        assert caplog.text.count("handler_failed") == caplog.text.count("interceptor.failed") == 0
        caplog.clear()
        if "close" in call:
            return
        assert (await producer.send(TOPIC, b"next")).offset >= 0
        await producer.flush()
        assert producer.state == "ready"
        memory = producer.metrics()["producer"]
        assert memory["buffer_available_bytes"] == memory["buffer_total_bytes"]
        assert memory["batches_unfinished"] == 0
        assert len(producer) == 0
