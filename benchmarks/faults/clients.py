"""The clients, each behind the same two calls, with the settings that their documentation gives for reliability.

All wait for every in-sync replica; all are idempotent, but for the one that is there to show what plain means.
Where a client has an option for something in `terms`, it is set to that.
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
    """What a client says of a record."""

    offset: int | None = None
    """Where it is; -1 if the client does not know, None if it failed."""
    error: str = ""
    possibly_persisted: bool = False
    """Whether the client says of a failed record that it may be in the log all the same."""


Settle = Callable[[Outcome], None]


class Client(Protocol):
    """A producer."""

    async def start(self) -> None:
        """Connect."""

    async def send(self, partition: int, value: bytes, settle: Settle) -> None:
        """Hand a record over; *settle* hears its outcome later. Raises whatever the client does if it takes none."""


class Aioproducer:
    """Ours."""

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
        """Hand a record over."""
        future = await self._producer.enqueue(terms.TOPIC, value, partition=partition)
        future.add_done_callback(partial(_settled, settle))


class Aiokafka:
    """The aiokafka producer.

    It has no delivery timeout: `request_timeout_ms` ends both requests and batches. So it gets the longer of the
    two, else it would give records up while the others still try. Its backoff is always the same.
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
        """Hand a record over."""
        future = await self._producer.send(terms.TOPIC, value, partition=partition)
        future.add_done_callback(partial(_settled, settle))


class Confluent:
    """confluent-kafka's Producer, polled by a thread as its documentation has it."""

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
        """Have outcomes delivered; it connects by itself."""
        threading.Thread(target=self._poll, daemon=True).start()

    async def send(self, partition: int, value: bytes, settle: Settle) -> None:
        """Hand a record over."""

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
    possibly_persisted = getattr(error, "possibly_persisted", False)  # only ours has it
    return Outcome(error=f"{type(error).__name__}: {error}", possibly_persisted=possibly_persisted)


CLIENTS: Mapping[str, Callable[[str], Client]] = {
    "aioproducer": partial(Aioproducer, idempotent=True),
    "aioproducer, plain": partial(Aioproducer, idempotent=False),
    "aiokafka": Aiokafka,
    "confluent-kafka": Confluent,
}


def versions() -> dict[str, str]:
    """Return which releases are compared."""
    names = {client.partition(",")[0] for client in CLIENTS}
    return {name: version(name) for name in sorted(names)}
