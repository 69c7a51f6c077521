"""The broker's side of OAUTHBEARER (RFC 7628, KIP-255)."""

from __future__ import annotations

import re
from typing import Final

from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing.refusal import Refused
from aioproducer.testing.sasl.server_login import Accounts, InvalidCredentials

INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105 - as it says

_FIRST = re.compile(
    r"n,(?:a=(?P<acts_for>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"bearer +(?P<token>[-_.A-Za-z0-9]+)", re.IGNORECASE)


class OAuthBearerLogin:
    """One login by OAUTHBEARER: a token; if it is refused, the client has to say that it has understood."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self.user: str | None = None
        self._refused = False

    def respond(self, message: bytes) -> bytes:
        """Check the token. Error 0 and some JSON is a refusal; 58 comes once the client has answered 0x01."""
        if self._refused and message == b"\x01":
            raise Refused(SaslAuthenticationFailed, INVALID_TOKEN)
        parts = _FIRST.fullmatch(message.decode("latin-1"))
        if parts is None:
            raise InvalidCredentials
        pairs = [pair.split("=", 1) for pair in parts["pairs"].split("\x01")[:-1]]
        (auth, *more) = [value for key, value in pairs if key == "auth"] or [""]
        given = _AUTH.fullmatch(auth)
        if given is None or more:
            raise InvalidCredentials
        user = self._accounts.owner(given["token"])
        self._refused = user is None
        if user is None:
            return INVALID_TOKEN.encode()
        if parts["acts_for"] not in {None, user}:
            raise Refused(
                SaslAuthenticationFailed,
                f"Authentication failed: Client requested an authorization id ({parts['acts_for']}) that is "
                f"different from the token's principal name ({user})",
            )
        self.user = user
        return b""
