"""Serializers that await, in every shape that users write them in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.serializers import HeaderList
from tests.scenarios.rig import TOPIC, producing, values

HUNG = "hung"


async def encode(value: str | None) -> bytes | None:
    """Return *value* as bytes, after the seconds behind its colon."""
    if value is None:
        return None
    if value == HUNG:
        await asyncio.Event().wait()
    _, _, delay_s = value.partition(":")
    if delay_s:
        await asyncio.sleep(float(delay_s))
    return value.encode()


class Encoding:
    async def __call__(self, value: str) -> bytes | None:
        return await encode(value)


class SeesTopic:
    async def serialize(self, topic: str, headers: HeaderList, value: str) -> bytes | None:
        headers.append(("for", topic.encode()))
        return await encode(value)


class Awaiting:
    """Awaitable that is neither a coroutine nor a Future."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __await__(self) -> Any:
        return encode(self._value).__await__()


def sometimes(value: str) -> bytes | Awaitable[bytes | None]:
    return encode(value) if ":" in value or value == HUNG else value.encode()


async def encode_as(_: str, value: str) -> bytes | None:
    return await encode(value)


def coroutine_of(value: str) -> Awaitable[bytes | None]:
    return encode(value)


DECLARED: dict[str, Any] = {
    "coroutine function": encode,
    "async call": Encoding(),
    "async serialize": SeesTopic(),
    "partial": partial(encode_as, "any"),
}
PLAIN: dict[str, Any] = {
    "returns a coroutine": coroutine_of,
    "returns a task": lambda value: asyncio.ensure_future(encode(value)),
    "returns an awaitable": Awaiting,
    "sometimes awaits": sometimes,
}
every_shape = pytest.mark.parametrize("shape", [*DECLARED, *PLAIN])


def named(shape: str) -> Any:
    return (DECLARED | PLAIN)[shape]


def logged(opened: Any, topic: str = TOPIC) -> list[str]:
    return [value.decode() for value in values(opened, topic=topic) if value is not None]


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Producer, Any]]:
    """Open a cluster and a producer on it, which knows `TOPIC`."""
    async with producing(acquainted=False, **options) as (producer, opened):
        await producer.partitions_for(TOPIC)
        yield producer, opened


def begin(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


def delays(count: int) -> list[str]:
    return [f"{index}:{(index % 3) / 100}" if index % 2 else f"{index}" for index in range(count)]
