"""The fakes compared with the real classes: parameters, notifications and effects."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest

from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.pool import Pool
from aioproducer._core.protocol.produce import InitProducerIdResponse
from aioproducer.errors import ConnectionFailed, MetadataTimeout, ProducerError
from aioproducer.testing import in_virtual_time
from tests.fakes import FakeConnection, FakePool, FakeUpdater, topic_info
from tests.unit._core.metadata import fakes as cluster_fakes
from tests.unit._core.metadata.fakes import settings
from tests.unit._core.metadata.updater_rig import Setup
from tests.unit._core.net.connection_rig import connected
from tests.unit._core.net.pool_rig import Reports, connect, pool_of
from tests.unit._core.net.scripted import ASK, Received, ScriptedBroker

OTHER = 2


class Pair(NamedTuple):
    """A fake, its real class, and its extra attributes for tests."""

    fake: type[Any]
    stands_for: type[Any]
    for_tests: frozenset[str]


PAIRS = [
    Pair(
        FakeConnection,
        Connection,
        frozenset({"answer", "asked_in", "calls", "closed_for", "drains", "full", "real", "unanswered"}),
    ),
    Pair(
        FakePool,
        Pool,
        frozenset({"backing_off_until", "connections", "errors", "real", "refused", "wanted"}),
    ),
    Pair(
        FakeUpdater,
        MetadataUpdater,
        frozenset({"asked", "doubted", "hints", "knows", "real", "refreshes", "touched", "used_until"}),
    ),
    Pair(cluster_fakes.FakeConnection, Connection, frozenset({"waited_for"})),
    Pair(
        cluster_fakes.FakePool,
        Pool,
        frozenset(
            {
                "adopts",
                "attempts",
                "cluster_id",
                "connect",
                "followed",
                "lose",
                "on_connected",
                "on_disconnected",
            }
        ),
    ),
]
each_fake = pytest.mark.parametrize(
    "pair", PAIRS, ids=lambda pair: f"{pair.fake.__module__}.{pair.fake.__name__}"
)


def public(kind: type[Any]) -> set[str]:
    """Return the public attributes of *kind*: those of the class and those set in `__init__`."""
    names = {*dir(kind), *inspect.get_annotations(kind)}
    if not dataclasses.is_dataclass(kind):
        names.update(re.findall(r"self\.(\w+)\b[^=()]* =", inspect.getsource(kind.__init__)))
    return {name for name in names if not name.startswith("_")}


def shared_methods(pair: Pair) -> Iterator[tuple[Callable[..., Any], Callable[..., Any]]]:
    for name in public(pair.fake) - pair.for_tests:
        of_fake, of_real = (getattr(kind, name, None) for kind in (pair.fake, pair.stands_for))
        if inspect.isfunction(of_fake):
            assert inspect.isfunction(of_real), f"{name} is no method"
            yield of_fake, of_real


@each_fake
def test_fakes_have_only_members_of_the_real_class(pair: Pair) -> None:
    assert public(pair.fake) - public(pair.stands_for) == pair.for_tests


@each_fake
def test_fakes_accept_only_calls_of_the_real_class(pair: Pair) -> None:
    for of_fake, of_real in shared_methods(pair):
        ours, theirs = (inspect.signature(each).parameters for each in (of_fake, of_real))
        what = of_fake.__qualname__
        assert inspect.iscoroutinefunction(of_fake) == inspect.iscoroutinefunction(of_real), what
        for name, parameter in ours.items():
            assert name in theirs, f"{what} takes {name}"
            assert parameter.kind == theirs[name].kind, f"{what}({name})"
            assert parameter.default is parameter.empty or theirs[name].default is not parameter.empty, (
                f"{what} has a default for {name}"
            )
        for name, parameter in theirs.items():
            assert name in ours or parameter.default is not parameter.empty, f"{what} does without {name}"


# --- connections


class Subject(NamedTuple):
    """A connection, and how the broker answers its oldest call."""

    connection: Any
    answer: Callable[[], Any]


@asynccontextmanager
async def a_fake() -> AsyncIterator[Subject]:
    connection = FakeConnection()

    async def answer() -> None:
        connection.answer(InitProducerIdResponse(producer_id=5, producer_epoch=0))

    yield Subject(connection, answer)


@asynccontextmanager
async def a_real_one() -> AsyncIterator[Subject]:
    async with ScriptedBroker() as broker, connected(broker) as (connection, peer):

        async def answer() -> None:
            received: Received = await peer.inbox.get()
            peer.send(received.answered_with_id(5))

        yield Subject(connection, answer)


either = pytest.mark.parametrize("made", [a_fake, a_real_one])


@either
async def test_fake_connection_answers_a_call_once(made: Callable[[], Any]) -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()
    async with made() as (connection, answer):
        connection.call(ASK, told.put_nowait)
        assert connection.in_flight == 1
        await answer()
        assert (await told.get()).producer_id == 5
        assert connection.in_flight == 0
    assert told.empty()


@either
@pytest.mark.parametrize("cause", [None, ConnectionFailed("enough")])
async def test_fake_connection_fails_requests_in_flight_when_closed(
    made: Callable[[], Any], cause: ProducerError | None
) -> None:
    told: list[Any] = []
    async with made() as (connection, _):
        connection.call(ASK, told.append)
        connection.call(ASK, told.append)
        connection.close(cause)
        assert connection.closed
        assert connection.in_flight == 0
        assert [type(each) for each in told] == [ConnectionFailed] * 2
        connection.close(ConnectionFailed("again"))
    assert len(told) == 2
    assert cause is None or all(cause in {each, each.__cause__} for each in told)


@either
async def test_closed_fake_connection_refuses_requests_as_unwritten(made: Callable[[], Any]) -> None:
    async with made() as (connection, _):
        connection.close()
        for ask in (partial(connection.call, ASK, print), partial(connection.write_only, ASK)):
            with pytest.raises(ConnectionFailed) as refused:
                ask()
            assert not refused.value.written


# --- pools


@asynccontextmanager
async def fake_pool() -> AsyncIterator[Any]:
    yield FakePool(1, OTHER)


@asynccontextmanager
async def real_pool() -> AsyncIterator[Any]:
    reports = Reports()
    async with ScriptedBroker() as broker, pool_of(reports) as pool:
        for node_id in (1, OTHER):
            await connect(pool, reports, broker, node_id)
        yield pool


@pytest.mark.parametrize("made", [fake_pool, real_pool])
async def test_fake_pool_returns_the_least_loaded_connection(made: Callable[[], Any]) -> None:
    async with made() as pool:
        assert (pool.get(3), pool.least_loaded([3]), pool.next_attempt_at(3)) == (None, None, None)
        assert (pool.last_error(1), pool.refused_logins(1), pool.next_attempt_at(1)) == (None, None, None)
        pool.get(1).call(ASK, lambda _: None)
        assert pool.least_loaded([1, OTHER, 3]) is pool.get(OTHER)
        pool.get(OTHER).close()
        assert pool.get(OTHER) is None
        assert pool.least_loaded([1, OTHER]) is pool.get(1)


# --- metadata


def fake_updater() -> Any:
    return FakeUpdater()


def real_updater() -> Any:
    return Setup(settings()).updater


@pytest.mark.parametrize("made", [fake_updater, real_updater])
@in_virtual_time
async def test_fake_metadata_waits_for_a_topic_until_the_deadline(made: Callable[[], Any]) -> None:
    updater = made()
    now = asyncio.get_running_loop().time()
    with pytest.raises(MetadataTimeout):
        await updater.topic("orders", now + 1.0)
    assert asyncio.get_running_loop().time() == now + 1.0
    info = topic_info("orders", 1)
    updater.snapshot = MetadataSnapshot(topics={"orders": info})
    assert await updater.topic("orders", now) is info
    with pytest.raises(MetadataTimeout):
        await updater.topic("orders", now + 2.0, refresh=True)
