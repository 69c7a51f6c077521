"""PLAIN: user name and password as they are (RFC 4616). Over anything but TLS, everybody on the way reads them."""

from __future__ import annotations

from typing import Final

from aioproducer._core.security.credentials import Credentials, utf8
from aioproducer._core.security.mechanism import Broker, Refused
from aioproducer._core.security.secret import Secret


class Plain:
    """One login by PLAIN."""

    name: Final = "PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.complete: bool = False
        self.proof: object = None
        """Credentials of this login, for comparison with later credentials."""
        self.secrets: tuple[Secret, ...] = ()
        """Secrets of this login, for the redaction of broker messages."""

    async def start(self, broker: Broker) -> bytes:
        """Return the only message there is."""
        self.proof = login = await self._credentials.pair()
        username, password = login
        if not username or not password:
            raise Refused("user name and password may not be empty")
        if "\0" in username or "\0" in password.reveal():
            raise Refused("a NUL ends user name and password, so neither may have one")
        self.secrets = (password,)
        self.complete = True
        return b"\0%b\0%b" % (utf8(username, "the user name"), utf8(password, "the password"))

    def respond(self, challenge: bytes) -> bytes:
        """Take the broker's word for it: it has nothing to say that would matter."""
        return b""
