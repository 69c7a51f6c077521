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
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from aioproducer._core.logfmt import escaped
from aioproducer._core.security.stores import descriptor_of
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
"""Flag that refuses a symbolic link as the last part of a path; 0 on Windows, which lacks the flag."""
_MOST_LINKS: Final = 40


class ForeignLink(OSError):
    """Raised for a symbolic link of another user on the path of a file: the link could redirect the write."""

    def __init__(self, link: str) -> None:
        super().__init__(
            errno.ELOOP, "a symbolic link on the path belongs to another user; pass the path without the link"
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
"""First bytes of a checkpoint."""
MOST_BYTES: Final = 64 * 1024
"""Maximum number of bytes read of a checkpoint, because a wrong file may be large."""


class CheckpointError(ConfigError):
    """An unusable checkpoint, or a checkpoint of another input."""


@contextmanager
def _writing(what: str, path: Path | None) -> Iterator[None]:
    """Raise CheckpointError for an OSError of the block."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot write the {what} {escaped(str(path))}: {error.strerror}") from error


@dataclass(slots=True)
class Prefix:
    """The acknowledged prefix of an input."""

    size: int = 0
    """Size in bytes."""
    records: int = 0
    place: str | None = None
    """Position of the last record of the prefix, for messages."""
    cluster: str | None = None
    """Id of the cluster that acknowledged the records."""
    _hash: Any = field(default_factory=hashlib.sha256)

    def extend(self, raw: bytes, records: int) -> None:
        """Append the acknowledged bytes *raw*, which contain *records* records."""
        self.size += len(raw)
        self.records += records
        self._hash.update(raw)

    @property
    def sha256(self) -> str:
        """Hash of the prefix, in hexadecimal."""
        digest: str = self._hash.hexdigest()
        return digest


@dataclass(frozen=True, slots=True)
class StoredPrefix:
    """Contents of a checkpoint."""

    size: int
    records: int
    sha256: str
    cluster: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that records the acknowledged prefix of an input, and its *work*: topic, format and run."""

    path: Path
    work: dict[str, str | None]

    def load(self) -> StoredPrefix | None:
        """Return the contents; None without a file.

        Raises: CheckpointError: not a checkpoint, or of another topic, format or run.
        """
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # a FIFO would block
                raise CheckpointError(
                    f"cannot read the checkpoint {escaped(str(self.path))}: it is not a regular file"
                )
            with self.path.open() as file:
                text = file.read(MOST_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else "the file is not text"
            raise CheckpointError(f"cannot read the checkpoint {escaped(str(self.path))}: {why}") from error
        try:
            content = json.loads(text)
            work = {name: content["work"][name] for name in self.work}
            stored = StoredPrefix(
                _count(content["bytes"]),
                _count(content["records"]),
                str(content["sha256"]),
                content["cluster"],
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
        return stored

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the checkpoint against other processes while the block runs; the lock ends with the process.

        Raises: CheckpointError: another process has the lock, or the file cannot be written.
        """
        if sys.platform == "win32":
            self._remove_leftover()
            yield
            return
        in_use = f"another process uses the checkpoint {escaped(str(self.path))}; wait for that process, or name another file"
        with self._writes():
            path = self._beside(".lock")
            file = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, PRIVATE)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(in_use) from None
            except OSError:
                pass  # a file system without locks
            if not _is_open_file(path, file):
                raise CheckpointError(in_use)  # the other process has just ended and removed the file
            if os.fstat(file).st_size:
                raise self._name_in_use(path)
            try:
                self._remove_leftover()
                yield
            finally:
                with suppress(OSError):
                    path.unlink()
        finally:
            os.close(file)

    def save(self, prefix: Prefix) -> None:
        """Replace the file atomically and durably.

        Raises: CheckpointError: the write failed; the old contents stay.
        """
        content = {
            "work": self.work,
            "cluster": prefix.cluster,
            "bytes": prefix.size,
            "records": prefix.records,
            "sha256": prefix.sha256,
            "acknowledged": prefix.place,
        }
        with self._writes():
            new, target = self._beside(".new"), self._beside("")
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, PRIVATE)
            try:
                with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
                    if hasattr(os, "fchmod") and target.exists():
                        os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
                    file.write(json.dumps(content, indent=2) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(target)
            except BaseException:
                with suppress(OSError):
                    new.unlink()
                raise

    def _remove_leftover(self) -> None:
        """Remove the temporary file of a killed process. Raises: CheckpointError: another file has that name."""
        with self._writes():
            new = self._beside(".new")
            if not os.path.lexists(new):
                return
            if new.is_symlink() or not new.is_file() or _first_bytes(new) not in (b"", _BEGIN):
                raise self._name_in_use(new)
            new.unlink()

    def _beside(self, suffix: str) -> Path:
        """Return a path next to the file itself, so that a link to the file stays a link.

        Raises: OSError: a link on the path belongs to another user.
        """
        path = own_path(self.path)
        return path.with_name(path.name + suffix)

    def _name_in_use(self, path: Path) -> CheckpointError:
        return CheckpointError(
            f"cannot write the checkpoint {escaped(str(self.path))}: {escaped(str(path))} is another"
            " file; move that file, or name another checkpoint"
        )

    def _writes(self) -> AbstractContextManager[None]:
        return _writing("checkpoint", self.path)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_BEGIN))


def _is_open_file(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _count(content: Any) -> int:
    if type(content) is not int or content < 0:
        raise ValueError(f"{content} is not a count")
    return content


RECORD_ERRORS: Final = (RecordTooLarge, InvalidRecord, InvalidTimestamp)
"""Errors caused by a record itself, which repeat with every send of the record."""


def is_record_error(error: ProducerError) -> bool:
    """Return True if the record itself caused *error* and is not in the topic."""
    return isinstance(error, RECORD_ERRORS) and not error.possibly_persisted


class DeadLetter(NamedTuple):
    """A skipped record."""

    file: str
    unit: str
    """Word for a record: "line" or "record"."""
    number: int
    """Number of the record in its file, from 1."""
    reason: str
    input: bytes
    """Bytes of the input."""

    def to_json(self) -> str:
        """Return a JSON object on one line, with Base64 for bytes that are not UTF-8."""
        content: dict[str, object] = {"file": self.file, self.unit: self.number, "reason": self.reason}
        try:
            content["input"] = self.input.decode()
        except UnicodeDecodeError:
            content["input_base64"] = base64.b64encode(self.input).decode()
        return json.dumps(content, ensure_ascii=False)


class DeadLetters:
    """Writer of dead letters to a file; without a file, dead letters are only counted."""

    def __init__(self, path: Path | None = None) -> None:
        """*path*: None writes no file."""
        self.path: Final = path
        self._file: TextIO | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the file open for appending while the block runs.

        Raises: CheckpointError: the file cannot be written.
        """
        if self.path is None:
            yield
            return
        with _writing("dead letters", self.path):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW
            descriptor = descriptor_of(own_path(self.path), flags, PRIVATE)
            self._file = open(descriptor, "a", encoding="utf-8", errors="surrogateescape")  # noqa: PTH123, SIM115 - closed below
        try:
            yield
        finally:
            with suppress(OSError):  # `write` has flushed all lines or raised
                self._file.close()

    def write(self, letters: list[DeadLetter]) -> None:
        """Append *letters* durably. Raises: CheckpointError."""
        if self._file is None or not letters:
            return
        with _writing("dead letters", self.path):
            self._file.writelines(f"{each.to_json()}\n" for each in letters)
            self._file.flush()
            os.fsync(self._file.fileno())
