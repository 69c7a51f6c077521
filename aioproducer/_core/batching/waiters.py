"""Waiters of a batch's records, and the wake-ups of the waiting tasks.

A batch has one object per stretch of consecutive records with one kind of waiter: Acknowledgements (`send`), Futures
(`enqueue`, `send_nowait`; receipts.py), or the call of a `send_many` (bulk.py), which needs no Future per record.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import InvalidStateError
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import Context
from functools import partial
from itertools import count, repeat
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
)
from weakref import ref

from aioproducer._core.acceleration import fastest
from aioproducer.errors import DeliveryTimeout, ProducerError, TimeoutReason
from aioproducer.types import RecordMetadata


class Failure(NamedTuple):
    """Failure of several records. Each record gets its own exception instance; all instances share the cause.

    A shared instance would collect the tracebacks of all waiting tasks.
    """

    kind: type[ProducerError]
    message: str
    possibly_persisted: bool = False
    cause: BaseException | None = None
    abortable: bool = False
    fatal: bool = False
    reason: TimeoutReason | None = None
    """The `reason` of a DeliveryTimeout."""
    of_record: bool = False
    """True if a broker refused each record of the failure for the record's own content."""

    @classmethod
    def of(cls, error: ProducerError) -> Self:
        """Return *error* as the failure of several records."""
        reason = error.reason if isinstance(error, DeliveryTimeout) else None
        return cls(type(error), str(error), False, error.__cause__, error.abortable, error.fatal, reason)

    def error(self) -> ProducerError:
        """Return a new exception for one record."""
        error = self.kind(self.message, possibly_persisted=self.possibly_persisted)
        error.__cause__ = self.cause
        if self.reason is not None and isinstance(error, DeliveryTimeout):
            error.reason = self.reason
        if self.abortable or self.fatal:
            error.abortable, error.fatal = self.abortable, self.fatal
        if self.of_record:
            error._is_of_record = True  # noqa: SLF001 - of this package
        return error


WakeSignal: TypeAlias = "Acknowledgement | asyncio.Future[None]"
"""Argument of a task's wake-up: a Future that is done, whose `result()` raises the task's error, if any."""


