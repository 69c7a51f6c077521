"""Files that people have, sent with the command line as they would: refused with advice, or sent record by record."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from click.testing import CliRunner, Result

from aioproducer.cli.commands import program
from aioproducer.testing import ThreadedCluster

HEAD = b"good\n" * 20_000
"""More than is checked before the first record."""


def call(cluster: ThreadedCluster, *arguments: str | Path, stdin: bytes | None = None) -> Result:
    given = ("send", "orders", *map(str, arguments), "--bootstrap-servers", cluster.bootstrap_servers)
    reading, writing = os.pipe()
    os.write(writing, stdin or b"")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return CliRunner().invoke(program, given, input=pipe, prog_name="aioproducer", catch_exceptions=False)


def stored(cluster: ThreadedCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders", 0)]


def archive(make: type[zipfile.ZipFile] | None) -> bytes:
    file = io.BytesIO()
    if make is None:
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("orders.txt"))
    else:
        with zipfile.ZipFile(file, "w") as zipped:
            zipped.writestr("orders.txt", "one\n")
    return file.getvalue()


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table orders (id)")
    data = connection.serialize()
    connection.close()
    return data


ROWS = [{"id": 1}, {"id": 2}]
FOREIGN: dict[str, tuple[bytes, str]] = {
    "gzip in gzip": (gzip.compress(gzip.compress(b"one\n")), "compressed twice"),
    "zstd in xz": (lzma.compress(zstandard.compress(b"one\n")), "compressed twice"),
    "bzip2 in lz4": (lz4.frame.compress(bz2.compress(b"one\n")), "compressed twice"),
    "truncated gzip": (gzip.compress(b"one\ntwo\n")[:-3], "ends too early: is it whole?"),
    "truncated zstd": (zstandard.compress(b"one\n" * 99)[:-3], "ends too early: is it whole?"),
    "damaged gzip": (b"\x1f\x8b\x08nothing", "the gzip file is damaged"),
    "first bytes of gzip": (b"\x1f\x8b", "it is not UTF-8"),
    "zlib": (b"\x78\x9c\x4b\xca\x2f\xcf\x2f\xe7\x02\x00", "add --force"),
    "UTF-16": ("one\n".encode("utf-16"), "UTF-16 text"),
    "UTF-16 without a mark": ("one\n".encode("utf-16-le"), "UTF-16 text"),
    "UTF-32 without a mark": ("one\n".encode("utf-32-be"), "NUL bytes"),
    "Latin-1": ("Käse\n".encode("latin-1"), "it is not UTF-8, from line 1 on"),
    "EBCDIC": ("orders\n".encode("cp500"), "add --force"),
    "Parquet": (b"PAR1\x15\x04\x15\x10", "a Parquet file"),
    "Avro": (b"Obj\x01\x04\x14avro.codec", "an Avro file"),
    "ORC": (b"ORC\x1d\x0a", "an ORC file"),
    "zip": (archive(zipfile.ZipFile), "a zip archive"),
    "tar": (archive(None), "a tar archive"),
    "tar.gz": (gzip.compress(archive(None)), "a tar archive"),
    "SQLite": (database(), "an SQLite database"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document"),
    **{
        f"pickle, protocol {protocol}": (pickle.dumps(1, protocol), "a Python pickle")
        for protocol in (2, 3, 4, 5)
    },
    "length-prefixed": (b"\0\0\0\x03one", "NUL bytes"),
    "Confluent's wire format": (b"\0\0\0\0\x01\x02\n", "NUL bytes"),
    "MessagePack": (b"\x82\xa2id\x01\xa1v\xc3", "add --force"),
}
LINES_ONLY: dict[str, tuple[bytes, str]] = {
    "JSON array": (json.dumps(ROWS).encode(), "add --format json"),
    "JSON array, indented": (json.dumps(ROWS, indent=2).encode(), "add --format json"),
    "JSON object, indented": (json.dumps(ROWS[0], indent=2).encode(), "add --format json"),
    "JSON values in a line": (b'{"id": 1}{"id": 2}\n', "add --format json"),
    "CR": (b"one\rtwo\r", r"add --delimiter '\r'"),
}


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize("form", ["lines", "json"])
def test_foreign_file_is_refused_before_first_send(
    kafka_cluster: ThreadedCluster, tmp_path: Path, form: str
) -> None:
    good, path = tmp_path / "good", tmp_path / "in"
    good.write_text("1\n")
    for kind, (data, advice) in (FOREIGN | (LINES_ONLY if form == "lines" else {})).items():
        path.write_bytes(data)
        for arguments, stdin in (((good, path), None), ((good, "-"), data), ((path,), None)):
            if stdin is not None and "truncated" in kind:
                continue  # found at the end of the pipe
            done = call(kafka_cluster, *arguments, "--format", form, stdin=stdin)
            assert done.exit_code == 1, (kind, done.output)
            assert advice in done.output, (kind, done.output)
            assert "Traceback" not in done.output
    assert stored(kafka_cluster) == []


@pytest.mark.kafka_cluster(topics={"orders": 1})
@pytest.mark.parametrize("late", [b"\0", b"\xff", "ä".encode("latin-1"), b"a\0b"])
def test_late_bad_line_ends_send_with_its_number(
    kafka_cluster: ThreadedCluster, tmp_path: Path, late: bytes
) -> None:
    path = tmp_path / "in"
    path.write_bytes(HEAD + late + b"\ngood\n")
    done = call(kafka_cluster, path)
    assert done.exit_code == 1
    assert f"{path}, line 20001: it " in done.output
    assert "add --force" in done.output
    assert set(stored(kafka_cluster)) == {b"good"}
    kafka_cluster.delete_topic("orders")
    kafka_cluster.create_topic("orders", partitions=1)
    dead = tmp_path / "dead"
    done = call(kafka_cluster, path, "--on-error", dead)
    assert done.exit_code == 0, done.output
    assert (len(stored(kafka_cluster)), json.loads(dead.read_text())["line"]) == (20_001, 20_001)
    done = call(kafka_cluster, path, "--force")
    assert done.exit_code == 0, done.output
    assert late in stored(kafka_cluster)


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_forced_input_is_sent_unchanged(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    path = tmp_path / "in"
    for data in (b"\xff\xfeo\0n\0e\0", json.dumps(ROWS).encode(), b"one\rtwo", "Käse".encode("latin-1")):
        path.write_bytes(data)
        assert call(kafka_cluster, path, "--force").exit_code == 0
        assert stored(kafka_cluster)[-1] == data


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_files_of_text_are_sent_record_by_record(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    path, sent = tmp_path / "in", 0
    for data, options, expected in (
        (b"one\r\ntwo\r\n", [], [b"one", b"two"]),
        (b"one\ntwo", [], [b"one", b"two"]),
        (b"\xef\xbb\xbfone\n", [], [b"one"]),
        (b"one\rtwo\r", ["--delimiter", r"\r"], [b"one", b"two"]),
        (b"one\xfftwo", ["--delimiter", r"\xff"], [b"one", b"two"]),
        (b"one\0two\0", ["--delimiter", r"\0"], [b"one", b"two"]),
        (b"[1, 2]\n", [], [b"[1, 2]"]),
        (json.dumps(ROWS).encode(), ["--format", "json"], [b'{"id": 1}', b'{"id": 2}']),
        (json.dumps(ROWS, indent=1).encode(), ["--format", "json", "--value-field", "id"], [b"1", b"2"]),
        (b'{"id": 1}{"id": 2}', ["--format", "json"], [b'{"id": 1}', b'{"id": 2}']),
        (
            b'\x1e{"id": 1}\n\x1e{"id": 2}\n',
            ["--format", "json", "--delimiter", r"\x1e"],
            [b'{"id": 1}', b'{"id": 2}'],
        ),
        (gzip.compress(b"one\n") + gzip.compress(b"two\n"), [], [b"one", b"two"]),
        (b"\0\0\0\x02\xff\0", ["--format", "length-prefixed"], [b"\xff\0"]),
        (b"[]", ["--format", "json"], []),
        (b"", [], []),
    ):
        path.write_bytes(data)
        done = call(kafka_cluster, path, *options)
        assert done.exit_code == 0, (data, done.output)
        assert stored(kafka_cluster)[sent:] == expected
        sent += len(expected)


@pytest.mark.kafka_cluster(topics={"orders": 1, "copy": 1})
def test_objects_of_kcat_and_times_are_sent(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    kcat = (
        '{"topic":"t","partition":3,"offset":1,"tstype":"create","ts":1700000000123,"broker":1,'
        '"headers":["a","1","a",null],"key":"k","payload":"v\\u0000"}'
    )
    done = call(kafka_cluster, "--format", "json", stdin=f"{kcat}\n{kcat}".encode())
    assert done.exit_code == 0, done.output
    done = call(
        kafka_cluster,
        "--format",
        "json",
        "--timestamp-field",
        "at",
        stdin=b'{"at": "2023-11-14T22:13:20.123Z"}',
    )
    assert done.exit_code == 0, done.output
    *copied, timed = kafka_cluster.records("orders", 0)
    assert {(each.key, each.value, tuple(each.headers), each.timestamp_ms) for each in copied} == {
        (b"k", b"v\0", (("a", b"1"), ("a", None)), 1_700_000_000_123)
    }
    assert (timed.value, timed.timestamp_ms) == (b'{"at": "2023-11-14T22:13:20.123Z"}', 1_700_000_000_123)
    done = call(
        kafka_cluster, "--format", "json", "--timestamp-field", "at", stdin=b'{"at": 1}\n{"at": "soon"}\n'
    )
    assert done.exit_code == 1
    assert "standard input, line 2: at is no time: 'soon'" in done.output
