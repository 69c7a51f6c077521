"""HTTP responses of the services in examples/, on the in-process broker."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest

from aioproducer import Producer, ProducerFenced
from aioproducer.testing import Cluster
from tests.services.crowd import Crowd
from tests.services.serving import APPS, module_of, service

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("app", APPS)]

TOPICS = {"orders": 3, "clicks": 2}
ORDER = {"order": 1, "customer": "customer-7"}


def everything(cluster: Cluster, topic: str) -> list[tuple[int, int, bytes | None]]:
    return [
        (partition, record.offset, record.value)
        for partition in range(TOPICS[topic])
        for record in cluster.records(topic, partition)
    ]


async def states(client: httpx.AsyncClient) -> tuple[int, int, str]:
    health, ready = await client.get("/health"), await client.get("/ready")
    assert health.json() == ready.json()
    return health.status_code, ready.status_code, ready.json()["producer"]


def check_refusal(answer: httpx.Response, error: str) -> None:
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.json() == {"error": error, "possibly_persisted": False}


async def test_orders_are_answered_with_their_offsets(app: str) -> None:
    async with Cluster(brokers=2, topics=TOPICS) as cluster:
        async with service(app, Producer(cluster.bootstrap_servers)) as client:
            crowd = Crowd(client, app)
            async with asyncio.TaskGroup() as clients:
                for _ in range(60):
                    clients.create_task(crowd.order())
                    clients.create_task(crowd.click())
            assert len(crowd.orders) == 60
            crowd.check_orders(everything(cluster, "orders"))
        crowd.check_clicks(value for _, _, value in everything(cluster, "clicks"))


async def test_service_is_alive_but_not_ready_without_a_broker(
    app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Cluster(topics=TOPICS) as cluster,
        service(app, Producer(cluster.bootstrap_servers)) as client,
    ):
        assert (await client.post("/orders", json=ORDER)).status_code == 200
        assert await states(client) == (200, 200, "ready")

        await cluster.stop_broker(1)
        monkeypatch.setattr(module_of(app), "SEND_TIMEOUT_S", 0.3)
        began = asyncio.get_running_loop().time()
        check_refusal(await client.post("/orders", json=ORDER), "DeliveryTimeout")
        assert asyncio.get_running_loop().time() - began < 3
        assert await states(client) == (200, 503, "degraded")

        await cluster.start_broker(1)
        monkeypatch.undo()
        assert (await client.post("/orders", json=ORDER)).status_code == 200
        assert await states(client) == (200, 200, "ready")
        assert len(everything(cluster, "orders")) == 2


async def test_order_that_may_be_stored_is_not_retriable(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        Cluster(topics=TOPICS) as cluster,
        service(app, Producer(cluster.bootstrap_servers)) as client,
    ):
        cluster.on("produce").delay(1, before_append=False)
        monkeypatch.setattr(module_of(app), "SEND_TIMEOUT_S", 0.2)
        answer = await client.post("/orders", json=ORDER)
        assert answer.status_code == 504
        assert "Retry-After" not in answer.headers
        assert answer.json() == {"error": "DeliveryTimeout", "possibly_persisted": True}
        assert len(everything(cluster, "orders")) == 1


async def test_service_answers_503_when_the_buffer_is_full(app: str) -> None:
    async with Cluster(topics=TOPICS) as cluster:
        producer = Producer(cluster.bootstrap_servers, buffer_memory=5_000, max_block_ms=200)
        async with service(app, producer) as client:
            crowd = Crowd(client, app)
            await crowd.order()  # the topic is known now: only memory is missing
            cluster.freeze_broker(1)
            click = {"page": "x" * 1_000}
            accepted = 0
            while (answer := await client.post("/clicks", json=click)).status_code == 202:
                accepted += 1
            check_refusal(answer, "BufferFull")
            check_refusal(
                await client.post("/orders", json={**ORDER, "customer": "x" * 1_000}), "BufferTimeout"
            )
            assert 1 <= accepted <= 4
            cluster.thaw_broker(1)
            await crowd.order()
        assert len(everything(cluster, "clicks")) == accepted
        crowd.check_orders(everything(cluster, "orders"))


async def test_malformed_and_too_large_requests_are_client_errors(app: str) -> None:
    async with Cluster(topics=TOPICS) as cluster:
        producer = Producer(cluster.bootstrap_servers, max_request_size=1_000)
        async with service(app, producer) as client:
            large = await client.post("/orders", json={"order": 1, "customer": "x" * 1_000})
            assert large.status_code == 413
            assert large.json() == {"error": "RecordTooLarge", "possibly_persisted": False}
            wrong: list[Any] = [{"order": "one", "customer": "a"}, {"order": 1}, [], None]
            assert {(await client.post("/orders", json=each)).status_code for each in wrong} == {422}
            assert (await client.post("/clicks", content=b"{")).status_code == 422
        assert everything(cluster, "orders") == everything(cluster, "clicks") == []


async def test_liveness_fails_when_the_producer_has_failed(app: str) -> None:
    async with (
        Cluster(topics=TOPICS) as cluster,
        service(app, producer := Producer(cluster.bootstrap_servers)) as client,
    ):
        assert await states(client) == (200, 200, "ready")
        await producer.close()
        assert await states(client) == (503, 503, "closed")
        check_refusal(await client.post("/orders", json=ORDER), "ProducerClosed")
        check_refusal(await client.post("/clicks", json={"page": "/"}), "ProducerClosed")


async def test_health_fails_when_the_producer_was_fenced(app: str) -> None:
    async with (
        Cluster(topics=TOPICS) as cluster,
        service(app, producer := Producer(cluster.bootstrap_servers, transactional_id="shop")) as client,
    ):
        assert await states(client) == (200, 200, "ready")
        async with Producer(cluster.bootstrap_servers, transactional_id="shop"):
            with pytest.raises(ProducerFenced):
                async with producer.transaction():
                    await producer.send("orders", b"v")
        assert await states(client) == (503, 503, "failed")


async def test_service_stops_when_accepted_orders_are_stored(
    app: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shop")
    async with Cluster(topics=TOPICS) as cluster:
        cluster.on("produce").delay(0.8)
        async with service(app, Producer(cluster.bootstrap_servers)) as client:
            crowd = Crowd(client, app)
            for _ in range(5):
                await crowd.click()
            assert everything(cluster, "clicks") == []
        crowd.check_clicks(value for _, _, value in everything(cluster, "clicks"))
    assert "shop.closed records_failed=0 clicks={'stored': 5}" in caplog.messages


async def test_service_stops_in_time_without_a_broker(
    app: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request is answered, and the number of abandoned records is logged."""
    caplog.set_level(logging.INFO, "shop")
    monkeypatch.setattr(module_of(app), "SEND_TIMEOUT_S", 0.8)
    monkeypatch.setattr(module_of(app), "CLOSE_TIMEOUT_S", 0.2)
    async with Cluster(topics=TOPICS) as cluster:
        async with asyncio.timeout(10), service(app, Producer(cluster.bootstrap_servers)) as client:
            await Crowd(client, app).click()
            await Crowd(client, app).order()
            cluster.freeze_broker(1)
            assert (await client.post("/clicks", json={"page": "/"})).status_code == 202
            waiting = asyncio.create_task(client.post("/orders", json=ORDER))
            # a request that came later is answered: so that one has come
            assert await states(client) == (200, 200, "ready")
        assert (await waiting).status_code == 504
        cluster.thaw_broker(1)
    # the order was pending until the end as well, without a waiting client
    assert "shop.closed records_failed=2 clicks={'stored': 1, 'ProducerClosed': 1}" in caplog.messages
