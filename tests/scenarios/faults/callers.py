"""Callers that send in every way, with their own deadlines and random cancellations, and store every outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Literal, NamedTuple

from aioproducer import Producer, ProducerError, RecordMetadata, SendManyError
from tests.scenarios.faults.model import Call, Cancelled, Outcome

How = Literal["send", "enqueue", "send_nowait", "send_many"]

RecordFuture = asyncio.Future[RecordMetadata]


class Wish(NamedTuple):
    """A call to make."""

    how: How
    topic: str
    partition: int | None
    sizes: Sequence[int]
    """How long the values are: several for `send_many`, else one."""
    timeout_s: float | None = None
    cancelled_after_s: float | None = None


@dataclass(slots=True)
class Callers:
    """Makes calls, each in a task of its own, and remembers them."""

    producer: Producer
    memory_is_short: bool
    """Whether calls may have to wait for memory: then `send_many` has a wait, and a deadline, for each part of it."""
    calls: list[Call] = field(default_factory=list)
    """Every record, in the order of the calls."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """The calls that have not returned."""
    bugs: list[BaseException] = field(default_factory=list)
    """What calls have raised that they must not."""

    def start(self, wish: Wish) -> asyncio.Task[None]:
        """Make a call."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._make(wish), name=f"call of {wish.how}")
        self.tasks.add(task)
        task.add_done_callback(self._returned)
        if wish.cancelled_after_s is not None:
            loop.call_later(wish.cancelled_after_s, task.cancel)
        return task

    async def _make(self, wish: Wish) -> None:
        first = len(self.calls)
        calls = [self._note(wish, size, first) for size in wish.sizes]
        topic, partition, timeout_s, value = wish.topic, wish.partition, wish.timeout_s, calls[0].value
        outcomes: Sequence[Outcome]
        try:
            match wish.how:
                case "send":
                    told = await self.producer.send(topic, value, partition=partition, timeout_s=timeout_s)
                    outcomes = [told]
                case "send_many":
                    values = [call.value for call in calls]
                    outcomes = list(
                        await self.producer.send_many(topic, values, partition=partition, timeout_s=timeout_s)
                    )
                case "enqueue":
                    future = await self.producer.enqueue(
                        topic, value, partition=partition, timeout_s=timeout_s
                    )
                    self._watch(calls[0], future, wish)
                    return
                case "send_nowait":
                    future = self.producer.send_nowait(topic, value, partition=partition)
                    self._watch(calls[0], future, wish)
                    return
        except SendManyError as error:
            outcomes = list(error.result)
        except (ProducerError, ValueError) as error:
            outcomes = [error] * len(calls)
        except asyncio.CancelledError:
            outcomes = [Cancelled.CANCELLED] * len(calls)
        now = asyncio.get_running_loop().time()
        for call, outcome in zip(calls, outcomes, strict=True):
            call.settle(outcome, now)

    def _note(self, wish: Wish, size: int, first: int) -> Call:
        now, number = asyncio.get_running_loop().time(), len(self.calls)
        call = Call(
            number=number,
            how=wish.how,
            topic=wish.topic,
            partition=wish.partition,
            value=(b"%d/" % number).ljust(size, b"."),
            called_at=now,
            deadline=now + self._patience_s(wish),
            first=first,
        )
        self.calls.append(call)
        return call

    def _patience_s(self, wish: Wish) -> float:
        delivery_s = self.producer.config.delivery_timeout_ms / 1000
        if wish.timeout_s is not None:
            return min(wish.timeout_s, delivery_s)
        if wish.how != "send_many":
            return delivery_s
        # Its time begins when it is appended: for each chunk, and after a wait for a partition that may be new.
        return inf if self.memory_is_short else delivery_s + self.producer.config.max_block_s

    def _watch(self, call: Call, future: RecordFuture, wish: Wish) -> None:
        future.add_done_callback(partial(_resolved, call))
        if wish.cancelled_after_s is not None:
            asyncio.get_running_loop().call_later(wish.cancelled_after_s, future.cancel)

    def _returned(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self.bugs.append(bug)


def _resolved(call: Call, future: RecordFuture) -> None:
    now = asyncio.get_running_loop().time()
    if future.cancelled():
        call.settle(Cancelled.CANCELLED, now)
        return
    error = future.exception()
    assert error is None or isinstance(error, ProducerError), error
    call.settle(future.result() if error is None else error, now)
