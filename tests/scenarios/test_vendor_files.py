"""Producers that start from files as vendors hand them out, on a cluster with the vendor's protocol and mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from aioproducer import Producer, ProducerConfig
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, cluster, scenario, values
from tests.unit.config.vendor_files import (
    FILES,
    OCI_USER,
    PASSWORD,
    VendorFile,
    connection_string,
    path,
    write_hashed,
)

USERS = {
    "APIKEY": PASSWORD,
    "alice": PASSWORD,
    "token": PASSWORD,
    OCI_USER: PASSWORD,
    "ickafka": PASSWORD,
    "$ConnectionString": connection_string(),
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WITH_PASSWORD = [file for file in FILES if file.expected.get("sasl_mechanism") in MECHANISMS]
WITH_CERTIFICATE = [file for file in FILES if file.expected["security_protocol"] == "SSL"]


@pytest.fixture(autouse=True)
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def send(file: VendorFile, servers: str) -> None:
    arguments = {**file.arguments, "bootstrap_servers": servers}
    config = ProducerConfig.from_properties(path(file.name), **arguments)
    async with Producer.from_config(config) as producer:
        serialized = config.value_serializer is not None
        await producer.send(TOPIC, "value" if serialized else b"value")


def write_truststore(file: VendorFile, ca_pem: str) -> None:
    """Write the truststore that *file* names, with the authority of the cluster."""
    name = file.expected.get("ssl_truststore_location")
    if name == "certs":
        write_hashed(Path(name), ca_pem)
    elif name is not None and name.endswith(".crt"):
        Path(name).write_text(ca_pem)
    elif name is not None:
        password = file.expected.get("ssl_truststore_password")
        trusted = [pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(ca_pem.encode()), b"ca")]
        Path(name).write_bytes(pkcs12.serialize_java_truststore(trusted, encryption(password)))


def write_keystore(file: VendorFile, identity: Mapping[str, Any]) -> None:
    """Write the keystore that *file* names, with the certificate and key of a client."""
    key = serialization.load_pem_private_key(identity["ssl_keystore_key"].encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    first, *above = x509.load_pem_x509_certificates(identity["ssl_keystore_certificate_chain"].encode())
    store = pkcs12.serialize_key_and_certificates(b"me", key, first, above, encryption(PASSWORD))
    Path(file.expected["ssl_keystore_location"]).write_bytes(store)


def encryption(password: str | None) -> serialization.KeySerializationEncryption:
    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())


@for_each("file", WITH_PASSWORD)
@scenario
async def test_producer_with_a_password_starts(
    file: VendorFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = file.expected["sasl_mechanism"]
    async with cluster(security_protocol="SASL_SSL", sasl_mechanisms=[mechanism], users=USERS) as opened:
        authority = tmp_path / "system.pem"
        authority.write_text(opened.ca_pem)
        monkeypatch.setenv(
            "SSL_CERT_FILE", str(authority)
        )  # a public authority, for files without a truststore
        write_truststore(file, opened.ca_pem)
        await send(file, opened.bootstrap_servers)
        assert values(opened) == [b"value"]


@pytest.mark.parametrize("file", WITH_CERTIFICATE, ids=[file.name for file in WITH_CERTIFICATE])
@scenario
async def test_producer_with_a_certificate_starts(file: VendorFile) -> None:
    async with cluster(security_protocol="SSL", client_auth=True) as opened:
        write_truststore(file, opened.ca_pem)
        write_keystore(file, opened.client_options)
        await send(file, opened.bootstrap_servers)
        assert values(opened) == [b"value"]
