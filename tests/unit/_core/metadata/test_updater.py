from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.snapshot import NO_LEADER, Broker, LeaderHint
from aioproducer.errors import ConnectionFailed, ProducerClosed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.metadata.answers import ANOTHER_ID, leaders, topic
from tests.unit._core.metadata.fakes import address_of, now, settings
from tests.unit._core.metadata.updater_rig import Setup, error_of, started, waiting


class TestBootstrap:
    @in_virtual_time
    async def test_bootstrap_publishes_the_brokers(self) -> None:
        setup = Setup(settings())
        await setup.updater.bootstrap(60.0)
        assert setup.snapshot.brokers.keys() == {1, 2, 3}
        assert setup.snapshot.version == 1
        assert setup.changes == [set()]
        assert setup.cluster.asked_for == [()]
        await setup.updater.close()

    @in_virtual_time
    async def test_failed_bootstrap_can_be_repeated(self) -> None:
        setup = Setup(settings(1, 2))
        setup.cluster.away = {1, 2}
        with pytest.raises(ConnectionFailed, match=r"b[12]:900[12]: refused; b[12]:900[12]: refused"):
            await setup.updater.bootstrap(60.0)
        setup.cluster.away = {1}
        await setup.updater.bootstrap(60.0)
        assert setup.snapshot.brokers
        await setup.updater.close()

    @in_virtual_time
    async def test_bootstrap_is_followed_by_no_request(self) -> None:
        async with started() as setup:
            await asyncio.sleep(200.0)
            assert setup.cluster.asked == []


class TestRefresh:
    @in_virtual_time
    async def test_refresh_requests_all_topics_and_reports_changes(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.cluster.has(topic("orders", (2, 1)))
            setup.updater.request_refresh()
            await asyncio.sleep(1.0)
            assert [set(asked) for asked in setup.cluster.asked_for] == [{"orders", "audit"}]
            assert setup.changes == [{"orders"}]
            assert leaders(setup.snapshot, "orders") == [2]

    @in_virtual_time
    async def test_refresh_may_be_limited_to_some_topics(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.updater.request_refresh(["orders"])
            await asyncio.sleep(1.0)
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_refresh_without_changes_notifies_no_listener(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            before = setup.snapshot
            setup.updater.request_refresh()
            await asyncio.sleep(1.0)
            assert len(setup.cluster.asked) == 1
            assert setup.updates == []
            assert setup.snapshot.version == before.version
            assert setup.snapshot.fetched_at > before.fetched_at

    @in_virtual_time
    async def test_refresh_requested_during_a_refresh_follows_once(self) -> None:
        async with started() as setup:
            setup.cluster.latency_s = 0.8
            setup.updater.request_refresh()
            await asyncio.sleep(0.5)
            for _ in range(100):
                setup.updater.request_refresh()
            await asyncio.sleep(10.0)
            assert len(setup.cluster.asked) == 2

    @in_virtual_time
    async def test_refresh_is_repeated_at_the_maximum_age(self) -> None:
        async with started(settings(max_age_s=100.0, max_idle_s=10_000.0)) as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.topic("orders")
            setup.forget()
            setup.cluster.has(topic("orders", 1, 2))
            await asyncio.sleep(1050.0)
            assert len(setup.cluster.asked) == 10
            assert setup.changes == [{"orders"}]

    @in_virtual_time
    async def test_lost_node_triggers_a_refresh_of_its_topics(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1, 2), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.updater.disconnected(3, ConnectionFailed("lost"))
            await asyncio.sleep(1.0)
            assert setup.cluster.asked_for == []
            setup.updater.disconnected(2, ConnectionFailed("lost"))
            await asyncio.sleep(1.0)
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_closed_connection_without_error_triggers_no_refresh(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1, 2))
            await setup.knowing("orders")
            setup.updater.disconnected(2, None)
            await asyncio.sleep(1.0)
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_refresh_is_repeated_until_a_partition_has_a_leader(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            setup.cluster.has(topic("orders", (NO_LEADER, 1)))
            setup.updater.request_refresh(["orders"])
            await asyncio.sleep(0.5)
            setup.cluster.has(topic("orders", (2, 2)))
            await asyncio.sleep(0.5)
            assert leaders(setup.snapshot, "orders") == [2]

    @in_virtual_time
    async def test_refresh_follows_a_recreated_topic(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 7)))
            await setup.knowing("orders")
            setup.cluster.has(topic("orders", (2, 0), topic_id=ANOTHER_ID))
            setup.updater.request_refresh(["orders"])
            await asyncio.sleep(1.0)
            assert leaders(setup.snapshot, "orders") == [2]

    @for_each("backoff", [Backoff(0.1, 1.0), Backoff(0.1, 0.1)])
    @for_each("leader", [NO_LEADER, 2])
    @in_virtual_time
    async def test_refresh_rate_is_limited_while_a_broker_is_away(
        self, leader: int, backoff: Backoff
    ) -> None:
        async with started(settings(backoff=backoff)) as setup:
            names = [f"topic-{number}" for number in range(10)]
            setup.cluster.has(*(topic(name, 1, 2, 3) for name in names))
            await setup.knowing(*names)
            setup.pool.lose(2)
            setup.cluster.has(*(topic(name, 1, (leader, 1), 3) for name in names))
            began_at = now()
            while now() - began_at < 20.0:
                setup.pool.connect_soon(2, address_of(2))
                setup.updater.request_refresh()
                await asyncio.sleep(0.03)
            assert 15 <= len(setup.cluster.asked) <= 60

    @in_virtual_time
    async def test_returning_broker_triggers_a_refresh(self) -> None:
        """After a long outage the updater requests metadata rarely, and still dials the broker."""
        async with started(settings(backoff=Backoff(0.1, 0.1))) as setup:
            setup.cluster.has(topic("orders", 1, 2))
            await setup.knowing("orders")
            setup.pool.lose(2)
            setup.cluster.nodes = [1, 3]
            setup.cluster.has(topic("orders", 1, (NO_LEADER, 1)))
            for away_s in (10.0, 0.7, 0.7, 0.7):  # the broker returns at various times of a pause
                await asyncio.sleep(away_s)
                asked = len(setup.cluster.asked)
                setup.cluster.away = set()
                setup.cluster.nodes = [1, 2, 3]
                setup.cluster.has(topic("orders", 1, (2, 1)))
                await asyncio.sleep(0.2)
                assert leaders(setup.snapshot, "orders") == [1, 2]
                assert len(setup.cluster.asked) <= asked + 3
                setup.pool.lose(2)
                setup.cluster.nodes = [1, 3]
                setup.cluster.has(topic("orders", 1, (NO_LEADER, 1)))
            assert len(setup.pool.attempts) < 13 / 0.05

    @in_virtual_time
    async def test_refresh_without_a_backoff_is_no_busy_loop(self) -> None:
        async with started(settings(backoff=Backoff(0.0, 0.0))) as setup:
            waiter = waiting(setup, "missing", 1.0)
            await error_of(waiter)
            assert len(setup.cluster.asked) <= 100


class TestLeaderHint:
    @in_virtual_time
    async def test_leader_hint_moves_a_leader_without_a_request(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.updater.take_leader_hints([LeaderHint("orders", 0, 9, 2)], [Broker(9, "b9", 9009)])
            assert setup.snapshot.leader("orders", 0) == Broker(9, "b9", 9009)
            assert setup.changes == [{"orders"}]
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_outdated_leader_hint_notifies_no_listener(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)))
            await setup.knowing("orders")
            setup.updater.take_leader_hints([LeaderHint("orders", 0, 2, 0)])
            assert setup.updates == []

    @in_virtual_time
    async def test_wrong_leader_hint_is_replaced_by_the_next_response(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)))
            await setup.knowing("orders")
            setup.updater.take_leader_hints([LeaderHint("orders", 0, 2, 1_000)])
            setup.updater.mark_leader_stale(2, {"orders": [0]})
            await asyncio.sleep(1.0)
            assert setup.snapshot.topics["orders"].leaders == (1,)


