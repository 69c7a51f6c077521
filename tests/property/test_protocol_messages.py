"""Invariants of every message in every version, for any contents and for any bytes in its place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.schema import (
    Message,
    Request,
    decode,
    decode_request,
    decode_start,
    encode,
    encode_request,
    encode_response,
    read_correlation_id,
    response_body,
)
from aioproducer.errors import ProtocolError
from tests.property.messages import MESSAGES, instances, message_id
from tests.property.profiles import share


def read_response(cls: type[Message], version: int, payload: bytes) -> tuple[Message, int]:
    """Return the response in *payload*, whatever its values, and the number of bytes behind it."""
    return decode_start(cls, version, payload, response_body(cls, version, payload))


some_message = st.sampled_from(MESSAGES)
some_response = st.sampled_from([kind for kind in MESSAGES if not issubclass(kind[0], Request)])


@pytest.mark.parametrize("cls", sorted({cls for cls, _ in MESSAGES}, key=message_id), ids=message_id)
@settings(max_examples=share(0.1))  # for each class and version
@given(data=st.data())
def test_decoding_inverts_encoding_in_every_version(cls: type[Message], data: st.DataObject) -> None:
    for version in (version for kind, version in MESSAGES if kind is cls):
        message = data.draw(instances(cls, version), label=f"version {version}")
        assert decode(cls, version, encode(message, version)) == message


@given(some_message, st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=20), st.data())
def test_frames_are_decoded_by_the_other_side(
    kind: tuple[type[Message], int], correlation_id: int, client_id: str | None, data: st.DataObject
) -> None:
    cls, version = kind
    message = data.draw(instances(cls, version))
    if isinstance(message, Request):
        frame = encode_request(message, version, correlation_id, client_id)
        header, pos = decode_request(frame[4:], REQUESTS)
        assert header == (cls.API_KEY, version, correlation_id, client_id)
        assert decode(cls, version, frame[4:], pos) == message
    else:
        frame = encode_response(message, version, correlation_id)
        assert read_correlation_id(frame[4:]) == correlation_id
        assert read_response(cls, version, bytes(frame[4:])) == (message, 0)
    assert int.from_bytes(frame[:4]) == len(frame) - 4


@given(some_response, st.binary(max_size=20), st.data())
def test_response_is_decoded_with_any_trailing_bytes(
    kind: tuple[type[Message], int], junk: bytes, data: st.DataObject
) -> None:
    cls, version = kind
    message = data.draw(instances(cls, version))
    payload = bytes(encode_response(message, version, 1)[4:]) + junk
    assert read_response(cls, version, payload) == (message, len(junk))


@given(some_message, st.data())
def test_truncated_message_is_a_protocol_error(kind: tuple[type[Message], int], data: st.DataObject) -> None:
    cls, version = kind
    wire = encode(data.draw(instances(cls, version)), version)
    for end in range(len(wire)):
        with pytest.raises(ProtocolError):
            decode(cls, version, wire[:end])


@given(some_message, st.data())
def test_altered_message_is_decoded_or_a_protocol_error(
    kind: tuple[type[Message], int], data: st.DataObject
) -> None:
    cls, version = kind
    wire = encode(data.draw(instances(cls, version)), version)
    at = data.draw(st.integers(0, len(wire)))
    hostile = st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0\0\0", b"\xff" * 12])
    put = data.draw(hostile | st.binary(min_size=1, max_size=8))
    wire[at : at + len(put)] = put
    read_or_refused(cls, version, bytes(wire))


@given(some_message, st.binary(max_size=200))
def test_random_bytes_are_decoded_or_a_protocol_error(kind: tuple[type[Message], int], junk: bytes) -> None:
    read_or_refused(*kind, junk)


@given(st.binary(max_size=200))
def test_random_request_header_is_decoded_or_a_protocol_error(junk: bytes) -> None:
    try:
        header, pos = decode_request(junk, REQUESTS)
    except ProtocolError:
        return
    assert header.api_key == int.from_bytes(junk[:2], signed=True)
    assert 10 <= pos <= len(junk)


def read_or_refused(cls: type[Message], version: int, wire: bytes) -> None:
    """Decode *wire* and encode the result again; the only permitted error is ProtocolError."""
    try:
        message = decode(cls, version, wire)
    except ProtocolError:
        return
    assert decode(cls, version, encode(message, version)) == message
