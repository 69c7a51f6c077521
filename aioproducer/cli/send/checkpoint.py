"""What of an input is acknowledged, in a file: a later call goes on behind it."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aioproducer.errors import ConfigError


class NoCheckpoint(ConfigError):
    """The file cannot be a checkpoint, or is not one of this input."""


@dataclass(slots=True)
class Prefix:
    """The beginning of an input, up to which everything is acknowledged."""

    size: int = 0
    """In bytes."""
    records: int = 0
    place: str | None = None
    """Where it ends, for people."""
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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that says how far one input has got, and of what *work*: topic, format and run."""

    path: Path
    work: dict[str, str | None]

    def load(self) -> Remembered | None:
        """Return what it says; None if there is no such file yet.

        Raises: NoCheckpoint: it is none, or of another topic, format or run.
        """
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise NoCheckpoint(f"cannot read the checkpoint {self.path}: {_reason(error)}") from error
        try:
            told = json.loads(text)
            work = {name: told["work"][name] for name in self.work}
            remembered = Remembered(int(told["bytes"]), int(told["records"]), str(told["sha256"]))
        except (ValueError, KeyError, TypeError) as error:
            raise NoCheckpoint(
                f"{self.path} is no checkpoint of aioproducer send; it was left alone"
            ) from error
        for name, mine in self.work.items():
            if work[name] != mine:
                raise NoCheckpoint(
                    f"the checkpoint {self.path} was made with {name} {work[name]}, not {mine}: name another file"
                )
        return remembered

    def save(self, prefix: Prefix) -> None:
        """Write it down, all or nothing, to survive the end of the process and of the machine.

        Raises: OSError.
        """
        told = {
            "work": self.work,
            "bytes": prefix.size,
            "records": prefix.records,
            "sha256": prefix.sha256,
            "acknowledged": prefix.place,
        }
        new = self.path.with_name(self.path.name + ".new")
        try:
            with new.open("w") as file:
                file.write(json.dumps(told, indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except BaseException:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is no text"
