from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from aioproducer._core import log_limits
from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.net import pool as pool_module
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.connection_security import ConnectionSecurity
from aioproducer._core.net.dial import MakeProtocol
from aioproducer._core.net.pool import Pool
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProtocolError
from tests.unit._core.net.pool_rig import LONG_S, NODE, Dialled, Reports, connect, pool_of, usable
from tests.unit._core.net.scripted import ScriptedBroker, settings, stay_silent


def noting(attempts: list[int], delay_s: float) -> Backoff:
    """A backoff that notes which attempts it was asked about."""

    class Noting(Backoff):
        def delay_s(self, attempt: int, draw: float | None = None) -> float:
            attempts.append(attempt)
            return delay_s

    return Noting(0, 0)


async def test_failed_attempt_is_reported_and_followed_by_a_pause(
    reports: Reports, broker: ScriptedBroker
) -> None:
    dialled = Dialled(ConnectionRefusedError("nobody there"))
    config = settings(reconnect_backoff=Backoff(LONG_S, LONG_S))
    async with pool_of(reports, dial=dialled, config=config) as pool:
        before = asyncio.get_running_loop().time()
        pool.connect_soon(NODE, broker.address)
        error = await reports.expect_disconnected()
        assert isinstance(error, ConnectionFailed)
        assert "nobody there" in str(error)
        assert pool.last_error(NODE) is error
        next_attempt_at = pool.next_attempt_at(NODE)
        assert next_attempt_at is not None
        assert next_attempt_at >= before + LONG_S * 0.8
        pool.connect_soon(NODE, broker.address)
        assert dialled.addresses == [broker.address]
        assert pool.next_attempt_at(NODE) == next_attempt_at


@pytest.mark.parametrize("error", [TypeError("a NUL"), RuntimeError("no threads"), asyncio.CancelledError()])
async def test_dial_that_raises_anything_is_followed_by_a_pause(
    reports: Reports, broker: ScriptedBroker, error: BaseException
) -> None:
    config = settings(reconnect_backoff=Backoff(0.01, 0.01))
    async with pool_of(reports, dial=Dialled(error), config=config) as pool:
        pool.connect_soon(NODE, broker.address)
        failed = await reports.expect_disconnected()
        assert isinstance(failed, ConnectionFailed)
        assert failed.__cause__ is error
        assert pool.next_attempt_at(NODE) is not None
        await asyncio.sleep(0.02)
        await connect(pool, reports, broker)


async def test_interrupted_dial_is_followed_by_a_pause(reports: Reports, broker: ScriptedBroker) -> None:
    async def interrupt(_host: str, _port: int, _: MakeProtocol, /) -> asyncio.Transport:
        raise GeneratorExit

    async with pool_of(reports, dial=interrupt) as pool:
        pool.connect_soon(NODE, broker.address)
        [dialling] = pool._tasks
        with pytest.raises(GeneratorExit):
            await dialling
        assert "interrupted by GeneratorExit" in str(await reports.expect_disconnected())
        assert pool.next_attempt_at(NODE) is not None


