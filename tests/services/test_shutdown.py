"""SIGTERM to a service under load: accepted requests are answered, and answered records are in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import pytest

from aioproducer.testing import ThreadedCluster
from tests.services.crowd import Crowd
from tests.services.serving import APPS, AT_MOST_S, Program, program

TOPICS = {"orders": 3, "clicks": 2}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("app", APPS),
    pytest.mark.kafka_cluster(topics=TOPICS),
]


def check_logs(crowd: Crowd, cluster: ThreadedCluster) -> None:
    crowd.check_orders(
        (partition, record.offset, record.value)
        for partition in range(TOPICS["orders"])
        for record in cluster.records("orders", partition)
    )
    crowd.check_clicks(
        record.value
        for partition in range(TOPICS["clicks"])
        for record in cluster.records("clicks", partition)
    )


@asynccontextmanager
async def slow_click(service: Program) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
    """Send the head of a request, and yield a function that sends its body and returns the status line."""
    reader, writer = await asyncio.open_connection(*service.address)
    body = b'{"page": "/slow"}'
    head = f"POST /clicks HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"

    async def finish() -> bytes:
        writer.write(body)
        return await reader.readline()

    with closing(writer):
        writer.write(head.encode())
        yield finish


async def test_shutdown_answers_waiting_requests(app: str, kafka_cluster: ThreadedCluster) -> None:
    sent = asyncio.Semaphore(0)

    async def trace(event: str, _: Any) -> None:
        if event == "http11.send_request_body.complete":
            sent.release()

    async def with_trace(request: httpx.Request) -> None:
        request.extensions["trace"] = trace

    async with (
        program(app, kafka_cluster.bootstrap_servers) as service,
        httpx.AsyncClient(
            base_url=service.base_url, timeout=AT_MOST_S, event_hooks={"request": [with_trace]}
        ) as client,
    ):
        crowd = Crowd(client, app)
        await crowd.order()
        kafka_cluster.freeze_broker(1)
        for _ in range(5):
            await crowd.click()
        async with slow_click(service) as finish, asyncio.TaskGroup() as clients:
            for _ in range(25):
                clients.create_task(crowd.order())
            for _ in range(31):
                await sent.acquire()
            async with httpx.AsyncClient(base_url=service.base_url) as newest:
                # connections are accepted in their order: this one is answered, so all requests have come in
                assert (await newest.get("/health")).status_code == 200
            service.terminate()
            await service.stops_accepting()
            assert len(crowd.orders) == 1
            assert b" 202 " in await finish()
            kafka_cluster.thaw_broker(1)
        code, said = await service.ended()
    assert code == 0
    assert len(crowd.orders) == 26
    check_logs(crowd, kafka_cluster)
    assert "shop.closed records_failed=0 clicks={'stored': 6}" in said
    assert "request.failed" not in said


async def test_shutdown_under_load_loses_no_answered_order(app: str, kafka_cluster: ThreadedCluster) -> None:
    async with (
        program(app, kafka_cluster.bootstrap_servers) as service,
        httpx.AsyncClient(base_url=service.base_url, timeout=AT_MOST_S) as client,
    ):
        crowd = Crowd(client, app)
        async with asyncio.TaskGroup() as clients:
            for _ in range(10):
                clients.create_task(crowd.order_and_click_to_the_end())
            await crowd.orders_answered(80)
            service.terminate()
        code, said = await service.ended()
    assert code == 0
    assert crowd.unanswered == 10
    check_logs(crowd, kafka_cluster)
    assert "shop.closed records_failed=0" in said
    assert "request.failed" not in said
