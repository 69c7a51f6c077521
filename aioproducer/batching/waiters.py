"""The waiters of a batch: whoever wants to know what becomes of its records.

A batch holds its records as columns and, beside them, its waiters: one object for each stretch of consecutive
records that have the same kind. A batch of single sends has one stretch of Futures; a batch that `send_many` filled
has one for all (bulk.py), so that a bulk record costs neither a Future nor a call.
"""

from __future__ import annotations

import asyncio
from asyncio import InvalidStateError
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import NamedTuple, Protocol, TypeAlias

from aioproducer.batching import acknowledgement
from aioproducer.batching.acknowledgement import Acknowledgement
from aioproducer.batching.failure import Failure
from aioproducer.types import RecordMetadata

_new_metadata = partial(tuple.__new__, RecordMetadata)  # RecordMetadata._make without its Python frame


Waiter: TypeAlias = object
"""Who waits for a record, and may give up: its Future, or the call of `send_many`. Told apart by identity."""


class Delivered(NamedTuple):
    """The broker's answer for a batch, or for a stretch of it."""

    topic: str
    partition: int
    base_offset: int
    """The first record's offset, or -1 if it is not known."""
    timestamps_ms: Sequence[int]
    log_append_time: bool

    def metadata(self) -> Iterator[RecordMetadata]:
        """Return that of each record, made without a step of the interpreter for each."""
        topic, partition, base, timestamps, log_append = self
        offsets = count(base) if base >= 0 else repeat(-1)
        return map(
            _new_metadata, zip(repeat(topic), repeat(partition), offsets, timestamps, repeat(log_append))
        )

    def slice(self, start: int, stop: int) -> Delivered:
        """Return the part of records *start* to *stop*."""
        base = self.base_offset + start if self.base_offset >= 0 else -1
        return self._replace(base_offset=base, timestamps_ms=self.timestamps_ms[start:stop])


class Waiters(Protocol):
    """A stretch of a batch's records with one kind of waiter."""

    def __len__(self) -> int: ...

    def resolve(self, delivered: Delivered) -> None:
        """Tell the waiters where their records are."""

    def fail(self, failure: Failure) -> None:
        """Tell the waiters that their records failed."""

    def take(self, indices: Sequence[int]) -> Waiters:
        """Return the waiters of the records at *indices* only."""

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return which records *waiter* waits for."""

    def detach(self, waiter: Waiter, failure: Failure) -> None:
        """Tell *waiter*, if it is one of ours, that its records failed; what comes later is not for it."""


class FutureWaiters:
    """Records whose senders each hold a Future."""

    __slots__ = ("futures",)

    def __init__(self, futures: list[asyncio.Future[RecordMetadata]]) -> None:
        self.futures: list[asyncio.Future[RecordMetadata]] = futures

    def __len__(self) -> int:
        return len(self.futures)

    def resolve(self, delivered: Delivered) -> None:
        """Resolve all Futures in one pass, without a step of the interpreter for each."""
        resolved = map(asyncio.Future.set_result, self.futures, delivered.metadata())
        while True:
            try:
                deque(resolved, maxlen=0)
            except InvalidStateError:  # its waiter was cancelled; the record went all the same
                continue
            return

    def fail(self, failure: Failure) -> None:
        """Fail all Futures, each with an exception of its own."""
        for future in self.futures:
            if not future.done():
                future.set_exception(failure.error())
                future.exception()  # retrieved: nobody has to await it to keep asyncio's log quiet

    def take(self, indices: Sequence[int]) -> FutureWaiters:
        """Return those of the Futures at *indices*."""
        return FutureWaiters([self.futures[index] for index in indices])

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return where the Future *waiter* is, if it is one of these."""
        return [index for index, future in enumerate(self.futures) if future is waiter]

    def detach(self, waiter: Waiter, failure: Failure) -> None:
        """Fail the Future *waiter* now; resolving it later is passed over."""
        FutureWaiters([future for future in self.futures if future is waiter]).fail(failure)


class AwaitingWaiters:
    """Records whose senders each await an Acknowledgement: their calls have no deadline of their own."""

    __slots__ = ("acknowledgements",)

    def __init__(self, acknowledgements: list[Acknowledgement]) -> None:
        self.acknowledgements: list[Acknowledgement] = acknowledgements

    def __len__(self) -> int:
        return len(self.acknowledgements)

    def resolve(self, delivered: Delivered) -> None:
        """Let all tasks go on."""
        acknowledgement.resolve(self.acknowledgements, delivered.metadata())

    def fail(self, failure: Failure) -> None:
        """Fail all tasks, each with an exception of its own."""
        acknowledgement.fail(self.acknowledgements, [failure.error() for _ in self.acknowledgements])

    def take(self, indices: Sequence[int]) -> AwaitingWaiters:
        """Return those of them at *indices*."""
        return AwaitingWaiters([self.acknowledgements[index] for index in indices])

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return none: nobody else knows of these."""
        return ()

    def detach(self, waiter: Waiter, failure: Failure) -> None:
        """Do nothing: *waiter* is none of these."""
