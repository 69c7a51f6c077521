"""Delegation tokens (KIP-48): a broker issues one, a producer logs in with it, and the broker refuses it once it has expired."""

from __future__ import annotations

import asyncio
import base64
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

import pytest

from aioproducer import AuthenticationFailed, Producer, ProducerOptions
from tests.kafka.apache.secured import PASSWORDS, SecuredKafka
from tests.kafka.readback import read_with_librdkafka

SASL_HANDSHAKE, SASL_AUTHENTICATE, CREATE_TOKEN, EXPIRE_TOKEN = 17, 36, 38, 40
USER = "alice"


class Token(NamedTuple):
    """The two parts of a delegation token."""

    id: str
    hmac: bytes

    @classmethod
    def read(cls, answer: bytes) -> Self:
        """Decode CreateDelegationToken v1. Raises: AssertionError if the broker refused."""
        assert answer[:2] == bytes(2), struct.unpack_from(">h", answer)
        start = 2
        for _ in range(2):  # type and name of the owner
            start += 2 + int.from_bytes(answer[start : start + 2])
        start += 3 * 8  # times of issue, expiry and the end of life
        size = int.from_bytes(answer[start : start + 2])
        hmac = start + 2 + size + 4
        return cls(answer[start + 2 : start + 2 + size].decode(), answer[hmac:-4])


class AdminConnection:
    """A connection of a user who has logged in with PLAIN."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        assert self.ask(SASL_HANDSHAKE, string("PLAIN"))[:2] == bytes(2)
        secret = f"\0{USER}\0{PASSWORDS[USER]}".encode()
        assert self.ask(SASL_AUTHENTICATE, block(secret))[:2] == bytes(2)

    def ask(self, key: int, body: bytes) -> bytes:
        """Send version 1 of a request, and return the response after its header."""
        request = struct.pack(">hhi", key, 1, 7) + string("tests") + body
        self._socket.sendall(block(request))
        return self._read(int.from_bytes(self._read(4)))[4:]

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            assert more, "the broker closed the connection"
            found += more
        return found


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def block(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


@contextmanager
def administration(kafka: SecuredKafka) -> Iterator[AdminConnection]:
    host, _, port = kafka.at("SASL").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connected:
        yield AdminConnection(connected)


def create(kafka: SecuredKafka) -> Token:
    with administration(kafka) as admin:
        return Token.read(admin.ask(CREATE_TOKEN, struct.pack(">iq", 0, 3_600_000)))


def expire(kafka: SecuredKafka, token: Token) -> None:
    with administration(kafka) as admin:
        answer = admin.ask(EXPIRE_TOKEN, block(token.hmac) + struct.pack(">q", -1))
    assert answer[:2] == bytes(2)


def login_with(token: Token) -> ProducerOptions:
    # Java's clients take the hash as Base64
    password = base64.b64encode(token.hmac).decode()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    line = f'{module} required username="{token.id}" password="{password}" tokenauth="true";'
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_jaas_config": line,
    }


async def refusal(kafka: SecuredKafka, token: Token) -> AuthenticationFailed | None:
    """Return the error of a login with *token*; None if the broker accepts the token."""
    await asyncio.sleep(0.1)  # the broker applies a change of a token after its response
    try:
        async with Producer(kafka.at("SASL"), **login_with(token)):
            return None
    except AuthenticationFailed as error:
        return error


@pytest.mark.timeout(120)
async def test_producer_logs_in_with_a_delegation_token(secured: SecuredKafka, secured_topic: str) -> None:
    token = await asyncio.to_thread(create, secured)
    async with asyncio.timeout(30):
        while await refusal(secured, token):
            pass
    async with Producer(secured.at("SASL"), **login_with(token)) as producer:
        await producer.send(secured_topic, b"with a token")
    found = await asyncio.to_thread(read_with_librdkafka, secured.kafka.bootstrap_servers, secured_topic)
    assert [each.value for each in found] == [b"with a token"]
    await asyncio.to_thread(expire, secured, token)
    refused = None
    async with asyncio.timeout(30):
        while refused is None:
            refused = await refusal(secured, token)
    assert "SCRAM-SHA-256" in str(refused)
