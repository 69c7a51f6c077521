"""The allocator of the C library: what it does with memory that is let go."""

from __future__ import annotations

from typing import Final

from aioproducer._core.acceleration import fastest

LARGEST_BYTES: Final = 16 * 1024 * 1024
"""More than any batch or request has."""


def python_keep_freed_memory(size: int) -> None:
    """Do nothing: a block that Python allocates is a cleared one, and takes the memory that it should not."""


keep_freed_memory: Final = fastest("keep_freed_memory", python_keep_freed_memory)
"""Let glibc keep memory that is freed for the next blocks of up to *size* bytes. Other allocators do as they always did.

A batch and its request are some hundred KiB each, and are needed until they are acknowledged. glibc gives blocks of that
size back to the operating system, and each 4 KiB of the next ones cost a page fault: 15 % of the CPU of records of 1 KiB.
What it keeps follows the largest block that it was ever given back: up to twice as much at the top of each heap
(`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` in mallopt(3)), unless the environment says otherwise. So one of that size is
allocated and freed; nothing is put in it.
"""
