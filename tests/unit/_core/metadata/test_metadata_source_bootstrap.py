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
    async def test_begin_uses_an_existing_connection(self) -> None:
        setup = Setup(1)
        await setup.pool.connect(2)
        assert (await setup.source.begin(QUESTION, 60.0)).cluster_id == "c"
        assert setup.answered_by == 2
        assert len(setup.cluster.connections) == 1
        setup.cluster.connections[0].close()

    @in_virtual_time
    async def test_begin_uses_a_bootstrap_address_without_connections(self) -> None:
        setup = Setup(1)
        await setup.source.begin(QUESTION, 60.0)
        assert setup.answered_by == 1
        await setup.close()
        assert_nothing_is_left(setup.cluster)

    @pytest.mark.parametrize("is_mute", [True, False])
    @in_virtual_time
    async def test_begin_closes_all_connections_when_one_is_dead(self, is_mute: bool) -> None:
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
    async def test_bootstrap_asks_an_address(self) -> None:
        setup = Setup(1)
        assert (await setup.bootstrap()).cluster_id == "c"
        assert setup.cluster.asked_for == [("orders",)]

    @in_virtual_time
    async def test_bootstrap_does_not_wait_for_a_frozen_broker(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.deaf = {1}
        await setup.bootstrap()
        assert now() < 0.3
        assert setup.answered_by == 2

    @in_virtual_time
    async def test_bootstrap_leaves_a_broker_frozen_after_the_handshake(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.mute = {1}
        await setup.bootstrap()
        assert now() < 0.3

    @in_virtual_time
    async def test_bootstrap_tries_ten_addresses_within_seconds(self) -> None:
        setup = Setup(*range(1, 11))
        setup.cluster.deaf = set(range(1, 10))
        await setup.bootstrap()
        assert now() < 10 * 0.25 + QUICKLY_S

    @in_virtual_time
    async def test_bootstrap_tries_the_next_address_after_a_refusal(self) -> None:
        setup = Setup(1, 2, 3)
        setup.cluster.away = {1, 2}
        await setup.bootstrap()
        assert now() < QUICKLY_S

    @in_virtual_time
    async def test_bootstrap_closes_the_other_connections(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.latency_s = 0.3  # both are connected when one answers
        await setup.bootstrap()
        assert [each.closed for each in setup.cluster.connections] == [False, True]
        await setup.close()
        assert_nothing_is_left(setup.cluster)

    @in_virtual_time
    async def test_bootstrap_error_lists_every_address_with_its_cause(self) -> None:
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
    async def test_bootstrap_error_adds_the_address_to_a_bare_cause(self) -> None:
        setup = Setup(1)
        setup.cluster.next_answers = [UnsupportedVersion("too old")]
        with pytest.raises(ConnectionFailed, match="b1:9001: too old"):
            await setup.bootstrap()

    @in_virtual_time
    async def test_bootstrap_fails_at_the_deadline(self) -> None:
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
    async def test_cancelled_bootstrap_leaves_no_connection(self) -> None:
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
    async def test_cancelled_bootstrap_closes_the_winning_connection(self) -> None:
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
    async def test_bootstrap_ignores_a_response_without_brokers(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.next_answers = [answer(nodes=())]
        assert (await setup.bootstrap()).brokers
        assert len(setup.cluster.asked) == 2

    @in_virtual_time
    async def test_bootstrap_begins_with_a_random_address(self) -> None:
        first_asked = set()
        for _ in range(50):
            setup = Setup(1, 2, 3)
            await setup.bootstrap()
            first_asked.add(setup.answered_by)
        assert first_asked == {1, 2, 3}


class TestSpareConnection:
    """That of the bootstrap: it saves the first question about a topic a dial and a handshake."""

    @in_virtual_time
    async def test_spare_connection_is_used_while_no_node_is_connected(self) -> None:
        setup = Setup(1)
        await setup.bootstrap()
        began_at = now()
        await setup.ask()
        assert now() - began_at == pytest.approx(LATENCY_S)
        assert setup.pool.attempts == []
        await setup.close()
        assert_nothing_is_left(setup.cluster)

    @in_virtual_time
    async def test_spare_connection_is_closed_once_a_node_is_connected(self) -> None:
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
    async def test_spare_connection_may_be_adopted_by_the_pool(self) -> None:
        setup = Setup(1)
        setup.pool.adopts = True
        await setup.bootstrap()
        [opened] = setup.cluster.connections
        assert cast("Any", setup.pool.get(1)) is opened
        await setup.source.close()
        assert not opened.closed
        opened.close()

    @in_virtual_time
    async def test_spare_connection_is_not_used_when_lost(self) -> None:
        setup = Setup(1)
        await setup.bootstrap()
        setup.cluster.connections[0].closed = True
        setup.cluster.away = {1, 2}
        await setup.ask()
        assert setup.answered_by == 3
        await setup.close()

    @in_virtual_time
    async def test_spare_connection_is_replaced_by_the_next_bootstrap(self) -> None:
        setup = Setup(1)
        await setup.bootstrap()
        await setup.bootstrap()
        first, second = setup.cluster.connections
        assert first.closed
        assert first.waited_for
        assert not second.closed
