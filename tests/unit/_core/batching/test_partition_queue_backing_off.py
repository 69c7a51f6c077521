"""Events that end the backoff of a queue early."""

from __future__ import annotations

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import MOVED_BACKOFF_S, PROMPT_RETRIES
from aioproducer.errors import BrokerError, NotEnoughReplicas, ProducerError, TimeoutReason
from tests.unit._core.batching.partition_queue_rig import Rig
from tests.unit.floor_rig import back_off, lost


class TestPauses:
    @staticmethod
    def backing_off(rig: Rig, *at: float, error: ProducerError | None = None) -> list[Batch]:
        batches = [rig.add() for _ in at]
        for _ in batches:
            _ = rig.take()
        for batch, retry_at in zip(batches, at, strict=True):
            if isinstance(error, BrokerError):
                batch.refused(error, was_next=True)
            elif error is not None:
                batch.connection_lost(error, reached_socket=True)
            back_off(rig.queue, batch, retry_at)
        return batches

    def test_new_leader_ends_backoffs(self) -> None:
        rig = Rig()
        one, other = self.backing_off(rig, 5.0, 0.5)
        assert rig.queue.follow_leader(1.0) == 0.5
        assert (one.retry_at, other.retry_at) == (1.0, 0.5)

    def test_new_leader_shortens_backoffs_after_some_retries(self) -> None:
        rig = Rig()
        [batch] = self.backing_off(rig, 5.0)
        for _ in range(PROMPT_RETRIES):
            batch.back_off(5.0)
        assert rig.queue.follow_leader(1.0) == batch.retry_at == 1.0 + MOVED_BACKOFF_S

    @pytest.mark.parametrize(("retries", "may_go_at"), [(9, 1.0), (10, 1.0 + MOVED_BACKOFF_S)])
    def test_first_ten_retries_are_prompt(self, retries: int, may_go_at: float) -> None:
        rig = Rig()
        batch = rig.add()
        for _ in range(retries):
            batch.back_off(5.0)
        assert rig.queue.may_go_at(batch, 1.0) == may_go_at

    def test_new_leader_ends_the_backoff_of_a_refused_batch(self) -> None:
        rig = Rig()
        batch = rig.add()
        rig.queue.seal(batch)
        batch.back_off(5.0)
        _ = rig.add()
        assert rig.queue.next_batch(1.0) is TimeoutReason.BACKING_OFF
        assert rig.queue.follow_leader(1.0) == 1.0
        assert rig.queue.next_batch(1.0) is batch

    def test_follow_leader_returns_now_without_a_backoff(self) -> None:
        rig = Rig()
        _ = rig.add()
        assert rig.queue.follow_leader(1.0) == 1.0

    def test_connection_shortens_backoffs_after_a_lost_connection(self) -> None:
        rig = Rig()
        [batch] = self.backing_off(rig, 5.0, error=lost())
        assert rig.queue.retry_by(1.0)
        assert batch.retry_at == 1.0
        assert not rig.queue.retry_by(1.0)
        assert not rig.queue.retry_by(2.0)
        assert batch.retry_at == 1.0

    def test_connection_keeps_backoffs_after_a_refusal(self) -> None:
        rig = Rig()
        [batch] = self.backing_off(rig, 5.0, error=NotEnoughReplicas("no"))
        assert not rig.queue.retry_by(1.0)
        assert batch.retry_at == 5.0
