"""The context that aiokafka's helper makes, from the same files."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable
from pathlib import Path

import aiokafka.helpers
import pytest

from aioproducer.compat.aiokafka.helpers import create_ssl_context
from tests.unit._core.security.certificates import Authority

AUTHORITY = Authority()
ME = AUTHORITY.issue("me")


def test_create_ssl_context_has_aiokafkas_signature() -> None:
    assert (
        inspect.signature(create_ssl_context).parameters.keys()
        == inspect.signature(aiokafka.helpers.create_ssl_context).parameters.keys()
    )


@pytest.mark.parametrize("create", [create_ssl_context, aiokafka.helpers.create_ssl_context])
def test_context_trusts_given_authorities(create: Callable[..., ssl.SSLContext], tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    for given in ({"cafile": tmp_path / "ca.pem"}, {"cadata": AUTHORITY.pem}):
        context = create(**given)
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.cert_store_stats()["x509_ca"] == 1
    assert create().cert_store_stats()["x509_ca"] != 1  # the authorities of the system


@pytest.mark.parametrize("create", [create_ssl_context, aiokafka.helpers.create_ssl_context])
def test_context_loads_certificate_and_encrypted_key(
    create: Callable[..., ssl.SSLContext], tmp_path: Path
) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text(ME.chain)
    key.write_text(ME.encrypted_key("hunter2"))
    create(certfile=chain, keyfile=key, password="hunter2")
    create(certfile=chain, keyfile=key, password=lambda: "hunter2")
    with pytest.raises(ssl.SSLError):
        create(certfile=chain, keyfile=key, password="wrong")


def test_context_never_prompts_for_a_password(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text(ME.chain)
    key.write_text(ME.encrypted_key("hunter2"))
    with pytest.raises(ValueError, match="the key is encrypted: give its password"):
        create_ssl_context(certfile=chain, keyfile=key)