class TestClose:
    @in_virtual_time
    async def test_close_fails_each_waiter_with_its_own_instance(self) -> None:
        async with started() as setup:
            waiters = [waiting(setup, name) for name in ("a", "a", "b")]
            await asyncio.sleep(0.5)
            await setup.updater.close()
            errors = [await error_of(each) for each in waiters]
            assert [type(each) for each in errors] == [ProducerClosed] * 3
            assert len(set(map(id, errors))) == 3

    @in_virtual_time
    async def test_close_closes_the_connection_of_the_bootstrap(self) -> None:
        setup = Setup(settings())
        await setup.updater.bootstrap(60.0)
        _ = setup.updater.start()
        await setup.updater.close()
        assert setup.cluster.open_connections == []
        assert len(asyncio.all_tasks()) == 1

    @in_virtual_time
    async def test_close_does_not_wait_for_a_response(self) -> None:
        async with started() as setup:
            setup.cluster.mute = {1, 2, 3}
            setup.updater.request_refresh()
            await asyncio.sleep(5.0)
            began_at = now()
            await setup.updater.close()
            assert now() == began_at

    @in_virtual_time
    async def test_requests_raise_producer_closed_after_close(self) -> None:
        async with started() as setup:
            await setup.updater.close()
            with pytest.raises(ProducerClosed):
                await setup.topic("orders")
            with pytest.raises(ProducerClosed):
                await setup.updater.whole_cluster()

    @in_virtual_time
    async def test_close_may_be_repeated_and_needs_no_start(self) -> None:
        setup = Setup(settings())
        await setup.updater.close()
        await setup.updater.close()

    @in_virtual_time
    async def test_fail_all_may_precede_close(self) -> None:
        async with started() as setup:
            waiter = waiting(setup, "orders")
            await asyncio.sleep(0.5)
            setup.updater.fail_all(lambda: ConnectionFailed("given up"))
            assert isinstance(await error_of(waiter), ConnectionFailed)
