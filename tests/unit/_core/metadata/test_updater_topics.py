from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer.errors import (
    BrokerError,
    ConnectionFailed,
    InvalidTopicException,
    LeaderNotAvailable,
    MetadataTimeout,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.answers import answer, refused, topic
from tests.unit._core.metadata.fakes import LATENCY_S, now, settings
from tests.unit._core.metadata.updater_rig import error_of, started, waiting

QUICKLY_S = 10 * LATENCY_S


class TestTopic:
    @in_virtual_time
    async def test_unknown_topic_is_requested_at_once(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1, 2))
            began_at = now()
            info = await setup.topic("orders")
            assert [each.leader for each in info.partitions] == [1, 2]
            assert now() - began_at == pytest.approx(LATENCY_S)
            assert setup.cluster.asked_for == [("orders",)]
            assert setup.changes == [{"orders"}]

    @in_virtual_time
    async def test_listener_receives_each_answered_topic_with_its_node(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1, 2))
            await setup.topic("orders")
            setup.cluster.has(refused("gone", UnknownTopicOrPartition))
            setup.updater.request_refresh(["orders", "gone"])
            await asyncio.sleep(1.0)
            answered_by = [node_id for _, node_id, topics in setup.cluster.asked if "orders" in topics]
            assert setup.answers[-2:] == [(["orders"], node_id) for node_id in answered_by[-2:]]

    @in_virtual_time
    async def test_known_topic_is_not_requested(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            assert await setup.topic("orders") is setup.snapshot.topics["orders"]
            assert setup.cluster.asked == []

    @in_virtual_time
    async def test_unknown_topic_is_requested_once_for_a_thousand_callers(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            waiters = [waiting(setup, "orders") for _ in range(1000)]
            infos = await asyncio.gather(*waiters)
            await asyncio.sleep(1.0)
            assert set(map(id, infos)) == {id(setup.snapshot.topics["orders"])}
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_topics_wanted_during_a_request_share_the_next_one(self) -> None:
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
    async def test_topic_being_created_is_waited_for(self, error: type[BrokerError]) -> None:
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
    async def test_wait_for_a_topic_ends_at_the_deadline(self) -> None:
        async with started() as setup:
            setup.cluster.has(refused("new", LeaderNotAvailable))
            began_at = now()
            error = await error_of(waiting(setup, "new", 20.0))
            assert now() - began_at == pytest.approx(20.0)
            assert isinstance(error, MetadataTimeout)
            assert isinstance(error, TimeoutError)
            assert str(error) == (
                "no broker returned the partitions of topic 'new' within 20 s; last error: LeaderNotAvailable: "
                f"{error.__cause__}"
            )
            assert isinstance(error.__cause__, LeaderNotAvailable)
            assert 15 < len(setup.cluster.asked) < 30
            setup.forget()
            await asyncio.sleep(60.0)
            assert len(setup.cluster.asked) <= 1, "no caller waits any more"

    @in_virtual_time
    async def test_wait_for_a_topic_times_out_with_the_connection_error(self) -> None:
        async with started() as setup:
            for node_id in (1, 2, 3):
                setup.pool.lose(node_id)
            error = await error_of(waiting(setup, "new", 5.0))
            assert isinstance(error, MetadataTimeout)
            assert isinstance(error.__cause__, ConnectionFailed)
            assert "refused" in str(error.__cause__)

    @in_virtual_time
    async def test_wait_for_a_topic_fails_at_once_after_the_deadline(self) -> None:
        async with started() as setup:
            error = await error_of(waiting(setup, "new", 0.0))
            assert isinstance(error, MetadataTimeout)
            assert error.__cause__ is None

    @pytest.mark.parametrize("error", [TopicAuthorizationFailed, InvalidTopicException])
    @in_virtual_time
    async def test_refused_topic_fails_at_once_and_is_requested_later(self, error: type[BrokerError]) -> None:
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
    async def test_refused_topic_is_requested_with_pauses(self) -> None:
        async with started() as setup:
            setup.cluster.has(refused("secret", TopicAuthorizationFailed))
            began_at = now()
            while now() - began_at < 20.0:
                await error_of(waiting(setup, "secret"))
            assert len(setup.cluster.asked) < 30

    @in_virtual_time
    async def test_topic_is_not_delayed_by_another_missing_topic(self) -> None:
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
    async def test_refresh_requests_a_known_topic_again(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            setup.cluster.has(topic("orders", 1, 2))
            assert len((await setup.topic("orders", refresh=True)).partitions) == 2
            assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_refresh_returns_an_unchanged_topic(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            known = setup.snapshot.topics["orders"]
            assert await setup.topic("orders", refresh=True) is known

    @pytest.mark.parametrize("wanted", [{"refresh": True}, {"partition": 1}])
    @in_virtual_time
    async def test_answer_to_an_earlier_request_does_not_count(self, wanted: dict[str, Any]) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            setup.cluster.next_answers = [answer(topic("orders", 1))]  # from before the partition is added
            setup.updater.request_refresh(["orders"])
            await asyncio.sleep(0.5 * LATENCY_S)
            setup.cluster.has(topic("orders", 1, 2))
            assert len((await setup.topic("orders", **wanted)).partitions) == 2
            assert setup.cluster.asked_for == [("orders",)] * 2

    @in_virtual_time
    async def test_absent_partition_is_denied_by_two_brokers(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            assert len((await setup.topic("orders", partition=1)).partitions) == 1
            nodes = [node_id for _, node_id, _ in setup.cluster.asked]
            assert len(nodes) == len(set(nodes)) == 2

    @in_virtual_time
    async def test_partition_is_found_though_one_broker_lags(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            setup.cluster.next_answers = [answer(topic("orders", 1))]
            setup.cluster.has(topic("orders", 1, 2))
            assert len((await setup.topic("orders", partition=1)).partitions) == 2

    @in_virtual_time
    async def test_partition_is_denied_at_once_by_the_only_broker(self) -> None:
        async with started() as setup:
            setup.cluster.nodes = [1]
            setup.cluster.has(topic("orders", 1))
            await setup.knowing("orders")
            assert len((await setup.topic("orders", partition=1)).partitions) == 1
            assert len(setup.cluster.asked) == 1

    @in_virtual_time
    async def test_cancelled_waits_leave_no_waiter(self) -> None:
        async with started() as setup:
            waiter, other = waiting(setup, "new"), waiting(setup, "new")
            await asyncio.sleep(1.0)
            waiter.cancel()
            assert isinstance(await error_of(waiter), asyncio.CancelledError)
            setup.cluster.has(topic("new", 1))
            await other
            assert not setup.updater._waiters.topics

    @in_virtual_time
    async def test_topic_without_leaders_is_known(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", NO_LEADER))
            assert (await setup.topic("orders")).leaderless


class TestTouch:
    """What `send_nowait` does with a topic that it does not know."""

    @in_virtual_time
    async def test_mark_used_requests_an_unknown_topic(self) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1))
            setup.updater.mark_used("orders", asyncio.get_running_loop().time())
            await asyncio.sleep(1.0)
            assert setup.snapshot.knows("orders")

    @in_virtual_time
    async def test_mark_used_in_a_loop_requests_with_pauses(self) -> None:
        async with started() as setup:
            for _ in range(2_000):
                setup.updater.mark_used("missing", asyncio.get_running_loop().time())
                await asyncio.sleep(0.01)
            assert 15 < len(setup.cluster.asked) < 30

    @in_virtual_time
    async def test_mark_used_keeps_a_topic_in_full_refreshes(self) -> None:
        async with started(settings(max_age_s=100.0, max_idle_s=150.0)) as setup:
            setup.cluster.has(topic("used", 1), topic("unused", 1))
            await setup.topic("used")
            await setup.topic("unused")
            setup.forget()
            for _ in range(6):
                await asyncio.sleep(50.0)
                setup.updater.mark_used("used", asyncio.get_running_loop().time())
            assert [set(asked) for asked in setup.cluster.asked_for] == [
                {"used", "unused"},
                {"used"},
                {"used"},
            ]
            assert setup.changes == [{"unused"}]
            assert setup.snapshot.topics.keys() == {"used"}


class TestLeaderless:
    """Topics with records that wait for a leader of their partition."""

    @pytest.mark.parametrize("known", [False, True])
    @in_virtual_time
    async def test_leaderless_topics_are_requested_until_they_are_led(self, *, known: bool) -> None:
        async with started() as setup:
            setup.cluster.has(topic("orders", 1) if known else refused("orders", UnknownTopicOrPartition))
            setup.leaderless = {"orders"}
            setup.updater.request_refresh(["orders"])
            await asyncio.sleep(10.0)
            assert 10 < len(setup.cluster.asked) < 30
            assert set(setup.cluster.asked_for) == {("orders",)}
            setup.leaderless.clear()
            await asyncio.sleep(2.0)
            setup.forget()
            await asyncio.sleep(60.0)
            assert setup.cluster.asked == []
