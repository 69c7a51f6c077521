from __future__ import annotations

import io
import sqlite3
import tarfile
import zipfile

import pytest

from aioproducer.cli.send.input_kind import HEAD_BYTES, BinaryInput, TextCheck


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


@pytest.mark.parametrize("kind", BINARY)
def test_binary_input_is_refused_by_its_kind(kind: str) -> None:
    with pytest.raises(BinaryInput, match=f"it is {kind}.*--force"):
        TextCheck().feed(BINARY[kind])


@pytest.mark.parametrize("kind", BINARY)
def test_binary_input_is_refused_in_pieces_of_a_byte(kind: str) -> None:
    check = TextCheck()

    def feed_bytes() -> None:
        for byte in BINARY[kind]:
            check.feed(bytes([byte]))

    with pytest.raises(BinaryInput):
        feed_bytes()


@pytest.mark.parametrize(
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
