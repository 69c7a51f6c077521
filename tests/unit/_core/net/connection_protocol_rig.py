"""Connections at each stage, with responses and outcomes, for tests of `ConnectionProtocol`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net.connection_protocol import ConnectionProtocol, ConnectionState
from aioproducer._core.net.handshake import NODE_CHECK
from aioproducer._core.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.protocol.schema import Message, encode_response
from aioproducer.errors import (
    ConnectionFailed,
    ProducerError,
)
from tests.unit._core.net.scripted import ASK, OFFER, settings

NOW = 100.0
TIMEOUT_S = 20
GREETING = ApiVersionsResponse(error_code=0, api_keys=OFFER)
VERSION = InitProducerIdRequest.VERSIONS[1]

Feed = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def with_a_tail(data: bytes) -> list[bytes]:
    """Each piece ends within an answer, but for the last one."""
    return [data[:-3], data[-3:]]


every_way = pytest.mark.parametrize("feed", [whole, byte_by_byte, with_a_tail])


def made(*, has_sasl: bool = False, **changes: Any) -> ConnectionProtocol:
    """Return a new connection; its handshake request has been taken out."""
    chosen = settings(request_timeout_s=TIMEOUT_S, **changes)
    connection = ConnectionProtocol(Address("b", 1), chosen, 3, NOW, has_sasl=has_sasl)
    connection.connection_made(NOW)
    (greeting,) = connection.data_to_send()
    assert (greeting[5], greeting[7]) == (ApiVersionsRequest.API_KEY, NODE_CHECK - 1)
    return connection


def ready(**changes: Any) -> ConnectionProtocol:
    """Return one past its handshake; the next correlation id is 2."""
    connection = made(**changes)
    handshake(connection)
    assert connection.state is ConnectionState.READY
    return connection


def logging_in() -> ConnectionProtocol:
    """Return a connection past its handshake that waits for the login."""
    connection = made(has_sasl=True)
    handshake(connection)
    return connection


def handshake(connection: ConnectionProtocol) -> None:
    list(connection.receive_data(answer(1, GREETING, NODE_CHECK - 1), NOW))
    connection.handle_timeout(NOW)  # nothing is in flight any more


def answer(correlation_id: int, response: Message | None = None, version: int = VERSION) -> bytes:
    """Return *response*, or the answer to `ASK` with the correlation id as producer id."""
    if response is None:
        response = InitProducerIdResponse(producer_id=correlation_id, producer_epoch=0)
    return bytes(encode_response(response, version, correlation_id))


def call(connection: ConnectionProtocol, times: int = 1, *, now: float = NOW) -> None:
    for _ in range(times):
        connection.send(ASK, now, on_answer=lambda _: None)


def answers(connection: ConnectionProtocol, pieces: list[bytes], now: float = NOW) -> Iterator[int]:
    """Yield the producer id of each answer to `ASK` in *pieces*."""
    for piece in pieces:
        for _, message, _ in connection.receive_data(piece, now):
            if isinstance(message, InitProducerIdResponse):
                yield message.producer_id


def outcomes(connection: ConnectionProtocol, unwritten: int | None, cause: ProducerError) -> list[Any]:
    """Lose the connection; return for each call whether its error has `written`."""
    lost = connection.connection_lost(cause, unwritten)
    assert all(error is cause or error.__cause__ is cause for _, error in lost)
    return [error.written for _, error in lost if isinstance(error, ConnectionFailed)]
