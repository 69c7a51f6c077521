"""A shop on FastAPI: orders are answered when they are stored, clicks at once.

With a broker as for quickstart.py, and `pip install fastapi uvicorn`; from the root of the clone:

    python -m examples.fastapi_app.app                    # BOOTSTRAP_SERVERS, HOST, PORT, … in the environment
    uvicorn examples.fastapi_app.app:app                  # the same with uvicorn's own options
    curl -i localhost:8000/orders --json '{"order": 1, "customer": "customer-7"}'
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from aioproducer import Producer, ProducerError, RecordMetadata
from aioproducer.contrib.web import answer_to

log = logging.getLogger("shop")

SEND_TIMEOUT_S: Final = 5
"""No client waits for two minutes, the delivery timeout."""
REQUESTS_TIMEOUT_S: Final = 10
"""On SIGTERM, running requests have this long. More than SEND_TIMEOUT_S: each of them is answered."""
CLOSE_TIMEOUT_S: Final = 15
"""Then what was accepted with 202 has this long. Together less than the 30 s after which Kubernetes kills."""


class Order(BaseModel):
    """What a client orders."""

    order: int
    customer: str


class Click(BaseModel):
    """Where somebody clicked."""

    page: str


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


def create_app(producer: Producer) -> FastAPI:
    """Make the app around *producer*, which is started and closed with it."""
    clicks: Counter[str] = Counter()  # what became of them: "stored", or the name of the error

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        """Start before the first request; close after the last one was answered."""
        async with producer:
            # so that send_nowait knows them from the first request on
            await producer.partitions_for("clicks")
            yield
            failed = await producer.close(timeout_s=CLOSE_TIMEOUT_S)
            log.info("shop.closed records_failed=%d clicks=%s", failed, dict(clicks))

    app = FastAPI(lifespan=lifespan)

    @app.exception_handler(ProducerError)
    async def failed(_: Request, error: ProducerError) -> JSONResponse:
        log.warning("request.failed error=%s possibly_persisted=%s", error, error.possibly_persisted)
        answer = answer_to(error)
        return JSONResponse(answer.body, answer.status, answer.headers)

    @app.post("/orders")
    async def place_order(order: Order) -> dict[str, int]:
        """Answer when the order is stored. Requests that run at the same time share batches."""
        value = order.model_dump_json().encode()
        sent = await producer.send("orders", value, key=order.customer.encode(), timeout_s=SEND_TIMEOUT_S)
        return {"partition": sent.partition, "offset": sent.offset}

    def click_done(future: asyncio.Future[RecordMetadata]) -> None:
        """Hear what became of a click. The producer has logged failures already, once per batch: this counts."""
        error = future.exception()
        clicks["stored" if error is None else type(error).__name__] += 1

    @app.post("/clicks", status_code=HTTPStatus.ACCEPTED)
    async def count_click(click: Click) -> None:
        """Answer at once; BufferFull says that the brokers do not keep up, and the client is to come back later."""
        producer.send_nowait("clicks", click.model_dump_json().encode()).add_done_callback(click_done)

    @app.get("/health")
    async def health() -> JSONResponse:
        """Return 503 if only a new producer helps. Unreachable brokers keep the 200: a restart repairs none."""
        status = HTTPStatus.SERVICE_UNAVAILABLE if producer.state in ("failed", "closed") else HTTPStatus.OK
        return JSONResponse({"producer": producer.state}, status)

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Whether to send requests here. Not while no broker can be reached."""
        status = HTTPStatus.OK if producer.state == "ready" else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"producer": producer.state}, status)

    return app


app = create_app(make_producer())


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    # uvicorn raises the signal that ended it once more when everything is done: this makes of it an exit with 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    uvicorn.run(
        app,
        host=os.environ.get("HOST", "127.0.0.1"),
        port=int(os.environ.get("PORT", "8000")),
        access_log=False,
        timeout_graceful_shutdown=REQUESTS_TIMEOUT_S,
    )


if __name__ == "__main__":
    main()