class Acknowledgement:
    """A cheap Future for exactly one task, which awaits it immediately.

    For each resolved Future, asyncio creates and runs a handle in Python. With hundreds of tasks that each await one
    record, the handles cost a quarter of the CPU. The batch resolves its acknowledgements, and one handle wakes all waiting
    tasks (`resolve_awaited`) in the order of the records.

    An acknowledgement has only the attributes that a waiting task uses: no further callbacks, and no log of an unretrieved
    exception. `python_acknowledgements` adds the attributes that every record uses, and has a twin in C. An `__init__`
    would double the cost of an acknowledgement.
    """

    if TYPE_CHECKING:  # `_Awaited` defines these methods

        def __await__(self) -> Generator[Acknowledgement, None, RecordMetadata]: ...
        def add_done_callback(self, wakeup: Callable[[WakeSignal], object], *, context: Context) -> None: ...

    else:
        __slots__ = ()

    outcome: RecordMetadata | BaseException
    """The record's metadata, or the exception to raise; unset until the record has an outcome."""
    wakeup: Callable[[WakeSignal], object] | None
    """Wake-up callback of the task, run in `context`; None before the task waits and after its wake-up."""
    context: Context
    _loop: ClassVar[asyncio.AbstractEventLoop]
    """Event loop of the task. A class per event loop (`acknowledgement_on`) saves an attribute per record."""
    waker: ClassVar[TaskWaker]
    """Wakes the tasks of `_loop`."""
    wake_signal: ClassVar[asyncio.Future[None]]
    """Done Future that wakes tasks without an error."""

    stretch: ClassVar[Callable[[], AwaitingWaiters]]
    """Returns an empty stretch: the acknowledgement class is the `Kind` of its instances."""
    waiter: ClassVar[Callable[[], Acknowledgement]]
    """The acknowledgement class itself, as the function that returns a new acknowledgement."""

    def result(self) -> RecordMetadata:
        """Return the record's metadata, or raise the record's error, which can be raised only once."""
        outcome = self.outcome
        if isinstance(outcome, BaseException):
            # The error's traceback refers to `self`: without `del`, only the garbage collector could free error and `self`.
            del self.outcome
            try:
                raise outcome
            finally:
                del outcome
        return outcome

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the wait of the task, as `asyncio.Future.cancel` does; the record is still sent."""
        wakeup = self.wakeup
        if wakeup is None or hasattr(self, "outcome"):
            return False
        self.wakeup = None
        self.outcome = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        # The class stores the loop, because `asyncio.run` cancels remaining tasks while no loop runs.
        self._loop.call_soon(wakeup, self, context=self.context)
        return True


class _Awaited:
    """Attributes added by `python_acknowledgements`. The first slot makes `asyncio.isfuture` true."""

    __slots__ = ("_asyncio_future_blocking", "context", "outcome", "wakeup")

    outcome: RecordMetadata
    wakeup: Callable[[WakeSignal], object] | None
    context: Context

    def __await__(self) -> Generator[Self, None, RecordMetadata]:
        self.wakeup = None
        self._asyncio_future_blocking = True
        yield self
        return self.outcome  # always metadata: `result`, which the task has called, raises any error

    def add_done_callback(self, wakeup: Callable[[WakeSignal], object], *, context: Context) -> None:
        """Set the wake-up callback of the waiting task."""
        self.wakeup, self.context = wakeup, context


def python_acknowledgements(base: type[Acknowledgement]) -> type[Acknowledgement]:
    """Return a new subclass of *base* (`Acknowledgement`) with the attributes of `_Awaited`."""
    return type("Acknowledgement", (_Awaited, base), {"__slots__": ()})


_acknowledgements: Final = fastest("acknowledgements", python_acknowledgements)


def acknowledgement_on(loop: asyncio.AbstractEventLoop) -> type[Acknowledgement]:
    """Return the acknowledgement class for tasks of *loop*."""
    kind = _acknowledgements(Acknowledgement)
    kind.stretch, kind.waiter = AwaitingWaiters, kind
    kind._loop = loop  # noqa: SLF001 - a class of this module
    kind.waker = TaskWaker(loop)
    kind.wake_signal = loop.create_future()
    kind.wake_signal.set_result(None)
    return kind


def python_set_outcomes(
    waiters: Sequence[Acknowledgement], outcomes: Iterable[RecordMetadata | BaseException]
) -> None:
    """Set the outcome of each of *waiters* that a task awaits."""
    for waiter, outcome in zip(waiters, outcomes, strict=False):
        try:
            if waiter.wakeup is not None:  # else the waiter was cancelled and has its outcome
                waiter.outcome = outcome
        except AttributeError:  # Ctrl-C came between append and await: no task waits
            waiter.wakeup = None


_set_outcomes: Final = fastest("set_outcomes", python_set_outcomes)


def python_wake_each(waiters: Iterator[Acknowledgement], wake_signal: WakeSignal | None) -> None:
    """Wake the task of each waiter with *wake_signal*, or with the waiter itself if *wake_signal* is None.

    Raises: the exception of an interrupted task; *waiters* then returns the waiters that are not yet woken.

    Each wake-up callback is released immediately. Released with the last waiter of the batch, the callbacks would start the
    garbage collector, which costs a quarter of the CPU with hundreds of tasks.
    """
    for waiter in waiters:
        wakeup = waiter.wakeup
        if wakeup is not None:
            waiter.wakeup = None
            waiter.context.run(wakeup, waiter if wake_signal is None else wake_signal)


_wake_each: Final = fastest("wake_each", python_wake_each)


def reference_to(loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.AbstractEventLoop | None]:
    """Return a weak reference to *loop*."""
    try:
        return ref(loop)
    except TypeError:  # a loop of another library may not support weak references
        return lambda: loop


class TaskWaker:
    """Wakes the waiting tasks of an event loop: in its next iteration, or at the end of a read.

    One read may settle several batches, and all batches of the read are settled before a task continues. Between `pause` and
    `resume`, wake-ups are collected. `resume` runs the collected wake-ups: one iteration less per response.
    """

    __slots__ = ("_loop", "_paused")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = reference_to(loop)
        self._paused: list[tuple[Iterator[Acknowledgement], WakeSignal | None]] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, referred to weakly: the garbage collector does not see most objects that refer to the waker."""
        return cast("asyncio.AbstractEventLoop", self._loop())

    def wake(self, waiters: Iterator[Acknowledgement], wake_signal: WakeSignal | None = None) -> None:
        """Wake the task of each waiter with *wake_signal*, or with the waiter itself if *wake_signal* is None, in order."""
        if self._paused is None:
            self.loop.call_soon(self._wake, waiters, wake_signal)
        else:
            self._paused.append((waiters, wake_signal))

    def pause(self) -> None:
        """Collect wake-ups until `resume`."""
        if self._paused is None:
            self._paused = []

    def resume(self) -> bool:
        """Run the collected wake-ups now, and return True if a wake-up ran.

        Inside a running task (a transport that reads synchronously) the event loop runs the wake-ups later. The event loop
        raises the interrupt of a woken task, because the caller of `resume` is a transport.
        """
        paused, self._paused = self._paused, None
        if not paused:
            return False
        if asyncio.current_task() is not None:
            for waiters, wake_signal in paused:
                self.wake(waiters, wake_signal)
            return False
        for waiters, wake_signal in paused:
            try:
                _wake_each(waiters, wake_signal)
            except BaseException as interrupt:  # noqa: BLE001 - the event loop raises the interrupt
                self.loop.call_soon(_raise, interrupt)
                self.wake(waiters, wake_signal)
        return True

    def _wake(self, waiters: Iterator[Acknowledgement], wake_signal: WakeSignal | None) -> None:
        try:
            _wake_each(waiters, wake_signal)
        except BaseException:  # a task was interrupted: the event loop wakes the other tasks
            self.wake(waiters, wake_signal)
            raise


