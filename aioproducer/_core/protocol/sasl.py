"""SaslHandshake and SaslAuthenticate: the choice of a mechanism and its messages, before any other request.

SaslHandshake: KIP-43, KIP-152 (v1: SaslAuthenticate requests follow); never flexible. SaslAuthenticate: KIP-152, KIP-368
(v1: lifetime of the session), KIP-482 (v2: flexible).
"""

from __future__ import annotations

from typing import Final

from aioproducer._core.protocol.fields import field
from aioproducer._core.protocol.schema import NEVER, Message, Request, message
from aioproducer._core.protocol.types import BYTES, INT16, INT64, NULLABLE_TEXT, STRING, array_of

MOST_MECHANISMS: Final = 100
"""Maximum number of mechanisms in a response, which arrives before authentication."""


@message(api_key=17, versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeResponse(Message):
    """Outcome for the mechanism, and the mechanisms of the listener."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array_of(STRING, most=MOST_MECHANISMS))


@message(api_key=17, versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Select a mechanism by its registered name."""

    mechanism: str = field(STRING)


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateResponse(Message):
    """Message of the broker to the mechanism. *error_message* is text for users; a lifetime of 0 is unlimited."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_TEXT)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1, ignorable=True, default=0)


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Message of the mechanism to the broker."""

    auth_bytes: bytes = field(BYTES)
