from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer.batching.batch import Batch
from aioproducer.batching.state import BatchState
from aioproducer.cluster.snapshot import Broker, LeaderHint
from aioproducer.errors import (
    BrokerError,
    ConnectionFailed,
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidRecord,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    ProtocolError,
    RequestTimedOut,
    TopicAuthorizationFailed,
)
from aioproducer.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.sender import describe
from aioproducer.sender.answers import AnswerHandler
from aioproducer.testing import in_virtual_time
from tests.unit.workbench import NODE, TOPIC, FakeConnection, Workbench, lost, sender_settings


class Bench(Workbench):
    """With an answer handler on top."""

    def __init__(self, *, partitions: int = 1, retries: int = 2**31 - 1, idempotent: bool = True) -> None:
        super().__init__(partitions=partitions, idempotent=idempotent)
        self.connection = FakeConnection()
        self.handler = AnswerHandler(sender_settings(retries=retries), self.settler, self.refresher.real)

    def take(self, batches: list[Batch], *answers: PartitionProduceResponse, throttle_ms: int = 0) -> None:
        response = ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=list(answers))],
            throttle_time_ms=throttle_ms,
        )
        self.handler.take(self.connection.real, batches, response)

    def refuse(self, batch: Batch, kind: type[BrokerError], message: str | None = None) -> None:
        self.take([batch], refused(kind, batch.queue.partition, message=message))

    def resend(self) -> Batch:
        """Drain the one batch that may be sent now, as if its backoff were over."""
        self.accumulator.schedule.collect(self.loop.time() + 1_000, hurry=True)
        [batch] = self.accumulator.schedule.drain(1, self.loop.time() + 1_000, 2**31)
        batch.unanswered = True
        return batch


def accepted(
    base_offset: int = 0, partition: int = 0, *, log_append_time_ms: int = -1
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition, error_code=0, base_offset=base_offset, log_append_time_ms=log_append_time_ms
    )


def refused(
    kind: type[BrokerError] | int,
    partition: int = 0,
    *,
    message: str | None = None,
    records: dict[int, str | None] | None = None,
    leader: tuple[int, int] = (-1, -1),
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition,
        error_code=kind if isinstance(kind, int) else kind.code,
        base_offset=-1,
        error_message=message,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in (records or {}).items()
        ],
        current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
    )


class TestDelivered:
    @in_virtual_time
    async def test_each_record_gets_its_offset(self) -> None:
        bench = Bench()
        batch, futures = bench.sent(b"a", b"b")
        bench.take([batch], accepted(7))
        assert [future.result().offset for future in futures] == [7, 8]
        assert batch.state is BatchState.DELIVERED
        assert not batch.possibly_persisted, "nothing of it is out any more"

    @in_virtual_time
    async def test_the_brokers_time_is_used_where_it_is_the_brokers(self) -> None:
        bench = Bench()
        batch, [future] = bench.sent()
        bench.take([batch], accepted(log_append_time_ms=123))
        assert future.result()[-2:] == (123, True)

    @in_virtual_time
    async def test_a_duplicate_is_delivered_at_an_unknown_offset(self) -> None:
        bench = Bench()
        batch, futures = bench.sent(b"a", b"b")
        bench.refuse(batch, DuplicateSequenceNumber)
        assert [future.result().offset for future in futures] == [-1, -1]

    @in_virtual_time
    async def test_each_partition_has_its_own_outcome(self) -> None:
        bench = Bench(partitions=2)
        batches = [bench.fill(partition=0), bench.fill(partition=1)]
        assert bench.drain() == batches
        bench.take(batches, refused(TopicAuthorizationFailed, 1), accepted(5, 0))
        assert [batch.state for batch in batches] == [BatchState.DELIVERED, BatchState.FAILED]


