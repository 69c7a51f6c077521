from __future__ import annotations

import random
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard

from aioproducer._core.records.compression import LEVELS, Codec, codec, compressor, decompress
from aioproducer.errors import ConfigError, ProtocolError
from tests.cases import for_each

DATA = b"".join(b"record %d of many, " % number for number in range(10_000))
PACKED = [each for each in Codec if each is not Codec.NONE]


@for_each("each", Codec)
def test_codecs_have_the_names_of_kafka(each: Codec) -> None:
    assert codec(str(each)) is each


def test_codec_numbers_are_those_of_the_batch_attributes() -> None:
    assert {str(each): each.value for each in Codec} == {
        "none": 0,
        "gzip": 1,
        "snappy": 2,
        "lz4": 3,
        "zstd": 4,
    }


@for_each("name", ["", "GZIP", "no-such-codec", "uncompressed"])
def test_unknown_codec_error_lists_the_known_ones(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"'{name}' is unknown; known types are: none, gzip, snappy, lz4, zstd"
    ):
        codec(name)


@for_each("each", Codec)
def test_decompression_inverts_compression(each: Codec) -> None:
    compressed = compressor(each, None)(DATA)
    assert type(compressed) is bytes
    assert decompress(each, compressed, limit=len(DATA)) == DATA
    assert each is Codec.NONE or len(compressed) < len(DATA) // 2


@pytest.mark.parametrize("each", LEVELS)
def test_codecs_accept_only_levels_of_kafka(each: Codec) -> None:
    levels = LEVELS[each]
    for level in (levels[0], levels[len(levels) // 2], levels[-1]):
        assert decompress(each, compressor(each, level)(DATA[:1000]), limit=1000) == DATA[:1000]
    for level in (levels[0] - 1, levels[-1] + 1):
        with pytest.raises(ConfigError, match=rf"level {level} is out of range for {each}: {levels[0]} to "):
            compressor(each, level)


def test_kafkas_level_for_zlibs_default_is_taken() -> None:
    assert compressor(Codec.GZIP, -1)(DATA) == compressor(Codec.GZIP, None)(DATA)


@pytest.mark.parametrize("level", [-1, *LEVELS[Codec.GZIP]])
@pytest.mark.parametrize("has_isal", [True, False], ids=["isal", "zlib alone"])
def test_isal_compresses_gzip_levels_1_and_2_when_installed(
    level: int, has_isal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    package: Any = zlib
    if not has_isal:
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    elif level in {1, 2}:
        package = pytest.importorskip("isal.isal_zlib")
    assert compressor(Codec.GZIP, level)(DATA) == package.compress(DATA, level=level, wbits=31)


@for_each("level", [1, 2])
@for_each("size", [0, 1, 100, 32_768, 65_537, 3 << 20])
@for_each("kind", [bytes, bytearray])
def test_zlib_reads_gzip_by_isal(level: int, size: int, kind: type[bytes | bytearray]) -> None:
    chance = random.Random(size)
    for data in (chance.randbytes(size), bytes(size), (DATA * 20)[:size]):
        compressed = compressor(Codec.GZIP, level)(kind(data))
        assert type(compressed) is bytes
        assert zlib.decompress(compressed, wbits=31) == data
        assert decompress(Codec.GZIP, compressed, limit=size) == data


@pytest.mark.parametrize("each", [Codec.NONE, Codec.SNAPPY])
def test_codecs_without_levels_refuse_one(each: Codec) -> None:
    with pytest.raises(ConfigError, match=f"compression type {each} has no levels"):
        compressor(each, 1)


@pytest.mark.parametrize(
    ("each", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 17), (Codec.ZSTD, -10, 12)]
)
def test_higher_level_compresses_better(each: Codec, low: int, high: int) -> None:
    assert len(compressor(each, high)(DATA)) < len(compressor(each, low)(DATA))


def test_default_level_of_lz4_is_its_fast_mode() -> None:
    fast = compressor(Codec.LZ4, None)(DATA)
    assert compressor(Codec.LZ4, 9)(DATA) == fast
    assert len(compressor(Codec.LZ4, 1)(DATA)) < len(fast)


def test_lz4_frames_are_as_brokers_want_them() -> None:
    info = lz4.frame.get_frame_info(compressor(Codec.LZ4, None)(DATA))
    assert info["block_size"] == 64 * 1024
    assert not info["block_linked"]
    assert not info["content_checksum"]


@for_each("each", PACKED)
def test_other_implementations_decompress_the_data(each: Codec) -> None:
    readers: dict[Codec, Callable[[bytes], Any]] = {
        Codec.GZIP: lambda data: zlib.decompress(data, wbits=31),
        Codec.SNAPPY: lambda data: cramjam.snappy.decompress_raw(data[20:]),
        Codec.LZ4: cramjam.lz4.decompress,
        Codec.ZSTD: cramjam.zstd.decompress,
    }
    compressed = compressor(each, None)(DATA[:20_000])
    assert bytes(memoryview(readers[each](compressed))) == DATA[:20_000]


def test_frames_that_do_not_state_their_size_are_read() -> None:
    """The JVM's zstd frames are of that kind."""
    big = DATA * 40  # more than is tried first
    context = zstandard.ZstdCompressor().compressobj()
    compressed = context.compress(big) + context.flush()
    assert zstandard.frame_content_size(compressed) == -1
    assert decompress(Codec.ZSTD, compressed, limit=len(big)) == big
    with pytest.raises(ProtocolError):
        decompress(Codec.ZSTD, compressed, limit=len(big) - 1)


@for_each("each", Codec)
def test_decompression_refuses_more_than_the_limit(each: Codec) -> None:
    compressed = compressor(each, None)(bytes(3 << 20))
    with pytest.raises(ProtocolError, match="limit"):
        decompress(each, compressed, limit=(3 << 20) - 1)


@for_each("each", PACKED)
@for_each(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:0],
        lambda data: data + b"\0",
    ],
)
def test_damaged_data_is_refused(each: Codec, damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ProtocolError):
        decompress(each, damage(compressor(each, None)(DATA)), limit=len(DATA))


