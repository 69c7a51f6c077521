"""Paths and modes of the files that `aioproducer send` writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
"""Mode of a new file: dead letters contain records."""
NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
"""Windows has no such flag."""
_MOST_LINKS: Final = 40


class ForeignLink(OSError):
    """Raised for a symbolic link of another user on the path of a file: the link could redirect the write."""

    def __init__(self, link: str) -> None:
        super().__init__(
            errno.ELOOP, "a symbolic link on the way belongs to another user; name the file itself"
        )
        self.link = link


def own_path(path: Path) -> Path:
    """Return *path* without symbolic links. Links of this user and of root are followed.

    Raises: ForeignLink; OSError: links form a circle.
    """
    if not hasattr(os, "geteuid"):  # Windows
        return Path(os.path.realpath(path))
    trusted, links = {0, os.geteuid()}, 0
    waiting = [*reversed(Path(os.path.abspath(path)).parts)]  # noqa: PTH100 - `resolve` follows links
    found = Path(waiting.pop())
    while waiting:
        part = waiting.pop()
        if part == "..":
            found = found.parent
            continue
        step = found / part
        if not step.is_symlink():
            found = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if step.lstat().st_uid not in trusted:
            raise ForeignLink(str(step))
        target = step.readlink()
        waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        if target.is_absolute():
            found = Path(target.anchor)
    return found
