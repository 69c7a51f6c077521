from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer.batching.batch import Batch, RecordFuture
from aioproducer.batching.persistence import DENIALS_BELIEVED, SEQUENCE_REFUSALS
from aioproducer.batching.state import BatchState
from aioproducer.errors import (
    BrokerError,
    CorruptMessage,
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
from tests.unit.sender.answers_bench import Bench, accepted, refused
from tests.unit.workbench import NODE, TOPIC, doubt, lost


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
        assert bench.updater.refreshes == []

    @pytest.mark.parametrize("kind", [NotLeaderOrFollower, KafkaStorageError])
    @in_virtual_time
    async def test_a_leader_that_is_none_is_doubted(self, kind: type[BrokerError]) -> None:
        bench = Bench(partitions=3)
        bench.recognise(3)
        batches = [bench.fill(b"x", partition=partition) for partition in range(3)]
        assert bench.drain() == batches
        bench.take(batches, refused(kind), accepted(0, 1), refused(kind, 2))
        assert bench.updater.doubted == [(NODE, {TOPIC: [0, 2]})]

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


class TestSequenceRefusedAgainAndAgain:
    """A batch of uncertain fate that a leader does not recognise."""

    @staticmethod
    def lost_behind_a_failure(bench: Bench) -> tuple[Batch, RecordFuture]:
        bench.recognise(1)
        doubtful, _ = bench.sent(b"doubtful")
        behind, [future] = bench.sent(b"behind")
        doubt(doubtful)
        bench.handler.take(bench.connection.real, [behind], lost())
        bench.refuse(doubtful, TopicAuthorizationFailed)
        return bench.resend(), future

    @in_virtual_time
    async def test_a_batch_is_believed_to_be_missing_once_the_broker_has_said_so_several_times(self) -> None:
        bench = Bench()
        behind, future = self.lost_behind_a_failure(bench)
        stamp = behind.stamp
        for _ in range(DENIALS_BELIEVED - 1):
            bench.refuse(behind, OutOfOrderSequenceNumber)
            assert bench.resend() is behind
            assert (behind.stamp, behind.possibly_persisted) == (stamp, True)
        bench.refuse(behind, OutOfOrderSequenceNumber)
        assert (behind.stamp, behind.persistence.possible) == (None, False)
        assert bench.resend() is behind
        bench.take([behind], accepted(0))
        assert future.result().offset == 0

    @in_virtual_time
    async def test_any_other_answer_in_between_begins_the_count_again(self) -> None:
        bench = Bench()
        behind, _ = self.lost_behind_a_failure(bench)
        for kind in [
            OutOfOrderSequenceNumber,
            OutOfOrderSequenceNumber,
            NotEnoughReplicas,
        ] * DENIALS_BELIEVED:
            bench.refuse(behind, kind)
            assert bench.resend() is behind
            assert behind.possibly_persisted

    @pytest.mark.parametrize("kind", SEQUENCE_REFUSALS)
    @in_virtual_time
    async def test_so_it_is_where_nothing_before_it_has_failed(self, kind: type[BrokerError]) -> None:
        bench = Bench()
        bench.recognise(1)
        batch, [future] = bench.sent()
        bench.handler.take(bench.connection.real, [batch], lost())
        for _ in range(DENIALS_BELIEVED):
            assert batch.possibly_persisted
            assert bench.resend() is batch
            bench.refuse(batch, kind)
        assert (batch.stamp, batch.persistence.possible) == (None, False)
        assert bench.resend() is batch
        bench.take([batch], accepted(0))
        assert future.result().offset == 0

    @in_virtual_time
    async def test_for_one_that_is_not_the_oldest_it_does_not_count(self) -> None:
        """Its turn has not come: the one before it is still to be sent again."""
        bench = Bench()
        bench.recognise(1)
        oldest, _ = bench.sent(b"oldest")
        behind, _ = bench.sent(b"behind")
        doubt(behind)
        bench.handler.take(bench.connection.real, [oldest], lost())
        bench.refuse(behind, OutOfOrderSequenceNumber)
        assert bench.resend() is oldest
        await asyncio.sleep(1.0)
        bench.take([oldest], accepted(0))
        for _ in range(DENIALS_BELIEVED - 1):
            assert bench.resend() is behind
            bench.refuse(behind, OutOfOrderSequenceNumber)
            assert behind.possibly_persisted
        assert bench.resend() is behind
        bench.refuse(behind, OutOfOrderSequenceNumber)
        assert not behind.persistence.possible
