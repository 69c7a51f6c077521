from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import AssertionSettings
from aioproducer._core.security.stores import (
    LARGEST_BYTES,
    Source,
    StoreError,
    kind_of,
    open_regular,
    parse_pem,
    read_store,
)
from aioproducer._core.security.token_endpoint import assertion, from_file
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from tests.cases import for_each
from tests.unit._core.security.certificates import Authority, truststore

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("localhost")
BLOCKS = [ISSUED.chain, AUTHORITY.pem, ISSUED.key_pem]


def in_file(tmp_path: Path, content: str | bytes) -> Source:
    path = tmp_path / "store"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Source("ssl_keystore_location", str(path))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (0, 2, 1)])
def test_certificates_and_key_come_in_any_order(order: tuple[int, ...]) -> None:
    pem = parse_pem("some words of openssl\n" + "".join(BLOCKS[each] for each in order))
    assert pem.certificates == ISSUED.chain + AUTHORITY.pem
    assert pem.key == Secret(ISSUED.key_pem)
    assert not pem.encrypted


@for_each("between", ["\n", "\r\n", "", " ", "\n\n"])
def test_line_breaks_may_be_anything(between: str) -> None:
    text = between.join(ISSUED.chain.splitlines()) + between + between.join(ISSUED.key_pem.splitlines())
    pem = parse_pem(text)
    assert (pem.certificates, pem.key) == (ISSUED.chain, Secret(ISSUED.key_pem))


@pytest.mark.parametrize("legacy", [False, True])
def test_encrypted_key_is_recognised(legacy: bool) -> None:
    key = ISSUED.encrypted_key("hunter2", legacy=legacy)
    pem = parse_pem(key)
    assert pem.encrypted
    assert pem.key == Secret(key)
    assert pem.certificates == ""


@for_each(
    ("text", "why"),
    [
        ("", "neither a certificate nor a private key"),
        ("hunter2", "neither a certificate nor a private key"),
        (ISSUED.chain[:100], "neither a certificate nor a private key"),
        (ISSUED.key_pem * 2, "has 2 private keys"),
        (ISSUED.chain.replace("M", "!"), "is no base64"),
        ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", "is empty"),
    ],
)
def test_malformed_pem_is_refused_without_its_text(text: str, why: str) -> None:
    with pytest.raises(StoreError, match=why) as raised:
        parse_pem(text)
    assert "hunter2" not in str(raised.value)


@given(
    st.lists(
        st.sampled_from(["-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----", "QUJD", "\n", ":", "ü"])
    )
)
def test_parse_pem_returns_certificates_or_raises_store_error(parts: list[str]) -> None:
    try:
        pem = parse_pem("".join(parts))
    except StoreError:
        return
    assert pem.certificates


def test_text_and_file_are_told_apart(tmp_path: Path) -> None:
    source = in_file(tmp_path, ISSUED.chain)
    assert read_store(source) == read_store(Source("ssl_keystore_certificate_chain", ISSUED.chain))
    assert str(source) == f"ssl_keystore_location = {source.path!r}"
    text = Source("ssl_keystore_key", Secret(ISSUED.key_pem))
    assert (str(text), text.path) == ("ssl_keystore_key", None)


def test_pkcs12_is_known_by_its_content(tmp_path: Path) -> None:
    source = in_file(tmp_path, ISSUED.pkcs12("hunter2", AUTHORITY.certificate))
    pem = read_store(source, password=Secret("hunter2"))
    assert pem.certificates == ISSUED.chain + AUTHORITY.pem
    assert pem.key == Secret(ISSUED.key_pem)


def test_truststore_of_keytool_has_only_certificates(tmp_path: Path) -> None:
    source = in_file(tmp_path, truststore(AUTHORITY, password="hunter2"))
    pem = read_store(source, store_type="PKCS12", password=Secret("hunter2"))
    assert (pem.certificates, pem.key) == (AUTHORITY.pem, None)


@pytest.mark.parametrize(
    ("password", "why"), [(None, "it needs a password"), (Secret("hunter3"), "the password is wrong")]
)
def test_pkcs12_needs_its_password(tmp_path: Path, password: Secret | None, why: str) -> None:
    with pytest.raises(StoreError, match=f"cannot be opened as PKCS12: {why}"):
        read_store(in_file(tmp_path, ISSUED.pkcs12("hunter2")), password=password)


