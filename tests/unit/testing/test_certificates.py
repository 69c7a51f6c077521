from __future__ import annotations

import builtins
import importlib
import ssl
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from aioproducer._core.security.tls_errors import PeerCertificate, presented_chain, unverified_context
from aioproducer.testing.certificates import Authority, Identity, server_context
from tests.unit._core.security.certificates import handshake


def read(identity: Identity) -> PeerCertificate:
    client = unverified_context()
    (certificate,) = presented_chain(handshake(client, server_context(identity, clients_of=None), None))
    return certificate


def test_authority_signs_for_hosts() -> None:
    shown = read(Authority().issue("broker", ["localhost", "127.0.0.1", "::1"]))
    assert (shown.subject, shown.issuer) == ("CN=broker", "CN=aioproducer.testing authority")
    assert shown.names == ("localhost", "127.0.0.1", "::1")
    assert shown.not_before < datetime.now(UTC) < shown.not_after


def test_expired_certificate_was_valid_before() -> None:
    shown = read(Authority().issue("broker", expired=True))
    assert shown.not_before < shown.not_after < datetime.now(UTC)
    assert shown.names == ()


def test_authorities_are_distinct() -> None:
    assert Authority().pem != Authority().pem


@pytest.mark.parametrize("for_clients", [False, True])
def test_client_certificates_are_required_with_authority(for_clients: bool) -> None:
    authority = Authority()
    context = server_context(authority.issue("broker"), clients_of=authority.pem if for_clients else None)
    assert (context.verify_mode is ssl.CERT_REQUIRED) == for_clients
    assert len(context.get_ca_certs()) == for_clients


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "aioproducer.testing.certificates")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"needs the extra 'testing'"):
        importlib.import_module("aioproducer.testing.certificates")
