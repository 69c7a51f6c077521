"""Batches that may be in the log, and the conclusions from refusals of their sequence."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.batch import Batch, RecordFuture
from aioproducer._core.idempotence import REFUSALS_AS_PROOF, SEQUENCE_REFUSALS
from aioproducer.errors import (
    BrokerError,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    ProducerError,
    TopicAuthorizationFailed,
)
from aioproducer.testing import in_virtual_time
from tests.unit._core.sender.answers_rig import Rig, accepted
from tests.unit.floor_rig import TOPIC, doubt, lost


class TestRepeatedSequenceRefusals:
    """A batch of uncertain fate that a leader does not recognise."""

    @staticmethod
    def lost_behind_a_failure(rig: Rig) -> tuple[Batch, RecordFuture]:
        rig.recognise(1)
        doubtful, _ = rig.sent(b"doubtful")
        behind, [future] = rig.sent(b"behind")
        doubt(doubtful)
        rig.handler.take(rig.connection.real, [behind], lost())
        rig.refuse(doubtful, TopicAuthorizationFailed)
        return rig.resend(), future

    @in_virtual_time
    async def test_batch_is_ruled_out_after_several_refusals(self) -> None:
        rig = Rig()
        behind, future = self.lost_behind_a_failure(rig)
        sequence = behind.sequence
        for _ in range(REFUSALS_AS_PROOF - 1):
            rig.refuse(behind, OutOfOrderSequenceNumber)
            assert rig.resend() is behind
            assert (behind.sequence, behind.possibly_persisted) == (sequence, True)
        rig.refuse(behind, OutOfOrderSequenceNumber)
        assert (behind.sequence, behind.persistence.possible) == (None, False)
        assert rig.resend() is behind
        rig.take([behind], accepted(0))
        assert future.result().offset == 0

    @in_virtual_time
    async def test_other_error_between_refusals_restarts_the_count(self) -> None:
        rig = Rig()
        behind, _ = self.lost_behind_a_failure(rig)
        for kind in [
            OutOfOrderSequenceNumber,
            OutOfOrderSequenceNumber,
            NotEnoughReplicas,
        ] * REFUSALS_AS_PROOF:
            rig.refuse(behind, kind)
            assert rig.resend() is behind
            assert behind.possibly_persisted

    @pytest.mark.parametrize("kind", SEQUENCE_REFUSALS)
    @in_virtual_time
    async def test_refusals_rule_out_a_batch_without_an_earlier_failure(
        self, kind: type[BrokerError]
    ) -> None:
        rig = Rig()
        rig.recognise(1)
        batch, [future] = rig.sent()
        rig.handler.take(rig.connection.real, [batch], lost())
        for _ in range(REFUSALS_AS_PROOF):
            assert batch.possibly_persisted
            assert rig.resend() is batch
            rig.refuse(batch, kind)
        assert (batch.sequence, batch.persistence.possible) == (None, False)
        assert rig.resend() is batch
        rig.take([batch], accepted(0))
        assert future.result().offset == 0

    @in_virtual_time
    async def test_refusals_of_a_batch_that_is_not_the_oldest_do_not_count(self) -> None:
        """An earlier batch has to be sent again first."""
        rig = Rig()
        rig.recognise(1)
        oldest, _ = rig.sent(b"oldest")
        behind, _ = rig.sent(b"behind")
        doubt(behind)
        rig.handler.take(rig.connection.real, [oldest], lost())
        rig.refuse(behind, OutOfOrderSequenceNumber)
        assert rig.resend() is oldest
        await asyncio.sleep(1.0)
        rig.take([oldest], accepted(0))
        for _ in range(REFUSALS_AS_PROOF - 1):
            assert rig.resend() is behind
            rig.refuse(behind, OutOfOrderSequenceNumber)
            assert behind.possibly_persisted
        assert rig.resend() is behind
        rig.refuse(behind, OutOfOrderSequenceNumber)
        assert not behind.persistence.possible


async def resent(rig: Rig) -> Batch:
    """Wait until every backoff is over, and return the next batch sent."""
    await asyncio.sleep(1.0)
    return rig.resend()


class TestSeveralInDoubt:
    """A leader restarted from its snapshot recognises only the last batch of each producer."""

    @staticmethod
    async def denied(rig: Rig, count: int = 3) -> tuple[list[Batch], list[RecordFuture]]:
        """Return *count* batches whose answers were lost; the first has been denied often enough."""
        rig.recognise(1)
        before, _ = rig.sent(b"before")
        rig.take([before], accepted(10))
        sent = [rig.sent(b"%d" % number) for number in range(count)]
        rig.handler.take(rig.connection.real, [batch for batch, _ in sent], lost())
        oldest = sent[0][0]
        for _ in range(REFUSALS_AS_PROOF):
            assert await resent(rig) is oldest
            rig.refuse(oldest, OutOfOrderSequenceNumber)
        assert oldest.persistence.in_doubt
        return [batch for batch, _ in sent], [future for _, [future] in sent]

    @pytest.mark.parametrize("offset", [13, -1])
    @in_virtual_time
    async def test_last_batch_proves_those_before_it(self, offset: int) -> None:
        rig = Rig()
        batches, futures = await self.denied(rig)
        assert await resent(rig) is batches[-1]
        rig.take([batches[-1]], accepted(offset))
        for batch in batches[:-1]:
            assert await resent(rig) is batch
            rig.refuse(batch, OutOfOrderSequenceNumber)
        assert [future.result().offset for future in futures] == [-1, -1, offset]

    @in_virtual_time
    async def test_middle_batch_proves_earlier_ones_and_later_are_resent(self) -> None:
        rig = Rig()
        [first, middle, last], futures = await self.denied(rig)
        assert await resent(rig) is last
        rig.refuse(last, OutOfOrderSequenceNumber)
        assert await resent(rig) is middle
        rig.take([middle], accepted(12))
        assert await resent(rig) is first
        rig.refuse(first, OutOfOrderSequenceNumber)
        stamp = last.sequence
        assert await resent(rig) is last
        assert last.sequence == stamp is not None
        rig.take([last], accepted(13))
        assert [future.result().offset for future in futures] == [-1, 12, 13]

    @in_virtual_time
    async def test_batches_all_denied_are_resent_under_new_sequences(self) -> None:
        rig = Rig()
        batches, futures = await self.denied(rig)
        for batch in reversed(batches):
            assert await resent(rig) is batch
            assert batch.sequence is not None
            rig.refuse(batch, OutOfOrderSequenceNumber)
        assert not any(batch.persistence.possible for batch in batches)
        for offset, batch in enumerate(batches, 11):
            assert await resent(rig) is batch
            assert batch.sequence is not None
            assert batch.sequence.identity.epoch == 1
            rig.take([batch], accepted(offset))
        assert [future.result().offset for future in futures] == [11, 12, 13]

    @in_virtual_time
    async def test_batches_before_one_lost_in_doubt_fail_together(self) -> None:
        rig = Rig()
        [first, second, gone, last], futures = await self.denied(rig, 4)
        assert await resent(rig) is last
        rig.refuse(last, OutOfOrderSequenceNumber)
        assert await resent(rig) is gone
        rig.refuse(gone, TopicAuthorizationFailed)
        assert await resent(rig) is second
        rig.refuse(second, OutOfOrderSequenceNumber)
        assert await resent(rig) is first
        rig.refuse(first, OutOfOrderSequenceNumber)
        for future in futures[:3]:
            error = future.exception()
            assert isinstance(error, ProducerError)
            assert error.possibly_persisted
        for _ in range(REFUSALS_AS_PROOF - 1):
            assert await resent(rig) is last
            assert not futures[3].done()
            rig.refuse(last, OutOfOrderSequenceNumber)
        assert await resent(rig) is last
        assert last.sequence is not None
        assert last.sequence.identity.epoch == 1
        rig.take([last], accepted(11))
        assert futures[3].result().offset == 11

    @in_virtual_time
    async def test_other_failure_leaves_the_batches_in_doubt(self) -> None:
        rig = Rig()
        [_, second, gone, last], futures = await self.denied(rig, 4)
        assert await resent(rig) is last
        rig.refuse(last, OutOfOrderSequenceNumber)
        for batch in (gone, second):
            assert await resent(rig) is batch
            rig.refuse(batch, TopicAuthorizationFailed)
        assert [future.done() for future in futures] == [False, True, True, False]

    @in_virtual_time
    async def test_batch_at_offset_without_room_proves_nothing(self) -> None:
        """The topic was recreated between two answers, so the leader accepts any first batch."""
        rig = Rig()
        [first, _, last], futures = await self.denied(rig)
        assert await resent(rig) is last
        rig.take([last], accepted(0))
        await resent(rig)
        assert not rig.accumulator.queue(first).is_confirmed(first)
        assert not futures[0].done()

    @in_virtual_time
    async def test_new_leader_is_asked_for_the_oldest_again(self) -> None:
        rig = Rig()
        [first, *_], _ = await self.denied(rig)
        rig.accumulator.update_topic(TOPIC, [2])
        rig.accumulator.update_topic(TOPIC, [1])
        assert await resent(rig) is first
        assert first.persistence.sequence_refusals == 0
