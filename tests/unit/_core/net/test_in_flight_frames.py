from __future__ import annotations

import pytest

from aioproducer._core.net.in_flight import (
    LENGTH,
    UNCHECKED_BYTES,
    Call,
    FrameReader,
    InFlight,
    TokenReader,
)
from aioproducer._core.protocol.client import SaslAuthenticateResponse, SaslHandshakeResponse
from aioproducer._core.protocol.schema import Message, decode_response
from aioproducer.errors import ProtocolError
from tests.cases import for_each

STREAM = LENGTH.pack(4) + b"abcd" + LENGTH.pack(6) + b"efghij"
PAYLOADS = [b"abcd", b"efghij"]


def test_chunk_of_whole_frames_yields_all_of_them() -> None:
    reader = FrameReader(6)
    assert list(reader.feed(STREAM)) == PAYLOADS
    assert len(reader.begun) == 0


def test_frames_are_put_together_from_single_bytes() -> None:
    reader = FrameReader(6)
    assert [payload for byte in STREAM for payload in reader.feed(bytes([byte]))] == PAYLOADS


def test_incomplete_frame_is_kept_for_the_next_chunk() -> None:
    reader = FrameReader(6)
    assert list(reader.feed(STREAM[:-2])) == PAYLOADS[:1]
    assert len(reader.begun) == 8
    assert list(reader.feed(STREAM[-2:] + STREAM)) == [PAYLOADS[1], *PAYLOADS]
    assert len(reader.begun) == 0


def test_begun_payload_is_available_after_four_bytes() -> None:
    reader = FrameReader(6)
    seen = [(list(reader.feed(bytes([byte]))), reader.begun_payload)[1] for byte in STREAM[8:]]
    assert seen == [b""] * 7 + [b"efgh"] * 2 + [b""]


@for_each("length", [-(2**31), -1, 0, 3, 7, 2**31 - 1])
def test_impossible_length_is_refused_before_its_payload(length: int) -> None:
    with pytest.raises(ProtocolError, match=rf" {length} bytes long \(4 to 6 are possible\)"):
        list(FrameReader(6).feed(LENGTH.pack(length)))


@for_each(
    ("start", "likeness"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert: this port expects TLS"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP response: this is a web server's port"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH greeting"),
    ],
)
def test_length_error_names_other_protocols(start: bytes, likeness: str) -> None:
    with pytest.raises(ProtocolError, match=likeness):
        list(FrameReader(100 * 1024 * 1024).feed(start))


def test_payload_before_an_impossible_length_is_yielded_first() -> None:
    frames = iter(FrameReader(6).feed(STREAM + b"junk"))
    assert [next(frames), next(frames)] == PAYLOADS
    with pytest.raises(ProtocolError, match="it begins with b'junk'"):
        next(frames)


@pytest.mark.parametrize("size", [3, 7])
def test_whole_frame_of_an_impossible_length_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"cannot be {size} bytes long"):
        list(FrameReader(6).feed(LENGTH.pack(size) + bytes(size)))


def test_payload_that_looks_like_a_frame_is_one_payload() -> None:
    reader, payload = FrameReader(8), LENGTH.pack(4) + b"abcd"
    assert list(reader.feed(LENGTH.pack(8))) == []
    assert list(reader.feed(payload)) == [payload]


def test_length_error_of_unknown_bytes_shows_only_the_bytes() -> None:
    with pytest.raises(ProtocolError, match=r"it begins with b'junk'$"):
        list(FrameReader(6).feed(b"junk"))


def test_limit_of_the_expected_answer_counts_for_large_frames() -> None:
    reader = FrameReader(10**9, lambda: UNCHECKED_BYTES + 10)
    assert list(reader.feed(LENGTH.pack(UNCHECKED_BYTES + 10))) == []
    with pytest.raises(ProtocolError, match=r"cannot be 65547 bytes long \(4 to 65546 are possible\)"):
        list(FrameReader(10**9, lambda: UNCHECKED_BYTES + 10).feed(LENGTH.pack(UNCHECKED_BYTES + 11)))


