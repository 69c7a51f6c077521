"""Files and standard input, one after the other, in blocks of whole records."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioproducer._core.logfmt import escaped
from aioproducer.cli.send.framing import FramedRecords, Framing
from aioproducer.cli.send.input_kind import HEAD_BYTES, BinaryInput, TextCheck
from aioproducer.cli.send.unpacking import Meter, unpacked

READ_BYTES: Final = 1024 * 1024
"""Largest number of bytes read at once."""
STDIN: Final = "-"


class InputError(Exception):
    """An unusable input; the message names the place."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive records of one file."""

    whole: FramedRecords
    file: str
    first: int
    """Number of the first record in its file, from 1."""
    unit: str = "line"
    """Word for a record: "line" or "record"."""

    def place(self, index: int) -> str:
        """Return the file and the number of record *index*, for people."""
        lines = self.whole.lines
        line = "" if lines is None else f" (line {lines[index]})"
        return f"{self.file}, {self.unit} {self.first + index}{line}"

    def __len__(self) -> int:
        return len(self.whole.items)

    def slice(self, start: int, stop: int) -> Block:
        """Return the records from *start* to before *stop*."""
        if (start, stop) == (0, len(self)):
            return self
        items, ends, raw, lines = self.whole
        begin = self.size_of(start)
        raw = raw[begin : self.size_of(stop)]
        return Block(
            FramedRecords(
                items[start:stop],
                [end - begin for end in ends[start:stop]],
                raw,
                None if lines is None else lines[start:stop],
            ),
            self.file,
            self.first + start,
            self.unit,
        )

    def size_of(self, count: int) -> int:
        """Return the size of the first *count* records in the input, in bytes."""
        return self.whole.ends[count - 1] if count else 0


async def blocks(
    paths: Sequence[str],
    new_framing: Callable[[], Framing],
    new_check: Callable[[], TextCheck] | None = None,
    meter: Meter | None = None,
) -> AsyncGenerator[Block, None]:
    """Yield the records of *paths*; a record ends with its file at the latest.

    *new_check* refuses input in another format; regular files and open pipes are checked before the first record of any
    input. *meter* counts the bytes.

    Raises: InputError.
    """
    meter = meter or Meter()
    async with AsyncExitStack() as stack:
        peeked = {} if new_check is None else await _check_inputs(paths, new_check, stack)
        for path in paths:
            file = _named(path)
            framing, count = new_framing(), 0
            try:
                async with (
                    aclosing(meter.counted(peeked.get(path) or _read(path))) as stored,
                    aclosing(_text(unpacked(stored), new_check)) as pieces,
                ):
                    async for data in pieces:
                        meter.passed(len(data))
                        if (whole := framing.feed(data)).items:
                            yield Block(whole, file, count + 1, framing.unit)
                            count += len(whole.items)
                while (whole := framing.finish()).items:
                    yield Block(whole, file, count + 1, framing.unit)
                    count += len(whole.items)
            except BinaryInput as error:
                raise InputError(f"{file}: {error}") from error
            except ValueError as error:
                raise InputError(f"{file}, {framing.unit} {count + 1}: {error}") from error
            except OSError as error:
                raise InputError(f"{file}: {error.strerror}") from error


def _named(path: str) -> str:
    return "standard input" if path == STDIN else escaped(path)


async def _text(
    pieces: AsyncGenerator[bytes, None], new_check: Callable[[], TextCheck] | None
) -> AsyncGenerator[bytes, None]:
    """Yield *pieces* after their check. Raises: BinaryInput."""
    async with aclosing(pieces):
        if new_check is None:
            async for data in pieces:
                yield data
            return
        check = new_check()
        async for data in pieces:
            if text := check.feed(data):
                yield text
        if text := check.finish():
            yield text