def test_pkcs12_needs_a_package(tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    with pytest.raises(StoreError, match=r"needs the extra 'pkcs12'"):
        read_store(in_file(tmp_path, ISSUED.pkcs12("hunter2")), password=Secret("hunter2"), load=missing)


@pytest.mark.parametrize("magic", [b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"])
def test_jks_error_has_the_command_to_convert_the_store(tmp_path: Path, magic: bytes) -> None:
    source = in_file(tmp_path, magic + bytes(100))
    with pytest.raises(StoreError) as raised:
        read_store(source)
    assert f"keytool -importkeystore -srckeystore {source.path} -destkeystore store.p12" in str(raised.value)
    with pytest.raises(StoreError, match="keytool"):
        read_store(in_file(tmp_path, ISSUED.chain), store_type="JKS")


def test_given_store_type_overrides_detection(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is no PEM: it is not text|neither a certificate"):
        read_store(in_file(tmp_path, ISSUED.pkcs12("hunter2")), store_type="PEM")
    with pytest.raises(StoreError, match="cannot be opened as PKCS12"):
        read_store(in_file(tmp_path, ISSUED.chain), store_type="PKCS12")


@pytest.mark.parametrize(
    ("path", "why"), [("missing", "No such file"), (".", "Is a directory"), ("a\0b", "not a name")]
)
def test_unreadable_file_is_named_in_the_error(tmp_path: Path, path: str, why: str) -> None:
    with pytest.raises(StoreError, match=rf"^ssl_truststore_location = .*: {why}"):
        read_store(Source("ssl_truststore_location", f"{tmp_path}/{path}"))


def test_file_size_is_limited(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="which no store has"):
        read_store(in_file(tmp_path, bytes(LARGEST_BYTES + 1)))


def test_store_type_is_detected_from_the_first_bytes() -> None:
    assert kind_of(b"") == kind_of(b"0 words -----BEGIN") == "PEM"
    assert kind_of(b"0\x82") == "PKCS12"


@pytest.mark.parametrize(
    "text", ["-----BEGIN CERTIFICATE-----", "-----BEGIN ", "-----BEGIN A PRIVATE KEY-----a-"]
)
def test_pem_is_parsed_in_linear_time(text: str) -> None:
    began = time.process_time()
    with pytest.raises(StoreError, match="neither a certificate nor a private key"):
        parse_pem(text * 20_000)
    assert time.process_time() - began < 2


def test_block_that_is_cut_off_is_refused() -> None:
    whole = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    for text in (whole + whole[:-30], whole[:30] + whole):
        with pytest.raises(StoreError, match="CERTIFICATE has no end"):
            parse_pem(text)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


IRREGULAR: list[Callable[[Path], None]] = [fifo, unix_socket, device, folder]


@pytest.fixture(params=IRREGULAR)
def irregular(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    make: Callable[[Path], None] = request.param
    make(Path("file"))
    return "file"


def free_descriptor() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_regular_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(path)
    for each in (path, tmp_path / "link"):
        with open_regular(str(each)) as file:
            assert file.read() == b"abc"


def test_irregular_file_raises_without_blocking(irregular: str) -> None:
    free = free_descriptor()
    with pytest.raises(OSError, match=r"not a regular file|Is a directory|No such device"):
        open_regular(irregular)
    assert free_descriptor() == free


def test_store_of_an_irregular_file_is_refused(irregular: str) -> None:
    with pytest.raises(StoreError, match="ssl_truststore_location = 'file': "):
        Source("ssl_truststore_location", irregular).content()


def test_assertion_of_an_irregular_file_is_refused(irregular: str) -> None:
    with pytest.raises(Refused, match="sasl_oauthbearer_assertion_file = 'file': "):
        assertion(AssertionSettings(file=irregular), 0.0)


async def test_token_of_an_irregular_file_is_refused(irregular: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="file': "):
        await from_file(f"file://{tmp_path}/{irregular}", {})()


KINDS: list[dict[str, Any]] = [
    {"ssl_truststore_location": "file"},
    {"ssl_keystore_location": "file"},
    {"ssl_keystore_certificate_chain": "file", "ssl_keystore_key": "file"},
]


@pytest.mark.parametrize("options", KINDS, ids=lambda options: next(iter(options)))
def test_configuration_with_an_irregular_file_is_refused(irregular: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"= 'file': |ssl_keystore_key: "):
        ProducerConfig(bootstrap_servers="broker:9093", security_protocol="SSL", **options)
