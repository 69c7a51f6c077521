"""Code of a user that takes its time, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aioproducer.interceptors import Interceptor
from aioproducer.serializers import HeaderList
from aioproducer.testing.virtual_time import VirtualTimeLoop
from aioproducer.types import ProducerRecord

SLOW_S = 27e-6
"""What slow code takes for a record."""


def work(takes_s: float = SLOW_S) -> None:
    """Let time pass while the event loop stands still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(takes_s)


def slow_serializer(value: str) -> bytes:
    work()
    return value.encode()


class SlowInContext:
    def serialize(self, topic: str, headers: HeaderList, value: str) -> bytes:
        headers.append((topic, None))
        return slow_serializer(value)


class SlowInterceptor(Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        work()
        return record


def slow_choice(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
    work()
    return 1
