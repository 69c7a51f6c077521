"""The allocator of the C library: what it does with memory that is let go."""

from __future__ import annotations

from typing import Final

LARGEST_BYTES: Final = 16 * 1024 * 1024
"""Above any batch and any request."""


def keep_freed_memory() -> None:
    """Let glibc keep memory of ours for the next batches and requests; other C libraries do as they always did.

    A batch and its request are some hundred KiB each, and are needed until they are acknowledged. glibc gives blocks of that
    size back to the operating system, which takes a page fault for every 4 KiB of the next: a fifth of the CPU of records of
    1 KiB. What it keeps follows the largest block that it was ever given back: up to twice as much (`M_TRIM_THRESHOLD` and
    `M_MMAP_THRESHOLD` in mallopt(3)), unless the environment says otherwise. This is such a block; nothing is ever put in it,
    so it takes no memory.
    """
    _ = bytes(LARGEST_BYTES)