def test_expected_answer_limits_frames_up_to_the_largest() -> None:
    reader = FrameReader(UNCHECKED_BYTES + 1, lambda: UNCHECKED_BYTES)
    with pytest.raises(ProtocolError, match=r"\(4 to 65536 are possible\)"):
        list(reader.feed(LENGTH.pack(UNCHECKED_BYTES + 1)))


def test_small_frames_are_not_compared_with_the_expected_answer() -> None:
    payload = bytes(UNCHECKED_BYTES)
    assert list(FrameReader(10**9, lambda: 0).feed(LENGTH.pack(len(payload)) + payload + b"\0")) == [payload]


def test_limit_counts_for_large_frames_in_one_chunk() -> None:
    length = UNCHECKED_BYTES + 1
    with pytest.raises(ProtocolError, match="cannot be 65537 bytes long"):
        list(FrameReader(10**9, lambda: UNCHECKED_BYTES).feed(LENGTH.pack(length) + bytes(length)))


def frame(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def test_frames_above_64_kib_are_reported() -> None:
    large: list[int] = []
    reader = FrameReader(10**9, on_large=lambda payload: large.append(len(payload)))
    for length in (UNCHECKED_BYTES, UNCHECKED_BYTES + 1):
        whole = frame(bytes(length))
        assert [*map(len, reader.feed(whole))] == [length]
        assert [len(each) for part in (whole[:-1], whole[-1:]) for each in reader.feed(part)] == [length]
    assert large == [UNCHECKED_BYTES + 1] * 2


def test_frames_behind_a_large_one_follow_it() -> None:
    large, reported = bytes(UNCHECKED_BYTES + 1), list[bytes]()
    reader = FrameReader(10**9, on_large=reported.append)
    assert list(reader.feed(frame(large) + STREAM[:-1])) == [large, PAYLOADS[0]]
    assert list(reader.feed(STREAM[-1:] + frame(large))) == [PAYLOADS[1], large]
    assert list(reader.feed(STREAM[:1])) == []
    assert list(reader.feed(STREAM[1:])) == PAYLOADS
    assert reported == [large] * 2


def test_large_payload_follows_the_exception_of_its_report() -> None:
    def refuse(payload: bytes) -> None:
        raise LookupError(len(payload))

    large = bytes(UNCHECKED_BYTES + 1)
    reader = FrameReader(10**9, on_large=refuse)
    frames = iter(reader.feed(STREAM + frame(large) + STREAM))
    assert [next(frames), next(frames)] == PAYLOADS
    with pytest.raises(LookupError):
        next(frames)
    assert list(reader.feed(b"")) == [large, *PAYLOADS]
    assert list(reader.feed(STREAM)) == PAYLOADS


def sasl_call(correlation_id: int, response: type[Message]) -> Call:
    return Call(correlation_id, response, 0, decode_response, [].append, 0.0, 0)


class TestTokens:
    """Tokens without headers follow SaslHandshake v0 (KIP-43)."""

    def test_token_is_read_as_a_response_to_sasl_authenticate(self) -> None:
        in_flight = InFlight()
        reader = TokenReader(10, in_flight)
        for correlation_id, token in ((5, b"token"), (6, b"")):
            in_flight.last_id = correlation_id
            in_flight.add(expected := sasl_call(correlation_id, SaslAuthenticateResponse))
            (payload,) = reader.feed(frame(token))
            answer = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=token)
            assert in_flight.match(payload) == (expected, answer, 0)

    def test_other_responses_and_surplus_tokens_stay_unchanged(self) -> None:
        in_flight = InFlight()
        reader = TokenReader(10, in_flight)
        assert list(reader.feed(frame(b"token"))) == [b"token"]
        in_flight.add(sasl_call(1, SaslHandshakeResponse))
        assert list(reader.feed(frame(b"response"))) == [b"response"]

    def test_begun_token_has_no_correlation_id(self) -> None:
        in_flight = InFlight()
        in_flight.add(sasl_call(1, SaslAuthenticateResponse))
        reader = TokenReader(10, in_flight)
        assert list(reader.feed(frame(b"token")[:-1])) == []
        assert reader.begun_payload == b""

    def test_token_above_the_limit_is_refused(self) -> None:
        with pytest.raises(ProtocolError, match=r"11 bytes long \(0 to 10 are possible\)"):
            list(TokenReader(10, InFlight()).feed(LENGTH.pack(11)))
