from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from aioproducer._core.address import Address
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metadata import metadata_source as endpoints_module
from aioproducer._core.metadata.metadata_source import CONNECT_STAGGER_S, bootstrap_opener, open_to_any
from aioproducer._core.metadata.staggered import Refusals
from aioproducer._core.metrics import Metrics
from aioproducer._core.net.connection import Connection
from aioproducer.errors import ConnectionFailed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.fakes import LATENCY_S, FakeCluster, FakeConnection, address_of, now
from tests.unit._core.net.scripted import settings

NAME = Address("kafka.example", 9092)


def stands_for(monkeypatch: pytest.MonkeyPatch, *nodes: int) -> None:
    async def endpoints(_: Address) -> list[Address]:
        return [address_of(each) for each in nodes]

    monkeypatch.setattr(endpoints_module, "endpoints", endpoints)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Cluster whose nodes 1 and 2 are the addresses of `NAME`."""
    stands_for(monkeypatch, 1, 2)
    return FakeCluster()


async def open_(cluster: FakeCluster) -> FakeConnection:
    return cast("FakeConnection", await open_to_any(NAME, cluster.open, deadline=60.0, refusals=Refusals()))


@in_virtual_time
async def test_open_to_any_uses_a_single_address_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_for(monkeypatch, 1)
    cluster = FakeCluster()
    assert (await open_(cluster)).node_id == 1
    cluster.away = {1}
    with pytest.raises(ConnectionFailed, match=r"^b1:9001: refused$"):
        await open_(cluster)


@pytest.mark.parametrize("error", [TypeError("a NUL"), RuntimeError("no threads"), asyncio.CancelledError()])
@in_virtual_time
async def test_lookup_that_raises_anything_is_a_failed_connection(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async def fail(_: Address) -> list[Address]:
        raise error

    monkeypatch.setattr(endpoints_module, "endpoints", fail)
    with pytest.raises(ConnectionFailed, match=f"kafka.example:9092: cannot connect: {type(error).__name__}"):
        await open_(FakeCluster())


@in_virtual_time
async def test_open_to_any_tries_the_next_address_after_a_refusal(cluster: FakeCluster) -> None:
    cluster.away = {1}
    assert (await open_(cluster)).node_id == 2
    assert now() < 5 * LATENCY_S


@in_virtual_time
async def test_open_to_any_waits_250_ms_for_a_silent_address(
    cluster: FakeCluster,
) -> None:
    cluster.deaf = {1}
    assert (await open_(cluster)).node_id == 2
    assert now() < CONNECT_STAGGER_S + 5 * LATENCY_S
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_open_to_any_closes_the_second_connection(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints_module, "CONNECT_STAGGER_S", 0.0)
    winner = await open_(cluster)
    assert cluster.open_connections == [winner]
    assert all(each.waited_for for each in cluster.connections if each is not winner)


@in_virtual_time
async def test_open_to_any_lists_all_addresses_when_all_have_failed(cluster: FakeCluster) -> None:
    cluster.away = {1, 2}
    with pytest.raises(
        ConnectionFailed, match=r"^kafka\.example:9092: .*b1:9001: refused; b2:9002: refused$"
    ):
        await open_(cluster)


@pytest.mark.parametrize("error", [socket.gaierror("no such name"), ValueError("label too long")])
@in_virtual_time
async def test_failed_lookup_is_a_connection_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def endpoints(_: Address) -> list[Address]:
        raise error

    monkeypatch.setattr(endpoints_module, "endpoints", endpoints)
    with pytest.raises(ConnectionFailed, match=f"kafka.example:9092: cannot connect: {error}") as raised:
        await open_(FakeCluster())
    assert not raised.value.written


@in_virtual_time
async def test_cancelled_open_to_any_leaves_no_connection(cluster: FakeCluster) -> None:
    cluster.deaf = {1, 2}
    opening = asyncio.create_task(open_(cluster))
    await asyncio.sleep(1.0)
    opening.cancel()
    await asyncio.wait([opening])
    assert cluster.open_connections == []
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_cancelled_open_to_any_closes_the_winning_connection(cluster: FakeCluster) -> None:
    cluster.closing_s = 5.0
    opened: list[FakeConnection] = []
    together = asyncio.Event()

    async def open_connection(address: Address) -> Connection:
        connection = await cluster.open(address)
        opened.append(cast("FakeConnection", connection))
        await together.wait()
        return connection

    opening = asyncio.create_task(open_to_any(NAME, open_connection, deadline=60.0, refusals=Refusals()))
    await asyncio.sleep(1.0)
    together.set()
    await asyncio.sleep(1.0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [each.closed for each in opened] == [True, True]


@pytest.mark.parametrize("is_cancelled", [True, False])
@in_virtual_time
async def test_hanging_lookup_ends_with_its_deadline_or_task(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    async def hang(_: Address) -> list[Address]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    monkeypatch.setattr(endpoints_module, "endpoints", hang)
    opening = asyncio.create_task(open_(FakeCluster()))
    await asyncio.sleep(1.0)
    if is_cancelled:
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    else:
        with pytest.raises(ConnectionFailed, match="the name lookup did not finish in time") as raised:
            await opening
        assert not raised.value.written
    assert now() == (1.0 if is_cancelled else 60.0)


async def test_bootstrap_opener_passes_the_host_name_to_dial() -> None:
    dialled: list[tuple[str, int]] = []

    async def refuse(host: str, port: int) -> socket.socket:
        dialled.append((host, port))
        raise ConnectionRefusedError("nobody there")

    metrics = Metrics(asyncio.get_running_loop().time)
    opener = bootstrap_opener(settings(dial=refuse), security=None, metrics=metrics, limits=LogLimits())
    with pytest.raises(ConnectionFailed, match=r"kafka\.example:9092 \(bootstrap\): .* nobody there"):
        await opener(NAME, Refusals())
    assert dialled == [NAME]
