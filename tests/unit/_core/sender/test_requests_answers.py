from __future__ import annotations

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.logfmt import LONGEST_TEXT
from aioproducer._core.metadata.snapshot import Broker, LeaderHint
from aioproducer._core.protocol.produce import (
    BaseOffsets,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.errors import (
    BrokerError,
    ConnectionFailed,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidRecord,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolError,
    TopicAuthorizationFailed,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.sender.answers_rig import Rig, accepted, refused
from tests.unit.floor_rig import TOPIC, late, lost


class TestDelivered:
    @in_virtual_time
    async def test_records_get_their_offsets(self) -> None:
        rig = Rig()
        batch, futures = rig.sent(b"a", b"b")
        rig.take([batch], accepted(7))
        assert [future.result().offset for future in futures] == [7, 8]
        assert batch.state is BatchState.DELIVERED
        assert not batch.possibly_persisted, "nothing of it is out any more"

    @in_virtual_time
    async def test_log_append_time_is_used(self) -> None:
        rig = Rig()
        batch, [future] = rig.sent()
        rig.take([batch], accepted(log_append_time_ms=123))
        assert future.result()[-2:] == (123, True)

    @in_virtual_time
    async def test_acknowledgement_gives_offsets_and_timestamps(self) -> None:
        rig = Rig()
        batch, futures = rig.sent(b"a", b"b")
        rig.acknowledge([batch], p0=(7, 123))
        assert [future.result().offset for future in futures] == [7, 8]
        assert futures[0].result()[-2:] == (123, True)
        assert (batch.state, batch.possibly_persisted) == (BatchState.DELIVERED, False)
        assert rig.connection.closed_for is None

    @in_virtual_time
    async def test_delivery_has_the_time_of_the_read(self) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        rig.handler.take(rig.connection.real, [batch], BaseOffsets(0, {(TOPIC, 0): (7, -1)}), 2.5)
        assert rig.witness.delivered_at == [2.5]

    @in_virtual_time
    async def test_duplicate_is_delivered_at_an_unknown_offset(self) -> None:
        rig = Rig()
        batch, futures = rig.sent(b"a", b"b")
        rig.refuse(batch, DuplicateSequenceNumber)
        assert [future.result().offset for future in futures] == [-1, -1]
        assert rig.witness.delivered_batches == [(batch, -1, -1)]

    @in_virtual_time
    async def test_partitions_have_their_own_outcomes(self) -> None:
        rig = Rig(partitions=2)
        batches = [rig.fill(partition=0), rig.fill(partition=1)]
        assert rig.drain() == batches
        rig.take(batches, refused(TopicAuthorizationFailed, 1), accepted(5, 0))
        assert [batch.state for batch in batches] == [BatchState.DELIVERED, BatchState.FAILED]


class TestAbandoned:
    @staticmethod
    def abandoned(rig: Rig) -> Batch:
        batch, _ = rig.sent()
        rig.completion.fail_or_expire(batch, late(batch))
        assert batch.state is BatchState.EXPIRED_IN_FLIGHT
        return batch

    @in_virtual_time
    async def test_delivery_of_an_expired_batch_settles_the_sequence(self) -> None:
        rig = Rig()
        batch = self.abandoned(rig)
        rig.take([batch], accepted(0))
        assert batch.state is BatchState.DELIVERED
        assert not rig.accumulator.queue(batch).sequences.needs_epoch_bump

    @for_each("kind", [NotEnoughReplicas, MessageTooLarge, InvalidProducerEpoch, TopicAuthorizationFailed])
    @in_virtual_time
    async def test_error_ends_an_expired_batch(self, kind: type[BrokerError]) -> None:
        rig = Rig()
        batch = self.abandoned(rig)
        rig.refuse(batch, kind)
        assert batch.state is BatchState.FAILED
        assert rig.accumulator.queue(batch).sequences.needs_epoch_bump
        assert rig.queue().idle

    @in_virtual_time
    async def test_records_refused_by_name_are_not_sent_again(self) -> None:
        rig = Rig()
        batch, _ = rig.sent(b"a", b"b")
        rig.completion.fail_or_expire(batch, late(batch))
        rig.take([batch], refused(InvalidRecord, records={0: "no key"}))
        assert batch.state is BatchState.FAILED

    @in_virtual_time
    async def test_lost_connection_ends_an_expired_batch(self) -> None:
        rig = Rig()
        batch = self.abandoned(rig)
        rig.handler.take(rig.connection.real, [batch], lost())
        assert batch.state is BatchState.FAILED


class TestLost:
    @in_virtual_time
    async def test_batch_in_flight_is_retried_and_possibly_persisted(self) -> None:
        rig = Rig()
        batch, [future] = rig.sent()
        rig.handler.take(rig.connection.real, [batch], lost())
        assert batch.state is BatchState.BACKOFF
        assert batch.persistence.in_doubt
        assert not batch.persistence.attempt_is_out
        assert isinstance(batch.last_error, ConnectionFailed)
        assert not future.done()
        assert rig.updater.refreshes == [frozenset({TOPIC})]

    @in_virtual_time
    async def test_batch_never_written_is_not_possibly_persisted(self) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        rig.handler.take(rig.connection.real, [batch], lost(written=False))
        assert not batch.possibly_persisted

    @in_virtual_time
    async def test_malformed_answer_leaves_the_batch_uncertain(self) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        rig.handler.take(rig.connection.real, [batch], ProtocolError("garbage"))
        assert batch.possibly_persisted
        assert batch.state is BatchState.BACKOFF

    @in_virtual_time
    async def test_lost_batch_fails_once_the_retries_are_used_up(self) -> None:
        rig = Rig(retries=0, idempotent=False)
        batch, [future] = rig.sent()
        rig.handler.take(rig.connection.real, [batch], lost())
        error = future.exception()
        assert isinstance(error, ConnectionFailed)
        assert error.possibly_persisted
        assert str(error).startswith("orders-0 at b1:9092 (node 1), 1 attempt")


class TestNonsense:
    @in_virtual_time
    async def test_answer_that_lacks_a_partition_closes_the_connection(self) -> None:
        rig = Rig(partitions=3)
        batches = [rig.fill(partition=partition) for partition in range(3)]
        rig.drain()
        for batch in batches:
            batch.persistence.written()
        rig.take(batches, accepted(0, 0))
        assert batches[0].state is BatchState.DELIVERED
        error = rig.connection.closed_for
        assert isinstance(error, ProtocolError)
        assert str(error) == ("answer to Produce: missing orders-1, orders-2, not requested nothing")
        for batch in batches[1:]:
            assert (batch.state, batch.last_error) == (BatchState.BACKOFF, error)
            assert batch.persistence.in_doubt

    @for_each(
        ("answers", "unrequested"),
        [
            ([accepted(0, 8)], "orders-8"),
            ([refused(NotLeaderOrFollower, 9, leader=(2, 5))], "orders-9"),
            ([accepted(0, 8), refused(NotEnoughReplicas, 9)], "orders-8, orders-9"),
        ],
    )
    @in_virtual_time
    async def test_answer_that_was_not_requested_closes_the_connection(
        self, answers: list[PartitionProduceResponse], unrequested: str
    ) -> None:
        rig = Rig()
        batch, [future] = rig.sent()
        rig.take([batch], accepted(0, 0), *answers)
        assert future.result().offset == 0
        assert str(rig.connection.closed_for) == (
            f"answer to Produce: missing nothing, not requested {unrequested}"
        )
        assert (rig.updater.hints, rig.updater.doubted) == ([], []), "such an answer is not trusted"

    @in_virtual_time
    async def test_error_shows_the_start_of_a_long_hostile_answer(self) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        topic = TopicProduceResponse(name="x" * 100_000, partition_responses=[accepted()])
        rig.handler.take(rig.connection.real, [batch], ProduceResponse(responses=[topic]))
        shown = f"{'x' * LONGEST_TEXT}… (100,002 characters)"
        assert str(rig.connection.closed_for) == f"answer to Produce: missing orders-0, not requested {shown}"

    @in_virtual_time
    async def test_acknowledgement_not_requested_closes_the_connection(self) -> None:
        rig = Rig(partitions=2)
        batches = [rig.fill(partition=partition) for partition in range(2)]
        rig.drain()
        for batch in batches:
            batch.persistence.written()
        rig.acknowledge(batches, p0=(0, -1), p8=(0, -1))
        assert [batch.state for batch in batches] == [BatchState.DELIVERED, BatchState.BACKOFF]
        assert str(rig.connection.closed_for) == (
            "answer to Produce: missing orders-1, not requested orders-8"
        )

    @in_virtual_time
    async def test_last_entry_of_a_partition_counts_if_it_appears_twice(self) -> None:
        rig = Rig(partitions=2)
        batches = [rig.fill(partition=partition) for partition in range(2)]
        rig.drain()
        rig.take(
            batches,
            accepted(7, 0),
            refused(TopicAuthorizationFailed, 0),
            refused(TopicAuthorizationFailed, 1),
            accepted(9, 1),
        )
        assert [batch.state for batch in batches] == [BatchState.FAILED, BatchState.DELIVERED]
        assert rig.connection.closed_for is None


class TestLeaderHints:
    @pytest.mark.parametrize("leader", [0, 2])
    @in_virtual_time
    async def test_leader_hints_are_followed_before_the_batch_is_offered(self, leader: int) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=TOPIC, partition_responses=[refused(NotLeaderOrFollower, leader=(leader, 5))]
                )
            ],
            node_endpoints=[NodeEndpoint(node_id=2, host="b2", port=9092, rack="r")],
        )
        rig.handler.take(rig.connection.real, [batch], response)
        assert rig.updater.hints == [([LeaderHint(TOPIC, 0, leader, 5)], [Broker(2, "b2", 9092, "r")])]

    @in_virtual_time
    async def test_answer_without_leader_hints_reports_none(self) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        rig.refuse(batch, NotLeaderOrFollower)
        assert rig.updater.hints == []
