"""A service: one producer for its whole life, shared by all requests.

The same behind HTTP, with health, back-pressure and an end that loses nothing: fastapi_app/ and aiohttp_app/.
With a broker as for quickstart.py:

    python examples/service.py [bootstrap servers]
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aioproducer import Producer, ProducerError


@dataclass
class App:
    """What a web framework would bring."""

    producer: Producer  # making one connects nothing: it may be made before there is an event loop


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    """Around the service's life. The producer connects before the first request, and is emptied after the last."""
    async with app.producer:
        yield


def create_app(bootstrap_servers: str) -> App:
    """Make the app; options and serializers are checked here, before anything is started."""
    producer = Producer(
        bootstrap_servers,
        client_id="shop",
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    return App(producer)


async def place_order(app: App, order: dict[str, Any]) -> HTTPStatus:
    """Handle one request. Those that run at the same time share batches; nothing needs to be locked."""
    try:
        # A client does not wait for two minutes, the delivery timeout: this request gives up earlier.
        await app.producer.send("orders", order, key=order["customer"], timeout_s=5)
    except ProducerError as error:
        print(f"order {order['order']}: {error}", file=sys.stderr)
        return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.CREATED


async def main(bootstrap_servers: str) -> None:
    """Serve five hundred requests at the same time."""
    app = create_app(bootstrap_servers)
    async with lifespan(app), asyncio.TaskGroup() as requests:
        answers = [
            requests.create_task(place_order(app, {"order": number, "customer": f"customer-{number % 40}"}))
            for number in range(500)
        ]
    created = sum(answer.result() is HTTPStatus.CREATED for answer in answers)
    batches = app.producer.metrics()["producer"]["batches_delivered"]
    print(f"{created} of {len(answers)} orders were placed, in {batches} batches")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
