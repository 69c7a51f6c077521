from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aioproducer.errors import ConnectionFailed, UnsupportedVersion
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.answers import answer
from tests.unit._core.metadata.fakes import LATENCY_S, SETUP_TIMEOUT_S, FakeCluster, now
from tests.unit._core.metadata.metadata_source_rig import QUESTION, QUICKLY_S, Setup


def assert_nothing_is_left(cluster: FakeCluster) -> None:
    assert cluster.open_connections == []
    assert all(each.waited_for for each in cluster.connections)
    assert len(asyncio.all_tasks()) == 1


class TestBegin:
    @in_virtual_time
    async def test_asks_who_is_connected_already(self) -> None:
        setup = Setup(1)
        await setup.pool.connect(2)
        assert (await setup.source.begin(QUESTION, 60.0)).cluster_id == "c"
        assert setup.answered_by == 2
        assert len(setup.cluster.connections) == 1
        setup.cluster.connections[0].close()

    @in_virtual_time
    async def test_asks_an_address_if_nobody_is(self) -> None:
        setup = Setup(1)
        await setup.source.begin(QUESTION, 60.0)
        assert setup.answered_by == 1
        await setup.close()
        assert_nothing_is_left(setup.cluster)

    @pytest.mark.parametrize("is_mute", [True, False])
    @in_virtual_time
    async def test_believes_in_no_connection_if_one_is_dead(self, is_mute: bool) -> None:
        setup = Setup(1)
        await setup.pool.connect(2, 3)
        if is_mute:
            setup.cluster.mute = {2}
        else:
            setup.cluster.next_answers = [ConnectionFailed("b2:9002: lost")]
        await setup.source.begin(QUESTION, 60.0)
        assert setup.answered_by == 1
        assert now() < 1.0 + QUICKLY_S
        assert setup.pool.nodes == []
        assert [each.closed for each in setup.cluster.connections] == [True, True, False]
        await setup.close()


