from __future__ import annotations

import crc32c as crc32c_package
import pytest

from aioproducer._core.wire.crc32c import _extension, crc32c


def test_it_is_castagnolis_polynomial() -> None:
    """The check value of CRC-32C, and one of RFC 3720, B.4: 32 zero bytes."""
    assert crc32c(b"123456789") == 0xE306_9283
    assert crc32c(bytes(32)) == 0x8A91_36AA


def test_it_carries_on_from_a_checksum_and_takes_any_buffer() -> None:
    assert crc32c(memoryview(b"56789"), crc32c(bytearray(b"1234"))) == crc32c(b"123456789")


def test_an_installation_without_the_module_as_we_know_it_has_the_packages_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda *_: None)
    assert _extension() is crc32c_package
