"""A fair lock for appending to a topic, and the calls that queue for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import count
from operator import attrgetter
from typing import Final

from aioproducer._core.acceleration import LockFields, MemoryFields
from aioproducer.errors import ProducerError

_numbers: Final = count(1)
_by_number: Final = attrgetter("number")


class QueuedCall:
    """Call in the queue of an `AppendLock`. A call may leave the queue, and come back in front of later calls."""

    __slots__ = ("number", "served")

    number: int
    """Position of the call among all calls."""
    served: asyncio.Future[bool] | None
    """Result of `AppendLock.acquire` while the call is in the queue; else None."""

    def __init__(self) -> None:
        self.served = None
        self.take_number()

    def take_number(self) -> None:
        """Take a position behind all earlier calls."""
        self.number = next(_numbers)

    def attempt(self) -> bool:
        """Append the records of the call if the append needs no waiting; return True if all records are appended."""
        return False


class AppendLock(LockFields):
    """A fair lock. A call that releases the lock makes the attempts of the waiting calls.

    An `asyncio.Lock` wakes one waiter per iteration, so hundreds of tasks that had to wait once would queue forever.
    """

    __slots__ = ("_holder", "_line")

    def __init__(self) -> None:
        self.held: bool = False
        """True if a call holds the lock. No call waits for a free lock."""
        self._holder: QueuedCall | None = None
        self._line: dict[QueuedCall, asyncio.Future[bool]] = {}
        """The waiting calls in the order of their numbers, with `served` as value. Calls may leave the middle of the queue.

        The queue is an OrderedDict once a call waits: finding the first key of a dict gets slower with each removal.
        Before the first wait the queue is an empty dict, which the garbage collector does not track.
        """

    @property
    def calls(self) -> int:
        """Number of calls that hold the lock or wait for it."""
        return self.held + len(self._line)

    async def acquire(self, call: QueuedCall, deadline: float) -> bool:
        """Wait until *call* holds the lock, and return False; the caller must `release` the lock.

        Return True, without the lock, if another call made the attempt of *call* and the attempt succeeded.

        Raises: the error of an attempt by another call; TimeoutError once the loop's clock passes *deadline*. A late or
            cancelled call leaves the queue.
        """
        if call.served is None and not self.held:
            self._holder = call
            self.held = True
            return False
        served = call.served = call.served or self._enqueue(call)
        timer = asyncio.get_running_loop().call_at(deadline, self._give_up, call, served)
        try:
            return await served
        except BaseException:
            self.withdraw(call)
            raise
        finally:
            timer.cancel()
            call.served = None

    def readmit(self, calls: Iterable[QueuedCall]) -> None:
        """Put *calls* that left the queue back at the positions of their numbers; `acquire` continues to wait."""
        for call in calls:
            call.served = self._enqueue(call)
        self._line = OrderedDict((call, self._line[call]) for call in sorted(self._line, key=_by_number))
        if not self.held:
            self.held = True
            self.release()

    def is_first(self, call: QueuedCall) -> bool:
        """Return True if no earlier call waits. An earlier call that left the queue may have come back."""
        first = next((each for each, served in self._line.items() if not served.done()), call)
        return first.number >= call.number

    def withdraw(self, call: QueuedCall) -> None:
        """Drop *call* from the queue, and release the lock if *call* holds the lock. Repeated calls have no effect."""
        self._line.pop(call, None)
        is_orphan = self.held and self._holder is None  # an exception interrupted `readmit`
        if self._holder is call or is_orphan:
            self.release()

    def release(self) -> None:
        """Release the lock: make the attempts of waiting calls until a call has to hold the lock itself.

        An exception of a signal handler leaves all calls in the queue; a repeated `release` continues with the first call.
        """
        before, self._holder = self._holder, None
        if before is not None and before in self._line and self._line[before].done():
            del self._line[before]  # another call granted the lock, and was interrupted directly afterwards
        while self._line:
            call, served = next(iter(self._line.items()))
            try:
                if not served.done():  # a cancellation or an interrupted `release` ends `served` first
                    served.set_result(call.attempt())
            except asyncio.CancelledError:  # user code raised the error: this code awaits nothing
                served.cancel()
            except (ProducerError, ValueError) as error:
                served.set_exception(error)
            except BaseException:  # a signal handler may have raised: the call makes its attempt itself
                if not served.done():
                    served.set_result(False)
                raise
            is_granted = not served.cancelled() and served.exception() is None and not served.result()
            if is_granted:
                self._holder = call
            self._line.pop(call, None)
            if is_granted:
                return
        self.held = False

    def _enqueue(self, call: QueuedCall) -> asyncio.Future[bool]:
        if not self._line:
            self._line = OrderedDict()
        served = self._line[call] = asyncio.get_running_loop().create_future()
        return served

    def _give_up(self, call: QueuedCall, served: asyncio.Future[bool]) -> None:
        if not served.done():
            del self._line[call]
            served.set_exception(TimeoutError())


class MemoryBudget(MemoryFields):
    """Memory budget in bytes. Calls that wait for memory are served in the order of their arrival.

    `free` and `waiters` are public: while no call waits, the append path charges the budget without a call.
    """

    __slots__ = ("granted", "limit", "waited_s")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.free: int = limit
        self.waited_s: float = 0.0
        """Total time of all finished waits, in seconds."""
        self.granted: dict[object, int] = {}
        """Bytes granted and not used yet, per owner."""
        self.waiters: deque[tuple[int, asyncio.Future[None], object]] = deque()

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.limit - self.free

    async def take(self, size: int, deadline: float, owner: object = None) -> None:
        """Take *size* bytes for *owner* after all earlier calls have their bytes; the caller must call `use`.

        Bytes granted to a cancelled or expired call are passed to the next waiter.

        Raises: TimeoutError once the loop's clock passes *deadline*.
        """
        owner = object() if owner is None else owner
        if not self.waiters and size <= self.free:
            self.granted[owner] = size
            self.free -= size
            return
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        granted = loop.create_future()
        waiter = (size, granted, owner)
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await granted
        except BaseException:
            self.granted.pop(owner, None)
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.give_back(size)
            else:
                with contextlib.suppress(ValueError):  # _serve() may have removed the waiter already
                    self.waiters.remove(waiter)
                self._serve()  # a large request that leaves may have blocked small requests
            raise
        finally:
            self.waited_s += loop.time() - began_at

    def use(self, owner: object) -> int:
        """Return the number of bytes taken for *owner*; the caller must append with these bytes, or give them back."""
        return self.granted.pop(owner, 0)

    def forget(self, owner: object) -> None:
        """Drop the bytes that the interrupted *owner* waits for or was granted. The caller recomputes `free`."""
        self.granted.pop(owner, None)
        self.waiters = deque(each for each in self.waiters if each[2] is not owner)

    def give_back(self, size: int) -> None:
        """Return *size* bytes, and grant memory to waiting calls."""
        self.free += size
        if self.waiters:
            self._serve()

    def fail_waiters(self, error: Callable[[], ProducerError]) -> None:
        """Fail all waiting calls, each with its own instance from *error*."""
        waiters, self.waiters = self.waiters, deque()
        for _, granted, _ in waiters:
            if not granted.done():
                granted.set_exception(error())

    def _serve(self) -> None:
        while self.waiters:
            size, granted, owner = self.waiters[0]
            if size > self.free:
                return
            if not granted.done():  # a cancelled call returns its bytes itself
                if owner not in self.granted:  # an exception may have interrupted `_serve` after the grant
                    self.granted[owner] = size
                    self.free -= size
                granted.set_result(None)
            self.waiters.popleft()
