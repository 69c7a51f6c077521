from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from aioproducer.cluster.settings import MetadataSettings
from aioproducer.cluster.snapshot import Broker
from aioproducer.cluster.source import MetadataSource
from aioproducer.errors import (
    ConnectionFailed,
    ProtocolError,
    RebootstrapRequired,
    UnknownServerError,
    UnsupportedVersion,
)
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit.cluster.answers import answer, port_of
from tests.unit.cluster.fakes import (
    LATENCY_S,
    REQUEST_TIMEOUT_S,
    SETUP_TIMEOUT_S,
    FakeCluster,
    FakePool,
    now,
    settings,
)

QUESTION = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
NODES = {each: Broker(each, f"b{each}", port_of(each)) for each in (1, 2, 3)}
QUICKLY_S = 10 * LATENCY_S


class Setup:
    def __init__(self, *bootstrap: int, config: MetadataSettings | None = None, **pool: Any) -> None:
        self.cluster = FakeCluster()
        self.pool = FakePool(self.cluster, **pool)
        self.source = MetadataSource(config or settings(*bootstrap), self.pool, self.cluster.open)
        self.pool.on_connected = lambda _: self.source.connected()
        self.pool.on_disconnected = lambda *_: self.source.disconnected()

    async def bootstrap(self, deadline: float = 60.0) -> MetadataResponse:
        return await self.source.bootstrap(QUESTION, deadline)

    async def ask(self, nodes: Mapping[int, Broker] = NODES) -> MetadataResponse:
        return await self.source.ask(QUESTION, nodes)

    @property
    def answered_by(self) -> int:
        """Who was asked last."""
        return self.cluster.asked[-1][1]

    async def close(self) -> None:
        await self.source.close()
        await self.pool.close()


def assert_nothing_is_left(cluster: FakeCluster) -> None:
    assert cluster.open_connections == []
    assert all(each.waited_for for each in cluster.connections)
    assert len(asyncio.all_tasks()) == 1


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


