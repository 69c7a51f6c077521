"""Dials that fail with exceptions other than OSError: each is an attempt with a cause and a backoff."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from aioproducer import DeliveryTimeout, Producer, TransactionTimeout
from aioproducer._core.net.dial import MakeProtocol, routes
from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponseBroker
from aioproducer._core.protocol.schema import decode_response, encode_response, read_correlation_id
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, cluster as open_cluster, scenario

MOST_DIALS_PER_S = 80
MOST_DIALS_PER_ANSWER = 2
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


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False}, {"transactional_id": "tx"}])
@scenario
async def test_dials_are_bounded_when_each_answer_names_other_brokers(
    options: dict[str, Any], leads: bool
) -> None:
    """A cluster that restarts with new node ids, of which none accepts."""
    dials = answers = 0

    async def refuse(_host: str, _port: int, _: MakeProtocol, /) -> asyncio.Transport:
        nonlocal dials
        dials += 1
        raise ConnectionRefusedError("nobody there")

    def rename(frame: bytes) -> bytes:
        nonlocal answers
        answers += 1
        answer, _ = decode_response(MetadataResponse, MetadataResponse.VERSIONS[1], frame[4:])
        first = answers * 1000
        answer.brokers = [
            MetadataResponseBroker(node_id=first + each, host="away.memory", port=1) for each in range(300)
        ]
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.leader_id = first if leads else -1
        return bytes(encode_response(answer, MetadataResponse.VERSIONS[1], read_correlation_id(frame[4:])))

    routes["away.memory", 1] = refuse
    async with open_cluster() as cluster:
        cluster.on("metadata", times=None).rewrite(rename)
        producer = Producer(cluster.bootstrap_servers, max_block_ms=10_000, **options)
        try:
            await producer.start()
            with pytest.raises(DeliveryTimeout):
                await producer.send(TOPIC, b"value", partition=0, timeout_s=10)
        except TransactionTimeout:
            pass
        await producer.close(0)
    del routes["away.memory", 1]
    assert answers >= 10
    assert dials <= 10 * MOST_DIALS_PER_S + MOST_DIALS_PER_ANSWER * answers
