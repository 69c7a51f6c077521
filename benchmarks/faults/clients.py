"""The clients, each with two methods, and with the reliability settings of their documentation.

All clients wait for every in-sync replica. All clients are idempotent, except "aioproducer, plain". Every option with a
value in `terms` has that value.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import confluent_kafka
from aiokafka import AIOKafkaProducer

import aioproducer
from benchmarks.faults import terms


class Outcome(NamedTuple):
    """Outcome of a record, as reported by the client."""

    offset: int | None = None
    """Offset of the record; -1 if unknown to the client, None if the record failed."""
    error: str = ""
    possibly_persisted: bool = False
    """True if the client reports that the failed record may be in the log."""


Settle = Callable[[Outcome], None]


class Client(Protocol):
    """Interface of a measured producer."""

    async def start(self) -> None:
        """Connect."""

    async def send(self, partition: int, value: bytes, settle: Settle) -> None:
        """Append a record, whose outcome is passed to *settle*. Raises: the client's error for a refused record."""


class Aioproducer:
    """Client of aioproducer."""

    def __init__(self, servers: str, *, idempotent: bool) -> None:
        self._producer = aioproducer.Producer(
            servers,
            acks="all",
            enable_idempotence=idempotent,
            linger_ms=terms.LINGER_MS,
            delivery_timeout_ms=int(terms.DELIVERY_TIMEOUT_S * 1000),
            request_timeout_ms=int(terms.REQUEST_TIMEOUT_S * 1000),
            max_block_ms=int(terms.DELIVERY_TIMEOUT_S * 1000),
            retry_backoff_ms=terms.BACKOFF_MS,
            retry_backoff_max_ms=terms.BACKOFF_MAX_MS,
            reconnect_backoff_ms=terms.BACKOFF_MS,
            reconnect_backoff_max_ms=terms.BACKOFF_MAX_MS,
        )

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def send(self, partition: int, value: bytes, settle: Settle) -> None:
        """Append a record."""
        future = await self._producer.enqueue(terms.TOPIC, value, partition=partition)
        future.add_done_callback(partial(_settled, settle))


class Aiokafka:
    """Client of aiokafka.

    aiokafka has no delivery timeout: `request_timeout_ms` limits both requests and batches. The option has the delivery
    timeout of the other clients, because a shorter value would fail records earlier than in the other clients. The
    backoff of aiokafka is constant.
    """

    def __init__(self, servers: str) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            acks="all",
            enable_idempotence=True,
            linger_ms=terms.LINGER_MS,
            request_timeout_ms=int(terms.DELIVERY_TIMEOUT_S * 1000),
            retry_backoff_ms=terms.BACKOFF_MS,
        )

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def send(self, partition: int, value: bytes, settle: Settle) -> None:
        """Append a record."""
        future = await self._producer.send(terms.TOPIC, value, partition=partition)
        future.add_done_callback(partial(_settled, settle))


class Confluent:
    """Client of confluent-kafka's Producer, polled by a thread as in its documentation."""

    def __init__(self, servers: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": terms.LINGER_MS,
                "delivery.timeout.ms": int(terms.DELIVERY_TIMEOUT_S * 1000),
                "request.timeout.ms": int(terms.REQUEST_TIMEOUT_S * 1000),
                "socket.timeout.ms": int(terms.REQUEST_TIMEOUT_S * 1000),
                "retry.backoff.ms": terms.BACKOFF_MS,
                "retry.backoff.max.ms": terms.BACKOFF_MAX_MS,
                "reconnect.backoff.ms": terms.BACKOFF_MS,
                "reconnect.backoff.max.ms": terms.BACKOFF_MAX_MS,
            }
        )

    async def start(self) -> None:
        """Start the thread that polls outcomes. The producer connects in the background."""
        threading.Thread(target=self._poll, daemon=True).start()

    async def send(self, partition: int, value: bytes, settle: Settle) -> None:
        """Append a record."""

        def delivered(error: Any, message: Any) -> None:
            settle(Outcome(message.offset()) if error is None else Outcome(error=error.name()))

        self._producer.produce(terms.TOPIC, value, partition=partition, on_delivery=delivered)

    def _poll(self) -> None:
        while True:
            self._producer.poll(0.1)


def _settled(settle: Settle, future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        settle(Outcome(error="cancelled"))
        return
    error = future.exception()
    settle(Outcome(future.result().offset) if error is None else failed(error))


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a record that failed with *error*."""
    possibly_persisted = getattr(
        error, "possibly_persisted", False
    )  # an attribute of aioproducer's errors only
    return Outcome(error=f"{type(error).__name__}: {error}", possibly_persisted=possibly_persisted)


CLIENTS: Mapping[str, Callable[[str], Client]] = {
    "aioproducer": partial(Aioproducer, idempotent=True),
    "aioproducer, plain": partial(Aioproducer, idempotent=False),
    "aiokafka": Aiokafka,
    "confluent-kafka": Confluent,
}


def versions() -> dict[str, str]:
    """Return the versions of the compared clients."""
    names = {client.partition(",")[0] for client in CLIENTS}
    return {name: version(name) for name in sorted(names)}