class TestAsk:
    @in_virtual_time
    async def test_asks_the_least_loaded_connection_and_nobody_else(self) -> None:
        setup = Setup()
        await setup.pool.connect(3, 1)
        await setup.ask()
        assert [node for _, node, _ in setup.cluster.asked] == [3]
        assert setup.pool.attempts == []

    @in_virtual_time
    async def test_asks_another_when_one_does_not_answer(self) -> None:
        setup = Setup()
        setup.cluster.mute = {3}
        await setup.pool.connect(3, 1)
        await setup.ask()
        assert now() < 1.1
        assert setup.answered_by == 1

    @in_virtual_time
    async def test_asks_another_when_one_fails(self) -> None:
        setup = Setup()
        setup.cluster.next_answers = [ProtocolError("garbage")]
        await setup.pool.connect(3, 1)
        await setup.ask()
        assert now() < QUICKLY_S
        assert setup.answered_by == 1

    @in_virtual_time
    async def test_connects_when_the_connected_do_not_answer(self) -> None:
        setup = Setup()
        setup.cluster.mute = {3}
        await setup.pool.connect(3)
        await setup.ask()
        assert now() < 1.1
        assert setup.answered_by in {1, 2}
        await setup.close()

    @in_virtual_time
    async def test_connects_to_a_known_broker_if_none_is_connected(self) -> None:
        setup = Setup()
        await setup.ask()
        assert now() < QUICKLY_S
        assert len(setup.pool.attempts) == 1

    @in_virtual_time
    async def test_does_not_always_connect_to_the_same(self) -> None:
        tried = set()
        for _ in range(50):
            setup = Setup()
            await setup.ask()
            tried.add(setup.answered_by)
        assert tried == {1, 2, 3}

    @in_virtual_time
    async def test_tries_the_next_broker_while_one_hangs(self) -> None:
        setup = Setup()
        setup.cluster.deaf = {1, 2}
        await setup.ask()
        assert now() < 0.6
        assert setup.answered_by == 3
        await setup.close()

    @in_virtual_time
    async def test_uses_a_connection_that_somebody_else_wanted(self) -> None:
        setup = Setup()
        setup.cluster.deaf = {1, 2, 3}
        asking = asyncio.create_task(setup.ask())
        await asyncio.sleep(5)
        setup.cluster.deaf = set()
        await setup.pool.connect(2)
        setup.source.connected()
        await asking
        assert setup.answered_by == 2
        assert now() < 5.1
        await setup.close()

    @in_virtual_time
    async def test_leaves_a_broker_alone_that_has_just_failed(self) -> None:
        setup = Setup(pause_s=5.0, config=settings(rebootstrap=False))
        setup.cluster.away = {1, 2, 3}
        with pytest.raises(ConnectionFailed):
            await setup.ask()
        assert len(setup.pool.attempts) == 3
        with pytest.raises(ConnectionFailed, match=r"refused.*refused.*refused"):
            await setup.ask()
        assert len(setup.pool.attempts) == 3
        await asyncio.sleep(5.0)
        setup.cluster.away = set()
        await setup.ask()

    @in_virtual_time
    async def test_fails_when_nobody_can_be_reached_in_time(self) -> None:
        setup = Setup(config=settings(rebootstrap=False))
        setup.cluster.mute = {1, 2, 3}
        await setup.pool.connect(1)
        with pytest.raises(
            ConnectionFailed, match=r"no broker could be asked for metadata: .*b1:9001: no answer yet"
        ):
            await setup.ask()
        assert now() == pytest.approx(REQUEST_TIMEOUT_S, abs=0.1)

    @in_virtual_time
    async def test_heeds_a_throttle(self) -> None:
        setup = Setup()
        told = answer()
        told.throttle_time_ms = 2500
        setup.cluster.next_answers = [told]
        await setup.pool.connect(1)
        await setup.ask()
        assert setup.cluster.connections[0].muted_until == pytest.approx(now() + 2.5)

    @in_virtual_time
    async def test_does_not_take_an_error_for_an_answer(self) -> None:
        setup = Setup(config=settings(rebootstrap=False))
        refusal = answer()
        refusal.error_code = UnknownServerError.code
        setup.cluster.next_answers = [refusal]
        await setup.pool.connect(1, 2)
        assert (await setup.ask()).error_code == 0
        assert setup.answered_by == 2

    @in_virtual_time
    async def test_leaves_nothing_behind_when_it_is_cancelled(self) -> None:
        setup = Setup()
        setup.cluster.mute = {1}
        await setup.pool.connect(1)
        asking = asyncio.create_task(setup.ask({1: NODES[1]}))
        await asyncio.sleep(2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert len(asyncio.all_tasks()) == 1


class TestRebootstrap:
    @in_virtual_time
    async def test_follows_when_no_known_broker_can_be_reached(self) -> None:
        """KIP-899: they may all have moved."""
        setup = Setup(4)
        setup.cluster.away = {1, 2, 3}
        await setup.ask()
        assert setup.answered_by == 4
        assert now() < QUICKLY_S

    @in_virtual_time
    async def test_follows_when_no_broker_is_known(self) -> None:
        setup = Setup(4)
        await setup.ask({})
        assert setup.answered_by == 4

    @in_virtual_time
    async def test_is_not_done_without_being_allowed(self) -> None:
        setup = Setup(config=settings(4, rebootstrap=False, rebootstrap_trigger_s=0.0))
        setup.cluster.away = {1, 2, 3}
        with pytest.raises(ConnectionFailed):
            await setup.ask()
        assert setup.cluster.asked == []

    @in_virtual_time
    async def test_is_not_done_while_a_known_broker_is_connected(self) -> None:
        setup = Setup(4)
        setup.cluster.next_answers = [ProtocolError("garbage")]
        await setup.pool.connect(1)
        with pytest.raises(ConnectionFailed):
            await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1

    @in_virtual_time
    async def test_tells_the_causes_when_it_fails(self) -> None:
        setup = Setup(4)
        setup.cluster.away = {1, 2, 3, 4}
        with pytest.raises(
            ConnectionFailed, match="no bootstrap server could be asked for metadata: b4:9004: refused"
        ):
            await setup.ask()

    @in_virtual_time
    async def test_follows_when_a_broker_says_so(self) -> None:
        """KIP-1102."""
        setup = Setup(4)
        refusal = answer()
        refusal.error_code = RebootstrapRequired.code
        setup.cluster.next_answers = [refusal]
        await setup.pool.connect(1)
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 4
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1, "once is enough"

    @in_virtual_time
    async def test_follows_when_a_broker_says_so_whatever_the_others_say(self) -> None:
        setup = Setup(4)
        refusal = answer()
        refusal.error_code = RebootstrapRequired.code
        setup.cluster.next_answers = [refusal, ProtocolError("garbage")]
        await setup.pool.connect(1, 2)
        await setup.ask({1: NODES[1], 2: NODES[2]})
        assert setup.answered_by == 4

    @in_virtual_time
    async def test_follows_when_nobody_has_answered_for_long(self) -> None:
        """KIP-1102: connected they may be, of use they are not."""
        setup = Setup(config=settings(4, rebootstrap_trigger_s=20.0))
        await setup.pool.connect(1)
        setup.cluster.mute = {1}
        while now() < 20.0:
            with pytest.raises(ConnectionFailed):
                await setup.ask({1: NODES[1]})
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 4
        setup.cluster.mute = set()
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1, "there was an answer, so it starts over"

    @in_virtual_time
    async def test_does_not_follow_from_silence_when_nothing_was_asked(self) -> None:
        setup = Setup(config=settings(4, rebootstrap_trigger_s=20.0))
        await setup.pool.connect(1)
        await setup.ask({1: NODES[1]})
        await asyncio.sleep(1000.0)
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1
