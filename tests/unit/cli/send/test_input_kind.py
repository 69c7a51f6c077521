from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable

import pytest

from aioproducer.cli.send.input_kind import HEAD_BYTES, JSON_BYTES, BinaryInput, TextCheck
from tests.cases import for_each


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("orders.txt", "one\n")
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a" * 100))
    return file.getvalue()


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table a (b)")
    data = connection.serialize()
    connection.close()
    return data


BINARY = {
    "a zip archive": zipped(),
    "a tar archive": tarred(),
    "a Parquet file": b"PAR1\x15\x04\x15\x10\x15\x14\x4c",
    "an ORC file": b"ORC\x1d\x00\x00\x0a\x0c",
    "an Avro file": b"Obj\x01\x04\x14avro.codec\x08null\x16avro.schema",
    "an SQLite database": database(),
    "UTF-32 text": "one\n".encode("utf-32"),
    "UTF-16 text": "one\n".encode("utf-16"),
    "binary data or UTF-16 text": "one\n".encode("utf-16-le"),
}


@for_each("kind", BINARY)
def test_binary_input_is_refused_by_its_kind(kind: str) -> None:
    with pytest.raises(BinaryInput, match=f"it is {kind}.*--force"):
        TextCheck().feed(BINARY[kind])


@for_each("kind", BINARY)
def test_binary_input_is_refused_in_pieces_of_a_byte(kind: str) -> None:
    check = TextCheck()

    def feed_bytes() -> None:
        for byte in BINARY[kind]:
            check.feed(bytes([byte]))

    with pytest.raises(BinaryInput):
        feed_bytes()


@for_each(
    "text", [b"", b"P", b"PK", b"PARENT\n", b"ORC\none\n", b"Obj", "Käse\n".encode("latin-1"), b"\x1b[1m\x01"]
)
def test_text_passes_unchanged_in_any_pieces(text: bytes) -> None:
    whole, bytewise = TextCheck(), TextCheck()
    assert whole.feed(text) + whole.finish() == text
    assert b"".join(bytewise.feed(bytes([byte])) for byte in text) + bytewise.finish() == text


def test_nul_passes_when_it_is_allowed_or_late() -> None:
    assert TextCheck(nul=True).feed(b"one\0two\0") == b"one\0two\0"
    late = b"x" * HEAD_BYTES + b"\0"
    assert TextCheck().feed(late) == late


def test_held_prefix_of_a_magic_number_is_checked_at_the_end() -> None:
    check = TextCheck()
    assert check.feed(b"\xff\xfe") == b""
    with pytest.raises(BinaryInput, match="UTF-16"):
        check.finish()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_input_that_is_still_compressed_is_refused(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(BinaryInput, match="it is compressed twice"):
        TextCheck().feed(pack(b"one\n"))


def feed_pieces(check: TextCheck, data: bytes, size: int) -> bytes:
    return b"".join(check.feed(data[at : at + size]) for at in range(0, len(data), size))


def test_other_encoding_is_refused_with_its_line() -> None:
    data = "eins\nzwei\nKäse\n".encode("latin-1")
    for size in [1, 2, 1_000]:
        with pytest.raises(
            BinaryInput, match="it is not UTF-8, from line 3 on; convert it, such as with iconv"
        ):
            feed_pieces(TextCheck(utf8=True), data, size)


def test_utf8_passes_also_where_the_head_ends() -> None:
    for size in [1, 2, 3, 1_000]:
        check = TextCheck(utf8=True)
        data = "Käse 🧀\n".encode() * 3
        assert feed_pieces(check, data, size) == data
        assert check.finish() == b""
        check = TextCheck(utf8=True)
        check.feed(b"x" * (HEAD_BYTES - 1) + "ä".encode())
        assert check.feed("ä".encode("latin-1")) == "ä".encode("latin-1"), "checked by the line"


def test_character_that_the_end_cuts_is_refused() -> None:
    check = TextCheck(utf8=True)
    assert check.feed("ä".encode()[:1]) == b"\xc3"
    with pytest.raises(BinaryInput, match="not UTF-8, from line 1 on"):
        check.finish()


def by_lines(data: bytes, size: int) -> bytes:
    check = TextCheck(by_lines=True)
    return feed_pieces(check, data, size) + check.finish()


@for_each(
    ("data", "reason"),
    [
        (b"one\rtwo\r", r"lines end with CR, not LF; add --delimiter '\\r'"),
        (b"one\rtwo", "lines end with CR"),
        (b'[\n  {"a": 1}\n]\n', "JSON over several lines, .* add --format json"),
        (b'\n\n{\n "a": 1\n}\n', "JSON over several lines, .* add --format json"),
        (b'{"a": 1}{"a": 2}\n', "several values in a line, .* add --format json"),
        (b'[{"a": 1}, {"a": 2}]\n', "one JSON array, .* add --format json"),
        (b'\xef\xbb\xbf[{"a": 1}]', "one JSON array, .* add --format json"),
    ],
)
def test_text_that_lines_would_cut_is_refused(data: bytes, reason: str) -> None:
    for size in [1, 2, 1_000]:
        with pytest.raises(BinaryInput, match=reason):
            by_lines(data, size)


@for_each(
    "data",
    [
        b"",
        b"\n\n",
        b"one\r",
        b"one\r\ntwo\r\n",
        b"10 %\r20 %\r\n",
        b"[1, 2]\n",
        b'[{"a": 1}]\n[{"a": 2}]\n',
        b'{"a": 1}\n{"a": 2}\n',
        b"[2026-11-27] started\n{\n",
        b"{not JSON\n",
        b"[",
        b"{",
    ],
)
def test_text_by_lines_passes(data: bytes) -> None:
    for size in [1, 2, 1_000]:
        assert by_lines(data, size) == data


def test_lines_are_passed_on_as_soon_as_they_cannot_be_an_array() -> None:
    check = TextCheck(by_lines=True)
    assert check.feed(b"\n") == b"\n"
    assert check.feed(b"[1]\n") == b""
    assert check.feed(b"[2]") == b"[1]\n[2]"
    assert check.feed(b"\n[3]\n") == b"\n[3]\n"


def test_long_line_is_held_up_to_a_limit() -> None:
    check = TextCheck(by_lines=True)
    assert check.feed(b"[" + b" " * (JSON_BYTES - 2)) == b""
    assert len(check.feed(b"1")) == JSON_BYTES
