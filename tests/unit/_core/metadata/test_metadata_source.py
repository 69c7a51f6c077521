from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.metadata.refresh_schedule import MetadataSettings
from aioproducer._core.metadata.snapshot import Broker
from aioproducer._core.protocol.metadata import MetadataResponse
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ProtocolError,
    RebootstrapRequired,
    UnknownServerError,
)
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.answers import answer, port_of
from tests.unit._core.metadata.fakes import REQUEST_TIMEOUT_S, address_of, now, settings
from tests.unit._core.metadata.metadata_source_rig import NODES, QUESTION, QUICKLY_S, Setup


class TestAsk:
    @in_virtual_time
    async def test_ask_uses_only_the_least_loaded_connection(self) -> None:
        setup = Setup()
        await setup.pool.connect(3, 1)
        await setup.ask()
        assert [node for _, node, _ in setup.cluster.asked] == [3]
        assert setup.pool.attempts == []

    @in_virtual_time
    async def test_ask_alternates_between_connections(self) -> None:
        setup = Setup()
        await setup.pool.connect(3, 1)
        for _ in range(3):
            await setup.ask()
        assert [node for _, node, _ in setup.cluster.asked] == [3, 1, 3]

    @in_virtual_time
    async def test_ask_tries_another_connection_after_silence(self) -> None:
        setup = Setup()
        setup.cluster.mute = {3}
        await setup.pool.connect(3, 1)
        await setup.ask()
        assert now() < 1.1
        assert setup.answered_by == 1

    @in_virtual_time
    async def test_ask_tries_another_connection_after_a_failure(self) -> None:
        setup = Setup()
        setup.cluster.next_answers = [ProtocolError("garbage")]
        await setup.pool.connect(3, 1)
        await setup.ask()
        assert now() < QUICKLY_S
        assert setup.answered_by == 1

    @in_virtual_time
    async def test_ask_connects_when_connected_brokers_stay_silent(self) -> None:
        setup = Setup()
        setup.cluster.mute = {3}
        await setup.pool.connect(3)
        await setup.ask()
        assert now() < 1.1
        assert setup.answered_by in {1, 2}
        await setup.close()

    @in_virtual_time
    async def test_ask_connects_to_a_known_broker_when_none_is_connected(self) -> None:
        setup = Setup()
        await setup.ask()
        assert now() < QUICKLY_S
        assert len(setup.pool.attempts) == 1

    @in_virtual_time
    async def test_ask_connects_to_a_random_known_broker(self) -> None:
        tried = set()
        for _ in range(50):
            setup = Setup()
            await setup.ask()
            tried.add(setup.answered_by)
        assert tried == {1, 2, 3}

    @in_virtual_time
    async def test_ask_dials_the_next_broker_while_one_hangs(self) -> None:
        setup = Setup()
        setup.cluster.deaf = {1, 2}
        await setup.ask()
        assert now() < 0.6
        assert setup.answered_by == 3
        await setup.close()

    @in_virtual_time
    async def test_ask_uses_a_connection_opened_meanwhile(self) -> None:
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
    async def test_ask_does_not_dial_a_broker_during_its_pause(self) -> None:
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
    async def test_ask_dials_few_brokers_and_others_next_time(self) -> None:
        setup = Setup(pause_s=60.0, config=settings(rebootstrap=False))
        brokers = {each: Broker(each, f"b{each}", port_of(each)) for each in range(1, 26)}
        setup.cluster.away = set(brokers)
        for count in (10, 20, 25, 25):
            with pytest.raises(ConnectionFailed, match="refused"):
                await setup.ask(brokers)
            assert len(setup.pool.attempts) == len({node_id for _, node_id in setup.pool.attempts}) == count

    @in_virtual_time
    async def test_ask_does_not_retry_brokers_that_refuse_the_login(self) -> None:
        setup = Setup(pause_s=5.0)
        setup.cluster.refusing = {1, 2, 3}
        for _ in range(2):
            with pytest.raises(AuthenticationFailed, match="refused the login"):
                await setup.ask()
        assert setup.cluster.refused_logins == 3
        await asyncio.sleep(5.0)
        setup.cluster.refusing = set()
        await setup.ask()

    @in_virtual_time
    async def test_ask_fails_when_no_broker_is_reachable_in_time(self) -> None:
        setup = Setup(config=settings(rebootstrap=False))
        setup.cluster.mute = {1, 2, 3}
        await setup.pool.connect(1)
        with pytest.raises(
            ConnectionFailed, match=r"no broker could be asked for metadata: .*b1:9001: no answer yet"
        ):
            await setup.ask()
        assert now() == pytest.approx(REQUEST_TIMEOUT_S, abs=0.1)

    @in_virtual_time
    async def test_ask_tries_another_broker_after_an_error_response(self) -> None:
        setup = Setup(config=settings(rebootstrap=False))
        refusal = answer()
        refusal.error_code = UnknownServerError.code
        setup.cluster.next_answers = [refusal]
        await setup.pool.connect(1, 2)
        assert (await setup.ask()).error_code == 0
        assert setup.answered_by == 2

    @in_virtual_time
    async def test_cancelled_ask_leaves_no_connection(self) -> None:
        setup = Setup()
        setup.cluster.mute = {1}
        await setup.pool.connect(1)
        asking = asyncio.create_task(setup.ask({1: NODES[1]}))
        await asyncio.sleep(2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert len(asyncio.all_tasks()) == 1

    @in_virtual_time
    async def test_ask_tries_throttling_brokers_last(self) -> None:
        for _ in range(5):
            setup = Setup()
            await setup.pool.connect(1)
            setup.cluster.connections[0].throttled_until = now() + 60.0
            await setup.ask()
            assert setup.answered_by in {2, 3}


class TestRebootstrap:
    @in_virtual_time
    async def test_rebootstrap_follows_when_no_known_broker_is_reachable(self) -> None:
        """KIP-899: they may all have moved."""
        setup = Setup(4)
        setup.cluster.away = {1, 2, 3}
        await setup.ask()
        assert setup.answered_by == 4
        assert now() < QUICKLY_S

    @in_virtual_time
    async def test_rebootstrap_follows_when_no_broker_is_known(self) -> None:
        setup = Setup(4)
        await setup.ask({})
        assert setup.answered_by == 4

    @in_virtual_time
    async def test_rebootstrap_is_skipped_when_disabled(self) -> None:
        setup = Setup(config=settings(4, rebootstrap=False, rebootstrap_trigger_s=0.0))
        setup.cluster.away = {1, 2, 3}
        with pytest.raises(ConnectionFailed):
            await setup.ask()
        assert setup.cluster.asked == []

    @in_virtual_time
    async def test_rebootstrap_is_skipped_while_a_broker_is_connected(self) -> None:
        setup = Setup(4)
        setup.cluster.next_answers = [ProtocolError("garbage")]
        await setup.pool.connect(1)
        with pytest.raises(ConnectionFailed):
            await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1

    @in_virtual_time
    async def test_failed_rebootstrap_error_has_the_causes(self) -> None:
        setup = Setup(4)
        setup.cluster.away = {1, 2, 3, 4}
        with pytest.raises(
            ConnectionFailed, match="no bootstrap server could be asked for metadata: b4:9004: refused"
        ):
            await setup.ask()

    @in_virtual_time
    async def test_rebootstrap_follows_a_rebootstrap_required_error(self) -> None:
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
    async def test_rebootstrap_required_error_outweighs_other_failures(self) -> None:
        setup = Setup(4)
        refusal = answer()
        refusal.error_code = RebootstrapRequired.code
        setup.cluster.next_answers = [refusal, ProtocolError("garbage")]
        await setup.pool.connect(1, 2)
        await setup.ask({1: NODES[1], 2: NODES[2]})
        assert setup.answered_by == 4

    @in_virtual_time
    async def test_rebootstrap_follows_a_long_silence_of_connected_brokers(self) -> None:
        """KIP-1102: metadata_recovery_rebootstrap_trigger_ms applies to connected brokers."""
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
    async def test_rebootstrap_timer_runs_only_during_requests(self) -> None:
        setup = Setup(config=settings(4, rebootstrap_trigger_s=20.0))
        await setup.pool.connect(1)
        await setup.ask({1: NODES[1]})
        await asyncio.sleep(1000.0)
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1


def of_cluster(cluster_id: str | None) -> MetadataResponse:
    told = answer()
    told.cluster_id = cluster_id
    return told


class TestAnotherCluster:
    @in_virtual_time
    async def test_answer_closes_the_connection_and_starts_over(self) -> None:
        setup = Setup(4)
        await setup.bootstrap()
        await setup.pool.connect(1)
        connection = setup.cluster.connections[-1]
        setup.cluster.next_answers = [of_cluster("another")]
        assert (await setup.ask({1: NODES[1]})).cluster_id == "c"
        assert setup.answered_by == 4
        assert connection.closed
        assert "belongs to cluster 'another', not 'c'" in str(connection.error)
        await setup.close()

    @pytest.mark.parametrize("config", [settings(4, checks_cluster=False), settings(4)])
    @in_virtual_time
    async def test_cluster_id_may_be_null_or_unchecked(self, config: MetadataSettings) -> None:
        setup = Setup(config=config)
        await setup.bootstrap()
        await setup.pool.connect(1)
        setup.cluster.next_answers = [of_cluster(None if config.checks_cluster else "another")]
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1
        await setup.close()

    @in_virtual_time
    async def test_known_brokers_are_asked_when_bootstrap_is_silent(self) -> None:
        setup = Setup(4)
        await setup.bootstrap()
        await setup.pool.connect(1)
        setup.cluster.away = {4}
        setup.source.start_over(ConnectionFailed("another node"))
        await setup.ask({1: NODES[1]})
        assert setup.answered_by == 1
        assert not setup.source.starts_over
        await setup.close()

    @in_virtual_time
    async def test_bootstrap_prefers_the_known_cluster(self) -> None:
        for _ in range(5):
            setup = Setup(1, 2, 3)
            await setup.bootstrap()
            setup.cluster.next_answers = [of_cluster("another"), of_cluster("another")]
            assert (await setup.bootstrap()).cluster_id == "c"
            assert setup.source.cluster_id == "c"
            await setup.close()

    @in_virtual_time
    async def test_bootstrap_ignores_another_cluster_at_a_broker(self) -> None:
        setup = Setup(4)
        await setup.bootstrap()
        setup.cluster.away, setup.cluster.next_answers = {4}, [of_cluster("another")]
        with pytest.raises(ConnectionFailed, match="b1:9001 belongs to cluster 'another', not 'c'"):
            await setup.source.bootstrap(QUESTION, 60.0, [address_of(1)])
        assert setup.source.cluster_id == "c"
        await setup.close()

    @in_virtual_time
    async def test_bootstrap_adopts_new_cluster_when_the_known_one_is_gone(self) -> None:
        changes: list[tuple[str, str]] = []
        setup = Setup(1, 2, 3)
        setup.source._on_another_cluster = lambda *ids: changes.append(ids)
        await setup.bootstrap()
        setup.cluster.away, setup.cluster.next_answers = {3}, [of_cluster("another"), of_cluster("another")]
        assert (await setup.bootstrap()).cluster_id == "another"
        assert now() < 1
        setup.cluster.away, setup.cluster.deaf = set(), {1, 2}
        setup.cluster.next_answers = [of_cluster("third")]
        began_at = now()
        assert (await setup.bootstrap(now() + 60)).cluster_id == "third"
        assert 5 <= now() - began_at < 7, "a silent server may belong to the known cluster"
        assert changes == [("c", "another"), ("another", "third")]
        await setup.close()


class TestRefused:
    @in_virtual_time
    async def test_rebootstrap_is_skipped_after_refused_logins(self) -> None:
        """Repeated logins would lock the account and have the same outcome."""
        setup = Setup()
        setup.cluster.refusing = {1, 2, 3}
        for _ in range(3):
            with pytest.raises(AuthenticationFailed, match="refused the login"):
                await setup.ask()
        assert setup.cluster.connections == []
        assert len(setup.pool.attempts) == 3
        await setup.close()

    @in_virtual_time
    async def test_ask_succeeds_when_one_broker_accepts_the_login(self) -> None:
        setup = Setup()
        setup.cluster.refusing = {1, 3}
        await setup.ask()
        assert setup.answered_by == 2
        await setup.close()

    @in_virtual_time
    async def test_bootstrap_fails_at_the_first_refused_login(self) -> None:
        setup = Setup(1, 2)
        setup.cluster.refusing, setup.cluster.away = {1}, {2}
        with pytest.raises(AuthenticationFailed):
            await setup.bootstrap()
        assert now() < QUICKLY_S
