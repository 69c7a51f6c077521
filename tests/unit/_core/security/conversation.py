"""Helpers for tests of SASL mechanisms."""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
from typing import Any

from aioproducer._core.address import Address
from aioproducer._core.security.mechanism import Mechanism
from aioproducer._core.security.passwords import Credentials, Login
from aioproducer._core.security.secret import Secret

BROKER = Address("broker.example", 9093)


def credentials(username: str = "user", password: str = "pencil") -> Credentials:
    return Credentials(Login(username, Secret(password)))


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def first(mechanism: Mechanism) -> bytes:
    message: bytes = await settled(mechanism.start(BROKER))
    return message


async def reply(mechanism: Mechanism, challenge: bytes) -> bytes:
    message: bytes = await settled(mechanism.respond(challenge))
    return message


class ScramServer:
    """The broker's side, from RFC 5802 and written for the tests: knows the password, and is no client turned round."""

    def __init__(
        self, algorithm: str, password: bytes, *, salt: bytes = b"salty", iterations: int = 4096
    ) -> None:
        self.algorithm = algorithm
        self.salt = salt
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(algorithm, password, salt, iterations)
        self.first_bare = ""
        self.first = ""

    def challenge(self, message: bytes) -> bytes:
        header, _, self.first_bare = message.decode().partition(",,")
        assert header == "n"
        nonce = dict(part.split("=", 1) for part in self.first_bare.split(","))["r"]
        self.first = f"r={nonce}server,s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        return self.first.encode()

    def verdict(self, message: bytes) -> bytes | None:
        """Return the last message, or None if the proof is none."""
        final, _, proof = message.decode().rpartition(",p=")
        assert final.startswith("c=biws,r=")
        signed = f"{self.first_bare},{self.first},{final}".encode()
        stored = hashlib.new(self.algorithm, self._hmac(self.salted, b"Client Key")).digest()
        signature = self._hmac(stored, signed)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.algorithm, key).digest() != stored:
            return None
        own = self._hmac(self._hmac(self.salted, b"Server Key"), signed)
        return b"v=" + base64.b64encode(own)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.algorithm).digest()
