from __future__ import annotations

import gzip
import random
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from aioproducer.cli.send.input_framing import Lines
from aioproducer.cli.send.input_source import blocks
from aioproducer.cli.send.meter import STEP_BYTES, Meter

LINES = [b"%x\n" % random.Random(number).getrandbits(2_000) for number in range(5_000)]
TEXT = b"".join(LINES)


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
    (tmp_path / "plain").write_bytes(TEXT)
    found = await positions(Meter(), [tmp_path / "plain"])
    assert all(position == pytest.approx(size) for size, position in found)


async def test_position_in_compressed_files_grows_with_the_size(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.gz", "plain", "two.gz")]
    for path in paths:
        path.write_bytes(gzip.compress(TEXT) if path.suffix else TEXT)
    stored = [path.stat().st_size for path in paths]
    assert stored[0] > 5 * STEP_BYTES
    found = await positions(Meter(), paths)
    assert found == sorted(found)
    for size, position in found:
        index = min(int(size / len(TEXT)), 2)
        expected = sum(stored[:index]) + (size - index * len(TEXT)) / len(TEXT) * stored[index]
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
