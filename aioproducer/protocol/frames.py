"""Frames: a length, a header, a message. Both directions, for clients and for servers.

Request headers are version 1, or 2 with tagged fields for flexible messages; in both the client id keeps its
classic int16 length. Response headers are version 0, or 1 with tagged fields; those of ApiVersions are always
version 0, so that a client can read the answer of a broker that does not know the version it asked in.

A payload is a frame without its length. Sources: RequestHeader.json, ResponseHeader.json, KIP-482, KIP-511.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from aioproducer.protocol.api_versions import ApiVersionsResponse
from aioproducer.protocol.codec import read_tags
from aioproducer.protocol.schema import M, Message, Request, append, decode_start
from aioproducer.wire.primitives import (
    BytesLike,
    append_nullable_string,
    read_int16,
    read_int32,
    read_nullable_string,
)

_LENGTH: Final = Struct(">i")
_REQUEST_START: Final = Struct(">ihhi")
_RESPONSE_START: Final = Struct(">ii")


class RequestHeader(NamedTuple):
    """Who asks what, in which version, and under which number the answer is expected."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Return the frame, length included."""
    frame = bytearray(_REQUEST_START.pack(0, request.API_KEY, version, correlation_id))
    append_nullable_string(frame, client_id)
    if version >= request.FLEXIBLE_FROM:
        frame.append(0)
    return _finish(frame, request, version)


def encode_response(response: Message, version: int, correlation_id: int) -> bytearray:
    """Return the frame, length included."""
    frame = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if _has_tags(type(response), version):
        frame.append(0)
    return _finish(frame, response, version)


def _finish(frame: bytearray, message: Message, version: int) -> bytearray:
    append(frame, message, version)
    _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    return frame


def _has_tags(response_cls: type[Message], version: int) -> bool:
    return version >= response_cls.FLEXIBLE_FROM and response_cls is not ApiVersionsResponse


def read_correlation_id(payload: BytesLike) -> int:
    """Return which request the response in *payload* answers; ProtocolError if it is too short to say."""
    correlation_id, _ = read_int32(bytes(payload[:4]), 0)
    return correlation_id


def decode_response(response_cls: type[M], version: int, payload: BytesLike) -> tuple[M, int]:
    """Return the message, and how many bytes are left over behind it; ProtocolError if it is not whole.

    What is left over does no harm: where the next frame begins is known. Kafka's own client does not look, so there
    are brokers that say too much.
    """
    data = bytes(payload)
    return decode_start(response_cls, version, data, response_body(response_cls, version, data))


def response_body(response_cls: type[Message], version: int, payload: bytes) -> int:
    """Return where the message of the response in *payload* begins."""
    pos = _RESPONSE_START.size - _LENGTH.size
    return read_tags(payload, pos, {}, None) if _has_tags(response_cls, version) else pos


def decode_request(
    payload: BytesLike, requests: Mapping[int, type[Request[Any]]]
) -> tuple[RequestHeader, int]:
    """Return the header and where the body begins: `decode(requests[header.api_key], …, payload, pos)`.

    Where *requests* has no such API, or not in this version, only the header can be relied on.
    """
    data = bytes(payload)
    api_key, pos = read_int16(data, 0)
    api_version, pos = read_int16(data, pos)
    correlation_id, pos = read_int32(data, pos)
    client_id, pos = read_nullable_string(data, pos)
    header = RequestHeader(api_key, api_version, correlation_id, client_id)
    request_cls = requests.get(api_key)
    if request_cls is not None and request_cls.FLEXIBLE_FROM <= api_version <= request_cls.VERSIONS[1]:
        pos = read_tags(data, pos, {}, None)
    return header, pos
