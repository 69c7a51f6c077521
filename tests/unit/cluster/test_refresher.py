from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from aioproducer.backoff import Backoff
from aioproducer.cluster.refresher import Refresher
from aioproducer.cluster.settings import MetadataSettings
from aioproducer.cluster.snapshot import NO_LEADER, Broker, LeaderHint, Snapshot, TopicInfo
from aioproducer.errors import (
    BrokerError,
    ConnectionFailed,
    InvalidTopicException,
    LeaderNotAvailable,
    MetadataTimeout,
    ProducerClosed,
    ProtocolError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit.cluster.answers import ANOTHER_ID, leaders, refused, topic
from tests.unit.cluster.fakes import LATENCY_S, FakeCluster, FakePool, address_of, now, settings

QUICKLY_S = 10 * LATENCY_S


class Setup:
    """A refresher past its bootstrap, connected to all nodes, and what it told."""

    def __init__(self, config: MetadataSettings) -> None:
        self.cluster = FakeCluster()
        self.pool = FakePool(self.cluster)
        self.updates: list[tuple[Snapshot, Collection[str]]] = []
        self.refresher = Refresher(
            config,
            self.pool,
            open_connection=self.cluster.open,
            on_update=lambda *update: self.updates.append(update),
        )
        self.pool.on_connected = self.refresher.connected
        self.pool.on_disconnected = self.refresher.disconnected

    async def start(self) -> None:
        await self.refresher.bootstrap(now() + 60.0)
        await self.pool.connect(1, 2, 3)
        _ = self.refresher.start()
        self.refresher.connected(1)
        self.forget()

    def forget(self) -> None:
        self.cluster.asked.clear()
        self.updates.clear()

    async def topic(self, name: str, timeout_s: float = 60.0, *, anew: bool = False) -> TopicInfo:
        return await self.refresher.topic(name, now() + timeout_s, anew=anew)

    async def knowing(self, *names: str) -> None:
        """Have asked for topics, long ago."""
        for name in names:
            await self.topic(name)
        await asyncio.sleep(10.0)
        self.forget()

    @property
    def snapshot(self) -> Snapshot:
        return self.refresher.snapshot

    @property
    def changes(self) -> list[set[str]]:
        return [set(changed) for _, changed in self.updates]


@asynccontextmanager
async def started(config: MetadataSettings | None = None) -> AsyncIterator[Setup]:
    setup = Setup(config or settings())
    await setup.start()
    try:
        yield setup
    finally:
        await setup.refresher.close()
        await setup.pool.close()
        assert len(asyncio.all_tasks()) == 1


def waiting(setup: Setup, name: str, timeout_s: float = 60.0) -> asyncio.Task[TopicInfo]:
    return asyncio.create_task(setup.topic(name, timeout_s))


async def error_of(task: asyncio.Task[TopicInfo]) -> BaseException:
    with pytest.raises(BaseException) as raised:
        await task
    return raised.value


class TestBootstrap:
    @in_virtual_time
    async def test_tells_who_the_brokers_are(self) -> None:
        setup = Setup(settings())
        await setup.refresher.bootstrap(60.0)
        assert setup.snapshot.brokers.keys() == {1, 2, 3}
        assert setup.snapshot.version == 1
        assert setup.changes == [set()]
        assert setup.cluster.asked_for == [()]
        await setup.refresher.close()

    @in_virtual_time
    async def test_that_failed_can_be_tried_again(self) -> None:
        setup = Setup(settings(1, 2))
        setup.cluster.away = {1, 2}
        with pytest.raises(ConnectionFailed, match=r"b[12]:900[12]: refused; b[12]:900[12]: refused"):
            await setup.refresher.bootstrap(60.0)
        setup.cluster.away = {1}
        await setup.refresher.bootstrap(60.0)
        assert setup.snapshot.brokers
        await setup.refresher.close()

    @in_virtual_time
    async def test_leaves_the_task_nothing_to_do(self) -> None:
        async with started() as setup:
            await asyncio.sleep(200.0)
            assert setup.cluster.asked == []


class TestTopic:
    @in_virtual_time
    async def test_that_is_not_known_is_asked_for_at_once(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1, 2))
            began_at = now()
            info = await setup.topic("orders")
            assert [each.leader for each in info.partitions] == [1, 2]
            assert now() - began_at == pytest.approx(LATENCY_S)
            assert setup.cluster.asked_for == [("orders",)]
            assert setup.changes == [{"orders"}]

    @in_virtual_time
    async def test_that_is_known_is_not_asked_for(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            assert await setup.topic("orders") is setup.snapshot.topics["orders"]
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_is_asked_for_once_for_a_thousand_who_wait(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            waiters = [waiting(setup, "orders") for _ in range(1000)]
            infos = await asyncio.gather(*waiters)
            await asyncio.sleep(1.0)
            assert set(map(id, infos)) == {id(setup.snapshot.topics["orders"])}
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_of_those_who_come_meanwhile_is_asked_for_with_the_next_request(self) -> None:
        async with started() as setup:
            names = [f"topic-{number}" for number in range(100)]
            setup.cluster.has(*(topic(name, 1) for name in names))
            setup.cluster.latency_s = 0.8
            first = waiting(setup, names[0])
            await asyncio.sleep(0.5)
            await asyncio.gather(first, *(waiting(setup, name) for name in names[1:]))
            assert [len(asked) for asked in setup.cluster.asked_for] == [1, 99]

    @pytest.mark.parametrize("error", [LeaderNotAvailable, UnknownTopicOrPartition])
    @in_virtual_time
    async def test_that_is_just_being_created_is_waited_for(self, error: type[BrokerError]) -> None:
        async with started() as setup:
            setup.cluster.has(refused("new", error))
            waiter = waiting(setup, "new")
            await asyncio.sleep(0.25)
            setup.cluster.has(topic("new", 1))
            began_at = now()
            await waiter
            assert now() - began_at <= 0.48, "the third pause, at its longest"
            assert 2 <= len(setup.cluster.asked) <= 4

    @in_virtual_time
    async def test_is_not_waited_for_longer_than_the_deadline(self) -> None:
        async with started() as setup:
            setup.cluster.has(refused("new", LeaderNotAvailable))
            began_at = now()
            error = await error_of(waiting(setup, "new", 20.0))
            assert now() - began_at == pytest.approx(20.0)
            assert isinstance(error, MetadataTimeout)
            assert isinstance(error, TimeoutError)
            assert str(error) == "nobody told the partitions of topic 'new' in 20 s"
            assert isinstance(error.__cause__, LeaderNotAvailable)
            assert 15 < len(setup.cluster.asked) < 30
            setup.forget()
            await asyncio.sleep(60.0)
            assert len(setup.cluster.asked) <= 1, "nobody waits any more"

    @in_virtual_time
    async def test_that_nobody_answers_for_times_out_with_that_cause(self) -> None:
        async with started() as setup:
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            error = await error_of(waiting(setup, "new", 5.0))
            assert isinstance(error, MetadataTimeout)
            assert isinstance(error.__cause__, ConnectionFailed)
            assert "refused" in str(error.__cause__)

    @in_virtual_time
    async def test_with_a_deadline_that_is_over_is_not_waited_for(self) -> None:
        async with started() as setup:
            error = await error_of(waiting(setup, "new", 0.0))
            assert isinstance(error, MetadataTimeout)
            assert error.__cause__ is None

    @pytest.mark.parametrize("error", [TopicAuthorizationFailed, InvalidTopicException])
    @in_virtual_time
    async def test_that_is_refused_is_an_error_at_once_and_asked_for_again_next_time(
        self, error: type[BrokerError]
    ) -> None:
        async with started() as setup:
            setup.cluster.has(refused("secret", error))
            first, second = waiting(setup, "secret"), waiting(setup, "secret")
            errors = [await error_of(first), await error_of(second)]
            assert [type(each) for each in errors] == [error, error]
            assert errors[0] is not errors[1]
            assert len(setup.cluster.asked) == 1
            setup.cluster.has(topic("secret", 1))
            began_at = now()
            await setup.topic("secret")
            assert now() - began_at < 0.2

    @in_virtual_time
    async def test_that_is_refused_is_not_asked_for_at_any_rate(self) -> None:
        async with started() as setup:
            setup.cluster.has(refused("secret", TopicAuthorizationFailed))
            began_at = now()
            while now() - began_at < 20.0:
                await error_of(waiting(setup, "secret"))
            assert len(setup.cluster.asked) < 30

    @in_virtual_time
    async def test_does_not_wait_for_another_that_is_not_to_be_had(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            missing = waiting(setup, "missing")
            await asyncio.sleep(30.0)
            began_at = now()
            await setup.topic("orders")
            assert now() - began_at < QUICKLY_S
            assert not missing.done()
            missing.cancel()

    @in_virtual_time
    async def test_may_be_asked_for_anew_though_it_is_known(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            setup.cluster.has(topic("orders", 1, 2))
            assert len((await setup.topic("orders", anew=True)).partitions) == 2
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_asked_for_anew_is_returned_though_nothing_has_changed(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            known = setup.snapshot.topics["orders"]
            assert await setup.topic("orders", anew=True) is known

    @in_virtual_time
    async def test_waits_that_are_cancelled_leave_nothing_behind(self) -> None:
        async with started() as setup:
            waiter, other = waiting(setup, "new"), waiting(setup, "new")
            await asyncio.sleep(1.0)
            waiter.cancel()
            assert isinstance(await error_of(waiter), asyncio.CancelledError)
            setup.cluster.has(topic("new", 1))
            await other
            assert not setup.refresher._waiting.topics

    @in_virtual_time
    async def test_without_leaders_is_known(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", NO_LEADER))
            assert (await setup.topic("orders")).leaderless


class TestTouch:
    """What `send_nowait` does with a topic that it does not know."""

    @in_virtual_time
    async def test_of_an_unknown_topic_has_it_asked_for(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            setup.refresher.touch("orders")
            await asyncio.sleep(1.0)
            assert setup.snapshot.knows("orders")

    @in_virtual_time
    async def test_in_a_tight_loop_is_not_a_request_each(self) -> None:
        async with started() as setup:
            for _ in range(2_000):
                setup.refresher.touch("missing")
                await asyncio.sleep(0.01)
            assert 15 < len(setup.cluster.asked) < 30

    @in_virtual_time
    async def test_keeps_a_topic_in_use(self) -> None:
        async with started(settings(max_age_s=100.0, max_idle_s=150.0)) as setup:
            setup.cluster.has(topic("used", 1), topic("unused", 1))
            await setup.topic("used")
            await setup.topic("unused")
            setup.forget()
            for _ in range(6):
                await asyncio.sleep(50.0)
                setup.refresher.touch("used")
            assert [set(asked) for asked in setup.cluster.asked_for] == [
                {"used", "unused"},
                {"used"},
                {"used"},
            ]
            assert setup.changes == [{"unused"}]
            assert setup.snapshot.topics.keys() == {"used"}


class TestRefresh:
    @in_virtual_time
    async def test_asks_for_all_topics_and_tells_what_changed(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.cluster.has(topic("orders", (2, 1)))
            setup.refresher.request_refresh()
            await asyncio.sleep(1.0)
            assert [set(asked) for asked in setup.cluster.asked_for] == [{"orders", "audit"}]
            assert setup.changes == [{"orders"}]
            assert leaders(setup.snapshot, "orders") == [2]

    @in_virtual_time
    async def test_may_be_asked_for_some_topics(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.refresher.request_refresh(["orders"])
            await asyncio.sleep(1.0)
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_that_brings_nothing_new_tells_nobody(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            before = setup.snapshot
            setup.refresher.request_refresh()
            await asyncio.sleep(1.0)
            assert len(setup.cluster.asked) == 1
            assert setup.updates == []
            assert setup.snapshot.version == before.version
            assert setup.snapshot.fetched_at > before.fetched_at

    @in_virtual_time
    async def test_wanted_while_one_is_on_its_way_is_done_once_more(self) -> None:
        async with started() as setup:
            setup.cluster.latency_s = 0.8
            setup.refresher.request_refresh()
            await asyncio.sleep(0.5)
            for _ in range(100):
                setup.refresher.request_refresh()
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
            setup.refresher.disconnected(3, ConnectionFailed("lost"))
            await asyncio.sleep(1.0)
            assert setup.cluster.asked_for == []
            setup.refresher.disconnected(2, ConnectionFailed("lost"))
            await asyncio.sleep(1.0)
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_does_not_come_when_a_connection_is_closed_on_purpose(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1, 2))
            await setup.knowing("orders")
            setup.refresher.disconnected(2, None)
            await asyncio.sleep(1.0)
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_goes_on_until_a_partition_has_a_leader(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            setup.cluster.has(topic("orders", (NO_LEADER, 1)))
            setup.refresher.request_refresh(["orders"])
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
            setup.refresher.request_refresh(["orders"])
            await asyncio.sleep(1.0)
            assert leaders(setup.snapshot, "orders") == [2]

    @pytest.mark.parametrize("backoff", [Backoff(0.1, 1.0), Backoff(0.1, 0.1)], ids=["default", "short"])
    @pytest.mark.parametrize("leader", [NO_LEADER, 2], ids=["no leader", "the old leader"])
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
                setup.refresher.request_refresh()
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


class TestFailure:
    @in_virtual_time
    async def test_of_one_request_is_made_up_for(self) -> None:
        async with started(settings(rebootstrap=False)) as setup:
            setup.cluster.has(topic("orders", 1))
            setup.cluster.next_answers = [ProtocolError("garbage")] * 3
            began_at = now()
            await setup.topic("orders")
            assert now() - began_at < 0.2
            assert len(setup.cluster.asked) == 4

    @in_virtual_time
    async def test_is_told_when_it_begins_and_when_it_is_over(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "aioproducer.cluster")
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
    async def test_of_all_brokers_ends_when_one_is_back(self) -> None:
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
    async def test_ends_at_once_when_somebody_else_gets_a_connection(self) -> None:
        async with started(settings(rebootstrap=False)) as setup:
            setup.cluster.has(topic("orders", 1))
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            waiter = waiting(setup, "orders")
            await asyncio.sleep(30.2)
            setup.cluster.away = set()
            began_at = now()
            setup.pool.connect_soon(1, address_of(1))
            await waiter
            assert now() - began_at < 0.15

    @in_virtual_time
    async def test_of_all_known_brokers_leads_back_to_the_bootstrap_addresses(self) -> None:
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
    async def test_on_our_side_is_logged_and_survived(self, caplog: pytest.LogCaptureFixture) -> None:
        async with started() as setup:
            tell, bugs = setup.refresher._on_update, [ZeroDivisionError(), ZeroDivisionError()]

            def fail_twice(snapshot: Snapshot, changed: Collection[str]) -> None:
                if bugs:
                    raise bugs.pop()
                tell(snapshot, changed)

            setup.refresher._on_update = fail_twice
            for name in ("orders", "audit", "third"):
                setup.cluster.has(topic(name, 1))
                await setup.topic(name)
            await asyncio.sleep(1.0)
            told = [each.getMessage() for each in caplog.records if each.exc_info]
            assert len(told) == 2
            assert all(each.startswith("metadata.bug") for each in told)
            assert setup.changes == [{"third"}]


class TestLeaderHint:
    @in_virtual_time
    async def test_moves_a_leader_without_a_request(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)), topic("audit", 1))
            await setup.knowing("orders", "audit")
            setup.refresher.take_leader_hints([LeaderHint("orders", 0, 9, 2)], [Broker(9, "b9", 9009)])
            assert setup.snapshot.leader("orders", 0) == Broker(9, "b9", 9009)
            assert setup.changes == [{"orders"}]
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_that_is_no_news_tells_nobody(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)))
            await setup.knowing("orders")
            setup.refresher.take_leader_hints([LeaderHint("orders", 0, 2, 0)])
            assert setup.updates == []

    @in_virtual_time
    async def test_that_led_astray_gives_way_to_the_next_answer(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", (1, 1)))
            await setup.knowing("orders")
            setup.refresher.take_leader_hints([LeaderHint("orders", 0, 2, 1_000)])
            setup.refresher.doubt_leader(2, {"orders": [0]})
            await asyncio.sleep(1.0)
            assert setup.snapshot.topics["orders"].leaders == (1,)


class TestClose:
    @in_virtual_time
    async def test_fails_who_waits_each_with_an_error_of_its_own(self) -> None:
        async with started() as setup:
            waiters = [waiting(setup, name) for name in ("a", "a", "b")]
            await asyncio.sleep(0.5)
            await setup.refresher.close()
            errors = [await error_of(each) for each in waiters]
            assert [type(each) for each in errors] == [ProducerClosed] * 3
            assert len(set(map(id, errors))) == 3

    @in_virtual_time
    async def test_closes_the_connection_of_the_bootstrap(self) -> None:
        setup = Setup(settings())
        await setup.refresher.bootstrap(60.0)
        _ = setup.refresher.start()
        await setup.refresher.close()
        assert setup.cluster.open_connections == []
        assert len(asyncio.all_tasks()) == 1

    @in_virtual_time
    async def test_does_not_wait_for_an_answer(self) -> None:
        async with started() as setup:
            setup.cluster.mute = {1, 2, 3}
            setup.refresher.request_refresh()
            await asyncio.sleep(5.0)
            began_at = now()
            await setup.refresher.close()
            assert now() == began_at

    @in_virtual_time
    async def test_lets_nobody_wait_afterwards(self) -> None:
        async with started() as setup:
            await setup.refresher.close()
            with pytest.raises(ProducerClosed):
                await setup.topic("orders")

    @in_virtual_time
    async def test_without_a_start_is_fine_and_so_is_another(self) -> None:
        setup = Setup(settings())
        await setup.refresher.close()
        await setup.refresher.close()

    @in_virtual_time
    async def test_may_be_preceded_by_failing_everybody(self) -> None:
        async with started() as setup:
            waiter = waiting(setup, "orders")
            await asyncio.sleep(0.5)
            setup.refresher.fail_all(lambda: ConnectionFailed("given up"))
            assert isinstance(await error_of(waiter), ConnectionFailed)
