"""An authority for tests, and a TLS handshake in memory."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

NOW = datetime.now(UTC).replace(microsecond=0)


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    chain_above: str = ""
    """The PEM of intermediate authorities, which a server presents behind its own certificate."""

    @property
    def chain(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode() + self.chain_above

    @property
    def key_pem(self) -> str:
        return self.encrypted_key(None)

    def encrypted_key(self, password: str | None, *, legacy: bool = False) -> str:
        form = serialization.PrivateFormat.TraditionalOpenSSL if legacy else serialization.PrivateFormat.PKCS8
        how = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        return self.key.private_bytes(serialization.Encoding.PEM, form, how).decode()

    def pkcs12(self, password: str, *authorities: x509.Certificate) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"me",
            self.key,
            self.certificate,
            authorities,
            serialization.BestAvailableEncryption(password.encode()),
        )


class Authority:
    """Certificate authority that only the tests trust."""

    def __init__(
        self,
        name: str = "lab authority",
        *,
        issuer: Authority | None = None,
        not_after: datetime = NOW + timedelta(days=1),
    ) -> None:
        """Without *issuer* its certificate is self-signed."""
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = (issuer or self)._sign(self.name, self.key, authority=True, not_after=not_after)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        *names: str,
        common_name: str = "broker",
        not_before: datetime = NOW - timedelta(days=1),
        not_after: datetime = NOW + timedelta(days=1),
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "lab"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        return Issued(self._sign(subject, key, names, not_before=not_before, not_after=not_after), key)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        names: tuple[str, ...] = (),
        *,
        authority: bool = False,
        not_before: datetime = NOW - timedelta(days=1),
        not_after: datetime = NOW + timedelta(days=1),
    ) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            self.name, subject, key.public_key(), x509.random_serial_number(), not_before, not_after
        ).add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([*map(_general, names)]), critical=False
            )
        return builder.sign(self.key, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def truststore(*authorities: Authority, password: str) -> bytes:
    """Return a PKCS12 with nothing but trusted certificates, as keytool makes them."""
    trusted = [pkcs12.PKCS12Certificate(each.certificate, b"ca") for each in authorities]
    return pkcs12.serialize_java_truststore(trusted, serialization.BestAvailableEncryption(password.encode()))


def server_context(issued: Issued, folder: Path, *, clients_of: Authority | None = None) -> ssl.SSLContext:
    """Return a broker's context; with *clients_of* it wants certificates of theirs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = folder / f"server-{issued.certificate.serial_number}.pem"
    path.write_text(issued.chain + issued.key_pem)
    context.load_cert_chain(path)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients_of.pem)
    return context


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str | None) -> ssl.SSLObject:
    """Complete a handshake in memory; return the client's side, or raise the error of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    failed: Exception | None = None
    for _ in range(8):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                if side is ours:
                    raise
                failed = error
    try:
        ours.read(1)  # what a server of TLS 1.3 thinks of our certificate comes after the handshake
    except ssl.SSLWantReadError:
        assert failed is None, failed
    return ours
