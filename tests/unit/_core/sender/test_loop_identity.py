from __future__ import annotations

from aioproducer._core.metadata.metadata_source import ANSWER_TIMEOUT_S, CONNECT_STAGGER_S
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.errors import ClusterAuthorizationFailed, CoordinatorNotAvailable
from aioproducer.testing import in_virtual_time
from tests.fakes import FakeConnection
from tests.unit._core.sender.loop_rig import LINGER_S, Rig, advance
from tests.unit.floor_rig import NODE, TOPIC, settle


class TestIdentity:
    @in_virtual_time
    async def test_producer_id_is_requested_before_the_first_batch(self) -> None:
        async with Rig(identified=False) as rig:
            [asked] = rig.connection.calls
            assert isinstance(asked.request, InitProducerIdRequest)
            batch = rig.fill(b"a")
            await advance(LINGER_S)
            assert len(rig.connection.calls) == 1
            rig.connection.answer(InitProducerIdResponse(error_code=0, producer_id=5, producer_epoch=0))
            await settle()
            assert rig.sent_values() == [[b"a"]]
            assert batch.sequence is not None
            assert batch.sequence.identity == (5, 0)

    @in_virtual_time
    async def test_ready_batch_waits_for_a_new_producer_id(self) -> None:
        async with Rig(connected=()) as rig:
            rig.fill(b"a")
            await advance(LINGER_S)
            rig.identities.leave_cluster()
            rig.pool.connections[NODE] = FakeConnection()
            rig.wakeup.ring()
            await settle()
            [asked] = rig.connection.calls
            assert isinstance(asked.request, InitProducerIdRequest)
            rig.connection.answer(InitProducerIdResponse(error_code=0, producer_id=5, producer_epoch=0))
            await settle()
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_producer_id_is_not_requested_without_idempotence(self) -> None:
        async with Rig(identified=False, idempotent=False) as rig:
            rig.fill(b"a")
            await advance(LINGER_S)
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_silent_broker_is_skipped_after_a_while(self) -> None:
        async with Rig(identified=False, connected=(1, 2)) as rig:
            rig.updater.knows(TOPIC, 1, nodes=(1, 2))
            rig.wakeup.ring()
            await settle()
            asked = [len(connection.calls) for connection in rig.pool.connections.values()]
            assert sum(asked) == 1
            await advance(ANSWER_TIMEOUT_S)
            asked = [len(connection.calls) for connection in rig.pool.connections.values()]
            assert asked == [1, 1]

    @in_virtual_time
    async def test_sender_waits_if_all_brokers_are_silent(self) -> None:
        async with Rig(identified=False) as rig:
            await advance(10 * ANSWER_TIMEOUT_S)
            assert len(rig.connection.calls) == 1
            assert rig.pool.wanted == []

    @in_virtual_time
    async def test_throttling_broker_is_asked_after_its_throttle(self) -> None:
        rig = Rig(identified=False)
        rig.connection.throttled_until = 3.0
        async with rig:
            await advance(2.9)
            assert (rig.connection.calls, rig.pool.wanted) == ([], [])
            await advance(0.1)
            assert len(rig.connection.calls) == 1

    @in_virtual_time
    async def test_connected_leader_without_producer_id_is_not_dialled(self) -> None:
        async with Rig(identified=False) as rig:
            rig.fill()
            await advance(LINGER_S)
            assert rig.pool.wanted == []

    @in_virtual_time
    async def test_brokers_are_dialled_one_after_the_other(self) -> None:
        async with Rig(identified=False, connected=()) as rig:
            rig.updater.knows(TOPIC, 1, nodes=(1, 2, 3))
            for _ in range(3):
                rig.wakeup.ring()  # wakeups do not make dialling faster
                await advance(0.8 * CONNECT_STAGGER_S)
            assert {node for node, _ in rig.pool.wanted} == {1, 2, 3}
            assert len(rig.pool.wanted) == 3

    @in_virtual_time
    async def test_new_connection_is_asked_immediately(self) -> None:
        async with Rig(identified=False, connected=()) as rig:
            rig.pool.connections[NODE] = FakeConnection()
            rig.wakeup.ring()
            await settle()
            assert len(rig.connection.calls) == 1
            assert rig.loop.time() == 0

    @in_virtual_time
    async def test_sender_dials_nothing_before_a_broker_is_known(self) -> None:
        async with Rig(identified=False, connected=(), partitions=0) as rig:
            await advance(10)
            assert rig.pool.wanted == []

    @in_virtual_time
    async def test_retriable_failure_is_asked_again(self) -> None:
        async with Rig(identified=False) as rig:
            future = rig.append()
            await advance(LINGER_S)
            rig.connection.answer(
                InitProducerIdResponse(
                    error_code=CoordinatorNotAvailable.code, producer_id=-1, producer_epoch=-1
                )
            )
            await settle()
            assert rig.connection.calls == []
            await advance(0.1)
            assert len(rig.connection.calls) == 1
            assert not future.done()
            assert rig.completion.limits.over("producer_id.failed", "", "limits of the producer are used")

    @in_virtual_time
    async def test_refusal_fails_only_ready_batches(self) -> None:
        async with Rig(identified=False, partitions=2, batching={"linger_s": 1.0}) as rig:
            due = rig.append(partition=0)
            await advance(0.5)
            lingering = rig.append(partition=1)
            await advance(0.5)
            rig.connection.answer(
                InitProducerIdResponse(
                    error_code=ClusterAuthorizationFailed.code, producer_id=-1, producer_epoch=-1
                )
            )
            await settle()
            error = due.exception()
            assert isinstance(error, ClusterAuthorizationFailed)
            assert not error.possibly_persisted
            assert not lingering.done()