class TestBootstrap:
    @in_virtual_time
    async def test_asks_an_address(self) -> None:
        setup = Setup(1)
        assert (await setup.bootstrap()).cluster_id == "c"
        assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_does_not_wait_for_a_frozen_broker(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.deaf = {1}
        await setup.bootstrap()
        assert now() < 0.3
        assert setup.answered_by == 2

    @in_virtual_time
    async def test_does_not_wait_for_a_broker_that_shakes_hands_and_freezes(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.mute = {1}
        await setup.bootstrap()
        assert now() < 0.3

    @in_virtual_time
    async def test_tries_ten_addresses_within_seconds(self) -> None:
        setup = Setup(*range(1, 11))
        setup.cluster.deaf = set(range(1, 10))
        await setup.bootstrap()
        assert now() < 10 * 0.25 + QUICKLY_S

    @in_virtual_time
    async def test_goes_on_at_once_when_an_address_refuses(self) -> None:
        setup = Setup(1, 2, 3)
        setup.cluster.away = {1, 2}
        await setup.bootstrap()
        assert now() < QUICKLY_S

    @in_virtual_time
    async def test_closes_the_losers(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.latency_s = 0.3  # both are connected when one answers
        await setup.bootstrap()
        assert [each.closed for each in setup.cluster.connections] == [False, True]
        await setup.close()
        assert_nothing_is_left(setup.cluster)

    @in_virtual_time
    async def test_lists_every_address_with_its_cause_once_all_have_failed(self) -> None:
        setup = Setup(1, 2, 3)
        setup.cluster.away = {1, 3}
        setup.cluster.deaf = {2}
        with pytest.raises(ConnectionFailed) as raised:
            await setup.bootstrap()
        assert "b1:9001: refused" in str(raised.value)
        assert "b2:9002: the handshake did not end" in str(raised.value)
        assert "b3:9003: refused" in str(raised.value)
        assert SETUP_TIMEOUT_S < now() < SETUP_TIMEOUT_S + 1
        assert isinstance(raised.value.__cause__, ConnectionFailed)

    @in_virtual_time
    async def test_names_the_address_of_causes_that_do_not(self) -> None:
        setup = Setup(1)
        setup.cluster.next_answers = [UnsupportedVersion("too old")]
        with pytest.raises(ConnectionFailed, match="b1:9001: too old"):
            await setup.bootstrap()

    @in_virtual_time
    async def test_gives_up_at_the_deadline(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.deaf = {1}
        setup.cluster.mute = {2}
        with pytest.raises(
            ConnectionFailed, match=r"b[12]:900[12]: no answer yet; b[12]:900[12]: no answer yet"
        ):
            await setup.bootstrap(deadline=2.0)
        assert now() == 2.0
        assert_nothing_is_left(setup.cluster)

    @in_virtual_time
    async def test_leaves_nothing_behind_when_it_is_cancelled(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.mute = {1}
        setup.cluster.deaf = {2}
        bootstrapping = asyncio.create_task(setup.bootstrap())
        await asyncio.sleep(1)
        bootstrapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bootstrapping
        assert_nothing_is_left(setup.cluster)

    @in_virtual_time
    async def test_leaves_nothing_behind_when_it_is_cancelled_although_somebody_has_won(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.latency_s = 0.3  # both are connected when one answers
        setup.cluster.closing_s = 5.0
        bootstrapping = asyncio.create_task(setup.bootstrap())
        await asyncio.sleep(1.0)
        assert [each.closed for each in setup.cluster.connections] == [False, True]
        bootstrapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bootstrapping
        await setup.close()
        assert setup.cluster.open_connections == []

    @in_virtual_time
    async def test_does_not_believe_a_broker_that_knows_no_brokers_yet(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.next_answers = [answer(nodes=())]
        assert (await setup.bootstrap()).brokers
        assert len(setup.cluster.asked) == 2

    @in_virtual_time
    async def test_does_not_always_begin_with_the_same_address(self) -> None:
        first_asked = set()
        for _ in range(50):
            setup = Setup(1, 2, 3)
            await setup.bootstrap()
            first_asked.add(setup.answered_by)
        assert first_asked == {1, 2, 3}


class TestSpareConnection:
    """That of the bootstrap: it saves the first question about a topic a dial and a handshake."""

    @in_virtual_time
    async def test_is_asked_while_no_node_is_connected(self) -> None:
        setup = Setup(1)
        await setup.bootstrap()
        began_at = now()
        await setup.ask()
        assert now() - began_at == pytest.approx(LATENCY_S)
        assert setup.pool.attempts == []
        await setup.close()
        assert_nothing_is_left(setup.cluster)

    @in_virtual_time
    async def test_is_closed_once_a_node_is_connected(self) -> None:
        setup = Setup(1)
        await setup.bootstrap()
        [spare] = setup.cluster.connections
        await setup.pool.connect(2)
        setup.source.connected()
        assert spare.closed
        await setup.ask()
        assert setup.answered_by == 2
        await setup.source.close()
        assert spare.waited_for

    @in_virtual_time
    async def test_is_the_pools_from_the_start_if_a_broker_is_known_to_be_there(self) -> None:
        setup = Setup(1)
        setup.pool.adopts = True
        await setup.bootstrap()
        [opened] = setup.cluster.connections
        assert cast("Any", setup.pool.get(1)) is opened
        await setup.source.close()
        assert not opened.closed
        opened.close()

    @in_virtual_time
    async def test_that_was_lost_is_not_asked(self) -> None:
        setup = Setup(1)
        await setup.bootstrap()
        setup.cluster.connections[0].closed = True
        setup.cluster.away = {1, 2}
        await setup.ask()
        assert setup.answered_by == 3
        await setup.close()

    @in_virtual_time
    async def test_is_replaced_by_that_of_the_next_bootstrap(self) -> None:
        setup = Setup(1)
        await setup.bootstrap()
        await setup.bootstrap()
        first, second = setup.cluster.connections
        assert first.closed
        assert first.waited_for
        assert not second.closed
