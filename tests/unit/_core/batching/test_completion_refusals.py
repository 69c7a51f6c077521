"""Records that a broker refuses for their content, in transactions and outside."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.idempotence import BatchSequence
from aioproducer.errors import DeliveryTimeout, InvalidRecord
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.completion_rig import BUMPED, LATE, SPOILT, errors, next_sequence, offsets
from tests.unit.floor_rig import FIRST, FloorRig

REFUSED = Failure(InvalidRecord, "refused", of_record=True)


class Transaction(FloorRig):
    """Floor of a transaction, which marks the failures that it receives."""

    def __init__(self, *, passes_refusals: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.heard: list[Failure] = []
        self.completion = BatchCompletion(
            self.accumulator, observer=self.witness, on_failure=self._fail, passes_refusals=passes_refusals
        )

    def _fail(self, failure: Failure) -> Failure:
        self.heard.append(failure)
        return failure._replace(abortable=True)


@in_virtual_time
async def test_passed_refusal_leaves_its_sequence_to_the_next_batch() -> None:
    rig = Transaction(passes_refusals=True)
    batch, [future] = rig.sent()
    rig.completion.fail(batch, REFUSED)
    assert errors([future]) == [InvalidRecord]
    assert (rig.heard, rig.witness.failures) == ([], [(batch, 1, REFUSED)])
    assert next_sequence(rig) == BatchSequence(FIRST, 0)


@pytest.mark.parametrize(
    ("passes_refusals", "failure"),
    [
        (False, REFUSED),
        (True, REFUSED._replace(of_record=False)),
        (True, REFUSED._replace(possibly_persisted=True)),
    ],
)
@in_virtual_time
async def test_other_failures_fail_the_transaction(passes_refusals: bool, failure: Failure) -> None:
    rig = Transaction(passes_refusals=passes_refusals)
    batch, _ = rig.sent()
    rig.completion.fail(batch, failure)
    assert rig.heard == [failure]
    assert [each.abortable for _, _, each in rig.witness.failures] == [True]
    assert next_sequence(rig) == BUMPED


@pytest.mark.parametrize("backs_off", [False, True])
@in_virtual_time
async def test_passed_refusal_before_a_sent_batch_bumps_the_epoch(backs_off: bool) -> None:
    rig = Transaction(passes_refusals=True)
    rig.recognise(1)
    batch, _ = rig.sent()
    later, _ = rig.sent()
    if backs_off:
        rig.completion.reenqueue(later, 60.0)
    rig.completion.fail(batch, REFUSED)
    assert rig.queue().sequences.needs_epoch_bump


@in_virtual_time
async def test_rest_of_a_passed_refusal_takes_the_sequence() -> None:
    rig = Transaction(passes_refusals=True)
    batch, futures = rig.sent(b"a", b"bad", b"c")
    rig.completion.reject_records(batch, {1: REFUSED})
    assert errors([futures[1]]) == [InvalidRecord]
    assert rig.heard == []
    [rest] = rig.drain()
    assert (rest.columns.values, rest.sequence) == ([b"a", b"c"], BatchSequence(FIRST, 0))
    rig.completion.complete(rest, 5)
    assert offsets([futures[0], futures[2]]) == [5, 6]


@in_virtual_time
async def test_rest_fails_with_the_transaction() -> None:
    rig = Transaction(passes_refusals=False)
    batch, futures = rig.sent(b"a", b"bad")
    rig.completion.reject_records(batch, {1: SPOILT}, LATE)
    assert errors(futures) == [DeliveryTimeout, InvalidRecord]
    assert rig.heard == [SPOILT, LATE]
    [rest] = batch.successors
    assert rig.witness.failures == [
        (batch, 1, SPOILT._replace(abortable=True)),
        (rest, 1, LATE._replace(abortable=True)),
    ]
    assert rig.witness.retried_batches == []
    assert rig.accumulator.memory.used == 0


@pytest.mark.parametrize("passes_refusals", [False, True])
@in_virtual_time
async def test_halves_are_sent_one_by_one_if_refusals_pass(passes_refusals: bool) -> None:
    rig = Transaction(passes_refusals=passes_refusals)
    rig.recognise(1)
    batch, _ = rig.sent(b"a", b"b")
    rig.completion.split(batch)
    left, right = batch.successors
    expected = [None, None] if passes_refusals else [BatchSequence(FIRST, 0), BatchSequence(FIRST, 1)]
    assert [left.sequence, right.sequence] == expected
    assert rig.drain() == [left]
    assert left.sequence == BatchSequence(FIRST, 0)
