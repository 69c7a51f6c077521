from __future__ import annotations

from contextlib import nullcontext

import pytest

from aioproducer import InvalidRecord, Producer
from aioproducer.cli.shell import Failures, audit_hint, counted, done, told_once
from aioproducer.config import ProducerConfig
from aioproducer.errors import BufferFull, DeliveryTimeout
from aioproducer.testing import Cluster


def test_failures_are_counted_by_kind_with_the_message_of_the_first() -> None:
    failures = Failures()
    for error in (DeliveryTimeout("a"), BufferFull("b"), DeliveryTimeout("c")):
        failures.add(error)
    assert failures == {"DeliveryTimeout: a": 2, "BufferFull: b": 1}


@pytest.mark.parametrize(("records", "told"), [(0, "0 records"), (1, "1 record"), (2_000, "2,000 records")])
def test_one_is_not_several(records: int, told: str) -> None:
    assert counted(records) == told


def test_without_acks_nothing_is_acknowledged() -> None:
    assert done(ProducerConfig(bootstrap_servers="a:1")) == "acknowledged"
    assert done(ProducerConfig(bootstrap_servers="a:1", acks=0)) == "written, acks=0"


def test_the_hint_is_a_command() -> None:
    hint = audit_hint(ProducerConfig(bootstrap_servers="a:1,b:2"), "orders", "r", 3)
    command = "aioproducer audit orders --bootstrap-servers a:1,b:2 --run r --expect 3"
    assert hint == f"Is all of it there? {command}\n"
    secured = ProducerConfig(bootstrap_servers="a:1,b:2", security_protocol="SSL")
    assert (
        audit_hint(secured, "orders", "r", 3)
        == f"Is all of it there? {command}, and the options for security\n"
    )


async def test_failed_batches_are_not_logged_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.on("produce", times=None).answer(InvalidRecord)
        for block, expected in ((told_once("aioproducer.batching"), []), (nullcontext(), ["batch.failed"])):
            async with Producer(cluster.bootstrap_servers) as producer:
                with block, pytest.raises(InvalidRecord):
                    await producer.send("orders", b"v")
            assert [each.getMessage().split()[0] for each in caplog.records] == expected
