"""Settings of TLS: the `ssl_*` options, checked and sorted."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from aioproducer.security.secret import Secret
from aioproducer.security.stores import Source

SslContextSource: TypeAlias = "ssl.SSLContext | Callable[[], ssl.SSLContext | Awaitable[ssl.SSLContext]]"

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Where trust and identity come from, and what is to be negotiated."""

    context: SslContextSource | None = None
    """The user's own; then nothing else here counts but *check_hostname*, which is the context's own matter too."""
    truststore: Source | None = None
    """None: the authorities that the system trusts."""
    truststore_type: str | None = None
    truststore_password: Secret | None = None
    keystore: Source | None = None
    """A file with certificate and key; None: no client certificate, or the two below."""
    certificate_chain: Source | None = None
    key: Source | None = None
    keystore_type: str | None = None
    keystore_password: Secret | None = None
    key_password: Secret | None = None
    check_hostname: bool = True
    versions: tuple[str, ...] = tuple(VERSIONS)
    cipher_suites: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that is read from files or texts."""
        each = (self.truststore, self.keystore, self.certificate_chain, self.key)
        return tuple(source for source in each if source is not None)

    @property
    def has_identity(self) -> bool:
        """Whether we have a client certificate to show."""
        return self.keystore is not None or self.key is not None
