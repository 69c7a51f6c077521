"""Opening of regular files without blocking. A FIFO or device could block a worker thread, and so all logins, forever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str) -> BinaryIO:
    """Open *path* for reading.

    Raises: OSError if *path* is no regular file or cannot be opened; ValueError if *path* is no possible name.
    """
    return open(descriptor_of(path, os.O_RDONLY), "rb")


def descriptor_of(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open the regular file *path* and return its descriptor. Raises: as `open_regular`."""
    descriptor = os.open(path, flags | _FLAGS, mode)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "not a regular file")
