"""Files that `aioproducer send` writes: the checkpoint and the dead letters."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from aioproducer._core.logfmt import escaped
from aioproducer._core.security.regular_files import descriptor_of
from aioproducer.errors import (
    ConfigError,
    InvalidRecord,
    InvalidTimestamp,
    ProducerError,
    RecordTooLarge,
)

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


OF_THE_RECORD: Final = (RecordTooLarge, InvalidRecord, InvalidTimestamp)
"""Errors that come again whenever this record is sent, and no other way than by it."""


def is_dead(error: ProducerError) -> bool:
    """Whether *error* is about the record itself, which is not in the topic: no other one fails of that."""
    return isinstance(error, OF_THE_RECORD) and not error.possibly_persisted


class DeadLetter(NamedTuple):
    """A record that was left out."""

    file: str
    unit: str
    """What a record is called there: "line" or "record"."""
    number: int
    """Which one of its file it is, from 1 on."""
    reason: str
    input: bytes
    """As it stands in the input."""

    def to_json(self) -> str:
        """Return it as an object on one line; what is no text is in Base64."""
        told: dict[str, object] = {"file": self.file, self.unit: self.number, "reason": self.reason}
        try:
            told["input"] = self.input.decode()
        except UnicodeDecodeError:
            told["input_base64"] = base64.b64encode(self.input).decode()
        return json.dumps(told, ensure_ascii=False)


class DeadLetters:
    """Takes them down, to a file or nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        """*path*: None leaves them out, and only counts."""
        self.path: Final = path
        self._file: TextIO | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the file open while the block runs; what is there already stays.

        Raises: CheckpointError: it cannot be written.
        """
        if self.path is None:
            yield
            return
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW
            descriptor = descriptor_of(own_path(self.path), flags, PRIVATE)
            self._file = open(descriptor, "a", encoding="utf-8", errors="surrogateescape")  # noqa: PTH123, SIM115 - closed below
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            with suppress(OSError):  # it is on the disk, or that was told before
                self._file.close()

    def write(self, letters: list[DeadLetter]) -> None:
        """Take down *letters*, to survive the end of the process and of the machine. Raises: CheckpointError."""
        if self._file is None or not letters:
            return
        try:
            self._file.writelines(f"{each.to_json()}\n" for each in letters)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(f"cannot write the dead letters {escaped(str(self.path))}: {error.strerror}")
