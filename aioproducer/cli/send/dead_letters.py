"""Dead letters of one `aioproducer send`: the records that will never arrive, so that the others can."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from aioproducer._core.escaping import escaped
from aioproducer._core.security.regular_files import descriptor_of
from aioproducer.cli.send.checkpoint import CheckpointError
from aioproducer.cli.send.own_files import NO_FOLLOW, PRIVATE, own_path
from aioproducer.errors import (
    InvalidRecord,
    InvalidTimestamp,
    ProducerError,
    RecordTooLarge,
)

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
