from __future__ import annotations

from aioproducer.errors import ClusterAuthorizationFailed, CoordinatorNotAvailable
from aioproducer.metadata.source import ANSWER_PATIENCE_S, CONNECT_STAGGER_S
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.testing import in_virtual_time
from tests.unit.sender.loop_bench import LINGER_S, Bench, pass_time
from tests.unit.workbench import NODE, TOPIC, FakeConnection, settle


class TestIdentity:
    @in_virtual_time
    async def test_it_is_asked_for_before_anything_is_sent(self) -> None:
        async with Bench(identified=False) as bench:
            [asked] = bench.connection.calls
            assert isinstance(asked.request, InitProducerIdRequest)
            batch = bench.fill(b"a")
            await pass_time(LINGER_S)
            assert len(bench.connection.calls) == 1
            bench.connection.answer(InitProducerIdResponse(error_code=0, producer_id=5, producer_epoch=0))
            await settle()
            assert bench.sent_values() == [[b"a"]]
            assert batch.stamp is not None
            assert batch.stamp.identity == (5, 0)

    @in_virtual_time
    async def test_without_idempotence_nobody_asks(self) -> None:
        async with Bench(identified=False, idempotent=False) as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            assert bench.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_a_silent_node_is_passed_over_after_a_while(self) -> None:
        async with Bench(identified=False, connected=(1, 2)) as bench:
            bench.updater.knows(TOPIC, 1, nodes=(1, 2))
            bench.wakeup.ring()
            await settle()
            asked = [len(connection.calls) for connection in bench.pool.connections.values()]
            assert sum(asked) == 1
            await pass_time(ANSWER_PATIENCE_S)
            asked = [len(connection.calls) for connection in bench.pool.connections.values()]
            assert asked == [1, 1]

    @in_virtual_time
    async def test_when_all_are_silent_nothing_is_to_be_done_but_wait(self) -> None:
        async with Bench(identified=False) as bench:
            await pass_time(10 * ANSWER_PATIENCE_S)
            assert len(bench.connection.calls) == 1
            assert bench.pool.wanted == []

    @in_virtual_time
    async def test_without_a_connection_one_after_the_other_is_dialled(self) -> None:
        async with Bench(identified=False, connected=()) as bench:
            bench.updater.knows(TOPIC, 1, nodes=(1, 2, 3))
            for _ in range(3):
                bench.wakeup.ring()  # whatever else happens, they are dialled no faster
                await pass_time(0.8 * CONNECT_STAGGER_S)
            assert {node for node, _ in bench.pool.wanted} == {1, 2, 3}
            assert len(bench.pool.wanted) == 3

    @in_virtual_time
    async def test_a_new_connection_is_asked_at_once(self) -> None:
        async with Bench(identified=False, connected=()) as bench:
            bench.pool.connections[NODE] = FakeConnection()
            bench.wakeup.ring()
            await settle()
            assert len(bench.connection.calls) == 1
            assert bench.loop.time() == 0

    @in_virtual_time
    async def test_before_any_broker_is_known_nothing_happens(self) -> None:
        async with Bench(identified=False, connected=(), partitions=0) as bench:
            await pass_time(10)
            assert bench.pool.wanted == []

    @in_virtual_time
    async def test_a_failure_that_may_pass_is_asked_again(self) -> None:
        async with Bench(identified=False) as bench:
            future = bench.append()
            await pass_time(LINGER_S)
            bench.connection.answer(
                InitProducerIdResponse(
                    error_code=CoordinatorNotAvailable.code, producer_id=-1, producer_epoch=-1
                )
            )
            await settle()
            assert bench.connection.calls == []
            await pass_time(0.1)
            assert len(bench.connection.calls) == 1
            assert not future.done()

    @in_virtual_time
    async def test_a_refusal_fails_what_was_to_be_sent_and_no_more(self) -> None:
        async with Bench(identified=False, partitions=2, batching={"linger_s": 1.0}) as bench:
            due = bench.append(partition=0)
            await pass_time(0.5)
            lingering = bench.append(partition=1)
            await pass_time(0.5)
            bench.connection.answer(
                InitProducerIdResponse(
                    error_code=ClusterAuthorizationFailed.code, producer_id=-1, producer_epoch=-1
                )
            )
            await settle()
            error = due.exception()
            assert isinstance(error, ClusterAuthorizationFailed)
            assert not error.possibly_persisted
            assert not lingering.done()