class TestRetried:
    @in_virtual_time
    async def test_it_waits_for_its_backoff_under_the_same_sequence(self) -> None:
        bench = Bench()
        batch, [future] = bench.sent()
        stamp = batch.stamp
        bench.refuse(batch, NotEnoughReplicas)
        assert (batch.state, batch.retry_at, batch.stamp) == (BatchState.BACKOFF, 0.1, stamp)
        assert bench.resend() is batch
        bench.refuse(batch, NotEnoughReplicas)
        assert batch.retry_at == 0.2
        assert not future.done()
        assert bench.refresher.refreshes == []

    @pytest.mark.parametrize("kind", [NotLeaderOrFollower, KafkaStorageError])
    @in_virtual_time
    async def test_a_leader_that_is_none_is_doubted(self, kind: type[BrokerError]) -> None:
        bench = Bench(partitions=3)
        bench.recognise(3)
        batches = [bench.fill(b"x", partition=partition) for partition in range(3)]
        assert bench.drain() == batches
        bench.take(batches, refused(kind), accepted(0, 1), refused(kind, 2))
        assert bench.refresher.doubted == [(NODE, {TOPIC: [0, 2]})]

    @pytest.mark.parametrize(
        ("kind", "uncertain"), [(NotEnoughReplicas, False), (CorruptMessage, False), (RequestTimedOut, True)]
    )
    @in_virtual_time
    async def test_only_some_answers_leave_open_whether_it_is_in_the_log(
        self, kind: type[BrokerError], uncertain: bool
    ) -> None:
        bench = Bench()
        batch, _ = bench.sent()
        bench.refuse(batch, kind)
        assert batch.possibly_persisted is uncertain

    @in_virtual_time
    async def test_uncertainty_survives_a_later_refusal(self) -> None:
        bench = Bench()
        batch, [future] = bench.sent()
        bench.refuse(batch, RequestTimedOut)
        bench.resend()
        bench.refuse(batch, TopicAuthorizationFailed)
        error = future.exception()
        assert isinstance(error, TopicAuthorizationFailed)
        assert error.possibly_persisted

    @in_virtual_time
    async def test_it_fails_once_the_retries_are_used_up(self) -> None:
        bench = Bench(retries=1)
        batch, [future] = bench.sent()
        bench.refuse(batch, NotEnoughReplicas)
        bench.resend()
        bench.refuse(batch, NotEnoughReplicas)
        error = future.exception()
        assert isinstance(error, NotEnoughReplicas)
        assert "2 attempts" in str(error)
        assert not error.possibly_persisted


class TestFailed:
    @in_virtual_time
    async def test_each_record_has_an_error_of_its_own_with_the_shared_cause(self) -> None:
        bench = Bench()
        batch, futures = bench.sent(b"a", b"b")
        bench.refuse(batch, TopicAuthorizationFailed, message="not for you")
        first, second = [future.exception() for future in futures]
        assert first is not second
        assert isinstance(first, TopicAuthorizationFailed)
        assert first.__cause__ is not None
        assert first.__cause__ is second.__cause__  # type: ignore[union-attr]
        assert str(first).endswith("not for you")
        assert not first.possibly_persisted

    @in_virtual_time
    async def test_without_the_brokers_words_it_has_ours(self) -> None:
        bench = Bench()
        batch, [future] = bench.sent()
        bench.refuse(batch, TopicAuthorizationFailed)
        assert str(TopicAuthorizationFailed.__doc__) in str(future.exception())

    @in_virtual_time
    async def test_a_code_nobody_knows_fails_the_batch_and_leaves_it_open(self) -> None:
        bench = Bench()
        batch, [future] = bench.sent()
        bench.take([batch], refused(4711))
        error = future.exception()
        assert isinstance(error, BrokerError)
        assert error.code == 4711
        assert error.possibly_persisted

    @in_virtual_time
    async def test_records_refused_by_name_fail_and_the_others_go_again(self) -> None:
        bench = Bench()
        batch, futures = bench.sent(b"a", b"b", b"c", b"d")
        bench.take(
            [batch], refused(InvalidRecord, message="bad", records={1: "no key", 3: None, 9: "whose?"})
        )
        failures = [future.exception() if future.done() else None for future in futures]
        assert [type(each) for each in failures] == [type(None), InvalidRecord, type(None), InvalidRecord]
        assert str(failures[1]).endswith("no key")
        assert str(failures[3]).endswith("bad")
        rest = bench.resend()
        assert rest.columns.values == [b"a", b"c"]
        bench.take([rest], accepted(3))
        assert [futures[0].result().offset, futures[2].result().offset] == [3, 4]


