from __future__ import annotations

import asyncio
import errno
import gzip
import os
import pty
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from aioproducer.cli.send import input_source
from aioproducer.cli.send.framing import FramedRecords, LengthPrefixed, Lines
from aioproducer.cli.send.input_kind import TextCheck
from aioproducer.cli.send.input_source import Block, InputError, blocks, size_of

LINES = partial(Lines, 100)


async def read(paths: Sequence[str], unit: str = "line") -> list[tuple[str, int, list[bytes]]]:
    framing = LINES if unit == "line" else partial(LengthPrefixed, 100)
    return [
        (Path(block.file).name, block.first, list(block.whole.items))
        async for block in blocks(paths, framing)
    ]


def files(folder: Path, *contents: bytes) -> list[str]:
    paths = [folder / f"f{number}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return list(map(str, paths))


async def test_records_are_numbered_per_file(tmp_path: Path) -> None:
    paths = files(tmp_path, b"a\nb", b"", b"c\nd\n")
    assert await read(paths) == [("f0", 1, [b"a"]), ("f0", 2, [b"b"]), ("f2", 1, [b"c", b"d"])]
    assert size_of(paths) == 7


async def test_large_file_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "READ_BYTES", 10)
    paths = files(tmp_path, b"".join(b"%d\n" % number for number in range(100)))
    found = await read(paths)
    assert len(found) > 20
    assert [item for _, _, items in found for item in items] == [b"%d" % number for number in range(100)]
    assert all(int(items[0]) == first - 1 for _, first, items in found)


async def test_input_error_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "READ_BYTES", 60)
    [path] = files(tmp_path, b"a\n" + b"x" * 101)
    with pytest.raises(InputError, match=r"f0, line 2: it is longer than"):
        await read([path])
    [path] = files(tmp_path, b"\0\0\0\x01a\0\0")
    with pytest.raises(InputError, match=r"f0, record 2: the input ends in the middle of it"):
        await read([path], "record")
    missing = str(tmp_path / "missing")
    with pytest.raises(InputError, match="missing: No such file or directory"):
        await read([missing])
    assert size_of([missing]) is None


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make standard input the end of a pipe, and return its other one."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    return writing


async def test_pipe_is_read_before_it_ends(pipe: int) -> None:
    reading = blocks(["-"], LINES)
    for number in range(3):
        os.write(pipe, b"%d\nbeg" % number)
        block = await anext(reading)
        assert (block.file, block.first) == ("standard input", number + 1)
        assert block.whole.items == [b"%d" % number if not number else b"beg%d" % number]
    os.close(pipe)
    assert (await anext(reading)).whole.items == [b"beg"]
    assert [_ async for _ in reading] == []
    assert size_of(["-"]) is None
    sys.stdin.close()


async def test_full_pipe_makes_large_blocks(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_source, "READ_BYTES", 1_000)
    os.write(pipe, b"x\n" * 3_000)
    os.close(pipe)
    assert sum(len(items) for _, _, items in await read(["-"])) == 3_000
    sys.stdin.close()


async def test_ctrl_d_after_line_ends_terminal_input(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(terminal))
    os.write(ours, b"one\ntwo\n\x04")
    lines = [item for _, _, items in await read(["-"]) for item in items]
    assert lines == [b"one", b"two"]
    sys.stdin.close()
    os.close(ours)


