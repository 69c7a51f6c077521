"""Surplus bytes behind a response, within its frame, only log a line."""

from __future__ import annotations

import pytest

from aioproducer import Producer
from tests.scenarios.faults.hostile import too_long
from tests.scenarios.rig import TOPIC, cluster, producing, scenario, values


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the sources of surplus bytes in the log."""
    lines = [each.message.split() for each in caplog.records]
    return [
        address.removeprefix("address=") for event, _, address, *_ in lines if event == "connection.surplus"
    ]


@scenario
async def test_responses_with_surplus_bytes_are_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(brokers=2, partitions=2) as opened:
        opened.on(None, times=None).rewrite(too_long)
        async with Producer(opened.bootstrap_servers, linger_ms=0) as producer:
            for value in (b"a", b"b"):
                await producer.send_many(TOPIC, [value] * 2, partitions=range(2))
            numbers = producer.metrics()["producer"]
    assert [values(opened, partition) for partition in range(2)] == [[b"a", b"b"]] * 2
    assert (numbers["connection_close_total"], numbers["record_retry_total"]) == (0, 0)
    assert sorted(told(caplog)) == opened.bootstrap_servers.split(",")  # one of them before it had an id


@scenario
async def test_surplus_bytes_are_logged_once_per_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producing(brokers=2, linger_ms=0, reconnect_backoff_ms=10) as (producer, opened):
        opened.on(None, node=1, times=None).rewrite(too_long)
        for _ in range(3):
            await producer.send(TOPIC, b"v")
            opened.disconnect(1)
        await producer.send(TOPIC, b"v")
    assert told(caplog) == opened.bootstrap_servers.split(",")[:1]