def _raise(interrupt: BaseException) -> NoReturn:
    raise interrupt


def resolve_awaited(waiters: Sequence[Acknowledgement], metadata: Iterable[RecordMetadata]) -> None:
    """Set the metadata of each of *waiters*, and wake their tasks (`TaskWaker`).

    A task only calls `result` of its wake_signal, so one done Future wakes all tasks.
    """
    _set_outcomes(waiters, metadata)
    kind = waiters[0]
    kind.waker.wake(iter(waiters), kind.wake_signal)


def fail_awaited(waiters: Sequence[Acknowledgement], errors: Iterable[BaseException]) -> None:
    """Fail each of *waiters* with its error, and wake their tasks (`TaskWaker`)."""
    _set_outcomes(waiters, errors)
    waiters[0].waker.wake(iter(waiters))


def python_new_metadata(
    kind: type[RecordMetadata],
    topic: str,
    partition: int,
    base_offset: int,
    timestamps_ms: Sequence[int],
    log_append_time: bool,  # noqa: FBT001 - a field of `RecordMetadata`
) -> Iterable[RecordMetadata]:
    """Return the metadata of each record, of class *kind*, created without a Python frame per record."""
    offsets = count(base_offset) if base_offset >= 0 else repeat(-1)
    fields = zip(repeat(topic), repeat(partition), offsets, timestamps_ms, repeat(log_append_time))
    return map(partial(tuple.__new__, kind), fields)  # `RecordMetadata._make` would cost a Python frame


# Since Python 3.14 a tuple stores its hash, which only `tuple.__new__` leaves unset: the C twin serves older versions.
_new_metadata: Final = (
    fastest("new_metadata", python_new_metadata) if sys.version_info < (3, 14) else python_new_metadata
)


Waiter: TypeAlias = object
"""Waiter of a record, compared by identity: the Future of the record, or the call of `send_many`."""