async def test_read_of_pipe_can_be_cancelled(pipe: int) -> None:
    waiting = asyncio.create_task(read(["-"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not asyncio.get_running_loop().remove_reader(sys.stdin.fileno()), "the loop has no reader any more"
    os.write(pipe, b"a\n")  # later bytes stay in the pipe
    os.close(pipe)
    assert await read(["-"]) == [("standard input", 1, [b"a"])]
    sys.stdin.close()


async def test_pipe_is_read_in_thread_without_add_reader(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_reader(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
    os.write(pipe, b"a\n")
    os.close(pipe)
    assert await read(["-"]) == [("standard input", 1, [b"a"])]
    sys.stdin.close()


async def test_device_that_is_always_ready_is_read() -> None:
    assert await read([os.devnull]) == []


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    yield path
    with suppress(OSError):  # no reader waits for a writer any more
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


async def test_open_of_fifo_can_be_cancelled(fifo: Path) -> None:
    waiting = asyncio.create_task(read([str(fifo)]))
    await asyncio.sleep(0)  # if opening it blocked, this would not return
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_fifo_is_read(fifo: Path) -> None:
    reading = asyncio.create_task(read([str(fifo)]))
    await asyncio.to_thread(fifo.write_bytes, b"a\nb\n")
    assert await reading == [("fifo", 1, [b"a", b"b"])]


async def test_unreadable_fifo_is_reported(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(InputError, match="fifo: Permission denied"):
            await read([str(fifo)])


BLOCK = Block(FramedRecords([b"a", b"b", b"", b"d"], [2, 5, 6, 8], b"a\nb\r\n\nd\n"), "f", 11)


def test_block_is_sliced_between_records() -> None:
    nothing = BLOCK.slice(0, 0)
    assert BLOCK.slice(1, 3) == Block(FramedRecords([b"b", b""], [3, 4], b"b\r\n\n"), "f", 12)
    assert (len(nothing), nothing.whole.raw) == (0, b"")
    assert BLOCK.slice(0, 4) is BLOCK


async def test_compressed_file_is_unpacked_and_has_its_stored_size(tmp_path: Path) -> None:
    paths = files(tmp_path, gzip.compress(b"a\nb\n"), b"c\n")
    assert await read(paths) == [("f0", 1, [b"a", b"b"]), ("f1", 1, [b"c"])]
    assert size_of(paths) == len(gzip.compress(b"a\nb\n")) + 2


async def test_cut_compressed_file_is_reported_with_place(tmp_path: Path) -> None:
    [path] = files(tmp_path, gzip.compress(b"a\nb\n")[:-4])
    with pytest.raises(InputError, match=r"f0, line 3: the gzip file ends too early"):
        await read([path])


CHECK = partial(TextCheck, utf8=True, by_lines=True)


async def sent(paths: Sequence[str]) -> list[bytes]:
    return [item async for block in blocks(paths, LINES, CHECK) for item in block.whole.items]


@pytest.mark.parametrize(
    "data", [b"one\0two\n", b"PK\x03\x04", gzip.compress(b"\xff", mtime=0), b"\x1f\x8b\x08damaged"]
)
async def test_unusable_standard_input_is_refused_before_a_file(
    tmp_path: Path, pipe: int, data: bytes
) -> None:
    [path] = files(tmp_path, b"a\nb\n")
    os.write(pipe, data)
    os.close(pipe)
    with pytest.raises(InputError, match=r"^standard input: "):
        await anext(blocks([path, "-"], LINES, CHECK))
    sys.stdin.close()


async def test_checked_standard_input_is_read_from_its_beginning(tmp_path: Path, pipe: int) -> None:
    [path] = files(tmp_path, b"a\nb")
    os.write(pipe, b"c\nbeg")
    reading = blocks([path, "-"], LINES, CHECK)
    assert (await anext(reading)).whole.items == [b"a"]
    assert (await anext(reading)).whole.items == [b"b"]
    block = await anext(reading)
    assert (block.whole.items, block.file, block.first) == ([b"c"], "standard input", 1)
    os.write(pipe, b"un\n")
    assert (await anext(reading)).whole.items == [b"begun"]
    os.close(pipe)
    assert [_ async for _ in reading] == []
    sys.stdin.close()


async def test_files_behind_standard_input_are_checked_before_it(tmp_path: Path, pipe: int) -> None:
    [path] = files(tmp_path, b"\0")
    with pytest.raises(InputError, match="f0: it is binary data"):
        await anext(blocks(["-", path], LINES, CHECK))
    os.close(pipe)
    sys.stdin.close()


async def test_redirected_standard_input_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = files(tmp_path, b"a\n", b"b\nc\n")
    with open(second, "rb") as file:  # noqa: ASYNC230, PTH123 - as a shell does
        monkeypatch.setattr(sys, "stdin", file)
        assert await sent([first, "-"]) == [b"a", b"b", b"c"]


async def test_pipe_of_the_shell_is_checked_before_a_file(tmp_path: Path) -> None:
    [path] = files(tmp_path, b"a\n")
    for data, expected in ((b"b\n", [b"a", b"b"]), (b"\xff\n", None)):
        reading, writing = os.pipe()
        os.write(writing, data)
        os.close(writing)
        if expected is None:
            with pytest.raises(InputError, match=f"/dev/fd/{reading}: it is not UTF-8"):
                await anext(blocks([path, f"/dev/fd/{reading}"], LINES, CHECK))
        else:
            assert await sent([path, f"/dev/fd/{reading}"]) == expected
        os.close(reading)


async def test_directory_as_standard_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = files(tmp_path, b"a\n")
    descriptor = os.open(tmp_path, os.O_RDONLY)

    class Directory:
        def fileno(self) -> int:
            return descriptor

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Directory())
    for paths in (["-"], [path, "-"]):
        with pytest.raises(InputError, match="standard input: Is a directory"):
            await anext(blocks(paths, LINES, CHECK))
    os.close(descriptor)


async def test_damaged_file_is_refused_before_a_file_is_sent(tmp_path: Path) -> None:
    paths = files(tmp_path, b"a\n", gzip.compress(b"b\n")[:-4])
    with pytest.raises(InputError, match="f1: the gzip file ends too early"):
        await anext(blocks(paths, LINES, CHECK))
