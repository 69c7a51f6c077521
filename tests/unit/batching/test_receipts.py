"""The Futures of single records: kinds, and deadlines of single calls."""

from __future__ import annotations

import asyncio

from aioproducer.batching.receipts import ExpiringReceipt, FutureKind
from aioproducer.batching.waiters import Failure
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing.virtual_time import in_virtual_time

LATE = Failure(DeliveryTimeout, "late")


@in_virtual_time
async def test_future_kind_adds_new_and_given_futures_in_order() -> None:
    loop = asyncio.get_running_loop()
    kind = FutureKind(loop)
    stretch, given = kind.stretch(), kind.waiter()
    first = stretch.new()
    stretch.add(given)
    assert stretch.last == stretch.futures == [first, given]
    assert {each.get_loop() for each in stretch.futures} == {loop}


@in_virtual_time
async def test_expiring_receipt_fails_its_waiter_alone() -> None:
    kind = FutureKind(asyncio.get_running_loop())
    stretch = kind.stretch()
    impatient, patient = stretch.new(), stretch.new()
    expiring = ExpiringReceipt(kind, impatient)
    assert len(expiring) == 1
    expiring.fail(LATE)
    assert isinstance(impatient.exception(), DeliveryTimeout)
    assert not patient.done()
    assert not stretch.is_forsaken