class Delivered(NamedTuple):
    """The broker's acknowledgement of a batch or of one stretch of the batch."""

    topic: str
    partition: int
    base_offset: int
    """Offset of the first record, or -1 if unknown."""
    timestamps_ms: Sequence[int]
    log_append_time: bool

    def metadata(self) -> Iterable[RecordMetadata]:
        """Return the metadata of each record."""
        return _new_metadata(RecordMetadata, *self)

    def slice(self, start: int, stop: int) -> Delivered:
        """Return the part of records *start* to *stop*."""
        base = self.base_offset + start if self.base_offset >= 0 else -1
        return self._replace(base_offset=base, timestamps_ms=self.timestamps_ms[start:stop])


class Waiters(Protocol):
    """A stretch of a batch's records with one kind of waiter."""

    def __len__(self) -> int: ...

    def resolve(self, delivered: Delivered) -> None:
        """Settle the waiters with the metadata of their records."""

    def fail(self, failure: Failure) -> None:
        """Fail the waiters with *failure*."""

    def take(self, indices: Sequence[int]) -> Waiters:
        """Return the waiters of the records at *indices* only."""

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return the indices of the records of *waiter*."""

    @property
    def all_waiters_expired(self) -> bool:
        """True if all calls of the stretch have failed at their own deadlines."""


W_co = TypeVar("W_co", covariant=True)


W_contra = TypeVar("W_contra", contravariant=True)


class Stretch(Waiters, Protocol[W_contra]):
    """Stretch with one waiter per record."""

    def append(self, waiter: W_contra, /) -> None:
        """Add *waiter*, of the stretch's kind, for the record just appended."""


class Kind(Protocol[W_co]):
    """A kind of waiter. Consecutive records of a batch with the same kind share one stretch."""

    @property
    def stretch(self) -> Callable[[], Stretch[Any]]:
        """Function that returns an empty stretch of this kind."""

    @property
    def waiter(self) -> Callable[[], W_co]:
        """Function that returns a waiter of this kind, which a stretch adds later."""


class FutureWaiters(list["asyncio.Future[RecordMetadata]"]):
    """Stretch with one `asyncio.Future` per record."""

    __slots__ = ()

    def resolve(self, delivered: Delivered) -> None:
        """Resolve all Futures in one pass, without a Python frame per Future."""
        if not self:
            return
        # nest_asyncio may have replaced `asyncio.Future`, so `set_result` is taken from the class of the first Future.
        resolved = map(type(self[0]).set_result, self, delivered.metadata())
        while True:
            try:
                deque(resolved, maxlen=0)
            except InvalidStateError:  # one Future was cancelled; its record was sent
                continue
            return

    def fail(self, failure: Failure) -> None:
        """Fail all pending Futures, each with its own exception. Later outcomes are ignored."""
        for future in self:
            if not future.done():
                future.set_exception(failure.error())
            if not future.cancelled():
                future.exception()  # asyncio logs exceptions that are never retrieved

    def take(self, indices: Sequence[int]) -> FutureWaiters:
        return FutureWaiters([self[index] for index in indices])

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return the index of the Future *waiter*, or no index if another stretch has the Future."""
        return [index for index, future in enumerate(self) if future is waiter]

    @property
    def all_waiters_expired(self) -> bool:
        """True if all Futures have failed; the record of a cancelled Future is still sent."""
        return all(future.done() and not future.cancelled() for future in self)


class AwaitingWaiters(list[Acknowledgement]):
    """Stretch with one Acknowledgement per record. Calls that await an Acknowledgement have no deadline of their own."""

    __slots__ = ()

    all_waiters_expired: ClassVar[bool] = False

    def resolve(self, delivered: Delivered) -> None:
        """Wake all tasks with the metadata of their records."""
        resolve_awaited(self, _new_metadata(RecordMetadata, *delivered))  # inlined `metadata`: saves a frame

    def fail(self, failure: Failure) -> None:
        """Fail all tasks, each with its own exception."""
        fail_awaited(self, [failure.error() for _ in self])

    def take(self, indices: Sequence[int]) -> AwaitingWaiters:
        return AwaitingWaiters([self[index] for index in indices])

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return no index: only the awaiting task refers to its acknowledgement."""
        return ()
