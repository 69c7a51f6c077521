"""Generated certificates for a cluster with TLS: an authority and the certificates that it signs."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from aioproducer._core.extras import needs

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID
except ImportError as _missing:
    raise ImportError(needs("a Cluster that speaks TLS", "testing")) from _missing

_DAY = timedelta(days=1)


class Identity(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: str
    key: str


class Authority:
    """A certificate authority with a new key."""

    def __init__(self) -> None:
        self._name = _name("aioproducer.testing authority")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pem: str = self._sign(self._name, self._key.public_key(), (), days=3650, authority=True)

    def issue(self, common_name: str, hosts: Iterable[str] = (), *, expired: bool = False) -> Identity:
        """Return a new certificate for *hosts* (names and addresses). An *expired* certificate ended yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(common_name), key.public_key(), hosts, days=-1 if expired else 365)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Identity(certificate, pem.decode())

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        hosts: Iterable[str],
        *,
        days: int,
        authority: bool = False,
    ) -> str:
        now = datetime.now(UTC)
        ours = self._key.public_key()
        unused = (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("encipher_only", "decipher_only"),
        )
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=authority,
            crl_sign=authority,
            **dict.fromkeys(unused, False),
        )
        builder = (
            x509.CertificateBuilder()
            .issuer_name(self._name)
            .subject_name(subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            # Python 3.13 verifies certificates strictly by RFC 5280
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
            .add_extension(usage, critical=True)
        )
        names = [_general(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def server_context(identity: Identity, *, clients_of: str | None) -> ssl.SSLContext:
    """Return a broker's context. *clients_of*: PEM of the authority whose client certificates are required, or None."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:  # readable by this user alone
        file = Path(folder, "broker.pem")
        file.write_text(identity.certificate + identity.key)
        context.load_cert_chain(file)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients_of)
    return context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
