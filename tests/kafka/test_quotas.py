"""A client over its byte quota: the broker answers, then reads nothing for the throttle time (KIP-219)."""

from __future__ import annotations

import asyncio
import socket
import struct

from aioproducer import Producer
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import await_records

CLIENT_ID = "over-its-quota"
BYTES_PER_S = 50_000.0
RECORDS, PARTITIONS = 100, 3
REQUEST_TIMEOUT_MS = 2_000
"""Less than the throttles, which take up to ten seconds in this test."""


def set_byte_quota(kafka: ApacheKafka, client_id: str, bytes_per_s: float) -> None:
    """Limit the Produce bytes of *client_id*, by AlterClientQuotas version 0: the admin clients for Python lack it."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    entity = struct.pack(">i", 1) + text("client-id") + text(client_id)
    change = struct.pack(">i", 1) + text("producer_byte_rate") + struct.pack(">d?", bytes_per_s, False)
    body = struct.pack(">i", 1) + entity + change + b"\0"
    frame = struct.pack(">hhi", 49, 0, 1) + text("admin") + body
    host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as sock, sock.makefile("rb") as answers:
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        answer = answers.read(*struct.unpack(">i", answers.read(4)))
    correlation_id, _throttle_ms, entries, error_code = struct.unpack_from(">iiih", answer)
    assert (correlation_id, entries, error_code) == (1, 1, 0), answer


async def test_quota_costs_no_connection_and_no_retry(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS)
    set_byte_quota(kafka, CLIENT_ID, BYTES_PER_S)
    async with Producer(
        kafka.bootstrap_servers, client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS
    ) as producer:
        futures = []
        for number in range(RECORDS):
            value = b"%d " % number + bytes(8_000)
            futures.append(await producer.enqueue(topic, value, partition=number % PARTITIONS))
            await asyncio.sleep(0)
        await asyncio.gather(*futures)
        figures = producer.metrics()["producer"]
    assert figures["produce_throttle_time_max"] > REQUEST_TIMEOUT_MS
    assert figures["record_retry_total"] == 0
    assert figures["connection_close_total"] == 0
    assert figures["connection_creation_total"] <= 2
    log = await asyncio.to_thread(
        await_records, kafka.bootstrap_servers, topic, lambda found: len(found) >= RECORDS
    )
    assert sorted(int((each.value or b"").split()[0]) for each in log) == list(range(RECORDS))
