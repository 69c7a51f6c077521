from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.net.pool import REFUSAL_TIMEOUT_S
from aioproducer.errors import AuthenticationFailed, ProtocolError, SaslAuthenticationFailed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.answers import ANOTHER_ID, leaders, topic
from tests.unit._core.metadata.fakes import address_of, now, settings
from tests.unit._core.metadata.updater_rig import error_of, started, waiting


class TestFailure:
    @in_virtual_time
    async def test_failed_request_is_retried(self) -> None:
        async with started(settings(rebootstrap=False)) as setup:
            setup.cluster.has(topic("orders", 1))
            setup.cluster.next_answers = [ProtocolError("garbage")] * 3
            began_at = now()
            await setup.topic("orders")
            assert now() - began_at < 0.2
            assert len(setup.cluster.asked) == 4

    @in_virtual_time
    async def test_outage_is_logged_at_its_beginning_and_its_end(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "aioproducer.metadata")
        async with started(settings(backoff=Backoff(0.1, 0.1))) as setup:
            setup.cluster.has(topic("orders", 1))
            for _ in range(2):
                for node_id in (1, 2, 3):
                    setup.pool.lose(node_id)
                waiter = waiting(setup, f"orders-{_}")
                setup.cluster.has(topic(f"orders-{_}", 1))
                await asyncio.sleep(10.0)
                setup.cluster.away = set()
                await waiter
                await asyncio.sleep(1.0)
                setup.pool.connect_soon(2, address_of(2))
                setup.pool.connect_soon(3, address_of(3))
                setup.pool.connect_soon(1, address_of(1))
                await asyncio.sleep(1.0)
        told = [each.message.split()[0] for each in caplog.records]
        assert told.count("metadata.rebootstrap") == 1
        told.remove("metadata.rebootstrap")
        assert told == ["metadata.failed", "metadata.recovered"] * 2

    @in_virtual_time
    async def test_outage_of_all_brokers_ends_when_one_is_back(self) -> None:
        async with started(settings(backoff=Backoff(0.1, 0.1))) as setup:
            setup.cluster.has(topic("orders", 1))
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            waiter = waiting(setup, "orders")
            await asyncio.sleep(5.0)
            setup.cluster.away = {1, 3}
            healed_at = now()
            await waiter
            assert now() - healed_at < 0.2

    @in_virtual_time
    async def test_outage_ends_when_another_caller_connects(self) -> None:
        async with started(settings(rebootstrap=False)) as setup:
            setup.cluster.has(topic("orders", 1))
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            waiter = waiting(setup, "orders")
            await asyncio.sleep(30.2)
            setup.cluster.away = set()
            began_at = now()
            await setup.pool.connect(1)  # during the pause of the updater
            setup.pool.on_connected(1)
            await waiter
            assert now() - began_at < 0.15

    @in_virtual_time
    async def test_outage_of_all_known_brokers_triggers_a_rebootstrap(self) -> None:
        async with started(settings(1, 4)) as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            setup.cluster.nodes = [4, 5]
            setup.cluster.has(topic("orders", (5, 0), topic_id=ANOTHER_ID))
            await asyncio.sleep(1.0)
            assert leaders(setup.snapshot, "orders") == [5]
            assert setup.snapshot.brokers.keys() == {4, 5}

    @in_virtual_time
    async def test_refused_login_fails_later_callers_at_once(
        self,
    ) -> None:
        async with started() as setup:
            setup.cluster.refusing = {1, 2, 3}
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            setup.cluster.away.clear()
            began_at = now()
            errors = [await error_of(waiting(setup, "orders")) for _ in range(100)]
            assert REFUSAL_TIMEOUT_S <= now() - began_at < REFUSAL_TIMEOUT_S + 0.5
            assert {type(each) for each in errors} == {SaslAuthenticationFailed}
            assert len({id(each) for each in errors}) == len(errors)
            setup.cluster.refusing = set()
            setup.cluster.has(topic("orders", 1))
            await asyncio.sleep(2.0)
            assert (await setup.topic("orders")).partitions

    @in_virtual_time
    async def test_error_of_a_listener_is_logged_and_retried(self, caplog: pytest.LogCaptureFixture) -> None:
        async with started() as setup:
            tell, bugs = setup.updater._on_update, [ZeroDivisionError(), ZeroDivisionError()]

            def fail_twice(snapshot: MetadataSnapshot, changed: Collection[str]) -> None:
                if bugs:
                    raise bugs.pop()
                tell(snapshot, changed)

            setup.updater._on_update = fail_twice
            for name in ("orders", "audit", "third"):
                setup.cluster.has(topic(name, 1))
                await setup.topic(name)
            await asyncio.sleep(1.0)
            told = [each.getMessage() for each in caplog.records if each.exc_info]
            assert told == ["metadata.bug topics=1"]
            assert setup.changes == [{"third"}]


class TestRefusal:
    @in_virtual_time
    async def test_refused_login_fails_each_waiter_after_the_patience(self) -> None:
        async with started() as setup:
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            setup.cluster.away, setup.cluster.refusing = set(), {1, 2, 3}
            began_at = now()
            first, second = [await error_of(each) for each in [waiting(setup, "a"), waiting(setup, "b")]]
            assert now() - began_at == pytest.approx(REFUSAL_TIMEOUT_S, abs=0.2)
            for each in (first, second):
                assert isinstance(each, AuthenticationFailed)
                assert each.mechanism == "PLAIN"
            assert first is not second

    @in_virtual_time
    async def test_accepted_login_ends_the_refusal(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            setup.cluster.away, setup.cluster.refusing = set(), {1, 2, 3}
            assert isinstance(await error_of(waiting(setup, "orders")), AuthenticationFailed)
            setup.cluster.refusing = {1, 2}
            await asyncio.sleep(2)
            assert (await setup.topic("orders")).partitions

    @in_virtual_time
    async def test_short_refusal_fails_no_waiter(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            setup.cluster.away, setup.cluster.refusing = set(), {1, 2, 3}
            waiter = waiting(setup, "orders")
            await asyncio.sleep(REFUSAL_TIMEOUT_S / 2)
            assert setup.cluster.refused_logins
            setup.cluster.refusing = set()
            assert (await waiter).partitions

    @in_virtual_time
    async def test_refusal_after_a_success_has_the_whole_patience_again(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            for _ in range(2):
                setup.cluster.refusing = {1, 2, 3}
                for node_id in (1, 2, 3):
                    setup.pool.lose(node_id)
                setup.cluster.away = set()
                began_at = now()
                assert isinstance(await error_of(waiting(setup, "unknown")), AuthenticationFailed)
                assert now() - began_at == pytest.approx(REFUSAL_TIMEOUT_S, abs=0.2)
                setup.cluster.refusing = set()
                await asyncio.sleep(2)
                assert (await setup.topic("orders")).partitions
