"""With acks=0: written is delivered."""

from __future__ import annotations

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.protocol.produce import BY_NAME
from aioproducer.testing import in_virtual_time
from tests.unit._core.sender.loop_rig import LINGER_S, Rig, advance
from tests.unit.floor_rig import lost, settle


class TestUnacknowledged:
    @in_virtual_time
    async def test_written_is_delivered(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            future = rig.append(b"a")
            await advance(LINGER_S)
            assert future.result().offset == -1
            assert rig.witness.delivered_batches[0][1:] == (-1, -1)
            [request] = rig.connection.unanswered
            assert request.acks == 0
            assert rig.connection.asked_in == [BY_NAME]

    @in_virtual_time
    async def test_next_batch_is_sent_when_the_socket_has_drained(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.fill(b"a")
            await advance(LINGER_S)
            rig.fill(b"b")
            await advance(LINGER_S)
            assert len(rig.connection.unanswered) == 1
            assert [batch.state for batch in rig.queue().batches] == [BatchState.OPEN]
            rig.connection.drains[0].set_result(None)
            await settle()
            assert len(rig.connection.unanswered) == 2

    @in_virtual_time
    async def test_batch_that_waits_for_a_failed_login_is_sent_again(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.connection.full = True
            future = rig.append(b"a")
            await advance(LINGER_S)
            assert rig.connection.unanswered == []
            assert not future.done()
            rig.connection.error = lost(written=False)
            rig.connection.drains[0].set_exception(lost())
            await settle()
            assert not future.done()
            rig.connection.error, rig.connection.full = None, False
            await advance(0.1)
            assert future.result().offset == -1

    @in_virtual_time
    async def test_connection_lost_while_draining_does_not_end_the_sender(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.fill(b"a")
            await advance(LINGER_S)
            rig.connection.drains[0].set_exception(lost())
            await settle()
            assert not rig.running.done()
            rig.fill(b"b")
            await advance(LINGER_S)
            assert len(rig.connection.unanswered) == 2

    @in_virtual_time
    async def test_unwritten_batch_is_sent_again(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.connection.error = lost(written=False)
            future = rig.append(b"a")
            await advance(LINGER_S)
            assert not future.done()
            rig.connection.error = None
            await advance(0.1)
            assert future.result().offset == -1
