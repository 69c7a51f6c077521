"""The choice between functions in Python and their twins in C, and functions with an effect in C only.

`AIOPRODUCER_PURE=1` in the environment before the first import disables the accelerator.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _accelerator() -> ModuleType | None:
    if os.environ.get("AIOPRODUCER_PURE", "0") not in {"", "0"}:
        return None
    try:
        return import_module("aioproducer._core._accelerator")
    except ImportError:  # the accelerator is not built, or is built for another Python
        return None


_ACCELERATOR: Final = _accelerator()

accelerated: Final[bool] = _ACCELERATOR is not None
"""True if the C accelerator is in use."""


def fastest(name: str, python: F) -> F:
    """Return the C function *name*, or its Python twin *python*."""
    return getattr(_ACCELERATOR, name, python)  # an older build may lack the function


# From Python 3.14 on a tuple stores its hash, which only `tuple.__new__` leaves unset.
new_tuple: Final[Callable[..., Any]] = (
    fastest("new_tuple", tuple.__new__) if sys.version_info < (3, 14) else tuple.__new__
)
"""`new_tuple(kind, items)` creates an instance of the NamedTuple *kind* without the frame of `kind.__new__`."""


def python_untracking(create: F) -> F:
    """Return *create*, because Python cannot exclude an object from the garbage collector."""
    return create


untracking: Final = fastest("untracking", python_untracking)
"""`untracking(create)` returns a function that calls *create*, a class or function, with positional arguments.

The garbage collector does not visit the returned objects. No reference of a returned object may ever lead back to the
object. A full collection visits all tracked objects, and starts when the number of tracked objects has grown by a
quarter: tracked objects of thousands of topics would slow down the first records of the topics.
"""


LARGEST_BYTES: Final = 16 * 1024 * 1024
"""Size in bytes, larger than any batch or request."""


def python_keep_freed_memory(size: int) -> None:
    """Do nothing, because Python would write to an allocated block, and the block would occupy memory."""


keep_freed_memory: Final = fastest("keep_freed_memory", python_keep_freed_memory)
"""Make glibc keep freed blocks of up to *size* bytes for reuse; no effect on other allocators.

Batches and requests have some hundred KiB each. glibc returns blocks of some hundred KiB to the operating system, and
each 4 KiB of the next block cost a page fault: 15 % of the CPU with records of 1 KiB. glibc's thresholds
(`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` in mallopt(3)) follow the largest freed block. So this function allocates
and frees one unused block of *size* bytes.
"""


class PythonMemoryFields:
    """Fields of a memory budget."""

    __slots__ = ("free", "waiters")

    free: int
    """Free memory, in bytes. Negative after a split batch has overdrawn the budget."""
    waiters: deque[tuple[int, Any, object]]
    """Calls that wait for memory, in order."""


class PythonClockFields:
    """Field of a clock."""

    __slots__ = ("known_ms",)

    known_ms: int
    """Wall-clock time of this iteration of the event loop, in milliseconds; 0 until two readings are equal."""


class PythonLockFields:
    """Field of a topic's append lock, documented in `AppendLock`."""

    __slots__ = ("held",)

    held: bool


class PythonTopicFields:
    """Fields of a topic, documented in `TopicQueues`."""

    __slots__ = ("append_lock", "by_partition", "leaders", "sticky")

    append_lock: Any
    by_partition: Mapping[int, Any]
    leaders: Sequence[int]
    sticky: Any


class PythonQueueFields:
    """Field of a partition's queue."""

    __slots__ = ("open",)

    open: Any
    """Last batch of the queue while the batch takes records, else None."""


class PythonBatchFields:
    """Fields of a batch, documented in `Batch`."""

    __slots__ = ("columns", "held", "kind", "last", "limit", "size")

    columns: Any
    kind: Any
    last: Any
    size: int
    held: int
    limit: int


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