async def _check_inputs(
    paths: Sequence[str], new_check: Callable[[], TextCheck], stack: AsyncExitStack
) -> dict[str, AsyncGenerator[bytes, None]]:
    """Read the beginning of each regular file, and the first bytes of open pipes after the first path.

    Return the first bytes of the pipes. Raises: InputError: an input cannot be used.
    """
    peeked: dict[str, AsyncGenerator[bytes, None]] = {}
    for index, path in enumerate(paths):
        try:
            if _is_open(path):
                if index and not (path == STDIN and sys.stdin.isatty()):
                    taken: list[bytes] = []
                    reader = await stack.enter_async_context(aclosing(_read(path)))
                    async with aclosing(_recorded(reader, taken)) as copied:
                        await _check_head(copied, new_check, 1)
                    peeked[path] = _behind(taken, reader)
            elif stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - returns at once
                async with aclosing(_read(path)) as reader:
                    await _check_head(reader, new_check, HEAD_BYTES)
        except OSError as error:
            raise InputError(f"{_named(path)}: {error.strerror}") from error
        except ValueError as error:
            raise InputError(f"{_named(path)}: {error}") from error
    return peeked


def _is_open(path: str) -> bool:
    """Return True for standard input and for pipes of the shell, `<(command)`, whose writers have opened the pipe."""
    return path == STDIN or path.startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))


async def _check_head(
    stored: AsyncGenerator[bytes, None], new_check: Callable[[], TextCheck], size: int
) -> None:
    """Check *size* bytes of an input. Raises: BinaryInput; ValueError: the input is damaged."""
    async with aclosing(_text(unpacked(stored), new_check)) as pieces:
        async for data in pieces:
            size -= len(data)
            if size <= 0:
                return


async def _recorded(reader: AsyncGenerator[bytes, None], taken: list[bytes]) -> AsyncGenerator[bytes, None]:
    async for data in reader:
        taken.append(data)
        yield data


async def _behind(taken: list[bytes], reader: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the bytes *taken* from *reader*, then the rest."""
    while taken:
        yield taken.pop(0)
    async for data in reader:
        yield data


def size_of(paths: Sequence[str]) -> int | None:
    """Return the total size of the files in bytes; None with a pipe or a terminal."""
    try:
        stats = [os.fstat(sys.stdin.fileno()) if path == STDIN else Path(path).stat() for path in paths]
        if not all(stat.S_ISREG(each.st_mode) for each in stats):
            return None
    except OSError:
        return None  # reading the file raises the error
    return sum(each.st_size for each in stats)


async def _read(path: str) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file as they become available; the wait can be cancelled."""
    file = sys.stdin.fileno() if path == STDIN else await _open(path)
    at_once = stat.S_ISREG(os.fstat(file).st_mode)  # reading a regular file does not block for long
    try:
        while data := os.read(file, READ_BYTES) if at_once else await _read_when_ready(file):
            yield data
    finally:
        if path != STDIN:
            os.close(file)


async def _open(path: str) -> int:
    """Open a file. Waiting for the writer of a FIFO can be cancelled and does not block the event loop."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    if not stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116 - does not block
        return os.open(path, flags)
    opened: Future[int] = Future()
    opened.set_running_or_notify_cancel()  # cancelling the wait must not make the thread fail

    def wait_for_writer() -> None:
        try:
            opened.set_result(os.open(path, flags))
        except OSError as error:
            opened.set_exception(error)

    # A thread of the loop's executor would keep the process alive until there is a writer.
    threading.Thread(target=wait_for_writer, daemon=True).start()
    return await asyncio.wrap_future(opened)


async def _read_when_ready(file: int) -> bytes:
    """Read from a pipe or terminal without a thread, which would keep the process alive."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    try:
        loop.add_reader(file, ready.set)
    except NotImplementedError:  # Windows
        return await asyncio.to_thread(os.read, file, READ_BYTES)
    except PermissionError:  # a device that is always ready, such as /dev/null
        return os.read(file, READ_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)
    piece = os.read(file, READ_BYTES)
    if os.isatty(file):
        return piece  # a terminal reports the end, Ctrl-D after a line, once
    pieces, size = [piece], 0
    while (
        pieces[-1] and (size := size + len(pieces[-1])) < READ_BYTES and select.select([file], [], [], 0)[0]
    ):
        # a pipe returns at most 64 KiB; larger blocks make better batches
        pieces.append(os.read(file, READ_BYTES))
    return b"".join(pieces)
