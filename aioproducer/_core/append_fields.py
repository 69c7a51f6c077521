"""Base classes with the fields that `FastAppend` reads and writes; with the accelerator the fields are in C structs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aioproducer._core.acceleration import fastest

if TYPE_CHECKING:
    from asyncio import Future


class PythonMemoryFields:
    """Fields of a memory budget."""

    __slots__ = ("free", "waiters")

    free: int
    """Free memory, in bytes. Negative after a split batch has overdrawn the budget."""
    waiters: deque[tuple[int, Future[None], object]]
    """Calls that wait for memory, in order."""


class PythonClockFields:
    """Field of a clock."""

    __slots__ = ("known_ms",)

    known_ms: int
    """Wall-clock time of this iteration of the event loop, in milliseconds, or 0 before the first request for the time."""


class PythonLockFields:
    """Field of a topic's append lock."""

    __slots__ = ("held",)

    held: bool
    """True while a call holds the lock. Without a holder no call waits for the lock."""


class PythonTopicFields:
    """Fields of a topic."""

    __slots__ = ("append_lock", "by_partition", "leaders", "sticky")

    append_lock: Any
    """Lock of the calls that wait before they append."""
    by_partition: Mapping[int, Any]
    """Queue of each partition with records. An index creates a missing queue; `get` returns None instead."""
    leaders: Sequence[int]
    """Node id of each partition's leader, or NO_LEADER. Empty while the topic is unknown."""
    sticky: Any
    """Queue for records without a key and without a partition, or None before the first such record."""


class PythonQueueFields:
    """Field of a partition's queue."""

    __slots__ = ("open",)

    open: Any
    """Last batch of the queue while the batch takes records, else None."""


class PythonBatchFields:
    """Fields of a batch."""

    __slots__ = ("columns", "held", "kind", "last", "limit", "size")

    columns: Any
    """Records of the batch."""
    kind: Any
    """Kind of the last stretch's waiters if a single record may join the stretch, else None."""
    last: Any
    """Waiters of the last stretch."""
    size: int
    """Size compared with `limit`, in bytes."""
    held: int
    """Memory held of the budget, in bytes."""
    limit: int
    """Size at which an open batch leaves the fast path, in bytes; 0 closes the batch to new calls."""


if TYPE_CHECKING:  # one static type for both implementations
    MemoryFields = PythonMemoryFields
    ClockFields = PythonClockFields
    LockFields = PythonLockFields
    TopicFields = PythonTopicFields
    QueueFields = PythonQueueFields
    BatchFields = PythonBatchFields
else:
    MemoryFields = fastest("MemoryFields", PythonMemoryFields)
    ClockFields = fastest("ClockFields", PythonClockFields)
    LockFields = fastest("LockFields", PythonLockFields)
    TopicFields = fastest("TopicFields", PythonTopicFields)
    QueueFields = fastest("QueueFields", PythonQueueFields)
    BatchFields = fastest("BatchFields", PythonBatchFields)
