"""The checker of the loads: it reports each broken promise by name."""

from __future__ import annotations

import dataclasses

import pytest

from aioproducer import DeliveryTimeout, Producer, ProducerError, RecordMetadata
from tests.kafka.load import Load, Sent
from tests.kafka.load_checker import check_records
from tests.kafka.readback import Record


def acknowledged(number: int, *, offset: int) -> Sent:
    return Sent(number, b"%07d" % number, False, 0.0, 0.1, RecordMetadata("orders", 0, offset, 0, False))


def failed(number: int, error: ProducerError, *, asked_for: bool = True) -> Sent:
    return Sent(number, b"%07d" % number, asked_for, 0.0, 0.1, error)


def findings(sent: list[Sent], numbers_in_log: list[int], *, idempotent: bool, fresh_from: int = 0) -> None:
    producer = Producer("localhost:9092", enable_idempotence=idempotent)
    load = Load(producer, "orders", partitions=1, value_size=7)
    load.sent = sent
    load.fresh_from = fresh_from
    log = [
        Record(0, offset, None, b"%07d" % number, (), 0, False)
        for offset, number in enumerate(numbers_in_log)
    ]
    check_records(load, log)


async def test_checker_accepts_kept_promises() -> None:
    three = [acknowledged(number, offset=number) for number in range(3)]
    findings(three, [0, 1, 2], idempotent=True)
    findings([*three, failed(3, DeliveryTimeout(possibly_persisted=True))], [0, 1, 2, 3], idempotent=True)
    findings([*three, failed(3, DeliveryTimeout(possibly_persisted=True))], [0, 1, 2], idempotent=True)
    findings([*three, failed(3, DeliveryTimeout(possibly_persisted=False))], [0, 1, 2], idempotent=True)
    findings(three, [0, 1, 2, 1, 2], idempotent=False)
    findings([acknowledged(0, offset=7), acknowledged(1, offset=0)], [1], idempotent=True, fresh_from=1)


async def test_checker_names_a_broken_promise() -> None:
    one, two = acknowledged(0, offset=0), acknowledged(1, offset=1)
    surely_not = DeliveryTimeout(possibly_persisted=False)
    for broken, sent, numbers_in_log, idempotent in (
        ("resolved in time", [one, dataclasses.replace(two, resolved_at=121.1)], [0, 1], True),
        ("nothing fails unasked", [one, failed(1, surely_not, asked_for=False)], [0], True),
        ("acknowledged is in the log", [one, two], [0], False),
        ("the offset is told", [one, acknowledged(1, offset=-1)], [0, 1], True),
        ("not possibly_persisted is not in the log", [one, failed(1, surely_not)], [0, 1], True),
        ("nobody sent", [one], [0, 1], True),
        ("never twice", [one, two], [0, 1, 1], True),
        ("order per partition", [acknowledged(0, offset=1), acknowledged(1, offset=0)], [1, 0], False),
    ):
        with pytest.raises(AssertionError, match=broken):
            findings(sent, numbers_in_log, idempotent=idempotent)
