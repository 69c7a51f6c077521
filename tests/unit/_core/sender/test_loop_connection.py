"""The loop of the sender and nodes without a connection."""

from __future__ import annotations

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.net.pool import REFUSAL_TIMEOUT_S, RefusedLogins
from aioproducer.errors import AuthenticationFailed, UnsupportedVersion
from aioproducer.testing import in_virtual_time
from tests.fakes import FakeConnection
from tests.unit._core.sender.loop_rig import LINGER_S, Rig, advance
from tests.unit.floor_rig import NODE, TOPIC, lost, settle


class TestWithoutConnection:
    @in_virtual_time
    async def test_sender_connects_to_the_leader(self) -> None:
        async with Rig(connected=()) as rig:
            rig.fill()
            await advance(LINGER_S)
            assert rig.pool.wanted[-1] == (NODE, Address("b1", 9092))
            rig.pool.connections[NODE] = FakeConnection()
            rig.wakeup.ring()
            await settle()
            assert len(rig.connection.calls) == 1

    @in_virtual_time
    async def test_sender_reconnects_when_the_backoff_is_over(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.backing_off_until[NODE] = 0.5
            rig.fill()
            await advance(LINGER_S)
            tried = len(rig.pool.wanted)
            await advance(0.4)
            assert len(rig.pool.wanted) == tried
            rig.pool.backing_off_until.clear()
            await advance(0.1)
            assert len(rig.pool.wanted) == tried + 1

    @in_virtual_time
    async def test_leader_that_refuses_logins_for_long_fails_its_batches(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE] = RefusedLogins(
                AuthenticationFailed("wrong password", mechanism="PLAIN"), 0.0
            )
            rig.pool.backing_off_until[NODE] = 60.0
            patient = rig.append(b"a")
            await advance(REFUSAL_TIMEOUT_S - 0.1)
            assert not patient.done()
            await advance(0.1)
            error = patient.exception()
            assert isinstance(error, AuthenticationFailed)
            assert "orders-0: wrong password" in str(error)
            assert not error.possibly_persisted
            late = rig.append(b"b")
            await advance(LINGER_S)
            assert isinstance(late.exception(), AuthenticationFailed)

    @in_virtual_time
    async def test_record_without_producer_id_fails_when_leader_refuses(self) -> None:
        async with Rig(connected=(), identified=False) as rig:
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            rig.pool.backing_off_until[NODE] = 60.0
            refused = rig.append(b"a")
            await advance(REFUSAL_TIMEOUT_S)
            assert isinstance(refused.exception(), AuthenticationFailed)

    @in_virtual_time
    async def test_new_record_waits_for_the_attempt_on_its_way(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), -60.0)
            waiting = rig.append(b"a")
            await advance(REFUSAL_TIMEOUT_S - 0.1)
            assert not waiting.done()
            await advance(0.1)
            assert isinstance(waiting.exception(), AuthenticationFailed)
            waiting = rig.append(b"b")
            await advance(LINGER_S)
            rig.pool.connections[NODE] = FakeConnection()
            rig.wakeup.ring()
            await settle()
            rig.accept()
            await settle()
            assert waiting.exception() is None

    @in_virtual_time
    async def test_refused_login_is_retried_after_its_backoff(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            rig.pool.backing_off_until[NODE] = 0.5
            rig.fill()
            await advance(0.4)
            tried = len(rig.pool.wanted)
            rig.pool.backing_off_until.clear()
            await advance(0.1)
            assert len(rig.pool.wanted) == tried + 1

    @in_virtual_time
    async def test_refused_login_fails_only_ready_batches_of_its_broker(self) -> None:
        async with Rig(partitions=0, connected=(), batching={"linger_s": 60.0}) as rig:
            rig.learn(TOPIC, NODE, NODE, NODE + 1)
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            refused, gathering, elsewhere = [rig.append(partition=each) for each in range(3)]
            for each in (0, 2):
                batch = rig.queue(each).open
                assert batch is not None
                rig.accumulator.seal(batch, rig.loop.time())
            await advance(REFUSAL_TIMEOUT_S)
            assert isinstance(refused.exception(), AuthenticationFailed)
            assert not gathering.done()
            assert not elsewhere.done()

    @in_virtual_time
    async def test_refused_login_that_ends_in_time_fails_no_batch(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            delivered = rig.append(b"a")
            await advance(REFUSAL_TIMEOUT_S - 0.1)
            rig.pool.refused.clear()
            rig.pool.connections[NODE] = FakeConnection()
            rig.wakeup.ring()
            await settle()
            rig.accept()
            await settle()
            assert delivered.exception() is None

    @in_virtual_time
    async def test_refused_login_of_another_broker_fails_no_batch(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE + 1] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            waiting = rig.append(b"a")
            await advance(REFUSAL_TIMEOUT_S + 1)
            assert not waiting.done()

    @in_virtual_time
    async def test_unknown_leader_refreshes_metadata(self) -> None:
        async with Rig(connected=()) as rig:
            rig.updater.snapshot = MetadataSnapshot()
            rig.fill()
            await advance(LINGER_S)
            assert rig.pool.wanted == []
            assert rig.updater.refreshes[-1] is None

    @in_virtual_time
    async def test_partition_without_a_leader_refreshes_its_topic(self) -> None:
        async with Rig() as rig:
            rig.learn("lost", -1)
            queues = rig.accumulator.topics["lost"]
            _ = rig.accumulator.append(queues, queues[0], b"v", None, (), 1, 20, rig.receipts)
            await advance(LINGER_S)
            assert rig.updater.refreshes[-1] == frozenset({"lost"})
            assert rig.connection.calls == []

    @in_virtual_time
    async def test_connection_lost_by_a_write_gets_no_further_request(self) -> None:
        """Without a backoff the batch is due again at once: to try the same connection would never end."""
        async with Rig(retry_backoff=Backoff(0.0, 0.0)) as rig:

            def break_off(*_: object, **__: object) -> None:
                rig.connection.closed = True
                raise lost(written=False)

            rig.connection.call = break_off  # type: ignore[method-assign]
            batch = rig.fill()
            await advance(LINGER_S)
            assert batch.state is BatchState.BACKOFF
            assert not batch.possibly_persisted
            assert batch.attempts == 1
            # In the turn that has failed it, and in the one that it asked for.
            assert rig.pool.wanted == [(NODE, Address("b1", 9092))] * 2

    @in_virtual_time
    async def test_broker_without_a_supported_version_fails_the_batch(self) -> None:
        async with Rig() as rig:
            rig.connection.error = UnsupportedVersion("Produce: too old")
            future = rig.append()
            await advance(LINGER_S)
            error = future.exception()
            assert isinstance(error, UnsupportedVersion)
            assert str(error).startswith("orders-0 at b1:9092 (node 1), ")
            assert not error.possibly_persisted

    @in_virtual_time
    async def test_closed_connection_of_a_full_broker_is_replaced(self) -> None:
        batching = {"linger_s": 0.0, "linger_is_adaptive": True}
        async with Rig(partitions=2, max_in_flight=1, batching=batching) as rig:
            rig.fill()
            await settle()
            rig.fill(b"waits", partition=1)
            await settle()
            assert rig.pool.wanted == []
            rig.connection.close(lost())
            await settle()
            assert rig.pool.wanted == [(NODE, Address("b1", 9092))]
            assert rig.accumulator.latencies[NODE].is_idle
            assert rig.loop.time() == 0


class TestConnected:
    @in_virtual_time
    async def test_connection_shortens_the_backoff_after_a_lost_connection(self) -> None:
        async with Rig() as rig:
            rig.fill()
            await advance(LINGER_S)
            for _ in range(5):  # pauses grow from 0.1 to 1 s
                rig.connection.answer(lost())
                await advance(1.0)
            rig.connection.answer(lost())
            await advance(0.2)
            assert rig.sent_values() == []
            rig.sender.connected(NODE)
            await advance(0.09)
            assert rig.sent_values() == []
            await advance(0.01)
            assert rig.sent_values() == [[b"value"]]
