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
    async def test_tells_who_the_brokers_are(self) -> None:
        setup = Setup(settings())
        await setup.updater.bootstrap(60.0)
        assert setup.snapshot.brokers.keys() == {1, 2, 3}
        assert setup.snapshot.version == 1
        assert setup.changes == [set()]
        assert setup.cluster.asked_for == [()]
        await setup.updater.close()

    @in_virtual_time
    async def test_that_failed_can_be_tried_again(self) -> None:
        setup = Setup(settings(1, 2))
        setup.cluster.away = {1, 2}
        with pytest.raises(ConnectionFailed, match=r"b[12]:900[12]: refused; b[12]:900[12]: refused"):
            await setup.updater.bootstrap(60.0)
        setup.cluster.away = {1}
        await setup.updater.bootstrap(60.0)
        assert setup.snapshot.brokers
        await setup.updater.close()

    @in_virtual_time
    async def test_leaves_the_task_nothing_to_do(self) -> None:
        async with started() as setup:
            await asyncio.sleep(200.0)
            assert setup.cluster.asked == []


class TestRefresh:
    @in_virtual_time
    async def test_asks_for_all_topics_and_tells_what_changed(self) -> None:
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
    async def test_may_be_asked_for_some_topics(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.updater.request_refresh(["orders"])
            await asyncio.sleep(1.0)
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_that_brings_nothing_new_tells_nobody(self) -> None:
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
    async def test_wanted_while_one_is_on_its_way_is_done_once_more(self) -> None:
        async with started() as setup:
            setup.cluster.latency_s = 0.8
            setup.updater.request_refresh()
            await asyncio.sleep(0.5)
            for _ in range(100):
                setup.updater.request_refresh()
            await asyncio.sleep(10.0)
            assert len(setup.cluster.asked) == 2

    @in_virtual_time
    async def test_comes_when_the_last_is_too_old(self) -> None:
        async with started(settings(max_age_s=100.0, max_idle_s=10_000.0)) as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.topic("orders")
            setup.forget()
            setup.cluster.has(topic("orders", 1, 2))
            await asyncio.sleep(1050.0)
            assert len(setup.cluster.asked) == 10
            assert setup.changes == [{"orders"}]

    @in_virtual_time
    async def test_comes_when_a_node_is_lost_for_the_topics_that_it_leads(self) -> None:
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
    async def test_does_not_come_when_a_connection_is_closed_on_purpose(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1, 2))
            await setup.knowing("orders")
            setup.updater.disconnected(2, None)
            await asyncio.sleep(1.0)
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_goes_on_until_a_partition_has_a_leader(self) -> None:
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
    async def test_follows_a_topic_that_is_made_anew(self) -> None:
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
    async def test_asks_at_most_sixty_times_while_a_broker_is_away_for_twenty_seconds(
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
    async def test_comes_when_a_broker_that_was_missed_is_back(self) -> None:
        """Where the cluster has been without it for long, nobody asks every moment; but it is dialled."""
        async with started(settings(backoff=Backoff(0.1, 0.1))) as setup:
            setup.cluster.has(topic("orders", 1, 2))
            await setup.knowing("orders")
            setup.pool.lose(2)
            setup.cluster.nodes = [1, 3]
            setup.cluster.has(topic("orders", 1, (NO_LEADER, 1)))
            for away_s in (10.0, 0.7, 0.7, 0.7):  # wherever in a pause it comes back
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
    async def test_is_no_busy_loop_without_a_backoff(self) -> None:
        async with started(settings(backoff=Backoff(0.0, 0.0))) as setup:
            waiter = waiting(setup, "missing", 1.0)
            await error_of(waiter)
            assert len(setup.cluster.asked) <= 100


class TestLeaderHint:
    @in_virtual_time
    async def test_moves_a_leader_without_a_request(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.updater.take_leader_hints([LeaderHint("orders", 0, 9, 2)], [Broker(9, "b9", 9009)])
            assert setup.snapshot.leader("orders", 0) == Broker(9, "b9", 9009)
            assert setup.changes == [{"orders"}]
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_that_is_no_news_tells_nobody(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)))
            await setup.knowing("orders")
            setup.updater.take_leader_hints([LeaderHint("orders", 0, 2, 0)])
            assert setup.updates == []

    @in_virtual_time
    async def test_that_led_astray_gives_way_to_the_next_answer(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)))
            await setup.knowing("orders")
            setup.updater.take_leader_hints([LeaderHint("orders", 0, 2, 1_000)])
            setup.updater.mark_leader_stale(2, {"orders": [0]})
            await asyncio.sleep(1.0)
            assert setup.snapshot.topics["orders"].leaders == (1,)


class TestClose:
    @in_virtual_time
    async def test_fails_who_waits_each_with_an_error_of_its_own(self) -> None:
        async with started() as setup:
            waiters = [waiting(setup, name) for name in ("a", "a", "b")]
            await asyncio.sleep(0.5)
            await setup.updater.close()
            errors = [await error_of(each) for each in waiters]
            assert [type(each) for each in errors] == [ProducerClosed] * 3
            assert len(set(map(id, errors))) == 3

    @in_virtual_time
    async def test_closes_the_connection_of_the_bootstrap(self) -> None:
        setup = Setup(settings())
        await setup.updater.bootstrap(60.0)
        _ = setup.updater.start()
        await setup.updater.close()
        assert setup.cluster.open_connections == []
        assert len(asyncio.all_tasks()) == 1

    @in_virtual_time
    async def test_does_not_wait_for_an_answer(self) -> None:
        async with started() as setup:
            setup.cluster.mute = {1, 2, 3}
            setup.updater.request_refresh()
            await asyncio.sleep(5.0)
            began_at = now()
            await setup.updater.close()
            assert now() == began_at

    @in_virtual_time
    async def test_lets_nobody_wait_afterwards(self) -> None:
        async with started() as setup:
            await setup.updater.close()
            with pytest.raises(ProducerClosed):
                await setup.topic("orders")

    @in_virtual_time
    async def test_without_a_start_is_fine_and_so_is_another(self) -> None:
        setup = Setup(settings())
        await setup.updater.close()
        await setup.updater.close()

    @in_virtual_time
    async def test_may_be_preceded_by_failing_everybody(self) -> None:
        async with started() as setup:
            waiter = waiting(setup, "orders")
            await asyncio.sleep(0.5)
            setup.updater.fail_all(lambda: ConnectionFailed("given up"))
            assert isinstance(await error_of(waiter), ConnectionFailed)
