"""Everything that a connection needs to know about security, in one value made from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aioproducer.backoff import Backoff
from aioproducer.security.credentials import CredentialsCallable, Login
from aioproducer.security.gssapi import KerberosSettings
from aioproducer.security.mechanism import MechanismFactory
from aioproducer.security.oauth_settings import EndpointSettings, UnsecuredSettings
from aioproducer.security.tls_settings import TlsSettings
from aioproducer.security.tokens import TokenProvider


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How to log in."""

    mechanism: str | MechanismFactory
    backoff: Backoff
    """Between tries to renew a token."""
    credentials: Login | CredentialsCallable | None = None
    """Of PLAIN and SCRAM."""
    token_auth: bool = False
    """Whether the credentials are a delegation token."""
    tokens: TokenProvider | EndpointSettings | UnsecuredSettings | str | None = None
    """Of OAUTHBEARER; a str is the `file:` URL of a token."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    kerberos: KerberosSettings | None = None


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """How connections are secured; neither of them is PLAINTEXT."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
