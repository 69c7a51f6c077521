"""The turn of a call while its serializers await. Calls from inside the serializer are appended ahead of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final, Protocol

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.append_lock import AppendLock, QueuedCall
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.serializing import Contents, Serialization
from aioproducer.errors import ProducerClosed, ProducerError

_inside: Final[ContextVar[SerializerTurn | None]] = ContextVar("aioproducer_serializer", default=None)
"""Turn of the innermost serializer whose code runs in this context; may be a closed turn."""


class HoldingCall(Protocol):
    """Call that holds the lock of its turn."""

    queues: TopicQueues

    def end(self, error: BaseException | None = None) -> None:
        """Leave the queue after *error*, and release the lock."""


class SerializerTurn:
    """A call that holds its topic's lock while its serializers await.

    The context variable carries the turn into the serializer and into all tasks that the serializer creates.
    """

    __slots__ = ("_call", "_failure", "_scope", "lock", "outer", "queues")

    def __init__(self, call: HoldingCall, deadline: float) -> None:
        """The wait ends at *deadline* (loop clock)."""
        self._call: HoldingCall | None = call
        self.queues: TopicQueues | None = call.queues
        """Queues of the call's topic; None once the serializers have returned."""
        self.lock: AppendLock = AppendLock()
        """Queue of the calls for the topic from inside the serializer."""
        self.outer: SerializerTurn | None = next(_open_turns(), None)
        """Turn of the serializer around the call."""
        self._scope = asyncio.timeout_at(deadline)
        self._failure: Failure | None = None

    async def contents(
        self, serialization: Serialization, accumulator: Accumulator, began_at: float
    ) -> Contents:
        """Await the serializers, and the calls from inside that are not yet appended.

        Raises: SerializationError; SerializerTimeout; the producer's error if the producer is closed meanwhile; TimeoutError
            if a call from inside is not appended in time.
        """
        before, call = _inside.get(), self._call
        # A task that began before, of Python 3.12 or later.
        get_context = getattr(serialization.awaited, "get_context", None)
        try:
            if get_context is not None:
                get_context().run(_inside.set, self)
            _inside.set(self)
            accumulator.interrupts[call] = self.interrupt
            async with self._scope:
                contents = await serialization.contents()
        except Exception as error:
            if self._scope.expired():
                cause = error if self._failure is None else None
                raise self._ended(serialization, began_at) from cause
            raise
        finally:
            accumulator.interrupts.pop(call, None)
            self._call = self.queues = None
            _inside.set(before)  # not `reset`: the collector may close the coroutine in another context
        if self._failure is not None or self._scope.expired():
            raise self._ended(serialization, began_at)
        if self.lock.held:
            deadline = self._scope.when()
            assert deadline is not None, "the wait has a deadline"
            await self.lock.acquire(QueuedCall(), deadline)
            self.lock.release()
        return contents

    def _ended(self, serialization: Serialization, began_at: float) -> ProducerError:
        """Return the error of a wait that the deadline or the end of the producer ended."""
        if self._failure is not None:
            return self._failure.error()
        return serialization.late(asyncio.get_running_loop().time() - began_at)

    def interrupt(self, failure: Failure) -> None:
        """End the wait because the producer takes no more records."""
        self._failure = failure
        if not self._scope.expired():  # else the serializer is cancelled already, and has not returned yet
            self._scope.reschedule(asyncio.get_running_loop().time())

    def withdraw(self, accumulator: Accumulator) -> None:
        """Fail the call as the producer closes; the serializer continues, and no other call waits for it."""
        assert self._call is not None, "the serializer runs"
        self._failure = Failure(ProducerClosed, "a serializer closed the producer before it returned")
        accumulator.interrupts.pop(self._call, None)
        self._call.end(self._failure.error())


def _open_turns() -> Iterator[SerializerTurn]:
    """Yield the turns whose serializers run this code, from the innermost outwards."""
    turn = _inside.get()
    while turn is not None:
        if turn.queues is not None:
            yield turn
        turn = turn.outer


def lock_for(queues: TopicQueues) -> AppendLock:
    """Return the lock in which a new call for the topic of *queues* waits for its turn."""
    return next((each.lock for each in _open_turns() if each.queues is queues), queues.append_lock)


def withdraw_callers(accumulator: Accumulator) -> None:
    """Fail the calls whose serializers close the producer now: the close would wait for them, and they for the close."""
    for turn in _open_turns():
        if turn.queues is not None and accumulator.topics.get(turn.queues.name) is turn.queues:
            turn.withdraw(accumulator)
