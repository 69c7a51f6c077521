"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a token instead of a password."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from aioproducer._core.logfmt import escaped
from aioproducer._core.security.mechanism import Broker, Refused
from aioproducer._core.security.secret import Secret, redacted
from aioproducer._core.security.tokens import TokenSource

_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
LONGEST_STATUS: Final = 200


class OAuthBearer:
    """One login by OAUTHBEARER."""

    name: Final = "OAUTHBEARER"

    def __init__(self, tokens: TokenSource, extensions: Mapping[str, str] | None = None) -> None:
        """*extensions* are sent along with each token; the token's own win."""
        self._tokens = tokens
        self._extensions = dict(extensions or {})
        self.complete: bool = False
        self.detail: str = ""
        """The broker's reason for the refusal, which arrives one message before the refusal."""
        self.proof: Secret | None = None
        """Token of this login."""
        self.secrets: tuple[Secret, ...] = ()
        """Secrets of this login, for the redaction of broker messages."""

    async def start(self, broker: Broker) -> bytes:
        """Return the token and its extensions."""
        token = await self._tokens.token()
        self.proof = token.value
        self.secrets = (token.value,)
        self.complete = True
        return first_message(token.value, {**self._extensions, **token.extensions})

    def respond(self, challenge: bytes) -> bytes:
        """Accept silence; anything else is a refusal, which is over only once we have answered it."""
        if not challenge and not self.detail:
            return b""
        if self.detail:
            raise Refused(f"the broker refused the token and then took it: {self.detail}")
        self.complete = False
        self.detail = escaped(redacted(_status(challenge), *self.secrets), LONGEST_STATUS) or "refused"
        return b"\x01"

    def refused(self) -> None:
        """Drop the token: the broker refused it, so the next login needs another one."""
        if self.proof is not None:
            self._tokens.refused(self.proof)


def first_message(token: Secret, extensions: Mapping[Any, Any]) -> bytes:
    """Return the first message; a token or extension that could be read as something else is refused.

    Raises: Refused. Its text has no token and no value in it.
    """
    if not _TOKEN.fullmatch(token.reveal()):
        raise Refused("the token is empty, or has characters that a bearer token may not have")
    for key, value in extensions.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key.lower() == "auth":
            raise Refused(f"the extension {key!r} needs a name of letters only, and not 'auth'")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise Refused(f"the extension {key!r} has a value that is no printable ASCII")
    pairs = "".join(f"\x01{key}={value}" for key, value in extensions.items())
    return f"n,,\x01auth=Bearer {token.reveal()}{pairs}\x01\x01".encode()


def _status(challenge: bytes) -> str:
    """Return the `status` of the broker's JSON, or the whole text."""
    text = challenge.decode("utf-8", "replace")
    try:
        said = json.loads(text)
        text = str(said.get("status", text)) if isinstance(said, dict) else text
    except (ValueError, RecursionError):
        pass
    return text
