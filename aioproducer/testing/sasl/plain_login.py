"""The broker's side of PLAIN (RFC 4616)."""

from __future__ import annotations

import hmac

from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing.refusal import Refused
from aioproducer.testing.sasl.server_login import Accounts, InvalidCredentials


class PlainLogin:
    """One login by PLAIN: a single message, and nothing to say to it."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self.user: str | None = None

    def respond(self, message: bytes) -> bytes:
        """Check name and password."""
        try:
            acts_for, name, password = message.decode().split("\0")
        except ValueError:
            raise InvalidCredentials from None
        if not name or not password:
            raise InvalidCredentials
        known = self._accounts.users.get(name)
        if known is None or not hmac.compare_digest(known.encode(), password.encode()):
            raise Refused(SaslAuthenticationFailed, "Authentication failed: Invalid username or password")
        if acts_for not in {"", name}:
            raise Refused(
                SaslAuthenticationFailed,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.user = name
        return b""
