"""Compressed input is known by its first bytes, and unpacked."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from aioproducer.cli.send import unpacking
from aioproducer.cli.send.framing import Lines
from aioproducer.cli.send.input_source import blocks
from aioproducer.cli.send.unpacking import STEP_BYTES, Meter, unpacked
from tests.cases import for_each

TEXT = b"".join(b"line %d\n" % number for number in range(20_000))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lz4.frame.compress,
}


async def through(data: bytes, step: int = 1_000_000) -> bytes:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), step):
            yield data[start : start + step]

    return b"".join([each async for each in unpacked(pieces())])


@for_each("name", PACK)
async def test_compressed_input_is_unpacked_in_any_pieces(name: str) -> None:
    for step in [1, 7, 4_096, 1_000_000]:
        assert await through(PACK[name](TEXT), step) == TEXT


@for_each("name", PACK)
async def test_concatenated_files_are_unpacked(name: str) -> None:
    both = PACK[name](b"one\n") + PACK[name](b"") + PACK[name](b"two\n")
    assert await through(both) == b"one\ntwo\n"
    assert await through(both, 1) == b"one\ntwo\n"


async def test_zero_padding_after_gzip_is_ignored() -> None:
    assert await through(gzip.compress(b"one\n") + bytes(512)) == b"one\n"


@for_each("plain", [b"", b"\x1f", b"\x28\xb5", b"\x1f\x8b\x07", b"{}", TEXT])
async def test_plain_input_is_unchanged(plain: bytes) -> None:
    assert await through(plain) == plain
    assert await through(plain, 1) == plain


async def test_first_typed_byte_is_passed_on() -> None:
    typed: list[bytes] = []

    async def pieces() -> AsyncIterator[bytes]:
        for each in (b"a\n", b"b\n"):
            yield each
            assert typed[-1] == each

    async for each in unpacked(pieces()):
        typed.append(each)  # noqa: PERF401 - each as it comes
    assert typed == [b"a\n", b"b\n"]


@for_each("name", PACK)
async def test_cut_compressed_file_is_an_error(name: str) -> None:
    packed = PACK[name](TEXT)
    with pytest.raises(ValueError, match=f"the {name} file ends too early: is it whole"):
        await through(packed[: len(packed) // 2])


@for_each("name", PACK)
async def test_damaged_compressed_file_is_an_error(name: str) -> None:
    packed = bytearray(PACK[name](TEXT))
    packed[20:200] = bytes(180)
    with pytest.raises(ValueError, match=f"the {name} file is damaged"):
        await through(bytes(packed))


async def test_small_file_with_large_contents_is_unpacked_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "PIECE_BYTES", 10_000)
    packed = zlib.compress(bytes(1_000_000), 9, wbits=31)

    async def pieces() -> AsyncIterator[bytes]:
        yield packed

    sizes = [len(each) async for each in unpacked(pieces())]
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= 10_000


LINES = [b"%x\n" % random.Random(number).getrandbits(2_000) for number in range(5_000)]
NUMBERED = b"".join(LINES)


async def pieces(*each: bytes) -> AsyncGenerator[bytes, None]:
    for piece in each:
        yield piece


async def positions(meter: Meter, paths: Sequence[Path]) -> list[tuple[int, float]]:
    """Read *paths*, and return the position behind each block, by the decompressed size up to there."""
    size, found = 0, []
    async for block in blocks([str(path) for path in paths], lambda: Lines(1_000_000), meter=meter):
        sizes = [size + block.size_of(stop) for stop in range(len(block) + 1)]
        found += [(each, meter.position(each)) for each in sizes]
        size += len(block.whole.raw)
    return found


async def test_position_in_a_plain_file_is_its_size(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(NUMBERED)
    found = await positions(Meter(), [tmp_path / "plain"])
    assert all(position == pytest.approx(size) for size, position in found)


async def test_position_in_compressed_files_grows_with_the_size(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.gz", "plain", "two.gz")]
    for path in paths:
        path.write_bytes(gzip.compress(NUMBERED) if path.suffix else NUMBERED)
    stored = [path.stat().st_size for path in paths]
    assert stored[0] > 5 * STEP_BYTES
    found = await positions(Meter(), paths)
    assert found == sorted(found)
    for size, position in found:
        index = min(int(size / len(NUMBERED)), 2)
        expected = sum(stored[:index]) + (size - index * len(NUMBERED)) / len(NUMBERED) * stored[index]
        assert position == pytest.approx(expected, abs=2 * STEP_BYTES)
    assert found[-1][1] == pytest.approx(sum(stored), abs=16)


async def test_plain_pieces_stay_whole_and_compressed_ones_are_steps() -> None:
    large, packed = bytes(3 * STEP_BYTES), gzip.compress(random.Random(1).randbytes(3 * STEP_BYTES))
    assert [len(each) async for each in Meter().counted(pieces(large, b""))] == [3 * STEP_BYTES]
    steps = [each async for each in Meter().counted(pieces(packed))]
    assert (b"".join(steps), max(map(len, steps)), len(steps)) == (packed, STEP_BYTES, 4)


def test_position_without_bytes_is_the_beginning() -> None:
    meter = Meter()
    assert meter.position(0) == 0
    meter.passed(0)
    assert meter.position(0) == 0