async def test_pauses_and_setup_timeouts_grow_until_a_success(
    reports: Reports, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []
    timeouts: list[int] = []
    dialled = Dialled(OSError("1"), OSError("2"), OSError("3"))
    config = settings(reconnect_backoff=noting(pauses, 0.0))
    async with pool_of(reports, dial=dialled, config=config) as pool:
        monkeypatch.setattr(pool, "_setup_timeout", noting(timeouts, LONG_S))
        for _ in range(3):
            pool.connect_soon(NODE, broker.address)
            await reports.expect_disconnected()
        peer = await connect(pool, reports, broker)
        peer.close()
        await reports.expect_disconnected()
        dialled.errors.append(OSError("4"))
        pool.connect_soon(NODE, broker.address)
        await reports.expect_disconnected()
    assert pauses == [0, 1, 2, 0, 0]
    assert timeouts == [0, 1, 2, 3, 0]


async def test_frozen_broker_fails_after_the_setup_timeout(reports: Reports) -> None:
    config = settings(setup_timeout_s=0.2, setup_timeout_max_s=0.2)  # a busy machine dials within this time
    async with ScriptedBroker(stay_silent) as broker, pool_of(reports, config=config) as pool:
        pool.connect_soon(NODE, broker.address)
        error = await reports.expect_disconnected()
        assert "the handshake did not finish" in str(error)
        assert f"(node {NODE})" in str(error)


async def test_attempt_that_is_due_is_made_on_request(reports: Reports, broker: ScriptedBroker) -> None:
    async with pool_of(reports, dial=Dialled(OSError("once"))) as pool:
        pool.connect_soon(NODE, broker.address)
        await reports.expect_disconnected()
        next_attempt_at = pool.next_attempt_at(NODE)
        assert next_attempt_at is not None
        due = asyncio.Event()
        asyncio.get_running_loop().call_at(next_attempt_at, due.set)
        await due.wait()
        assert pool.next_attempt_at(NODE) == next_attempt_at  # until the next `connect_soon`
        await connect(pool, reports, broker)
        assert pool.next_attempt_at(NODE) is None


async def test_lost_connection_is_reported_and_followed_by_a_pause(
    reports: Reports, broker: ScriptedBroker
) -> None:
    config = settings(reconnect_backoff=Backoff(LONG_S, LONG_S))
    async with pool_of(reports, config=config) as pool:
        peer = await connect(pool, reports, broker)
        connection = usable(pool)
        peer.send(b"junk")
        error = await reports.expect_disconnected()
        assert isinstance(error, ProtocolError)
        assert pool.last_error(NODE) is error is connection.error
        assert pool.get(NODE) is None
        assert pool.next_attempt_at(NODE) is not None


async def test_outage_logs_one_warning_for_many_attempts(
    reports: Reports, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer.net.pool")
    dialled = Dialled()
    config = settings(reconnect_backoff=Backoff(0.0, 0.0))
    async with pool_of(reports, dial=dialled, config=config) as pool:
        peer = await connect(pool, reports, broker)
        peer.close()
        await reports.expect_disconnected()
        dialled.errors = [OSError(str(number)) for number in range(20)]
        for _ in range(20):
            pool.connect_soon(NODE, broker.address)
            await reports.expect_disconnected()
        await connect(pool, reports, broker)
    assert [(each.levelname, each.message.split()[0]) for each in caplog.records] == [
        ("INFO", "connection.opened"),
        ("WARNING", "connection.lost"),
        *[("DEBUG", "connection.failed")] * 20,
        ("INFO", "connection.opened"),
    ]


@pytest.mark.parametrize(("steady_s", "level"), [(0.0, "WARNING"), (LONG_S, "DEBUG")])
async def test_second_loss_is_a_warning_after_a_steady_period(
    steady_s: float,
    level: str,
    reports: Reports,
    broker: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer.net.pool")
    monkeypatch.setattr(log_limits, "STEADY_S", steady_s)
    async with pool_of(reports, config=settings(reconnect_backoff=Backoff(0.0, 0.0))) as pool:
        for _ in range(2):
            (await connect(pool, reports, broker)).close()
            await reports.expect_disconnected()
    lost = [each.levelname for each in caplog.records if each.message.startswith("connection.lost")]
    assert lost == ["WARNING", level]


class TestRefusal:
    async def attempt(
        self,
        pool: Pool,
        reports: Reports,
        address: Address,
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
    ) -> None:
        """Have the next attempt fail with *error*."""

        async def refuse(*_: object, **__: object) -> Connection:
            raise error

        monkeypatch.setattr(pool_module, "open_connection", refuse)
        pool.connect_soon(NODE, address)
        assert await reports.expect_disconnected() is error
        monkeypatch.undo()

    async def test_refused_logins_last_until_another_outcome(
        self, reports: Reports, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong, still = AuthenticationFailed("wrong"), AuthenticationFailed("still wrong")
        async with pool_of(reports, config=settings(reconnect_backoff=Backoff(0, 0))) as pool:
            assert pool.refused_logins(NODE) is None
            began_at = asyncio.get_running_loop().time()
            await self.attempt(pool, reports, broker.address, monkeypatch, wrong)
            first = pool.refused_logins(NODE)
            assert first is not None
            assert first.error is wrong
            assert first.since >= began_at
            await self.attempt(pool, reports, broker.address, monkeypatch, still)
            assert pool.refused_logins(NODE) == (still, first.since)
            await self.attempt(pool, reports, broker.address, monkeypatch, ConnectionFailed("away"))
            assert pool.refused_logins(NODE) is None
            await self.attempt(pool, reports, broker.address, monkeypatch, wrong)
            again = pool.refused_logins(NODE)
            assert again is not None
            assert again.since >= first.since
            await connect(pool, reports, broker)
            assert pool.refused_logins(NODE) is None

    @pytest.mark.parametrize("rest_s", [5.0, -5.0])
    async def test_attempt_follows_when_a_login_is_admitted(
        self, reports: Reports, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, rest_s: float
    ) -> None:
        admitted_at = asyncio.get_running_loop().time() + rest_s
        backoff = Backoff(LONG_S, LONG_S, jitter=0)
        async with pool_of(reports, config=settings(reconnect_backoff=backoff)) as pool:
            pool._security = cast("ConnectionSecurity", SimpleNamespace(next_login_at=admitted_at))
            await self.attempt(pool, reports, broker.address, monkeypatch, AuthenticationFailed("wrong"))
            next_attempt_at = pool.next_attempt_at(NODE)
            assert next_attempt_at is not None
            if rest_s > 0:
                assert next_attempt_at == pytest.approx(admitted_at)
            else:
                assert next_attempt_at > admitted_at + LONG_S

    async def test_refused_logins_include_a_refusal_of_an_open_connection(
        self, reports: Reports, broker: ScriptedBroker
    ) -> None:
        async with pool_of(reports) as pool:
            await connect(pool, reports, broker)
            usable(pool).close(AuthenticationFailed("no longer"))
            await reports.expect_disconnected()
            refused = pool.refused_logins(NODE)
            assert refused is not None
            assert str(refused.error) == "no longer"
            pool.forget(NODE)
            assert pool.refused_logins(NODE) is None
