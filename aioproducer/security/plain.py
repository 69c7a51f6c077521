"""PLAIN: user name and password as they are (RFC 4616). Over anything but TLS, everybody on the way reads them."""

from __future__ import annotations

from typing import Final

from aioproducer.security.credentials import Credentials
from aioproducer.security.mechanism import Broker, Refused


class Plain:
    """One login by PLAIN."""

    name: Final = "PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.complete: bool = False

    async def start(self, broker: Broker) -> bytes:
        """Return the only message there is."""
        username, password = await self._credentials.pair()
        secret = password.reveal()
        if not username or not secret:
            raise Refused("user name and password may not be empty")
        if "\0" in username or "\0" in secret:
            raise Refused("a NUL ends user name and password, so neither may have one")
        self.complete = True
        return f"\0{username}\0{secret}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Take the broker's word for it: it has nothing to say that would matter."""
        return b""