class TestTakenApart:
    @in_virtual_time
    async def test_a_batch_that_is_too_large_goes_in_two(self, caplog: pytest.LogCaptureFixture) -> None:
        bench = Bench()
        batch, futures = bench.sent(b"a", b"b")
        with caplog.at_level(logging.WARNING):
            bench.refuse(batch, MessageTooLarge)
        assert "batch.split partition=orders-0 records=2" in caplog.text
        offsets = iter((5, 6))
        for value in (b"a", b"b"):
            part = bench.resend()
            assert part.columns.values == [value]
            bench.take([part], accepted(next(offsets)))
        assert [future.result().offset for future in futures] == [5, 6]

    @in_virtual_time
    async def test_a_batch_refused_for_its_sequence_gets_another(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = Bench()
        batch, _ = bench.sent()
        before = batch.stamp
        with caplog.at_level(logging.WARNING):
            bench.refuse(batch, OutOfOrderSequenceNumber)
        assert "batch.restamp partition=orders-0" in caplog.text
        assert bench.resend() is batch
        assert before is not None
        assert batch.stamp is not None
        assert batch.stamp.identity.epoch == before.identity.epoch + 1

    @in_virtual_time
    async def test_out_of_order_behind_one_that_is_resent_keeps_its_sequence(self) -> None:
        bench = Bench()
        first, _ = bench.sent(b"a")
        bench.take([first], accepted(0))
        first, _ = bench.sent(b"b")
        second, _ = bench.sent(b"c")
        stamp = second.stamp
        bench.refuse(first, NotEnoughReplicas)
        bench.refuse(second, OutOfOrderSequenceNumber)
        assert (second.state, second.stamp) == (BatchState.BACKOFF, stamp)

    @in_virtual_time
    async def test_behind_a_refused_record_a_lost_batch_holds_up_nobody(self) -> None:
        bench = Bench()
        bench.recognise(1)
        refused_one, _ = bench.sent(b"bad")
        behind, [future] = bench.sent(b"good")
        bench.refuse(refused_one, TopicAuthorizationFailed)
        stamp = behind.stamp
        bench.handler.take(bench.connection.real, [behind], lost())
        assert bench.resend() is behind
        assert behind.stamp != stamp  # the broker knows the producer, and expects the refused one
        bench.take([behind], accepted(0))
        assert future.result().offset == 0

    @in_virtual_time
    async def test_splitting_uses_up_no_retry(self) -> None:
        bench = Bench(retries=1)
        batch, _ = bench.sent(b"a", b"b", b"c", b"d")
        bench.refuse(batch, MessageTooLarge)
        half = bench.resend()
        bench.refuse(half, MessageTooLarge)
        quarter = bench.resend()
        bench.refuse(quarter, NotEnoughReplicas)
        assert bench.resend() is quarter
        bench.refuse(quarter, NotEnoughReplicas)
        assert quarter.state is BatchState.FAILED


class TestAbandoned:
    @staticmethod
    def abandoned(bench: Bench) -> Batch:
        batch, _ = bench.sent()
        bench.settler.give_up(batch, describe.expired(batch))
        assert batch.state is BatchState.ABANDONED
        return batch

    @in_virtual_time
    async def test_its_delivery_settles_the_sequence(self) -> None:
        bench = Bench()
        batch = self.abandoned(bench)
        bench.take([batch], accepted(0))
        assert batch.state is BatchState.DELIVERED
        assert not batch.queue.sequences.broken

    @pytest.mark.parametrize(
        "kind", [NotEnoughReplicas, MessageTooLarge, InvalidProducerEpoch, TopicAuthorizationFailed]
    )
    @in_virtual_time
    async def test_any_error_ends_it(self, kind: type[BrokerError]) -> None:
        bench = Bench()
        batch = self.abandoned(bench)
        bench.refuse(batch, kind)
        assert batch.state is BatchState.FAILED
        assert batch.queue.sequences.broken
        assert bench.queue().idle

    @in_virtual_time
    async def test_records_refused_by_name_are_not_sent_again(self) -> None:
        bench = Bench()
        batch, _ = bench.sent(b"a", b"b")
        bench.settler.give_up(batch, describe.expired(batch))
        bench.take([batch], refused(InvalidRecord, records={0: "no key"}))
        assert batch.state is BatchState.FAILED

    @in_virtual_time
    async def test_a_lost_connection_ends_it(self) -> None:
        bench = Bench()
        batch = self.abandoned(bench)
        bench.handler.take(bench.connection.real, [batch], lost())
        assert batch.state is BatchState.FAILED


class TestLost:
    @in_virtual_time
    async def test_what_was_in_flight_is_sent_again_and_may_be_in_the_log(self) -> None:
        bench = Bench()
        batch, [future] = bench.sent()
        bench.handler.take(bench.connection.real, [batch], lost())
        assert batch.state is BatchState.BACKOFF
        assert batch.uncertain
        assert not batch.unanswered
        assert isinstance(batch.last_error, ConnectionFailed)
        assert not future.done()
        assert bench.refresher.refreshes == [frozenset({TOPIC})]

    @in_virtual_time
    async def test_what_never_reached_the_socket_is_surely_not_in_the_log(self) -> None:
        bench = Bench()
        batch, _ = bench.sent()
        bench.handler.take(bench.connection.real, [batch], lost(written=False))
        assert not batch.possibly_persisted

    @in_virtual_time
    async def test_bytes_that_make_no_sense_leave_it_open(self) -> None:
        bench = Bench()
        batch, _ = bench.sent()
        bench.handler.take(bench.connection.real, [batch], ProtocolError("garbage"))
        assert batch.possibly_persisted
        assert batch.state is BatchState.BACKOFF

    @in_virtual_time
    async def test_it_fails_once_the_retries_are_used_up(self) -> None:
        bench = Bench(retries=0, idempotent=False)
        batch, [future] = bench.sent()
        bench.handler.take(bench.connection.real, [batch], lost())
        error = future.exception()
        assert isinstance(error, ConnectionFailed)
        assert error.possibly_persisted


class TestNonsense:
    @in_virtual_time
    async def test_an_answer_that_lacks_a_partition_closes_the_connection(self) -> None:
        bench = Bench(partitions=2)
        batches = [bench.fill(partition=0), bench.fill(partition=1)]
        bench.drain()
        for batch in batches:
            batch.unanswered = True
        bench.take(batches, accepted(0, 0))
        assert batches[0].state is BatchState.DELIVERED
        assert batches[1].state is BatchState.BACKOFF
        assert batches[1].uncertain
        assert isinstance(bench.connection.closed_for, ProtocolError)
        assert str(bench.connection.closed_for) == (
            "the answer to Produce lacks orders-1 and has nothing that was not asked for"
        )

    @in_virtual_time
    async def test_an_answer_that_nobody_asked_for_closes_the_connection(self) -> None:
        bench = Bench()
        batch, [future] = bench.sent()
        bench.take([batch], accepted(0, 0), accepted(0, 8), refused(NotEnoughReplicas, 9))
        assert future.result().offset == 0
        assert str(bench.connection.closed_for) == (
            "the answer to Produce lacks nothing and has orders-8, orders-9 that was not asked for"
        )


class TestThrottle:
    @in_virtual_time
    async def test_the_connection_is_muted_for_as_long(self) -> None:
        bench = Bench()
        await asyncio.sleep(1)
        batch, _ = bench.sent()
        bench.take([batch], accepted(), throttle_ms=250)
        assert bench.connection.throttled_until == 1.25

    @in_virtual_time
    async def test_otherwise_it_is_not(self) -> None:
        bench = Bench()
        batch, _ = bench.sent()
        bench.take([batch], accepted())
        assert bench.connection.throttled_until == 0


class TestLeaderHints:
    @in_virtual_time
    async def test_they_are_followed_before_the_batch_is_offered_again(self) -> None:
        bench = Bench()
        batch, _ = bench.sent()
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=TOPIC, partition_responses=[refused(NotLeaderOrFollower, leader=(2, 5))]
                )
            ],
            node_endpoints=[NodeEndpoint(node_id=2, host="b2", port=9092, rack="r")],
        )
        bench.handler.take(bench.connection.real, [batch], response)
        assert bench.refresher.hints == [([LeaderHint(TOPIC, 0, 2, 5)], [Broker(2, "b2", 9092, "r")])]

    @in_virtual_time
    async def test_none_are_taken_from_an_answer_without(self) -> None:
        bench = Bench()
        batch, _ = bench.sent()
        bench.refuse(batch, NotLeaderOrFollower)
        assert bench.refresher.hints == []
