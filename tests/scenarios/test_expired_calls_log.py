"""Log of records that fail at the end of a producer, after their calls have raised DeliveryTimeout."""

from __future__ import annotations

import logging

import pytest

from aioproducer import DeliveryTimeout, Producer
from aioproducer.testing import Cluster, in_virtual_time


@pytest.mark.parametrize("is_awaited", [True, False])
@in_virtual_time
async def test_expired_records_fail_at_close_without_warning(
    is_awaited: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer")
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        producer = Producer(cluster.bootstrap_servers)
        await producer.start()
        await producer.partitions_for("orders")
        cluster.on("produce").drop()
        if is_awaited:
            with pytest.raises(DeliveryTimeout):
                await producer.send("orders", b"v", timeout_s=1)
        else:
            _ = await producer.enqueue("orders", b"v")
        await producer.close(timeout_s=1)
    (failed,) = [each for each in caplog.records if each.getMessage().startswith("batch.failed ")]
    assert "ProducerClosed" in failed.getMessage()
    assert failed.levelno == (logging.DEBUG if is_awaited else logging.WARNING)
