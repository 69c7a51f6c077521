"""The services of examples/ in front of a real Apache Kafka, asked over HTTP by many clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack

import httpx
import pytest

from aioproducer import Producer
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import Record, read_with_librdkafka
from tests.services.crowd import Crowd
from tests.services.serving import APPS, AT_MOST_S, module_of, program, service

pytestmark = pytest.mark.slow

CLIENTS = 10


def check_logs(crowd: Crowd, kafka: ApacheKafka) -> None:
    def read(topic: str) -> Iterator[Record]:
        return iter(read_with_librdkafka(kafka.bootstrap_servers, topic))

    crowd.check_orders((each.partition, each.offset, each.value) for each in read("orders"))
    crowd.check_clicks(each.value for each in read("clicks"))


@pytest.mark.parametrize("app", APPS)
async def test_sigterm_under_load_loses_no_answered_request(app: str, kafka: ApacheKafka) -> None:
    async with (
        program(app, kafka.bootstrap_servers) as running,
        httpx.AsyncClient(base_url=running.base_url, timeout=AT_MOST_S) as client,
    ):
        crowd = Crowd(client, app)
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(crowd.order_and_click_to_the_end())
            await crowd.orders_answered(8 * CLIENTS)
            running.terminate()
        code, said = await running.ended()
    assert code == 0
    assert crowd.unanswered == CLIENTS
    assert "shop.closed records_failed=0" in said
    await asyncio.to_thread(check_logs, crowd, kafka)


async def test_service_answers_503_while_the_broker_is_down(
    spare_kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All services see the same outage: a broker takes seconds to be back."""
    for topic in ("orders", "clicks"):
        spare_kafka.create_topic(topic)
    async with AsyncExitStack() as stack:
        clients = {
            app: await stack.enter_async_context(service(app, Producer(spare_kafka.bootstrap_servers)))
            for app in APPS
        }
        crowds = [Crowd(client, app) for app, client in clients.items()]
        await order(crowds, 1)

        await asyncio.to_thread(spare_kafka.kill)
        for app, client in clients.items():
            monkeypatch.setattr(module_of(app), "SEND_TIMEOUT_S", 0.3)
            waiting = (client.post("/orders", json={"order": -1, "customer": app}) for _ in range(CLIENTS))
            for answer in await asyncio.gather(*waiting):
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert (await client.get("/ready")).status_code == 503
        monkeypatch.undo()

        await asyncio.to_thread(spare_kafka.restart)
        await order(crowds, CLIENTS)
        for client in clients.values():
            assert (await client.get("/ready")).status_code == 200
    for crowd in crowds:
        assert len(crowd.orders) == 1 + CLIENTS
        await asyncio.to_thread(check_logs, crowd, spare_kafka)


async def order(crowds: Sequence[Crowd], times: int) -> None:
    async with asyncio.TaskGroup() as clients:
        for crowd in crowds:
            for _ in range(times):
                clients.create_task(crowd.order())