@for_each("each", PACKED)
def test_data_of_another_kind_is_refused(each: Codec) -> None:
    with pytest.raises(ProtocolError, match=f"not {each}"):
        decompress(each, b"what may that be? it is no codec's", limit=len(DATA))


@for_each(("each", "level"), [*((each, None) for each in Codec), (Codec.GZIP, 1)])
def test_compressor_may_be_used_by_several_threads(each: Codec, level: int | None) -> None:
    compress = compressor(each, level)
    together = Barrier(4, timeout=10)

    def work(number: int) -> bool:
        together.wait()
        data = b"%d " % number * 50_000
        return all(decompress(each, compress(data), limit=len(data)) == data for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@for_each(("level", "is_near"), [(None, True), (1, True), (3, True), (6, False)])
def test_zstd_of_small_records_searches_128_kib(level: int | None, is_near: bool) -> None:
    part = random.Random(1).randbytes(300_000)
    small, plain = (compressor(Codec.ZSTD, level, small_records=each)(part + part) for each in (True, False))
    assert decompress(Codec.ZSTD, small, limit=2 * len(part)) == part + part
    assert decompress(Codec.ZSTD, plain, limit=2 * len(part)) == part + part
    assert len(plain) < 1.5 * len(part)
    assert (len(small) > 1.5 * len(part)) is is_near


def test_zstd_makes_one_context_per_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = zstandard.ZstdCompressor

    def counted(**options: Any) -> zstandard.ZstdCompressor:
        made.append(options["level"])
        return make(**options)

    monkeypatch.setattr(zstandard, "ZstdCompressor", counted)
    compress, together = compressor(Codec.ZSTD, 1), Barrier(3, timeout=10)

    def work() -> None:
        together.wait()
        for _ in range(10):
            compress(DATA)

    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            for done in [pool.submit(work) for _ in range(3)]:
                done.result()
    assert made == [1, 1, 1]


@pytest.mark.parametrize(
    ("each", "module", "install"),
    [
        (Codec.SNAPPY, "cramjam", 'pip install "cramjam'),
        (Codec.LZ4, "lz4.frame", "pip install lz4"),
        (Codec.ZSTD, "zstandard", "pip install zstandard"),
    ],
)
def test_missing_package_is_named(
    each: Codec, module: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=re.escape(install)):
        compressor(each, None)
    with pytest.raises(ConfigError, match=re.escape(install)):
        decompress(each, b"", limit=1)


@pytest.mark.slow
def test_packages_are_imported_only_when_they_are_needed() -> None:
    script = (
        "import sys, aioproducer._core.records.record_batch as _\n"
        "assert not {'isal', 'lz4', 'zstandard', 'cramjam'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
