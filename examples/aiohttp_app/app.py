"""A shop on aiohttp: orders are answered when they are stored, clicks at once.

With a broker as for quickstart.py, and `pip install aiohttp`; from the root of the clone, as it imports its neighbour:

    python -m examples.aiohttp_app.app                    # BOOTSTRAP_SERVERS, HOST, PORT, … in the environment
    curl -i localhost:8000/orders --json '{"order": 1, "customer": "customer-7"}'
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from aioproducer import Producer, ProducerError, RecordMetadata
from aioproducer.contrib.web import answer_to
from examples.aiohttp_app.serving import served

log = logging.getLogger("shop")

PRODUCER: Final = web.AppKey("PRODUCER", Producer)
CLICKS: Final = web.AppKey("CLICKS", Counter[str])
"""What became of the clicks: "stored", or the name of the error."""

SEND_TIMEOUT_S: Final = 5
"""No client waits for two minutes, the delivery timeout."""
REQUESTS_TIMEOUT_S: Final = 10
"""On SIGTERM, running requests have this long. More than SEND_TIMEOUT_S: each of them is answered."""
CLOSE_TIMEOUT_S: Final = 15
"""Then what was accepted with 202 has this long. Together less than the 30 s after which Kubernetes kills."""

routes = web.RouteTableDef()


def make_producer() -> Producer:
    """Make the producer of this service; nothing is connected yet."""
    # max_block_ms: when the memory is full, a request is refused after a second instead of joining a long line
    # bootstrap_timeout_ms: in containers a service may start before its brokers
    return Producer(
        os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092"),
        client_id="shop",
        max_block_ms=1_000,
        bootstrap_timeout_ms=int(os.environ.get("BOOTSTRAP_TIMEOUT_MS", "0")),
    )


def create_app(producer: Producer) -> web.Application:
    """Make the app around *producer*, which is started and closed with it."""
    app = web.Application(middlewares=[tell_failures])
    app[PRODUCER] = producer
    app[CLICKS] = Counter()
    app.cleanup_ctx.append(running_producer)
    app.add_routes(routes)
    return app


async def running_producer(app: web.Application) -> AsyncIterator[None]:
    """Start before the first request; close after the last one was answered."""
    async with app[PRODUCER] as producer:
        # so that send_nowait knows them from the first request on
        await producer.partitions_for("clicks")
        yield
        failed, clicks = await producer.close(timeout_s=CLOSE_TIMEOUT_S), app[CLICKS]
        log.info("shop.closed records_failed=%d clicks=%s", failed, dict(clicks))


@web.middleware
async def tell_failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell clients why their record was not stored, and whether it may be all the same."""
    try:
        return await handler(request)
    except ProducerError as error:
        log.warning("request.failed error=%s possibly_persisted=%s", error, error.possibly_persisted)
        answer = answer_to(error)
        return web.json_response(answer.body, status=answer.status, headers=answer.headers)


@routes.post("/orders")
async def place_order(request: web.Request) -> web.Response:
    """Answer when the order is stored. Requests that run at the same time share batches."""
    order = await body(request, order=int, customer=str)
    sent = await request.app[PRODUCER].send(
        "orders", json.dumps(order).encode(), key=order["customer"].encode(), timeout_s=SEND_TIMEOUT_S
    )
    return web.json_response({"partition": sent.partition, "offset": sent.offset})


@routes.post("/clicks")
async def count_click(request: web.Request) -> web.Response:
    """Answer at once; BufferFull says that the brokers do not keep up, and the client is to come back later."""
    click = await body(request, page=str)
    counts = request.app[CLICKS]

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        """Hear what became of a click. The producer has logged failures already, once per batch: this counts."""
        error = future.exception()
        counts["stored" if error is None else type(error).__name__] += 1

    request.app[PRODUCER].send_nowait("clicks", json.dumps(click).encode()).add_done_callback(done)
    return web.Response(status=HTTPStatus.ACCEPTED)


@routes.get("/health")
async def health(request: web.Request) -> web.Response:
    """Return 503 if only a new producer helps. Unreachable brokers keep the 200: a restart repairs none."""
    state = request.app[PRODUCER].state
    status = HTTPStatus.SERVICE_UNAVAILABLE if state in ("failed", "closed") else HTTPStatus.OK
    return web.json_response({"producer": state}, status=status)


@routes.get("/ready")
async def ready(request: web.Request) -> web.Response:
    """Whether to send requests here. Not while no broker can be reached."""
    state = request.app[PRODUCER].state
    status = HTTPStatus.OK if state == "ready" else HTTPStatus.SERVICE_UNAVAILABLE
    return web.json_response({"producer": state}, status=status)


async def body(request: web.Request, **fields: type) -> dict[str, Any]:
    """Return the request's JSON if it has such *fields*, or answer 422."""
    try:
        found = await request.json()
        if all(isinstance(found[name], kind) for name, kind in fields.items()):
            return {name: found[name] for name in fields}
    except (ValueError, TypeError, KeyError):
        pass
    raise web.HTTPUnprocessableEntity(text=f"expected JSON with {', '.join(fields)}")


async def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    ended = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8000"))
    async with served(create_app(make_producer()), host, port, REQUESTS_TIMEOUT_S) as url:
        log.info("shop.serves url=%s", url)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
