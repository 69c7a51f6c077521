"""Dials that fail of exceptions other than OSError: each is an attempt with a cause, and a pause after it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from aioproducer import DeliveryTimeout, Producer
from aioproducer.testing import Cluster

HOSTS = {"nul": b"127.0.1\0x", "dots": b"127..0..1", "names without letters": "ü..ü...".encode()}
"""As long as 127.0.0.1, in whose place they are put."""


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_host_that_cannot_be_dialled_heals_with_metadata(
    protocol: Literal["PLAINTEXT", "SSL"], name: str
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with Cluster(topics={"t": 1}, security_protocol=protocol) as cluster:
        rule = cluster.on("metadata", times=None).rewrite(
            lambda frame: frame.replace(b"127.0.0.1", HOSTS[name])
        )
        async with Producer(cluster.bootstrap_servers, linger_ms=0, **cluster.client_options) as producer:
            with pytest.raises(DeliveryTimeout) as failed:
                await producer.send("t", b"x", partition=0, timeout_s=0.5)
            assert "cannot connect: " in str(failed.value)
            assert producer.state == "degraded"
            rule.remove()
            await producer.send("t", b"x", partition=0)
            assert producer.state == "ready"
    assert unhandled == []
