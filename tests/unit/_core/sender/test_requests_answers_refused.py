from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.idempotence import REFUSALS_AS_PROOF
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.protocol.produce import ProduceResponse, TopicProduceResponse
from aioproducer._core.sender.outcomes import PROBABLY_IN_THE_LOG
from aioproducer.errors import (
    BrokerError,
    ConcurrentTransactions,
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidRecord,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    TopicAuthorizationFailed,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.sender.answers_rig import Rig, accepted, refused
from tests.unit.floor_rig import NODE, TOPIC, lost

SENT_ONCE = f"{TOPIC}-0 at b1:9092 (node 1), 1 attempt in 0.000 s"


class TestRetried:
    @for_each(("leader", "retry_at"), [(NODE, 0.1), (NO_LEADER, 0.1), (NODE + 1, 0.0)])
    @in_virtual_time
    async def test_retry_at_a_new_leader_is_immediate(self, leader: int, retry_at: float) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        rig.accumulator.update_topic(TOPIC, [leader])
        rig.refuse(batch, NotLeaderOrFollower)
        assert (batch.state, batch.retry_at) == (BatchState.BACKOFF, retry_at)

    @in_virtual_time
    async def test_retried_batch_keeps_its_sequence_during_its_backoff(self) -> None:
        rig = Rig()
        batch, [future] = rig.sent()
        sequence = batch.sequence
        rig.refuse(batch, NotEnoughReplicas)
        assert (batch.state, batch.retry_at, batch.sequence) == (BatchState.BACKOFF, 0.1, sequence)
        assert rig.resend() is batch
        rig.refuse(batch, NotEnoughReplicas)
        assert batch.retry_at == 0.2
        assert not future.done()
        assert rig.updater.refreshes == []

    @pytest.mark.parametrize("is_recognised", [False, True], ids=["accepted", "recognised"])
    @in_virtual_time
    async def test_retries_are_logged_as_an_outage_with_its_recovery(
        self, is_recognised: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        rig = Rig(partitions=2)
        rig.recognise(2)
        batches = [rig.fill(b"x", partition=partition) for partition in range(2)]
        assert rig.drain() == batches
        rig.take(batches, refused(NotEnoughReplicas), refused(NotEnoughReplicas, 1))
        await asyncio.sleep(1)
        rig.accumulator.schedule.collect(rig.loop.time(), hurry=True)
        assert rig.drain() == batches
        rig.take(batches[:1], accepted(0))
        rig.take(batches[1:], refused(DuplicateSequenceNumber, 1) if is_recognised else accepted(0, 1))
        told = [
            (each.levelname, each.getMessage()) for each in caplog.records if "batch." in each.getMessage()
        ]
        assert [(level, text.split(" backoff_s")[0].split(" times")[0]) for level, text in told] == [
            ("WARNING", f"batch.retry partition={TOPIC}-0 partitions=1 attempt=1"),
            ("DEBUG", f"batch.retry partition={TOPIC}-1 partitions=2 attempt=1"),
            ("INFO", f"batch.recovered partition={TOPIC}-1 attempts=2"),
        ]

    @pytest.mark.parametrize("is_lost", [False, True], ids=["refused", "lost"])
    @in_virtual_time
    async def test_retry_log_has_backoff_deadline_and_error(
        self, is_lost: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = Rig()
        await asyncio.sleep(5)
        batch, _ = rig.sent()
        await asyncio.sleep(1)
        if is_lost:
            rig.handler.take(rig.connection.real, [batch], lost())
        else:
            rig.refuse(batch, NotEnoughReplicas, "too few")
        why = "ConnectionFailed: b1:9092 (node 1): lost" if is_lost else "NotEnoughReplicas: too few"
        assert f'attempt=1 backoff_s=0.100 deadline_in_s=119.0 error="{why}"' in caplog.text

    @in_virtual_time
    async def test_batch_behind_transaction_markers_waits_milliseconds(
        self,
    ) -> None:
        rig = Rig(transactional_id="tx")
        batch, _ = rig.sent()
        rig.refuse(batch, ConcurrentTransactions)
        assert 0.008 <= batch.retry_at <= 0.012

    @in_virtual_time
    async def test_denials_have_their_own_backoffs(self) -> None:
        """The earlier fault has passed, because the broker answers."""
        rig = Rig()
        rig.recognise(1)
        batch, _ = rig.sent()
        for _ in range(3):
            rig.handler.take(rig.connection.real, [batch], lost())
            assert rig.resend() is batch
        pauses = []
        for _ in range(REFUSALS_AS_PROOF - 1):
            rig.refuse(batch, OutOfOrderSequenceNumber)
            pauses.append(batch.retry_at - rig.loop.time())
            assert rig.resend() is batch
        assert pauses == [0.1, 0.2]

    @pytest.mark.parametrize("kind", [NotLeaderOrFollower, KafkaStorageError])
    @in_virtual_time
    async def test_broker_that_is_not_leader_is_reported(self, kind: type[BrokerError]) -> None:
        rig = Rig(partitions=3)
        rig.recognise(3)
        batches = [rig.fill(b"x", partition=partition) for partition in range(3)]
        assert rig.drain() == batches
        rig.take(batches, refused(kind), accepted(0, 1), refused(kind, 2))
        assert rig.updater.doubted == [(NODE, {TOPIC: [0, 2]})]

    @pytest.mark.parametrize(
        ("kind", "uncertain"), [(NotEnoughReplicas, False), (CorruptMessage, False), (RequestTimedOut, True)]
    )
    @in_virtual_time
    async def test_batch_is_possibly_persisted_only_after_some_errors(
        self, kind: type[BrokerError], uncertain: bool
    ) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        rig.refuse(batch, kind)
        assert batch.possibly_persisted is uncertain

    @in_virtual_time
    async def test_uncertainty_survives_a_later_refusal(self) -> None:
        rig = Rig()
        batch, [future] = rig.sent()
        rig.refuse(batch, RequestTimedOut)
        rig.resend()
        rig.refuse(batch, TopicAuthorizationFailed)
        error = future.exception()
        assert isinstance(error, TopicAuthorizationFailed)
        assert error.possibly_persisted

    @in_virtual_time
    async def test_batch_fails_once_the_retries_are_used_up(self) -> None:
        rig = Rig(retries=1)
        batch, [future] = rig.sent()
        rig.refuse(batch, NotEnoughReplicas)
        rig.resend()
        rig.refuse(batch, NotEnoughReplicas)
        error = future.exception()
        assert isinstance(error, NotEnoughReplicas)
        assert "2 attempts" in str(error)
        assert not error.possibly_persisted


class TestFailed:
    @in_virtual_time
    async def test_failed_records_get_an_error_each_with_a_shared_cause(self) -> None:
        rig = Rig()
        batch, futures = rig.sent(b"a", b"b")
        rig.refuse(batch, TopicAuthorizationFailed, message="not for you")
        first, second = [future.exception() for future in futures]
        assert first is not second
        assert isinstance(first, TopicAuthorizationFailed)
        assert first.__cause__ is not None
        assert first.__cause__ is second.__cause__  # type: ignore[union-attr]
        assert str(first) == f"{SENT_ONCE}: not for you"
        assert not first.possibly_persisted
        [(_, records, failure)] = rig.witness.failures
        assert (records, failure.of_record) == (2, False)

    @in_virtual_time
    async def test_error_without_a_broker_message_has_its_docstring(self) -> None:
        rig = Rig()
        batch, [future] = rig.sent()
        rig.refuse(batch, TopicAuthorizationFailed)
        assert str(TopicAuthorizationFailed.__doc__) in str(future.exception())

    @in_virtual_time
    async def test_unknown_error_code_fails_the_batch_as_uncertain(self) -> None:
        rig = Rig()
        batch, [future] = rig.sent()
        rig.take([batch], refused(4711))
        error = future.exception()
        assert isinstance(error, BrokerError)
        assert error.code == 4711
        assert error.possibly_persisted

    @in_virtual_time
    async def test_refused_records_fail_and_the_others_are_sent_again(self) -> None:
        rig = Rig()
        batch, futures = rig.sent(b"a", b"b", b"c", b"d")
        rig.take([batch], refused(InvalidRecord, message="bad", records={0: "no key", 3: None, 4: "whose?"}))
        failures = [future.exception() if future.done() else None for future in futures]
        assert [type(each) for each in failures] == [InvalidRecord, type(None), type(None), InvalidRecord]
        assert str(failures[0]) == f"{SENT_ONCE}: no key"
        assert str(failures[3]) == f"{SENT_ONCE}: bad"
        assert [failure.of_record for *_, failure in rig.witness.failures] == [True, True]
        rest = rig.resend()
        assert rest.columns.values == [b"b", b"c"]
        rig.take([rest], accepted(3))
        assert [futures[1].result().offset, futures[2].result().offset] == [3, 4]

    @in_virtual_time
    async def test_records_beside_a_refused_one_fail_in_a_transaction(self) -> None:
        rig = Rig(transactional_id="tx")
        batch, futures = rig.sent(b"a", b"b")
        rig.take([batch], refused(InvalidRecord, message="bad", records={0: "no key"}))
        assert [str(future.exception()) for future in futures] == [
            f"{SENT_ONCE}: no key",
            f"{SENT_ONCE}: bad",
        ]

    @in_virtual_time
    async def test_transaction_may_continue_without_a_refused_record(self) -> None:
        rig = Rig(transactional_id="tx", passes_refusals=True)
        batch, futures = rig.sent(b"a", b"b")
        rig.take([batch], refused(InvalidRecord, message="bad", records={0: "no key"}))
        assert [future.done() for future in futures] == [True, False]
        assert rig.resend().columns.values == [b"b"]

    @in_virtual_time
    async def test_half_of_an_uncertain_batch_fails_at_a_sequence_error(self) -> None:
        rig = Rig()
        rig.recognise(1)
        batch, futures = rig.sent(b"a", b"b")
        rig.handler.take(rig.connection.real, [batch], lost())
        assert rig.resend() is batch
        rig.refuse(batch, MessageTooLarge)
        rig.refuse(rig.resend(), OutOfOrderSequenceNumber)
        error = futures[0].exception()
        assert isinstance(error, OutOfOrderSequenceNumber)
        assert PROBABLY_IN_THE_LOG in str(error)


class TestTakenApart:
    @in_virtual_time
    async def test_batch_that_is_too_large_is_sent_in_two(self, caplog: pytest.LogCaptureFixture) -> None:
        rig = Rig()
        batch, futures = rig.sent(b"a", b"b")
        with caplog.at_level(logging.WARNING):
            rig.refuse(batch, MessageTooLarge)
        assert caplog.messages == [f"batch.split partition=orders-0 records=2 bytes={batch.size}"]
        offsets = iter((5, 6))
        for value in (b"a", b"b"):
            part = rig.resend()
            assert part.columns.values == [value]
            rig.take([part], accepted(next(offsets)))
        assert [future.result().offset for future in futures] == [5, 6]

    @in_virtual_time
    async def test_batch_refused_for_its_sequence_is_renumbered(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = Rig()
        batch, _ = rig.sent()
        before = batch.sequence
        with caplog.at_level(logging.WARNING):
            rig.refuse(batch, OutOfOrderSequenceNumber)
        assert caplog.messages == [
            f'batch.renumbered partition=orders-0 sequence="{before}" error=OutOfOrderSequenceNumber'
        ]
        assert rig.resend() is batch
        assert before is not None
        assert batch.sequence is not None
        assert batch.sequence.identity.epoch == before.identity.epoch + 1

    @pytest.mark.parametrize("kind", [MessageTooLarge, OutOfOrderSequenceNumber])
    @in_virtual_time
    async def test_refused_batches_are_logged_by_topic(
        self, kind: type[BrokerError], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        rig = Rig(partitions=2)
        audit = rig.learn("audit", NODE)
        for number in range(2):
            rig.fill(b"a", b"b", partition=number)
            _ = rig.accumulator.append(audit, audit[0], b"a", None, (), 1, 20, rig.receipts)
        topics = {TOPIC: [refused(kind, 0), refused(kind, 1)], "audit": [refused(kind, 0)]}
        responses = [TopicProduceResponse(name=name, partition_responses=of) for name, of in topics.items()]
        rig.handler.take(rig.connection.real, rig.drain(), ProduceResponse(responses=responses))
        levels = {each.getMessage().split()[1]: each.levelname for each in caplog.records}
        assert levels == {
            "partition=audit-0": "WARNING",
            f"partition={TOPIC}-0": "WARNING",
            f"partition={TOPIC}-1": "DEBUG",
        }

    @in_virtual_time
    async def test_batch_out_of_order_behind_a_retry_keeps_its_sequence(self) -> None:
        rig = Rig()
        first, _ = rig.sent(b"a")
        rig.take([first], accepted(0))
        first, _ = rig.sent(b"b")
        second, _ = rig.sent(b"c")
        sequence = second.sequence
        rig.refuse(first, NotEnoughReplicas)
        rig.refuse(second, OutOfOrderSequenceNumber)
        assert (second.state, second.sequence) == (BatchState.BACKOFF, sequence)

    @in_virtual_time
    async def test_lost_batch_behind_a_refused_record_is_resent_renumbered(self) -> None:
        rig = Rig()
        rig.recognise(1)
        refused_one, _ = rig.sent(b"bad")
        behind, [future] = rig.sent(b"good")
        rig.refuse(refused_one, TopicAuthorizationFailed)
        sequence = behind.sequence
        rig.handler.take(rig.connection.real, [behind], lost())
        assert rig.resend() is behind
        assert behind.sequence != sequence  # the broker knows the producer, and expects the refused one
        rig.take([behind], accepted(0))
        assert future.result().offset == 0

    @in_virtual_time
    async def test_split_uses_up_no_retry(self) -> None:
        rig = Rig(retries=1)
        batch, _ = rig.sent(b"a", b"b", b"c", b"d")
        rig.refuse(batch, MessageTooLarge)
        half = rig.resend()
        rig.refuse(half, MessageTooLarge)
        quarter = rig.resend()
        rig.refuse(quarter, NotEnoughReplicas)
        assert rig.resend() is quarter
        rig.refuse(quarter, NotEnoughReplicas)
        assert quarter.state is BatchState.FAILED
