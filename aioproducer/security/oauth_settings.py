"""Settings of OAuth tokens: the `sasl_oauthbearer_*` options, sorted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aioproducer.backoff import Backoff
from aioproducer.security.secret import Secret


@dataclass(frozen=True, slots=True)
class AssertionSettings:
    """Where an assertion comes from: a file that has it, or a private key that signs it."""

    file: str | None = None
    private_key_file: str | None = None
    private_key_passphrase: Secret | None = None
    template_file: str | None = None
    """JSON with `header` and `payload` to start from."""
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    with_jti: bool = False
    lives_s: int = 300
    valid_before_s: int = 60


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Whom to ask, and what to show."""

    url: str
    backoff: Backoff
    """Between tries; once its longest pause has passed since the first one, the last failure is told."""
    client_id: str | None = None
    client_secret: Secret | None = None
    assertion: AssertionSettings | None = None
    jwt_bearer: bool = False
    """Whether the assertion is what is exchanged; else it stands for the client's secret."""
    scope: str | None = None
    urlencode: bool = False
    """Whether id and secret are form-encoded before they become a Basic header, as RFC 6749 has it and few expect."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class UnsecuredSettings:
    """The claims, and how long they are to hold."""

    claims: Mapping[str, Any] = field(default_factory=dict)
    lives_s: float = 3600.0
