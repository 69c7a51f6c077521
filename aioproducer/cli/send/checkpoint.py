"""A checkpoint: how much of an input is acknowledged, in a file. A later call goes on behind it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aioproducer._core.escaping import escaped
from aioproducer.cli.send.own_files import NO_FOLLOW, PRIVATE, own_path
from aioproducer.errors import ConfigError

if sys.platform != "win32":
    import fcntl

_BEGIN: Final = b'{\n  "work": {'
"""How a checkpoint begins."""
MOST_BYTES: Final = 64 * 1024
"""More than any checkpoint has: whoever names a wrong file need not wait until it is read."""


class CheckpointError(ConfigError):
    """The file cannot be a checkpoint, or is not one of this input."""


@dataclass(slots=True)
class Prefix:
    """The beginning of an input, up to which everything is acknowledged."""

    size: int = 0
    """In bytes."""
    records: int = 0
    place: str | None = None
    """Where it ends, for people."""
    cluster: str | None = None
    """The id of the cluster that acknowledged it."""
    _hash: Any = field(default_factory=hashlib.sha256)

    def extend(self, raw: bytes, records: int) -> None:
        """Take it that *raw*, which follows, is acknowledged, too."""
        self.size += len(raw)
        self.records += records
        self._hash.update(raw)

    @property
    def sha256(self) -> str:
        """By which the same beginning is recognised."""
        digest: str = self._hash.hexdigest()
        return digest


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a checkpoint says."""

    size: int
    records: int
    sha256: str
    cluster: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that says how far one input has got, and of what *work*: topic, format and run."""

    path: Path
    work: dict[str, str | None]

    def load(self) -> Remembered | None:
        """Return what it says; None if there is no such file yet.

        Raises: CheckpointError: it is none, or of another topic, format or run.
        """
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # a FIFO would keep us waiting
                raise CheckpointError(
                    f"cannot read the checkpoint {escaped(str(self.path))}: it is not a regular file"
                )
            with self.path.open() as file:
                text = file.read(MOST_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"cannot read the checkpoint {escaped(str(self.path))}: {_reason(error)}"
            ) from error
        try:
            told = json.loads(text)
            work = {name: told["work"][name] for name in self.work}
            remembered = Remembered(
                _count(told["bytes"]), _count(told["records"]), str(told["sha256"]), told["cluster"]
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(
                f"{escaped(str(self.path))} is not a checkpoint of aioproducer send; it was not changed"
            ) from error
        for name, mine in self.work.items():
            if work[name] != mine:
                raise CheckpointError(
                    f"the checkpoint {escaped(str(self.path))} was made with {name} {work[name]}, not {mine}: name another file"
                )
        return remembered

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes away from it while the block runs; a killed one keeps nobody away.

        Raises: CheckpointError: another one has it, or it cannot be written.
        """
        if sys.platform == "win32":
            self._make_room()
            yield
            return
        try:
            path = self._beside(".lock")
        except OSError as error:
            raise self._unwritable(error.strerror) from error
        in_use = f"another process is at work with the checkpoint {escaped(str(self.path))}: wait for its end, or name another file"
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, PRIVATE)
        except OSError as error:
            raise self._unwritable(error.strerror) from error
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(in_use) from None
            except OSError:
                pass  # a file system without locks: it goes without, as ever
            if not _is_still(path, file):
                raise CheckpointError(in_use)  # it ended between two of our calls, and took the file away
            if os.fstat(file).st_size:
                raise self._in_the_way(path)
            try:
                self._make_room()
                yield
            finally:
                with suppress(OSError):
                    path.unlink()
        finally:
            os.close(file)

    def save(self, prefix: Prefix) -> None:
        """Write it down, all or nothing, to survive the end of the process and of the machine.

        Raises: CheckpointError: that cannot be done. What was written before stays.
        """
        told = {
            "work": self.work,
            "cluster": prefix.cluster,
            "bytes": prefix.size,
            "records": prefix.records,
            "sha256": prefix.sha256,
            "acknowledged": prefix.place,
        }
        try:
            new, target = self._beside(".new"), self._beside("")
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, PRIVATE)
            try:
                with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
                    if hasattr(os, "fchmod") and target.exists():
                        os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
                    file.write(json.dumps(told, indent=2) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(target)
            except BaseException:
                with suppress(OSError):
                    new.unlink()
                raise
        except OSError as error:
            raise self._unwritable(error.strerror) from error

    def _make_room(self) -> None:
        """Take away what a killed process may have left of a `save`; what somebody else has there is to stay."""
        try:
            new = self._beside(".new")
            if not os.path.lexists(new):
                return
            if new.is_symlink() or not new.is_file() or _begin_of(new) not in (b"", _BEGIN):
                raise self._in_the_way(new)
            new.unlink()
        except OSError as error:
            raise self._unwritable(error.strerror) from error

    def _beside(self, suffix: str) -> Path:
        """Return a name next to the file itself, so that a link to the file stays a link.

        Raises: OSError: a link on the way belongs to another user.
        """
        path = own_path(self.path)
        return path.with_name(path.name + suffix)

    def _in_the_way(self, path: Path) -> CheckpointError:
        return self._unwritable(
            f"{escaped(str(path))} is in the way, which is another file: move it, or name another checkpoint"
        )

    def _unwritable(self, why: str | None) -> CheckpointError:
        return CheckpointError(f"cannot write the checkpoint {escaped(str(self.path))}: {why}")


def _begin_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_BEGIN))


def _is_still(path: Path, file: int) -> bool:
    """Whether *path* is that open *file*."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _count(told: Any) -> int:
    if type(told) is not int or told < 0:
        raise ValueError(f"{told} is no count")
    return told


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is no text"
