from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.regular_files import open_regular
from aioproducer._core.security.security_settings import AssertionSettings
from aioproducer._core.security.stores import Source, StoreError
from aioproducer._core.security.token_endpoint import assertion, from_file
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError


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
