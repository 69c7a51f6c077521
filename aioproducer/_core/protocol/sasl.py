"""SaslHandshake and SaslAuthenticate: which mechanism, and then its messages, before any other request.

KIP-43 (handshake), KIP-152 (v1 of the handshake: what follows is SaslAuthenticate), KIP-368 (v1 of
SaslAuthenticate: how long the session lives), KIP-482 (v2 of it: flexible). The handshake never is.
"""

from __future__ import annotations

from typing import Final

from aioproducer._core.protocol.fields import field
from aioproducer._core.protocol.schema import NEVER, Message, Request, message
from aioproducer._core.protocol.types import BYTES, INT16, INT64, NULLABLE_TEXT, STRING, array_of

MOST_MECHANISMS: Final = 100


@message(api_key=17, versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeResponse(Message):
    """Whether the mechanism will do, and those that the listener has."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array_of(STRING, most=MOST_MECHANISMS))


@message(api_key=17, versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """The mechanism, in the exact spelling of its registration."""

    mechanism: str = field(STRING)


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateResponse(Message):
    """The mechanism's answer; *error_message* is written for people. A lifetime of 0 has no end."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_TEXT)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1, ignorable=True, default=0)


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """One message of the mechanism."""

    auth_bytes: bytes = field(BYTES)
