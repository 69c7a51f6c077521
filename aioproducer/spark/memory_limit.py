"""Memory of Spark's Python processes: the limit `spark.executor.pyspark.memory`, and the garbage collector."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from aioproducer.errors import ProducerError

if sys.platform != "win32":
    import resource

BUFFER_SHARE: Final = 32
"""Divisor of the limit for the producer's buffer: 500 MiB gives 15 MiB, and 1 GiB gives Kafka's default of 32 MiB."""
STACK_BYTES: Final = 2 * 1024 * 1024
"""Stack size of the thread of the event loop, in bytes; the default of Linux is 8 MiB."""
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
"""Parameters of `mallopt` in glibc's malloc.h."""
LARGE_BYTES: Final = 1024 * 1024
"""Minimum size of blocks that `free` returns to the operating system immediately."""
ARENA_BYTES: Final = 128 * 1024 * 1024
"""Address space that mimalloc, Arrow's allocator, reserves under a limit if `ARENA_BYTES` are free."""
STATM: Final = Path("/proc/self/statm")
MAX_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"

_lowered: Final[dict[int, int]] = {}
"""The original limit for each limit that `_keep_from_arena` has set."""


class TaskOutOfMemory(ProducerError):
    """A task has no memory left for its rows."""


def limit_bytes() -> int | None:
    """Return the limit of the address space of this process; None: no limit."""
    if sys.platform == "win32":  # Windows has no limit of the address space
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else _lowered.get(soft, soft)


def buffer_bytes(default: int, largest_request: int) -> int:
    """Return the buffer memory of a producer in this process: *default*, or less under a limit.

    The buffer holds at least the largest request, so a limit never makes a row too large.
    """
    limit = limit_bytes()
    return default if limit is None else min(default, max(limit // BUFFER_SHARE, largest_request))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return True if *error* or one of its causes is a MemoryError, for example in a task of the producer."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__cause__
    return error is not None


def out_of_memory() -> TaskOutOfMemory:
    """Return the error of a task after a MemoryError."""
    limit = limit_bytes()
    bound = (
        "this process"
        if limit is None
        else f"spark.executor.pyspark.memory ({limit >> 20} MiB for this process)"
    )
    return TaskOutOfMemory(
        f"the task: two of Spark's Arrow batches, the rows in flight and Python do not fit into {bound}; set"
        f" {MAX_BATCH}=8388608 (Spark 4.2, 64 MiB by default), or lower"
        " spark.sql.execution.arrow.maxRecordsPerBatch (10000 rows by default), or raise the limit"
    )


@contextmanager
def limited_address_space() -> Iterator[None]:
    """Under a limit, reduce the address space of this process and the stacks of threads that start in the context.

    A thread reserves 8 MiB for its stack, and glibc 64 MiB for a heap per thread (128 MiB at first). Arrow's own pool keeps
    tens of MiB that the system's pool frees. pyarrow imports pandas (50 MiB) at its first conversion, which Spark makes at
    the end of each task. An import without free memory would leave too little memory for all later tasks.
    """
    limit = limit_bytes()
    if limit is None:
        yield
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has mallopt
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    pa.set_memory_pool(pa.system_memory_pool())
    pa.array([b""])  # this first conversion imports pandas
    _keep_from_arena(limit)
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


def _keep_from_arena(limit: int) -> None:
    """Lower *limit* so that no arena fits above the present size of the process, if an arena would use most of the free space.

    Without space for an arena, mimalloc maps only the few KiB that Spark needs.
    """
    try:
        used = int(STATM.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:  # only Linux has /proc
        return
    lowered = used + ARENA_BYTES - LARGE_BYTES
    if lowered < limit < used + 2 * ARENA_BYTES:
        _lowered[lowered] = limit
        resource.setrlimit(resource.RLIMIT_AS, (lowered, resource.getrlimit(resource.RLIMIT_AS)[1]))


DAEMON: Final = "pyspark.daemon"
"""Program that forks Spark's Python processes, which collect garbage after every request."""

TIMES: Final = 2
"""Number of freezes per process. The second freeze includes pandas, which pyarrow imports after the first report."""

_freezes: Final[Counter[int]] = Counter()
"""Number of freezes by process id, including freezes before a fork."""


def freeze_heap() -> None:
    """Collect garbage and freeze the remaining objects, in the first two calls in a Python process of Spark.

    Most remaining objects belong to imported modules. A scan of these objects takes 25 to 50 ms after every micro-batch.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != DAEMON or _freezes[os.getpid()] == TIMES:
        return
    _freezes[os.getpid()] += 1
    gc.collect()
    gc.freeze()
